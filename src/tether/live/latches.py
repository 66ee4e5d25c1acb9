"""Latches: stops that hold in this process before they are in its replica of the log."""

import logging
import math

from tether.errors import StoreError
from tether.live.following import Follower, Notes
from tether.live.log.chain import Appended
from tether.live.records import Stopped, new_id, who_or_why

log = logging.getLogger("tether.live")

STOPS_UNREAD = Stopped(
    by="Tether", why="whether somebody ordered a stop cannot be read: the program's own log has the error"
)
"""In effect while announcements of stops cannot be read."""


class Latches:
    """Hold stops that were ordered here, or announced by other processes, until the replica has applied them.

    From there on the log decides.
    """

    def __init__(self, follower: Follower, notes: Notes) -> None:
        self._follower, self._notes = follower, notes
        self._held: dict[str, tuple[Stopped, float]] = {}  # id -> the stop and its entry, infinite while it has none
        self._announced = ""  # the announcement that was last looked into

    def latch(self, *, by: str, why: str) -> Stopped:
        """Stop this process: in effect when this returns. It takes no lock and waits for nothing."""
        stop = Stopped(by=who_or_why(by), why=who_or_why(why), id=new_id())
        self._held[stop.id] = stop, math.inf
        return stop

    def is_logged(self, stop: Stopped, written: Appended) -> None:
        """Take note of the entry of a stop. Its latch holds until the replica has applied that entry."""
        if stop.id in self._held:
            self._held[stop.id] = stop, written.entry.seq

    def in_effect(self, *, fresh: bool = False) -> Stopped | None:
        """Return the stop that is in effect: a latch's, or else the log's.

        Args:
            fresh: look for announcements as of now. Else those count that the last entry was written after.

        Returns:
            Where announcements cannot be read, a stop that says so: whether there is one cannot be told.
        """
        unread: Stopped | None = None
        try:
            announced = self._follower.store.announced_stop(fresh=fresh)
            if announced != self._announced:
                self._take_announcement(announced)
        except (StoreError, ValueError) as error:
            log.error("announcements of stops cannot be read, a_0 is played: %s", error)
            unread = STOPS_UNREAD
        for id, (stop, seq) in list(self._held.items()):
            if self._follower.replica.head.seq < seq:
                return stop
            self._held.pop(id, None)
        return self._follower.replica.ledger.stopped or unread

    def _take_announcement(self, announced: str) -> None:
        """Hold a stop that was announced. If it is not in the log, this process logs it."""
        stop = Stopped.model_validate_json(announced)
        with self._follower.lock:
            if stop.id not in self._held:
                entry = self._follower.store.find(f"stop:{stop.id}")
                self._held[stop.id] = stop, math.inf if entry is None else entry.seq
                if entry is None:
                    self._notes.add(stop)
            self._announced = announced
