"""The learner of a live system: agent, gate and monitor as they stand after a prefix of the log.

It is a fold: outcomes go in, proposals come out, and deciding changes nothing. Nothing here takes a lock: the follower
of the log (`following.py`) holds its own while it calls `apply`.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from tether.agents.agent import arrays_in, check_step, checked_costs, checked_feature
from tether.agents.outcome_order import CostOutcome
from tether.agents.slucb import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.check.monitor import Alarm, Monitor
from tether.errors import InputError, StateFileError, TetherError
from tether.live.binding import sketches_all
from tether.live.gate_terms import gate_of, weigh_alike
from tether.live.live_agent import live_agent, live_config
from tether.live.records import (
    AlarmReset,
    Algorithm,
    DecisionMade,
    Measured,
    OutcomeLost,
    OutcomeRecorded,
    WarmStarted,
    Withheld,
)
from tether.live.snapshot_files import packed_learner, unpacked_learner
from tether.live.states import StateCodec
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, State, Transition

FORMAT = "tether-learner-4"
"""Name and version of a saved learner."""

ANY_TIME = nullcontext()

MAX_KEPT_STATES = 4096
"""States of a table whose facts and proposals are kept: to check them again takes longer than to decide."""


class Learner:
    """Hold the agent, the gate's own sums and the monitor after entry `seq` of the log.

    The state depends on those entries alone: a plan is made at the start, and after an outcome when one is due. So
    replicas of one log agree bit for bit, and so does a restart. Deciding changes nothing.
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
        self._facts: dict[tuple[Any, Any], tuple[Array, Array]] = {}  # facts that were checked
        self._proposed: dict[tuple[int, int], Decision] = {}
        self._is_table = isinstance(problem.states, range)
        self.is_listed = sketches_all(problem)
        belongs_to = {"config": asdict(self.config), "problem": fingerprint(problem), "algorithm": algorithm}
        self._belongs_to = json.dumps(belongs_to, sort_keys=True)
        self._aged()

    def _attach(self) -> None:
        """Connect the gate to the agent: both count the same outcomes, and their bounds hold equally long."""
        self.agent.counted = self._count
        if self.agent.blocks is not None:
            self.agent.blocks.ahead = self.gate.ahead

    @property
    def version(self) -> int:
        """Return the number of outcomes learned from."""
        return self.agent.data_version

    @property
    def remembers(self) -> bool:
        """Return whether outcomes must carry the declared cost of their state's safe action."""
        return self.agent.remembers

    @property
    def alarm(self) -> Alarm | None:
        """Return the test of the assumptions that failed, until it is reset."""
        return None if self.agent.watch is None else self.agent.watch.alarm

    def apply(self, seq: int, event: Any) -> None:
        """Take the next entry of the log into account.

        Args:
            seq: place of the entry, one after the last.
            event: what it holds; an event that teaches nothing only moves `seq`.

        Raises:
            InputError: the entry does not follow, or does not fit the problem.
        """
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
        """Learn from one outcome, and plan if a plan is due. Old data have no `decision_id`.

        The cost takes effect once all decisions before this one have their outcome.
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
        """Count in the gate what the agent has counted, and take its guess of the next outcome."""
        add = self.gate.add_next if self._has_turn else self.gate.add_old
        add(outcome.step, outcome.feature, outcome.cost, outcome.at)
        if self.agent.likelihoods is not None:
            self.gate.guess(outcome.step, self.agent.likelihoods.guess(self.agent.stage_of(outcome.step)))
        if outcome.fact is not None:  # in its turn, as the learner does
            self.gate.remember(outcome.step, *outcome.fact)

    def _learned(self) -> None:
        """Forget what rested on fewer outcomes, and plan if a plan is due."""
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
        """Keep the alarms that a decision has met: learner and gate play only a_0 at its step."""
        radii = tuple(limit.radius for limit in made.certificate.limits)
        self.gate.keep_alarms(made.step, radii)
        if self.agent.keep_alarms(made.step, radii):
            self._proposed.clear()
            self._hashes.clear()

    def _release_alarms(self, why: str) -> None:
        """Start the tests anew after a person has looked into the alarms."""
        self._proposed.clear()
        self.gate.alarm[:] = 0
        self.agent.release_alarms(why)
        if self.agent.watch is not None:
            self.agent.watch.reset(why)
        self._learned()

    @property
    def contradiction(self) -> str:
        """Say where declared safe costs contradict the data; empty if nowhere."""
        standing = self.agent.standing_alarms
        if not standing:
            return ""
        steps = sorted({stage for stage, _ in standing}) if self.agent.stages > 1 else []
        where = f" at step {', '.join(map(str, steps))}" if steps else ""
        names = ", ".join(dict.fromkeys(self.problem.names.constraint(j) for _, j in standing))
        return f"the declared safe costs contradict the recorded {names}{where}, so that only a_0 is played there"

    def outdated(self, made: DecisionMade, now: float) -> str:
        """Say why drift has made the bounds of a decision invalid; empty if they hold.

        The bounds are those of the proposal, so that both arms of a comparison are treated alike.
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
        """Propose and examine for a decision at this time; it matters if drift is per second."""
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
        """Tell the gate which block bounds rest on now: with drift it changes with every decision."""
        if self.agent.blocks is not None:
            self._proposed.clear()
            self._hashes.clear()
            for stage in range(self.agent.stages):
                window, since, _ = self.agent.blocks.span(stage)
                self.gate.use(stage, window, since)

    def _take_batch(self, part: WarmStarted) -> None:
        """Learn from old data once the last entry of their warm start is there.

        Once a decision acts they come too late and never count: it has rested on a part of them, chosen by the person
        who handed them over (docs/guarantee.md). The process that wrote them says so.
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
        """Return the checked fact (f (d,), τ_s (M,)) of an outcome; None if none is carried or remembered."""
        if not self.remembers or row.safe_feature is None or row.safe_cost is None:
            return None
        place = row.safe_feature, row.safe_cost
        found = self._facts.get(place)
        if found is None:
            costs = checked_costs(row.safe_cost, self.problem, needed=True)
            if costs is None:
                return None
            if len(self._facts) >= MAX_KEPT_STATES:
                self._facts.clear()
            found = self._facts[place] = checked_feature(row.safe_feature, self.problem), costs
        return found

    def _learn_cost(self, step: int, feature: Array, cost: tuple[float, ...] | None) -> None:
        """Learn the cost alone, from an old row without a reward."""
        if cost is None or len(cost) != len(self.problem.constraints):
            raise InputError("a row without a reward needs a cost per constraint: otherwise it says nothing.")
        self.agent.learn_cost(CostOutcome(step, feature, np.array(cost)))

    def look_up(self, state: State) -> KnownState:
        """Return what the problem says about a state.

        The answer is kept if the problem is a table, whose entries never change. It is asked for anew if costs drift:
        an older declaration is no fact now.
        """
        if not self._is_table or type(state) is not int or self.agent.blocks is not None:
            return self.problem.look_up(state)
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= MAX_KEPT_STATES:
                self._known.clear()
            known = self._known[state] = self.problem.look_up(state)
        return known

    def propose(self, step: int, state: State, known: KnownState | None = None, coin: float = 0.0) -> Decision:
        """Return the learner's choice with its evidence, and change nothing.

        Between two outcomes the same question gets the same answer, so it is kept. The gate examines it every time.

        Args:
            step: h, from 0.
            state: as the problem knows it.
            known: what the problem says about the state, if it was looked up already.
            coin: in [0, 1), draws the action from a mixture.
        """
        if known is None:
            check_step(step, self.problem.horizon)
            known = self.look_up(state)
        if not self._is_table or type(state) is not int or self.agent.mixes:
            return self.agent.propose(step, state, known, coin)
        found = self._proposed.get((step, state))
        if found is None:
            if len(self._proposed) >= MAX_KEPT_STATES:
                self._proposed.clear()
            found = self._proposed[step, state] = self.agent.propose(step, state, known, coin)
        return found

    def prepare(self, step: int) -> None:
        """Solve and hash now what the next decision at this step needs; no number changes."""
        self.gate.prepare(step)
        self.model_hash(step)

    def model_hash(self, step: int) -> str:
        """Return a hash of the numbers behind a decision at this step: equal hashes, equal decisions."""
        found = self._hashes.get(step)
        if found is None:
            agent = self.agent
            stage = agent.stage_of(step)
            digest = hashlib.sha256(self._belongs_to.encode())
            # `owed` is of the tables, which no live decision reads
            sums = [array for name, array in arrays_in(agent.costs, "") if "owed" not in name]
            for array in (*sums, agent.values.factor, *self.gate.arrays().values()):
                if array.size:
                    digest.update(array[stage].tobytes())
            if agent.likelihoods is not None:
                cells = slice(agent.likelihoods.cell(stage, 0), agent.likelihoods.cell(stage + 1, 0))
                for _, array in arrays_in(agent.likelihoods.trials, ""):
                    digest.update(array[cells].tobytes())
            digest.update(agent.current.weights[step].tobytes() + agent.current.made.tobytes())
            found = self._hashes[step] = digest.hexdigest()
        return found

    def to_bytes(self) -> bytes:
        """Return everything that the future depends on; the same state gives the same bytes."""
        batches = {batch: [row.model_dump(mode="json") for row in rows] for batch, rows in self.batches.items()}
        header = {
            "format": FORMAT,
            "seq": self.seq,
            "watch": self.agent.watch is not None,
            "ignored": self.ignored,
            "acted": self.gate.turns.has_acted,
            "told": self._belongs_to,
            "batches": batches,
        }
        return packed_learner(header, self.agent, self.gate)

    def restored(self, data: bytes) -> Self:
        """Fill a fresh learner with the bytes of `to_bytes`.

        Raises:
            StateFileError: the bytes are of another problem, configuration or format. The learner is of no use then.
        """
        with unpacked_learner(data) as (header, agent, gate):
            if header["format"] != FORMAT or header["told"] != self._belongs_to:
                raise StateFileError("the snapshot is of another problem, configuration or format.")
            self.agent = type(self.agent).restore(agent, self.problem)
            self._attach()
            self.gate.take({name: gate(name) for name in self.gate.arrays()})
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
        return self
