"""Play interaction units: so many steps, in trajectories that end at the goal, in danger or in time, and restart.

Section 5.2's second experiment. Planning is the agent's own; the steps between two plans run in compiled code.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tether.agents.fixed import AlwaysSafe
from tether.agents.rslucb import RslucbQvi
from tether.errors import InputError
from tether.lab.episodes import (
    AT,
    FALLS,
    GOALS,
    PLACE,
    STEP,
    TRAJECTORIES,
    UNIT,
    UNIT_BASELINE,
    UNIT_REWARD,
    UNIT_VIOLATIONS,
    UNIT_WORST,
    Lake,
    UnitRun,
    run_steps,
    worst_planned,
)
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.records import Array

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


def lake_of(world: LinearMDP) -> Lake:
    """The arrays of a stationary world."""
    p = world.problem
    if world.rewards is None and not (world.true_theta == world.true_theta[0]).all():
        raise InputError("interaction units need a world whose rewards, costs and dynamics do not depend on the step.")
    return Lake(
        theta=np.array(world.true_theta[0]),
        gamma=np.array(world.true_gamma[0]),
        mu=np.array(world.true_mu[0]),
        noise=np.array(world.noise_scale),
        initial=np.array(world.initial),
        final=np.array([p.final_reward_of(state) for state in range(world.state_count)]),
        rewards=np.zeros((0, 0)) if world.rewards is None else np.array(world.rewards),
        arrival_cost=np.zeros((0, 0)) if world.arrival_cost is None else np.array(world.arrival_cost),
    )


def simulate_units(
    world: LinearMDP,
    agent: RslucbQvi | AlwaysSafe,
    units: int,
    streams: Streams,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
) -> UnitBooks:
    """Run `units` interaction units of an agent that knows the states 0..S-1 in this order."""
    agent.register(range(world.state_count))
    lake, books = lake_of(world), UnitBooks(*(np.zeros(units) for _ in UnitBooks._fields))
    counted = np.zeros((7, units))
    counted[UNIT_WORST] = books.planned_worst_cost[:] = -np.inf
    place = np.array([0, -1, 0, 0], dtype=np.int64)
    for unit in range(units):
        run = UnitRun(
            draws=streams.transitions.random((schedule.steps, 2)),
            normals=streams.noise.standard_normal((schedule.steps, world.problem.constraints)),
            coins=agent.rng.random(schedule.steps),
            counters=place,
            receding=schedule.receding,
            look_every=schedule.look_every if schedule.plan_each == "step" else 0,
            planned_growth=agent.planned_growth,
            books=counted,
            feature=np.zeros(world.problem.dimension),
            numbers=np.zeros(1 + world.problem.constraints),
        )
        place[AT], place[UNIT] = 0, unit
        while place[AT] < schedule.steps:
            at, begins = int(place[AT]), place[PLACE] < 0
            if schedule.plan_each == "step" or (begins and (schedule.plan_each == "trajectory" or at == 0)):
                _plan(agent, lake, unit, books)
            run_steps(
                agent.costs, agent.values, agent.rules, agent.tables, agent.current, agent.scratch, lake, run
            )  # fmt: skip
            agent.note_steps(int(place[AT]) - at)
            if place[PLACE] < 0 and not schedule.restarts:
                break
        if not schedule.restarts:
            place[PLACE], place[STEP] = -1, 0
        if progress is not None:
            progress(1)
    return _closed(books, counted)


def _closed(books: UnitBooks, counted: Array) -> UnitBooks:
    """The books with what compiled code has counted, and the shares that follow from it."""
    ended, goals = counted[TRAJECTORIES], counted[GOALS]
    some = np.maximum(ended, 1.0)
    return books._replace(
        trajectories=ended,
        goals=goals,
        falls=counted[FALLS],
        success=goals / some,
        average_return=(GOAL_RETURN * goals + OTHER_RETURN * (ended - goals)) / some,
        reward=counted[UNIT_REWARD],
        violations=counted[UNIT_VIOLATIONS],
        worst_cost=counted[UNIT_WORST],
        baseline=counted[UNIT_BASELINE],
    )


def _plan(agent: RslucbQvi | AlwaysSafe, lake: Lake, unit: int, books: UnitBooks) -> None:
    """Plan if it is time, and audit every state of the plan against the truth."""
    made = int(agent.current.made[0])
    agent.plan()
    if agent.current.made[0] > made:
        books.plans[unit] += 1
        costs = np.empty(agent.tables.features.shape[1])
        worst = worst_planned(agent.tables, agent.current, lake, agent.rules.threshold, costs)
        books.planned_worst_cost[unit] = max(books.planned_worst_cost[unit], worst)
