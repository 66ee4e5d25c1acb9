"""What readers see: the journal of the last decisions, status, long polls, metrics, and the dashboard's files.

Nothing here touches a decision. Memory is bounded: only the last `KEPT` decisions, or `KEPT_BYTES`, are held.
"""

import asyncio
import os
import platform
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client import Counter as CounterMetric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tether import __version__
from tether.errors import AlteredLog, InputError, StoreError
from tether.kernels.compiled import KERNEL
from tether.live.advisor import Advisor
from tether.live.answers import UnknownDecision
from tether.live.live_agent import reward_estimate
from tether.live.log.chain import Entry, Store, Usage
from tether.live.policy import MODES
from tether.live.records import decision_key, outcome_key, withheld_key
from tether.live.status import Status
from tether.records import Array
from tether.service.auth import Caller
from tether.service.config import LimitsSection, ServiceConfig

KEPT, KEPT_BYTES = 20_000, 2**26
"""Decisions that the journal holds, and characters of their states: whichever is reached first."""

HISTORY = 20
"""Changes of mode, stops, alarms and refusals that the journal holds."""

TEXTS = {
    "mode": "mode set to {mode}: {why}",
    "stopped": "stopped: {why}",
    "resumed": "resumed: {why}",
    "tripped": "{message}",
    "alarm-reset": "alarm reset: {why}",
    "gate-refused": "the gate refused a certificate: {why}",
    "withheld": "decision {decision_id} did not leave, a_0 did: {reason}",
    "lost": "the outcome of decision {decision_id} will never come: {why}",
    "warm-start": "warm start: {source}",
    "archived": "entries up to {last} are in the archive",
    "configured": "started, library {library}",
}


