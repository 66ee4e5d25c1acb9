"""Whole episodes and interaction units in compiled code: the same kernels that a live system calls one by one.

`simulate.py` drives it. A block of episodes stops where a plan needs the spectrum of the cost data
afresh, which is Python's work, and goes on from there.
"""

import numpy as np

from tether.kernels.compiled import Cube, Integers, Matrix, Vector, kernel, record, use
from tether.kernels.likelihood import Dual, Trials, keep_fact, observe_trial
from tether.kernels.mixture_plan import draw_row
from tether.kernels.model import KNOWN, TOLD, VISITED, Plan, Rules, Scratch, Tables
from tether.kernels.plan import observe, plan_backwards
from tether.kernels.ridge import Costs, Values, remember, remember_roughly, spectrum_is_old
from tether.lab.worlds.dynamics import draw, play

OVER = 1e-9
"""Costs this far over τ count as equal to τ in audits: the rounding of a dot product, far below any bound."""

REWARD, VALUE, OPTIMAL, VIOLATIONS, WORST, OPTIMISM, LENGTH, BASELINE = 0, 1, 2, 3, 4, 5, 6, 7
"""Rows of an episode's books, in the order of `simulate.Books`."""

TRAJECTORIES, GOALS, FALLS, UNIT_REWARD, UNIT_VIOLATIONS, UNIT_WORST, UNIT_BASELINE = 0, 1, 2, 3, 4, 5, 6
"""Rows of a unit's books that compiled code fills."""

EPISODE, LAST_PLAN = 0, 1
AT, PLACE, STEP, UNIT = 0, 1, 2, 3
"""Entries of `Run.counters` and `UnitRun.counters`."""


@record
class Truth:
    """The world as arrays, with its exact optimum."""

    theta: Matrix  # (H, d)
    gamma: Cube  # (H, M, d)
    mu: Cube  # (H, d, S)
    noise: Vector  # (M,)
    initial: Vector  # (S,)
    threshold: Vector  # (M,)
    optimal: Vector  # V*_1 (S,)


@record
class Run:
    """A block of episodes: its random numbers, its books, and where it stands."""

    uniforms: Matrix  # (K, H + 1)
    normals: Cube  # (K, H, M)
    books: Matrix  # (8, K)
    slots: Integers  # slot of each state of the world (S,)
    rarely: bool  # plan only when some det(A_h) has doubled or a fact was learned
    planned_growth: Matrix  # (3, G)
    counters: Integers  # next episode, the last that planned
    values: Matrix  # scratch (2, S)
    vectors: Matrix  # scratch (3, d)
    numbers: Vector  # reward and costs of a step (1 + M,)


def new_run(truth: Truth, uniforms: Matrix, normals: Cube, books: Matrix, planned_growth: Matrix, rarely: bool) -> Run:
    """A block that starts at its first episode."""
    dimension, states = truth.mu.shape[1:]
    return Run(
        uniforms=uniforms,
        normals=normals,
        books=books,
        slots=np.arange(states),
        rarely=rarely,
        planned_growth=planned_growth,
        counters=np.array([0, -1], dtype=np.int64),
        values=np.zeros((2, states)),
        vectors=np.zeros((3, dimension)),
        numbers=np.zeros(1 + len(truth.threshold)),
    )


@kernel
def is_due(costs: Costs, values: Values, rarely: bool, planned_growth: Matrix) -> bool:
    """Whether to plan: every episode, or when some det(A_h) has doubled or a fact was learned since the last plan."""
    if not rarely:
        return True
    for stage in range(values.log_det.shape[0]):
        if costs.log_det[stage] - planned_growth[0, stage] > np.log(2.0):
            return True
        if values.log_det[stage] - planned_growth[1, stage] > np.log(2.0):
            return True
        if costs.facts.count[stage] - planned_growth[2, stage] > np.log(2.0):
            return True
    return False


