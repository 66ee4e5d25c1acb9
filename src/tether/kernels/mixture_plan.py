"""The backward pass of Algorithm 2: the best certified mixture of actions in every known state.

Q̃ of Eq. (15) is not clipped, the value is. Each step sets up the inner problems of all states. Where the best action is
certified by itself there is nothing to solve; where a certificate shows that the mixture of the step after is still the
best, it is kept; the rest goes to `mixture_solver`.
"""

import numpy as np

from tether.kernels.bound import examine, fit_costs, keep_alarms, widened
from tether.kernels.choice import clipped_value, end_trajectory, norm_scale, optimism_share, width_scale
from tether.kernels.compiled import Cube, Integers, Matrix, Vector, kernel, record, use
from tether.kernels.mixture_solver import (
    CLOSED,
    SOLVED,
    InnerProblem,
    certified_optimum,
    conic_mixture,
    cost_rise,
    inner_product,
    is_played,
    linear_optimum,
    new_inner_problem,
    optimistic_optimum,
    slope_at,
)
from tether.kernels.model import (
    ALARM,
    BAD_NUMBERS,
    BASELINE_BEST,
    BEST,
    BOUND_0,
    COST_0,
    MARGIN,
    MEASURED,
    NO_SLACK,
    ONLY_BASELINE,
    RADIUS,
    SHIFT,
    STATE_ROWS,
    TOLD,
    UNSOLVED,
    Plan,
    Rules,
    Scratch,
    Tables,
)
from tether.kernels.plan import build, prepare_step, weigh_anew
from tether.kernels.radius import value_radius_at
from tether.kernels.ridge import Costs, Values, inner, project_rows, refresh_spectrum

ROUNDED = 4e-16
"""What subtracting two costs may lose, as a part of both."""


@record
class StepProblems:
    """The inner problems of all states at one step. R columns and S slots are capacity. a_0's own column has gain 0."""

    score_0: Vector  # score of a_0 (S,)
    gain: Vector  # p, the score above a_0's (R,)
    norm: Vector  # ‖x‖ in the inverse of the value Gram matrix (R,)
    width: Vector  # of each action alone, rounded up (R,)
    rise: Matrix  # b, the mean cost above that of a_0 (M, R)
    state: Cube  # what `bound.examine` found, row by row as in `Scratch.state` (S, STATE_ROWS, M)
    slack: Matrix  # δ = τ − τ_s, or τ − τ_s − e (S, M)
    trouble: Integers  # why only a_0 can be played, or BEST (S,)
    undecided: Integers  # slots that no mixture was found for yet (S,)
    kept_row: Integers  # the row of the plan whose mixture `slope` belongs to, -1 if none (S,)
    slope: Matrix  # of a linear minorant of g_j that touches it at that mixture (M, R)
    current: InnerProblem  # the one that is being solved


def new_step_problems(tables: Tables) -> StepProblems:
    """Room for the states of some tables."""
    constraints, slots, rows = tables.baseline_cost.shape[2], tables.phi_0.shape[1], tables.features.shape[1]
    return StepProblems(
        score_0=np.zeros(slots),
        gain=np.zeros(rows),
        norm=np.zeros(rows),
        width=np.zeros(rows),
        rise=np.zeros((constraints, rows)),
        state=np.zeros((slots, STATE_ROWS, constraints)),
        slack=np.zeros((slots, constraints)),
        trouble=np.zeros(slots, dtype=np.int64),
        undecided=np.zeros(slots, dtype=np.int64),
        kept_row=np.full(slots, -1, dtype=np.int64),
        slope=np.zeros((constraints, rows)),
        current=new_inner_problem(constraints, tables.joint.shape[2]),
    )


# Eq. (14) and Eq. (15): constraints and scores


@kernel
def constrain_step(
    rules: Rules,
    tables: Tables,
    plan: Plan,
    scratch: Scratch,
    problems: StepProblems,
    row: int,
    stage: int,
    carried: bool,
) -> None:
    """What the mixtures of every state must satisfy, into `problems`.

    With `carried`, ĝ, β_c and the tables are those of the step after. Then so are the constraints of every state whose
    τ_s is: they stay as they are, and only the scores will be new.
    """
    for slot in range(tables.slots[0]):
        if not (carried and same_baseline_cost(tables, row, slot)):
            constrain(rules, tables, plan, scratch, problems, row, stage, slot)


