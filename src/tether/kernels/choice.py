"""Scores of the candidates and the choice at one state: Eq. (10) and line 9 of Algorithm 1."""

import numpy as np

from tether.kernels.bound import bound_at, examine, limit_lengths
from tether.kernels.compiled import kernel, use
from tether.kernels.model import (
    ADAPTIVE,
    BAD_NUMBERS,
    BASELINE_BEST,
    BEST,
    BOUND_0,
    CERTIFIED,
    DIRECTIONAL,
    ENDED,
    GAP,
    ONLY_BASELINE,
    PAPER,
    RADIUS,
    Plan,
    Rules,
    Scratch,
    Tables,
)
from tether.kernels.radius import kappa
from tether.kernels.ridge import inner

SMALLEST_GAP = 1e-9
"""Where τ − τ_h(s) is not known to be positive, the certified bonus is as large as this makes it."""

QUARTER = 0.25
"""Share of optimism between the square plans of `adaptive`: measured flat from 0 to 1/4, and it cannot touch safety."""


@kernel
def optimism_share(rules: Rules, plans: int) -> float:
    """How much of a ray's optimistic length counts when rays are compared; the length played stays certified.

    `directional` plans on optimistic lengths alone: its values are optimistic, but while β_c is large it keeps choosing
    rays that can only be played at tiny lengths, which teach little. `adaptive` takes a quarter of it, and all of it in
    plans 1, 4, 9, 16, …: K plans hold √K `directional` ones, so that no ray is ruled out for good, at √K cost.
    """
    if rules.explorer == DIRECTIONAL:
        return 1.0
    if rules.explorer != ADAPTIVE:
        return 0.0
    root = int(np.sqrt(plans))
    return 1.0 if root * root == plans else QUARTER


@kernel
def norm_scale(rules: Rules, scratch: Scratch, value_radius: float) -> float:
    """The factor of ‖x‖ in the bonus: β_v; for `paper` κ_h(s)β with the smallest gap, or a tuned κ (section 5)."""
    if rules.explorer != PAPER:
        return value_radius
    if rules.kappa == rules.kappa:
        return rules.kappa * value_radius
    gap = scratch.state[GAP, 0]
    for j in range(rules.threshold.shape[0]):
        gap = min(gap, scratch.state[GAP, j])
    return kappa(rules.horizon, max(gap, SMALLEST_GAP)) * value_radius


@kernel
def width_scale(rules: Rules, scratch: Scratch, step: int) -> float:
    """The factor of width(x) in the bonus: 2(H − h + 1) β_c/(τ − τ_s) for `certified`, else 0 (section 5)."""
    scale = 0.0
    if rules.explorer == CERTIFIED:
        for j in range(rules.threshold.shape[0]):
            needed = 2.0 * (rules.horizon - step) * scratch.state[RADIUS, j] / max(scratch.state[GAP, j], SMALLEST_GAP)
            scale = max(scale, needed)
    return scale


@kernel
def clipped_value(rules: Rules, step: int, score: float) -> float:
    """V of Eq. (10). The value is clipped, never the scores: clipped scores all tie while bonuses are large.

    The paper clips at H; no policy earns more than H − h + 1 from step h on, which the other explorers use.
    """
    limit = float(rules.horizon) if rules.explorer == PAPER else float(rules.horizon - step)
    return min(score, limit) if score == score else limit


