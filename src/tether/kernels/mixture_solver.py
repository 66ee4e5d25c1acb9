"""The inner problem of Algorithm 2 at one (h, s): the best mixture of actions whose expected cost is certified.

With x the probabilities of the actions other than a_0, p their score above a_0's, b their mean cost above τ_s, C the
products of their residuals (docs/theory.md section 1) and δ = τ − τ_s, Eq. (14) reads

    maximise pᵀx  over  x >= 0,  1ᵀx <= 1,  g(x) = bᵀx + β √(xᵀCx) <= δ.

g is convex and homogeneous of degree one. So scaling x restores feasibility exactly, and any u with ‖u‖ <= 1 gives a
linear minorant of g; a linear program over that minorant bounds the optimum from above: the certificate.

Three parts: g with its minorants, the closed forms on a given support with the search for the support, and an
interior-point method for what these leave open.
"""

import numpy as np

from tether.kernels.compiled import Integers, Matrix, Vector, kernel, record, use
from tether.records import Array

PRODUCT_ROUNDING = 1e-13
"""Allowance on xᵀCx, in units of (Σ x_i √C_ii)²: what forming C in floating point may have lost."""

SCALED_INWARD = 1.0 - 1e-14
"""Scaled solutions are rounded toward a_0."""

SINGULAR = 1e-11
"""A pivot below this part of its diagonal means that the residuals of a support are dependent."""

CLOSED = 1e-8
"""A solution counts as optimal once its certificate leaves less than this part of max p open."""

ENUMERATED = 4
"""Up to this many actions besides a_0 every support is tried; above, the support grows by pricing."""

LARGEST = 25
"""Above this many actions besides a_0 an interior-point method is the better tool."""

DROPPED = 1e-12
"""Probabilities above minus this count as zero, not as a reason to drop an action."""

KINK = 1e-6
"""A mixture whose actions have widths below this part of the largest counts as known exactly."""

SOLVED = 1e-6
"""A solution of the interior-point method counts once its certificate leaves less than this part of max p open."""


@record
class InnerProblem:
    """The inner problem of one state, n actions besides a_0 and M constraints, with buffers. W >= n is capacity."""

    size: Integers  # n (1,)
    gain: Vector  # p, the score above a_0's (W,)
    rise: Matrix  # b, the mean cost above τ_s (M, W)
    radius: Vector  # β_s (M,)
    slack: Vector  # δ (M,)
    width: Vector  # w, the width of each action alone, rounded up (W,)
    joint: Matrix  # C (W, W)
    x: Vector  # the solution (W,)
    bound: Vector  # the bound on its expected cost (M,)
    trial: Vector  # what may become the solution (W,)
    upper: Vector  # the certified (or optimistic) rise of each action alone (W,)
    slope: Vector  # of a linear minorant of g (W,)
    tilted: Vector  # where that minorant touches g (W,)
    support: Integers  # the actions that are played, in the order of the factor (W,)
    factor: Matrix  # the lower Cholesky factor of C on the support, or M of `capped` (W, W)
    p: Vector  # gains on the support, whitened by the factor, or solved for (W,)
    b: Vector  # rises on the support, whitened, or above δ (W,)
    ones: Vector  # 1 on the support, solved for (W,)
    y: Vector  # the direction of the stationary point, whitened and then not (W,)


def new_inner_problem(constraints: int, widest: int) -> InnerProblem:
    """Room for states with up to `widest` actions."""
    vectors = ("gain", "width", "x", "trial", "upper", "slope", "tilted", "p", "b", "ones", "y")
    return InnerProblem(
        size=np.zeros(1, dtype=np.int64),
        rise=np.zeros((constraints, widest)),
        radius=np.zeros(constraints),
        slack=np.zeros(constraints),
        bound=np.zeros(constraints),
        joint=np.zeros((widest, widest)),
        factor=np.zeros((widest, widest)),
        support=np.zeros(widest, dtype=np.int64),
        **{name: np.zeros(widest) for name in vectors},
    )


# g, and the linear programs over its minorants


