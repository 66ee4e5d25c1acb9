"""The certified sets A_h^k(s) of Eq. (9), in the closed form of THEORY sections 1, 2 and 7.

The safe set is ridge regression conditioned on one exact observation, c(f) = τ_s: with share = fᵀGx / fᵀGf,

    mean(x)  = ⟨ĝ, x⟩ − share · (⟨ĝ, f⟩ − τ_s)
    width(x) = ‖x − share·f‖_G
    bound(x) = mean(x) + β · width(x)                     the left side of Eq. (9)

No per-state Gram matrix, pseudo-inverse or line search is formed. It is the posterior of a Gaussian process
with a linear kernel, conditioned on the noise-free fact that the safe action costs τ_s.
"""

import numpy as np

from tether.compiled import lean
from tether.records import Array

ROUNDING = 1e-9
"""Relative allowance, in units of ‖x‖_G, by which every width is enlarged.

Between two rebuilds det(A) grows by at most 16 and at most 64 updates are made. One update changes the true
width by rounding of at most 4 ulp (|g·x| + |share| |g·f|) <= 32 ulp ‖x‖_G, and `share` itself has by then
drifted by at most 64·16 ulp of its size, which adds 64·16·4 ulp ‖x‖_G: together under 64·(32 + 4096) ulp
‖x‖_G < 1e-10 ‖x‖_G. What the conditioning of A itself adds is `ridge.relative_error`, which enlarges the radius.
"""

INWARD = 1.0 - 1e-15
"""Lengths are rounded toward the safe action."""

OVERFLOW = -1e300
"""A bound below this is an overflow, not a cheap action."""

STATE, ALL, UNKNOWN, EXACT = 0, 1, 2, 3
"""What the cost regression is conditioned on: c(f) = τ_s here; the same everywhere; nothing; γ* itself."""


@lean
def state_radius(radius: float, residual: float, g00: float) -> float:
    """β_s = √(β_c² − (⟨ĝ,f⟩ − τ_s)²/g00), by Pythagoras (THEORY section 4). NaN means misspecified: alarm."""
    reduced: float = np.sqrt(radius * radius - residual * residual / g00)
    return reduced


@lean
def affine_lengths(
    mean: Array,
    width2: Array,
    cross: Array,
    g00: float,
    residual: float,
    baseline_cost: float,
    threshold: float,
    radius: float,
    is_star: bool,
    width: Array,
    length: Array,
    optimistic: Array,
) -> None:
    """Shrink `length` (certified) and `optimistic` to what one constraint allows on each ray; set `width`.

    mean holds ⟨ĝ, x⟩ on entry. bound((1−α)f + αx) = (1−α)τ_s + α bound(x), so α has a closed form (section 2).
    A comparison with NaN is false, and leaves the length at 0: the safe action.
    """
    slack = threshold - baseline_cost
    per_share = 1.0 / g00
    root = np.sqrt(g00)
    for i in range(mean.shape[0]):
        share = cross[i] * per_share
        w = np.sqrt(width2[i])
        w += ROUNDING * (w + abs(share) * root)
        width[i] = w
        m = mean[i] - share * residual
        upper = m + radius * w
        lower = m - radius * w
        if is_star:
            step = INWARD * slack / (upper - baseline_cost)
            hope = slack / (lower - baseline_cost)
        else:
            step = 0.0
            hope = 0.0
        step = 1.0 if OVERFLOW < upper <= threshold and slack > 0.0 else step
        hope = 1.0 if OVERFLOW < lower <= threshold and slack > 0.0 else hope
        # NaN and negative steps fail the comparison and give 0; `min` alone would let NaN through.
        length[i] = (step if step < length[i] else length[i]) if step > 0.0 else 0.0
        optimistic[i] = (hope if hope < optimistic[i] else optimistic[i]) if hope > 0.0 else 0.0


