"""Backups of a running log. A copy ends with a stop: what was decided and measured after it was made, another stop for
instance, is missing in it, and somebody must say that this is no harm before it may do more than a_0.
"""

import os
from pathlib import Path

from tether.errors import InputError, StoreError
from tether.files import UNFINISHED
from tether.live.log.chain import Chain, Entry, Head, Store, genesis_of
from tether.live.log.sqlite import SqliteStore
from tether.live.records import Stopped, new_id


def stop(store: Store, *, by: str, why: str) -> Entry:
    """Throw the kill switch of a log that no advisor runs on."""
    if not by.strip() or not why.strip():
        raise InputError("`by` and `why` must say something: the log is read by people.")
    (appended,) = store.append([Stopped(by=by, why=why, id=new_id()).draft()])
    return appended.entry


def backup(store: Store, copy: Path) -> Head:
    """Copy an SQLite log, as it is at one moment, while others write to it; returns the head that it had. The copy is
    without gaps, verified, and on disk under its name only when it is whole."""
    if not isinstance(store, SqliteStore):
        raise InputError("a log in PostgreSQL is backed up by pg_dump: docs/operations.md has the steps.")
    if copy.exists():
        raise InputError(f"{copy} exists already: choose another name, or move it away.")
    part = copy.parent / f".{copy.name}{UNFINISHED}"
    try:
        part.unlink(missing_ok=True)
        store.copy_to(part)
        with_stop = SqliteStore(part)
        try:
            head = _followed(with_stop)
            stop(with_stop, by="tether audit backup", why=f"restored from a backup that ends at {head.seq}:{head.hash}")
        finally:
            with_stop.close()
        if Path(f"{part}-wal").exists():  # the last to close it moves everything into the file
            raise StoreError(f"{part} could not be closed: the copy was not kept.")
        part.rename(copy)
        folder = os.open(copy.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise InputError(f"{copy} cannot be written: {error.strerror or error}. Choose another place.") from error
    finally:
        part.unlink(missing_ok=True)
    return head


def _followed(store: Store) -> Head:
    """The head of a log whose own entries were followed; those in its archive are not part of the copy."""
    done = store.archived()
    chain = Chain(Head(0, genesis_of(store.identity())))
    while page := store.read(max(done, chain.head.seq), 1000):
        if chain.head.seq < done:
            chain.head = Head(done, page[0].previous)
        for entry in page:
            chain.follow(entry)
    return chain.head
