"""Where an advisor stands, and what its learning waits for: numbers for people."""

import logging
from collections.abc import Callable

from tether.agents.agent import WARN_AT
from tether.live.following import Follower
from tether.live.latches import Latches
from tether.live.records import Status, Waits

log = logging.getLogger("tether.live")


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