@kernel
def inner_product(a: Vector, b: Vector, size: int) -> float:
    """⟨a, b⟩ over the first `size` entries."""
    total = 0.0
    for i in range(size):
        total += a[i] * b[i]
    return total


@kernel
def is_played(x: Vector, size: int) -> bool:
    """Whether some action besides a_0 has a positive probability; none may be negative."""
    total = 0.0
    for i in range(size):
        total += x[i]
    return total > 0.0


@kernel
def width_of(problem: InnerProblem, x: Vector) -> float:
    """√(xᵀCx), rounded up: x (n,) -> scalar."""
    size = problem.size[0]
    square, spread = 0.0, 0.0
    for i in range(size):
        if x[i] != 0.0:
            row = 0.0
            for k in range(size):
                row += problem.joint[i, k] * x[k]
            square += x[i] * row
            spread += abs(x[i]) * np.sqrt(problem.joint[i, i])
    square = square if square > 0.0 or square != square else 0.0  # a NaN stays one, and certifies nothing
    return np.sqrt(square + PRODUCT_ROUNDING * spread * spread)


@kernel
def cost_rise(problem: InnerProblem, j: int, x: Vector) -> float:
    """g_j(x), rounded up: how far the certified expected cost of x (n,) lies above τ_s."""
    total = 0.0
    for i in range(problem.size[0]):
        total += problem.rise[j, i] * x[i]
    return total + problem.radius[j] * width_of(problem, x)


@kernel
def scale_back(problem: InnerProblem, j: int, x: Vector) -> float:
    """Shrink x (n,) toward a_0 until it is a sub-distribution with g_j(x) <= δ_j; to 0 if none is shown to be one.

    Returns the factor.
    """
    size, slack = problem.size[0], problem.slack[j]
    total, actions, clean = 0.0, 0, True
    for i in range(size):
        if x[i] > 0.0:
            total += x[i]
            actions += 1
        else:
            clean = clean and x[i] == x[i]
            x[i] = 0.0
    # one action may have probability 1; a sum of several must not exceed 1 in any order of summation
    factor = 1.0 if total <= (1.0 if actions == 1 else SCALED_INWARD) else SCALED_INWARD / total
    needed = cost_rise(problem, j, x)
    if needed * factor > slack:
        factor = SCALED_INWARD * slack / needed
    if not (clean and factor > 0.0 and needed > -np.inf and slack > 0.0):
        factor = 0.0
    shrink = 1e-12
    for _ in range(3):
        for i in range(size):
            x[i] = x[i] * factor if factor > 0.0 else 0.0
        if factor == 0.0 or cost_rise(problem, j, x) <= slack:
            return factor
        factor = 1.0 - shrink
        shrink *= 1000.0
    for i in range(size):
        x[i] = 0.0
    return 0.0


@kernel
def linear_optimum(gain: Vector, slope: Vector, size: int, slack: float) -> tuple[float, int, int, float]:
    """max pᵀy over y >= 0, 1ᵀy <= 1, ⟨slope, y⟩ <= δ: its value, and the vertex that attains it. gain p, slope (n,).

    Two constraints leave at most two actions: `first` with 1 − share and `second` with share, or (second = -1) `first`
    with share. Every vertex is looked at, so the value is also an upper bound for whatever `slope` bounds from below.
    """
    best, first, second, share = 0.0, -1, -1, 0.0
    for i in range(size):
        alone = 1.0 if slope[i] <= slack else slack / slope[i]
        if gain[i] * alone > best:
            best, first, second, share = gain[i] * alone, i, -1, alone
    for i in range(size):
        if slope[i] < slack:
            for k in range(size):
                if slope[k] > slack and gain[k] > gain[i]:
                    part = (slack - slope[i]) / (slope[k] - slope[i])
                    value = gain[i] + part * (gain[k] - gain[i])
                    if value > best:
                        best, first, second, share = value, i, k, part
    return best, first, second, share


