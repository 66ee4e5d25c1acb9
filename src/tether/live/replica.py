"""The replica: learner and ledger after a prefix of the log. The same entries give the same replica.

A restart reads a snapshot and the entries after it, and is equal bit for bit.
"""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tether.errors import AlteredLog, InputError, StateFileError, StoreError
from tether.live.event import Event
from tether.live.learner import Learner
from tether.live.ledger import Ledger
from tether.live.log.chain import Entry, Head, Store, genesis_of, is_end
from tether.live.records import EDITION, EVENTS, Configured, OutcomeRecorded, event_of

PAGE = 1000
"""Entries that are read from the log at once."""


class Replica:
    """Fold the log up to `head` into a learner and a ledger."""

    def __init__(self, learner: Learner, genesis: str) -> None:
        self.learner, self.ledger = learner, Ledger(learner.problem.threshold)
        self.head = Head(0, genesis)
        self.saved_at = 0  # the entry after which it was last saved

    def apply(self, entry: Entry, event: Event | None = None) -> None:
        """Take the next entry of the log into account. Unknown kinds change nothing.

        Args:
            entry: the one after `head`.
            event: what it holds, if that is at hand.

        Raises:
            AlteredLog: the entry does not continue the chain.
        """
        if entry.seq != self.head.seq + 1 or entry.previous != self.head.hash:
            raise AlteredLog(
                f"entry {entry.seq} does not continue the log after entry {self.head.seq}: run `tether audit verify`.",
                entry.seq,
            )
        if event is None and entry.kind in EVENTS:
            event = event_of(entry)
        if isinstance(event, OutcomeRecorded) and not self.learner.agent.order.is_open(event.decision_id):
            event = None  # a second one, of a process that slept until the first was archived, and its key with it
        self.learner.apply(entry.seq, event)
        self.ledger.apply(entry.seq, event)
        self.head = Head(entry.seq, entry.hash)

    def catch_up(self, store: Store, until: int | None = None) -> int:
        """Apply what the log holds beyond this replica, up to entry `until`; return the number of entries."""
        before = self.head.seq
        while until is None or self.head.seq < until:
            limit = PAGE if until is None else min(PAGE, until - self.head.seq)
            try:
                page = store.read(self.head.seq, limit)
            except StoreError:
                raise
            except Exception as error:  # not to be taken for one of the problem's functions
                raise StoreError.of(error) from error
            for entry in page:
                self.apply(entry.genuine())
            if is_end(page, limit):
                break
        return self.head.seq - before

    @property
    def alarm(self) -> str:
        """Return the alarm that is on, in words; empty if none is."""
        if self.learner.alarm is not None:
            return str(self.learner.alarm)
        return "" if self.ledger.tripped is None else self.ledger.tripped.message

    @property
    def alarms(self) -> str:
        """Return the alarm that is on, or else the standing alarms of single steps."""
        return self.alarm or self.learner.contradiction

    def to_bytes(self) -> bytes:
        """Return a snapshot; the same state gives the same bytes."""
        header = json.dumps({"head": self.head, "ledger": self.ledger.to_json()}, sort_keys=True).encode()
        return struct.pack(">Q", len(header)) + header + self.learner.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, fresh: Learner) -> Self:
        """Read the bytes of `to_bytes` into a fresh learner.

        Raises:
            StateFileError: the bytes do not fit it.
        """
        replica = cls(fresh, "")
        try:
            (size,) = struct.unpack(">Q", data[:8])
            header: dict[str, Any] = json.loads(data[8 : 8 + size])
            replica.ledger = Ledger.from_json(fresh.problem.threshold, header["ledger"])
            replica.head = Head(*header["head"])
            replica.saved_at = replica.head.seq
        except (struct.error, LookupError, ValueError, TypeError) as error:
            raise StateFileError(f"the snapshot is not complete: {error}.") from error
        fresh.restored(data[8 + size :])
        return replica


def settings_of(store: Store) -> Configured | None:
    """Return what the log was started with, from its first entry; None if it is empty."""
    first = next((entry.genuine() for entry in store.read(0, 1)), None)
    if first is None:
        return None
    if first.kind != Configured.kind:
        raise InputError(
            f"this log begins with a {first.kind!r} entry, not with a configuration: it was not written by an "
            "Advisor. Give the Advisor a log of its own."
        )
    if first.body.get("edition") != EDITION:
        raise InputError(
            f"this log is of edition {first.body.get('edition')}, which another version of Tether wrote; this version "
            f"reads edition {EDITION} only. Export it with the version that wrote it, start a new log, and hand the "
            "old outcomes to warm_start."
        )
    return Configured.read(first)


def load(store: Store, learner: Callable[[], Learner]) -> Replica:
    """Return the replica at the end of the log, from the newest usable snapshot and the entries after it."""
    replica: Replica | None = None
    snapshot = store.latest_snapshot()
    if snapshot is not None:
        with suppress(StateFileError):  # of an older version, say: the log alone decides, a snapshot only saves time
            found = Replica.from_bytes(snapshot.data, learner())
            replica = found if found.head.seq == snapshot.seq else None
    if replica is None:
        replica = Replica(learner(), genesis_of(store.identity()))
    replica.catch_up(store)
    return replica
