"""Save and restore: everything that an agent's future depends on, bit for bit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tether.agents import state_file
from tether.agents.saved_arrays import check_arrays
from tether.agents.saved_visits import arrays_of, manifest_of, take_visits
from tether.check.monitor import Monitor
from tether.errors import StateFileError, TetherError
from tether.kernels.compiled import fields_of, replaced
from tether.kernels.model import Plan, Scratch, Tables, grown, with_room
from tether.kernels.plan import Visited
from tether.kernels.ridge import Costs, Values
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State, StateKey


class SavedAgent:
    """The part of an agent that writes itself down and comes back."""

    kind: ClassVar[str]
    problem: Problem
    tables: Tables
    costs: Costs
    values: Values
    current: Plan
    scratch: Scratch
    visited: Visited | None
    _stages: int
    planned_growth: Array
    _config: dict[str, Any]
    _slot_of: dict[StateKey, int]
    _action_sets: list[ActionSet]
    _open: dict[int, int]
    _decisions: int
    _outcomes: int
    _plan_version: int
    watch: Monitor | None = None
    """Tests the assumptions online, and is saved with the agent. Set it before the first outcome."""

    @property
    def tripped_by(self) -> str:
        """The alarm of `watch` in words; while there is one, only a_0 is played (reason "tripped"). "" if none."""
        return "" if self.watch is None or self.watch.alarm is None else str(self.watch.alarm)

    def save(self, path: Path) -> None:
        """Write everything that the future depends on, in one file without pickle; atomic on a crash."""
        manifest = {
            "kind": self.kind,
            "config": self._config,
            "problem": state_file.fingerprint(self.problem),
            "keys": [state_file.encode_key(key) for key in self._slot_of],
            "open": [[decision, step] for decision, step in self._open.items()],
            "decisions": self._decisions,
            "outcomes": self._outcomes,
            "plan_version": self._plan_version,
            **self._extra_manifest(),
        }
        if self.watch is not None:
            manifest["watch"] = self.watch.to_json()
        arrays = self._arrays()
        if self.visited is not None:
            manifest |= manifest_of(self.visited, self.problem)
            arrays |= arrays_of(self.visited, self._told)
        state_file.write(Path(path), manifest, arrays)

    @classmethod
    def restore(cls, path: Path, problem: Problem, **told: Any) -> Self:
        """The agent as it was saved, for the same problem; a bad file gives a StateFileError and nothing else."""
        manifest, arrays = state_file.read(Path(path), cls.kind)
        state_file.check_problem(Path(path), manifest.problem, problem)
        try:
            agent = cls._from_config(problem, manifest.config, **told)
            keys = [state_file.decode_key(key) for key in manifest.keys]
            agent._slot_of = {key: slot for slot, key in enumerate(keys)}
            agent._make_room_for(arrays)
            check_arrays(agent._arrays(), arrays, len(agent._slot_of))
            agent._take_arrays(arrays)
            agent._take_extra(manifest.model_extra or {})
            if agent.visited is not None:
                take_visits(agent.visited, problem, manifest.model_extra or {}, arrays, agent._told)
            if saved_watch := (manifest.model_extra or {}).get("watch"):
                agent.watch = Monitor.from_json(problem, saved_watch)
            told_now = {slot: agent._told(state) for slot, state in state_file.listed_states(problem, keys)}
        except (TetherError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise StateFileError(f"{path} does not fit this agent: {error}.") from error
        state_file.check_states(Path(path), keys, agent.tables, told_now)
        agent._open = dict(manifest.open)
        agent._decisions, agent._outcomes = manifest.decisions, manifest.outcomes
        agent._plan_version = manifest.plan_version
        return agent

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        raise TypeError(f"{cls.__name__} cannot be restored")

    def _extra_manifest(self) -> dict[str, Any]:
        """What a subclass must remember beyond the arrays, as JSON."""
        return {}

    def _take_extra(self, manifest: dict[str, Any]) -> None:
        """The reverse of `_extra_manifest`."""

    def _told(self, state: State) -> KnownState:
        """What this agent is told about a state."""
        return self.problem.look_up(state)

    def _make_room(self) -> None:
        raise TypeError("an agent must say how its arrays grow")

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        groups = {"tables": self.tables, "plan": self.current, "costs": self.costs, "values": self.values}
        arrays = {name: array for part, group in groups.items() for name, array in arrays_in(group, part)}
        arrays["planned_growth"] = self.planned_growth
        return arrays

    def _make_room_for(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Grow a fresh agent to the capacities of a saved one."""
        slots, rows = arrays["tables.phi_0"].shape[1], arrays["tables.features"].shape[1]
        self.tables = with_room(self.tables, slots, rows)
        widest = arrays["tables.joint"].shape[2] if "tables.joint" in arrays else 0
        if widest > self.tables.joint.shape[2] > 0:
            self.tables = replaced(self.tables, joint=grown(self.tables.joint, 2, widest, 0.0))
        self._make_room()

    def _take_arrays(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """The reverse of `_arrays`, on a fresh agent."""
        self.tables = filled(self.tables, "tables", arrays)
        self.current = filled(self.current, "plan", arrays)
        self.costs = filled(self.costs, "costs", arrays)
        self.values = filled(self.values, "values", arrays)
        self.planned_growth = np.asarray(arrays["planned_growth"], dtype=np.float64)
        self._make_room()
        self._action_sets = [state_file.action_set(self.tables, slot) for slot in range(len(self._slot_of))]


def arrays_in(group: Any, name: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """The arrays of a record and of the records in it, by their dotted names."""
    for field, value in fields_of(group).items():
        if isinstance(value, np.ndarray):
            yield f"{name}.{field}", value
        elif hasattr(value, "fields"):
            yield from arrays_in(value, f"{name}.{field}")


def filled(group: Any, name: str, arrays: dict[str, NDArray[np.generic]]) -> Any:
    """A record with its arrays replaced by saved ones."""
    changes = {}
    for field, value in fields_of(group).items():
        if isinstance(value, np.ndarray):
            changes[field] = arrays[f"{name}.{field}"]
        elif hasattr(value, "fields"):
            changes[field] = filled(value, f"{name}.{field}", arrays)
    return replaced(group, **changes)
