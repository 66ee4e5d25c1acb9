"""State features ψ(s) with ‖ψ(s)‖ <= 1: one-hot, functions, smooth bases and partitions of a box, products."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations_with_replacement
from itertools import product as every_combination
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.options import real_numbers
from tether.problem.action_sets import NORM_TOLERANCE
from tether.records import Array, State

SINGLE = float(np.finfo(np.float32).eps)
"""Rounding of single precision, in which environments give observations: so far outside a range is at its end."""

LARGEST_DIMENSION = 20_000
"""Above this a Gram matrix (d, d) alone takes 3 GB: almost certainly a mistake in the order or the number of bins."""


class Described:
    """What all features have: the number of them, and a line that says what they are."""

    dimension: int
    label: str = ""

    def describe(self) -> str:
        """One line for people: what it is, on which range, and its dimension."""
        return f"{self.label or type(self).__name__}: {self.dimension} feature{'s' if self.dimension != 1 else ''}"


class Features(Described, ABC):
    """ψ(s), k numbers with ‖ψ(s)‖ <= 1 in every state, by construction.

    `dimension` is k. Calling gives (k,); `batch` gives (n, k) for n states, and its rows equal the single calls.
    """

    @abstractmethod
    def batch(self, states: Sequence[State]) -> Array:
        """ψ of many states: (n, k)."""

    def __call__(self, state: State) -> Array:
        """ψ(s), (k,)."""
        row: Array = self.batch([state])[0]
        return row


# Checks that all builders share.


def check_dimension(dimension: int, what: str, why: str) -> int:
    """A dimension that a Gram matrix can hold."""
    if not (isinstance(dimension, int | np.integer) and 1 <= dimension <= LARGEST_DIMENSION):
        raise InputError(
            f"{what} would have {dimension!r} features, but 1 to {LARGEST_DIMENSION} are possible. Change {why}."
        )
    return int(dimension)


def check_count(value: int, name: str) -> int:
    """An integer >= 1."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise InputError(f"{name} must be an integer >= 1, but is {value!r}.")
    return int(value)


def places_of(values: int | Sequence[Hashable], owner: str, kind: str) -> dict[Any, int]:
    """The place of each value in a list; a number n stands for 0..n-1."""
    try:
        listed = range(values) if isinstance(values, int | np.integer) else list(values)
        places = {value: place for place, value in enumerate(listed)}
    except TypeError as error:
        raise InputError(f"{owner} needs a list of {kind}s that are hashable, but got {values!r}: {error}.") from error
    if not places or len(places) != len(listed):
        raise InputError(f"{owner} needs at least one {kind} and none of them twice, but got {values!r}.")
    return places


def name_of(function: Callable[..., Any]) -> str:
    """What to call a user's function."""
    return str(getattr(function, "__name__", type(function).__name__))


def check_bound(bound: float) -> float:
    """A positive finite number to divide by."""
    if not 0.0 < bound < np.inf:
        raise InputError(f"bound must be positive and finite, but is {bound!r}: it is the largest norm of the values.")
    return float(bound)


def function_rows(
    function: Callable[..., ArrayLike], calls: Sequence[tuple[Any, ...]], dimension: int, bound: float | None
) -> Array:
    """function(*call) / bound for each call, (n, d); None leaves values as they are. See `checked_row`."""
    limit, scale = (np.inf, 1.0) if bound is None else (bound, bound)
    rows = [checked_row(function(*call), dimension, limit, call) for call in calls]
    return np.array(rows).reshape(len(calls), dimension) / scale