@kernel
def choose(
    rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, step: int, row: int, stage: int, slot: int
) -> None:
    """The choice at one state with its bounds, score, reason and value, into row `row` of the plan.

    `scratch.projected` holds ⟨w, x⟩ in row 0 and ⟨ĝ_j, x⟩ in row 1 + j. The rows of `scratch.work`: certified length,
    optimistic length, width, score at the first, score at the second.
    """
    plan.row[row, slot] = -1
    plan.length[row, slot] = 0.0
    final = tables.final_reward[slot]
    if final == final:
        end_trajectory(rules, plan, final, step, row, slot)
        return
    constraints = rules.threshold.shape[0]
    trouble = examine(rules, tables, plan, scratch, row, stage, slot)
    for j in range(constraints):
        plan.bound[row, slot, j] = scratch.state[BOUND_0, j]
    value_0 = inner(tables.phi_0, slot, plan.weights[row])
    root_0 = np.sqrt(tables.v00[stage, slot])
    if trouble != BEST:
        note_choice(rules, plan, step, row, slot, value_0 + plan.value_radius[row] * root_0, trouble)
        return
    first = tables.start[slot]
    count = tables.start[slot + 1] - first
    work = scratch.work
    for i in range(count):
        work[0, i] = 1.0
        work[1, i] = 1.0
    for j in range(constraints):
        limit_lengths(rules, tables, scratch, stage, slot, j)
    if tables.is_star[slot] == 0:
        work[0, tables.baseline_row[slot]] = 0.0  # the safe action is scored once, as itself
        for i in range(count):
            work[1, i] = work[0, i]  # nothing lies between two features: only certified actions count
    per_norm, per_width = norm_scale(rules, scratch, plan.value_radius[row]), width_scale(rules, scratch, step)
    optimism = optimism_share(rules, plan.made[0])
    score_rays(tables, scratch, stage, slot, 0, value_0, per_norm, per_width)
    if optimism > 0.0:
        score_rays(tables, scratch, stage, slot, 1, value_0, per_norm, per_width)
        for i in range(count):
            work[3, i] = work[4, i] if optimism == 1.0 else work[3, i] + optimism * (work[4, i] - work[3, i])
    best, best_score = best_ray(value_0 + per_norm * root_0, scratch, count)
    reason = BEST
    if not np.isfinite(best_score):
        best, reason = -1, BAD_NUMBERS
    elif best < 0:
        reason = ONLY_BASELINE
        for i in range(count):
            reason = BASELINE_BEST if work[0, i] > 0.0 else reason
    else:
        for j in range(constraints):
            if not bound_at(rules, tables, scratch, stage, slot, best, j, work[0, best]) <= rules.threshold[j]:
                reason = ONLY_BASELINE
        best = best if reason == BEST else -1
    if best >= 0:
        for j in range(constraints):
            plan.bound[row, slot, j] = bound_at(rules, tables, scratch, stage, slot, best, j, work[0, best])
        plan.row[row, slot] = best
        plan.length[row, slot] = work[0, best]
    note_choice(rules, plan, step, row, slot, best_score, reason)


@kernel
def note_choice(rules: Rules, plan: Plan, step: int, row: int, slot: int, score: float, reason: int) -> None:
    """Score, reason and value of a choice."""
    plan.score[row, slot] = score
    plan.reason[row, slot] = reason
    plan.values[row, slot] = clipped_value(rules, step, score)


@kernel
def end_trajectory(rules: Rules, plan: Plan, final: float, step: int, row: int, slot: int) -> None:
    """Where trajectories end nothing is played, and the value is known: the final reward of each remaining step."""
    plan.score[row, slot] = final * (rules.horizon - step)
    plan.reason[row, slot] = ENDED
    plan.values[row, slot] = plan.score[row, slot]
    for j in range(plan.bound.shape[2]):
        plan.bound[row, slot, j] = np.nan


@kernel
def score_rays(
    tables: Tables, scratch: Scratch, stage: int, slot: int, at: int, value_0: float, per_norm: float, per_width: float
) -> None:
    """⟨w, x(α)⟩ + bonus on each ray, before clipping: Eq. (10). Row `at` of `scratch.work` is α, 3 + `at` the score.

    The score is convex along a ray, so its maximum over a safe ray is at one of the two ends (appendix C).
    """
    work, first = scratch.work, tables.start[slot]
    v00 = tables.v00[stage, slot]
    for i in range(tables.start[slot + 1] - first):
        a = work[at, i]
        rest = 1.0 - a
        norm2 = rest * rest * v00 + 2.0 * a * rest * tables.v0x[stage, first + i] + a * a * tables.vxx[stage, first + i]
        norm2 = 0.0 if norm2 < 0.0 else norm2
        value = rest * value_0 + a * scratch.projected[0, first + i]
        work[3 + at, i] = value + per_norm * np.sqrt(norm2) + per_width * a * work[2, i]


@kernel
def best_ray(score_0: float, scratch: Scratch, count: int) -> tuple[int, float]:
    """Line 9 of Algorithm 1: the highest unclipped score of a certified ray; ties to the safe action, then in order."""
    best, best_score = -1, score_0
    for i in range(count):
        if scratch.work[3, i] > best_score and scratch.work[0, i] > 0.0:
            best, best_score = i, scratch.work[3, i]
    return best, best_score


use(globals())
