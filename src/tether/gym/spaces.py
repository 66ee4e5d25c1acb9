"""The action space of an environment as the sets D(s): a list of actions, or rays inside a box."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.actions import ActionFeatures, ActionList, ActionRays, PairFeatures, PerAction, PerDirection, at
from tether.features.state import Features
from tether.options import real_numbers
from tether.records import Array, StarAction, State

AnyFeatures = Features | ActionFeatures | PerDirection | Callable[[State, Any], ArrayLike]


@dataclass(frozen=True)
class Mask:
    """Discrete actions of which the environment allows some: `info[entry]` says which, such as "action_mask"."""

    entry: str


@dataclass(frozen=True, eq=False)
class Targets:
    """Where the rays inside a Box of actions end: points (N, m), or a function observation -> points."""

    points: ArrayLike | Callable[[State], ArrayLike]


Actions = Sequence[Any] | Callable[[State], Sequence[Any]] | Mask | Targets
"""What may be played: a list of actions, a function observation -> list, `Mask(entry)` or `Targets(points)`."""


def features_of_function(function: Callable[[State, Any], ArrayLike], state: State, action: Any) -> ActionFeatures:
    """Features of a plain function, whose dimension is read off one value. `Problem` checks their norms."""
    returned = function(state, action)
    try:
        example = real_numbers(returned)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"features(state, action) must return d numbers, but returned {returned!r}: {error}."
        ) from error
    if example.ndim != 1 or not example.size:
        raise InputError(
            f"features(state, action) must return d numbers, shape (d,), but returned shape {example.shape}."
        )
    return PairFeatures(function, example.size, bound=None)


def list_of_actions(
    space: Space[Any],
    features: AnyFeatures,
    safe_action: Any,
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None,
    example: State,
) -> ActionList:
    """D(s) for a Discrete space, or for listed actions of any space."""
    listed: Any = actions
    if actions is None:
        if not isinstance(space, spaces.Discrete):
            raise InputError(
                f"the action space {space} is neither Discrete nor a Box of real numbers: list what may be played, "
                "actions=[…], each an action of that space."
            )
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
    safe = at(safe_action, example)
    if not space.contains(np.asarray(safe, space.dtype) if isinstance(space, spaces.Box) else safe):
        raise InputError(f"the safe action {safe!r} of state {example!r} is not in the action space {space}.")
    if not isinstance(features, ActionFeatures):
        features = features_of_function(features, example, safe)
    return ActionList(features, listed, safe_action)


class BoxRays(ActionRays):
    """Rays inside a Box of actions; actions are rounded toward the safe one, so that no length is exceeded.

    An action has the digits of the box's type only, so that it may lie before the point that was certified:
    `transition` counts the cost as one of the length that was played. Beside a ray along several coordinates it may lie
    by 6e-8 of a coordinate in 32 bits, and by 5e-4 in 16, which no bound counts: where that matters, declare a misfit.
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
        self.safe_action, self.targets = safe_action, self._walls if targets is None else targets
        safe, ends = self.points(example)
        if isinstance(features, Features):
            features = PerDirection(features, len(ends))
        elif not isinstance(features, ActionFeatures | PerDirection):
            function = features

            @wraps(function, updated=())
            def shaped(state: State, action: Any) -> ArrayLike:
                return function(state, np.reshape(action, space.shape))

            shaped.__name__ = getattr(function, "__name__", type(function).__name__)  # an object has none to be copied
            features = features_of_function(shaped, example, safe)
        self.features = features

    def safe_point(self, state: State) -> Array:
        """The safe action as a vector (m,), refused unless it is an action of the box."""
        given = at(self.safe_action, state)
        try:
            safe = (
                real_numbers(given, "safe_action").astype(self.space.dtype).astype(np.float64).reshape(self.low.shape)
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"safe_action {given!r} is not an action of {self.space}: {error}.") from error
        self._check_inside(safe, state, "the safe action")
        return safe

    def target_points(self, state: State) -> Array:
        """The ends of the rays as vectors, also where they were given in the shape of the space, or just one."""
        given, shape = super().target_points(state), self.space.shape
        return given.reshape(-1, self.low.size) if shape in (given.shape, given.shape[1:]) else given

    def points(self, state: State) -> tuple[Array, Array]:
        """The safe action (m,) and the ends of the rays (N, m), refused unless they lie in the box."""
        safe, ends = super().points(state)
        for point in ends:
            self._check_inside(point, state, "a target")
        return safe, ends

    def action(self, state: State, chosen: StarAction) -> Array:
        """The environment's action, in the shape and type of its space."""
        safe, point = self.safe_point(state), super().action(state, chosen)
        rounded = point.astype(self.space.dtype)
        farther = np.abs(rounded.astype(np.float64) - safe) > np.abs(point - safe)
        rounded[farther] = np.nextafter(rounded[farther], safe[farther].astype(self.space.dtype))
        inside: Array = np.clip(rounded.reshape(self.space.shape), self.space.low, self.space.high)
        return inside

    def played(self, state: State, chosen: StarAction, action: Any) -> StarAction:
        """The ray and the length of an action that was rounded."""
        safe, ends = self.points(state)
        ray = ends[chosen.ray] - safe
        along, whole = float((np.asarray(action, dtype=np.float64).reshape(-1) - safe) @ ray), float(ray @ ray)
        return chosen if along == chosen.length * whole else replace(chosen, length=min(along / whole, 1.0))

    def safe_feature(self, state: State) -> Array:
        """φ of the safe action, (d,)."""
        known = self.features
        return known.star(state)[0] if isinstance(known, PerDirection) else known(state, self.safe_point(state))

    def _check_inside(self, point: Array, state: State, what: str) -> None:
        if not ((point >= self.low) & (point <= self.high)).all():
            raise InputError(f"{what} {point.tolist()} of state {state!r} lies outside the action space {self.space}.")

    def _walls(self, state: State) -> Array:
        safe = self.safe_point(state)
        ends = np.repeat(safe[None], 2 * safe.size, axis=0)
        for j in range(safe.size):
            ends[2 * j, j], ends[2 * j + 1, j] = self.high[j], self.low[j]
        if not np.isfinite(ends).all():
            raise InputError(
                f"the action space {self.space} has no walls in some direction: say where the rays end, targets=[…]."
            )
        return ends
