"""Outcomes: they are checked before they are logged, and acknowledged afterwards. Each counts exactly once."""

import json
from collections import OrderedDict

from tether.errors import InputError
from tether.live.answers import AlreadyRecorded, ImpossibleCost, Recorded, UnknownDecision
from tether.live.event import Event
from tether.live.following import Follower
from tether.live.judge import Outcome, recorded
from tether.live.log.chain import Appended, Draft, canonical
from tether.live.records import DecisionMade, OutcomeLost, Tripped, decision_key, outcome_key, who_or_why, withheld_key
from tether.live.status import WaitingWarnings

REMEMBERED, LARGEST_REMEMBERED = 2000, 2**14
"""Decisions kept at hand for their outcomes, and their characters; older or larger ones are found in the log."""


class Outcomes:
    """Match outcomes with their decisions, of which the last ones are at hand."""

    def __init__(self, follower: Follower, warnings: WaitingWarnings) -> None:
        self._follower, self._warnings = follower, warnings
        self._at_hand: OrderedDict[str, DecisionMade] = OrderedDict()

    def expect(self, made: DecisionMade, size: int) -> None:
        """Keep a decision at hand for its outcome.

        Args:
            made: it was handed out.
            size: characters of its entry in the log.
        """
        if size <= LARGEST_REMEMBERED:
            with self._follower.lock:
                self._at_hand[made.decision_id] = made
                if len(self._at_hand) > REMEMBERED:
                    self._at_hand.popitem(last=False)

    def decision(self, id: str) -> DecisionMade:
        """Return the record of a logged decision.

        Raises:
            UnknownDecision: no decision of the log that was handed out has this id.
        """
        if not isinstance(id, str) or not id:
            raise UnknownDecision(
                f"{id!r} is not the id of a decision: a decision that could not be logged (logged=False) has none, and "
                "its outcome cannot be learned from."
            )
        with self._follower.lock:
            found = self._at_hand.get(id)
            if found is not None and self._follower.replica.learner.agent.order.is_open(id):
                return found
        store = self._follower.store
        entry = store.find(decision_key(id)) if len(id) < 400 else None
        if entry is None:
            raise UnknownDecision(
                f"decision {id!r:.80} is not in this log: was it made by another advisor, or so long ago that it was "
                "archived with its outcome?"
            )
        if store.places([withheld_key(id)]):
            raise UnknownDecision(f"decision {id!r:.80} did not leave: a_0 was handed out in its place, without an id.")
        return DecisionMade.read(entry.genuine())

    def checked(self, outcome: Outcome) -> tuple[tuple[Event, ...], InputError | None]:
        """Check an outcome before it is logged.

        Returns:
            The event of the outcome. For a cost that cannot be, an alarm, and the error for the caller, who gets it
            once the alarm is logged.
        """
        made = self.decision(outcome.decision_id)
        try:
            return (recorded(self._follower.replica.learner, made, outcome),), None
        except ImpossibleCost as error:
            if self._follower.store.places([outcome_key(made.decision_id)]):
                raise AlreadyRecorded(
                    f"decision {made.decision_id!r} has another outcome already, and the first stands."
                ) from error
            if self._follower.replica.ledger.tripped is not None:
                raise
            # to leave out such costs alone would bias the regression: a_0, until somebody has looked into it
            return (self._range_alarm(error),), error

    def acknowledged(self, id: str, draft: Draft, appended: Appended) -> Recorded:
        """Acknowledge an outcome that is in the log, now or since before.

        Args:
            id: of the decision.
            draft: what the log was given.
            appended: what the log says of it.

        Raises:
            AlreadyRecorded: the log holds another outcome of this decision, or it was declared lost.
        """
        entry, fresh = appended
        if fresh:
            with self._follower.lock:
                self._settled(id)
                self._warnings.look()
        elif entry.kind == OutcomeLost.kind:
            raise AlreadyRecorded(
                f"the outcome of decision {id!r} was declared lost in entry {entry.seq} ({entry.body['why']!r:.99}): "
                "later costs were counted without it, and it comes too late. Is lost_after long enough?"
            )
        elif entry.text != draft.text and canonical(entry.body) != canonical(json.loads(draft.text)):
            raise AlreadyRecorded(
                f"decision {id!r} has another outcome already (entry {entry.seq}): an outcome is counted exactly once, "
                "and the first stands."
            )
        return Recorded(id, entry.seq, not fresh)

    def lose(self, id: str, *, by: str, why: str) -> None:
        """Log that the outcome of a decision will never come."""
        self.decision(id)
        written = self._follower.write(OutcomeLost(decision_id=id, by=who_or_why(by), why=who_or_why(why)))
        if written.entry.kind != OutcomeLost.kind:
            raise AlreadyRecorded(f"decision {id!r} has an outcome already (entry {written.entry.seq}), and it stands.")
        with self._follower.lock:
            self._settled(id)

    def _settled(self, id: str) -> None:
        self._at_hand.pop(id, None)
        self._follower.after_outcome()

    def _range_alarm(self, error: BaseException) -> Tripped:
        return Tripped(test="range", message=str(error), number=self._follower.replica.ledger.alarms)

    def trip(self, error: BaseException) -> None:
        """Make sure that the alarm of an impossible cost is on.

        It is in the log, unless its number was taken by an alarm that was reset since.
        """
        follower = self._follower
        with follower.lock:
            while follower.replica.ledger.tripped is None and not follower.failure:
                follower.read()  # an entry of another process may stand before ours
                if follower.replica.ledger.tripped is None:
                    follower.write(self._range_alarm(error))
