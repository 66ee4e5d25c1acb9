"""The learner as a fold over the log: outcomes in, proposals out. Deciding changes nothing."""

import hashlib
import io
import json
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from tether.agents.checks import check_step, checked_costs, checked_feature
from tether.agents.saved_agent import arrays_in
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
from tether.agents.state_file import fingerprint
from tether.check.monitor import Alarm, Monitor
from tether.errors import InputError, StateFileError, TetherError
from tether.kernels.model import ALL, STATE
from tether.kernels.ridge import observe_cost
from tether.live.gate import Gate
from tether.live.gate_facts import WeighedFacts
from tether.live.gate_terms import Terms
from tether.live.live_agent import Algorithm, LiveAgent, LiveMixer, live_agent
from tether.live.states import StateCodec
from tether.live.store import Entry
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, State, Transition

FORMAT = "tether-learner-2"
MOST_KNOWN = 4096
"""States of a table that are kept as they were looked up: checking them again takes longer than deciding."""


def live_config(problem: Problem, algorithm: Algorithm = "slucb-qvi") -> SlucbConfig:
    """The default for live use: at H = 1 a plan is one regression and made after every outcome; else it is made rarely.

    Where states are not listed, next states are kept lean, unless a snapshot could not bring them back from their keys,
    or mixtures are planned, which needs tables.
    """
    if algorithm == "rslucb-qvi":
        return SlucbConfig(explorer="plain", value_radius="unseen", value_ridge="cost", replan="on-doubling")
    if problem.horizon == 1:
        return SlucbConfig(replan="every-episode")
    if problem.states is not None or (problem.key is not None and problem.state_of is None):
        return SlucbConfig(backup="tables", replan="on-doubling")
    return SlucbConfig(backup="lean", replan="on-growth")