@kernel
def same_baseline_cost(tables: Tables, row: int, slot: int) -> bool:
    """Whether τ_s is that of the step after, or unknown at both (NaN), as where trajectories end."""
    for j in range(tables.baseline_cost.shape[2]):
        here, after = tables.baseline_cost[row, slot, j], tables.baseline_cost[row + 1, slot, j]
        if here != after and (here == here or after == after):
            return False
    return True


@kernel
def constrain(
    rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, problems: StepProblems, row: int, stage: int, slot: int
) -> None:
    """What one state's mixtures must satisfy: b, widths, β_s and δ. Mixtures of the step after can no longer be kept.

    The bound of x is start · (1 − Σx) + Σ x_i mean_i + β‖Σ x_i R_i‖, where a_0 costs at most `start`. That is τ_s; or
    τ_s + e, where it is known up to an error bar e. In that case means and widths are not conditioned on it
    (docs/theory.md section 17): all shares are 0. A misfit ε is in the margin of each action; a_0 itself has none.
    Where costs of single actions are proven otherwise (section 14), the bound is the mean of these: it has no width.
    """
    trouble = examine(rules, tables, plan, scratch, row, stage, slot)
    state, constraints = scratch.state, rules.threshold.shape[0]
    for j in range(constraints):
        for k in range(STATE_ROWS):
            problems.state[slot, k, j] = state[k, j]
        problems.slack[slot, j] = rules.threshold[j] - state[COST_0, j]
        if trouble == BEST and not problems.slack[slot, j] > 0.0:
            trouble = ONLY_BASELINE  # τ_s is under τ, but τ_s + e is not
    problems.trouble[slot] = trouble
    problems.kept_row[slot] = -1
    g00 = tables.g00[stage, slot]
    root = np.sqrt(g00)
    conditioned = rules.conditioning != MEASURED and g00 > 0.0
    for column in range(tables.start[slot], tables.start[slot + 1]):
        share = tables.cross[stage, column] / g00 if conditioned else 0.0
        width = widened(tables.width2[stage, column], share, root)
        blur = width - np.sqrt(tables.width2[stage, column])
        problems.width[column] = width
        problems.norm[column] = np.sqrt(tables.vxx[stage, column])
        for j in range(constraints):
            mean = scratch.projected[1 + j, column] - share * state[SHIFT, j]
            rounding = state[MARGIN, j] * (1.0 + abs(share)) + state[RADIUS, j] * blur
            problems.rise[j, column] = mean - state[COST_0, j] + rounding
            proven = tables.proven[stage, column, j]
            if proven == proven:
                problems.rise[j, column] = proven - state[COST_0, j] + ROUNDED * (proven + abs(state[COST_0, j]))
                problems.state[slot, RADIUS, j] = 0.0
                if proven == np.inf:  # nothing explains data and facts
                    problems.trouble[slot] = ALARM if problems.trouble[slot] == BEST else problems.trouble[slot]


@kernel
def score_step(
    rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, problems: StepProblems, step: int, row: int, stage: int
) -> None:
    """The score of a_0 and the gains p over it, of every state, into `problems`.

    The score of an action is ⟨w, φ⟩ plus its bonus, Eq. (15); by Jensen, the mean of the actions' widths is at least
    the width of their mean, so that the optimism of Lemma 2 also holds for the `certified` bonus.
    """
    for slot in range(tables.slots[0]):
        per_norm, per_width = plan.value_radius[row], 0.0
        if problems.trouble[slot] == BEST:
            for k in range(STATE_ROWS):
                for j in range(rules.threshold.shape[0]):
                    scratch.state[k, j] = problems.state[slot, k, j]
            per_norm = norm_scale(rules, scratch, plan.value_radius[row])
            per_width = width_scale(rules, scratch, step)
        elif problems.trouble[slot] == NO_SLACK:
            per_norm = 0.0  # κ has no value where Assumption 2 fails: nothing to be explored there
        safe = tables.start[slot] + tables.baseline_row[slot]
        is_star = tables.is_star[slot] != 0
        value_0 = inner(tables.phi_0, slot, plan.weights[row]) if is_star else scratch.projected[0, safe]
        score_0 = value_0 + per_norm * np.sqrt(tables.v00[stage, slot])
        problems.score_0[slot] = score_0
        for column in range(tables.start[slot], tables.start[slot + 1]):
            bonus = per_norm * problems.norm[column] + per_width * problems.width[column]
            problems.gain[column] = scratch.projected[0, column] + bonus - score_0
        if not is_star:
            problems.gain[safe] = 0.0


