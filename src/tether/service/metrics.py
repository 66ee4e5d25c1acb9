"""Counts and times for Prometheus. What the log knows is the same in all processes; the rest is labelled with whose it
is, by its process id."""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from tether.live.records import LiveDecision, Status

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


OF_THE_LOG = {
    "seq": "Entries of the log.", "data_version": "Outcomes learned from.", "stopped": "1: switched off.",
    "alarm": "1: a test of the assumptions has failed.", "certified": "Share of D(s) certified, last decision.",
    "refusals": "Certificates that the gate refused.",
}  # fmt: skip
OF_THE_WORKER = {"store_error": "1: the log failed when last used.", "unsynced": "Entries waiting for others."}


class Logged(Collector):
    """Counts that the log holds, as of the last status."""

    def __init__(self) -> None:
        self.status: Status | None = None

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Decisions and outcomes, of all processes since the log began."""
        if self.status is not None:
            decisions = CounterMetricFamily("tether_decisions", "Decisions in the log.", labels=["played"])
            decisions.add_metric(["baseline"], self.status.baseline)
            decisions.add_metric(["other"], self.status.decisions - self.status.baseline)
            yield decisions
            yield CounterMetricFamily("tether_outcomes", "Outcomes in the log.", self.status.outcomes)


class Metrics:
    """The service's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry, self._worker, self._logged = CollectorRegistry(), str(os.getpid()), Logged()
        self.registry.register(self._logged)
        self._seconds = Histogram("tether_request_seconds", "Time per request.", ["worker", "method", "path", "status"],
                                  buckets=BUCKETS, registry=self.registry)  # fmt: skip
        self._decided = Counter("tether_worker_decisions", "Decisions answered by this worker.",
                                ["worker", "mode", "played", "reason"], registry=self.registry)  # fmt: skip
        self._recorded = Counter("tether_worker_outcomes", "Outcomes acknowledged by this worker.",
                                 ["worker", "repeated"], registry=self.registry)  # fmt: skip
        self._gauges = {name: Gauge(f"tether_{name}", text, registry=self.registry)
                        for name, text in OF_THE_LOG.items()}  # fmt: skip
        for name, text in OF_THE_WORKER.items():
            self._gauges[name] = Gauge(f"tether_{name}", text, ["worker"], registry=self.registry).labels(self._worker)
        self._requests: dict[tuple[str, str, int], Histogram] = {}  # children at hand: `labels` is slow
        self._decisions: dict[tuple[str, str, str], Counter] = {}
        self._mode = Gauge("tether_mode", "1 for the present mode.", ["mode"], registry=self.registry)

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """One request was answered."""
        known = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        child = self._requests.get((known, path, status))
        if child is None:
            child = self._requests[known, path, status] = self._seconds.labels(self._worker, known, path, str(status))
        child.observe(seconds)

    def decided(self, decision: LiveDecision) -> None:
        """One decision was made."""
        played = "baseline" if decision.is_baseline else "other"
        labels = (decision.mode, played, decision.reason)
        child = self._decisions.get(labels)
        if child is None:
            child = self._decisions[labels] = self._decided.labels(self._worker, *labels)
        child.inc()

    def recorded(self, repeated: bool) -> None:
        """One outcome was recorded."""
        self._recorded.labels(self._worker, str(repeated).lower()).inc()

    def text(self, status: Status) -> bytes:
        """Everything, in Prometheus' text format."""
        self._logged.status = status
        for name, gauge in self._gauges.items():
            value = getattr(status, name)
            gauge.set(float(bool(value)) if isinstance(value, str) else float(value))
        for mode in ("shadow", "guarded", "live"):
            self._mode.labels(mode).set(float(status.mode == mode))
        return generate_latest(self.registry)
