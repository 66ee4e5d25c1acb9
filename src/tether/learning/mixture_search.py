"""The search for the support of the best mixture, with a certificate of optimality at every stop."""

import numpy as np
from numpy.typing import NDArray

from tether.compiled import lean
from tether.learning.mixture_supports import inner_product, on_support
from tether.learning.mixtures import best_pair, linear_optimum, scale_back, slope_at
from tether.records import Array

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

SCRATCH_ROWS = 8
"""Rows of scratch space (., n) that `best_mixture` needs, besides one (n, n) block."""


@lean
def best_mixture(
    gain: Array,
    rise: Array,
    joint: Array,
    radius: float,
    slack: float,
    factor: Array,
    work: Array,
    support: NDArray[np.int64],
    x: Array,
) -> float:
    """The optimal x (n,) of the inner problem, exactly feasible; returns an upper bound on the optimum.

    gain p, rise b (n,), joint C (n, n), radius β, slack δ > 0. `factor` (n, n), `work` (8, n) and `support` (n,) are
    scratch. The caller compares the bound with pᵀx: what is left open is the certificate.
    """
    size = gain.shape[0]
    best = 0
    for i in range(size):
        x[i] = 0.0
        best = i if gain[i] > gain[best] else best
    largest = float(gain[best])
    if not largest > 0.0:
        return 0.0 if largest <= 0.0 else np.inf
    upper, trial = work[4], work[6]
    for i in range(size):
        upper[i] = rise[i] + radius * np.sqrt(joint[i, i])
    if -np.inf < upper[best] <= (1.0 - 1e-12) * slack:
        x[best] = 1.0  # the best action of all is certified: nothing to trade off
        return largest
    # Certified costs of single actions bound the cost of their mixtures: feasible, and often already optimal.
    best_pair(gain, upper, slack, x)
    value = settled(gain, rise, joint, radius, slack, x)
    bound = certificate(gain, rise, joint, radius, slack, x, work, value)
    if bound - value <= CLOSED * largest or not radius > 0.0:
        return bound
    if size <= ENUMERATED:
        return try_all_supports(
            gain, rise, joint, radius, slack, factor, work, support, trial, x, value, bound, largest
        )
    return grow_support(gain, rise, joint, radius, slack, factor, work, support, trial, x, value, bound, largest)


@lean
def settled(gain: Array, rise: Array, joint: Array, radius: float, slack: float, x: Array) -> float:
    """Make x exactly feasible; returns pᵀx."""
    scale_back(rise, joint, radius, slack, x)
    return inner_product(gain, x, gain.shape[0])


@lean
def certificate(
    gain: Array, rise: Array, joint: Array, radius: float, slack: float, x: Array, work: Array, value: float
) -> float:
    """An upper bound on the optimum, from a linear minorant of g that touches it at x; the minorant stays in work[5].

    Where x is known (almost) exactly, √(xᵀCx) has a kink and many minorants touch: lean toward the one that is steep
    for the actions which the linear program then finds too cheap.
    """
    slope, lean = work[5], work[7]
    widest, width, largest = 0.0, 0.0, 0.0
    for i in range(x.shape[0]):
        lean[i] = x[i]
        widest = max(widest, joint[i, i])
        width += x[i] * np.sqrt(joint[i, i])
        largest = max(largest, gain[i])
    bound = largest
    rounds = 2 * x.shape[0] if width <= KINK * np.sqrt(widest) else 1
    for _ in range(rounds):
        slope_at(rise, joint, radius, lean, slope)
        for i in range(x.shape[0]):
            if slope[i] != slope[i]:
                return np.inf
        found, first, second, share = linear_optimum(gain, slope, slack)
        bound = min(bound, found)
        if bound - value <= CLOSED * largest or first < 0:
            break
        lean[first] += share if second < 0 else 1.0 - share
        if second >= 0:
            lean[second] += share
    return bound


