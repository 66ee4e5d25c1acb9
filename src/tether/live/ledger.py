"""The ledger: what the log says about mode, switch, guards and counts. A fold, like the learner."""

import json
from base64 import b64decode, b64encode
from collections import deque
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Self

import numpy as np

from tether.live.guards import LONGEST, Guards
from tether.live.modes import Mode
from tether.live.store import Entry

ORDERS = frozenset({"mode", "stopped", "resumed", "alarm-reset"})
"""Entries by which people change what may be played. Their number tells whether one was given since it was read."""


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


class Window:
    """The last `LONGEST` numbers, so that a window can be set or widened later, and the sum of the last `size` of them.

    The sum is an exact integer, in units of the smallest double: what leaves the window leaves nothing behind, neither
    rounding nor a hole where something huge has passed, and the sum is a function of the window's content alone.
    """

    unit = 2**1074

    def __init__(self, size: int, dtype: str = "<f8") -> None:
        self.size, self.dtype, self.values = size, dtype, deque[float](maxlen=LONGEST + 1)
        self._units = 0

    def append(self, value: float) -> None:
        """One number more; the oldest one leaves the window."""
        self.values.append(value)
        self._units += self._in_units(value)
        if len(self.values) > self.size:
            self._units -= self._in_units(self.values[-1 - self.size])

    def resize(self, size: int) -> None:
        """Look at the last `size` numbers from now on."""
        if size != self.size:
            self.size = size
            self._units = sum(map(self._in_units, islice(reversed(self.values), size)))

    def sum(self) -> float:
        """The sum over the window, rounded once."""
        return self._units / self.unit

    def to_text(self) -> str:
        """The numbers in base 64: JSON takes ten times as long for them, and twice the room."""
        return b64encode(np.fromiter(self.values, self.dtype, len(self.values)).tobytes()).decode()

    def take_text(self, text: str) -> None:
        """The reverse of `to_text`."""
        self.values.extend(np.frombuffer(b64decode(text), self.dtype).tolist())
        self._units = sum(map(self._in_units, islice(reversed(self.values), self.size)))

    def _in_units(self, value: float) -> int:
        top, bottom = value.as_integer_ratio()
        return top * (self.unit // bottom)


class Ledger:
    """Everything but the learner that a decision depends on, after the entries of the log so far.

    `stopped` and `tripped` are the bodies of the entries that did it, None while nothing did. `recent` holds 1 for each
    of the last decisions that did not play a_0, `spent` (M,) the costs of the last outcomes (all of them: `total`),
    `latest` the newest time of a decision, `certified` the share of D(s) that was certified when last looked at.
    `began` is the entry that set `since` to zero: decisions that rest on an older one belong to the time before.
    `orders` counts what people ordered.
    """

    def __init__(self, threshold: tuple[float, ...]) -> None:
        self.threshold = threshold
        self.mode: Mode = "shadow"
        self.stopped: dict[str, Any] | None = None
        self.tripped: dict[str, Any] | None = None
        self.alarms = 0
        self.orders = 0
        self.latest = 0.0
        self.certified = 0.0
        self.settings: dict[str, Any] | None = None
        self.guards = Guards()
        self.recent = Window(self.guards.rate_window - 1, "u1")
        self.spent = tuple(Window(0) for _ in threshold)
        self.total = [0.0] * len(threshold)
        self.ever, self.since, self.began = self._zero(), self._zero(), 0

    def _zero(self) -> Counts:
        return Counts(excess=[0.0] * len(self.threshold), square=[0.0] * len(self.threshold))

    def _begin(self, seq: int) -> None:
        self.since, self.began = self._zero(), seq

    def apply(self, entry: Entry) -> None:
        """Take the next entry of the log into account."""
        body = entry.body
        self.orders += entry.kind in ORDERS
        match entry.kind:
            case "decision":
                self._decided(body)
            case "outcome":
                self._seen(body)
            case "withheld":  # what acted was a_0
                self.ever.baseline += 1
                self.since.baseline += 1
            case "gate-refused":
                self.ever.refusals += 1
                self.since.refusals += 1
            case "mode":
                self.mode = body["mode"]
                self._begin(entry.seq)
            case "stopped":
                self.stopped = body
            case "resumed":
                self.stopped, self.latest = None, 0.0  # whoever resumes has looked at the clock, too
            case "tripped":
                self.tripped = body
                self.alarms = max(self.alarms, body["number"] + 1)
            case "alarm-reset":
                self.tripped = None
                self._begin(entry.seq)
            case "configured":
                self._configured(body)

    def _decided(self, body: dict[str, Any]) -> None:
        self.ever.decided(body)
        if body["certificate"]["seq"] >= self.began:
            self.since.decided(body)
        self.recent.append(int(not body["is_baseline"]))
        if body["certified"] is not None:
            self.certified = body["certified"]
        if body["decided_at"] is not None:
            self.latest = max(self.latest, body["decided_at"])

    def _seen(self, body: dict[str, Any]) -> None:
        self.ever.seen(body)
        if body.get("rests_on", 0) >= self.began:
            self.since.seen(body)
        cost = [min(tau, 1e300) for tau in self.threshold] if body["cost"] is None else body["cost"]
        for j, z in enumerate(cost):
            self.spent[j].append(z)
            self.total[j] += z

    def _configured(self, body: dict[str, Any]) -> None:
        self.settings, self.guards = body, Guards.from_json(body["guards"])
        self.recent.resize(self.guards.rate_window - 1)  # the decision that is asked about is the last of its window
        for window in self.spent:
            window.resize(self.guards.budget_window or 0)

    def in_window(self) -> tuple[float, ...]:
        """The sum of observed costs (M,) that the budget looks at."""
        if self.guards.budget_window is None:
            return tuple(self.total)
        return tuple(window.sum() for window in self.spent)

    def others(self) -> int:
        """How many of the decisions before the next one, in its window, did not play a_0."""
        return int(self.recent.sum())

    def to_json(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        names = ("mode", "stopped", "tripped", "alarms", "orders", "latest", "certified", "settings", "total", "began")
        counts = {"ever": asdict(self.ever), "since": asdict(self.since)}
        plain = {name: getattr(self, name) for name in names}
        spent = [window.to_text() for window in self.spent]
        return {**plain, **counts, "recent": self.recent.to_text(), "spent": spent}

    @classmethod
    def from_json(cls, threshold: tuple[float, ...], saved: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        ledger = cls(threshold)
        if saved["settings"] is not None:
            ledger._configured(saved["settings"])
        for name in ("mode", "stopped", "tripped", "alarms", "orders", "latest", "certified", "total", "began"):
            setattr(ledger, name, saved[name])
        ledger.ever, ledger.since = Counts(**saved["ever"]), Counts(**saved["since"])
        ledger.recent.take_text(saved["recent"])
        for window, text in zip(ledger.spent, saved["spent"], strict=True):
            window.take_text(text)
        return ledger

    def to_bytes(self) -> bytes:
        """`to_json` as text."""
        return json.dumps(self.to_json(), sort_keys=True).encode()
