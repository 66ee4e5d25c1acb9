"""Ridge regression by sums: Gram matrices A = λI + Σ φφᵀ, their factors, and rank-one updates.

A is kept as the upper triangular U with A = UᵀU, so that every inner loop runs along a row of memory.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, lean
from tether.learning.forms import add_rows
from tether.records import Array

PENDING = 4
"""Rank-one updates that tables may still owe; past that they are rebuilt from the factor."""

LOG_DET_EVERY = 4096
"""Updates after which log det(A/λ) is taken from U itself. U is never recomputed from A: rotations keep its digits,
while the sum A loses as many as its condition number has (after 1e6 updates at λ = 1: 1.6e-13 against 1.7e-9)."""


GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridges λ_j of the mixtures behind `grid_radius`; fixed before any data, since each spends its share of δ."""

ULP = 2.0**-52

LONG = 8
"""Triangles of at least this size are solved four rows at a time."""

SPECTRUM_LAG = 0.05
"""The spectrum of V is computed afresh once log det(A) has grown by this much per dimension."""


class Ridge(NamedTuple):
    """Sums and factors, one block per stage g = 0..G-1 (G = H, or 1 when steps are pooled).

    The regression may live in a subspace of R^d spanned by the columns of `basis` (d, p): that is how exact
    linear facts about γ* are used (THEORY section 6). `pending` holds g = A^{-1}φ, lifted back to R^d, with
    D = 1 + φᵀg for each update that the tables of THEORY section 3 have not seen yet.
    """

    ridge: float  # λ
    basis: Array  # (d, p); the identity unless facts are known
    gram: Array  # A_h, starting at λI (G, p, p)
    factor: Array  # U, A = UᵀU (G, p, p)
    log_det: Array  # log det(A_h / λ) (G,)
    updates: NDArray[np.int64]  # (G,)
    pending: Array  # (G, PENDING, d)
    pending_scale: Array  # D (G, PENDING)
    pending_count: NDArray[np.int64]  # (G,); above PENDING means "rebuild"
    growth: Array  # Σ log D since the tables were rebuilt (G,)
    least: Array  # a lower bound on the least eigenvalue of V = A − λI (G,)
    grid_log_det: Array  # log det(I + V/λ_j) for each λ_j of GRID, when `least` was computed (G, J)
    grid_at: Array  # log_det at that time (G,)


def new_ridge(stages: int, ridge: float, basis: Array) -> Ridge:
    """A_h = λI for every stage; basis (d, p)."""
    dimension, rank = basis.shape
    return Ridge(
        ridge=ridge,
        basis=np.ascontiguousarray(basis),
        gram=np.tile(ridge * np.eye(rank), (stages, 1, 1)),
        factor=np.tile(np.sqrt(ridge) * np.eye(rank), (stages, 1, 1)),
        log_det=np.zeros(stages),
        updates=np.zeros(stages, dtype=np.int64),
        pending=np.zeros((stages, PENDING, dimension)),
        pending_scale=np.ones((stages, PENDING)),
        pending_count=np.full(stages, PENDING + 1, dtype=np.int64),
        growth=np.zeros(stages),
        least=np.zeros(stages),
        grid_log_det=np.zeros((stages, len(GRID))),
        grid_at=np.zeros(stages),
    )


@lean
def whiten(factor: Array, x: Array) -> None:
    """U^{-T} x in place: ‖result‖ = ‖x‖_{A^{-1}}. factor (p, p), x (p,). From d = 8 on, four rows at a time."""
    size = x.shape[0]
    begin = 0
    for end in range(4, size if size >= LONG else 0, 4):
        for k in range(begin, end):
            x[k] /= factor[k, k]
            for i in range(k + 1, end):
                x[i] -= factor[k, i] * x[k]
        add_rows(factor, begin, end, end, x, -1.0, x[end:])
        begin = end
    for k in range(begin, size):
        x[k] /= factor[k, k]
        for i in range(k + 1, size):
            x[i] -= factor[k, i] * x[k]


