"""An environment's action space as the sets D(s): a list of actions, or rays inside a box."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.actions import ActionFeatures, ActionList, ActionRays, PerAction, PerDirection
from tether.features.base import Constant, Features, checked_row
from tether.problem.action_sets import ActionSet
from tether.problem.problem import Problem
from tether.records import Array, Decision, StarAction, State, StateKey, Transition

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


# Where the cost of a step is found: in `info`, in a 6-tuple, or in a function of the user.

Costs = float | tuple[float, ...] | None
CostSource = str | Sequence[str] | Callable[[Any, Any, Any, dict[str, Any]], Any]


class Stepped(NamedTuple):
    """What an environment answered to one action; `cost` is the third of six values (Safety-Gymnasium), else None."""

    observation: Any
    reward: float
    cost: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def unpack(answer: Any) -> Stepped:
    """The five values of Gymnasium's step, or the six of Safety-Gymnasium's, by name."""
    if not isinstance(answer, tuple) or len(answer) not in (5, 6):
        raise InputError(
            "env.step must return Gymnasium's 5 values, or Safety-Gymnasium's 6 with the cost as the third, but it "
            f"returned {answer!r}. Wrap old environments so that they follow Gymnasium 1.0."
        )
    if len(answer) == 5:
        observation, reward, terminated, truncated, info = answer
        return Stepped(observation, float(reward), None, bool(terminated), bool(truncated), info)
    observation, reward, cost, terminated, truncated, info = answer
    return Stepped(observation, float(reward), cost, bool(terminated), bool(truncated), info)


def read_cost(source: CostSource, observation: State, action: Any, stepped: Stepped) -> Costs:
    """z of this step: one number, or one per constraint; None if the environment says it was not measured."""
    if callable(source):
        found = source(observation, action, stepped.observation, stepped.info)
    elif isinstance(source, str):
        in_info = source in stepped.info
        found = stepped.info[source] if in_info else _third_value(source, stepped)
    else:
        for name in source:
            if name not in stepped.info:
                _third_value(name, stepped._replace(cost=None))
        found = [stepped.info[name] for name in source]
    return _as_costs(found)


def _third_value(name: str, stepped: Stepped) -> Any:
    if stepped.cost is None:
        raise InputError(
            f"env.step reported no cost: info has {sorted(map(str, stepped.info))} but no {name!r}. Name the "
            "entry that holds it (cost='…'), give a function cost(observation, action, next_observation, info), or "
            "use an environment whose step returns 6 values with the cost as the third."
        )
    return stepped.cost


def _as_costs(found: Any) -> Costs:
    if found is None:
        return None
    try:
        numbers = np.asarray(found, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"the cost of a step must be numbers, but is {found!r}: {error}.") from error
    return float(numbers[0]) if numbers.size == 1 else tuple(numbers.tolist())


class FiveTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Safety-Gymnasium style environment as an ordinary one: the third of its 6 values becomes info["cost"].

    `tether.learn` does without; this is for Gymnasium's own wrappers and other libraries.
    """

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step in Gymnasium's five values."""
        stepped = unpack(self.env.step(action))
        info = stepped.info if stepped.cost is None else {**stepped.info, "cost": stepped.cost}
        return stepped.observation, stepped.reward, stepped.terminated, stepped.truncated, info


# Bridge: a Gymnasium environment as a Problem, with the two translations that a loop needs.

BOUNDED_NOISE = 0.5
"""σ of any cost in [0, 1] around its mean (Hoeffding's lemma): what `noise=None` stands for."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The state after an episode has terminated: nothing is played, and each remaining step pays the env's reward 0."""


ENDED = Ended()
ENDED_KEY = "tether: the episode has ended"
"""What identifies it where the user identifies states."""


class Played(NamedTuple):
    """One step: what the agent learns from, the environment's own reward, and whether the episode is over."""

    transition: Transition
    reward: float
    over: bool
    info: dict[str, Any]


