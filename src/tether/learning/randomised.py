"""The backward pass of Algorithm 2: the best certified mixture of actions in every known state.

Q̃ of Eq. (15) is not clipped, the value is. The mixtures come from `mixture_choice`, their solver is `mixture_search`.
"""

import numpy as np

from tether.compiled import compiled, inlined, lean
from tether.learning.backup import Plan, prepare_step, share_of_hope
from tether.learning.forms import project_rows
from tether.learning.mixture_choice import Desk, Sheet, choose, inner_problems, put_on_desk
from tether.learning.mixture_reuse import keep_mixture, note_slope
from tether.learning.mixtures import cost_rise
from tether.learning.safe_sets import EXACT
from tether.learning.statistics import (
    BASELINE_BEST,
    BEST,
    ENDED,
    ONLY_BASELINE,
    PAPER,
    UNSOLVED,
    Memory,
    Rules,
    fit_cost,
)
from tether.learning.tables import Tables, build
from tether.records import Array


@inlined
def settle(
    rules: Rules, tables: Tables, plan: Plan, step: int, slot: int, score: float, reason: int, n: int, desk: Desk
) -> None:
    """Write the mixture on the desk into the plan, after its bound was recomputed; a_0 if that is not under τ."""
    first, last = tables.start[slot], tables.start[slot + 1]
    x, joint = desk.x[:n], desk.joint[:n, :n]
    total = 0.0
    for i in range(n):
        total += x[i]
    if total > 0.0:
        for j in range(desk.rise.shape[0]):
            raised = tables.baseline_cost[step, slot, j] + cost_rise(desk.rise[j, :n], joint, desk.facts[1, j], x)
            desk.facts[3, j] = raised
            if not raised <= rules.threshold[j]:
                total, reason = 0.0, ONLY_BASELINE
    if total > 0.0:
        for j in range(desk.rise.shape[0]):
            plan.bound[step, slot, j] = desk.facts[3, j]
    k = 0
    for row in range(first, last):
        if row - first == tables.baseline_row[slot]:
            plan.mixture[step, row] = 1.0 - total
        else:
            plan.mixture[step, row] = x[k] if total > 0.0 else 0.0
            k += 1
    plan.length[step, slot] = min(total, 1.0)
    plan.score[step, slot] = score
    plan.reason[step, slot] = reason
    plan.values[step, slot] = mixture_value(rules, step, score)


@lean
def settle_obvious(rules: Rules, tables: Tables, plan: Plan, step: int, sheet: Sheet) -> int:
    """Decide every state whose best action is a_0 or certified by itself: then there is nothing to trade off.

    Returns how many states are left; they are listed on the sheet, and so far play a_0.
    """
    count = 0
    for slot in range(tables.slots[0]):
        final = tables.final_reward[slot]
        first, last = tables.start[slot], tables.start[slot + 1]
        safe_row = first + tables.baseline_row[slot] if tables.baseline_row[slot] >= 0 else -1
        reason, best, largest, finite = plan.reason[step, slot], -1, 0.0, np.isfinite(sheet.score_0[slot])
        if final == final:
            reason = ENDED
        for row in range(first, last):
            plan.mixture[step, row] = 0.0
            finite = finite and np.isfinite(sheet.gain[row])
            if sheet.gain[row] > largest:
                best, largest = row, sheet.gain[row]
        score = sheet.score_0[slot] if final != final else final * (rules.horizon - step)
        if reason == BEST:
            certified = True
            for j in range(sheet.rise.shape[0]):
                upper = 0.0 if best < 0 else sheet.rise[j, best] + sheet.facts[slot, 1, j] * sheet.width[best]
                certified = certified and -np.inf < upper <= (1.0 - 1e-12) * sheet.facts[slot, 2, j]
            if not (finite and certified):
                sheet.left[count] = slot
                count += 1
                best, reason = -1, UNSOLVED
            elif best < 0:
                reason = BASELINE_BEST
            else:
                score += largest
                for j in range(sheet.rise.shape[0]):
                    upper = sheet.rise[j, best] + sheet.facts[slot, 1, j] * sheet.width[best]
                    plan.bound[step, slot, j] = tables.baseline_cost[step, slot, j] + upper
        else:
            best = -1
        chosen = best if best >= 0 else safe_row
        if chosen >= 0:
            plan.mixture[step, chosen] = 1.0
        plan.row[step, slot] = -1
        plan.length[step, slot] = 1.0 if best >= 0 else 0.0
        plan.score[step, slot] = score
        plan.reason[step, slot] = reason
        plan.values[step, slot] = score if reason == ENDED else mixture_value(rules, step, score)
    return count


