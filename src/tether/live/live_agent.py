"""The agents as the advisor asks them: with a state that was looked up once and, for what is drawn, a coin."""

from typing import Any, Literal, Self

import numpy as np

from tether.agents.least_squares import Choice, LeastSquaresAgent
from tether.agents.rslucb_qvi import RslucbQvi
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
from tether.kernels.model import VISITED, add_state, new_plan, new_scratch, new_tables
from tether.kernels.plan import choose_alone
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, State, Transition

Algorithm = Literal["slucb-qvi", "rslucb-qvi"]
ALGORITHMS: tuple[Algorithm, ...] = ("slucb-qvi", "rslucb-qvi")


class LearnsFromLog(LeastSquaresAgent):
    """The part of a live agent that learns: safe costs are remembered as the log says, and the problem is not asked."""

    _logged_fact: tuple[Array, Array] | None = None

    @property
    def remembers(self) -> bool:
        """Whether the safe cost of a state is remembered once an outcome was seen there."""
        return self.rules.memory == VISITED and not self._costs_are_unknown

    def observe_with(self, transition: Transition, fact: tuple[Array, Array] | None) -> None:
        """`observe`, with the fact (f (d,), τ_s (M,)) that was declared when the decision was made, if any."""
        self._logged_fact = fact
        try:
            self.observe(transition)
        finally:
            self._logged_fact = None

    def _fact_of(self, t: Transition) -> tuple[Array, Array] | None:
        return self._logged_fact if self.remembers else None


class LiveAgent(LearnsFromLog, SlucbQvi):
    """The same algorithm, kernels and numbers as `SlucbQvi.propose`, with less work around them. For one thread."""

    def __init__(self, problem: Problem, config: SlucbConfig | None = None) -> None:
        super().__init__(problem, config)
        d, m = problem.dimension, problem.constraints
        self._alone_tables, self._alone_plan = new_tables(d, 1, 1, m), new_plan(1, 1, m, d)
        self._alone_scratch = new_scratch(d, m, 0, 0)

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        """As in the base class, but the buffers for the one state are kept and filled again, not allocated."""
        self._alone_tables.slots[0] = self._alone_tables.built[0] = 0
        self._alone_tables = tables = add_state(self._alone_tables, known, known.baseline_cost[step : step + 1])
        room = tables.features.shape[1]
        if room > self._alone_scratch.projected.shape[1]:
            self._alone_scratch = new_scratch(self.problem.dimension, self.problem.constraints, room, room)
        plan, stage = self._alone_plan, step if self._stages > 1 else 0
        plan.weights[0], plan.made[0] = self.current.weights[step], self.current.made[0]
        choose_alone(self.costs, self.values, self.rules, tables, plan, self._alone_scratch, step, stage)
        return self._choice(step, known, plan)

    def propose_at(self, step: int, state: State, known: KnownState, coin: float) -> Decision:
        """`propose` for a state that was looked up already and where the trajectory goes on. Nothing is noted."""
        told = self._told(state) if self._warms_up else known
        choice = self._tripped(step, told) if self.tripped_by else self._unplanned(step, told)
        return self._decide(step, state, choice)


class LiveMixer(LearnsFromLog, RslucbQvi):
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
