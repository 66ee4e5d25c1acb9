"""Bridge: a Gymnasium environment as a Problem, with the translations of actions, costs and rewards that a loop needs.

Its action space becomes the sets D(s) of `tether.features`: a list of actions, or rays inside a box.
"""

import copy
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from inspect import Signature, signature
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike

from tether.errors import InputError
from tether.features.actions import ActionFeatures, ActionList, ActionRays, PairFeatures, PerAction, PerDirection, at
from tether.features.state import Features
from tether.problem.action_sets import ActionSet, is_masked, real_numbers
from tether.problem.names import NO_NAMES, Names
from tether.problem.options import not_negative
from tether.problem.problem import BOUNDED_NOISE, Problem
from tether.records import Array, Decision, StarAction, State, StateKey, Transition

if TYPE_CHECKING:
    from tether.check.report import Report

AnyFeatures = Features | ActionFeatures | PerDirection | Callable[[State, Any], ArrayLike]
CostSource = str | Sequence[str] | Callable[[Any, Any, Any, dict[str, Any]], Any]

SAME_FEATURE = 1e-6
"""How far φ of an action may lie from what was certified, as a part of `feature_norm`: what rounding makes of it."""

REWARD_ROUNDING = 1e-6
"""How far a scaled reward may lie outside [0, 1] before it counts as outside: what single precision rounds away."""


OLD_API = "Wrap old environments so that they follow Gymnasium 1.0, or let tether.gym.remote play them: it knows Gym's."


# What `env.step` answers, and where the cost of a step is in it: in `info`, in a 6-tuple, or in the user's function.


def check_takes(function: Any, what: str, *arguments: str, **named: Any) -> None:
    """Refuse a user's function that cannot be called with these arguments, at the door."""
    takes: Signature | None = None
    with suppress(TypeError, ValueError):  # some built-ins do not say what they take
        takes = signature(function)
    try:
        if takes is not None:
            takes.bind(*arguments, **named)
    except TypeError as error:
        asked = ", ".join([*arguments, *(f"{name}=…" for name in named)])
        raise InputError(f"{what} is called with ({asked}), but cannot be: {error}.") from None


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
            f"returned {answer!r}. {OLD_API}"
        )
    observation, reward, *cost, terminated, truncated, info = answer
    number = nan
    with suppress(TypeError, ValueError):
        number = float(reward)
    if not isfinite(number):
        raise InputError(
            f"the reward of a step must be a finite number, but is {reward!r}. Where nothing is earned, give 0."
        )
    if not isinstance(info, dict):
        raise InputError(f"the info of a step must be a dictionary, an empty one if need be, but is {info!r}.")
    return Stepped(observation, number, cost[0] if cost else None, bool(terminated), bool(truncated), info)


def read_cost(
    source: CostSource, observation: State, action: Any, stepped: Stepped
) -> float | tuple[float, ...] | None:
    """z of this step: one number, or one per constraint; None if the environment says it was not measured."""
    info = stepped.info
    if callable(source):  # whatever it writes into is its own
        found = source(owned(observation), owned(action), owned(stepped.observation), info)
    elif isinstance(source, str) and source not in info and stepped.cost is not None:
        found = stepped.cost
    else:
        names = (source,) if isinstance(source, str) else source
        for name in names:
            if name not in info:
                raise InputError(
                    f"env.step reported no cost: info has {sorted(map(str, info))} but no {name!r}. Name the "
                    "entry that holds it (cost='…'), give a function cost(observation, action, next_observation, "
                    "info), or use an environment whose step returns 6 values with the cost as the third."
                )
        found = info[source] if isinstance(source, str) else [info[name] for name in names]
    if found is None:
        return None
    if is_masked(found):
        raise InputError("the cost of a step is masked: if it was not measured, report None.")
    try:
        numbers = real_numbers(found, "the cost of a step").reshape(-1)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the cost of a step must be numbers, but is {found!r}: {error}.") from error
    return float(numbers[0]) if numbers.size == 1 else tuple(numbers.tolist())


# The action space as sets D(s).


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


# The environment as a problem.


@dataclass(frozen=True, slots=True)
class Ended:
    """The state after an episode has terminated: nothing is played, and each remaining step pays the env's reward 0."""


