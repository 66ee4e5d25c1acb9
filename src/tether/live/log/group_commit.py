"""Group commit: what arrives while one batch is being synced is written as the next batch, with one sync for all."""

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, Self

from tether.errors import InputError, StoreBusy, StoreError
from tether.live.log.chain import Appended, Draft, Store

LARGEST_BATCH_BYTES = 2**24
"""Bytes of bodies that one batch gathers: a statement of a database has its limits, and others wait meanwhile."""


class _Request(NamedTuple):
    drafts: list[Draft]
    future: "Future[list[Appended]]"


class GroupCommit:
    """One thread that appends to a store for many. A future resolves only after the sync of its own batch.

    An error of the store reaches exactly those whose drafts were in that batch; the next batch tries anew. When more
    than `most_waiting` drafts wait, `submit` refuses with StoreBusy. The store stays its owner's to close, after this.
    """

    def __init__(self, store: Store, *, most_waiting: int = 10_000, largest_batch: int = 1_000) -> None:
        if most_waiting < 1 or largest_batch < 1:
            raise InputError(
                f"most_waiting and largest_batch must be at least 1, not {most_waiting} and {largest_batch}."
            )
        self._store, self._most_waiting, self._largest_batch = store, most_waiting, largest_batch
        self._waiting: deque[_Request] = deque()
        self._drafts = 0
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
            if self._drafts + len(request.drafts) > self._most_waiting:
                raise StoreBusy(
                    f"{self._drafts} drafts wait to be logged and {len(request.drafts)} more would pass the limit of "
                    f"{self._most_waiting}: try again later."
                )
            self._waiting.append(request)
            self._drafts += len(request.drafts)
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
                results = iter(self._store.append(drafts))
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
                    size, weight = size + len(drafts), weight + sum(len(draft.text) for draft in drafts)
                    if batch and (size > self._largest_batch or weight > LARGEST_BATCH_BYTES):
                        break
                    request = self._waiting.popleft()
                    self._drafts -= len(drafts)
                    if request.future.set_running_or_notify_cancel():  # else its caller has given up: nothing to write
                        batch.append(request)
        return batch
