"""Ridge regression by sums: Gram matrices A = λI + Σ φφᵀ, their factors, quadratic forms, and the facts about γ*.

A is kept as the upper triangular U with A = UᵀU, so that every inner loop runs along a row of memory, and (for costs,
where rounding must go outward) also as a compensated sum. G stages: H of them, or 1 when steps are pooled.
"""

import numpy as np

from tether.kernels.compiled import Cube, IntegerMatrix, Integers, Matrix, Vector, kernel, record, use
from tether.records import Array

PENDING = 4
"""Rank-one updates that tables may still owe; past that they are rebuilt from the factor."""

LOG_DET_EVERY = 4096
"""Updates after which log det(A/λ) is taken from U itself. U is never recomputed from A: rotations keep its digits,
while a factorisation of A loses as many as its condition number has."""

GRID = np.array([0.1, 1.0, 10.0, 100.0, 1000.0])
"""Ridges λ_j of the mixtures behind `grid_radius`, in units of the squared norm of the first feature (1 if that is 0).
That is known before its noise is, so that they are fixed before all noise, as they must be. Each has its part of δ."""

SMALLEST_UNIT = 1e-200
"""The grid's unit is at least this: eigenvalues divided by it stay finite."""

ULP = 2.0**-52

LONG = 8
"""Triangles of at least this size are solved four rows at a time."""

SPECTRUM_LAG = 0.05
"""The spectrum of V is computed afresh once log det(A) has grown by this much per dimension."""

AMPLIFIED = 1e4
"""A fact is not remembered if errors of 1 in the facts could then move a cost by more than this: people type costs with
nine decimals, not sixteen."""

SPANNED = 1e-4
"""A safe feature of which the facts leave open no more than this part adds nothing to them: conditioning on its own
cost would amplify errors by the inverse."""

MISFIT = 1e-6
"""Facts that miss each other by more than this part of max(1, |τ_s|) contradict each other: theory, section 17."""

BLOCK = 512
"""Columns that are projected together, so that the partial sums stay in the first-level cache."""

WEIGHTS = 12
"""Weights that are tried for facts with an error bar, besides 0: each four times the one before."""


@record
class Pending:
    """Rank-one updates that tables have not seen yet: g = A^{-1}φ with D = 1 + φᵀg (docs/theory.md section 3)."""

    direction: Cube  # g, lifted to R^d (G, PENDING, d)
    scale: Matrix  # D (G, PENDING)
    count: Integers  # (G,); above PENDING means "rebuild"
    growth: Vector  # Σ log D since the tables were rebuilt (G,)


@record
class Values:
    """The regression of r + V(s') on φ, as sums."""

    ridge: float  # λ
    factor: Cube  # U, A = UᵀU (G, d, d)
    log_det: Vector  # log det(A / λ) (G,)
    updates: Integers  # (G,)
    reward_moment: Matrix  # Σ r φ (G, d)
    transition_moment: Cube  # Σ φ, by the slot of the next state (G, S, d)
    owed: Pending


@record
class Facts:
    """Known safe costs ⟨γ*, f⟩ = τ_s that were remembered: docs/theory.md section 17.

    Exact ones determine γ* on the span of their features; the regression then lives in its complement, spanned by the
    first `rank` columns of `basis`. Those known up to an error enter the Gram matrix with one weight w instead.
    """

    rank: Integers  # p: dimensions that exact facts leave open (G,)
    basis: Cube  # (G, d, d)
    known: Cube  # the part of γ* that exact facts determine (G, M, d)
    inverse: Cube  # R^{-1}, where the facts' features are QR with Q in the last columns of `basis` (G, d, d)
    amplification: Vector  # what an error of 1 in every fact may do to the known part (G,)
    misfit: Matrix  # the largest error that the facts have shown, at least that of rounding (G, M)
    count: Integers  # facts that were remembered (G,)
    alarm: IntegerMatrix  # 1 for ever where data or facts have contradicted a declared safe cost (G, M)
    inside: Cube  # the factor of BᵀAB, or of A + wF (G, d, d); unused while nothing is remembered
    weight: Vector  # w (G,)
    gram: Cube  # F = Σ ffᵀ of facts with an error (G, d, d)
    moment: Cube  # Σ τ_s f (G, M, d)
    square: Matrix  # Σ τ_s² (G, M)
    visits: Vector  # J, their number (G,)
    used_gram: Cube  # the same four sums as they were when w was chosen
    used_moment: Cube
    used_square: Matrix
    used_visits: Vector


