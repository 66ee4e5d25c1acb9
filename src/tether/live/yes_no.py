"""Costs in [0, 1] as the gate sees them: their outcomes, counted a second time, and a solver of its own for bounds.

Plain numpy that shares no code with the kernels. The proof is in docs/guarantee.md, "Costs that are yes or no". Any
guess is valid that is fixed before its outcome is seen, so the gate takes the learner's next one; it takes it before
anybody is handed the outcome, and works out by itself what it was worth, so that a learner cannot guess afterwards.
"""

from collections.abc import Sequence
from math import inf, isfinite, log
from typing import NamedTuple

import numpy as np

from tether.records import Array

ULP = 2.0**-52

ATOMS = 128
"""Groups of outcomes with near features; by Jensen, any grouping is valid."""

MORE = 0.0625
"""Bounds rest on the outcomes of the last renewal, which is due once there are so many more of them, as a part."""

SAME = 1e-24
"""Squared distance, in units of the squared feature norm, below which two features are one."""

STEPS = 60
"""Newton steps after which the best bound so far counts."""

SETTLED = 1e-7
"""Newton's method ends once this is all that its barrier can add to a bound."""

SHORT_OF = 0.95
"""Part of the way to the boundary that a step may go."""

STIFF = 1e8
"""Weight of the squared miss of a fact without an error bar, in Newton's method alone."""

NARROW = 1e-9
"""Facts known up to less than half of this have no error bar for Newton's method; a bound counts what they are."""

LIGHT = 2.0**-960
"""Rows of less weight, times the limit on ‖φ‖, are left out, which can only enlarge the set: denormal sums have lost
the digits of their features."""

MISSED = 1e-12
"""Multipliers that miss x by more than this part of ‖φ‖ bound nothing."""


class Rows(NamedTuple):
    """What is known of γ*, one row each: ⟨γ*, φ⟩ lies in [low, high], and it had so many accidents or successes.

    A row has accidents or successes or, where it only says what a cost can be, neither: those come last.
    """

    features: Array  # (R, d)
    low: Array  # (R,)
    high: Array
    hits: Array
    misses: Array
    blur: float = 0.0  # what rounding may have done to a feature, in norm

    def and_also(self, features: Array, low: float, high: float) -> "Rows":
        """A row more for each of these (L, d), or for a single one (d,), whose cost lies in [low, high]."""
        rows = np.vstack([self.features, features])
        more = np.zeros(len(rows) - len(self.features))
        ends = np.append(self.low, more + low), np.append(self.high, more + high)
        return Rows(rows, *ends, np.append(self.hits, more), np.append(self.misses, more), self.blur)


