"""Costs take effect in the order of decisions, stage by stage: docs/theory.md section 18.

A bound that holds at all times at once holds for every prefix of the decisions, whoever chose the prefix and why. It
does not hold for every subset: if high costs come later than low ones, or never, what has come is biased. So what comes
early waits until every decision before it has its outcome, or is said to have lost it.
"""

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from tether.errors import InputError
from tether.records import Array, StateKey


@dataclass(frozen=True, slots=True, eq=False)
class CostOutcome:
    """What one decision says of costs: φ (d,) of what was applied, and z (M,), None if it was lost.

    `reward`, `key` (the state's, None where none are run) and `is_baseline` (a_0 was played) are for the tests of the
    assumptions. `at` is the time of its decision where costs drift (its number, or a stamp), None where it has none.
    `fact` is (f (d,), τ_s (M,)) of its state, where that is to be remembered in its turn. `declared` is what a_0 was
    declared to cost (M,), where a_0 was played and that was declared.
    """

    step: int
    feature: Array
    cost: Array | None
    reward: float = 0.0
    key: StateKey | None = None
    is_baseline: bool = False
    at: float | None = None
    fact: tuple[Array, Array] | None = None
    declared: Array | None = None


@dataclass(slots=True)
class Expected:
    """A decision whose turn has not come: step, φ (d,), when it was made (if known), whether it is a_0, its time where
    costs drift (its number, or a stamp; -inf if unknown), its outcome, if it is here, and what a_0 was declared to cost
    (M,)."""

    step: int
    feature: Array
    since: float | None
    is_baseline: bool
    at: float = 0.0
    outcome: CostOutcome | None = None
    declared: Array | None = None


class Blocked(NamedTuple):
    """The first open decision of a stage: its id, when it was made, and how many outcomes wait behind it."""

    id: Hashable
    since: float | None
    waiting: int


