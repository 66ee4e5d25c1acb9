"""The backward pass: lines 4-7 of Algorithm 1, for every known state.

The plan and the choice at a state that was never planned call the same `assess`, so they cannot disagree.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, inlined
from tether.learning.forms import project_rows
from tether.learning.ridge import refresh_spectrum, unwhiten, whiten
from tether.learning.safe_sets import EXACT
from tether.learning.scores import assess
from tether.learning.statistics import ADAPTIVE, DIRECTIONAL, ENDED, PAPER, Memory, Rules, fit_cost, target_moment
from tether.learning.tables import Tables, build, refresh
from tether.records import Array

QUARTER = 0.25
"""Share of hope between the square plans of `adaptive`: measured flat from 0 to 1/4, and it cannot touch safety."""


class Plan(NamedTuple):
    """The policy of the current episode: line 9 of Algorithm 1 for every known state, with its evidence."""

    weights: Array  # w_h (H, d)
    gamma_hat: Array  # known part + estimate (H, M, d)
    radius: Array  # β_c (H, M)
    values: Array  # V_h(s) (H + 1, S)
    score: Array  # unclipped score of the choice (H, S)
    row: NDArray[np.int64]  # -1 is the safe action (H, S)
    length: Array  # (H, S)
    bound: Array  # (H, S, M)
    reason: NDArray[np.int64]  # (H, S)
    mixture: Array  # θ over the candidates (H, R); no columns unless mixtures are planned
    planned: NDArray[np.int64]  # slots covered by the plan (1,)
    made: NDArray[np.int64]  # plans made so far, this one included (1,)


def new_plan(horizon: int, slots: int, constraints: int, dimension: int, rows: int = 0) -> Plan:
    """The safe action everywhere. `rows` is the number of candidates that mixtures are kept for."""
    return Plan(
        weights=np.zeros((horizon, dimension)),
        gamma_hat=np.zeros((horizon, constraints, dimension)),
        radius=np.zeros((horizon, constraints)),
        values=np.zeros((horizon + 1, slots)),
        score=np.zeros((horizon, slots)),
        row=np.full((horizon, slots), -1, dtype=np.int64),
        length=np.zeros((horizon, slots)),
        bound=np.zeros((horizon, slots, constraints)),
        reason=np.zeros((horizon, slots), dtype=np.int64),
        mixture=np.zeros((horizon, rows)),
        planned=np.zeros(1, dtype=np.int64),
        made=np.zeros(1, dtype=np.int64),
    )


@compiled
def make_plan(memory: Memory, rules: Rules, tables: Tables, plan: Plan, scratch: Array) -> None:
    """The first loop of Algorithm 1, backwards in h, for every known state."""
    stages = memory.value.gram.shape[0]
    constraints = rules.threshold.shape[0]
    slots = tables.slots[0]
    plan.made[0] += 1
    hope = share_of_hope(rules, plan.made[0])
    work, facts = np.empty((5, widest_state(tables))), np.empty((4, constraints))
    for step in range(rules.horizon - 1, -1, -1):
        stage = step if stages > 1 else 0
        prepare_step(memory, rules, tables, plan, scratch, step, stage)
        for slot in range(slots):
            if end_of_trajectory(rules, tables, plan, step, slot):
                continue
            first, last = tables.start[slot], tables.start[slot + 1]
            row, length, score, reason = assess(
                rules,
                step,
                hope,
                plan.weights[step],
                plan.gamma_hat[step],
                plan.radius[step],
                tables.phi_0[:, slot],
                tables.is_star[slot],
                tables.baseline_row[slot],
                tables.baseline_cost[step, slot],
                tables.width2[stage, first:last],
                tables.cross[stage, first:last],
                tables.g00[stage, slot],
                tables.vxx[stage, first:last],
                tables.v0x[stage, first:last],
                tables.v00[stage, slot],
                scratch,
                first,
                work,
                facts,
                plan.bound[step, slot],
            )
            plan.row[step, slot] = row
            plan.length[step, slot] = length
            plan.score[step, slot] = score
            plan.reason[step, slot] = reason
            plan.values[step, slot] = clipped_value(rules, step, score)
    plan.planned[0] = slots


@compiled
def prepare_step(
    memory: Memory, rules: Rules, tables: Tables, plan: Plan, scratch: Array, step: int, stage: int
) -> None:
    """Everything of one step that all states share: tables, ĝ_h, β_c, w_h, and their products with every candidate."""
    constraints = rules.threshold.shape[0]
    slots = tables.slots[0]
    rows = tables.start[slots]
    learns_cost = rules.conditioning != EXACT
    refresh(tables, memory.cost, memory.value, stage, learns_cost, scratch)
    if learns_cost:
        refresh_spectrum(memory.cost, stage)
    fitted = memory.value.gram.shape[0] == 1 and step < rules.horizon - 1 and carry_cost(rules, plan, step)
    if not fitted:
        fit_cost(memory, rules, step, stage, plan.gamma_hat[step], plan.radius[step])
    moment = target_moment(memory, stage, plan.values[step + 1], slots)
    whiten(memory.value.factor[stage], moment)
    unwhiten(memory.value.factor[stage], moment)
    for k in range(moment.shape[0]):
        plan.weights[step, k] = moment[k]
    project_rows(tables.features, rows, plan.weights[step], scratch[0])
    if not fitted:
        for j in range(constraints):
            project_rows(tables.features, rows, plan.gamma_hat[step, j], scratch[1 + j])


@compiled
def carry_cost(rules: Rules, plan: Plan, step: int) -> bool:
    """Pooled steps share one regression: ĝ and β_c of the step after, unless what is known of γ* differs (False)."""
    for j in range(plan.radius.shape[1]):
        plan.radius[step, j] = plan.radius[step + 1, j]
        for k in range(plan.gamma_hat.shape[2]):
            if rules.known_gamma[step, j, k] != rules.known_gamma[step + 1, j, k]:
                return False
            plan.gamma_hat[step, j, k] = plan.gamma_hat[step + 1, j, k]
    return True


@inlined
def end_of_trajectory(rules: Rules, tables: Tables, plan: Plan, step: int, slot: int) -> bool:
    """Whether trajectories end in this state. Its value is known then: the final reward of each remaining step."""
    final = tables.final_reward[slot]
    if final != final:
        return False
    plan.row[step, slot] = -1
    plan.length[step, slot] = 0.0
    plan.score[step, slot] = final * (rules.horizon - step)
    plan.reason[step, slot] = ENDED
    plan.values[step, slot] = plan.score[step, slot]
    for j in range(plan.bound.shape[2]):
        plan.bound[step, slot, j] = np.nan
    return True


@inlined
def share_of_hope(rules: Rules, plans: int) -> float:
    """How much of a ray's optimistic length counts when rays are compared; the length played stays certified.

    `directional` plans on hope alone: its values are optimistic, but while β_c is large it keeps choosing rays that
    can only be played at tiny lengths, which teach little. `adaptive` takes a quarter of it, and all of it in plans
    1, 4, 9, 16, …: K plans hold √K `directional` ones, so that no ray is ruled out for good, at √K cost.
    """
    if rules.explorer == DIRECTIONAL:
        return 1.0
    if rules.explorer != ADAPTIVE:
        return 0.0
    root = int(np.sqrt(plans))
    return 1.0 if root * root == plans else QUARTER


@compiled
def clipped_value(rules: Rules, step: int, score: float) -> float:
    """V of Eq. (10). The value is clipped, never the scores: clipped scores all tie while bonuses are large.

    The paper clips at H; no policy earns more than H − h + 1 from step h on, which the other explorers use.
    """
    limit = float(rules.horizon) if rules.explorer == PAPER else float(rules.horizon - step)
    return min(score, limit) if score == score else limit


@compiled
def assess_unplanned(
    memory: Memory,
    rules: Rules,
    tables: Tables,
    step: int,
    stage: int,
    plans: int,
    weights: Array,
    radius: Array,
    bound: Array,
) -> tuple[int, float, float, int]:
    """`assess` for a state that no plan covers: `tables` holds it alone, and its forms are built on the spot.

    Uses the newest cost data and the last plan's weights; β_c goes into `radius` (M,).
    """
    rows = tables.start[1]
    constraints = rules.threshold.shape[0]
    gamma_hat = np.empty((constraints, weights.shape[0]))
    fit_cost(memory, rules, step, stage, gamma_hat, radius)
    row = tables.slots[0] - 1  # the only one; a literal 0 would compile `build` a second time
    build(tables, row, memory.cost, memory.value, stage, rules.conditioning != EXACT)
    scratch = np.empty((1 + constraints, rows))
    project_rows(tables.features, rows, weights, scratch[0])
    for j in range(constraints):
        project_rows(tables.features, rows, gamma_hat[j], scratch[1 + j])
    return assess(
        rules,
        step,
        share_of_hope(rules, plans),
        weights,
        gamma_hat,
        radius,
        tables.phi_0[:, 0],
        tables.is_star[0],
        tables.baseline_row[0],
        tables.baseline_cost[step, 0],
        tables.width2[0, :rows],
        tables.cross[0, :rows],
        tables.g00[0, 0],
        tables.vxx[0, :rows],
        tables.v0x[0, :rows],
        tables.v00[0, 0],
        scratch,
        rows - rows,
        np.empty((5, rows)),
        np.empty((4, constraints)),
        bound,
    )


@compiled
def widest_state(tables: Tables) -> int:
    """The largest number of candidates in one state."""
    widest = 0
    for slot in range(tables.slots[0]):
        widest = max(widest, tables.start[slot + 1] - tables.start[slot])
    return widest
