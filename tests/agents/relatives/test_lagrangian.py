"""Lagrangian LSVI: the multiplier's step and the bisection by hand, and what is promised of violations: a √K."""

import numpy as np
import pytest

from tether.agents.relatives.lagrangian import BisectionConfig, LagrangianBisection, LagrangianConfig, LagrangianLsvi
from tether.errors import InputError
from tether.lab.worlds.cmdp import streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import policy_costs
from worlds import two_arm_problem

COST_ONLY = (np.zeros((1, 2)), np.array([[0.0, 1.0]]))  # both arms are worth nothing; the other one costs 1


def test_the_price_moves_by_hand():
    """H = 1, b = ¾, K = 16, γ = ½, no bonus: ξ = 4, η = 1. At Y = 0 both arms are alike, V_g = ½, so Y becomes ¼;
    then π(other) = 1/(1 + exp(αY)) with α = log 2·√16/(2(1 + 4 + 1))."""
    problem = two_arm_problem(horizon=1, threshold=0.25, finite=True)
    agent = LagrangianLsvi(problem, LagrangianConfig(bonus=0.0, episodes=16, margin=0.5), told=COST_ONLY)
    assert np.allclose(agent.policy()[0, 0], 0.5)
    assert np.isclose(agent.price, 0.25)
    other = 1.0 / (1.0 + np.exp(np.log(2.0) * 4.0 / 12.0 * 0.25))
    assert np.isclose(agent.policy()[0, 0, 1], other)
    assert np.isclose(agent.price, 0.25 + 0.75 - (1.0 - other))


def test_the_bisection_by_hand():
    """The other arm is worth 1: λ = 1 + κ log 3 makes π(a_0) = ¾."""
    problem = two_arm_problem(horizon=1, threshold=0.25, finite=True)
    told = (np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]]))
    agent = LagrangianBisection(problem, BisectionConfig(bonus=0.0, temperature=0.2, multiplier=300.0), told=told)
    assert np.allclose(agent.policy()[0, 0], [0.75, 0.25], atol=1e-3)
    assert np.isclose(agent.price, 1.0 + 0.2 * np.log(3.0), atol=1e-3)


def test_the_constants_of_the_theorem_by_hand():
    """d = 2, H = 2, K = 25, T = 50, |A| = 2, δ = .01: α = log 2·5/8, the largest Y is 5."""
    agent = LagrangianBisection(two_arm_problem(finite=True), BisectionConfig(episodes=25))
    assert np.allclose(agent.constants(), (8.0 / (5.0 * np.log(2.0)), 5.0))
    assert np.isclose(agent.bonus(), 4.0 * np.sqrt(np.log(4.0 * np.log(2.0) * 2.0 * 50.0 / 0.01)))


def test_estimated_rewards_stay_under_the_clip():
    """Where r is known, Q = r + clip(β‖φ‖ + P̂V): up to 1 + 1 at the last step. Estimates are clipped with the bonus."""
    problem, config = two_arm_problem(horizon=1, finite=True), BisectionConfig(episodes=25)
    told = (np.array([[1.0, 1.0]]), np.zeros((1, 2)))
    for known, most in ((None, 1.0), (told, 2.0)):
        agent = LagrangianBisection(problem, config, told=known)
        backup = agent.backup(agent.regressions()[0], agent.bonus(), 1)
        assert np.allclose(backup.outside + np.clip(backup.inside, 0.0, backup.limit[:, None, None]), most)


def test_only_the_method_of_2022_needs_a_strictly_safe_policy():
    """No cost of a_0 is known, so neither is a margin: the method of 2024 plays."""
    problem = two_arm_problem(finite=True, baseline_cost=None)
    LagrangianBisection(problem, BisectionConfig(episodes=25)).plan()
    with pytest.raises(InputError, match="margin"):
        LagrangianLsvi(problem, LagrangianConfig(episodes=25))


def test_optimism_needs_no_multiplier_before_anything_is_known():
    """The bonus says that the other arm may be free: V_u⁺ >= b at λ = 0, though its cost is 1."""
    problem = two_arm_problem(horizon=1, threshold=0.25, finite=True)
    agent = LagrangianBisection(problem, BisectionConfig(bonus=5.0, episodes=10), told=COST_ONLY)
    agent.policy()
    assert agent.price == 0.0


def test_violations_fall_as_it_learns():
    """Streaming with a small bonus: over the budget from the start, and by less and less."""
    world, streams = streaming(fast=0.85, leave=0.15), Streams.from_seed(0)
    told = (world.true_theta, world.true_gamma)
    agent = LagrangianBisection(world.problem, BisectionConfig(bonus=0.2, temperature=0.1, multiplier=300.0), told=told)
    excess = []
    for _ in range(400):
        state = world.reset(streams)
        agent.plan()
        cost = policy_costs(world, agent.planned_features(range(world.state_count)))[0, 0, 0]
        excess.append(max(cost - 4 * world.problem.threshold[0], 0.0))
        for step in range(4):
            seen = world.step(agent.act(step, state), streams)
            agent.observe(seen)
            state = seen.next_state
    assert sum(excess[100:200]) > sum(excess[-100:]) > 0.0
