"""DOSS / LSVI-AE: the optimistic set against brute force, and the price of having no way back."""

import numpy as np
import pytest

from tether.agents.relatives.doss import Doss, DossConfig
from tether.lab.simulate import simulate
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import synthetic
from tether.records import Transition
from worlds import two_arm_problem

HERE = {"states": 4, "rays": 6, "dimension": 3, "horizon": 2, "noise": 0.05}


def test_the_length_by_hand():
    """d = 2, H = 1. After nine visits of (0, 1) at cost 1, ĝ = (0, .9) and ‖(1−α, α)‖² = (1−α)² + α²/10.

    τ = ½, β = ½ (a scale makes it so): .9α − ½√((1−α)² + .1α²) = ½ at the only root in [0, 1]."""
    problem = two_arm_problem(horizon=1)
    agent = Doss(problem, DossConfig(episodes=10))
    other = np.array([0.0, 1.0])
    for _ in range(9):
        agent.observe(Transition(0, 0, other, 1.0, 1.0, 0))
    agent.plan()
    agent = Doss(problem, DossConfig(episodes=10, scale=0.5 / agent.peek(0, 0).evidence[0].radius.value))
    for _ in range(9):
        agent.observe(Transition(0, 0, other, 1.0, 1.0, 0))
    agent.plan()
    assert np.isclose(agent.peek(0, 0).evidence[0].radius.value, 0.5)
    lengths = np.linspace(0.0, 1.0, 100_001)
    lower = 0.9 * lengths - 0.5 * np.sqrt((1.0 - lengths) ** 2 + 0.1 * lengths**2)
    assert np.isclose(agent.peek(0, 0).action.length, lengths[lower <= 0.5].max(), atol=2e-5)


def test_the_radii_of_a_bandit_by_hand(tmp_path):
    """Nine visits of (0, 1): log det(A/λ) = log 10. One δ = .01 for a reward with σ_r = .3 and a cost with σ = .1, both
    with S = B = 2. So it is after a restart."""
    problem = two_arm_problem(horizon=1, reward_noise=0.3, gamma_norm=2.0)
    agent = Doss(problem)
    for _ in range(9):
        agent.observe(Transition(0, 0, np.array([0.0, 1.0]), 1.0, 1.0, 0))
    agent.save(tmp_path / "doss")
    for each in (agent, Doss.restore(tmp_path / "doss", problem)):
        each.plan()
        decision = each.peek(0, 0)
        grown = np.sqrt(np.log(10.0) + 2.0 * np.log(2.0 / 0.01))
        assert np.isclose(decision.evidence[0].radius.value, 0.1 * grown + 2.0)
        assert np.isclose(decision.value_radius.value, 0.3 * grown + 2.0)
        assert decision.value_radius.origin == "theorem"


@pytest.mark.parametrize("seed", range(4))
def test_no_hopeful_point_of_a_ray_scores_more(seed):
    """Against every ray at 400 lengths, in every state and step, after some episodes."""
    world, streams = synthetic(np.random.default_rng(seed), **HERE), Streams.from_seed(seed)
    agent = Doss(world.problem, DossConfig(scale=0.1, value_radius=1.0))
    simulate(world, agent, 15, streams)
    agent.plan()
    grid = np.linspace(0.0, 1.0, 400)[:, None, None]
    for step in range(2):
        g = np.linalg.inv(agent.costs.factor[step].T @ agent.costs.factor[step])
        v = np.linalg.inv(agent.values.factor[step].T @ agent.values.factor[step])
        for state in range(4):
            decision = agent.peek(step, state)
            x = world.phi_0[state] + grid * (world.endpoints[state] - world.phi_0[state])  # (400, N, d)
            beta, radius = decision.evidence[0].radius.value, decision.value_radius.value
            lower = x @ agent.current.gamma_hat[step, 0] - beta * np.sqrt(np.einsum("and,de,ane->an", x, g, x))
            score = x @ agent.current.weights[step] + radius * np.sqrt(np.einsum("and,de,ane->an", x, v, x))
            hopeful = np.where(lower <= world.problem.threshold[0], score, -np.inf)
            assert np.isfinite(hopeful.max()) and decision.score >= hopeful.max() - 1e-9
            own = decision.feature
            assert own @ agent.current.gamma_hat[step, 0] - beta * np.sqrt(own @ g @ own) <= 0.5 + 1e-8


def test_what_is_truly_safe_stays_in_the_optimistic_set_of_the_theorem():
    world, streams = synthetic(np.random.default_rng(1), **HERE), Streams.from_seed(1)
    agent = Doss(world.problem, DossConfig(episodes=60))
    simulate(world, agent, 60, streams)
    agent.plan()
    for step in range(2):
        g = np.linalg.inv(agent.costs.factor[step].T @ agent.costs.factor[step])
        x = world.endpoints.reshape(-1, 3)
        lower = x @ agent.current.gamma_hat[step, 0] - agent.current.radius[step, 0] * np.sqrt((x @ g * x).sum(axis=1))
        assert (lower <= x @ world.true_gamma[step, 0]).all()


def test_where_nothing_may_be_safe_the_least_excess_is_played():
    """Both arms are known to cost more than τ = ½: (1, 0) costs .8, (0, 1) costs .6."""
    agent = Doss(two_arm_problem(horizon=1, finite=True), DossConfig(scale=1e-3, episodes=5))
    for _ in range(400):
        agent.observe(Transition(0, 0, np.array([1.0, 0.0]), 1.0, 0.8, 0))
        agent.observe(Transition(0, 0, np.array([0.0, 1.0]), 0.0, 0.6, 0))
    agent.plan()
    assert agent.peek(0, 0).action == 1


def test_it_violates_while_it_learns_and_then_hardly():
    """Σ (c − τ)_+ grows like a root: of 400 episodes the last 100 have far less than the first."""
    world, streams = synthetic(np.random.default_rng(0), **{**HERE, "horizon": 1}), Streams.from_seed(0)
    books = simulate(world, Doss(world.problem, DossConfig(episodes=400, scale=0.3)), 400, streams)
    excess = np.maximum(books.worst_cost, 0.0)
    assert 0.0 < excess[-100:].sum() < 0.5 * excess[:100].sum()
