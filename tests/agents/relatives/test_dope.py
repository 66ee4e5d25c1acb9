"""DOPE: its widths by hand, its first phase, and no episode over the budget."""

import numpy as np

from tether.agents.relatives.dope import Dope, DopeConfig
from tether.lab.worlds.cmdp import inventory, streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import policy_costs


def test_widths_by_hand():
    """L = 1. n = 16, p̂ = ½: √(¼/16) + 1/16 = .1875, under 1/√16 = ¼. n = 1, p̂ = 1: 0 + 1. n = 0: 1."""
    agent = Dope(streaming().problem, DopeConfig(log_term=1.0))
    law = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    assert np.allclose(agent.widths(law, np.array([16.0, 1.0, 0.0]), 1.0), [[0.1875, 0.1875], [1.0, 1.0], [1.0, 1.0]])


def test_the_first_phase_is_the_theorems():
    """S²AH³/(C − c_b)² = 36·2·64/1.6² = 1800 episodes of the safe policy."""
    world = streaming()
    agent = Dope(world.problem, DopeConfig(log_term=1e-9), told=(world.true_theta, world.true_gamma))
    agent.values.factor[:] = np.sqrt(1e6 + agent.values.ridge) * np.eye(12)
    agent.values.transition_moment[0, :6] = 1e6 * world.true_mu[0].T
    for episodes, is_safe in ((1799.0, True), (1800.0, False)):
        agent.starts[:] = episodes * np.eye(6)[0]
        assert (agent.policy() == agent.safe_policy).all() == is_safe


def test_a_programme_without_a_solution_leaves_the_safe_policy():
    world = inventory()
    agent = Dope(world.problem, DopeConfig(log_term=1.0, first_phase=0.0, cost_bonus=100.0))
    assert (agent.policy() == agent.safe_policy).all()


def test_no_episode_is_over_the_budget_while_it_learns():
    world, streams = inventory(), Streams.from_seed(0)
    told = (world.true_theta, world.true_gamma)
    settings = DopeConfig(log_term=1.0, reward_bonus=1.0, cost_bonus=1.0, first_phase=0.0)
    agent = Dope(world.problem, settings, told=told)
    learned = False
    for _ in range(60):
        state = world.reset(streams)
        agent.plan()
        features = agent.planned_features(range(world.state_count))
        assert policy_costs(world, features)[0, 0, 0] <= 3.5 + 1e-7
        learned |= not np.allclose(features, world.phi_0)
        for step in range(7):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    assert learned
