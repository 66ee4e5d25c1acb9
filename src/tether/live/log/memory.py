"""A log in memory: for tests, trials and shadow runs whose log may vanish with the process."""

import secrets
import threading
import time
from collections.abc import Callable, Sequence

from tether.errors import InputError, StoreError
from tether.live.log.chain import (
    KEEP_SNAPSHOTS,
    Appended,
    Draft,
    Entry,
    Head,
    Snapshot,
    Usage,
    check_page,
    extend,
    genesis_of,
    snapshot_digest,
)


class MemoryStore:
    """A `Store` that keeps everything in lists. Nothing of it outlives the process."""

    read_only = False

    def __init__(self, *, clock: Callable[[], float] = time.time, identity: str | None = None) -> None:
        self._clock = clock
        self._identity = identity or secrets.token_hex(16)
        self._entries: list[Entry] = []
        self._places: dict[str, int] = {}
        self._snapshots: dict[int, tuple[bytes, str]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._stop = ""

    def append(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Add all drafts or none. See `Store.append`."""
        with self._open():
            keys = [key for draft in drafts for key in draft.unique if key in self._places]
            found = {key: self._entries[self._places[key] - 1] for key in keys}
            fresh, results = extend(self._end(), drafts, self._clock(), found)
            self._entries += fresh
            self._places.update({key: entry.seq for entry in fresh for key in entry.unique})
            return results

    def head(self) -> Head:
        """Where the log ends now."""
        with self._open():
            return self._end()

    def read(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of entries. See `Store.read`."""
        check_page(after, limit)
        with self._open():
            return self._entries[after : after + limit]

    def archived(self) -> int:
        """Nothing of it is archived."""
        return 0

    def remains(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Nothing of it is archived."""
        return []

    def find(self, unique: str) -> Entry | None:
        """The entry that holds this key, if there is one."""
        with self._open():
            seq = self._places.get(unique)
            return None if seq is None else self._entries[seq - 1]

    def places(self, unique: Sequence[str]) -> dict[str, int]:
        """Key -> seq, for those of the keys that are in the index of keys."""
        with self._open():
            return {key: self._places[key] for key in unique if key in self._places}

    def save_snapshot(self, seq: int, data: bytes) -> None:
        """Keep the state after entry `seq`."""
        with self._open():
            if not 1 <= seq <= len(self._entries):
                raise InputError(f"there is no entry {seq} to take a snapshot after: the log has {len(self._entries)}.")
            self._snapshots[seq] = (bytes(data), snapshot_digest(self._entries[seq - 1].hash, data))
            for old in sorted(self._snapshots)[:-KEEP_SNAPSHOTS]:
                del self._snapshots[old]

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is whole and fits the chain."""
        seq = max((seq for seq, is_whole in self.snapshots() if is_whole), default=None)
        return None if seq is None else Snapshot(seq, self._snapshots[seq][0])

    def snapshots(self) -> list[tuple[int, bool]]:
        """The entry that each snapshot follows, and whether it is whole and fits the chain."""
        with self._open():
            return [
                (seq, seq <= len(self._entries) and snapshot_digest(self._entries[seq - 1].hash, data) == digest)
                for seq, (data, digest) in self._snapshots.items()
            ]

    def announce_stop(self, text: str) -> None:
        """See `Store.announce_stop`: all users of this object see it."""
        self._stop = text

    def announced_stop(self, *, fresh: bool) -> str:
        """The last announcement."""
        return self._stop

    def usage(self) -> Usage:
        """What the log takes."""
        with self._open():
            last = max(self._snapshots, default=0)
            size = sum(len(entry.text) for entry in self._entries)
            return Usage(size, last, self._entries[last - 1].time if last else 0.0)

    def place(self) -> str:
        """No server knows it."""
        return ""

    def note(self, text: str) -> None:
        """Nothing is kept."""

    def noted(self) -> str:
        """Nothing was."""
        return ""

    def identity(self) -> str:
        """The log's random name, in hex."""
        return self._identity

    def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True

    def _end(self) -> Head:
        if not self._entries:
            return Head(0, genesis_of(self._identity))
        return Head(self._entries[-1].seq, self._entries[-1].hash)

    def _open(self) -> threading.Lock:
        """The lock, unless the store was closed."""
        if self._closed:
            raise StoreError("this log was closed: open it again.")
        return self._lock
