"""The safe action everywhere: the floor that every learner must beat, and the fallback that every learner has."""

from collections.abc import Iterable

import numpy as np

from tether.agents.agent import LeastSquaresAgent, plain_rules
from tether.agents.rslucb import mixture_of
from tether.agents.slucb import SlucbConfig
from tether.kernels.model import ENDED, ONLY_BASELINE, Plan, new_plan
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Mixture, Origin, State


class DefaultAction(LeastSquaresAgent):
    """Plays a_0(s), always; its bound is the declared τ_h(s), NaN where unknown. It learns nothing about costs."""

    kind = "default-action"
    config_type = SlucbConfig
    plans_itself = True

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        config = (config or SlucbConfig(pooled=True)).settled(problem, mixes=self.mixes)
        origin: Origin = "exact" if problem.baseline_cost is not None else "none"
        super().__init__(problem, config, plain_rules(problem, config), origins=(origin, "none"))

    def make_plan(self) -> None:
        """a_0 with its declared cost, for every known state."""
        plan, tables, states = self.current, self.tables, int(self.tables.slots[0])
        plan.made[0] += 1
        plan.row[:] = -1
        plan.bound[:, :states] = tables.baseline_cost[:, :states]
        plan.reason[:, :states] = np.where(np.isnan(tables.final_reward[:states]), ONLY_BASELINE, ENDED)
        plan.planned[0] = states

    def choose_alone(self, step: int, known: KnownState) -> Plan:
        """a_0 with its declared cost."""
        plan = new_plan(1, 1, len(self.problem.constraints), self.problem.dimension)
        plan.bound[0, 0] = known.baseline_cost[step]
        plan.reason[0, 0] = ONLY_BASELINE if np.isnan(known.final_reward) else ENDED
        return plan


class AlwaysSafe(DefaultAction):
    """The safe action as a mixture, a_0(s) with probability one: for studies that judge mixtures."""

    kind = "always-safe"
    mixes = True

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config)
        self.rng = np.random.default_rng(0)  # for compiled runs, which draw from every mixture

    def make_plan(self) -> None:
        """Also all probability on a_0, which in a star is what is left over."""
        super().make_plan()
        tables = self.tables
        self.current.mixture[:] = 0.0
        for slot in range(int(tables.slots[0])):
            if not tables.is_star[slot]:
                self.current.mixture[:, tables.start[slot] + tables.baseline_row[slot]] = 1.0

    def played(
        self, actions: ActionSet, plan: Plan, at: int, slot: int, coin: float | None
    ) -> tuple[int, float, Mixture | None]:
        """a_0, drawn from nothing else."""
        probabilities = np.zeros(len(actions.endpoints))
        if not actions.is_star:
            probabilities[actions.baseline] = 1.0
        return -1, 0.0, mixture_of(actions, probabilities)

    def planned_features(self, states: Iterable[State]) -> Array:
        """φ(s, a_0(s)) at every step, (H, S, d)."""
        safe = np.array([self.problem.actions(state).phi_0 for state in states])
        return np.tile(safe, (self.problem.horizon, 1, 1))