@record
class Costs:
    """Everything that safe sets rest on: the cost regression as sums, and the facts."""

    ridge: float  # λ
    gram: Cube  # A_h, starting at λI (G, d, d)
    gram_low: Cube  # what rounding left out of it (G, d, d)
    moment: Cube  # Σ z φ (G, M, d)
    moment_low: Cube  # what rounding left out of it (G, M, d)
    size: Matrix  # Σ |z| ‖φ‖ (G, M)
    bias: Matrix  # Σ b², where the mean of sample i may be off by b_i: docs/theory.md section 12 (G, M)
    factor: Cube  # U, A = UᵀU (G, d, d)
    log_det: Vector  # log det(A / λ) (G,)
    updates: Integers  # (G,)
    grid: Matrix  # ridges λ_j of the mixtures; as for ‖φ‖ = 1 until a feature was seen (G, J)
    least: Vector  # a lower bound on the least eigenvalue of V = A − λI (G,)
    grid_log_det: Matrix  # log det(I + V/λ_j), when `least` was computed (G, J)
    grid_at: Vector  # log_det at that time (G,)
    split: Vector  # 1 / the part of δ that this regression has, where others take turns with it: section 13 (G,)
    facts: Facts
    owed: Pending


def new_pending(stages: int, dimension: int) -> Pending:
    """Tables that do not exist yet owe everything."""
    return Pending(
        direction=np.zeros((stages, PENDING, dimension)),
        scale=np.ones((stages, PENDING)),
        count=np.full(stages, PENDING + 1, dtype=np.int64),
        growth=np.zeros(stages),
    )


def new_values(stages: int, dimension: int, ridge: float, slots: int) -> Values:
    """A_h = λI for every stage."""
    return Values(
        ridge=ridge,
        factor=np.tile(np.sqrt(ridge) * np.eye(dimension), (stages, 1, 1)),
        log_det=np.zeros(stages),
        updates=np.zeros(stages, dtype=np.int64),
        reward_moment=np.zeros((stages, dimension)),
        transition_moment=np.zeros((stages, slots, dimension)),
        owed=new_pending(stages, dimension),
    )


def new_facts(stages: int, dimension: int, constraints: int) -> Facts:
    """Nothing is remembered."""
    square, moment = np.zeros((stages, dimension, dimension)), np.zeros((stages, constraints, dimension))
    return Facts(
        rank=np.full(stages, dimension, dtype=np.int64),
        basis=np.tile(np.eye(dimension), (stages, 1, 1)),
        known=moment.copy(),
        inverse=square.copy(),
        amplification=np.zeros(stages),
        misfit=np.zeros((stages, constraints)),
        count=np.zeros(stages, dtype=np.int64),
        alarm=np.zeros((stages, constraints), dtype=np.int64),
        inside=square.copy(),
        weight=np.zeros(stages),
        gram=square.copy(),
        moment=moment.copy(),
        square=np.zeros((stages, constraints)),
        visits=np.zeros(stages),
        used_gram=square.copy(),
        used_moment=moment.copy(),
        used_square=np.zeros((stages, constraints)),
        used_visits=np.zeros(stages),
    )


