"""Costs in [0, 1] as the gate sees them: their outcomes, counted a second time, and bounds by a proof that it is given.

Plain numpy that shares no code with the kernels. The proof is in docs/guarantee.md, "Costs that are yes or no". Any
multipliers give a valid bound, so the gate only adds up what those of a certificate prove: wrong ones prove too little.
Any guess is valid that is fixed before its outcome is seen, so the gate takes the learner's next one; it takes it
before anybody is handed the outcome, and works out by itself what it was worth, so that a learner cannot guess
afterwards.
"""

from collections.abc import Sequence
from math import fsum, inf, isfinite, log
from typing import NamedTuple

import numpy as np

from tether.records import NONE, Array, Multipliers

ULP = 2.0**-52

ATOMS = 128
"""Groups of outcomes with near features; by Jensen, any grouping is valid."""

MORE = 0.0625
"""Bounds rest on the outcomes of the last renewal, which is due once there are so many more of them, as a part."""

SAME = 1e-24
"""Squared distance, in units of the squared feature norm, below which two features are one."""

LIGHT = 2.0**-960
"""Rows of less weight, times the limit on ‖φ‖, are left out, which can only enlarge the set: denormal sums have lost
the digits of their features."""

TINY = 2.0**-900
"""More than products of tiny numbers can lose."""

MISSED = 1e-12
"""Multipliers that miss x by more than this part of ‖φ‖ bound nothing."""


class Rows(NamedTuple):
    """What was seen and is remembered of γ*: ⟨γ*, φ⟩ lies in [low, high]. Outcomes come first, then facts.

    A row of outcomes has accidents or successes.
    """

    features: Array  # (R, d)
    low: Array  # (R,)
    high: Array
    hits: Array  # of the outcomes alone (A,)
    misses: Array


class Claim(NamedTuple):
    """What else is known: ⟨γ*, φ⟩ lies in [low, high] for each row (n, d), with the multipliers y (n,) of a proof."""

    rows: Array
    low: float
    high: float
    y: Array