@kernel
def note_growth(costs: Costs, values: Values, planned_growth: Matrix) -> None:
    """What the plan that was just made rests on."""
    for stage in range(values.log_det.shape[0]):
        planned_growth[0, stage] = costs.log_det[stage]
        planned_growth[1, stage] = values.log_det[stage]
        planned_growth[2, stage] = costs.facts.count[stage]


@kernel
def remember_slot(
    costs: Costs, rules: Rules, tables: Tables, scratch: Scratch, step: int, stage: int, slot: int
) -> None:
    """The safe cost of a visited state becomes a fact, as in `LeastSquaresAgent.observe`."""
    if rules.memory != VISITED:
        return
    phi_0, cost = scratch.vectors[6], tables.baseline_cost[step, slot]
    for j in range(cost.shape[0]):
        if not np.isfinite(cost[j]):
            return
    for k in range(phi_0.shape[0]):
        phi_0[k] = tables.phi_0[k, slot]
    if rules.conditioning == KNOWN:
        remember(costs, stage, phi_0, cost, rules.gamma_norm, scratch.vectors)
    else:
        remember_roughly(costs, stage, phi_0, cost)


@kernel
def run_block(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, truth: Truth, run: Run
) -> bool:
    """Episodes of plan, act, observe where a state's slot is its index. False if the spectrum is to be refreshed."""
    stages, episode = values.factor.shape[0], run.counters[EPISODE]
    feature = run.vectors[0]
    while episode < run.uniforms.shape[0]:
        state = draw(truth.initial, run.uniforms[episode, 0])
        if is_due(costs, values, run.rarely, run.planned_growth):
            if rules.conditioning != TOLD:
                for stage in range(stages):
                    if spectrum_is_old(costs, stage):
                        return False
            plan_backwards(costs, values, rules, tables, plan, scratch)
            note_growth(costs, values, run.planned_growth)
            run.counters[LAST_PLAN] = episode
        start_episode(tables, plan, truth, run, state, episode)
        for step in range(rules.horizon):
            chosen_feature(tables, plan, step, state, feature)
            next_state = play(
                truth.theta[step], truth.gamma[step], truth.mu[step], truth.noise, feature,
                run.normals[episode, step], run.uniforms[episode, step + 1], run.numbers,
            )  # fmt: skip
            stage = step if stages > 1 else 0
            next_slot = -1 if step == rules.horizon - 1 and stages > 1 else next_state
            observe(costs, values, rules, stage, feature, run.numbers, next_slot, scratch.vectors)
            remember_slot(costs, rules, tables, scratch, step, stage, state)
            note_step(truth, run, step, episode, feature, run.numbers[0], plan.length[step, state])
            state = next_state
        episode += 1
        run.counters[EPISODE] = episode
    return True


@kernel
def chosen_feature(tables: Tables, plan: Plan, step: int, slot: int, feature: Vector) -> None:
    """φ of the planned choice, formed exactly as `act` forms it."""
    row, length = plan.row[step, slot], plan.length[step, slot]
    for k in range(feature.shape[0]):
        origin = tables.phi_0[k, slot]
        if row < 0:
            feature[k] = origin
        else:
            end = tables.features[k, tables.start[slot] + row]
            feature[k] = end if length == 1.0 else origin + length * (end - origin)


@kernel
def start_episode(tables: Tables, plan: Plan, truth: Truth, run: Run, state: int, episode: int) -> None:
    """The exact value of this episode's policy from its first state, beside the optimum and the plan's own claim."""
    horizon, dimension = truth.theta.shape[0], truth.theta.shape[1]
    count = truth.mu.shape[2]
    feature, q = run.vectors[1], run.vectors[2]
    for s in range(count):
        run.values[0, s] = 0.0
    for step in range(horizon - 1, -1, -1):
        for k in range(dimension):
            total = truth.theta[step, k]
            for s in range(count):
                total += truth.mu[step, k, s] * run.values[0, s]
            q[k] = total
        for s in range(count):
            if step > 0 or s == state:
                chosen_feature(tables, plan, step, run.slots[s], feature)
                total = 0.0
                for k in range(dimension):
                    total += q[k] * feature[k]
                run.values[1, s] = total
        for s in range(count):
            run.values[0, s] = run.values[1, s]
    run.books[VALUE, episode] = run.values[0, state]
    run.books[OPTIMAL, episode] = truth.optimal[state]
    run.books[OPTIMISM, episode] = plan.values[0, run.slots[state]] - truth.optimal[state]
    run.books[WORST, episode] = -np.inf


