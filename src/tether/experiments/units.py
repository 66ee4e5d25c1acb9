"""Play interaction units: so many steps, in trajectories that end at the goal, in danger or in time, and restart.

Section 5.2's second experiment. Planning is the agent's own; the steps between two plans run in compiled code.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.agents.rslucb_qvi import RslucbQvi
from tether.compiled import compiled
from tether.errors import InputError
from tether.experiments.simulate import is_due
from tether.learning.backup import Plan
from tether.learning.randomised import draw_row
from tether.learning.statistics import Memory, Rules, observe
from tether.learning.tables import Tables
from tether.records import Array
from tether.world.linear_mdp import SAFE_TOLERANCE, LinearMDP, Streams, draw, play

GOAL_RETURN, OTHER_RETURN = 6.0, 0.01
"""What the paper pays per trajectory: for reaching the goal, and otherwise."""


class UnitBooks(NamedTuple):
    """What a run is judged by, one entry per interaction unit (U,)."""

    trajectories: Array  # that ended in this unit
    goals: Array  # of which at the goal
    falls: Array  # of which in danger
    success: Array  # goals / trajectories, 0 if none ended
    average_return: Array  # per trajectory that ended; 0 if none did
    reward: Array  # Σ r over the steps of the unit
    violations: Array  # steps whose true expected cost exceeds τ
    worst_cost: Array  # largest true expected cost of a step taken, minus τ
    planned_worst_cost: Array  # the same over every (step, state) of every plan made in the unit
    baseline: Array  # mean probability of the safe action over the steps taken
    plans: Array  # plans made


class Schedule(NamedTuple):
    """How the steps of a unit are cut into trajectories and plans."""

    steps: int = 1000
    restarts: bool = True  # after a trajectory has ended; without, the unit is over then
    receding: bool = False  # always play the first step of a plan; trajectories then last until they end
    plan_each: str = "trajectory"  # or "step": whenever the agent's own rule says so, or "unit"
    look_every: int = 1  # steps of a trajectory after which that rule is asked again


class Lake(NamedTuple):
    """The world as arrays, for compiled code."""

    theta: Array
    gamma: Array
    mu: Array
    noise: Array
    initial: Array
    final: Array  # NaN where the trajectory goes on (S,)
    rewards: Array  # (S, N), empty if rewards are linear
    arrival_cost: Array  # (M, S), empty if costs are observed with Gaussian noise


def lake_of(world: LinearMDP) -> Lake:
    """The arrays of a stationary world."""
    p = world.problem
    if world.rewards is None and not (world.true_theta == world.true_theta[0]).all():
        raise InputError("interaction units need a world whose rewards, costs and dynamics do not depend on the step.")
    return Lake(
        world.true_theta[0],
        world.true_gamma[0],
        world.true_mu[0],
        world.noise_scale,
        world.initial,
        np.array([p.final_reward_of(state) for state in range(world.state_count)]),
        np.zeros((0, 0)) if world.rewards is None else world.rewards,
        np.zeros((0, 0)) if world.arrival_cost is None else world.arrival_cost,
    )


def simulate_units(
    world: LinearMDP,
    agent: RslucbQvi,
    units: int,
    streams: Streams,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
) -> UnitBooks:
    """Run `units` interaction units of an agent that knows the states 0..S-1 in this order."""
    agent.register(range(world.state_count))
    lake, books = lake_of(world), UnitBooks(*(np.zeros(units) for _ in UnitBooks._fields))
    look_every = schedule.look_every if schedule.plan_each == "step" else 0
    place = np.array([-1, 0], dtype=np.int64)  # state (-1: a trajectory is to begin) and step within the trajectory
    for unit in range(units):
        draws = streams.transitions.random((schedule.steps, 2))
        normals = streams.noise.standard_normal((schedule.steps, world.problem.constraints))
        coins = agent.rng.random(schedule.steps)
        books.worst_cost[unit] = books.planned_worst_cost[unit] = -np.inf
        at = 0
        while at < schedule.steps:
            if schedule.plan_each == "step" or (place[0] < 0 and (schedule.plan_each == "trajectory" or at == 0)):
                _plan(agent, lake, unit, books)
            before = at
            at = run_steps(
                agent.memory, agent.rules, agent.tables, agent.current, lake, draws, normals, coins, at, place,
                schedule.receding, look_every, agent.planned_log_det, unit, books,
            )  # fmt: skip
            agent.note_steps(at - before)
            if place[0] < 0 and not schedule.restarts:
                break
        if not schedule.restarts:
            place[:] = -1, 0
        ended = books.trajectories[unit]
        if ended > 0:
            books.success[unit] = books.goals[unit] / ended
            lost = ended - books.goals[unit]
            books.average_return[unit] = (GOAL_RETURN * books.goals[unit] + OTHER_RETURN * lost) / ended
        if progress is not None:
            progress(1)
    return books


def _plan(agent: RslucbQvi, lake: Lake, unit: int, books: UnitBooks) -> None:
    """Plan if it is time, and audit every state of the plan against the truth."""
    made = int(agent.current.made[0])
    agent.plan()
    if agent.current.made[0] > made:
        books.plans[unit] += 1
        worst = worst_planned(agent.tables, agent.current, lake, agent.rules.threshold)
        books.planned_worst_cost[unit] = max(books.planned_worst_cost[unit], worst)


@compiled
def expected_cost(tables: Tables, probabilities: Array, slot: int, gamma: Array) -> float:
    """⟨γ*, φ^θ(s)⟩ of one state's mixture, for one constraint."""
    total, left = 0.0, 1.0
    for i in range(probabilities.shape[0]):
        if probabilities[i] > 0.0:
            cost = 0.0
            for k in range(gamma.shape[0]):
                cost += gamma[k] * tables.features[k, tables.start[slot] + i]
            total += probabilities[i] * cost
            left -= probabilities[i]
    if tables.is_star[slot]:
        for k in range(gamma.shape[0]):
            total += left * gamma[k] * tables.phi_0[k, slot]
    return total


