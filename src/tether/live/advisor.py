"""The Advisor: decisions with certificates for a running system, and a log that can prove and repeat each of them."""

import json
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from tether import __version__
from tether.agents.agent import WARN_AT
from tether.agents.slucb import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.errors import AlteredLog, InputError, StoreError, TetherError
from tether.kernels.compiled import KERNEL
from tether.live.binding import WAY_OUT, check_decisions, is_same, listed_sketches
from tether.live.judge import Outcome, Question, halt, judge, recorded, safe_decision
from tether.live.learner import Learner
from tether.live.live_agent import live_config
from tether.live.log import open_store
from tether.live.log.chain import Appended, Draft, Entry, Store, canonical
from tether.live.policy import Criteria, Guards, Mode, PromotionRefused, rank
from tether.live.promotion import unmet
from tether.live.records import (
    AlarmReset,
    Algorithm,
    AlreadyRecorded,
    Configured,
    DecisionMade,
    Event,
    ImpossibleCost,
    LiveDecision,
    ModeChanged,
    Order,
    OutcomeLost,
    OutcomeRecorded,
    Recorded,
    Resumed,
    StateCodec,
    Status,
    Stopped,
    Tripped,
    UnknownDecision,
    Waits,
    Withheld,
    algorithm_for,
    as_logged,
    decision_key,
    detached,
    limit_of,
    new_id,
    outcome_key,
    request_key,
    retyped,
    withheld_key,
)
from tether.live.replica import Replica, load, settings_of
from tether.live.warm_start import TOO_LATE, Duplicates, OldData, append_in_turn, warm_start_drafts
from tether.problem.limit_on import LimitOn
from tether.problem.problem import Problem
from tether.records import State

log = logging.getLogger("tether.live")

FIRST = "configured:first"
"""The key of the entry that a log begins with: only one problem and configuration can be the first."""

REMEMBERED, LARGEST_REMEMBERED = 2000, 2**14
"""Decisions kept at hand for their outcomes, and their characters; older or larger ones are found in the log."""

FAILED = "The problem's functions failed: the program's own log has the error, and the safe action is played meanwhile."
"""The detail of such a decision, for callers."""

STOPS_UNREAD = Stopped(
    by="Tether", why="whether somebody ordered a stop cannot be read: the program's own log has the error"
)
"""In effect while announcements of stops cannot be read."""

RETRY_AFTER, RETRY_EVERY = 0.25, 30.0
"""Seconds after which the log is read anew when the problem's functions have failed: the first time, and at most."""

Answer = LiveDecision | Recorded | BaseException | None
"""What becomes of a request; None for an event that is only to be logged."""


class Item(NamedTuple):
    """One request of a batch, and what the log gets for it. `error` is why it is refused: at once, or, where the log
    must say so first, when its events are there."""

    request: Question | Outcome | Event
    events: tuple[Event, ...] = ()
    drafts: tuple[Draft, ...] = ()
    error: BaseException | None = None


class Batch(NamedTuple):
    """Requests between `prepare` and `commit`: append `drafts` to the log in one go."""

    items: tuple[Item, ...]
    drafts: tuple[Draft, ...]


