"""From features and a user's own actions to the sets D(s): what `Problem(actions=…)` is given."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.features.action_features import ActionFeatures, PerDirection
from tether.problem.action_sets import FiniteActions, StarActions
from tether.records import Array, StarAction, State

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