def new_costs(stages: int, dimension: int, constraints: int, ridge: float) -> Costs:
    """A_h = λI for every stage, no fact remembered."""
    return Costs(
        ridge=ridge,
        gram=np.tile(ridge * np.eye(dimension), (stages, 1, 1)),
        gram_low=np.zeros((stages, dimension, dimension)),
        moment=np.zeros((stages, constraints, dimension)),
        moment_low=np.zeros((stages, constraints, dimension)),
        size=np.zeros((stages, constraints)),
        bias=np.zeros((stages, constraints)),
        factor=np.tile(np.sqrt(ridge) * np.eye(dimension), (stages, 1, 1)),
        log_det=np.zeros(stages),
        updates=np.zeros(stages, dtype=np.int64),
        grid=np.tile(GRID, (stages, 1)),
        least=np.zeros(stages),
        grid_log_det=np.zeros((stages, len(GRID))),
        grid_at=np.zeros(stages),
        split=np.ones(stages),
        facts=new_facts(stages, dimension, constraints),
        owed=new_pending(stages, dimension),
    )


# Products along memory


@kernel
def add_rows(matrix: Matrix, top: int, bottom: int, left: int, weights: Vector, sign: float, out: Vector) -> None:
    """out[i] += sign · Σ_k weights[k] matrix[k, left + i] over the rows top <= k < bottom: (., .), (.,), (n,).

    Four rows in one pass over `out`, which then is loaded and stored a quarter as often. The terms are added one by
    one in the order of k, as a plain loop would: the same bits.
    """
    size = out.shape[0]
    paired = top + (bottom - top) // 4 * 4
    for k in range(top, paired, 4):
        p, q, r, s = sign * weights[k], sign * weights[k + 1], sign * weights[k + 2], sign * weights[k + 3]
        for i in range(size):
            out[i] = (
                out[i]
                + matrix[k, left + i] * p
                + matrix[k + 1, left + i] * q
                + matrix[k + 2, left + i] * r
                + matrix[k + 3, left + i] * s
            )
    for k in range(paired, bottom):
        weight = sign * weights[k]
        for i in range(size):
            out[i] += matrix[k, left + i] * weight


@kernel
def project_rows(features: Matrix, count: int, vector: Vector, out: Vector) -> None:
    """out[i] = ⟨vector, column i⟩ for i < count: the bare matrix–vector product. features (d, R)."""
    for block in range(0, count, BLOCK):
        end = min(block + BLOCK, count)
        weight = vector[0]
        for i in range(block, end):
            out[i] = features[0, i] * weight
        add_rows(features, 1, features.shape[0], block, vector, 1.0, out[block:end])


@kernel
def inner(columns: Matrix, column: int, vector: Vector) -> float:
    """⟨vector, column⟩: (d, S), (d,) -> scalar."""
    total = 0.0
    for k in range(vector.shape[0]):
        total += columns[k, column] * vector[k]
    return total