@kernel
def pose(tables: Tables, problems: StepProblems, stage: int, slot: int) -> None:
    """One state's inner problem into `problems.current`, without a_0's column."""
    current, first = problems.current, tables.start[slot]
    constraints, count = problems.rise.shape[0], tables.start[slot + 1] - first
    skipped = -1 if tables.is_star[slot] != 0 else tables.baseline_row[slot]
    for j in range(constraints):
        current.radius[j] = problems.state[slot, RADIUS, j]
        current.slack[j] = problems.slack[slot, j]
        current.bound[j] = problems.state[slot, BOUND_0, j]
    n = 0
    for i in range(count):
        if i != skipped:
            current.gain[n], current.width[n] = problems.gain[first + i], problems.width[first + i]
            for j in range(constraints):
                current.rise[j, n] = problems.rise[j, first + i]
            other = 0
            for k in range(count):
                if k != skipped:
                    current.joint[n, other] = tables.joint[stage, first + i, k]
                    other += 1
            n += 1
    current.size[0] = n


# Line 9 of Algorithm 2


@kernel
def mixture_value(rules: Rules, step: int, score: float) -> float:
    """Ṽ: the value is clipped to what the remaining steps can earn (the paper: to H), and is not negative."""
    return clipped_value(rules, step, 0.0 if score < 0.0 else score)


@kernel
def note_mixture(rules: Rules, plan: Plan, step: int, row: int, slot: int, score: float, reason: int) -> None:
    """Score, reason and value of a mixture."""
    plan.score[row, slot] = score
    plan.reason[row, slot] = reason
    plan.values[row, slot] = mixture_value(rules, step, score)


@kernel
def decide_obvious(rules: Rules, tables: Tables, plan: Plan, problems: StepProblems, step: int, row: int) -> int:
    """Decide every state whose best action is a_0 or certified by itself: then there is nothing to trade off.

    Returns how many states are left; they are listed in `problems.undecided`, and so far play a_0.
    """
    count = 0
    for slot in range(tables.slots[0]):
        final, trouble = tables.final_reward[slot], problems.trouble[slot]
        play_baseline(tables, plan, problems, row, slot)
        if final == final:
            end_trajectory(rules, plan, final, step, row, slot)
        elif trouble != BEST:
            note_mixture(rules, plan, step, row, slot, problems.score_0[slot], trouble)
        else:
            best, finite = best_action(tables, problems, slot)
            if not (finite and is_certified(problems, slot, best)):
                problems.undecided[count] = slot
                count += 1
                note_mixture(rules, plan, step, row, slot, problems.score_0[slot], UNSOLVED)
            elif best < 0:
                note_mixture(rules, plan, step, row, slot, problems.score_0[slot], BASELINE_BEST)
            else:
                play_action(tables, plan, problems, row, slot, best)
                note_mixture(rules, plan, step, row, slot, problems.score_0[slot] + problems.gain[best], BEST)
    return count


@kernel
def play_baseline(tables: Tables, plan: Plan, problems: StepProblems, row: int, slot: int) -> None:
    """a_0 with probability 1, and its bound, into the plan. In a star it has no column: all others are 0."""
    first = tables.start[slot]
    for column in range(first, tables.start[slot + 1]):
        plan.mixture[row, column] = 0.0
    if tables.baseline_row[slot] >= 0:
        plan.mixture[row, first + tables.baseline_row[slot]] = 1.0
    for j in range(plan.bound.shape[2]):
        plan.bound[row, slot, j] = problems.state[slot, BOUND_0, j]
    plan.row[row, slot] = -1
    plan.length[row, slot] = 0.0


