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
from tether.live.log.sql import SqlStore, row_of
from tether.live.log.store import FORMAT, Entry, canonical

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

_DEFAULTS: dict[str, Any] = {
    "application_name": "tether",
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
}
"""Connection settings that hold unless the address says otherwise: an answer that never comes must become an error."""

_GRACE = 1.0
"""Seconds beyond the patience that a server may be silent: it is to say itself that a writer waited too long."""


class NoAnswer(psycopg.OperationalError):
    """The server was silent for too long. Whether it has done, or will do, what it was asked is unknown."""


class _Line(psycopg.Connection[Any]):
    """A connection that does not wait for ever. The server's own limits, and TCP's, mean nothing once it hangs."""

    silence = 10.0
    tell: Callable[[], None] | None = None

    def wait(self, gen: Generator[Any, Any, Any], *more: Any, **named: Any) -> Any:
        """Where psycopg does all its waiting."""
        try:
            return super().wait(_while_heard(gen, self.silence), *more, **named)
        except NoAnswer:
            self.close()  # an answer that still comes must not be taken for that to another question
            if self.tell is not None:
                self.tell()
            raise


def _while_heard(gen: Generator[Any, Any, Any], silence: float) -> Generator[Any, Any, Any]:
    """`gen`, which psycopg wakes ten times a second, until nothing was sent or received for so many seconds."""
    ready, heard = None, time.monotonic()
    try:
        while True:
            ready = yield gen.send(ready)
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > silence:
                raise NoAnswer(f"the server has not answered for {silence:g} seconds")
    except StopIteration as end:
        return end.value


class PostgresStore(SqlStore):
    """A `Store` in the tables of one schema of a PostgreSQL database (UTF-8), created on first use unless `read_only`.

    `address` is a libpq address ("postgresql://user@host/database" or "host=… dbname=…"); no error repeats it.
    Writers take turns by an advisory lock. `patience` is how many seconds one waits for its turn, or for a server that
    is silent. After such a silence whoever asks is told at once, until the server answers again.
    """

    errors = psycopg.Error
    mark = "%s"
    within = "= ANY(?)"

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
        self._schema, self._patience, self._silent = schema, patience, False
        self._insertion, self._turn = self._sql(_INSERTION), self._turn_of_a_writer()
        try:
            defaults = _DEFAULTS | {"connect_timeout": math.ceil(patience + _GRACE)}
            self._settings: dict[str, Any] = defaults | conninfo_to_dict(address)
        except psycopg.Error:
            raise InputError("the address of the database is not one that PostgreSQL's client can read.") from None
        try:
            with closing(self._call()) as connection:
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
            self._commit(connection)
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

    def _call(self) -> _Line:
        line = _Line.connect(**self._settings, autocommit=True)
        line.silence = self._patience + _GRACE
        return line

    def _connect(self, *, writing: bool) -> Any:
        self._check_heard()
        try:
            connection = self._call()
        except ConnectionTimeout:
            self._wait_for_server()
            raise
        connection.tell = self._wait_for_server
        try:
            self._check_log(connection)
            if writing:
                self._check_server(connection)
            else:
                connection.execute(
                    "SET default_transaction_read_only = on; SET statement_timeout = '60s'; SET enable_seqscan = off"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_heard(self) -> None:
        if self._silent:
            raise StoreError(f"{self._where} cannot be used: the server does not answer.")

    def _wait_for_server(self) -> None:
        """Until a server that fell silent answers, nobody else shall wait for it: a service would stand still."""
        if not self._silent:
            self._silent = True
            with suppress(IndexError):
                while True:  # they were made before the silence, and would each be waited for
                    self._drop(self._idle.pop())
            listener = threading.Thread(target=self._listen, name="tether-postgres-silent", daemon=True)
            try:
                listener.start()
            except RuntimeError:  # no thread to be had: then whoever asks next waits again
                self._silent = False

    def _listen(self) -> None:
        """Ask until there is an answer. An error is one, too: the next caller gets to see it."""
        try:
            while not self._closed:
                with suppress(NoAnswer, ConnectionTimeout), closing(self._call()) as line:
                    line.execute(self._sql("SELECT seq FROM {}entries ORDER BY seq DESC LIMIT 1"))
                    break
        except Exception:  # whatever it is, it is not silence
            return
        finally:
            self._silent = False

    def _check_server(self, connection: Any) -> None:
        """Refuse a server that could not keep the promises: durable when acknowledged, and every key storable."""
        settings = connection.execute("SELECT current_setting('fsync'), current_setting('server_encoding')").fetchone()
        for name, value, needed in zip(("fsync", "server_encoding"), settings, ("on", "UTF8"), strict=True):
            if value != needed:
                raise StoreError(f"{self._where}: the server has {name} = {value}, a log needs {needed}.")

    def _begin(self, connection: Any) -> None:
        """Take the lock. It goes with the transaction, so a killed writer frees it; a stuck one loses it in time.

        Sequential scans are off because plans are kept: one made while the table was small would scan a large one.
        """
        self._check_heard()
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        connection.execute(self._turn)

    def _turn_of_a_writer(self) -> str:
        """One statement: the settings of this transaction, whatever the session's are, and then the lock."""
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

    def _together(self, connection: Any) -> AbstractContextManager[Any]:
        """A pipeline: to begin, lock and ask is one way to the server and back, to write and commit another. The other
        writers wait for the lock meanwhile."""
        together: AbstractContextManager[Any] = nullcontext()
        if psycopg.Pipeline.is_supported():  # by the client library, since PostgreSQL 14
            together = connection.pipeline()
        return together

    def _insert(self, connection: Any, entries: list[Entry]) -> None:
        """One statement for the whole batch, its rows as one JSON text: parameters, each for itself, cost far more."""
        rows = [dict(zip(_ROW, row_of(entry), strict=True)) for entry in entries]
        keys = [{"key": key, "seq": entry.seq} for entry in entries for key in entry.unique]
        connection.execute(self._insertion, (canonical(rows), canonical(keys)))

    def _commit(self, connection: Any) -> None:
        with self._together(connection):
            done = connection.execute("COMMIT")
        answer = done.statusmessage
        if answer != "COMMIT":
            raise StoreError(f"{self._where}: the server answered a commit with {answer!r}; nothing was logged.")

    def _lost(self, error: Exception) -> bool:
        """A lost connection has no SQLSTATE, or one of class 08 (connection) or 57P (the server was shut down).

        A silent server is not lost: it may yet do what it was asked, so that must not be asked again.
        """
        state = getattr(error, "sqlstate", None)
        if isinstance(error, NoAnswer | ConnectionTimeout):
            return False
        return isinstance(error, psycopg.OperationalError) and (state is None or state.startswith(("08", "57P")))

    def _strings(self, strings: Sequence[str]) -> Any:
        return list(strings)
