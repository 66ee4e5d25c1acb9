"""The safe action everywhere: the floor that every learner must beat, and the fallback that every learner has."""

from typing import Any, Self

import numpy as np

from tether.agents.agent import Choice, check_decision, check_step, checked_costs, checked_feature, checked_reward
from tether.agents.rslucb import RslucbQvi, mixture_of
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.kernels.model import ENDED, ONLY_BASELINE
from tether.problem.problem import KnownState, Problem
from tether.records import Transition


class AlwaysSafe(RslucbQvi):
    """Plays a_0(s) with probability one. Its bound is the declared cost of a_0(s); it observes, and learns nothing."""

    kind = "always-safe"
    bounds = "cost"

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config or SlucbConfig(pooled=True), rng=np.random.default_rng(0))
        self._origins = ("exact", "none")

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        return cls(problem, SlucbConfig(**config), **told)

    def _make_plan(self) -> None:
        plan, tables, states = self.current, self.tables, int(self.tables.slots[0])
        plan.made[0] += 1
        plan.mixture[:] = 0.0
        for slot in range(states):
            if not tables.is_star[slot]:
                plan.mixture[:, tables.start[slot] + tables.baseline_row[slot]] = 1.0
        plan.bound[:, :states] = tables.baseline_cost[:, :states]
        plan.reason[:, :states] = np.where(np.isnan(tables.final_reward[:states]), ONLY_BASELINE, ENDED)
        plan.planned[0] = states

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        costs, reason = known.baseline_cost[step], ONLY_BASELINE if np.isnan(known.final_reward) else ENDED
        probabilities = np.zeros(len(known.actions.endpoints))
        if not known.actions.is_star:
            probabilities[known.actions.baseline] = 1.0
        mixture = mixture_of(known.actions, probabilities)
        radii = np.zeros(len(costs))
        return Choice(known.actions, -1, 0.0, 0.0, reason, costs, radii, costs, self._outcomes, mixture)


# The default action on any kind of set: what a learner's gain is measured against in studies of episodes.


class DefaultAction(SlucbQvi):
    """Plays a_0(s), always; its bound is the declared τ_h(s). Unlike AlwaysSafe it is no mixture, so stars are fine."""

    kind = "default-action"

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        if problem.baseline_cost is None:
            raise InputError("the default action is justified by its known cost alone: give Problem its baseline_cost.")
        super().__init__(problem, config or SlucbConfig(pooled=True))
        self._origins = ("exact", "none")

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        return cls(problem, SlucbConfig(**config), **told)

    @property
    def watches_outcomes(self) -> bool:
        """Its plans are made here, not by the kernels of the learner."""
        return True

    def observe(self, transition: Transition) -> None:
        """Count one outcome, refuse what any agent refuses, and learn nothing."""
        check_step(transition.step, self.problem.horizon)
        check_decision(transition, self._open)
        checked_reward(transition.reward)
        checked_costs(transition.cost, self.problem, needed=False)
        checked_feature(transition.feature, self.problem)
        self._open.pop(-1 if transition.decision_id is None else transition.decision_id, None)
        self._outcomes += 1

    def _make_plan(self) -> None:
        plan, tables, states = self.current, self.tables, int(self.tables.slots[0])
        plan.made[0] += 1
        plan.row[:], plan.length[:], plan.score[:], plan.radius[:] = -1, 0.0, 0.0, 0.0
        plan.bound[:, :states] = tables.baseline_cost[:, :states]
        plan.reason[:, :states] = np.where(np.isnan(tables.final_reward[:states]), ONLY_BASELINE, ENDED)
        plan.planned[0] = states

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        costs, reason = known.baseline_cost[step], ONLY_BASELINE if np.isnan(known.final_reward) else ENDED
        return Choice(known.actions, -1, 0.0, 0.0, reason, costs, np.zeros(len(costs)), costs, self._outcomes)
