"""Outcomes of the ledger take effect in the order of their decisions, as costs do in the learner."""

from collections import OrderedDict
from itertools import islice
from typing import Any, NamedTuple


class OutcomeSummary(NamedTuple):
    """Summarise an outcome that waits for its turn: what it adds to counts and comparison."""

    id: str
    reward: float | None = None
    cost: tuple[float, ...] | None = None
    bound: tuple[float, ...] | None = None
    drawn: bool = False
    rests_on: int = 0
    is_lost: bool = False


class OutcomeQueues:
    """Hold back each outcome until every earlier decision of its stage has one."""

    def __init__(self) -> None:
        self.queues: dict[int, OrderedDict[str, OutcomeSummary | None]] = {}

    def expect(self, stage: int, id: str) -> None:
        """Queue a decision that was made."""
        self.queues.setdefault(stage, OrderedDict())[id] = None

    def come(self, outcome: OutcomeSummary) -> list[OutcomeSummary]:
        """Add an outcome that has come or is lost, and return all that take effect now.

        The outcome of an unknown decision takes effect at once.
        """
        for queue in self.queues.values():
            if outcome.id in queue:
                queue[outcome.id] = queue[outcome.id] or outcome
                return self._due(queue)
        return [] if outcome.is_lost else [outcome]

    def withdraw(self, id: str) -> list[OutcomeSummary]:
        """Remove a decision that did not leave, and return all outcomes that take effect now."""
        for queue in self.queues.values():
            if id in queue and queue[id] is None:
                del queue[id]
                return self._due(queue)
        return []

    def _due(self, queue: OrderedDict[str, OutcomeSummary | None]) -> list[OutcomeSummary]:
        due = list[OutcomeSummary]()
        while queue and (first := next(iter(queue.values()))) is not None:
            queue.popitem(last=False)
            due.append(first)
        return due

    def behind(self) -> tuple[int, list[str]]:
        """Return how many outcomes wait, and the decisions that they wait for."""
        waiting, first = 0, list[str]()
        for _, queue in sorted(self.queues.items()):
            here = sum(outcome is not None for outcome in queue.values())
            waiting += here
            first += list(islice(queue, 1)) if here else []
        return waiting, first

    def to_json(self) -> list[list[Any]]:
        """Return everything, in order."""
        return [[stage, id, summary] for stage, queue in sorted(self.queues.items()) for id, summary in queue.items()]

    def take_json(self, saved: list[list[Any]]) -> None:
        """Read what `to_json` returned, into empty queues."""
        for stage, id, summary in saved:
            self.expect(stage, id)
            if summary is not None:
                _, reward, cost, bound, *rest = summary
                cost, bound = (None if each is None else tuple(each) for each in (cost, bound))
                self.queues[stage][id] = OutcomeSummary(id, reward, cost, bound, *rest)
