"""Batches: requests that share one write of the log. Each request is answered for itself, once its entry is there."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from tether.errors import AlteredLog, InputError, StoreError
from tether.live.answers import LiveDecision, Recorded
from tether.live.binding import Binding
from tether.live.event import Event
from tether.live.following import FAILED, Follower, Notes
from tether.live.handing_out import HandingOut
from tether.live.judge import Outcome, Question, judge
from tether.live.latches import Latches
from tether.live.log.chain import Appended, Draft
from tether.live.outcomes import Outcomes
from tether.live.records import DecisionMade, OutcomeLost, OutcomeRecorded, Stopped, request_key
from tether.live.states import retyped
from tether.live.upkeep import WhenStoreFails

"""What a question gets if the log cannot be written: a_0 that says so, or the StoreError."""

Request = Question | Outcome | Event
"""What a batch may hold. An event is only to be logged."""

Answer = LiveDecision | Recorded | BaseException | None
"""What becomes of a request; None for an event."""


class Item(NamedTuple):
    """One request of a batch, and what the log gets for it.

    Attributes:
        request: a question, an outcome, or an event that is only to be logged.
        events: what is to be logged.
        drafts: the same, as the log takes it.
        error: why the request is refused: at once, or, where the log must say so first, when its events are there.
    """

    request: Request
    events: tuple[Event, ...] = ()
    drafts: tuple[Draft, ...] = ()
    error: BaseException | None = None


class Batch(NamedTuple):
    """Requests between `prepare` and `commit`: append `drafts` to the log in one go."""

    items: tuple[Item, ...]
    drafts: tuple[Draft, ...]


class Batches:
    """Prepare requests, have their events logged, and answer them.

    Attributes:
        under_way: ids of decisions other than a_0 between `prepare` and `commit`.
    """

    def __init__(
        self,
        follower: Follower,
        binding: Binding,
        latches: Latches,
        notes: Notes,
        outcomes: Outcomes,
        handing_out: HandingOut,
        when_store_fails: WhenStoreFails,
    ) -> None:
        self._follower, self._binding, self._latches, self._notes = follower, binding, latches, notes
        self._outcomes, self._handing_out, self._when_store_fails = outcomes, handing_out, when_store_fails
        self.under_way: set[str] = set()

    # One request, here and now

    def decide(self, question: Question) -> LiveDecision:
        """Answer a question. A key that was used before gets the same decision again."""
        if question.key is not None:
            with suppress(StoreError):  # a log that cannot be read is noticed when it is written
                earlier = self._follower.store.find(request_key(question.key))
                if earlier is not None:
                    return self._handing_out.repeated(question, earlier)
        _, made = self._at_once(question)
        self.log_notes()
        return cast(LiveDecision, made)

    def record(self, outcome: Outcome) -> Recorded:
        """Log an outcome and learn from it."""
        item, done = self._at_once(outcome)
        with self._follower.lock:  # whoever decides next need not wait for this; in a service, outcomes come in batches
            for event in item.events:
                if isinstance(event, OutcomeRecorded):
                    self._follower.replica.learner.prepare(event.step)
        return cast(Recorded, done)

    def log_notes(self) -> None:
        """Log what nobody waits for."""
        if notes := self._notes.handed_over():
            self._at_once(*notes)

    def _at_once(self, *requests: Request) -> tuple[Item, Answer]:
        """Prepare, write and commit; return the first request and its answer, or raise that."""
        batch = self.prepare(requests)
        written: Sequence[Appended] | StoreError
        try:
            written = self._follower.store.append(batch.drafts) if batch.drafts else []
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

    # The first half

    def prepare(self, requests: Iterable[Request]) -> Batch:
        """Judge questions and check outcomes. Nothing is written, and each fails for itself."""
        given = tuple(requests)
        first = next((request for request in given if isinstance(request, Question)), None)
        items = tuple([self._prepared(request, looks=request is first) for request in given])
        batch = Batch(items, tuple([draft for item in items for draft in item.drafts]))
        with self._follower.lock:
            self._follower.in_flight += bool(batch.drafts)
        return batch

    def _prepared(self, request: Request, *, looks: bool) -> Item:
        error: BaseException | None = None
        try:
            match request:
                case Question() if self._follower.failure:
                    return Item(request)
                case Question():
                    events = self._judged(request, looks=looks)
                case Outcome():
                    events, error = self._outcomes.checked(request)
                case _:
                    events = (request,)
            return Item(request, events, tuple([event.draft() for event in events]), error)
        except BaseException as failure:  # of this request alone, too
            return Item(request, error=failure)

    def _judged(self, question: Question, *, looks: bool) -> tuple[Event, ...]:
        """Return the decision, after the gate's refusal if there was one. One question of a batch `looks around`."""
        with self._follower.lock:
            if looks:
                self._follower.look_around()
            self._binding.check()
            question.under_way = len(self.under_way)
            try:
                made, refused = judge(self._follower.replica, question)
            except InputError as error:
                way_out = "" if error.__cause__ is None else retyped(question.original, question.state)
                raise InputError(f"{error}{way_out}") from error.__cause__
            if not made.is_baseline:
                self.under_way.add(question.id)
        return (made,) if refused is None else (refused, made)

    # The second half

    def commit(self, batch: Batch, written: Sequence[Appended] | StoreError) -> list[Answer]:
        """Apply what was logged, and answer each request.

        Args:
            batch: from `prepare`.
            written: what the log says of its drafts, or why they could not be written.
        """
        with self._follower.lock:
            self._follower.in_flight -= bool(batch.drafts)
            unread = self._taken(batch, written)
        answers, start = list[Answer](), 0
        for item in batch.items:
            end = start + len(item.drafts)
            part = written if isinstance(written, StoreError) else written[start:end]
            answers.append(self._committed(item, part) if unread is None or not item.drafts else unread)
            if isinstance(item.request, Question):
                self.under_way.discard(item.request.id)
            start = end
        with self._follower.lock, suppress(StoreError):  # an altered log: it is found again, by the next who needs it
            self._follower.drain()
        return answers

    def _taken(self, batch: Batch, written: Sequence[Appended] | StoreError) -> BaseException | None:
        """Keep what the batch has added to the log, to be applied; return why that cannot be done, if so."""
        if isinstance(written, StoreError):
            self._follower.store_error = str(written)
            return None
        events = [event for item in batch.items for event in item.events]
        try:
            self._follower.take([(entry, event) for event, (entry, new) in zip(events, written, strict=True) if new])
        except BaseException as error:  # whoever waits for an answer gets this one
            return error
        return None

    def _committed(self, item: Item, written: Sequence[Appended] | StoreError) -> Answer:
        if item.error is not None and not item.drafts:
            return item.error
        try:
            if isinstance(item.request, Question) and not item.drafts:
                return self._handing_out.safe(item.request, "failed", self._follower.failure or FAILED)
            return self._not_logged(item, written) if isinstance(written, StoreError) else self._logged(item, written)
        except BaseException as error:  # of this request alone: the others of the batch are not to suffer for it
            return error

    def _logged(self, item: Item, appended: Sequence[Appended]) -> Answer:
        """Answer a request whose events are in the log, now or since before."""
        with self._follower.lock:
            self._follower.drain(appended[-1].entry.seq)  # no further: drift counts the decisions before this one
        match item.request:
            case Question() as question:
                entry, is_new = appended[-1]
                if not is_new:
                    return self._handing_out.repeated(question, entry)
                return self._handing_out.fresh(cast(DecisionMade, item.events[-1]), question, entry)
            case Outcome() as outcome:
                if item.error is not None:
                    self._outcomes.trip(item.error)
                    return item.error
                return self._outcomes.acknowledged(outcome.decision_id, item.drafts[0], appended[0])
            case Stopped() as stop:
                self._latches.is_logged(stop, appended[-1])
        return None

    def _not_logged(self, item: Item, error: StoreError) -> Answer:
        """Answer a request that the log does not hold: a_0 that says so, or the error. Nothing else may leave."""
        if isinstance(item.request, Event):  # nobody waits for it, but the log must say it: with what is next written
            if not isinstance(item.request, OutcomeLost):  # which the notes find again
                self._notes.add(item.request)
            return None
        refuse = self._when_store_fails == "refuse" or isinstance(error, AlteredLog)
        if refuse or isinstance(item.request, Outcome):  # an outcome may be sent again
            raise error
        return self._handing_out.safe(item.request, "not-logged", str(error))
