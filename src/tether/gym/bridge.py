"""Bridge: a Gymnasium environment as a Problem, with the translations of actions, costs and rewards that a loop needs.

Its action space becomes the sets D(s) of `tether.features`: a list of actions, or rays inside a box.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from tether.agents.agent import checked_costs
from tether.arguments import explained
from tether.errors import InputError
from tether.features.actions import ActionFeatures, ActionList, ActionRays, PerDirection
from tether.features.state import Features
from tether.gym.spaces import Actions, AnyFeatures, BoxRays, Mask, Targets, list_of_actions
from tether.gym.step import OLD_API, Stepped, check_takes, owned, read_costs, unpack
from tether.options import not_negative
from tether.problem.action_sets import ActionSet
from tether.problem.constraint import OneOrMore
from tether.problem.names import NO_NAMES, Names
from tether.problem.problem import Problem
from tether.records import Decision, StarAction, State, StateKey, Transition

if TYPE_CHECKING:
    from tether.check.report import Report

SAME_FEATURE = 1e-6
"""How far φ of an action may lie from what was certified, as a part of `feature_norm`: what rounding makes of it."""

REWARD_ROUNDING = 1e-6
"""How far a scaled reward may lie outside [0, 1] before it counts as outside: what single precision rounds away."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The state after an episode has terminated: nothing is played, and each remaining step pays the env's reward 0."""


ENDED = Ended()
ENDED_KEY = "tether: the episode has ended"
"""What identifies it where the user identifies states."""


