"""Features φ(s, a) of states and actions, ‖φ(s, a)‖ <= 1 by construction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.features.base import Features, OnRange, Outside, check_bound, check_dimension, checked_row
from tether.problem.action_sets import FiniteActions, StarActions
from tether.records import Array, StarAction, State


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


# From features and a user's own actions to the sets D(s): what `Problem(actions=…)` is given.

AFFINE_TOLERANCE = 1e-6
"""How far a feature on a ray may lie from the straight line between its ends: single-precision actions pass."""

CHECKED_LENGTHS = (0.381966, 0.75)
"""Where on each ray that is checked; not the middle, where many curved features are straight by symmetry."""


class ActionList:
    """D(s) for finitely many actions of any type: state -> FiniteActions.

    Attributes:
        features: φ(s, a).
        actions: the actions, or a function state -> those that are allowed there.
        safe_action: a_0, or a function state -> a_0(s); it must be one of the allowed ones.
    """

    def __init__(
        self,
        features: ActionFeatures,
        actions: Sequence[Any] | Callable[[State], Sequence[Any]],
        safe_action: Any,
    ) -> None:
        self.features, self.actions, self.safe_action = features, actions, safe_action

    def __call__(self, state: State) -> FiniteActions:
        """The set D(s)."""
        allowed = self.allowed(state)
        return FiniteActions(self.features.batch(state, allowed), self._place_of_safe(state, allowed))

    def allowed(self, state: State) -> list[Any]:
        """The actions of this state, in the order of the rows of D(s)."""
        allowed = list(self.actions(state) if callable(self.actions) else self.actions)
        if not allowed:
            raise InputError(f"state {state!r} has no allowed action: at least the safe one is needed (Assumption 2).")
        return allowed

    def safe(self, state: State) -> Any:
        """a_0(s)."""
        return self.safe_action(state) if callable(self.safe_action) else self.safe_action

    def action(self, state: State, chosen: int) -> Any:
        """The user's action that stands for a row of D(s)."""
        return self.allowed(state)[chosen]

    def _place_of_safe(self, state: State, allowed: list[Any]) -> int:
        safe = self.safe(state)
        for place, action in enumerate(allowed):
            if np.array_equal(action, safe):
                return place
        raise InputError(
            f"the safe action {safe!r} is not among the {len(allowed)} allowed actions of state {state!r}: "
            "Assumption 2 needs it to be playable there."
        )


class ActionRays:
    """D(s) for action vectors: rays from a safe point toward targets, and how far to go: state -> StarActions.

    Attributes:
        features: φ(s, a), affine along each ray (checked in every state), or PerDirection, which is by construction.
        safe_action: the vector a_0 (m,), or a function state -> a_0(s).
        targets: (N, m), where the rays end, or a function state -> (N, m).
    """

    def __init__(
        self,
        features: ActionFeatures | PerDirection,
        safe_action: ArrayLike | Callable[[State], ArrayLike],
        targets: ArrayLike | Callable[[State], ArrayLike],
    ) -> None:
        self.features, self.safe_action, self.targets = features, safe_action, targets

    def __call__(self, state: State) -> StarActions:
        """The set D(s)."""
        safe, ends = self.points(state)
        if isinstance(self.features, PerDirection):
            if len(ends) != self.features.rays:
                raise InputError(
                    f"state {state!r} has {len(ends)} targets, but the features have {self.features.rays} directions."
                )
            return StarActions(*self.features.star(state))
        rows = self.features.batch(state, [safe, *ends])
        for length in CHECKED_LENGTHS:
            self._check_affine(state, safe, ends, rows, length)
        return StarActions(rows[0], rows[1:])

    def points(self, state: State) -> tuple[Array, Array]:
        """The safe action (m,) and the ends of the rays (N, m), as vectors."""
        safe, ends = (
            np.array(told(state) if callable(told) else told, dtype=np.float64)
            for told in (self.safe_action, self.targets)
        )
        if safe.ndim != 1 or ends.ndim != 2 or ends.shape[1:] != safe.shape or not len(ends):
            raise InputError(
                f"rays need a safe action of shape (m,) and targets of shape (N, m), but in state {state!r} they have "
                f"shapes {safe.shape} and {ends.shape}."
            )
        if not (np.isfinite(safe).all() and np.isfinite(ends).all()):
            raise InputError(f"the safe action {safe.tolist()} and its targets must be finite in state {state!r}.")
        return safe, ends

    def action(self, state: State, chosen: StarAction) -> Array:
        """The action vector of a ray and a length, (m,)."""
        safe, ends = self.points(state)
        if chosen.ray < 0 or chosen.length == 0.0:
            return safe
        point: Array = ends[chosen.ray] if chosen.length == 1.0 else safe + chosen.length * (ends[chosen.ray] - safe)
        return point

    def _check_affine(self, state: State, safe: Array, ends: Array, rows: Array, length: float) -> None:
        """Assumption 5 in numbers: φ at a point of a ray is that point of the segment between the features."""
        between = self.features.batch(state, list(safe + length * (ends - safe)))  # type: ignore[union-attr]
        misfit = np.abs(between - (rows[0] + length * (rows[1:] - rows[0]))).max(axis=1)
        if not (misfit <= AFFINE_TOLERANCE).all():
            ray = int(np.argmax(~(misfit <= AFFINE_TOLERANCE)))
            raise AssumptionError(
                f"Assumption 5 needs features that are affine along each ray, but in state {state!r}, on the ray from "
                f"{safe.tolist()} to {ends[ray].tolist()}, φ at length {length} misses the straight line by "
                f"{misfit[ray]:.3g}. A bound on the end of the ray says nothing about its middle then. Use "
                "AffineInAction or PerDirection, shorten the rays, or list single actions instead (ActionList)."
            )
