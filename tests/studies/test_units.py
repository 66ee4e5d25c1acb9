"""Interaction units: the compiled run is the live one, and its books say what happened."""

import numpy as np
import pytest

from tether.agents.fixed import AlwaysSafe
from tether.agents.likelihood import Likelihoods
from tether.agents.listed import NOTHING
from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig
from tether.errors import InputError
from tether.lab.simulate import GOAL_RETURN, OTHER_RETURN, simulate_units
from tether.lab.specs import Schedule
from tether.lab.worlds.lake import DANGER, GOAL, START, frozen_lake
from tether.lab.worlds.linear_mdp import Streams

CONFIG = SlucbConfig(
    explorer="plain", cost_radius=0.05, value_radius=0.5, cost_ridge=1e-6, value_ridge=1e-6, pooled=True
)


def lake_and_agent(seed, config=CONFIG, **options):
    streams = Streams.from_seed(seed)
    world = frozen_lake(streams.instance, **options)
    return world, RslucbQvi(world.problem, config, rng=streams.agent), streams


def play_live(world, agent, units, streams, steps):
    """The same units by plan, act and observe, as a live system would, with the world's draws in the same order."""
    agent.register(range(world.state_count))
    state, step, history = None, 0, []
    for _ in range(units):
        draws = streams.transitions.random((steps, 2))
        normals = streams.noise.standard_normal((steps, 1))
        for at in range(steps):
            if state is None:
                agent.plan()
                state, step = START, 0
            decision = agent.act(step, state)
            law = decision.feature @ world.true_mu[0]
            arrived = int(np.searchsorted(np.cumsum(np.maximum(law, 0.0)), draws[at, 0], side="right"))
            cost = float(world.true_gamma[0, 0] @ decision.feature + world.noise_scale[0] * normals[at, 0])
            reward = float(world.true_theta[0] @ decision.feature)
            agent.observe(decision.outcome(reward=reward, cost=cost, next_state=arrived))
            history.append((state, decision, arrived))
            step += 1
            state = None if world.ended[arrived] or step == world.problem.horizon else arrived
    return history


def test_a_compiled_run_is_the_run_through_plan_act_and_observe():
    world, agent, streams = lake_and_agent(3, horizon=9)
    books = simulate_units(world, agent, 2, streams, Schedule(steps=60))
    world, twin, streams = lake_and_agent(3, horizon=9)
    history = play_live(world, twin, 2, streams, 60)
    np.testing.assert_allclose(agent.values.factor, twin.values.factor, rtol=1e-9, atol=1e-12)
    # rewards differ by an ulp (two orders of summation); near its optimum a mixture's value is flat
    np.testing.assert_allclose(agent.current.values, twin.current.values, rtol=1e-7)
    np.testing.assert_allclose(agent.current.mixture, twin.current.mixture, atol=1e-7)
    assert agent.data_version == twin.data_version == 120
    ends = [arrived for _, _, arrived in history if world.ended[arrived]]
    assert books.goals.sum() == ends.count(GOAL) and books.falls.sum() == sum(end in DANGER for end in ends)
    costs = [float(world.true_gamma[0, 0] @ decision.mean_feature) - 0.1 for _, decision, _ in history]
    assert max(costs) == pytest.approx(books.worst_cost.max(), abs=1e-9)
    assert any(not decision.is_baseline for _, decision, _ in history), "nothing was explored: the test shows nothing"


