"""The follower: it keeps one replica up with the log, and writes what this process adds to the log.

Everything that changes an advisor is an entry of the log. Entries are applied in the order of the log, each once.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from tether.errors import AlteredLog, InputError, StoreError, TetherError
from tether.live.event import Event
from tether.live.learner import Learner
from tether.live.log.chain import Appended, Entry, Store
from tether.live.records import OutcomeLost, Tripped
from tether.live.replica import Replica, load

log = logging.getLogger("tether.live")

FAILED = "The problem's functions failed: the program's own log has the error, and the safe action is played meanwhile."
"""The detail of such a decision, for callers."""

RETRY_AFTER, RETRY_EVERY = 0.25, 30.0
"""Seconds after which the log is read anew when the problem's functions have failed: the first time, and at most."""

RunLater = Callable[[Callable[[], None]], object]
"""Carries out work that nobody waits for: now, or in another thread."""


class Follower:
    """Keep a replica up with the log.

    What this process wrote is at hand. It is applied without being read again, after all entries before it. What other
    processes wrote is read. To apply an entry calls the problem's functions. If they fail, the replica is left
    half-way: a_0 is played, and a thread reads the log anew until they answer.

    Attributes:
        store: the log.
        lock: for whoever reads or changes the replica. Its holder may take it again.
        replica: learner and ledger as of the entries that were applied. Only the log changes it.
        failure: why the log cannot be followed; empty if it can.
        store_error: why the log could not be used the last time; empty if it could.
        in_flight: batches that are prepared and not yet committed, so that their entries are about to come in.
    """

    def __init__(
        self,
        store: Store,
        new_learner: Callable[[], Learner],
        *,
        refresh: float | None,
        snapshot_every: int,
        run_later: RunLater,
    ) -> None:
        self.store, self._new_learner, self._refresh = store, new_learner, refresh
        self._snapshot_every, self._run_later = snapshot_every, run_later
        self.lock = threading.RLock()
        self.failure, self.store_error, self.in_flight = "", "", 0
        self._arrived: dict[int, tuple[Entry, Event]] = {}  # written here, waiting for the entries before them
        self._gap_since, self._last_look = math.inf, time.monotonic()
        self._closed = threading.Event()
        self.replica = _opened(store, new_learner)
        self._snapshot_at = self.replica.saved_at

    @property
    def unsynced(self) -> int:
        """Return how many entries of this process wait for entries of others."""
        return len(self._arrived)

    # Entries that this process writes

    def write(self, event: Event, *keys: str) -> Appended:
        """Write one event and apply it, unless one of its keys is in the log already."""
        (appended,) = self.store.append([event.draft(*keys)])
        with self.lock:
            if appended.fresh:
                self.take([(appended.entry, event)])
                self.drain()
            if self.replica.head.seq < appended.entry.seq:
                self.read()
        return appended

    def take(self, written: Iterable[tuple[Entry, Event]]) -> None:
        """Keep what this process wrote until `drain`, and read what others wrote before it. Needs the lock."""
        self.store_error = ""
        head = self.replica.head.seq
        self._arrived.update({entry.seq: (entry, event) for entry, event in written if entry.seq > head})
        first = min(self._arrived, default=head + 1)
        if first == head + 1:
            self._gap_since = math.inf
            return
        # A gap: another thread's batch that is about to come in here, or another process's, which must be read.
        now = time.monotonic()
        self._gap_since = min(self._gap_since, now)
        waited = self._refresh is not None and now - self._gap_since > self._refresh
        if self.in_flight == 0 or waited:
            self.read_up_to(first - 1)

    def drain(self, seq: float = math.inf) -> None:
        """Apply what is at hand and next in the log, up to entry `seq`. Needs the lock."""
        if not self.failure:
            self._fold(partial(self._apply_arrived, seq))
        if self.failure:
            self._arrived.clear()  # they are in the log, and read from there

    def _apply_arrived(self, seq: float) -> None:
        while self.replica.head.seq < seq and (next_one := self._arrived.pop(self.replica.head.seq + 1, None)):
            self.replica.apply(*next_one)

    # Entries that are read

    def sync(self) -> int:
        """Apply everything that the log holds by now, and return how many entries were new.

        Raises:
            InputError: the problem's functions failed before. The log was read anew, and they still fail.
        """
        with self.lock:
            before = self.replica.head.seq
            if self.failure:
                self._rebuild()
            self.read()
            if self.failure:
                raise InputError(self.failure)
            self.after_outcome()
            return self.replica.head.seq - before

    def look_around(self) -> None:
        """Read what other processes wrote, once in a while. Needs the lock.

        If the log is out of reach, the older state is still good.
        """
        if self._refresh is None or time.monotonic() - self._last_look < self._refresh:
            return
        self._if_possible(self.read)
        self.after_outcome()

    def read(self) -> None:
        """Apply everything that the log holds beyond this replica. Needs the lock."""
        self._last_look = time.monotonic()
        self._catch_up_to(max(self._arrived, default=0))
        if not self.failure:
            self._fold(partial(self.replica.catch_up, self.store))
        self._arrived = {seq: each for seq, each in self._arrived.items() if seq > self.replica.head.seq}

    def read_up_to(self, seq: int) -> None:
        """Apply entries up to this one, if the log is within reach. Needs the lock."""
        self._if_possible(partial(self._catch_up_to, seq))

    def _catch_up_to(self, seq: int) -> None:
        """Apply entries up to this one. Those that were written here are at hand, and not read again."""
        before = -1
        while before < self.replica.head.seq < seq and not self.failure:
            before = self.replica.head.seq
            self._fold(partial(self.replica.catch_up, self.store, min((seq, *(each - 1 for each in self._arrived)))))
            self.drain(seq)
        self._gap_since = math.inf

    def _if_possible(self, read: Callable[[], object]) -> None:
        """Read, unless the log is out of reach for now. One that was altered is never passed over."""
        try:
            read()
        except AlteredLog:
            raise
        except StoreError as error:
            self.store_error = str(error)

    # When the problem's functions fail

    def _fold(self, apply: Callable[[], object]) -> None:
        """Apply entries, which calls the problem's functions.

        Whatever those raise ends nothing. What was begun cannot be taken back, so a_0 is played until the log was read
        anew from a snapshot.
        """
        try:
            apply()
        except StoreError:
            raise
        except KeyboardInterrupt as interrupted:
            self._fail(interrupted)
            raise
        except BaseException as error:  # a function may call sys.exit, too
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        seq = self.replica.head.seq + 1
        log.error("entry %d could not be applied: a_0 is played until it can be", seq, exc_info=error)
        self.failure = f"entry {seq} of the log could not be applied ({type(error).__name__}). {FAILED}"
        threading.Thread(target=self._retry, name="tether-retry", daemon=True).start()

    def _retry(self) -> None:
        """Read the log anew until the problem's functions answer."""
        pause = RETRY_AFTER
        while self.failure and not self._closed.wait(pause):
            try:
                self._rebuild()
            except BaseException as error:  # not yet
                log.warning("the log still cannot be applied: %s", type(error).__name__)
            pause = min(2.0 * pause, RETRY_EVERY)

    def _rebuild(self) -> None:
        """Replace a replica that was left half-way by one from the newest snapshot and the log."""
        try:
            replica = load(self.store, self._new_learner)
        except (StoreError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise InputError(self.failure) from error
        with self.lock:
            if self.failure:  # else somebody else was faster
                self.replica, self.failure = replica, ""
                self._arrived.clear()
                log.info("the log was read anew, up to entry %d", replica.head.seq)

    # What follows an outcome: alarms and snapshots

    def after_outcome(self) -> None:
        """Log an alarm once, and save a snapshot once in a while. Needs the lock.

        Neither is needed for safety, so neither may fail.
        """
        if self.failure:
            return
        replica = self.replica
        alarm, known = replica.learner.alarm, replica.ledger.tripped
        if alarm is not None and (known is None or (alarm.test == "safe" and known.test != "safe")):
            with suppress(StoreError):
                self.write(Tripped(test=alarm.test, message=str(alarm), number=replica.ledger.alarms))
        # a snapshot holds every open decision: where there are many, it is saved as much more rarely
        pause = max(self._snapshot_every, len(replica.learner.agent.order))
        if replica.head.seq - self._snapshot_at >= pause and not self.store.read_only:
            self._snapshot_at = replica.head.seq  # whatever comes of it, the next attempt is as far away
            self._run_later(self._try_to_snapshot)

    def _try_to_snapshot(self) -> None:
        try:
            self.snapshot()
        except (TetherError, OSError) as error:  # no room for it, states that cannot be saved: a restart then replays
            # the whole log
            log.warning("no snapshot could be saved: %s", error)

    def snapshot(self) -> int:
        """Save a snapshot now, and return the entry that it follows."""
        with self.lock:
            if self.failure:
                raise InputError(f"there is nothing to save: {self.failure}")
            seq, data = self.replica.head.seq, self.replica.to_bytes()
            self._snapshot_at = seq
        self.store.save_snapshot(seq, data)
        return seq

    def close(self) -> None:
        """Let go of the log, and read it anew no more."""
        self._closed.set()
        self.store.close()


def _opened(store: Store, new_learner: Callable[[], Learner]) -> Replica:
    """Return the replica at the end of the log, when the log is opened."""
    try:
        return load(store, new_learner)
    except TetherError:
        raise
    except Exception as error:
        log.error("the problem's functions failed while the log was read", exc_info=error)
        raise InputError(
            f"the problem's functions failed while the log was read ({type(error).__name__}): start again once "
            "they answer. The program's own log has the error."
        ) from error


class Notes:
    """Keep what the log must still be told, and nobody waits for: it is written with the next entries that can be."""

    def __init__(self, follower: Follower, clock: Callable[[], float]) -> None:
        self._follower, self._clock = follower, clock
        self._kept: list[Event] = []

    def add(self, event: Event) -> None:
        """Keep one event."""
        with self._follower.lock:
            self._kept.append(event)

    def handed_over(self) -> tuple[Event, ...]:
        """Return what was kept, and outcomes that are late beyond the limit. What was kept is handed over once."""
        with self._follower.lock:
            kept, self._kept = tuple(self._kept), []
            replica = self._follower.replica
            limit = replica.ledger.guards.lost_after
            if limit is None or self._follower.failure:
                return kept
            late = replica.learner.agent.order.older_than(float(self._clock()) - limit)
        why = f"no outcome within {limit:g} s"
        return (*kept, *(OutcomeLost(decision_id=id, by="lost_after", why=why) for id in late))
