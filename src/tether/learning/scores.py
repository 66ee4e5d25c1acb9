"""Scores of the candidates and the choice at one state: Eq. (10) and line 9 of Algorithm 1."""

import numpy as np

from tether.compiled import inlined, lean
from tether.learning.safe_sets import STATE, UNKNOWN, affine_lengths, bound_along, state_radius, unconditioned_lengths
from tether.learning.statistics import (
    ALARM,
    BAD_NUMBERS,
    BASELINE_BEST,
    BEST,
    CERTIFIED,
    NO_SLACK,
    ONLY_BASELINE,
    PAPER,
    WARM_UP,
    Rules,
)
from tether.records import Array

SMALLEST_GAP = 1e-9
"""Where τ − τ_h(s) is not known to be positive, the certified bonus is as large as this makes it."""


@lean
def assess(
    rules: Rules,
    step: int,
    hope: float,
    weights: Array,
    gamma_hat: Array,
    plain_radius: Array,
    phi_0: Array,
    is_star: bool,
    baseline_row: int,
    baseline_cost: Array,
    width2: Array,
    cross: Array,
    g00: float,
    vxx: Array,
    v0x: Array,
    v00: float,
    projected: Array,
    first: int,
    work: Array,
    facts: Array,
    bound: Array,
) -> tuple[int, float, float, int]:
    """The choice at one state: (row, length, unclipped score, reason), and its bounds (M,) into `bound`.

    `projected` holds ⟨w, x⟩ in row 0 and ⟨ĝ_j, x⟩ in row 1 + j, this state's candidates from column `first` on.
    `hope` in [0, 1] is how much of a ray's optimistic length counts in its score; it never touches the length played.
    `work` (5, >= n) and `facts` (4, M) are scratch; each row is used as one contiguous array, so that loops vectorise.
    """
    count = width2.shape[0]
    length, optimistic, width = work[0, :count], work[1, :count], work[2, :count]
    score, hopeful = work[3, :count], work[4, :count]
    constraints = rules.threshold.shape[0]
    value_0 = dot(weights, phi_0)
    mean_0, radius, gap, chosen = facts[0], facts[1], facts[2], facts[3]
    trouble = BEST
    for j in range(constraints):
        mean_0[j] = dot(gamma_hat[j], phi_0)
        found, radius[j], gap[j], bound[j] = examine(rules, j, mean_0[j], plain_radius[j], baseline_cost[j], g00)
        trouble = found if found != BEST else trouble
    if trouble != BEST:
        return -1, 0.0, value_0 + rules.value_radius[step] * np.sqrt(v00), trouble
    for i in range(count):
        length[i] = 1.0
        optimistic[i] = 1.0
    for j in range(constraints):
        limit_lengths(
            rules, j, mean_0[j], baseline_cost[j], radius[j], is_star, projected[1 + j, first : first + count],
            width2, cross, g00, width, length, optimistic,
        )  # fmt: skip
    if not is_star:
        length[baseline_row] = 0.0  # the safe action is scored once, as itself
        for i in range(count):
            optimistic[i] = length[i]  # nothing lies between two features: only certified actions count
    value = projected[0, first : first + count]
    norm_scale, width_scale = bonus_scales(rules, step, facts)
    if hope < 1.0:
        score_rays(value_0, value, length, width, vxx, v0x, v00, norm_scale, width_scale, score)
    if hope > 0.0:
        score_rays(value_0, value, optimistic, width, vxx, v0x, v00, norm_scale, width_scale, hopeful)
        for i in range(count):
            score[i] = hopeful[i] if hope == 1.0 else score[i] + hope * (hopeful[i] - score[i])
    best, best_score = best_ray(value_0 + norm_scale * np.sqrt(v00), length, score)
    if not np.isfinite(best_score):
        return -1, 0.0, best_score, BAD_NUMBERS
    if best < 0:
        any_certified = False
        for i in range(count):
            any_certified |= length[i] > 0.0
        return -1, 0.0, best_score, BASELINE_BEST if any_certified else ONLY_BASELINE
    for j in range(constraints):
        mean = projected[1 + j, first + best]
        chosen[j] = bound_of_choice(
            rules, length[best], mean, mean_0[j], baseline_cost[j], radius[j], width[best], width2[best],
            cross[best], g00,
        )  # fmt: skip
        if not chosen[j] <= rules.threshold[j]:
            return -1, 0.0, best_score, ONLY_BASELINE
    for j in range(constraints):
        bound[j] = chosen[j]
    return best, length[best], best_score, BEST


