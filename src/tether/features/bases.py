"""Smooth bases on a box: polynomials, the Fourier basis, random Fourier features. Each holds a constant."""

from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.base import Features, OnRange, Outside, as_points, check_dimension, checked_range
from tether.records import Array, State


class Polynomial(OnRange):
    """ψ(x) = all monomials u^e with |e| <= degree, over √k; u is x scaled to [-1, 1], the constant comes first.

    Each monomial lies in [-1, 1], so ‖ψ‖ <= 1, with equality at the corner u = (1, …, 1). k = C(v + degree, degree).
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, degree: int = 1, outside: Outside = "error") -> None:
        super().__init__(low, high, outside)
        self.degree = _checked_order(degree, "degree")
        v = self.variables
        powers = [[0] * v]
        for total in range(1, self.degree + 1):
            for chosen in combinations_with_replacement(range(v), total):
                powers.append([chosen.count(j) for j in range(v)])
                check_dimension(len(powers), "Polynomial", "the degree")
        self._powers = np.array(powers)  # (k, v)
        self.dimension = len(powers)

    def _rows(self, unit: Array) -> Array:
        rows = np.ones((len(unit), self.dimension))
        power = np.ones_like(unit)
        for exponent in range(1, self.degree + 1):
            power = power * unit
            for j in range(self.variables):
                rows[:, self._powers[:, j] == exponent] *= power[:, [j]]
        scaled: Array = rows / np.sqrt(self.dimension)
        return scaled

    def describe(self) -> str:
        """One line for people."""
        return f"polynomial of degree {self.degree} on {self.describe_range()}: {self.dimension} features"


class Fourier(OnRange):
    """ψ(x) = cos(π ⟨c, w⟩) for all c in {0..order}^v, over √k; w is x scaled to [0, 1], c = 0 is the constant.

    Every entry lies in [-1, 1] and all are 1 at w = 0, so ‖ψ‖ <= 1 is tight. k = (order + 1)^v.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, order: int = 2, outside: Outside = "error") -> None:
        super().__init__(low, high, outside)
        self.order = _checked_order(order, "order")
        self.dimension = check_dimension((self.order + 1) ** self.variables, "Fourier", "the order")
        self._frequencies = np.array(list(product(range(self.order + 1), repeat=self.variables)), dtype=np.float64)

    def _rows(self, unit: Array) -> Array:
        angles = inner_products(0.5 * (unit + 1.0), self._frequencies)
        rows: Array = np.cos(np.pi * angles) / np.sqrt(self.dimension)
        return rows

    def describe(self) -> str:
        """One line for people."""
        return f"Fourier basis of order {self.order} on {self.describe_range()}: {self.dimension} features"


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
        self.dimension = check_dimension(2 * _checked_order(pairs, "pairs") + 1, "RandomFourier", "pairs")
        self._frequencies = rng.standard_normal((pairs, self.variables)) / self.width

    def _rows(self, unit: Array) -> Array:
        angles = inner_products(unit, self._frequencies)
        rows = np.concatenate([np.ones((len(unit), 1)), np.cos(angles), np.sin(angles)], axis=1)
        scaled: Array = rows / np.sqrt(len(self._frequencies) + 1.0)
        return scaled

    def describe(self) -> str:
        """One line for people."""
        return (
            f"random Fourier features of a kernel of width {self.width:g} on {self.describe_range()}: "
            f"{self.dimension} features"
        )


def inner_products(points: Array, directions: Array) -> Array:
    """⟨x, w⟩ for every pair, (n, v) and (k, v) -> (n, k); added in one order, so that a batch equals single calls."""
    total = np.zeros((len(points), len(directions)))
    for j in range(points.shape[1]):
        total += points[:, [j]] * directions[:, j]
    return total


def _checked_order(value: int, name: str) -> int:
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise InputError(f"{name} must be an integer >= 1, but is {value!r}.")
    return int(value)


# Partitions of a box: tile coding, and soft aggregation onto the simplex. A constant lies in the span of both.