ENDED = Ended()
ENDED_KEY = "tether: the episode has ended"
"""What identifies it where the user identifies states."""


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
        baseline_cost_error, confidence, gamma_norm, feature_effects, feature_norm: as in Problem.
        tight_baseline, gap_floor: as in Problem.
        misfit, drift, drift_per, limit, exceedance, noise_scales: as in Problem.
        lost, cost_range: as in Problem, for steps whose cost is None.
        time: where drift is per second, the entry of `info` that holds the environment's own time in seconds, or a
            function (observation, info) -> seconds.
        reward_noise: σ_r of the environment's own rewards, in their units; 0 if they are exact.
        cost_kind: "bounded" for costs in [0, 1] such as accidents, certified by likelihood ratios; or one per
            constraint.
        key: observation -> something hashable, for objects of your own that are no dataclasses.
        reset_options: handed to every env.reset.
        names: what people call costs, actions, features and states, and the units: `tether.Names`.
        problem: what an agent knows.
        action_sets: state -> D(s), and from its rows to the environment's own actions.
        odd_rewards: how many rewards lay outside reward_range.
        stamp: the time of the newest observation, as `act(step, state, **bridge.stamp)` wants it; empty without `time`.

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
    baseline_cost_error: float | Sequence[float] = 0.0
    horizon: int | None = None
    actions: Sequence[Any] | Callable[[State], Sequence[Any]] | None = None
    mask: str | None = None
    targets: ArrayLike | Callable[[State], ArrayLike] | None = None
    reward_range: tuple[float, float] | None = None
    confidence: float = 0.01
    gamma_norm: float | Sequence[float] | None = None
    feature_effects: Sequence[Any] | None = None
    feature_norm: float = 1.0
    tight_baseline: Literal["error", "baseline"] = "error"
    gap_floor: float = 0.0
    misfit: float | Sequence[float] = 0.0
    drift: float | Sequence[float] = 0.0
    drift_per: Literal["decision", "second"] = "decision"
    time: str | Callable[[State, dict[str, Any]], float] | None = None
    reward_noise: float = 0.0
    limit: Literal["expected", "realised"] = "expected"
    exceedance: float = 0.05
    noise_scales: bool = False
    lost: Literal["at-random", "worst-case"] = "at-random"
    cost_range: Sequence[float] | Sequence[Sequence[float]] | None = None
    cost_kind: str | Sequence[str] = "gaussian"
    key: Callable[[State], Hashable] | None = None
    reset_options: dict[str, Any] | None = None
    names: Names = NO_NAMES
    problem: Problem = field(init=False)
    action_sets: ActionList | BoxRays = field(init=False)
    odd_rewards: int = field(default=0, init=False)
    stamp: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._check_given()
        self._offset, self._scale = _offset_and_scale(self.reward_range)
        steps = self.horizon
        if steps is None:
            steps = getattr(getattr(self.env, "spec", None), "max_episode_steps", None)
        if steps is None:
            raise InputError(
                "the horizon H is needed: the environment's spec has no max_episode_steps. Give horizon=…, the number "
                "of steps after which an episode is cut."
            )
        observation, info = self._reset(0)
        self._example = owned(observation)
        self._masks: dict[StateKey, tuple[Any, ...]] = {}
        self.action_sets = self._make_action_sets()
        self.problem = Problem(
            horizon=steps,
            threshold=self.threshold,  # type: ignore[arg-type]
            noise=BOUNDED_NOISE if self.noise is None else self.noise,  # type: ignore[arg-type]
            dimension=self.action_sets.features.dimension,
            actions=self._actions_of,
            baseline_cost=self.baseline_cost,  # type: ignore[arg-type]
            baseline_cost_error=self.baseline_cost_error,  # type: ignore[arg-type]
            confidence=self.confidence,
            gamma_norm=() if self.gamma_norm is None else self.gamma_norm,  # type: ignore[arg-type]
            feature_effects=self.feature_effects,
            feature_norm=self.feature_norm,
            key=None if self.key is None else self._key_of,
            gap_floor=self.gap_floor,
            misfit=self.misfit,  # type: ignore[arg-type]
            drift=self.drift,  # type: ignore[arg-type]
            drift_per=self.drift_per,
            reward_noise=not_negative("reward_noise", self.reward_noise) / self._scale,
            limit=self.limit,
            exceedance=self.exceedance,
            noise_scales=self.noise_scales,
            lost=self.lost,
            cost_range=self.cost_range,
            cost_kind=self.cost_kind,
            tight_baseline=self.tight_baseline,
            names=self.names,
            final_reward=lambda state: -self._offset / self._scale if isinstance(state, Ended) else None,
        )
        if self.time is None and self.drift_per == "second" and any(self.problem.drift):
            raise InputError("drift is per second: say what time it is, time=…, an entry of `info` or a function.")
        self.problem.look_up(self.state_of(observation, info))  # at the door: safe action, shapes, norms, Assumption 2

    def beside(self, env: Any) -> "Bridge":
        """The same declared of another environment of this kind, for a learner that learns from both."""
        spaces_here = (self.env.observation_space, self.env.action_space)
        if (getattr(env, "observation_space", None), getattr(env, "action_space", None)) != spaces_here:
            raise InputError(f"environments of one learner must have the same spaces, but those of {env} are others.")
        other = replace(self, env=env)
        other._masks = self._masks
        return other

    def start(self, seed: int | None = None) -> State:
        """Reset the environment: the first state of an episode."""
        return self.state_of(*self._reset(seed))

    def state_of(self, observation: Any, info: dict[str, Any]) -> State:
        """The state that an observation stands for; remembers which actions are allowed in it."""
        state = owned(observation)
        if self.mask is not None:
            self._remember_mask(state, info)
        if callable(self.time):
            self.stamp = {"time": self.time(owned(state), info)}
        elif self.time is not None:
            if self.time not in info:
                raise InputError(f"info has no {self.time!r} (time=…), only {sorted(map(str, info))}.")
            self.stamp = {"time": info[self.time]}
        return state

    def env_action(self, decision: Decision) -> Any:
        """The environment's own action for a decision; refused if it is no longer the one that was certified.

        One of a box is read-only: `transition` counts what was played, not what an environment has made of it since.
        """
        chosen, state, sets = decision.action, decision.state, self.action_sets
        if isinstance(sets, BoxRays):
            if not isinstance(chosen, StarAction):
                raise InputError(f"decision {decision.id} plays action {chosen}, but this environment has rays.")
            self._check_certified(decision, ActionRays.action(sets, state, chosen))  # before it is rounded
            point = sets.action(state, chosen)
            point.flags.writeable = False
            return point
        if isinstance(chosen, StarAction):
            raise InputError(f"decision {decision.id} plays a ray, but this environment has a list of actions.")
        played = sets.action(state, chosen)
        self._check_certified(decision, played)
        return played

    def _check_certified(self, decision: Decision, action: Any) -> None:
        """The user's functions are asked again for what a row or a ray stands for: it must be what they said before."""
        features = self.action_sets.features
        if isinstance(features, PerDirection):  # they do not know the action
            return
        now = features(decision.state, action)
        if not (np.abs(now - decision.feature) <= SAME_FEATURE * self.feature_norm).all():
            raise InputError(
                f"decision {decision.id} was certified with φ = {decision.feature.tolist()}, but the action {action!r} "
                f"that stands for it in state {decision.state!r} has φ = {now.tolist()} now: features, actions, "
                "targets and safe_action must give the same answer whenever they are asked about the same state."
            )

    def safe_env_action(self, state: State) -> Any:
        """The environment's own action for a_0(s)."""
        sets = self.action_sets
        return sets.action(state, StarAction(-1, 0.0)) if isinstance(sets, BoxRays) else sets.safe(state)

    def transition(self, decision: Decision, stepped: Stepped, action: Any) -> Transition:
        """What `env.step` answered (see `unpack`), as the outcome to observe."""
        cost, expected = read_cost(self.cost, decision.state, action, stepped), self.problem.constraints
        if cost is not None and np.size(cost) != expected:
            raise InputError(
                f"a step reported the cost {cost}, {np.size(cost)} number(s), but threshold has {expected}: give a "
                "threshold for each cost, threshold=(…, …), or name those that are limited, cost=…"
            )
        if self.noise is None and cost is not None and not all(0.0 <= z <= 1.0 for z in np.atleast_1d(cost)):
            raise InputError(
                f"a cost of {cost} was observed, but noise=None promises costs in [0, 1], for which σ = 1/2 holds: "
                "state the σ of your costs, noise=…"
            )
        following: State = self.state_of(stepped.observation, stepped.info) if not stepped.terminated else None
        if stepped.terminated and self._offset != 0.0:
            following = ENDED
        outcome = decision.outcome(reward=self._scaled(stepped.reward), cost=cost, next_state=following)
        chosen = decision.action
        if isinstance(self.action_sets, BoxRays) and isinstance(chosen, StarAction) and not decision.is_baseline:
            played = self.action_sets.played(decision.state, chosen, action)
            if played is not chosen:
                start = self.action_sets.safe_feature(decision.state)
                outcome = replace(outcome, feature=start + played.length / chosen.length * (decision.feature - start))
        return outcome

    def play(self, decision: Decision) -> tuple[Transition, Stepped]:
        """Play a decision in the environment: the outcome to observe, and the environment's own answer."""
        action = self.env_action(decision)
        stepped = self.step(action)
        return self.transition(decision, stepped, action), stepped

    def step(self, action: Any) -> Stepped:
        """One step of the environment, with an action of its own to write into."""
        return unpack(self.env.step(owned(action)))

    def check(self, log: Any = None, **options: Any) -> "Report":
        """Play the safe action, then certified ones (`plays=1000`, `explore=True`), or take a log; test it all.

        Options are those of `tether.gym.check.check_bridge` and of `Problem.check`.
        """
        from tether.gym.check import check_bridge

        return check_bridge(self, log, **options)

    def describe(self) -> str:
        """One line for people: the environment, its actions and its features."""
        kind = "rays in a box of actions" if self.has_rays else "list of actions"
        name = getattr(getattr(self.env, "spec", None), "id", None) or str(self.env)  # not the chain of wrappers
        return f"{name}: H = {self.problem.horizon}, {kind}, {self.action_sets.features.describe()}"

    @property
    def has_rays(self) -> bool:
        """Whether D(s) is a star: a direction and an amount."""
        return isinstance(self.action_sets, BoxRays)

    def _check_given(self) -> None:
        """Refuse what is no environment, and functions that cannot be called as they will be."""
        env, features = self.env, self.features
        if isinstance(env, type) or not hasattr(env, "action_space") or not hasattr(env, "step"):
            called = ": call it" if callable(env) else ": make one with gymnasium.make"
            called += f", {env.__name__}()" if isinstance(env, type) else ""
            raise InputError(f"env must be a Gymnasium environment, but is {env!r}{called}.")
        if not callable(features) and not isinstance(features, PerDirection):
            raise InputError(
                "features must be a function (observation, action) -> d numbers, or a builder of tether.features, but "
                f"are {features!r}."
            )
        if not isinstance(features, Features | ActionFeatures | PerDirection):
            what = "features (of states alone: tether.features.FunctionFeatures)"
            check_takes(features, what, "observation", "action")
        names = (self.cost,) if isinstance(self.cost, str) else self.cost
        if not callable(names) and not (isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)):
            raise InputError(
                "cost must name an entry of info, or several, or be a function (observation, action, next_observation, "
                f"info) -> cost, but is {self.cost!r}."
            )
        if not (self.time is None or isinstance(self.time, str) or callable(self.time)):
            raise InputError(
                f"time must name an entry of info, or be a function (observation, info), but is {self.time!r}."
            )
        if not (self.key is None or callable(self.key)):
            raise InputError(f"key must be a function observation -> something hashable, but is {self.key!r}.")
        for given, what, arguments in (
            (self.safe_action, "safe_action", ["observation"]),
            (self.cost, "cost", ["observation", "action", "next_observation", "info"]),
            (self.baseline_cost, "baseline_cost", ["step", "observation"]),
            (self.actions, "actions", ["observation"]),
            (self.targets, "targets", ["observation"]),
            (self.key, "key", ["observation"]),
            (self.time, "time", ["observation", "info"]),
        ):
            if callable(given):
                check_takes(given, what, *arguments)
        if hasattr(getattr(env, "unwrapped", env), "num_envs"):
            raise InputError(
                "env is a vector of environments that step together: give learn a list of single ones, or a "
                "SyncVectorEnv, and it plays episodes in all of them at once."
            )
        check_takes(env.reset, "env.reset", seed=None, **self._options())

    def _options(self) -> dict[str, Any]:
        """`options` of a reset only where there are some: not every environment takes them."""
        return {} if self.reset_options is None else {"options": self.reset_options}

    def _reset(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(seed=None if seed is None else int(seed), **self._options())  # numpy's are refused
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
            raise InputError(f"env.reset must return (observation, info), but it returned {answer!r}. {OLD_API}")
        return answer

    def _make_action_sets(self) -> ActionList | BoxRays:
        space, example = self.env.action_space, self._example
        if isinstance(space, spaces.Box) and self.actions is None:
            if self.mask is not None:
                raise InputError("mask is for Discrete actions; for a Box, give targets as a function of the state.")
            return BoxRays(space, self.features, self.safe_action, self.targets, example)
        if self.targets is not None:
            raise InputError(f"targets are ends of rays in a Box of actions, but the action space is {space}.")
        if self.mask is not None and (self.actions is not None or not isinstance(space, spaces.Discrete)):
            raise InputError("mask is for Discrete actions, in place of `actions`: give one of the two.")
        sets = list_of_actions(space, self.features, self.safe_action, self.actions, example)
        if self.mask is not None:
            sets.actions = self._allowed
        return sets

    def _actions_of(self, state: State) -> ActionSet:
        """D(s); where nothing is played any more, any set will do."""
        return self.action_sets(self._example if isinstance(state, Ended) else state)

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
        allowed = tuple((np.flatnonzero(np.asarray(info[self.mask])) + int(self.env.action_space.start)).tolist())
        before = self._masks.setdefault(self.problem.key_of(state), allowed)
        if before != allowed:
            raise InputError(
                f"info[{self.mask!r}] allows {allowed} in state {state!r}, but allowed {before} there before: "
                "what it depends on must be in the observation."
            )

    def _key_of(self, state: State) -> Hashable:
        return ENDED_KEY if isinstance(state, Ended) or self.key is None else self.key(state)

    def _scaled(self, reward: float) -> float:
        """(r − lo) / (hi − lo); a reward outside [0, 1] by more than rounding is counted, and warned about once."""
        scaled = (reward - self._offset) / self._scale
        if not -REWARD_ROUNDING <= scaled <= 1.0 + REWARD_ROUNDING:
            self.odd_rewards += 1
            if self.odd_rewards == 1:
                declared = (self._offset, self._offset + self._scale)
                warnings.warn(
                    f"a reward of {reward:.6g} lies outside {declared}: optimism assumes rewards in [0, 1], so "
                    "learning may be slow or stop early. Safety is not touched. Give reward_range=(lo, hi).",
                    stacklevel=2,
                )
        return scaled


def _offset_and_scale(reward_range: tuple[float, float] | None) -> tuple[float, float]:
    """lo and hi − lo of the rewards: 0 and 1 unless given."""
    low = high = nan
    with suppress(TypeError, ValueError):
        low, high = map(float, (0.0, 1.0) if reward_range is None else reward_range)
    if not -np.inf < low < high < np.inf:
        raise InputError(f"reward_range must be (lo, hi) with lo < hi, both finite, but is {reward_range!r}.")
    return low, high - low


def owned(observation: Any) -> Any:
    """A copy of an observation or action: environments reuse theirs, and functions write into what they are given."""
    if isinstance(observation, dict):
        return {name: owned(part) for name, part in observation.items()}
    if type(observation) in (tuple, list):
        return type(observation)(map(owned, observation))
    try:
        return copy.deepcopy(observation)
    except Exception as error:
        raise InputError(
            f"{observation!r:.80} cannot be copied ({error}), so nobody could tell what it was when it is reused: let "
            "the environment observe numbers, strings, arrays, and tuples, dictionaries or dataclasses of them."
        ) from error
