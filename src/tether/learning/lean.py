"""Choices and values at states whose candidates are not kept: whitened by BLAS in blocks, then judged by `assess`.

The tables of THEORY section 3 pay off where states come back. Where they hardly ever do, N × d numbers a state are too
many. Here a block of states is asked for, whitened with the factor U of A = UᵀU (one triangular solve for all its
candidates), judged and forgotten. In high dimensions a decision at a state that no plan covers is a block of one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm

from tether.compiled import compiled
from tether.errors import InputError
from tether.learning.backup import Plan, clipped_value, share_of_hope
from tether.learning.forms import conditioned_forms, plain_forms
from tether.learning.ridge import Ridge, refresh_spectrum, unwhiten, whiten
from tether.learning.safe_sets import EXACT
from tether.learning.scores import assess
from tether.learning.statistics import ALARM, ENDED, Memory, Rules, fit_cost
from tether.learning.visited import Visited
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array

WIDE = 32
"""From this dimension on, a single decision is faster through BLAS than through the loops of `assess_unplanned`."""

BLOCK_NUMBERS = 1 << 16
"""Numbers (candidates × d) that are whitened together: half a megabyte, which stays in the second-level cache."""


class Block(NamedTuple):
    """Some states with their candidates: columns 0..B-1 are the safe features, candidates follow, state by state."""

    columns: Array  # (d, B + R)
    start: NDArray[np.int64]  # columns start[s]:start[s+1] belong to state s (B + 1,)
    is_star: NDArray[np.bool_]  # (B,)
    baseline_row: NDArray[np.int64]  # row of a_0 within a finite set, -1 in a star (B,)
    baseline_cost: Array  # τ_h(s) at one step (B, M)
    final_reward: Array  # NaN where the trajectory goes on (B,)


class Fit(NamedTuple):
    """What all states share at one step: the last plan's w_h, and ĝ_h and β_c from the cost data."""

    step: int
    stage: int
    plans: int
    weights: Array  # (d,)
    gamma_hat: Array  # (M, d)
    radius: Array  # (M,)


class Verdicts(NamedTuple):
    """The choice in each state of a block with its bounds, and V of Eq. (10)."""

    row: NDArray[np.int64]  # -1 is the safe action (B,)
    length: Array  # (B,)
    score: Array  # (B,)
    reason: NDArray[np.int64]  # (B,)
    bound: Array  # (B, M)
    value: Array  # (B,)


def block_of(sets: Sequence[ActionSet], baseline_cost: Array, final_reward: Array) -> Block:
    """Put the candidates of several states side by side. baseline_cost (B, M), final_reward (B,)."""
    start = len(sets) + np.concatenate([[0], np.cumsum([len(actions.endpoints) for actions in sets])])
    rows = np.concatenate([[actions.phi_0 for actions in sets], *(actions.endpoints for actions in sets)])
    return Block(
        columns=np.ascontiguousarray(rows.T),
        start=start.astype(np.int64),
        is_star=np.array([actions.is_star for actions in sets]),
        baseline_row=np.array([actions.baseline for actions in sets], dtype=np.int64),
        baseline_cost=np.ascontiguousarray(baseline_cost),
        final_reward=np.ascontiguousarray(final_reward),
    )


