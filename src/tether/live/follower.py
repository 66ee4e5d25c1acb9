"""How an advisor follows its log: start, apply what was written here and elsewhere, snapshots, where it stands."""

import logging
import math
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from tether import __version__
from tether.agents.slucb_qvi import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.errors import AlteredLog, InputError, StoreError, TetherError
from tether.kernels.compiled import KERNEL
from tether.live.certificate import Certificate, Limit, baseline_evidence
from tether.live.decisions import Status
from tether.live.events import EDITION, Configured, Event, Tripped
from tether.live.guards import Guards
from tether.live.learner import live_config
from tether.live.live_agent import ALGORITHMS, Algorithm
from tether.live.modes import Criteria
from tether.live.replica import Replica, load, settings_of
from tether.live.states import StateCodec
from tether.live.store import Appended, Draft, Entry, Head, Store, open_store
from tether.problem.problem import KnownState, Problem
from tether.records import Radius

log = logging.getLogger("tether.live")

FIRST = "configured:first"
"""The key of the entry that a log begins with: only one problem and configuration can be the first."""


class Follower:
    """The part of an advisor that follows its log. Everything that changes it is an entry there."""

    def _start(
        self,
        problem: Problem,
        store: str | Path | Store | None,
        config: SlucbConfig | None,
        algorithm: Algorithm | None,
        guards: Guards | None,
        criteria: Criteria | None,
        watch: bool,
        states: StateCodec | None,
        snapshot_every: int,
        refresh: float | None,
    ) -> None:
        self.problem, self.states, self.criteria = problem, states or StateCodec(), criteria or Criteria()
        self._lock = threading.RLock()
        self._arrived: dict[int, Entry] = {}
        self._notes: list[Draft] = []
        self._in_flight, self._gap_since, self._last_look = 0, math.inf, time.monotonic()
        self._snapshot_every, self._refresh, self._store_error = snapshot_every, refresh, ""
        if not all(math.isfinite(tau) for tau in problem.threshold):
            raise InputError(
                f"threshold τ is {problem.threshold}: an advisor certifies that costs stay under τ, so each must be "
                "finite. Leave out a cost that has no limit."
            )
        if guards is not None:
            guards.budgets(problem.constraints)
        self._store = open_store(store)
        told = settings_of(self._store)
        self._is_new = told is None
        chosen: Algorithm = algorithm or ("slucb-qvi" if told is None else told["algorithm"])
        if chosen not in ALGORITHMS:
            raise InputError(f"algorithm must be one of {', '.join(ALGORITHMS)}, but is {chosen!r}.")
        if config is None:
            config = live_config(problem, chosen) if told is None else SlucbConfig(**told["config"])
        settings: dict[str, Any] = {
            "edition": EDITION,
            "problem": fingerprint(problem),
            "algorithm": chosen,
            "config": asdict(config),
            "watch": watch,
            "library": __version__,
            "kernel": KERNEL,
            "numpy": np.__version__,
        }
        if told is not None:
            _check_settings(told, settings)
        how: dict[str, Any] = {"algorithm": chosen, "watch": watch, "states": self.states}
        self._replica: Replica = load(self._store, problem, config, **how)
        wanted = guards or self._replica.ledger.guards
        current = self._replica.ledger.settings
        if not self._store.read_only and (
            current is None or {**current, **settings, "guards": wanted.to_json()} != current
        ):
            if current is not None and wanted != self._replica.ledger.guards:
                log.warning("the guards of this log change from %s to %s", self._replica.ledger.guards, wanted)
            written = self._write(Configured(**settings, guards=wanted.to_json()), *([FIRST] if told is None else []))
            if not written.fresh:  # another process started this log at the same time
                _check_settings(written.entry.body, settings)
        self._snapshot_at = self._replica.head.seq
        self._after_outcome()

    @property
    def store(self) -> Store:
        """The log."""
        return self._store

    @property
    def replica(self) -> Replica:
        """Learner and ledger as of the entries that were applied. Read it; only the log changes it."""
        return self._replica

    def sync(self) -> int:
        """Apply everything that the log holds by now; returns how many entries were new."""
        with self._lock:
            before = self._replica.head.seq
            self._read()
            self._after_outcome()
            return self._replica.head.seq - before

    def snapshot(self) -> int:
        """Save a snapshot now, so that a restart is short; returns the entry that it follows."""
        with self._lock:
            seq, data = self._replica.head.seq, self._replica.to_bytes()
            self._snapshot_at = seq
        self._store.save_snapshot(seq, data)
        return seq

    def close(self) -> None:
        """Let go of the log. The advisor is of no use afterwards."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write(self, event: Event, *keys: str) -> Appended:
        """One event into the log, unless one of its keys is there already, and applied."""
        (appended,) = self._store.append([event.draft(*keys)])
        with self._lock:
            if appended.fresh:
                self._take([appended.entry])
            if self._replica.head.seq < appended.entry.seq:
                self._read()
        return appended

    def _prepare(self, step: int) -> None:
        """Have at hand what the next decision at this step needs. A service whose outcomes come in batches need not."""
        with self._lock:
            self._replica.learner.prepare(step)

    def _take(self, entries: list[Entry]) -> None:
        """Apply entries that this process wrote, in the order of the log; those of others in between are read."""
        self._store_error = ""
        self._arrived.update({entry.seq: entry for entry in entries if entry.seq > self._replica.head.seq})
        self._drain()
        if not self._arrived:
            self._gap_since = math.inf
            return
        # A gap: another thread's batch that is about to come in here, or another process's, which must be read.
        now = time.monotonic()
        self._gap_since = min(self._gap_since, now)
        waited = self._refresh is not None and now - self._gap_since > self._refresh
        if self._in_flight == 0 or waited:
            self._read_if_possible()

    def _drain(self) -> None:
        while (entry := self._arrived.pop(self._replica.head.seq + 1, None)) is not None:
            self._replica.apply(entry)

    def _read(self) -> None:
        """Everything that the log holds beyond this replica."""
        self._last_look = time.monotonic()
        self._replica.catch_up(self._store)
        self._arrived = {seq: entry for seq, entry in self._arrived.items() if seq > self._replica.head.seq}
        self._drain()
        self._gap_since = math.inf

    def _look_around(self) -> None:
        """Look for entries of other processes once in a while. If the log is gone, the older state is still good."""
        if self._refresh is None or time.monotonic() - self._last_look < self._refresh:
            return
        self._read_if_possible()
        self._after_outcome()

    def _read_if_possible(self) -> None:
        """Read, unless the log is out of reach for now. One that was altered is never passed over."""
        try:
            self._read()
        except AlteredLog:
            raise
        except StoreError as error:
            self._store_error = str(error)

    def _after_outcome(self) -> None:
        """Log an alarm once, and save a snapshot once in a while. Neither is needed for safety, so neither may fail."""
        replica = self._replica
        alarm = replica.learner.alarm
        if alarm is not None and replica.ledger.tripped is None:
            with suppress(StoreError):
                self._write(Tripped(test=alarm.test, message=str(alarm), number=replica.ledger.alarms))
        if replica.head.seq - self._snapshot_at >= self._snapshot_every:
            self._snapshot_at = replica.head.seq  # whatever comes of it, the next attempt is as far away
            try:
                self.snapshot()
            except (TetherError, OSError) as error:  # no room for it, states that cannot be saved: a restart then
                # replays the whole log
                log.warning("no snapshot could be saved: %s", error)

    def _baseline_certificate(self, known: KnownState, step: int, reason: str, detail: str) -> Certificate:
        """The certificate of a_0(s), which rests on its declared cost alone."""
        radii = (Radius(math.inf, "none"),) * self.problem.constraints
        evidence = baseline_evidence(self.problem, known.baseline_cost[step], radii)
        limits, phi_0 = tuple(Limit.of(shown) for shown in evidence), tuple(known.actions.phi_0.tolist())
        learner, head = self._replica.learner, self._replica.head
        return Certificate(phi_0, limits, True, reason, detail, learner.version, *head, learner.model_hash(step))

    def _status(self) -> Status:
        replica, ledger = self._replica, self._replica.ledger
        stopped, alarm = ledger.stopped, replica.learner.alarm or (ledger.tripped or {}).get("message")
        head: Head = replica.head
        return Status(
            mode=ledger.mode,
            stopped="" if stopped is None else f"by {stopped['by']}: {stopped['why']}",
            alarm="" if alarm is None else str(alarm),
            seq=head.seq,
            head=head.hash,
            data_version=replica.learner.version,
            model_hash=replica.learner.model_hash(0),
            decisions=ledger.ever.decisions,
            baseline=ledger.ever.baseline,
            proposed=ledger.ever.proposed,
            refusals=ledger.ever.refusals,
            outcomes=ledger.ever.outcomes,
            costs=ledger.ever.costs,
            spent=ledger.in_window(),
            certified=ledger.certified,
            unsynced=len(self._arrived),
            store_error=self._store_error,
        )


def _check_settings(told: dict[str, Any], settings: dict[str, Any]) -> None:
    """A log belongs to one problem and one configuration: its data certify nothing elsewhere."""
    for part in ("problem", "algorithm", "config", "watch"):
        if told[part] != settings[part]:
            raise InputError(
                f"this log was started with another {part}: {told[part]}, not {settings[part]}. Use the same, or start "
                "a new log and hand the old data to warm_start."
            )
