"""Between the two halves of a call: what goes to the log, and what comes back."""

import json
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from tether import __version__
from tether.agents.slucb import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.errors import AlteredLog, InputError, StoreError, TetherError
from tether.kernels.compiled import KERNEL
from tether.live.judge import Judgment, Request, halt, judge, looked_up, outcome_body
from tether.live.log.store import Appended, Draft, Entry, Head, Store, canonical, open_store
from tether.live.policy import Criteria, Guards, Mode, PromotionRefused, rank, unmet
from tether.live.records import (
    EDITION,
    AlarmReset,
    AlreadyRecorded,
    Certificate,
    Configured,
    Event,
    ImpossibleCost,
    Limit,
    LiveDecision,
    ModeChanged,
    Recorded,
    Resumed,
    StateCodec,
    Status,
    Stopped,
    Tripped,
    UnknownDecision,
    Withheld,
    as_logged,
    baseline_evidence,
    check_names,
    check_same,
    decision_key,
    new_id,
    outcome_key,
    request_key,
    with_way_out,
    withheld_key,
)
from tether.live.replica import ALGORITHMS, Algorithm, Replica, live_config, load, settings_of
from tether.live.warm_start import append_in_turn, warm_start_drafts
from tether.problem.problem import KnownState, Problem
from tether.records import Radius, State


@dataclass(frozen=True, slots=True)
class Pending:
    """Drafts on their way to the log: append them in one batch, then call `finish_decide` or `finish_record`.

    `refused` is what the caller is told once they are there: an outcome was not taken, and the log must say so first.
    """

    drafts: tuple[Draft, ...]
    request: Request | None = None
    judgment: Judgment | None = None
    refused: InputError | None = None


def drafts_of(judgment: Judgment, request: Request) -> tuple[Draft, ...]:
    """The decision for the log, after the gate's refusal if there was one."""
    keys = () if request.key is None else (request_key(request.key),)
    decision = Draft("decision", judgment.body, (*keys, decision_key(request.id)))
    return (decision,) if judgment.refused is None else (judgment.refused.draft(), decision)


def fresh_entries(drafts: tuple[Draft, ...], appended: list[Appended]) -> list[Entry]:
    """The entries that were written now. Their bodies are the drafts', which spares reading them back from JSON."""
    entries = []
    for draft, (entry, fresh) in zip(drafts, appended, strict=True):
        if fresh:
            entry.__dict__.setdefault("body", draft.body)
            entries.append(entry)
    return entries


# How an advisor follows its log: start, apply what was written here and elsewhere, snapshots, where it stands.

log = logging.getLogger("tether.live")

FIRST = "configured:first"
"""The key of the entry that a log begins with: only one problem and configuration can be the first."""


