"""Costs that drift: blocks of outcomes that begin at fixed times and leave: docs/theory.md section 13.

γ* may move by ρ with each unit of time, so an outcome of age a is off by up to ρa‖φ‖, and old ones must leave. For each
of a few windows W a block begins every W units and lives for 2W: two overlap at any time. Each is a regression of its
own with its own part of δ, so that any of them may be used at any time, for any reason.

Time is what decisions bring with them: a stamp in seconds; or, where ρ is per decision, their number, which moves the
clock on by one each time.
"""

from math import inf, isfinite, pi
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


UNKNOWN = -inf
"""The time of a decision that nobody knows: older than all blocks, so that its outcome belongs to none."""

FAR = 2.0**53
"""A stamp so many of the shortest windows after the first is none: the numbers of blocks would not be exact."""


class Blocks:
    """The blocks of every stage, and which of them each stage decides from.

    Block j of window W holds the outcomes of decisions made from jW on, and leaves at (j + 2)W; it has the part
    6/(π²(j + 1)²) of the δ of its window, an equal share. Rows are (stage, window, j mod 2).

    Attributes:
        costs: the regressions, one a row; nothing is remembered in them.
        number: j of each row, -1 while there is none (rows,).
        ages: Σ‖φ‖²aᵏ for k = 0, 1, 2 over the outcomes of each row, with ages a up to the clock (rows, 3).
        used: the row that each stage decides from (G,).
        clock: the latest time so far, that when `used` was last chosen, both since the first stamp; that stamp, and
            whether there was one (4,).
        lead: how far the decision at hand lies from the clock, before it or after it.
        ahead: bounds hold for so much time beyond that decision, in which others may be made as well.
    """

    ahead = 0.0

    def __init__(self, problem: Problem, stages: int, ridge: float) -> None:
        self.windows, self.drift = problem.windows(stages), np.array(problem.drift)
        self.per_second, self.lead = problem.drift_per == "second", 0.0
        self.stages, self.each = stages, 2 * len(self.windows)
        rows, sizes = stages * self.each, (problem.dimension, len(problem.constraints), ridge)
        self.costs, self._fresh = new_costs(rows, *sizes), new_costs(1, *sizes)
        fields: dict[str, Any] = self.costs.fields  # type: ignore[attr-defined]
        self._names = tuple(name for name, value in fields.items() if isinstance(value, np.ndarray))
        self._window = np.tile(np.repeat(self.windows, 2), stages)
        self.number: NDArray[np.int64] = np.full(rows, -1, dtype=np.int64)
        self.ages = np.zeros((rows, 3))
        self.used: NDArray[np.int64] = np.arange(stages, dtype=np.int64) * self.each
        self.clock = np.zeros(4)
        self._changed = set(range(stages))  # stages whose sums are not those that were shown
        self._begin()

    def tick(self, time: float | None = None) -> float:
        """One decision more, with this stamp; returns its time. Blocks that are two windows old make room for new ones.

        Stamps may come in any order: the clock stays with the latest.
        """
        if not self.per_second:
            at = float(self.clock[0])
            self._advance(at + 1.0)
            return at
        if time is None or not self._is_stamp(time):
            return UNKNOWN
        self._stamp(time)
        return float(time)

    def _is_stamp(self, time: float) -> bool:
        """Whether blocks can be numbered up to this time. The clock does not follow what is no number, or too far."""
        first = float(self.clock[2]) if self.clock[3] else time
        return isfinite(time) and time - first < FAR * self.windows[0]

    def _stamp(self, time: float) -> float:
        """A stamp as time since the first one, which it is itself if there was none; the clock follows."""
        if self.per_second and not self.clock[3]:
            self.clock[2:] = time, 1.0
        since = float(time - self.clock[2])
        self._advance(since)
        return since

    def _advance(self, to: float) -> None:
        """Let the clock go on, and all outcomes grow older."""
        by = to - float(self.clock[0])
        if by > 0.0:
            self.clock[0] = to
            self.ages[:, 2] += by * (2.0 * self.ages[:, 1] + by * self.ages[:, 0])
            self.ages[:, 1] += by * self.ages[:, 0]
            self._begin()

    def _begin(self) -> None:
        """Start the blocks of each window that the clock has come to, in the rows of those that leave."""
        now = float(self.clock[0])
        for w, window in enumerate(self.windows):
            newest = int(now // window)
            for j in range(max(newest - 1, 0), newest + 1):  # both, after a pause
                if self.number[2 * w + j % 2] == j:
                    continue
                for row in range(2 * w + j % 2, len(self.number), self.each):
                    copy_row(self._fresh, 0, self.costs, row, self._names)
                    self.costs.split[row] = len(self.windows) * pi**2 / 6.0 * (j + 1.0) ** 2
                    self.number[row], self.ages[row] = j, 0.0
                    if row in self.used:  # what was decided from has left: choose anew
                        self.clock[1] = now - self.windows[0]

    def add(self, stage: int, at: float, outcome: tuple[Array, Array, Array], work: Array) -> None:
        """One outcome of the decision of time `at`, in its turn: (φ (d,), z (M,), what z may be off by (M,)). `work` is
        scratch.

        It belongs to the blocks that had begun when it was decided; one that is too old belongs to none.
        """
        if not self._is_stamp(at):
            return
        feature, cost, off = outcome
        self._changed.add(stage)
        at = self._stamp(at)
        age, weight = float(self.clock[0]) - at, float(feature @ feature)
        for row in self.rows(stage):
            if 0 <= self.number[row] * self._window[row] <= at:
                observe_cost(self.costs, row, feature, cost, work)
                add_bias(self.costs, row, off)
                self.ages[row] += weight * np.array([1.0, age, age * age])

    def rows(self, stage: int) -> range:
        """The rows of one stage."""
        return range(stage * self.each, (stage + 1) * self.each)

    def span(self, stage: int, time: float | None = None) -> tuple[float, float, float]:
        """(W, when it began, until when bounds hold) of the block that a stage decides from, for a decision at this
        time; by default that of the clock."""
        row, (now, _, first, stamped) = self.used[stage], self.clock.tolist()
        window, moment = float(self._window[row]), now + first
        if self.per_second and time is not None:
            moment, first = time, first if stamped else time
        return window, first + float(self.number[row]) * window, moment + self.ahead

    def look_at(self, time: float | None) -> None:
        """Bounds are for a decision at this time from now on; None: at that of the clock. `age` then says so.

        |t − t_i| <= |t − clock| + (clock − t_i), so that outcomes age by `lead` whichever way it goes.
        """
        self.lead = 0.0
        if self.per_second and time is not None and self.clock[3]:
            self.lead = abs(time - float(self.clock[2]) - float(self.clock[0]))

    def show(self, costs: Costs, rules: Rules) -> None:
        """Copy the block that each stage decides from, with what the drift may have done to it by now, into `costs`."""
        if self._changed:
            refresh_spectrum(self.costs)
            self.costs.owed.growth[:] = 0.0  # no tables follow the blocks themselves
        self.lead = 0.0
        if (self.clock[0] - self.clock[1]) * LOOKS >= self.windows[0]:
            self.clock[1] = self.clock[0]
            self._changed = set(range(self.stages))
            for stage in self._changed:
                self.used[stage] = self._best(stage, rules)
        for stage in self._changed:
            copy_row(self.costs, int(self.used[stage]), costs, stage, self._names)
            costs.owed.count[stage] = PENDING + 1  # the tables are another block's
        self._changed.clear()
        self.age(costs)

    def age(self, costs: Costs) -> None:
        """What the drift may have done to the outcomes that are shown, by the decision at hand, into `costs`."""
        for stage, row in enumerate(self.used.tolist()):
            costs.bias[stage] = (np.sqrt(self.costs.bias[row]) + self._drifted(row)) ** 2

    def _drifted(self, row: int) -> Array:
        """ρ√(Σ‖φ‖²a²), what the drift adds to a radius (M,), with ages a as they will be when bounds cease to hold."""
        more, (weight, age, square) = self.lead + self.ahead, self.ages[row]
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