@kernel
def best_pair(gain: Vector, slope: Vector, size: int, slack: float, x: Vector) -> float:
    """The maximiser of `linear_optimum` into x (n,); returns its value."""
    value, first, second, share = linear_optimum(gain, slope, size, slack)
    for i in range(size):
        x[i] = 0.0
    if second >= 0:
        x[first] = 1.0 - share
        x[second] = share
    elif first >= 0:
        x[first] = share
    return value


@kernel
def slope_at(problem: InnerProblem, j: int, x: Vector, slope: Vector) -> None:
    """A subgradient of g_j at x into `slope`, both (n,): b + β Cx/√(xᵀCx), or b where the root is 0."""
    size = problem.size[0]
    square = 0.0
    for i in range(size):
        row = 0.0
        for k in range(size):
            row += problem.joint[i, k] * x[k]
        slope[i] = row
        square += row * x[i]
    per_width = problem.radius[j] / np.sqrt(square) if square > 0.0 else 0.0
    for i in range(size):
        slope[i] = problem.rise[j, i] + per_width * slope[i]


@kernel
def certificate(problem: InnerProblem, j: int, x: Vector, value: float) -> float:
    """An upper bound on the optimum, from a linear minorant of g_j that touches it at x (n,), into `problem.slope`.

    Where x is known (almost) exactly, √(xᵀCx) has a kink and many minorants touch: tilt toward the one that is steep
    for the actions which the linear program then finds too cheap.
    """
    size, gain, slope, tilted = problem.size[0], problem.gain, problem.slope, problem.tilted
    widest, width, largest = 0.0, 0.0, 0.0
    for i in range(size):
        tilted[i] = x[i]
        widest = max(widest, problem.joint[i, i])
        width += x[i] * np.sqrt(problem.joint[i, i])
        largest = max(largest, gain[i])
    bound = largest
    rounds = 2 * size if width <= KINK * np.sqrt(widest) else 1
    for _ in range(rounds):
        slope_at(problem, j, tilted, slope)
        for i in range(size):
            if slope[i] != slope[i]:
                return np.inf
        found, first, second, share = linear_optimum(gain, slope, size, problem.slack[j])
        bound = min(bound, found)
        if bound - value <= CLOSED * largest or first < 0:
            break
        tilted[first] += share if second < 0 else 1.0 - share
        if second >= 0:
            tilted[second] += share
    return bound


# Closed forms on a given support
#
# Where the cap 1ᵀx <= 1 is slack: with inner products taken in C^{-1} (vectors whitened by its factor), stationarity
# p = λ(b + βCx/√(xᵀCx)) reads x ∝ C^{-1}y with y = p − λb and ‖y‖ = λβ, a quadratic equation for λ.
#
# Where it is tight: on 1ᵀx = 1 the constraint is Dᵀx + β√(xᵀCx) <= 0 with D = b − δ1, so xᵀMx <= 0 with M = β²C − DDᵀ,
# and stationarity is Mx ∝ p − ν1 with ν the value: a quadratic equation for ν. C need not be invertible for that, and
# often is not: facts and walls leave a state with fewer dimensions than actions. Two actions lie on a line, and need no
# multipliers.


@kernel
def roots(a: float, half_b: float, c: float) -> tuple[float, float]:
    """Both roots of a t² + 2 half_b t + c = 0 without cancellation; NaN where there is none."""
    inside = half_b * half_b - a * c
    if not inside >= 0.0:
        return np.nan, np.nan
    large = -half_b - np.sqrt(inside) if half_b > 0.0 else -half_b + np.sqrt(inside)
    first = large / a if a != 0.0 else np.nan
    second = c / large if large != 0.0 else first
    return first, second