class Journal:
    """Rows of the last decisions, with their outcomes, and the last changes of everything else."""

    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor
        head = advisor.store.head().seq
        self.seq = max(advisor.store.archived(), head - 3 * KEPT)
        self.rows: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.history: list[dict[str, Any]] = []
        self.times: dict[str, float] = {}
        self._forgotten = self._bytes = 0
        self._sizes: deque[int] = deque()  # of the rows' entries, in their order
        self.follow()
        self._forgotten = max(0, advisor.replica.ledger.ever.decisions - len(self.rows))  # not read, or archived

    def follow(self) -> list[str]:
        """Take in what the log holds by now; returns the kinds of the new entries."""
        kinds = []
        while page := self._advisor.store.read(self.seq, 1000):
            for entry in page:
                self._take(entry)
                kinds.append(entry.kind)
            self.seq = page[-1].seq
        return list(dict.fromkeys(kinds))

    def _take(self, entry: Entry) -> None:
        body = entry.body
        if entry.kind == "decision":
            self.rows[body["decision_id"]] = row_of(entry)
            self._sizes.append(len(entry.text))
            self._bytes += len(entry.text)
            while len(self.rows) > KEPT or (self._bytes > KEPT_BYTES and len(self.rows) > 1):
                self.rows.popitem(last=False)
                self._bytes -= self._sizes.popleft()
                self._forgotten += 1
        elif entry.kind == "outcome":
            row = self.rows.get(body["decision_id"])
            if row is not None:
                row["outcome"] = outcome_of(entry)
                row["a_0"] = self._a_0_instead(row, body)
        elif entry.kind == "withheld" and body["decision_id"] in self.rows:
            self.rows[body["decision_id"]].update(held(entry))
        if entry.kind in TEXTS:
            self.times[entry.kind] = entry.time
            text = TEXTS[entry.kind].format_map({**{"why": "", "source": "", "library": ""}, **body})
            event = {"seq": entry.seq, "time": entry.time, "kind": entry.kind, "by": body.get("by"), "text": text}
            self.history = [event, *self.history][:HISTORY]

    def _a_0_instead(self, row: dict[str, Any], body: dict[str, Any]) -> float | Array | None:
        """What is known of a_0's reward there: the reward itself if a_0 acted, else φ_0(s), to estimate it from."""
        if row["is_baseline"] and body["applied"] == row["played"]:
            return float(body["reward"])
        try:
            phi_0 = self._advisor.problem.look_up(self._advisor.states.decode(body["state"])).actions.phi_0
        except Exception:  # a picture's number: whatever fails in the caller's functions, there is none
            return None
        return float(body["reward"]) if np.array_equal(phi_0, body["feature"]) else phi_0

    def _baseline_rewards(self, rows: list[dict[str, Any]]) -> list[float | None]:
        """a_0's reward at each row: as seen, or ⟨θ̂_h, φ_0(s)⟩ with the newest θ̂, and so a function of the log alone."""
        agent, estimates = self._advisor.replica.learner.agent, dict[int, Array]()
        rewards: list[float | None] = []
        for row in rows:
            known = row["a_0"]
            if isinstance(known, np.ndarray):
                step = row["step"]
                if step not in estimates:
                    estimates[step] = reward_estimate(agent, step)
                known = float(estimates[step] @ known)
            rewards.append(known if known is not None and np.isfinite(known) else None)
        return rewards

    def last_radius(self) -> dict[str, Any]:
        """Value and origin of the newest radius: a proposal that failed has none."""
        for row in reversed(self.rows.values()):
            if row["radius_origin"] != "none":
                return {"value": row["radius"], "origin": row["radius_origin"]}
        return {"value": None, "origin": None}

    def page(self, limit: int, before: int | None, kind: str) -> tuple[list[dict[str, Any]], int | None]:
        """Up to `limit` rows before entry `before`, newest first, and where the next page begins."""
        found: list[dict[str, Any]] = []
        for row in reversed(self.rows.values()):
            if before is not None and row["seq"] >= before:
                continue
            if kind != "all" and counts_as_safe(row) != (kind == "baseline"):
                continue
            if len(found) == limit:
                return found, found[-1]["seq"]
            found.append({name: value for name, value in row.items() if name != "a_0"})
        return found, None

    def series(self, window: int, points: int) -> dict[str, Any]:
        """Columns over the last `window` decisions (0: all that are held), in at most `points` buckets."""
        rows = list(self.rows.values())
        rows = [{**row, "a_0": a_0} for row, a_0 in zip(rows, self._baseline_rewards(rows), strict=True)]
        chosen = rows[-window:] if window else rows
        skipped = len(rows) - len(chosen)
        size = max(1, -(-len(chosen) // points))
        buckets = [chosen[first : first + size] for first in range(0, len(chosen), size)]
        first = self._forgotten + skipped
        columns: dict[str, Any] = {name: [] for name in BUCKET_COLUMNS}
        for number, bucket in enumerate(buckets):
            for name, value in bucket_of(bucket).items():
                columns[name].append(value)
            columns["index"].append(first + number * size + len(bucket))
        whole = self._forgotten == 0
        earlier = bucket_of(rows[:skipped]) if whole and skipped else None
        before = {name: 0.0 if earlier is None else earlier[name] for name in ("reward_sum", "baseline_reward_sum")}
        return {
            "window": len(chosen),
            "total": self._forgotten + len(rows),
            **columns,
            "threshold": self._advisor.problem.threshold[0],
            "baseline_reward_source": "estimated: where another action acted, ⟨θ̂, φ(s, a_0(s))⟩ with the newest θ̂",
            "before": before if whole else None,
        }


BUCKET_COLUMNS = (
    "index", "time", "count", "id", "baseline", "margin_min", "margin_mean", "certified_share", "outcomes",
    "reward_sum", "baseline_reward_sum",
)  # fmt: skip


def bucket_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run of consecutive decisions says together."""
    shares = [row["certified_share"] for row in rows if row["certified_share"] is not None]
    margins = [row["margin"] for row in rows if row["margin"] is not None]
    seen = [row for row in rows if row["outcome"] is not None]
    compared = [row["a_0"] for row in seen if row["a_0"] is not None]
    return {
        "time": rows[-1]["time"],
        "count": len(rows),
        "id": rows[0]["id"] if len(rows) == 1 else None,
        "baseline": sum(counts_as_safe(row) for row in rows),
        "margin_min": min(margins) if margins else None,
        "margin_mean": sum(margins) / len(margins) if margins else None,
        "certified_share": sum(shares) / len(shares) if shares else None,
        "outcomes": len(seen),
        "reward_sum": sum(row["outcome"]["reward"] for row in seen),
        "baseline_reward_sum": sum(compared) if len(compared) == len(seen) else None,
    }


def counts_as_safe(row: dict[str, Any]) -> bool:
    """Whether a row stands for a_0: by what was played; in shadow mode, where that is always a_0, by the proposal."""
    return bool(row["proposed_is_baseline"] if row["mode"] == "shadow" else row["is_baseline"])


def row_of(entry: Entry) -> dict[str, Any]:
    """One decision as the dashboard's table shows it. In shadow mode the numbers are those of the proposal."""
    body = entry.body
    shown = body["proposal"] if body["mode"] == "shadow" and body["proposal"] is not None else body["certificate"]
    limits = [{name: finite(value) for name, value in limit.items()} for limit in shown["limits"]]
    tightest = min(range(len(limits)), key=lambda j: np.inf if limits[j]["margin"] is None else limits[j]["margin"])
    limit = limits[tightest]
    return {
        "id": body["decision_id"],
        "seq": entry.seq,
        "time": entry.time,
        **{name: body[name] for name in ("episode", "step", "state", "mode", "proposed", "played", "is_baseline")},
        "proposed_is_baseline": body["is_baseline"] and body["proposal"] is None,
        "reason": body["reason"],
        "detail": body["detail"],
        **{name: limit[name] for name in ("bound", "threshold", "margin", "bounds")},
        "constraint": tightest,
        "radius_origin": limit["origin"],
        "radius": limit["radius"],
        "facts": limit.get("facts", 0),
        "certified_share": body["certified"],
        "outcome": None,
        "a_0": None,
    }


def outcome_of(entry: Entry) -> dict[str, Any]:
    """An outcome as its decision's row shows it."""
    return {name: entry.body[name] for name in ("reward", "cost", "applied")} | {"time": entry.time}


def held(entry: Entry) -> dict[str, Any]:
    """What the row of a decision says once it was withheld: it was a_0 that acted."""
    return {"reason": entry.body["reason"], "detail": entry.body["detail"], "is_baseline": True}


def finite(value: Any) -> Any:
    """A logged number, or None where it is not finite (the log writes those as strings)."""
    return None if value in ("inf", "-inf", "nan") else value


# What the dashboard and other readers see: status, decisions and columns, all read from the log.


class View:
    """Answers for readers. It never touches what is decided; one lock, since several threads may ask."""

    def __init__(self, advisor: Advisor, config: ServiceConfig, *, has_tokens: bool) -> None:
        self._advisor, self._config, self._has_tokens = advisor, config, has_tokens
        self._lock = threading.Lock()
        self._journal: Journal | None = None

    def _followed(self) -> Journal:
        """The journal up to now; read on first use, so that a service that nobody watches pays nothing."""
        if self._journal is None:
            self._journal = Journal(self._advisor)
        self._journal.follow()
        return self._journal

    def _latest(self) -> tuple[Journal, str]:
        """The journal up to now; up to before, and why, while the log is out of reach. An altered log is refused."""
        try:
            journal = self._followed()
            self._sync()
        except AlteredLog:
            raise
        except StoreError as error:
            if self._journal is None:
                raise
            return self._journal, str(error)
        return journal, ""

    def advisor_status(self) -> tuple[Status, Usage | None]:
        """The advisor's status at the end of the log, and what that takes; as of before, and why, while the log is out
        of reach."""
        try:
            self._sync()
            return self._advisor.status(), self._advisor.store.usage()
        except StoreError as error:
            return replace(self._advisor.status(), store_error=str(error)), None

    def _sync(self) -> None:
        """Follow the log, unless the problem's functions fail on it: then the advisor's status says so."""
        with suppress(InputError):
            self._advisor.sync()

    def kinds(self, after: int) -> list[str]:
        """Kinds of the entries after `after`, of the first page of them."""
        return list(dict.fromkeys(entry.kind for entry in self._advisor.store.read(after, 200)))

    def status(self, caller: Caller, *, wait: bool = True) -> dict[str, Any]:
        """Where the service stands, for this caller. Without `wait`, for orders, nobody's reading is waited for: what
        the journal adds is then as of when it was last read, and the radius is left out."""
        error, radius = "", dict[str, Any](value=None, origin=None)
        if wait:
            with self._lock:
                journal, error = self._latest()
                radius = journal.last_radius()
        status, stopped, tripped = self._advisor.status(), self._advisor.stopped, self._advisor.replica.ledger.tripped
        waits = self._advisor.waits()
        history, times = ([], {}) if self._journal is None else (self._journal.history, self._journal.times)
        if not wait and self._journal is not None and self._journal.seq < status.seq:
            times = {}  # it may know of an earlier stop, whose time is not this one's
        problem, labels = self._advisor.problem, self._config.labels
        given = problem.names  # what the configuration calls otherwise is called so here
        names = [*(labels.constraints or given.constraints), *[None] * len(problem.constraints)][
            : len(problem.constraints)
        ]
        return {
            "you": {"name": caller.name, "roles": list(caller.roles)},
            "open": not self._has_tokens,
            "problem": labels.title or self._config.problem,
            "horizon": problem.horizon,
            "library_version": __version__,
            "time": time.time(),
            "mode": status.mode,
            "mode_since": times.get("mode"),
            "stopped": None if stopped is None else {**stopped.model_dump(), "time": times.get("stopped")},
            "alarm": None if not status.alarm else {
                "test": "" if tripped is None else tripped.test,
                "message": status.alarm,
                "time": times.get("tripped"),
            },
            "head": {"seq": status.seq, "hash": status.head},
            "data_version": status.data_version,
            "model_hash": status.model_hash,
            "counts": {
                "decisions": status.decisions,
                "baseline": status.baseline,
                "outcomes": status.outcomes,
                "costs": status.costs,
                "gate_refusals": status.refusals,
                "over_by_itself": status.over_by_itself,
                "open": status.open,
                "waiting": status.waiting,
                "lost": status.lost,
            },
            "waiting": None if not status.open else {
                "for": status.waiting_for if waits is None else ", ".join(waits.ids),
                "since": status.waiting_since if waits is None else waits.since,
            },
            "constraints": [
                {"name": name, "threshold": tau} for name, tau in zip(names, problem.threshold, strict=True)
            ],
            "radius": radius,
            "bounds": self._advisor.replica.learner.agent.bounds,
            "certified_share": status.certified if status.decisions else None,
            "uplift": status.uplift.to_json(),
            "history": history,
            "store_error": error or status.store_error or status.failure,
            "units": {
                "reward": labels.reward_unit or given.reward_unit or None,
                "cost": labels.cost_units or list(given.cost_units) or None,
            },
            "actions": list(given.actions),
            "features": list(given.features),
        }  # fmt: skip

    def decisions(self, limit: int, before: int | None, kind: str) -> dict[str, Any]:
        """A page of the last decisions, newest first."""
        with self._lock:
            rows, following = self._followed().page(limit, before, kind)
        return {"decisions": [{**row, **self._place(row)} for row in rows], "next": following}

    def decision(self, id: str) -> dict[str, Any]:
        """One decision, whole, wherever in the log it is."""
        entry = self._advisor.store.find(decision_key(id)) if 0 < len(id) <= 200 else None
        if entry is None:
            raise UnknownDecision(
                f"decision {id!r:.80} is not in this log. What was archived is found by `tether audit export`."
            )
        outcome = self._advisor.store.find(outcome_key(id))
        body, row, withheld = entry.body, row_of(entry), self._advisor.store.find(withheld_key(id))
        del row["a_0"]
        if withheld is not None:
            row |= held(withheld)
        if outcome is not None:
            row["outcome"] = outcome_of(outcome)
        return {
            **row,
            **self._place(row),
            **{name: body[name] for name in ("certificate", "proposal", "drawn", "canary", "key", "observed_at")},
            "entry": {"seq": entry.seq, "time": entry.time, "hash": entry.hash, "previous": entry.previous},
            "outcome_entry": None if outcome is None else {"seq": outcome.seq, "hash": outcome.hash},
        }

    def _place(self, row: dict[str, Any]) -> dict[str, str]:
        """What the problem calls the state of a decision, if it has a name for it."""
        names = self._advisor.problem.names
        if names.state is not None:
            with suppress(Exception):  # the user's function, and perhaps a state of before: the state itself is shown
                return {"place": names.place(self._advisor.states.decode(row["state"]))}
        return {}

    def series(self, window: int, points: int) -> dict[str, Any]:
        """Columns for charts."""
        with self._lock:
            return self._followed().series(window, points)


class Readers:
    """One thread in which readers are answered, so that decisions share the processor with one of them at most. Those
    who wait for it are limited, in all and each."""

    def __init__(self, limits: LimitsSection) -> None:
        self._limits, self._thread = limits, ThreadPoolExecutor(1, "tether-readers")
        self._waiting = Counter[Any]()

    async def run(self, who: Any, view: Callable[[], bytes]) -> bytes:
        """The answer of a view, for this client (None: the metrics, which count for nobody)."""
        of_all, of_one, limits = self._waiting.total(), self._waiting[who], self._limits
        if who is not None and (of_all >= limits.readers or of_one >= limits.readers_each):
            words = f"{of_one} requests of yours for status, decisions or charts wait already, {of_all} of all clients"
            raise HTTPException(429, f"{words}: the limits are {limits.readers_each} and {limits.readers}. Try again.")
        self._waiting[who] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, view)
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    def close(self) -> None:
        """Take no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


# Long polls: wait until the log grows.

INTERVAL = 0.25
"""Seconds between two polls of the log while somebody waits."""


class LogPoll:
    """Wakes those who wait for the log to grow, also through other processes. One poll of the store serves all of them,
    and runs only while there are any."""

    def __init__(self, store: Store) -> None:
        self._store, self._head, self._waiters = store, 0, 0
        self._grown, self._stopped = asyncio.Condition(), False
        self._task: asyncio.Task[None] | None = None

    async def head_after(self, after: int, seconds: float) -> int:
        """The seq of the log's end: at once if it is beyond `after`, else when it is, or after so many seconds."""
        self._head = max(self._head, (await asyncio.to_thread(self._store.head)).seq)
        deadline = time.monotonic() + seconds
        self._waiters += 1
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._poll())
            async with self._grown:
                while self._head <= after and not self._stopped and (left := deadline - time.monotonic()) > 0.0:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._grown.wait(), left)
        finally:
            self._waiters -= 1
        return self._head

    async def _poll(self) -> None:
        while self._waiters:
            await asyncio.sleep(INTERVAL)
            with suppress(Exception):  # a log that cannot be read has not grown; writers get the error
                self._head = max(self._head, (await asyncio.to_thread(self._store.head)).seq)
            async with self._grown:
                self._grown.notify_all()

    def stop(self) -> None:
        """Stop accepting waiters; pending ones are answered at the next poll. Safe to call in a signal handler."""
        self._stopped = True

    async def close(self) -> None:
        """Cancel the poll."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


# Metrics, for Prometheus.

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable by which prometheus_client finds the folder where workers keep their counts for each other."""

