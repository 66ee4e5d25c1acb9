"""Costs in [0, 1] without σ: likelihood-ratio confidence sets and bounds by weak duality (docs/theory.md section 14).

With ℓ(γ) = Σ z_i log⟨γ, φ_i⟩ + (1 − z_i) log(1 − ⟨γ, φ_i⟩) and Λ = Σ ℓ_i(q_i), where q_i was fixed before z_i was
seen, γ* lies at all times in C = {γ : ℓ(γ) >= R}, R = Λ − log(events), with probability 1 − 1/events (two guesses share
Λ: `threshold_of`). The bound of x is max ⟨γ, x⟩ over C, the facts, and 0 <= ⟨γ, φ̄⟩ <= 1. Outcomes with near features
share an *atom*, which by Jensen can only enlarge C, so that a decision costs the same after any number of outcomes.
γ* lies in all the sets C at once, so bounds and fits may rest on an older one: both are renewed with every outcome at
first, and later whenever there are MORE of them by a sixteenth.

A row is a mean feature φ̄_i with p_i = ⟨γ, φ̄_i⟩ in [low_i, high_i]: the accidents of an atom (n log p), what went well
(n log(1 − p)), or a fact. For any price m >= 0 and multipliers y with x = Σ y_i φ̄_i,

    ⟨γ, x⟩ <= −m R + Σ_i max over p_i of [ m (n1_i log p_i + n0_i log(1 − p_i)) + y_i p_i ],

each maximum in closed form. Newton's method looks for good y and m; whatever it finds is a bound, wherever it stops.
"""

import numpy as np

from tether.kernels.compiled import Cube, Integers, Matrix, Vector, kernel, record, use
from tether.kernels.ridge import ULP, dot, solve, whiten

ATOMS = 128
"""Atoms of one stage and constraint: outcomes beyond join the nearest, or the two nearest are merged."""

MORE = 0.0625
"""Bounds and fits are renewed once there are so many more outcomes, as a part of those that they rest on."""

NEWTON_STEPS = 60
"""Steps after which the best bound so far is returned."""

STEPS_OF_FIT = 2
"""Newton steps of the plug-in fit whenever it is renewed; it starts from the last fit."""

CLOSE_ENOUGH = 2e-3
"""The search ends once a step improves the bound by less than this part of it, twice in a row."""

STIFF = 1e7
"""Weight of the squared miss of an exact fact in Newton's method; a bound is not touched by it."""

EXACT = 1e-9
"""Facts known up to less than half of this are exact for Newton's method; a bound counts what they are."""

INTERIOR = 0.9
"""Part of the way to the boundary that a step may go."""

SAME_FEATURE = 1e-24
"""Squared distance, in units of the squared feature norm, below which two features are one."""

FIRST_PRICE = 4.0
"""Newton starts near the fit, at so many times the price that the parabola there suggests, and moves outward."""

SPANS = 1e-12
"""A feature of which rows leave open more than this part of the limit on ‖φ‖ has the trivial bound 1. It is what
rounding leaves, and no more: a cost may depend on what differs by 1e-9."""

LIGHT = 2.0**-960
"""A row whose weight, times the limit on ‖φ‖, is less is left out, which can only enlarge C: sums that small have lost
digits, and their mean feature would be one of rounding."""

TRIVIAL = 1.0
"""A cost in [0, 1] has a mean of at most 1, whatever the data say."""


@record
class Trials:
    """Outcomes of costs in [0, 1]. A cell is one stage and constraint: stage · M + constraint.

    Rows 2a and 2a + 1 of `sums` and `weight` belong to atom a: outcomes weighted by z, and by 1 − z.
    """

    norm: float  # the limit on ‖φ‖
    reach: float  # a generous limit on ‖γ*‖; it multiplies rounding errors only
    sums: Cube  # Σ zφ and Σ (1 − z)φ (C, 2 ATOMS, d)
    weight: Matrix  # Σ z and Σ (1 − z) (C, 2 ATOMS)
    atoms: Integers  # atoms in use (C,)
    total: Vector  # n, outcomes (C,)
    accidents: Vector  # Σ z (C,)
    evidence: Vector  # Λ of the fit (C,)
    plain_evidence: Vector  # Λ of the plain frequency of accidents, whatever the features (C,)
    used_sums: Cube  # `sums` as bounds use them: those of the last renewal (C, 2 ATOMS, d)
    used_weight: Matrix  # and `weight` (C, 2 ATOMS)
    used_total: Vector  # and n (C,)
    used_evidence: Vector  # and the better Λ (C,)
    fit: Matrix  # the plug-in γ̂, fixed before the next outcome (C, d)
    closest: Matrix  # the two atoms that would lose least if merged, and what they would lose (C, 3)
    facts: Cube  # features of remembered safe actions (C, 2d, d)
    fact_cost: Matrix  # their costs (C, 2d)
    fact_error: Matrix  # and how far these may be off (C, 2d)
    fact_count: Integers  # (C,)


