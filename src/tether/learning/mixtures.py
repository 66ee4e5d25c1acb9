"""The inner problem of Algorithm 2 at one (h, s): the best mixture of actions whose expected cost is certified.

With x the probabilities of the actions other than a_0, p their score above a_0's, b their mean cost above τ_s, C the
products of their residuals (THEORY section 1) and δ = τ − τ_s, Eq. (14) reads

    maximise pᵀx  over  x >= 0,  1ᵀx <= 1,  g(x) = bᵀx + β √(xᵀCx) <= δ.

g is convex and homogeneous of degree one. So scaling x restores feasibility exactly, and any u with ‖u‖ <= 1 gives a
linear minorant of g; a linear program over that minorant bounds the optimum from above: the certificate.
"""

import numpy as np

from tether.compiled import lean
from tether.records import Array

PRODUCT_ROUNDING = 1e-13
"""Allowance on xᵀCx, in units of (Σ x_i √C_ii)²: what forming C in floating point may have lost."""

INWARD = 1.0 - 1e-14
"""Scaled solutions are rounded toward a_0."""


@lean
def width_of(joint: Array, x: Array) -> float:
    """√(xᵀCx), rounded up: (n, n), (n,) -> scalar."""
    square, spread = 0.0, 0.0
    for i in range(x.shape[0]):
        if x[i] != 0.0:
            row = 0.0
            for j in range(x.shape[0]):
                row += joint[i, j] * x[j]
            square += x[i] * row
            spread += abs(x[i]) * np.sqrt(joint[i, i])
    square = square if square > 0.0 or square != square else 0.0  # a NaN stays one, and certifies nothing
    width: float = np.sqrt(square + PRODUCT_ROUNDING * spread * spread)
    return width


@lean
def is_played(x: Array) -> bool:
    """Whether some action besides a_0 has a positive probability; none may be negative."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total > 0.0


@lean
def cost_rise(rise: Array, joint: Array, radius: float, x: Array) -> float:
    """g(x), rounded up: how far the certified expected cost of x lies above τ_s."""
    total = 0.0
    for i in range(x.shape[0]):
        total += rise[i] * x[i]
    return total + radius * width_of(joint, x)


@lean
def scale_back(rise: Array, joint: Array, radius: float, slack: float, x: Array) -> float:
    """Shrink x toward a_0 until it is a sub-distribution with g(x) <= δ; 0 if none is shown. Returns the factor."""
    total, actions, clean = 0.0, 0, True
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            total += x[i]
            actions += 1
        else:
            clean = clean and x[i] == x[i]
            x[i] = 0.0
    # one action may have probability 1; a sum of several must not exceed 1 in any order of summation
    factor = 1.0 if total <= (1.0 if actions == 1 else INWARD) else INWARD / total
    needed = cost_rise(rise, joint, radius, x)
    if needed * factor > slack:
        factor = INWARD * slack / needed
    if not (clean and factor > 0.0 and needed > -np.inf and slack > 0.0):
        factor = 0.0
    for attempt in range(3):
        for i in range(x.shape[0]):
            x[i] = x[i] * factor if factor > 0.0 else 0.0
        if factor == 0.0 or cost_rise(rise, joint, radius, x) <= slack:
            return factor
        factor = 1.0 - 1e-12 * 1000.0**attempt
    for i in range(x.shape[0]):
        x[i] = 0.0
    return 0.0


@lean
def linear_optimum(gain: Array, slope: Array, slack: float) -> tuple[float, int, int, float]:
    """max pᵀy over y >= 0, 1ᵀy <= 1, ⟨slope, y⟩ <= δ: its value, and the vertex that attains it.

    Two constraints leave at most two actions: `first` with 1 − share and `second` with share, or (second = -1) `first`
    with share. Every vertex is looked at, so the value is also an upper bound for whatever `slope` bounds from below.
    """
    size = gain.shape[0]
    best, first, second, share = 0.0, -1, -1, 0.0
    for i in range(size):
        alone = 1.0 if slope[i] <= slack else slack / slope[i]
        if gain[i] * alone > best:
            best, first, second, share = gain[i] * alone, i, -1, alone
    for i in range(size):
        if slope[i] < slack:
            for j in range(size):
                if slope[j] > slack and gain[j] > gain[i]:
                    part = (slack - slope[i]) / (slope[j] - slope[i])
                    value = gain[i] + part * (gain[j] - gain[i])
                    if value > best:
                        best, first, second, share = value, i, j, part
    return best, first, second, share


@lean
def slope_at(rise: Array, joint: Array, radius: float, x: Array, slope: Array) -> None:
    """A subgradient of g at x into `slope` (n,): b + β Cx/√(xᵀCx), or b where the root is 0."""
    square = 0.0
    for i in range(x.shape[0]):
        row = 0.0
        for j in range(x.shape[0]):
            row += joint[i, j] * x[j]
        slope[i] = row
        square += row * x[i]
    per_width = radius / np.sqrt(square) if square > 0.0 else 0.0
    for i in range(x.shape[0]):
        slope[i] = rise[i] + per_width * slope[i]


@lean
def best_pair(gain: Array, slope: Array, slack: float, x: Array) -> None:
    """The maximiser of `linear_optimum` into x (n,)."""
    _, first, second, share = linear_optimum(gain, slope, slack)
    for i in range(gain.shape[0]):
        x[i] = 0.0
    if second >= 0:
        x[first] = 1.0 - share
        x[second] = share
    elif first >= 0:
        x[first] = share