COUNTERS = {
    "seq": ("log_entries", "Entries of the log."),
    "outcomes": ("outcomes", "Outcomes in the log."),
    "data_version": ("outcomes_learned", "Outcomes learned from."),
    "lost": ("outcomes_lost", "Outcomes whose costs never came."),
    "refusals": ("gate_refusals", "Certificates that the gate refused."),
    "over_by_itself": ("drawn_over_limit", "Drawn actions whose own bound is over the limit."),
}
GAUGES = {
    "stopped": ("stopped", "1: switched off."),
    "alarm": ("alarm", "1: a test of the assumptions has failed."),
    "certified": ("certified_ratio", "Share of D(s) certified, last decision."),
    "open": ("outcomes_pending", "Decisions without an outcome."),
    "waiting": ("outcomes_waiting", "Outcomes whose costs wait for earlier decisions."),
    "waiting_since": (
        "outcomes_waiting_since_timestamp_seconds",
        "When the oldest decision without an outcome was made; 0: there is none.",
    ),
    "store_error": ("log_failed", "1: the log failed when this process last used it."),
    "failure": ("problem_failed", "1: the problem's functions failed, so that this process cannot apply the log."),
    "unsynced": ("entries_unapplied", "Entries that wait, in this process, for those before them."),
}


class Metrics(Collector):
    """Counts and times, in a registry of their own. What the log knows is the same in all processes, as of the last
    status. Requests and answers are those of all workers: they share a folder, named by `SHARED`."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge for each counter, which says nothing
        self._registry, self._status, self._usage = CollectorRegistry(), None, None
        shared = bool(os.environ.get(SHARED))
        if shared:
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        self._registry.register(self)
        where = None if shared else self._registry
        build = {"version": __version__, "kernel": KERNEL, "python": platform.python_version()}
        self._build = GaugeMetricFamily("tether_build_info", "What runs.", labels=list(build))
        self._build.add_metric(list(build.values()), 1.0)
        self.requests = Histogram("tether_request_duration_seconds", "Time per request.", ["method", "path", "status"],
                                  buckets=BUCKETS, registry=where)  # fmt: skip
        self.syncs = Histogram("tether_log_sync_duration_seconds", "Time to write and sync a batch of entries.",
                               buckets=BUCKETS, registry=where)  # fmt: skip
        self.answers = CounterMetric("tether_answers", "Decisions that were answered, logged or not.",
                                     ["mode", "played", "reason"], registry=where)  # fmt: skip
        self.acknowledged = CounterMetric("tether_acknowledgements", "Outcomes that were acknowledged.", ["repeated"],
                                          registry=where)  # fmt: skip

    _status: Status | None
    _usage: Usage | None

    def forget(self) -> None:
        """Leave no file in the shared folder: this worker never answered, and who reads the counts reads them all."""
        if folder := os.environ.get(SHARED):
            for file in Path(folder).glob(f"*_{os.getpid()}.db"):
                file.unlink(missing_ok=True)

    def collect(self) -> Iterator[Metric]:
        """What the status says, and what the system says of the processes."""
        yield self._build
        yield from process_metrics()
        if self._usage is not None:
            yield GaugeMetricFamily("tether_log_size_bytes", "What the log takes on disk.", self._usage.size)
        status = self._status
        if status is None:
            return
        if self._usage is not None:
            age = status.seq - self._usage.snapshot
            yield GaugeMetricFamily("tether_snapshot_age_entries", "Entries since the last snapshot.", max(0, age))
            if self._usage.snapshot:
                seconds = max(0.0, time.time() - self._usage.saved)
                yield GaugeMetricFamily("tether_snapshot_age_seconds", "Time since the last snapshot's entry.", seconds)
        decisions = CounterMetricFamily("tether_decisions", "Decisions in the log.", labels=["played"])
        decisions.add_metric(["baseline"], status.baseline)
        decisions.add_metric(["other"], status.decisions - status.baseline)
        yield decisions
        over = CounterMetricFamily("tether_costs_over_threshold", "Measured costs above τ.", labels=["constraint"])
        for number, count in enumerate(status.over):
            over.add_metric([str(number)], count)
        yield over
        modes = GaugeMetricFamily("tether_mode", "1 for the present mode.", labels=["mode"])
        for mode in MODES:
            modes.add_metric([mode], float(status.mode == mode))
        yield modes
        for field, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(f"tether_{name}", text, float(getattr(status, field)))
        for field, (name, text) in GAUGES.items():
            value = getattr(status, field)  # words, such as those of an alarm, count as 1
            yield GaugeMetricFamily(f"tether_{name}", text, float(bool(value) if isinstance(value, str) else value))

    def text(self, status: Status, usage: Usage | None) -> bytes:
        """Everything, in Prometheus' text format."""
        self._status, self._usage = status, usage or self._usage
        return generate_latest(self._registry)


