"""The choice in one state of Algorithm 2: Eq. (14) as an inner problem with the scores of Eq. (15)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, inlined, lean
from tether.learning.backup import Plan
from tether.learning.mixture_search import CLOSED, LARGEST, SCRATCH_ROWS, best_mixture
from tether.learning.mixture_supports import inner_product
from tether.learning.mixtures import best_pair, cost_rise, is_played, linear_optimum, scale_back
from tether.learning.safe_sets import ROUNDING, STATE
from tether.learning.scores import bonus_scales, dot, examine
from tether.learning.statistics import BAD_NUMBERS, BEST, NO_SLACK, ONLY_BASELINE, UNSOLVED, Rules
from tether.learning.tables import Tables
from tether.records import Array


class Sheet(NamedTuple):
    """The inner problems of every state at one step; a_0's own row has gain 0 and slope 0."""

    score_0: Array  # score of a_0 (S,)
    gain: Array  # p, the score above a_0's (R,)
    norm: Array  # ‖x‖ in the inverse of the value Gram matrix (R,)
    width: Array  # (R,)
    rise: Array  # b (M, R)
    facts: Array  # ⟨ĝ, f⟩ − τ_s, β_s, δ, bound of a_0 (S, 4, M)
    trouble: NDArray[np.int64]  # why only a_0 can be played, or BEST (S,)
    left: NDArray[np.int64]  # slots that are not decided yet (S,)
    held: NDArray[np.int64]  # the step whose mixture in the plan has its slope noted here, -1 if none (S,)
    slope: Array  # of a linear minorant of g that touches it at that mixture (M, R)


class Desk(NamedTuple):
    """Scratch space for one inner problem of up to W actions besides a_0 under M constraints."""

    facts: Array  # ⟨ĝ, f⟩ − τ_s, β_s, δ, bound of the choice (4, M)
    gain: Array  # (W,)
    rise: Array  # (M, W)
    width: Array  # (W,)
    joint: Array  # C (W, W)
    factor: Array  # (W, W)
    work: Array  # (SCRATCH_ROWS, W)
    support: NDArray[np.int64]  # (W,)
    x: Array  # (W,)
    trial: Array  # (W,)


@compiled
def new_sheet(constraints: int, slots: int, rows: int) -> Sheet:
    """Room for the states of a plan."""
    return Sheet(
        np.zeros(slots),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros(rows),
        np.zeros((constraints, rows)),
        np.zeros((slots, 4, constraints)),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.full(slots, -1),
        np.zeros((constraints, rows)),
    )


@compiled
def new_desk(constraints: int, widest: int) -> Desk:
    """Room for states with up to `widest` candidates."""
    return Desk(
        np.zeros((4, constraints)),
        np.zeros(widest),
        np.zeros((constraints, widest)),
        np.zeros(widest),
        np.zeros((widest, widest)),
        np.zeros((widest, widest)),
        np.zeros((SCRATCH_ROWS, widest)),
        np.zeros(widest, dtype=np.int64),
        np.zeros(widest),
        np.zeros(widest),
    )


@lean
def inner_problems(
    rules: Rules, tables: Tables, plan: Plan, projected: Array, step: int, stage: int, carried: bool, sheet: Sheet
) -> None:
    """p, b, widths, β_s and δ of every state onto the sheet; why only a_0 can be played (or BEST) into the plan.

    The score of an action is ⟨w, φ⟩ plus its bonus, Eq. (15); by Jensen, the mean of the actions' widths is at least
    the width of their mean, so that the optimism of Lemma 2 also holds for the `certified` bonus. All states in one
    call: passing this many arrays costs more than one state's arithmetic. With `carried`, ĝ, β_c and the tables are
    those of the step after, and so are the constraints of every state whose τ_s is: only the scores are new.
    """
    for slot in range(tables.slots[0]):
        first, last = tables.start[slot], tables.start[slot + 1]
        if not (carried and same_baseline_cost(tables, step, slot)):
            constrain(rules, tables, plan, projected, step, stage, slot, sheet)
        trouble = sheet.trouble[slot]
        plan.reason[step, slot] = trouble
        for j in range(plan.radius.shape[1]):
            plan.bound[step, slot, j] = sheet.facts[slot, 3, j]
        norm_scale, width_scale = rules.value_radius[step], 0.0
        if trouble == BEST:
            norm_scale, width_scale = bonus_scales(rules, step, sheet.facts[slot])
        elif trouble == NO_SLACK:
            norm_scale = 0.0  # κ has no value where Assumption 2 fails: nothing to be explored there
        is_star, safe_row = tables.is_star[slot], first + tables.baseline_row[slot]
        value_0 = dot(plan.weights[step], tables.phi_0[:, slot]) if is_star else projected[0, safe_row]
        score_0 = value_0 + norm_scale * np.sqrt(tables.v00[stage, slot])
        sheet.score_0[slot] = score_0
        for row in range(first, last):
            bonus = norm_scale * sheet.norm[row] + width_scale * sheet.width[row]
            sheet.gain[row] = projected[0, row] + bonus - score_0
        if not is_star:
            sheet.gain[safe_row] = 0.0


