"""What every agent does. It does not own the loop: the same calls serve a simulation, a test and a live system."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import isfinite, log
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_args,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from tether.agents import state_file
from tether.check.monitor import Monitor
from tether.errors import InputError, StateFileError, TetherError
from tether.kernels.compiled import fields_of, replaced
from tether.kernels.model import (
    ENDED,
    KNOWN,
    MEASURED,
    VISITED,
    Plan,
    Rules,
    Scratch,
    Tables,
    add_state,
    grown,
    new_plan,
    new_scratch,
    new_tables,
    with_room,
)
from tether.kernels.plan import Visited, choose_alone, make_plan, observe, plan_lean, scratch_for, tables_of
from tether.kernels.ridge import PENDING, Costs, Values, new_costs, new_values, remember, remember_roughly
from tether.problem.action_sets import ActionSet, check_norms
from tether.problem.keys import content_key, is_plain, rebuilt
from tether.problem.problem import KnownState, Problem
from tether.records import Array, CostBound, Decision, Mixture, Origin, Radius, Reason, State, StateKey, Transition

if TYPE_CHECKING:
    from tether.agents.lsvi import LsviConfig
    from tether.agents.slucb import SlucbConfig


@runtime_checkable
class Agent(Protocol):
    """plan once per episode, then act and observe once per step."""

    def plan(self) -> None:
        """Prepare the policy of the next episode from everything observed so far."""

    def act(self, step: int, state: State) -> Decision:
        """Choose at `state`, with the evidence for the choice. Never changes what was learned."""

    def observe(self, transition: Transition) -> None:
        """Learn from one outcome. A refused outcome (an error) leaves the agent as it was."""

    def save(self, path: Path) -> None:
        """Write the whole state, so that a restored agent continues bit for bit."""


# What agents refuse, before anything changes: settings that make no sense, outcomes that cannot be counted.


def check_choice(name: str, value: object, allowed: Any) -> None:
    """Refuse a misspelt option by naming the right ones."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, but is {value!r}.")


def checked_radius(name: str, value: object, allowed: Any) -> float | str:
    """A radius by its name, or a number >= 0 of any numeric type."""
    if isinstance(value, str):
        check_choice(name, value, allowed)
        return value
    return checked_number(name, value)


