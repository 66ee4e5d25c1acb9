"""States and actions as JSON and back: what the log holds must be enough to decide again."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.errors import InputError
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
        return np.frombuffer(bytes.fromhex(data), dtype=np.dtype(kind)).reshape(shape)
    raise InputError(f"a logged state has the tag {tag!r}, but only {', '.join(_TAGS)} are known.")


@dataclass(frozen=True)
class StateCodec:
    """How states become JSON and come back. The two must be each other's reverse, or a replay decides otherwise."""

    encode: Callable[[State], Any] = encode_state
    decode: Callable[[Any], State] = decode_state


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