class Follower:
    """The part of an advisor that follows its log. Everything that changes it is an entry there."""

    def _start(
        self,
        problem: Problem,
        store: str | Path | Store | None,
        config: SlucbConfig | None,
        algorithm: Algorithm | None,
        guards: Guards | None,
        criteria: Criteria | None,
        watch: bool,
        states: StateCodec | None,
        snapshot_every: int,
        refresh: float | None,
    ) -> None:
        self.problem, self.states, self.criteria = problem, states or StateCodec(), criteria or Criteria()
        self._lock = threading.RLock()
        self._arrived: dict[int, Entry] = {}
        self._notes: list[Draft] = []
        self._in_flight, self._gap_since, self._last_look = 0, math.inf, time.monotonic()
        self._snapshot_every, self._refresh, self._store_error = snapshot_every, refresh, ""
        if not all(math.isfinite(tau) for tau in problem.threshold):
            raise InputError(
                f"threshold τ is {problem.threshold}: an advisor certifies that costs stay under τ, so each must be "
                "finite. Leave out a cost that has no limit."
            )
        if guards is not None:
            guards.budgets(problem.constraints)
        self._store = open_store(store)
        told = settings_of(self._store)
        self._is_new = told is None
        chosen: Algorithm = algorithm or ("slucb-qvi" if told is None else told["algorithm"])
        if chosen not in ALGORITHMS:
            raise InputError(f"algorithm must be one of {', '.join(ALGORITHMS)}, but is {chosen!r}.")
        if config is None:
            config = live_config(problem, chosen) if told is None else SlucbConfig(**told["config"])
        settings: dict[str, Any] = {
            "edition": EDITION,
            "problem": fingerprint(problem),
            "algorithm": chosen,
            "config": asdict(config),
            "watch": watch,
            "library": __version__,
            "kernel": KERNEL,
            "numpy": np.__version__,
        }
        if told is not None:
            _check_settings(told, settings)
        how: dict[str, Any] = {"algorithm": chosen, "watch": watch, "states": self.states}
        self._replica: Replica = load(self._store, problem, config, **how)
        wanted = guards or self._replica.ledger.guards
        current = self._replica.ledger.settings
        if not self._store.read_only and (
            current is None or {**current, **settings, "guards": wanted.to_json()} != current
        ):
            if current is not None and wanted != self._replica.ledger.guards:
                log.warning("the guards of this log change from %s to %s", self._replica.ledger.guards, wanted)
            written = self._write(Configured(**settings, guards=wanted.to_json()), *([FIRST] if told is None else []))
            if not written.fresh:  # another process started this log at the same time
                _check_settings(written.entry.body, settings)
        self._snapshot_at = self._replica.head.seq
        self._after_outcome()

    @property
    def store(self) -> Store:
        """The log."""
        return self._store

    @property
    def replica(self) -> Replica:
        """Learner and ledger as of the entries that were applied. Read it; only the log changes it."""
        return self._replica

    def sync(self) -> int:
        """Apply everything that the log holds by now; returns how many entries were new."""
        with self._lock:
            before = self._replica.head.seq
            self._read()
            self._after_outcome()
            return self._replica.head.seq - before

    def snapshot(self) -> int:
        """Save a snapshot now, so that a restart is short; returns the entry that it follows."""
        with self._lock:
            seq, data = self._replica.head.seq, self._replica.to_bytes()
            self._snapshot_at = seq
        self._store.save_snapshot(seq, data)
        return seq

    def close(self) -> None:
        """Let go of the log. The advisor is of no use afterwards."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write(self, event: Event, *keys: str) -> Appended:
        """One event into the log, unless one of its keys is there already, and applied."""
        (appended,) = self._store.append([event.draft(*keys)])
        with self._lock:
            if appended.fresh:
                self._take([appended.entry])
            if self._replica.head.seq < appended.entry.seq:
                self._read()
        return appended

    def _prepare(self, step: int) -> None:
        """Have at hand what the next decision at this step needs. A service whose outcomes come in batches need not."""
        with self._lock:
            self._replica.learner.prepare(step)

    def _take(self, entries: list[Entry]) -> None:
        """Apply entries that this process wrote, in the order of the log; those of others in between are read."""
        self._store_error = ""
        self._arrived.update({entry.seq: entry for entry in entries if entry.seq > self._replica.head.seq})
        self._drain()
        if not self._arrived:
            self._gap_since = math.inf
            return
        # A gap: another thread's batch that is about to come in here, or another process's, which must be read.
        now = time.monotonic()
        self._gap_since = min(self._gap_since, now)
        waited = self._refresh is not None and now - self._gap_since > self._refresh
        if self._in_flight == 0 or waited:
            self._read_if_possible()

    def _drain(self) -> None:
        while (entry := self._arrived.pop(self._replica.head.seq + 1, None)) is not None:
            self._replica.apply(entry)

    def _read(self) -> None:
        """Everything that the log holds beyond this replica."""
        self._last_look = time.monotonic()
        self._replica.catch_up(self._store)
        self._arrived = {seq: entry for seq, entry in self._arrived.items() if seq > self._replica.head.seq}
        self._drain()
        self._gap_since = math.inf

    def _look_around(self) -> None:
        """Look for entries of other processes once in a while. If the log is gone, the older state is still good."""
        if self._refresh is None or time.monotonic() - self._last_look < self._refresh:
            return
        self._read_if_possible()
        self._after_outcome()

    def _read_if_possible(self) -> None:
        """Read, unless the log is out of reach for now. One that was altered is never passed over."""
        try:
            self._read()
        except AlteredLog:
            raise
        except StoreError as error:
            self._store_error = str(error)

    def _after_outcome(self) -> None:
        """Log an alarm once, and save a snapshot once in a while. Neither is needed for safety, so neither may fail."""
        replica = self._replica
        alarm = replica.learner.alarm
        if alarm is not None and replica.ledger.tripped is None:
            with suppress(StoreError):
                self._write(Tripped(test=alarm.test, message=str(alarm), number=replica.ledger.alarms))
        if replica.head.seq - self._snapshot_at >= self._snapshot_every:
            self._snapshot_at = replica.head.seq  # whatever comes of it, the next attempt is as far away
            try:
                self.snapshot()
            except (TetherError, OSError) as error:  # no room for it, states that cannot be saved: a restart then
                # replays the whole log
                log.warning("no snapshot could be saved: %s", error)

    def _baseline_certificate(self, known: KnownState, step: int, reason: str, detail: str) -> Certificate:
        """The certificate of a_0(s), which rests on its declared cost alone."""
        radii = (Radius(math.inf, "none"),) * self.problem.constraints
        evidence = baseline_evidence(self.problem, known.baseline_cost[step], radii)
        limits, phi_0 = tuple(Limit.of(shown) for shown in evidence), tuple(known.actions.phi_0.tolist())
        learner, head = self._replica.learner, self._replica.head
        return Certificate(phi_0, limits, True, reason, detail, learner.version, *head, learner.model_hash(step))

    def _status(self) -> Status:
        replica, ledger = self._replica, self._replica.ledger
        stopped, alarm = ledger.stopped, replica.learner.alarm or (ledger.tripped or {}).get("message")
        head: Head = replica.head
        return Status(
            mode=ledger.mode,
            stopped="" if stopped is None else f"by {stopped['by']}: {stopped['why']}",
            alarm="" if alarm is None else str(alarm),
            seq=head.seq,
            head=head.hash,
            data_version=replica.learner.version,
            model_hash=replica.learner.model_hash(0),
            decisions=ledger.ever.decisions,
            baseline=ledger.ever.baseline,
            proposed=ledger.ever.proposed,
            refusals=ledger.ever.refusals,
            outcomes=ledger.ever.outcomes,
            costs=ledger.ever.costs,
            spent=ledger.in_window(),
            certified=ledger.certified,
            unsynced=len(self._arrived),
            store_error=self._store_error,
        )


def _check_settings(told: dict[str, Any], settings: dict[str, Any]) -> None:
    """A log belongs to one problem and one configuration: its data certify nothing elsewhere."""
    for part in ("problem", "algorithm", "config", "watch"):
        if told[part] != settings[part]:
            raise InputError(
                f"this log was started with another {part}: {told[part]}, not {settings[part]}. Use the same, or start "
                "a new log and hand the old data to warm_start."
            )


# What people tell an advisor: mode, kill switch, alarm, data from before. Each order is an entry of the log.


class Control(Follower):
    """The part of an advisor that takes orders, and lets nothing leave that they forbid.

    One that was checked takes effect only if no other came in between.
    """

    def promote(self, mode: Mode, *, by: str, why: str, criteria: Criteria | None = None) -> None:
        """Enter a mode that may do more, if the criteria are met; PromotionRefused names those that are not.

        `criteria` are limits of your own, which you must be able to answer for: they are logged.
        """
        asked = criteria or self.criteria

        def allowed() -> Event:
            ledger = self._replica.ledger
            if rank(mode) <= rank(ledger.mode):
                raise InputError(f"the mode is {ledger.mode!r} already: {mode!r} is no promotion. demote() goes down.")
            missing = unmet(asked, ledger, self.problem.noise, self._replica.learner.alarm or ledger.tripped)
            if missing:
                raise PromotionRefused(mode, missing)
            return ModeChanged(mode=mode, by=_name(by), why=_name(why), criteria=asked.to_json())

        self._order(allowed, allows_more=True)

    def demote(self, mode: Mode, *, by: str, why: str) -> None:
        """Enter a mode that may do less. Always allowed."""

        def allowed() -> Event:
            current = self._replica.ledger.mode
            if rank(mode) >= rank(current):
                raise InputError(f"the mode is {current!r}: {mode!r} is no demotion. Use promote().")
            return ModeChanged(mode=mode, by=_name(by), why=_name(why))

        self._order(allowed)

    def stop(self, *, by: str, why: str) -> None:
        """The kill switch: a_0 from here on, in every process that shares the log, until `resume`."""
        event = Stopped(by=_name(by), why=_name(why))
        try:
            self._order(lambda: event)
        except TetherError:  # whatever is wrong with what was read here, the others are to stop
            self._store.append([event.draft()])
            raise

    def resume(self, *, by: str, why: str) -> None:
        """Release the kill switch."""
        event = Resumed(by=_name(by), why=_name(why))
        self._order(lambda: event, allows_more=True)

    def reset_alarm(self, *, by: str, why: str) -> None:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        event = AlarmReset(by=_name(by), why=_name(why))
        self._order(lambda: event, allows_more=True)

    def _order(self, allowed: Callable[[], Event], *, allows_more: bool = False) -> None:
        """Write the order that is `allowed`, given every order before it. If another comes in between, look again; but
        an order that `allows_more` is refused then: whoever gave it has not seen the other."""
        while True:
            with self._lock:
                self.sync()
                number, event = self._replica.ledger.orders, allowed()
            written = self._write(event, f"order:{number}")
            if written.fresh:
                return
            if allows_more:
                first = written.entry
                raise InputError(
                    f"another order came first (entry {first.seq}, {first.kind!r} by {first.body.get('by')!r}: "
                    f"{first.body.get('why')!r:.200}): look at it, then give this one again."
                )

    def _handed_out(self, made: LiveDecision, *, is_new: bool = False) -> LiveDecision:
        """The decision, if nothing that was logged before it leaves forbids it: the kill switch, an alarm, or shadow
        mode may have come while it was under way, or since it was first made. Else a_0, without an id."""
        if made.is_baseline:
            return made
        try:
            earlier = None if is_new else self._store.find(withheld_key(made.id))
        except AlteredLog:
            raise
        except StoreError as error:  # whether it ever left cannot be told now
            return self._withheld(made.state, made.step, made.episode, "not-logged", str(error))
        if earlier is not None:  # it did not leave then, and the log says so: it does not leave now
            told = earlier.genuine().body
            return self._withheld(made.state, made.step, made.episode, told["reason"], told["detail"])
        with self._lock:
            if self._replica.head.seq < made.seq:  # of others, whose entries stand between
                self._read_if_possible()
            reason, detail = halt(self._replica.learner, self._replica.ledger)
            if not reason and self._replica.ledger.mode == "shadow":
                reason, detail = "shadow", "shadow mode was entered before this decision could leave"
            if not reason and self._replica.head.seq < made.seq:
                reason, detail = "not-logged", f"what stands in the log before it cannot be read: {self._store_error}"
            if not reason:
                return made
            if is_new:
                self._notes.append(Withheld(decision_id=made.id, reason=reason, detail=detail).draft())
            return self._withheld(made.state, made.step, made.episode, reason, detail)

    def _withheld(self, state: State, step: int, episode: str | int | None, reason: str, detail: str) -> LiveDecision:
        """a_0 without an entry in the log, and so without an id: no outcome can be recorded for it."""
        known = looked_up(self.problem, step, state)
        certificate, action = self._baseline_certificate(known, step, reason, detail), known.actions.action(-1, 0.0)
        return LiveDecision.unlogged(action, certificate, self._replica.ledger.mode, state, step, episode)

    def _range_alarm(self, error: InputError) -> Draft:
        return Tripped(test="range", message=str(error), number=self._replica.ledger.alarms).draft()

    def _tripped(self, error: InputError, pending: Pending, appended: list[Appended]) -> None:
        """An impossible cost is in the log as an alarm, unless its number was taken by one that was reset since."""
        with self._lock:
            self._in_flight -= 1
            self._take(fresh_entries(pending.drafts, appended))
            while self._replica.ledger.tripped is None:
                self._read()  # an entry of another process may stand before ours
                if self._replica.ledger.tripped is not None:
                    return
                again = (self._range_alarm(error),)
                self._take(fresh_entries(again, self._store.append(again)))

    def notes(self) -> tuple[Draft, ...]:
        """What is to be logged of decisions that did not leave, handed over once. Nobody needs to wait for it."""
        with self._lock:
            notes, self._notes = tuple(self._notes), []
        return notes

    def finish_notes(self, pending: Pending, appended: list[Appended]) -> None:
        """They are in the log."""
        with self._lock:
            self._take(fresh_entries(pending.drafts, appended))

    def warm_start(self, features: Any, costs: Any, **more: Any) -> int:
        """Learn from data from before the log: features (n, d), costs (n,) or (n, M). Returns how many rows were taken.

        More, as in `tether.live.warm_start.warm_start_drafts`: rewards, steps, seen_states, next_states (each n long),
        duplicates, source. All rows are checked before any is taken, and a row that is in the log is not taken again.
        """
        drafts = warm_start_drafts(self._store, self.problem, self.states, features, costs, **more)
        appended = append_in_turn(self._store, drafts)
        self.sync()
        taken = sum(len(each.entry.body["rows"]) for each in appended if each.fresh)
        if not all(each.fresh for each in appended):
            raise InputError(
                f"some of these rows were written by another process at the same time (entry {appended[-1].entry.seq}):"
                f" {taken} were taken now. Call again with duplicates='drop', or 'new' where you said 'keep'."
            )
        return taken


def _name(text: str) -> str:
    """Who or why: never empty, since the log is read by people."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"`by` and `why` must say something, but one is {text!r}: the log is read by people.")
    return text


