"""Settings of frozen dataclasses, checked against their annotations: the one place where a setting is refused.

`Literal[...]` lists words, `int` is an integer >= 1 and `float` a finite number >= 0. A `Limit` by the name of the
field replaces what its numbers must satisfy.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError, TetherError
from tether.records import Array, settle


class Limit(NamedTuple):
    """What a number, or each of several, must satisfy: in words, as a test, and what an error suggests."""

    needs: str
    holds: Callable[[float], bool]
    advice: str = ""
    error: type[TetherError] = InputError


NOT_NEGATIVE = Limit("a finite number >= 0", lambda number: 0.0 <= number < inf)
AT_LEAST_ONE = Limit("an integer >= 1", lambda number: number >= 1)


def check_options(record: Any, limits: Mapping[str, Limit] | None = None, *, called: str = "{}") -> None:
    """Refuse settings that do not fit their annotations; numbers of any kind become Python's own.

    Args:
        record: the frozen dataclass.
        limits: what numbers must satisfy, by field.
        called: how errors call a field, such as "Drift({}=…)".
    """
    for name, (words, kinds) in _declared(type(record)).items():
        value, limit, label = getattr(record, name), (limits or {}).get(name), called.format(name)
        if not ((isinstance(value, str) and value in words) or (value is None and type(None) in kinds)):
            settle(record, **{name: _number(label, value, words, kinds, limit)})


def not_negative(name: str, value: Any) -> float:
    """A setting as a finite number >= 0."""
    return number(name, value, NOT_NEGATIVE)


def number(name: str, value: Any, limit: Limit) -> float:
    """A setting as Python's own number, refused in the words of its limit."""
    return float(_number(name, value, (), frozenset({float}), limit))


def _declared(cls: type) -> dict[str, tuple[tuple[str, ...], frozenset[Any]]]:
    """The words that each setting with a simple annotation may be, and the types besides."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        words = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
        kinds = frozenset(get_origin(part) or part for part in parts) - {Literal}
        if kinds <= {int, float, type(None)}:
            found[name] = words, kinds
    return found


def _number(name: str, value: Any, words: tuple[str, ...], kinds: frozenset[Any], limit: Limit | None) -> int | float:
    """A number as the annotation wants it; the error lists all that would have been allowed."""
    whole, numeric = int in kinds, bool(kinds & {int, float})
    types: Any = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    limit = limit or (AT_LEAST_ONE if whole else NOT_NEGATIVE)
    if numeric and isinstance(value, types) and not isinstance(value, bool) and limit.holds(value):
        return int(value) if whole else float(value)
    allowed = " or ".join([*map(repr, words), *([limit.needs] if numeric else [])])
    error = limit.error if isinstance(value, types) and not isinstance(value, bool) else InputError
    raise error(f"{name} must be {allowed}, but is {value!r}. {limit.advice}".rstrip())


# Numbers that people hand over.


def real_numbers(values: ArrayLike, what: str = "features") -> Array:
    """A float copy, refused if masked or complex: numpy would drop the mask, or the imaginary part."""
    if is_masked(values) or np.iscomplexobj(values):
        raise InputError(f"{what} must be numbers, all of them given and real: some are masked or complex.")
    return np.array(values, dtype=np.float64)


def is_masked(values: Any) -> bool:
    """Whether some of these numbers are masked, also within lists: they are none, but numpy would read them as some."""
    if isinstance(values, list | tuple):
        return any(type(value) is not float and is_masked(value) for value in values)
    return bool(np.ma.is_masked(values))
