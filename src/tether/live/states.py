"""States and actions as JSON and back: what the log holds must be enough to decide again."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from tether.errors import InputError, TetherError
from tether.live.store import text_of
from tether.problem.action_sets import ActionSet
from tether.records import Action, StarAction, State

_TAGS = ("tuple", "bytes", "array", "dict")


DEEPEST = 64
"""How deep lists, tuples and dicts may lie in each other: what reads them back goes down step by step, too."""


def encode_state(state: State, depth: int = 0) -> Any:
    """A state as JSON: numbers, strings and lists as they are; tuples, bytes, dicts and arrays tagged."""
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
    """The reverse of `encode_state`."""
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
    """How states become JSON and come back. The two must be each other's reverse, or a replay decides otherwise."""

    encode: Callable[[State], Any] = encode_state
    decode: Callable[[Any], State] = decode_state


PLAIN = frozenset({int, float, str, bool, NoneType})
"""Types that JSON gives back as they are and that nobody can change."""


def detached(value: Any) -> Any:
    """A copy of some JSON as the log gives it back: no part of it is the caller's, or of a type that JSON lacks."""
    return value if type(value) in PLAIN else json.loads(text_of(value))


def as_logged(states: StateCodec, state: State) -> tuple[Any, State]:
    """A state as the log will hold it, and as a replay will read it: what must be checked, and decided on."""
    if states.encode is encode_state and states.decode is decode_state and type(state) in PLAIN:
        return encode_state(state), state
    try:
        logged = detached(states.encode(state))
        # what a codec of the caller's hands back may be the very dict that it was given; `decode_state` makes its own
        return logged, states.decode(logged if states.decode is decode_state else detached(logged))
    except TetherError:
        raise
    except Exception as error:  # a codec is the caller's
        raise InputError(
            f"state {state!r:.120} cannot be logged and read back: {type(error).__name__}: {error}. The two functions "
            "of states=StateCodec(encode, decode) must take every state, also None where nothing follows."
        ) from error


def with_way_out(error: InputError, state: State, again: State) -> InputError:
    """The error; if the caller's functions failed on a state whose type the log does not keep, with the way out."""
    way_out = "" if error.__cause__ is None else retyped(state, again)
    return InputError(f"{error}{way_out}") if way_out else error


def retyped(state: State, again: State) -> str:
    """The way out, if some part of a state comes back from the log as another type; empty if none does."""
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


def encode_action(action: Action) -> Any:
    """An index as it is, a point of a star as its ray and length."""
    if isinstance(action, StarAction):
        return {"ray": action.ray, "length": action.length}
    return int(action)


def decode_action(value: Any) -> Action:
    """The reverse of `encode_action`."""
    if isinstance(value, dict):
        return StarAction(int(value["ray"]), float(value["length"]))
    return int(value)


def checked_action(actions: ActionSet, action: Any) -> Action:
    """An action that is really in D(s), refused by name otherwise."""
    count = len(actions.endpoints)
    if isinstance(action, StarAction):
        length = action.length
        number = isinstance(length, int | float | np.integer | np.floating) and not isinstance(length, bool)
        inside = (
            isinstance(action.ray, int | np.integer) and not isinstance(action.ray, bool) and -1 <= action.ray < count
        )
        if not (actions.is_star and inside and number and 0.0 <= length <= 1.0):
            kind = f"{count} rays, lengths 0 to 1" if actions.is_star else f"{count} single actions, no rays"
            raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
        return StarAction(int(action.ray), float(length))
    is_index = isinstance(action, int | np.integer) and not isinstance(action, bool)
    if actions.is_star or not is_index or not 0 <= action < count:
        kind = "rays: give a StarAction(ray, length)" if actions.is_star else f"actions 0 to {count - 1}"
        raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
    return int(action)