@record
class Dual:
    """Scratch: the rows of one cell, where Newton's method stands, and the best bound so far."""

    rows: Matrix  # φ̄_i (R, d)
    low: Vector  # p_i lies in [low_i, high_i] (R,)
    high: Vector
    hits: Vector  # n1_i (R,)
    misses: Vector  # n0_i (R,)
    blur: Vector  # what rounding may have done to φ̄_i, in norm (R,)
    count: Integers  # rows in use; of these, facts (2,)
    below: Vector  # p_i − low_i, kept positive (R,)
    above: Vector  # high_i − p_i, kept positive (R,)
    push: Vector  # multiplier of p_i >= low_i (R,)
    pull: Vector  # multiplier of p_i <= high_i (R,)
    slope: Vector  # what the step takes y_i to be where it stands (R,)
    curvature: Vector  # and by how much it changes with p_i (R,)
    moved: Vector  # p_i where the step leads (R,)
    y: Vector  # multipliers (R,)
    best: Vector  # y of the best bound (R,)
    price: Vector  # m of the best bound (1,)
    point: Vector  # γ (d,)
    step: Vector  # (d,)
    residual: Vector  # (d,)
    gradient: Vector  # ∇ℓ (d,)
    hessian: Matrix  # (d, d)


def new_trials(cells: int, dimension: int, feature_norm: float, gamma_norm: float) -> Trials:
    """No outcome, no fact. `cells` is 0 where no cost is bounded."""
    return Trials(
        norm=feature_norm,
        reach=1e3 * gamma_norm,
        sums=np.zeros((cells, 2 * ATOMS, dimension)),
        weight=np.zeros((cells, 2 * ATOMS)),
        atoms=np.zeros(cells, dtype=np.int64),
        total=np.zeros(cells),
        accidents=np.zeros(cells),
        evidence=np.zeros(cells),
        plain_evidence=np.zeros(cells),
        used_sums=np.zeros((cells, 2 * ATOMS, dimension)),
        used_weight=np.zeros((cells, 2 * ATOMS)),
        used_total=np.zeros(cells),
        used_evidence=np.zeros(cells),
        fit=np.zeros((cells, dimension)),
        closest=np.tile([0.0, 0.0, -1.0], (cells, 1)),
        facts=np.zeros((cells, 2 * dimension, dimension)),
        fact_cost=np.zeros((cells, 2 * dimension)),
        fact_error=np.zeros((cells, 2 * dimension)),
        fact_count=np.zeros(cells, dtype=np.int64),
    )


def new_dual(dimension: int) -> Dual:
    """Room for all rows of a cell, for the fact of the state one stands in, and for d listed actions."""
    rows = 2 * ATOMS + 3 * dimension + 1
    vectors = {name: np.zeros(rows) for name in ("low", "high", "hits", "misses", "blur", "slope", "curvature")}
    vectors |= {name: np.zeros(rows) for name in ("below", "above", "push", "pull", "moved", "y", "best")}
    points = {name: np.zeros(dimension) for name in ("point", "step", "residual", "gradient")}
    return Dual(
        rows=np.zeros((rows, dimension)),
        count=np.zeros(2, dtype=np.int64),
        price=np.zeros(1),
        hessian=np.zeros((dimension, dimension)),
        **vectors,
        **points,
    )


# Outcomes


@kernel
def observe_trial(trials: Trials, cell: int, feature: Vector, cost: float, dual: Dual) -> None:
    """Add one outcome z in [0, 1] of a feature φ (d,): Λ first, with the guesses made before it; the fit, if due."""
    q, plain = plug_in(trials, cell, feature), plain_guess(trials, cell)
    trials.evidence[cell] += cost * np.log(q) + (1.0 - cost) * np.log(1.0 - q)
    trials.plain_evidence[cell] += cost * np.log(plain) + (1.0 - cost) * np.log(1.0 - plain)
    add_trial(trials, cell, feature, cost)
    if trials.total[cell] >= (1.0 + MORE) * trials.used_total[cell]:
        renew(trials, cell)
        refit(trials, cell, dual)