class YesNo:
    """Outcomes and facts of the K bounded constraints of each of G stages.

    Entries 2a and 2a + 1 of `sums` (G, K, 2 ATOMS, d) and `weight` (G, K, 2 ATOMS) belong to atom a: Σ zφ and
    Σ (1 − z)φ, Σ z and Σ (1 − z). `evidence` (G, K, 2) is Λ of the learner's guesses and of the plain frequency of
    accidents. Bounds rest on what `used_…` holds: all this as of the last renewal.
    """

    names = (
        "sums", "weight", "atoms", "total", "accidents", "evidence", "guess", "closest",
        "used_sums", "used_weight", "used_total", "used_evidence", "facts", "fact_cost", "fact_count",
    )  # fmt: skip

    def __init__(self, bounded: Sequence[int], stages: int, dimension: int, norm: float, reach: float) -> None:
        self.bounded, self._norm, self._reach = list(bounded), norm, 1e3 * reach
        cells = (stages, len(self.bounded))
        self.sums, self.weight = np.zeros((*cells, 2 * ATOMS, dimension)), np.zeros((*cells, 2 * ATOMS))
        self.atoms, self.fact_count = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
        self.total, self.accidents, self.evidence = np.zeros(cells), np.zeros(cells), np.zeros((*cells, 2))
        self.used_sums, self.used_weight = np.zeros_like(self.sums), np.zeros_like(self.weight)
        self.used_total, self.used_evidence = np.zeros(cells), np.zeros(cells)
        self.guess = np.zeros((*cells, dimension))  # γ̂ for the next outcome
        self.closest = np.tile([0.0, 0.0, -1.0], (*cells, 1))  # two atoms, and what merging them would lose
        self.facts = np.zeros((*cells, 2 * dimension, dimension))
        self.fact_cost = np.zeros((*cells, 2 * dimension))
        self._rows: dict[tuple[int, int], Rows] = {}

    def forget_rows(self, stage: int | None = None) -> None:
        """After the numbers of a stage (of all stages) have changed."""
        self._rows = {cell: rows for cell, rows in self._rows.items() if stage is not None and cell[0] != stage}

    # Outcomes

    def add(self, stage: int, feature: Array, cost: Array | None) -> None:
        """One outcome z (M,) of φ (d,), in its turn: first what the guesses were worth. None: lost, at its worst."""
        for k, j in enumerate(self.bounded):
            q = self._guessed(stage, k, feature)
            if cost is None:
                self.evidence[stage, k] += np.log(np.minimum(q, 1.0 - q))
            else:
                z = float(cost[j])
                self.evidence[stage, k] += z * np.log(q) + (1.0 - z) * np.log(1.0 - q)
                self._count((stage, k), feature, z)
                if self.total[stage, k] >= (1.0 + MORE) * self.used_total[stage, k]:
                    self._renew((stage, k))

    def _guessed(self, stage: int, k: int, feature: Array) -> Array:
        """Both guesses of z: ⟨γ̂, φ⟩, kept 1/(2n + 2) away from 0 and 1, and (Σz + ½)/(n + 1)."""
        n = float(self.total[stage, k])
        least, q = 0.5 / (n + 1.0), float(self.guess[stage, k] @ feature)
        q = min(max(q, least), 1.0 - least) if q == q else least
        return np.array([q, (float(self.accidents[stage, k]) + 0.5) / (n + 1.0)])

    def _count(self, cell: tuple[int, int], feature: Array, z: float) -> None:
        """Into the atom of the same feature, into a new one, or where the likelihood loses least.

        The order of every sum is the learner's, so that both group alike to the last bit.
        """
        self.total[cell] += 1.0
        self.accidents[cell] += z
        count = place = int(self.atoms[cell])
        means, _ = self._means(cell)
        apart = _squared(means - feature)
        nearest = int(apart.argmin()) if count else 0
        if count and apart[nearest] <= SAME * self._norm * self._norm:
            place = nearest
        elif count < ATOMS:
            self.atoms[cell] = count + 1
        else:
            if self.closest[cell][2] < 0.0:
                self._find_closest(cell)
            place = nearest
            if not apart[nearest] <= self.closest[cell][2]:
                self._merge(cell)
                place = count - 1
        for side, part in enumerate((z, 1.0 - z)):
            self.weight[cell][2 * place + side] += part
            self.sums[cell][2 * place + side] += part * feature

    def _renew(self, cell: tuple[int, int]) -> None:
        """Let bounds rest on all outcomes so far. An older set is as valid: γ* lies in all of them at once."""
        self.used_sums[cell], self.used_weight[cell] = self.sums[cell], self.weight[cell]
        self.used_total[cell], self.used_evidence[cell] = self.total[cell], self.evidence[cell].max()
        self._rows.pop(cell, None)

    def _means(self, cell: tuple[int, int]) -> tuple[Array, Array]:
        """Mean feature (A, d) and weight (A,) of each atom."""
        used = 2 * int(self.atoms[cell])
        weight, sums = self.weight[cell][:used], self.sums[cell][:used]
        n: Array = weight[0::2] + weight[1::2]
        return (sums[0::2] + sums[1::2]) / n[:, None], n

    def _find_closest(self, cell: tuple[int, int]) -> None:
        """The two atoms whose merging adds least to Σ ‖φ − φ̄‖²: n_a n_b / (n_a + n_b) ‖φ̄_a − φ̄_b‖² (Ward)."""
        means, n = self._means(cell)
        loss = _squared(means[:, None] - means) * (n[:, None] * n / (n[:, None] + n))
        loss[np.triu_indices(len(n))] = inf
        a, b = np.unravel_index(int(loss.argmin()), loss.shape)
        self.closest[cell] = a, b, loss[a, b]

    def _merge(self, cell: tuple[int, int]) -> None:
        """Merge the closest two atoms; the last one moves to the place that is free, and its own is emptied."""
        a, b, last = int(self.closest[cell][0]), int(self.closest[cell][1]), int(self.atoms[cell]) - 1
        for kept in (self.weight[cell], self.sums[cell]):
            pairs = kept[: 2 * last + 2].reshape(last + 1, 2, *kept.shape[1:])
            pairs[b] += pairs[a]
            pairs[a] = pairs[last]
            pairs[last] = 0.0
        self.closest[cell][2] = -1.0

    def remember(self, stage: int, f: Array, cost: Array) -> None:
        """⟨γ*, f⟩ = τ_s (M,): kept if there is room and it is new. Leaving a fact out is always allowed."""
        for k, j in enumerate(self.bounded):
            cell = (stage, k)
            count = int(self.fact_count[cell])
            same = (_squared(self.facts[cell][:count] - f) <= SAME * self._norm * self._norm).any()
            if count < self.facts.shape[2] and np.isfinite(cost[j]) and not same:
                self.facts[cell][count], self.fact_cost[cell][count] = f, cost[j]
                self.fact_count[cell] += 1
        self.forget_rows(stage)

    # Bounds

    def rows(self, stage: int, k: int, error: float) -> Rows:
        """Atoms, and facts that may be off by `error`; kept until they change."""
        found = self._rows.get((stage, k))
        if found is None:
            cell, known = (stage, k), int(self.fact_count[stage, k])
            used = np.flatnonzero(self.used_weight[cell] * self._norm > LIGHT)
            n, misses = self.used_weight[cell][used], used % 2 == 1
            features, costs = self.facts[cell][:known], self.fact_cost[cell][:known]
            found = self._rows[cell] = Rows(
                np.vstack([self.used_sums[cell][used] / n[:, None], features]),
                np.concatenate([np.zeros(len(n)), costs - error]),
                np.concatenate([np.ones(len(n)), costs + error]),
                np.where(misses, 0.0, n),
                np.where(misses, n, 0.0),
            )
        return found

    def least_likelihood(self, stage: int, k: int, events: float) -> float:
        """R = max Λ − log 2 − log(events), rounded down: ℓ(γ*) >= R; NaN where an evidence is."""
        n, best = float(self.used_total[stage, k]), float(self.used_evidence[stage, k])
        return best - log(2.0 * events) - 4.0 * ULP * (n + 4.0) * (abs(best) + n + log(events))

    def proven(
        self, cell: tuple[int, int], x: Array, by: Multipliers, more: Sequence[Claim], error: float, events: float
    ) -> tuple[float, float]:
        """Return the bound on ⟨γ*, x⟩ that multipliers prove, rounded up, and how much of it is rounding.

        ⟨γ*, x⟩ <= −m R + Σ max over p of [m (n1 log p + n0 log(1 − p)) + y p] for any m >= 0 and any y with x = Σ yφ.
        Infinite where they do not fit the rows, are not finite, or miss x.

        Args:
            cell: stage and place among the bounded constraints.
            x: the feature (d,).
            by: m, and y of the outcomes and facts.
            more: what else is known, with y.
            error: how far facts may be off.
            events: the number of events that share δ, over δ.
        """
        rows = self.rows(*cell, error)
        atoms = len(rows.hits)
        told = [(by.outcomes, atoms), (by.facts, len(rows.low) - atoms), *((each.y, len(each.rows)) for each in more)]
        given = [found for found in (fitted(*each) for each in told) if found is not None]
        y, m, least = np.concatenate([NONE, *given]), float(by.price), self.least_likelihood(*cell, events)
        if len(given) < len(told) or not (
            m >= 0.0 and isfinite(m) and isfinite(least) and np.isfinite(rows.features).all()
        ):
            return inf, inf
        phi = np.vstack([rows.features, *(each.rows for each in more)])
        low = np.concatenate([rows.low, *(np.full(len(each.rows), each.low) for each in more)])
        high = np.concatenate([rows.high, *(np.full(len(each.rows), each.high) for each in more)])
        with np.errstate(all="ignore"):
            terms = np.concatenate([_largest(m, rows, y[:atoms]), np.maximum(y * low, y * high)[atoms:]])
            sizes = np.abs(y)
            missed = _missed(phi, x, y) * (1.0 + 8.0 * ULP)
            total = float(np.abs(terms).sum() + sizes.sum()) + abs(m * least)
            blurred = float(sizes[:atoms].sum()) * (float(self.used_total[cell]) + 4.0) * ULP * self._norm
        if not (missed <= MISSED * self._norm and isfinite(total)):
            return inf, inf
        rounding = 32.0 * ULP * total + (missed + blurred) * self._reach
        return fsum([*terms.tolist(), -m * least, rounding]), rounding


