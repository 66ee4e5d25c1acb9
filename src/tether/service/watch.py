"""The watch: tells long polls that the log has grown, also by other processes. One look for all who wait."""

import asyncio
import time
from contextlib import suppress

from tether.live.store import Store

INTERVAL = 0.25
"""Seconds between looks at the log while somebody waits."""


class Watch:
    """Looks at the end of the log while somebody waits, and only then."""

    def __init__(self, store: Store) -> None:
        self._store, self._head, self._waiting = store, 0, 0
        self._grown, self._ended = asyncio.Condition(), False
        self._looking: asyncio.Task[None] | None = None

    async def head_after(self, after: int, seconds: float) -> int:
        """The seq of the log's end: at once if it is beyond `after`, else when it is, or after so many seconds."""
        self._head = max(self._head, (await asyncio.to_thread(self._store.head)).seq)
        deadline = time.monotonic() + seconds
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            async with self._grown:
                while self._head <= after and not self._ended and (left := deadline - time.monotonic()) > 0.0:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._grown.wait(), left)
        finally:
            self._waiting -= 1
        return self._head

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(INTERVAL)
            with suppress(Exception):  # a log that is out of reach has not grown; whoever writes to it will be told
                self._head = max(self._head, (await asyncio.to_thread(self._store.head)).seq)
            async with self._grown:
                self._grown.notify_all()

    def end(self) -> None:
        """Let nobody wait from now on: who does is answered at the next look. Safe to call in a signal handler."""
        self._ended = True

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