@kernel
def renew(trials: Trials, cell: int) -> None:
    """Let bounds rest on all outcomes so far, with Λ of the better of two guesses; NaN if the fit's is."""
    trials.used_total[cell] = trials.total[cell]
    trials.used_evidence[cell] = max(trials.evidence[cell], trials.plain_evidence[cell])
    if trials.evidence[cell] != trials.evidence[cell]:
        trials.used_evidence[cell] = trials.evidence[cell]
    for side in range(2 * trials.atoms[cell]):
        trials.used_weight[cell, side] = trials.weight[cell, side]
        for k in range(trials.sums.shape[2]):
            trials.used_sums[cell, side, k] = trials.sums[cell, side, k]


@kernel
def lose_trial(trials: Trials, cell: int, feature: Vector) -> None:
    """Count an outcome of φ (d,) that never came, whatever it was, and whatever made it disappear.

    Its factor (q/p)^z ((1 − q)/(1 − p))^{1 − z} is at least min(q, 1 − q). A q of 1/2 for lost outcomes alone would
    cost less, but who loses an outcome may have seen it, and q must be fixed before.
    """
    q, plain = plug_in(trials, cell, feature), plain_guess(trials, cell)
    trials.evidence[cell] += np.log(min(q, 1.0 - q))
    trials.plain_evidence[cell] += np.log(min(plain, 1.0 - plain))


@kernel
def plug_in(trials: Trials, cell: int, feature: Vector) -> float:
    """q = ⟨γ̂, φ⟩, kept as far from 0 and 1 as the Krichevsky–Trofimov estimate of so many outcomes is."""
    least = 0.5 / (trials.total[cell] + 1.0)
    q = dot(trials.fit[cell], feature)
    q = q if q > least else least  # false for NaN
    return q if q < 1.0 - least else 1.0 - least


@kernel
def plain_guess(trials: Trials, cell: int) -> float:
    """The frequency of accidents as Krichevsky and Trofimov estimate it: (Σz + 1/2)/(n + 1)."""
    return (trials.accidents[cell] + 0.5) / (trials.total[cell] + 1.0)


@kernel
def add_trial(trials: Trials, cell: int, feature: Vector, cost: float) -> None:
    """Put an outcome into the atom of its feature, into a new one, or where the likelihood loses least."""
    trials.total[cell] += 1.0
    trials.accidents[cell] += cost
    count = trials.atoms[cell]
    nearest, distance2 = nearest_atom(trials, cell, feature)
    if count > 0 and distance2 <= SAME_FEATURE * trials.norm * trials.norm:
        join_atom(trials, cell, nearest, feature, cost)
    elif count < ATOMS:
        trials.atoms[cell] = count + 1
        join_atom(trials, cell, count, feature, cost)
    else:
        if trials.closest[cell, 2] < 0.0:
            find_closest(trials, cell)
        if distance2 <= trials.closest[cell, 2]:
            join_atom(trials, cell, nearest, feature, cost)
        else:
            merge_closest(trials, cell)
            join_atom(trials, cell, count - 1, feature, cost)
            trials.closest[cell, 2] = -1.0


@kernel
def join_atom(trials: Trials, cell: int, atom: int, feature: Vector, cost: float) -> None:
    """Σ zφ, Σ (1 − z)φ and their weights."""
    trials.weight[cell, 2 * atom] += cost
    trials.weight[cell, 2 * atom + 1] += 1.0 - cost
    for k in range(feature.shape[0]):
        trials.sums[cell, 2 * atom, k] += cost * feature[k]
        trials.sums[cell, 2 * atom + 1, k] += (1.0 - cost) * feature[k]


@kernel
def nearest_atom(trials: Trials, cell: int, feature: Vector) -> tuple[int, float]:
    """The atom whose mean is nearest, and the squared distance."""
    nearest, least = 0, np.inf
    for a in range(trials.atoms[cell]):
        n = trials.weight[cell, 2 * a] + trials.weight[cell, 2 * a + 1]
        distance2 = 0.0
        for k in range(feature.shape[0]):
            gap = (trials.sums[cell, 2 * a, k] + trials.sums[cell, 2 * a + 1, k]) / n - feature[k]
            distance2 += gap * gap
        if distance2 < least:
            nearest, least = a, distance2
    return nearest, least


