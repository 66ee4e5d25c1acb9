"""The Advisor: decisions with certificates for a running system, and a log that can prove and repeat each of them.

The advisor is the door. Behind it, each part has a file of its own, and uses only those above it:

    following    keeps a replica up with the log, and writes to the log
    opening      compares the log with problem and configuration
    latches      stops that hold before they are in the log
    outcomes     what was seen: checked, logged, learned from exactly once
    handing_out  the last look at a logged decision: it leaves, or a_0 leaves in its place
    batches      requests that share one write of the log, and the answer to each
    orders       mode, stop, resume and reset, given by people
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tether.agents.slucb import SlucbConfig
from tether.arguments import IN_UPKEEP, explained
from tether.errors import InputError, StoreError
from tether.live.answers import LiveDecision, Recorded
from tether.live.batches import Answer, Batch, Batches, Request
from tether.live.event import Event
from tether.live.following import Follower, Notes, RunLater
from tether.live.handing_out import HandingOut
from tether.live.judge import Outcome, Question
from tether.live.latches import Latches
from tether.live.log import open_store
from tether.live.log.chain import Appended, Store
from tether.live.opening import configure, open_log
from tether.live.orders import Orders
from tether.live.outcomes import Outcomes
from tether.live.policy import Criteria, Guards, Mode
from tether.live.records import Stopped, algorithm_for
from tether.live.replica import Replica
from tether.live.states import StateCodec, as_logged, detached
from tether.live.status import Status, WaitingWarnings, Waits, status_of, waits_of
from tether.live.upkeep import Upkeep
from tether.live.warm_start import Duplicates, OldData, take_old_data
from tether.problem.limit_on import LimitOn
from tether.problem.problem import Problem
from tether.records import State


def run_now(work: Callable[[], None]) -> None:
    """Carry out now what could be done later."""
    work()


@explained(IN_UPKEEP)
class Advisor(AbstractContextManager["Advisor"]):
    """Put Tether in front of a running system: `decide`, play the action, `record` what was seen.

    Many threads may call it, and many processes may share one log. What is decided on an older state of the log is
    still certified, because a confidence set from fewer samples is one too.

    Args:
        problem: what the learner knows.
        store: None keeps the log in memory, a path is an SQLite file, `postgresql://…` a server; or any `Store`.
        config: of the algorithm; the log's own, or the default for live use, unless given.
        limit_on: "single actions", or "average over draws": actions are then drawn with probabilities (RSLUCB-QVI), and
            only the average over the draw keeps to the limit. Single actions may then exceed the limit: right for
            risks, wrong for temperatures. The log's own, or single actions, unless given.
        mode: of a *new* log; anything but "shadow" must meet `criteria` at once. An existing log's mode stands.
        guards: limits beside the theorem's; the log's own unless given.
        criteria: what `promote` asks for by default.
        watch: whether the tests of the assumptions run along and trip to a_0.
        states: how states become JSON, for states that are not numbers, strings, lists, tuples, dicts or arrays.
        upkeep: the clock, ids, snapshots, and what happens when the log fails.

    Attributes:
        store: the log.
        run_later: carries out what nobody waits for, such as a snapshot. A service puts a thread's `submit` in place
            of it.
    """

    def __init__(
        self,
        problem: Problem,
        store: str | Path | Store | None = None,
        *,
        config: SlucbConfig | None = None,
        limit_on: LimitOn | None = None,
        mode: Mode = "shadow",
        guards: Guards | None = None,
        criteria: Criteria | None = None,
        watch: bool = True,
        states: StateCodec | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        upkeep = upkeep or Upkeep()
        asked = None if limit_on is None else algorithm_for(limit_on)
        if not all(math.isfinite(tau) for tau in problem.threshold):
            raise InputError(
                f"threshold τ is {problem.threshold}: an advisor certifies that costs stay under τ, so each must be "
                "finite. Leave out a cost that has no limit."
            )
        if guards is not None:
            guards.budgets(len(problem.constraints))
        self.problem, self.states, self.criteria = problem, states or StateCodec(), criteria or Criteria()
        self._clock, self._ids = upkeep.clock, upkeep.ids
        self.run_later: RunLater = run_now
        self.store: Store = open_store(store)
        opened = open_log(self.store, problem, self.states, config=config, algorithm=asked, watch=watch)
        self._follower = follower = Follower(
            self.store,
            opened.new_learner,
            refresh=upkeep.refresh,
            snapshot_every=upkeep.snapshot_every,
            run_later=lambda work: self.run_later(work),
        )
        self._notes = notes = Notes(follower, upkeep.clock)
        self._latches = latches = Latches(follower, notes)
        self._outcomes = outcomes = Outcomes(follower, WaitingWarnings(follower, upkeep.clock))
        handing_out = HandingOut(follower, latches, notes, outcomes, upkeep.clock)
        self._batches = Batches(
            follower, opened.binding, latches, notes, outcomes, handing_out, upkeep.when_store_fails
        )
        self._orders = Orders(follower, latches, notes, self._batches)
        configure(follower, opened, guards)
        follower.after_outcome()
        if opened.first is None and mode != "shadow":
            self.promote(mode, by="Advisor(mode=...)", why="the mode that a new log was started with")

    # Decisions and outcomes

    def decide(
        self,
        state: State,
        step: int = 0,
        episode: str | int | None = None,
        *,
        key: str | None = None,
        observed_at: float | None = None,
    ) -> LiveDecision:
        """Return an action with its certificate. It is durably logged before it is handed out.

        Args:
            state: where the system is.
            step: h, from 0.
            episode: any name for the episode, for people.
            key: makes a repeated request harmless: the same key gets the same decision again.
            observed_at: when the state was observed, in seconds since 1970, for the guard against stale inputs.
        """
        return self._batches.decide(self.question(state, step, episode, key=key, observed_at=observed_at))

    def record(
        self,
        id: str,
        reward: float,
        cost: float | tuple[float, ...] | list[float] | None,
        next_state: State = None,
        applied: Any = None,
    ) -> Recorded:
        """Record what was seen after a decision, exactly once. It is durable when this returns.

        Its cost takes effect once all decisions of its step before it have their outcome, or have lost it (`lose`, or
        the guard `lost_after`).

        Args:
            id: of the decision.
            reward: what was gained.
            cost: one number per constraint. None if it was not measured: it is lost then, and counts as `Problem.lost`
                says.
            next_state: where the system went.
            applied: what was really done, if that was not the decision's action: another action of D(s), or the
                feature (d,) of it.

        Raises:
            AlreadyRecorded: the decision has another outcome. The first one stands.
            UnknownDecision: no decision of this log has this id.
        """
        return self._batches.record(Outcome(id, reward, cost, next_state, applied))

    def lose(self, id: str, *, by: str, why: str) -> None:
        """Give up the outcome of a decision: it will never come, and the costs of later ones need not wait for it.

        What it counts as is said by `Problem.lost`.
        """
        self._outcomes.lose(id, by=by, why=why)

    def question(
        self,
        state: State,
        step: int = 0,
        episode: str | int | None = None,
        *,
        key: str | None = None,
        observed_at: float | None = None,
        caller: str | None = None,
    ) -> Question:
        """Return a request for a decision, for `prepare`: the state as the log will hold it, the time, and a new id.

        The arguments are those of `decide`. A `key` belongs to its `caller`.
        """
        if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 400):
            raise InputError(f"key must be a string of 1 to 400 characters, or None, but is {key!r:.80}.")
        if episode is not None and (not isinstance(episode, str | int) or isinstance(episode, bool)):
            raise InputError(f"episode must be a string, an integer or None, but is {episode!r:.80}.")
        if observed_at is not None and not (isinstance(observed_at, int | float) and math.isfinite(observed_at)):
            raise InputError(f"observed_at must be seconds since 1970, or None, but is {observed_at!r}.")
        logged, again = as_logged(self.states, state)
        step = int(step) if isinstance(step, int) or hasattr(step, "__index__") else step
        seen = None if observed_at is None else float(observed_at)
        now = float(self._clock())
        return Question(self._ids(), key, detached(episode), step, again, logged, seen, now, state, caller)

    def prepare(self, requests: Iterable[Request]) -> Batch:
        """Do the first half: judge questions and check outcomes. Nothing is written, and each fails for itself.

        Every batch with drafts must be handed to `commit`, once, with what the log said of them.
        """
        return self._batches.prepare(requests)

    def commit(self, batch: Batch, written: Sequence[Appended] | StoreError) -> list[Answer]:
        """Do the second half: answer each request, once the drafts are in the log or could not be written."""
        return self._batches.commit(batch, written)

    def notes(self) -> tuple[Event, ...]:
        """Return what is still to be logged, and nobody waits for. It is handed over once.

        It speaks of decisions that did not leave, of orders that could not be written, and of outcomes that are late
        beyond the limit.
        """
        return self._notes.handed_over()

    # Orders of people

    def promote(self, mode: Mode, *, by: str, why: str, criteria: Criteria | None = None) -> None:
        """Enter a mode that may do more, if the criteria are met; PromotionRefused names those that are not.

        `criteria` are limits of your own, which you must be able to answer for: they are logged.
        """
        self._orders.promote(mode, criteria or self.criteria, by=by, why=why)

    def demote(self, mode: Mode, *, by: str, why: str) -> None:
        """Enter a mode that may do less. Always allowed."""
        self._orders.demote(mode, by=by, why=why)

    def stop(self, *, by: str, why: str) -> None:
        """Throw the kill switch: a_0 from here on, in every process that shares the log, until `resume`.

        It holds in this process before it is logged, and also if the log cannot be written (a StoreError): it is then
        written with the next entry that can be.
        """
        self.log_stop(self.latch(by=by, why=why))

    def latch(self, *, by: str, why: str) -> Stopped:
        """Do the first half of `stop`: in effect in this process when this returns.

        It takes no lock and waits for nothing. The order is for `log_stop`.
        """
        return self._latches.latch(by=by, why=why)

    def log_stop(self, stop: Stopped) -> None:
        """Do the second half of `stop`: announce it to the other processes, and log it."""
        self._orders.log_stop(stop)

    @property
    def stopped(self) -> Stopped | None:
        """Return the stop that is in effect: the log's, or one that was ordered and is not in this replica yet."""
        return self._latches.in_effect()

    def resume(self, *, by: str, why: str) -> None:
        """Release the kill switch."""
        self._orders.resume(by=by, why=why)

    def reset_alarm(self, *, by: str, why: str) -> None:
        """Start the tests of the assumptions anew, and release standing alarms, after an alarm was understood."""
        self._orders.reset_alarm(by=by, why=why)

    def warm_start(
        self,
        features: Any,
        costs: Any,
        *,
        rewards: Any = None,
        steps: Any = None,
        seen_states: Sequence[Any] | None = None,
        next_states: Sequence[Any] | None = None,
        duplicates: Duplicates = "refuse",
        source: str = "",
    ) -> int:
        """Learn from data from before the log, and return how many rows were taken.

        All rows are checked before any is taken. They count only while the safe action alone was decided, as in shadow
        mode; later they are refused.

        Args:
            features: φ of what was done, (n, d).
            costs: (n,) or (n, M).
            rewards: (n,). Rows without a reward teach the cost alone.
            steps: (n,); may be left out at H = 1.
            seen_states: n states.
            next_states: n states.
            duplicates: what to do with rows that are equal in every number and state, here or in the log. Where costs
                are continuous, two equal rows are one row exported twice, to "refuse" or to "drop". Where costs are 0
                or 1, "keep" takes equal rows as separate measurements, but refuses those that the log holds already.
                "new" is for the whole of a table that has grown: of equal rows it takes as many as the log does not
                hold yet.
            source: where the data are from, for people.
        """
        data = OldData(features, costs, rewards, steps, seen_states, next_states)
        return take_old_data(self._follower, data, duplicates, source)

    # The log, and where it stands

    @property
    def replica(self) -> Replica:
        """Return learner and ledger as of the entries that were applied. Read it; only the log changes it."""
        return self._follower.replica

    @property
    def failure(self) -> str:
        """Say why the log cannot be followed, so that a_0 is played; empty if it can."""
        return self._follower.failure

    def status(self) -> Status:
        """Return where this advisor stands."""
        return status_of(self._follower, self._latches)

    def waits(self) -> Waits | None:
        """Return what learning waits for; None while no outcome waits."""
        return waits_of(self._follower)

    def sync(self) -> int:
        """Apply everything that the log holds by now, and return how many entries were new.

        Where the problem's functions failed before, the log is read anew, and an InputError says so if they still do.
        """
        return self._follower.sync()

    def snapshot(self) -> int:
        """Save a snapshot now, so that a restart is short, and return the entry that it follows."""
        return self._follower.snapshot()

    def close(self) -> None:
        """Let go of the log. The advisor is of no use afterwards."""
        self._follower.close()

    def __exit__(self, *exception: object) -> None:
        self.close()
