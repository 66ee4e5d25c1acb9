"""Costs that drift: blocks of outcomes that begin at fixed decisions and leave: docs/theory.md section 13.

γ* may move by ρ with each decision, so an outcome of age a is off by up to ρa‖φ‖, and old ones must leave. For each of
a few windows W a block begins every W decisions and lives for 2W: two overlap at any time. Each is a regression of its
own with its own part of δ, so that any of them may be used at any time, for any reason.
"""

from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.kernels.model import Rules
from tether.kernels.radius import cost_radius
from tether.kernels.ridge import PENDING, Costs, add_bias, inverse_norm, new_costs, observe_cost, refresh_spectrum
from tether.problem.problem import Problem
from tether.records import Array

LOOKS = 8
"""So many times per shortest window the block to decide from is chosen anew."""

OUTWARD = 1.0 + 1e-6
"""What the drift adds to a radius is a root of plain sums of positive terms: this covers rounding of 10⁹ of them."""


class Blocks:
    """The blocks of every stage, and which of them each stage decides from.

    Block j of window W holds the outcomes of decisions jW, …, (j + 2)W − 1, and has the part 6/(π²(j + 1)²) of the δ of
    its window, an equal share. Rows are (stage, window, j mod 2).

    Attributes:
        costs: the regressions, one a row; nothing is remembered in them.
        number: j of each row, -1 while there is none (rows,).
        ages: Σ‖φ‖²aᵏ for k = 0, 1, 2 over the outcomes of each row, a in decisions up to `clock` (rows, 3).
        used: the row that each stage decides from (G,).
        clock: decisions so far, and the clock when `used` was last chosen (2,).
        ahead: bounds hold for so many decisions beyond the next one, which others may be making at the same time.
    """

    ahead = 0

    def __init__(self, problem: Problem, stages: int, ridge: float) -> None:
        self.windows, self.drift = problem.windows(stages), np.array(problem.drift)
        self.stages, self.each = stages, 2 * len(self.windows)
        rows, sizes = stages * self.each, (problem.dimension, problem.constraints, ridge)
        self.costs, self._fresh = new_costs(rows, *sizes), new_costs(1, *sizes)
        fields: dict[str, Any] = self.costs.fields  # type: ignore[attr-defined]
        self._names = tuple(name for name, value in fields.items() if isinstance(value, np.ndarray))
        self._window = np.tile(np.repeat(self.windows, 2), stages)
        self.number: NDArray[np.int64] = np.full(rows, -1, dtype=np.int64)
        self.ages = np.zeros((rows, 3))
        self.used: NDArray[np.int64] = np.arange(stages, dtype=np.int64) * self.each
        self.clock: NDArray[np.int64] = np.zeros(2, dtype=np.int64)
        self._changed = set(range(stages))  # stages whose sums are not those that were shown
        self._begin()

    def tick(self) -> int:
        """One decision more; returns its number. Blocks that are two windows old make room for new ones."""
        now = int(self.clock[0])
        self.clock[0] += 1
        self.ages[:, 2] += 2.0 * self.ages[:, 1] + self.ages[:, 0]
        self.ages[:, 1] += self.ages[:, 0]
        self._begin()
        return now

    def _begin(self) -> None:
        """Start the block of each window whose turn it is, in the row of the one that leaves."""
        now = int(self.clock[0])
        for w, window in enumerate(self.windows):
            j = now // window
            if now % window:
                continue
            for row in range(2 * w + j % 2, len(self.number), self.each):
                copy_row(self._fresh, 0, self.costs, row, self._names)
                self.costs.split[row] = len(self.windows) * pi**2 / 6.0 * (j + 1.0) ** 2
                self.number[row], self.ages[row] = j, 0.0
                if row in self.used:  # what was decided from has left: choose anew
                    self.clock[1] = now - self.windows[0]

    def add(self, stage: int, at: int, outcome: tuple[Array, Array, Array], work: Array) -> None:
        """One outcome of decision `at`, in its turn: (φ (d,), z (M,), what z may be off by (M,)). `work` is scratch.

        It belongs to the blocks that had begun when it was decided; one that is too old belongs to none.
        """
        feature, cost, off = outcome
        self._changed.add(stage)
        age, weight = float(self.clock[0] - at), float(feature @ feature)
        for row in self.rows(stage):
            if 0 <= self.number[row] * self._window[row] <= at:
                observe_cost(self.costs, row, feature, cost, work)
                add_bias(self.costs, row, off)
                self.ages[row] += weight * np.array([1.0, age, age * age])

    def rows(self, stage: int) -> range:
        """The rows of one stage."""
        return range(stage * self.each, (stage + 1) * self.each)

    def span(self, stage: int) -> tuple[int, int, int]:
        """(W, first decision, last decision that bounds hold for) of the block that a stage decides from."""
        row = self.used[stage]
        return int(self._window[row]), int(self.number[row] * self._window[row]), int(self.clock[0]) + self.ahead

    def show(self, costs: Costs, rules: Rules) -> None:
        """Copy the block that each stage decides from, with what the drift may have done to it by now, into `costs`."""
        if self._changed:
            refresh_spectrum(self.costs)
            self.costs.owed.growth[:] = 0.0  # no tables follow the blocks themselves
        if (self.clock[0] - self.clock[1]) * LOOKS >= self.windows[0]:
            self.clock[1] = self.clock[0]
            self._changed = set(range(self.stages))
            for stage in self._changed:
                self.used[stage] = self._best(stage, rules)
        for stage in self._changed:
            copy_row(self.costs, int(self.used[stage]), costs, stage, self._names)
            costs.owed.count[stage] = PENDING + 1  # the tables are another block's
        self._changed.clear()
        for stage, row in enumerate(self.used.tolist()):
            costs.bias[stage] = (np.sqrt(self.costs.bias[row]) + self._drifted(row)) ** 2

    def _drifted(self, row: int) -> Array:
        """ρ√(Σ‖φ‖²a²), what the drift adds to a radius (M,), with ages a as they will be `ahead` decisions from now."""
        more, (weight, age, square) = self.ahead, self.ages[row]
        drifted: Array = self.drift * (np.sqrt(square + 2.0 * more * age + more * more * weight) * OUTWARD)
        return drifted

    def _best(self, stage: int, rules: Rules) -> int:
        """The row with the smallest radius times mean width of what was played lately; of equal ones the longest."""
        rows = [row for row in self.rows(stage) if self.number[row] >= 0]
        lately = self.costs.factor[min(rows, key=lambda row: (self._window[row], self.number[row]))]
        best, least = rows[0], np.inf
        for row in rows:
            radii = [cost_radius(self.costs, rules, row, j) for j in range(len(self.drift))] + self._drifted(row)
            widths = inverse_norm(lately, self.costs.factor[row])  # with A = UᵀU these are the rows of U
            size = float((radii / rules.noise).max() * np.linalg.norm(widths))
            if size <= least:
                best, least = row, size
        return best

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that the future depends on, by name."""
        mine = {name: getattr(self.costs, name) for name in self._names}
        return {**mine, "number": self.number, "ages": self.ages, "used": self.used, "clock": self.clock}

    def take(self, arrays: dict[str, NDArray[Any]]) -> None:
        """The reverse of `arrays`."""
        for name, mine in self.arrays().items():
            mine[...] = arrays[name]
        self._changed.clear()


def copy_row(source: Costs, at: int, target: Costs, row: int, names: tuple[str, ...]) -> None:
    """The sums of one regression, without facts, over those of another."""
    for name in names:
        getattr(target, name)[row] = getattr(source, name)[at]