@kernel
def dot(a: Vector, b: Vector) -> float:
    """⟨a, b⟩ with a fixed order of summation."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


# Triangles


@kernel
def whiten(factor: Matrix, x: Vector, size: int) -> None:
    """U^{-T} x in place: ‖result‖ = ‖x‖_{A^{-1}}. The first `size` entries; from 8 on, four rows at a time."""
    begin = 0
    if size >= LONG:
        for end in range(4, size, 4):
            for k in range(begin, end):
                x[k] /= factor[k, k]
                for i in range(k + 1, end):
                    x[i] -= factor[k, i] * x[k]
            add_rows(factor, begin, end, end, x, -1.0, x[end:size])
            begin = end
    for k in range(begin, size):
        x[k] /= factor[k, k]
        for i in range(k + 1, size):
            x[i] -= factor[k, i] * x[k]


@kernel
def unwhiten(factor: Matrix, v: Vector, size: int) -> None:
    """U^{-1} v in place. From 8 on, four rows at a time: four independent sums."""
    end = size
    if size >= LONG:
        while end >= 4:
            k = end - 4
            p, q, r, s = v[k], v[k + 1], v[k + 2], v[k + 3]
            for i in range(end, size):
                p -= factor[k, i] * v[i]
                q -= factor[k + 1, i] * v[i]
                r -= factor[k + 2, i] * v[i]
                s -= factor[k + 3, i] * v[i]
            s /= factor[k + 3, k + 3]
            r = (r - factor[k + 2, k + 3] * s) / factor[k + 2, k + 2]
            q = (q - factor[k + 1, k + 2] * r - factor[k + 1, k + 3] * s) / factor[k + 1, k + 1]
            p = (p - factor[k, k + 1] * q - factor[k, k + 2] * r - factor[k, k + 3] * s) / factor[k, k]
            v[k] = p
            v[k + 1] = q
            v[k + 2] = r
            v[k + 3] = s
            end = k
    for k in range(end - 1, -1, -1):
        total = v[k]
        for i in range(k + 1, size):
            total -= factor[k, i] * v[i]
        v[k] = total / factor[k, k]


@kernel
def solve(factor: Matrix, x: Vector, size: int) -> None:
    """A^{-1}x in place, by two triangular solves: the first `size` entries."""
    whiten(factor, x, size)
    unwhiten(factor, x, size)


@kernel
def update_factor(factor: Matrix, x: Vector, size: int) -> None:
    """U after A ← A + xxᵀ, by plane rotations; the first `size` entries of x are used up.

    Rotations are orthogonal, so the error stays that of U, relative to √cond(A); A itself would lose cond(A).
    """
    for k in range(size):
        old = factor[k, k]
        new = np.sqrt(old * old + x[k] * x[k])
        cosine, sine = old / new, x[k] / new
        factor[k, k] = new
        for i in range(k + 1, size):
            before, other = factor[k, i], x[i]
            factor[k, i] = cosine * before + sine * other
            x[i] = cosine * other - sine * before


@kernel
def factorise_gram(gram: Matrix, weight: float, extra: Matrix, factor: Matrix) -> bool:
    """U with UᵀU = gram + weight · extra, all (d, d); False if it is not positive definite in floating point."""
    size = gram.shape[0]
    for k in range(size):
        for i in range(k, size):
            total = gram[k, i] + weight * extra[k, i]
            for j in range(k):
                total -= factor[j, k] * factor[j, i]
            if i == k:
                if not total > 0.0:
                    return False
                factor[k, k] = np.sqrt(total)
            else:
                factor[k, i] = total / factor[k, k]
                factor[i, k] = 0.0
    return True


@kernel
def whiten_columns(factor: Matrix, size: int, columns: Matrix, count: int) -> None:
    """U^{-T} times each of the first `count` columns, in place: (p, p), (p, n)."""
    for j in range(size):
        pivot = factor[j, j]
        paired = j // 4 * 4
        for k in range(0, paired, 4):
            p, q, r, s = factor[k, j], factor[k + 1, j], factor[k + 2, j], factor[k + 3, j]
            for i in range(count):
                columns[j, i] = (
                    columns[j, i]
                    - columns[k, i] * p
                    - columns[k + 1, i] * q
                    - columns[k + 2, i] * r
                    - columns[k + 3, i] * s
                )
        for k in range(paired, j):
            p = factor[k, j]
            for i in range(count):
                columns[j, i] -= columns[k, i] * p
        for i in range(count):
            columns[j, i] /= pivot


# Sums that lose nothing


@kernel
def add_products(high: Cube, low: Cube, stage: int, row: int, factor: float, x: Vector) -> None:
    """high + low ← high + low + factor·x along one row; what rounding takes from `high` goes to `low` (two-sum)."""
    for i in range(x.shape[0]):
        term = factor * x[i]
        old = high[stage, row, i]
        new = old + term
        part = new - old
        high[stage, row, i] = new
        low[stage, row, i] += (old - (new - part)) + (term - part)


@kernel
def split_high(a: float) -> float:
    """The upper half of the digits of a (Dekker); products of halves are exact."""
    wide = 134217729.0 * a
    return wide - (wide - a)


@kernel
def product_error(a: float, b: float, product: float) -> float:
    """a·b − fl(a·b), exactly (Dekker), unless it overflows."""
    a_high, b_high = split_high(a), split_high(b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def gram_residual(costs: Costs, stage: int, constraint: int, x: Vector, out: Vector, lost: Vector) -> None:
    """b − Ax in doubled precision, into out (d,); b = Σzφ. `lost` (d,) is scratch.

    A is symmetric to the last bit, so row i stands for column i: the sums of all entries of Ax grow side by side.
    """
    size = x.shape[0]
    for k in range(size):
        out[k] = costs.moment[stage, constraint, k]
        lost[k] = costs.moment_low[stage, constraint, k]
    for i in range(size):
        other = -x[i]
        for k in range(size):
            entry, total = costs.gram[stage, i, k], out[k]
            term = entry * other
            new = total + term
            part = new - total
            so_far = lost[k] + (product_error(entry, other, term) + costs.gram_low[stage, i, k] * other)
            lost[k] = so_far + ((total - (new - part)) + (term - part))
            out[k] = new
    for k in range(size):
        out[k] += lost[k]


@kernel
def into_subspace(basis: Matrix, rank: int, x: Vector, out: Vector) -> None:
    """Coordinates of x in the span of the first `rank` columns of the basis: (d, d), (d,) -> (p,)."""
    dimension = x.shape[0]
    for i in range(rank):
        out[i] = 0.0
    for k in range(dimension):
        value = x[k]
        for i in range(rank):
            out[i] += basis[k, i] * value


@kernel
def out_of_subspace(basis: Matrix, rank: int, inside: Vector, out: Vector) -> None:
    """basis · inside: back to R^d, (d, d), (p,) -> (d,)."""
    for k in range(out.shape[0]):
        total = 0.0
        for i in range(rank):
            total += basis[k, i] * inside[i]
        out[k] = total


# Observations


@kernel
def owe_update(owed: Pending, stage: int, scale: float) -> int:
    """Note A ← A + φφᵀ with D = `scale`; returns the slot for its direction, or -1 if the tables are rebuilt anyway."""
    slot = owed.count[stage]
    owed.growth[stage] += np.log(scale)
    if slot < PENDING:
        owed.scale[stage, slot] = scale
        owed.count[stage] = slot + 1
        return slot
    owed.count[stage] = PENDING + 1
    return -1


@kernel
def observe_cost(costs: Costs, stage: int, feature: Vector, cost: Vector, work: Matrix) -> None:
    """Add one outcome, φ (d,) with costs z (M,), to the cost regression. `work` (>= 3, d) is scratch."""
    facts = costs.facts
    size, rank = feature.shape[0], facts.rank[stage]
    direction, rotated = work[0], work[1]
    norm2 = 0.0
    for k in range(size):
        norm2 += feature[k] * feature[k]
    norm = np.sqrt(norm2)
    for j in range(cost.shape[0]):
        costs.size[stage, j] += abs(cost[j]) * norm
        add_products(costs.moment, costs.moment_low, stage, j, cost[j], feature)
    for k in range(size):
        add_products(costs.gram, costs.gram_low, stage, k, feature[k], feature)
        direction[k] = feature[k]
        rotated[k] = feature[k]
    whiten(costs.factor[stage], direction, size)
    scale = 1.0
    for k in range(size):
        scale += direction[k] * direction[k]
    if costs.updates[stage] == 0 and norm2 > 0.0:
        for j in range(costs.grid.shape[1]):
            costs.grid[stage, j] *= max(norm2, SMALLEST_UNIT)
    costs.log_det[stage] += np.log(scale)
    costs.updates[stage] += 1
    conditioned = facts.count[stage] > 0
    if not conditioned:
        slot = owe_update(costs.owed, stage, scale)
        if slot >= 0:
            unwhiten(costs.factor[stage], direction, size)
            for k in range(size):
                costs.owed.direction[stage, slot, k] = direction[k]
    update_factor(costs.factor[stage], rotated, size)
    if costs.updates[stage] % LOG_DET_EVERY == 0:
        costs.log_det[stage] = log_det_of(costs.factor[stage], costs.ridge)
    if conditioned and rank > 0:
        into_subspace(facts.basis[stage], rank, feature, direction)
        for k in range(rank):
            rotated[k] = direction[k]
        whiten(facts.inside[stage], direction, rank)
        scale = 1.0
        for k in range(rank):
            scale += direction[k] * direction[k]
        slot = owe_update(costs.owed, stage, scale)
        if slot >= 0:
            unwhiten(facts.inside[stage], direction, rank)
            out_of_subspace(facts.basis[stage], rank, direction, costs.owed.direction[stage, slot])
        update_factor(facts.inside[stage], rotated, rank)


@kernel
def add_bias(costs: Costs, stage: int, bias: Vector) -> None:
    """The outcome just added may be off by up to b (M,), for whatever reason: Σ b² enlarges the radius (section 12)."""
    for j in range(bias.shape[0]):
        costs.bias[stage, j] += bias[j] * bias[j]


@kernel
def observe_value(values: Values, stage: int, feature: Vector, reward: float, next_slot: int, work: Matrix) -> None:
    """Add one outcome to the value regression; -1 if no state follows, or where another store keeps it."""
    size = feature.shape[0]
    direction, rotated = work[0], work[1]
    for k in range(size):
        values.reward_moment[stage, k] += reward * feature[k]
        if next_slot >= 0:
            values.transition_moment[stage, next_slot, k] += feature[k]
        direction[k] = feature[k]
        rotated[k] = feature[k]
    whiten(values.factor[stage], direction, size)
    scale = 1.0
    for k in range(size):
        scale += direction[k] * direction[k]
    slot = owe_update(values.owed, stage, scale)
    if slot >= 0:
        unwhiten(values.factor[stage], direction, size)
        for k in range(size):
            values.owed.direction[stage, slot, k] = direction[k]
    values.log_det[stage] += np.log(scale)
    values.updates[stage] += 1
    update_factor(values.factor[stage], rotated, size)
    if values.updates[stage] % LOG_DET_EVERY == 0:
        values.log_det[stage] = log_det_of(values.factor[stage], values.ridge)


@kernel
def log_det_of(factor: Matrix, ridge: float) -> float:
    """log det(A/λ) from the diagonal of U, so that the rounding of a running sum cannot pile up."""
    total = 0.0
    for k in range(factor.shape[0]):
        total += 2.0 * np.log(factor[k, k]) - np.log(ridge)
    return total


@kernel
def spectrum_is_old(costs: Costs, stage: int) -> bool:
    """Whether `least` and the grid's log-determinants lag behind the data."""
    return costs.log_det[stage] - costs.grid_at[stage] >= SPECTRUM_LAG * costs.gram.shape[1]