def fitted(y: Array, length: int) -> Array | None:
    """Return so many multipliers, zeros for an empty array; None if there are others or one is not finite."""
    if np.shape(y) == (0,):
        return np.zeros(length)
    return y if np.shape(y) == (length,) and np.isfinite(y).all() else None


def _largest(m: float, rows: Rows, y: Array) -> Array:
    """Return max over p in [0, 1] of m (n1 log p + n0 log(1 − p)) + y p of each row of outcomes: n1 or n0 is 0."""
    weight, size = m * (rows.hits + rows.misses), np.abs(y)
    within = np.where(weight > 0.0, weight * (np.log(weight / size) - 1.0), 0.0)  # where it lies inside (0, 1)
    hits = np.where(y >= -weight, y, within)
    misses = np.where(y <= weight, 0.0, within + y)
    largest: Array = np.where(rows.hits > 0.0, hits, misses)
    return largest


def _missed(phi: Array, x: Array, y: Array) -> float:
    """Return a bound on ‖x − Σ yφ‖, with twice the digits: what rounding leaves is paid dearly.

    Products and sums are split into what a number holds and what it drops. What is dropped is summed, too, which leaves
    an error of count² ulp² of all sizes: any order of a compensated sum is better than that.
    """
    used = np.flatnonzero(y)
    phi, factors = phi[used], -y[used, None]
    sizes = np.abs(x) + np.abs(y[used]) @ np.abs(phi)
    large, (a, b), (c, d) = factors * phi, _halves(factors), _halves(phi)
    small = ((a * c - large) + a * d + b * c) + b * d
    large, small = np.vstack([x, large]), np.vstack([np.zeros_like(x), small])
    while len(large) > 1:
        if len(large) % 2:
            large, small = np.vstack([large, np.zeros_like(x)]), np.vstack([small, np.zeros_like(x)])
        one, other = large[0::2], large[1::2]
        large = one + other
        back = large - one
        small = small[0::2] + small[1::2] + ((one - (large - back)) + (other - back))
    rest = np.abs(large[0] + small[0]) * (1.0 + 4.0 * ULP) + (len(used) + 4.0) ** 2 * ULP**2 * sizes
    return float(np.linalg.norm(rest)) + TINY


def _halves(a: Array) -> tuple[Array, Array]:
    """Split numbers into two parts of 26 digits (Veltkamp), so that products of parts are exact."""
    shifted = (2.0**27 + 1.0) * a
    high = shifted - (shifted - a)
    return high, a - high


def _squared(gaps: Array) -> Array:
    """‖gap‖² over the last axis, added one after the other."""
    total = np.zeros(gaps.shape[:-1])
    for k in range(gaps.shape[-1]):
        total += gaps[..., k] * gaps[..., k]
    return total
