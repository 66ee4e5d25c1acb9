"""OptPess-LP: the safe policy until it is known to be safe enough, and no episode over the budget."""

import numpy as np

from tether.agents.relatives.optpess_lp import OptPessLp
from tether.agents.relatives.tabular import TabularConfig
from tether.lab.worlds.cmdp import streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import policy_costs


def test_the_safe_policy_is_played_while_its_raised_cost_is_over_the_middle():
    """Slow sends cost 0 and C = 1.6, so the middle is 0.8: with n visits of each pair, H·SH√(L/n) = 96/√n."""
    world = streaming()
    agent = OptPessLp(world.problem, TabularConfig(log_term=1.0), told=(world.true_theta, world.true_gamma))
    for visits, is_safe in ((14399.0, True), (14401.0, False)):  # (96/0.8)² = 14400
        agent.values.factor[:] = np.sqrt(visits + agent.values.ridge) * np.eye(12)
        agent.values.transition_moment[0, :6] = visits * world.true_mu[0].T
        agent.starts[:] = np.eye(6)[0]
        assert (agent.policy() == agent.safe_policy).all() == is_safe


def test_no_episode_is_over_the_budget_while_it_learns():
    world, streams = streaming(fast=0.85, leave=0.15), Streams.from_seed(0)
    agent = OptPessLp(world.problem, TabularConfig(episodes=200, scale=0.02))
    learned = False
    for _ in range(200):
        state = world.reset(streams)
        agent.plan()
        features = agent.planned_features(range(world.state_count))
        assert policy_costs(world, features)[0, 0, 0] <= 4 * world.problem.threshold[0] + 1e-7
        learned |= not np.allclose(features, world.phi_0)
        for step in range(4):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    assert learned
