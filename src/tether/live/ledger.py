"""The ledger: what the log says about mode, switch, guards and counts. A fold, like the learner."""

import json
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tether.live.guards import Guards
from tether.live.modes import Mode
from tether.live.store import Entry


@dataclass
class Counts:
    """Counts since some point of the log. `excess` (M,) sums cost − bound over `compared` outcomes.

    The `drawn` ones among these had a bound on a mixture's mean; `square` (M,) sums (cost − bound)² over them.
    """

    decisions: int = 0
    baseline: int = 0
    proposed: int = 0
    refusals: int = 0
    outcomes: int = 0
    costs: int = 0
    compared: int = 0
    drawn: int = 0
    excess: list[float] = field(default_factory=list)
    square: list[float] = field(default_factory=list)

    def decided(self, body: dict[str, Any]) -> None:
        """One decision more."""
        self.decisions += 1
        self.baseline += bool(body["is_baseline"])
        self.proposed += body["proposal"] is not None or not body["is_baseline"]

    def seen(self, body: dict[str, Any]) -> None:
        """One outcome more."""
        cost, bound = body["cost"], body["bound"]
        self.outcomes += 1
        self.costs += cost is not None
        if cost is not None and bound is not None:
            self.compared += 1
            self.drawn += body["drawn"]
            for j, (z, limit) in enumerate(zip(cost, bound, strict=True)):
                self.excess[j] += z - limit
                self.square[j] += (z - limit) ** 2 if body["drawn"] else 0.0


class Ledger:
    """Everything but the learner that a decision depends on, after the entries of the log so far.

    `stopped` and `tripped` are the bodies of the entries that did it, None while nothing did. `recent` holds 1 for each
    of the last decisions that did not play a_0, `spent` the costs of the last outcomes (all of them: `total`), `latest`
    the newest time of a decision, `certified` the share of D(s) that was certified when last looked at.
    """

    def __init__(self, threshold: tuple[float, ...]) -> None:
        self.threshold = threshold
        self.mode: Mode = "shadow"
        self.stopped: dict[str, Any] | None = None
        self.tripped: dict[str, Any] | None = None
        self.alarms = 0
        self.latest = 0.0
        self.certified = 0.0
        self.settings: dict[str, Any] | None = None
        self.guards = Guards()
        self.recent: deque[int] = deque(maxlen=self.guards.rate_window)
        self.spent: deque[list[float]] = deque(maxlen=0)
        self.total = [0.0] * len(threshold)
        self.ever, self.since = self._zero(), self._zero()

    def _zero(self) -> Counts:
        return Counts(excess=[0.0] * len(self.threshold), square=[0.0] * len(self.threshold))

    def apply(self, entry: Entry) -> None:
        """Take the next entry of the log into account."""
        body = entry.body
        match entry.kind:
            case "decision":
                self._decided(body)
            case "outcome":
                self._seen(body)
            case "gate-refused":
                self.ever.refusals += 1
                self.since.refusals += 1
            case "mode":
                self.mode, self.since = body["mode"], self._zero()
            case "stopped":
                self.stopped = body
            case "resumed":
                self.stopped, self.latest = None, 0.0  # whoever resumes has looked at the clock, too
            case "tripped":
                self.tripped = body
                self.alarms = max(self.alarms, body["number"] + 1)
            case "alarm-reset":
                self.tripped, self.since = None, self._zero()
            case "configured":
                self._configured(body)

    def _decided(self, body: dict[str, Any]) -> None:
        self.ever.decided(body)
        self.since.decided(body)
        self.recent.append(int(not body["is_baseline"]))
        if body["certified"] is not None:
            self.certified = body["certified"]
        if body["decided_at"] is not None:
            self.latest = max(self.latest, body["decided_at"])

    def _seen(self, body: dict[str, Any]) -> None:
        self.ever.seen(body)
        self.since.seen(body)
        cost = [min(tau, 1e300) for tau in self.threshold] if body["cost"] is None else body["cost"]
        self.spent.append(cost)
        for j, z in enumerate(cost):
            self.total[j] += z

    def _configured(self, body: dict[str, Any]) -> None:
        self.settings, self.guards = body, Guards.from_json(body["guards"])
        self.recent = deque(self.recent, maxlen=self.guards.rate_window)
        self.spent = deque(self.spent, maxlen=self.guards.budget_window or 0)

    def in_window(self) -> tuple[float, ...]:
        """The sum of observed costs (M,) that the budget looks at."""
        if self.guards.budget_window is None:
            return tuple(self.total)
        return tuple(sum(cost[j] for cost in self.spent) for j in range(len(self.threshold)))

    def others(self) -> int:
        """How many of the decisions before the next one, in its window, did not play a_0."""
        full = len(self.recent) == self.guards.rate_window
        return sum(self.recent) - (self.recent[0] if full else 0)

    def to_json(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        names = ("mode", "stopped", "tripped", "alarms", "latest", "certified", "settings", "total")
        counts = {"ever": asdict(self.ever), "since": asdict(self.since)}
        plain = {name: getattr(self, name) for name in names}
        return {**plain, **counts, "recent": list(self.recent), "spent": list(self.spent)}

    @classmethod
    def from_json(cls, threshold: tuple[float, ...], saved: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        ledger = cls(threshold)
        if saved["settings"] is not None:
            ledger._configured(saved["settings"])
        for name in ("mode", "stopped", "tripped", "alarms", "latest", "certified", "total"):
            setattr(ledger, name, saved[name])
        ledger.ever, ledger.since = Counts(**saved["ever"]), Counts(**saved["since"])
        ledger.recent.extend(saved["recent"])
        ledger.spent.extend(saved["spent"])
        return ledger

    def to_bytes(self) -> bytes:
        """`to_json` as text."""
        return json.dumps(self.to_json(), sort_keys=True).encode()
