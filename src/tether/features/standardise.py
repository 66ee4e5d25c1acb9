"""Standardised coordinates: (x − mean) / scale before other features, frozen once they are fitted."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.base import Features
from tether.features.ranges import as_points
from tether.records import Array, State


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
