"""The agents as the advisor asks them: with a state that was looked up once and, for what is drawn, a coin."""

from typing import Any, Literal, Self

import numpy as np

from tether.agents.least_squares import Choice
from tether.agents.rslucb_qvi import RslucbQvi
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
from tether.learning.backup import assess_unplanned
from tether.learning.lean import WIDE
from tether.learning.tables import add_state, new_tables
from tether.problem.problem import KnownState, Problem
from tether.records import Decision, State

Algorithm = Literal["slucb-qvi", "rslucb-qvi"]
ALGORITHMS: tuple[Algorithm, ...] = ("slucb-qvi", "rslucb-qvi")


class LiveAgent(SlucbQvi):
    """The same algorithm, kernels and numbers as `SlucbQvi.propose`, with less work around them. For one thread."""

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config)
        self._alone = new_tables(problem.dimension, problem.horizon, 1, problem.constraints)

    def propose_at(self, step: int, state: State, known: KnownState, coin: float) -> Decision:
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


class LiveMixer(RslucbQvi):
    """RSLUCB-QVI whose coin comes with the question: the same question gets the same draw, now and in a replay."""

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config, rng=np.random.default_rng(0))  # never asked: see _toss
        self._coin = 1.0

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        return cls(problem, SlucbConfig(**config), **told)

    def propose_at(self, step: int, state: State, known: KnownState, coin: float) -> Decision:
        """`propose` for a state that was looked up already; `coin` in [0, 1) picks the action from the mixture."""
        self._coin = coin
        choice = self._tripped(step, known) if self.tripped_by else self._unplanned(step, known)
        return self._decide(step, state, choice)

    def _toss(self) -> float:
        return self._coin


def live_agent(algorithm: Algorithm) -> type[LiveAgent] | type[LiveMixer]:
    """The class behind a name."""
    return LiveMixer if algorithm == "rslucb-qvi" else LiveAgent
