"""The engine behind SLUCB-QVI and LSVI-UCB: sums, tables and a plan, with different rules plugged in."""

from collections.abc import Callable
from math import log
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from tether.agents.backups import GROWTH, Backup, Replan
from tether.agents.checks import check_decision, check_step, checked_costs, checked_feature, checked_reward
from tether.agents.known_states import KnownStates
from tether.errors import InputError
from tether.kernels.model import (
    ENDED,
    KNOWN,
    MEASURED,
    VISITED,
    Plan,
    Rules,
    Scratch,
    Tables,
    new_plan,
    new_scratch,
    new_tables,
)
from tether.kernels.plan import Visited, choose_alone, make_plan, observe, plan_lean, scratch_for, tables_of
from tether.kernels.ridge import Costs, Values, new_costs, new_values, remember, remember_roughly
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, CostBound, Decision, Mixture, Origin, Radius, Reason, State, StateKey, Transition

REASONS: tuple[Reason, ...] = get_args(Reason)


class Choice(NamedTuple):
    """What an agent wants to play in one state, and why."""

    actions: ActionSet
    row: int  # -1 is the safe action
    length: float
    score: float
    reason: int
    bounds: Array  # (M,)
    radii: Array  # β_c (M,)
    baseline_cost: Array  # τ_h(s) (M,)
    data_version: int
    mixture: Mixture | None = None
    detail: str = ""
    facts: int = 0  # remembered safe costs that the bounds rest on