@kernel
def uncapped(p: Vector, b: Vector, size: int, radius: float, y: Vector) -> float:
    """The direction y (whitened) of the optimum when only g(x) <= δ binds; returns λ, or 0 if there is none.

    y = p − λb with (β² − ‖b‖²)λ² + 2⟨p, b⟩λ − ‖p‖² = 0. Where ‖b‖ > β, λ is close to α = ⟨p, b⟩/‖b‖², and solving for
    e = α − λ keeps the digits of y: with p = αb + r, (‖b‖² − β²)e² + 2αβ²e + ‖r‖² − α²β² = 0 and y = r + e b.
    """
    square, bb, pb = radius * radius, inner_product(b, b, size), inner_product(p, b, size)
    best = 0.0
    if bb <= square:
        first, second = roots(square - bb, pb, -inner_product(p, p, size))
        for attempt in range(2):
            multiplier = first if attempt == 0 else second
            if multiplier > best and pb + multiplier * (square - bb) > 0.0:
                best = multiplier
        for i in range(size):
            y[i] = p[i] - best * b[i]
        return best
    alpha, rr, at = pb / bb, 0.0, 0.0
    for i in range(size):
        rest = p[i] - alpha * b[i]
        rr += rest * rest
    first, second = roots(bb - square, alpha * square, rr - alpha * alpha * square)
    for attempt in range(2):
        e = first if attempt == 0 else second
        if alpha - e > best and e * bb + (alpha - e) * square > 0.0:
            best, at = alpha - e, e
    for i in range(size):
        y[i] = p[i] - alpha * b[i] + at * b[i]
    return best


@kernel
def capped(problem: InnerProblem, j: int, count: int) -> bool:
    """The direction of the optimum on a support into `problem.y` when 1ᵀx = 1 binds too; False if there is none.

    x ∝ u − νv with Mu = p, Mv = 1 and (p − ν1)ᵀM^{-1}(p − ν1) = 0. Subtracting a number from every p subtracts it from
    ν and leaves x alone: it is the largest p, so that scores which differ by a part of themselves keep their digits.
    """
    support, u, v, costs, y = problem.support, problem.p, problem.ones, problem.b, problem.y
    best = problem.gain[support[0]]
    for i in range(count):
        best = max(best, problem.gain[support[i]])
        costs[i] = problem.rise[j, support[i]] - problem.slack[j]
    for i in range(count):
        u[i], v[i] = problem.gain[support[i]] - best, 1.0
    if not solve_capped(problem, j, count):
        return False
    vv, uv, uu = 0.0, 0.0, 0.0
    for i in range(count):
        gain = problem.gain[support[i]] - best
        vv += v[i]
        uv += gain * v[i]
        uu += gain * u[i]
    first, second = roots(vv, -uv, uu)
    found, value = False, 0.0
    for attempt in range(2):
        nu = first if attempt == 0 else second
        total, cost = 0.0, 0.0
        for i in range(count):
            total += u[i] - nu * v[i]
            cost += costs[i] * (u[i] - nu * v[i])
        # λ > 0 and g = δ; the other root may belong to the smallest value, or to bᵀx − β√(xᵀCx) = δ
        if total > 0.0 and cost <= 0.0 and (not found or nu > value):
            found, value = True, nu
    for i in range(count):
        y[i] = u[i] - value * v[i]
    return found


@kernel
def solve_capped(problem: InnerProblem, j: int, count: int) -> bool:
    """M^{-1} applied to `problem.p` and `problem.ones` in place; False if M is (nearly) singular. `problem.b` holds D.

    M is indefinite: rows and columns are scaled, and elimination exchanges rows. `problem.y` is used up.
    """
    matrix, support, joint = problem.factor, problem.support, problem.joint
    u, v, costs, scale = problem.p, problem.ones, problem.b, problem.y
    square = problem.radius[j] * problem.radius[j]
    for i in range(count):
        scale[i] = 1.0 / np.sqrt(max(square * joint[support[i], support[i]], costs[i] * costs[i]))
    for i in range(count):
        u[i] *= scale[i]
        v[i] *= scale[i]
        for k in range(count):
            matrix[i, k] = (square * joint[support[i], support[k]] - costs[i] * costs[k]) * scale[i] * scale[k]
    for k in range(count):
        pivot = k
        for i in range(k + 1, count):
            pivot = i if abs(matrix[i, k]) > abs(matrix[pivot, k]) else pivot
        if not abs(matrix[pivot, k]) > SINGULAR:
            return False
        if pivot != k:
            for i in range(k, count):
                matrix[k, i], matrix[pivot, i] = matrix[pivot, i], matrix[k, i]
            u[k], u[pivot] = u[pivot], u[k]
            v[k], v[pivot] = v[pivot], v[k]
        for i in range(k + 1, count):
            part = matrix[i, k] / matrix[k, k]
            for m in range(k + 1, count):
                matrix[i, m] -= part * matrix[k, m]
            u[i] -= part * u[k]
            v[i] -= part * v[k]
    for k in range(count - 1, -1, -1):
        for i in range(k + 1, count):
            u[k] -= matrix[k, i] * u[i]
            v[k] -= matrix[k, i] * v[i]
        u[k] /= matrix[k, k]
        v[k] /= matrix[k, k]
    for i in range(count):
        u[i] *= scale[i]
        v[i] *= scale[i]
    return True