@inlined
def mixture_value(rules: Rules, step: int, score: float) -> float:
    """Ṽ: the value is clipped to what the remaining steps can earn (the paper: to H), and is not negative."""
    limit = float(rules.horizon) if rules.explorer == PAPER else float(rules.horizon - step)
    return min(max(score, 0.0), limit) if score == score else limit


@lean
def plan_step(
    rules: Rules,
    tables: Tables,
    plan: Plan,
    projected: Array,
    step: int,
    stage: int,
    carried: bool,
    sheet: Sheet,
    desk: Desk,
) -> int:
    """Line 9 of Algorithm 2 for every state at one step; returns how many are left open, listed on the sheet."""
    inner_problems(rules, tables, plan, projected, step, stage, carried, sheet)
    hope = share_of_hope(rules, plan.made[0])
    still_open = 0
    for index in range(settle_obvious(rules, tables, plan, step, sheet)):
        slot = sheet.left[index]
        if hope == 0.0 and keep_mixture(tables, plan, step, slot, sheet):
            plan.values[step, slot] = mixture_value(rules, step, plan.score[step, slot])
            continue
        n = put_on_desk(tables, sheet, stage, slot, desk)
        score, reason = choose(hope, sheet.score_0[slot], n, desk)
        settle(rules, tables, plan, step, slot, score, reason, n, desk)
        if plan.reason[step, slot] == UNSOLVED:
            sheet.left[still_open] = slot
            still_open += 1
        elif hope == 0.0:
            note_slope(tables, plan, step, slot, n, desk, sheet)
    return still_open


@compiled
def plan_mixtures(
    memory: Memory, rules: Rules, tables: Tables, plan: Plan, scratch: Array, sheet: Sheet, desk: Desk, last_step: int
) -> tuple[int, int]:
    """The first loop of Algorithm 2 from `last_step` down: (-1, 0) when done, or the step that has states left open.

    Those states (their number is the second result, they are listed on the sheet) play a_0 until another solver has
    answered; then the caller goes on from the step before.
    """
    stages = memory.value.gram.shape[0]
    for step in range(last_step, -1, -1):
        stage = step if stages > 1 else 0
        carried = prepare_step(memory, rules, tables, plan, scratch, step, stage)
        left_open = plan_step(rules, tables, plan, scratch, step, stage, carried, sheet, desk)
        if left_open > 0:
            return step, left_open
    return -1, 0


def plan_alone(
    memory: Memory, rules: Rules, tables: Tables, plan: Plan, scratch: Array, sheet: Sheet, desk: Desk, step: int
) -> int:
    """`plan_step` for a state that no plan covers: `tables` holds it alone, `plan` the weights of the last plan."""
    stage = step if memory.value.gram.shape[0] > 1 else 0
    rows = int(tables.start[1])
    fit_cost(memory, rules, step, stage, plan.gamma_hat[step], plan.radius[step])
    build(tables, 0, memory.cost, memory.value, stage, rules.conditioning != EXACT)
    project_rows(tables.features, rows, plan.weights[step], scratch[0])
    for j in range(rules.threshold.shape[0]):
        project_rows(tables.features, rows, plan.gamma_hat[step, j], scratch[1 + j])
    return plan_step(rules, tables, plan, scratch, step, 0, False, sheet, desk)


@lean
def draw_row(probabilities: Array, baseline_row: int, uniform: float) -> int:
    """The candidate that a uniform number falls on; -1 for a_0, also for what rounding leaves over."""
    total = 0.0
    for row in range(probabilities.shape[0]):
        total += probabilities[row]
        if uniform < total:
            return -1 if row == baseline_row else row
    return -1
