"""What a list of actions proves of costs in [0, 1] before any outcome (docs/guarantee.md, "Costs that are yes or no").

Every listed action has an expected cost in [0, 1], and some safe costs are known: 0 <= ⟨γ*, φ_i⟩ <= 1, ⟨γ*, f⟩ = τ_s.
For any multipliers y with x = Σ y_i φ_i these say ⟨γ*, x⟩ <= Σ max(y_i low_i, y_i high_i). A linear program suggests y;
what counts is that sum, computed here in plain arithmetic and rounded up, so that no solver has to be trusted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.kernels.likelihood import SPANS, TRIVIAL
from tether.kernels.ridge import ULP
from tether.records import NONE, Array

RELAXED = 1e-4
"""The program may break every limit by this much. So it is never infeasible by rounding, and prefers small multipliers:
in the dual it is a price on Σ|y|."""

NEGLIGIBLE = 1e-9
"""Multipliers below this are none."""

DISTINCT = 1e-3
"""Exact facts are taken out of the program if they add at least this part of the largest to the others' span."""

INDEPENDENT = 1e-9
"""A feature that adds less than this part of the largest to the others' span adds nothing."""

TINY = 1e-11
"""Shares below this are none for the program; a bound counts what they are."""


NOWHERE = np.zeros(0, dtype=np.intp)


class Limits(NamedTuple):
    """⟨γ*, φ_i⟩ lies in [low_i, high_i]."""

    features: Array  # (R, d)
    low: Array  # (R,)
    high: Array  # (R,)
    places: NDArray[np.intp] = NOWHERE  # which listed actions the last rows are


class ListedBound(NamedTuple):
    """An upper bound, the listed actions that matter to it beside the facts, and what proves it.

    `facts` (F,) and `listed` (L,) are multipliers, and empty where nothing is proven.
    """

    bound: float
    boxes: NDArray[np.intp]  # places in the list (B,)
    facts: Array
    listed: Array


NOTHING = ListedBound(TRIVIAL, NOWHERE, NONE, NONE)


class Listed:
    """The listed actions of a problem, and the bounds that they and some facts prove; `reach` is a limit on ‖γ*‖."""

    def __init__(self, features: Array, norm: float, reach: float) -> None:
        self.features, self._norm, self._reach = features, norm, reach
        self._index = {row.tobytes(): i for i, row in enumerate(features)}

    def __contains__(self, x: Array) -> bool:
        return x.tobytes() in self._index

    def limits(self, facts: Array, low: Array, high: Array) -> Limits:
        """Facts (F, d) with their limits, and the [0, 1] of every listed action that is no fact."""
        known = {f.tobytes() for f in facts}
        places = np.flatnonzero([row.tobytes() not in known for row in self.features])
        ones = np.ones(len(places))
        rows = np.vstack([facts, self.features[places]])
        return Limits(rows, np.append(low, 0.0 * ones), np.append(high, ones), places)

    def proof(self, program: "Program", x: Array) -> ListedBound:
        """What the limits say of ⟨γ*, x⟩: at most 1, never NaN."""
        y = program.multipliers(x)
        if y is None:
            return NOTHING
        bound, places = self.bound(program.limits, x, y), program.limits.places
        facts, rest = y[: len(y) - len(places)], y[len(y) - len(places) :]
        boxes = places[np.abs(rest) > NEGLIGIBLE][: len(x)]
        if not bound < TRIVIAL:
            return NOTHING._replace(boxes=boxes)
        listed = np.zeros(len(self.features))
        listed[places] = rest
        return ListedBound(bound, boxes, facts, listed)

    def bound(self, limits: Limits, x: Array, y: Array) -> float:
        """Σ max(y low, y high), plus what x − Σ yφ may cost, rounded up. Any y (R,) gives a bound."""
        features, low, high, _ = limits
        terms, count = np.maximum(y * low, y * high), len(y) + 4.0
        missed = np.abs(x - y @ features)
        if not np.linalg.norm(missed) <= SPANS * self._norm:
            return np.inf
        left = float(np.linalg.norm(missed + count * ULP * (np.abs(x) + np.abs(y) @ np.abs(features))))
        rounding = count * ULP * float(np.abs(terms).sum())
        return float(terms.sum()) + 2.0 * rounding + (1.0 + count * ULP) * left * self._reach


