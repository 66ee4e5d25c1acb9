"""State features ψ(s) with ‖ψ(s)‖ <= 1: the interface, and the builders that need no coordinates."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, Self

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


# Builders that read real vectors: the declared range, and what happens outside it.

Outside = Literal["error", "clip"]


class OnRange(Features):
    """ψ of a vector x (or a number) in the box [low, high]; outside it, an error or the nearest point of the box.

    The norm bound is proved from the range, so a value outside never passes silently: "error" refuses it, "clip"
    moves it to the edge. Clipping keeps ‖ψ‖ <= 1, but makes different states look alike: costs must then be linear in
    what is left.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, outside: Outside = "error") -> None:
        self.low, self.high = checked_range(low, high)
        if outside not in ("error", "clip"):
            raise InputError(f"outside is 'error' or 'clip', not {outside!r}.")
        self.outside = outside

    @property
    def variables(self) -> int:
        """The number of coordinates of x."""
        return self.low.size

    def batch(self, states: Sequence[State]) -> Array:
        """ψ of many vectors: (n, k)."""
        return self._rows(self._scaled(states))

    @abstractmethod
    def _rows(self, unit: Array) -> Array:
        """Features of points of [-1, 1]^v: (n, v) -> (n, k)."""

    def _scaled(self, states: Sequence[State]) -> Array:
        """The points of [-1, 1]^v that stand for the states, (n, v)."""
        x = as_points(states, self.variables)
        inside = (x >= self.low) & (x <= self.high)
        if not inside.all() and self.outside == "error":
            row, column = np.argwhere(~inside)[0]
            raise InputError(
                f"coordinate {column} of state {x[row].tolist()} is {x[row, column]:.6g}, outside the declared range "
                f"[{self.low[column]:.6g}, {self.high[column]:.6g}]: widen low and high, or set outside='clip'."
            )
        x = np.clip(x, self.low, self.high)
        # halves first: high - low may overflow; clipped again because the division rounds
        unit = (x - (0.5 * self.low + 0.5 * self.high)) / (0.5 * self.high - 0.5 * self.low)
        scaled: Array = np.clip(unit, -1.0, 1.0)
        return scaled

    def describe_range(self) -> str:
        """The box in words."""
        sides = [f"[{low:g}, {high:g}]" for low, high in zip(self.low, self.high, strict=True)]
        box = f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 and len(sides) > 1 else " x ".join(sides)
        return f"{box} ({'clipped' if self.outside == 'clip' else 'an error'} outside)"


def as_points(states: Sequence[State], variables: int) -> Array:
    """States as finite vectors of that many coordinates, (n, v); a number counts as one coordinate."""
    try:
        x = np.array([np.asarray(state, dtype=np.float64).reshape(-1) for state in states])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"these features read {variables} numbers from a state, but a state is {states[0]!r}: {error}. "
            "Wrap them: Reading(function from a state to numbers, ...)."
        ) from error
    if len(states) and x.shape != (len(states), variables):
        raise InputError(
            f"these features read {variables} coordinates, but states have shape {x.shape[1:]}: give low and high one "
            "entry per coordinate, or choose the coordinates with Reading."
        )
    if not np.isfinite(x).all():
        raise InputError(f"state {x[np.argwhere(~np.isfinite(x))[0][0]].tolist()} is not finite.")
    return x.reshape(len(states), variables)


def checked_range(low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
    """Two read-only vectors (v,), low < high and both finite."""
    ends = [np.atleast_1d(np.array(end, dtype=np.float64)).reshape(-1) for end in (low, high)]
    if ends[0].shape != ends[1].shape or not all(np.isfinite(end).all() for end in ends):
        raise InputError(
            f"low and high must be finite and of the same length, but are {ends[0].tolist()} and {ends[1].tolist()}. "
            "Where a Gymnasium space is unbounded, give the range that you expect, with outside='clip'."
        )
    if not (ends[0] < ends[1]).all():
        raise InputError(f"low must lie below high, but low = {ends[0].tolist()}, high = {ends[1].tolist()}.")
    for end in ends:
        end.flags.writeable = False
    return ends[0], ends[1]


# Standardised coordinates: (x − mean) / scale before other features, frozen once they are fitted.


class Standardised(Features):
    """ψ(x) = inner((x − mean) / scale). The range of `inner` is in standard deviations.

    Mean and scale never change after construction: features that moved with the data would make old and new
    transitions incomparable, and the certificate would mean nothing.
    """

    def __init__(self, inner: Features, *, mean: ArrayLike, scale: ArrayLike) -> None:
        self.mean, self.scale = (np.atleast_1d(np.array(x, dtype=np.float64)).reshape(-1) for x in (mean, scale))
        for vector in (self.mean, self.scale):
            vector.flags.writeable = False
        valid = self.mean.shape == self.scale.shape and np.isfinite(self.mean).all() and np.isfinite(self.scale).all()
        if not valid or not (self.scale > 0.0).all():
            raise InputError(
                "mean and scale need one finite number per coordinate and scale > 0, but are "
                f"{self.mean.tolist()} and {self.scale.tolist()}."
            )
        self._inner = inner
        self.dimension = inner.dimension

    @classmethod
    def fit(cls, rows: ArrayLike, inner: Features) -> Self:
        """Mean and standard deviation of logged states (n, v), then frozen. Use data from *before* learning."""
        data = np.array(rows, dtype=np.float64)
        if data.ndim != 2 or len(data) < 2 or not np.isfinite(data).all():
            raise InputError(f"fit needs finite states of shape (n, v) with n >= 2, but got shape {data.shape}.")
        scale = data.std(axis=0)
        if not (scale > 0.0).all():
            still = np.flatnonzero(~(scale > 0.0)).tolist()
            raise InputError(f"coordinates {still} never vary in the logged states: leave them out with Reading.")
        return cls(inner, mean=data.mean(axis=0), scale=scale)

    def batch(self, states: Sequence[State]) -> Array:
        """ψ of many states: (n, k)."""
        x = as_points(states, self.mean.size)
        with np.errstate(over="ignore"):  # an overflow is infinite, and the inner features refuse it
            return self._inner.batch(list((x - self.mean) / self.scale))

    def describe(self) -> str:
        """One line for people."""
        return f"standardised -> {self._inner.describe()}"
