"""What the SQLite and the PostgreSQL store share: tables, statements, one writing connection, and a pool of readers."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tether.errors import AlteredLog, InputError, StoreError
from tether.live.log.archive import Archive
from tether.live.log.chain import (
    FORMAT,
    KEEP_SNAPSHOTS,
    PAGE_BYTES,
    Appended,
    Draft,
    Entry,
    Head,
    Snapshot,
    Usage,
    check_page,
    entry_of,
    extend,
    genesis_of,
    row_of,
    snapshot_digest,
    storable,
)

COLUMNS = "e.seq, e.time, e.kind, e.body, e.keys, e.previous, e.hash"
"""The columns of the table `entries e`, in the order of a row."""


def holder(key: str, seq: int, entries: Sequence[Entry]) -> Entry:
    """The entry that the index of keys names for a key, after checking that it does hold it."""
    if not entries or key not in entries[0].unique:
        raise AlteredLog(f"the index of keys was altered: entry {seq} does not hold {key!r:.80}.", seq)
    return entries[0]


T = TypeVar("T")

ROWS_AT_ONCE = 50
"""Rows per INSERT: the number of parameters is limited, and each length is a statement of its own to prepare."""

ANY_SIZE = 2**62
"""Bytes of a page that is to be read whole."""

IDLE_READERS = 4
"""Idle connections in the pool of readers; more may be open while many threads read at once."""


class SqlStore(ABC):
    """A `Store` in a database. Subclasses say how to connect, to begin and to commit, and how their SQL differs."""

    errors: ClassVar[type[Exception]]
    """Base class of the driver's errors."""
    placeholder: ClassVar[str]
    """How the driver marks a parameter."""
    one_of: ClassVar[str]
    """The condition "is one of these", with one parameter, made by `_list`."""
    archiving: ClassVar[tuple[str, ...]]
    """Statements that let rows be deleted once they are archived; no others, ever."""
    announced: ClassVar[str] = ""
    """A SELECT of an announced stop, where such are kept in a table: it is read with every batch that is written."""

    def __init__(self, where: str, prefix: str, *, clock: Callable[[], float], read_only: bool) -> None:
        self._where, self._prefix, self._clock, self.read_only = where, prefix, clock, read_only
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._writer: Any = None
        self._idle: list[Any] = []
        self._closed = False
        self._identity = ""
        self._old: Archive | None = None
        self._inserts: dict[tuple[str, int], str] = {}  # statements, by table and number of rows
        self._stop = ""  # the announcement that was last read
        self._seen: Head | None = None  # the end of the log after the last commit of this store
        self._next: Head | None = None  # and after the one that is under way

    @abstractmethod
    def _connect(self, *, writing: bool) -> Any:
        """A new connection to the very log that this store opened, whatever stands at its address now."""

    @abstractmethod
    def _begin(self, connection: Any) -> None:
        """Start a transaction that no other writer, in any process, overlaps."""

    def _pipeline(self, connection: Any) -> AbstractContextManager[Any]:
        """Send statements without waiting for their results until one is fetched, where the driver can do that."""
        return nullcontext(connection)

    @abstractmethod
    def _commit(self, connection: Any) -> Any:
        """End the transaction; durable when this returns and, in a pipeline, that has ended."""

    def _check_commit(self, done: Any) -> None:  # noqa: B027  # most databases raise an error
        """Refuse a commit that was answered with something else. `done` is what `_commit` returned."""

    @abstractmethod
    def _is_disconnect(self, error: Exception) -> bool:
        """Whether the connection itself was lost, so that a retry with a new one may succeed."""

    @abstractmethod
    def announce_stop(self, text: str) -> None:
        """Tell all who share this log of a stop. See `Store.announce_stop`."""

    @abstractmethod
    def announced_stop(self, *, fresh: bool) -> str:
        """The last announcement. See `Store.announced_stop`."""

    @abstractmethod
    def _list(self, values: Sequence[str | int]) -> Any:
        """The parameter of `one_of`."""

    def append(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Add all drafts or none, durably. See `Store.append`."""
        batch = list(drafts)
        if not batch:
            self._check_open()
            return []
        return self._write(lambda connection: self._add(connection, batch))

    def head(self) -> Head:
        """Where the log ends now."""
        return self._head_from(self._rows(self._sql("SELECT seq, hash FROM {}entries ORDER BY seq DESC LIMIT 1")))

    def read(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of entries. See `Store.read`."""
        check_page(after, limit)
        entries = self._stored(after, limit)
        if not entries or entries[-1].seq == after + len(entries):
            return entries
        archived, folder = self._archive()  # some are missing here
        if after >= archived:
            return entries
        if self._old is None or self._old.folder != folder:
            self._old = Archive(folder, self._identity)
        entries = self._old.read(after, min(limit, archived - after))
        return entries + (self._stored(archived, limit - len(entries)) if len(entries) < limit else [])

    def _stored(self, after: int, limit: int, *, whole: bool = False) -> list[Entry]:
        """Rows of the table, which may have gaps up to the last that was archived; `whole` however large they are."""
        page = "SELECT * FROM {}entries WHERE seq > ? ORDER BY seq LIMIT ?"
        before = "sum(length(body)) OVER (ORDER BY seq) - length(body) AS before"
        sql = f"SELECT {COLUMNS} FROM (SELECT p.*, {before} FROM ({page}) p) e WHERE e.before < ? ORDER BY e.seq"
        return [entry_of(row) for row in self._rows(self._sql(sql), (after, limit, ANY_SIZE if whole else PAGE_BYTES))]

    def _archive(self) -> tuple[int, Path]:
        """The last entry that was archived, and the folder; 0 if there is none."""
        meta = dict(self._rows(self._sql("SELECT name, value FROM {}meta")))
        return int(meta.get("archived", 0)), Path(meta.get("archive", ""))

    def archived(self) -> int:
        """The last entry that was moved to an archive, 0 if none was."""
        return self._archive()[0]

    def archive_folder(self) -> Path | None:
        """Where the archive was when entries were last moved to it, None if there is none."""
        last, folder = self._archive()
        return folder if last else None

    def remains(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Archived entries that the log itself still holds."""
        archived = self.archived()
        if after >= archived:
            return []
        return [entry for entry in self._stored(after, limit, whole=True) if entry.seq <= archived]

    def set_archived(self, last: int, folder: Path) -> None:
        """From here on, entries up to `last` are read from the archive in `folder`, and may be deleted here, as are
        snapshots that follow one of them."""

        def work(connection: Any) -> None:
            names = ("archived", str(last)), ("archive", str(folder))
            if not connection.execute(self._sql("SELECT value FROM {}meta WHERE name = 'archived'")).fetchall():
                for statement in self.archiving:
                    connection.execute(statement.format(self._prefix))
            connection.execute(self._sql("DELETE FROM {}meta WHERE name IN ('archived', 'archive')"))
            for row in names:
                connection.execute(self._sql("INSERT INTO {}meta (name, value) VALUES (?, ?)"), row)
            connection.execute(self._sql("DELETE FROM {}snapshots WHERE seq <= ?"), (last,))

        self._write(work)

    def delete_archived(self, entries: Sequence[Entry]) -> None:
        """Delete these entries and their keys; the database refuses it for entries that are not archived."""

        def work(connection: Any) -> None:
            keys = [key for entry in entries for key in entry.unique]
            connection.execute(self._sql(f"DELETE FROM {{}}keys WHERE key {self.one_of}"), (self._list(keys),))
            seqs = [entry.seq for entry in entries]
            connection.execute(self._sql(f"DELETE FROM {{}}entries WHERE seq {self.one_of}"), (self._list(seqs),))

        self._write(work)

    def find(self, unique: str) -> Entry | None:
        """The entry that holds this key, if there is one."""
        places = self.places([unique])
        if not places:
            return None
        rows = self._rows(self._sql(f"SELECT {COLUMNS} FROM {{}}entries e WHERE e.seq = ?"), (places[unique],))
        return holder(unique, places[unique], [entry_of(row) for row in rows])

    def places(self, unique: Sequence[str]) -> dict[str, int]:
        """Key -> seq, for those of the keys that are in the index of keys."""
        keys = [key for key in unique if storable(key)]
        if not keys:
            self._check_open()
            return {}
        sql = self._sql(f"SELECT key, seq FROM {{}}keys WHERE key {self.one_of}")
        return dict(self._rows(sql, (self._list(keys),)))

    def save_snapshot(self, seq: int, data: bytes) -> None:
        """Keep the state after entry `seq`."""

        def work(connection: Any) -> None:
            rows = connection.execute(self._sql("SELECT hash FROM {}entries WHERE seq = ?"), (seq,)).fetchall()
            if not rows:
                raise InputError(f"{self._where}: there is no entry {seq} to take a snapshot after.")
            connection.execute(self._sql("DELETE FROM {}snapshots WHERE seq = ?"), (seq,))
            values = (seq, snapshot_digest(rows[0][0], data), bytes(data))
            connection.execute(self._sql("INSERT INTO {}snapshots (seq, digest, data) VALUES (?, ?, ?)"), values)
            newest = f"SELECT seq FROM {self._prefix}snapshots ORDER BY seq DESC LIMIT {KEEP_SNAPSHOTS}"
            connection.execute(self._sql(f"DELETE FROM {{}}snapshots WHERE seq NOT IN ({newest})"))

        self._write(work)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is whole and fits the chain."""
        sql = self._sql(
            "SELECT s.seq, s.digest, s.data, e.hash FROM {0}snapshots s JOIN {0}entries e ON e.seq = s.seq "
            "WHERE s.seq < ? ORDER BY s.seq DESC LIMIT 1"
        )
        below = 2**62
        while rows := self._rows(sql, (below,)):
            below, digest, data, hash_ = rows[0]
            if isinstance(data, bytes) and snapshot_digest(str(hash_), data) == digest:
                return Snapshot(below, data)
        return None

    def snapshots(self) -> list[tuple[int, bool]]:
        """The entry that each snapshot follows, and whether it is whole and fits the chain."""
        sql = "SELECT s.seq, s.digest, s.data, e.hash FROM {0}snapshots s LEFT JOIN {0}entries e ON e.seq = s.seq"
        return [
            (seq, isinstance(data, bytes) and snapshot_digest(str(hash_), data) == digest)
            for seq, digest, data, hash_ in self._rows(self._sql(sql))
        ]

    def usage(self) -> Usage:
        """What the log takes."""
        sql = "SELECT e.seq, e.time FROM {0}entries e WHERE e.seq = (SELECT max(seq) FROM {0}snapshots)"
        return Usage(self._size(), *(*self._rows(self._sql(sql)), (0, 0.0))[0])

    @abstractmethod
    def _size(self) -> int:
        """Bytes on disk."""

    def place(self) -> str:
        """No server knows it."""
        return ""

    def note(self, text: str) -> None:  # noqa: B027  # not every database has a place for it
        """Nothing is kept."""

    def noted(self) -> str:
        """Nothing was."""
        return ""

    def identity(self) -> str:
        """The log's random name, in hex."""
        return self._identity

    def close(self) -> None:
        """Let go of all connections."""
        self._closed = True
        if os.getpid() != self._process:
            return  # the connections belong to the process that opened them
        with self._lock:
            self._close_writer()
            while self._idle:
                self._discard(self._idle.pop())

    def _add(self, connection: Any, drafts: list[Draft]) -> list[Appended]:
        """Write a batch within a transaction: read the head and the keys that exist, then extend the chain."""
        head, found = self._end_and_keys(connection, [key for draft in drafts for key in draft.unique])
        if self._seen is not None and (
            head.seq < self._seen.seq or (head.seq == self._seen.seq and head != self._seen)
        ):
            raise AlteredLog(
                f"{self._where} ended at entry {self._seen.seq} ({self._seen.hash:.16}…) and now ends at {head.seq} "
                f"({head.hash:.16}…): it was cut, or an older copy took its place.",
                head.seq,
            )
        fresh, results = extend(head, drafts, self._clock(), found)
        if fresh:
            self._insert(connection, fresh)
        self._next = Head(fresh[-1].seq, fresh[-1].hash) if fresh else head
        return results

    def _insert(self, connection: Any, entries: list[Entry]) -> None:
        """Write rows: the entries, and their keys."""
        columns = "entries (seq, time, kind, body, keys, previous, hash)"
        self._insert_rows(connection, columns, [row_of(entry) for entry in entries])
        self._insert_rows(connection, "keys (key, seq)", [(key, e.seq) for e in entries for key in e.unique])

    def _insert_rows(self, connection: Any, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Insert many rows per statement: each step of a statement releases and takes Python's global lock, for which
        the threads that decide compete."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            if (sql := self._inserts.get((table, len(some)))) is None:
                places = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
                sql = self._inserts[table, len(some)] = self._sql(f"INSERT INTO {{}}{table} VALUES {places}")
            connection.execute(sql, [value for row in some for value in row])

    def _end_and_keys(self, connection: Any, keys: list[str]) -> tuple[Head, dict[str, Entry]]:
        """The head of the log, and those of the keys that are in it, with their entries; in one round trip."""
        newest = "SELECT seq, hash FROM {0}entries ORDER BY seq DESC LIMIT 1"
        sql = self._sql(
            f"SELECT NULL, seq, NULL, NULL, NULL, NULL, NULL, NULL, hash FROM ({newest}) AS newest UNION ALL "
            f"SELECT k.key, k.seq, {COLUMNS} FROM {{0}}keys k LEFT JOIN {{0}}entries e ON e.seq = k.seq "
            f"WHERE k.key {self.one_of}{self.announced}"
        )
        head, found = self._head_from([]), dict[str, Entry]()
        for key, seq, *row in connection.execute(sql, (self._list(keys),)).fetchall():
            if seq is None:
                self._stop = row[3]
            elif key is None:
                head = Head(seq, row[-1])
            else:
                found[key] = holder(key, seq, [entry_of(row)] if row[0] is not None else [])
        return head, found

    def _write(self, work: Callable[[Any], T]) -> T:
        """The result of `work` in a transaction of its own. If an idle connection was lost, retry with a new one."""
        self._check_open()
        if self.read_only:
            raise StoreError(f"{self._where} was opened for reading only.")
        with self._lock:
            while True:
                reused, committing = self._writer is not None, False
                try:
                    connection = self._writer = self._writer or self._connect(writing=True)
                    with self._pipeline(connection):
                        self._begin(connection)
                        self._next = self._seen
                        result = work(connection)
                        committing = True
                        done = self._commit(connection)
                    self._check_commit(done)
                    self._seen = self._next
                    return result
                except self.errors as error:
                    self._close_writer()
                    if reused and not committing and self._is_disconnect(error):
                        continue
                    raise self._refusal("written", error) from error
                except BaseException:
                    self._close_writer()
                    raise

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one SELECT. If an idle connection was lost, retry with another."""
        while True:
            self._check_open()
            try:
                connection, reused = self._idle.pop(), True
            except IndexError:
                connection, reused = None, False
            try:
                connection = connection or self._connect(writing=False)
                rows: list[Any] = connection.execute(sql, parameters).fetchall()
            except self.errors as error:
                self._discard(connection)
                if reused and self._is_disconnect(error):
                    continue
                raise self._refusal("read", error) from error
            except BaseException:
                self._discard(connection)
                raise
            if self._closed or len(self._idle) >= IDLE_READERS:
                self._discard(connection)
            else:
                self._idle.append(connection)
            return rows

    def _sql(self, sql: str) -> str:
        """A statement with the tables' prefix filled in and parameters marked as the driver wants them."""
        return sql.format(self._prefix).replace("?", self.placeholder)

    def _head_from(self, rows: list[Any]) -> Head:
        return Head(*rows[0]) if rows else Head(0, genesis_of(self._identity))

    def _check_format(self, meta: dict[str, str]) -> None:
        """Refuse a log of another format, or another log than the one that was opened first."""
        if meta.get("format") != FORMAT:
            raise StoreError(
                f"{self._where} holds a log of format {meta.get('format')!r}; this version of Tether reads {FORMAT!r}. "
                "Use the version that wrote it, or another place."
            )
        identity = meta.get("identity", "")
        if self._identity and identity != self._identity:
            raise AlteredLog(f"{self._where} was log {self._identity} and is now log {identity}: it was replaced.")
        self._identity = identity

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._where} was closed: open it again.")
        if os.getpid() != self._process:
            raise StoreError(f"{self._where} was opened in another process, before a fork: open it again in this one.")

    def _refusal(self, what: str, error: Exception) -> StoreError:
        why = " ".join(str(error).split()) or type(error).__name__
        return StoreError(f"{self._where} could not be {what}: {why}.")

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        self._discard(writer)

    def _discard(self, connection: Any) -> None:
        """Close a connection that may be broken; an open transaction is rolled back."""
        if connection is not None:
            with suppress(self.errors):
                connection.close()
