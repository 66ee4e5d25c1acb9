"""Problem: everything the learner is told, checked against the paper's assumptions at the door."""

import importlib
import inspect
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from tether.errors import AssumptionError, InputError, TetherError
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions, check_norms, check_safe_feature
from tether.problem.keys import content_key, hashable, own_copy
from tether.records import Array, State, StateKey

if TYPE_CHECKING:
    from tether.check.report import Report


@dataclass(frozen=True, slots=True, eq=False)
class KnownState:
    """What the learner is told about one state: D(s), a_0(s) in it, and τ_h(s) as (H, M), NaN if unknown.

    `final_reward` is NaN unless trajectories end here; then nothing is played, and no cost is declared.
    """

    key: StateKey
    actions: ActionSet
    baseline_cost: Array
    final_reward: float = np.nan


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
        noise: σ of the sub-Gaussian noise on observed costs (Assumption 3), or one per constraint.
        dimension: d.
        actions: state -> FiniteActions or StarActions, the set D(s) with the safe action in it.
        baseline_cost: (step, state) -> τ_h(s), one per constraint; None if the costs of the safe actions are
            unknown (they must still be under τ).
        baseline_cost_error: e, how far τ_h(s) may be off, one per constraint; 0 means that it is known
            exactly, to all digits. A cost that was measured or rounded is not: declare by how much.
        confidence: δ, the probability with which the cost event may fail over the whole run.
        gamma_norm: B >= ‖γ*_h‖, the paper's √d unless given.
        feature_norm: the limit on ‖φ‖, 1 in the paper.
        states: the states, when they can be listed; S may be large, nothing is computed per state until visited.
        key: state -> hashable identity, for states that are neither hashable, arrays nor dataclasses.
        state_of: the way back, key -> state. Only needed to save an agent with a lean backup whose states are not
            numbers, strings, bytes, arrays or tuples of them: for a dataclass, `lambda key: Position(*key[1:])`.
        gap_floor: a known lower bound on τ − τ_h(s), used when τ_h(s) itself is unknown.
        tight_baseline: "error" refuses a state whose safe cost is not under τ; "baseline" plays a_0 there.
        final_reward: state -> None where the trajectory goes on; where it ends, the reward that each remaining step is
            worth (0 if the end is worth nothing). Nothing is played there, so Assumption 2 does not speak of it.
    """

    horizon: int
    threshold: tuple[float, ...]
    noise: tuple[float, ...]
    dimension: int
    actions: Callable[[State], ActionSet]
    baseline_cost: Callable[[int, State], float | Sequence[float]] | None
    baseline_cost_error: tuple[float, ...] = (0.0,)
    confidence: float = 0.01
    gamma_norm: tuple[float, ...] = ()
    feature_norm: float = 1.0
    states: Sequence[State] | None = None
    key: Callable[[State], Hashable] | None = None
    state_of: Callable[[Any], State] | None = None
    gap_floor: float = 0.0
    tight_baseline: str = "error"
    final_reward: Callable[[State], float | None] | None = None

    def __post_init__(self) -> None:
        for name, size in (("horizon H", self.horizon), ("dimension d", self.dimension)):
            if not (isinstance(size, int | np.integer) and size >= 1):
                raise InputError(f"{name} must be an integer >= 1, but is {size!r}.")
        threshold = _per_constraint(self.threshold, None, "threshold")
        count = len(threshold)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "noise", _per_constraint(self.noise, count, "noise"))
        bound = self.gamma_norm if np.size(self.gamma_norm) else float(np.sqrt(self.dimension))
        object.__setattr__(self, "gamma_norm", _per_constraint(bound, count, "gamma_norm"))
        for name, value in (("noise", self.noise), ("gamma_norm", self.gamma_norm)):
            if not all(0.0 < entry < np.inf for entry in value):
                raise AssumptionError(
                    f"Assumptions 3 and 4 need {name} > 0 and finite, but it is {value}. "
                    "If costs are observed without noise, give a small positive σ (it is an upper bound)."
                )
        errors = _per_constraint(self.baseline_cost_error, count, "baseline_cost_error")
        object.__setattr__(self, "baseline_cost_error", errors)
        if not all(0.0 <= entry < np.inf for entry in errors):
            raise InputError(
                f"baseline_cost_error must be finite and >= 0, but is {errors}: it is how far the declared cost of a "
                "safe action may be off. Where that cost is not known at all, give baseline_cost=None."
            )
        if not all(np.isfinite(entry) or entry == np.inf for entry in threshold):
            raise InputError(f"threshold τ must be a number, but is {threshold}.")
        if not 0.0 < self.confidence < 0.5:
            raise InputError(
                f"confidence δ must lie in (0, 0.5) as in Theorem 1, but is {self.confidence}: "
                "it is the probability of failure, so 0.01 means 99% sure."
            )
        object.__setattr__(self, "confidence", float(self.confidence))
        if not 0.0 < self.feature_norm < np.inf:
            raise InputError(f"feature_norm must be positive and finite, but is {self.feature_norm}.")
        if not 0.0 <= self.gap_floor < np.inf:
            raise InputError(f"gap_floor must be finite and >= 0, but is {self.gap_floor}.")
        if self.tight_baseline not in ("error", "baseline"):
            raise InputError(f"tight_baseline is 'error' or 'baseline', not {self.tight_baseline!r}.")

    @property
    def constraints(self) -> int:
        """M, the number of constraints."""
        return len(self.threshold)

    def check(self, log: Any = None, **options: Any) -> "Report":
        """Test every assumption that can be tested: a printable Report. `log`: Transitions or arrays, if there are any.

        Options, as in `tether.check.problem_check.check_problem`: states, steps, level, pooled, randomised, rng.
        """
        from tether.check.problem_check import check_problem

        return check_problem(self, log, **options)

    def look_up(self, state: State) -> KnownState:
        """D(s), a_0(s) and τ_h(s), validated: Assumptions 2 and 4 in the paper's words."""
        actions = self.actions(state)
        where = NamedState(state)
        if actions.endpoints.shape[1] != self.dimension:
            raise InputError(
                f"{where} has features of dimension {actions.endpoints.shape[1]}, but d = {self.dimension}."
            )
        check_norms(actions.endpoints, self.feature_norm, where)
        check_norms(actions.phi_0, self.feature_norm, where)
        check_safe_feature(actions.phi_0, where)
        final = self.final_reward_of(state)
        if not np.isnan(final):
            nothing = np.full((self.horizon, self.constraints), np.nan)
            return KnownState(self.key_of(state), actions, nothing, final)
        return KnownState(self.key_of(state), actions, self._costs_of_baseline(state))

    def final_reward_of(self, state: State) -> float:
        """The reward of each step that remains after a trajectory has ended in this state; NaN where it goes on."""
        told = None if self.final_reward is None else self.final_reward(state)
        if told is None:
            return np.nan
        if not np.isfinite(told):
            raise InputError(f"final_reward of state {state!r} must be finite, or None where it goes on, not {told}.")
        return float(told)

    def key_of(self, state: State) -> StateKey:
        """A hashable identity: the state itself, an array's content, a dataclass's fields, or `key(state)`."""
        return content_key(state) if self.key is None else hashable(self.key(state), f"key({state!r})")

    def kept(self, state: State) -> State:
        """What a backup that keeps states keeps of this one: `state_of` its key if given, else a copy of its own."""
        if self.state_of is None:
            return own_copy(state)
        key = self.key_of(state)
        again = self.state_of(key)
        if self.key_of(again) != key:
            raise InputError(f"state_of({key!r}) is {again!r}, which has another key, {self.key_of(again)!r}.")
        return again

    def _costs_of_baseline(self, state: State) -> Array:
        """τ_h(s) for every step and constraint, (H, M); all NaN when unknown."""
        costs = np.full((self.horizon, self.constraints), np.nan)
        if self.baseline_cost is not None:
            for step in range(self.horizon):
                told = np.asarray(self.baseline_cost(step, state), dtype=np.float64)
                if told.size != self.constraints:
                    raise InputError(
                        f"the safe action of state {state!r} has {told.size} costs at step {step}, but there are "
                        f"{self.constraints} thresholds."
                    )
                costs[step] = told.reshape(self.constraints)
            least = costs - np.array(self.baseline_cost_error)
            check_baseline(least, self.threshold, self.tight_baseline == "error", NamedState(state))
        return costs

    @classmethod
    def from_rays(cls, *, phi_0: ArrayLike, endpoints: ArrayLike, baseline_cost: ArrayLike | None, **told: Any) -> Self:
        """A star-convex problem over states 0..S-1: phi_0 (S, d), endpoints (S, N, d), baseline_cost (H, S)."""
        starts = np.array(phi_0, dtype=np.float64)
        ends = np.array(endpoints, dtype=np.float64)
        if starts.ndim != 2 or ends.ndim != 3 or starts.shape != (ends.shape[0], ends.shape[2]):
            raise InputError(
                f"from_rays needs phi_0 (S, d) and endpoints (S, N, d), but got {starts.shape}, {ends.shape}."
            )
        sets = [StarActions(start, end) for start, end in zip(starts, ends, strict=True)]
        return cls._from_sets(sets, starts, ends, baseline_cost, told)

    @classmethod
    def from_table(
        cls, *, features: ArrayLike, baseline_action: ArrayLike, baseline_cost: ArrayLike | None, **told: Any
    ) -> Self:
        """Finitely many actions over states 0..S-1: features (S, N, d), baseline_action (S,)."""
        table = np.array(features, dtype=np.float64)
        safe = np.asarray(baseline_action)
        if table.ndim != 3 or safe.shape != table.shape[:1] or safe.dtype.kind not in "iu":
            raise InputError(
                "from_table needs features (S, N, d) and integer baseline_action (S,), "
                f"but got {table.shape} and {safe.shape} of {safe.dtype}."
            )
        sets = [FiniteActions(rows, int(index)) for rows, index in zip(table, safe, strict=True)]
        starts = table[np.arange(len(table)), safe]
        return cls._from_sets(sets, starts, table, baseline_cost, told)

    @classmethod
    def _from_sets(
        cls,
        sets: Sequence[ActionSet],
        starts: Array,
        ends: Array,
        baseline_cost: ArrayLike | None,
        told: dict[str, Any],
    ) -> Self:
        """Check all S states at once, then serve them by index."""
        costs = None if baseline_cost is None else np.array(baseline_cost, dtype=np.float64)
        if costs is not None:
            wanted = (told.get("horizon"), len(sets))
            count = np.size(told.get("threshold", 1))
            if costs.shape != (*wanted, count) and (count > 1 or costs.shape != wanted):
                raise InputError(
                    f"baseline_cost must have shape (H, S) = {wanted}, or (H, S, M) with M = {count} constraints, "
                    f"but has {costs.shape}."
                )

        def actions(state: State) -> ActionSet:
            if not (isinstance(state, int | np.integer) and 0 <= state < len(sets)):
                raise InputError(f"state {state!r} is not one of this problem's states 0..{len(sets) - 1}.")
            return sets[int(state)]

        problem = cls(
            dimension=ends.shape[2],
            actions=actions,
            baseline_cost=None if costs is None else lambda step, state: costs[step, state],
            states=range(len(sets)),
            **told,
        )
        check_norms(ends, problem.feature_norm, "the problem")
        check_norms(starts, problem.feature_norm, "the problem")
        check_safe_feature(starts, "some state")
        if costs is not None:
            rows = costs.reshape(problem.horizon, len(sets), problem.constraints)
            going_on = [state for state in range(len(sets)) if np.isnan(problem.final_reward_of(state))]
            for state in going_on:
                strict = problem.tight_baseline == "error"
                least = rows[:, state] - np.array(problem.baseline_cost_error)
                check_baseline(least, problem.threshold, strict, f"state {state}")
        return problem


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