@dataclass(eq=False)
class Bridge:
    """A Gymnasium environment as a Problem: what `tether.learn` uses, and what you use if you own the loop.

    Attributes:
        env: the environment; Discrete actions, a Box of real numbers, or any space with listed `actions`.
        features: φ(observation, action) as a function or ActionFeatures; or state features, which are then multiplied
            with one-hot actions (lists) or with directions and amounts (a Box).
        safe_action: a_0, or a function observation -> a_0(s).
        threshold: τ of every *step's* expected cost, or one per constraint.
        cost: the entry of `info` that holds the cost, a tuple of entries, or a function (observation, action,
            next_observation, info) -> cost. Six values from `step` (Safety-Gymnasium) need nothing.
        noise: σ of the cost's noise; None means costs in [0, 1], for which σ = 1/2 always holds (checked).
        baseline_cost: the known cost of a_0: a number, or a function (step, observation); None if unknown.
        horizon: H; None takes env.spec.max_episode_steps.
        actions: the list of actions, or a function observation -> those allowed there.
        mask: the entry of `info` that says which Discrete actions are allowed, such as "action_mask".
        targets: where the rays of a Box end: points, or a function observation -> points; None: the walls.
        reward_range: (lo, hi), mapped affinely to [0, 1], which is what optimism needs. Safety does not need it.
        confidence, gamma_norm, feature_norm, tight_baseline, gap_floor: as in Problem.
        key: observation -> something hashable, for dictionaries and the like.
        reset_options: handed to every env.reset.

    The environment is reset once (seed 0) to see an observation and to check the safe action, the features and τ on it.
    """

    env: Any
    _: KW_ONLY
    features: AnyFeatures
    safe_action: Any
    threshold: float | Sequence[float]
    cost: CostSource = "cost"
    noise: float | Sequence[float] | None = None
    baseline_cost: float | Sequence[float] | Callable[[int, State], float | Sequence[float]] | None = None
    horizon: int | None = None
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None = None
    mask: str | None = None
    targets: ArrayLike | Callable[[State], ArrayLike] | None = None
    reward_range: tuple[float, float] | None = None
    confidence: float = 0.01
    gamma_norm: float | Sequence[float] | None = None
    feature_norm: float = 1.0
    tight_baseline: Literal["error", "baseline"] = "error"
    gap_floor: float = 0.0
    key: Callable[[State], Hashable] | None = None
    reset_options: dict[str, Any] | None = None
    problem: Problem = field(init=False)
    odd_rewards: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not hasattr(self.env, "action_space") or not hasattr(self.env, "step"):
            raise InputError(f"env must be a Gymnasium environment, but is {self.env!r}: make one with gymnasium.make.")
        if hasattr(self.env, "num_envs"):
            raise InputError("env is a vector of environments: the learner decides step by step, so give one of them.")
        self._offset, self._scale = _affine(self.reward_range)
        self._masks: dict[StateKey, tuple[Any, ...]] = {}
        steps = _horizon_of(self.env) if self.horizon is None else self.horizon
        observation, info = self.env.reset(seed=0, options=self.reset_options)
        self._example = _own(observation)
        self._choices = self._choices_of(info)
        self._last: tuple[State, ActionSet] | None = None
        self.problem = Problem(
            horizon=steps,
            threshold=self.threshold,  # type: ignore[arg-type]
            noise=BOUNDED_NOISE if self.noise is None else self.noise,  # type: ignore[arg-type]
            dimension=self._choices.features.dimension,
            actions=self._actions_of,
            baseline_cost=self._told_cost(),
            confidence=self.confidence,
            gamma_norm=() if self.gamma_norm is None else self.gamma_norm,  # type: ignore[arg-type]
            feature_norm=self.feature_norm,
            key=None if self.key is None else self._key_of,
            gap_floor=self.gap_floor,
            tight_baseline=self.tight_baseline,
            final_reward=lambda state: -self._offset / self._scale if isinstance(state, Ended) else None,
        )
        self.problem.look_up(self.state_of(observation, info))  # at the door: safe action, shapes, norms, Assumption 2

    def state_of(self, observation: Any, info: dict[str, Any]) -> State:
        """The state that an observation stands for; remembers which actions are allowed in it."""
        state = _own(observation)
        if self.mask is not None:
            self._remember_mask(state, info)
        return state

    def start(self, seed: int | None = None) -> State:
        """Reset the environment: the first state of an episode."""
        return self.state_of(*self.env.reset(seed=seed, options=self.reset_options))

    def env_action(self, decision: Decision) -> Any:
        """The environment's own action for a decision."""
        chosen, state = decision.action, decision.state
        if isinstance(self._choices, ActionList):
            if isinstance(chosen, StarAction):
                raise InputError(f"decision {decision.id} plays a ray, but this environment has a list of actions.")
            return self._choices.action(state, chosen)
        if not isinstance(chosen, StarAction):
            raise InputError(f"decision {decision.id} plays action {chosen}, but this environment has rays.")
        return self._choices.action(state, chosen)

    def transition(self, decision: Decision, stepped: Stepped, action: Any) -> Transition:
        """What `env.step` answered (see `unpack`), as the outcome to observe."""
        cost = read_cost(self.cost, decision.state, action, stepped)
        if self.noise is None and cost is not None and not all(0.0 <= z <= 1.0 for z in np.atleast_1d(cost)):
            raise InputError(
                f"a cost of {cost} was observed, but noise=None promises costs in [0, 1], for which σ = 1/2 holds: "
                "state the σ of your costs, noise=…"
            )
        following: State = self.state_of(stepped.observation, stepped.info) if not stepped.terminated else None
        if stepped.terminated and self._offset != 0.0:
            following = ENDED
        return decision.outcome(reward=self._scaled(stepped.reward), cost=cost, next_state=following)

    def play(self, decision: Decision) -> Played:
        """Play a decision in the environment."""
        action = self.env_action(decision)
        stepped = unpack(self.env.step(action))
        outcome = self.transition(decision, stepped, action)
        return Played(outcome, stepped.reward, stepped.terminated or stepped.truncated, stepped.info)

    def describe(self) -> str:
        """One line for people: the environment, its actions and its features."""
        kind = "list of actions" if isinstance(self._choices, ActionList) else "rays in a box of actions"
        return f"{self.env}: H = {self.problem.horizon}, {kind}, {self._choices.features.describe()}"

    @property
    def has_rays(self) -> bool:
        """Whether D(s) is a star: a direction and an amount."""
        return isinstance(self._choices, BoxRays)

    def _choices_of(self, info: dict[str, Any]) -> ActionList | BoxRays:
        space, example = self.env.action_space, self._example
        if isinstance(space, spaces.Box) and self.actions is None:
            if self.mask is not None:
                raise InputError("mask is for Discrete actions; for a Box, give targets as a function of the state.")
            return BoxRays(space, self.features, self.safe_action, self.targets, example)
        if self.targets is not None:
            raise InputError(f"targets are ends of rays in a Box of actions, but the action space is {space}.")
        if self.mask is not None and (self.actions is not None or not isinstance(space, spaces.Discrete)):
            raise InputError("mask is for Discrete actions, in place of `actions`: give one of the two.")
        choices = list_of_actions(space, self.features, self.safe_action, self.actions, example)
        if self.mask is not None:
            choices.actions = self._allowed
        return choices

    def _actions_of(self, state: State) -> ActionSet:
        """D(s); where nothing is played any more, any set will do. The set that `observe` asked for serves `act`."""
        if self._last is None or state is not self._last[0]:
            self._last = (state, self._choices(self._example if isinstance(state, Ended) else state))
        return self._last[1]

    def _allowed(self, state: State) -> Sequence[int]:
        """What the environment's mask allowed where it was seen."""
        allowed = self._masks.get(self.problem.key_of(state))
        if allowed is None:
            raise InputError(
                f"state {state!r} was never seen, so info[{self.mask!r}] never said what is allowed there."
            )
        return allowed

    def _remember_mask(self, state: State, info: dict[str, Any]) -> None:
        if self.mask not in info:
            raise InputError(f"info has no {self.mask!r} (mask=…), only {sorted(map(str, info))}.")
        allowed = np.flatnonzero(np.asarray(info[self.mask])) + int(self.env.action_space.start)
        told = tuple(allowed.tolist())
        before = self._masks.setdefault(self.problem.key_of(state), told)
        if before != told:
            raise InputError(
                f"info[{self.mask!r}] allows {told} in state {state!r}, but allowed {before} there before: "
                "what it depends on must be in the observation."
            )

    def _key_of(self, state: State) -> Hashable:
        return ENDED_KEY if isinstance(state, Ended) or self.key is None else self.key(state)

    def _told_cost(self) -> Callable[[int, State], float | Sequence[float]] | None:
        told = self.baseline_cost
        if told is None or callable(told):
            return told
        return lambda step, state: told

    def _scaled(self, reward: float) -> float:
        """(r − lo) / (hi − lo); a reward outside [0, 1] is counted, and warned about once."""
        scaled = (reward - self._offset) / self._scale
        if not 0.0 <= scaled <= 1.0:
            self.odd_rewards += 1
            if self.odd_rewards == 1:
                warnings.warn(
                    f"a reward of {reward:.6g} lies outside {self.reward_range or (0.0, 1.0)}: optimism assumes "
                    "rewards in [0, 1], so learning may be slow or stop early. Safety is not touched. Give "
                    "reward_range=(lo, hi).",
                    stacklevel=2,
                )
        return scaled


def _own(observation: Any) -> Any:
    """The observation, safe from environments that reuse their arrays."""
    return observation.copy() if isinstance(observation, np.ndarray | dict) else observation


def _affine(reward_range: tuple[float, float] | None) -> tuple[float, float]:
    """(offset, scale) of the map to [0, 1]."""
    if reward_range is None:
        return 0.0, 1.0
    low, high = (float(end) for end in reward_range)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"reward_range must be (lo, hi) with lo < hi, both finite, but is {reward_range!r}.")
    return low, high - low


def _horizon_of(env: gymnasium.Env[Any, Any]) -> int:
    steps = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    if steps is None:
        raise InputError(
            "the horizon H is needed: the environment's spec has no max_episode_steps. Give horizon=…, the number of "
            "steps after which an episode is cut."
        )
    return int(steps)
