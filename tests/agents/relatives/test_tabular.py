"""Counts from the sums, and both linear programmes against the exact planner, which is other code."""

import numpy as np
import pytest

from tether.agents.relatives.dope import Dope, DopeConfig
from tether.agents.relatives.optpess_lp import OptPessLp
from tether.agents.relatives.tabular import TabularConfig
from tether.lab.worlds.cmdp import inventory, streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_episode_policy, policy_costs, policy_values
from tether.records import Transition

MANY = 1e6


def knowing(agent, world):
    """The agent after a million visits of every pair, each with its expected outcome."""
    states, values = world.state_count, agent.values
    values.factor[:] = np.sqrt(MANY + values.ridge) * np.eye(world.problem.dimension)
    values.transition_moment[:, :states] = MANY * world.true_mu[0].T
    agent.starts[0] = 1.0
    return agent


@pytest.mark.parametrize("world", [streaming(), inventory()], ids=lambda world: world.name)
@pytest.mark.parametrize("kind", ["optpess", "dope"])
def test_with_the_law_known_the_programme_finds_the_optimum_of_the_exact_planner(world, kind):
    told = (world.true_theta, world.true_gamma)
    if kind == "optpess":
        agent = OptPessLp(world.problem, TabularConfig(scale=0.0, log_term=1.0), told=told)
    else:
        agent = Dope(world.problem, DopeConfig(scale=0.0, log_term=1.0, first_phase=0.0), told=told)
    knowing(agent, world).plan()
    features, best = agent.planned_features(range(world.state_count)), optimal_episode_policy(world)
    assert np.isclose(policy_values(world, features)[0, 0], best.values[0, 0], atol=1e-6)
    assert policy_costs(world, features)[0, 0, 0] <= world.problem.horizon * world.problem.threshold[0] + 1e-6


def test_counts_by_hand():
    """Two fast sends in state 0 that lead to 1 and 0, one slow one that leads to 0; costs 1 ± noise, told nothing."""
    world = streaming()
    agent = OptPessLp(world.problem, TabularConfig(log_term=2.0, scale=0.0))
    for row, cost, following in ((0, 0.9, 1), (0, 0.7, 0), (1, 0.0, 0)):
        agent.observe(Transition(0, 0, world.endpoints[0, row], 0.5, cost, following))
    counts = agent.counts(0, 2.0)
    assert counts.visits.tolist() == [2, 1] + [0] * 10
    assert np.allclose(counts.law[0], [0.5, 0.5, 0, 0, 0, 0]) and np.allclose(counts.law[5], 1 / 6)
    assert np.isclose(counts.cost[0], 0.8 + 0.01 * np.sqrt(2.0)) and counts.cost[7] == 1.0
    assert np.isclose(counts.reward[0], 0.5) and counts.reward[7] == 1.0


def test_where_a_programme_never_comes_the_safe_policy_is_played():
    world = inventory()
    agent = OptPessLp(world.problem, TabularConfig(log_term=1.0))
    occupancy = np.zeros((7, 21))
    occupancy[:, 3] = 1.0  # in state 0 order three
    policy = agent.policy_of(occupancy)
    assert np.allclose(policy[:, 0, 3], 1.0) and (policy[:, 1:] == agent.safe_policy[:, 1:]).all()


def dope():
    world = inventory()
    settings = DopeConfig(log_term=1.0, reward_bonus=1.0, cost_bonus=1.0, first_phase=0.0)
    return world, Dope(world.problem, settings, told=(world.true_theta, world.true_gamma)), 60


def optpess_lp():
    world = streaming(fast=0.85, leave=0.15)
    return world, OptPessLp(world.problem, TabularConfig(episodes=200, scale=0.02)), 200


@pytest.mark.parametrize("made", [dope, optpess_lp])
def test_no_episode_is_over_the_budget_while_it_learns(made):
    (world, agent, episodes), streams, learned = made(), Streams.from_seed(0), False
    for _ in range(episodes):
        state = world.reset(streams)
        agent.plan()
        features = agent.planned_features(range(world.state_count))
        assert policy_costs(world, features)[0, 0, 0] <= agent.budget + 1e-7
        learned |= not np.allclose(features, world.phi_0)
        for step in range(world.problem.horizon):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    assert learned
