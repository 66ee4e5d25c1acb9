"""Where an advisor stands, and what its learning waits for: numbers for people."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tether.agents.agent import WARN_AT
from tether.live.following import Follower
from tether.live.latches import Latches
from tether.live.uplift import UpliftStatus

log = logging.getLogger("tether.live")


@dataclass(frozen=True, slots=True)
class Status:
    """Where an advisor stands, as of entry `seq` of its log.

    Attributes:
        mode: shadow, guarded or live.
        stopped: by whom and why; empty if no stop is in effect.
        alarm: the alarm that is on; empty if none is.
        seq: the last entry that was applied.
        head: its hash.
        data_version: how many outcomes were learned from.
        model_hash: of step 0.
        decisions: how many there are.
        baseline: how many of them played a_0.
        proposed: how many of them wanted something else.
        refusals: how many the gate refused.
        over_by_itself: decisions that played a drawn action whose own bound is over τ.
        outcomes: how many were recorded.
        costs: how many of them have a cost.
        spent: costs (M,) in the budget's window.
        over: how many costs (M,) were measured above τ.
        certified: the share of D(s) that was certified when it was last measured.
        open: decisions without an outcome.
        waiting: outcomes whose costs have no effect yet, because earlier decisions are open.
        waiting_since: when the oldest decision that others wait for was made (seconds since 1970, 0 if none is open).
        waiting_for: the first open decision of each step.
        lost: costs that never came.
        unsynced: entries of the log that wait for others.
        uplift: what the proposals gain over a_0, since the last change of mode.
        store_error: why the log could not be used the last time; empty if it could.
        failure: why the log cannot be followed: the problem's functions failed. Empty if it can.
    """

    mode: str
    stopped: str
    alarm: str
    seq: int
    head: str
    data_version: int
    model_hash: str
    decisions: int
    baseline: int
    proposed: int
    refusals: int
    over_by_itself: int
    outcomes: int
    costs: int
    spent: tuple[float, ...]
    over: tuple[int, ...]
    certified: float
    open: int
    waiting: int
    waiting_since: float
    waiting_for: str
    lost: int
    unsynced: int
    uplift: UpliftStatus
    store_error: str
    failure: str


class Waits(NamedTuple):
    """Outcomes that have no effect yet, the decisions that they wait for, and when the oldest of these was made."""

    outcomes: int
    ids: tuple[str, ...]
    since: float

    def said(self, now: float, *, named: bool = True) -> str:
        """Say it in plain words, for people; without ids where anybody may read it."""
        which = f"decision{'s' * (len(self.ids) > 1)} {', '.join(self.ids)}" if named else "one decision"
        made = f", made {age(now - self.since)} ago" if self.since > 0.0 else ""
        wait = "1 outcome waits" if self.outcomes == 1 else f"{self.outcomes} outcomes wait"
        return f"Learning waits for the outcome of {which}{made}. {wait} behind it. Report it, or declare it lost."


def age(seconds: float) -> str:
    """Return a time span in its largest unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def status_of(follower: Follower, latches: Latches) -> Status:
    """Return where an advisor stands."""
    with follower.lock:
        replica, ledger = follower.replica, follower.replica.ledger
        stopped, ever, order = latches.in_effect(), ledger.ever, replica.learner.agent.order
        return Status(
            mode=ledger.mode,
            stopped="" if stopped is None else f"by {stopped.by}: {stopped.why}",
            alarm=replica.alarms,
            seq=replica.head.seq,
            head=replica.head.hash,
            data_version=replica.learner.version,
            model_hash=replica.learner.model_hash(0),
            decisions=ever.decisions,
            baseline=ever.baseline,
            proposed=ever.proposed,
            refusals=ever.refusals,
            over_by_itself=ever.over_by_itself,
            outcomes=ever.outcomes,
            costs=ever.costs,
            spent=ledger.spending.in_window(),
            over=tuple(ledger.spending.over),
            certified=ledger.certified,
            open=len(order),
            waiting=order.waiting,
            waiting_since=min((each.since for each in order.blocked if each.since is not None), default=0.0),
            waiting_for=", ".join(str(each.id) for each in order.blocked),
            lost=int(replica.learner.agent.lost.sum()),
            unsynced=follower.unsynced,
            uplift=ledger.uplift.status(),
            store_error=follower.store_error,
            failure=follower.failure,
        )


def waits_of(follower: Follower) -> Waits | None:
    """Return what learning waits for; None while no outcome waits."""
    with follower.lock:
        blocked = [each for each in follower.replica.learner.agent.order.blocked if each.waiting]
    if not blocked:
        return None
    since = min((each.since for each in blocked if each.since is not None), default=0.0)
    return Waits(sum(each.waiting for each in blocked), tuple(str(each.id) for each in blocked), since)


class WaitingWarnings:
    """Tell the program's own log when 100 outcomes wait for a decision, and again at ten times as many."""

    def __init__(self, follower: Follower, clock: Callable[[], float]) -> None:
        self._follower, self._clock = follower, clock
        self._next = WARN_AT[0]  # outcomes that wait, and are worth a warning

    def look(self) -> None:
        """Warn if as many wait by now."""
        waits = waits_of(self._follower)
        if waits is None:
            self._next = WARN_AT[0]
        elif waits.outcomes >= self._next:
            self._next *= 10
            log.warning("%s", waits.said(float(self._clock())))