@inlined
def examine(
    rules: Rules, j: int, mean_0: float, plain_radius: float, baseline_cost: float, g00: float
) -> tuple[int, float, float, float]:
    """What constraint j says of the safe action: trouble (or BEST), β_s, the gap τ − τ_s, and a bound on its cost."""
    threshold = rules.threshold[j]
    if rules.conditioning == UNKNOWN:
        proven = mean_0 + plain_radius * np.sqrt(g00)
        measured = threshold - baseline_cost  # the warm-up's lower estimate of the gap, if any
        gap = max(rules.gap_floor, threshold - proven)
        gap = measured if measured > gap else gap
        trouble = WARM_UP if rules.warms_up and measured != measured else BEST
        # a_0(s) is declared safe, whatever the data can prove so far
        return trouble, plain_radius, gap, proven if proven < threshold else threshold
    gap, radius, trouble = threshold - baseline_cost, plain_radius, BEST
    if gap != gap:
        trouble = BAD_NUMBERS
    elif not gap > 0.0:
        trouble = NO_SLACK
    elif rules.reduces_radius and rules.conditioning == STATE:
        radius = state_radius(plain_radius, mean_0 - baseline_cost, g00)
        if radius != radius:
            trouble = ALARM
    return trouble, radius, gap, baseline_cost


@lean
def dot(a: Array, b: Array) -> float:
    """⟨a, b⟩ with a fixed order of summation."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@lean
def limit_lengths(
    rules: Rules,
    j: int,
    mean_0: float,
    baseline_cost: float,
    radius: float,
    is_star: bool,
    mean: Array,
    width2: Array,
    cross: Array,
    g00: float,
    width: Array,
    length: Array,
    optimistic: Array,
) -> None:
    """Shrink the certified and the optimistic lengths to what constraint j allows."""
    threshold = rules.threshold[j]
    if rules.conditioning == UNKNOWN:
        unconditioned_lengths(mean, width2, cross, g00, mean_0, threshold, radius, is_star, width, length, optimistic)
        return
    residual = mean_0 - baseline_cost if rules.conditioning == STATE else 0.0
    affine_lengths(
        mean, width2, cross, g00, residual, baseline_cost, threshold, radius, is_star, width, length, optimistic
    )  # fmt: skip


@inlined
def bonus_scales(rules: Rules, step: int, facts: Array) -> tuple[float, float]:
    """Factors of ‖x‖ and of width(x) in the bonus (THEORY section 5); rows 1 and 2 of `facts` hold β_s and the gap.

    paper: κ_h(s)β with κ_h(s) = 2H/(τ − τ_s) + 1 (or a tuned κ), and 0. certified: β_v and 2(H − h + 1) β_c/(τ − τ_s).
    """
    smallest_gap, width_scale = facts[2, 0], 0.0
    for j in range(facts.shape[1]):
        smallest_gap = min(smallest_gap, facts[2, j])
        if rules.explorer == CERTIFIED:
            needed = 2.0 * (rules.horizon - step) * facts[1, j] / max(facts[2, j], SMALLEST_GAP)
            width_scale = max(width_scale, needed)
    if rules.explorer == PAPER and rules.kappa == rules.kappa:
        return rules.kappa * rules.value_radius[step], 0.0
    if rules.explorer == PAPER:
        return (2.0 * rules.horizon / max(smallest_gap, SMALLEST_GAP) + 1.0) * rules.value_radius[step], 0.0
    return rules.value_radius[step], width_scale


@lean
def score_rays(
    value_0: float,
    value: Array,
    at: Array,
    width: Array,
    vxx: Array,
    v0x: Array,
    v00: float,
    norm_scale: float,
    width_scale: float,
    score: Array,
) -> None:
    """⟨w, x(α)⟩ + bonus at α = `at` on each ray, before clipping: Eq. (10). All (N,).

    The score is convex along a ray, so its maximum over a safe ray is at one of the two ends (appendix C).
    """
    for i in range(at.shape[0]):
        a = at[i]
        rest = 1.0 - a
        norm2 = rest * rest * v00 + 2.0 * a * rest * v0x[i] + a * a * vxx[i]
        norm2 = 0.0 if norm2 < 0.0 else norm2
        score[i] = rest * value_0 + a * value[i] + norm_scale * np.sqrt(norm2) + width_scale * a * width[i]


@lean
def best_ray(score_0: float, length: Array, score: Array) -> tuple[int, float]:
    """Line 9 of Algorithm 1: the highest unclipped score of a certified ray; ties to the safe action, then in order."""
    best, best_score = -1, score_0
    for i in range(length.shape[0]):
        if score[i] > best_score and length[i] > 0.0:
            best, best_score = i, score[i]
    return best, best_score


@lean
def bound_of_choice(
    rules: Rules,
    length: float,
    mean: float,
    mean_0: float,
    baseline_cost: float,
    radius: float,
    width: float,
    width2: float,
    cross: float,
    g00: float,
) -> float:
    """The left side of Eq. (9) at the chosen point, for one constraint."""
    if rules.conditioning == UNKNOWN:
        gxx = width2 + cross * cross / g00
        return bound_along(mean_0, mean, g00, cross, gxx, radius, length)
    residual = mean_0 - baseline_cost if rules.conditioning == STATE else 0.0
    upper = mean - cross * (1.0 / g00) * residual + radius * width
    return baseline_cost + length * (upper - baseline_cost)
