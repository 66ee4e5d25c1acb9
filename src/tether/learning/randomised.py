"""The backward pass of Algorithm 2: the best certified mixture of actions in every known state.

Q̃ of Eq. (15) is not clipped, the value is. The mixtures come from `mixture_choice`, their solver is `mixture_search`.
"""

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, inlined
from tether.learning.backup import Plan, end_of_trajectory, prepare_step, share_of_hope
from tether.learning.forms import project_rows
from tether.learning.mixture_choice import Desk, choose, copy_products, inner_problem, obvious
from tether.learning.mixtures import cost_rise
from tether.learning.safe_sets import EXACT
from tether.learning.statistics import BASELINE_BEST, BEST, ONLY_BASELINE, PAPER, UNSOLVED, Memory, Rules, fit_cost
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
    note(rules, plan, step, slot, score, reason, min(total, 1.0))


@inlined
def settle_obvious(
    rules: Rules, tables: Tables, plan: Plan, step: int, slot: int, score_0: float, best: int, desk: Desk
) -> None:
    """Write a single action (a_0 if `best` is -1) into the plan, with its bound."""
    first, last = tables.start[slot], tables.start[slot + 1]
    k = 0
    for row in range(first, last):
        if row - first == tables.baseline_row[slot]:
            plan.mixture[step, row] = 1.0 if best < 0 else 0.0
        else:
            plan.mixture[step, row] = 1.0 if k == best else 0.0
            k += 1
    if best < 0:
        note(rules, plan, step, slot, score_0, BASELINE_BEST, 0.0)
        return
    for j in range(desk.rise.shape[0]):
        upper = desk.rise[j, best] + desk.facts[1, j] * desk.width[best]
        plan.bound[step, slot, j] = tables.baseline_cost[step, slot, j] + upper
    note(rules, plan, step, slot, score_0 + desk.gain[best], BEST, 1.0)


@inlined
def note(rules: Rules, plan: Plan, step: int, slot: int, score: float, reason: int, length: float) -> None:
    """Score, reason, value, and the probability of leaving a_0."""
    plan.length[step, slot] = length
    plan.row[step, slot] = -1
    plan.score[step, slot] = score
    plan.reason[step, slot] = reason
    plan.values[step, slot] = mixture_value(rules, step, score)


@inlined
def mixture_value(rules: Rules, step: int, score: float) -> float:
    """Ṽ: the value is clipped to what the remaining steps can earn (the paper: to H), and is not negative."""
    limit = float(rules.horizon) if rules.explorer == PAPER else float(rules.horizon - step)
    return min(max(score, 0.0), limit) if score == score else limit


@inlined
def plan_state(
    rules: Rules, tables: Tables, plan: Plan, projected: Array, step: int, stage: int, slot: int, desk: Desk
) -> None:
    """Line 9 of Algorithm 2 for one state: its mixture, bound and value into the plan."""
    n = tables.start[slot + 1] - tables.start[slot] - (0 if tables.is_star[slot] else 1)
    trouble, score_0 = inner_problem(rules, tables, plan, projected, step, stage, slot, desk)
    if trouble != BEST:
        settle_obvious(rules, tables, plan, step, slot, score_0, -1, desk)
        plan.reason[step, slot] = trouble
        return
    is_obvious, best = obvious(n, score_0, desk)
    if is_obvious:
        settle_obvious(rules, tables, plan, step, slot, score_0, best, desk)
        return
    copy_products(tables, stage, slot, desk)
    score, reason = choose(share_of_hope(rules, plan.made[0]), score_0, n, desk)
    settle(rules, tables, plan, step, slot, score, reason, n, desk)


@compiled
def plan_mixtures(
    memory: Memory,
    rules: Rules,
    tables: Tables,
    plan: Plan,
    scratch: Array,
    desk: Desk,
    last_step: int,
    open_slots: NDArray[np.int64],
) -> tuple[int, int]:
    """The first loop of Algorithm 2 from `last_step` down: (-1, 0) when done, or the step that has states left open.

    Those states (their number is the second result, they are listed in `open_slots`) play a_0 until another solver has
    answered; then the caller goes on from the step before.
    """
    stages = memory.value.gram.shape[0]
    for step in range(last_step, -1, -1):
        stage = step if stages > 1 else 0
        prepare_step(memory, rules, tables, plan, scratch, step, stage)
        left_open = 0
        for slot in range(tables.slots[0]):
            if end_of_trajectory(rules, tables, plan, step, slot):
                continue
            plan_state(rules, tables, plan, scratch, step, stage, slot, desk)
            if plan.reason[step, slot] == UNSOLVED:
                open_slots[left_open] = slot
                left_open += 1
        if left_open > 0:
            return step, left_open
    return -1, 0


@compiled
def plan_alone(memory: Memory, rules: Rules, tables: Tables, plan: Plan, scratch: Array, desk: Desk, step: int) -> None:
    """`plan_state` for a state that no plan covers: `tables` holds it alone, `plan` the weights of the last plan."""
    stage = step if memory.value.gram.shape[0] > 1 else 0
    rows = tables.start[1]
    fit_cost(memory, rules, step, stage, plan.gamma_hat[step], plan.radius[step])
    only = tables.slots[0] - 1  # a literal 0 would compile `build` a second time
    build(tables, only, memory.cost, memory.value, stage, rules.conditioning != EXACT)
    project_rows(tables.features, rows, plan.weights[step], scratch[0])
    for j in range(rules.threshold.shape[0]):
        project_rows(tables.features, rows, plan.gamma_hat[step, j], scratch[1 + j])
    if not end_of_trajectory(rules, tables, plan, step, only):
        plan_state(rules, tables, plan, scratch, step, only, only, desk)


@compiled
def draw_row(probabilities: Array, baseline_row: int, uniform: float) -> int:
    """The candidate that a uniform number falls on; -1 for a_0, also for what rounding leaves over."""
    total = 0.0
    for row in range(probabilities.shape[0]):
        total += probabilities[row]
        if uniform < total:
            return -1 if row == baseline_row else row
    return -1