class Proven(NamedTuple):
    """An upper bound, and the cost that some γ in the confidence set has there but for rounding: no bound is below."""

    bound: float
    reached: float


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
            n, none = self.used_weight[cell][used], np.zeros(known)
            features, costs = self.facts[cell][:known], self.fact_cost[cell][:known]
            found = self._rows[cell] = Rows(
                np.vstack([self.used_sums[cell][used] / n[:, None], features]),
                np.concatenate([np.zeros(len(n)), costs - error]),
                np.concatenate([np.ones(len(n)), costs + error]),
                np.concatenate([np.where(used % 2, 0.0, n), none]),
                np.concatenate([np.where(used % 2, n, 0.0), none]),
                (float(self.used_total[cell]) + 4.0) * ULP * self._norm,
            )
        return found

    def least_likelihood(self, stage: int, k: int, events: float) -> float:
        """R = max Λ − log 2 − log(events), rounded down: ℓ(γ*) >= R; NaN where an evidence is."""
        n, best = float(self.used_total[stage, k]), float(self.used_evidence[stage, k])
        return best - log(2.0 * events) - 4.0 * ULP * (n + 4.0) * (abs(best) + n + log(events))

    def proven(self, rows: Rows, x: Array, least: float, start: Array) -> Proven:
        """What rows and ℓ(γ*) >= `least` say of ⟨γ*, x⟩, by a primal–dual interior-point method begun at γ = `start`.

        ⟨γ*, x⟩ <= −m R + Σ max over p of [m (n1 log p + n0 log(1 − p)) + y p] for any m >= 0 and any y with x = Σ yφ:
        each step suggests one (m, y), and the best bound counts.
        """
        _, low, high, hits, misses, _ = rows
        best, reached = inf, -inf
        if not (np.isfinite(rows.features).all() and isfinite(least)):
            return Proven(best, reached)
        bar, middle = high - low > NARROW, 0.5 * (low + high)  # rows with a barrier at both ends
        # in coordinates in which the rows have orthonormal columns, and without directions that no row speaks of
        phi, sizes, basis = np.linalg.svd(rows.features, full_matrices=False)
        spoken = sizes > NARROW * sizes[0]
        phi, basis = phi[:, spoken], sizes[spoken, None] * basis[spoken]
        gamma, along_x = basis @ np.where(np.isfinite(start), start, 0.0), (basis @ x) / sizes[spoken] ** 2
        room = np.minimum(0.01, 0.25 * (high - low))
        p = phi @ gamma
        below = np.where(bar, np.maximum(p - low, room), 1.0)
        above = np.where(bar, np.maximum(high - p, room), 1.0)
        slack, price = 1.0, 1.0 / (1.0 + float(hits.sum() + misses.sum()))
        barrier = 0.1 * price
        push, pull = bar * (price * hits + barrier) / below, bar * (price * misses + barrier) / above
        for _ in range(STEPS):
            short_below, short_above = bar * (p - low - below), bar * (high - p - above)
            stiff_below, stiff_above = push / below, pull / above
            weight = np.where(bar, stiff_below + stiff_above, STIFF)
            slope = barrier * bar * (1.0 / above - 1.0 / below) - stiff_above * short_above + stiff_below * short_below
            slope = np.where(bar, slope, STIFF * (p - middle))
            gain = hits / below - misses / above
            weighted = phi.T * weight
            try:
                inverse = np.linalg.inv(weighted @ phi)
            except np.linalg.LinAlgError:
                break
            g = phi.T @ gain
            rest, along = inverse @ (along_x - phi.T @ slope), inverse @ g
            likelihood = float(hits @ np.log(below) + misses @ np.log(above)) - least
            missing = slack + barrier / price - likelihood - float(hits / below @ short_below)
            missing -= float(misses / above @ short_above)
            new_price = (missing - float(g @ rest)) / (slack / price + float(g @ along))
            step = rest + new_price * along
            moved = phi @ step
            y = slope + weight * moved - new_price * gain
            y += weight * (phi @ (inverse @ (along_x - phi.T @ y)))  # what rounding left of x − Σ yφ
            for _ in range(2):  # and what is left of that, to the last digits: the columns of phi are orthonormal
                y += phi @ (along_x - phi.T @ y)
            best = min(best, self._value(rows, x, y, max(new_price, 0.0), least))
            down, up = moved * bar + short_below, short_above - moved * bar
            pushed = bar * ((new_price * hits + barrier - push * down) / below) - push
            pulled = bar * ((new_price * misses + barrier - pull * up) / above) - pull
            slacker = (barrier - new_price * slack) / price
            length = _length(np.append(below, slack), np.append(down, slacker), above, up)
            dual = _length(np.append(push, price), np.append(pushed, new_price - price), pull, pulled)
            gamma, below, above = gamma + length * step, below + length * down, above + length * up
            push, pull = push + dual * pushed, pull + dual * pulled
            slack, price = slack + length * slacker, price + dual * (new_price - price)
            p = phi @ gamma
            if not np.isfinite(gamma).all() or not price > 0.0 or best < -NARROW:  # no γ explains data and facts
                break
            gap = barrier * (2.0 * len(low) + 1.0)
            if min(length, dual) > 0.9:
                if gap <= SETTLED:
                    reached = float(gamma @ along_x - y[~bar] @ (p - middle)[~bar])  # as if no fact were missed
                    break
                barrier *= 0.1
        return Proven(best, reached)

    def _value(self, rows: Rows, x: Array, y: Array, price: float, least: float) -> float:
        """The bound that price m and multipliers y (R,) give, rounded up; infinite where Σ yφ is not x."""
        phi, low, high, hits, misses, blur = rows
        weight, size = price * (hits + misses), np.abs(y)
        with np.errstate(all="ignore"):
            inside = weight * (np.log(weight / size) - 1.0)  # where the maximum lies within (0, 1)
        terms = np.where(hits > 0.0, np.where(y >= -weight, y, inside), np.maximum(y * low, y * high))
        terms = np.where(misses > 0.0, np.where(y <= weight, 0.0, inside + y), terms)
        missed = float(np.linalg.norm(x - phi.T @ y))
        if not missed <= MISSED * self._norm:
            return inf
        rounding = 4.0 * (len(y) + 4.0) * ULP * float(abs(price * least) + np.abs(terms).sum() + size.sum())
        blurred = missed + float(size.sum()) * (blur + 4.0 * len(x) * ULP * self._norm)
        bound = float(terms.sum()) - price * least + rounding + blurred * self._reach
        return bound if bound == bound else inf


def _squared(gaps: Array) -> Array:
    """‖gap‖² over the last axis, added one after the other."""
    total = np.zeros(gaps.shape[:-1])
    for k in range(gaps.shape[-1]):
        total += gaps[..., k] * gaps[..., k]
    return total


def _length(one: Array, change: Array, other: Array, changes: Array) -> float:
    """How far both may change, at most 1, without losing more than SHORT_OF of any entry."""
    now, step = np.append(one, other), np.append(change, changes)
    falling = step < 0.0
    return min(1.0, float((-SHORT_OF * now[falling] / step[falling]).min(initial=inf)))