@kernel
def note_step(truth: Truth, run: Run, step: int, episode: int, feature: Vector, reward: float, length: float) -> None:
    """Reward, true cost and length of one played step."""
    horizon = truth.theta.shape[0]
    run.books[REWARD, episode] += reward
    run.books[LENGTH, episode] += length / horizon
    if length == 0.0:
        run.books[BASELINE, episode] += 1.0 / horizon
    worst = -np.inf
    for j in range(truth.threshold.shape[0]):
        over = -truth.threshold[j]
        for k in range(feature.shape[0]):
            over += truth.gamma[step, j, k] * feature[k]
        worst = max(worst, over)
    if worst > OVER:
        run.books[VIOLATIONS, episode] += 1.0
    run.books[WORST, episode] = max(run.books[WORST, episode], worst)


# Interaction units


@record
class Lake:
    """A stationary world as arrays."""

    theta: Vector  # (d,)
    gamma: Matrix  # (M, d)
    mu: Matrix  # (d, S)
    noise: Vector
    initial: Vector
    final: Vector  # NaN where the trajectory goes on (S,)
    rewards: Matrix  # (S, N), empty if rewards are linear
    arrival_cost: Matrix  # (M, S), empty if costs are observed with Gaussian noise


@record
class UnitRun:
    """The steps of one interaction unit: random numbers, books, and where the unit stands."""

    draws: Matrix  # (steps, 2)
    normals: Matrix  # (steps, M)
    coins: Vector  # (steps,)
    counters: Integers  # next step, state (-1: a trajectory is to begin), step within the trajectory, unit
    receding: bool  # always play the first step of a plan
    look_every: int  # steps of a trajectory after which it is asked whether a plan is due; 0: never
    planned_growth: Matrix  # (3, G)
    books: Matrix  # (7, units)
    trials: Trials  # outcomes of bounded costs; no cells if there are none
    dual: Dual  # scratch for these
    bounded: Integers  # numbers of the bounded constraints
    feature: Vector  # scratch (d,)
    numbers: Vector  # scratch (1 + M,)


@kernel
def expected_cost(tables: Tables, plan: Plan, row: int, slot: int, gamma: Vector) -> float:
    """⟨γ*, φ^θ(s)⟩ of one state's mixture, for one constraint."""
    total, left = 0.0, 1.0
    for i in range(tables.start[slot], tables.start[slot + 1]):
        probability = plan.mixture[row, i]
        if probability > 0.0:
            cost = 0.0
            for k in range(gamma.shape[0]):
                cost += gamma[k] * tables.features[k, i]
            total += probability * cost
            left -= probability
    if tables.is_star[slot] != 0:
        for k in range(gamma.shape[0]):
            total += left * gamma[k] * tables.phi_0[k, slot]
    return total


@kernel
def worst_planned(tables: Tables, plan: Plan, lake: Lake, threshold: Vector, costs: Vector) -> float:
    """The largest true expected cost over τ that a plan holds, where something is played. `costs` (R,) is scratch."""
    worst = -np.inf
    rows = tables.start[tables.slots[0]]
    for j in range(threshold.shape[0]):
        for i in range(rows):
            costs[i] = 0.0
        for k in range(tables.features.shape[0]):
            for i in range(rows):
                costs[i] += lake.gamma[j, k] * tables.features[k, i]
        for step in range(plan.mixture.shape[0]):
            for slot in range(tables.slots[0]):
                if lake.final[slot] == lake.final[slot]:
                    continue
                total = 0.0
                for i in range(tables.start[slot], tables.start[slot + 1]):
                    total += plan.mixture[step, i] * costs[i]
                worst = max(worst, total - threshold[j])
    return worst


