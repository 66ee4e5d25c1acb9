"""Group commit: what arrives while one batch is being synced is written as the next batch, with one sync for all."""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import NamedTuple, Self

from tether.errors import InputError, StoreBusy, StoreError
from tether.live.log.chain import Appended, Draft, Store

LARGEST_BATCH_BYTES = 2**24
"""Bytes of bodies that one batch gathers: a statement of a database has its limits, and others wait meanwhile."""


MOST_WAITING_BYTES = 2**26
"""Bytes of bodies that may wait for the next batch, in all."""


def _bytes_of(drafts: Sequence[Draft]) -> int:
    return sum([len(draft.text) for draft in drafts])


class _Request(NamedTuple):
    drafts: list[Draft]
    future: "Future[list[Appended]]"


class GroupCommit:
    """One thread that appends to a store for many. A future resolves only after the sync of its own batch.

    An error of the store reaches exactly those whose drafts were in that batch; the next batch tries anew. When more
    than `most_waiting` drafts, or `MOST_WAITING_BYTES`, wait, `submit` refuses with StoreBusy. `observe` is told the
    seconds that each sync took. The store stays its owner's to close, after this.
    """

    def __init__(
        self,
        store: Store,
        *,
        most_waiting: int = 10_000,
        largest_batch: int = 1_000,
        observe: Callable[[float], object] = abs,
    ) -> None:
        if most_waiting < 1 or largest_batch < 1:
            raise InputError(
                f"most_waiting and largest_batch must be at least 1, not {most_waiting} and {largest_batch}."
            )
        self._store, self._most_waiting, self._largest_batch = store, most_waiting, largest_batch
        self._waiting: deque[_Request] = deque()
        self._observe = observe
        self._drafts = self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="tether-group-commit", daemon=True)
        self._thread.start()

    def submit(self, drafts: Sequence[Draft]) -> "Future[list[Appended]]":
        """Hand over drafts that belong together; the future holds what `Store.append` says of them, or its error."""
        request = _Request(list(drafts), Future())
        with self._changed:
            if self._closed or os.getpid() != self._process:
                raise StoreError(
                    "this group commit was closed, or belongs to the process before a fork: make a new one."
                )
            size = _bytes_of(request.drafts)
            many = self._drafts + len(request.drafts) > self._most_waiting
            if many or (self._waiting and self._bytes + size > MOST_WAITING_BYTES):
                raise StoreBusy(
                    f"{self._drafts} drafts of {self._bytes} bytes wait, and {len(request.drafts)} of {size} "
                    f"bytes would pass the limit of {self._most_waiting}, or of {MOST_WAITING_BYTES} bytes: try again."
                )
            self._waiting.append(request)
            self._drafts += len(request.drafts)
            self._bytes += size
            self._changed.notify()
        return request.future

    def append(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Submit and wait: durable when this returns."""
        return self.submit(drafts).result()

    @property
    def waiting(self) -> int:
        """Drafts that no batch has taken yet."""
        return self._drafts

    def close(self) -> None:
        """Take nothing more, write what waits, and return when all futures are resolved."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if os.getpid() == self._process:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                drafts = [draft for request in batch for draft in request.drafts]
                began = perf_counter()
                results = iter(self._store.append(drafts))
                self._observe(perf_counter() - began)
                answers = [[next(results) for _ in request.drafts] for request in batch]
            except BaseException as error:  # the thread must outlive whatever the store does: others wait for it
                for request in batch:
                    request.future.set_exception(error)
            else:
                for request, answer in zip(batch, answers, strict=True):
                    request.future.set_result(answer)

    def _next_batch(self) -> list[_Request]:
        """Wait for requests, and take as many as fit into a batch (one at least). Empty: closed, and all is done."""
        batch: list[_Request] = []
        with self._changed:
            while not batch:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return []
                size = weight = 0
                while self._waiting:
                    drafts = self._waiting[0].drafts
                    own = _bytes_of(drafts)
                    size, weight = size + len(drafts), weight + own
                    if batch and (size > self._largest_batch or weight > LARGEST_BATCH_BYTES):
                        break
                    request = self._waiting.popleft()
                    self._drafts -= len(drafts)
                    self._bytes -= own
                    if request.future.set_running_or_notify_cancel():  # else its caller has given up: nothing to write
                        batch.append(request)
        return batch