class Learner:
    """SLUCB-QVI, the gate's own sums and the monitor, after the outcomes of the log up to entry `seq`.

    The state is a function of those entries alone: a plan is made at the start, and after an outcome whenever one is
    due. So replicas of one log agree bit for bit, and so does a restart.
    """

    def __init__(
        self,
        problem: Problem,
        config: SlucbConfig | None = None,
        *,
        algorithm: Algorithm = "slucb-qvi",
        watch: bool = True,
        states: StateCodec | None = None,
    ) -> None:
        self.problem, self.config = problem, config or live_config(problem, algorithm)
        self.algorithm, self.states = algorithm, states or StateCodec()
        self.agent: LiveAgent | LiveMixer = live_agent(algorithm)(problem, self.config)
        if watch:
            self.agent.watch = Monitor(problem, pooled=self.config.pooled)
        self.agent.plan()
        self.gate = gate_of(self.agent)
        self.seq = 0
        self._torn = False  # an entry was begun and not finished: counting it again would make bounds too small
        self._hashes: dict[int, str] = {}
        self._known: dict[int, KnownState] = {}
        self._proposed: dict[tuple[int, int], Decision] = {}
        self._is_table = isinstance(problem.states, range)
        told = {"config": asdict(self.config), "problem": fingerprint(problem), "algorithm": algorithm}
        self._told = json.dumps(told, sort_keys=True).encode()

    @property
    def version(self) -> int:
        """Number of outcomes learned from."""
        return self.agent.data_version

    @property
    def remembers(self) -> bool:
        """Whether an outcome must say what the safe action of its state was declared to cost."""
        return self.agent.remembers

    @property
    def alarm(self) -> Alarm | None:
        """A test of the assumptions that failed, until it is reset."""
        return None if self.agent.watch is None else self.agent.watch.alarm

    def apply(self, entry: Entry) -> None:
        """Take the next entry of the log into account. Entries that teach nothing only move `seq`."""
        if entry.seq != self.seq + 1:
            raise InputError(f"entry {entry.seq} cannot follow entry {self.seq}: a log is applied without gaps.")
        if self._torn:
            raise InputError(f"entry {entry.seq} was interrupted half-way: open the log anew, in a new Advisor.")
        self._torn = True
        try:
            if entry.kind == "outcome":
                self._learn(entry.body)
            elif entry.kind == "warm-start":
                for row in entry.body["rows"]:
                    self._learn(row)
            elif entry.kind == "alarm-reset" and self.agent.watch is not None:
                self._proposed.clear()
                self.agent.watch.reset(str(entry.body["why"]))
        except (TetherError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"entry {entry.seq} ({entry.kind}) does not fit this problem: {error} Was the problem changed since? "
                "Start a new log, and hand the old data to warm_start."
            ) from error
        self.seq, self._torn = entry.seq, False

    def _learn(self, body: dict[str, Any]) -> None:
        """One outcome: into the sums of the agent (which feeds its monitor) and of the gate; then a plan, if due."""
        self._proposed.clear()  # before anything changes: an error half-way must not leave old proposals
        step, cost, reward = int(body["step"]), body["cost"], body["reward"]
        feature = np.array(body["feature"], dtype=np.float64)  # checked by whoever adds it first
        costs = None if cost is None else np.array(cost, dtype=np.float64)
        fact = None if reward is None else self._fact_in(body)
        check_step(step, self.problem.horizon)
        if reward is None:
            self._learn_cost(step, checked_feature(feature, self.problem), costs)
        else:
            state = self.states.decode(body["state"])
            # at H = 1 nothing follows: next states are logged, but would only fill tables
            after = self.states.decode(body["next_state"]) if self.problem.horizon > 1 else None
            told = None if costs is None else tuple(costs.tolist())
            self.agent.observe_with(Transition(step, state, feature, float(reward), told, after), fact)
        if costs is not None:
            self.gate.add(step, feature, costs)
        if fact is not None:
            self.gate.remember(step, *fact)
        if self.agent.plans_are_due:
            with suppress(Exception):  # the problem's functions may fail: the older plan is as safe
                self.agent.plan()
            weigh_alike(self.gate, self.agent)
        self._hashes.clear()

    def _fact_in(self, body: dict[str, Any]) -> tuple[Array, Array] | None:
        """(f (d,), τ_s (M,)) that an outcome carries, checked; None if it carries none, or if none are remembered."""
        feature, cost = body.get("safe_feature"), body.get("safe_cost")
        if not self.remembers or feature is None or cost is None:
            return None
        costs = checked_costs(tuple(cost), self.problem, needed=True)
        return None if costs is None else (checked_feature(feature, self.problem), costs)

    def _learn_cost(self, step: int, feature: Array, costs: Array | None) -> None:
        """An old row without a reward: it teaches the cost alone."""
        if costs is None or costs.shape != (self.problem.constraints,):
            raise InputError("a row without a reward needs a cost per constraint: otherwise it says nothing.")
        agent = self.agent
        stage = step if len(agent.costs.log_det) > 1 else 0
        observe_cost(agent.costs, stage, feature, costs, agent.scratch.vectors)
        agent.note_steps(1)
        if agent.watch is not None:
            agent.watch.observe(step, feature, costs)

    def look_up(self, state: State) -> KnownState:
        """What the problem says about a state. Where the problem is a table, whose entries never change, it is kept."""
        if not self._is_table or type(state) is not int:
            return self.problem.look_up(state)
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[state] = self.problem.look_up(state)
        return known

    def propose(self, step: int, state: State, known: KnownState | None = None, coin: float = 0.0) -> Decision:
        """The learner's choice with its evidence, from everything applied so far. Changes nothing.

        `known` is what the problem says about the state, if it was looked up already; `coin` in [0, 1) draws the action
        where the learner mixes. Between two outcomes the same question gets the same answer, so it is kept; the gate
        examines it every time.
        """
        if known is None:
            check_step(step, self.problem.horizon)
            known = self.look_up(state)
        if not self._is_table or type(state) is not int or self.agent.mixes:
            return self.agent.propose_at(step, state, known, coin)
        found = self._proposed.get((step, state))
        if found is None:
            if len(self._proposed) >= MOST_KNOWN:
                self._proposed.clear()
            found = self._proposed[step, state] = self.agent.propose_at(step, state, known, coin)
        return found

    def prepare(self, step: int) -> None:
        """Solve and hash now what the next decision at this step would need, and keep it: it changes no number."""
        self.gate.prepare(step)
        self.model_hash(step)

    def model_hash(self, step: int) -> str:
        """A hash of the numbers that a decision at this step is computed from: equal hashes, equal decisions."""
        found = self._hashes.get(step)
        if found is None:
            agent = self.agent
            stage = step if len(agent.costs.log_det) > 1 else 0
            digest = hashlib.sha256(self._told)
            # `owed` is of the tables, which no live decision reads; `grid` is a constant
            sums = [array for name, array in arrays_in(agent.costs, "") if "owed" not in name and name != ".grid"]
            for array in (*sums, agent.values.factor, *self.gate.arrays().values()):
                digest.update(np.ascontiguousarray(array[stage]).tobytes())
            digest.update(agent.current.weights[step].tobytes() + agent.current.made.tobytes())
            found = self._hashes[step] = digest.hexdigest()
        return found

    def to_bytes(self) -> bytes:
        """Everything that the future depends on; the same state gives the same bytes."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "agent"
            self.agent.save(path)
            with zipfile.ZipFile(path) as saved:
                files = {f"agent/{name}": saved.read(name) for name in sorted(saved.namelist())}
        for name, array in self.gate.arrays().items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            files[f"gate/{name}.npy"] = buffer.getvalue()
        watch = self.agent.watch is not None
        header = {"format": FORMAT, "seq": self.seq, "watch": watch, "told": self._told.decode()}
        files["learner.json"] = json.dumps(header, sort_keys=True).encode()
        return _packed(files)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        problem: Problem,
        config: SlucbConfig | None = None,
        *,
        algorithm: Algorithm = "slucb-qvi",
        states: StateCodec | None = None,
    ) -> Self:
        """The learner as it was. Bytes of another problem, configuration or format are refused."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                files = {name: packed.read(name) for name in packed.namelist()}
            header = json.loads(files["learner.json"])
            learner = cls(problem, config, algorithm=algorithm, watch=bool(header["watch"]), states=states)
            if header["format"] != FORMAT or header["told"] != learner._told.decode():
                raise StateFileError("the snapshot is of another problem, configuration or format.")
            learner._take(files, header)
        except (LookupError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise StateFileError(f"the snapshot is not a complete learner: {error}.") from error
        return learner

    def _take(self, files: dict[str, bytes], header: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "agent"
            inner = {name.removeprefix("agent/"): data for name, data in files.items() if name.startswith("agent/")}
            path.write_bytes(_packed(inner))
            self.agent = type(self.agent).restore(path, self.problem)
        arrays = {
            name: np.lib.format.read_array(io.BytesIO(files[f"gate/{name}.npy"]), allow_pickle=False)
            for name in self.gate.arrays()
        }
        self.gate.take(arrays)
        self.seq = int(header["seq"])


def terms_of(agent: SlucbQvi) -> Terms:
    """What the gate is told of this agent: constants of the problem, never a number that the learner computed."""
    problem, config = agent.problem, agent.config
    memory: Literal["state", "visited", "all"] = "state" if agent.rules.memory == STATE else config.condition_on
    return Terms(
        memory=memory,
        error=None if problem.baseline_cost is None else np.array(problem.baseline_cost_error),
        radius=config.cost_radius,
        reduces=config.explorer != "paper",
        threshold=np.array(problem.threshold),
        noise=np.array(problem.noise),
        gamma_norm=np.array(problem.gamma_norm),
        feature_norm=float(problem.feature_norm),
        confidence=problem.confidence,
        stages=1 if config.pooled else int(problem.horizon),
        dimension=int(problem.dimension),
        ridge=float(agent.costs.ridge),
    )


def gate_of(agent: LiveAgent | LiveMixer) -> Gate:
    """A gate before the first outcome: with the safe costs of all listed states, if they are facts from the start."""
    gate, problem = Gate(terms_of(agent)), agent.problem
    if agent.rules.memory == ALL:
        for state in problem.states or ():
            if np.isnan(problem.final_reward_of(state)):
                known = problem.look_up(state)
                for step in range(problem.horizon):
                    gate.remember(step, known.actions.phi_0, known.baseline_cost[step])
    weigh_alike(gate, agent)
    return gate


def weigh_alike(gate: Gate, agent: LiveAgent | LiveMixer) -> None:
    """Tell the gate where the learner has weighed its facts anew: any weight is valid, but both must use the same."""
    if isinstance(gate.facts, WeighedFacts):
        facts = agent.costs.facts
        for stage in np.flatnonzero(facts.used_visits != gate.facts.used_visits):
            gate.weigh(int(stage), float(facts.weight[stage]))


def _packed(files: dict[str, bytes]) -> bytes:
    """A zip file whose bytes depend on the contents alone: no times, a fixed order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return buffer.getvalue()
