"""The choice in one state of Algorithm 2: Eq. (14) as an inner problem with the scores of Eq. (15)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, inlined
from tether.learning.backup import Plan
from tether.learning.mixture_search import CLOSED, LARGEST, SCRATCH_ROWS, best_mixture
from tether.learning.mixture_supports import inner_product
from tether.learning.mixtures import best_pair, cost_rise, linear_optimum, scale_back
from tether.learning.safe_sets import ROUNDING, STATE
from tether.learning.scores import bonus_scales, dot, examine
from tether.learning.statistics import BAD_NUMBERS, BEST, ONLY_BASELINE, UNSOLVED, Rules
from tether.learning.tables import Tables
from tether.records import Array


class Desk(NamedTuple):
    """Scratch space for one inner problem of up to W actions besides a_0 under M constraints."""

    facts: Array  # ⟨ĝ, f⟩ − τ_s, β_s, δ, bound (4, M)
    gain: Array  # p (W,)
    rise: Array  # b (M, W)
    width: Array  # (W,)
    joint: Array  # C (W, W)
    factor: Array  # (W, W)
    work: Array  # (SCRATCH_ROWS, W)
    support: NDArray[np.int64]  # (W,)
    x: Array  # (W,)
    trial: Array  # (W,)


def new_desk(constraints: int, widest: int) -> Desk:
    """Room for states with up to `widest` candidates."""
    square, line = (widest, widest), widest
    return Desk(
        facts=np.zeros((4, constraints)),
        gain=np.zeros(line),
        rise=np.zeros((constraints, widest)),
        width=np.zeros(line),
        joint=np.zeros(square),
        factor=np.zeros(square),
        work=np.zeros((SCRATCH_ROWS, widest)),
        support=np.zeros(line, dtype=np.int64),
        x=np.zeros(line),
        trial=np.zeros(line),
    )


@inlined
def inner_problem(
    rules: Rules, tables: Tables, plan: Plan, projected: Array, step: int, stage: int, slot: int, desk: Desk
) -> tuple[int, float]:
    """The inner problem of one state on the desk: p, b, the widths, β_s and δ of its n actions besides a_0.

    Returns a reason not to look further (or BEST) and the score of a_0. The score of an action is ⟨w, φ⟩ plus its
    bonus, Eq. (15); by Jensen, the mean of the actions' widths is at least the width of their mean, so that the
    optimism of Lemma 2 also holds for the `certified` bonus.
    """
    first, last = tables.start[slot], tables.start[slot + 1]
    g00, is_star = tables.g00[stage, slot], tables.is_star[slot]
    safe_row = first + tables.baseline_row[slot]
    value_0 = dot(plan.weights[step], tables.phi_0[:, slot]) if is_star else projected[0, safe_row]
    trouble = BEST
    for j in range(plan.radius.shape[1]):
        mean_0 = dot(plan.gamma_hat[step, j], tables.phi_0[:, slot]) if is_star else projected[1 + j, safe_row]
        cost_0 = tables.baseline_cost[step, slot, j]
        found, radius, gap, bound = examine(rules, j, mean_0, plan.radius[step, j], cost_0, g00)
        desk.facts[0, j] = mean_0 - cost_0 if rules.conditioning == STATE else 0.0
        desk.facts[1, j], desk.facts[2, j], plan.bound[step, slot, j] = radius, gap, bound
        trouble = found if found != BEST else trouble
    if trouble != BEST:
        return trouble, value_0 + rules.value_radius[step] * np.sqrt(tables.v00[stage, slot])
    norm_scale, width_scale = bonus_scales(rules, step, desk.facts[2], desk.facts[1])
    score_0 = value_0 + norm_scale * np.sqrt(tables.v00[stage, slot])
    root, k = np.sqrt(g00), 0
    for row in range(first, last):
        if row == safe_row and not is_star:
            continue
        share = tables.cross[stage, row] / g00
        w = np.sqrt(tables.width2[stage, row])
        blur = ROUNDING * (w + abs(share) * root)
        desk.width[k] = w + blur
        bonus = norm_scale * np.sqrt(tables.vxx[stage, row]) + width_scale * (w + blur)
        desk.gain[k] = projected[0, row] + bonus - score_0
        for j in range(plan.radius.shape[1]):
            mean = projected[1 + j, row] - share * desk.facts[0, j]
            desk.rise[j, k] = mean - tables.baseline_cost[step, slot, j] + desk.facts[1, j] * blur
        k += 1
    return trouble, score_0


@inlined
def copy_products(tables: Tables, stage: int, slot: int, desk: Desk) -> None:
    """C of the actions besides a_0, onto the desk."""
    first, last = tables.start[slot], tables.start[slot + 1]
    skipped = -1 if tables.is_star[slot] else tables.baseline_row[slot]
    k = 0
    for row in range(last - first):
        if row != skipped:
            other = 0
            for column in range(last - first):
                if column != skipped:
                    desk.joint[k, other] = tables.joint[stage, first + row, column]
                    other += 1
            k += 1


@inlined
def obvious(n: int, score_0: float, desk: Desk) -> tuple[bool, int]:
    """Whether the best of all actions is a_0 (-1) or one that is certified alone: then there is nothing to trade."""
    best, largest, finite = -1, 0.0, np.isfinite(score_0)
    for k in range(n):
        finite = finite and np.isfinite(desk.gain[k])
        if desk.gain[k] > largest:
            best, largest = k, desk.gain[k]
    if not finite:
        return False, -1
    certified = True
    for j in range(desk.rise.shape[0]):
        if best >= 0:
            upper = desk.rise[j, best] + desk.facts[1, j] * desk.width[best]
            certified = certified and -np.inf < upper <= (1.0 - 1e-12) * desk.facts[2, j]
    return certified, best


@compiled
def certified_optimum(
    gain: Array,
    rise: Array,
    joint: Array,
    facts: Array,
    factor: Array,
    work: Array,
    support: NDArray[np.int64],
    x: Array,
) -> tuple[float, bool]:
    """The best certified mixture into x (n,): its value above a_0's, and whether a certificate shows that it is best.

    With several constraints the optimum under one of them is the optimum under all, if it satisfies all.
    """
    size, constraints = gain.shape[0], rise.shape[0]
    largest = 0.0
    for i in range(size):
        largest = max(largest, gain[i])
    if size > LARGEST:
        x[:] = 0.0
        return 0.0, largest == 0.0
    for j in range(constraints):
        bound = best_mixture(gain, rise[j], joint, facts[1, j], facts[2, j], factor, work, support, x)
        value = inner_product(gain, x, size)
        closed = bound - value <= CLOSED * largest
        for other in range(constraints):
            closed = closed and cost_rise(rise[other], joint, facts[1, other], x) <= facts[2, other]
        if closed:
            return value, True
    return 0.0, False


@compiled
def hoped_optimum(gain: Array, rise: Array, width: Array, joint: Array, facts: Array, work: Array, x: Array) -> float:
    """`directional`: the value of an optimistic mixture; x (n,) is that mixture scaled back toward a_0 until certified.

    The optimistic set takes each action at its lower bound b_i − β w_i. It contains every truly safe mixture on the
    event of the radius, since ‖Σ x_i R_i‖ <= Σ x_i w_i, and it is linear. Scaling costs at most a share
    1 − ρ <= 2β E_x[w]/δ of the hoped gain: THEORY section 5 with w averaged over the mixture played.
    """
    lower, value = work[4], np.inf
    tightest = 0
    for j in range(rise.shape[0]):
        for i in range(gain.shape[0]):
            lower[i] = rise[j, i] - facts[1, j] * width[i]
        hoped = linear_optimum(gain, lower, facts[2, j])[0]
        if hoped < value:
            value, tightest = hoped, j
    for i in range(gain.shape[0]):
        lower[i] = rise[tightest, i] - facts[1, tightest] * width[i]
    best_pair(gain, lower, facts[2, tightest], x)
    for j in range(rise.shape[0]):
        scale_back(rise[j], joint, facts[1, j], facts[2, j], x)
    return value


@compiled
def choose(hope: float, score_0: float, n: int, desk: Desk) -> tuple[float, int]:
    """The mixture to play, on the desk, with its score and the reason."""
    gain, width, x, trial = desk.gain[:n], desk.width[:n], desk.x[:n], desk.trial[:n]
    rise, joint, factor, work = desk.rise[:, :n], desk.joint[:n, :n], desk.factor[:n, :n], desk.work[:, :n]
    finite = np.isfinite(score_0)
    for i in range(n):
        finite = finite and np.isfinite(gain[i])
        x[i] = 0.0
    if not finite:
        return np.nan, BAD_NUMBERS
    if hope == 1.0:
        hoped = hoped_optimum(gain, rise, width, joint, desk.facts, work, x)
        return score_0 + hoped, BEST if x.sum() > 0.0 else ONLY_BASELINE
    value, solved = certified_optimum(gain, rise, joint, desk.facts, factor, work, desk.support, x)
    if not solved:
        x[:] = 0.0
        return score_0, UNSOLVED
    if hope > 0.0:
        value += hope * (hoped_optimum(gain, rise, width, joint, desk.facts, work, trial) - value)
    return score_0 + value, BEST if x.sum() > 0.0 else ONLY_BASELINE
