"""Keys of states and the way back: what is rebuilt is the state, and nobody else can change it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pytest

from limits import stated
from tether import InputError, Problem, StarActions
from tether.problem.keys import content_key, is_plain, own_copy, rebuilt


class Pair(NamedTuple):
    left: int
    right: int


class Level(IntEnum):
    LOW = 1


@dataclass
class Tank:
    level: np.ndarray
    name: str


PLAIN = {
    "integer": 10**30,
    "float": 0.1 + 0.2,
    "string": "room ‘é’",
    "bytes": b"\x00\xff",
    "nothing": None,
    "truth": True,
    "tuple": (1, ("x", None), 2.5),
    "empty tuple": (),
    "array": np.array([[0.1, -1.0]]),
    "array of strings": np.array(["ab", "c"]),
    "array of complex numbers": np.array([1 + 2j]),
    "empty array": np.zeros((0, 3)),
    "scalar array": np.array(2.5),
    "big-endian array": np.array([1, 2], dtype=">i2"),
    "tuple with an array": (np.arange(3, dtype=np.uint8), "x"),
    "dictionary": {"place": np.array([0.1, 2.0]), "inner": {"x": (1, None)}, "a": "é"},
    "empty dictionary": {},
}


def same(one, two):
    if isinstance(one, tuple):
        return type(two) is tuple and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return type(two) is dict and one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    return type(one) is type(two) and one == two


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_state_comes_back_from_its_key(name):
    state = PLAIN[name]
    assert is_plain(state)
    back = rebuilt(content_key(state))
    assert same(state, back)
    assert content_key(back) == content_key(state)


def test_columns_first_or_strided_arrays_are_rebuilt_row_by_row():
    grid = np.arange(12.0).reshape(3, 4)
    for view in (np.asfortranarray(grid), grid[::2, 1:], grid.T):
        np.testing.assert_array_equal(rebuilt(content_key(view)), view)


NOT_PLAIN = {
    "dataclass": Tank(np.ones(2), "a"),
    "named tuple": Pair(1, 2),
    "enumeration": Level.LOW,
    "frozen set": frozenset([1]),
    "not a number": float("nan"),
    "array that is not finite": np.array([np.inf]),
    "array of objects": np.array([{}], dtype=object),
    "tuple with a dataclass": (1, Tank(np.ones(2), "a")),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_a_key_does_not_hold_is_not_called_plain(name):
    assert not is_plain(NOT_PLAIN[name])


def test_a_kept_state_cannot_be_changed_by_its_first_owner():
    """A simulator may write the next observation into the same buffer."""
    buffer = np.array([0.25, 0.5])
    kept = own_copy(buffer)
    buffer[:] = 9.0
    np.testing.assert_array_equal(kept, [0.25, 0.5])
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1.0
    tank = Tank(np.ones(2), "a")
    kept = own_copy(tank)
    tank.level[:] = 9.0
    np.testing.assert_array_equal(kept.level, [1.0, 1.0])
    assert own_copy(np.int64(7)) == 7


class Locked:
    """A state that refuses to be copied."""

    def __deepcopy__(self, memo):
        raise TypeError("one of a kind")


def test_a_state_that_cannot_be_copied_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"one of a kind.*state_of.*tables"):
        own_copy(Locked())


def _problem(**told):
    star = StarActions(np.array([0.5, 0.5]), np.eye(2))
    basic = {"horizon": 2, "threshold": 0.5, "noise": 0.1, "dimension": 2}
    return Problem(
        actions=lambda state: star,
        **stated(**basic, baseline_cost_error=0.0, baseline_cost=lambda step, state: 0.2, **told),
    )


def test_with_a_way_back_the_kept_state_is_what_it_returns():
    problem = _problem(key=lambda tank: tank.name, state_of=lambda name: Tank(np.zeros(2), name))
    kept = problem.kept(Tank(np.ones(2), "a"))
    assert kept.name == "a"
    np.testing.assert_array_equal(kept.level, [0.0, 0.0])


def test_a_way_back_that_leads_elsewhere_is_refused():
    problem = _problem(key=lambda tank: tank.name, state_of=lambda name: Tank(np.zeros(2), "elsewhere"))
    with pytest.raises(InputError, match=r"state_of\('a'\).*another key, 'elsewhere'"):
        problem.kept(Tank(np.ones(2), "a"))
