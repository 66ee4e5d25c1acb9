"""The engine behind every agent: sums, known states, a plan, decisions with their evidence, and saving.

It does not own the loop: plan once per episode, then act and observe once per step. The same calls serve a simulation,
a test and a live system. What differs between algorithms is their `Rules`, and a few methods that they override.
"""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, isnan, log, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tether.agents.demands import Learned, contradiction
from tether.agents.drift import Blocks
from tether.agents.likelihood import Contradiction, Likelihoods, Proofs
from tether.agents.outcome_order import CostOutcome, OutcomeOrder
from tether.check.monitor import Monitor
from tether.errors import AssumptionError, InputError, StateFileError, TetherError
from tether.kernels.bound import bound_at
from tether.kernels.compiled import replaced
from tether.kernels.model import (
    ALARM,
    BEST,
    ENDED,
    KNOWN,
    MEASURED,
    PLAIN,
    STATE,
    TOLD,
    TUNED,
    VISITED,
    Plan,
    Rules,
    add_state,
    grown,
    new_plan,
    new_scratch,
    new_tables,
    with_room,
)
from tether.kernels.plan import Visited, choose_alone, make_plan, observe, plan_lean
from tether.kernels.radius import paper_value_term, value_radius_at
from tether.kernels.ridge import add_bias, new_costs, new_values, observe_cost, remember, remember_roughly
from tether.options import Limit, check_options, is_masked
from tether.problem.action_sets import ActionSet, check_norms, feature_of
from tether.problem.keys import has_exact_key
from tether.problem.problem import KnownState, Problem
from tether.records import (
    Array,
    Bounded,
    CostBound,
    Decision,
    Drift,
    Mixture,
    Origin,
    Proof,
    Radius,
    Reason,
    State,
    StateKey,
    Transition,
)

REASONS: tuple[Reason, ...] = get_args(Reason)

Arrays = dict[str, NDArray[np.generic]]
Fact = tuple[Array, Array]
"""The safe feature f (d,) of a state and the known cost τ_s (M,) of its safe action."""

WARN_AT = (100, 10_000)
"""So many outcomes that wait for one decision are worth a warning: somebody may have forgotten it."""

TOO_LATE = (
    "this outcome names no decision, and other actions than the safe one have been played already. Old data count as a "
    "whole or not at all: half of a table that is sorted by what it says is biased, and bounds rested on the half. "
    "Hand the whole table to a new agent before its first decision. If it is the outcome of a decision, say of which: "
    "decision.outcome(…), or Transition(…, decision_id=decision.id)."
)
"""Why old data are refused once an action may have rested on a part of them."""

LATCHED = "correct safe_cost, noise or gamma_norm and start anew, or release_alarms(why) once it is understood"

A_LENGTH = Limit("a finite number > 0", lambda length: 0.0 < length < inf, "Leave it out to take feature_norm.")

SAME_COST = 1e-9
"""Safe costs of two steps that differ by less, as a part of the larger of them and |τ|, are the same."""

GROWTH = 0.25
"""What "on-growth" waits for: so many more outcomes, as a part of those that the last plan had.

A plan over n next states costs O(n), so that all plans together cost at most (1 + GROWTH)/GROWTH = 5 times the last."""


@runtime_checkable
class Agent(Protocol):
    """plan once per episode, then act and observe once per step."""

    def plan(self) -> None:
        """Prepare the policy of the next episode from everything observed so far."""

    def act(self, step: int, state: State) -> Decision:
        """Choose at `state`, with the evidence for the choice. Never changes what was learned."""

    def observe(self, transition: Transition) -> None:
        """Learn from one outcome. A refused outcome (an error) leaves the agent as it was."""

    def save(self, path: Path) -> None:
        """Write the whole state, so that a restored agent continues bit for bit."""


# Settings


def check_problem(problem: object) -> None:
    """An environment, say, is refused."""
    if not isinstance(problem, Problem):
        raise InputError(
            f"an agent learns on a tether.Problem, but was given {problem!r:.80}: for an environment, call "
            "tether.learn, or take the problem of its tether.Bridge(env, …)."
        )


@dataclass(frozen=True, kw_only=True)
class LeastSquaresConfig:
    """How values are regressed and planned: what the configurations of all agents share. See SlucbConfig."""

    value_radius: float | Literal["remaining", "unseen", "theorem", "mixture"] = "remaining"
    value_ridge: float | Literal["cost"] = 1.0
    backup: Literal["auto", "tables", "lean"] = "auto"
    replan: Literal["auto", "every-episode", "on-doubling", "on-growth"] = "auto"
    pooled: bool = False
    episodes: int | None = None
    c_beta: float = 1.0
    feature_size: float | None = None

    def __post_init__(self) -> None:
        check_options(self, {"feature_size": A_LENGTH})

    def settled(self, problem: Problem, *, mixes: bool) -> Self:
        """The configuration with "auto" replaced by what it stands for here.

        Tables where the problem lists its states (they come back) or where mixtures are planned, else lean. A plan in
        every episode with tables, which follow new data cheaply, and on growth without.
        """
        check_problem(problem)
        if mixes and self.backup == "lean":
            raise InputError(
                "backup='lean' plans single actions, but RSLUCB-QVI plans mixtures, which need tables: "
                "use backup='tables', or SLUCB-QVI."
            )
        backup, replan = self.backup, self.replan
        if backup == "auto":
            backup = "tables" if mixes or problem.states is not None else "lean"
        if replan == "auto":
            replan = "on-growth" if backup == "lean" else "every-episode"
        return replace(self, backup=backup, replan=replan)

    def stages(self, problem: Problem) -> int:
        """G, the number of regressions: one per step, or one for all."""
        return 1 if self.pooled else problem.horizon

    def ridge(self, problem: Problem, cost_ridge: float) -> float:
        """λ of the value regression, given that of the cost regression."""
        return cost_ridge if isinstance(self.value_ridge, str) else self.absolute_ridge(problem, self.value_ridge)

    def size(self, problem: Problem) -> float:
        """The size of features that ridges are relative to: that of the longest one, unless another was declared."""
        return problem.feature_norm if self.feature_size is None else self.feature_size

    def absolute_ridge(self, problem: Problem, declared: float) -> float:
        """λ, from a ridge in units of size²: the unit of features then does not matter (theory, section 4)."""
        size = self.size(problem)
        return declared * (size * size)


def value_origin(config: LeastSquaresConfig) -> Origin:
    """Where β_v comes from: a theorem, a rule that nobody tuned, or somebody's number."""
    if config.value_radius in ("theorem", "mixture"):
        return "theorem"
    return "default" if isinstance(config.value_radius, str) else "tuned"