@kernel
def play_action(tables: Tables, plan: Plan, problems: StepProblems, row: int, slot: int, column: int) -> None:
    """One certified action with probability 1, and its bound, into the plan."""
    if tables.baseline_row[slot] >= 0:
        plan.mixture[row, tables.start[slot] + tables.baseline_row[slot]] = 0.0
    plan.mixture[row, column] = 1.0
    for j in range(plan.bound.shape[2]):
        plan.bound[row, slot, j] = problems.state[slot, COST_0, j] + single_rise(problems, slot, j, column)
    plan.length[row, slot] = 1.0


@kernel
def best_action(tables: Tables, problems: StepProblems, slot: int) -> tuple[int, bool]:
    """The column with the largest gain over a_0, -1 if none is above 0; and whether all scores are finite."""
    best, largest, finite = -1, 0.0, np.isfinite(problems.score_0[slot])
    for column in range(tables.start[slot], tables.start[slot + 1]):
        finite = finite and np.isfinite(problems.gain[column])
        if problems.gain[column] > largest:
            best, largest = column, problems.gain[column]
    return best, finite


@kernel
def single_rise(problems: StepProblems, slot: int, j: int, column: int) -> float:
    """g_j of one action alone: how far its certified cost lies above that of a_0."""
    return problems.rise[j, column] + problems.state[slot, RADIUS, j] * problems.width[column]


@kernel
def is_certified(problems: StepProblems, slot: int, column: int) -> bool:
    """Whether an action may be played alone under every constraint; -1 is a_0. Minus infinity is an overflow."""
    for j in range(problems.rise.shape[0]):
        rise = 0.0 if column < 0 else single_rise(problems, slot, j, column)
        if not -np.inf < rise <= (1.0 - 1e-12) * problems.slack[slot, j]:
            return False
    return True


@kernel
def choose_mixture(problem: InnerProblem, score_0: float, optimism: float) -> tuple[float, int]:
    """The mixture to play into `problem.x` (n,), with its score and the reason.

    `optimism` in [0, 1] is how much of the optimistic value counts in the score. At 1 the optimistic mixture is also
    played, as far as it is certified.
    """
    size = problem.size[0]
    finite = np.isfinite(score_0)
    for i in range(size):
        finite = finite and np.isfinite(problem.gain[i])
        problem.x[i] = 0.0
    if not finite:
        return np.nan, BAD_NUMBERS
    if optimism == 1.0:
        value = optimistic_optimum(problem, problem.x)
        return score_0 + value, BEST if is_played(problem.x, size) else ONLY_BASELINE
    value, solved = certified_optimum(problem)
    if not solved:
        for i in range(size):
            problem.x[i] = 0.0
        return score_0, UNSOLVED
    if optimism > 0.0:
        value += optimism * (optimistic_optimum(problem, problem.trial) - value)
    return score_0 + value, BEST if is_played(problem.x, size) else ONLY_BASELINE


@kernel
def write_mixture(rules: Rules, tables: Tables, plan: Plan, problems: StepProblems, row: int, slot: int) -> bool:
    """Write the mixture of `problems.current` and its bound into the plan, after the bound was recomputed.

    Returns False, and writes a_0, if that bound is not under τ.
    """
    current, first = problems.current, tables.start[slot]
    total, certified = 0.0, True
    for i in range(current.size[0]):
        total += current.x[i]
    if total > 0.0:
        for j in range(current.slack.shape[0]):
            current.bound[j] = problems.state[slot, COST_0, j] + cost_rise(current, j, current.x)
            certified = certified and current.bound[j] <= rules.threshold[j]
        total = total if certified else 0.0
    if total > 0.0:
        for j in range(current.slack.shape[0]):
            plan.bound[row, slot, j] = current.bound[j]
    n = 0
    for column in range(first, tables.start[slot + 1]):
        if column - first == tables.baseline_row[slot]:
            plan.mixture[row, column] = 1.0 - total
        else:
            plan.mixture[row, column] = current.x[n] if total > 0.0 else 0.0
            n += 1
    plan.length[row, slot] = min(total, 1.0)
    return certified


