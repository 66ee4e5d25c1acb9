"""SLUCB-QVI as the advisor asks it: a state that was looked up once, in tables that are used again."""

import numpy as np

from tether.agents.least_squares import Choice
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
from tether.learning.backup import assess_unplanned
from tether.learning.lean import WIDE
from tether.learning.tables import add_state, new_tables
from tether.problem.problem import KnownState, Problem
from tether.records import Decision, State


class LiveAgent(SlucbQvi):
    """The same algorithm, kernels and numbers as `SlucbQvi.propose`, with less work around them. For one thread."""

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config)
        self._alone = new_tables(problem.dimension, problem.horizon, 1, problem.constraints)

    def propose_at(self, step: int, state: State, known: KnownState) -> Decision:
        """`propose` for a state that was looked up already and where the trajectory goes on. Nothing is noted."""
        told = self._told(state) if self._warms_up else known
        choice = self._tripped(step, told) if self.tripped_by else self._unplanned(step, told)
        return self._decide(step, state, choice)

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        """As in the base class, but the tables of the one state are kept and filled again, not allocated."""
        if self.problem.dimension >= WIDE:
            return super()._unplanned(step, known)
        self._alone.slots[0] = self._alone.built[0] = 0
        self._alone = alone = add_state(self._alone, known)
        bounds, radii = np.empty(self.problem.constraints), np.empty(self.problem.constraints)
        stage = step if self._stages > 1 else 0
        weights, plans = self.current.weights[step], int(self.current.made[0])
        choice = assess_unplanned(self.memory, self.rules, alone, step, stage, plans, weights, radii, bounds)
        return Choice(known.actions, *choice, bounds, radii, known.baseline_cost[step], self._outcomes)
