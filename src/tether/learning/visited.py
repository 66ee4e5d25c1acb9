"""The next states that were reached, with Σφ by next state: all that a lean backup keeps, O(visited × d).

Only states that stage g led to enter b_g = Σ rφ + Σ_{s'} V(s') Σ_{j : s'_j = s'} φ_j. So each stage keeps its own next
states, and asks for the value of no other. Their candidates (N × d numbers a state) are not kept: a plan asks the
problem for them again.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tether.learning.tables import grown
from tether.problem.problem import KnownState
from tether.records import Array, State, StateKey


class Visited:
    """Distinct next states in the order of their first visit, and for each stage which of them it led to.

    `baseline_cost` (S, H, M) and `final_reward` (S,) are what was told of each state. `alarms` (A, 2) holds the
    (step, state) pairs where the last plan found the declared safe cost to contradict the data.
    """

    def __init__(self, stages: int, horizon: int, constraints: int, dimension: int) -> None:
        room = 16
        self.stages, self.dimension = stages, dimension
        self.index: dict[StateKey, int] = {}
        self.states: list[State] = []
        self.alarms: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        self._baseline_cost = np.full((room, horizon, constraints), np.nan)
        self._final_reward = np.full(room, np.nan)
        self._row_of = np.full((stages, room), -1, dtype=np.int64)  # row in a stage, -1 if not reached
        self._count = [0] * stages
        self._member = [np.zeros(room, dtype=np.int64) for _ in range(stages)]
        self._moment = [np.zeros((room, dimension)) for _ in range(stages)]

    @property
    def baseline_cost(self) -> Array:
        """τ_h(s) of each state, (S, H, M); NaN if unknown."""
        return self._baseline_cost[: len(self.states)]

    @property
    def final_reward(self) -> Array:
        """Reward of each remaining step where trajectories end, (S,); NaN elsewhere."""
        return self._final_reward[: len(self.states)]

    def members(self, stage: int) -> NDArray[np.int64]:
        """Numbers of the states that a stage led to, in the order of its moments."""
        return self._member[stage][: self._count[stage]]

    def moment(self, stage: int) -> Array:
        """Σφ by next state, (members, d)."""
        return self._moment[stage][: self._count[stage]]

    def add(self, stage: int, key: StateKey, feature: Array, look: Callable[[], tuple[State, KnownState]]) -> None:
        """One transition with feature φ (d,) from `stage` to the state of `key`; `look` at it on first sight only."""
        state = self.index.get(key)
        if state is None:
            state = self._enter(key, *look())
        row = int(self._row_of[stage, state])
        if row < 0:
            row = self._reach(stage, state)
        self._moment[stage][row] += feature

    def _enter(self, key: StateKey, state: State, known: KnownState) -> int:
        """A new number for a new state. Capacities double, so that n states cost O(n) copies in all."""
        number = len(self.states)
        if number == len(self._final_reward):
            self._baseline_cost = grown(self._baseline_cost, 0, 2 * number, np.nan)
            self._final_reward = grown(self._final_reward, 0, 2 * number, np.nan)
            self._row_of = grown(self._row_of, 1, 2 * number, -1)
        self._baseline_cost[number] = known.baseline_cost
        self._final_reward[number] = known.final_reward
        self.states.append(state)
        self.index[key] = number
        return number

    def _reach(self, stage: int, state: int) -> int:
        """A new row of a stage for a state that it had not led to yet."""
        row = self._count[stage]
        if row == len(self._member[stage]):
            self._member[stage] = grown(self._member[stage], 0, 2 * row, 0)
            self._moment[stage] = grown(self._moment[stage], 0, 2 * row, 0.0)
        self._member[stage][row] = state
        self._row_of[stage, state] = row
        self._count[stage] = row + 1
        return row

    def take(
        self,
        index: dict[StateKey, int],
        states: list[State],
        told: tuple[Array, Array],
        alarms: NDArray[np.int64],
        stages: list[tuple[NDArray[np.int64], Array]],
    ) -> None:
        """Everything at once, from a saved agent: keys, states, (baseline_cost, final_reward), members and moments."""
        self.index, self.states, self.alarms = index, states, alarms
        room = max(len(states), len(self._final_reward))
        self._baseline_cost = grown(told[0], 0, room, np.nan)
        self._final_reward = grown(told[1], 0, room, np.nan)
        self._row_of = np.full((len(stages), room), -1, dtype=np.int64)
        for stage, (member, moment) in enumerate(stages):
            self._count[stage] = len(member)
            self._row_of[stage, member] = np.arange(len(member))
            size = max(len(member), len(self._member[stage]))
            self._member[stage] = grown(member, 0, size, 0)
            self._moment[stage] = grown(moment, 0, size, 0.0)