@kernel
def decide_step(
    rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, problems: StepProblems, step: int, row: int, stage: int
) -> int:
    """Line 9 of Algorithm 2 for every state at one step, into row `row` of the plan. `problems` holds the constraints.

    Returns how many states are left open, listed in `problems.undecided`; they play a_0.
    """
    score_step(rules, tables, plan, scratch, problems, step, row, stage)
    optimism = optimism_share(rules, plan.made[0])
    still_open = 0
    for index in range(decide_obvious(rules, tables, plan, problems, step, row)):
        slot = problems.undecided[index]
        if optimism == 0.0 and keep_mixture(tables, plan, problems, row, slot):
            note_mixture(rules, plan, step, row, slot, plan.score[row, slot], BEST)
            continue
        pose(tables, problems, stage, slot)
        score, reason = choose_mixture(problems.current, problems.score_0[slot], optimism)
        if not write_mixture(rules, tables, plan, problems, row, slot):
            reason = ONLY_BASELINE
        note_mixture(rules, plan, step, row, slot, score, reason)
        if reason == UNSOLVED:
            problems.undecided[still_open] = slot
            still_open += 1
        elif optimism == 0.0 and reason == BEST:
            note_slope(tables, plan, problems, row, slot)
    return still_open


# Keep a mixture from one step of the plan to the step before it, as long as its certificate still closes
#
# Where steps share one regression and τ_s, the inner problem of a state differs between two steps in its gains p alone.
# What was feasible stays feasible, with the same bound; and a linear minorant of g does not know of p. So one linear
# program over the minorant that touches g at the old mixture says whether it is still the best, to the same tolerance.


@kernel
def note_slope(tables: Tables, plan: Plan, problems: StepProblems, row: int, slot: int) -> None:
    """Note minorants that touch each g_j at the mixture of `problems.current`, which the plan has taken as the best."""
    if not plan.length[row, slot] > 0.0:
        return
    current, first = problems.current, tables.start[slot]
    for j in range(problems.slope.shape[0]):
        slope_at(current, j, current.x, current.slope)
        n = 0
        for column in range(first, tables.start[slot + 1]):
            if column - first == tables.baseline_row[slot]:
                problems.slope[j, column] = 0.0
            else:
                if not np.isfinite(current.slope[n]):
                    return  # what is not a number bounds nothing
                problems.slope[j, column] = current.slope[n]
                n += 1
    problems.kept_row[slot] = row


@kernel
def keep_mixture(tables: Tables, plan: Plan, problems: StepProblems, row: int, slot: int) -> bool:
    """Take over the mixture of the step after, with its bound, if a certificate shows that it is best here too.

    Its score goes into the plan; the caller clips the value. `problems.kept_row` tells that the constraints have not
    changed.
    """
    if problems.kept_row[slot] != row + 1:
        return False
    first, last = tables.start[slot], tables.start[slot + 1]
    gain = problems.gain[first:last]
    value, largest = 0.0, 0.0
    for i in range(last - first):
        value += gain[i] * plan.mixture[row + 1, first + i]
        largest = max(largest, gain[i])
    bound = np.inf
    for j in range(problems.slope.shape[0]):
        slope = problems.slope[j, first:last]
        found, _, _, _ = linear_optimum(gain, slope, last - first, problems.slack[slot, j])
        bound = min(bound, found)
    score = problems.score_0[slot] + value
    if not (bound - value <= CLOSED * largest and np.isfinite(score)):  # also if some gain is not finite
        return False
    for column in range(first, last):
        plan.mixture[row, column] = plan.mixture[row + 1, column]
    for j in range(plan.bound.shape[2]):
        plan.bound[row, slot, j] = plan.bound[row + 1, slot, j]
    plan.length[row, slot] = plan.length[row + 1, slot]
    plan.score[row, slot] = score
    plan.reason[row, slot] = BEST
    problems.kept_row[slot] = row
    return True


# The first loop of Algorithm 2


