"""Orders of people: mode, stop, resume, reset. Each is an entry of the log, numbered in the order of the log."""

import logging
from collections.abc import Callable

from tether.errors import InputError, StoreError, TetherError
from tether.live.batches import Batches
from tether.live.following import Follower, Notes
from tether.live.latches import Latches
from tether.live.log.chain import Appended
from tether.live.policy import Criteria, Mode, PromotionRefused, rank
from tether.live.promotion import unmet
from tether.live.records import AlarmReset, ModeChanged, Order, Resumed, Stopped, who_or_why

log = logging.getLogger("tether.live")


class Orders:
    """Log the orders of people. One that was checked is written only if no other came in between."""

    def __init__(self, follower: Follower, latches: Latches, notes: Notes, batches: Batches) -> None:
        self._follower, self._latches, self._notes, self._batches = follower, latches, notes, batches

    def promote(self, mode: Mode, criteria: Criteria, *, by: str, why: str) -> None:
        """Enter a mode that may do more, if the log meets the criteria."""

        def allowed() -> Order:
            replica = self._follower.replica
            ledger = replica.ledger
            if rank(mode) <= rank(ledger.mode):
                raise InputError(f"the mode is {ledger.mode!r} already: {mode!r} is no promotion. demote() goes down.")
            missing = unmet(ledger, criteria, replica.learner.problem.noise, replica.alarms, mode)
            if missing:
                raise PromotionRefused(mode, missing)
            return ModeChanged(mode=mode, by=who_or_why(by), why=who_or_why(why), criteria=criteria.to_json())

        self._give(allowed, allows_more=True)

    def demote(self, mode: Mode, *, by: str, why: str) -> None:
        """Enter a mode that may do less. Always allowed."""

        def allowed() -> Order:
            current = self._follower.replica.ledger.mode
            if rank(mode) >= rank(current):
                raise InputError(f"the mode is {current!r}: {mode!r} is no demotion. Use promote().")
            return ModeChanged(mode=mode, by=who_or_why(by), why=who_or_why(why))

        self._give(allowed)

    def log_stop(self, stop: Stopped) -> None:
        """Announce a stop to the other processes, which need not wait for the log; and log it."""
        try:
            self._follower.store.announce_stop(stop.model_dump_json())
        except StoreError as error:
            log.error("other processes learn of a stop from the log only: %s", error)
        try:
            try:
                self._latches.is_logged(stop, self._give(lambda: stop))
            except TetherError as error:  # whatever is wrong with what was read here, the others are to stop
                self._latches.is_logged(stop, *self._follower.store.append([stop.draft()]))
                if isinstance(error, StoreError):  # else the problem's functions fail, which is no fault of the stop
                    raise
        except BaseException:
            self._notes.add(stop)
            raise

    def resume(self, *, by: str, why: str) -> None:
        """Release the kill switch."""
        event = Resumed(by=who_or_why(by), why=who_or_why(why))
        self._batches.log_notes()  # a stop that could not be logged comes first
        self._give(lambda: event, allows_more=True)

    def reset_alarm(self, *, by: str, why: str) -> None:
        """Start the tests of the assumptions anew, and release standing alarms."""
        event = AlarmReset(by=who_or_why(by), why=who_or_why(why))
        self._give(lambda: event, allows_more=True)

    def _give(self, allowed: Callable[[], Order], *, allows_more: bool = False) -> Appended:
        """Write the order that is `allowed`, given every order before it. If another comes in between, look again.

        Args:
            allowed: makes the order, or raises why it is not allowed.
            allows_more: the order is refused if another comes in between: whoever gave it has not seen the other.
        """
        while True:
            with self._follower.lock:
                self._follower.sync()
                number, event = self._follower.replica.ledger.orders, allowed()
            written = self._follower.write(event, f"order:{number}")
            first = written.entry
            if written.fresh or not {*event.keys()}.isdisjoint(first.unique):  # now, or by an earlier attempt
                return written
            if allows_more:
                raise InputError(
                    f"another order came first (entry {first.seq}, {first.kind!r} by {first.body.get('by')!r}: "
                    f"{first.body.get('why')!r:.200}): look at it, then give this one again."
                )