# The Advisor: decisions with certificates for a running system, and a log that can prove and repeat each of them.

REMEMBERED = 2000
"""Decisions kept at hand for their outcomes; older ones are found in the log."""


class Advisor(Control):
    """Tether in front of a running system: `decide`, play the action, `record` what was seen.

    Attributes of the constructor:
        problem: what the learner is told.
        store: None keeps the log in memory, a path is an SQLite file, `postgresql://…` a server; or any `Store`.
        config: of the algorithm; the log's own, or the default for live use, unless given.
        algorithm: "slucb-qvi", or "rslucb-qvi", which draws from mixtures whose *expected* cost is bounded and needs no
            star-convex sets; the log's own, or the first, unless given.
        mode: of a *new* log; anything but "shadow" must meet `criteria` at once. An existing log's mode stands.
        guards: limits beside the theorem's; the log's own unless given.
        criteria: what `promote` asks for unless told otherwise.
        watch: whether the tests of the assumptions run along and trip to a_0.
        states: how states become JSON, for states that are not numbers, strings, lists, tuples, dicts or arrays.
        clock: seconds since 1970, for ages and for people; the order of things never depends on it.
        ids: makes the ids of decisions; they must never repeat.
        when_store_fails: "baseline" answers a_0 with logged=False, "refuse" raises the StoreError.
        snapshot_every: entries of the log after which a snapshot is saved, by `record`.
        refresh: seconds after which entries of other processes are looked for; None only when `sync` is called.

    Many threads may call it, and many processes may share one log: what is decided on an older state of the log is
    still certified, because a confidence set from fewer samples is one too.
    """

    def __init__(
        self,
        problem: Problem,
        store: str | Path | Store | None = None,
        *,
        config: SlucbConfig | None = None,
        algorithm: Algorithm | None = None,
        mode: Mode = "shadow",
        guards: Guards | None = None,
        criteria: Criteria | None = None,
        watch: bool = True,
        states: StateCodec | None = None,
        clock: Callable[[], float] = time.time,
        ids: Callable[[], str] = new_id,
        when_store_fails: Literal["baseline", "refuse"] = "baseline",
        snapshot_every: int = 5000,
        refresh: float | None = 0.25,
    ) -> None:
        if when_store_fails not in ("baseline", "refuse"):
            raise InputError(f"when_store_fails is 'baseline' or 'refuse', not {when_store_fails!r}.")
        self._clock, self._ids, self._when_store_fails = clock, ids, when_store_fails
        self._recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._start(problem, store, config, algorithm, guards, criteria, watch, states, snapshot_every, refresh)
        if self._is_new and mode != "shadow":
            self.promote(mode, by="Advisor(mode=...)", why="the mode that a new log was started with")

    def decide(
        self,
        state: State,
        step: int = 0,
        episode: str | int | None = None,
        *,
        key: str | None = None,
        observed_at: float | None = None,
    ) -> LiveDecision:
        """An action with its certificate, durably logged before it is handed out.

        `key` makes a repeated request harmless: the same key gets the same decision again. `observed_at` is when the
        state was observed, in seconds since 1970, for the guard against stale inputs.
        """
        made = self._made_before(key, state, step, episode)
        if made is not None:
            return made
        pending = self.begin_decide(state, step, episode, key=key, observed_at=observed_at)
        try:
            appended = self._store.append(pending.drafts)
        except StoreError as error:
            return self.fail_decide(pending, error)
        decided = self.finish_decide(pending, appended)
        if notes := self.notes():
            with suppress(StoreError):
                self.finish_notes(Pending(notes), self._store.append(notes))
        return decided

    def begin_decide(
        self,
        state: State,
        step: int = 0,
        episode: str | int | None = None,
        *,
        key: str | None = None,
        observed_at: float | None = None,
    ) -> Pending:
        """The first half of `decide`, for callers that write to the log themselves (group commit, asyncio)."""
        check_names(key, episode)
        if observed_at is not None and not (isinstance(observed_at, int | float) and math.isfinite(observed_at)):
            raise InputError(f"observed_at must be seconds since 1970, or None, but is {observed_at!r}.")
        seen = None if observed_at is None else float(observed_at)
        logged, again = as_logged(self.states, state)
        step = int(step) if isinstance(step, int) or hasattr(step, "__index__") else step
        request = Request(self._ids(), key, episode, step, again, logged, seen, float(self._clock()))
        with self._lock:
            self._look_around()
            try:
                judgment = judge(self._replica, request)
            except InputError as error:
                raise with_way_out(error, state, again) from error.__cause__
        pending = Pending(drafts_of(judgment, request), request, judgment)
        with self._lock:
            self._in_flight += 1
        return pending

    def finish_decide(self, pending: Pending, appended: list[Appended]) -> LiveDecision:
        """The second half: the drafts are in the log, so the decision may leave."""
        last, request, judgment = appended[-1], pending.request, pending.judgment
        if request is None or judgment is None:
            raise InputError("finish_decide needs what begin_decide returned, not the first half of a record.")
        with self._lock:
            self._in_flight -= 1
            self._take(fresh_entries(pending.drafts, appended))
        if last.fresh:
            made = self._handed_out(LiveDecision.made_of(*judgment[:3], request.state, last.entry.seq), is_new=True)
        else:
            check_same(last.entry.genuine().body, request.logged_state, request.step, request.episode)
            made = self._handed_out(LiveDecision.from_body(last.entry.body, self.states, last.entry.seq))
        if made.logged:
            with self._lock:
                self._remember(last.entry.body)
        return made

    def fail_decide(self, pending: Pending, error: StoreError) -> LiveDecision:
        """The log could not be written: a_0, and it says so; nothing else may leave."""
        with self._lock:
            self._in_flight -= 1
            self._store_error = str(error)
            if self._when_store_fails == "refuse" or isinstance(error, AlteredLog) or pending.request is None:
                raise error
            asked = pending.request
            return self._withheld(asked.state, asked.step, asked.episode, "not-logged", str(error))

    def record(
        self,
        id: str,
        reward: float,
        cost: float | tuple[float, ...] | list[float] | None,
        next_state: State = None,
        applied: Any = None,
    ) -> Recorded:
        """What was seen after a decision, exactly once; durable when this returns. Late or out of order is fine.

        `cost` is None if it was not measured: then it never enters the cost regression. `applied` is what was really
        done, if that was not the decision's action: another action of D(s), or the feature (d,) of it.
        """
        pending = self.begin_record(id, reward, cost, next_state, applied)
        try:
            appended = self._store.append(pending.drafts)
        except StoreError as error:
            self.fail_record(error)
            raise
        recorded = self.finish_record(pending, appended)
        self._prepare(pending.drafts[0].body["step"])  # whoever decides next need not wait
        return recorded

    def begin_record(
        self,
        id: str,
        reward: float,
        cost: float | tuple[float, ...] | list[float] | None,
        next_state: State = None,
        applied: Any = None,
    ) -> Pending:
        """The first half of `record`: everything is checked before anything is written."""
        decision = self._decision(id)
        try:
            body = outcome_body(self._replica.learner, decision, reward, cost, next_state, applied)
        except ImpossibleCost as error:
            if self._store.places([outcome_key(id)]):
                raise AlreadyRecorded(f"decision {id!r} has another outcome already, and the first stands.") from error
            if self._replica.ledger.tripped is not None:
                raise
            # to leave out such costs alone would bias the regression: a_0, until somebody has looked into it
            pending = Pending((self._range_alarm(error),), refused=error)
        else:
            pending = Pending((Draft("outcome", body, (outcome_key(id),)),))
        with self._lock:
            self._in_flight += 1
        return pending

    def finish_record(self, pending: Pending, appended: list[Appended]) -> Recorded:
        """The second half: the outcome is in the log, now or since before."""
        if pending.refused is not None:
            self._tripped(pending.refused, pending, appended)
            raise pending.refused
        ((entry, fresh),) = appended
        id = pending.drafts[0].body["decision_id"]
        with self._lock:
            self._in_flight -= 1
            if fresh:
                self._recent.pop(id, None)
                self._take(fresh_entries(pending.drafts, appended))
                self._after_outcome()
        told = pending.drafts[0].text
        if not fresh and entry.text != told and canonical(entry.body) != canonical(json.loads(told)):
            raise AlreadyRecorded(
                f"decision {id!r} has another outcome already (entry {entry.seq}): an outcome is counted exactly once, "
                "and the first stands."
            )
        return Recorded(id, entry.seq, not fresh)

    def fail_record(self, error: StoreError) -> None:
        """The log could not be written: nothing was learned, and the same call may be made again."""
        with self._lock:
            self._in_flight -= 1
            self._store_error = str(error)

    def status(self) -> Status:
        """Where this advisor stands."""
        with self._lock:
            return self._status()

    def _made_before(self, key: str | None, state: State, step: int, episode: str | int | None) -> LiveDecision | None:
        """The decision that this key got before, if any. A log that cannot be read is noticed when it is written."""
        if key is None:
            return None
        check_names(key, episode)
        try:
            entry = self._store.find(request_key(key))
        except StoreError:
            return None
        if entry is None:
            return None
        check_same(entry.genuine().body, self.states.encode(state), step, episode)
        return self._handed_out(LiveDecision.from_body(entry.body, self.states, entry.seq))

    def _decision(self, id: str) -> dict[str, Any]:
        """The body of a logged decision."""
        if not isinstance(id, str) or not id:
            raise UnknownDecision(
                f"{id!r} is not the id of a decision: a decision that could not be logged (logged=False) has none, and "
                "its outcome cannot be learned from."
            )
        with self._lock:
            found = self._recent.get(id)
        if found is not None:
            return found
        entry: Entry | None = self._store.find(decision_key(id)) if len(id) < 400 else None
        if entry is None:
            raise UnknownDecision(f"decision {id!r:.80} is not in this log: was it made by another advisor?")
        if self._store.places([withheld_key(id)]):
            raise UnknownDecision(f"decision {id!r:.80} did not leave: a_0 was handed out in its place, without an id.")
        return entry.genuine().body

    def _remember(self, body: dict[str, Any]) -> None:
        self._recent[body["decision_id"]] = body
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
