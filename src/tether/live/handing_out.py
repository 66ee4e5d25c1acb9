"""Handing out: the last look at a logged decision. It leaves, or a_0 leaves in its place."""

from collections.abc import Callable
from typing import cast

from tether.errors import AlteredLog, InputError, StoreError
from tether.live.answers import LiveDecision
from tether.live.following import Follower, Notes
from tether.live.judge import Question, halt, safe_decision
from tether.live.latches import Latches
from tether.live.log.chain import Entry
from tether.live.outcomes import Outcomes
from tether.live.policy import Mode, rank
from tether.live.records import DecisionMade, Withheld, withheld_key


class HandingOut:
    """Hand out logged decisions, unless something that was logged meanwhile forbids it."""

    def __init__(
        self, follower: Follower, latches: Latches, notes: Notes, outcomes: Outcomes, clock: Callable[[], float]
    ) -> None:
        self._follower, self._latches, self._notes = follower, latches, notes
        self._outcomes, self._clock = outcomes, clock

    def fresh(self, made: DecisionMade, question: Question, entry: Entry) -> LiveDecision:
        """Hand out a decision that was just logged."""
        return self._handed_out(made, question, entry, is_new=True)

    def repeated(self, question: Question, entry: Entry) -> LiveDecision:
        """Hand out again the decision that a key got before.

        Raises:
            InputError: the key was used for another question.
        """
        made = DecisionMade.read(entry.genuine())
        if (made.state, made.step, made.episode) != (question.logged_state, question.step, question.episode):
            raise InputError(
                f"key {made.key!r} was used for another request (state {made.state!r:.80}, step {made.step}, "
                f"episode {made.episode!r}): use a new key for a new request."
            )
        return self._handed_out(made, question, entry, is_new=False)

    def safe(self, question: Question, reason: str, detail: str) -> LiveDecision:
        """Return a_0 without an entry in the log, and so without an id: no outcome can be recorded for it."""
        with self._follower.lock:
            decision = safe_decision(self._follower.replica, question, reason, detail)
            return LiveDecision.of(decision, question.state)

    def _handed_out(self, made: DecisionMade, question: Question, entry: Entry, *, is_new: bool) -> LiveDecision:
        """Return the decision, if nothing that was logged before it leaves forbids it; else a_0, without an id.

        The kill switch, an alarm, or shadow mode may have come while it was under way, or since it was first made.
        """
        is_free = made.is_baseline and made.canary is None  # the canary's two arms leave, or do not, alike
        reason, detail = ("", "") if is_free else self._forbidden(made, question, entry.seq, is_new=is_new)
        if reason:
            return self.safe(question, reason, detail)
        self._outcomes.expect(made, len(entry.text))
        return LiveDecision.of(made, question.state, entry)

    def _forbidden(self, made: DecisionMade, question: Question, seq: int, *, is_new: bool) -> tuple[str, str]:
        """Say why a logged decision may not leave, by a reason and a detail, as of now; empty if it may."""
        follower = self._follower
        try:
            earlier = None if is_new else follower.store.find(withheld_key(made.decision_id))
        except AlteredLog:
            raise
        except StoreError as error:  # whether it ever left cannot be told now
            return "not-logged", str(error)
        if earlier is not None:  # it did not leave then, and the log says so: it does not leave now
            note = Withheld.read(earlier.genuine())
            return note.reason, note.detail
        with follower.lock:
            if follower.replica.head.seq < seq:  # of others, whose entries stand between
                follower.read_up_to(seq)
            reason, detail = halt(follower.replica, self._latches.in_effect(fresh=not is_new))
            if not reason:
                reason, detail = self._guarded(made, question, seq, is_new=is_new)
            if not reason and (detail := follower.replica.learner.outdated(made, float(self._clock()))):
                reason = "outdated"
            if not reason and follower.failure:
                reason, detail = "failed", follower.failure
            if not reason and follower.replica.head.seq < seq:
                missing = f"what stands in the log before it cannot be read: {follower.store_error}"
                reason, detail = "not-logged", missing
            if reason and is_new:
                self._notes.add(
                    Withheld(decision_id=made.decision_id, reason=reason, detail=detail, is_baseline=made.is_baseline)
                )
        return reason, detail

    def _guarded(self, made: DecisionMade, question: Question, seq: int, *, is_new: bool) -> tuple[str, str]:
        """Say what the mode and the guards, as they are now, hold against a decision that was made before."""
        ledger = self._follower.replica.ledger
        if ledger.mode != made.mode and rank(ledger.mode) < rank(cast(Mode, made.mode)):
            return ledger.mode, f"{ledger.mode} mode was entered before this decision could leave"
        if late := ledger.guards.stale(question.observed_at, float(self._clock()), ledger.latest):
            return "stale-input", late
        if is_new or made.decision_id in ledger.surplus:  # it was counted at its place in the log
            return ledger.surplus.get(made.decision_id, ("", ""))
        counted = self._follower.replica.head.seq - seq < ledger.guards.rate_window  # itself, for sure
        rate = ledger.guards.over_rate(ledger.mode, ledger.others() - counted)
        return ("rate", rate) if rate else ("", "")