def refresh_spectrum(costs: Costs) -> None:
    """Keep `least` and `grid_log_det` near the data, at every stage. Between two calls both stay on the safe side:

    V only grows, so an old least eigenvalue is a lower bound; and log det(I + V/λ_j) has grown by at most as much as
    log det(A/λ) when λ_j >= λ, which `cost_radius` adds.
    """
    for stage in range(len(costs.log_det)):
        if spectrum_is_old(costs, stage) and np.isfinite(costs.gram[stage]).all():
            eigenvalues = np.linalg.eigvalsh(costs.gram[stage])
            # what the solver and the rounding of products in A may have done to an eigenvalue
            error = 64.0 * len(eigenvalues) * ULP * eigenvalues[-1]
            costs.least[stage] = max(eigenvalues[0] - costs.ridge - error, 0.0)
            data = np.maximum(eigenvalues - costs.ridge + error, 0.0)
            costs.grid_log_det[stage] = np.log1p(data / costs.grid[stage][:, None]).sum(axis=1)
            costs.grid_at[stage] = costs.log_det[stage]


# Facts


@kernel
def remember(costs: Costs, stage: int, phi_0: Vector, baseline_cost: Vector, gamma_norm: Vector, work: Matrix) -> bool:
    """Remember ⟨γ*, f⟩ = τ_s (M,): γ* is then known on one more direction, unless f (nearly) adds none.

    Returns whether something was learned. A fact within the span of the others is compared with what they say; dropping
    a fact is always allowed, since the others hold without it. `work` (>= 3, d) is scratch.
    """
    facts = costs.facts
    size, rank = phi_0.shape[0], facts.rank[stage]
    inside = work[0]
    norm2, rest2 = 0.0, 0.0
    for k in range(size):
        norm2 += phi_0[k] * phi_0[k]
    into_subspace(facts.basis[stage], rank, phi_0, inside)
    for i in range(rank):
        rest2 += inside[i] * inside[i]
    norm, rest = np.sqrt(norm2), np.sqrt(rest2)
    # errors grow by 1/rest at least, so that there is nothing to compute where that alone is too much
    apart = rest2 > 0.0 and norm <= AMPLIFIED * rest
    amplified = amplification_with(facts, stage, phi_0, rest2, work) if apart else np.inf
    news = rank > 0 and amplified * norm <= AMPLIFIED  # false too if something is not finite
    for j in range(baseline_cost.shape[0]):
        rounding = 16.0 * ULP * (abs(baseline_cost[j]) + norm * gamma_norm[j])
        missed = 0.0 if news else abs(dot(facts.known[stage, j], phi_0) - baseline_cost[j]) - rest * gamma_norm[j]
        explained = facts.amplification[stage] * norm * facts.misfit[stage, j]
        missed = 0.0 if missed <= explained else missed
        facts.misfit[stage, j] = max(facts.misfit[stage, j], max(rounding, missed))
    if news:
        accept_fact(costs, stage, phi_0, baseline_cost, rest, work)
        facts.amplification[stage] = amplified
    return news