@lean
def unwhiten(factor: Array, v: Array) -> None:
    """U^{-1} v in place; after `whiten` this gives A^{-1}x. factor (p, p), v (p,).

    From d = 8 on, four rows at a time: four sums that do not wait for each other.
    """
    size = v.shape[0]
    end = size
    while end >= 4 and size >= LONG:
        k = end - 4
        rest, a, b, c, d = v[end:], factor[k, end:], factor[k + 1, end:], factor[k + 2, end:], factor[k + 3, end:]
        p, q, r, s = v[k], v[k + 1], v[k + 2], v[k + 3]
        for i in range(rest.shape[0]):
            p -= a[i] * rest[i]
            q -= b[i] * rest[i]
            r -= c[i] * rest[i]
            s -= d[i] * rest[i]
        s /= factor[k + 3, k + 3]
        r = (r - factor[k + 2, k + 3] * s) / factor[k + 2, k + 2]
        q = (q - factor[k + 1, k + 2] * r - factor[k + 1, k + 3] * s) / factor[k + 1, k + 1]
        p = (p - factor[k, k + 1] * q - factor[k, k + 2] * r - factor[k, k + 3] * s) / factor[k, k]
        v[k], v[k + 1], v[k + 2], v[k + 3] = p, q, r, s
        end = k
    for k in range(end - 1, -1, -1):
        total = v[k]
        for i in range(k + 1, size):
            total -= factor[k, i] * v[i]
        v[k] = total / factor[k, k]


@compiled
def solve(factor: Array, moment: Array) -> Array:
    """A^{-1} b by two triangular solves: (p, p), (p,) -> (p,)."""
    solution = moment.copy()
    whiten(factor, solution)
    unwhiten(factor, solution)
    return solution


@lean
def update_factor(factor: Array, x: Array) -> None:
    """U after A ← A + xxᵀ, by plane rotations; x (p,) is used up.

    Rotations are orthogonal, so the error stays that of U, relative to √cond(A); A itself would lose cond(A).
    """
    size = x.shape[0]
    for k in range(size):
        old = factor[k, k]
        new = np.sqrt(old * old + x[k] * x[k])
        cosine, sine = old / new, x[k] / new
        factor[k, k] = new
        row, rest = factor[k, k + 1 :], x[k + 1 :]
        for i in range(row.shape[0]):
            before, other = row[i], rest[i]
            row[i] = cosine * before + sine * other
            rest[i] = cosine * other - sine * before


@compiled
def project(basis: Array, x: Array) -> Array:
    """Coordinates of x in the subspace of the regression: basisᵀ x, (d, p), (d,) -> (p,)."""
    dimension, rank = basis.shape
    if rank == dimension:
        return x.copy()
    inside = np.zeros(rank)
    for k in range(dimension):
        for i in range(rank):
            inside[i] += basis[k, i] * x[k]
    return inside


@compiled
def lift(basis: Array, inside: Array) -> Array:
    """basis · inside: back to R^d, (d, p), (p,) -> (d,)."""
    dimension, rank = basis.shape
    if rank == dimension:
        return inside.copy()
    x = np.zeros(dimension)
    for k in range(dimension):
        total = 0.0
        for i in range(rank):
            total += basis[k, i] * inside[i]
        x[k] = total
    return x