@kernel
def find_closest(trials: Trials, cell: int) -> None:
    """The two atoms whose merging adds least to Σ ‖φ − φ̄‖²: n_a n_b / (n_a + n_b) ‖φ̄_a − φ̄_b‖² (Ward)."""
    least = np.inf
    for a in range(1, trials.atoms[cell]):
        n = trials.weight[cell, 2 * a] + trials.weight[cell, 2 * a + 1]
        for b in range(a):
            other = trials.weight[cell, 2 * b] + trials.weight[cell, 2 * b + 1]
            loss = 0.0
            for k in range(trials.sums.shape[2]):
                here = (trials.sums[cell, 2 * a, k] + trials.sums[cell, 2 * a + 1, k]) / n
                gap = here - (trials.sums[cell, 2 * b, k] + trials.sums[cell, 2 * b + 1, k]) / other
                loss += gap * gap
            loss *= n * other / (n + other)
            if loss < least:
                least = loss
                trials.closest[cell, 0] = a
                trials.closest[cell, 1] = b
    trials.closest[cell, 2] = least


@kernel
def merge_closest(trials: Trials, cell: int) -> None:
    """Merge the closest two atoms; the last one moves to the place that is free, and its own is emptied."""
    a, b, last = int(trials.closest[cell, 0]), int(trials.closest[cell, 1]), trials.atoms[cell] - 1
    for side in range(2):
        trials.weight[cell, 2 * b + side] += trials.weight[cell, 2 * a + side]
        trials.weight[cell, 2 * a + side] = trials.weight[cell, 2 * last + side]
        trials.weight[cell, 2 * last + side] = 0.0
        for k in range(trials.sums.shape[2]):
            trials.sums[cell, 2 * b + side, k] += trials.sums[cell, 2 * a + side, k]
            trials.sums[cell, 2 * a + side, k] = trials.sums[cell, 2 * last + side, k]
            trials.sums[cell, 2 * last + side, k] = 0.0


@kernel
def keep_fact(trials: Trials, cell: int, phi_0: Vector, cost: float, error: float) -> None:
    """Remember ⟨γ*, f⟩ = cost ± error. Leaving a fact out is always allowed: one that is there, or that has no room."""
    count = trials.fact_count[cell]
    known = count >= trials.facts.shape[1] or not np.isfinite(cost)
    for i in range(count):
        distance2 = 0.0
        for k in range(phi_0.shape[0]):
            gap = trials.facts[cell, i, k] - phi_0[k]
            distance2 += gap * gap
        known = known or distance2 <= SAME_FEATURE * trials.norm * trials.norm
    if not known:
        for k in range(phi_0.shape[0]):
            trials.facts[cell, count, k] = phi_0[k]
        trials.fact_cost[cell, count] = cost
        trials.fact_error[cell, count] = error
        trials.fact_count[cell] = count + 1


# Rows


@kernel
def load_rows(trials: Trials, cell: int, dual: Dual) -> None:
    """Every atom, as of the last renewal, and every remembered fact of a cell, as rows."""
    size, row = trials.sums.shape[2], 0
    for side in range(2 * trials.atoms[cell]):
        n = trials.used_weight[cell, side]
        if n * trials.norm > LIGHT:
            for k in range(size):
                dual.rows[row, k] = trials.used_sums[cell, side, k] / n
            dual.low[row] = 0.0
            dual.high[row] = 1.0
            dual.hits[row] = n if side % 2 == 0 else 0.0
            dual.misses[row] = 0.0 if side % 2 == 0 else n
            dual.blur[row] = (trials.used_total[cell] + 4.0) * ULP * trials.norm
            row += 1
    dual.count[0] = row
    dual.count[1] = 0
    for i in range(trials.fact_count[cell]):
        load_fact(trials, dual, trials.facts[cell, i], trials.fact_cost[cell, i], trials.fact_error[cell, i])


@kernel
def load_fact(trials: Trials, dual: Dual, phi_0: Vector, cost: float, error: float) -> None:
    """One fact more, ⟨γ*, f⟩ = cost ± error: that of the state one stands in, or ½ ± ½ of a listed action."""
    row = dual.count[0]
    for k in range(phi_0.shape[0]):
        dual.rows[row, k] = phi_0[k]
    dual.low[row] = cost - error
    dual.high[row] = cost + error
    dual.hits[row] = 0.0
    dual.misses[row] = 0.0
    dual.blur[row] = 4.0 * ULP * trials.norm
    dual.count[0] = row + 1
    dual.count[1] += 1


