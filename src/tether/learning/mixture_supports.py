"""Closed forms of the inner problem of Algorithm 2 on a given support.

With inner products taken in C^{-1} (vectors whitened by its factor), stationarity reads
p − λ(b + βCx/√(xᵀCx)) − μ1 = 0. Written as y = p − λb − μ1 this is x ∝ C^{-1}y with ‖y‖ = λβ: a quadratic equation for
λ when the cap 1ᵀx <= 1 is slack (μ = 0), one linear and one quadratic equation for (λ, μ) when it is tight. Two actions
under a tight cap lie on a line, and need no multipliers.
"""

import numpy as np
from numpy.typing import NDArray

from tether.compiled import lean
from tether.records import Array

SINGULAR = 1e-11
"""A pivot below this part of its diagonal means that the residuals of a support are dependent."""


@lean
def roots(a: float, half_b: float, c: float) -> tuple[float, float]:
    """Both roots of a t² + 2 half_b t + c = 0 without cancellation; NaN where there is none."""
    inside = half_b * half_b - a * c
    if not inside >= 0.0:
        return np.nan, np.nan
    large = -half_b - np.sqrt(inside) if half_b > 0.0 else -half_b + np.sqrt(inside)
    first = large / a if a != 0.0 else np.nan
    second = c / large if large != 0.0 else first
    return first, second


@lean
def uncapped(p: Array, b: Array, size: int, radius: float, y: Array) -> float:
    """The direction y (whitened) of the optimum when only g(x) <= δ binds; returns λ, or 0 if there is none.

    y = p − λb with (β² − ‖b‖²)λ² + 2⟨p, b⟩λ − ‖p‖² = 0. Where ‖b‖ > β, λ is close to α = ⟨p, b⟩/‖b‖², and solving for
    e = α − λ keeps the digits of y: with p = αb + r, (‖b‖² − β²)e² + 2αβ²e + ‖r‖² − α²β² = 0 and y = r + e b.
    """
    square, bb, pb = radius * radius, inner_product(b, b, size), inner_product(p, b, size)
    best = 0.0
    if bb <= square:
        for multiplier in roots(square - bb, pb, -inner_product(p, p, size)):
            if multiplier > best and pb + multiplier * (square - bb) > 0.0:
                best = multiplier
        for i in range(size):
            y[i] = p[i] - best * b[i]
        return best
    alpha, rr, at = pb / bb, 0.0, 0.0
    for i in range(size):
        rr += (p[i] - alpha * b[i]) ** 2
    for e in roots(bb - square, alpha * square, rr - alpha * alpha * square):
        if alpha - e > best and e * bb + (alpha - e) * square > 0.0:
            best, at = alpha - e, e
    for i in range(size):
        y[i] = p[i] - alpha * b[i] + at * b[i]
    return best


@lean
def capped(p: Array, b: Array, ones: Array, size: int, radius: float, slack: float, y: Array) -> float:
    """The direction y (whitened) of the optimum when 1ᵀx = 1 binds too; returns λ, or 0 if there is none.

    With D = b − δ1 and ν = μ + λδ, the value: y = p − λD − ν1, ⟨D, y⟩ = −λβ² and ‖y‖ = λβ.
    """
    square = radius * radius
    dd = do = dp = 0.0
    for i in range(size):
        d = b[i] - slack * ones[i]
        dd += d * d
        do += d * ones[i]
        dp += d * p[i]
    along, across = dd - square, do  # along λ + across ν = dp
    length2 = along * along + across * across
    if not length2 > 0.0:
        return 0.0
    length = np.sqrt(length2)
    lam_0, nu_0 = dp * along / length2, dp * across / length2
    lam_t, nu_t = -across / length, along / length
    ee = ef = ff = 0.0
    for i in range(size):
        d = b[i] - slack * ones[i]
        e = p[i] - lam_0 * d - nu_0 * ones[i]
        f = lam_t * d + nu_t * ones[i]
        ee += e * e
        ef += e * f
        ff += f * f
    best, at = 0.0, np.nan
    for t in roots(ff - square * lam_t * lam_t, -(ef + square * lam_0 * lam_t), ee - square * lam_0 * lam_0):
        total = 0.0
        for i in range(size):
            d = b[i] - slack * ones[i]
            total += ones[i] * (p[i] - (lam_0 + t * lam_t) * d - (nu_0 + t * nu_t) * ones[i])
        value = nu_0 + t * nu_t
        if lam_0 + t * lam_t > 0.0 and total > 0.0 and (at != at or value > best):
            best, at = value, t
    if at != at:
        return 0.0
    for i in range(size):
        d = b[i] - slack * ones[i]
        y[i] = p[i] - (lam_0 + at * lam_t) * d - (nu_0 + at * nu_t) * ones[i]
    return float(lam_0 + at * lam_t)


