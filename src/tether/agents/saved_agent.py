"""Save and restore: everything that an agent's future depends on, bit for bit."""

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tether.agents import state_file
from tether.agents.saved_arrays import check_arrays
from tether.agents.saved_visits import arrays_of, manifest_of, take_visits
from tether.check.monitor import Monitor
from tether.errors import StateFileError, TetherError
from tether.learning.backup import Plan
from tether.learning.ridge import Ridge
from tether.learning.statistics import Memory
from tether.learning.tables import Tables, grown, with_room
from tether.learning.visited import Visited
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State, StateKey


class SavedAgent:
    """The part of an agent that writes itself down and comes back."""

    kind: ClassVar[str]
    problem: Problem
    tables: Tables
    memory: Memory
    current: Plan
    scratch: Array
    visited: Visited | None
    _stages: int
    planned_log_det: Array
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
        parts: dict[str, Any] = {
            "tables": self.tables,
            "plan": self.current,
            "cost": self.memory.cost,
            "value": self.memory.value,
        }
        arrays = {
            f"{part}.{name}": array
            for part, group in parts.items()
            for name, array in group._asdict().items()
            if isinstance(array, np.ndarray)
        }
        for name in ("cost_moment", "reward_moment", "transition_moment"):
            arrays[f"memory.{name}"] = getattr(self.memory, name)
        arrays["planned_log_det"] = self.planned_log_det
        return arrays

    def _make_room_for(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Grow a fresh agent to the capacities of a saved one."""
        slots, rows = arrays["tables.phi_0"].shape[1], arrays["tables.features"].shape[1]
        self.tables = with_room(self.tables, slots, rows)
        widest = arrays["tables.joint"].shape[2] if "tables.joint" in arrays else 0
        if widest > self.tables.joint.shape[2] > 0:
            self.tables = self.tables._replace(joint=grown(self.tables.joint, 2, widest, 0.0))
        self._make_room()

    def _take_arrays(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """The reverse of `_arrays`, on a fresh agent."""

        def filled(group: Any, part: str) -> Any:
            names = [name for name, old in group._asdict().items() if isinstance(old, np.ndarray)]
            return group._replace(**{name: arrays[f"{part}.{name}"] for name in names})

        self.tables = filled(self.tables, "tables")
        self.current = filled(self.current, "plan")
        sums: dict[str, Any] = {n: arrays[f"memory.{n}"] for n in ("cost_moment", "reward_moment", "transition_moment")}
        cost: Ridge = filled(self.memory.cost, "cost")
        value: Ridge = filled(self.memory.value, "value")
        self.memory = Memory(cost=cost, value=value, **sums)
        self.planned_log_det = np.asarray(arrays["planned_log_det"], dtype=np.float64)
        self.scratch = np.zeros((len(self.scratch), self.tables.features.shape[1]))
        self._action_sets = [state_file.action_set(self.tables, slot) for slot in range(len(self._slot_of))]