def checked_number(name: str, value: object) -> float:
    """A finite number >= 0 as a float."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not 0.0 <= float(value) < np.inf:  # type: ignore[arg-type]
        raise InputError(f"{name} must be a finite number >= 0, but is {value!r}.")
    return float(value)  # type: ignore[arg-type]


def checked_episodes(value: object) -> int | None:
    """K, or None."""
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"episodes K must be an integer >= 1, but is {value!r}.")
    return int(value)


def as_numbers(value: Any) -> Array | None:
    """Real numbers as a float array, None if they are not that. What is masked was not measured: it is no number."""
    if np.ma.is_masked(value):
        return None
    try:
        numbers = np.asarray(value)
        return numbers.astype(np.float64) if numbers.dtype.kind in "iufb" else None
    except (TypeError, ValueError):
        return None


def checked_reward(reward: Any) -> float:
    """A finite real number."""
    number = as_numbers(reward)
    if number is None or number.shape != () or not isfinite(float(number)):
        raise InputError(f"reward must be a finite number, but is {reward!r}.")
    return float(number)


def check_step(step: Any, horizon: int) -> None:
    """h as 0..H-1."""
    if not isinstance(step, int | np.integer) or not 0 <= step < horizon:
        raise InputError(f"step must be an integer in 0..{horizon - 1} (H = {horizon}), but is {step!r}.")


def check_decision(t: Transition, outstanding: dict[int, int]) -> None:
    """An outcome belongs to a decision of this agent that has none yet (`outstanding`: id -> step), or to none."""
    if t.decision_id is None:
        return
    if not isinstance(t.decision_id, int | np.integer) or t.decision_id not in outstanding:
        raise InputError(
            f"decision {t.decision_id!r} has no outstanding outcome: either its outcome was recorded before, or "
            "this agent never made it. An outcome is counted exactly once."
        )
    made = outstanding[t.decision_id]
    if made != t.step:
        raise InputError(f"decision {t.decision_id} was made at step {made}, but its outcome says step {t.step}.")


def checked_feature(feature: Any, problem: Problem) -> Array:
    """φ of the applied action: d finite numbers of norm at most `feature_norm` (Assumption 4)."""
    x = as_numbers(feature)
    if x is None or x.shape != (problem.dimension,) or not np.isfinite(x).all():
        raise InputError(f"feature must be {problem.dimension} finite numbers, but is {feature!r}.")
    check_norms(x, problem.feature_norm, "this transition")
    return x


def checked_costs(cost: Any, problem: Problem, *, needed: bool) -> Array | None:
    """z, one per constraint, or None if it was not measured."""
    if cost is None:
        if needed:
            raise InputError("the penalised objective r − λ'c needs a cost with every outcome, but got None.")
        return None
    m, numbers = problem.constraints, as_numbers(cost)
    if numbers is None or numbers.shape not in ((m,), ()) or numbers.size != m or not np.isfinite(numbers).all():
        raise InputError(
            f"cost must be {m} finite number(s), but is {cost!r}. "
            "If it was not measured, pass None: a missing cost never enters the regression."
        )
    return numbers.reshape(m)


# How an agent backs values up, and when: the options `backup` and `replan`, and what "auto" stands for.

Backup = Literal["auto", "tables", "lean"]
Replan = Literal["auto", "every-episode", "on-doubling", "on-growth"]
BACKUPS = ("auto", "tables", "lean")
REPLANS = ("auto", "every-episode", "on-doubling", "on-growth")

GROWTH = 0.25
"""What "on-growth" waits for: so many more outcomes, as a part of those that the last plan had.

