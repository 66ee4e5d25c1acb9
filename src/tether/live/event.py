"""Events: how a record becomes an entry of the log, and is read back."""

import json
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tether.errors import AlteredLog
from tether.live.certificate import STRICT
from tether.live.log.chain import Draft, Entry, is_finite, text_of


class Event(BaseModel):
    """Base of all events. `kind` is the name in the log; `keys` are what may occur once in the whole log."""

    model_config = ConfigDict(frozen=True, **STRICT)

    kind: ClassVar[str]

    def keys(self) -> tuple[str, ...]:
        """Return the keys that make a repeat of this event visible; none for events that may come again."""
        return ()

    def draft(self, *also: str) -> Draft:
        """Return the event as the log takes it, with further keys that may occur once."""
        return Draft(self.kind, self._text(), (*self.keys(), *also))

    @classmethod
    def trusted(cls, values: dict[str, Any]) -> Self:
        """Make the event with these fields, all of them, unchecked: for what was computed here. Readers check it."""
        event, put = cls.__new__(cls), object.__setattr__
        put(event, "__dict__", values)
        put(event, "__pydantic_fields_set__", _names_of(cls))
        put(event, "__pydantic_extra__", None)
        put(event, "__pydantic_private__", None)
        return event

    @classmethod
    def read(cls, entry: Entry) -> Self:
        """Read the event of this kind that an entry holds.

        Raises:
            AlteredLog: the body of the entry does not fit it.
        """
        try:
            if "\\ud" in entry.text:  # half a surrogate pair, perhaps, which only Python reads
                return cls.model_validate(entry.body, strict=False)
            return cls.model_validate_json(entry.text)
        except ValidationError as error:
            raise AlteredLog(f"entry {entry.seq} is not a {cls.kind!r} event: {error}.", entry.seq) from error

    def _text(self) -> str:
        """Return the fields as JSON, in their order.

        What pydantic cannot write (half a surrogate pair), or what must not be written (a NaN), goes the slow way,
        which tells them apart.
        """
        try:
            text = self.__pydantic_serializer__.to_json(self).decode()
        except ValueError:
            return text_of(self.model_dump(mode="json"))
        return text if is_finite(text) else text_of(json.loads(text))


@cache
def _names_of(model: type[Event]) -> set[str]:
    """Return the names of its fields, one set for all events of a kind: nothing changes it, a copy gets its own."""
    return set(model.model_fields)