def make_mixture_plan(costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch) -> None:
    """The first loop of Algorithm 2, backwards in h, for every known state."""
    if rules.conditioning != TOLD:
        refresh_spectrum(costs)
    weigh_anew(costs, rules, scratch)
    plan.made[0] += 1
    again = True
    while again:  # at most once more per stage and constraint: what is latched is for every state
        problems, step = new_step_problems(tables), rules.horizon - 1
        while step >= 0:
            step, count = plan_mixtures(costs, values, rules, tables, plan, scratch, problems, step)
            for slot in problems.undecided[:count]:
                solve_open(rules, tables, plan, problems, step, step, step if len(values.log_det) > 1 else 0, int(slot))
            step -= 1
        stages = [step if len(values.log_det) > 1 else 0 for step in range(rules.horizon)]
        again = sum(keep_alarms(costs, rules, plan, row, stage) for row, stage in enumerate(stages)) > 0
    plan.planned[0] = tables.slots[0]


@kernel
def plan_mixtures(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, problems: StepProblems,
    last_step: int,
) -> tuple[int, int]:  # fmt: skip
    """The first loop of Algorithm 2 from `last_step` down: (-1, 0) when done, or the step that has states left open.

    Those states (their number is the second result, `problems.undecided` lists them) play a_0 until another solver has
    answered; then the caller goes on from the step before.
    """
    for step in range(last_step, -1, -1):
        stage = step if values.factor.shape[0] > 1 else 0
        carried = prepare_step(costs, values, rules, tables, plan, scratch, step, stage)
        constrain_step(rules, tables, plan, scratch, problems, step, stage, carried)
        left_open = decide_step(rules, tables, plan, scratch, problems, step, step, stage)
        if left_open > 0:
            return step, left_open
    return -1, 0


def solve_open(
    rules: Rules, tables: Tables, plan: Plan, problems: StepProblems, step: int, row: int, stage: int, slot: int
) -> None:
    """One inner problem whose certificate stayed open, by an interior-point method; a_0 stays if it is still open."""
    pose(tables, problems, stage, slot)
    current = problems.current
    size = int(current.size[0])
    bound = conic_mixture(current)
    value = float(inner_product(current.gain, current.x, size))
    if bound - value <= SOLVED * float(current.gain[:size].max()):
        reason = BEST if current.x[:size].any() else ONLY_BASELINE
        if not write_mixture(rules, tables, plan, problems, row, slot):
            reason = ONLY_BASELINE
        note_mixture(rules, plan, step, row, slot, float(problems.score_0[slot]) + value, reason)


# A decision in a state that no plan covers


def choose_mixture_alone(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, step: int
) -> None:
    """The mixture of the one state in `tables`, from the newest cost data; the one row of `plan` has w_h."""
    problems = new_step_problems(tables)
    if plan_alone(costs, values, rules, tables, plan, scratch, problems, step):
        solve_open(rules, tables, plan, problems, step, 0, 0, 0)


@kernel
def plan_alone(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, problems: StepProblems,
    step: int,
) -> int:  # fmt: skip
    """`decide_step` for the one state in `tables`; returns 1 if it is left open."""
    rows = tables.start[tables.slots[0]]
    stage = step if values.factor.shape[0] > 1 else 0
    fit_costs(costs, rules, plan, scratch, step, 0, stage)
    plan.value_radius[0] = value_radius_at(values, rules, step, stage)
    build(costs, values, rules, tables, scratch, 0, stage)
    project_rows(tables.features, rows, plan.weights[0], scratch.projected[0])
    for j in range(rules.threshold.shape[0]):
        project_rows(tables.features, rows, plan.gamma_hat[0, j], scratch.projected[1 + j])
    constrain_step(rules, tables, plan, scratch, problems, 0, 0, False)
    return decide_step(rules, tables, plan, scratch, problems, step, 0, 0)


# The draw


@kernel
def draw_row(probabilities: Vector, baseline_row: int, uniform: float) -> int:
    """The candidate of `probabilities` (N,) that a uniform number falls on; -1 for a_0 and for what rounding leaves."""
    total = 0.0
    for row in range(probabilities.shape[0]):
        total += probabilities[row]
        if uniform < total:
            return -1 if row == baseline_row else row
    return -1


use(globals())
