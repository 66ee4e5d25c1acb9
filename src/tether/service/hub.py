"""The hub: the advisor between asyncio and the log. Requests that arrive together share one sync."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tether.errors import AlteredLog, StoreError, TetherError
from tether.live.advisor import Advisor, Pending
from tether.live.log.group_commit import GroupCommit
from tether.live.log.store import Appended
from tether.live.records import LiveDecision, Recorded
from tether.records import StarAction
from tether.service.models import DecisionRequest, OutcomeRequest, StarActionModel


class Decided(NamedTuple):
    """A decision, and its body in the log; None if it could not be logged."""

    decision: LiveDecision
    body: dict[str, Any] | None


NOT_BEGUN = Pending(())

error_log = logging.getLogger("tether.service")


@dataclass(slots=True, eq=False)
class Waiting:
    """A request on its way to the log: its first half, how it ends, and the future of the one who waits for it."""

    begin: Callable[[], Pending]
    finish: Callable[[Pending, list[Appended]], Any]
    fail: Callable[[Pending, StoreError], Any]
    answer: "asyncio.Future[Any]"
    pending: Pending = NOT_BEGUN

    def begun(self, note: Callable[[StoreError], None]) -> bool:
        """Do the first half; False if it fails, which is then the answer, or if nobody waits for one any more. That the
        log cannot be read is noted."""
        if self.answer.done():
            return False
        try:
            self.pending = self.begin()
        except BaseException as failure:  # of this request alone: the others of the batch are not to suffer for it
            self.refuse(failure)
            if isinstance(failure, StoreError):
                note(failure)
            return False
        return True

    def refuse(self, failure: BaseException) -> None:
        """The answer is this failure, if somebody still waits for one. A future takes no StopIteration, and what is no
        Exception is not to end the loop."""
        plain = isinstance(failure, Exception) and not isinstance(failure, StopIteration)
        if not self.answer.done():
            self.answer.set_exception(failure if plain else RuntimeError(f"{type(failure).__name__}: {failure}"))


class Hub:
    """Decides on the event loop, which takes less than a thread would, and waits for the log without blocking it.

    What came in during one turn of the loop is handed to the group commit together, and comes back together. The second
    half of every request runs when its batch is back, whether or not somebody still waits for it: a client that hangs
    up, or a time-out, leaves nothing half done.
    """

    def __init__(self, advisor: Advisor, *, waiting: int, seconds: float) -> None:
        self.advisor = advisor
        self._seconds = seconds
        self._commit = GroupCommit(advisor.store, most_waiting=waiting)
        self._gathered: list[Waiting] = []
        self._away: set[Future[list[Appended]]] = set()
        self._all_back = asyncio.Event()
        self._all_back.set()
        self._failure: StoreError | None = None  # of the log, when last used
        self._trying = False

    async def decide(self, asked: DecisionRequest, key: str | None) -> Decided:
        """A decision, durably logged before it is handed out."""
        state, seen = wire_state(asked.state), asked.observed_at
        begin = partial(self.advisor.begin_decide, state, asked.step, asked.episode, key=key, observed_at=seen)
        decided: Decided = await self._logged(begin, self._finish_decide, self._fail_decide)
        return decided

    async def record(self, told: OutcomeRequest) -> Recorded:
        """An outcome, exactly once, durable before it is acknowledged."""
        applied: Any = told.applied
        if isinstance(applied, StarActionModel):
            applied = StarAction(applied.ray, applied.length)
        next_state = wire_state(told.next_state)
        begin = partial(self.advisor.begin_record, told.decision_id, told.reward, told.cost, next_state, applied)
        recorded: Recorded = await self._logged(begin, self.advisor.finish_record, self._fail_record)
        return recorded

    def _finish_decide(self, pending: Pending, appended: list[Appended]) -> Decided:
        made = self.advisor.finish_decide(pending, appended)
        return Decided(made, appended[-1].entry.body if made.logged else None)

    def _fail_decide(self, pending: Pending, error: StoreError) -> Decided:
        return Decided(self.advisor.fail_decide(pending, error), None)

    def _fail_record(self, pending: Pending, error: StoreError) -> None:
        self.advisor.fail_record(error)
        raise error

    def _logged(
        self,
        begin: Callable[[], Pending],
        finish: Callable[[Pending, list[Appended]], Any],
        fail: Callable[[Pending, StoreError], Any],
    ) -> "asyncio.Future[Any]":
        """The answer to come. The first of a turn of the loop asks for the batch to be handed over at its end."""
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._hand_over, loop)
        self._gathered.append(Waiting(begin, finish, fail, loop.create_future()))
        return self._gathered[-1].answer

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """The first half of every request that came in, one after the other, and their drafts to the log."""
        gathered, self._gathered = self._gathered, []
        batch = [each for each in gathered if each.begun(self._note)]
        if not batch:
            return
        try:
            written = self._commit.submit([draft for each in batch for draft in each.pending.drafts])
        except StoreError as error:
            _end(batch, None, error)
            return
        self._away.add(written)
        self._all_back.clear()
        timer = loop.call_later(self._seconds, self._give_up, batch)

        def back(done: "Future[list[Appended]]") -> None:
            timer.cancel()
            self._away.discard(done)
            appended, error = _result_of(done)
            self._note(error)
            _end(batch, appended, error)
            if notes := self.advisor.notes():  # of what did not leave: nobody waits for them
                self._logged(partial(Pending, notes), self.advisor.finish_notes, lambda pending, error: None)
            if not self._away:
                self._all_back.set()

        written.add_done_callback(lambda done: loop.call_soon_threadsafe(back, done))

    def _give_up(self, batch: list[Waiting]) -> None:
        """The log takes too long: whoever waits is told so. Their drafts may still be written, and are then learned."""
        self._note(StoreError(f"it has not answered for {self._seconds:g} s."))
        for each in batch:
            if not each.answer.done():
                each.answer.set_exception(TimeoutError())

    def _note(self, failure: StoreError | None) -> None:
        """The log failed, or did not: a line in the service's own log when that changes. Callers are not told why."""
        before, self._failure = self._failure, failure
        if failure is None and before is not None:
            error_log.info("the log can be used again")
        elif failure is not None and str(failure) != str(before):
            error_log.error("the log cannot be used: %s", failure)

    async def ready(self) -> bool:
        """Whether the log can be read, and could be used when last tried."""
        try:
            await asyncio.to_thread(self.advisor.store.head)
            if self._failure is not None and not self._trying and not self._away:
                await self._try()
        except Exception:  # whatever it is, this process is not the one to send requests to
            return False
        return self._failure is None

    async def _try(self) -> None:
        """Write to a log that failed: a snapshot, which nobody minds. Whoever is told that a process is not ready sends
        it nothing else that would show that it is again. That a log was altered is for people to settle."""
        if isinstance(self._failure, AlteredLog):
            return
        self._trying = True
        try:
            await asyncio.to_thread(self.advisor.snapshot)
        except StoreError:
            raise
        except TetherError:  # states that cannot be saved: then it can be read, at least, and the next decision tells
            pass
        finally:
            self._trying = False
        self._note(None)

    async def close(self) -> None:
        """Finish what has begun, save a snapshot and let go of the log."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_back.wait(), self._seconds)
        await asyncio.to_thread(self._commit.close)
        with suppress(TetherError):  # a snapshot only saves time: the log alone is enough
            self.advisor.snapshot()
        self.advisor.close()


def _result_of(done: "Future[list[Appended]]") -> tuple[list[Appended] | None, StoreError | None]:
    """What the log says of a batch, or why it could not be written; an error that no store should raise counts too."""
    error = done.exception()
    if error is None:
        return done.result(), None
    return None, error if isinstance(error, StoreError) else StoreError(f"the log failed: {type(error).__name__}.")


def _end(batch: list[Waiting], appended: list[Appended] | None, error: StoreError | None) -> None:
    """The second half of each request of a batch, in the order of the log, and its answer if somebody still waits."""
    start = 0
    for each in batch:
        end = start + len(each.pending.drafts)
        try:
            if appended is None:
                answer = each.fail(each.pending, error or StoreError("the log gave no answer."))
            else:
                answer = each.finish(each.pending, appended[start:end])
        except BaseException as failure:  # of this request alone, too
            each.refuse(failure)
        else:
            if not each.answer.done():
                each.answer.set_result(answer)
        start = end


def wire_state(value: Any) -> Any:
    """A state as it came in JSON. Lists become tuples, which have an identity; numpy takes them just as well."""
    if isinstance(value, list):
        return tuple(wire_state(entry) for entry in value)
    if isinstance(value, dict):
        return {name: wire_state(entry) for name, entry in value.items()}
    return value