class Advisor:
    """Tether in front of a running system: `decide`, play the action, `record` what was seen.

    Attributes of the constructor:
        problem: what the learner knows.
        store: None keeps the log in memory, a path is an SQLite file, `postgresql://…` a server; or any `Store`.
        config: of the algorithm; the log's own, or the default for live use, unless given.
        limit_on: "single actions", or "average over draws": actions are then drawn with probabilities (RSLUCB-QVI), and
            only the average over the draw keeps to the limit. Single actions may then exceed the limit: right for
            risks, wrong for temperatures. The log's own, or single actions, unless given.
        mode: of a *new* log; anything but "shadow" must meet `criteria` at once. An existing log's mode stands.
        guards: limits beside the theorem's; the log's own unless given.
        criteria: what `promote` asks for by default.
        watch: whether the tests of the assumptions run along and trip to a_0.
        states: how states become JSON, for states that are not numbers, strings, lists, tuples, dicts or arrays.
        clock: seconds since 1970, for ages and for people; the order of things never depends on it.
        ids: makes the ids of decisions; they must never repeat.
        when_store_fails: "baseline" answers a_0 with logged=False, "refuse" raises the StoreError.
        snapshot_every: entries of the log after which a snapshot is saved, by `record`; where more decisions than
            that have no outcome, as many as there are.
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
        limit_on: LimitOn | None = None,
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
        asked = None if limit_on is None else algorithm_for(limit_on)
        if not all(math.isfinite(tau) for tau in problem.threshold):
            raise InputError(
                f"threshold τ is {problem.threshold}: an advisor certifies that costs stay under τ, so each must be "
                "finite. Leave out a cost that has no limit."
            )
        if guards is not None:
            guards.budgets(problem.constraints)
        self.problem, self.states, self.criteria = problem, states or StateCodec(), criteria or Criteria()
        self._clock, self._ids, self._when_store_fails = clock, ids, when_store_fails
        self._snapshot_every, self._refresh = snapshot_every, refresh
        self._lock = threading.RLock()
        self._recent: OrderedDict[str, DecisionMade] = OrderedDict()  # decisions that wait for their outcomes
        self._arrived: dict[int, tuple[Entry, Event]] = {}  # written here, waiting for the entries before them
        self._notes: list[Event] = []
        self._under_way: set[str] = set()  # decisions other than a_0 between `prepare` and `commit`
        self._latches: dict[str, tuple[Stopped, float]] = {}  # stops that may not be applied yet, and their entries
        self._announced = ""  # the announcement of a stop that was last looked into
        self._in_flight, self._gap_since, self._last_look = 0, math.inf, time.monotonic()
        self._warn_at = WARN_AT[0]  # outcomes that wait, and are worth a warning
        self._store_error = ""
        self._failure = ""  # why the replica cannot be used: the problem's functions failed while an entry was applied
        self._closed = threading.Event()
        self.run_later: Callable[[Callable[[], None]], object] = run_now
        self._store = open_store(store)
        first = settings_of(self._store)
        self._replica = self._start(first, config, asked or ("slucb-qvi" if first is None else first.algorithm), watch)
        self._configure(first, guards)
        self._snapshot_at = self._replica.saved_at
        self._after_outcome()
        if first is None and mode != "shadow":
            self.promote(mode, by="Advisor(mode=...)", why="the mode that a new log was started with")

    def _start(
        self, first: Configured | None, config: SlucbConfig | None, algorithm: Algorithm, watch: bool
    ) -> Replica:
        """The replica at the end of the log, which belongs to one problem and one configuration."""
        if config is None:
            config = live_config(self.problem, algorithm) if first is None else SlucbConfig(**first.config)
        listed = listed_sketches(self.problem)
        if first is not None and is_same(listed, first.listed):
            listed = first.listed  # but for rounding
        self._settings = Configured(
            problem=fingerprint(self.problem),
            listed=listed,
            algorithm=algorithm,
            config=asdict(config),
            guards=Guards().to_json(),
            watch=watch,
            library=__version__,
            kernel=KERNEL,
            numpy=np.__version__,
        )
        if first is not None:
            _check_settings(first, self._settings)
        self._is_bound = first is None or check_decisions(self._store, self.problem, self.states)
        self._learner = partial(Learner, self.problem, config, algorithm=algorithm, watch=watch, states=self.states)
        try:
            return load(self._store, self._learner)
        except TetherError:
            raise
        except Exception as error:
            log.error("the problem's functions failed while the log was read", exc_info=error)
            raise InputError(
                f"the problem's functions failed while the log was read ({type(error).__name__}): start again once "
                "they answer. The program's own log has the error."
            ) from error

    def _configure(self, first: Configured | None, guards: Guards | None) -> None:
        """Log what this advisor was started with, if the log does not say so yet."""
        ledger = self._replica.ledger
        wanted = guards or ledger.guards
        self._settings = self._settings.model_copy(update={"guards": wanted.to_json()})
        if self._store.read_only or self._settings == ledger.settings:
            return
        if ledger.settings is not None and wanted != ledger.guards:
            log.warning("the guards of this log change from %s to %s", ledger.guards, wanted)
        written = self._write(self._settings, *([FIRST] if first is None else []))
        if not written.fresh:  # another process started this log at the same time
            _check_settings(Configured.read(written.entry), self._settings)

    # Decisions and outcomes

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
        question = self.question(state, step, episode, key=key, observed_at=observed_at)
        if key is not None:
            with suppress(StoreError):  # a log that cannot be read is noticed when it is written
                earlier = self._store.find(request_key(key))
                if earlier is not None:
                    return self._repeated(question, earlier)
        _, made = self._at_once(question)
        if notes := self.notes():
            self._at_once(*notes)
        return cast(LiveDecision, made)

    def record(
        self,
        id: str,
        reward: float,
        cost: float | tuple[float, ...] | list[float] | None,
        next_state: State = None,
        applied: Any = None,
    ) -> Recorded:
        """What was seen after a decision, exactly once; durable when this returns.

        Its cost takes effect once all decisions of its step before it have their outcome, or have lost it (`lose`, or
        the guard `lost_after`). `cost` is None if it was not measured: it is lost then, and counts as `Problem.lost`
        says. `applied` is what was really done, if that was not the decision's action: another action of D(s), or the
        feature (d,) of it.
        """
        item, done = self._at_once(Outcome(id, reward, cost, next_state, applied))
        with self._lock:  # whoever decides next need not wait for this; in a service, outcomes come in batches
            for event in item.events:
                if isinstance(event, OutcomeRecorded):
                    self._replica.learner.prepare(event.step)
        return cast(Recorded, done)

    def lose(self, id: str, *, by: str, why: str) -> None:
        """The outcome of this decision will never come, so that the costs of later ones need not wait for it. What it
        counts as is said by `Problem.lost`."""
        self._decision(id)
        written = self._write(OutcomeLost(decision_id=id, by=_name(by), why=_name(why)))
        if written.entry.kind != OutcomeLost.kind:
            raise AlreadyRecorded(f"decision {id!r} has an outcome already (entry {written.entry.seq}), and it stands.")
        with self._lock:
            self._recent.pop(id, None)
            self._after_outcome()

    def question(
        self,
        state: State,
        step: int = 0,
        episode: str | int | None = None,
        *,
        key: str | None = None,
        observed_at: float | None = None,
        caller: str | None = None,
    ) -> Question:
        """A request for a decision, for `prepare`: its state as the log will hold it, the time, and a new id. A `key`
        belongs to its `caller`."""
        if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 400):
            raise InputError(f"key must be a string of 1 to 400 characters, or None, but is {key!r:.80}.")
        if episode is not None and (not isinstance(episode, str | int) or isinstance(episode, bool)):
            raise InputError(f"episode must be a string, an integer or None, but is {episode!r:.80}.")
        if observed_at is not None and not (isinstance(observed_at, int | float) and math.isfinite(observed_at)):
            raise InputError(f"observed_at must be seconds since 1970, or None, but is {observed_at!r}.")
        logged, again = as_logged(self.states, state)
        step = int(step) if isinstance(step, int) or hasattr(step, "__index__") else step
        seen = None if observed_at is None else float(observed_at)
        now = float(self._clock())
        return Question(self._ids(), key, detached(episode), step, again, logged, seen, now, state, caller)

    def prepare(self, requests: Iterable[Question | Outcome | Event]) -> Batch:
        """The first half: judge questions and check outcomes. Nothing is written, and each fails for itself.

        Every batch with drafts must be handed to `commit`, once, with what the log said of them.
        """
        given = tuple(requests)
        first = next((request for request in given if isinstance(request, Question)), None)
        items = tuple([self._prepared(request, looks=request is first) for request in given])
        batch = Batch(items, tuple([draft for item in items for draft in item.drafts]))
        with self._lock:
            self._in_flight += bool(batch.drafts)
        return batch

    def commit(self, batch: Batch, written: Sequence[Appended] | StoreError) -> list[Answer]:
        """The second half, once the drafts are in the log, or could not be written: what becomes of each request."""
        with self._lock:
            self._in_flight -= bool(batch.drafts)
            unread = self._taken(batch, written)
        answers, start = list[Answer](), 0
        for item in batch.items:
            end = start + len(item.drafts)
            part = written if isinstance(written, StoreError) else written[start:end]
            answers.append(self._committed(item, part) if unread is None or not item.drafts else unread)
            if isinstance(item.request, Question):
                self._under_way.discard(item.request.id)
            start = end
        with self._lock, suppress(StoreError):  # an altered log: it is found again, by the next who needs it
            self._drain()
        return answers

    def notes(self) -> tuple[Event, ...]:
        """What is to be logged of decisions that did not leave, and of outcomes that are late beyond the limit, handed
        over once. Nobody needs to wait for it."""
        with self._lock:
            notes, self._notes = tuple(self._notes), []
            limit = self._replica.ledger.guards.lost_after
            if limit is None or self._failure:
                return notes
            late = self._replica.learner.agent.order.older_than(float(self._clock()) - limit)
        why = f"no outcome within {limit:g} s"
        return (*notes, *(OutcomeLost(decision_id=id, by="lost_after", why=why) for id in late))

    def _at_once(self, *requests: Question | Outcome | Event) -> tuple[Item, Answer]:
        """Prepare, write and commit, here and now; returns the first request and its answer, or raises that."""
        batch = self.prepare(requests)
        written: Sequence[Appended] | StoreError
        try:
            written = self._store.append(batch.drafts) if batch.drafts else []
        except StoreError as error:
            written = error
        except BaseException as interrupted:
            self.commit(batch, StoreError(f"interrupted: {interrupted!r}."))
            raise
        item, answer = batch.items[0], self.commit(batch, written)[0]
        try:
            if isinstance(answer, BaseException):
                raise answer
            return item, answer
        finally:  # an error that its own traceback refers to would keep all this in memory
            del batch, item, answer

    def _prepared(self, request: Question | Outcome | Event, *, looks: bool) -> Item:
        error: BaseException | None = None
        try:
            match request:
                case Question() if self._failure:
                    return Item(request)
                case Question():
                    events = self._judged(request, looks=looks)
                case Outcome():
                    events, error = self._checked(request)
                case _:
                    events = (request,)
            return Item(request, events, tuple([event.draft() for event in events]), error)
        except BaseException as failure:  # of this request alone, too
            return Item(request, error=failure)

    def _judged(self, question: Question, *, looks: bool) -> tuple[Event, ...]:
        """The decision, after the gate's refusal if there was one. One question of a batch `looks` at the log."""
        with self._lock:
            if looks:
                self._look_around()
            if not self._is_bound:  # the problem's functions failed when this advisor was started
                self._is_bound = check_decisions(self._store, self.problem, self.states)
                if not self._is_bound:
                    raise InputError(f"this problem knows none of the logged states that were looked up. {WAY_OUT}")
            question.under_way = len(self._under_way)
            try:
                made, refused = judge(self._replica, question)
            except InputError as error:
                way_out = "" if error.__cause__ is None else retyped(question.original, question.state)
                raise InputError(f"{error}{way_out}") from error.__cause__
            if not made.is_baseline:
                self._under_way.add(question.id)
        return (made,) if refused is None else (refused, made)

    def _checked(self, outcome: Outcome) -> tuple[tuple[Event, ...], InputError | None]:
        """The outcome, checked; for a cost that cannot be, an alarm, and the error once that is logged."""
        made = self._decision(outcome.decision_id)
        try:
            return (recorded(self._replica.learner, made, outcome),), None
        except ImpossibleCost as error:
            if self._store.places([outcome_key(made.decision_id)]):
                raise AlreadyRecorded(
                    f"decision {made.decision_id!r} has another outcome already, and the first stands."
                ) from error
            if self._replica.ledger.tripped is not None:
                raise
            # to leave out such costs alone would bias the regression: a_0, until somebody has looked into it
            return (self._range_alarm(error),), error

    def _taken(self, batch: Batch, written: Sequence[Appended] | StoreError) -> BaseException | None:
        """`_take` what the batch has added to the log; returns why that cannot be done, if so."""
        if isinstance(written, StoreError):
            self._store_error = str(written)
            return None
        events = [event for item in batch.items for event in item.events]
        try:
            self._take([(entry, event) for event, (entry, new) in zip(events, written, strict=True) if new])
        except BaseException as error:  # whoever waits for an answer gets this one
            return error
        return None

    def _committed(self, item: Item, written: Sequence[Appended] | StoreError) -> Answer:
        if item.error is not None and not item.drafts:
            return item.error
        try:
            if isinstance(item.request, Question) and not item.drafts:
                return self._safe(item.request, "failed", self._failure or FAILED)
            return self._not_logged(item, written) if isinstance(written, StoreError) else self._logged(item, written)
        except BaseException as error:  # of this request alone: the others of the batch are not to suffer for it
            return error

    def _logged(self, item: Item, appended: Sequence[Appended]) -> Answer:
        """The events of a request are in the log, now or since before."""
        with self._lock:
            self._drain(appended[-1].entry.seq)  # no further: drift counts the decisions that were made before this one
        match item.request:
            case Question() as question:
                entry, is_new = appended[-1]
                if not is_new:
                    return self._repeated(question, entry)
                return self._handed_out(cast(DecisionMade, item.events[-1]), question, entry, is_new=True)
            case Outcome() as outcome:
                if item.error is not None:
                    self._trip(item.error)
                    return item.error
                return self._acknowledged(outcome.decision_id, item.drafts[0], appended[0])
            case Stopped() as stop:
                self._latch_is_logged(stop, appended[-1])
        return None

    def _not_logged(self, item: Item, error: StoreError) -> Answer:
        """The log could not be written: a_0 that says so, nothing else may leave; an outcome may be sent again."""
        if isinstance(item.request, Event):  # nobody waits for it, but the log must say it: with what is next written
            if not isinstance(item.request, OutcomeLost):  # which `notes` finds again
                with self._lock:
                    self._notes.append(item.request)
            return None
        refuse = self._when_store_fails == "refuse" or isinstance(error, AlteredLog)
        if refuse or isinstance(item.request, Outcome):
            raise error
        return self._safe(item.request, "not-logged", str(error))

    def _acknowledged(self, id: str, draft: Draft, appended: Appended) -> Recorded:
        entry, fresh = appended
        if fresh:
            with self._lock:
                self._recent.pop(id, None)
                self._after_outcome()
                self._warn_of_waiting()
        elif entry.kind == OutcomeLost.kind:
            raise AlreadyRecorded(
                f"the outcome of decision {id!r} was declared lost in entry {entry.seq} ({entry.body['why']!r:.99}): "
                "later costs were counted without it, and it comes too late. Is lost_after long enough?"
            )
        elif entry.text != draft.text and canonical(entry.body) != canonical(json.loads(draft.text)):
            raise AlreadyRecorded(
                f"decision {id!r} has another outcome already (entry {entry.seq}): an outcome is counted exactly once, "
                "and the first stands."
            )
        return Recorded(id, entry.seq, not fresh)

    def _repeated(self, question: Question, entry: Entry) -> LiveDecision:
        """The decision that a key got before, for the same question."""
        made = DecisionMade.read(entry.genuine())
        if (made.state, made.step, made.episode) != (question.logged_state, question.step, question.episode):
            raise InputError(
                f"key {made.key!r} was used for another request (state {made.state!r:.80}, step {made.step}, "
                f"episode {made.episode!r}): use a new key for a new request."
            )
        return self._handed_out(made, question, entry)

    def _handed_out(
        self, made: DecisionMade, question: Question, entry: Entry, *, is_new: bool = False
    ) -> LiveDecision:
        """The decision, if nothing that was logged before it leaves forbids it: the kill switch, an alarm, or shadow
        mode may have come while it was under way, or since it was first made. Else a_0, without an id."""
        is_free = made.is_baseline and made.canary is None  # the canary's two arms leave, or do not, alike
        reason, detail = ("", "") if is_free else self._forbidden(made, question, entry.seq, is_new=is_new)
        if reason:
            return self._safe(question, reason, detail)
        if len(entry.text) <= LARGEST_REMEMBERED:
            with self._lock:
                self._recent[made.decision_id] = made
                if len(self._recent) > REMEMBERED:
                    self._recent.popitem(last=False)
        return LiveDecision.of(made, question.state, entry)

    def _forbidden(self, made: DecisionMade, question: Question, seq: int, *, is_new: bool) -> tuple[str, str]:
        """Why a logged decision may not leave, by a reason and a detail, as of now; empty if it may."""
        try:
            earlier = None if is_new else self._store.find(withheld_key(made.decision_id))
        except AlteredLog:
            raise
        except StoreError as error:  # whether it ever left cannot be told now
            return "not-logged", str(error)
        if earlier is not None:  # it did not leave then, and the log says so: it does not leave now
            note = Withheld.read(earlier.genuine())
            return note.reason, note.detail
        with self._lock:
            if self._replica.head.seq < seq:  # of others, whose entries stand between
                self._if_possible(partial(self._read_up_to, seq))
            reason, detail = halt(self._replica, self._stop_in_effect(fresh=not is_new))
            if not reason:
                reason, detail = self._guarded(made, question, seq, is_new=is_new)
            if not reason and (detail := self._replica.learner.outdated(made, float(self._clock()))):
                reason = "outdated"
            if not reason and self._failure:
                reason, detail = "failed", self._failure
            if not reason and self._replica.head.seq < seq:
                reason, detail = "not-logged", f"what stands in the log before it cannot be read: {self._store_error}"
            if reason and is_new:
                self._notes.append(
                    Withheld(decision_id=made.decision_id, reason=reason, detail=detail, is_baseline=made.is_baseline)
                )
        return reason, detail

    def _guarded(self, made: DecisionMade, question: Question, seq: int, *, is_new: bool) -> tuple[str, str]:
        """What the mode and the guards, as they are now, say against a decision that was made before."""
        ledger = self._replica.ledger
        if ledger.mode != made.mode and rank(ledger.mode) < rank(cast(Mode, made.mode)):
            return ledger.mode, f"{ledger.mode} mode was entered before this decision could leave"
        if late := ledger.guards.stale(question.observed_at, float(self._clock()), ledger.latest):
            return "stale-input", late
        if is_new or made.decision_id in ledger.surplus:  # it was counted at its place in the log
            return ledger.surplus.get(made.decision_id, ("", ""))
        counted = self._replica.head.seq - seq < ledger.guards.rate_window  # itself, for sure
        rate = ledger.guards.over_rate(ledger.mode, ledger.others() - counted)
        return ("rate", rate) if rate else ("", "")

    def _safe(self, question: Question, reason: str, detail: str) -> LiveDecision:
        """a_0 without an entry in the log, and so without an id: no outcome can be recorded for it."""
        with self._lock:
            return LiveDecision.of(safe_decision(self._replica, question, reason, detail), question.state)

    def _decision(self, id: str) -> DecisionMade:
        """The record of a logged decision."""
        if not isinstance(id, str) or not id:
            raise UnknownDecision(
                f"{id!r} is not the id of a decision: a decision that could not be logged (logged=False) has none, and "
                "its outcome cannot be learned from."
            )
        with self._lock:
            found = self._recent.get(id)
            if found is not None and self._replica.learner.agent.order.is_open(id):
                return found
        entry = self._store.find(decision_key(id)) if len(id) < 400 else None
        if entry is None:
            raise UnknownDecision(
                f"decision {id!r:.80} is not in this log: was it made by another advisor, or so long ago that it was "
                "archived with its outcome?"
            )
        if self._store.places([withheld_key(id)]):
            raise UnknownDecision(f"decision {id!r:.80} did not leave: a_0 was handed out in its place, without an id.")
        return DecisionMade.read(entry.genuine())

    def _range_alarm(self, error: BaseException) -> Tripped:
        return Tripped(test="range", message=str(error), number=self._replica.ledger.alarms)

    def _trip(self, error: BaseException) -> None:
        """An impossible cost is in the log as an alarm, unless its number was taken by one that was reset since."""
        with self._lock:
            while self._replica.ledger.tripped is None and not self._failure:
                self._read()  # an entry of another process may stand before ours
                if self._replica.ledger.tripped is None:
                    self._write(self._range_alarm(error))

    # Orders of people. Each is an entry of the log; one that was checked is written only if no other came in between.

    def promote(self, mode: Mode, *, by: str, why: str, criteria: Criteria | None = None) -> None:
        """Enter a mode that may do more, if the criteria are met; PromotionRefused names those that are not.

        `criteria` are limits of your own, which you must be able to answer for: they are logged.
        """
        asked = criteria or self.criteria

        def allowed() -> Order:
            ledger = self._replica.ledger
            if rank(mode) <= rank(ledger.mode):
                raise InputError(f"the mode is {ledger.mode!r} already: {mode!r} is no promotion. demote() goes down.")
            missing = unmet(ledger, asked, self.problem.noise, self._replica.alarms, mode)
            if missing:
                raise PromotionRefused(mode, missing)
            return ModeChanged(mode=mode, by=_name(by), why=_name(why), criteria=asked.to_json())

        self._order(allowed, allows_more=True)

    def demote(self, mode: Mode, *, by: str, why: str) -> None:
        """Enter a mode that may do less. Always allowed."""

        def allowed() -> Order:
            current = self._replica.ledger.mode
            if rank(mode) >= rank(current):
                raise InputError(f"the mode is {current!r}: {mode!r} is no demotion. Use promote().")
            return ModeChanged(mode=mode, by=_name(by), why=_name(why))

        self._order(allowed)

    def stop(self, *, by: str, why: str) -> None:
        """The kill switch: a_0 from here on, in every process that shares the log, until `resume`.

        It holds in this process before it is logged, and also if the log cannot be written (a StoreError): it is then
        written with the next entry that can be.
        """
        self.log_stop(self.latch(by=by, why=why))

    def latch(self, *, by: str, why: str) -> Stopped:
        """The first half of `stop`: in effect when this returns, in this process. It takes no lock and waits for
        nothing. The order is for `log_stop`."""
        stop = Stopped(by=_name(by), why=_name(why), id=new_id())
        self._latches[stop.id] = stop, math.inf
        return stop

    def log_stop(self, stop: Stopped) -> None:
        """The second half: announced to the other processes, which need not wait for the log; and into the log."""
        try:
            self._store.announce_stop(stop.model_dump_json())
        except StoreError as error:
            log.error("other processes learn of a stop from the log only: %s", error)
        try:
            try:
                self._latch_is_logged(stop, self._order(lambda: stop))
            except TetherError as error:  # whatever is wrong with what was read here, the others are to stop
                self._latch_is_logged(stop, *self._store.append([stop.draft()]))
                if isinstance(error, StoreError):  # else the problem's functions fail, which is no fault of the stop
                    raise
        except BaseException:
            with self._lock:
                self._notes.append(stop)
            raise

    def _latch_is_logged(self, stop: Stopped, written: Appended) -> None:
        """The latch holds until the replica has applied the entry: from there on the log decides."""
        if stop.id in self._latches:
            self._latches[stop.id] = stop, written.entry.seq

    @property
    def stopped(self) -> Stopped | None:
        """The stop that is in effect: the log's, or one that was ordered and is not in this replica yet."""
        return self._stop_in_effect(fresh=False)

    def _stop_in_effect(self, *, fresh: bool) -> Stopped | None:
        """`stopped`; without `fresh`, announcements are those that the last entry was written after. Where they cannot
        be read, that is a stop: whether there is one cannot be told."""
        unread: Stopped | None = None
        try:
            announced = self._store.announced_stop(fresh=fresh)
            if announced != self._announced:
                self._take_announcement(announced)
        except (StoreError, ValueError) as error:
            log.error("announcements of stops cannot be read, a_0 is played: %s", error)
            unread = STOPS_UNREAD
        for id, (stop, seq) in list(self._latches.items()):
            if self._replica.head.seq < seq:
                return stop
            self._latches.pop(id, None)
        return self._replica.ledger.stopped or unread

    def _take_announcement(self, announced: str) -> None:
        """A stop was announced. It holds until it is in this replica; if it is not in the log, this process logs it."""
        stop = Stopped.model_validate_json(announced)
        with self._lock:
            if stop.id not in self._latches:
                entry = self._store.find(f"stop:{stop.id}")
                self._latches[stop.id] = stop, math.inf if entry is None else entry.seq
                if entry is None:
                    self._notes.append(stop)
            self._announced = announced

    def resume(self, *, by: str, why: str) -> None:
        """Release the kill switch."""
        event = Resumed(by=_name(by), why=_name(why))
        if notes := self.notes():  # a stop that could not be logged comes first
            self._at_once(*notes)
        self._order(lambda: event, allows_more=True)

    def reset_alarm(self, *, by: str, why: str) -> None:
        """Start the tests of the assumptions anew, and release standing alarms, after an alarm was understood."""
        event = AlarmReset(by=_name(by), why=_name(why))
        self._order(lambda: event, allows_more=True)

    def _order(self, allowed: Callable[[], Order], *, allows_more: bool = False) -> Appended:
        """Write the order that is `allowed`, given every order before it. If another comes in between, look again; but
        an order that `allows_more` is refused then: whoever gave it has not seen the other."""
        while True:
            with self._lock:
                self.sync()
                number, event = self._replica.ledger.orders, allowed()
            written = self._write(event, f"order:{number}")
            first = written.entry
            if written.fresh or not {*event.keys()}.isdisjoint(first.unique):  # now, or by an earlier attempt
                return written
            if allows_more:
                raise InputError(
                    f"another order came first (entry {first.seq}, {first.kind!r} by {first.body.get('by')!r}: "
                    f"{first.body.get('why')!r:.200}): look at it, then give this one again."
                )

    def warm_start(
        self,
        features: Any,
        costs: Any,
        *,
        rewards: Any = None,
        steps: Any = None,
        seen_states: Sequence[Any] | None = None,
        next_states: Sequence[Any] | None = None,
        duplicates: Duplicates = "refuse",
        source: str = "",
    ) -> int:
        """Learn from data from before the log: features (n, d), costs (n,) or (n, M). Returns how many rows were taken.

        Rows without a reward teach the cost alone; `steps` (n,) may be left out at H = 1. `duplicates` says what to do
        with rows that are equal in every number and state, here or in the log: where costs are continuous, two equal
        rows are one row exported twice, to "refuse" or to "drop". Where costs are 0 or 1, "keep" takes equal rows as
        separate measurements, but refuses those that the log holds already; "new" is for the whole of a table that has
        grown: of equal rows it takes as many as the log does not hold yet. All rows are checked before any is taken.

        Rows count only while the safe action alone was decided, as in shadow mode; later they are refused.
        """
        data = OldData(features, costs, rewards, steps, seen_states, next_states)
        self.sync()
        waits, ignored = bool(self._replica.learner.batches), self._replica.learner.ignored
        drafts = warm_start_drafts(self._store, self.problem, self.states, data, duplicates, source, waits)
        if drafts and self._replica.learner.agent.has_acted:
            raise InputError(TOO_LATE.format(""))
        appended = append_in_turn(self._store, drafts)
        self.sync()
        if self._replica.learner.ignored > ignored:  # another process has decided meanwhile
            raise InputError(TOO_LATE.format(""))
        taken = sum(len(each.entry.body["rows"]) for each in appended if each.fresh)
        if not all(each.fresh for each in appended):
            raise InputError(
                f"some of these rows were written by another process at the same time (entry {appended[-1].entry.seq}):"
                f" {taken} were taken now. Call again with duplicates='drop', or 'new' where you said 'keep'."
            )
        return taken

    # Following the log: everything that changes an advisor is an entry there.

    @property
    def store(self) -> Store:
        """The log."""
        return self._store

    @property
    def replica(self) -> Replica:
        """Learner and ledger as of the entries that were applied. Read it; only the log changes it."""
        return self._replica

    @property
    def failure(self) -> str:
        """Why the log cannot be followed, so that a_0 is played: the problem's functions failed. Empty if it can."""
        return self._failure

    def status(self) -> Status:
        """Where this advisor stands."""
        with self._lock:
            replica, ledger = self._replica, self._replica.ledger
            stopped, ever, order = self.stopped, ledger.ever, replica.learner.agent.order
            return Status(
                mode=ledger.mode,
                stopped="" if stopped is None else f"by {stopped.by}: {stopped.why}",
                alarm=replica.alarms,
                seq=replica.head.seq,
                head=replica.head.hash,
                data_version=replica.learner.version,
                model_hash=replica.learner.model_hash(0),
                decisions=ever.decisions,
                baseline=ever.baseline,
                proposed=ever.proposed,
                refusals=ever.refusals,
                over_by_itself=ever.over_by_itself,
                outcomes=ever.outcomes,
                costs=ever.costs,
                spent=ledger.spending.in_window(),
                over=tuple(ledger.spending.over),
                certified=ledger.certified,
                open=len(order),
                waiting=order.waiting,
                waiting_since=min((each.since for each in order.blocked if each.since is not None), default=0.0),
                waiting_for=", ".join(str(each.id) for each in order.blocked),
                lost=int(replica.learner.agent.lost.sum()),
                unsynced=len(self._arrived),
                uplift=ledger.uplift.status(),
                store_error=self._store_error,
                failure=self._failure,
            )

    def waits(self) -> Waits | None:
        """What learning waits for; None while no outcome waits."""
        with self._lock:
            blocked = [each for each in self._replica.learner.agent.order.blocked if each.waiting]
        if not blocked:
            return None
        since = min((each.since for each in blocked if each.since is not None), default=0.0)
        return Waits(sum(each.waiting for each in blocked), tuple(str(each.id) for each in blocked), since)

    def _warn_of_waiting(self) -> None:
        """Tell the program's own log when 100 outcomes wait for a decision, and again at ten times as many."""
        waits = self.waits()
        if waits is None:
            self._warn_at = WARN_AT[0]
        elif waits.outcomes >= self._warn_at:
            self._warn_at *= 10
            log.warning("%s", waits.said(float(self._clock())))

    def sync(self) -> int:
        """Apply everything that the log holds by now; returns how many entries were new. Where the problem's functions
        failed before, the log is read anew, and an InputError says so if they still do."""
        with self._lock:
            before = self._replica.head.seq
            if self._failure:
                self._rebuild()
            self._read()
            if self._failure:
                raise InputError(self._failure)
            self._after_outcome()
            return self._replica.head.seq - before

    def snapshot(self) -> int:
        """Save a snapshot now, so that a restart is short; returns the entry that it follows."""
        with self._lock:
            if self._failure:
                raise InputError(f"there is nothing to save: {self._failure}")
            seq, data = self._replica.head.seq, self._replica.to_bytes()
            self._snapshot_at = seq
        self._store.save_snapshot(seq, data)
        return seq

    def close(self) -> None:
        """Let go of the log. The advisor is of no use afterwards."""
        self._closed.set()
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
                self._take([(appended.entry, event)])
                self._drain()
            if self._replica.head.seq < appended.entry.seq:
                self._read()
        return appended

    def _take(self, written: list[tuple[Entry, Event]]) -> None:
        """Keep entries that this process wrote until `_drain`, and read those of others that stand before them."""
        self._store_error = ""
        head = self._replica.head.seq
        self._arrived.update({entry.seq: (entry, event) for entry, event in written if entry.seq > head})
        first = min(self._arrived, default=head + 1)
        if first == head + 1:
            self._gap_since = math.inf
            return
        # A gap: another thread's batch that is about to come in here, or another process's, which must be read.
        now = time.monotonic()
        self._gap_since = min(self._gap_since, now)
        waited = self._refresh is not None and now - self._gap_since > self._refresh
        if self._in_flight == 0 or waited:
            self._if_possible(partial(self._read_up_to, first - 1))

    def _drain(self, seq: float = math.inf) -> None:
        """Apply what is at hand and next in the log, up to entry `seq`."""
        if not self._failure:
            self._fold(partial(self._apply_arrived, seq))
        if self._failure:
            self._arrived.clear()  # they are in the log, and read from there

    def _apply_arrived(self, seq: float) -> None:
        while self._replica.head.seq < seq and (next_one := self._arrived.pop(self._replica.head.seq + 1, None)):
            self._replica.apply(*next_one)

    def _fold(self, apply: Callable[[], object]) -> None:
        """Apply entries, which calls the problem's functions. Whatever those raise ends nothing: a_0 is played until
        the log was read anew, from a snapshot, as what was begun cannot be taken back."""
        try:
            apply()
        except StoreError:
            raise
        except KeyboardInterrupt as interrupted:
            self._fail(interrupted)
            raise
        except BaseException as error:  # a function may call sys.exit, too
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        seq = self._replica.head.seq + 1
        log.error("entry %d could not be applied: a_0 is played until it can be", seq, exc_info=error)
        self._failure = f"entry {seq} of the log could not be applied ({type(error).__name__}). {FAILED}"
        threading.Thread(target=self._retry, name="tether-retry", daemon=True).start()

    def _retry(self) -> None:
        """Read the log anew until the problem's functions answer."""
        pause = RETRY_AFTER
        while self._failure and not self._closed.wait(pause):
            try:
                self._rebuild()
            except BaseException as error:  # not yet
                log.warning("the log still cannot be applied: %s", type(error).__name__)
            pause = min(2.0 * pause, RETRY_EVERY)

    def _rebuild(self) -> None:
        """Another replica in place of one that was left half-way, from the newest snapshot and the log."""
        try:
            replica = load(self._store, self._learner)
        except (StoreError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise InputError(self._failure) from error
        with self._lock:
            if self._failure:  # else somebody else was faster
                self._replica, self._failure = replica, ""
                self._arrived.clear()
                log.info("the log was read anew, up to entry %d", replica.head.seq)

    def _read(self) -> None:
        """Everything that the log holds beyond this replica."""
        self._last_look = time.monotonic()
        self._read_up_to(max(self._arrived, default=0))
        if not self._failure:
            self._fold(partial(self._replica.catch_up, self._store))
        self._arrived = {seq: each for seq, each in self._arrived.items() if seq > self._replica.head.seq}

    def _read_up_to(self, seq: int) -> None:
        """Entries up to this one. Those that were written here are at hand, and not read again."""
        before = -1
        while before < self._replica.head.seq < seq and not self._failure:
            before = self._replica.head.seq
            self._fold(partial(self._replica.catch_up, self._store, min((seq, *(each - 1 for each in self._arrived)))))
            self._drain(seq)
        self._gap_since = math.inf

    def _look_around(self) -> None:
        """Look for entries of other processes once in a while. If the log is gone, the older state is still good."""
        if self._refresh is None or time.monotonic() - self._last_look < self._refresh:
            return
        self._if_possible(self._read)
        self._after_outcome()

    def _if_possible(self, read: Callable[[], object]) -> None:
        """Read, unless the log is out of reach for now. One that was altered is never passed over."""
        try:
            read()
        except AlteredLog:
            raise
        except StoreError as error:
            self._store_error = str(error)

    def _after_outcome(self) -> None:
        """Log an alarm once, and save a snapshot once in a while. Neither is needed for safety, so neither may fail."""
        if self._failure:
            return
        replica = self._replica
        alarm, known = replica.learner.alarm, replica.ledger.tripped
        if alarm is not None and (known is None or (alarm.test == "safe" and known.test != "safe")):
            with suppress(StoreError):
                self._write(Tripped(test=alarm.test, message=str(alarm), number=replica.ledger.alarms))
        # a snapshot holds every open decision: where there are many, it is saved as much more rarely
        pause = max(self._snapshot_every, len(replica.learner.agent.order))
        if replica.head.seq - self._snapshot_at >= pause and not self._store.read_only:
            self._snapshot_at = replica.head.seq  # whatever comes of it, the next attempt is as far away
            self.run_later(self._try_to_snapshot)

    def _try_to_snapshot(self) -> None:
        try:
            self.snapshot()
        except (TetherError, OSError) as error:  # no room for it, states that cannot be saved: a restart then replays
            # the whole log
            log.warning("no snapshot could be saved: %s", error)


def run_now(work: Callable[[], None]) -> None:
    """Carry out what need not be done now. A service puts a thread's `submit` in place of it: nobody waits then."""
    work()


def _name(text: str) -> str:
    """Who or why: never empty, since the log is read by people."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"`by` and `why` must say something, but one is {text!r}: the log is read by people.")
    return text


def _check_settings(first: Configured, settings: Configured) -> None:
    """A log belongs to one problem and one configuration: its data certify nothing elsewhere."""
    if first.listed != settings.listed:
        raise InputError(
            "this log was started with another problem: its listed states have other features, actions or safe costs. "
            + WAY_OUT
        )
    for part in ("problem", "algorithm", "config", "watch"):
        before, now = getattr(first, part), getattr(settings, part)
        if before != now:
            if part == "algorithm":
                part, before, now = "limit_on", limit_of(before), limit_of(now)
            if isinstance(before, dict) and isinstance(now, dict):  # only what differs
                names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
                before, now = ({name: side.get(name) for name in names} for side in (before, now))
            raise InputError(
                f"this log was started with another {part}: {before}, not {now}. Use the same, or start "
                "a new log and hand the old data to warm_start."
            )