# Newton's method: a point γ with p = Φγ, the room on both sides of each p, and the multipliers push and pull, such that
# (p − low) push = m n1 + barrier, (high − p) pull = m n0 + barrier and Σ (pull − push) φ̄ = x


@kernel
def start_newton(dual: Dual, price: float, barrier: float, least_room: float) -> None:
    """Room and multipliers at `point`; room is at least `least_room`, wherever the point lies."""
    for i in range(dual.count[0]):
        p = dot(dual.rows[i], dual.point)
        dual.below[i] = max(p - dual.low[i], least_room)
        dual.above[i] = max(dual.high[i] - p, least_room)
        dual.push[i] = (price * dual.hits[i] + barrier) / dual.below[i]
        dual.pull[i] = (price * dual.misses[i] + barrier) / dual.above[i]


@kernel
def newton_step(dual: Dual, x: Vector, price: float, barrier: float) -> None:
    """Newton's step from `point` into `step`, and the multipliers y = slope + curvature · ⟨φ̄, step⟩ that it leads to.

    The step solves Σ curvature φ̄φ̄ᵀ · step = x − Σ slope φ̄, so that x = Σ y φ̄ but for rounding: y is dual-feasible once
    it is repaired.
    """
    size, rows = x.shape[0], dual.count[0]
    for k in range(size):
        dual.residual[k] = x[k]
        dual.gradient[k] = 0.0
        for i in range(size):
            dual.hessian[k, i] = 0.0
    for i in range(rows):
        p = dot(dual.rows[i], dual.point)
        dual.moved[i] = p
        if dual.high[i] - dual.low[i] > EXACT:
            below, above = dual.below[i], dual.above[i]
            stiff_below, stiff_above = dual.push[i] / below, dual.pull[i] / above
            push = (price * dual.hits[i] + barrier) / below - stiff_below * (p - dual.low[i] - below)
            pull = (price * dual.misses[i] + barrier) / above - stiff_above * (dual.high[i] - p - above)
            dual.slope[i] = pull - push
            dual.curvature[i] = stiff_below + stiff_above
            gained = dual.hits[i] / below - dual.misses[i] / above
        else:
            dual.slope[i] = STIFF * (p - 0.5 * (dual.low[i] + dual.high[i]))
            dual.curvature[i] = STIFF
            gained = 0.0
        for k in range(size):
            along = dual.rows[i, k]
            dual.residual[k] -= dual.slope[i] * along
            dual.gradient[k] += gained * along
            along *= dual.curvature[i]
            for j in range(k, size):
                dual.hessian[k, j] += along * dual.rows[i, j]
    factorise_in_place(dual.hessian)
    for k in range(size):
        dual.step[k] = dual.residual[k]
    solve(dual.hessian, dual.step, size)
    for i in range(rows):
        along = dot(dual.rows[i], dual.step)
        dual.moved[i] += along
        dual.y[i] = dual.slope[i] + dual.curvature[i] * along


@kernel
def take_step(dual: Dual, price: float, barrier: float) -> float:
    """Move along the step as far as room and multipliers stay positive; returns how far, at most 1."""
    length, dual_length = 1.0, 1.0
    for i in range(dual.count[0]):
        if dual.high[i] - dual.low[i] > EXACT:
            moved = dual.moved[i]
            below, above = moved - dual.low[i] - dual.below[i], dual.high[i] - moved - dual.above[i]
            push = (price * dual.hits[i] + barrier - dual.push[i] * (dual.below[i] + below)) / dual.below[i]
            pull = (price * dual.misses[i] + barrier - dual.pull[i] * (dual.above[i] + above)) / dual.above[i]
            length = shortened(length, dual.below[i], below)
            length = shortened(length, dual.above[i], above)
            dual_length = shortened(dual_length, dual.push[i], push)
            dual_length = shortened(dual_length, dual.pull[i], pull)
            dual.slope[i] = push  # the step that these two led to has been found
            dual.curvature[i] = pull
    for i in range(dual.count[0]):
        if dual.high[i] - dual.low[i] > EXACT:
            moved = dual.moved[i]
            dual.below[i] += length * (moved - dual.low[i] - dual.below[i])
            dual.above[i] += length * (dual.high[i] - moved - dual.above[i])
            dual.push[i] += dual_length * dual.slope[i]
            dual.pull[i] += dual_length * dual.curvature[i]
    for k in range(dual.point.shape[0]):
        dual.point[k] += length * dual.step[k]
    return min(length, dual_length)