@kernel
def capped_pair(problem: InnerProblem, j: int, first: int, second: int) -> float:
    """The probability t of `first`, with 1 − t on `second`, where g = δ keeps pᵀx from growing; NaN if nowhere.

    (b_2 − δ + t(b_1 − b_2))² = β² xᵀCx is a quadratic equation in t. No multiplier enters, and only the sign of
    p_1 − p_2 counts.
    """
    radius, joint = problem.radius[j], problem.joint
    start, along = problem.rise[j, second] - problem.slack[j], problem.rise[j, first] - problem.rise[j, second]
    square = radius * radius
    c0, c1 = joint[second, second], joint[first, second] - joint[second, second]
    c2 = joint[first, first] - joint[first, second] - c1
    one, other = roots(along * along - square * c2, start * along - square * c1, start * start - square * c0)
    for attempt in range(2):
        t = one if attempt == 0 else other
        over = start + t * along  # = −β √(xᵀCx) where g = δ
        steepness = square * (c1 + t * c2) - over * along  # the sign of dg/dt
        if over <= 0.0 and (problem.gain[first] - problem.gain[second]) * steepness > 0.0:
            return t
    return np.nan


@kernel
def on_support(problem: InnerProblem, j: int, count: int) -> bool:
    """The stationary point on a support into `problem.trial` (n,), zero elsewhere, some entries negative.

    The support is the first `count` entries of `problem.support`. Returns False if there is no such point.
    """
    support, trial, y = problem.support, problem.trial, problem.y
    p, b, radius = problem.p, problem.b, problem.radius[j]
    scale = 0.0
    if factorise_support(problem, count):
        for i in range(count):
            p[i], b[i] = problem.gain[support[i]], problem.rise[j, support[i]]
        solve_lower(problem.factor, count, p)
        solve_lower(problem.factor, count, b)
        multiplier = uncapped(p, b, count, radius, y)
        if multiplier > 0.0:
            # g(y) = ⟨b, y⟩ + β‖y‖ with ‖y‖ = λβ
            scale = problem.slack[j] / (inner_product(b, y, count) + radius * radius * multiplier)
            solve_lower_transposed(problem.factor, count, y)
            total = 0.0
            for i in range(count):
                total += y[i] * scale
            if not (0.0 < scale < np.inf and total <= 1.0):
                scale = 0.0
    for i in range(problem.size[0]):
        trial[i] = 0.0
    if scale == 0.0 and count == 2:
        share = capped_pair(problem, j, support[0], support[1])
        trial[support[0]], trial[support[1]] = share, 1.0 - share
        return -np.inf < share < np.inf
    if scale == 0.0:
        if not capped(problem, j, count):
            return False
        total = 0.0
        for i in range(count):
            total += y[i]
        scale = 1.0 / total
        if not 0.0 < scale < np.inf:
            return False
    for i in range(count):
        trial[support[i]] = y[i] * scale
    return True


@kernel
def factorise_support(problem: InnerProblem, count: int) -> bool:
    """The lower Cholesky factor of C on a support into `problem.factor`, False if it is (nearly) singular."""
    joint, support, factor = problem.joint, problem.support, problem.factor
    for i in range(count):
        for k in range(i + 1):
            total = joint[support[i], support[k]]
            for m in range(k):
                total -= factor[i, m] * factor[k, m]
            if i == k:
                if not total > SINGULAR * joint[support[i], support[i]]:
                    return False
                factor[i, i] = np.sqrt(total)
            else:
                factor[i, k] = total / factor[k, k]
    return True


