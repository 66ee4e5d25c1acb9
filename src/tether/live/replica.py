"""A replica: learner and ledger after a prefix of the log. The same entries give the same replica."""

import hashlib
import io
import json
import struct
import zipfile
from base64 import b64decode, b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import isfinite, sqrt
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from tether.agents.agent import arrays_in, check_step, checked_costs, checked_feature
from tether.agents.outcome_order import CostOutcome
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig, SlucbQvi, all_facts
from tether.agents.state_file import MANIFEST, MANIFEST_HASH, SOFTWARE, fingerprint
from tether.check.monitor import Alarm, Monitor
from tether.errors import AlteredLog, InputError, StateFileError, StoreError, TetherError
from tether.kernels.model import ALL, STATE
from tether.live.binding import sketches_all
from tether.live.gate import Gate, Terms, WeighedFacts
from tether.live.log.chain import Entry, Head, Store, genesis_of, is_end
from tether.live.policy import LONGEST, Criteria, Guards, Mode
from tether.live.records import (
    EDITION,
    EVENTS,
    AlarmReset,
    Algorithm,
    Configured,
    DecisionMade,
    Event,
    GateRefused,
    Measured,
    ModeChanged,
    OutcomeLost,
    OutcomeRecorded,
    Resumed,
    StateCodec,
    Stopped,
    Tripped,
    WarmStarted,
    Withheld,
    event_of,
)
from tether.live.uplift import Uplift, cost_spans
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, State, Transition


def live_agent(algorithm: Algorithm, problem: Problem, config: SlucbConfig) -> SlucbQvi:
    """The agent behind a name. Callers of `propose` pass the coin, so that a replay draws the same actions."""
    if algorithm == "rslucb-qvi":
        return RslucbQvi(problem, config, rng=np.random.default_rng(0))
    return SlucbQvi(problem, config)


# The learner as a fold over the log: outcomes in, proposals out. Deciding changes nothing.

FORMAT = "tether-learner-4"
ANY_TIME = nullcontext()
MOST_KNOWN = 4096
"""States of a table that are kept as they were looked up: checking them again takes longer than deciding."""


def live_config(problem: Problem, algorithm: Algorithm = "slucb-qvi") -> SlucbConfig:
    """The default for live use: at H = 1 a plan is one regression and made after every outcome; else it is made rarely.

    Where states are not listed, next states are kept lean, unless a snapshot could not bring them back from their keys,
    or mixtures are planned, which needs tables. One look is enough for what was seen only where rewards are exact.
    """
    if algorithm == "rslucb-qvi" and problem.reward_noise > 0.0:
        return SlucbConfig(explorer="plain", replan="on-doubling")
    if algorithm == "rslucb-qvi":
        return SlucbConfig(explorer="plain", value_radius="unseen", value_ridge="cost", replan="on-doubling")
    if problem.horizon == 1:
        return SlucbConfig(replan="every-episode")
    if problem.states is not None or (problem.key is not None and problem.state_of is None):
        return SlucbConfig(backup="tables", replan="on-doubling")
    return SlucbConfig(backup="lean", replan="on-growth")