@kernel
def shortened(length: float, now: float, change: float) -> float:
    """How far `now` may change without losing more than INTERIOR of itself."""
    return min(length, -INTERIOR * now / change) if change < 0.0 else length


@kernel
def factorise_in_place(matrix: Matrix) -> None:
    """U with UᵀU = matrix, in its upper triangle. A pivot that rounding has eaten is replaced by a tiny one."""
    size = matrix.shape[0]
    trace = 0.0
    for k in range(size):
        trace += matrix[k, k]
    tiny = 4.0 * ULP * trace
    for k in range(size):
        pivot = matrix[k, k] + tiny
        for j in range(k):
            pivot -= matrix[j, k] * matrix[j, k]
        pivot = pivot if pivot > tiny else tiny
        matrix[k, k] = np.sqrt(pivot)
        for i in range(k + 1, size):
            total = matrix[k, i]
            for j in range(k):
                total -= matrix[j, k] * matrix[j, i]
            matrix[k, i] = total / matrix[k, k]


@kernel
def repair(dual: Dual, x: Vector) -> None:
    """Spread what is left of x − Σ y φ̄ over the rows, in proportion to their curvature."""
    size, rows = x.shape[0], dual.count[0]
    for k in range(size):
        dual.residual[k] = x[k]
    for i in range(rows):
        for k in range(size):
            dual.residual[k] -= dual.y[i] * dual.rows[i, k]
    solve(dual.hessian, dual.residual, size)
    for i in range(rows):
        dual.y[i] += dual.curvature[i] * dot(dual.rows[i], dual.residual)


@kernel
def refit(trials: Trials, cell: int, dual: Dual) -> None:
    """Newton steps of the plug-in fit γ̂: the likelihood with d/2 accidents and d/2 successes more, over all atoms."""
    size = trials.fit.shape[1]
    load_rows(trials, cell, dual)
    share = 0.5 * min(1.0, size / (1.0 * trials.atoms[cell]))
    for k in range(size):
        dual.point[k] = trials.fit[cell, k]
    nothing = dual.best[0:size]
    for k in range(size):
        nothing[k] = 0.0
    start_newton(dual, 1.0, share, 0.25 / (trials.total[cell] + 1.0))
    for _ in range(STEPS_OF_FIT):
        newton_step(dual, nothing, 1.0, share)
        take_step(dual, 1.0, share)
    finite = True
    for k in range(size):
        finite = finite and np.isfinite(dual.point[k])
    if finite:
        for k in range(size):
            trials.fit[cell, k] = dual.point[k]


# The bound


@kernel
def log_likelihood(dual: Dual) -> float:
    """ℓ where Newton's method stands."""
    total = 0.0
    for i in range(dual.count[0] - dual.count[1]):
        total += dual.hits[i] * np.log(dual.below[i]) if dual.hits[i] > 0.0 else dual.misses[i] * np.log(dual.above[i])
    return total


@kernel
def largest_term(price: float, hits: float, misses: float, y: float) -> float:
    """max over p in [0, 1] of m (n1 log p + n0 log(1 − p)) + y p, where n1 or n0 is 0."""
    weight = price * (hits + misses)
    if hits > 0.0:
        return y if y >= -weight else weight * (np.log(weight / -y) - 1.0)
    return 0.0 if y <= weight else weight * (np.log(weight / y) - 1.0) + y


