"""The canary: in guarded mode a share p of the decisions plays the certified proposal, and the rest a_0.

Which of the two is drawn by a hash of the decision's id, after everything else was asked: only a decision that nothing
objects to is drawn, so what objects cannot tell the arms apart. Both arms are certified, both are withheld alike, and p
is logged with each of them. That is all that a comparison needs (docs/guarantee.md, "Is it better than a_0?").
"""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from pydantic import ConfigDict, Field, FiniteFloat


@dataclass(frozen=True, slots=True)
class Canary:
    """How a decision was drawn: the proposal with probability `share`, else a_0. The record says which one it was.

    `expected` is what (the proposal, a_0) were thought to earn before the draw, ⟨θ̂, φ⟩: a comparison is right whatever
    it says, and narrow where it is good.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    share: FiniteFloat
    expected: Annotated[tuple[FiniteFloat, FiniteFloat], Field(strict=False)]


def coin_of(id: str) -> float:
    """The number in [0, 1) that draws for a decision: a hash of its id, so that a replay draws the same."""
    return (int.from_bytes(sha256(id.encode(errors="replace")).digest()[:8]) >> 11) * 2.0**-53


def plays_proposal(id: str, share: float) -> bool:
    """Whether the canary draws the proposal: with probability `share`, independent of the coin that draws from a
    mixture."""
    return coin_of(f"canary:{id}") < share


@dataclass(slots=True)
class Trial:
    """A decision of the canary: p, whether the proposal was drawn, what (it, a_0) were thought to earn. Once it is
    settled, `reward` and `cost` (M,) are what was seen, None if that never came."""

    share: float
    played: bool
    expected: tuple[float, float]
    settled: bool = False
    reward: float | None = None
    cost: tuple[float, ...] | None = None


class Trials:
    """The canary's decisions in their order. What comes early waits for its turn, as costs do: outcomes in the order in
    which they happen to come are biased where bad ones come late (docs/theory.md section 18)."""

    def __init__(self) -> None:
        self._queue: OrderedDict[str, Trial] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def expect(self, id: str, canary: Canary, *, played: bool) -> None:
        """A decision was drawn."""
        self._queue[id] = Trial(canary.share, played, canary.expected)

    def settle(self, id: str, reward: float | None, cost: tuple[float, ...] | None) -> list[Trial]:
        """Its outcome has come, or, None, will never come; returns the trials whose turn it is."""
        trial = self._queue.get(id)
        if trial is not None and not trial.settled:
            trial.settled, trial.reward, trial.cost = True, reward, cost
        return self._due()

    def withdraw(self, id: str) -> list[Trial]:
        """It did not leave, so it is in no comparison; returns the trials whose turn it is."""
        trial = self._queue.get(id)
        if trial is not None and not trial.settled:
            del self._queue[id]
        return self._due()

    def _due(self) -> list[Trial]:
        due = []
        while self._queue and next(iter(self._queue.values())).settled:
            due.append(self._queue.popitem(last=False)[1])
        return due

    def to_json(self) -> list[list[Any]]:
        """Everything, in order."""
        return [[id, *(getattr(trial, name) for name in Trial.__slots__)] for id, trial in self._queue.items()]

    def take_json(self, saved: list[list[Any]]) -> None:
        """The reverse of `to_json`, into an empty queue."""
        for id, share, played, expected, settled, reward, cost in saved:
            seen = None if cost is None else tuple(cost)
            self._queue[id] = Trial(share, played, tuple(expected), settled, reward, seen)
