"""OPSE-LCMDP: its multiplier by hand, its fallback, and its promise: no episode over the budget."""

import numpy as np

from tether.agents.relatives.opse import Opse, OpseConfig
from tether.lab.worlds.cmdp import streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import policy_costs, policy_values
from worlds import two_arm_problem

TOLD = (np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]]))  # the other arm is worth 1 and costs 1, a_0 neither


def test_the_multiplier_by_hand():
    """H = 1, known r and c, no bonus: π(a_0) = 1/(1 + exp((1 − λ)/κ)) >= b = 1 − τ = ¾, so λ = 1 + κ log 3."""
    problem = two_arm_problem(horizon=1, threshold=0.25, finite=True)
    agent = Opse(problem, OpseConfig(bonus=0.0, exploration=0.0, multiplier=30.0, temperature=0.1), told=TOLD)
    assert np.allclose(agent.policy()[0, 0], [0.75, 0.25], atol=1e-3)


def test_pessimism_leaves_the_safe_policy():
    """H = 2: without data P̂ = 0, so V_u(s_1) <= 1 < b = 2(1 − ¼)."""
    problem = two_arm_problem(horizon=2, threshold=0.25, finite=True)
    agent = Opse(problem, OpseConfig(bonus=1.0, exploration=1.0, multiplier=300.0), told=TOLD)
    assert (agent.policy() == agent.safe_policy).all()


def test_no_episode_is_over_the_budget_while_it_learns():
    """The published constants on a streaming world: expected costs stay under Hτ, and the value grows over π_sf's."""
    world, streams = streaming(fast=0.85, leave=0.15), Streams.from_seed(0)
    settings = OpseConfig(bonus=2.0, exploration=1.0, multiplier=300.0, temperature=0.1)
    agent = Opse(world.problem, settings, told=(world.true_theta, world.true_gamma))
    values = []
    for _ in range(250):
        state = world.reset(streams)
        agent.plan()
        features = agent.planned_features(range(world.state_count))
        assert policy_costs(world, features)[0, 0, 0] <= 4 * world.problem.threshold[0] + 1e-9
        values.append(policy_values(world, features)[0, 0])
        for step in range(4):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    assert values[-1] > values[0] + 0.5


def test_the_theorems_constants():
    """ξ = H(τ − τ_s) = 2·0.4; d = 2, H = 2: B_† = 8/0.8, C_λ = 32/0.64, C = dH√log(dT/δ)."""
    agent = Opse(two_arm_problem(), OpseConfig(episodes=100, scale=0.5))
    bonus = 4.0 * np.sqrt(np.log(2 * 200 / 0.01))
    assert np.allclose(agent.constants(), (0.5 * bonus, 0.5 * 10.0, 50.0))