@kernel
def dual_value(trials: Trials, dual: Dual, x: Vector, y: Vector, price: float, least: float) -> float:
    """The bound on ⟨γ*, x⟩ that price m and multipliers y give, rounded up; `least` is R. Any y and m >= 0 are valid.

    What x − Σ y φ̄ leaves, a rounding error, is paid with a generous limit on ‖γ*‖. Infinite where it is not tiny.
    """
    size, rows = x.shape[0], dual.count[0]
    atoms = rows - dual.count[1]
    total, absolute, blurred = -price * least, abs(price * least), 4.0 * ULP * trials.norm
    for k in range(size):
        dual.residual[k] = x[k]
    for i in range(rows):
        if i < atoms:
            term = largest_term(price, dual.hits[i], dual.misses[i], y[i])
        else:
            term = y[i] * dual.high[i] if y[i] >= 0.0 else y[i] * dual.low[i]
        total += term
        absolute += abs(term) + abs(y[i])
        blurred += abs(y[i]) * (dual.blur[i] + 4.0 * size * ULP * trials.norm)
        for k in range(size):
            dual.residual[k] -= y[i] * dual.rows[i, k]
    left = np.sqrt(dot(dual.residual, dual.residual))
    if not (price >= 0.0 and left <= SPANS * trials.norm):
        return np.inf
    return total + 4.0 * (rows + 4.0) * ULP * absolute + (left + rows * blurred) * trials.reach


@kernel
def threshold_of(trials: Trials, cell: int, log_events: float) -> float:
    """R = Λ − log(events), rounded down, with Λ of the better of two guesses.

    The mean of two likelihood ratios is one, too, so either may be used at the price of log 2. The plain frequency is
    right sooner where risks are alike, and it does not believe in facts: what contradicts the data is found out.
    """
    n, evidence = trials.used_total[cell], trials.used_evidence[cell]
    return evidence - np.log(2.0) - log_events - 4.0 * ULP * (n + 4.0) * (abs(evidence) + n + log_events)


@kernel
def upper_cost(trials: Trials, cell: int, x: Vector, log_events: float, steps: int, dual: Dual) -> float:
    """An upper bound on ⟨γ*, x⟩ from the rows in `dual`: at most 1, by at most `steps` Newton steps.

    A negative result says that no γ satisfies the data and the facts: they contradict each other. Never NaN.
    """
    size = x.shape[0]
    least = threshold_of(trials, cell, log_events)
    bound = TRIVIAL
    dual.price[0] = 0.0
    for i in range(dual.count[0]):
        dual.best[i] = 0.0
    for k in range(size):
        dual.point[k] = trials.fit[cell, k]
    price = first_price(dual, x, least)
    barrier = 0.1 * price
    start_newton(dual, price, barrier, 1e-3)
    still = 0
    for _ in range(steps):
        newton_step(dual, x, price, barrier)
        repair(dual, x)
        repair(dual, x)
        value = dual_value(trials, dual, x, dual.y, price, least)
        still = 0 if value < bound - CLOSE_ENOUGH * abs(bound) else still + 1
        if value < bound:  # false for NaN
            bound = value
            dual.price[0] = price
            for i in range(dual.count[0]):
                dual.best[i] = dual.y[i]
        length = take_step(dual, price, barrier)
        slack = log_likelihood(dual) - least
        gap = barrier * dual.count[0]
        if value == np.inf or (still > 2 and gap <= CLOSE_ENOUGH * bound and price * abs(slack) <= 0.01 * bound):
            break
        if length > 0.5:
            price = next_price(dual, price, slack)
            if gap > 0.1 * CLOSE_ENOUGH * bound:
                barrier *= 0.2
    return bound


@kernel
def first_price(dual: Dual, x: Vector, least: float) -> float:
    """m to begin with, from the parabola of ℓ at the fit: FIRST_PRICE · √(‖x‖²_{H⁻¹} / 2(ℓ − R))."""
    start_newton(dual, 1.0, 0.1, 1e-3)
    newton_step(dual, x, 1.0, 0.1)
    for k in range(x.shape[0]):
        dual.step[k] = x[k]
    whiten(dual.hessian, dual.step, x.shape[0])
    slack = max(log_likelihood(dual) - least, 1.0)
    price = np.sqrt(dot(dual.step, dual.step) / (2.0 * slack))
    return FIRST_PRICE * min(max(price, 1e-9), 1e3)


@kernel
def next_price(dual: Dual, price: float, slack: float) -> float:
    """Newton on the price: the dual function of m has the slope ℓ − R and the curvature ‖∇ℓ‖²_{H⁻¹}."""
    size = dual.gradient.shape[0]
    for k in range(size):
        dual.step[k] = dual.gradient[k]
    whiten(dual.hessian, dual.step, size)
    change = -slack / (dot(dual.step, dual.step) * price)
    factor = 1.0 + change if change > 0.0 else 1.0 / (1.0 - change)
    return price * min(max(factor, 0.3), 3.0)


use(globals())
