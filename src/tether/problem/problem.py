"""Problem: everything the learner knows, checked against the paper's assumptions at the door."""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf, log2, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError, TetherError
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions, check_norms, check_origin, real_numbers
from tether.problem.effects import HOW, check_demand, idle, settled_norm
from tether.problem.keys import content_key, hashable, own_copy
from tether.problem.names import NO_NAMES, Names
from tether.problem.options import Limit, check_options
from tether.records import Array, State, StateKey, settle

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """H, τ, δ, σ, the features of each state's actions, its safe action, and that action's cost.

    Attributes:
        horizon: H, steps per episode; H = 1 is the safe contextual bandit.
        threshold: τ, or one per constraint. Each *step* must keep each cost under its τ.
        noise: σ of the sub-Gaussian noise on observed costs (Assumption 3), or one per constraint; None, or left out,
            where `cost_kind` is "bounded".
        cost_kind: "gaussian", or "bounded" for costs in [0, 1] such as accidents, or one of them per constraint. A
            bounded cost needs no noise, and gamma_norm for rounding errors alone (‖γ*‖ <= 1000 B): its certificates are
            likelihood ratios (theory, 14).
        dimension: d.
        actions: state -> FiniteActions or StarActions, the set D(s) with the safe action in it.
        baseline_cost: τ_h(s): one number per constraint for all steps and states, a function (step, state) -> τ_h(s),
            or a table (H, S) or (H, S, M) where states=range(S). None if the costs of the safe actions are unknown
            (they must still be under τ). Kept as a function.
        baseline_cost_error: e, how far τ_h(s) may be off, one per constraint; 0 means that it is known
            exactly, to all digits. A cost that was typed, rounded or measured is not: declare by how much.
        misfit: ε, how far an expected cost may be from linear, |c(s, a) − ⟨γ*, φ(s, a)⟩| <= ε, one per constraint; 0
            means exactly linear, as in the paper. Safe costs are then facts up to e + ε, and nothing but a_0 can be
            certified where τ − τ_h(s) <= 2ε. What costs more than τ may be further off (guarantee.md).
        drift: ρ, how far γ* may move from one decision to the next, ‖γ*_{t+1} − γ*_t‖ <= ρ, one per constraint; 0 means
            that costs do not change with time, as in the paper. Bounds then rest on recent decisions only, and of safe
            costs only on that of the present state, as declared when it is asked for.
        drift_per: "decision", or "second": γ* then moves by at most ρ in each second, and every decision has a time
            stamp: `act(step, state, time=…)`, and in live use the advisor's clock.
        reward_noise: σ_r of the sub-Gaussian noise on observed rewards; 0 if they are exact. It steers exploration
            only.
        limit: what τ limits at each step. "expected": the mean cost of the action. "realised": the cost that is then
            measured, with probability at least 1 − `exceedance`; a_0 must keep to that, too.
        exceedance: η of limit="realised".
        noise_scales: with limit="realised", that the noise on a cost has the size σα where a ray is played at length α,
            so that a_0 has none.
        confidence: δ, the probability with which the cost event may fail over the whole run.
        gamma_norm: B >= ‖γ*_h‖, the paper's √d unless given: right for costs and features of about 1, wrong for °C.
        feature_effects: in place of gamma_norm, what one unit of each feature can change the cost by at most, (d,) or
            one list per constraint; B is then its Euclidean norm.
        feature_norm: the limit on ‖φ‖, 1 in the paper.
        states: the states, when they can be listed; S may be large, nothing is computed per state until visited.
        key: state -> hashable identity, for states that are neither hashable, arrays, dictionaries nor dataclasses.
        state_of: the way back, key -> state. Only needed to save an agent with a lean backup whose states are not
            numbers, strings, bytes, arrays, or tuples and dictionaries of them: for a dataclass,
            `lambda key: Position(*key[1:])`.
        gap_floor: a known lower bound on τ − τ_h(s), used when τ_h(s) itself is unknown.
        tight_baseline: "error" refuses a state whose safe cost is not under τ; "baseline" plays a_0 there.
        lost: what a cost that was never measured counts as. "at-random": nothing, which is right only if losing it did
            not depend on it; certificates say so, and the online tests look for the opposite. "worst-case": the least
            favourable value within `cost_range`, so that nothing is assumed.
        cost_range: (lowest, highest) reading of a cost, or one such pair per constraint: for lost="worst-case". Where
            all costs are "bounded" it is (0, 1).
        version: a name of yours for what the functions say. A log or a saved agent of another version is refused.
        final_reward: state -> None where the trajectory goes on; where it ends, the reward that each remaining step is
            worth (0 if the end is worth nothing). Nothing is played there, so Assumption 2 does not speak of it.
        names: what people call costs, actions, features and states, and the units, for messages and pages.
    """

    horizon: int
    threshold: tuple[float, ...]
    dimension: int
    actions: Callable[[State], ActionSet]
    baseline_cost: Callable[[int, State], float | Sequence[float]] | None
    noise: tuple[float, ...] = ()
    cost_kind: str | Sequence[str] = "gaussian"
    baseline_cost_error: tuple[float, ...] = (0.0,)
    misfit: tuple[float, ...] = (0.0,)
    drift: tuple[float, ...] = (0.0,)
    drift_per: Literal["decision", "second"] = "decision"
    reward_noise: float = 0.0
    limit: Literal["expected", "realised"] = "expected"
    exceedance: float = 0.05
    noise_scales: bool = False
    confidence: float = 0.01
    gamma_norm: tuple[float, ...] = ()
    feature_effects: Sequence[Any] | None = None
    feature_norm: float = 1.0
    states: Sequence[State] | None = None
    key: Callable[[State], Hashable] | None = None
    state_of: Callable[[Any], State] | None = None
    gap_floor: float = 0.0
    tight_baseline: Literal["error", "baseline"] = "error"
    final_reward: Callable[[State], float | None] | None = None
    lost: Literal["at-random", "worst-case"] = "at-random"
    cost_range: Sequence[Any] | None = None
    version: str = ""
    names: Names = NO_NAMES

    def __post_init__(self) -> None:
        if not isinstance(self.version, str):
            raise InputError(f"version must be a string, but is {self.version!r}.")
        for name in ("actions", "key", "state_of", "final_reward"):
            function = getattr(self, name)
            if not callable(function) and (function is not None or name == "actions"):
                raise InputError(f"{name} must be a function of a state (state_of: of a key), but is {function!r}.")
        self._settle_kinds()
        check_options(self, LIMITS)
        if not isinstance(self.noise_scales, bool):
            raise InputError(f"noise_scales must be True or False, but is {self.noise_scales!r}.")
        inexact = np.add(self.misfit, self.drift)[list(self.bounded)]
        if any(self.bounded) and (self.limit == "realised" or inexact.any()):
            raise InputError(
                'cost_kind="bounded" is certified by the likelihood of costs whose mean is exactly linear: it does not '
                'go with misfit or limit="realised", nor with drift. Use cost_kind="gaussian" with noise=0.5.'
            )
        if self.noise_scales and self.limit == "expected":
            raise InputError("noise_scales is used with limit='realised' only: a limit on the mean knows no noise.")
        guessed = self.feature_effects is None and not self.gamma_norm
        norms = settled_norm(self.feature_effects, self.gamma_norm, self.dimension, self.constraints)
        settle(self, gamma_norm=norms)
        if guessed and (why := idle(self.threshold, norms, self.feature_norm, self.bounded)):
            warnings.warn(f"B = √d is a guess, and {why}. Declare {HOW}, or gamma_norm.", stacklevel=3)
        if self.cost_range is not None:
            settle(self, cost_range=self._ranges(self.cost_range))
        elif self.lost == "worst-case" and all(self.bounded):
            settle(self, cost_range=((0.0, 1.0),) * self.constraints)
        elif self.lost == "worst-case":
            raise InputError(
                "lost='worst-case' counts a missing cost as the least favourable one there can be: say which readings "
                "there are, cost_range=(lowest, highest)."
            )
        if not isinstance(self.names, Names) or len(self.names.constraints) not in (0, self.constraints):
            raise InputError(
                f"names must be tether.Names(…), with a name for each of the {self.constraints} costs if any, but is "
                f"{self.names!r}."
            )
        if len(self.names.features) not in (0, self.dimension):
            raise InputError(
                f"names.features has {len(self.names.features)} names, but there are d = {self.dimension} features."
            )
        if self.baseline_cost is not None and not callable(self.baseline_cost):
            settle(self, baseline_cost=self._cost_function(self.baseline_cost))

    def _ranges(self, declared: Any) -> tuple[tuple[float, float], ...]:
        """(lowest, highest) of each constraint, from one pair for all or one each."""
        try:
            pairs = real_numbers(declared, "cost_range").reshape(-1, 2)
        except (TypeError, ValueError):
            pairs = np.zeros((0, 2))
        if len(pairs) == 1:
            pairs = np.repeat(pairs, self.constraints, axis=0)
        if len(pairs) != self.constraints or not (np.isfinite(pairs).all() and (pairs[:, 0] < pairs[:, 1]).all()):
            raise InputError(
                f"cost_range must be (lowest, highest) with finite numbers, or one such pair for each of the "
                f"{self.constraints} constraints, but is {declared!r}."
            )
        return tuple((float(low), float(high)) for low, high in pairs)

    @property
    def constraints(self) -> int:
        """M, the number of constraints."""
        return len(self.threshold)

    @property
    def quantile(self) -> Array:
        """q = σ√(2 log(1/η)) (M,), which noise exceeds with probability at most η; 0 where τ limits the mean."""
        if self.limit == "expected":
            return np.zeros(self.constraints)
        reach: Array = np.array(self.noise) * np.sqrt(2.0 * np.log(1.0 / self.exceedance))
        return reach

    @property
    def reserve(self) -> Array:
        """What every bound on a mean leaves for the noise, (M,): q, or 0 where the noise scales with the length."""
        return np.zeros(self.constraints) if self.noise_scales else self.quantile

    @property
    def mean_limit(self) -> Array:
        """The limit on mean costs that keeps to τ, (M,): τ − q, rounded down."""
        tau, reserve = np.array(self.threshold), self.reserve
        limit: Array = tau - reserve - np.where(reserve > 0.0, 2.0**-50 * (np.abs(tau) + reserve), 0.0)
        return limit

    @property
    def end_reserve(self) -> Array:
        """What a bound leaves for the noise at the end of a ray, in proportion to the length played, (M,)."""
        return self.quantile if self.noise_scales else np.zeros(self.constraints)

    @property
    def sample_error(self) -> Array:
        """How far the mean of an observed cost may lie from a linear one, (M,)."""
        return np.array(self.misfit)

    @property
    def point_error(self) -> Array:
        """How far the cost of what is played may lie over the linear one, (M,)."""
        return np.array(self.misfit)

    @property
    def fact_error(self) -> Array:
        """How far a declared safe cost may lie from a linear one, (M,): e + ε."""
        return np.add(self.baseline_cost_error, self.misfit)

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
        allowed: Array = np.where(self.bounded, inf, np.add(self.baseline_cost_error, self.misfit))
        return allowed

    @property
    def is_exact(self) -> bool:
        """Whether a declared safe cost is an exact fact about γ*: no error bar, and costs that are exactly linear."""
        return not any(self.baseline_cost_error) and not any(self.misfit)

    @property
    def bounded(self) -> tuple[bool, ...]:
        """Which costs lie in [0, 1] and are certified by likelihood ratios."""
        return tuple(kind == "bounded" for kind in self.cost_kind)

    def _settle_kinds(self) -> None:
        """One kind per constraint, and σ = 1/2, which holds for every cost in [0, 1], where a bounded one has none."""
        count = int(np.size(self.threshold))
        given_kinds: Any = [self.cost_kind] * count if isinstance(self.cost_kind, str) else self.cost_kind
        kinds = tuple(given_kinds) if np.iterable(given_kinds) else ()
        if len(kinds) != count or not all(isinstance(kind, str) and kind in COST_KINDS for kind in kinds):
            raise InputError(
                f"cost_kind must be one of {COST_KINDS}, or one per constraint ({count}), but is {self.cost_kind!r}."
            )
        settle(self, cost_kind=kinds)
        given: Sequence[float | None] = self.noise if np.ndim(self.noise) else (self.noise,)  # type: ignore[assignment]
        noise: list[float | None] = list(given) * (count if len(given) == 1 else 1) or [None] * count
        if len(noise) == count and None in noise:
            noise = [
                BOUNDED_NOISE if n is None and kind == "bounded" else n for n, kind in zip(noise, kinds, strict=True)
            ]
            if None in noise:
                raise AssumptionError(
                    f"noise must be > 0 and finite (Assumption 3), but constraint {noise.index(None)} has none: state "
                    'an upper bound σ on the noise of its costs, or, if they lie in [0, 1], set cost_kind="bounded".'
                )
            settle(self, noise=tuple(noise))

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
            nothing = np.full((self.horizon, self.constraints), np.nan)
            return KnownState(key, actions, nothing, final)
        costs = self._costs_of_baseline(state)
        if not actions.phi_0.any():
            check_origin(costs, np.add(self.baseline_cost_error, self.misfit), where)
        else:
            check_demand(actions.phi_0, costs, self._allowed, self.gamma_norm, where)
        if self.key_of(state) != key:  # the next question about it would be about another one
            raise InputError(
                f"{where} is not what it was before features, actions, final_reward and baseline_cost were asked about "
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
        return content_key(state) if self.key is None else hashable(self.key(state), f"key({state!r})")

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
        m = self.constraints
        costs = np.full((self.horizon, m), np.nan)
        if self.baseline_cost is not None:
            same = isinstance(self.baseline_cost, SameCosts)
            for step in range(self.horizon):
                declared = real_numbers(self.baseline_cost(step, state), "baseline_cost")
                if declared.size != m:
                    raise InputError(
                        f"the safe action of state {state!r} has {declared.size} costs at step {step}, but there are "
                        f"{m} thresholds."
                    )
                costs[step:] = declared.reshape(m)
                if same:
                    break
            self._check_baseline(costs, NamedState(state))
        return costs

    def _cost_function(self, declared: Any) -> Callable[[int, State], Array]:
        """τ_h(s) as a function, from one number per constraint or from a table (H, S) or (H, S, M) over states 0..S-1.

        What can be checked without asking for features is checked now.
        """
        try:
            costs = real_numbers(declared, "baseline_cost")
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(
                f"baseline_cost must be a function (step, state) -> cost, numbers, or None, but is {declared!r}."
            ) from error
        horizon, m = self.horizon, self.constraints
        if costs.ndim < 2:
            if costs.size != m:
                raise InputError(f"baseline_cost has {costs.size} entries, but there are {m} thresholds.")
            self._check_baseline(np.tile(costs.reshape(m), (horizon, 1)), "every state")
            return SameCosts(costs)
        wanted = (horizon, len(self.states) if isinstance(self.states, range) else 0)
        if costs.shape != (*wanted, m) and (m > 1 or costs.shape != wanted):
            raise InputError(
                f"baseline_cost must have shape (H, S) = {wanted}, or (H, S, M) with M = {m} constraints, "
                f"but has {costs.shape}. S is the length of states=range(S)."
            )
        rows = costs.reshape(*wanted, m)
        for state in range(wanted[1]):
            if np.isnan(self.final_reward_of(state)):
                self._check_baseline(rows[:, state], f"state {state}")
        return lambda step, state: costs[step, _index(state, wanted[1])]

    def _check_baseline(self, costs: Array, where: object) -> None:
        least = costs - np.array(self.baseline_cost_error)
        if self.limit == "realised":
            check_realised(least, self.reserve, self, where)
        check_baseline(least, self.threshold, self.tight_baseline == "error", where)

    @classmethod
    def from_rays(
        cls, *, phi_0: ArrayLike, endpoints: ArrayLike, baseline_cost: ArrayLike | None, **options: Any
    ) -> Self:
        """A star-convex problem over states 0..S-1: phi_0 (S, d), endpoints (S, N, d), baseline_cost (H, S)."""
        starts, ends = real_numbers(phi_0), real_numbers(endpoints)
        if starts.ndim != 2 or ends.ndim != 3 or starts.shape != (ends.shape[0], ends.shape[2]):
            raise InputError(
                f"from_rays needs phi_0 (S, d) and endpoints (S, N, d), but got {starts.shape}, {ends.shape}."
            )
        sets = [StarActions(start, end) for start, end in zip(starts, ends, strict=True)]
        return cls._from_sets(sets, baseline_cost=baseline_cost, **options)

    @classmethod
    def from_table(
        cls, *, features: ArrayLike, baseline_action: ArrayLike, baseline_cost: ArrayLike | None, **options: Any
    ) -> Self:
        """Finitely many actions over states 0..S-1: features (S, N, d), baseline_action (S,)."""
        table = real_numbers(features)
        safe = np.asarray(baseline_action)
        if table.ndim != 3 or safe.shape != table.shape[:1] or safe.dtype.kind not in "iu":
            raise InputError(
                "from_table needs features (S, N, d) and integer baseline_action (S,), "
                f"but got {table.shape} and {safe.shape} of {safe.dtype}."
            )
        sets = [FiniteActions(rows, int(index)) for rows, index in zip(table, safe, strict=True)]
        return cls._from_sets(sets, baseline_cost=baseline_cost, **options)

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


COST_KINDS = ("gaussian", "bounded")

LISTED = 1024
"""Listed actions whose costs are used to lie in [0, 1]; those of later states are left out, which is always allowed."""

BOUNDED_NOISE = 0.5
"""σ of any cost in [0, 1] around its mean (Hoeffding's lemma): what stands in for a σ that was not declared."""

LIMITS = {
    "threshold": Limit("a number τ", lambda tau: tau > -inf),
    "noise": Limit(
        "> 0 and finite (Assumption 3)",
        lambda sigma: 0.0 < sigma < inf,
        "If costs are observed without noise, give a small positive σ (it is an upper bound).",
        AssumptionError,
    ),
    "gamma_norm": Limit("> 0 and finite (Assumption 4)", lambda norm: 0.0 < norm < inf, error=AssumptionError),
    "baseline_cost_error": Limit(
        "finite and >= 0",
        lambda error: 0.0 <= error < inf,
        "It is how far the declared cost of a safe action may be off. Where that cost is not known at all, give "
        "baseline_cost=None.",
    ),
    "misfit": Limit(
        "finite and >= 0",
        lambda misfit: 0.0 <= misfit < inf,
        "It is how far an expected cost may be from linear in the features (Assumption 1).",
    ),
    "drift": Limit(
        "finite and >= 0",
        lambda drift: 0.0 <= drift < inf,
        "It is how far γ* may move from one decision to the next, or in a second (drift_per).",
    ),
    "confidence": Limit(
        "a δ in (0, 0.5) as in Theorem 1",
        lambda delta: 0.0 < delta < 0.5,
        "It is the probability of failure, so 0.01 means 99% sure.",
    ),
    "exceedance": Limit(
        "an η in (0, 1)",
        lambda eta: 0.0 < eta < 1.0,
        "It is how often a measured cost may exceed τ at most, so 0.05 means one step in twenty.",
    ),
    "feature_norm": Limit("positive and finite", lambda norm: 0.0 < norm < inf),
}
"""What the numbers of a Problem must satisfy, where "finite and >= 0" is not enough or not the whole story."""


def _index(state: State, count: int) -> int:
    """A state of a problem that is a table; Python would read -1 as the last one."""
    if not (isinstance(state, int | np.integer) and 0 <= state < count):
        raise InputError(f"state {state!r} is not one of this problem's states 0..{count - 1}.")
    return int(state)


def check_baseline(costs: Array, threshold: Sequence[float], strict: bool, where: object) -> None:
    """Assumption 2: τ_h(s) < τ at every step; costs (H, M)."""
    if not np.isfinite(costs).all():
        raise InputError(f"the cost of the safe action at {where} is {costs.tolist()}: it must be finite.")
    if not strict:
        return
    for step, constraint in np.argwhere(~(costs < np.asarray(threshold))):
        raise AssumptionError(
            f"Assumption 2 needs tau_h(s) < tau, but at step {step}, {where}, the safe action costs "
            f"{costs[step, constraint]:.6g} and tau is {threshold[constraint]:.6g}. Name a safer action, raise "
            "the threshold, or set tight_baseline='baseline' to play the safe action there without learning."
        )


def check_realised(costs: Array, reserve: Array, problem: Problem, where: object) -> None:
    """limit="realised" binds a_0, too: τ_h(s) + q <= τ at every step; costs (H, M), q (M,)."""
    for step, constraint in np.argwhere(~(costs + reserve < np.asarray(problem.threshold))):
        raise AssumptionError(
            f"limit='realised' asks that measured costs stay under tau = {problem.threshold[constraint]:.6g} with "
            f"probability {1.0 - problem.exceedance:.6g}, also those of the safe action. At step {step}, {where}, it "
            f"costs {costs[step, constraint]:.6g}, and noise of sigma = {problem.noise[constraint]:.6g} may add "
            f"{reserve[constraint]:.6g}. Name a safer action, raise the threshold or exceedance, or say "
            "noise_scales=True if the safe action has no noise."
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
