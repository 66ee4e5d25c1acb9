"""Where a log can live, for tests: how to open it, from here or from another process, and how to tamper with it."""

import dataclasses
import json
import sqlite3

import psycopg

from tether.live.log.chain import Draft
from tether.live.log.memory import MemoryStore
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore

IDENTITY = "00ff" * 8


def draft(number, *unique):
    """A small draft; the number tells it from others."""
    return Draft("note", {"number": number, "x": number / 3}, unique)


def numbers(store):
    """What the log holds, in order."""
    return [entry.body["number"] for entry in store.read()]


class MemoryPlace:
    """A log in memory. There is one store, and opening it again gives the same."""

    def __init__(self):
        self.store = None

    def open(self, **settings):
        self.store = self.store or MemoryStore(**settings)
        return self.store

    def rewrite(self, seq, **fields):
        self.store._entries[seq - 1] = dataclasses.replace(self.store._entries[seq - 1], **fields)

    def delete(self, seq):
        del self.store._entries[seq - 1]

    def swap(self, first, second):
        """The contents of two entries change places; each keeps the seq and the hashes of its place."""
        a, b = self.store._entries[first - 1], self.store._entries[second - 1]
        for seq, other in ((first, b), (second, a)):
            self.rewrite(seq, kind=other.kind, text=other.text, unique=other.unique, time=other.time)

    def insert(self, entry):
        self.store._entries.insert(entry.seq - 1, entry)

    def forget_key(self, key):
        del self.store._places[key]

    def move_key(self, key, seq):
        self.store._places[key] = seq

    def spoil_snapshot(self, seq):
        data, digest = self.store._snapshots[seq]
        self.store._snapshots[seq] = (data[:-1] + b"?", digest)


class SqlPlace:
    """A log in a database. Tampering goes around the store, and takes the trigger away first, as a forger would."""

    mark, prefix, binary = "?", "", "blob"

    def execute(self, sql, parameters=()):
        raise NotImplementedError

    def disarm(self):
        raise NotImplementedError

    def rewrite(self, seq, **fields):
        self.disarm()
        names = {"text": "body", "unique": "keys"}
        for name, value in fields.items():
            stored = json.dumps(list(value), separators=(",", ":")) if name == "unique" else value
            self.execute(f"UPDATE {self.prefix}entries SET {names.get(name, name)} = ? WHERE seq = ?", (stored, seq))

    def delete(self, seq):
        self.disarm()
        self.execute(f"DELETE FROM {self.prefix}entries WHERE seq = ?", (seq,))

    def swap(self, first, second):
        rows = {}
        for seq in (first, second):
            sql = f"SELECT kind, body, keys, time FROM {self.prefix}entries WHERE seq = ?"
            kind, body, keys, time = self.execute(sql, (seq,))[0]
            rows[seq] = {"kind": kind, "text": body, "unique": json.loads(keys), "time": time}
        self.rewrite(first, **rows[second])
        self.rewrite(second, **rows[first])

    def insert(self, entry):
        """Later entries make room, keeping their content."""
        self.disarm()
        self.execute(f"UPDATE {self.prefix}entries SET seq = -seq - 1 WHERE seq >= ?", (entry.seq,))
        self.execute(f"UPDATE {self.prefix}entries SET seq = -seq WHERE seq < 0")
        keys = json.dumps(list(entry.unique), separators=(",", ":"))
        values = (entry.seq, entry.time, entry.kind, entry.text, keys, entry.previous, entry.hash)
        self.execute(f"INSERT INTO {self.prefix}entries VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def forget_key(self, key):
        self.execute(f"DELETE FROM {self.prefix}keys WHERE key = ?", (key,))

    def move_key(self, key, seq):
        self.execute(f"UPDATE {self.prefix}keys SET seq = ? WHERE key = ?", (seq, key))

    def spoil_snapshot(self, seq):
        self.execute(f"UPDATE {self.prefix}snapshots SET data = ? WHERE seq = ?", (b"?", seq))


class SqlitePlace(SqlPlace):
    """A log in a file."""

    def __init__(self, path):
        self.path = path
        self.arguments = ["sqlite", str(path)]

    def open(self, **settings):
        return SqliteStore(self.path, **settings)

    def execute(self, sql, parameters=()):
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def disarm(self):
        for trigger in ("entries_stay", "entries_last"):
            self.execute(f"DROP TRIGGER IF EXISTS {trigger}")


class PostgresPlace(SqlPlace):
    """A log in a schema of the test server's database."""

    def __init__(self, server, schema):
        self.server, self.schema, self.prefix = server, schema, f"{schema}."
        self.arguments = ["postgres", server.address, schema]

    def open(self, **settings):
        return PostgresStore(self.server.address, schema=self.schema, **{"patience": 60.0, **settings})

    def execute(self, sql, parameters=()):
        with psycopg.connect(self.server.address, autocommit=True) as connection:
            cursor = connection.execute(sql.replace("?", "%s"), parameters)
            return cursor.fetchall() if cursor.description else []

    def disarm(self):
        self.execute(f"DROP TRIGGER IF EXISTS entries_stay ON {self.prefix}entries")
