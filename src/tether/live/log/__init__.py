"""The log: an append-only chain of entries, in memory, in an SQLite file or in PostgreSQL."""

from pathlib import Path

from tether.live.log.chain import Store
from tether.live.log.memory import MemoryStore

POSTGRES = ("postgresql://", "postgres://")


def open_store(where: str | Path | Store | None, *, read_only: bool = False, patience: float = 10.0) -> Store:
    """The store at an address: None is memory, `postgresql://…` a PostgreSQL server, other text or a path an SQLite
    file; a store is returned as it is. `patience` is how many seconds to wait for a server that does not answer."""
    if where is None:
        return MemoryStore()
    if isinstance(where, str) and where.startswith(POSTGRES):
        from tether.live.log.postgres import PostgresStore  # psycopg need not be installed

        return PostgresStore(where, patience=patience, read_only=read_only)
    if isinstance(where, str | Path):
        from tether.live.log.sqlite import SqliteStore

        return SqliteStore(where, read_only=read_only)
    return where