@kernel
def solve_lower(factor: Matrix, size: int, v: Vector) -> None:
    """L^{-1} v in place: (size, size), (size,). Supports are small: no blocks as in `ridge.whiten`."""
    for i in range(size):
        for k in range(i):
            v[i] -= factor[i, k] * v[k]
        v[i] /= factor[i, i]


@kernel
def solve_lower_transposed(factor: Matrix, size: int, v: Vector) -> None:
    """L^{-T} v in place: (size, size), (size,)."""
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            v[i] -= factor[k, i] * v[k]
        v[i] /= factor[i, i]


# The search for the support, with a certificate of optimality at every stop


@kernel
def best_mixture(problem: InnerProblem, j: int) -> float:
    """The optimum under constraint j alone into `problem.x` (n,), exactly feasible; returns an upper bound on it.

    The caller compares the bound with pᵀx: what is left open is the certificate.
    """
    size, gain, x, upper = problem.size[0], problem.gain, problem.x, problem.upper
    radius, slack = problem.radius[j], problem.slack[j]
    best = 0
    for i in range(size):
        x[i] = 0.0
        best = i if gain[i] > gain[best] else best
    largest = gain[best]
    if not largest > 0.0:
        return 0.0 if largest <= 0.0 else np.inf
    for i in range(size):
        upper[i] = problem.rise[j, i] + radius * np.sqrt(problem.joint[i, i])
    if -np.inf < upper[best] <= (1.0 - 1e-12) * slack:
        x[best] = 1.0  # the best action of all is certified: nothing to trade off
        return largest
    # Certified costs of single actions bound the cost of their mixtures: feasible, and often already optimal.
    best_pair(gain, upper, size, slack, x)
    value = feasible_value(problem, j, x)
    bound = certificate(problem, j, x, value)
    if bound - value <= CLOSED * largest or not radius > 0.0:
        return bound
    if size <= ENUMERATED:
        return try_all_supports(problem, j, value, bound, largest)
    return grow_support(problem, j, value, bound, largest)


@kernel
def feasible_value(problem: InnerProblem, j: int, x: Vector) -> float:
    """Make x (n,) exactly feasible; returns pᵀx."""
    scale_back(problem, j, x)
    return inner_product(problem.gain, x, problem.size[0])


@kernel
def try_all_supports(problem: InnerProblem, j: int, value: float, bound: float, largest: float) -> float:
    """Every support of two or more actions, small ones first, until a certificate closes. Returns the upper bound.

    `value` and `bound` are what is known so far of the solution in `problem.x`; `largest` is max p. The pair that the
    certificate at x points to comes first: on the lake it is the right one five times out of six.
    """
    size, likely = problem.size[0], likely_pair(problem, j)
    for wanted in range(2, size + 1):
        for attempt in range(1 << size):
            mask = attempt if attempt > 0 else likely
            count = 0
            for i in range(size):
                if mask >> i & 1:
                    problem.support[count] = i
                    count += 1
            if count != wanted or attempt == likely or not on_support(problem, j, count):
                continue
            value, bound = keep_better(problem, j, value, bound)
            if bound - value <= CLOSED * largest:
                return bound
    return bound


@kernel
def likely_pair(problem: InnerProblem, j: int) -> int:
    """The actions that `problem.x` plays, as bits; if it is one, with the one that prices out best beside it.

    `problem.slope` is that of the certificate at x.
    """
    size, count, mask = problem.size[0], 0, 0
    for i in range(size):
        problem.trial[i] = problem.x[i]
        if problem.x[i] > 0.0:
            problem.support[count] = i
            count += 1
            mask |= 1 << i
    if count == 1:
        entering = best_price(problem, j, count)
        mask |= 1 << entering if entering >= 0 else 0
    return mask