def value_radius(problem: Problem, config: LeastSquaresConfig, ridge: float) -> Array:
    """β_v at each step (H,): H − h + 1 + 2σ_r, 2H√λ/L + 2σ_r, a number as it is, or Theorem 1's second term.

    L is the configuration's `size`, and c_β is the caller's. "mixture" follows the data
    (`kernels.radius.value_radius_at`), so that what is returned for it is not used.
    """
    horizon, wanted = problem.horizon, config.value_radius
    if wanted == "mixture" and horizon > 1:
        raise InputError(
            f"value_radius='mixture' is a theorem for bandits, H = 1, but H = {horizon}: there the regression targets "
            "r + V(s') contain estimates of the learner's own. Use value_radius='remaining'."
        )
    if wanted == "unseen":
        return np.full(horizon, 2.0 * horizon * np.sqrt(ridge) / config.size(problem) + 2.0 * problem.reward_noise)
    if wanted in ("remaining", "mixture"):
        return np.arange(horizon, 0, -1, dtype=np.float64) + 2.0 * problem.reward_noise
    if not isinstance(wanted, str):
        return np.full(horizon, float(wanted))
    if not config.episodes:
        raise InputError("value_radius='theorem' uses log T with T = KH: set episodes=K in the configuration.")
    steps = config.episodes * horizon
    return np.full(horizon, paper_value_term(problem.dimension, horizon, steps, problem.confidence, config.c_beta))


def plain_rules(problem: Problem, config: LeastSquaresConfig, cost_ridge: float = 1.0, **changes: Any) -> Rules:
    """The rules of an agent that learns nothing about costs (γ* = 0 counts as told), but for what `changes` says."""
    m, d = len(problem.constraints), problem.dimension
    plain = {
        "horizon": problem.horizon,
        "explorer": PLAIN,
        "conditioning": TOLD,
        "memory": STATE,
        "radius_kind": TUNED,
        "reduces_radius": False,
        "steers": np.array(problem.bounded, dtype=np.int64),
        "threshold": problem.mean_limit,
        "noise": np.array(problem.noise),
        "gamma_norm": np.array(problem.gamma_norm),
        "feature_norm": problem.feature_norm,
        "cost_error": np.zeros(m),
        "point_error": np.zeros(m),
        "sample_error": np.zeros(m),
        "events": 1.0,
        "tuned_radius": 0.0,
        "value_radius": value_radius(problem, config, config.ridge(problem, cost_ridge)),
        "value_events": 1.0 / problem.confidence if config.value_radius == "mixture" else 0.0,
        "reward_noise": problem.reward_noise,
        "theta_norm": float(np.sqrt(d)) / problem.feature_norm,
        "quantile": problem.end_reserve,
        "kappa": np.nan,
        "gap_floor": 0.0,
        "warms_up": False,
        "penalty": 0.0,
        "known_gamma": np.zeros((problem.horizon, m, d)),
    }
    return Rules(**{**plain, **changes})


# Outcomes that cannot be counted are refused before anything changes


def as_numbers(value: Any) -> Array | None:
    """Real numbers as a float array, None if they are not that. What is masked was not measured: it is no number."""
    if type(value) is float:  # of all that may come, by far the most frequent
        return np.array(value)
    if is_masked(value):
        return None
    try:
        numbers = np.asarray(value)
        return numbers.astype(np.float64) if numbers.dtype.kind in "iufb" else None
    except (TypeError, ValueError):
        return None


def check_step(step: Any, horizon: int) -> None:
    """h as 0..H-1."""
    if not isinstance(step, int | np.integer) or not 0 <= step < horizon:
        raise InputError(f"step must be an integer in 0..{horizon - 1} (H = {horizon}), but is {step!r}.")


def checked_reward(reward: Any) -> float:
    """A finite real number."""
    number = as_numbers(reward)
    if number is None or number.shape != () or not isfinite(float(number)):
        raise InputError(f"reward must be a finite number, but is {reward!r}.")
    return float(number)


def checked_feature(feature: Any, problem: Problem) -> Array:
    """φ of the applied action: d finite numbers of norm at most `feature_norm` (Assumption 4)."""
    x = as_numbers(feature)
    if x is None or x.shape != (problem.dimension,) or not np.isfinite(x).all():
        raise InputError(f"feature must be {problem.dimension} finite numbers, but is {feature!r}.")
    check_norms(x, problem.feature_norm, "this transition")
    return x


def checked_costs(cost: Any, problem: Problem, *, needed: bool) -> Array | None:
    """z, one per constraint, or None if it was not measured."""
    if cost is None:
        if needed:
            raise InputError("the penalised objective r − λ'c needs a cost with every outcome, but got None.")
        return None
    m, numbers = len(problem.constraints), as_numbers(cost)
    if not all(one.in_unit_interval for one in problem.constraints) and np.asarray(cost).dtype.kind == "b":
        raise InputError(
            f"cost must be {m} finite number(s), but is {cost!r}: True and False are costs for "
            "noise=Bounded(). If this is a measurement, pass float(cost)."
        )
    if numbers is None or numbers.shape not in ((m,), ()) or numbers.size != m or not np.isfinite(numbers).all():
        raise InputError(
            f"cost must be {m} finite number(s), but is {cost!r}. "
            "If it was not measured, pass None: it counts as Lost(…) says."
        )
    numbers = numbers.reshape(m)
    for j, one in enumerate(problem.constraints):
        if one.in_unit_interval and not 0.0 <= numbers[j] <= 1.0:
            raise InputError(
                f"cost {j} is {numbers[j]:.6g}, but Bounded() promises costs in [0, 1]: its certificates hold for no "
                "others. Scale cost and threshold to [0, 1], or declare the noise σ of the cost."
            )
    for j, (lowest, highest) in enumerate(problem.cost_range):
        if not lowest <= numbers[j] <= highest:
            raise InputError(
                f"cost {j} is {numbers[j]}, outside the declared cost_range of {lowest} to {highest}, by which "
                "lost costs are counted. Declare a wider one."
            )
    return numbers


def check_decision(t: Transition, order: OutcomeOrder) -> None:
    """Refuse an outcome whose decision this agent did not make, or made at another step, or has the outcome of."""
    if t.decision_id is not None:
        made = order.expected(t.decision_id).step
        if made != t.step:
            raise InputError(f"decision {t.decision_id} was made at step {made}, but its outcome says step {t.step}.")


# The engine