def checked_row(values: ArrayLike, dimension: int, bound: float, call: tuple[Any, ...]) -> Array:
    """A user's feature as (d,) floats, refused unless finite, of that length, and of norm at most `bound`.

    `call` is what the feature belongs to: written into errors, and only then, as arrays are slow to write.
    """
    try:
        row = real_numbers(values)
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{_features_of(call)} must be {dimension} numbers: {error}.") from error
    if row.shape != (dimension,):
        raise InputError(
            f"{_features_of(call)} must be {dimension} numbers, shape ({dimension},), but have shape {row.shape}."
        )
    if not np.isfinite(row).all():
        raise InputError(f"{_features_of(call)} are not finite: {row.tolist()}.")
    with np.errstate(over="ignore"):  # a norm that overflows is infinite, and refused
        norm = float(np.linalg.norm(row))
    if not norm <= bound * (1.0 + NORM_TOLERANCE):
        raise AssumptionError(
            f"Assumption 4 needs ‖φ‖ <= 1 and these are divided by {bound:.6g}, but {_features_of(call)} have norm "
            f"{norm:.6g}. Give bound={norm:.6g} or larger: the largest norm that can ever occur."
        )
    return row


def _features_of(call: tuple[Any, ...]) -> str:
    return f"features of {', '.join(map(repr, call))}"


# Features of states of any kind.


class Constant(Features):
    """ψ(s) = (1,): an intercept. It keeps the safe feature from vanishing when it is concatenated with others."""

    dimension, label = 1, "constant"

    def batch(self, states: Sequence[State]) -> Array:
        """Ones, (n, 1)."""
        return np.ones((len(states), 1))


class OneHot(Features):
    """ψ(s) = e_i, where i is the place of s among `values`: tabular features, ‖ψ‖ = 1.

    `values` is a number n, for the states 0..n-1, or the list of hashable states. Every function of the state is
    linear in them, and nothing learned in one state says anything about another.
    """

    def __init__(self, values: int | Sequence[Hashable]) -> None:
        self._place = places_of(values, "OneHot", "state")
        self.dimension = check_dimension(len(self._place), "OneHot", "the number of states")
        self.label = f"one-hot over {self.dimension} states"

    def batch(self, states: Sequence[State]) -> Array:
        """Rows of the identity, (n, k)."""
        rows = np.zeros((len(states), self.dimension))
        for row, state in zip(rows, states, strict=True):
            try:
                row[self._place[state]] = 1.0
            except (KeyError, TypeError):
                raise InputError(
                    f"state {state!r} is not one of the {self.dimension} values that this OneHot was given. List every "
                    "state, or read something listed from it: Reading(function, OneHot(...))."
                ) from None
        return rows


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
        return f"{name_of(self._read)} -> {self._inner.describe()}"


class FunctionFeatures(Features):
    """ψ(s) = function(s) / bound: any function from a state to k numbers of norm at most `bound`.

    Each value is checked; one that is longer than `bound` is an error, never a feature of norm above 1.
    """

    def __init__(self, function: Callable[[State], ArrayLike], dimension: int, *, bound: float = 1.0) -> None:
        self._function, self._bound = function, check_bound(bound)
        self.dimension = check_dimension(dimension, "FunctionFeatures", "dimension")
        self.label = f"{name_of(function)}, divided by its bound {self._bound:g}"

    def batch(self, states: Sequence[State]) -> Array:
        """Scaled values, (n, k)."""
        return function_rows(self._function, [(state,) for state in states], self.dimension, self._bound)


class _Product(Features):
    def __init__(self, first: Features, second: Features) -> None:
        self._first, self._second = first, second
        self.dimension = check_dimension(first.dimension * second.dimension, "product", "the factors' sizes")
        self.label = f"({first.describe()}) x ({second.describe()})"

    def batch(self, states: Sequence[State]) -> Array:
        rows = self._first.batch(states)[:, :, None] * self._second.batch(states)[:, None, :]
        return rows.reshape(len(states), self.dimension)


def product(first: Features, second: Features) -> Features:
    """ψ_1(s) ⊗ ψ_2(s): all products of two entries, ‖·‖ = ‖ψ_1‖ ‖ψ_2‖ <= 1. k = k_1 k_2."""
    return _Product(first, second)


# Features of states that are real vectors.


