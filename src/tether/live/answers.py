"""What is handed out: decisions, acknowledgments of outcomes, and the errors that an outcome may meet."""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field

from tether.errors import InputError
from tether.live.log.chain import Entry
from tether.live.records import DecisionMade
from tether.records import Action, State


class LiveDecision(DecisionMade):
    """An action to play now, with the certificate that justifies it: the record, as it is handed out.

    `proposed` is what the learner wanted. In shadow mode, or when something objected, `action` is a_0 all the same:
    `reason` says what objected, and `proposal` is the certificate of what was proposed.

    `logged` is False if the log could not be written. Then the action is a_0, `id` is empty, and no outcome can be
    recorded.

    Attributes:
        state: as the log gives it back, no longer as JSON.
        seq: the entry of the log.
        text: what stands there.
    """

    state: Any
    seq: int = 0
    text: str = Field(default="", exclude=True, repr=False)

    @classmethod
    def of(cls, record: DecisionMade, state: State, entry: Entry | None = None) -> Self:
        """Return a record with its state as an object, and its place in the log."""
        seq, text = (0, "") if entry is None else (entry.seq, entry.text)
        return cls.trusted({**vars(record), "state": state, "seq": seq, "text": text})

    @property
    def id(self) -> str:
        """What `Advisor.record` asks for."""
        return self.decision_id

    @property
    def action(self) -> Action:
        """What to play."""
        return self.played

    @property
    def logged(self) -> bool:
        """Whether it is in the log, so that an outcome can be recorded."""
        return self.seq > 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """An outcome is in the log, durably, at entry `seq`; `repeated` if it was there before."""

    decision_id: str
    seq: int
    repeated: bool


class AlreadyRecorded(InputError):
    """A decision has an outcome already, with other content. The first one stands; nothing was changed."""


class ImpossibleCost(InputError):
    """A cost that B and σ do not allow: a sensor failed, or they were declared too small. It is not learned from."""


class UnknownDecision(InputError):
    """No such decision is in the log: it was made elsewhere, or it could not be logged."""