@kernel
def amplification_with(facts: Facts, stage: int, phi_0: Vector, rest2: float, work: Matrix) -> float:
    """What an error of 1 in every fact may do to γ* on their span once f is one of them: √J ‖R^{-1}‖ (Frobenius).

    The facts' features are QR with Q in the last columns of the basis, the newest first; R^{-1} grows by one column,
    whose part above the diagonal, R^{-1}Qᵀf (J,), goes into the third row of `work`.
    """
    size = phi_0.shape[0]
    held = size - facts.rank[stage]
    along, solved = work[1], work[2]
    old2, new2 = 0.0, 1.0
    for i in range(held):
        along[i] = 0.0
        for k in range(size):
            along[i] += facts.basis[stage, k, size - 1 - i] * phi_0[k]
    for i in range(held):
        solved[i] = 0.0
        for k in range(i, held):
            solved[i] += facts.inverse[stage, i, k] * along[k]
            old2 += facts.inverse[stage, i, k] * facts.inverse[stage, i, k]
        new2 += solved[i] * solved[i]
    return np.sqrt((held + 1.0) * (old2 + new2 / rest2))


@kernel
def accept_fact(costs: Costs, stage: int, phi_0: Vector, baseline_cost: Vector, rest: float, work: Matrix) -> None:
    """Move one direction from what is open to what is known. The first row of `work` holds f in the open basis."""
    facts = costs.facts
    size, rank = phi_0.shape[0], facts.rank[stage]
    inside, solved, last, held = work[0], work[2], rank - 1, size - rank
    if facts.count[stage] == 0:
        for k in range(size):
            for i in range(size):
                facts.inside[stage, k, i] = costs.factor[stage, k, i]
    for i in range(rank):
        inside[i] /= rest
    drop_direction(facts, stage, inside)
    along = 0.0  # ± rest: f along the direction that is now the last of the open ones
    for k in range(size):
        along += facts.basis[stage, k, last] * phi_0[k]
    for j in range(baseline_cost.shape[0]):
        missing = (baseline_cost[j] - dot(facts.known[stage, j], phi_0)) / along
        for k in range(size):
            facts.known[stage, j, k] += missing * facts.basis[stage, k, last]
    for i in range(held):
        facts.inverse[stage, i, held] = -solved[i] / along
    facts.inverse[stage, held, held] = 1.0 / along
    facts.rank[stage] = last
    facts.count[stage] += 1
    costs.owed.count[stage] = PENDING + 1