class Learner:
    """The agent, the gate's own sums and the monitor, after the outcomes of the log up to entry `seq`.

    The state is a function of those entries alone: a plan is made at the start, and after an outcome whenever one is
    due. So replicas of one log agree bit for bit, and so does a restart. Deciding changes nothing.
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
        self.problem, self.states = problem, states or StateCodec()
        self.config = config or live_config(problem, algorithm)
        self.agent = live_agent(algorithm, problem, self.config)
        if watch:
            self.agent.watch = Monitor(problem, pooled=self.config.pooled)
        self.agent.plan()
        self.gate = gate_of(self.agent)
        self._attach()
        self.batches: dict[str, list[Measured]] = {}  # rows of warm starts that are not complete
        self.ignored = 0  # rows that came after a decision that acts
        self.seq = 0
        self._has_turn = True  # what is counted now is the outcome of a decision; rows of a warm start are not
        self._half_way = False  # an entry was begun and not finished: counting it again would make bounds too small
        self._hashes: dict[int, str] = {}
        self._known: dict[int, KnownState] = {}
        self._proposed: dict[tuple[int, int], Decision] = {}
        self._is_table = isinstance(problem.states, range)
        self.is_listed = sketches_all(problem)
        belongs_to = {"config": asdict(self.config), "problem": fingerprint(problem), "algorithm": algorithm}
        self._belongs_to = json.dumps(belongs_to, sort_keys=True)
        self._aged()

    def _attach(self) -> None:
        """Let the gate count what the agent counts, and bounds of both hold for the same time."""
        self.agent.counted = self._count
        if self.agent.blocks is not None:
            self.agent.blocks.ahead = self.gate.ahead

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

    def apply(self, seq: int, event: Any) -> None:
        """Take the next entry of the log into account. Events that teach nothing only move `seq`."""
        if seq != self.seq + 1:
            raise InputError(f"entry {seq} cannot follow entry {self.seq}: a log is applied without gaps.")
        if self._half_way:
            raise InputError(f"entry {seq} was interrupted half-way: the log must be read anew, from a snapshot.")
        self._half_way = self._has_turn = True
        try:
            kind = type(event)
            if kind is DecisionMade:
                when, safe = event.decided_at, event.is_baseline
                costs = (limit.baseline_cost for limit in event.certificate.limits)
                told = np.array([np.nan if cost is None else cost for cost in costs])
                self.agent.expect(event.decision_id, event.step, event.feature, when, safe, told)
                stage, feature = self.agent.stage_of(event.step), np.array(event.feature)
                self.gate.turns.expect(stage, event.decision_id, feature, acts=event.acts)
                self.agent.has_acted |= event.acts
                self._keep_alarms(event)
                if self.agent.blocks is not None:
                    self.gate.tick(event.decided_at)
                    self._aged()
            elif kind is OutcomeRecorded:
                cost = None if event.cost is None else np.array(event.cost)
                self.gate.turns.come(event.decision_id, np.array(event.feature), cost)
                self.learn(event, event.decision_id)
            elif kind in (OutcomeLost, Withheld):
                # both may come of one decision, from processes that do not know of each other: the first one counts
                if self.agent.order.is_open(event.decision_id):
                    turns, is_lost = self.gate.turns, kind is OutcomeLost
                    (turns.come if is_lost else turns.withdraw)(event.decision_id)
                    (self.agent.lose if is_lost else self.agent.withdraw)(event.decision_id)
                    self._learned()
            elif kind is WarmStarted:
                self._take_batch(event)
            elif kind is AlarmReset:
                self._release_alarms(event.why)
        except (TetherError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"entry {seq} ({event and event.kind}) does not fit this problem: {error} Was the problem changed "
                "since? Start a new log, and hand the old data to warm_start."
            ) from error
        self.seq, self._half_way = seq, False

    def learn(self, row: Measured, decision_id: str | None = None) -> None:
        """One outcome: into the sums of the agent (which feeds its monitor) and of the gate; then a plan, if due.

        The cost takes effect once all decisions before this one have their outcome; old data have no decision.
        """
        self._proposed.clear()  # before anything changes: an error half-way must not leave old proposals
        self._has_turn = decision_id is not None
        feature = np.array(row.feature)  # checked by whoever adds it first
        fact = None if row.reward is None else self._fact_in(row)
        check_step(row.step, self.problem.horizon)
        if row.reward is None:
            self._learn_cost(row.step, checked_feature(feature, self.problem), row.cost)
            self._learned()
            return
        state = self.states.decode(row.state)
        # at H = 1 nothing follows: next states are logged, but would only fill tables
        after = self.states.decode(row.next_state) if self.problem.horizon > 1 else None
        self.agent.learn(Transition(row.step, state, feature, row.reward, row.cost, after, decision_id), fact)
        if fact is not None and self.agent.likelihoods is None:
            self.gate.remember(row.step, *fact)
        self._learned()

    def _count(self, outcome: CostOutcome) -> None:
        """The agent has counted an outcome: so does the gate, and takes the guess of the next one before it comes."""
        add = self.gate.add_next if self._has_turn else self.gate.add_old
        add(outcome.step, outcome.feature, outcome.cost, outcome.at)
        if self.agent.likelihoods is not None:
            self.gate.guess(outcome.step, self.agent.likelihoods.guess(self.agent.stage_of(outcome.step)))
        if outcome.fact is not None:  # in its turn, as the learner does
            self.gate.remember(outcome.step, *outcome.fact)

    def _learned(self) -> None:
        """Outcomes were counted. A plan, if one is due."""
        self._proposed.clear()
        self._aged()
        if self.agent.plans_are_due:
            # numbers fail the same way whenever the log is read, and the older plan is as safe; where the problem's
            # functions fail, this entry does: else a replay, where they do not, would decide otherwise
            with suppress(np.linalg.LinAlgError):
                self.agent.plan()
            weigh_alike(self.gate, self.agent)
        self._hashes.clear()

    def _keep_alarms(self, made: DecisionMade) -> None:
        """A decision has met a contradiction: from here on only a_0 is played at its step, by learner and gate."""
        radii = tuple(limit.radius for limit in made.certificate.limits)
        self.gate.keep_alarms(made.step, radii)
        if self.agent.keep_alarms(made.step, radii):
            self._proposed.clear()
            self._hashes.clear()

    def _release_alarms(self, why: str) -> None:
        """Somebody has looked into the alarms: the tests start anew, and contradictions must show again."""
        self._proposed.clear()
        self.gate.alarm[:] = 0
        self.agent.release_alarms(why)
        if self.agent.watch is not None:
            self.agent.watch.reset(why)
        self._learned()

    @property
    def contradiction(self) -> str:
        """Where the declared safe costs have contradicted the data, in words; empty if nowhere."""
        standing = self.agent.standing_alarms
        if not standing:
            return ""
        steps = sorted({stage for stage, _ in standing}) if self.agent.stages > 1 else []
        where = f" at step {', '.join(map(str, steps))}" if steps else ""
        names = ", ".join(dict.fromkeys(self.problem.names.constraint(j) for _, j in standing))
        return f"the declared safe costs contradict the recorded {names}{where}, so that only a_0 is played there"

    def outdated(self, made: DecisionMade, now: float) -> str:
        """Why the bounds of a decision no longer hold: costs drift, and too many others were made since, or too much
        time has passed. Else empty.

        Those of what was proposed, so that both arms of a comparison leave, or do not, alike.
        """
        drift, blocks = (made.proposal or made.certificate).limits[0].drift, self.agent.blocks
        if drift is None or blocks is None:
            return ""
        if blocks.per_second:
            late = now - drift.until
            return "" if late <= 0.0 else f"costs drift: its bounds held up to {drift.until:.3f}, {late:.3f} s ago"
        if blocks.clock[0] - 1.0 <= drift.until:
            return ""
        return f"costs drift: its bounds hold up to decision {drift.until:g}, but {blocks.clock[0]:g} have been made"

    def at(self, time: float) -> AbstractContextManager[None]:
        """What is proposed and examined within is for a decision at this time. It matters where drift is per second."""
        return self._at(time) if self.agent.blocks is not None and self.agent.blocks.per_second else ANY_TIME

    @contextmanager
    def _at(self, time: float) -> Iterator[None]:
        self._proposed.clear()
        try:
            with self.agent.at(time):
                self.gate.look_at(time)
                yield
        finally:
            self._proposed.clear()
            self.gate.look_at(None)

    def _aged(self) -> None:
        """Where costs drift, bounds change with every decision: tell the gate which block they rest on now."""
        if self.agent.blocks is not None:
            self._proposed.clear()
            self._hashes.clear()
            for stage in range(self.agent.stages):
                window, since, _ = self.agent.blocks.span(stage)
                self.gate.use(stage, window, since)

    def _take_batch(self, part: WarmStarted) -> None:
        """Old data take effect as a whole: rows wait for the last entry of their warm start.

        Once a decision acts they come too late, and never count: it has rested on a part of them, chosen by whoever
        handed them over (docs/guarantee.md). The process that wrote them says so.
        """
        rows = self.batches.setdefault(part.batch, [])
        rows += part.rows
        if part.last:
            for batch in (*part.completes, part.batch):
                for row in self.batches.pop(batch, ()):  # another may have completed it
                    if self.agent.has_acted:
                        self.ignored += 1
                    else:
                        self.learn(row)

    def _fact_in(self, row: Measured) -> tuple[Array, Array] | None:
        """(f (d,), τ_s (M,)) that an outcome carries, checked; None if it carries none, or if none are remembered."""
        if not self.remembers or row.safe_feature is None or row.safe_cost is None:
            return None
        costs = checked_costs(row.safe_cost, self.problem, needed=True)
        return None if costs is None else (checked_feature(row.safe_feature, self.problem), costs)

    def _learn_cost(self, step: int, feature: Array, cost: tuple[float, ...] | None) -> None:
        """An old row without a reward: it teaches the cost alone."""
        if cost is None or len(cost) != self.problem.constraints:
            raise InputError("a row without a reward needs a cost per constraint: otherwise it says nothing.")
        self.agent.learn_cost(CostOutcome(step, feature, np.array(cost)))

    def look_up(self, state: State) -> KnownState:
        """What the problem says about a state. Where the problem is a table, whose entries never change, it is kept.

        Where costs drift, what was declared of them before is no fact now.
        """
        if not self._is_table or type(state) is not int or self.agent.blocks is not None:
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
            return self.agent.propose(step, state, known, coin)
        found = self._proposed.get((step, state))
        if found is None:
            if len(self._proposed) >= MOST_KNOWN:
                self._proposed.clear()
            found = self._proposed[step, state] = self.agent.propose(step, state, known, coin)
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
            stage = agent.stage_of(step)
            digest = hashlib.sha256(self._belongs_to.encode())
            # `owed` is of the tables, which no live decision reads
            sums = [array for name, array in arrays_in(agent.costs, "") if "owed" not in name]
            for array in (*sums, agent.values.factor, *self.gate.arrays().values()):
                digest.update(np.ascontiguousarray(array[stage]).tobytes())
            if agent.likelihoods is not None:
                cells = slice(agent.likelihoods.cell(stage, 0), agent.likelihoods.cell(stage + 1, 0))
                for _, array in arrays_in(agent.likelihoods.trials, ""):
                    digest.update(array[cells].tobytes())
            digest.update(agent.current.weights[step].tobytes() + agent.current.made.tobytes())
            found = self._hashes[step] = digest.hexdigest()
        return found

    def to_bytes(self) -> bytes:
        """Everything that the future depends on; the same state gives the same bytes."""
        buffer = io.BytesIO()  # no file: there may be no place for one
        self.agent.save(buffer)
        with zipfile.ZipFile(buffer) as saved:
            files = {f"agent/{name}": saved.read(name) for name in sorted(saved.namelist())}
        for name, array in self.gate.arrays().items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            files[f"gate/{name}.npy"] = buffer.getvalue()
        header = {
            "format": FORMAT,
            "seq": self.seq,
            "watch": self.agent.watch is not None,
            "ignored": self.ignored,
            "acted": self.gate.turns.has_acted,
            "told": self._belongs_to,
            "batches": {batch: [row.model_dump(mode="json") for row in rows] for batch, rows in self.batches.items()},
        }
        files["learner.json"] = json.dumps(header, sort_keys=True).encode()
        return _packed(files)

    def restored(self, data: bytes) -> Self:
        """Fill a fresh learner with what was saved. Bytes of another problem, configuration or format are a
        StateFileError, after which it is of no use."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                files = {name: packed.read(name) for name in packed.namelist()}
            header = json.loads(files["learner.json"])
            if header["format"] != FORMAT or header["told"] != self._belongs_to:
                raise StateFileError("the snapshot is of another problem, configuration or format.")
            agent = {name.removeprefix("agent/"): files[name] for name in files if name.startswith("agent/")}
            self.agent = type(self.agent).restore(io.BytesIO(_packed(agent)), self.problem)
            self._attach()
            self.gate.take(
                {
                    name: np.lib.format.read_array(io.BytesIO(files[f"gate/{name}.npy"]), allow_pickle=False)
                    for name in self.gate.arrays()
                }
            )
            self.ignored, acted = int(header["ignored"]), bool(header["acted"])
            for id, each in self.agent.order.each():
                self.gate.turns.expect(self.agent.stage_of(each.step), id, each.feature, acts=False)
                if each.outcome is not None:
                    self.gate.turns.come(id, each.outcome.feature, each.outcome.cost)
            self.gate.turns.has_acted = acted
            self.batches = {
                batch: [Measured.model_validate(row, strict=False) for row in rows]
                for batch, rows in header["batches"].items()
            }
            self.seq = int(header["seq"])
        except (LookupError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise StateFileError(f"the snapshot is not a complete learner: {error}.") from error
        return self


def reward_estimate(agent: SlucbQvi, step: int) -> Array:
    """θ̂_h = A_h^{-1} Σ rφ, (d,): the ridge estimate of the reward."""
    stage = agent.stage_of(step)
    factor = agent.values.factor[stage]  # U, A = UᵀU
    estimate: Array = np.linalg.solve(factor, np.linalg.solve(factor.T, agent.values.reward_moment[stage]))
    return estimate


def terms_of(agent: SlucbQvi) -> Terms:
    """What the gate knows of this agent: constants of the problem, never a number that the learner computed."""
    problem, config = agent.problem, agent.config
    memory: Literal["state", "visited", "all"] = "state" if agent.rules.memory == STATE else config.condition_on
    return Terms(
        memory=memory,
        error=None if problem.baseline_cost is None else np.array(problem.baseline_cost_error),
        misfit=np.array(problem.misfit),
        exceedance=problem.exceedance if problem.limit == "realised" else None,
        noise_scales=problem.noise_scales,
        radius=config.cost_radius,
        reduces=config.explorer != "paper",
        threshold=np.array(problem.threshold),
        noise=np.array(problem.noise),
        gamma_norm=np.array(problem.gamma_norm),
        cost_range=np.array(problem.cost_range) if problem.lost == "worst-case" else None,
        bounded=tuple(np.flatnonzero(problem.bounded).tolist()),
        feature_norm=float(problem.feature_norm),
        confidence=problem.confidence,
        stages=agent.stages,
        dimension=int(problem.dimension),
        ridge=float(agent.costs.ridge),
        drift=np.array(problem.drift) if any(problem.drift) else None,
        drift_per=problem.drift_per,
        listed=problem.listed_features() if any(problem.bounded) else None,
    )


def gate_of(agent: SlucbQvi) -> Gate:
    """A gate before the first outcome: with the safe costs of all listed states, if they are facts from the start."""
    gate, problem = Gate(terms_of(agent)), agent.problem
    if agent.rules.memory == ALL:
        for known in all_facts(problem):
            for step in range(problem.horizon):
                gate.remember(step, known.actions.phi_0, known.baseline_cost[step])
    weigh_alike(gate, agent)
    return gate


def weigh_alike(gate: Gate, agent: SlucbQvi) -> None:
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


REMEDY = "report it, or declare it lost"
"""What to do about a decision whose outcome others wait for."""

# The ledger: what the log says about mode, switch, guards and counts. A fold, like the learner.


@dataclass
class Counts:
    """Counts since some point of the log. `excess` (M,) sums cost − bound over `compared` outcomes.

    `over_by_itself` counts played actions that were drawn and whose own bound is over τ. The `drawn` ones among the
    compared had a bound on a mixture's mean; `square` (M,) sums (cost − bound)² over them.
    """

    decisions: int = 0
    baseline: int = 0
    proposed: int = 0
    refusals: int = 0
    over_by_itself: int = 0
    outcomes: int = 0
    costs: int = 0
    compared: int = 0
    drawn: int = 0
    excess: list[float] = field(default_factory=list)
    square: list[float] = field(default_factory=list)

    def decided(self, made: DecisionMade) -> None:
        """One decision more."""
        self.decisions += 1
        self.baseline += made.is_baseline
        self.proposed += made.proposal is not None or not made.is_baseline
        self.over_by_itself += made.certificate.is_over_by_itself

    def seen(self, outcome: "OutcomeRecorded | Seen") -> None:
        """One outcome more."""
        self.outcomes += 1
        self.costs += outcome.cost is not None
        if outcome.cost is not None and outcome.bound is not None:
            self.compared += 1
            self.drawn += outcome.drawn
            for j, (z, limit) in enumerate(zip(outcome.cost, outcome.bound, strict=True)):
                self.excess[j] += z - limit
                self.square[j] += (z - limit) ** 2 if outcome.drawn else 0.0


class Seen(NamedTuple):
    """An outcome in short, as it waits for its turn: what it adds to the counts, and to the comparison."""

    id: str
    reward: float | None = None
    cost: tuple[float, ...] | None = None
    bound: tuple[float, ...] | None = None
    drawn: bool = False
    rests_on: int = 0
    is_lost: bool = False


class Turns:
    """Outcomes take effect in the order of their decisions, stage by stage, as costs do: what came early waits."""

    def __init__(self) -> None:
        self.queues: dict[int, OrderedDict[str, Seen | None]] = {}

    def expect(self, stage: int, id: str) -> None:
        """A decision was made."""
        self.queues.setdefault(stage, OrderedDict())[id] = None

    def come(self, seen: Seen) -> list[Seen]:
        """An outcome has come, or is lost; returns all that take effect now. One of an unknown decision does so."""
        for queue in self.queues.values():
            if seen.id in queue:
                queue[seen.id] = queue[seen.id] or seen
                return self._due(queue)
        return [] if seen.is_lost else [seen]

    def withdraw(self, id: str) -> list[Seen]:
        """A decision did not leave; returns all that take effect now."""
        for queue in self.queues.values():
            if id in queue and queue[id] is None:
                del queue[id]
                return self._due(queue)
        return []

    def _due(self, queue: OrderedDict[str, Seen | None]) -> list[Seen]:
        due = list[Seen]()
        while queue and (first := next(iter(queue.values()))) is not None:
            queue.popitem(last=False)
            due.append(first)
        return due

    def behind(self) -> tuple[int, list[str]]:
        """How many outcomes wait for their turn, and the decisions that they wait for."""
        waiting, first = 0, list[str]()
        for _, queue in sorted(self.queues.items()):
            here = sum(seen is not None for seen in queue.values())
            waiting += here
            first += list(islice(queue, 1)) if here else []
        return waiting, first

    def to_json(self) -> list[list[Any]]:
        """Everything, in order."""
        return [[stage, id, seen] for stage, queue in sorted(self.queues.items()) for id, seen in queue.items()]

    def take_json(self, saved: list[list[Any]]) -> None:
        """The reverse of `to_json`."""
        for stage, id, seen in saved:
            self.expect(stage, id)
            if seen is not None:
                _, reward, cost, bound, *rest = seen
                cost, bound = (None if each is None else tuple(each) for each in (cost, bound))
                self.queues[stage][id] = Seen(id, reward, cost, bound, *rest)


class Window:
    """The last `LONGEST` numbers, so that a window can be set or widened later, and the sum of the last `size` of them.

    The sum is an exact integer, in units of the smallest double: what leaves the window leaves nothing behind, neither
    rounding nor a hole where something huge has passed, and the sum is a function of the window's content alone. Where
    the numbers are integers ("u1"), they are the units.
    """

    def __init__(self, size: int, dtype: str = "<f8") -> None:
        self.size, self.dtype, self.values = size, dtype, deque[float](maxlen=LONGEST + 1)
        self._units, self._unit = 0, 1 if dtype == "u1" else UNIT
        self._in_units: Callable[[float], int] = int if dtype == "u1" else in_units

    def append(self, value: float) -> None:
        """One number more; the oldest one leaves the window."""
        self.values.append(value)
        self._units += self._in_units(value)
        if len(self.values) > self.size:
            self._units -= self._in_units(self.values[-1 - self.size])

    def resize(self, size: int) -> None:
        """Look at the last `size` numbers from now on."""
        if size != self.size:
            self.size = size
            self._units = sum(map(self._in_units, islice(reversed(self.values), size)))

    def sum(self) -> float:
        """The sum over the window, rounded once."""
        return self._units / self._unit

    def to_text(self) -> str:
        """The numbers in base 64: JSON takes far longer for them, and more room."""
        return b64encode(np.fromiter(self.values, self.dtype, len(self.values)).tobytes()).decode()

    def take_text(self, text: str) -> None:
        """The reverse of `to_text`."""
        self.values.extend(np.frombuffer(b64decode(text), self.dtype).tolist())
        self._units = sum(map(self._in_units, islice(reversed(self.values), self.size)))


UNIT = 2**1074
"""How many of the smallest double make 1."""


def in_units(value: float) -> int:
    """A double as an integer, in units of the smallest one."""
    top, bottom = value.as_integer_ratio()  # the latter a power of two
    return top << (UNIT.bit_length() - bottom.bit_length())


class Ledger:
    """Everything but the learner that a decision depends on, after the entries of the log so far.

    `stopped` and `tripped` are the events that did it, None while nothing did. `recent` holds 1 for each of the last
    decisions that did not play a_0, `spent` (M,) the costs of the last outcomes (all of them: `total`), `latest` the
    newest time of a decision, `certified` the share of D(s) that was certified when last looked at. `began` is the
    entry that set `since` to zero: decisions that rest on an older one belong to the time before. `orders` counts what
    people ordered, which tells whether an order was given since the ledger was read. `uplift` compares the canary's two
    arms since then. `turns` holds what came early: counts since a change, and comparisons, are of outcomes that
    took effect. `open` holds, for each decision without an outcome, what it may cost at most (M,); `over` (M,)
    counts measured costs above τ. `surplus` holds the decisions that are one too many at their place in the log, by the
    guard and its reason, until the log says that they did not leave: each process counts what it has read.
    """

    def __init__(self, threshold: tuple[float, ...]) -> None:
        self.threshold, self._finite_threshold = threshold, [min(tau, 1e300) for tau in threshold]
        self.mode: Mode = "shadow"
        self.stopped: Stopped | None = None
        self.tripped: Tripped | None = None
        self.alarms = 0
        self.orders = 0
        self.latest = 0.0
        self.certified = 0.0
        self.settings: Configured | None = None
        self.guards = Guards()
        self.recent = Window(self.guards.rate_window - 1, "u1")
        self.spent = tuple(Window(0) for _ in threshold)
        self.total = [0.0] * len(threshold)
        self.over = [0] * len(threshold)
        self.open: dict[str, list[float]] = {}
        self.surplus: dict[str, tuple[str, str]] = {}
        self._open_units = [0] * len(threshold)  # their sums, exact as in a `Window`
        self.ever, self.since, self.began = self._zero(), self._zero(), 0
        self.uplift = Uplift()
        self.turns = Turns()
        self._folds: dict[type, Callable[[int, Any], None]] = {
            DecisionMade: self._decided,
            OutcomeRecorded: self._seen,
            OutcomeLost: self._lost,
            Withheld: self._withheld,
            GateRefused: self._refused,
            ModeChanged: self._mode_changed,
            Stopped: self._stopped,
            Resumed: self._resumed,
            Tripped: self._tripped,
            AlarmReset: self._alarm_reset,
            Configured: self._configured,
        }

    def _zero(self) -> Counts:
        return Counts(excess=[0.0] * len(self.threshold), square=[0.0] * len(self.threshold))

    def apply(self, seq: int, event: Event | None) -> None:
        """Take the next entry of the log into account: one method for each kind of event that matters here."""
        fold = self._folds.get(type(event))
        if fold is not None:
            fold(seq, event)

    def _decided(self, _: int, made: DecisionMade) -> None:
        self.ever.decided(made)
        if made.certificate.seq >= self.began:
            self.since.decided(made)
            if made.canary is not None:
                if self.uplift.ended:
                    self._compare_anew()
                self.uplift.expect(made.decision_id, made.canary, played=not made.is_baseline)
        if not made.is_baseline or made.canary is not None:  # the canary's two arms leave, or do not, alike
            bounds = tuple(limit.bound for limit in (made.proposal or made.certificate).limits)
            too_many = self.too_many(bounds)
            if too_many[0]:
                self.surplus[made.decision_id] = too_many
        self.recent.append(int(not made.is_baseline))
        self._expect(made.decision_id, [limit.bound for limit in made.certificate.limits])
        pooled = self.settings is not None and self.settings.config.get("pooled")
        self.turns.expect(0 if pooled else made.step, made.decision_id)
        if made.certified is not None:
            self.certified = made.certified
        if made.decided_at is not None:
            self.latest = max(self.latest, made.decided_at)

    def _seen(self, _: int, outcome: OutcomeRecorded) -> None:
        self.ever.seen(outcome)
        self._settle(outcome.decision_id)
        self._spend(outcome.cost)
        o = outcome
        self._take_effect(self.turns.come(Seen(o.decision_id, o.reward, o.cost, o.bound, o.drawn, o.rests_on)))

    def _lost(self, _: int, lost: OutcomeLost) -> None:
        if self._settle(lost.decision_id):
            self._spend(None)
        self._take_effect(self.turns.come(Seen(lost.decision_id, is_lost=True)))

    def _take_effect(self, outcomes: list[Seen]) -> None:
        """It is the turn of these: what people are shown as evidence is what the learner has learned from."""
        for seen in outcomes:
            if not seen.is_lost and seen.rests_on >= self.began:
                self.since.seen(seen)
            self.uplift.settle(seen.id, seen.reward, seen.cost)

    def _expect(self, id: str, bounds: list[float]) -> None:
        """A decision costs its bound at most; where that is unknown, as of a_0 without a declared cost, τ."""
        known = [bound if bound <= tau else tau for bound, tau in zip(bounds, self._finite_threshold, strict=True)]
        self.open[id] = known
        for j, bound in enumerate(known):
            self._open_units[j] += in_units(bound)

    def _settle(self, id: str) -> bool:
        """Whether this decision had no outcome until now."""
        self.surplus.pop(id, None)
        bounds = self.open.pop(id, None)
        for j, bound in enumerate(bounds or ()):
            self._open_units[j] -= in_units(bound)
        return bounds is not None

    def _spend(self, cost: Sequence[float] | None) -> None:
        """A cost was measured; None was not, and counts as τ."""
        for j, z in enumerate(self._finite_threshold if cost is None else cost):
            self.spent[j].append(z)
            self.total[j] += z
            self.over[j] += cost is not None and z > self.threshold[j]

    def _withheld(self, _: int, note: Withheld) -> None:
        self._settle(note.decision_id)  # what acted in its place is in no log
        self.ever.baseline += not note.is_baseline  # what acted was a_0
        self.since.baseline += not note.is_baseline
        self.uplift.withdraw(note.decision_id)
        self._take_effect(self.turns.withdraw(note.decision_id))

    def _begin(self, seq: int) -> None:
        """Count from here on."""
        self.since, self.began = self._zero(), seq
        self.uplift.end()

    def _compare_anew(self) -> None:
        spans = () if self.settings is None else cost_spans(self.settings.problem)
        self.uplift = self.uplift.anew(self.guards.reward_range, spans)

    def _refused(self, _: int, refused: GateRefused) -> None:
        self.ever.refusals += 1
        self.since.refusals += 1

    def _mode_changed(self, seq: int, order: ModeChanged) -> None:
        self.orders += 1
        self.mode = order.mode
        self._begin(seq)

    def _stopped(self, _: int, order: Stopped) -> None:
        self.orders += 1
        self.stopped = order

    def _resumed(self, _: int, order: Resumed) -> None:
        self.orders += 1
        self.stopped, self.latest = None, 0.0  # a person who resumes has looked at the clock, too

    def _tripped(self, _: int, alarm: Tripped) -> None:
        self.tripped, self.alarms = alarm, max(self.alarms, alarm.number + 1)

    def _alarm_reset(self, seq: int, order: AlarmReset) -> None:
        self.orders += 1
        self.tripped = None
        self._begin(seq)

    def _configured(self, _: int, settings: Configured) -> None:
        before, self.settings, self.guards = self.settings, settings, Guards.from_json(settings.guards)
        if before is None or before.guards.get("reward_range") != settings.guards.get("reward_range"):
            self._compare_anew()
        self.recent.resize(self.guards.rate_window - 1)  # the decision that is asked about is the last of its window
        for window in self.spent:
            window.resize(self.guards.budget_window or 0)

    def in_window(self) -> tuple[float, ...]:
        """The sum of observed costs (M,) that the budget looks at."""
        if self.guards.budget_window is None:
            return tuple(self.total)
        return tuple(window.sum() for window in self.spent)

    def claimed(self, under_way: int) -> tuple[float, ...]:
        """What is spent of the budget, or may be (M,): observed costs, bounds of decisions without an outcome, and τ
        for each of those `under_way`."""
        parts = zip(self.in_window(), self._open_units, self.threshold, strict=True)
        return tuple(spent + owed / UNIT + under_way * tau for spent, owed, tau in parts)

    def others(self) -> int:
        """How many of the decisions before the next one, in its window, did not play a_0."""
        return int(self.recent.sum())

    def too_many(self, bounds: tuple[float, ...], under_way: int = 0) -> tuple[str, str]:
        """The guard, and why, by which one more decision other than a_0, with these bounds (M,), is one too many."""
        if rate := self.guards.over_rate(self.mode, self.others() + under_way):
            return "rate", rate
        if self.guards.budget is not None and (why := self.guards.over_budget(self.claimed(under_way), bounds)):
            return "budget", why
        return "", ""

    def unmet(
        self, criteria: Criteria, noise: tuple[float, ...], alarm: str, mode: Mode = "guarded"
    ) -> tuple[str, ...]:
        """Each criterion for this mode that the log does not meet, with its value and its limit."""
        since, found = self.since, []
        if alarm:
            found.append(f"an alarm is on ({alarm}): reset_alarm first")
        if self.stopped is not None:
            found.append("the kill switch is on: resume first")
        waiting, first = self.turns.behind()
        behind = f" ({waiting} more wait for the outcome of decision {', '.join(first)}: {REMEDY})" if waiting else ""
        if since.outcomes < criteria.outcomes:
            found.append(
                f"{since.outcomes} outcomes took effect in this mode, the least is {criteria.outcomes}{behind}"
            )
        answered = since.outcomes / since.decisions if since.decisions else 0.0
        if answered < criteria.answered:
            found.append(
                f"{answered:.2f} of the decisions have an outcome that took effect, the least share is "
                f"{criteria.answered:.2f}"
            )
        costs = since.costs / since.outcomes if since.outcomes else 0.0
        if costs < criteria.costs:
            found.append(f"{costs:.2f} of the outcomes have a cost, the least share is {criteria.costs:.2f}")
        if since.refusals > criteria.refusals:
            found.append(f"{since.refusals} refusals by the gate, the most is {criteria.refusals}")
        for j, sigma in enumerate(noise):
            if since.compared and isfinite(criteria.excess):
                mean = since.excess[j] / since.compared
                # noise alone, but for what was drawn, which scatters around its mixture's mean as well
                scatter = (since.compared - since.drawn) * sigma**2 + max(since.drawn * sigma**2, since.square[j])
                limit = criteria.excess * sqrt(scatter) / since.compared
                if not mean <= limit:
                    found.append(
                        f"cost {j} exceeded its bounds by {mean:.4g} on average over {since.compared} outcomes, the "
                        f"most is {limit:.4g}"
                    )
        if mode == "live" and criteria.uplift is not None:
            found += filter(None, [self.uplift.unmet(criteria.uplift)])
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        plain = {name: getattr(self, name) for name in PLAIN}
        events = {name: None if (event := getattr(self, name)) is None else event.model_dump() for name in HELD}
        windows: dict[str, Any] = {
            "recent": self.recent.to_text(),
            "spent": [window.to_text() for window in self.spent],
        }
        windows["turns"] = self.turns.to_json()
        counts = {"ever": asdict(self.ever), "since": asdict(self.since), "uplift": self.uplift.to_json()}
        surplus = {"surplus": self.surplus} if self.surplus else {}  # hardly ever, and older snapshots have none
        return {**plain, **events, **windows, **counts, "open": self.open, **surplus}

    @classmethod
    def from_json(cls, threshold: tuple[float, ...], saved: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        ledger = cls(threshold)
        if saved["settings"] is not None:
            ledger._configured(0, Configured(**saved["settings"]))
        for name in PLAIN:
            setattr(ledger, name, saved[name])
        ledger.stopped = None if saved["stopped"] is None else Stopped(**saved["stopped"])
        ledger.tripped = None if saved["tripped"] is None else Tripped(**saved["tripped"])
        ledger.ever, ledger.since = Counts(**saved["ever"]), Counts(**saved["since"])
        ledger.uplift = Uplift.from_json(saved["uplift"])
        ledger.recent.take_text(saved["recent"])
        for window, text in zip(ledger.spent, saved["spent"], strict=True):
            window.take_text(text)
        for id, bounds in saved["open"].items():
            ledger._expect(id, bounds)
        ledger.turns.take_json(saved["turns"])
        ledger.surplus = {id: (guard, why) for id, (guard, why) in saved.get("surplus", {}).items()}
        return ledger


PLAIN = ("mode", "alarms", "orders", "latest", "certified", "total", "over", "began")
HELD = ("settings", "stopped", "tripped")


# The replica: both, and where in the chain they stand. Restart is a snapshot and a replay, equal bit for bit.

PAGE = 1000


class Replica:
    """The fold over the log up to `head`."""

    def __init__(self, learner: Learner, genesis: str) -> None:
        self.learner, self.ledger = learner, Ledger(learner.problem.threshold)
        self.head = Head(0, genesis)
        self.saved_at = 0  # the entry after which it was last saved

    def apply(self, entry: Entry, event: Event | None = None) -> None:
        """Take the next entry into account, refused if it does not continue the chain; `event` is what it holds, if
        that is at hand. Kinds that this version does not know change nothing."""
        if entry.seq != self.head.seq + 1 or entry.previous != self.head.hash:
            raise AlteredLog(
                f"entry {entry.seq} does not continue the log after entry {self.head.seq}: run `tether audit verify`.",
                entry.seq,
            )
        if event is None and entry.kind in EVENTS:
            event = event_of(entry)
        if isinstance(event, OutcomeRecorded) and not self.learner.agent.order.is_open(event.decision_id):
            event = None  # a second one, of a process that slept until the first was archived, and its key with it
        self.learner.apply(entry.seq, event)
        self.ledger.apply(entry.seq, event)
        self.head = Head(entry.seq, entry.hash)

    def catch_up(self, store: Store, until: int | None = None) -> int:
        """Apply what the log holds beyond this replica (up to entry `until`); returns how many entries that was."""
        before = self.head.seq
        while until is None or self.head.seq < until:
            limit = PAGE if until is None else min(PAGE, until - self.head.seq)
            try:
                page = store.read(self.head.seq, limit)
            except StoreError:
                raise
            except Exception as error:  # not to be taken for one of the problem's functions
                raise StoreError.of(error) from error
            for entry in page:
                self.apply(entry.genuine())
            if is_end(page, limit):
                break
        return self.head.seq - before

    @property
    def alarm(self) -> str:
        """The alarm that is on, in words; empty if none is."""
        if self.learner.alarm is not None:
            return str(self.learner.alarm)
        return "" if self.ledger.tripped is None else self.ledger.tripped.message

    @property
    def alarms(self) -> str:
        """The same, or else the standing alarms of single steps, which leave the others as they are."""
        return self.alarm or self.learner.contradiction

    def to_bytes(self) -> bytes:
        """A snapshot; the same state gives the same bytes."""
        header = json.dumps({"head": self.head, "ledger": self.ledger.to_json()}, sort_keys=True).encode()
        return struct.pack(">Q", len(header)) + header + self.learner.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, fresh: Learner) -> Self:
        """The reverse of `to_bytes`, into a fresh learner. Bytes that do not fit it are a StateFileError."""
        replica = cls(fresh, "")
        try:
            (size,) = struct.unpack(">Q", data[:8])
            header: dict[str, Any] = json.loads(data[8 : 8 + size])
            replica.ledger = Ledger.from_json(fresh.problem.threshold, header["ledger"])
            replica.head = Head(*header["head"])
            replica.saved_at = replica.head.seq
        except (struct.error, LookupError, ValueError, TypeError) as error:
            raise StateFileError(f"the snapshot is not complete: {error}.") from error
        fresh.restored(data[8 + size :])
        return replica


def checkpoint_of(snapshot: bytes) -> tuple[str, str]:
    """(SHA-256 of a snapshot but for the names of the software that wrote it, the version of Tether among those)."""
    (size,) = struct.unpack(">Q", snapshot[:8])
    digest = hashlib.sha256(snapshot[: 8 + size])
    with zipfile.ZipFile(io.BytesIO(snapshot[8 + size :])) as packed:
        manifest = json.loads(packed.read(f"agent/{MANIFEST}"))
        names = [manifest.pop(name) for name in SOFTWARE]
        digest.update(json.dumps(manifest, sort_keys=True).encode())
        for name in sorted(packed.namelist()):
            if name not in (f"agent/{MANIFEST}", f"agent/{MANIFEST_HASH}"):
                digest.update(name.encode() + packed.read(name))
    return digest.hexdigest(), names[0]


def settings_of(store: Store) -> Configured | None:
    """What the log was started with, None if it is empty: its first entry says so."""
    first = next((entry.genuine() for entry in store.read(0, 1)), None)
    if first is None:
        return None
    if first.kind != Configured.kind:
        raise InputError(
            f"this log begins with a {first.kind!r} entry, not with a configuration: it was not written by an "
            "Advisor. Give the Advisor a log of its own."
        )
    if first.body.get("edition") != EDITION:
        raise InputError(
            "this log was started by another version of Tether, whose entries mean something else. `tether audit "
            "migrate` takes what a log of edition 3 or 4 measured into a new one; else start a new log, and hand the "
            "old data to warm_start."
        )
    return Configured.read(first)


def load(store: Store, learner: Callable[[], Learner]) -> Replica:
    """The replica at the end of the log: the newest snapshot that can be used, and what came after it."""
    replica: Replica | None = None
    snapshot = store.latest_snapshot()
    if snapshot is not None:
        with suppress(StateFileError):  # of an older version, say: the log alone decides, a snapshot only saves time
            found = Replica.from_bytes(snapshot.data, learner())
            replica = found if found.head.seq == snapshot.seq else None
    if replica is None:
        replica = Replica(learner(), genesis_of(store.identity()))
    replica.catch_up(store)
    return replica