def process_metrics() -> Iterator[Metric]:
    """CPU, memory, open files and start of this process; with several workers, of all of them together."""
    pids = [os.getpid()]
    if os.environ.get(SHARED):
        with suppress(OSError):
            parent = os.getppid()
            pids = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    found: dict[str, Metric] = {}
    for pid in pids:
        for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            if metric.name not in found:
                found[metric.name] = metric
                continue
            (first,), (sample,) = found[metric.name].samples, metric.samples
            whole = min(first.value, sample.value) if "time" in metric.name else first.value + sample.value
            found[metric.name].samples[0] = first._replace(value=whole)
    yield from found.values()


# The dashboard's files.

STATIC_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Pages:
    """The files of the dashboard, read once. None of them holds data."""

    def __init__(self) -> None:
        found = files("tether.service").joinpath("static").iterdir()
        self._files = {file.name: file.read_bytes() for file in found if PurePath(file.name).suffix in STATIC_TYPES}

    def response(self, name: str) -> Response:
        """One file, with the headers that keep a browser from loading anything from elsewhere."""
        if name not in self._files:
            raise HTTPException(404, f"there is no page {name!r:.80}.")
        return Response(self._files[name], headers=PAGE_HEADERS, media_type=STATIC_TYPES[PurePath(name).suffix])