def _per_constraint(value: Any, count: int | None, name: str) -> tuple[float, ...]:
    """A tuple with one float per constraint, from a number or a sequence of them."""
    try:
        numbers = tuple(float(entry) for entry in np.atleast_1d(np.asarray(value, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number, or one per constraint, but is {value!r}.") from error
    if count is not None and len(numbers) == 1:
        numbers *= count
    if not numbers or (count is not None and len(numbers) != count):
        raise InputError(f"{name} has {len(numbers)} entries, but there are {count} thresholds.")
    return numbers


# A Problem by its name, module:name, for the command line and the service.


def load_problem(spec: str, folder: Path | None = None) -> Problem:
    """The Problem behind module:name: itself, something that has it as `.problem`, or a function returning either.

    Modules are looked for in `folder` first (the current one unless given), as `python -m` does.
    """
    module_name, _, path = spec.partition(":")
    place = "" if folder is None else str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        thing: Any = importlib.import_module(module_name)
    except TetherError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {module_name!r}: {error}. Run this where the module can be found.") from error
    except Exception as error:
        raise InputError(f"importing {module_name!r} failed: {type(error).__name__}: {error}.") from error
    for name in path.split("."):
        if not hasattr(thing, name):
            raise InputError(f"{spec!r}: {module_name} has no {path!r}. Name a Problem, or a function returning one.")
        thing = getattr(thing, name)
    if callable(thing) and not isinstance(thing, Problem):
        thing = _called(spec, thing)
    thing = getattr(thing, "problem", thing)
    if not isinstance(thing, Problem):
        raise InputError(f"{spec!r} is {type(thing).__name__}, not a Problem, nor a function that returns one.")
    return thing


def _called(spec: str, function: Callable[..., Any]) -> Any:
    """What a function of the user's returns; its own errors are told from a call that it does not allow."""
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
