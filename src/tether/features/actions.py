"""Features φ(s, a) of states and actions, ‖φ(s, a)‖ <= 1 by construction, and the sets D(s) made from them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError
from tether.features.state import (
    Described,
    Features,
    OnRange,
    Outside,
    check_bound,
    check_count,
    check_dimension,
    function_rows,
    name_of,
    places_of,
)
from tether.options import real_numbers
from tether.problem.action_sets import FiniteActions, StarActions
from tether.records import Array, StarAction, State


class ActionFeatures(Described, ABC):
    """φ(s, a), d numbers with ‖φ‖ <= 1. `dimension` is d.

    Calling gives (d,) for one action; `batch` gives (n, d) for n actions in one state, row by row the same.
    """

    @abstractmethod
    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """φ(s, a) for many actions of one state: (n, d)."""

    def __call__(self, state: State, action: Any) -> Array:
        """φ(s, a), (d,)."""
        row: Array = self.batch(state, [action])[0]
        return row


class PerAction(ActionFeatures):
    """φ(s, a) = ψ(s) ⊗ e_a: each action has its own copy of the state features. d = k times the number of actions.

    With a one-hot ψ these are the tabular features of (s, a): all costs are linear in them, and no outcome says
    anything about another pair, so a *finite* set never leaves a_0: share features, or use rays.
    """

    def __init__(self, state: Features, actions: int | Sequence[Hashable]) -> None:
        self._state, self._place = state, places_of(actions, "PerAction", "action")
        count = len(self._place)
        self.dimension = check_dimension(state.dimension * count, "PerAction", "the number of state features")
        self.label = f"{count} actions x ({state.describe()})"

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


class AffineInAction(ActionFeatures):
    """φ(s, a) = ψ(s) ⊗ (1, u) / √(1 + m), where u is the action vector a scaled from [low, high] to [-1, 1]^m.

    Affine in the action in every state: star sets of action vectors are then star-convex sets of features. One slope
    per coordinate: a cost like |a| is not in the span; PerDirection has a slope for each ray.
    """

    def __init__(self, state: Features, low: ArrayLike, high: ArrayLike, outside: Outside = "error") -> None:
        self._state, self._vector = state, _ActionVector(low, high, outside)
        size = state.dimension * self._vector.dimension
        self.dimension = check_dimension(size, "AffineInAction", "the number of state features")
        self.label = f"action vector on {self._vector.describe_range()} x ({state.describe()})"

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """Kronecker products, (n, d)."""
        rows = self._vector.batch(actions)[:, None, :] * self._state(state)[:, None]
        return rows.reshape(len(actions), self.dimension)


class _ActionVector(OnRange):
    """(1, u) / √(1 + m)."""

    def __init__(self, low: ArrayLike, high: ArrayLike, outside: Outside) -> None:
        super().__init__(low, high, outside)
        self.dimension = self.variables + 1

    def _rows(self, unit: Array) -> Array:
        rows: Array = np.concatenate([np.ones((len(unit), 1)), unit], axis=1) / np.sqrt(self.dimension)
        return rows


class PairFeatures(ActionFeatures):
    """φ(s, a) = function(s, a) / bound: any function, each value checked against `bound`.

    dimension: d. Concatenate with others where features are to be shared between states: "leads toward danger".
    bound: None leaves values as they are, and their norms to `Problem.feature_norm`.
    """

    def __init__(
        self, function: Callable[[State, Any], ArrayLike], dimension: int, *, bound: float | None = 1.0
    ) -> None:
        self._function, self._bound = function, None if bound is None else check_bound(bound)
        self.dimension = check_dimension(dimension, "PairFeatures", "dimension")
        self.label = f"{name_of(function)}(state, action)"
        if bound is not None:
            self.label += f", divided by its bound {bound:g}"

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """Scaled values, (n, d)."""
        return function_rows(self._function, [(state, action) for action in actions], self.dimension, self._bound)


class PerDirection(Described):
    """φ of the point at `length` α of ray i: ψ(s) ⊗ (1, α e_i) / √2. d = k (1 + rays).

    A direction and an amount: affine along every ray, with a slope of its own for each. For `ActionRays` only, because
    it needs to know the ray, not only the point. `dimension` is d.
    """

    def __init__(self, state: Features, rays: int) -> None:
        self._state, self.rays = state, check_count(rays, "rays")
        self.dimension = check_dimension(state.dimension * (1 + self.rays), "PerDirection", "rays")
        self.label = f"{self.rays} directions x ({state.describe()})"

    def star(self, state: State) -> tuple[Array, Array]:
        """φ at the centre (d,) and at the end of each ray (rays, d)."""
        amounts = np.concatenate([np.zeros((1, self.rays)), np.eye(self.rays)])
        parts = np.concatenate([np.ones((1 + self.rays, 1)), amounts], axis=1) / np.sqrt(2.0)
        rows = (parts[:, :, None] * self._state(state)).reshape(1 + self.rays, self.dimension)
        return rows[0], rows[1:]


# Features side by side.

Block = TypeVar("Block", Features, ActionFeatures)


class _SideBySide(Described):
    def __init__(self, parts: Sequence[Any], weights: Array) -> None:
        self._parts, self._weights = parts, weights
        self.dimension = check_dimension(sum(part.dimension for part in parts), "concatenate", "the parts' sizes")
        self.label = f"({' | '.join(part.describe() for part in parts)})"

    def batch(self, *of: Any) -> Array:
        blocks = [weight * part.batch(*of) for part, weight in zip(self._parts, self._weights, strict=True)]
        joined: Array = np.concatenate(blocks, axis=1)
        return joined


class _StateBlocks(_SideBySide, Features):
    """ψ_1(s), …, ψ_n(s)."""


class _PairBlocks(_SideBySide, ActionFeatures):
    """φ_1(s, a), …, φ_n(s, a)."""


def concatenate(*parts: Block, weights: ArrayLike | None = None) -> Block:
    """(w_1 ψ_1, …, w_n ψ_n) with Σ w² = 1, so that ‖·‖ <= 1: of state features, or of features φ(s, a).

    Equal weights unless given; only their ratios count. A small weight says that little of the *cost* lies in a block:
    it then adds little to the radius, while a small value_ridge still lets the block carry values.
    """
    if not parts:
        raise InputError("concatenate needs at least one set of features.")
    given = np.ones(len(parts)) if weights is None else np.array(weights, dtype=np.float64)
    if given.shape != (len(parts),) or not ((given > 0.0) & (given < np.inf)).all():
        raise InputError(f"weights must be {len(parts)} positive numbers, but are {weights!r}.")
    for kind, joined in ((Features, _StateBlocks), (ActionFeatures, _PairBlocks)):
        if all(isinstance(part, kind) for part in parts):
            made: Any = joined(parts, given / np.linalg.norm(given))
            result: Block = made
            return result
    kinds = sorted({type(part).__name__ for part in parts})
    raise InputError(f"concatenate joins state features, or features of (s, a), but not both kinds: {kinds}.")


# From features and a user's own actions to the sets D(s): what `Problem(actions=…)` is given.

AFFINE_TOLERANCE = 1e-6
"""How far a feature on a ray may lie from the straight line between its ends, as a part of its own largest entry there
where that is less than 1: single-precision actions pass."""

ROUNDING = 1e-13
"""What rounding may add to that, as a part of the largest entry of all: a feature may be zero but for it."""

CHECKED_LENGTHS = (0.381966, 0.75)
"""Where on each ray that is checked; not the middle, where many curved features are straight by symmetry."""


def at(given: Any, state: State) -> Any:
    """What a user said of a state: the same for all, or a function of the state."""
    return given(state) if callable(given) else given


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
        allowed, safe = self.allowed(state), self.safe(state)
        for place, action in enumerate(allowed):
            if np.array_equal(action, safe):
                return FiniteActions(self.features.batch(state, allowed), place)
        raise InputError(
            f"the safe action {safe!r} is not among the {len(allowed)} allowed actions of state {state!r}: "
            "Assumption 2 needs it to be playable there."
        )

    def allowed(self, state: State) -> list[Any]:
        """The actions of this state, in the order of the rows of D(s)."""
        given = at(self.actions, state)
        if not np.iterable(given):
            raise InputError(f"actions must be a list, or a function state -> list, but in state {state!r}: {given!r}.")
        allowed = list(given)
        if not allowed:
            raise InputError(f"state {state!r} has no allowed action: at least the safe one is needed (Assumption 2).")
        return allowed

    def safe(self, state: State) -> Any:
        """a_0(s)."""
        return at(self.safe_action, state)

    def action(self, state: State, chosen: int) -> Any:
        """The user's action that stands for a row of D(s)."""
        return self.allowed(state)[chosen]


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

    def safe_point(self, state: State) -> Array:
        """The safe action as a vector (m,)."""
        return real_numbers(at(self.safe_action, state), "safe_action")

    def target_points(self, state: State) -> Array:
        """Where the rays end (N, m)."""
        given = at(self.targets, state)
        try:
            return real_numbers(given, "targets")
        except (TypeError, ValueError) as error:
            raise InputError(f"targets must be points of shape (N, m), but are {given!r:.80}: {error}.") from error

    def points(self, state: State) -> tuple[Array, Array]:
        """The safe action (m,) and the ends of the rays (N, m), checked."""
        safe, ends = self.safe_point(state), self.target_points(state)
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
        misfit = np.abs(between - (rows[0] + length * (rows[1:] - rows[0])))
        size = np.abs(rows).max(axis=0)  # each feature has a unit of its own, and γ* one that fits it
        is_straight = (misfit <= AFFINE_TOLERANCE * np.minimum(size, 1.0) + ROUNDING * size.max()).all(axis=1)
        if not is_straight.all():
            ray = int(np.argmin(is_straight))
            if not np.array_equal(self.features.batch(state, [safe, *ends]), rows):  # type: ignore[union-attr]
                raise InputError(
                    f"features must not change from one call to the next, but those of state {state!r} do. "
                    "Leave chance, clocks and counters out of them."
                )
            raise AssumptionError(
                f"Assumption 5 needs features that are affine along each ray, but in state {state!r}, on the ray from "
                f"{safe.tolist()} to {ends[ray].tolist()}, φ at length {length} misses the straight line by "
                f"{misfit[ray].max():.3g}. A bound on the end of the ray says nothing about its middle then. Use "
                "AffineInAction or PerDirection, shorten the rays, or list single actions instead (ActionList)."
            )