@kernel
def keep_better(problem: InnerProblem, j: int, value: float, bound: float) -> tuple[float, float]:
    """Take `problem.trial` for `problem.x` if it is better; returns the better value and the smaller upper bound."""
    size, x, trial = problem.size[0], problem.x, problem.trial
    smallest = 0.0
    for i in range(size):
        smallest = min(smallest, trial[i])
    if not smallest >= -DROPPED:
        return value, bound
    tried = feasible_value(problem, j, trial)
    better = value
    if tried > value:
        for i in range(size):
            x[i] = trial[i]
        better = tried
    return better, min(bound, certificate(problem, j, trial, tried))


@kernel
def grow_support(problem: InnerProblem, j: int, value: float, bound: float, largest: float) -> float:
    """Column generation: solve on a support, drop what turns negative, add the action that prices out best.

    `value` and `bound` are what is known so far of the solution in `problem.x`; `largest` is max p.
    """
    size, support, trial = problem.size[0], problem.support, problem.trial
    count = 0
    for i in range(size):
        if problem.x[i] > 0.0:
            support[count] = i
            count += 1
    for _ in range(4 * size):
        if count == 0 or not on_support(problem, j, count):
            return bound
        lowest = 0
        for i in range(count):
            lowest = i if trial[support[i]] < trial[support[lowest]] else lowest
        if trial[support[lowest]] < -DROPPED:
            count -= 1
            support[lowest] = support[count]
            continue
        value, bound = keep_better(problem, j, value, bound)
        if bound - value <= CLOSED * largest:
            return bound
        entering = best_price(problem, j, count)
        if entering < 0:
            return bound
        support[count] = entering
        count += 1
    return bound


@kernel
def best_price(problem: InnerProblem, j: int, count: int) -> int:
    """The action outside the support with the largest p_i − λ slope_i − μ > 0, or -1: (λ, μ) from p = λ slope + μ.

    The support is the first `count` entries of `problem.support`, its solution is in `problem.trial`.
    """
    size, gain, slope, support = problem.size[0], problem.gain, problem.slope, problem.support
    total = 0.0
    low, high = support[0], support[0]
    for i in range(count):
        total += problem.trial[support[i]]
        low = support[i] if slope[support[i]] < slope[low] else low
        high = support[i] if slope[support[i]] > slope[high] else high
    if total < 1.0 - 1e-9 or low == high:
        lam, mu = inner_product(gain, problem.trial, size) / problem.slack[j], 0.0
    else:
        lam = (gain[high] - gain[low]) / (slope[high] - slope[low])
        mu = gain[low] - lam * slope[low]
    best, price = -1, 0.0
    for k in range(size):
        inside = False
        for i in range(count):
            inside = inside or support[i] == k
        if not inside and gain[k] - lam * slope[k] - mu > price:
            best, price = k, gain[k] - lam * slope[k] - mu
    return best


# Every constraint of a state


@kernel
def certified_optimum(problem: InnerProblem) -> tuple[float, bool]:
    """The best certified mixture into `problem.x` (n,), under every constraint.

    Returns its value above a_0's, and whether a certificate shows that it is best.
    With several constraints the optimum under one of them is the optimum under all, if it satisfies all.
    """
    size, constraints = problem.size[0], problem.slack.shape[0]
    largest = 0.0
    for i in range(size):
        largest = max(largest, problem.gain[i])
    if size > LARGEST:
        for i in range(size):
            problem.x[i] = 0.0
        return 0.0, largest == 0.0
    for j in range(constraints):
        bound = best_mixture(problem, j)
        value = inner_product(problem.gain, problem.x, size)
        closed = bound - value <= CLOSED * largest
        for other in range(constraints):
            closed = closed and cost_rise(problem, other, problem.x) <= problem.slack[other]
        if closed:
            return value, True
    return 0.0, False


