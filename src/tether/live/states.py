"""States as JSON and back: what the log holds of a state must be enough to decide again."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from tether.errors import InputError, TetherError
from tether.live.log.chain import text_of
from tether.records import State

_TAGS = ("tuple", "bytes", "array", "dict")

DEEPEST = 64
"""How deep lists, tuples and dicts may lie in each other: what reads them back goes down step by step, too."""


def encode_state(state: State, depth: int = 0) -> Any:
    """Return a state as JSON: numbers, strings and lists as they are; tuples, bytes, dicts and arrays tagged."""
    if depth > DEEPEST:
        raise InputError(f"a state nests lists, tuples or dicts more than {DEEPEST} deep: it cannot be logged.")
    if isinstance(state, np.generic):
        state = state.item()
    if state is None or isinstance(state, bool | int | str):
        return state
    if isinstance(state, float):
        if not math.isfinite(state):
            raise InputError(f"a state holds {state}: nothing can be decided from numbers that are not finite.")
        return state
    if isinstance(state, list):
        return [encode_state(entry, depth + 1) for entry in state]
    if isinstance(state, tuple):
        return {"tuple": [encode_state(entry, depth + 1) for entry in state]}
    if isinstance(state, bytes):
        return {"bytes": state.hex()}
    if isinstance(state, dict) and all(isinstance(name, str) for name in state):
        return {"dict": {name: encode_state(entry, depth + 1) for name, entry in state.items()}}
    if isinstance(state, np.ndarray) and state.dtype.kind in "biuf":
        if not np.isfinite(state).all():
            raise InputError("a state holds numbers that are not finite: nothing can be decided from them.")
        whole = np.ascontiguousarray(state)
        return {"array": [whole.dtype.str, list(state.shape), whole.tobytes().hex()]}
    raise InputError(
        f"state {state!r:.80} of type {type(state).__name__} cannot be logged: use numbers, strings, lists, tuples, "
        "dicts or arrays, or pass states=StateCodec(encode, decode) to the Advisor."
    )


def decode_state(value: Any) -> State:
    """Do the reverse of `encode_state`."""
    if isinstance(value, list):
        return [decode_state(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(decode_state(entry) for entry in content)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag == "dict":
        return {name: decode_state(entry) for name, entry in content.items()}
    if tag == "array":
        kind, shape, data = content
        return np.frombuffer(bytes.fromhex(data), dtype=np.dtype(kind)).reshape(shape).copy()
    raise InputError(f"a logged state has the tag {tag!r}, but only {', '.join(_TAGS)} are known.")


@dataclass(frozen=True)
class StateCodec:
    """Say how states become JSON and come back.

    Each of the two functions must be the other's reverse, or a replay decides otherwise.
    """

    encode: Callable[[State], Any] = encode_state
    decode: Callable[[Any], State] = decode_state


PLAIN = frozenset({int, float, str, bool, NoneType})
"""Types that JSON gives back as they are and that nobody can change."""


def _is_scalar(value: Any) -> bool:
    """Return whether every JSON library reads this back as it was written: an integer must fit into 64 bits."""
    return type(value) in PLAIN and (type(value) is not int or -(2**63) <= value < 2**63)


def detached(value: Any) -> Any:
    """Copy some JSON as the log gives it back: no part of it is the caller's, or of a type that JSON lacks."""
    return value if _is_scalar(value) else json.loads(text_of(value))


def as_logged(states: StateCodec, state: State) -> tuple[Any, State]:
    """Return a state as the log will hold it, and as a replay will read it. Decisions rest on the second."""
    if states.encode is encode_state and states.decode is decode_state and _is_scalar(state):
        return encode_state(state), state
    try:
        logged = detached(states.encode(state))
        # what a codec of the caller's hands back may be the very dict that it was given; `decode_state` makes its own
        return logged, states.decode(logged if states.decode is decode_state else detached(logged))
    except TetherError:
        raise
    except Exception as error:  # a codec is the caller's
        raise InputError(
            f"state {state!r:.120} cannot be logged and read back: {said_of(error)}. The two functions "
            "of states=StateCodec(encode, decode) must take every state, also None where nothing follows."
        ) from error


def said_of(error: Exception) -> str:
    """Return an error in the problem's functions, or in the learner, as callers see it.

    They see Tether's own words. Of any other error they see the type alone, as its text may hold what they should not
    read. The cause of the error, and the program's log, have it.
    """
    if isinstance(error, TetherError):
        return str(error)
    return f"{type(error).__name__}, whose text is in the program's own log only"


def retyped(state: State, again: State) -> str:
    """Name the way out, if some part of a state comes back from the log as another type; empty if none does."""
    if type(state) is not type(again):
        return (
            f" The log turns {type(state).__name__} into {type(again).__name__}: pass states=StateCodec(encode, "
            "decode) to the Advisor, so that it comes back as it was."
        )
    pairs: Iterable[tuple[State, State]] = ()
    if isinstance(state, list | tuple):
        pairs = zip(state, again, strict=False)
    elif isinstance(state, dict):
        pairs = ((entry, again.get(name)) for name, entry in state.items())
    return next(filter(None, (retyped(*pair) for pair in pairs)), "")