def as_points(states: Sequence[State], variables: int) -> Array:
    """States as finite vectors of that many coordinates, (n, v); a number counts as one coordinate."""
    try:
        x = np.array([real_numbers(state, "a state").reshape(-1) for state in states])
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


def frozen_vectors(*given: ArrayLike) -> tuple[Array, ...]:
    """Each as a read-only vector (v,)."""
    vectors = tuple(np.atleast_1d(np.array(one, dtype=np.float64)).reshape(-1) for one in given)
    for vector in vectors:
        vector.flags.writeable = False
    return vectors


def checked_range(low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
    """Two read-only vectors (v,), low < high and both finite."""
    start, end = frozen_vectors(low, high)
    if start.shape != end.shape or not (np.isfinite(start).all() and np.isfinite(end).all()):
        raise InputError(
            f"low and high must be finite and of the same length, but are {start.tolist()} and {end.tolist()}. "
            "Where a Gymnasium space is unbounded, give the range that you expect, with outside='clip'."
        )
    if not (start < end).all():
        raise InputError(f"low must lie below high, but low = {start.tolist()}, high = {end.tolist()}.")
    return start, end


class Standardised(Features):
    """ψ(x) = inner((x − mean) / scale). The range of `inner` is in standard deviations.

    Mean and scale never change after construction: features that moved with the data would make old and new
    transitions incomparable, and the certificate would mean nothing.
    """

    def __init__(self, inner: Features, *, mean: ArrayLike, scale: ArrayLike) -> None:
        self.mean, self.scale = frozen_vectors(mean, scale)
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

    @abstractmethod
    def _rows(self, unit: Array) -> Array:
        """Features of points of [-1, 1]^v: (n, v) -> (n, k)."""

    def batch(self, states: Sequence[State]) -> Array:
        """ψ of many vectors: (n, k)."""
        x = as_points(states, self.variables)
        rounding = SINGLE * np.maximum(np.abs(self.low), np.abs(self.high))  # -1.2 in 32 bits lies below -1.2
        inside = (x >= self.low - rounding) & (x <= self.high + rounding)
        if not inside.all() and self.outside == "error":
            row, column = np.argwhere(~inside)[0]
            raise InputError(
                f"coordinate {column} of state {x[row].tolist()} is {x[row, column]:.6g}, outside the declared range "
                f"[{self.low[column]:.6g}, {self.high[column]:.6g}]: widen low and high, or set outside='clip'."
            )
        x = np.clip(x, self.low, self.high)
        # halves first: high - low may overflow; clipped again because the division rounds
        unit = (x - (0.5 * self.low + 0.5 * self.high)) / (0.5 * self.high - 0.5 * self.low)
        return self._rows(np.clip(unit, -1.0, 1.0))

    def describe_range(self) -> str:
        """The box in words."""
        sides = [f"[{low:g}, {high:g}]" for low, high in zip(self.low, self.high, strict=True)]
        box = f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 and len(sides) > 1 else " x ".join(sides)
        return f"{box} ({'clipped' if self.outside == 'clip' else 'an error'} outside)"


def inner_products(points: Array, directions: Array) -> Array:
    """⟨x, w⟩ for every pair, (n, v) and (k, v) -> (n, k); added in one order, so that a batch equals single calls."""
    total = np.zeros((len(points), len(directions)))
    for j in range(points.shape[1]):
        total += points[:, [j]] * directions[:, j]
    return total


class Polynomial(OnRange):
    """ψ(x) = all monomials u^e with |e| <= degree, over √k; u is x scaled to [-1, 1], the constant comes first.

    Each monomial lies in [-1, 1], so ‖ψ‖ <= 1, with equality at the corner u = (1, …, 1). k = C(v + degree, degree).
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, degree: int = 1, outside: Outside = "error") -> None:
        super().__init__(low, high, outside)
        self.degree = check_count(degree, "degree")
        v = self.variables
        powers = [[0] * v]
        for total in range(1, self.degree + 1):
            for chosen in combinations_with_replacement(range(v), total):
                powers.append([chosen.count(j) for j in range(v)])
                check_dimension(len(powers), "Polynomial", "the degree")
        self._powers = np.array(powers)  # (k, v)
        self.dimension = len(powers)
        self.label = f"polynomial of degree {self.degree} on {self.describe_range()}"

    def _rows(self, unit: Array) -> Array:
        rows = np.ones((len(unit), self.dimension))
        power = np.ones_like(unit)
        for exponent in range(1, self.degree + 1):
            power = power * unit
            for j in range(self.variables):
                rows[:, self._powers[:, j] == exponent] *= power[:, [j]]
        scaled: Array = rows / np.sqrt(self.dimension)
        return scaled


class Fourier(OnRange):
    """ψ(x) = cos(π ⟨c, w⟩) for all c in {0..order}^v, over √k; w is x scaled to [0, 1], c = 0 is the constant.

    Every entry lies in [-1, 1] and all are 1 at w = 0, so ‖ψ‖ <= 1 is tight. k = (order + 1)^v.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, order: int = 2, outside: Outside = "error") -> None:
        super().__init__(low, high, outside)
        self.order = check_count(order, "order")
        self.dimension = check_dimension((self.order + 1) ** self.variables, "Fourier", "the order")
        frequencies = every_combination(range(self.order + 1), repeat=self.variables)
        self._frequencies = np.array(list(frequencies), dtype=np.float64)
        self.label = f"Fourier basis of order {self.order} on {self.describe_range()}"

    def _rows(self, unit: Array) -> Array:
        angles = inner_products(0.5 * (unit + 1.0), self._frequencies)
        rows: Array = np.cos(np.pi * angles) / np.sqrt(self.dimension)
        return rows


