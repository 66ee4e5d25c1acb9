"""The order of decisions as the gate keeps it: whose cost may count next."""

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from tether.records import Array


class Turn(NamedTuple):
    """A decision whose cost has not counted: φ (d,) of what was decided, or played, and z (M,), None if it was lost."""

    feature: Array
    cost: Array | None = None
    has_come: bool = False


class Turns:
    """The order of decisions, kept a second time: a cost may count once no earlier decision of its stage is open."""

    def __init__(self, stages: int) -> None:
        self.queues: list[OrderedDict[str, Turn]] = [OrderedDict() for _ in range(stages)]
        self.has_acted = False  # a decision other than a_0 was made, and has rested on what had counted by then

    def expect(self, stage: int, id: str, feature: Array, *, acts: bool = True) -> None:
        """A decision was made; it `acts` if it may play anything but a_0."""
        self.queues[stage][id] = Turn(feature)
        self.has_acted |= acts

    def come(self, id: str, feature: Array | None = None, cost: Array | None = None) -> None:
        """Its outcome has come; without a feature, it was lost."""
        for queue in self.queues:
            if id in queue:
                queue[id] = Turn(queue[id].feature if feature is None else feature, cost, has_come=True)

    def withdraw(self, id: str) -> None:
        """It was never played."""
        for queue in self.queues:
            queue.pop(id, None)

    def is_next(self, stage: int, feature: Array, cost: Array | None) -> bool:
        """Whether this outcome is the next to count; from now on it has."""
        if not self.queues[stage]:
            return False
        _, turn = self.queues[stage].popitem(last=False)
        same_cost = turn.cost is cost if cost is None or turn.cost is None else np.array_equal(turn.cost, cost)
        return turn.has_come and same_cost and np.array_equal(turn.feature, feature)
