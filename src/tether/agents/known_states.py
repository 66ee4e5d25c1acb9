"""Which states an agent knows, and where it keeps what it knows of them: in slots of the tables, or lean."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from tether.agents.saved_agent import SavedAgent
from tether.errors import InputError
from tether.kernels.compiled import replaced
from tether.kernels.model import add_state, grown, new_scratch
from tether.records import Array, State, StateKey, Transition


class KnownStates(SavedAgent):
    """The part of an agent that recognises states."""

    mixes: ClassVar[bool]

    @property
    def known_states(self) -> Iterable[StateKey]:
        """Keys of the states that every plan covers, in the order of their slots; of a lean backup's next states."""
        return self._slot_of.keys() if self.visited is None else self.visited.index.keys()

    def slot_of(self, state: State) -> int:
        """Where the plan keeps a known state."""
        return self._slot_of[self.problem.key_of(state)]

    def register(self, states: Iterable[State]) -> None:
        """Include these states in every plan from now on, visited or not: for exact regret and for figures."""
        if self.visited is not None:
            raise InputError(
                "a lean backup plans no states but those it was led to, so none can be registered: use backup='tables'."
            )
        for state in states:
            self._slot(state)

    def _next_slot(self, t: Transition, stage: int, feature: Array) -> int:
        """The slot of the next state; -1 if nothing follows, or where a lean backup keeps it (and φ with it)."""
        state, last = t.next_state, t.step == self.problem.horizon - 1
        if state is None or (last and self._stages > 1):
            return -1
        if self.visited is None:
            return self._slot(state)
        if self.problem.horizon > 1:  # V_2 of a bandit is 0: there is nothing to keep
            key = self.problem.key_of(state)
            self.visited.add(stage, key, feature, lambda: (kept := self.problem.kept(state), self._told(kept)))
        return -1

    def _slot(self, state: State) -> int:
        """The slot of a state, made on first sight."""
        key = self.problem.key_of(state)
        slot = self._slot_of.get(key)
        if slot is None:
            known = self._told(state)
            self.tables = add_state(self.tables, known)
            self._make_room()
            slot = self._slot_of[key] = len(self._action_sets)
            self._action_sets.append(known.actions)
        return slot

    def _make_room(self) -> None:
        """Let the sums, the plan and the scratch space follow the tables' capacity."""
        slots, rows = self.tables.phi_0.shape[1], self.tables.features.shape[1]
        widest = int(np.diff(self.tables.start[: int(self.tables.slots[0]) + 1]).max(initial=1))
        if rows > self.scratch.projected.shape[1] or widest > self.scratch.work.shape[1]:
            self.scratch = new_scratch(self.problem.dimension, self.problem.constraints, rows, widest)
        if self.mixes and rows > self.current.mixture.shape[1]:
            self.current = replaced(self.current, mixture=grown(self.current.mixture, 1, rows, 0.0))
        if slots > self.values.transition_moment.shape[1]:
            self.values = replaced(self.values, transition_moment=grown(self.values.transition_moment, 1, slots, 0.0))
            wide = ("values", "score", "row", "length", "bound", "reason")
            self.current = replaced(
                self.current, **{name: grown(getattr(self.current, name), 1, slots, 0) for name in wide}
            )
