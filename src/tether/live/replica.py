"""A replica: learner and ledger after a prefix of the log. Restart is a snapshot and a replay, equal bit for bit."""

import json
import struct
from typing import Any, Self

from tether.agents.slucb_qvi import SlucbConfig
from tether.errors import AlteredLog, InputError, StateFileError
from tether.live.events import EDITION
from tether.live.judge import Judgment, Request, judge
from tether.live.learner import Learner
from tether.live.ledger import Ledger
from tether.live.live_agent import Algorithm
from tether.live.states import StateCodec
from tether.live.store import Entry, Head, Store, genesis_of
from tether.problem.problem import Problem

PAGE = 1000


class Replica:
    """The fold over the log up to `head`. Whoever folds the same entries gets the same replica."""

    def __init__(
        self,
        problem: Problem,
        config: SlucbConfig | None,
        genesis: str,
        *,
        algorithm: Algorithm = "slucb-qvi",
        watch: bool = True,
        states: StateCodec | None = None,
    ) -> None:
        self.problem = problem
        self.learner = Learner(problem, config, algorithm=algorithm, watch=watch, states=states)
        self.ledger = Ledger(problem.threshold)
        self.head = Head(0, genesis)

    def apply(self, entry: Entry) -> None:
        """Take the next entry into account; refused if it does not continue the chain."""
        if entry.seq != self.head.seq + 1 or entry.previous != self.head.hash:
            raise AlteredLog(
                f"entry {entry.seq} does not continue the log after entry {self.head.seq}: run `tether audit verify`.",
                entry.seq,
            )
        self.learner.apply(entry)
        self.ledger.apply(entry)
        self.head = Head(entry.seq, entry.hash)

    def catch_up(self, store: Store, until: int | None = None) -> int:
        """Apply what the log holds beyond this replica (up to entry `until`); returns how many entries that was."""
        before = self.head.seq
        while until is None or self.head.seq < until:
            limit = PAGE if until is None else min(PAGE, until - self.head.seq)
            page = store.read(self.head.seq, limit)
            for entry in page:
                self.apply(entry.genuine())
            if len(page) < limit:
                break
        return self.head.seq - before

    def judge(self, request: Request) -> Judgment:
        """What is played, from this state of the log. Changes nothing."""
        return judge(self.learner, self.ledger, self.head, request)

    def to_bytes(self) -> bytes:
        """A snapshot; the same state gives the same bytes."""
        learner = self.learner.to_bytes()
        header = json.dumps({"head": self.head, "ledger": self.ledger.to_json()}, sort_keys=True).encode()
        return struct.pack(">Q", len(header)) + header + learner

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        problem: Problem,
        config: SlucbConfig | None,
        *,
        algorithm: Algorithm = "slucb-qvi",
        states: StateCodec | None = None,
    ) -> Self:
        """The reverse of `to_bytes`. Bytes of another problem, configuration or format give a StateFileError."""
        try:
            (size,) = struct.unpack(">Q", data[:8])
            header: dict[str, Any] = json.loads(data[8 : 8 + size])
            replica = cls.__new__(cls)
            replica.problem = problem
            replica.ledger = Ledger.from_json(problem.threshold, header["ledger"])
            replica.head = Head(*header["head"])
        except (struct.error, LookupError, ValueError, TypeError) as error:
            raise StateFileError(f"the snapshot is not complete: {error}.") from error
        replica.learner = Learner.from_bytes(data[8 + size :], problem, config, algorithm=algorithm, states=states)
        return replica


def settings_of(store: Store) -> dict[str, Any] | None:
    """What the log was started with, None if it is empty: its first entry says so."""
    first = [entry.genuine() for entry in store.read(0, 1)]
    if not first:
        return None
    if first[0].kind != "configured":
        raise InputError(
            f"this log begins with a {first[0].kind!r} entry, not with a configuration: it was not written by an "
            "Advisor. Give the Advisor a log of its own."
        )
    if first[0].body.get("edition") != EDITION:
        raise InputError(
            "this log was started by another version of Tether, whose entries mean something else. Read it with that "
            "version, or start a new log and hand the old data to warm_start."
        )
    return first[0].body


def load(
    store: Store,
    problem: Problem,
    config: SlucbConfig | None,
    *,
    algorithm: Algorithm = "slucb-qvi",
    watch: bool,
    states: StateCodec | None,
) -> Replica:
    """The replica at the end of the log: the newest snapshot that can be used, and what came after it."""
    replica: Replica | None = None
    snapshot = store.latest_snapshot()
    if snapshot is not None:
        try:
            replica = Replica.from_bytes(snapshot.data, problem, config, algorithm=algorithm, states=states)
        except StateFileError:  # of an older version, say: the log alone decides, a snapshot only saves time
            replica = None
        if replica is not None and replica.head.seq != snapshot.seq:
            replica = None
    if replica is None:
        genesis = genesis_of(store.identity())
        replica = Replica(problem, config, genesis, algorithm=algorithm, watch=watch, states=states)
    replica.catch_up(store)
    return replica
