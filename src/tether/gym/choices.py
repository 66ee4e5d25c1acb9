"""An environment's action space as the sets D(s): a list of actions, or rays inside a box."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.action_features import ActionFeatures, PerAction, PerDirection
from tether.features.base import Constant, Features, checked_row
from tether.features.choices import ActionList, ActionRays
from tether.records import Array, StarAction, State

AnyFeatures = Features | ActionFeatures | PerDirection | Callable[[State, Any], ArrayLike]


def list_of_actions(
    space: Space[Any],
    features: AnyFeatures,
    safe_action: Any,
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None,
    example: State,
) -> ActionList:
    """D(s) for a Discrete space, or for listed actions of any space."""
    if actions is None and not isinstance(space, spaces.Discrete):
        raise InputError(
            f"the action space {space} is neither Discrete nor a Box of real numbers: list what may be played, "
            "actions=[…], each an action of that space."
        )
    listed: Any = actions
    if isinstance(space, spaces.Discrete) and actions is None:
        listed = list(range(int(space.start), int(space.start + space.n)))
    if isinstance(features, PerDirection):
        raise InputError("PerDirection belongs to rays in a Box of actions; use PerAction(…) for a list of actions.")
    if isinstance(features, Features):
        if callable(listed):
            raise InputError(
                "state features become features of (s, a) through a list of all actions, but `actions` is a function: "
                "give PerAction(features, all_actions) instead."
            )
        features = PerAction(features, listed)
    safe = safe_action(example) if callable(safe_action) else safe_action
    if not space.contains(safe):
        raise InputError(f"the safe action {safe!r} of state {example!r} is not in the action space {space}.")
    if not isinstance(features, ActionFeatures):
        features = of_function(features, example, safe)
    return ActionList(features, listed, safe_action)


def of_function(function: Callable[[State, Any], ArrayLike], state: State, action: Any) -> ActionFeatures:
    """Features of a plain function, whose dimension is read off one value. Norms are left as they are."""
    example = np.asarray(function(state, action), dtype=np.float64)
    if example.ndim != 1 or not example.size:
        raise InputError(
            f"features(state, action) must return d numbers, shape (d,), but returned shape {example.shape}."
        )
    return _Unscaled(function, example.size)


class _Unscaled(ActionFeatures):
    """A user's function as it is: `Problem` checks its norms against feature_norm."""

    def __init__(self, function: Callable[[State, Any], ArrayLike], dimension: int) -> None:
        self._function, self.dimension = function, dimension

    def batch(self, state: State, actions: Sequence[Any]) -> Array:
        """The function's values, (n, d)."""
        rows = [checked_row(self._function(state, a), self.dimension, np.inf, state, a) for a in actions]
        return np.array(rows).reshape(len(actions), self.dimension)

    def describe(self) -> str:
        """One line for people."""
        return f"{getattr(self._function, '__name__', 'function')}(state, action): {self.dimension} features"


class BoxRays(ActionRays):
    """Rays inside a Box of actions; actions are rounded toward the safe one, so that no length is exceeded.

    Without targets there are two rays per coordinate, from the safe action to the two walls of the box.
    """

    def __init__(
        self,
        space: spaces.Box,
        features: AnyFeatures,
        safe_action: Any,
        targets: ArrayLike | Callable[[State], ArrayLike] | None,
        example: State,
    ) -> None:
        if not np.issubdtype(space.dtype, np.floating):
            raise InputError(f"the Box {space} holds whole numbers: rays need real ones. List actions=[…] instead.")
        self.space = space
        self.low, self.high = (end.astype(np.float64).reshape(-1) for end in (space.low, space.high))
        super().__init__(PerDirection(Constant(), 1), safe_action, self._walls if targets is None else targets)
        safe, ends = self.points(example)
        if isinstance(features, Features):
            features = PerDirection(features, len(ends))
        if not isinstance(features, ActionFeatures | PerDirection):
            shaped = _in_shape(features, space.shape)
            features = of_function(shaped, example, safe)
        self.features = features

    def points(self, state: State) -> tuple[Array, Array]:
        """The safe action (m,) and the ends of the rays (N, m), refused unless they lie in the box."""
        safe, ends = self._safe(state), self.targets
        given = np.array(ends(state) if callable(ends) else ends, dtype=np.float64)
        targets = given.reshape(-1, safe.size) if given.size % safe.size == 0 else given
        checked = ActionRays(self.features, safe, targets).points(state)
        for point in checked[1]:
            self._check_inside(point, state, "a target")
        return checked

    def action(self, state: State, chosen: StarAction) -> Array:
        """The environment's action, in the shape and type of its space."""
        safe, point = self._safe(state), super().action(state, chosen)
        rounded = point.astype(self.space.dtype)
        farther = np.abs(rounded.astype(np.float64) - safe) > np.abs(point - safe)
        rounded[farther] = np.nextafter(rounded[farther], safe[farther].astype(self.space.dtype))
        inside: Array = np.clip(rounded.reshape(self.space.shape), self.space.low, self.space.high)
        return inside

    def _safe(self, state: State) -> Array:
        told = self.safe_action(state) if callable(self.safe_action) else self.safe_action
        try:
            safe = np.asarray(told, dtype=self.space.dtype).astype(np.float64).reshape(self.low.shape)
        except (TypeError, ValueError) as error:
            raise InputError(f"safe_action {told!r} is not an action of {self.space}: {error}.") from error
        self._check_inside(safe, state, "the safe action")
        return safe

    def _check_inside(self, point: Array, state: State, what: str) -> None:
        if not ((point >= self.low) & (point <= self.high)).all():
            raise InputError(f"{what} {point.tolist()} of state {state!r} lies outside the action space {self.space}.")

    def _walls(self, state: State) -> Array:
        safe = self._safe(state)
        ends = np.repeat(safe[None], 2 * safe.size, axis=0)
        for j in range(safe.size):
            ends[2 * j, j], ends[2 * j + 1, j] = self.high[j], self.low[j]
        if not np.isfinite(ends).all():
            raise InputError(
                f"the action space {self.space} has no walls in some direction: say where the rays end, targets=[…]."
            )
        return ends


def _in_shape(function: Callable[[State, Any], ArrayLike], shape: tuple[int, ...]) -> Callable[[State, Any], ArrayLike]:
    """The user's function of actions in the shape of their space, for actions as vectors."""
    return lambda state, action: function(state, np.reshape(action, shape))