@kernel
def drop_direction(facts: Facts, stage: int, unit: Vector) -> None:
    """Turn the basis, and the factor of BᵀAB with it, so that `unit` (p,) is its last column, which is then left out.

    A reflection H = I − vvᵀ·2/‖v‖² does it: B ← BH, U ← UH, and rotations make U triangular again.
    """
    size, rank = facts.basis.shape[1], facts.rank[stage]
    last = rank - 1
    unit[last] += 1.0 if unit[last] >= 0.0 else -1.0
    norm2 = 0.0
    for i in range(rank):
        norm2 += unit[i] * unit[i]
    for k in range(size):
        along = 0.0
        for i in range(rank):
            along += facts.basis[stage, k, i] * unit[i]
        for i in range(rank):
            facts.basis[stage, k, i] -= 2.0 * along / norm2 * unit[i]
    for k in range(rank):
        along = 0.0
        for i in range(k, rank):
            along += facts.inside[stage, k, i] * unit[i]
        for i in range(rank):
            old = facts.inside[stage, k, i] if i >= k else 0.0
            facts.inside[stage, k, i] = old - 2.0 * along / norm2 * unit[i]
    for column in range(last):
        for k in range(rank - 1, column, -1):  # rotate rows k - 1 and k until this entry is 0
            above, below = facts.inside[stage, k - 1, column], facts.inside[stage, k, column]
            length = np.sqrt(above * above + below * below)
            if length > 0.0:
                cosine, sine = above / length, below / length
                for i in range(column, last):
                    p, q = facts.inside[stage, k - 1, i], facts.inside[stage, k, i]
                    facts.inside[stage, k - 1, i] = cosine * p + sine * q
                    facts.inside[stage, k, i] = cosine * q - sine * p
            facts.inside[stage, k, column] = 0.0
        if facts.inside[stage, column, column] < 0.0:
            for i in range(column, last):
                facts.inside[stage, column, i] = -facts.inside[stage, column, i]


