"""The head of an SQLite log, noted in a file beside it: a log that ends before it was restored or rewound.

What was decided and measured since is then missing, stops included. The service starts stopped, until somebody resumes.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from tether.errors import StoreError
from tether.files import written_whole
from tether.live.log.chain import Head, Store

EVERY = 5.0
"""Seconds between two notes, at least."""


class HeadNote:
    """Notes the head of a log in a file, once in a while; None notes nothing."""

    def __init__(self, store: Store, path: Path | None) -> None:
        self._store, self._path, self._at = store, path, time.monotonic()

    def is_due(self) -> bool:
        """Whether the last note is old."""
        return self._path is not None and time.monotonic() - self._at >= EVERY

    def write(self) -> None:
        """Note where the log ends now. Where that cannot be written, the older note is as true."""
        self._at = time.monotonic()
        if self._path is not None:
            with suppress(OSError, StoreError):
                text = json.dumps({"log": self._store.identity(), "head": self._store.head()})
                with written_whole(self._path, permissions=0o600) as file:
                    file.write(text.encode())

    def contradiction(self) -> str:
        """Why the log is not the one that was noted, or a later state of it; empty if it is, or if nothing is noted."""
        try:
            noted = json.loads(self._path.read_text(encoding="utf-8")) if self._path is not None else None
            head = None if noted is None else Head(int(noted["head"][0]), str(noted["head"][1]))
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, LookupError, TypeError):
            return f"the note of its head, {self._path}, cannot be read"
        if noted is None or head is None or head.seq == 0:
            return ""
        if noted.get("log") != self._store.identity():
            return "it is another log than the one that was noted here"
        entry = next(iter(self._store.read(head.seq - 1, 1)), None)
        if entry is None:
            return f"it ends at entry {self._store.head().seq}, but entry {head.seq} was noted: restored, or rewound"
        return "" if entry.hash == head.hash else f"entry {head.seq} is not the one that was noted: it was written anew"