@compiled
def add_observation(ridge: Ridge, stage: int, feature: Array) -> None:
    """A ← A + φφᵀ for one observation φ (d,), with its factor, log-determinant and pending table update."""
    inside = project(ridge.basis, feature)
    rank = inside.shape[0]
    if rank == 0:
        return
    factor = ridge.factor[stage]
    direction = inside.copy()
    whiten(factor, direction)
    scale = 1.0
    for i in range(rank):
        scale += direction[i] * direction[i]
    slot = ridge.pending_count[stage]
    if slot < PENDING:  # otherwise the tables are rebuilt, and nobody asks for A^{-1}φ
        unwhiten(factor, direction)
        lifted = lift(ridge.basis, direction)
        for k in range(lifted.shape[0]):
            ridge.pending[stage, slot, k] = lifted[k]
        ridge.pending_scale[stage, slot] = scale
    ridge.pending_count[stage] = min(slot + 1, PENDING + 1)
    ridge.growth[stage] += np.log(scale)
    ridge.log_det[stage] += np.log(scale)
    ridge.updates[stage] += 1
    gram = ridge.gram[stage]
    for k in range(rank):
        for i in range(rank):
            gram[k, i] += inside[k] * inside[i]
    update_factor(factor, inside)
    if ridge.updates[stage] % LOG_DET_EVERY == 0:
        recompute_log_det(ridge, stage)


@compiled
def recompute_log_det(ridge: Ridge, stage: int) -> None:
    """log det(A/λ) from the diagonal of U, so that the rounding of a running sum cannot pile up."""
    total = 0.0
    for k in range(ridge.factor.shape[1]):
        total += 2.0 * np.log(ridge.factor[stage, k, k]) - np.log(ridge.ridge)
    ridge.log_det[stage] = total


@compiled
def refresh_spectrum(ridge: Ridge, stage: int) -> None:
    """Keep `least` and `grid_log_det` near the data. Between two calls both stay on the safe side:

    V only grows, so an old least eigenvalue is a lower bound; and log det(I + V/λ_j) has grown by at most as much as
    log det(A/λ) when λ_j >= λ, which `grid_log_dets` adds.
    """
    size = ridge.gram.shape[1]
    if size == 0 or ridge.log_det[stage] - ridge.grid_at[stage] < SPECTRUM_LAG * size:
        return
    eigenvalues = np.linalg.eigvalsh(ridge.gram[stage])
    error = 1e-12 * eigenvalues[size - 1]
    ridge.least[stage] = max(eigenvalues[0] - ridge.ridge - error, 0.0)
    for j in range(len(GRID)):
        total = 0.0
        for k in range(size):
            total += np.log(1.0 + max(eigenvalues[k] - ridge.ridge + error, 0.0) / GRID[j])
        ridge.grid_log_det[stage, j] = total
    ridge.grid_at[stage] = ridge.log_det[stage]


@compiled
def condition(ridge: Ridge, stage: int) -> float:
    """An upper bound on the condition number of A: its trace over a lower bound on its least eigenvalue."""
    trace = 0.0
    for k in range(ridge.gram.shape[1]):
        trace += ridge.gram[stage, k, k]
    bound: float = trace / (ridge.ridge + ridge.least[stage])
    return bound


@compiled
def relative_error(ridge: Ridge, stage: int) -> float:
    """A bound ρ on what rounding does to ‖x‖_{A^{-1}}, relative to itself: 4 ulp √n √cond(A).

    n rotations round independently, so errors grow like √n. Tests measure it over 1e6 updates at condition 1e8.
    """
    error: float = 4.0 * ULP * np.sqrt((1.0 + ridge.updates[stage]) * condition(ridge, stage))
    return error


@compiled
def rounding_of_sum(ridge: Ridge, stage: int) -> float:
    """What rounding in a sum of n terms does to ‖A^{-1}b‖_A, per unit of ‖b‖: 4 ulp √n / √(least eigenvalue)."""
    error: float = 4.0 * ULP * np.sqrt((1.0 + ridge.updates[stage]) / (ridge.ridge + ridge.least[stage]))
    return error


def inverse_norm(features: Array, factor: Array) -> Array:
    """‖x‖_{A^{-1}} for each row x: (N, p), (p, p) -> (N,)."""
    norms = np.empty(len(features))
    for row, x in enumerate(features):
        v = x.astype(np.float64)
        whiten(factor, v)
        norms[row] = np.linalg.norm(v)
    return norms
