"""What people tell an advisor: mode, kill switch, alarm, data from before. Each order is an entry of the log."""

from collections.abc import Callable
from typing import Any

from tether.errors import AlteredLog, InputError, StoreError, TetherError
from tether.live.decisions import LiveDecision
from tether.live.events import AlarmReset, Event, ModeChanged, Resumed, Stopped, Tripped, Withheld, withheld_key
from tether.live.follower import Follower
from tether.live.judge import halt, looked_up
from tether.live.modes import Criteria, Mode, PromotionRefused, rank, unmet
from tether.live.pending import Pending, fresh_entries
from tether.live.store import Appended, Draft
from tether.live.warm_start import append_in_turn, warm_start_drafts
from tether.records import State


class Control(Follower):
    """The part of an advisor that takes orders, and lets nothing leave that they forbid.

    One that was checked takes effect only if no other came in between.
    """

    def promote(self, mode: Mode, *, by: str, why: str, criteria: Criteria | None = None) -> None:
        """Enter a mode that may do more, if the criteria are met; PromotionRefused names those that are not.

        `criteria` are limits of your own, which you must be able to answer for: they are logged.
        """
        asked = criteria or self.criteria

        def allowed() -> Event:
            ledger = self._replica.ledger
            if rank(mode) <= rank(ledger.mode):
                raise InputError(f"the mode is {ledger.mode!r} already: {mode!r} is no promotion. demote() goes down.")
            missing = unmet(asked, ledger, self.problem.noise, self._replica.learner.alarm or ledger.tripped)
            if missing:
                raise PromotionRefused(mode, missing)
            return ModeChanged(mode=mode, by=_name(by), why=_name(why), criteria=asked.to_json())

        self._order(allowed, allows_more=True)

    def demote(self, mode: Mode, *, by: str, why: str) -> None:
        """Enter a mode that may do less. Always allowed."""

        def allowed() -> Event:
            current = self._replica.ledger.mode
            if rank(mode) >= rank(current):
                raise InputError(f"the mode is {current!r}: {mode!r} is no demotion. Use promote().")
            return ModeChanged(mode=mode, by=_name(by), why=_name(why))

        self._order(allowed)

    def stop(self, *, by: str, why: str) -> None:
        """The kill switch: a_0 from here on, in every process that shares the log, until `resume`."""
        event = Stopped(by=_name(by), why=_name(why))
        try:
            self._order(lambda: event)
        except TetherError:  # whatever is wrong with what was read here, the others are to stop
            self._store.append([event.draft()])
            raise

    def resume(self, *, by: str, why: str) -> None:
        """Release the kill switch."""
        event = Resumed(by=_name(by), why=_name(why))
        self._order(lambda: event, allows_more=True)

    def reset_alarm(self, *, by: str, why: str) -> None:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        event = AlarmReset(by=_name(by), why=_name(why))
        self._order(lambda: event, allows_more=True)

    def _order(self, allowed: Callable[[], Event], *, allows_more: bool = False) -> None:
        """Write the order that is `allowed`, given every order before it. If another comes in between, look again; but
        an order that `allows_more` is refused then: whoever gave it has not seen the other."""
        while True:
            with self._lock:
                self.sync()
                number, event = self._replica.ledger.orders, allowed()
            written = self._write(event, f"order:{number}")
            if written.fresh:
                return
            if allows_more:
                first = written.entry
                raise InputError(
                    f"another order came first (entry {first.seq}, {first.kind!r} by {first.body.get('by')!r}: "
                    f"{first.body.get('why')!r:.200}): look at it, then give this one again."
                )

    def _handed_out(self, made: LiveDecision, *, is_new: bool = False) -> LiveDecision:
        """The decision, if nothing that was logged before it leaves forbids it: the kill switch, an alarm, or shadow
        mode may have come while it was under way, or since it was first made. Else a_0, without an id."""
        if made.is_baseline:
            return made
        try:
            earlier = None if is_new else self._store.find(withheld_key(made.id))
        except AlteredLog:
            raise
        except StoreError as error:  # whether it ever left cannot be told now
            return self._withheld(made.state, made.step, made.episode, "not-logged", str(error))
        if earlier is not None:  # it did not leave then, and the log says so: it does not leave now
            told = earlier.genuine().body
            return self._withheld(made.state, made.step, made.episode, told["reason"], told["detail"])
        with self._lock:
            if self._replica.head.seq < made.seq:  # of others, whose entries stand between
                self._read_if_possible()
            reason, detail = halt(self._replica.learner, self._replica.ledger)
            if not reason and self._replica.ledger.mode == "shadow":
                reason, detail = "shadow", "shadow mode was entered before this decision could leave"
            if not reason and self._replica.head.seq < made.seq:
                reason, detail = "not-logged", f"what stands in the log before it cannot be read: {self._store_error}"
            if not reason:
                return made
            if is_new:
                self._notes.append(Withheld(decision_id=made.id, reason=reason, detail=detail).draft())
            return self._withheld(made.state, made.step, made.episode, reason, detail)

    def _withheld(self, state: State, step: int, episode: str | int | None, reason: str, detail: str) -> LiveDecision:
        """a_0 without an entry in the log, and so without an id: no outcome can be recorded for it."""
        known = looked_up(self.problem, step, state)
        certificate, action = self._baseline_certificate(known, step, reason, detail), known.actions.action(-1, 0.0)
        return LiveDecision.unlogged(action, certificate, self._replica.ledger.mode, state, step, episode)

    def _range_alarm(self, error: InputError) -> Draft:
        return Tripped(test="range", message=str(error), number=self._replica.ledger.alarms).draft()

    def _tripped(self, error: InputError, pending: Pending, appended: list[Appended]) -> None:
        """An impossible cost is in the log as an alarm, unless its number was taken by one that was reset since."""
        with self._lock:
            self._in_flight -= 1
            self._take(fresh_entries(pending.drafts, appended))
            while self._replica.ledger.tripped is None:
                self._read()  # an entry of another process may stand before ours
                if self._replica.ledger.tripped is not None:
                    return
                again = (self._range_alarm(error),)
                self._take(fresh_entries(again, self._store.append(again)))

    def notes(self) -> tuple[Draft, ...]:
        """What is to be logged of decisions that did not leave, handed over once. Nobody needs to wait for it."""
        with self._lock:
            notes, self._notes = tuple(self._notes), []
        return notes

    def finish_notes(self, pending: Pending, appended: list[Appended]) -> None:
        """They are in the log."""
        with self._lock:
            self._take(fresh_entries(pending.drafts, appended))

    def warm_start(self, features: Any, costs: Any, **more: Any) -> int:
        """Learn from data from before the log: features (n, d), costs (n,) or (n, M). Returns how many rows were taken.

        More, as in `tether.live.warm_start.warm_start_drafts`: rewards, steps, seen_states, next_states (each n long),
        duplicates, source. All rows are checked before any is taken, and a row that is in the log is not taken again.
        """
        drafts = warm_start_drafts(self._store, self.problem, self.states, features, costs, **more)
        appended = append_in_turn(self._store, drafts)
        self.sync()
        taken = sum(len(each.entry.body["rows"]) for each in appended if each.fresh)
        if not all(each.fresh for each in appended):
            raise InputError(
                f"some of these rows were written by another process at the same time (entry {appended[-1].entry.seq}):"
                f" {taken} were taken now. Call again with duplicates='drop', or 'new' where you said 'keep'."
            )
        return taken


def _name(text: str) -> str:
    """Who or why: never empty, since the log is read by people."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"`by` and `why` must say something, but one is {text!r}: the log is read by people.")
    return text
