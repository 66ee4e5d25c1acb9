"""The hub: the advisor between asyncio and the log. Requests that arrive together share one sync."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tether.errors import AlteredLog, StoreError, TetherError
from tether.live.advisor import Advisor, run_now
from tether.live.answers import LiveDecision, Recorded
from tether.live.batches import Batch, Request
from tether.live.judge import Outcome
from tether.live.log.chain import Appended
from tether.live.log.group_commit import GroupCommit
from tether.records import StarAction
from tether.service.head_note import EVERY, HeadNote
from tether.service.models import DecisionRequest, OutcomeRequest, StarActionModel

error_log = logging.getLogger("tether.service")

LONGEST_TURN = 0.02
"""Seconds for which requests are gathered while more and more arrive: few large batches take less than many small
ones, whose thread would fight with the loop for Python's global lock."""


class Hub:
    """Decides on the event loop, which takes less than a thread would, and waits for the log without blocking it.

    What came in during one turn of the loop is one batch: handed to the group commit together, and back together. The
    second half of every request runs when its batch is back, whether or not somebody still waits for it: a client that
    hangs up, or a time-out, leaves nothing half done.
    """

    def __init__(
        self,
        advisor: Advisor,
        *,
        waiting: int,
        seconds: float,
        noted: Path | None = None,
        observe_sync: Callable[[float], object] = abs,
    ) -> None:
        self.advisor, self._note_of_head = advisor, HeadNote(advisor.store, noted)
        self._stop_if_restored()
        self._seconds = seconds
        self._commit = GroupCommit(advisor.store, most_waiting=waiting, observe=observe_sync)
        self._gathered: list[tuple[Request, asyncio.Future[Any]]] = []
        self._away: set[Future[list[Appended]]] = set()
        self._all_back = asyncio.Event()
        self._all_back.set()
        self._health = ThreadPoolExecutor(1, "tether-health")  # of its own: a probe waits for nobody
        advisor.run_later = self._health.submit
        self._failure: StoreError | None = None  # of the log, when last used
        self._trying = False
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._note_head)

    def _stop_if_restored(self) -> None:
        """A log that is not the noted one, or a later state of it, starts stopped; once that is logged, it is noted."""
        if why := self._note_of_head.contradiction():
            error_log.error("the log starts stopped: %s", why)
            why = f"the log starts stopped: {why}. Resume once you know what is missing"
            with suppress(StoreError):  # it holds, and is logged when that is possible
                self.advisor.stop(by="the service", why=why)

    def _note_head(self) -> None:
        """Every `EVERY` seconds, note the head of the log, in the thread of the health checks, and log what is still
        to be logged, though nobody asks for anything."""
        self._health.submit(self._note_of_head.write)
        self._log_notes()
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._note_head)

    async def decide(self, asked: DecisionRequest, key: str | None, caller: str | None = None) -> LiveDecision:
        """A decision, durably logged before it is handed out. An idempotency key belongs to its caller."""
        state, seen = wire_state(asked.state), asked.observed_at
        question = self.advisor.question(state, asked.step, asked.episode, key=key, observed_at=seen, caller=caller)
        made: LiveDecision = await self._answer(question)
        return made

    async def record(self, request: OutcomeRequest) -> Recorded:
        """An outcome, exactly once, durable before it is acknowledged."""
        applied: Any = request.applied
        if isinstance(applied, StarActionModel):
            applied = StarAction(applied.ray, applied.length)
        done: Recorded = await self._answer(
            Outcome(request.decision_id, request.reward, request.cost, wire_state(request.next_state), applied)
        )
        return done

    def _answer(self, request: Request) -> "asyncio.Future[Any]":
        """The answer to come. The first of a batch asks for it to be handed over."""
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._gather, loop, 1, loop.time() + LONGEST_TURN)
        self._gathered.append((request, loop.create_future()))
        return self._gathered[-1][1]

    def _gather(self, loop: asyncio.AbstractEventLoop, before: int, until: float) -> None:
        """Hand the batch over at the end of a turn of the loop that brought nothing more, or when it takes long."""
        if len(self._gathered) > before and loop.time() < until:
            loop.call_soon(self._gather, loop, len(self._gathered), until)
        else:
            self._hand_over(loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare the batch, without those who have hung up by now, and give its drafts to the log."""
        gathered = [(request, future) for request, future in self._gathered if not future.done()]
        self._gathered = []
        batch, futures = self.advisor.prepare(request for request, _ in gathered), [future for _, future in gathered]
        for item in batch.items:
            if isinstance(item.error, StoreError):
                self._note(item.error)
        if not batch.drafts:
            self._end(batch, [], futures)
            return
        try:
            written = self._commit.submit(batch.drafts)
        except StoreError as error:
            self._end(batch, error, futures)
            return
        self._away.add(written)
        self._all_back.clear()
        timer = loop.call_later(self._seconds, self._give_up, futures)

        def back(done: "Future[list[Appended]]") -> None:
            timer.cancel()
            self._away.discard(done)
            result = _result_of(done)
            self._note(result if isinstance(result, StoreError) else None)
            self._end(batch, result, futures)
            if not isinstance(result, StoreError):
                self._log_notes()
            if not self._away:
                self._all_back.set()

        written.add_done_callback(lambda done: loop.call_soon_threadsafe(back, done))

    def _log_notes(self) -> None:
        """Log what no request waits for: decisions that did not leave, orders that could not be written."""
        for note in self.advisor.notes():
            self._answer(note)

    def _end(self, batch: Batch, written: list[Appended] | StoreError, futures: "list[asyncio.Future[Any]]") -> None:
        """Commit the batch, and resolve the pending futures. A future takes no StopIteration, and a BaseException would
        end the loop: both become a RuntimeError."""
        for answer, future in zip(self.advisor.commit(batch, written), futures, strict=True):
            if future.done():
                continue
            if not isinstance(answer, BaseException):
                future.set_result(answer)
            elif isinstance(answer, Exception) and not isinstance(answer, StopIteration):
                future.set_exception(answer)
            else:
                future.set_exception(RuntimeError(f"{type(answer).__name__}: {answer}"))

    def _give_up(self, futures: "list[asyncio.Future[Any]]") -> None:
        """The log takes too long: pending requests fail. Their drafts may still be written, and then are learned."""
        self._note(StoreError(f"it has not answered for {self._seconds:g} s."))
        for future in futures:
            if not future.done():
                future.set_exception(TimeoutError())

    def _note(self, failure: StoreError | None) -> None:
        """Keep whether the log failed, and write a line to the service's own log when that changes, for people."""
        before, self._failure = self._failure, failure
        if failure is None and before is not None:
            error_log.info("the log can be used again")
        elif failure is not None and str(failure) != str(before):
            error_log.error("the log cannot be used: %s", failure)

    async def ready(self) -> bool:
        """Whether the log can be read, and could be used when last tried."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._health, self.advisor.store.head)
            if self._failure is not None and not self._trying and not self._away:
                await self._try()
        except Exception:  # whatever it is, this process is not the one to send requests to
            return False
        return self._failure is None and not self.advisor.failure

    async def _try(self) -> None:
        """Test a log that failed by writing a snapshot: a process that is not ready gets no requests, so that nothing
        else would show that the log works again. One that was altered stays failed until a person has looked at it."""
        if isinstance(self._failure, AlteredLog):
            return
        self._trying = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._health, self.advisor.snapshot)
        except StoreError:
            raise
        except TetherError:  # states that cannot be saved: then it can be read, at least, and the next decision tells
            pass
        finally:
            self._trying = False
        self._note(None)
        self._log_notes()

    async def close(self) -> None:
        """Finish what has begun, save a snapshot and let go of the log."""
        self._timer.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_back.wait(), self._seconds)
        await asyncio.to_thread(self._commit.close)
        self.advisor.run_later = run_now
        with suppress(TetherError):  # a snapshot only saves time: the log alone is enough
            self.advisor.snapshot()
        self._note_of_head.write()
        self.advisor.close()
        self._health.shutdown(wait=False)


def _result_of(done: "Future[list[Appended]]") -> list[Appended] | StoreError:
    """What the log says of a batch, or why it could not be written."""
    error = done.exception()
    return done.result() if error is None else StoreError.of(error)


def wire_state(value: Any) -> Any:
    """A state as it came in JSON. Lists become tuples, which have an identity; numpy takes them just as well."""
    if isinstance(value, list):
        return tuple(wire_state(entry) for entry in value)
    if isinstance(value, dict):
        return {name: wire_state(entry) for name, entry in value.items()}
    return value