class RandomFourier(OnRange):
    """ψ(x) = (1, cos⟨ω_i, u⟩, sin⟨ω_i, u⟩) / √(pairs + 1), ω_i ~ N(0, I / width²), u is x scaled to [-1, 1].

    An approximation of the Gaussian kernel of that width (Rahimi and Recht, 2007). ‖ψ‖ = 1 everywhere, as cos² + sin²
    = 1. k = 2 pairs + 1. The frequencies are drawn once from `rng` and kept.
    """

    def __init__(
        self,
        low: ArrayLike,
        high: ArrayLike,
        pairs: int,
        *,
        width: float = 0.5,
        rng: np.random.Generator,
        outside: Outside = "error",
    ) -> None:
        super().__init__(low, high, outside)
        if not 0.0 < width < np.inf:
            raise InputError(f"width must be positive and finite, but is {width!r}.")
        if not isinstance(rng, np.random.Generator):
            raise InputError(f"rng must be a numpy Generator, e.g. np.random.default_rng(7), but is {rng!r}.")
        self.width = float(width)
        self.dimension = check_dimension(2 * check_count(pairs, "pairs") + 1, "RandomFourier", "pairs")
        self._frequencies = rng.standard_normal((pairs, self.variables)) / self.width
        self.label = f"random Fourier features of a kernel of width {self.width:g} on {self.describe_range()}"

    def _rows(self, unit: Array) -> Array:
        angles = inner_products(unit, self._frequencies)
        rows = np.concatenate([np.ones((len(unit), 1)), np.cos(angles), np.sin(angles)], axis=1)
        scaled: Array = rows / np.sqrt(len(self._frequencies) + 1.0)
        return scaled