@kernel
def observe_trials(rules: Rules, tables: Tables, run: UnitRun, step: int, stage: int, slot: int) -> None:
    """Count the outcome in `run.numbers` of every bounded cost, and remember the state's safe cost if that is done."""
    for i in range(run.bounded.shape[0]):
        j = run.bounded[i]
        cell = stage * rules.threshold.shape[0] + j
        observe_trial(run.trials, cell, run.feature, run.numbers[1 + j], run.dual)
        if rules.memory == VISITED:
            for k in range(run.feature.shape[0]):
                run.dual.step[k] = tables.phi_0[k, slot]
            keep_fact(run.trials, cell, run.dual.step, tables.baseline_cost[step, slot, j], rules.cost_error[j])


@kernel
def run_steps(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, lake: Lake, run: UnitRun
) -> None:
    """Play on until the unit or the trajectory is over or a plan is due."""
    stages, dimension, steps = values.factor.shape[0], tables.features.shape[0], run.draws.shape[0]
    at, unit = run.counters[AT], run.counters[UNIT]
    if run.counters[PLACE] < 0:
        run.counters[PLACE] = draw(lake.initial, run.draws[at, 1])
        run.counters[STEP] = 0
    while at < steps:
        state, step = run.counters[PLACE], run.counters[STEP]
        planned = 0 if run.receding else step
        first = tables.start[state]
        row = draw_row(
            plan.mixture[planned, first : tables.start[state + 1]], tables.baseline_row[state], run.coins[at]
        )
        taken = tables.baseline_row[state] if row < 0 else row
        for k in range(dimension):
            run.feature[k] = tables.phi_0[k, state] if row < 0 else tables.features[k, first + row]
        over = -np.inf
        for j in range(rules.threshold.shape[0]):
            over = max(over, expected_cost(tables, plan, planned, state, lake.gamma[j]) - rules.threshold[j])
        run.books[UNIT_WORST, unit] = max(run.books[UNIT_WORST, unit], over)
        run.books[UNIT_VIOLATIONS, unit] += 1.0 if over > OVER else 0.0
        arrived = play(
            lake.theta, lake.gamma, lake.mu, lake.noise, run.feature, run.normals[at], run.draws[at, 0], run.numbers
        )
        if lake.rewards.shape[0] > 0:
            run.numbers[0] = lake.rewards[state, taken]
        for j in range(lake.arrival_cost.shape[0]):
            run.numbers[1 + j] = lake.arrival_cost[j, arrived]
        stage = planned if stages > 1 else 0
        observe(costs, values, rules, stage, run.feature, run.numbers, arrived, scratch.vectors)
        remember_slot(costs, rules, tables, scratch, planned, stage, state)
        observe_trials(rules, tables, run, planned, stage, state)
        run.books[UNIT_REWARD, unit] += run.numbers[0]
        run.books[UNIT_BASELINE, unit] += (1.0 - plan.length[planned, state]) / steps
        at += 1
        run.counters[AT] = at
        run.counters[PLACE] = arrived
        run.counters[STEP] = step + 1
        final = lake.final[arrived]  # NaN where the trajectory goes on
        if final == final or (step + 1 >= rules.horizon and not run.receding):
            run.books[TRAJECTORIES, unit] += 1.0
            run.books[GOALS, unit] += 1.0 if final > 0.0 else 0.0
            run.books[FALLS, unit] += 1.0 if final <= 0.0 else 0.0
            run.counters[PLACE] = -1
            return
        if run.look_every > 0 and (step + 1) % run.look_every == 0 and is_due(costs, values, True, run.planned_growth):
            return


use(globals())