@compiled
def worst_planned(tables: Tables, plan: Plan, lake: Lake, threshold: Array) -> float:
    """The largest true expected cost over τ that a plan holds, where a_0 itself is not over τ."""
    worst = -np.inf
    rows = tables.start[tables.slots[0]]
    cost = np.zeros((threshold.shape[0], rows))
    for j in range(threshold.shape[0]):
        for k in range(tables.features.shape[0]):
            for row in range(rows):
                cost[j, row] += lake.gamma[j, k] * tables.features[k, row]
    for step in range(plan.mixture.shape[0]):
        for slot in range(tables.slots[0]):
            if lake.final[slot] == lake.final[slot]:
                continue
            for j in range(threshold.shape[0]):
                total = 0.0
                for row in range(tables.start[slot], tables.start[slot + 1]):
                    total += plan.mixture[step, row] * cost[j, row]
                worst = max(worst, total - threshold[j])
    return worst


@compiled
def run_steps(
    memory: Memory,
    rules: Rules,
    tables: Tables,
    plan: Plan,
    lake: Lake,
    draws: Array,
    normals: Array,
    coins: Array,
    at: int,
    place: NDArray[np.int64],
    receding: bool,
    look_every: int,
    planned_log_det: Array,
    unit: int,
    books: UnitBooks,
) -> int:
    """Play from draw `at` on until the unit or the trajectory is over or a plan is due; returns the next draw."""
    stages, dimension = memory.value.gram.shape[0], tables.features.shape[0]
    feature, costs = np.empty(dimension), np.empty(rules.threshold.shape[0])
    steps = draws.shape[0]
    if place[0] < 0:
        place[0], place[1] = draw(lake.initial, draws[at, 1]), 0
    while at < steps:
        state, step = place[0], place[1]
        planned = 0 if receding else step
        first, last = tables.start[state], tables.start[state + 1]
        mixture = plan.mixture[planned, first:last]
        row = draw_row(mixture, tables.baseline_row[state], coins[at])
        taken = tables.baseline_row[state] if row < 0 else row
        for k in range(dimension):
            feature[k] = tables.phi_0[k, state] if row < 0 else tables.features[k, first + row]
        over = -np.inf
        for j in range(costs.shape[0]):
            over = max(over, expected_cost(tables, mixture, state, lake.gamma[j]) - rules.threshold[j])
        books.worst_cost[unit] = max(books.worst_cost[unit], over)
        books.violations[unit] += 1.0 if over > SAFE_TOLERANCE else 0.0
        reward, arrived = play(lake.theta, lake.gamma, lake.mu, lake.noise, feature, normals[at], draws[at, 0], costs)
        if lake.rewards.shape[0] > 0:
            reward = lake.rewards[state, taken]
        for j in range(lake.arrival_cost.shape[0]):
            costs[j] = lake.arrival_cost[j, arrived]
        stage = planned if stages > 1 else 0
        observe(memory, rules, stage, planned, feature, reward, costs, True, arrived)
        books.reward[unit] += reward
        books.baseline[unit] += (1.0 - plan.length[planned, state]) / steps
        at += 1
        place[0], place[1] = arrived, step + 1
        final = lake.final[arrived]  # NaN where the trajectory goes on
        if final == final or (place[1] >= rules.horizon and not receding):
            books.trajectories[unit] += 1.0
            books.goals[unit] += 1.0 if final > 0.0 else 0.0
            books.falls[unit] += 1.0 if final <= 0.0 else 0.0
            place[0] = -1
            return at
        if look_every > 0 and place[1] % look_every == 0 and is_due(memory, True, planned_log_det):
            return at
    return at
