"""Builders that read real vectors: the declared range, and what happens outside it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.base import Features
from tether.records import Array, State

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
