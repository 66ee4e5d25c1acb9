"""The head of a log, noted in a file of the service and, by PostgreSQL, beside the log itself.

A log that ends before the noted head, or is kept elsewhere, was restored or rewound. What was decided and measured
since is then missing, stops included. The service starts stopped, until somebody resumes.
"""

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from tether.errors import StoreError
from tether.files import written_whole
from tether.live.log.chain import Head, Store

EVERY = 5.0
"""Seconds between two notes."""

service_log = logging.getLogger("tether.service")


class HeadNote:
    """Notes the head of a log in a file, and with the store; None is no file."""

    def __init__(self, store: Store, path: Path | None) -> None:
        self._store, self._path, self._written = store, path, ""

    def write(self) -> None:
        """Note where the log ends now, if that has changed. Where it cannot be written, the older note is as true."""
        with suppress(StoreError):
            note = {"log": self._store.identity(), "head": self._store.head(), "place": self._place()}
            text = json.dumps(note)
            if text != self._written:
                if self._path is not None:
                    self._write_file(self._path, text)
                self._store.note(text)
                self._written = text

    def _write_file(self, path: Path, text: str) -> None:
        try:
            with written_whole(path, permissions=0o600) as file:
                file.write(text.encode())
        except OSError as error:
            if not self._written:  # once: it will not get better by itself
                service_log.warning(
                    "the head of the log cannot be noted in %s (%s): see `head_note`", path, error.strerror
                )

    def _place(self) -> str:
        """Where the log is kept; empty where the server does not say."""
        try:
            return self._store.place()
        except StoreError:
            return ""

    def contradiction(self) -> str:
        """Why the log is not the one that was noted, or a later state of it; empty if it is, or if nothing is noted."""
        try:
            text = self._path.read_text(encoding="utf-8") if self._path is not None else ""
        except FileNotFoundError:
            text = ""
        except OSError:
            return f"the note of its head, {self._path}, cannot be read"
        notes = {f"in {self._path}": text, "beside the log": self._store.noted()}
        return next(filter(None, (self._differs(where, text) for where, text in notes.items() if text)), "")

    def _differs(self, where: str, text: str) -> str:
        """How the log differs from a note that was found there."""
        try:
            noted: dict[str, Any] = json.loads(text)
            head = Head(int(noted["head"][0]), str(noted["head"][1]))
            identity, place = noted["log"], noted.get("place", "")
        except (ValueError, LookupError, TypeError):
            return f"the note of its head {where} cannot be read"
        if head.seq == 0:
            return ""
        if identity != self._store.identity():
            return f"it is another log than the one that was noted {where}"
        try:
            entry = next(iter(self._store.read(head.seq - 1, 1)), None)
        except StoreError as error:
            if head.seq > self._store.archived():
                raise
            return f"entry {head.seq} was noted {where}, and cannot be compared: {error}"  # a restart needs no archive
        if entry is None:
            end = self._store.head().seq
            return f"it ends at entry {end}, but entry {head.seq} was noted {where}: restored, or rewound"
        if entry.hash != head.hash:
            return f"entry {head.seq} is not the one that was noted {where}: it was written anew"
        if place and (now := self._place()) and now != place:
            return f"the database was restored, or another server took over: it was noted as {place} and is {now}"
        return ""