@kernel
def remember_roughly(costs: Costs, stage: int, phi_0: Vector, baseline_cost: Vector) -> None:
    """Count a safe cost that is known up to an error bar; it takes effect when the next weight is chosen."""
    facts = costs.facts
    facts.visits[stage] += 1.0
    for k in range(phi_0.shape[0]):
        for i in range(phi_0.shape[0]):
            facts.gram[stage, k, i] += phi_0[k] * phi_0[i]
    for j in range(baseline_cost.shape[0]):
        facts.square[stage, j] += baseline_cost[j] * baseline_cost[j]
        for k in range(phi_0.shape[0]):
            facts.moment[stage, j, k] += baseline_cost[j] * phi_0[k]


@kernel
def condition_number(costs: Costs, stage: int) -> float:
    """An upper bound on the condition number of A: its trace over a lower bound on its least eigenvalue."""
    return trace_of(costs.gram, stage) / (costs.ridge + costs.least[stage])


@kernel
def trace_of(gram: Cube, stage: int) -> float:
    """The trace of one stage's matrix; of A it is λd + Σ‖φ‖²."""
    trace = 0.0
    for k in range(gram.shape[1]):
        trace += gram[stage, k, k]
    return trace


@kernel
def relative_error(costs: Costs, stage: int) -> float:
    """A bound ρ on what rounding does to ‖x‖_{A^{-1}}, relative to itself: 8 n ulp √cond(A) (theory, section 19).

    The errors of n rotations may all point the same way (one repeated feature does that), so they count n times.
    """
    return 8.0 * ULP * (1.0 + costs.updates[stage]) * np.sqrt(condition_number(costs, stage))


def inverse_norm(features: Array, factor: Array) -> Array:
    """‖x‖_{A^{-1}} for each row x: (N, p), (p, p) -> (N,)."""
    norms = np.empty(len(features))
    for row, x in enumerate(features):
        v = np.array(x, dtype=np.float64)
        whiten(factor, v, len(v))
        norms[row] = np.linalg.norm(v)
    return norms


use(globals())