class Program:
    """max ⟨γ, x⟩ over the γ that satisfy some limits, relaxed.

    Its unknowns are the costs of a basis of the features: they lie in [0, 1] like all others, however large γ is.
    Exact facts come first in the basis, as far as they differ enough: their costs are no unknowns.
    """

    def __init__(self, limits: Limits) -> None:
        from scipy.linalg import qr  # loads for long, and few need it

        self.limits = limits
        scale = float(np.linalg.norm(limits.features, axis=1).max())
        exact = np.flatnonzero(limits.high == limits.low)
        known = exact[independent(limits.features[exact], DISTINCT * scale)]
        span = np.linalg.qr(limits.features[known].T)[0]
        open_part = limits.features - (limits.features @ span) @ span.T
        free = independent(open_part - (open_part @ span) @ span.T, INDEPENDENT * scale)
        self._basis, self._known = np.concatenate([known, free]), len(known)
        self._rotation, self._triangle = qr(limits.features[self._basis].T, mode="economic")
        self._shares = tidied(self._coordinates(limits.features))  # (R, B)
        rest = np.setdiff1d(np.arange(len(limits.low)), self._basis)
        self._rest = rest[np.abs(self._shares[rest, self._known :]).max(axis=1, initial=0.0) > 0.0]

    def _coordinates(self, rows: Array) -> Array:
        """Rows (n, d) as combinations of the basis: (n, B)."""
        from scipy.linalg import solve_triangular

        found: Array = solve_triangular(self._triangle, self._rotation.T @ rows.T).T
        return found

    def multipliers(self, x: Array) -> Array | None:
        """y (R,) with x = Σ yφ for a bound on ⟨γ*, x⟩, as HiGHS suggests it; None if it has no answer."""
        from scipy.optimize import linprog

        features, low, high, _ = self.limits
        rest, wanted = self._rest, tidied(self._coordinates(x[None])[0])
        y, free = np.zeros(len(low)), self._basis[self._known :]
        if wanted[self._known :].any():
            shares, settled = self._shares[rest, self._known :], self._shares[rest, : self._known]
            cost = settled @ low[self._basis[: self._known]]
            found = linprog(
                -wanted[self._known :],
                A_ub=np.vstack([shares, -shares]),
                b_ub=np.concatenate([high[rest] - cost, cost - low[rest]]) + RELAXED,
                bounds=np.column_stack([low[free] - RELAXED, high[free] + RELAXED]),
                method="highs-ds",
            )
            if found.status != 0:
                return None
            y[rest] = found.ineqlin.marginals[len(rest) :] - found.ineqlin.marginals[: len(rest)]
            y[free] = -found.upper.marginals - found.lower.marginals
            y[np.abs(y) <= NEGLIGIBLE] = 0.0
        for _ in range(3):  # what facts make up for, and what the solver's tolerance left: every digit of it counts
            y[self._basis] += self._coordinates((x - y @ features)[None])[0]
        return y if np.isfinite(y).all() else None


def tidied(shares: Array) -> Array:
    """The same without what rounding left of zeros, so that the program stays sparse."""
    return np.where(np.abs(shares) > TINY, shares, 0.0)


def independent(features: Array, least: float) -> NDArray[np.intp]:
    """Rows (n, d) that each add more than this length to the span of those before: QR with pivoting."""
    from scipy.linalg import qr

    if not len(features):
        return np.zeros(0, dtype=np.intp)
    triangle, order = qr(features.T, mode="r", pivoting=True)
    rows: NDArray[np.intp] = order[: int((np.abs(np.diag(triangle)) > least).sum())]
    return rows
