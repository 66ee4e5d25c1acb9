"""The log in a PostgreSQL database: for several processes, on several machines, that share one learner."""

import hashlib
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any

from tether.errors import InputError, StoreError
from tether.live.log.chain import FORMAT, Entry, row_of, text_of
from tether.live.log.sql import SqlStore

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import ConnectionTimeout
except ImportError as missing:
    raise InputError('a log in PostgreSQL needs psycopg: pip install "tether-rl[postgres]".') from missing

_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {name};
CREATE TABLE {name}.meta (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE {name}.entries (seq bigint PRIMARY KEY, time double precision NOT NULL, kind text NOT NULL,
    body text NOT NULL, keys text NOT NULL, previous text NOT NULL, hash text NOT NULL);
CREATE TABLE {name}.keys (key text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL);
CREATE TABLE {name}.snapshots (seq bigint PRIMARY KEY, digest text NOT NULL, data bytea NOT NULL);
CREATE FUNCTION {name}.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the log is append-only'; END $$;
CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {name}.entries
    FOR EACH STATEMENT EXECUTE FUNCTION {name}.refuse();
"""

_ROW = ("seq", "time", "kind", "body", "keys", "previous", "hash")

_INSERTION = """
WITH written AS (
    INSERT INTO {0}entries (seq, time, kind, body, keys, previous, hash) SELECT * FROM json_to_recordset(?::json)
    AS row(seq bigint, time float8, kind text, body text, keys text, previous text, hash text))
INSERT INTO {0}keys (key, seq) SELECT * FROM json_to_recordset(?::json) AS row(key text, seq bigint)
"""

_ARCHIVING = (
    "CREATE FUNCTION {0}refuse_unless_archived() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.seq > coalesce("
    "(SELECT value::bigint FROM {0}meta WHERE name = 'archived'), 0) THEN RAISE EXCEPTION 'the log is append-only'; "
    "END IF; RETURN OLD; END $$",
    "DROP TRIGGER entries_stay ON {0}entries",
    "CREATE TRIGGER entries_stay BEFORE UPDATE OR TRUNCATE ON {0}entries FOR EACH STATEMENT EXECUTE FUNCTION "
    "{0}refuse()",
    "CREATE TRIGGER entries_last BEFORE DELETE ON {0}entries FOR EACH ROW EXECUTE FUNCTION {0}refuse_unless_archived()",
)

_COMPRESSION = (
    "SELECT set_config(name, 'lz4', false) FROM pg_catalog.pg_settings WHERE name = 'default_toast_compression' "
    "AND 'lz4' = ANY (enumvals)"
)
"""Let the server, where it can, compress bodies by LZ4: by its default a batch of 32 takes a fifth longer."""

_DEFAULTS: dict[str, Any] = {
    "application_name": "tether",
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
}
"""Connection settings that hold unless the address says otherwise: an answer that never comes must become an error."""

_GRACE = 1.0
"""Seconds added to `patience` on the client's side, so that the server's own lock timeout is reported first."""


class ServerTimeout(psycopg.OperationalError):
    """The server did not answer in time. Whether it has done, or will do, what it was asked is unknown."""


class _Connection(psycopg.Connection[Any]):
    """A connection with a timeout on the client's side: those of the server, and TCP's, fail if the server hangs."""

    timeout = 10.0
    on_timeout: Callable[[], None] | None = None

    def wait(self, gen: Generator[Any, Any, Any], *more: Any, **named: Any) -> Any:
        """All waiting of psycopg goes through here."""
        try:
            return super().wait(_with_timeout(gen, self.timeout), *more, **named)
        except ServerTimeout:
            self.close()  # a late answer must not be taken for that to another statement
            if self.on_timeout is not None:
                self.on_timeout()
            raise


def _with_timeout(gen: Generator[Any, Any, Any], timeout: float) -> Generator[Any, Any, Any]:
    """`gen`, which psycopg wakes ten times a second; ServerTimeout after so many seconds without any data."""
    ready, last = None, time.monotonic()
    try:
        while True:
            ready = yield gen.send(ready)
            if ready:
                last = time.monotonic()
            elif time.monotonic() - last > timeout:
                raise ServerTimeout(f"the server has not answered for {timeout:g} seconds")
    except StopIteration as end:
        return end.value


class PostgresStore(SqlStore):
    """A `Store` in the tables of one schema of a PostgreSQL database (UTF-8), created on first use unless `read_only`.

    `address` is a libpq address ("postgresql://user@host/database" or "host=… dbname=…"); no error repeats it.
    Writers exclude each other by an advisory lock. `patience` is the timeout, in seconds, for that lock and for a
    server that does not answer. After such a timeout every call fails at once, until the server answers again.
    """

    errors = psycopg.Error
    placeholder = "%s"
    one_of = "= ANY(?)"
    archiving = _ARCHIVING
    announced = (
        " UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, value, NULL, NULL, NULL FROM {0}meta WHERE name = 'stop'"
    )

    def __init__(
        self,
        address: str,
        *,
        schema: str = "tether",
        clock: Callable[[], float] = time.time,
        identity: str | None = None,
        patience: float = 10.0,
        read_only: bool = False,
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
            raise InputError(f"schema {schema!r} must be lower-case letters, digits and _, and not begin with pg_.")
        super().__init__(f"the log in schema {schema!r} of PostgreSQL", f"{schema}.", clock=clock, read_only=read_only)
        self._schema, self._patience, self._unresponsive = schema, patience, False
        self._insertion, self._locking = self._sql(_INSERTION), self._lock_statement()
        try:
            defaults = _DEFAULTS | {"connect_timeout": math.ceil(patience + _GRACE)}
            self._settings: dict[str, Any] = defaults | conninfo_to_dict(address)
        except psycopg.Error:
            raise InputError("the address of the database is not one that PostgreSQL's client can read.") from None
        try:
            with closing(self._new_connection()) as connection:
                self._open_log(connection, identity or secrets.token_hex(16))
        except psycopg.Error as error:
            raise self._refusal("opened", error) from error

    def _open_log(self, connection: Any, identity: str) -> None:
        """Check what the schema holds, and make it a log if it is empty. Nothing is written to a foreign one."""
        if not self.read_only:
            self._check_server(connection)
        if not self._tables(connection) and not self.read_only:
            self._begin(connection)
            if not self._tables(connection):  # another process may have been faster
                connection.execute(_SCHEMA.format(name=self._schema))
                for row in (("format", FORMAT), ("identity", identity)):
                    connection.execute(self._sql("INSERT INTO {}meta (name, value) VALUES (?, ?)"), row)
            self._check_commit(self._commit(connection))
        self._check_log(connection)

    def _tables(self, connection: Any) -> set[str]:
        sql = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = %s"
        return {name for (name,) in connection.execute(sql, (self._schema,)).fetchall()}

    def _check_log(self, connection: Any) -> None:
        tables = self._tables(connection)
        if not tables:
            raise StoreError(f"{self._where} does not exist: there is nothing to read.")
        if not tables >= {"meta", "entries", "keys", "snapshots"}:
            raise StoreError(
                f"{self._where} holds tables of other software. They were left alone: choose another schema."
            )
        self._check_format(dict(connection.execute(self._sql("SELECT name, value FROM {}meta")).fetchall()))

    def _new_connection(self) -> _Connection:
        connection = _Connection.connect(**self._settings, autocommit=True)
        connection.timeout = self._patience + _GRACE
        return connection

    def _connect(self, *, writing: bool) -> Any:
        self._check_responsive()
        try:
            connection = self._new_connection()
        except ConnectionTimeout:
            self._mark_unresponsive()
            raise
        connection.on_timeout = self._mark_unresponsive
        try:
            self._check_log(connection)
            if writing:
                self._check_server(connection)
                connection.execute(_COMPRESSION)
            else:
                connection.execute(
                    "SET default_transaction_read_only = on; SET statement_timeout = '60s'; SET enable_seqscan = off"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def announce_stop(self, text: str) -> None:
        """In a row that no writer locks, by a connection of its own. Each batch of decisions reads it before it leaves,
        in the transaction that logs them: so no process must listen, and none can miss it."""
        self._set_row("stop", text)

    def announced_stop(self, *, fresh: bool) -> str:
        """What that row says; unless `fresh`, as the last batch has read it."""
        return self._row("stop") if fresh else self._stop

    def note(self, text: str) -> None:
        """In a row beside the log."""
        self._set_row("note", text)

    def noted(self) -> str:
        """What that row says."""
        return self._row("note")

    def place(self) -> str:
        """The cluster, its timeline, which a recovery or a failover changes, and the number of the table, which a dump
        that is read back changes."""
        system, line = "system_identifier FROM pg_control_system()", "timeline_id FROM pg_control_checkpoint()"
        sql = f"SELECT (SELECT {system}) || '.' || (SELECT {line}) || '.' || '{{}}entries'::regclass::oid"
        return str(self._rows(self._sql(sql))[0][0])

    def _set_row(self, name: str, value: str) -> None:
        """By a connection of its own, which waits for no writer of the log, nor for the disk: it is for those who read
        it now, and what must outlive the server is in the log."""
        self._check_open()
        if self.read_only:
            raise StoreError(f"{self._where} was opened for reading only.")
        sql = "INSERT INTO {}meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        try:
            self._check_responsive()
            with closing(self._new_connection()) as connection:
                connection.execute("SET synchronous_commit = off")
                connection.execute(self._sql(sql), (name, value))
        except psycopg.Error as error:
            raise self._refusal("written", error) from error

    def _row(self, name: str) -> str:
        rows = self._rows(self._sql("SELECT value FROM {}meta WHERE name = ?"), (name,))
        return str(rows[0][0]) if rows else ""

    def _size(self) -> int:
        tables = "FROM pg_class WHERE relkind = 'r' AND relnamespace = ?::regnamespace"
        sql = f"SELECT sum(pg_total_relation_size(oid))::bigint {tables}"
        return int(self._rows(self._sql(sql), (self._schema,))[0][0])

    def _check_responsive(self) -> None:
        if self._unresponsive:
            raise StoreError(f"{self._where} cannot be used: the server does not answer.")

    def _mark_unresponsive(self) -> None:
        """After a timeout, fail fast: a service whose every call waited for the server would stand still."""
        if not self._unresponsive:
            self._unresponsive = True
            with suppress(IndexError):
                while True:  # older connections, each of which would run into the timeout
                    self._discard(self._idle.pop())
            poll = threading.Thread(target=self._poll_until_responsive, name="tether-postgres-poll", daemon=True)
            try:
                poll.start()
            except RuntimeError:  # no thread can be started: then the next caller waits again
                self._unresponsive = False

    def _poll_until_responsive(self) -> None:
        """Query until there is an answer. An error is one, too: the next caller gets to see it."""
        try:
            while not self._closed:
                with suppress(ServerTimeout, ConnectionTimeout), closing(self._new_connection()) as connection:
                    connection.execute(self._sql("SELECT seq FROM {}entries ORDER BY seq DESC LIMIT 1"))
                    break
        except Exception:  # an answer, if not a good one
            return
        finally:
            self._unresponsive = False

    def _check_server(self, connection: Any) -> None:
        """Refuse a server that could not keep the promises: durable when acknowledged, and every key storable."""
        settings = connection.execute("SELECT current_setting('fsync'), current_setting('server_encoding')").fetchone()
        for name, value, needed in zip(("fsync", "server_encoding"), settings, ("on", "UTF8"), strict=True):
            if value != needed:
                raise StoreError(f"{self._where}: the server has {name} = {value}, a log needs {needed}.")

    def _begin(self, connection: Any) -> None:
        """Take the lock. It ends with the transaction, so a killed writer frees it; a stuck one runs into a timeout.

        Sequential scans are off because query plans are cached: one made for a small table would scan a large one.
        """
        self._check_responsive()
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        connection.execute(self._locking)

    def _lock_statement(self) -> str:
        """One statement: the settings of this transaction, whatever the session's are, and then the advisory lock."""
        digest = hashlib.sha256(f"{FORMAT} {self._schema}".encode()).digest()
        wait = max(1, round(1000 * self._patience))
        settings = {
            "synchronous_commit": "on",
            "lock_timeout": wait,
            "idle_in_transaction_session_timeout": "30s",
            "statement_timeout": wait + 60_000,
            "enable_seqscan": "off",
        }
        local = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        return f"SELECT {local}, pg_advisory_xact_lock({int.from_bytes(digest[:8], signed=True)})"

    def _pipeline(self, connection: Any) -> AbstractContextManager[Any]:
        """To begin, lock and query is one round trip, to insert and commit another: other writers wait meanwhile."""
        pipeline: AbstractContextManager[Any] = nullcontext()
        if psycopg.Pipeline.is_supported():  # by the client library, since PostgreSQL 14
            pipeline = connection.pipeline()
        return pipeline

    def _insert(self, connection: Any, entries: list[Entry]) -> None:
        """Insert the batch by one statement, its rows as JSON: one parameter per value takes far longer."""
        rows = [dict(zip(_ROW, row_of(entry), strict=True)) for entry in entries]
        keys = [{"key": key, "seq": entry.seq} for entry in entries for key in entry.unique]
        connection.execute(self._insertion, (text_of(rows), text_of(keys)))

    def _commit(self, connection: Any) -> Any:
        """Its answer is in when the pipeline has ended: one within it hangs if megabytes are still to be sent."""
        return connection.execute("COMMIT")

    def _check_commit(self, done: Any) -> None:
        answer = done.statusmessage
        if answer != "COMMIT":
            raise StoreError(f"{self._where}: the server answered a commit with {answer!r}; nothing was logged.")

    def _is_disconnect(self, error: Exception) -> bool:
        """A lost connection has no SQLSTATE, or one of class 08 (connection) or 57P (the server was shut down).

        A timeout is no disconnect: the server may yet do what it was asked, so there must be no retry.
        """
        state = getattr(error, "sqlstate", None)
        if isinstance(error, ServerTimeout | ConnectionTimeout):
            return False
        return isinstance(error, psycopg.OperationalError) and (state is None or state.startswith(("08", "57P")))

    def _list(self, values: Sequence[str | int]) -> Any:
        return list(values)