class Tiles(OnRange):
    """Tile coding: `tilings` grids of `bins` per coordinate, each shifted; one tile per grid is 1/√tilings.

    ‖ψ‖ = 1 everywhere, since exactly one tile of each grid is active. k = tilings (bins + 1)^v: a shifted grid needs
    one tile more per side. Grid t is shifted along coordinate j by the fraction t (2j + 1) / tilings (mod 1) of a tile.
    A constant lies in the span.
    """

    def __init__(
        self, low: ArrayLike, high: ArrayLike, bins: int, tilings: int = 4, outside: Outside = "error"
    ) -> None:
        super().__init__(low, high, outside)
        self.bins, self.tilings = check_count(bins, "bins"), check_count(tilings, "tilings")
        self._per_tiling = (self.bins + 1) ** self.variables
        self.dimension = check_dimension(self.tilings * self._per_tiling, "Tiles", "bins or tilings")
        steps = np.arange(self.tilings)[:, None] * (2 * np.arange(self.variables) + 1)
        self._shifts = (steps % self.tilings) / self.tilings  # (tilings, v), each in [0, 1)
        self.label = f"{self.tilings} tilings of {self.bins} bins per coordinate on {self.describe_range()}"

    def _rows(self, unit: Array) -> Array:
        rows = np.zeros((len(unit), self.dimension))
        place = 0.5 * (unit + 1.0) * self.bins
        radix = (self.bins + 1) ** np.arange(self.variables)
        for tiling, shift in enumerate(self._shifts):
            tile = np.floor(place + shift).astype(np.int64) @ radix
            rows[np.arange(len(unit)), tiling * self._per_tiling + tile] = 1.0
        scaled: Array = rows / np.sqrt(self.tilings)
        return scaled


class SoftAggregation(Features):
    """ψ_i(x) ∝ exp(−½ ‖(x − centre_i) / width‖²): a distribution over the centres, so ‖ψ‖ <= ‖ψ‖_1 = 1.

    On the simplex ⟨μ, ψ⟩ is a transition law whenever the rows of μ are: the setting of section 5.1. Any finite x is
    allowed: far from all centres the nearest one takes over. A constant lies in the span.
    """

    def __init__(self, centres: ArrayLike, width: ArrayLike) -> None:
        points = np.array(centres, dtype=np.float64)
        points = points[:, None] if points.ndim == 1 else points
        if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
            raise InputError(f"centres must be finite with shape (k, v), but have shape {points.shape}.")
        self._centres = points
        self._width = np.broadcast_to(np.asarray(width, dtype=np.float64), points.shape[1:]).copy()
        if not ((self._width > 0.0) & (self._width < np.inf)).all():
            raise InputError(f"width must be positive and finite, one number or one per coordinate, but is {width!r}.")
        self.dimension = check_dimension(len(points), "SoftAggregation", "the number of centres")
        self.label = f"soft aggregation onto {self.dimension} centres (simplex)"

    @classmethod
    def grid(cls, low: ArrayLike, high: ArrayLike, counts: int | Sequence[int], *, spread: float = 0.5) -> Self:
        """Centres on a regular grid over [low, high]; `spread` is the width in units of the grid's spacing."""
        start, end = checked_range(low, high)
        sizes = np.broadcast_to(np.asarray(counts), start.shape)
        if not (sizes >= 2).all():
            raise InputError(f"counts must be at least 2 per coordinate, but are {sizes.tolist()}.")
        check_dimension(int(np.prod(sizes.astype(np.float64))), "SoftAggregation", "counts")
        axes = [np.linspace(a, b, int(n)) for a, b, n in zip(start, end, sizes, strict=True)]
        return cls(list(every_combination(*axes)), spread * (end - start) / (sizes - 1))

    def batch(self, states: Sequence[State]) -> Array:
        """Points of the simplex, (n, k)."""
        x = as_points(states, self._centres.shape[1])
        exponent = np.zeros((len(x), self.dimension))
        with np.errstate(over="ignore"):
            for j, width in enumerate(self._width):
                exponent -= 0.5 * ((x[:, [j]] - self._centres[:, j]) / width) ** 2
        if not np.isfinite(exponent).all():
            far = x[np.argwhere(~np.isfinite(exponent))[0][0]]
            raise InputError(f"state {far.tolist()} is too far from all centres.")
        weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        rows: Array = weights / weights.sum(axis=1, keepdims=True)
        return rows
