"""The Advisor: decisions with certificates for a running system, and a log that can prove and repeat each of them."""

import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from tether.agents.slucb_qvi import SlucbConfig
from tether.errors import AlteredLog, InputError, StoreError
from tether.live.control import Control
from tether.live.decisions import (
    AlreadyRecorded,
    ImpossibleCost,
    LiveDecision,
    Recorded,
    Status,
    UnknownDecision,
    check_names,
    check_same,
)
from tether.live.events import decision_key, outcome_key, request_key, withheld_key
from tether.live.guards import Guards
from tether.live.ids import new_id
from tether.live.judge import Request
from tether.live.live_agent import Algorithm
from tether.live.modes import Criteria, Mode
from tether.live.outcomes import outcome_body
from tether.live.pending import Pending, drafts_of, fresh_entries
from tether.live.states import StateCodec, as_logged, with_way_out
from tether.live.store import Appended, Draft, Entry, Store, canonical
from tether.problem.problem import Problem
from tether.records import State

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
                judgment = self._replica.judge(request)
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