A plan over n next states costs O(n), so that all plans together cost at most (1 + GROWTH)/GROWTH = 5 times the last."""

Config = TypeVar("Config", "SlucbConfig", "LsviConfig")


def check_backup(backup: object, replan: object) -> None:
    """Refuse misspelt options by naming the right ones."""
    check_choice("backup", backup, BACKUPS)
    check_choice("replan", replan, REPLANS)


def settled(config: Config, problem: Problem, mixes: bool) -> Config:
    """The configuration with "auto" replaced by what it stands for here.

    Tables where the problem lists its states (they come back) or where mixtures are planned, else lean. A plan in every
    episode with tables, which follow new data cheaply, and on growth without.
    """
    if mixes and config.backup == "lean":
        raise InputError(
            "backup='lean' plans single actions, but RSLUCB-QVI plans mixtures, which need tables: "
            "use backup='tables', or SLUCB-QVI."
        )
    backup: Backup = config.backup
    if backup == "auto":
        backup = "tables" if mixes or problem.states is not None else "lean"
    replan: Replan = config.replan
    if replan == "auto":
        replan = "on-growth" if backup == "lean" else "every-episode"
    return replace(config, backup=backup, replan=replan)


# Saved arrays are checked before compiled code reads them: kernels do not check bounds.

MAY_BE_INFINITE = {
    "planned_growth",
    "tables.baseline_cost",
    "tables.final_reward",
    "plan.bound",
    "plan.score",
    "plan.radius",
    "plan.values",
}

REASONS: tuple[Reason, ...] = get_args(Reason)
Arrays = dict[str, NDArray[np.generic]]


def check_arrays(fresh: Arrays, saved: Arrays, states: int) -> None:
    """Refuse arrays whose names, types, shapes or contents a fresh agent of the same capacity could not have."""
    for name, expected in fresh.items():
        if name not in saved:
            raise InputError(f"the array {name!r} is missing")
        found = saved[name]
        if found.dtype != expected.dtype or found.shape != expected.shape:
            raise InputError(
                f"{name!r} should be {expected.dtype} of shape {expected.shape}, but is {found.dtype} of {found.shape}"
            )
        if found.dtype.kind == "f" and name not in MAY_BE_INFINITE and not np.isfinite(found).all():
            raise InputError(f"{name!r} has entries that are not finite")
    start = np.asarray(saved["tables.start"], dtype=np.int64)[: states + 1]
    rows = saved["tables.features"].shape[1]
    if not (_all_equal(saved, "tables.slots", states) and start[0] == 0):
        raise InputError(f"its tables are not for the {states} states it lists")
    if not ((np.diff(start) > 0).all() and start[-1] <= rows):
        raise InputError("the rows of its states overlap or leave the tables")
    _check_range(saved, "tables.built", 0, states)
    _check_range(saved, "tables.age", 0, None)
    _check_range(saved, "plan.planned", 0, states)
    _check_range(saved, "plan.made", 0, None)
    _check_range(saved, "plan.reason", 0, len(REASONS) - 1)
    _check_range(saved, "plan.length", 0, 1)
    _check_range(saved, "plan.mixture", 0, 1)
    for ridge in ("costs", "values"):
        _check_range(saved, f"{ridge}.owed.count", 0, PENDING + 1)
        _check_range(saved, f"{ridge}.updates", 0, None)
    _check_range(saved, "costs.facts.rank", 0, saved["costs.gram"].shape[1])
    _check_range(saved, "costs.facts.count", 0, None)
    counts = np.diff(start)
    planned = np.asarray(saved["plan.row"], dtype=np.int64)[:, :states]
    if not ((planned >= -1) & (planned < counts)).all():
        raise InputError("its plan names an action that does not exist")


def _all_equal(saved: Arrays, name: str, value: int) -> bool:
    return bool((saved[name] == value).all())


def _check_range(saved: Arrays, name: str, low: float, high: float | None) -> None:
    values = np.asarray(saved[name], dtype=np.float64)
    if not ((values >= low).all() and (high is None or (values <= high).all())):
        raise InputError(f"{name!r} leaves its range, {low} to {high}")


# Save and restore of a lean backup: its next states come back from their keys, its sums as arrays.

SAMPLED = 16
"""States whose features are compared when a state is restored: sums over other features would certify nothing."""

SAME = 1e-6
"""Features of norm 1 that differ by less are the same, computed by another machine."""


def manifest_of(visited: Visited, problem: Problem) -> dict[str, Any]:
    """Keys, and what states are rebuilt from: the key itself with `state_of`, else the content of the state."""
    if problem.state_of is None:
        for state in visited.states:
            if not is_plain(state):
                raise InputError(
                    f"state {state!r} of type {type(state).__name__} cannot be rebuilt from a saved key: give Problem "
                    "state_of=..., a function from its key (see Problem.key_of) to the state, or use backup='tables'."
                )
    keys = [state_file.encode_key(key) for key in visited.index]
    if problem.key is None or problem.state_of is not None:
        return {"visited": {"keys": keys, "contents": None}}
    contents = [state_file.encode_key(content_key(state)) for state in visited.states]
    return {"visited": {"keys": keys, "contents": contents}}


def arrays_of(visited: Visited, tell: Callable[[State], KnownState]) -> Arrays:
    """The sums of each stage, what was told of each state, and a sample of features to recognise the problem by."""
    arrays: Arrays = {
        "visited.baseline_cost": visited.baseline_cost,
        "visited.final_reward": visited.final_reward,
        "visited.alarms": visited.alarms,
        "visited.sample": sample_of(visited.states, tell, visited.dimension),
    }
    for stage in range(visited.stages):
        arrays[f"visited.{stage}.member"] = visited.members(stage)
        arrays[f"visited.{stage}.moment"] = visited.moment(stage)
    return arrays


def sample_of(states: list[State], tell: Callable[[State], KnownState], dimension: int) -> Array:
    """The safe feature and the mean candidate of some states, evenly spaced: (<= SAMPLED, 2, d)."""
    chosen = np.unique(np.linspace(0, len(states) - 1, min(SAMPLED, len(states))).astype(np.int64))
    told = [tell(states[number]).actions for number in chosen]
    return np.array([[actions.phi_0, actions.endpoints.mean(axis=0)] for actions in told]).reshape(-1, 2, dimension)


def take_visits(
    visited: Visited,
    problem: Problem,
    manifest: dict[str, Any],
    arrays: Arrays,
    tell: Callable[[State], KnownState],
) -> None:
    """The reverse of both, into a fresh store; what no agent could have saved for this problem is refused."""
    index, states = _states_of(problem, manifest["visited"])
    here = sample_of(states, tell, visited.dimension)
    if not np.abs(here - _numbers(arrays, "visited.sample", here.shape, finite=True)).max(initial=0.0) <= SAME:
        raise InputError("it was saved with other features for the states it has visited")
    stages = []
    for stage in range(visited.stages):
        members = _members(arrays, f"visited.{stage}.member", len(states))
        shape = (len(members), visited.dimension)
        stages.append((members, _numbers(arrays, f"visited.{stage}.moment", shape, finite=True)))
    costs = _numbers(arrays, "visited.baseline_cost", (len(states), *visited.baseline_cost.shape[1:]))
    ends = _numbers(arrays, "visited.final_reward", (len(states),))
    alarms = np.asarray(arrays["visited.alarms"], dtype=np.int64).reshape(-1, 2)
    if not ((alarms[:, 1] >= 0) & (alarms[:, 1] < len(states))).all():
        raise InputError("'visited.alarms' names states that it does not list")
    visited.take(index, states, (costs, ends), alarms, stages)


def _states_of(problem: Problem, saved: dict[str, Any]) -> tuple[dict[StateKey, int], list[State]]:
    """The states that were saved, each checked against its key."""
    keys = [state_file.decode_key(key) for key in saved["keys"]]
    if problem.state_of is not None:
        states = [problem.state_of(key) for key in keys]
    else:
        states = [rebuilt(state_file.decode_key(content)) for content in saved["contents"] or saved["keys"]]
    if [problem.key_of(state) for state in states] != keys or len(set(keys)) != len(keys):
        raise InputError("its states do not have the keys they were saved under: key or state_of has changed")
    return {key: number for number, key in enumerate(keys)}, states


def _members(arrays: Arrays, name: str, states: int) -> NDArray[np.int64]:
    """Numbers of known states, none twice: they index arrays."""
    found = arrays[name]
    numbers = np.asarray(found, dtype=np.int64)
    good = found.dtype == np.int64 and numbers.ndim == 1 and len(np.unique(numbers)) == len(numbers)
    if not good or not ((numbers >= 0) & (numbers < states)).all():
        raise InputError(f"{name!r} names states that are not among the {states} it lists, or one of them twice")
    return numbers


def _numbers(arrays: Arrays, name: str, shape: tuple[int, ...], *, finite: bool = False) -> Array:
    """An array of sums, refused if its type or shape is another, or if it has entries that no sum of features has."""
    found = arrays[name]
    if found.dtype != np.float64 or found.shape != shape:
        raise InputError(f"{name!r} should be float64 of shape {shape}, but is {found.dtype} of {found.shape}")
    numbers = np.asarray(found, dtype=np.float64)
    if finite and not np.isfinite(numbers).all():
        raise InputError(f"{name!r} has entries that are not finite")
    return numbers


# Save and restore: everything that an agent's future depends on, bit for bit.


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


# Which states an agent knows, and where it keeps what it knows of them: in slots of the tables, or lean.


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


# The engine behind SLUCB-QVI and LSVI-UCB: sums, tables and a plan, with different rules plugged in.


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
