"""OptPess-LP: the safe policy until it is known to be safe enough."""

import numpy as np

from tether.agents.relatives.optpess_lp import OptPessLp
from tether.agents.relatives.tabular import TabularConfig
from tether.lab.worlds.cmdp import streaming


def test_the_safe_policy_is_played_while_its_raised_cost_is_over_the_middle():
    """Slow sends cost 0 and C = 1.6, so the middle is 0.8: with n visits of each pair, H·SH√(L/n) = 96/√n."""
    world = streaming()
    agent = OptPessLp(world.problem, TabularConfig(log_term=1.0), told=(world.true_theta, world.true_gamma))
    for visits, is_safe in ((14399.0, True), (14401.0, False)):  # (96/0.8)² = 14400
        agent.values.factor[:] = np.sqrt(visits + agent.values.ridge) * np.eye(12)
        agent.values.transition_moment[0, :6] = visits * world.true_mu[0].T
        agent.starts[:] = np.eye(6)[0]
        assert (agent.policy() == agent.safe_policy).all() == is_safe