@lean
def try_all_supports(
    gain: Array,
    rise: Array,
    joint: Array,
    radius: float,
    slack: float,
    factor: Array,
    work: Array,
    support: NDArray[np.int64],
    trial: Array,
    x: Array,
    value: float,
    bound: float,
    largest: float,
) -> float:
    """Every support of two or more actions, small ones first, until a certificate closes."""
    size = gain.shape[0]
    for wanted in range(2, size + 1):
        for mask in range(1, 1 << size):
            count = 0
            for i in range(size):
                if mask >> i & 1:
                    support[count] = i
                    count += 1
            if count != wanted or not on_support(gain, rise, joint, radius, slack, support, count, factor, work, trial):
                continue
            improved, bound = keep_better(gain, rise, joint, radius, slack, trial, x, value, bound, work)
            value = max(value, improved)
            if bound - value <= CLOSED * largest:
                return bound
    return bound


@lean
def keep_better(
    gain: Array,
    rise: Array,
    joint: Array,
    radius: float,
    slack: float,
    trial: Array,
    x: Array,
    value: float,
    bound: float,
    work: Array,
) -> tuple[float, float]:
    """Take `trial` for x if it is better; returns the better value and the smaller upper bound."""
    smallest = 0.0
    for i in range(x.shape[0]):
        smallest = min(smallest, trial[i])
    if not smallest >= -DROPPED:
        return value, bound
    tried = settled(gain, rise, joint, radius, slack, trial)
    if tried > value:
        for i in range(x.shape[0]):
            x[i] = trial[i]
        value = tried
    return value, min(bound, certificate(gain, rise, joint, radius, slack, trial, work, tried))


@lean
def grow_support(
    gain: Array,
    rise: Array,
    joint: Array,
    radius: float,
    slack: float,
    factor: Array,
    work: Array,
    support: NDArray[np.int64],
    trial: Array,
    x: Array,
    value: float,
    bound: float,
    largest: float,
) -> float:
    """Column generation: solve on a support, drop what turns negative, add the action that prices out best."""
    size = gain.shape[0]
    slope = work[5]
    count = 0
    for i in range(size):
        if x[i] > 0.0:
            support[count] = i
            count += 1
    for _ in range(4 * size):
        if count == 0 or not on_support(gain, rise, joint, radius, slack, support, count, factor, work, trial):
            return bound
        lowest = 0
        for i in range(count):
            lowest = i if trial[support[i]] < trial[support[lowest]] else lowest
        if trial[support[lowest]] < -DROPPED:
            count -= 1
            support[lowest] = support[count]
            continue
        value, bound = keep_better(gain, rise, joint, radius, slack, trial, x, value, bound, work)
        if bound - value <= CLOSED * largest:
            return bound
        entering = best_price(gain, slope, slack, support, count, trial)
        if entering < 0:
            return bound
        support[count] = entering
        count += 1
    return bound


@lean
def best_price(gain: Array, slope: Array, slack: float, support: NDArray[np.int64], count: int, x: Array) -> int:
    """The action outside the support with the largest p_j − λ slope_j − μ > 0, or -1: (λ, μ) from p = λ slope + μ."""
    size = gain.shape[0]
    total = 0.0
    low, high = support[0], support[0]
    for i in range(count):
        total += x[support[i]]
        low = support[i] if slope[support[i]] < slope[low] else low
        high = support[i] if slope[support[i]] > slope[high] else high
    if total < 1.0 - 1e-9 or low == high:
        lam, mu = inner_product(gain, x, size) / slack, 0.0
    else:
        lam = (gain[high] - gain[low]) / (slope[high] - slope[low])
        mu = gain[low] - lam * slope[low]
    best, price = -1, 0.0
    for j in range(size):
        inside = False
        for i in range(count):
            inside = inside or support[i] == j
        if not inside and gain[j] - lam * slope[j] - mu > price:
            best, price = j, gain[j] - lam * slope[j] - mu
    return best
