"""Features φ(s, a) of states and actions, ‖φ(s, a)‖ <= 1 by construction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.base import Features, check_bound, check_dimension, checked_row
from tether.features.ranges import OnRange, Outside
from tether.records import Array, State


class ActionFeatures(ABC):
    """φ(s, a), d numbers with ‖φ‖ <= 1. `dimension` is d.

    Calling gives (d,) for one action; `batch` gives (n, d) for n actions in one state, row by row the same.
    """

    dimension: int

    @abstractmethod
    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """φ(s, a) for many actions of one state: (n, d)."""

    def __call__(self, state: State, action: Any) -> Array:
        """φ(s, a), (d,)."""
        row: Array = self.batch(state, [action])[0]
        return row

    @abstractmethod
    def describe(self) -> str:
        """One line for people."""


class PerAction(ActionFeatures):
    """φ(s, a) = ψ(s) ⊗ e_a: each action has its own copy of the state features. d = k times the number of actions.

    With a one-hot ψ these are the tabular features of (s, a): all costs are linear in them, and no outcome says
    anything about another pair, so a *finite* set never leaves a_0: mix actions (RSLUCB-QVI), or share features.
    """

    def __init__(self, state: Features, actions: int | Sequence[Hashable]) -> None:
        listed = list(range(actions)) if isinstance(actions, int | np.integer) else list(actions)
        self._state, self._place = state, {action: place for place, action in enumerate(listed)}
        if not listed or len(self._place) != len(listed):
            raise InputError(f"PerAction needs at least one action and none of them twice, but got {actions!r}.")
        self.dimension = check_dimension(state.dimension * len(listed), "PerAction", "the number of state features")

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """ψ(s) at the place of each action: (n, d)."""
        psi, rows = self._state(state), np.zeros((len(actions), len(self._place), self._state.dimension))
        for row, action in zip(rows, actions, strict=True):
            try:
                row[self._place[action]] = psi
            except (KeyError, TypeError):
                raise InputError(
                    f"action {action!r} is not one of the {len(self._place)} that these features were given."
                ) from None
        return rows.reshape(len(actions), self.dimension)

    def describe(self) -> str:
        """One line for people."""
        return f"{len(self._place)} actions x ({self._state.describe()}): {self.dimension} features"


class AffineInAction(ActionFeatures):
    """φ(s, a) = ψ(s) ⊗ (1, u) / √(1 + m), where u is the action vector a scaled from [low, high] to [-1, 1]^m.

    Affine in the action in every state: star sets of action vectors are then star-convex sets of features. One slope
    per coordinate: a cost like |a| is not in the span; PerDirection has a slope for each ray.
    """

    def __init__(self, state: Features, low: ArrayLike, high: ArrayLike, outside: Outside = "error") -> None:
        self._state, self._vector = state, _ActionVector(low, high, outside)
        self.dimension = check_dimension(
            state.dimension * self._vector.dimension, "AffineInAction", "the number of state features"
        )

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """Kronecker products, (n, d)."""
        rows = self._vector.batch(actions)[:, None, :] * self._state(state)[:, None]
        return rows.reshape(len(actions), self.dimension)

    def describe(self) -> str:
        """One line for people."""
        return (
            f"action vector on {self._vector.describe_range()} x ({self._state.describe()}): {self.dimension} features"
        )


class _ActionVector(OnRange):
    """(1, u) / √(1 + m)."""

    def __init__(self, low: ArrayLike, high: ArrayLike, outside: Outside) -> None:
        super().__init__(low, high, outside)
        self.dimension = self.variables + 1

    def _rows(self, unit: Array) -> Array:
        rows: Array = np.concatenate([np.ones((len(unit), 1)), unit], axis=1) / np.sqrt(self.dimension)
        return rows

    def describe(self) -> str:
        return self.describe_range()


class PairFeatures(ActionFeatures):
    """φ(s, a) = function(s, a) / bound: any function, each value checked against `bound`.

    dimension: d. Concatenate with others where features are to be shared between states: "leads toward danger".
    """

    def __init__(self, function: Callable[[State, Any], ArrayLike], dimension: int, *, bound: float = 1.0) -> None:
        self._function, self._bound = function, check_bound(bound)
        self.dimension = check_dimension(dimension, "PairFeatures", "dimension")

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """Scaled values, (n, d)."""
        rows = [checked_row(self._function(state, a), self.dimension, self._bound, state, a) for a in actions]
        return np.array(rows).reshape(len(actions), self.dimension) / self._bound

    def describe(self) -> str:
        """One line for people."""
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"{name}(state, action), divided by its bound {self._bound:g}: {self.dimension} features"


class PerDirection:
    """φ of the point at `length` α of ray i: ψ(s) ⊗ (1, α e_i) / √2. d = k (1 + rays).

    A direction and an amount: affine along every ray, with a slope of its own for each. For `ActionRays` only, because
    it needs to know the ray, not only the point. `dimension` is d.
    """

    def __init__(self, state: Features, rays: int) -> None:
        if not (isinstance(rays, int | np.integer) and rays >= 1):
            raise InputError(f"rays must be an integer >= 1, but is {rays!r}.")
        self._state, self.rays = state, int(rays)
        self.dimension = check_dimension(state.dimension * (1 + self.rays), "PerDirection", "rays")

    def star(self, state: State) -> tuple[Array, Array]:
        """φ at the centre (d,) and at the end of each ray (rays, d)."""
        amounts = np.concatenate([np.zeros((1, self.rays)), np.eye(self.rays)])
        parts = np.concatenate([np.ones((1 + self.rays, 1)), amounts], axis=1) / np.sqrt(2.0)
        rows = (parts[:, :, None] * self._state(state)).reshape(1 + self.rays, self.dimension)
        return rows[0], rows[1:]

    def describe(self) -> str:
        """One line for people."""
        return f"{self.rays} directions x ({self._state.describe()}): {self.dimension} features"
