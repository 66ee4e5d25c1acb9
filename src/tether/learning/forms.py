"""Products and quadratic forms of many columns at once; every inner loop runs along memory and vectorises."""

import numpy as np

from tether.compiled import compiled, lean
from tether.records import Array

BLOCK = 512
"""Rows that are projected together, so that the partial sums stay in the first-level cache."""

TILE = 3200
"""Numbers (d times columns) that are whitened together: 25 kB stay in a first-level cache of 32 kB."""


@lean
def add_rows(matrix: Array, top: int, bottom: int, left: int, weights: Array, sign: float, out: Array) -> None:
    """out[i] += sign · Σ_k weights[k] matrix[k, left + i] over the rows top <= k < bottom: (., .), (.,), (n,).

    Four rows in one pass over `out`, which then is loaded and stored a quarter as often. The terms are added one by
    one in the order of k, as a plain loop would: the same bits.
    """
    size = out.shape[0]
    right = left + size
    paired = top + (bottom - top) // 4 * 4
    for k in range(top, paired, 4):
        a, b = matrix[k, left:right], matrix[k + 1, left:right]
        c, d = matrix[k + 2, left:right], matrix[k + 3, left:right]
        p, q, r, s = sign * weights[k], sign * weights[k + 1], sign * weights[k + 2], sign * weights[k + 3]
        for i in range(size):
            out[i] = out[i] + a[i] * p + b[i] * q + c[i] * r + d[i] * s
    for k in range(paired, bottom):
        row = matrix[k, left:right]
        weight = sign * weights[k]
        for i in range(size):
            out[i] += row[i] * weight


@lean
def project_rows(features: Array, count: int, vector: Array, out: Array) -> None:
    """out[i] = ⟨vector, column i⟩ for i < count: the bare matrix–vector product. features (d, R).

    Loops run from 0 over slices: only then does the compiler know that no index is negative, and vectorise.
    """
    for block in range(0, count, BLOCK):
        end = min(block + BLOCK, count)
        size = end - block
        sums = out[block:end]
        column = features[0, block:end]
        weight = vector[0]
        for i in range(size):
            sums[i] = column[i] * weight
        add_rows(features, 1, features.shape[0], block, vector, 1.0, sums)


@lean
def inner(columns: Array, column: int, vector: Array) -> float:
    """⟨vector, column⟩: (d, S), (d,) -> scalar."""
    total = 0.0
    for k in range(vector.shape[0]):
        total += columns[k, column] * vector[k]
    return total


@compiled
def project_columns(basis: Array, columns: Array) -> Array:
    """basisᵀ · columns: (d, p), (d, n) -> (p, n)."""
    dimension, rank = basis.shape
    if rank == dimension:
        return columns.copy()
    inside = np.zeros((rank, columns.shape[1]))
    weights = np.empty(dimension)
    for j in range(rank):
        for k in range(dimension):
            weights[k] = basis[k, j]
        add_rows(columns, 0, dimension, 0, weights, 1.0, inside[j])
    return inside


@compiled
def turned(factor: Array) -> Array:
    """Uᵀ, row by row in memory: (p, p)."""
    size = factor.shape[0]
    lower = np.empty((size, size))
    for k in range(size):
        for j in range(size):
            lower[j, k] = factor[k, j]
    return lower


@lean
def whiten_columns(lower: Array, columns: Array) -> None:
    """U^{-T} times each column, in place; `lower` is Uᵀ: (p, p), (p, n)."""
    size, count = columns.shape
    for j in range(size):
        row, pivot = columns[j], lower[j, j]
        add_rows(columns, 0, j, 0, lower[j], -1.0, row)
        for i in range(count):
            row[i] /= pivot


@lean
def conditioned_forms(x: Array, f: Array, known: bool, width2: Array, cross: Array) -> float:
    """width2 and cross of whitened candidates x (p, n) given whitened f (p,); returns g00.

    With `known` the regression already lives where f has no part, so there is nothing to condition on.
    """
    size, count = x.shape
    g00 = 0.0
    for k in range(size):
        g00 += f[k] * f[k]
    for i in range(count):
        width2[i] = 0.0
        cross[i] = 0.0
    if known:
        for k in range(size):
            for i in range(count):
                width2[i] += x[k, i] * x[k, i]
        return 1.0
    for k in range(size):
        for i in range(count):
            cross[i] += x[k, i] * f[k]
    for k in range(size):
        part = f[k] / g00
        for i in range(count):
            residual = x[k, i] - cross[i] * part
            width2[i] += residual * residual
    return g00


@compiled
def residual_products(x: Array, f: Array, known: bool, cross: Array, g00: float, out: Array) -> None:
    """RᵀR of the residuals R = x − f cross/g00 of whitened candidates x (p, n): into the first n columns of out (n, W).

    A product of residuals, never a difference of products: only so does it stay positive semi-definite when λ is small.
    """
    size, count = x.shape
    for i in range(count):
        for j in range(i + 1):
            out[i, j] = 0.0
    residual = np.empty(count)
    for k in range(size):
        part = 0.0 if known else f[k] / g00
        for i in range(count):
            residual[i] = x[k, i] - cross[i] * part
        for i in range(count):
            for j in range(i + 1):
                out[i, j] += residual[i] * residual[j]
    for i in range(count):
        for j in range(i):
            out[j, i] = out[i, j]


@lean
def plain_forms(x: Array, f: Array, vxx: Array, v0x: Array) -> float:
    """vxx and v0x of whitened candidates x (d, n) and f (d,); returns v00."""
    size, count = x.shape
    v00 = 0.0
    for i in range(count):
        vxx[i] = 0.0
        v0x[i] = 0.0
    for k in range(size):
        v00 += f[k] * f[k]
        for i in range(count):
            vxx[i] += x[k, i] * x[k, i]
            v0x[i] += x[k, i] * f[k]
    return v00