class LeastSquaresAgent:
    """Optimistic least-squares value iteration with a certified safe set.

    Attributes:
        problem, config, rules: what it knows, how it was set up, and the same for the kernels.
        costs, values: the sums of both regressions, for each of `stages` stages.
        blocks: where costs drift, the regressions over recent decisions, of which `costs` shows one; None elsewhere.
        tables, known, slots: candidates of the known states and their quadratic forms; what was said of each; and the
            slot of each by its key.
        visited: next states of a lean backup; None where next states have slots in the tables.
        current: the plan of the present episode, made when `plan_version` outcomes were known (-1: never).
        planned_growth: log det A of costs and of values, and the facts, at the last plan: (3, G).
        data_version: number of outcomes learned from.
        has_acted: whether anything but the safe action was played, so that old data come too late.
        order: decisions whose outcome is not known yet, and outcomes whose costs wait for those before them.
        lost: outcomes of each stage that have taken effect without a cost, (G,).
        watch: tests the assumptions online, and is saved with the agent. Set it before the first outcome.
        counted: is called after each cost was added, before the next one is; not saved.
        origins: what evidence says of its cost radius and of its value radius.
    """

    kind: ClassVar[str]
    config_type: ClassVar[type[LeastSquaresConfig]] = LeastSquaresConfig
    bounds: Bounded = "cost"
    mixes: ClassVar[bool] = False
    plans_itself: ClassVar[bool] = False
    """Whether plans are made by a `make_plan` of its own, not by the kernels of the learner."""
    buffers: ClassVar[tuple[str, ...]] = ("scratch", "lone", "last_question", "time", "warned")
    """Attributes that the future does not depend on: they are overwritten before they are read, or only save time."""

    watch: Monitor | None = None
    counted: Callable[[CostOutcome], None] | None = None

    def __init__(
        self,
        problem: Problem,
        config: LeastSquaresConfig,
        rules: Rules,
        *,
        cost_ridge: float = 1.0,
        origins: tuple[Origin, Origin],
    ) -> None:
        value_ridge = config.ridge(problem, cost_ridge)
        for name, ridge in (("cost_ridge", cost_ridge), ("value_ridge", value_ridge)):
            if not 0.0 < ridge < np.inf:
                raise InputError(f"{name} λ must be positive and finite, but is {ridge}: A = λI must be invertible.")
        d, m, horizon = problem.dimension, len(problem.constraints), problem.horizon
        self.problem, self.config, self.rules, self.origins = problem, config, rules, origins
        if problem.realised is not None:
            self.bounds = "realised cost"
        self.stages = stages = config.stages(problem)
        self.tables = new_tables(d, horizon, stages, m, self.mixes)
        rows, slots = self.tables.features.shape[1], self.tables.phi_0.shape[1]
        self.costs = new_costs(stages, d, m, cost_ridge)
        self.values = new_values(stages, d, value_ridge, slots)
        self.current = new_plan(horizon, slots, m, d, rows if self.mixes else 0)
        self.scratch = new_scratch(d, m, rows, 1)
        self.lone = new_tables(d, 1, 1, m), new_plan(1, 1, m, d), new_scratch(d, m, 0, 0)  # for one state off the plan
        self.visited = Visited(stages, horizon, m, d) if config.backup == "lean" else None
        learns = any(problem.bounded) and rules.conditioning != TOLD
        self.likelihoods = Likelihoods(problem, stages, rules.events, rules.cost_error) if learns else None
        self._steer()
        self._costs_are_unknown = rules.conditioning == MEASURED and not bool(np.isfinite(rules.cost_error).all())
        self._shown = tuple(self._shown_of(j) for j in range(m))
        drifts = any(problem.drift) and rules.conditioning != TOLD
        self.blocks = Blocks(problem, stages, cost_ridge) if drifts else None
        self._show_blocks()
        self.known: list[KnownState] = []
        self.slots: dict[StateKey, int] = {}
        self.order = OutcomeOrder(stages)
        self.lost = np.zeros(stages, dtype=np.int64)
        self.decisions = 0
        self.has_acted = False
        self.data_version = 0
        self.plan_version = -1
        self.planned_growth = np.full((3, stages), -np.inf)
        self.last_question: tuple[int, Array, Array] | None = None  # id of the last decision, and its state's f and τ_s
        self.time: float | None = None  # of the decision at hand, if that was said
        self.warned = False  # of an alarm, which is said once
        self.half_way = False  # something was begun and not finished, by a Ctrl-C, say
        self.released: list[str] = []  # why standing alarms were released, each time

    def check_whole(self) -> None:
        """Refuse to go on with sums that an exception has left half-way: a cost may count without what it is off by."""
        if self.half_way:
            raise InputError(
                "an outcome or a decision was interrupted half-way, so that what bounds rest on is not complete: go on "
                "with a saved state (restore), or with a new agent."
            )

    def relabel(self, cost: Origin, value: Origin) -> None:
        """Change the origins of both radii that evidence shows, for callers that scale the radii of this agent."""
        self.origins = (cost, value)
        self._shown = tuple(self._shown_of(j) for j in range(len(self.problem.constraints)))

    def _shown_of(self, j: int) -> tuple[float, float, tuple[str, ...], float, Proof, Origin]:
        """What every certificate says of constraint j: τ, what its bound leaves for the noise, what it rests on, ρ,
        its proof and β's origin."""
        problem = self.problem
        limit = float(self.rules.threshold[j])  # infinite: no constraint
        proof: Proof = "likelihood" if self.likelihoods is not None and problem.bounded[j] else "radius"
        origin = self.origins[0] if proof == "radius" else "theorem"
        tau = problem.threshold[j] if isfinite(limit) else limit
        return tau, float(problem.reserve[j]), problem.sentences[j], problem.drift[j], proof, origin

    def stage_of(self, step: int) -> int:
        """Which regression a step belongs to."""
        return int(step) if self.stages > 1 else 0

    # Known states

    @property
    def known_states(self) -> Iterable[StateKey]:
        """Keys of the states that every plan covers, in the order of their slots; of a lean backup's next states."""
        return self.slots.keys() if self.visited is None else self.visited.index.keys()

    def slot_of(self, state: State) -> int:
        """Where the plan keeps a known state."""
        return self.slots[self.problem.key_of(state)]

    def register(self, states: Iterable[State]) -> None:
        """Include these states in every plan from now on, visited or not: for exact regret and for figures."""
        if self.visited is not None:
            raise InputError(
                "a lean backup plans only states that it has visited, so none can be registered: use backup='tables'."
            )
        for state in states:
            self._slot(state)

    def look_up(self, state: State, known: KnownState | None = None) -> KnownState:
        """What this agent knows about a state before it has learned anything there; `known` is what the problem says
        about it, if it was asked already."""
        known = known or self.problem.look_up(state)
        self._check_pooled(known)
        return self.adjusted(known)

    def _recall(self, state: State) -> tuple[KnownState, int | None]:
        """What the problem said of a state when it was first seen, with its slot if it has one; else what it says now.

        A key of the user's own may be coarser than the state, and so may the equality of a class of theirs: then the
        state at hand counts, and not the one that has brought the key first, whose plan is not for it.
        """
        key = self.problem.key_of(state)
        slot = self.slots.get(key)
        if self.blocks is not None:  # a safe cost that drifts is a fact when it is declared: ask for it now
            return self.look_up(state), slot
        if self.problem.own_key is not None or not has_exact_key(state):
            known = self.look_up(state)
            return known, slot if slot is not None and known.is_same(self.known[slot]) else None
        if slot is not None:
            return self.known[slot], slot
        recalled = None if self.visited is None else self.visited.known(key)
        return recalled or self.look_up(state), None

    def _check_pooled(self, known: KnownState) -> None:
        """One regression for all steps needs one safe cost for all steps: another would contradict it."""
        if not self.config.pooled or self.rules.conditioning == TOLD:
            return
        declared = np.array([one.known.declared_error for one in self.problem.constraints])
        spread = np.ptp(known.baseline_cost, axis=0) - 2.0 * declared  # (M,)
        scale = np.maximum(np.abs(self.problem.threshold), np.abs(known.baseline_cost).max(axis=0))
        if (spread > SAME_COST * scale).any():
            raise AssumptionError(
                f"pooled=True says that costs do not depend on the step, but the declared safe cost of state "
                f"{known.key!r} does: {known.baseline_cost.tolist()} by step. Use pooled=False, or correct "
                "safe_cost."
            )

    def adjusted(self, known: KnownState) -> KnownState:
        """What the problem says about a state, with the safe costs that this agent uses instead, if any."""
        return self.measured(known) if self.rules.warms_up else known

    def measured(self, known: KnownState) -> KnownState:
        """The same with what a warm-up has measured of a_0(s), for agents that warm up."""
        return known

    def _slot(self, state: State) -> int:
        """The slot of a state, made on first sight."""
        key = self.problem.key_of(state)
        slot = self.slots.get(key)
        if slot is None:
            known = self.look_up(state)
            self.tables = add_state(self.tables, known)
            self._make_room()
            slot = self.slots[key] = len(self.known)
            self.known.append(known)
        return slot

    def _next_slot(self, t: Transition, stage: int, feature: Array) -> int:
        """The slot of the next state; -1 if nothing follows, or where a lean backup keeps it (and φ with it)."""
        state, last = t.next_state, t.step == self.problem.horizon - 1
        if state is None or (last and self.stages > 1):
            return -1
        if self.visited is None:
            return self._slot(state)
        if self.problem.horizon > 1:  # V_2 of a bandit is 0: there is nothing to keep
            key = self.problem.key_of(state)
            self.visited.add(stage, key, feature, lambda: (kept := self.problem.kept(state), self.look_up(kept)))
        return -1

    def _make_room(self) -> None:
        """Let the sums, the plan and the scratch buffers follow the tables' capacity."""
        slots, rows = self.tables.phi_0.shape[1], self.tables.features.shape[1]
        widest = int(np.diff(self.tables.start[: int(self.tables.slots[0]) + 1]).max(initial=1))
        if rows > self.scratch.projected.shape[1] or widest > self.scratch.work.shape[1]:
            self.scratch = new_scratch(self.problem.dimension, len(self.problem.constraints), rows, widest)
        if self.mixes and rows > self.current.mixture.shape[1]:
            self.current = replaced(self.current, mixture=grown(self.current.mixture, 1, rows, 0.0))
        if slots > self.values.transition_moment.shape[1]:
            self.values = replaced(self.values, transition_moment=grown(self.values.transition_moment, 1, slots, 0.0))
            wide = ("values", "score", "row", "length", "bound", "reason")
            larger = {name: grown(getattr(self.current, name), 1, slots, 0) for name in wide}
            self.current = replaced(self.current, **larger)

    # Plans

    @property
    def watches_outcomes(self) -> bool:
        """Whether single outcomes matter beyond the sums, so that episodes cannot run in compiled blocks."""
        waits = self.config.replan == "on-growth"
        return self.plans_itself or self.watch is not None or waits or self.decides_afresh

    @property
    def decides_afresh(self) -> bool:
        """Whether a plan's own bounds do not justify a choice: it is certified when it is made, from the newest data.

        Bounded costs are certified after the plan; where costs drift, a plan's bounds hold for the moment it was made.
        """
        return self.likelihoods is not None or self.blocks is not None

    @property
    def replans_rarely(self) -> bool:
        """Whether a plan waits until some det(A_h) has doubled."""
        return self.config.replan != "every-episode"

    @property
    def plans_are_due(self) -> bool:
        """Whether `plan` would do something: always until tripped, or (rarely) once some det(A_h) has doubled.

        "on-growth" also waits for a quarter more outcomes than the last plan had.
        """
        if self.tripped_by:
            return False  # only a_0 is played, plan or not
        if not self.replans_rarely or self.plan_version < 0:
            return True
        if self.config.replan == "on-growth" and self.data_version < (1.0 + GROWTH) * self.plan_version:
            return False
        return bool((self._growth() - self.planned_growth > log(2.0)).any())

    @property
    def alarms(self) -> list[tuple[int, StateKey]]:
        """(step, state key) wherever the declared safe cost contradicts the data, as of the current plan."""
        keys = list(self.known_states)
        if self.visited is not None:
            return [(int(h), keys[s]) for h, s in self.visited.alarms]
        found = np.argwhere(self.current.reason[:, : len(keys)] == REASONS.index("alarm"))
        return [(int(h), keys[s]) for h, s in found]

    @property
    def standing_alarms(self) -> list[tuple[int, int]]:
        """(stage, constraint) whose declared safe costs have contradicted the data. There only a_0 is played, whatever
        later data say, until `release_alarms`: docs/theory.md section 20."""
        return [(int(stage), int(j)) for stage, j in np.argwhere(self.costs.facts.alarm)]

    def keep_alarms(self, step: int, radii: Iterable[float]) -> bool:
        """Latch the contradictions that a decision at this step has met, whose radii (M,) are then NaN; returns whether
        any is new. One with a tuned radius proves nothing, and does not stay."""
        alarms, before = self.costs.facts.alarm, self.standing_alarms
        for j, radius in enumerate(radii):
            if isnan(radius) and (self.rules.radius_kind != TUNED or self.rules.steers[j]):
                alarms[self.stage_of(step), j] = 1
        return self.standing_alarms != before

    def release_alarms(self, why: str) -> None:
        """Let every standing alarm go, once what was wrong is understood. It comes back at once if the data still
        contradict what is declared; `why` is kept in `released`."""
        self.check_whole()
        self.released.append(str(why))
        self.costs.facts.alarm[:] = 0
        self.plan_version = -1  # the present plan plays nothing but a_0 there

    def plan(self) -> None:
        """The first loop of Algorithm 1: safe sets, scores and values, backwards in h, for every known state."""
        if self.plans_are_due:
            self.make_plan()
            self.plan_version = self.data_version
            self.planned_growth[:] = self._growth()

    def make_plan(self) -> None:
        """A plan from everything observed so far, due or not."""
        if self.visited is not None:
            self.current = plan_lean(self.problem, self.costs, self.values, self.rules, self.visited, self.current)
        else:
            make_plan(self.costs, self.values, self.rules, self.tables, self.current, self.scratch)

    def _growth(self) -> Array:
        return np.array([self.costs.log_det, self.values.log_det, self.costs.facts.count.astype(np.float64)])

    # Decisions

    @property
    def tripped_by(self) -> str:
        """The alarm of `watch` in words; while there is one, only a_0 is played (reason "tripped"). "" if none."""
        return "" if self.watch is None or self.watch.alarm is None else str(self.watch.alarm)

    def act(self, step: int, state: State, *, time: float | None = None) -> Decision:
        """Line 9 of Algorithm 1, with the bound that justifies the action. It is to be played: its outcome is expected.

        Costs of later outcomes take effect after it; `peek` only asks. `time`, in seconds from any beginning, is needed
        where drift is per second.
        """
        with self.at(time):
            decision, known = self._answer(step, state)
        self.note_decision(decision, known)
        if decision.reason == "alarm" and not self.warned:
            self.warned = True
            place = f"at step {step}, {self.problem.names.place(state)}"
            warnings.warn(f"{place}, only the safe action is played: {decision.detail}.", stacklevel=2)
        return decision

    def peek(self, step: int, state: State, *, time: float | None = None) -> Decision:
        """What `act` would answer; no outcome is expected afterwards."""
        with self.at(time):
            return self._answer(step, state)[0]

    @contextmanager
    def at(self, time: float | None) -> Iterator[None]:
        """What is decided within is decided at this time, and its bounds hold then."""
        seconds = as_numbers(time) if time is not None else None
        if time is not None and (seconds is None or seconds.shape != () or not isfinite(float(seconds))):
            raise InputError(f"time must be a finite number of seconds, but is {time!r}.")
        if self.blocks is not None and self.blocks.per_second and seconds is None:
            raise InputError(
                "drift is per second, so a decision needs its time in seconds: act(step, state, time=…). Any origin "
                "will do, as long as it stays the same."
            )
        self.time = None if seconds is None else float(seconds)
        try:
            self._age_blocks()
            yield
        finally:
            self.time = None
            self._age_blocks()

    def _age_blocks(self) -> None:
        """Set the age of all outcomes to that at the current decision, or at the last one."""
        if self.blocks is not None and self.blocks.per_second:
            self.blocks.look_at(self.time)
            self.blocks.age(self.costs)

    def peek_feature(self, step: int, state: State) -> Array:
        """φ (d,) of what `peek` would answer, on average: for those who ask in every state, as exact regret does."""
        slots = self._chosen([state])
        if slots is not None and self.likelihoods is not None:
            ray: Array = self._cut_rays(self.likelihoods, step, slots)[0]
            return ray
        if self.mixes:
            return self.propose(step, state, coin=0.0).mean_feature  # no draw is taken from the agent's stream
        return self.peek(step, state).mean_feature

    def peek_features(self, states: Sequence[State], first: State) -> Array:
        """`peek_feature` of every step and state, (H, S, d), in an episode that begins in `first`; zero at step 0 of
        other states."""
        features, slots = np.zeros((self.problem.horizon, len(states), self.problem.dimension)), self._chosen(states)
        for step in range(self.problem.horizon):
            asked = range(len(states)) if step else [at for at, state in enumerate(states) if state == first]
            if slots is not None and self.likelihoods is not None:
                features[step, asked] = self._cut_rays(self.likelihoods, step, [slots[at] for at in asked])
            else:
                features[step, asked] = [self.peek_feature(step, states[at]) for at in asked]
        return features

    def _chosen(self, states: Iterable[State]) -> list[int] | None:
        """The slots of these states if an up-to-date plan has chosen a ray in each, which only bounded costs may still
        cut; else None."""
        if self.likelihoods is None or self.mixes or self.tripped_by or self.rules.warms_up:
            return None
        if self.plan_version != self.data_version:
            return None
        slots = [self.slots.get(self.problem.key_of(state), -1) for state in states]
        planned = self.current.planned[0]
        return slots if all(0 <= slot < planned and self.known[slot].actions.is_star for slot in slots) else None

    def _cut_rays(self, likelihoods: Likelihoods, step: int, slots: list[int]) -> Array:
        """φ (n, d) of the rays that the plan has chosen, cut to what is proven of bounded costs.

        Answers are kept as long as nothing new is proven, and those of a step also together, as plans often agree.
        """
        kept, rows = likelihoods.played(self.stage_of(step)), self.current.row[step].tolist()
        asked = [(step, slot, rows[slot]) for slot in slots]
        before, together = kept.get(step, (None, np.zeros((0, 0))))
        if before == asked:
            rays: Array = together
            return rays
        if len(likelihoods.bounded) < len(self.problem.constraints):  # the plan's own length counts, too
            kept = {}
        for place in asked:
            if place not in kept:
                kept[place] = self._cut_ray(likelihoods, *place)
        rays = np.array([kept[place] for place in asked])
        kept[step] = asked, rays
        return rays

    def _cut_ray(self, likelihoods: Likelihoods, step: int, slot: int, row: int) -> Array:
        """φ (d,) of one of them."""
        known, plan, made = self.known[slot], self.lone[1], self.current
        plan.row[0, 0], plan.length[0, 0] = row, made.length[step, slot]
        plan.reason[0, 0], plan.bound[0, 0] = made.reason[step, slot], made.bound[step, slot]
        self._certify(likelihoods, plan, step, known)
        return feature_of(known.actions, known.actions.action(int(plan.row[0, 0]), float(plan.length[0, 0])))

    def _answer(self, step: int, state: State) -> tuple[Decision, KnownState]:
        check_step(step, self.problem.horizon)
        self.check_whole()
        known, slot = self._recall(state)
        if self.plan_version < 0:
            self.plan()
        planned = slot is not None and slot < self.current.planned[0] and not self.decides_afresh
        if slot is not None and planned and not self.tripped_by:
            return self.decide(step, state, known, self.current, slot), known
        return self.propose(step, state, known), known

    def propose(self, step: int, state: State, known: KnownState | None = None, coin: float | None = None) -> Decision:
        """The decision from the newest cost data and the last plan's values; nothing is noted.

        What it answers depends on the outcomes observed and the plan made so far, and on nothing else, so that replicas
        that replay one log agree. `known` is what the problem says about the state, if it was looked up already. Where
        actions are drawn, `coin` in [0, 1) picks one; without it the agent draws from its own stream.
        """
        check_step(step, self.problem.horizon)
        self.check_whole()
        known = self.look_up(state, known)
        plan = self._tripped(step, known) if self.tripped_by else self.choose_alone(step, known)
        proofs: Proofs = {}
        if self.likelihoods is not None and not self.tripped_by:
            proofs = self._certify(self.likelihoods, plan, step, known)
        return self.decide(step, state, known, plan, coin=coin, proofs=proofs)

    def note_decision(self, decision: Decision, known: KnownState) -> None:
        """Expect the outcome of a decision that was made in a state of which so much was known."""
        safe = decision.is_baseline
        self.keep_alarms(decision.step, (shown.radius.value for shown in decision.evidence))
        declared = known.baseline_cost[decision.step]
        self.expect(decision.id, int(decision.step), decision.feature, decision.time, safe, declared)
        self.last_question = (decision.id, known.actions.phi_0, declared.copy())
        self.decisions += 1
        self.has_acted |= not safe if decision.mixture is None else decision.mixture.baseline < 1.0

    def expect(
        self,
        id: Any,
        step: int,
        feature: ArrayLike,
        since: float | None = None,
        is_baseline: bool = False,
        declared: Array | None = None,
    ) -> None:
        """A decision with this feature (d,) is played, made at the time `since` if that is known.

        `declared` is what a_0 was declared to cost (M,), NaN where that is unknown: it matters if it is a_0.
        """
        self.check_whole()
        self.half_way = True
        at = 0.0 if self.blocks is None else self.blocks.tick(since)
        told = None if declared is None or not (is_baseline and np.isfinite(declared).all()) else np.array(declared)
        self.order.expect(id, step, np.array(feature), since, is_baseline, at, told)  # kernels want arrays of their own
        self._show_blocks()
        self.half_way = False

    def _show_blocks(self) -> None:
        """Let bounds rest on the best block of outcomes, as old as it is now."""
        if self.blocks is not None:
            self.blocks.show(self.costs, self.rules)

    def choose_alone(self, step: int, known: KnownState) -> Plan:
        """A plan of one row and one slot for a state off the plan: the newest cost data and the last plan's weights.

        It is overwritten by the next call.
        """
        tables, plan, scratch = self.lone
        tables.slots[0] = tables.built[0] = 0
        tables = add_state(tables, known, known.baseline_cost[step : step + 1])
        room = tables.features.shape[1]
        if room > scratch.projected.shape[1]:
            scratch = new_scratch(self.problem.dimension, len(self.problem.constraints), room, room)
        self.lone = tables, plan, scratch
        plan.weights[0], plan.made[0] = self.current.weights[step], self.current.made[0]
        choose_alone(self.costs, self.values, self.rules, tables, plan, scratch, step, self.stage_of(step))
        return plan

    def _steer(self) -> None:
        """Let plans take a bounded cost for one with the σ of its outcomes so far: it ranks, it proves nothing."""
        if self.likelihoods is not None:
            for j in self.likelihoods.bounded:
                self.rules.noise[j] = self.likelihoods.spread(j)

    def _certify(self, likelihoods: Likelihoods, plan: Plan, step: int, known: KnownState) -> Proofs:
        """Cut what a plan of one entry would play to what is proven of bounded costs (docs/theory.md section 14)."""
        reason, stage, costs = int(plan.reason[0, 0]), self.stage_of(step), known.baseline_cost[step]
        if reason == ENDED:
            return {}
        try:
            if self.mixes and reason == BEST:
                return likelihoods.certify_mixture(plan, stage, known, costs)
            if plan.row[0, 0] >= 0:
                if known.actions.is_star:
                    return likelihoods.certify_ray(plan, stage, known, costs)
                return likelihoods.certify_row(plan, stage, known, costs, self._ranked(known))
            likelihoods.give_up(plan, stage, known, costs, reason)
        except Contradiction as found:
            likelihoods.give_up(plan, stage, known, costs, ALARM)
            plan.radius[0, found.constraint] = nan
        return {}

    def _ranked(self, known: KnownState) -> list[tuple[int, Array]]:
        """Rows of a finite set that the last `choose_alone` scored above a_0, best first, with its bounds."""
        tables, _, scratch = self.lone
        lengths, scores = scratch.work[0], scratch.work[3]
        rows = [i for i in range(len(known.actions.endpoints)) if lengths[i] > 0.0]
        better = [i for i in rows if scores[i] > scores[known.actions.baseline]]
        constraints = range(len(self.problem.constraints))
        return [
            (i, np.array([bound_at(self.rules, tables, scratch, 0, 0, i, j, 1.0) for j in constraints]))
            for i in sorted(better, key=lambda i: -float(scores[i]))
        ]

    def _tripped(self, step: int, known: KnownState) -> Plan:
        """a_0(s) and the most that it was declared to cost: a test of the assumptions has failed, and nothing that
        rests on them counts."""
        plan = new_plan(1, 1, len(self.problem.constraints), self.problem.dimension)
        plan.reason[0, 0] = REASONS.index("tripped") if np.isnan(known.final_reward) else ENDED
        costs, error, tau = known.baseline_cost[step], self.rules.cost_error, self.rules.threshold
        plan.bound[0, 0] = np.nan if self._costs_are_unknown else np.minimum(costs + error, np.maximum(costs, tau))
        plan.radius[0] = self.current.radius[step]
        plan.value_radius[0] = value_radius_at(self.values, self.rules, step, self.stage_of(step))
        return plan

    def played(
        self, actions: ActionSet, plan: Plan, at: int, slot: int, coin: float | None
    ) -> tuple[int, float, Mixture | None]:
        """What an entry of a plan stands for: a row of D(s) (-1 is a_0), its length, and what it was drawn from."""
        return int(plan.row[at, slot]), float(plan.length[at, slot]), None

    def decide(
        self,
        step: int,
        state: State,
        known: KnownState,
        plan: Plan,
        slot: int = 0,
        coin: float | None = None,
        proofs: Proofs = MappingProxyType({}),
    ) -> Decision:
        """An entry of a plan as a Decision with the evidence for each constraint: the only place that makes one.

        `plan` is the current one, or one of a single row for this state and the newest data. `proofs` are the
        multipliers of its bounds on costs in [0, 1].
        """
        planned = plan is self.current
        at = step if planned else 0
        reason = REASONS[plan.reason[at, slot]]
        if reason == "ended":
            raise InputError(f"the trajectory has ended in state {state!r}: there is nothing to decide.")
        actions = known.actions
        row, length, mixture = self.played(actions, plan, at, slot, coin)
        feature = actions.phi_0
        if row >= 0:
            end: Array = actions.endpoints[row]
            feature = end if length == 1.0 else feature + length * (end - feature)
        problem, stage = self.problem, self.stage_of(step)
        lost = int(self.lost[stage])
        # whatever a warm-up has measured is a gap, not a known cost
        costs = [nan] * len(problem.constraints) if self._costs_are_unknown else known.baseline_cost[step].tolist()
        facts = self._facts(plan, at, stage)
        by = [proofs.get(j) for j in range(len(problem.constraints))]
        listed = [0 if self.likelihoods is None else self.likelihoods.rests_on(each) for each in by]
        found = plan.bound[at, slot].tolist(), plan.radius[at].tolist()
        limits = zip(*found, costs, facts, listed, by, self._shown, strict=True)
        span = None if self.blocks is None else self.blocks.span(stage, self.time)
        return Decision(
            id=self.decisions,
            step=step,
            state=state,
            action=actions.action(row, length),
            feature=feature,
            is_baseline=row < 0,
            reason=reason,
            evidence=tuple(
                CostBound(
                    bound=bound + reserve,
                    threshold=tau,
                    radius=Radius(radius, origin),
                    baseline_cost=cost,
                    bounds=self.bounds,
                    facts=remembered,
                    drift=None if span is None else Drift(drift, *span, problem.drift_per),
                    assumptions=rests_on,
                    lost=lost,
                    lost_as=problem.lost,
                    kind=proof,
                    listed=boxes,
                    multipliers=each,
                )
                for bound, radius, cost, remembered, boxes, each, (
                    tau,
                    reserve,
                    rests_on,
                    drift,
                    proof,
                    origin,
                ) in limits
            ),
            value_radius=Radius(float(plan.value_radius[at]), self.origins[1]),
            score=float(plan.score[at, slot]),
            data_version=self.plan_version if planned else self.data_version,
            mixture=mixture,
            detail=self._why(reason, step, known),
            time=self.time,
        )

    def _why(self, reason: Reason, step: int, known: KnownState) -> str:
        """What a decision's reason leaves open, in words."""
        if reason == "tripped":
            return self.tripped_by
        if reason != "alarm":
            return ""
        said = contradiction(Learned(self.rules, self.costs, self.values), step, known)
        said = said or "the declared cost of a_0 contradicts the data"
        return f"{said}. This stays: {LATCHED}" if self.costs.facts.alarm[self.stage_of(step)].any() else said

    def _facts(self, plan: Plan, at: int, stage: int) -> list[int]:
        """How many remembered facts the bound of each constraint rests on."""
        facts = [int(plan.facts[at])] * len(self.problem.constraints)
        if self.likelihoods is not None:
            for j in self.likelihoods.bounded:
                facts[j] = int(self.likelihoods.trials.fact_count[self.likelihoods.cell(stage, j)])
        return facts

    # Outcomes

    @property
    def remembers(self) -> bool:
        """Whether the safe cost of a state is remembered once an outcome was seen there."""
        return self.rules.memory == VISITED and not self._costs_are_unknown

    @property
    def open_decisions(self) -> dict[Any, int]:
        """Id and step of every decision whose outcome is not known yet."""
        return self.order.open

    def observe(self, transition: Transition) -> None:
        """Add one outcome to the sums. Everything is checked before anything changes.

        Its cost takes effect when all decisions of its stage before it have their outcome; `lose` says that one will
        never come. An outcome without a decision_id is old data: it counts at once, and is refused once anything but
        the safe action was played.
        """
        check_step(transition.step, self.problem.horizon)
        self.learn(transition, self._fact_of(transition))
        for blocked in self.order.blocked:
            if blocked.waiting in WARN_AT:
                warnings.warn(
                    f"{blocked.waiting} outcomes wait for that of decision {blocked.id}, so nothing is learned from "
                    "their costs: observe() it; lose() it if it will never come; withdraw() it if it was not played. "
                    "To ask without playing, use peek().",
                    stacklevel=2,
                )

    def learn(self, transition: Transition, fact: Fact | None) -> list[CostOutcome]:
        """`observe`, with the fact to remember, if any: for those who know what was declared when it was decided.

        Returns the outcomes whose costs take effect now, in their order. Rewards and next states, which no bound rests
        on, are learned at once.
        """
        t = transition
        check_step(t.step, self.problem.horizon)
        self.check_whole()
        check_decision(t, self.order)
        reward, costs = checked_reward(t.reward), checked_costs(t.cost, self.problem, needed=self.rules.penalty != 0.0)
        feature, at = checked_feature(t.feature, self.problem), self._time_of(t)
        key = None if self.watch is None else self.problem.key_of(t.state)
        if t.decision_id is None and self.has_acted:
            raise InputError(TOO_LATE)
        stage = self.stage_of(t.step)
        next_slot = self._next_slot(t, stage, feature)
        numbers = np.full(1 + len(self.problem.constraints), np.nan)
        numbers[0] = reward
        if costs is not None and self.rules.penalty != 0.0:
            numbers[1:] = costs
        self.half_way = True
        observe(self.costs, self.values, self.rules, stage, feature, numbers, next_slot, self.scratch.vectors)
        # a fact holds whenever it comes, but guesses of bounded costs rest on it, and must not know what came before it
        in_turn, now = (None, fact) if self.likelihoods is None else (fact, None)
        outcome = CostOutcome(t.step, feature, costs, reward, key, at=at, fact=in_turn)
        due = self._take_effect([outcome] if t.decision_id is None else self.order.settle(t.decision_id, outcome))
        if now is not None:
            self.remember(stage, *now)
        self.half_way = False
        return due

    def _time_of(self, t: Transition) -> float | None:
        """When an outcome's action was decided; None if it has no decision and drift needs no time."""
        if t.decision_id is not None:
            return self.order.expected(t.decision_id).at
        if self.blocks is None or not self.blocks.per_second:
            return None
        time = as_numbers(t.time) if t.time is not None else None
        if time is None or time.shape != () or not isfinite(float(time)):
            raise InputError(
                f"drift is per second, so an outcome without a decision needs its time, but that is {t.time!r}: "
                "Transition(…, time=…)."
            )
        return float(time)

    def lose(self, decision_id: Any) -> list[CostOutcome]:
        """The outcome of this decision will never come: it counts as `Problem.lost` says. Returns what takes effect."""
        return self._settled(decision_id, self.order.lose)

    def withdraw(self, decision_id: Any) -> list[CostOutcome]:
        """Forget a decision that was never played, so that nothing waits for it. Returns what takes effect."""
        return self._settled(decision_id, self.order.withdraw)

    def _settled(self, decision_id: Any, settle: Callable[[Any], list[CostOutcome]]) -> list[CostOutcome]:
        """No outcome of this decision will come; returns what takes effect."""
        self.check_whole()
        self.order.expected(decision_id)
        self.half_way = True
        due = self._take_effect(settle(decision_id))
        self.half_way = False
        return due

    def _take_effect(self, outcomes: list[CostOutcome]) -> list[CostOutcome]:
        """Add the costs of outcomes whose turn has come."""
        for outcome in outcomes:
            self.learn_cost(outcome)
        return outcomes

    def learn_cost(self, outcome: CostOutcome) -> None:
        """Add one cost, which was checked, to the regression: all decisions before it have had their turn.

        In the worst case a lost cost counts as the middle of its range, which is off by at most half the range: what
        that may do to the estimate is added to the radius (docs/theory.md section 18).
        """
        stage, costs, off = self.stage_of(outcome.step), outcome.cost, self.rules.sample_error
        self._learn_trials(stage, outcome)
        if costs is None:
            self.lost[stage] += 1
            if self.problem.lost == "worst-case":
                lowest, highest = np.array(self.problem.cost_range).T
                costs, off = (lowest + highest) / 2.0, (highest - lowest) / 2.0 + off
        at = outcome.at
        if self.blocks is not None:
            at = self.blocks.tick() if at is None else at
            if costs is not None:
                self.blocks.add(stage, at, (outcome.feature, costs, off), self.scratch.vectors)
            self._show_blocks()
        elif costs is not None and self.rules.conditioning != TOLD:
            observe_cost(self.costs, stage, outcome.feature, costs, self.scratch.vectors)
            add_bias(self.costs, stage, off)
        if self.watch is not None:
            o = outcome
            told = o.declared
            self.watch.observe(o.step, o.feature, o.cost, o.reward, o.key, o.is_baseline, at, told)
        self.data_version += 1
        if self.counted is not None:
            self.counted(outcome)
        if outcome.fact is not None:
            self.remember(stage, *outcome.fact)

    def _learn_trials(self, stage: int, outcome: CostOutcome) -> None:
        """Count the outcome of bounded costs; one that was lost counts at its worst, or not at all."""
        if self.likelihoods is None:
            return
        if outcome.cost is not None:
            if self.likelihoods.observe(stage, outcome.feature, outcome.cost):
                self._steer()
        elif self.problem.lost == "worst-case":
            self.likelihoods.lose(stage, outcome.feature)

    def remember(self, stage: int, phi_0: Array, baseline_cost: Array) -> None:
        """Remember the safe cost (M,) of one state: γ* satisfies ⟨γ*, f⟩ = τ_s, up to the declared error."""
        f, cost = np.array(phi_0, dtype=np.float64), np.array(baseline_cost, dtype=np.float64)
        if self.rules.conditioning == KNOWN:
            remember(self.costs, stage, f, cost, self.rules.gamma_norm, self.scratch.vectors)
        else:
            remember_roughly(self.costs, stage, f, cost)
        if self.likelihoods is not None:
            self.likelihoods.remember(stage, f, cost)

    def _fact_of(self, t: Transition) -> Fact | None:
        """The fact about the state that an outcome belongs to, if it is to be remembered."""
        if not self.remembers:
            return None
        if self.last_question is not None and self.last_question[0] == t.decision_id:
            _, phi_0, costs = self.last_question  # the state as it was then: simulators reuse their arrays
        else:
            known, _ = self._recall(t.state)
            phi_0, costs = known.actions.phi_0, known.baseline_cost[t.step]
        return (phi_0, costs) if np.isfinite(costs).all() else None

    def note_block(self, episodes: int, last_plan: int) -> None:
        """Keep count after a compiled block of whole episodes changed the memory and the plan in place.

        `last_plan` is the episode of the block in which the current plan was made, -1 if it is older.
        """
        if last_plan >= 0:
            self.plan_version = self.data_version + last_plan * self.problem.horizon
        self.note_steps(episodes * self.problem.horizon)

    def note_steps(self, steps: int) -> None:
        """Keep count after so many steps were played and observed by compiled code."""
        self.decisions += steps
        self.data_version += steps
        self.has_acted = True

    # Saving: everything that the future depends on, bit for bit

    def arrays(self) -> Arrays:
        """Every array that the future depends on, but for a lean backup's, by its dotted name."""
        groups: dict[str, Any] = {
            "tables": self.tables,
            "plan": self.current,
            "costs": self.costs,
            "values": self.values,
        }
        if self.likelihoods is not None:
            groups["trials"] = self.likelihoods.trials
        named = {name: array for part, group in groups.items() for name, array in arrays_in(group, part)}
        if self.blocks is not None:
            named |= {f"blocks.{name}": array for name, array in self.blocks.arrays().items()}
        return {**named, "planned_growth": self.planned_growth, "lost": self.lost}

    def save(self, path: Path | io.BytesIO) -> None:
        """Write everything that the future depends on, in one file (or buffer) without pickle; atomic on a crash."""
        from tether.agents import state_file  # loads pydantic, which takes longer than all the rest

        self.check_whole()
        manifest = {
            "kind": self.kind,
            "config": asdict(self.config),
            "problem": state_file.fingerprint(self.problem),
            "keys": [state_file.encode_key(key) for key in self.slots],
            "order": self.order.to_json(),
            "decisions": self.decisions,
            "has_acted": self.has_acted,
            "outcomes": self.data_version,
            "plan_version": self.plan_version,
            "released": self.released,
            **self.extras(),
        }
        arrays = self.arrays()
        if self.watch is not None:
            manifest["watch"] = self.watch.to_json()
        if self.visited is not None:
            manifest["visited"] = state_file.visited_keys(self.visited, self.problem)
            arrays |= state_file.visited_arrays(self.visited, self.look_up)
        state_file.write(path if isinstance(path, io.BytesIO) else Path(path), manifest, arrays)

    @classmethod
    def restore(cls, path: Path | io.BytesIO, problem: Problem, **options: Any) -> Self:
        """The agent as it was saved, for the same problem; a bad file gives a StateFileError and nothing else."""
        from tether.agents import state_file

        manifest, arrays = state_file.read(path if isinstance(path, io.BytesIO) else Path(path), cls.kind)
        state_file.check_problem(path, manifest.problem, problem)
        try:
            agent = cls.from_saved(problem, manifest.config, **options)
            keys = [state_file.decode_key(key) for key in manifest.keys]
            agent.slots = {key: slot for slot, key in enumerate(keys)}
            agent._take_arrays(arrays)
            extras = manifest.model_extra or {}
            agent.released = [str(why) for why in extras["released"]]
            agent.take_extras(extras)
            if agent.visited is not None:
                state_file.take_visited(agent.visited, problem, extras["visited"], arrays, agent.look_up)
            if "watch" in extras:
                agent.watch = Monitor.from_json(problem, extras["watch"])
            agent.order.take_json(manifest.order, problem.dimension, len(problem.constraints))
            here = [(agent.known[slot], agent.look_up(state)) for slot, state in state_file.listed(problem, keys)]
        except (TetherError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise StateFileError(f"{path} does not fit this agent: {error}.") from error
        for saved, known in here:
            moves = agent.blocks is not None  # a safe cost that drifts is a fact when it is declared, and no later
            if not saved.is_same(replace(known, baseline_cost=saved.baseline_cost) if moves else known):
                raise StateFileError(f"{path} was saved with other features or safe costs for state {saved.key!r}.")
        agent.decisions, agent.data_version = manifest.decisions, manifest.outcomes
        agent.plan_version = manifest.plan_version
        agent.has_acted = bool(extras.get("has_acted", manifest.decisions > 0))  # older files do not say
        return agent

    def _take_arrays(self, arrays: Arrays) -> None:
        """The reverse of `arrays`, on a fresh agent that knows its slots; what no agent could have saved is refused."""
        from tether.agents import state_file

        slots, rows = arrays["tables.phi_0"].shape[1], arrays["tables.features"].shape[1]
        self.tables = with_room(self.tables, slots, rows)
        widest = arrays["tables.joint"].shape[2] if "tables.joint" in arrays else 0
        if widest > self.tables.joint.shape[2] > 0:
            self.tables = replaced(self.tables, joint=grown(self.tables.joint, 2, widest, 0.0))
        self._make_room()
        state_file.check_arrays(self.arrays(), arrays, len(self.slots))
        self.tables, self.current = filled(self.tables, "tables", arrays), filled(self.current, "plan", arrays)
        self.costs, self.values = filled(self.costs, "costs", arrays), filled(self.values, "values", arrays)
        self.planned_growth = np.asarray(arrays["planned_growth"], dtype=np.float64)
        self.lost = np.asarray(arrays["lost"], dtype=np.int64)
        if self.blocks is not None:
            self.blocks.take({name: arrays[f"blocks.{name}"] for name in self.blocks.arrays()})
        if self.likelihoods is not None:
            self.likelihoods.trials = filled(self.likelihoods.trials, "trials", arrays)
            self._steer()
        self._make_room()
        self.known = [state_file.known_state(self.tables, key, slot) for key, slot in self.slots.items()]

    @classmethod
    def from_saved(cls, problem: Problem, config: dict[str, Any], **options: Any) -> Self:
        """A fresh agent with a saved configuration."""
        return cls(problem, cls.config_type(**config), **options)

    def extras(self) -> dict[str, Any]:
        """What a subclass must remember beyond the arrays, as JSON."""
        return {}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""


def arrays_in(group: Any, name: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """The arrays of a record and of the records in it, by their dotted names."""
    for field, value in group.fields.items():
        if isinstance(value, np.ndarray):
            yield f"{name}.{field}", value
        elif hasattr(value, "fields"):
            yield from arrays_in(value, f"{name}.{field}")


def filled(group: Any, name: str, arrays: Arrays) -> Any:
    """A record with its arrays replaced by saved ones."""
    changes = {}
    for field, value in group.fields.items():
        if isinstance(value, np.ndarray):
            changes[field] = arrays[f"{name}.{field}"]
        elif hasattr(value, "fields"):
            changes[field] = filled(value, f"{name}.{field}", arrays)
    return replaced(group, **changes)
