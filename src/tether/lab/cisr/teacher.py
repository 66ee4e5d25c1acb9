"""Who chooses the intervention of the next unit: a curriculum, a fixed teacher, or a bandit."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tether.errors import InputError
from tether.lab.cisr.env import BY_NAME, HR, SR2, TEACHERS_CHOICE, Intervention

RETURN_RANGE, EXCESS_RANGE = (-0.5, 5.5), (0.0, 0.2)
"""Where the search looks for θ_r and θ_c."""


@dataclass(frozen=True, slots=True)
class UnitLog:
    """What a unit of training looked like: means over its ended episodes, and counts over all its steps.

    `excess` is the mean intervention rate minus its limit; with no ended episode both means are 0. Teachers see the
    means.
    """

    mean_return: float = 0.0
    excess: float = 0.0
    failures: int = 0
    interventions: int = 0
    steps: int = 0


class Teacher(Protocol):
    """Chooses before each unit and is told afterwards how it went."""

    def choose(self) -> Intervention:
        """The intervention of the next unit."""

    def observe(self, seen: UnitLog) -> None:
        """What the unit looked like."""


@dataclass(frozen=True, slots=True)
class Curriculum:
    """An ordered triple of interventions and the two pairs (θ_r, θ_c) at which one moves on."""

    interventions: tuple[Intervention, Intervention, Intervention]
    thresholds: tuple[tuple[float, float], tuple[float, float]]

    def moves_on(self, stage: int, seen: UnitLog) -> bool:
        """Whether the last unit earned the next stage: return ≥ θ_r and excess ≤ θ_c."""
        if stage >= len(self.thresholds):
            return False
        least_return, most_excess = self.thresholds[stage]
        return seen.mean_return >= least_return and seen.excess <= most_excess


STORED = Curriculum((SR2, HR, HR), ((2.777, 0.0987), (1.773, 0.0694)))
"""A solution of the authors' search, from their repository: the default teacher."""


class CurriculumTeacher:
    """Walks through a curriculum, at most one stage a unit. Before the first unit it has seen (0, 0)."""

    def __init__(self, curriculum: Curriculum = STORED) -> None:
        self.curriculum = curriculum
        self.stage = 0
        self._seen = UnitLog()

    def choose(self) -> Intervention:
        """The intervention of the stage that the last unit has earned."""
        self.stage += self.curriculum.moves_on(self.stage, self._seen)
        return self.curriculum.interventions[self.stage]

    def observe(self, seen: UnitLog) -> None:
        """Remember the unit."""
        self._seen = seen


class FixedTeacher:
    """The same intervention in every unit."""

    def __init__(self, intervention: Intervention) -> None:
        self.intervention = intervention

    def choose(self) -> Intervention:
        """Always the same."""
        return self.intervention

    def observe(self, seen: UnitLog) -> None:
        """Nothing to learn."""


class BanditTeacher:
    """Picks online what last changed the student's return most (Matiisen et al., as CISR compares with it).

    The reward of a choice is the change of the mean training return since the same choice was last made. Choices
    without a reward yet come first, at random; then the largest |reward|, one drawn from the last `window` of each.
    """

    def __init__(self, rng: np.random.Generator, window: int = 10) -> None:
        self._rng = rng
        self._rewards: list[deque[float]] = [deque(maxlen=window) for _ in TEACHERS_CHOICE]
        self._returns: list[float | None] = [None] * len(TEACHERS_CHOICE)
        self._chosen = 0

    def choose(self) -> Intervention:
        """An intervention without a reward yet, or the one whose drawn reward is largest."""
        unknown = [index for index, rewards in enumerate(self._rewards) if not rewards]
        if unknown:
            self._chosen = int(self._rng.choice(unknown))
        else:
            self._chosen = int(np.argmax([abs(self._rng.choice(list(rewards))) for rewards in self._rewards]))
        return TEACHERS_CHOICE[self._chosen]

    def observe(self, seen: UnitLog) -> None:
        """Reward the choice by the change of its return; the first time there is nothing to compare with."""
        before = self._returns[self._chosen]
        if before is not None:
            self._rewards[self._chosen].append(seen.mean_return - before)
        self._returns[self._chosen] = seen.mean_return


TEACHERS = ("optimised", *BY_NAME, "bandit")
"""The teachers of the comparison."""


def make_teacher(name: str, rng: np.random.Generator) -> Teacher:
    """The teacher of that name; only the bandit draws."""
    if name == "optimised":
        return CurriculumTeacher()
    if name == "bandit":
        return BanditTeacher(rng)
    if name in BY_NAME:
        return FixedTeacher(BY_NAME[name])
    raise InputError(f"No teacher is called {name!r}; there are {', '.join(TEACHERS)}.")