@inlined
def same_baseline_cost(tables: Tables, step: int, slot: int) -> bool:
    """Whether τ_s is that of the step after (NaN is not)."""
    for j in range(tables.baseline_cost.shape[2]):
        if tables.baseline_cost[step, slot, j] != tables.baseline_cost[step + 1, slot, j]:
            return False
    return True


@inlined
def constrain(
    rules: Rules, tables: Tables, plan: Plan, projected: Array, step: int, stage: int, slot: int, sheet: Sheet
) -> None:
    """What one state's mixtures must satisfy, onto the sheet: b, widths, β_s and δ. Nothing older may be kept."""
    first, last = tables.start[slot], tables.start[slot + 1]
    g00, is_star = tables.g00[stage, slot], tables.is_star[slot]
    safe_row = first + tables.baseline_row[slot]
    facts = sheet.facts[slot]
    sheet.held[slot], sheet.trouble[slot] = -1, BEST
    for j in range(facts.shape[1]):
        mean_0 = dot(plan.gamma_hat[step, j], tables.phi_0[:, slot]) if is_star else projected[1 + j, safe_row]
        cost_0 = tables.baseline_cost[step, slot, j]
        found, facts[1, j], facts[2, j], facts[3, j] = examine(rules, j, mean_0, plan.radius[step, j], cost_0, g00)
        facts[0, j] = mean_0 - cost_0 if rules.conditioning == STATE else 0.0
        if found != BEST:
            sheet.trouble[slot] = found
    root = np.sqrt(g00)
    for row in range(first, last):
        share = tables.cross[stage, row] / g00
        w = np.sqrt(tables.width2[stage, row])
        blur = ROUNDING * (w + abs(share) * root)
        sheet.width[row] = w + blur
        sheet.norm[row] = np.sqrt(tables.vxx[stage, row])
        for j in range(facts.shape[1]):
            mean = projected[1 + j, row] - share * facts[0, j]
            sheet.rise[j, row] = mean - tables.baseline_cost[step, slot, j] + facts[1, j] * blur


@inlined
def put_on_desk(tables: Tables, sheet: Sheet, stage: int, slot: int, desk: Desk) -> int:
    """One state's inner problem, without a_0's row; returns n, the number of other actions."""
    first, last = tables.start[slot], tables.start[slot + 1]
    skipped = -1 if tables.is_star[slot] else tables.baseline_row[slot]
    for i in range(4):
        for j in range(desk.rise.shape[0]):
            desk.facts[i, j] = sheet.facts[slot, i, j]
    k = 0
    for row in range(last - first):
        if row != skipped:
            desk.gain[k], desk.width[k] = sheet.gain[first + row], sheet.width[first + row]
            for j in range(desk.rise.shape[0]):
                desk.rise[j, k] = sheet.rise[j, first + row]
            other = 0
            for column in range(last - first):
                if column != skipped:
                    desk.joint[k, other] = tables.joint[stage, first + row, column]
                    other += 1
            k += 1
    return k


@inlined
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


@lean
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


@inlined
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
        return score_0 + hoped, BEST if is_played(x) else ONLY_BASELINE
    value, solved = certified_optimum(gain, rise, joint, desk.facts, factor, work, desk.support, x)
    if not solved:
        x[:] = 0.0
        return score_0, UNSOLVED
    if hope > 0.0:
        value += hope * (hoped_optimum(gain, rise, width, joint, desk.facts, work, trial) - value)
    return score_0 + value, BEST if is_played(x) else ONLY_BASELINE