class OutcomeOrder:
    """Decisions in their order, one queue per stage, and the outcomes that have come before their turn."""

    def __init__(self, stages: int) -> None:
        self._queues: list[OrderedDict[Any, Expected]] = [OrderedDict() for _ in range(stages)]
        self._waiting = [0] * stages  # outcomes that have come and wait for their turn

    def _stage_of(self, step: int) -> int:
        return step if len(self._queues) > 1 else 0

    def expect(
        self,
        id: Hashable,
        step: int,
        feature: Array,
        since: float | None = None,
        is_baseline: bool = False,
        at: float = 0.0,
        declared: Array | None = None,
    ) -> None:
        """A decision was made, after all those of its stage that were made before."""
        self._queues[self._stage_of(step)][id] = Expected(step, feature, since, is_baseline, at, declared=declared)

    @property
    def open(self) -> dict[Any, int]:
        """Id and step of every decision whose outcome has not come."""
        return {id: each.step for id, each in self.each() if each.outcome is None}

    def __len__(self) -> int:
        """How many those are."""
        return sum(map(len, self._queues)) - self.waiting

    @property
    def waiting(self) -> int:
        """How many outcomes have come and wait for their turn."""
        return sum(self._waiting)

    @property
    def blocked(self) -> list[Blocked]:
        """For each stage with an open decision: the first, which all later ones wait for. Its outcome has not come."""
        found = []
        for queue, waiting in zip(self._queues, self._waiting, strict=True):
            for id, first in islice(queue.items(), 1):
                found.append(Blocked(id, first.since, waiting))
        return found

    def older_than(self, time: float) -> list[Any]:
        """Ids of open decisions that were made before this time."""
        late = []
        for queue in self._queues:  # of each, no more than the old ones are looked at
            old = takewhile(lambda item: item[1].since is not None and item[1].since < time, queue.items())
            late += [id for id, each in old if each.outcome is None]
        return late

    def each(self) -> Iterator[tuple[Any, Expected]]:
        """Id of every decision whose turn has not come, stage by stage in their order."""
        for queue in self._queues:
            yield from queue.items()

    def expected(self, id: Any) -> Expected:
        """An open decision; one that has its outcome, or was never made here, is an InputError."""
        for queue in self._queues:
            found = queue.get(id) if isinstance(id, Hashable) else None
            if found is not None and found.outcome is None:
                return found
        raise InputError(
            f"decision {id!r:.80} has no outstanding outcome: either its outcome was recorded before, or "
            "this agent never made it. An outcome is counted exactly once."
        )

    def is_open(self, id: Any) -> bool:
        """Whether the outcome of a decision is still expected."""
        return any(id in queue and queue[id].outcome is None for queue in self._queues)

    def settle(self, id: Any, outcome: CostOutcome) -> list[CostOutcome]:
        """The outcome of an open decision has come; returns all that take effect now, in their order."""
        expected = self.expected(id)
        as_decided = expected.is_baseline and np.array_equal(outcome.feature, expected.feature)
        declared = expected.declared if as_decided else None
        expected.outcome = replace(outcome, is_baseline=as_decided, declared=declared)
        stage = self._stage_of(expected.step)
        self._waiting[stage] += 1
        return self._due(stage)

    def lose(self, id: Any) -> list[CostOutcome]:
        """The outcome of an open decision will never come; returns all that take effect now, it among them."""
        expected = self.expected(id)
        return self.settle(id, CostOutcome(expected.step, expected.feature, None, at=expected.at))

    def withdraw(self, id: Any) -> list[CostOutcome]:
        """An open decision was never played, so it has no outcome; returns all that take effect now."""
        stage = self._stage_of(self.expected(id).step)
        del self._queues[stage][id]
        return self._due(stage)

    def _due(self, stage: int) -> list[CostOutcome]:
        """Take from the head of a queue all that have their outcome."""
        queue, due = self._queues[stage], list[CostOutcome]()
        while queue:
            outcome = next(iter(queue.values())).outcome
            if outcome is None:
                break
            queue.popitem(last=False)
            due.append(outcome)
        self._waiting[stage] -= len(due)
        return due

    def to_json(self) -> list[dict[str, Any]]:
        """Everything, in order, as JSON."""
        from tether.agents.state_file import encode_key

        def saved(outcome: CostOutcome | None) -> dict[str, Any] | None:
            if outcome is None:
                return None
            cost, key = None if outcome.cost is None else outcome.cost.tolist(), encode_key(outcome.key)
            fields = {"cost": cost, "reward": outcome.reward, "key": key, "is_baseline": outcome.is_baseline}
            fields["declared"] = None if outcome.declared is None else outcome.declared.tolist()
            fact = None if outcome.fact is None else [_packed(part) for part in outcome.fact]
            return {"feature": _packed(outcome.feature), "fact": fact, **fields}

        return [
            {
                "id": id,
                "step": each.step,
                "feature": _packed(each.feature),
                "since": each.since,
                "is_baseline": each.is_baseline,
                "at": each.at if isfinite(each.at) else None,
                "declared": None if each.declared is None else each.declared.tolist(),
                "outcome": saved(each.outcome),
            }
            for id, each in self.each()
        ]

    def take_json(self, entries: list[dict[str, Any]], dimension: int, constraints: int) -> None:
        """The reverse of `to_json`, into an empty order; d and M are those of the problem."""
        from tether.agents.state_file import decode_key

        def numbers(values: str | list[float], size: int) -> Array:
            if isinstance(values, str):  # not so in files of older versions
                array = np.frombuffer(b64decode(values), "<f8").copy()
            else:
                array = np.array(values, dtype=np.float64)
            if array.shape != (size,) or not np.isfinite(array).all():
                raise InputError(f"an outcome that waits has {values!r:.80} where {size} finite numbers should be")
            return array

        for entry in entries:
            step, outcome = int(entry["step"]), entry["outcome"]
            at = -inf if entry["at"] is None else float(entry["at"])
            safe, told = bool(entry["is_baseline"]), entry["declared"]
            declared = None if told is None else numbers(told, constraints)
            self.expect(entry["id"], step, numbers(entry["feature"], dimension), entry["since"], safe, at, declared)
            if outcome is not None:
                feature, key = numbers(outcome["feature"], dimension), decode_key(outcome["key"])
                cost = None if outcome["cost"] is None else numbers(outcome["cost"], constraints)
                reward = float(numbers([outcome["reward"]], 1)[0])
                safe, stored = bool(outcome["is_baseline"]), outcome.get("fact")
                fact = None if stored is None else (numbers(stored[0], dimension), numbers(stored[1], constraints))
                told = outcome["declared"]
                declared = None if told is None else numbers(told, constraints)
                found = CostOutcome(step, feature, cost, reward, key, safe, at, fact, declared)
                self.expected(entry["id"]).outcome = found
                self._waiting[self._stage_of(step)] += 1


def _packed(numbers: Array) -> str:
    """Numbers in base 64: where thousands of outcomes are late, JSON takes far longer for them."""
    return b64encode(numbers.astype("<f8", copy=False).tobytes()).decode()
