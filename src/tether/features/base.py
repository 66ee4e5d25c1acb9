"""State features ψ(s) with ‖ψ(s)‖ <= 1: the interface, and the builders that need no coordinates."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.problem.action_sets import NORM_TOLERANCE
from tether.records import Array, State

LARGEST_DIMENSION = 20_000
"""Above this a Gram matrix (d, d) alone takes 3 GB: almost certainly a mistake in the order or the number of bins."""


class Features(ABC):
    """ψ(s), k numbers with ‖ψ(s)‖ <= 1 in every state, by construction.

    `dimension` is k. Calling gives (k,); `batch` gives (n, k) for n states, and its rows equal the single calls.
    """

    dimension: int

    @abstractmethod
    def batch(self, states: Sequence[State]) -> Array:
        """ψ of many states: (n, k)."""

    def __call__(self, state: State) -> Array:
        """ψ(s), (k,)."""
        row: Array = self.batch([state])[0]
        return row

    @abstractmethod
    def describe(self) -> str:
        """One line for people: what it is, on which range, and its dimension."""


class Constant(Features):
    """ψ(s) = (1,): an intercept. It keeps the safe feature from vanishing when it is concatenated with others."""

    def __init__(self) -> None:
        self.dimension = 1

    def batch(self, states: Sequence[State]) -> Array:
        """Ones, (n, 1)."""
        return np.ones((len(states), 1))

    def describe(self) -> str:
        """One line for people."""
        return "constant: 1 feature"


class OneHot(Features):
    """ψ(s) = e_i, where i is the place of s among `values`: tabular features, ‖ψ‖ = 1.

    `values` is a number n, for the states 0..n-1, or the list of hashable states. Every function of the state is
    linear in them, and nothing learned in one state says anything about another.
    """

    def __init__(self, values: int | Sequence[Hashable]) -> None:
        listed = range(values) if isinstance(values, int | np.integer) else list(values)
        self._place = {value: place for place, value in enumerate(listed)}
        if not self._place or len(self._place) != len(listed):
            raise InputError(f"OneHot needs at least one state and none of them twice, but got {values!r}.")
        self.dimension = check_dimension(len(listed), "OneHot", "the number of states")

    def batch(self, states: Sequence[State]) -> Array:
        """Rows of the identity, (n, k)."""
        rows = np.zeros((len(states), self.dimension))
        for row, state in zip(rows, states, strict=True):
            row[self._find(state)] = 1.0
        return rows

    def _find(self, state: State) -> int:
        try:
            return self._place[state]
        except (KeyError, TypeError):
            raise InputError(
                f"state {state!r} is not one of the {self.dimension} values that this OneHot was given. List every "
                "state, or read something listed from it: Reading(function, OneHot(...))."
            ) from None

    def describe(self) -> str:
        """One line for people."""
        return f"one-hot over {self.dimension} states: {self.dimension} features"


class Reading(Features):
    """ψ(s) = inner(read(s)): for states that are dataclasses, dictionaries, strings, or only partly of interest."""

    def __init__(self, read: Callable[[State], Any], inner: Features) -> None:
        self._read, self._inner = read, inner
        self.dimension = inner.dimension

    def batch(self, states: Sequence[State]) -> Array:
        """ψ of what was read from each state: (n, k)."""
        return self._inner.batch([self._read(state) for state in states])

    def describe(self) -> str:
        """One line for people."""
        return f"{getattr(self._read, '__name__', 'reading')} -> {self._inner.describe()}"


class FunctionFeatures(Features):
    """ψ(s) = function(s) / bound: any function from a state to k numbers of norm at most `bound`.

    Each value is checked; one that is longer than `bound` is an error, never a feature of norm above 1.
    """

    def __init__(self, function: Callable[[State], ArrayLike], dimension: int, *, bound: float = 1.0) -> None:
        self._function, self._bound = function, check_bound(bound)
        self.dimension = check_dimension(dimension, "FunctionFeatures", "dimension")

    def batch(self, states: Sequence[State]) -> Array:
        """Scaled values, (n, k)."""
        rows = [checked_row(self._function(state), self.dimension, self._bound, state) for state in states]
        return np.array(rows).reshape(len(states), self.dimension) / self._bound

    def describe(self) -> str:
        """One line for people."""
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"{name}, divided by its bound {self._bound:g}: {self.dimension} features"


def checked_row(values: ArrayLike, dimension: int, bound: float, *of: Any) -> Array:
    """A user's feature as (d,) floats, refused unless finite, of that length, and of norm at most `bound`.

    `of` is what the feature belongs to: written into errors, and only then, as arrays are slow to write.
    """
    try:
        row = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{_features_of(of)} must be {dimension} numbers: {error}.") from error
    if row.shape != (dimension,):
        raise InputError(
            f"{_features_of(of)} must be {dimension} numbers, shape ({dimension},), but have shape {row.shape}."
        )
    if not np.isfinite(row).all():
        raise InputError(f"{_features_of(of)} are not finite: {row.tolist()}.")
    with np.errstate(over="ignore"):  # a norm that overflows is infinite, and refused
        norm = float(np.linalg.norm(row))
    if not norm <= bound * (1.0 + NORM_TOLERANCE):
        raise AssumptionError(
            f"Assumption 4 needs ‖φ‖ <= 1 and these are divided by {bound:.6g}, but {_features_of(of)} have norm "
            f"{norm:.6g}. Give bound={norm:.6g} or larger: the largest norm that can ever occur."
        )
    return row


def _features_of(what: tuple[Any, ...]) -> str:
    return f"features of {', '.join(map(repr, what))}"


def check_dimension(dimension: int, what: str, why: str) -> int:
    """A dimension that a Gram matrix can hold."""
    if not (isinstance(dimension, int | np.integer) and 1 <= dimension <= LARGEST_DIMENSION):
        raise InputError(
            f"{what} would have {dimension!r} features, but 1 to {LARGEST_DIMENSION} are possible. Change {why}."
        )
    return int(dimension)


def check_bound(bound: float) -> float:
    """A positive finite number to divide by."""
    if not 0.0 < bound < np.inf:
        raise InputError(f"bound must be positive and finite, but is {bound!r}: it is the largest norm of the values.")
    return float(bound)