@explained()
@dataclass(eq=False)
class Bridge:
    """A Gymnasium environment as a Problem: what `tether.learn` uses, and what you use if you own the loop.

    Attributes:
        env: the environment; Discrete actions, a Box of real numbers, or any space with listed `actions`.
        features: φ(observation, action) as a function or ActionFeatures; or state features, which are then multiplied
            with one-hot actions (lists) or with directions and amounts (a Box).
        safe_action: a_0, or a function observation -> a_0(s).
        constraints: a `Constraint`, or several. `Constraint(cost=…)` says where the environment reports the cost.
            Functions for `safe_cost` are called with (step, observation).
        horizon: H; None takes env.spec.max_episode_steps.
        actions: what may be played: a list of actions, or a function observation -> those allowed there; `Mask(entry)`
            where `info[entry]` says which Discrete actions are allowed; `Targets(points)` where the rays of a Box end,
            the walls unless given.
        reward_range: (lo, hi), mapped affinely to [0, 1], which is what optimism needs. Safety does not need it.
        reward_noise: σ_r of the environment's own rewards, in their units; 0 if they are exact.
        confidence: δ, as in Problem.
        feature_norm: an upper bound on ‖φ‖, 1 in the paper.
        key: observation -> something hashable, for objects of your own that are no dataclasses.
        reset_options: handed to every env.reset.
        names: what people call costs, actions, features and states, and the units: `tether.Names`.
        problem: what an agent knows.
        action_sets: state -> D(s), and from its rows to the environment's own actions.
        odd_rewards: how many rewards lay outside reward_range.
        stamp: the time of the newest observation, as `act(step, state, **bridge.stamp)` wants it; empty unless costs
            drift per second.

    The environment is reset once (seed 0) to see an observation and to check the safe action, the features and τ on it.
    """

    env: Any
    _: KW_ONLY
    features: AnyFeatures
    safe_action: Any
    constraints: OneOrMore = OneOrMore()  # noqa: RUF009
    horizon: int | None = None
    actions: Actions | None = None
    reward_range: tuple[float, float] | None = None
    reward_noise: float = 0.0
    confidence: float = 0.01
    feature_norm: float = 1.0
    key: Callable[[State], Hashable] | None = None
    reset_options: dict[str, Any] | None = None
    names: Names = NO_NAMES
    problem: Problem = field(init=False)
    action_sets: ActionList | BoxRays = field(init=False)
    odd_rewards: int = field(default=0, init=False)
    stamp: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        drifts = [one.drift for one in self.constraints if one.drift.rate > 0.0 and one.drift.per == "second"]
        self._time = drifts[0].time if drifts else None
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
            dimension=self.action_sets.features.dimension,
            actions=self._actions_of,
            constraints=self.constraints,
            confidence=self.confidence,
            feature_norm=self.feature_norm,
            reward_noise=not_negative("reward_noise", self.reward_noise) / self._scale,
            key=None if self.key is None else self._key_of,
            names=self.names,
            final_reward=lambda state: -self._offset / self._scale if isinstance(state, Ended) else None,
        )
        if self._time is None and drifts:
            raise InputError(
                "drift is per second: say what time it is, Drift(…, time=…), an entry of `info` or a function."
            )
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
        if isinstance(self.actions, Mask):
            self._remember_mask(self.actions.entry, state, info)
        if callable(self._time):
            self.stamp = {"time": self._time(owned(state), info)}
        elif self._time is not None:
            if self._time not in info:
                raise InputError(f"info has no {self._time!r} (time=…), only {sorted(map(str, info))}.")
            self.stamp = {"time": info[self._time]}
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
        expected = len(self.problem.constraints)
        cost = read_costs(self.problem.constraints, decision.state, action, stepped)
        if cost is not None and np.size(cost) != expected:
            raise InputError(
                f"a step reported the cost {cost}, {np.size(cost)} number(s), but there are {expected} constraints: "
                "give a Constraint for each cost, or name those that are limited, Constraint(cost=…)."
            )
        checked_costs(cost, self.problem, needed=False)
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
        for one in self.constraints:
            if not (one.cost is None or isinstance(one.cost, str) or callable(one.cost)):
                raise InputError(
                    "cost must name an entry of info, or be a function (observation, action, next_observation, info) "
                    f"-> cost, but is {one.cost!r}."
                )
        if not (self.key is None or callable(self.key)):
            raise InputError(f"key must be a function observation -> something hashable, but is {self.key!r}.")
        for given, what, arguments in (
            (self.safe_action, "safe_action", ["observation"]),
            *((one.cost, "cost", ["observation", "action", "next_observation", "info"]) for one in self.constraints),
            *((one.known.cost, "safe_cost", ["step", "observation"]) for one in self.constraints),
            (self._targets if isinstance(self.actions, Targets) else self.actions, "actions", ["observation"]),
            (self.key, "key", ["observation"]),
            (self._time, "time", ["observation", "info"]),
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

    @property
    def _targets(self) -> Any:
        """Where rays end, None for the walls of the box."""
        return self.actions.points if isinstance(self.actions, Targets) else None

    def _make_action_sets(self) -> ActionList | BoxRays:
        space, example, actions = self.env.action_space, self._example, self.actions
        if isinstance(space, spaces.Box) and (actions is None or isinstance(actions, Mask | Targets)):
            if isinstance(actions, Mask):
                raise InputError(
                    "Mask is for Discrete actions; for a Box, give Targets with a function of the observation."
                )
            return BoxRays(space, self.features, self.safe_action, self._targets, example)
        if isinstance(actions, Targets):
            raise InputError(f"Targets are ends of rays in a Box of actions, but the action space is {space}.")
        if not isinstance(actions, Mask):
            return list_of_actions(space, self.features, self.safe_action, actions, example)
        if not isinstance(space, spaces.Discrete):
            raise InputError(f"Mask is for Discrete actions, but the action space is {space}.")
        sets = list_of_actions(space, self.features, self.safe_action, None, example)
        sets.actions = self._allowed
        return sets

    def _actions_of(self, state: State) -> ActionSet:
        """D(s); where nothing is played any more, any set will do."""
        return self.action_sets(self._example if isinstance(state, Ended) else state)

    def _allowed(self, state: State) -> Sequence[int]:
        """What the environment's mask allowed where it was seen."""
        allowed = self._masks.get(self.problem.key_of(state))
        if allowed is None:
            raise InputError(f"state {state!r} was never seen, so {self.actions!r} never said what is allowed there.")
        return allowed

    def _remember_mask(self, entry: str, state: State, info: dict[str, Any]) -> None:
        if entry not in info:
            raise InputError(f"info has no {entry!r} (Mask), only {sorted(map(str, info))}.")
        allowed = tuple((np.flatnonzero(np.asarray(info[entry])) + int(self.env.action_space.start)).tolist())
        before = self._masks.setdefault(self.problem.key_of(state), allowed)
        if before != allowed:
            raise InputError(
                f"info[{entry!r}] allows {allowed} in state {state!r}, but allowed {before} there before: "
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