class Tiles(OnRange):
    """Tile coding: `tilings` grids of `bins` per coordinate, each shifted; one tile per grid is 1/√tilings.

    ‖ψ‖ = 1 everywhere, since exactly one tile of each grid is active. k = tilings (bins + 1)^v: a shifted grid needs
    one tile more per side. Grid t is shifted along coordinate j by the fraction t (2j + 1) / tilings (mod 1) of a tile.
    """

    def __init__(
        self, low: ArrayLike, high: ArrayLike, bins: int, tilings: int = 4, outside: Outside = "error"
    ) -> None:
        super().__init__(low, high, outside)
        for name, value in (("bins", bins), ("tilings", tilings)):
            if not (isinstance(value, int | np.integer) and value >= 1):
                raise InputError(f"{name} must be an integer >= 1, but is {value!r}.")
        self.bins, self.tilings = int(bins), int(tilings)
        self._per_tiling = (self.bins + 1) ** self.variables
        self.dimension = check_dimension(self.tilings * self._per_tiling, "Tiles", "bins or tilings")
        steps = np.arange(self.tilings)[:, None] * (2 * np.arange(self.variables) + 1)
        self._shifts = (steps % self.tilings) / self.tilings  # (tilings, v), each in [0, 1)

    def _rows(self, unit: Array) -> Array:
        rows = np.zeros((len(unit), self.dimension))
        place = 0.5 * (unit + 1.0) * self.bins
        radix = (self.bins + 1) ** np.arange(self.variables)
        for tiling, shift in enumerate(self._shifts):
            tile = np.floor(place + shift).astype(np.int64) @ radix
            rows[np.arange(len(unit)), tiling * self._per_tiling + tile] = 1.0
        scaled: Array = rows / np.sqrt(self.tilings)
        return scaled

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.tilings} tilings of {self.bins} bins per coordinate on {self.describe_range()}: "
            f"{self.dimension} features"
        )


class SoftAggregation(Features):
    """ψ_i(x) ∝ exp(−½ ‖(x − centre_i) / width‖²): a distribution over the centres, so ‖ψ‖ <= ‖ψ‖_1 = 1.

    On the simplex ⟨μ, ψ⟩ is a transition law whenever the rows of μ are: the setting of section 5.1. Any finite x is
    allowed: far from all centres the nearest one takes over.
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

    @classmethod
    def grid(cls, low: ArrayLike, high: ArrayLike, counts: int | Sequence[int], *, spread: float = 0.5) -> Self:
        """Centres on a regular grid over [low, high]; `spread` is the width in units of the grid's spacing."""
        start, end = checked_range(low, high)
        sizes = np.broadcast_to(np.asarray(counts), start.shape)
        if not (sizes >= 2).all():
            raise InputError(f"counts must be at least 2 per coordinate, but are {sizes.tolist()}.")
        check_dimension(int(np.prod(sizes.astype(np.float64))), "SoftAggregation", "counts")
        axes = [np.linspace(a, b, int(n)) for a, b, n in zip(start, end, sizes, strict=True)]
        return cls(list(product(*axes)), spread * (end - start) / (sizes - 1))

    def batch(self, states: Sequence[State]) -> Array:
        """Points of the simplex, (n, k)."""
        x = as_points(states, self._centres.shape[1])
        exponent = np.zeros((len(x), self.dimension))
        with np.errstate(over="ignore"):
            for j, width in enumerate(self._width):
                exponent -= 0.5 * ((x[:, [j]] - self._centres[:, j]) / width) ** 2
        if not np.isfinite(exponent).all():
            raise InputError(
                f"state {x[np.argwhere(~np.isfinite(exponent))[0][0]].tolist()} is too far from all centres."
            )
        weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        rows: Array = weights / weights.sum(axis=1, keepdims=True)
        return rows

    def describe(self) -> str:
        """One line for people."""
        return f"soft aggregation onto {self.dimension} centres (simplex): {self.dimension} features"