@lean
def bound_along(mean_0: float, mean: float, g00: float, g0x: float, gxx: float, radius: float, at: float) -> float:
    """⟨ĝ, x(α)⟩ + β ‖x(α)‖_G at α = `at`, without conditioning (THEORY section 7)."""
    rest = 1.0 - at
    norm2 = rest * rest * g00 + 2.0 * at * rest * g0x + at * at * gxx
    norm = np.sqrt(0.0 if norm2 < 0.0 else norm2) + ROUNDING * (np.sqrt(g00) + np.sqrt(gxx))
    bound: float = rest * mean_0 + at * mean + radius * norm
    return bound


@lean
def largest_unconditioned_step(
    mean_0: float, mean: float, g00: float, g0x: float, gxx: float, radius: float, threshold: float
) -> float:
    """The largest α in [0, 1] with bound_along <= τ: the larger root of a quadratic, then verified. 0 if none.

    A negative `radius` gives the optimistic step.
    """
    if OVERFLOW < bound_along(mean_0, mean, g00, g0x, gxx, radius, 1.0) <= threshold:
        return 1.0
    slope = mean - mean_0
    room = threshold - mean_0
    square = radius * radius
    a = square * (gxx - 2.0 * g0x + g00) - slope * slope
    b = square * (g0x - g00) + slope * room
    c = square * g00 - room * room
    inside = b * b - a * c
    if not inside >= 0.0:
        return 0.0
    root = np.sqrt(inside)
    # the stable pair of roots: one by the large-magnitude sum, the other by the product c/a
    large = -b - root if b > 0.0 else -b + root
    first = large / a
    second = c / large
    best = 0.0
    for candidate in (first, second):
        if 0.0 < candidate <= 1.0:
            shrink = 1e-12
            for _ in range(4):
                step = candidate * (1.0 - shrink)
                if OVERFLOW < bound_along(mean_0, mean, g00, g0x, gxx, radius, step) <= threshold:
                    best = max(best, step)
                    break
                shrink *= 100.0
    return best


@lean
def unconditioned_lengths(
    mean: Array,
    width2: Array,
    cross: Array,
    g00: float,
    mean_0: float,
    threshold: float,
    radius: float,
    is_star: bool,
    width: Array,
    length: Array,
    optimistic: Array,
) -> None:
    """As `affine_lengths`, when τ_h(s) is unknown. `width` is ‖x‖_G."""
    for i in range(mean.shape[0]):
        gxx = width2[i] + cross[i] * cross[i] / g00
        width[i] = np.sqrt(gxx)
        if is_star:
            step = largest_unconditioned_step(mean_0, mean[i], g00, cross[i], gxx, radius, threshold)
            hope = largest_unconditioned_step(mean_0, mean[i], g00, cross[i], gxx, -radius, threshold)
        else:
            upper = bound_along(mean_0, mean[i], g00, cross[i], gxx, radius, 1.0)
            step = 1.0 if OVERFLOW < upper <= threshold else 0.0
            hope = step
        # With several constraints the smaller step must satisfy them all; that is verified on the chosen ray.
        length[i] = (step if step < length[i] else length[i]) if step > 0.0 else 0.0
        optimistic[i] = (hope if hope < optimistic[i] else optimistic[i]) if hope > 0.0 else 0.0


def conditioned_cost(
    x: Array, phi_0: Array, factor: Array, gamma_hat: Array, baseline_cost: float
) -> tuple[Array, Array]:
    """Mean and width of the cost of each row x, given c(phi_0) = baseline_cost. (N, d) -> (N,), (N,).

    The plain form of THEORY section 1, for reading, for tests and for gates that must not share code with the
    tables: whiten, remove the part along phi_0, and take the norm of what is left.
    """
    whitened = np.linalg.solve(factor.T, np.vstack([phi_0, x]).T)
    e, v = whitened[:, 0], whitened[:, 1:].T
    share = v @ e / (e @ e)
    mean = x @ gamma_hat - share * (phi_0 @ gamma_hat - baseline_cost)
    width = np.linalg.norm(v - share[:, None] * e, axis=1)
    return mean, width + ROUNDING * np.linalg.norm(v, axis=1)
