"""What has been spent of the budget, and what open decisions may still spend."""

from collections.abc import Sequence

from tether.live.windows import UNIT, Window, in_units

MAX_THRESHOLD = 1e300
"""Stands for τ where that is infinite: sums of costs stay finite."""


class Spending:
    """Sum observed costs, and the bounds of decisions without an outcome.

    Attributes:
        total: sums of all observed costs (M,).
        over: how many measured costs lay above τ (M,).
        last: the costs of the last outcomes, one window for each constraint (M,).
        open: for each decision without an outcome, what it may cost at most (M,).
    """

    def __init__(self, threshold: tuple[float, ...]) -> None:
        self._threshold, self._finite_threshold = threshold, [min(tau, MAX_THRESHOLD) for tau in threshold]
        self._window: int | None = None
        self.last = tuple(Window(0) for _ in threshold)
        self.total = [0.0] * len(threshold)
        self.over = [0] * len(threshold)
        self.open: dict[str, list[float]] = {}
        self._open_units = [0] * len(threshold)  # their sums, exact as in a `Window`

    def look_back(self, outcomes: int | None) -> None:
        """Let the budget count this many of the last outcomes; None for all."""
        self._window = outcomes
        for window in self.last:
            window.resize(outcomes or 0)

    def expect(self, id: str, bounds: Sequence[float]) -> None:
        """Add a decision. It costs its bound at most, or τ if the bound is unknown or larger."""
        known = [bound if bound <= tau else tau for bound, tau in zip(bounds, self._finite_threshold, strict=True)]
        self.open[id] = known
        for j, bound in enumerate(known):
            self._open_units[j] += in_units(bound)

    def settle(self, id: str) -> bool:
        """Remove a decision from the open ones, and return whether it was open."""
        bounds = self.open.pop(id, None)
        for j, bound in enumerate(bounds or ()):
            self._open_units[j] -= in_units(bound)
        return bounds is not None

    def spend(self, cost: Sequence[float] | None) -> None:
        """Add a cost (M,). None was not measured, and counts as τ."""
        for j, z in enumerate(self._finite_threshold if cost is None else cost):
            self.last[j].append(z)
            self.total[j] += z
            self.over[j] += cost is not None and z > self._threshold[j]

    def in_window(self) -> tuple[float, ...]:
        """Return the sum of observed costs (M,) that the budget looks at."""
        if self._window is None:
            return tuple(self.total)
        return tuple(window.sum() for window in self.last)

    def claimed(self, under_way: int) -> tuple[float, ...]:
        """Return what is spent of the budget, or may be (M,).

        That is observed costs, the bounds of decisions without an outcome, and τ for each of those `under_way`.
        """
        parts = zip(self.in_window(), self._open_units, self._threshold, strict=True)
        return tuple(spent + owed / UNIT + under_way * tau for spent, owed, tau in parts)