def test_the_books_pay_six_at_the_goal_and_a_hundredth_elsewhere():
    world, agent, streams = lake_and_agent(0, horizon=30)
    books = simulate_units(world, agent, 3, streams, Schedule(steps=200))
    lost = books.trajectories - books.goals
    np.testing.assert_allclose(
        books.average_return * books.trajectories, GOAL_RETURN * books.goals + OTHER_RETURN * lost, atol=1e-9
    )
    np.testing.assert_allclose(books.success * books.trajectories, books.goals, atol=1e-12)
    assert (books.trajectories >= 200 // 30).all()


def test_the_safe_action_alone_never_exceeds_the_threshold():
    streams = Streams.from_seed(1)
    world = frozen_lake(streams.instance, horizon=20)
    books = simulate_units(world, AlwaysSafe(world.problem), 2, streams, Schedule(steps=300))
    assert max(books.worst_cost.max(), books.planned_worst_cost.max()) <= 1e-9
    assert (books.baseline > 1.0 - 1e-9).all()


def test_a_radius_that_is_too_small_trips_the_audit():
    """β = 0 takes every estimate at its word: some planned mixture must be unsafe, or the audit sees nothing."""
    config = SlucbConfig(
        explorer="plain", cost_radius=0.0, value_radius=0.5, cost_ridge=1e-6, value_ridge=1e-6, pooled=True
    )
    world, agent, streams = lake_and_agent(2, config, horizon=20)
    books = simulate_units(world, agent, 2, streams, Schedule(steps=200))
    assert books.planned_worst_cost.max() > 0.01


def test_units_with_bounded_costs_count_outcomes_and_plan_within_what_is_proven(monkeypatch):
    """With nothing proven of single actions but a cost of at most 1, each may be played with (τ − τ_s)/(1 − τ_s)."""
    monkeypatch.setattr(Likelihoods, "_listed_proof", lambda *told: NOTHING)  # 267 linear programs take seconds
    streams = Streams.from_seed(1)
    world = frozen_lake(streams.instance, horizon=5, costs="bounded")
    agent = RslucbQvi(world.problem, SlucbConfig(pooled=True), rng=streams.agent)
    books = simulate_units(world, agent, 1, streams, Schedule(steps=60))
    assert agent.likelihoods.trials.total[0] == 60.0 and agent.likelihoods.trials.fact_count[0] > 1
    assert books.planned_worst_cost[0] <= 1e-9 and books.violations[0] == 0.0
    played = 1.0 - agent.current.mixture[0][agent.tables.start[:100] + agent.tables.baseline_row[:100]]
    costs = agent.tables.baseline_cost[0, :100, 0]
    some = np.isfinite(costs) & (played > 0.0)
    assert some.any() and (played[some] <= (0.1 - costs[some]) / (1.0 - costs[some]) + 1e-9).all()


def test_plans_of_rays_that_are_guesses_are_not_played_as_they_are(monkeypatch):
    monkeypatch.setattr(Likelihoods, "_listed_proof", lambda *told: NOTHING)
    streams = Streams.from_seed(1)
    world = frozen_lake(streams.instance, horizon=5, costs="bounded")
    agent = RslucbQvi(world.problem, SlucbConfig(pooled=True), rng=streams.agent)
    agent.register(range(100))
    agent.tables.is_star[7] = 1
    with pytest.raises(InputError, match="a plan of rays is a guess"):
        simulate_units(world, agent, 1, streams, Schedule(steps=10))


def test_without_restarts_a_unit_is_one_trajectory_and_one_plan():
    world, agent, streams = lake_and_agent(4, horizon=15)
    books = simulate_units(world, agent, 4, streams, Schedule(steps=100, restarts=False, plan_each="unit"))
    np.testing.assert_array_equal(books.trajectories, 1.0)
    np.testing.assert_array_equal(books.plans, 1.0)
    assert agent.data_version <= 4 * 15


def test_repeats_share_the_lake_and_nothing_else():
    first, again, other = Streams.from_seed(5), Streams.from_seed(5, 1), Streams.from_seed(5, 2)
    lakes = [frozen_lake(streams.instance, horizon=2) for streams in (first, again, other)]
    np.testing.assert_array_equal(lakes[0].endpoints, lakes[1].endpoints)
    np.testing.assert_array_equal(lakes[0].endpoints, lakes[2].endpoints)
    draws = [streams.transitions.random(4).tolist() for streams in (first, again, other)]
    assert draws[0] != draws[1] != draws[2] != draws[0]