def whitened(ridge: Ridge, stage: int, columns: Array) -> Array:
    """U^{-T} basisᵀ x of every column x, by BLAS: (d, n) -> (p, n)."""
    full = ridge.basis.shape[0] == ridge.basis.shape[1]
    inside = columns.copy() if full else np.ascontiguousarray(ridge.basis.T @ columns)
    if inside.size == 0:
        return inside
    # Row-major (p, n) is column-major (n, p): solving XᵀU^{-1} from the right needs no copy.
    solved: Array = dtrsm(1.0, ridge.factor[stage].T, inside.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    return solved


def judge(memory: Memory, rules: Rules, fit: Fit, block: Block) -> Verdicts:
    """`assess` for every state of a block."""
    size, constraints = block.baseline_cost.shape
    verdicts = Verdicts(
        row=np.empty(size, dtype=np.int64),
        length=np.empty(size),
        score=np.empty(size),
        reason=np.empty(size, dtype=np.int64),
        bound=np.empty((size, constraints)),
        value=np.empty(size),
    )
    with np.errstate(all="ignore"):  # what is not finite certifies nothing, and `assess` says so
        projected = np.vstack([fit.weights, fit.gamma_hat]) @ block.columns
        cost = whitened(memory.cost, fit.stage, block.columns)
        value = whitened(memory.value, fit.stage, block.columns)
    known = memory.cost.basis.shape[1] < memory.cost.basis.shape[0]
    judge_whitened(rules, fit, block, cost, value, projected, known, verdicts)
    return verdicts


@compiled
def judge_whitened(
    rules: Rules, fit: Fit, block: Block, cost: Array, value: Array, projected: Array, known: bool, verdicts: Verdicts
) -> None:
    """The forms of each state from its whitened columns, then its choice. projected (1 + M, B + R)."""
    size, constraints = verdicts.bound.shape
    hope, widest = share_of_hope(rules, fit.plans), 0
    for state in range(size):
        widest = max(widest, block.start[state + 1] - block.start[state])
    work, facts, forms = np.empty((5, widest)), np.empty((4, constraints)), np.zeros((4, widest))
    for state in range(size):
        final = block.final_reward[state]
        if final == final:
            left = final * (rules.horizon - fit.step)
            verdicts.row[state], verdicts.length[state] = -1, 0.0
            verdicts.score[state], verdicts.value[state], verdicts.reason[state] = left, left, ENDED
            verdicts.bound[state] = np.nan
            continue
        first, last = block.start[state], block.start[state + 1]
        width2, cross = forms[0, : last - first], forms[1, : last - first]
        vxx, v0x = forms[2, : last - first], forms[3, : last - first]
        g00 = 1.0
        if rules.conditioning != EXACT:
            g00 = conditioned_forms(cost[:, first:last], cost[:, state], known, width2, cross)
        v00 = plain_forms(value[:, first:last], value[:, state], vxx, v0x)
        row, length, score, reason = assess(
            rules, fit.step, hope, fit.weights, fit.gamma_hat, fit.radius, block.columns[:, state],
            block.is_star[state], block.baseline_row[state], block.baseline_cost[state], width2, cross, g00, vxx, v0x,
            v00, projected, first, work, facts, verdicts.bound[state],
        )  # fmt: skip
        verdicts.row[state], verdicts.length[state] = row, length
        verdicts.score[state], verdicts.reason[state] = score, reason
        verdicts.value[state] = clipped_value(rules, fit.step, score)


def choose_alone(
    memory: Memory,
    rules: Rules,
    known: KnownState,
    step: int,
    stage: int,
    plans: int,
    weights: Array,
    radius: Array,
    bound: Array,
) -> tuple[int, float, float, int]:
    """`assess_unplanned` by BLAS: (row, length, score, reason) at a state that no plan covers.

    Uses the newest cost data and the last plan's weights w_h (d,). β_c goes into `radius` (M,).
    """
    gamma_hat = np.empty((len(radius), len(weights)))
    fit_cost(memory, rules, step, stage, gamma_hat, radius)
    block = block_of([known.actions], known.baseline_cost[None, step], np.array([known.final_reward]))
    made = judge(memory, rules, Fit(step, stage, plans, weights, gamma_hat, radius), block)
    bound[:] = made.bound[0]
    return int(made.row[0]), float(made.length[0]), float(made.score[0]), int(made.reason[0])


@compiled
def fit_step(
    memory: Memory, rules: Rules, step: int, stage: int, moment: Array, weights: Array, gamma_hat: Array, radius: Array
) -> None:
    """w_h = A_h^{-1} b_h into weights (d,), ĝ_h into gamma_hat (M, d) and β_c into radius (M,)."""
    if rules.conditioning != EXACT:
        refresh_spectrum(memory.cost, stage)
    fit_cost(memory, rules, step, stage, gamma_hat, radius)
    for k in range(moment.shape[0]):
        weights[k] = moment[k]
    whiten(memory.value.factor[stage], weights)
    unwhiten(memory.value.factor[stage], weights)


def plan_lean(problem: Problem, memory: Memory, rules: Rules, visited: Visited, plan: Plan) -> Plan:
    """The first loop of Algorithm 1, backwards in h, over the states that matter: those that step h - 1 led to.

    Returns the plan: w_h, ĝ_h and β_c. An error in the problem's own functions leaves everything as it was.
    """
    spectrum = [(array, array.copy()) for array in (memory.cost.least, memory.cost.grid_log_det, memory.cost.grid_at)]
    try:
        return _backward_pass(problem, memory, rules, visited, plan)
    except BaseException:
        for array, before in spectrum:
            array[:] = before
        raise


def _backward_pass(problem: Problem, memory: Memory, rules: Rules, visited: Visited, plan: Plan) -> Plan:
    """w_h, ĝ_h, β_c and the values behind them, from the last step to the first."""
    horizon, stages = rules.horizon, len(memory.reward_moment)
    weights, gamma_hat, radius = np.zeros_like(plan.weights), np.zeros_like(plan.gamma_hat), np.zeros_like(plan.radius)
    made, alarms = plan.made + 1, []
    values = np.zeros(len(visited.members(stages - 1)))
    for step in range(horizon - 1, -1, -1):
        stage, before = (step, step - 1) if stages > 1 else (0, 0)
        with np.errstate(all="ignore"):
            moment = memory.reward_moment[stage] + values @ visited.moment(stage)
        fit_step(memory, rules, step, stage, moment, weights[step], gamma_hat[step], radius[step])
        if step > 0:
            fit = Fit(step, stage, int(made[0]), weights[step], gamma_hat[step], radius[step])
            members = visited.members(before)
            values, reasons = values_at(problem, memory, rules, fit, visited, members)
            alarms += [(step, int(state)) for state in members[reasons == ALARM]]
    visited.alarms = np.array(sorted(alarms), dtype=np.int64).reshape(-1, 2)
    return plan._replace(weights=weights, gamma_hat=gamma_hat, radius=radius, made=made)


def values_at(
    problem: Problem, memory: Memory, rules: Rules, fit: Fit, visited: Visited, members: NDArray[np.int64]
) -> tuple[Array, NDArray[np.int64]]:
    """V_h of Eq. (10) at some states, and the reason of each choice: (n,), (n,). Memory does not grow with n."""
    values, reasons = np.empty(len(members)), np.empty(len(members), dtype=np.int64)
    for first, sets in _blocks(problem, visited, members):
        states = members[first : first + len(sets)]
        block = block_of(sets, visited.baseline_cost[states, fit.step], visited.final_reward[states])
        verdicts = judge(memory, rules, fit, block)
        values[first : first + len(sets)] = verdicts.value
        reasons[first : first + len(sets)] = verdicts.reason
    return values, reasons


def _blocks(problem: Problem, visited: Visited, members: NDArray[np.int64]) -> Iterator[tuple[int, list[ActionSet]]]:
    """(position of the first state, D(s) of each) in blocks of about BLOCK_NUMBERS numbers."""
    sets: list[ActionSet] = []
    numbers, first = 0, 0
    for at, state in enumerate(members):
        actions = problem.actions(visited.states[state])
        if actions.endpoints.shape[1] != problem.dimension:
            raise InputError(
                f"state {visited.states[state]!r} now has features of dimension {actions.endpoints.shape[1]}, "
                f"but d = {problem.dimension}: `actions` must answer alike whenever it is asked."
            )
        sets.append(actions)
        numbers += actions.endpoints.size
        if numbers >= BLOCK_NUMBERS:
            yield first, sets
            sets, numbers, first = [], 0, at + 1
    if sets:
        yield first, sets