class LeastSquaresAgent(KnownStates):
    """Optimistic least-squares value iteration with a certified safe set. Subclasses choose the rules."""

    bounds: ClassVar[Literal["cost", "expected cost"]] = "cost"
    mixes: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        rules: Rules,
        *,
        stages: int,
        cost_ridge: float,
        value_ridge: float,
        cost_origin: Origin,
        value_origin: Origin,
        backup: Backup,
        replan: Replan,
        config: dict[str, Any],
    ) -> None:
        for name, ridge in (("cost_ridge", cost_ridge), ("value_ridge", value_ridge)):
            if not 0.0 < ridge < np.inf:
                raise InputError(f"{name} λ must be positive and finite, but is {ridge}: A = λI must be invertible.")
        self.problem = problem
        self.rules = rules
        self._config = config
        self._origins: tuple[Origin, Origin] = (cost_origin, value_origin)
        self._replan = replan
        self._stages = stages
        d, m = problem.dimension, problem.constraints
        self.tables: Tables = new_tables(d, problem.horizon, stages, m, self.mixes)
        rows, capacity = self.tables.features.shape[1], self.tables.phi_0.shape[1]
        self.costs: Costs = new_costs(stages, d, m, cost_ridge, problem.feature_norm)
        self.values: Values = new_values(stages, d, value_ridge, capacity)
        self.current: Plan = new_plan(problem.horizon, capacity, m, d, rows if self.mixes else 0)
        self.scratch: Scratch = new_scratch(d, m, rows, 1)
        lean = Visited(stages, problem.horizon, m, d) if backup == "lean" else None
        self.visited: Visited | None = lean  # without it, next states have slots in the tables
        self._action_sets: list[ActionSet] = []
        self._slot_of: dict[StateKey, int] = {}
        self._open: dict[int, int] = {}  # decisions without an outcome yet, and their steps
        self._decisions = 0
        self._outcomes = 0
        self._plan_version = -1
        self.planned_growth = np.full((3, stages), -np.inf)  # log det A of costs and values, facts: at the last plan
        self._asked: tuple[int, Array, Array] | None = None  # the last decision's id, and f and τ_s of its state

    @property
    def data_version(self) -> int:
        """Number of outcomes learned from."""
        return self._outcomes

    @property
    def watches_outcomes(self) -> bool:
        """Whether single outcomes matter beyond the sums, so that episodes cannot run in compiled blocks."""
        return self.watch is not None or self._replan == "on-growth"

    @property
    def replans_rarely(self) -> bool:
        """Whether a plan waits until some det(A_h) has doubled."""
        return self._replan != "every-episode"

    @property
    def plans_are_due(self) -> bool:
        """Whether `plan` would do something: always, or (rare switching) once some det(A_h) has doubled.

        "on-growth" also waits for a quarter more outcomes than the last plan had.
        """
        if not self.replans_rarely or self._plan_version < 0:
            return True
        if self._replan == "on-growth" and self._outcomes < (1.0 + GROWTH) * self._plan_version:
            return False
        return bool((self._growth() - self.planned_growth > log(2.0)).any())

    @property
    def alarms(self) -> list[tuple[int, StateKey]]:
        """(step, state key) wherever the declared safe cost contradicts the data, as of the current plan."""
        alarm = REASONS.index("alarm")
        keys = list(self.known_states)
        if self.visited is not None:
            return [(int(h), keys[s]) for h, s in self.visited.alarms]
        return [(int(h), keys[s]) for h, s in np.argwhere(self.current.reason[:, : len(keys)] == alarm)]

    def plan(self) -> None:
        """The first loop of Algorithm 1: safe sets, scores and values, backwards in h, for every known state."""
        if not self.plans_are_due:
            return
        self._make_plan()
        self._plan_version = self._outcomes
        self.planned_growth[:] = self._growth()

    def _make_plan(self) -> None:
        if self.visited is not None:
            self.current = plan_lean(self.problem, self.costs, self.values, self.rules, self.visited, self.current)
        else:
            make_plan(self.costs, self.values, self.rules, self.tables, self.current, self.scratch)

    def act(self, step: int, state: State) -> Decision:
        """Line 9 of Algorithm 1, with the bound that justifies the action."""
        check_step(step, self.problem.horizon)
        slot = self._slot_of.get(self.problem.key_of(state))
        told = self._told(state) if slot is None else None
        if self._plan_version < 0:
            self.plan()
        if self.tripped_by:
            choice = self._tripped(step, told or self._told(state))
        elif slot is not None and slot < self.current.planned[0]:
            choice = self._planned(step, slot)
        else:
            choice = self._unplanned(step, told or self._told(state))
        if choice.reason == ENDED:
            raise InputError(f"the trajectory has ended in state {state!r}: there is nothing to decide.")
        decision = self._decide(step, state, choice)
        self.note_decision(decision, choice.actions.phi_0, choice.baseline_cost)
        return decision

    def note_decision(self, decision: Decision, phi_0: Array, baseline_cost: Array) -> None:
        """Expect the outcome of a decision, made in a state with safe feature f (d,) and safe cost τ_s (M,)."""
        self._open[decision.id] = int(decision.step)
        self._asked = (decision.id, phi_0, baseline_cost.copy())
        self._decisions += 1

    def propose(self, step: int, state: State) -> Decision:
        """The decision from the newest cost data and the last plan's values; nothing is noted.

        What it answers depends on the outcomes observed and the plan made so far, and on nothing else, so that replicas
        that replay one log agree. (A randomised agent also draws from its own stream.)
        """
        check_step(step, self.problem.horizon)
        known = self._told(state)
        choice = self._tripped(step, known) if self.tripped_by else self._unplanned(step, known)
        if choice.reason == ENDED:
            raise InputError(f"the trajectory has ended in state {state!r}: there is nothing to decide.")
        return self._decide(step, state, choice)

    def _planned(self, step: int, slot: int) -> Choice:
        """What the current plan says for a state that it covers."""
        plan = self.current
        return Choice(
            self._action_sets[slot],
            int(plan.row[step, slot]),
            float(plan.length[step, slot]),
            float(plan.score[step, slot]),
            int(plan.reason[step, slot]),
            plan.bound[step, slot],
            plan.radius[step],
            self.tables.baseline_cost[step, slot],
            self._plan_version,
            facts=int(plan.facts[step]),
        )

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        """The choice at a state that no plan covers, from the newest cost data and the last plan's weights."""
        alone = new_plan(1, 1, self.problem.constraints, self.problem.dimension)
        alone.weights[0], alone.made[0] = self.current.weights[step], self.current.made[0]
        tables = tables_of([known.actions], known.baseline_cost[None, step], np.array([known.final_reward]))
        stage = step if self._stages > 1 else 0
        choose_alone(self.costs, self.values, self.rules, tables, alone, scratch_for(tables), step, stage)
        return self._choice(step, known, alone)

    def _choice(self, step: int, known: KnownState, alone: Plan) -> Choice:
        """The one choice of a plan for one state."""
        return Choice(
            known.actions,
            int(alone.row[0, 0]),
            float(alone.length[0, 0]),
            float(alone.score[0, 0]),
            int(alone.reason[0, 0]),
            alone.bound[0, 0],
            alone.radius[0],
            known.baseline_cost[step],
            self._outcomes,
            facts=int(alone.facts[0]),
        )

    def _tripped(self, step: int, known: KnownState) -> Choice:
        """a_0(s) and its declared cost: a test of the assumptions has failed, and nothing that rests on them counts."""
        reason = REASONS.index("tripped") if np.isnan(known.final_reward) else ENDED
        costs, radii, why = known.baseline_cost[step], self.current.radius[step], self.tripped_by
        bounds = np.full_like(costs, np.nan) if self._costs_are_unknown else costs
        return Choice(known.actions, -1, 0.0, 0.0, reason, bounds, radii, costs, self._outcomes, detail=why)

    def _decide(self, step: int, state: State, choice: Choice) -> Decision:
        """A choice as a Decision, with the evidence for each constraint."""
        actions, row, length = choice.actions, choice.row, choice.length
        # whatever a warm-up has measured is a gap, not a known cost
        known_costs = np.full(len(choice.bounds), np.nan) if self._costs_are_unknown else choice.baseline_cost
        limits = zip(choice.bounds, self.rules.threshold, choice.radii, known_costs, strict=True)
        evidence = tuple(
            CostBound(
                float(bound),
                float(tau),
                Radius(float(radius), self._origins[0]),
                float(known),
                self.bounds,
                facts=choice.facts,
            )
            for bound, tau, radius, known in limits
        )
        feature = actions.phi_0 if row < 0 else actions.phi_0 + length * (actions.endpoints[row] - actions.phi_0)
        if row >= 0 and length == 1.0:
            feature = actions.endpoints[row]
        return Decision(
            id=self._decisions,
            step=step,
            state=state,
            action=actions.action(row, length),
            feature=feature,
            is_baseline=row < 0,
            reason=REASONS[choice.reason],
            evidence=evidence,
            value_radius=Radius(float(self.rules.value_radius[step]), self._origins[1]),
            score=choice.score,
            data_version=choice.data_version,
            mixture=choice.mixture,
            detail=choice.detail,
        )

    def observe(self, transition: Transition) -> None:
        """Add one outcome to the sums. Everything is checked before anything changes."""
        t = transition
        check_step(t.step, self.problem.horizon)
        check_decision(t, self._open)
        reward, costs = checked_reward(t.reward), checked_costs(t.cost, self.problem, needed=self.rules.penalty != 0.0)
        feature = checked_feature(t.feature, self.problem)
        learn_more = self._prepare(t, feature, costs)
        key = None if self.watch is None else self.problem.key_of(t.state)
        stage = t.step if self._stages > 1 else 0
        fact = self._fact_of(t)
        next_slot = self._next_slot(t, stage, feature)
        learn_more()
        missing = np.full(self.problem.constraints, np.nan)
        numbers = np.concatenate([[reward], missing if costs is None else costs])
        observe(self.costs, self.values, self.rules, stage, feature, numbers, next_slot, self.scratch.vectors)
        if fact is not None:
            self.remember(stage, *fact)
        if self.watch is not None:
            self.watch.observe(t.step, feature, costs, reward, key)
        if t.decision_id is not None:
            del self._open[t.decision_id]
        self._outcomes += 1

    def note_block(self, episodes: int, last_plan: int) -> None:
        """Keep count after a compiled block of whole episodes changed the memory and the plan in place.

        `last_plan` is the episode of the block in which the current plan was made, -1 if it is older.
        """
        if last_plan >= 0:
            self._plan_version = self._outcomes + last_plan * self.problem.horizon
        self._decisions += episodes * self.problem.horizon
        self._outcomes += episodes * self.problem.horizon

    def note_steps(self, steps: int) -> None:
        """Keep count after compiled code has played and observed so many steps."""
        self._decisions += steps
        self._outcomes += steps

    def _prepare(self, transition: Transition, feature: Array, costs: Array | None) -> Callable[[], None]:
        """For rules that watch outcomes: check now, when an error changes nothing; return what to do then."""
        return lambda: None

    def _growth(self) -> Array:
        return np.array([self.costs.log_det, self.values.log_det, self.costs.facts.count.astype(np.float64)])

    @property
    def _costs_are_unknown(self) -> bool:
        return self.rules.conditioning == MEASURED and not bool(np.isfinite(self.rules.cost_error).all())

    def remember(self, stage: int, phi_0: Array, baseline_cost: Array) -> None:
        """Remember the safe cost (M,) of one state: γ* satisfies ⟨γ*, f⟩ = τ_s, up to the declared error."""
        f, cost = np.array(phi_0, dtype=np.float64), np.array(baseline_cost, dtype=np.float64)
        if self.rules.conditioning == KNOWN:
            remember(self.costs, stage, f, cost, self.rules.gamma_norm, self.scratch.vectors)
        else:
            remember_roughly(self.costs, stage, f, cost)

    def _fact_of(self, t: Transition) -> tuple[Array, Array] | None:
        """(f, τ_s) of the state that an outcome belongs to, if it is to be remembered."""
        if self.rules.memory != VISITED or self._costs_are_unknown:
            return None
        if self._asked is not None and self._asked[0] == t.decision_id:
            _, phi_0, costs = self._asked  # the state as it was then: simulators write to the same array again
            return (phi_0, costs) if np.isfinite(costs).all() else None
        slot = self._slot_of.get(self.problem.key_of(t.state))
        if slot is not None:
            costs, phi_0 = self.tables.baseline_cost[t.step, slot], self.tables.phi_0[:, slot]
        else:
            known = self._told(t.state)
            costs, phi_0 = known.baseline_cost[t.step], known.actions.phi_0
        return (phi_0, costs) if np.isfinite(costs).all() else None
