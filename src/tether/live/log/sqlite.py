"""The log in an SQLite file: write-ahead log, a full sync before every acknowledgment. The default in one machine."""

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tether.errors import InputError, StoreError
from tether.live.log.chain import FORMAT, canonical
from tether.live.log.sql import SqlStore

APPLICATION_ID = 0x54746872
"""What the file's header says it is: "Tthr"."""

_FULL = 2

_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, "
    "keys TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE keys (key TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, data BLOB NOT NULL)",
    "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    "CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    f"PRAGMA application_id = {APPLICATION_ID}",
)


class SqliteStore(SqlStore):
    """A `Store` in one SQLite file (mode 0600), which is created on first use unless `read_only`.

    Threads share one writing connection; other processes may read and write the same file. `busy` is how many seconds
    a writer waits for another process. The file must be on a local disk: network file systems break SQLite's locks.
    """

    errors = sqlite3.Error
    placeholder = "?"
    one_of = "IN (SELECT value FROM json_each(?))"
    archiving = (
        "DROP TRIGGER {}entries_last",
        "CREATE TRIGGER entries_last BEFORE DELETE ON entries WHEN OLD.seq > coalesce((SELECT CAST(value AS INTEGER) "
        "FROM meta WHERE name = 'archived'), 0) BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    )

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        identity: str | None = None,
        busy: float = 10.0,
        read_only: bool = False,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise InputError(f"{str(path)!r} is not a file: use MemoryStore for a log that need not last.")
        self._path = Path(path).absolute()
        self._wal = Path(f"{self._path}-wal")
        self._stop_file, self._stop_stamp = Path(f"{self._path}.stop"), (0, 0)
        self._stop_unread: OSError | None = None  # why it could not be read
        super().__init__(f"the log {self._path}", "main.", clock=clock, read_only=read_only)
        self._busy = busy
        self._inode: tuple[int, int] | None = None
        self._unlocked: tuple[int, int] | None = None  # time and size of a file that is read without locks
        try:
            if not read_only:
                self._make_file()
            with closing(self._plain_connection()) as connection:
                self._open_log(connection, identity or secrets.token_hex(16))
            self._inode = self._file()
        except (sqlite3.Error, OSError) as error:
            raise self._refusal("opened", error) from error

    def _make_file(self) -> None:
        """Create the file for its owner only. It must not be opened here if it exists: closing it again would drop
        the locks that this process holds on it through SQLite."""
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # a power cut must not lose the file's name while its content is safe
            finally:
                os.close(folder)

    def _plain_connection(self) -> sqlite3.Connection:
        if not self.read_only:
            return self._connection("mode=rw")
        try:
            return self._connection("mode=ro")
        except sqlite3.OperationalError as error:
            writable = os.access(self._path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
            if writable or error.sqlite_errorcode not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY):
                raise
        return self._immutable_connection()

    def _immutable_connection(self) -> sqlite3.Connection:
        """To a file on a read-only medium, such as a backup: without `immutable`, SQLite creates files beside it, even
        to read."""
        stamp = _stamp(self._path)
        if _stamp(self._wal)[1] > 0:
            raise StoreError(
                f"{self._where} cannot be read: its last entries are in {self._wal.name}, which SQLite reads only in a "
                "folder that it may write to. Copy both files to another folder."
            )
        connection = self._connection("mode=ro&immutable=1")
        self._unlocked = self._unlocked or stamp
        return connection

    def _connection(self, how: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?{how}",
            uri=True,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.text_factory = _text
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA application_id")  # the first to look at the file
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_open(self) -> None:
        super()._check_open()
        self._check_file()
        if self._unlocked is not None and (self._unlocked != _stamp(self._path) or _stamp(self._wal)[1] > 0):
            raise StoreError(f"{self._where} was read as a file that nobody writes to, and has changed: open it again.")

    def _open_log(self, connection: sqlite3.Connection, identity: str) -> None:
        """Check what the file is, and make it a log if it is empty. Nothing is written to a foreign file."""
        size = self._path.stat().st_size
        if _is_empty(connection):
            if size > 0 and connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                # SQLite takes a file of a few bytes for an empty database, and would write over it
                raise StoreError(f"{self._where} is a file of other software. It was left alone: choose another path.")
            if self.read_only:
                raise StoreError(f"{self._where} is empty: there is nothing to read.")
            self._set_wal(connection)
            connection.execute("BEGIN IMMEDIATE")
            if _is_empty(connection):  # another process may have been faster
                for statement in _SCHEMA:
                    connection.execute(statement)
                rows = [("format", FORMAT), ("identity", identity)]
                connection.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", rows)
            connection.execute("COMMIT")
        self._check_meta(connection)
        if not self.read_only:
            self._set_wal(connection)

    def _check_meta(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"{self._where} is a database of other software. It was left alone: choose another path.")
        self._check_format(dict(connection.execute("SELECT name, value FROM main.meta").fetchall()))

    def _set_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log. Two processes that do so at once get a "locked" without SQLite waiting."""
        give_up = time.monotonic() + self._busy
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise StoreError(f"{self._where}: this file system does not let SQLite keep a write-ahead log ({mode}).")

    def _connect(self, *, writing: bool) -> sqlite3.Connection:
        self._check_file()
        connection = self._plain_connection()
        try:
            self._check_meta(connection)
            if writing:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA fullfsync = ON")
                if connection.execute("PRAGMA synchronous").fetchone()[0] != _FULL:
                    raise StoreError(f"{self._where}: SQLite refuses to sync in full, so nothing would be durable.")
            else:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def copy_to(self, path: Path) -> None:
        """Write a compact copy of the log, as it is at one moment, to a file that does not exist; it is on disk when
        this returns. Others may read and write the log meanwhile."""
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(self._plain_connection()) as connection:
                self._check_meta(connection)
                connection.execute("VACUUM INTO ?", (str(path),))
            copy = os.open(path, os.O_RDONLY)
            try:
                os.fsync(copy)
            finally:
                os.close(copy)
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(f"copied to {path}", error) from error

    def _size(self) -> int:
        return _stamp(self._path)[1] + _stamp(self._wal)[1]

    def announce_stop(self, text: str) -> None:
        """In a file beside the log, which no writer locks. It need not outlive a loss of power: the log does."""
        self._check_open()
        if self.read_only:
            raise StoreError(f"{self._where} was opened for reading only.")
        part = Path(f"{self._stop_file}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(text)
            part.replace(self._stop_file)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise self._refusal("stopped by a file beside it", error) from error

    def announced_stop(self, *, fresh: bool) -> str:
        """What that file says: one look at its time, as it is written rarely and asked for with every batch."""
        if fresh:
            self._look_for_stop()
        if self._stop_unread is not None:
            raise self._refusal("asked for stops", self._stop_unread) from self._stop_unread
        return self._stop

    def _look_for_stop(self) -> None:
        unread: OSError | None = None
        try:
            status = self._stop_file.stat()
            if (stamp := (status.st_mtime_ns, status.st_ino)) != self._stop_stamp:
                self._stop = self._stop_file.read_text(encoding="utf-8", errors="replace")
                self._stop_stamp = stamp
        except FileNotFoundError:
            self._stop, self._stop_stamp = "", (0, 0)
        except OSError as error:
            unread = error
        self._stop_unread = unread

    def _begin(self, connection: sqlite3.Connection) -> None:
        self._check_file()
        connection.execute("BEGIN IMMEDIATE")
        self._look_for_stop()

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def _check_file(self) -> None:
        """The file that was opened must still be at its path: SQLite would go on writing to a deleted one."""
        if self._file() != self._inode:
            raise StoreError(f"{self._where} is gone: the file was moved, deleted or replaced. Put it back.")

    def _file(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _is_disconnect(self, error: Exception) -> bool:
        return False  # a file has no connection to lose

    def _list(self, values: Sequence[str | int]) -> Any:
        return canonical(list(values))


def _text(data: bytes) -> str:
    """Text as stored. Bytes that are no UTF-8 come from tampering; the chain, not the driver, shall point at them."""
    return data.decode(errors="surrogateescape")


def _stamp(path: Path) -> tuple[int, int]:
    """Time and size of a file, which change when it is written to; zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a database file holds nothing at all and belongs to nobody."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    return bool(tables == 0 and owner == 0)
