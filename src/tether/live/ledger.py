"""The ledger: what the log says about mode, stop, guards and counts. A fold over the log, like the learner."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tether.live.event import Event
from tether.live.outcome_queues import OutcomeQueues, OutcomeSummary
from tether.live.policy import Guards, Mode
from tether.live.records import (
    AlarmReset,
    Configured,
    DecisionMade,
    GateRefused,
    ModeChanged,
    OutcomeLost,
    OutcomeRecorded,
    Resumed,
    Stopped,
    Tripped,
    Withheld,
)
from tether.live.spending import Spending
from tether.live.uplift import Uplift, cost_spans
from tether.live.windows import Window

PLAIN = ("mode", "alarms", "orders", "latest", "certified", "began")
"""Attributes that a snapshot holds as they are."""

HELD = ("settings", "stopped", "tripped")
"""Attributes that are events of the log."""


@dataclass
class Counts:
    """Count decisions and outcomes since some point of the log.

    Attributes:
        over_by_itself: played actions that were drawn, and whose own bound is over τ.
        compared: outcomes whose cost was compared with a bound.
        drawn: those of them whose bound is on a mixture's mean.
        excess: sums of cost − bound (M,) over the compared outcomes.
        square: sums of (cost − bound)² (M,) over the drawn ones.
    """

    decisions: int = 0
    baseline: int = 0
    proposed: int = 0
    refusals: int = 0
    over_by_itself: int = 0
    outcomes: int = 0
    costs: int = 0
    compared: int = 0
    drawn: int = 0
    excess: list[float] = field(default_factory=list)
    square: list[float] = field(default_factory=list)

    def add_decision(self, made: DecisionMade) -> None:
        """Count one decision."""
        self.decisions += 1
        self.baseline += made.is_baseline
        self.proposed += made.proposal is not None or not made.is_baseline
        self.over_by_itself += made.certificate.is_over_by_itself

    def add_outcome(self, outcome: OutcomeRecorded | OutcomeSummary) -> None:
        """Count one outcome."""
        self.outcomes += 1
        self.costs += outcome.cost is not None
        if outcome.cost is not None and outcome.bound is not None:
            self.compared += 1
            self.drawn += outcome.drawn
            for j, (z, limit) in enumerate(zip(outcome.cost, outcome.bound, strict=True)):
                self.excess[j] += z - limit
                self.square[j] += (z - limit) ** 2 if outcome.drawn else 0.0


class Ledger:
    """Hold everything but the learner that a decision depends on, after the entries so far.

    Attributes:
        mode: shadow, guarded or live.
        stopped, tripped: the events that stopped this log, or tripped an alarm; None without one.
        alarms: number of the next alarm.
        orders: number of orders given, by which an order shows that it has seen all before it.
        latest: the newest time of a decision.
        certified: the share of D(s) that was certified when it was last measured.
        settings, guards: as the log was configured last.
        recent: 1 for each of the last decisions that did not play a_0, else 0.
        spending: costs, and bounds of open decisions.
        surplus: by id, the guard and reason by which a decision is one too many at its place in the log. It is
            dropped once the log says that the decision did not leave: each process counts what it has read.
        ever, since: counts of the whole log, and since the last change of mode or reset of alarms.
        began: the entry that set `since` to zero. Decisions that rest on an older one belong to the time before.
        uplift: the comparison of the canary's two arms since then.
        queues: outcomes that came early: `since` and `uplift` count only outcomes that took effect.
    """

    def __init__(self, threshold: tuple[float, ...]) -> None:
        self.threshold = threshold
        self.mode: Mode = "shadow"
        self.stopped: Stopped | None = None
        self.tripped: Tripped | None = None
        self.alarms = 0
        self.orders = 0
        self.latest = 0.0
        self.certified = 0.0
        self.settings: Configured | None = None
        self.guards = Guards()
        self.recent = Window(self.guards.rate_window - 1, "u1")
        self.spending = Spending(threshold)
        self.surplus: dict[str, tuple[str, str]] = {}
        self.ever, self.since, self.began = self._zero(), self._zero(), 0
        self.uplift = Uplift()
        self.queues = OutcomeQueues()
        self._folds: dict[type, Callable[[int, Any], None]] = {
            DecisionMade: self._decided,
            OutcomeRecorded: self._recorded,
            OutcomeLost: self._lost,
            Withheld: self._withheld,
            GateRefused: self._refused,
            ModeChanged: self._mode_changed,
            Stopped: self._stopped,
            Resumed: self._resumed,
            Tripped: self._tripped,
            AlarmReset: self._alarm_reset,
            Configured: self._configured,
        }

    def _zero(self) -> Counts:
        return Counts(excess=[0.0] * len(self.threshold), square=[0.0] * len(self.threshold))

    def apply(self, seq: int, event: Event | None) -> None:
        """Take the next entry of the log into account: one method for each kind of event."""
        fold = self._folds.get(type(event))
        if fold is not None:
            fold(seq, event)

    def _decided(self, _: int, made: DecisionMade) -> None:
        self.ever.add_decision(made)
        if made.certificate.seq >= self.began:
            self.since.add_decision(made)
            if made.canary is not None:
                if self.uplift.ended:
                    self._compare_anew()
                self.uplift.expect(made.decision_id, made.canary, played=not made.is_baseline)
        if not made.is_baseline or made.canary is not None:  # the canary's two arms leave, or do not, alike
            bounds = tuple(limit.bound for limit in (made.proposal or made.certificate).limits)
            too_many = self.too_many(bounds)
            if too_many[0]:
                self.surplus[made.decision_id] = too_many
        self.recent.append(int(not made.is_baseline))
        self.spending.expect(made.decision_id, [limit.bound for limit in made.certificate.limits])
        pooled = self.settings is not None and self.settings.config.get("pooled")
        self.queues.expect(0 if pooled else made.step, made.decision_id)
        if made.certified is not None:
            self.certified = made.certified
        if made.decided_at is not None:
            self.latest = max(self.latest, made.decided_at)

    def _recorded(self, _: int, outcome: OutcomeRecorded) -> None:
        self.ever.add_outcome(outcome)
        self._settle(outcome.decision_id)
        self.spending.spend(outcome.cost)
        o = outcome
        summary = OutcomeSummary(o.decision_id, o.reward, o.cost, o.bound, o.drawn, o.rests_on)
        self._take_effect(self.queues.come(summary))

    def _lost(self, _: int, lost: OutcomeLost) -> None:
        if self._settle(lost.decision_id):
            self.spending.spend(None)
        self._take_effect(self.queues.come(OutcomeSummary(lost.decision_id, is_lost=True)))

    def _settle(self, id: str) -> bool:
        """Close a decision, and return whether it was open."""
        self.surplus.pop(id, None)
        return self.spending.settle(id)

    def _take_effect(self, outcomes: list[OutcomeSummary]) -> None:
        """Count outcomes whose turn has come: people see as evidence what the learner has learned from."""
        for outcome in outcomes:
            if not outcome.is_lost and outcome.rests_on >= self.began:
                self.since.add_outcome(outcome)
            self.uplift.settle(outcome.id, outcome.reward, outcome.cost)

    def _withheld(self, _: int, note: Withheld) -> None:
        self._settle(note.decision_id)  # what acted in its place is in no log
        self.ever.baseline += not note.is_baseline  # what acted was a_0
        self.since.baseline += not note.is_baseline
        self.uplift.withdraw(note.decision_id)
        self._take_effect(self.queues.withdraw(note.decision_id))

    def _begin(self, seq: int) -> None:
        """Count anew from here on."""
        self.since, self.began = self._zero(), seq
        self.uplift.end()

    def _compare_anew(self) -> None:
        spans = () if self.settings is None else cost_spans(self.settings.problem)
        self.uplift = self.uplift.anew(self.guards.reward_range, spans)

    def _refused(self, _: int, refused: GateRefused) -> None:
        self.ever.refusals += 1
        self.since.refusals += 1

    def _mode_changed(self, seq: int, order: ModeChanged) -> None:
        self.orders += 1
        self.mode = order.mode
        self._begin(seq)

    def _stopped(self, _: int, order: Stopped) -> None:
        self.orders += 1
        self.stopped = order

    def _resumed(self, _: int, order: Resumed) -> None:
        self.orders += 1
        self.stopped, self.latest = None, 0.0  # a person who resumes has looked at the clock, too

    def _tripped(self, _: int, alarm: Tripped) -> None:
        self.tripped, self.alarms = alarm, max(self.alarms, alarm.number + 1)

    def _alarm_reset(self, seq: int, order: AlarmReset) -> None:
        self.orders += 1
        self.tripped = None
        self._begin(seq)

    def _configured(self, _: int, settings: Configured) -> None:
        before, self.settings, self.guards = self.settings, settings, Guards.from_json(settings.guards)
        if before is None or before.guards.get("reward_range") != settings.guards.get("reward_range"):
            self._compare_anew()
        self.recent.resize(self.guards.rate_window - 1)  # the decision that is asked about is the last of its window
        self.spending.look_back(self.guards.budget_window)

    def others(self) -> int:
        """Return how many decisions in the window of the next one did not play a_0."""
        return int(self.recent.sum())

    def too_many(self, bounds: tuple[float, ...], under_way: int = 0) -> tuple[str, str]:
        """Say which guard forbids one more decision other than a_0, and why.

        Args:
            bounds: of that decision (M,).
            under_way: decisions that are not in the log yet.
        """
        if rate := self.guards.over_rate(self.mode, self.others() + under_way):
            return "rate", rate
        if self.guards.budget is None:
            return "", ""
        why = self.guards.over_budget(self.spending.claimed(under_way), bounds)
        return ("budget", why) if why else ("", "")

    def to_json(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        plain = {name: getattr(self, name) for name in PLAIN}
        spending = {"total": self.spending.total, "over": self.spending.over, "open": self.spending.open}
        events = {name: None if (event := getattr(self, name)) is None else event.model_dump() for name in HELD}
        windows: dict[str, Any] = {
            "recent": self.recent.to_text(),
            "spent": [window.to_text() for window in self.spending.last],
        }
        windows["turns"] = self.queues.to_json()
        counts = {"ever": asdict(self.ever), "since": asdict(self.since), "uplift": self.uplift.to_json()}
        surplus = {"surplus": self.surplus} if self.surplus else {}  # hardly ever, and older snapshots have none
        return {**plain, **spending, **events, **windows, **counts, **surplus}

    @classmethod
    def from_json(cls, threshold: tuple[float, ...], saved: dict[str, Any]) -> Self:
        """Make the ledger that `to_json` described."""
        ledger = cls(threshold)
        if saved["settings"] is not None:
            ledger._configured(0, Configured(**saved["settings"]))
        for name in PLAIN:
            setattr(ledger, name, saved[name])
        ledger.stopped = None if saved["stopped"] is None else Stopped(**saved["stopped"])
        ledger.tripped = None if saved["tripped"] is None else Tripped(**saved["tripped"])
        ledger.ever, ledger.since = Counts(**saved["ever"]), Counts(**saved["since"])
        ledger.uplift = Uplift.from_json(saved["uplift"])
        ledger.recent.take_text(saved["recent"])
        ledger.spending.total, ledger.spending.over = saved["total"], saved["over"]
        for window, text in zip(ledger.spending.last, saved["spent"], strict=True):
            window.take_text(text)
        for id, bounds in saved["open"].items():
            ledger.spending.expect(id, bounds)
        ledger.queues.take_json(saved["turns"])
        ledger.surplus = {id: (guard, why) for id, (guard, why) in saved.get("surplus", {}).items()}
        return ledger