@kernel
def optimistic_optimum(problem: InnerProblem, x: Vector) -> float:
    """`directional`: the value of an optimistic mixture; x (n,) is that mixture scaled back toward a_0 until certified.

    The optimistic set takes each action at its lower bound b_i − β w_i. It contains every truly safe mixture on the
    event of the radius, since ‖Σ x_i R_i‖ <= Σ x_i w_i, and it is linear. Scaling costs at most a share
    1 − ρ <= 2β E_x[w]/δ of the optimistic gain: docs/theory.md section 5 with w averaged over the mixture played.
    """
    size, constraints, lower = problem.size[0], problem.slack.shape[0], problem.upper
    value, tightest = np.inf, 0
    for j in range(constraints):
        lower_rises(problem, j, lower)
        found = best_pair(problem.gain, lower, size, problem.slack[j], x)
        if found < value:
            value, tightest = found, j
    lower_rises(problem, tightest, lower)
    best_pair(problem.gain, lower, size, problem.slack[tightest], x)
    for j in range(constraints):
        scale_back(problem, j, x)
    return value


@kernel
def lower_rises(problem: InnerProblem, j: int, lower: Vector) -> None:
    """b_i − β w_i of each action under constraint j into `lower` (n,): what its cost rises by at least."""
    for i in range(problem.size[0]):
        lower[i] = problem.rise[j, i] - problem.radius[j] * problem.width[i]


# By an interior-point method, for what the closed forms leave open


def conic_mixture(problem: InnerProblem) -> float:
    """The optimum into `problem.x` (n,), exactly feasible for every constraint; returns an upper bound on its value.

    The bound is ∞ if the method failed. It is ours, not the solver's: any dual point with ‖u_j‖ <= 1 gives linear
    minorants of every g_j, and a linear program over them bounds the optimum.
    """
    import clarabel
    from scipy import sparse

    size, constraints = int(problem.size[0]), len(problem.slack)
    gain, rise, joint = problem.gain[:size], problem.rise[:, :size], problem.joint[:size, :size]
    radius, slack, x = problem.radius, problem.slack, problem.x[:size]
    x[:] = 0.0
    if not all(np.isfinite(numbers).all() for numbers in (gain, rise, joint, radius, slack)):
        return np.inf  # eigh would raise; what is not finite certifies nothing
    eigenvalues, vectors = np.linalg.eigh(joint)
    root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T  # ‖root x‖ = √(xᵀCx)
    scale = max(float(np.abs(gain).max()), 1e-300)
    blocks, limits = [-np.eye(size), np.ones((1, size))], [np.zeros(size), np.ones(1)]
    cones = [clarabel.NonnegativeConeT(size + 1)]
    for j in range(constraints):
        blocks.append(np.vstack([rise[j], -radius[j] * root]) / slack[j])
        limits.append(np.concatenate([[1.0], np.zeros(size)]))
        cones.append(clarabel.SecondOrderConeT(size + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)),
        -gain / scale,
        sparse.csc_matrix(np.vstack(blocks)),
        np.concatenate(limits),
        cones,
        settings,
    )
    solution = solver.solve()
    found, dual = np.array(solution.x), np.array(solution.z)
    if not (np.isfinite(found).all() and np.isfinite(dual).all()):
        return np.inf
    x[:] = found
    for j in range(constraints):
        scale_back(problem, j, problem.x)
    return _conic_bound(problem, root, dual[size + 1 :].reshape(constraints, size + 1))


def _conic_bound(problem: InnerProblem, root: Array, dual: Array) -> float:
    """An upper bound from the minorants of the dual points (M, n + 1); their weighted sum is one linear constraint."""
    size = int(problem.size[0])
    gain, slope, limit = problem.gain[:size], np.zeros(size), 0.0
    for j in range(len(problem.slack)):
        weight, direction = dual[j, 0], -dual[j, 1:]
        length = float(np.linalg.norm(direction))
        u = direction / max(length, weight) if length > 0.0 else direction
        if weight > 0.0:
            slope += weight / problem.slack[j] * (problem.rise[j, :size] + problem.radius[j] * root.T @ u)
            limit += weight
    return float(linear_optimum(gain, slope, size, limit)[0]) if limit > 0.0 else float(max(gain.max(), 0.0))


use(globals())