@lean
def capped_pair(gain: Array, rise: Array, joint: Array, radius: float, slack: float, first: int, second: int) -> float:
    """The probability t of `first`, with 1 − t on `second`, where g = δ keeps pᵀx from growing; NaN if nowhere.

    (b_2 − δ + t(b_1 − b_2))² = β² xᵀCx is a quadratic equation in t. No multiplier enters: those of `capped` lose the
    digits of t where two scores differ by a small part of themselves.
    """
    square, start, along = radius * radius, rise[second] - slack, rise[first] - rise[second]
    c0, c1 = joint[second, second], joint[first, second] - joint[second, second]
    c2 = joint[first, first] - joint[first, second] - c1
    for t in roots(along * along - square * c2, start * along - square * c1, start * start - square * c0):
        over = start + t * along  # = −β √(xᵀCx) where g = δ
        steepness = square * (c1 + t * c2) - over * along  # the sign of dg/dt
        if over <= 0.0 and (gain[first] - gain[second]) * steepness > 0.0:
            return float(t)
    return np.nan


@lean
def on_support(
    gain: Array,
    rise: Array,
    joint: Array,
    radius: float,
    slack: float,
    support: NDArray[np.int64],
    size: int,
    factor: Array,
    work: Array,
    x: Array,
) -> bool:
    """The stationary point on a support into x (n,), zero elsewhere, some entries negative. False if there is none."""
    if not factorise(joint, support, size, factor):
        return False
    p, b, ones, y = work[0], work[1], work[2], work[3]
    for i in range(size):
        p[i], b[i], ones[i] = gain[support[i]], rise[support[i]], 1.0
    whitened(factor, size, p)
    whitened(factor, size, b)
    multiplier = uncapped(p, b, size, radius, y)
    scale = 0.0
    if multiplier > 0.0:
        # g(y) = ⟨b, y⟩ + β‖y‖ with ‖y‖ = λβ
        scale = slack / (inner_product(b, y, size) + radius * radius * multiplier)
        unwhitened(factor, size, y)
        total = 0.0
        for i in range(size):
            total += y[i] * scale
        if not (0.0 < scale < np.inf and total <= 1.0):
            scale = 0.0
    for i in range(x.shape[0]):
        x[i] = 0.0
    if scale == 0.0 and size == 2:
        share = capped_pair(gain, rise, joint, radius, slack, support[0], support[1])
        x[support[0]], x[support[1]] = share, 1.0 - share
        return -np.inf < share < np.inf
    if scale == 0.0:
        whitened(factor, size, ones)
        if not capped(p, b, ones, size, radius, slack, y) > 0.0:
            return False
        unwhitened(factor, size, y)
        total = 0.0
        for i in range(size):
            total += y[i]
        scale = 1.0 / total
        if not 0.0 < scale < np.inf:
            return False
    for i in range(size):
        x[support[i]] = y[i] * scale
    return True


@lean
def factorise(joint: Array, support: NDArray[np.int64], size: int, factor: Array) -> bool:
    """The lower Cholesky factor of C on a support, False if it is (nearly) singular. (n, n) -> (size, size)."""
    for i in range(size):
        for j in range(i + 1):
            total = joint[support[i], support[j]]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                if not total > SINGULAR * joint[support[i], support[i]]:
                    return False
                factor[i, i] = np.sqrt(total)
            else:
                factor[i, j] = total / factor[j, j]
    return True


@lean
def whitened(factor: Array, size: int, v: Array) -> None:
    """L^{-1} v in place."""
    for i in range(size):
        for k in range(i):
            v[i] -= factor[i, k] * v[k]
        v[i] /= factor[i, i]


@lean
def unwhitened(factor: Array, size: int, v: Array) -> None:
    """L^{-T} v in place."""
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            v[i] -= factor[k, i] * v[k]
        v[i] /= factor[i, i]


@lean
def inner_product(a: Array, b: Array, size: int) -> float:
    """⟨a, b⟩ over the first `size` entries."""
    total = 0.0
    for i in range(size):
        total += a[i] * b[i]
    return total
