"""What identifies a state: numbers, strings, arrays, dataclasses, tuples and dictionaries of them; and the way back."""

import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tether.errors import InputError
from tether.records import State, StateKey

ARRAY, NAMED = "array", "dict"
PLAIN = (bool, int, str, bytes, type(None))
GIVE_A_KEY = "give key=…, a function from a state to something hashable, such as a tuple of its numbers."


def content_key(state: State) -> StateKey:
    """A hashable identity: the state itself, the content of an array or a dictionary, or a dataclass's fields with the
    class's name."""
    if type(state) is int or type(state) is str:  # by far the most frequent
        return state
    if isinstance(state, np.generic):
        item = state.item()
        # item() of a long double is a long double
        return content_key(float(item) if isinstance(item, np.generic) else item)
    if isinstance(state, tuple):
        return tuple(content_key(entry) for entry in state)
    if isinstance(state, np.ndarray):
        if state.dtype.kind not in "biufcSU":
            raise InputError(
                f"state {state!r} is an array of {state.dtype}, whose content identifies nothing: {GIVE_A_KEY}"
            )
        if np.ma.is_masked(state):
            raise InputError(f"state {state!r} is masked: what was not observed identifies nothing.")
        if state.dtype.kind in "fc" and not np.isfinite(state).all():
            raise InputError(f"state {state!r} is not finite.")
        return (ARRAY, state.dtype.str, state.shape, state.tobytes())
    if isinstance(state, dict) and all(type(name) is str for name in state):
        names = sorted(state)
        return (NAMED, tuple(names), tuple(content_key(state[name]) for name in names))
    if is_dataclass(state) and not isinstance(state, type):
        values = (content_key(getattr(state, field.name)) for field in fields(state))
        return (f"{type(state).__module__}.{type(state).__qualname__}", *values)
    if isinstance(state, float) and not np.isfinite(state):
        raise InputError(f"state {state!r} is not finite.")
    return hashable(state, f"state {state!r}")


def hashable(key: Any, what: str) -> StateKey:
    """The key itself, refused by name if it cannot identify a state."""
    try:
        hash(key)
    except TypeError:
        raise InputError(f"{what} of type {type(key).__name__} is not hashable: {GIVE_A_KEY}") from None
    checked: StateKey = key
    return checked


def is_plain(state: State) -> bool:
    """Whether `rebuilt(content_key(state))` is this state: finite numbers, arrays, strings, bytes; tuples and
    dictionaries of them."""
    if type(state) is dict:
        return all(type(name) is str and is_plain(entry) for name, entry in state.items())
    if isinstance(state, tuple):
        # a named tuple would come back as a plain one
        return type(state) is tuple and all(is_plain(entry) for entry in state)
    if isinstance(state, np.ndarray | np.generic) or type(state) is float:
        content = np.asarray(state)
        return content.dtype.kind in "biuSU" or (content.dtype.kind in "fc" and bool(np.isfinite(content).all()))
    return type(state) in PLAIN


def has_exact_key(state: State) -> bool:
    """Whether every state that differs from this one has another `content_key`: not so where the state's class defines
    equality, nor where an object equals only itself, whatever is written into it."""
    if type(state) is dict or type(state) is tuple:
        return all(map(has_exact_key, state.values() if type(state) is dict else state))
    if is_dataclass(state) and not isinstance(state, type):
        return all(has_exact_key(getattr(state, field.name)) for field in fields(state))
    return is_plain(state)


def rebuilt(key: Any) -> State:
    """The plain state of a content key; numpy's numbers come back as Python's, arrays read-only."""
    if not isinstance(key, tuple):
        return key
    if len(key) == 4 and key[0] == ARRAY and isinstance(key[3], bytes):
        _, kind, shape, data = key
        return np.ndarray(shape, np.dtype(kind), buffer=data)
    if len(key) == 3 and key[0] == NAMED and isinstance(key[1], tuple) and isinstance(key[2], tuple):
        return dict(zip(key[1], map(rebuilt, key[2]), strict=True))
    return tuple(rebuilt(entry) for entry in key)


def own_copy(state: State) -> State:
    """A copy that nobody else can change: a caller may reuse the buffer of an array for the next observation."""
    if is_plain(state):
        return rebuilt(content_key(state))
    try:
        return copy.deepcopy(state)
    except Exception as error:
        raise InputError(
            f"state {state!r} cannot be copied ({error}), and a lean backup must keep its states: give Problem "
            "key=StateKeys(key, state_of), a function from a key to its state, or use backup='tables'."
        ) from error
