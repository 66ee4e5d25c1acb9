"""Settings of frozen dataclasses, checked against their annotations: the one place where a setting is refused.

`Literal[...]` lists words, `int` is an integer >= 1, `float` a finite number >= 0 and `tuple[float, ...]` one number
per constraint; a `Limit` by the name of the field replaces what its numbers must satisfy.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from tether.errors import InputError, TetherError
from tether.problem.action_sets import real_numbers
from tether.records import settle


class Limit(NamedTuple):
    """What a number, or each of several, must satisfy: in words, as a test, and what an error suggests."""

    needs: str
    holds: Callable[[float], bool]
    advice: str = ""
    error: type[TetherError] = InputError


NOT_NEGATIVE = Limit("a finite number >= 0", lambda number: 0.0 <= number < inf)
AT_LEAST_ONE = Limit("an integer >= 1", lambda number: number >= 1)


def check_options(record: Any, limits: Mapping[str, Limit] | None = None) -> None:
    """Refuse settings that do not fit their annotations; numbers of any kind become Python's own."""
    for name, (words, kinds) in _declared(type(record)).items():
        value, limit = getattr(record, name), (limits or {}).get(name)
        if tuple in kinds and np.size(value) == 0 and getattr(type(record), name, None) == ():
            continue  # left open, as by default
        if tuple in kinds:
            settle(record, **{name: per_constraint(name, value, limit or NOT_NEGATIVE, record)})
        elif not ((isinstance(value, str) and value in words) or (value is None and type(None) in kinds)):
            settle(record, **{name: _number(name, value, words, kinds, limit)})


def per_constraint(name: str, value: Any, limit: Limit, record: Any) -> tuple[float, ...]:
    """One float per constraint, from a number or a sequence; `record.threshold`, checked first, says how many."""
    try:
        if any(isinstance(one, bool | np.bool_ | str | bytes) for one in np.ravel(np.array(value, dtype=object))):
            raise TypeError("True and '0.1' are no numbers, though they could be read as some")
        numbers = tuple(float(entry) for entry in np.atleast_1d(real_numbers(value, name)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number, or one per constraint, but is {value!r}.") from error
    count = max(len(numbers), 1) if name == "threshold" else len(record.threshold)
    if len(numbers) == 1:
        numbers *= count
    if len(numbers) != count:
        raise InputError(f"{name} has {len(numbers)} entries, but there are {count} thresholds.")
    if not all(map(limit.holds, numbers)):
        raise limit.error(f"{name} must be {limit.needs}, but is {numbers}. {limit.advice}".rstrip())
    return numbers


def not_negative(name: str, value: Any) -> float:
    """A setting as a finite number >= 0."""
    return float(_number(name, value, (), frozenset({float}), NOT_NEGATIVE))


def _declared(cls: type) -> dict[str, tuple[tuple[str, ...], frozenset[Any]]]:
    """The words that each setting with a simple annotation may be, and the types besides."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        words = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
        kinds = frozenset(get_origin(part) or part for part in parts) - {Literal}
        if kinds <= {int, float, type(None), tuple}:
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
    raise limit.error(f"{name} must be {allowed}, but is {value!r}. {limit.advice}".rstrip())
