"""Problem: everything the learner knows, checked against the paper's assumptions at the door."""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, log2, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from tether.arguments import explained
from tether.assumptions.realised import Realised
from tether.assumptions.safe_cost import TypedCosts, check_safe_cost, cost_at
from tether.errors import AssumptionError, InputError, TetherError
from tether.options import Limit, check_options, real_numbers
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions, check_norms, check_origin
from tether.problem.constraint import OneOrMore
from tether.problem.effects import HOW, check_demand, idle
from tether.problem.keys import content_key, hashable, own_copy
from tether.problem.names import NO_NAMES, Names
from tether.records import Array, State, StateKey

if TYPE_CHECKING:
    from tether.check.report import Report


@dataclass(frozen=True, slots=True, eq=False)
class KnownState:
    """What the learner knows about one state: D(s), a_0(s) in it, and τ_h(s) as (H, M), NaN if unknown.

    `final_reward` is NaN unless trajectories end here; then nothing is played, and no cost is declared.
    """

    key: StateKey
    actions: ActionSet
    baseline_cost: Array
    final_reward: float = np.nan

    def is_same(self, other: "KnownState") -> bool:
        """Whether both have the same features, safe action, safe costs and end."""
        here, there = self.actions, other.actions
        return (
            here.is_star == there.is_star
            and here.baseline == there.baseline
            and np.array_equal(here.endpoints, there.endpoints)
            and np.array_equal(here.phi_0, there.phi_0)
            and np.array_equal(self.baseline_cost, other.baseline_cost, equal_nan=True)
            and np.array_equal(self.final_reward, other.final_reward, equal_nan=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class NamedState:
    """A state as errors name it, spelt out only when there is one: printing an array takes longer than checking it."""

    state: State

    def __str__(self) -> str:
        return f"state {self.state!r}"


@dataclass(frozen=True, slots=True)
class StateKeys:
    """What identifies a state, and the way back.

    Attributes:
        key: state -> hashable identity.
        state_of: key -> state. Only needed to save an agent with a lean backup whose states are not numbers, strings,
            bytes, arrays, or tuples and dictionaries of them: for a dataclass, `lambda key: Position(*key[1:])`.
    """

    key: Callable[[State], Hashable] | None = None
    state_of: Callable[[Any], State] | None = None


@explained()
@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What the learner knows: the horizon, the features of each state's actions, its safe action and the constraints.

    Attributes:
        horizon: H, steps per episode; H = 1 is the safe contextual bandit.
        dimension: d.
        actions: state -> FiniteActions or StarActions, the set D(s) with the safe action in it.
        constraints: a `Constraint`, or several.
        confidence: δ, the probability with which the cost event may fail over the whole run.
        feature_norm: the limit on ‖φ‖, 1 in the paper.
        reward_noise: σ_r of the sub-Gaussian noise on observed rewards; 0 if they are exact. It steers exploration
            only.
        final_reward: state -> None where the trajectory goes on; where it ends, the reward that each remaining step is
            worth (0 if the end is worth nothing). Nothing is played there, so Assumption 2 does not speak of it.
        states: the states, when they can be listed; S may be large, nothing is computed per state until visited.
        key: state -> hashable identity, for states that are neither hashable, arrays, dictionaries nor dataclasses; or
            `StateKeys(key, state_of)` with the way back.
        version: your name for the version of these functions. A log or a saved agent of another version is refused.
        names: what people call costs, actions, features and states, and the units, for messages and pages.

    Example:
        >>> actions = FiniteActions([[1.0, 0.0], [0.6, 0.8]], baseline=0)
        >>> limit = Constraint(threshold=0.5, noise=0.1, safe_cost=0.2)
        >>> Problem(horizon=1, dimension=2, actions=lambda state: actions, constraints=limit).threshold
        (0.5,)
    """

    horizon: int
    dimension: int
    actions: Callable[[State], ActionSet]
    constraints: OneOrMore = OneOrMore()  # noqa: RUF009
    confidence: float = 0.01
    feature_norm: float = 1.0
    reward_noise: float = 0.0
    final_reward: Callable[[State], float | None] | None = None
    states: Sequence[State] | None = None
    key: Callable[[State], Hashable] | StateKeys | None = None
    version: str = ""
    names: Names = NO_NAMES

    def __post_init__(self) -> None:
        if not isinstance(self.version, str):
            raise InputError(f"version must be a string, but is {self.version!r}.")
        functions = {"actions": self.actions, "key": self.own_key, "state_of": self.state_of}
        for name, function in {**functions, "final_reward": self.final_reward}.items():
            if not callable(function) and (function is not None or name == "actions"):
                raise InputError(f"{name} must be a function of a state (state_of: of a key), but is {function!r}.")
        check_options(self, LIMITS)
        self._check_alike()
        m = len(self.constraints)
        if not isinstance(self.names, Names) or len(self.names.constraints) not in (0, m):
            raise InputError(
                f"names must be tether.Names(…), with a name for each of the {m} costs if any, but is {self.names!r}."
            )
        if len(self.names.features) not in (0, self.dimension):
            raise InputError(
                f"names.features has {len(self.names.features)} names, but there are d = {self.dimension} features."
            )
        for name in ("gamma_norm", "baseline_cost"):
            getattr(self, name)  # asked for once, so that it is checked at the door
        guessed = [one.gamma_norm is None and one.feature_effects is None for one in self.constraints]
        declared = [not guess or bounded for guess, bounded in zip(guessed, self.bounded, strict=True)]
        if why := idle(self.threshold, self.gamma_norm, self.feature_norm, declared):
            warnings.warn(f"B = √d is a guess, and {why}. Declare {HOW}, or gamma_norm.", stacklevel=4)

    def _check_alike(self) -> None:
        """Refuse constraints that differ in words that one learner can only take for all of them."""
        alike: dict[str, set[Any]] = {
            "per (of Drift)": {one.drift.per for one in self.constraints if one.drift.rate > 0.0},
            "time (of Drift)": {one.drift.time for one in self.constraints if one.drift.rate > 0.0},
            "counts_as (of Lost)": {one.lost.counts_as for one in self.constraints},
            "Realised": {one.realised for one in self.constraints},
            "safe_cost, known or not": {one.known.cost is not None for one in self.constraints},
        }
        for what, words in alike.items():
            if len(words) > 1:
                raise InputError(
                    f"all constraints of a problem must have the same {what}, but there are {sorted(map(repr, words))}."
                )

    @property
    def own_key(self) -> Callable[[State], Hashable] | None:
        """The function that identifies states, if one was given."""
        return self.key.key if isinstance(self.key, StateKeys) else self.key

    @property
    def state_of(self) -> Callable[[Any], State] | None:
        """The way back from a key to its state, if one was given."""
        return self.key.state_of if isinstance(self.key, StateKeys) else None

    # What all constraints say, in their order.

    @cached_property
    def threshold(self) -> tuple[float, ...]:
        """τ of each constraint."""
        return tuple(one.threshold for one in self.constraints)

    @cached_property
    def noise(self) -> tuple[float, ...]:
        """σ of each constraint."""
        return tuple(one.sigma for one in self.constraints)

    @cached_property
    def gamma_norm(self) -> tuple[float, ...]:
        """B of each constraint."""
        return tuple(one.norm(self.dimension) for one in self.constraints)

    @cached_property
    def bounded(self) -> tuple[bool, ...]:
        """Which costs lie in [0, 1] and are certified by likelihood ratios."""
        return tuple(one.by_likelihood for one in self.constraints)

    @cached_property
    def baseline_cost_error(self) -> tuple[float, ...]:
        """e, how far each declared safe cost may be off."""
        return tuple(one.known.off_by for one in self.constraints)

    @cached_property
    def gap_floor(self) -> float:
        """A known lower bound on τ − τ_h(s) for all constraints, used where τ_h(s) is unknown."""
        return min(one.known.gap_floor for one in self.constraints)

    @cached_property
    def misfit(self) -> tuple[float, ...]:
        """ε of each constraint."""
        return tuple(one.misfit.error for one in self.constraints)

    @cached_property
    def drift(self) -> tuple[float, ...]:
        """ρ of each constraint."""
        return tuple(one.drift.rate for one in self.constraints)

    @cached_property
    def drift_per(self) -> Literal["decision", "second"]:
        """The unit of time of all drifts."""
        return next((one.drift.per for one in self.constraints if one.drift.rate > 0.0), "decision")

    @cached_property
    def lost(self) -> Literal["at-random", "worst-case"]:
        """What lost costs count as."""
        return self.constraints[0].lost.counts_as

    @cached_property
    def cost_range(self) -> tuple[tuple[float, float], ...]:
        """(lowest, highest) reading of each cost, infinite where it was not declared."""
        return tuple(one.cost_range for one in self.constraints)

    @cached_property
    def realised(self) -> Realised | None:
        """The limit on measured costs, None where τ limits the mean."""
        return self.constraints[0].realised

    @cached_property
    def noise_scales(self) -> bool:
        """Whether the noise grows with the length of a ray that is played."""
        return self.realised is not None and self.realised.noise_scales

    @cached_property
    def baseline_cost(self) -> Callable[[int, State], Array] | None:
        """τ_h(s) of all constraints as one function (step, state) -> (M,), or None if they are unknown."""
        return self._safe_cost_function()

    @cached_property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        """What certificates of each constraint rest on beyond the paper's assumptions."""
        return tuple(tuple(one.sentence() for one in each.relax) for each in self.constraints)

    @property
    def quantile(self) -> Array:
        """q = σ√(2 log(1/η)) (M,), which noise exceeds with probability at most η; 0 where τ limits the mean."""
        return self.reserve + self.end_reserve

    @property
    def reserve(self) -> Array:
        """What every bound on a mean leaves for the noise, (M,): q, or 0 where the noise scales with the length."""
        return self._total("reserve")

    @property
    def end_reserve(self) -> Array:
        """What a bound leaves for the noise at the end of a ray, in proportion to the length played, (M,)."""
        return self._total("end_reserve")

    def _total(self, what: str) -> Array:
        """The sum over all relaxations of each constraint (M,)."""
        totals = [sum(getattr(one, what)(each.sigma) for one in each.relax) for each in self.constraints]
        return np.array(totals, dtype=np.float64)

    @property
    def mean_limit(self) -> Array:
        """The limit on mean costs that keeps to τ, (M,): τ − q, rounded down."""
        tau, reserve = np.array(self.threshold), self.reserve
        limit: Array = tau - reserve - np.where(reserve > 0.0, 2.0**-50 * (np.abs(tau) + reserve), 0.0)
        return limit

    @property
    def sample_error(self) -> Array:
        """How far the mean of a measured cost may lie from a linear one, (M,)."""
        return np.array([sum(one.sample_error for one in each.relax) for each in self.constraints], dtype=np.float64)

    @property
    def point_error(self) -> Array:
        """How far the cost of an action may lie from a linear one, (M,)."""
        return np.array([sum(one.point_error for one in each.relax) for each in self.constraints], dtype=np.float64)

    @property
    def fact_error(self) -> Array:
        """How far a declared safe cost may lie from a linear one, (M,): e + ε."""
        return np.add(self.baseline_cost_error, self.point_error)

    def windows(self, stages: int) -> tuple[float, ...]:
        """W of the blocks of outcomes that bounds rest on where costs drift, in decisions or seconds; () where they do
        not.

        They are fixed before the first outcome, around (σ√G/(ρL))^(2/3): n = W/G outcomes of one of G stages leave
        noise of order σ in the radius, and the drift adds ρL√(Σa²), of order ρLW√n (docs/theory.md section 13). With r
        decisions per second that is r^(-1/3) times as long: the grid reaches from r = 500 to one a day. Its members are
        powers of two, so that the beginning of every block is an exact number.
        """
        limits = zip(self.noise, self.drift, strict=True)
        paces = [sigma / (rho * self.feature_norm) for sigma, rho in limits if rho > 0.0]
        if not paces:
            return ()
        length = min(min(paces) * sqrt(stages), 1e15) ** (2.0 / 3.0)
        if self.drift_per == "second":
            return tuple(2.0 ** (ceil(log2(length)) + power) for power in (-3, -1, 1, 3, 5))
        return tuple(float(max(8, ceil(length)) * times) for times in (1, 2, 4, 8))

    @property
    def _allowed(self) -> Array:
        """How far a safe cost may be from linear, (M,): e + ε; of costs in [0, 1] B is for rounding errors alone."""
        allowed: Array = np.where(self.bounded, inf, self.fact_error)
        return allowed

    @property
    def is_exact(self) -> bool:
        """Whether a declared safe cost is an exact fact about γ*: no error bar, and costs that are exactly linear."""
        return not any(self.baseline_cost_error) and not self.point_error.any()

    def check(self, log: Any = None, **options: Any) -> "Report":
        """Test every assumption that can be tested: a printable Report. `log`: Transitions, a table or a file, if any.

        Options, as in `tether.check.problem_check.check_problem`: states, steps, level, pooled, limit_on, rng.
        """
        from tether.check.problem_check import check_problem

        return check_problem(self, log, **options)

    def look_up(self, state: State) -> KnownState:
        """D(s), a_0(s) and τ_h(s), validated: Assumptions 2 and 4 in the paper's words."""
        key = self.key_of(state)
        actions = self.actions(state)
        where = NamedState(state)
        if actions.endpoints.shape[1] != self.dimension:
            raise InputError(
                f"{where} has features of dimension {actions.endpoints.shape[1]}, but d = {self.dimension}."
            )
        check_norms(actions.endpoints, self.feature_norm, where)
        check_norms(actions.phi_0, self.feature_norm, where)
        final = self.final_reward_of(state)
        if not np.isnan(final):
            nothing = np.full((self.horizon, len(self.constraints)), np.nan)
            return KnownState(key, actions, nothing, final)
        costs = self._costs_of_baseline(state)
        if not actions.phi_0.any():
            check_origin(costs, self.fact_error, where)
        else:
            check_demand(actions.phi_0, costs, self._allowed, self.gamma_norm, where)
        if self.key_of(state) != key:  # the next question about it would be about another one
            raise InputError(
                f"{where} is not what it was before features, actions, final_reward and safe_cost were asked about "
                "it: one of them writes into what it is given. Let it work on a copy."
            )
        return KnownState(key, actions, costs)

    def listed_features(self) -> Array:
        """φ(s, a) of the single actions of all listed states where something is played, at most LISTED of them: (L, d).

        Each of them has an expected cost, so that of a bounded one is known to lie in [0, 1] before it was ever played.
        """
        found: list[Array] = []
        for state in self.states or ():
            actions = self.actions(state)
            if not actions.is_star and np.isnan(self.final_reward_of(state)):
                if sum(map(len, found)) + len(actions.endpoints) > LISTED:
                    break
                found.append(actions.endpoints)
        return np.concatenate(found) if found else np.zeros((0, self.dimension))

    def final_reward_of(self, state: State) -> float:
        """The reward of each step that remains after a trajectory has ended in this state; NaN where it goes on."""
        reward = None if self.final_reward is None else self.final_reward(state)
        if reward is None:
            return np.nan
        if not np.isfinite(reward):
            raise InputError(f"final_reward of state {state!r} must be finite, or None where it goes on, not {reward}.")
        return float(reward)

    def key_of(self, state: State) -> StateKey:
        """A hashable identity: the state itself, its content, a dataclass's fields, or `key(state)`."""
        return content_key(state) if self.own_key is None else hashable(self.own_key(state), f"key({state!r})")

    def kept(self, state: State) -> State:
        """The copy of a state that a lean backup stores: `state_of` its key if given, else a copy of the state."""
        if self.state_of is None:
            return own_copy(state)
        key = self.key_of(state)
        again = self.state_of(key)
        if self.key_of(again) != key:
            raise InputError(f"state_of({key!r}) is {again!r}, which has another key, {self.key_of(again)!r}.")
        return again

    def _costs_of_baseline(self, state: State) -> Array:
        """τ_h(s) for every step and constraint, (H, M); all NaN when unknown."""
        costs = np.full((self.horizon, len(self.constraints)), np.nan)
        if self.baseline_cost is not None:
            same = isinstance(self.baseline_cost, SameCosts)
            for step in range(self.horizon):
                costs[step:] = self.baseline_cost(step, state)
                if same:
                    break
            self._check_baseline(costs, NamedState(state))
            self._typed.look_at(costs, state)
        return costs

    @cached_property
    def _typed(self) -> TypedCosts:
        """What warns of a function's costs that look typed."""
        unsaid = [j for j, one in enumerate(self.constraints) if one.known.error is None and callable(one.known.cost)]
        return TypedCosts(unsaid)

    def _safe_cost_function(self) -> Callable[[int, State], Array] | None:
        """τ_h(s) as one function. What can be checked without asking for features is checked now."""
        declared = [one.known.cost for one in self.constraints]
        if declared[0] is None:
            return None
        if all(isinstance(cost, float) for cost in declared):
            same = np.array(declared, dtype=np.float64)
            self._check_baseline(np.tile(same, (self.horizon, 1)), "every state")
            return SameCosts(same)
        tables = [one.known.table(self.horizon, self.states) for one in self.constraints]
        count = len(self.states) if isinstance(self.states, range) else 0
        if any(table is not None for table in tables) and not any(map(callable, declared)):  # numbers beside tables
            shape = (self.horizon, count)
            tables = [np.full(shape, declared[j]) if table is None else table for j, table in enumerate(tables)]
        if any(map(callable, declared)) and not all(map(callable, declared)):
            settled = [one for one, cost in zip(self.constraints, declared, strict=True) if not callable(cost)]
            replace(self, constraints=settled, names=NO_NAMES)  # checks them at the door, without the functions
        unsaid = self._typed.unsaid
        if all(table is not None for table in tables):
            costs = np.stack([table for table in tables if table is not None], axis=2)  # (H, S, M)
            for state in range(count):
                if np.isnan(self.final_reward_of(state)):
                    self._check_baseline(costs[:, state], f"state {state}")
            return lambda step, state: costs[step, _index(state, count)]

        def cost_of(step: int, state: State) -> Array:
            row = np.empty(len(declared))
            for j, (cost, table) in enumerate(zip(declared, tables, strict=True)):
                if table is not None:
                    row[j] = table[step, _index(state, count)]
                else:
                    row[j] = cost_at(cost, step, state, is_exact=j in unsaid) if callable(cost) else cost
            return row

        return cost_of

    def _check_baseline(self, costs: Array, where: object) -> None:
        least = costs - np.array([one.known.declared_error for one in self.constraints])
        if self.realised is not None:
            check_realised(least, self.reserve, self, self.realised, where)
        strict = [one.known.if_tight == "error" for one in self.constraints]
        check_safe_cost(least, self.threshold, strict, where)

    @classmethod
    def from_rays(cls, *, phi_0: ArrayLike, endpoints: ArrayLike, **options: Any) -> Self:
        """A star-convex problem over states 0..S-1: phi_0 (S, d), endpoints (S, N, d)."""
        starts, ends = real_numbers(phi_0), real_numbers(endpoints)
        if starts.ndim != 2 or ends.ndim != 3 or starts.shape != (ends.shape[0], ends.shape[2]):
            raise InputError(
                f"from_rays needs phi_0 (S, d) and endpoints (S, N, d), but got {starts.shape}, {ends.shape}."
            )
        sets = [StarActions(start, end) for start, end in zip(starts, ends, strict=True)]
        return cls._from_sets(sets, **options)

    @classmethod
    def from_table(cls, *, features: ArrayLike, baseline_action: ArrayLike, **options: Any) -> Self:
        """Finitely many actions over states 0..S-1: features (S, N, d), baseline_action (S,)."""
        table = real_numbers(features)
        safe = np.asarray(baseline_action)
        if table.ndim != 3 or safe.shape != table.shape[:1] or safe.dtype.kind not in "iu":
            raise InputError(
                "from_table needs features (S, N, d) and integer baseline_action (S,), "
                f"but got {table.shape} and {safe.shape} of {safe.dtype}."
            )
        sets = [FiniteActions(rows, int(index)) for rows, index in zip(table, safe, strict=True)]
        return cls._from_sets(sets, **options)

    @classmethod
    def _from_sets(cls, sets: Sequence[ActionSet], **options: Any) -> Self:
        """Check all S states at once, then serve them by index."""
        if not sets:
            raise InputError("a problem needs at least one state: S = 0.")
        problem = cls(
            dimension=sets[0].endpoints.shape[1],
            actions=lambda state: sets[_index(state, len(sets))],
            states=range(len(sets)),
            **options,
        )
        starts = np.array([each.phi_0 for each in sets])
        check_norms(np.concatenate([starts, *(each.endpoints for each in sets)]), problem.feature_norm, "the problem")
        for state in np.flatnonzero(~starts.any(axis=1)):
            problem.look_up(int(state))
        return problem


@dataclass(frozen=True, slots=True, eq=False)
class SameCosts:
    """τ_h(s) where it is one number per constraint, whatever the step and the state: asked for once. (M,)"""

    costs: Array

    def __call__(self, step: int, state: State) -> Array:
        """The costs."""
        return self.costs


LISTED = 1024
"""Listed actions whose costs are used to lie in [0, 1]; those of later states are left out, which is always allowed."""

LIMITS = {
    "confidence": Limit(
        "a δ in (0, 0.5) as in Theorem 1",
        lambda delta: 0.0 < delta < 0.5,
        "It is the probability of failure, so 0.01 means 99% sure.",
    ),
    "feature_norm": Limit("positive and finite", lambda norm: 0.0 < norm < inf),
}
"""What the numbers of a Problem must satisfy, where "finite and >= 0" is not enough or not the whole story."""


def _index(state: State, count: int) -> int:
    """A state of a problem that is a table; Python would read -1 as the last one."""
    if not (isinstance(state, int | np.integer) and 0 <= state < count):
        raise InputError(f"state {state!r} is not one of this problem's states 0..{count - 1}.")
    return int(state)


def check_realised(costs: Array, reserve: Array, problem: Problem, limit: Realised, where: object) -> None:
    """A limit on measured costs binds a_0, too: τ_h(s) + q <= τ at every step; costs (H, M), q (M,)."""
    for step, constraint in np.argwhere(~(costs + reserve < np.asarray(problem.threshold))):
        raise AssumptionError(
            f"Realised() asks that measured costs stay under tau = {problem.threshold[constraint]:.6g} with "
            f"probability {1.0 - limit.exceedance:.6g}, also those of the safe action. At step {step}, {where}, it "
            f"costs {costs[step, constraint]:.6g}, and noise of sigma = {problem.noise[constraint]:.6g} may add "
            f"{reserve[constraint]:.6g}. Name a safer action, raise the threshold or exceedance, or say "
            "Realised(…, noise_scales=True) if the safe action has no noise."
        )


# A Problem by its name, module:name, for the command line and the service.


def load_problem(spec: str, folder: Path | None = None) -> Problem:
    """The Problem behind module:name: itself, something that has it as `.problem`, or a function returning either."""
    thing = load(spec, folder)
    problem: Problem = getattr(thing, "problem", thing)
    return problem


def load(spec: str, folder: Path | None = None) -> Any:
    """What module:name names, or returns if it is a function: a Problem, or something that has one as `.problem`."""
    thing = load_name(spec, folder)
    if callable(thing) and not isinstance(getattr(thing, "problem", thing), Problem):
        thing = _called(spec, thing)
    if not isinstance(getattr(thing, "problem", thing), Problem):
        raise InputError(
            f"{spec!r} is {type(thing).__name__}, not a Problem, nor a function that returns one. For an environment, "
            "name its tether.Bridge(env, …)."
        )
    return thing


def load_name(spec: str, folder: Path | None = None) -> Any:
    """What module:name names. Modules are looked for in `folder` first (the current one unless given), as `python -m`
    does."""
    module_name, _, path = spec.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        raise InputError(f"{spec!r} names a file: in its folder, name the module, {Path(module_name).stem}:{path}.")
    place = "" if folder is None else str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        thing: Any = importlib.import_module(module_name)
    except TetherError:
        raise
    except ModuleNotFoundError as error:
        found = error.name not in (None, module_name, module_name.partition(".")[0])
        way_out = "Install what it imports, here" if found else "Run this where the module can be found"
        raise InputError(f"cannot import {module_name!r}: {error}. {way_out}.") from error
    except Exception as error:
        raise InputError(f"importing {module_name!r} failed: {type(error).__name__}: {error}.") from error
    for name in path.split("."):
        if not hasattr(thing, name):
            raise InputError(f"{spec!r}: {module_name} has no {path!r}.")
        thing = getattr(thing, name)
    return thing


def _called(spec: str, function: Callable[..., Any]) -> Any:
    """What a function of the user's returns. One that needs arguments and one that fails get different messages."""
    try:
        with suppress(ValueError):  # some built-ins do not say what they take: the call will
            inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{spec!r} must be callable without arguments: {error}.") from error
    try:
        return function()
    except TetherError:
        raise
    except Exception as error:
        raise InputError(f"calling {spec} failed: {type(error).__name__}: {error}.") from error
