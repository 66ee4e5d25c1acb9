"""Is a policy's value what playing it earns? And regret and violations on cases a person can do by hand."""

import numpy as np
import pytest

from tether import Decision, LinearMDP, Problem, Radius, SlucbConfig, SlucbQvi
from tether.lab.simulate import simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_policy, policy_values, regret, true_costs, violations
from worlds import finite_world, literal_values, star_world


def _decision(step, state, feature):
    return Decision(0, step, state, 0, feature, False, "best", (), Radius(0.0, "none"), 0.0, 0)


def _random_policy(world, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(world.endpoints.shape[1], size=(world.problem.horizon, world.state_count))
    return world.endpoints[np.arange(world.state_count)[None], rows]


@pytest.mark.parametrize("make", [finite_world, star_world])
def test_policy_values_equal_the_definition(make):
    for seed in range(6):
        world = make(seed)
        features = _random_policy(world, seed)
        np.testing.assert_allclose(policy_values(world, features), literal_values(world, features), atol=1e-13)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_policy_values_equal_the_mean_return_of_simulation(seed):
    """n = 4000 episodes, world seed and stream seed as given. A return lies in an interval of length
    R = Σ_h (max_s r_h − min_s r_h), so by Hoeffding P(|mean − V| > R √(log(2/p)/2n)) <= p; here p = 1e-7 per seed, and
    the false-alarm rate of the three together is below 1e-6. The seeds are fixed: the verdict is the same every time.
    """
    n, alarm = 4000, 1e-7
    world = star_world(seed, states=4, horizon=3)
    features = _random_policy(world, seed)
    streams = Streams.from_seed(seed)
    returns = np.zeros(n)
    for episode in range(n):
        state = world.reset(streams)
        for step in range(world.problem.horizon):
            seen = world.step(_decision(step, state, features[step, state]), streams)
            returns[episode] += seen.reward
            state = seen.next_state
    rewards = np.einsum("hsd,hd->hs", features, world.true_theta)
    spread = (rewards.max(axis=1) - rewards.min(axis=1)).sum()
    band = spread * np.sqrt(np.log(2.0 / alarm) / (2 * n))
    expected = world.initial @ policy_values(world, features)[0]
    assert abs(returns.mean() - expected) <= band
    # the band is narrow enough to notice a slip of one step or of the start distribution
    assert band < 0.06
    assert returns.std() > 0.01


def test_regret_by_hand():
    """V*_1 = (3, 5), V_1^π = (2.5, 1): episodes that start in 1, 0, 1 lose 4, ½, 4. Only step 1 counts."""
    optimal = np.array([[3.0, 5.0], [9.0, 9.0], [0.0, 0.0]])
    values = np.array([[2.5, 1.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(regret(optimal, values, np.array([1, 0, 1])), [4.0, 0.5, 4.0])


def test_regret_of_the_optimal_policy_is_zero_and_of_others_not_negative():
    for seed in range(4):
        world = star_world(seed)
        best = optimal_safe_policy(world)
        starts = np.arange(world.state_count)
        again = policy_values(world, best.features)
        np.testing.assert_allclose(regret(best.values, again, starts), 0.0, atol=1e-13)
        baseline = np.broadcast_to(world.phi_0, best.features.shape)
        assert (regret(best.values, policy_values(world, baseline), starts) >= 0.0).all()


def test_violations_by_hand_name_the_step_and_the_state():
    """Costs at (h, s): (0.2, 0.6) and (0.5, 0.5 + 1e-6) with τ = 0.5: equal is not over, one millionth is."""
    world = _hand_world(gamma=[[[0.2, 0.6]], [[0.5, 0.5 + 1e-6]]], threshold=0.5)
    features = np.broadcast_to(np.eye(2), (2, 2, 2))  # state s plays e_s, whose cost is γ_h[s]
    np.testing.assert_allclose(true_costs(world, features)[:, :, 0], [[0.2, 0.6], [0.5, 0.5 + 1e-6]], atol=1e-15)
    np.testing.assert_array_equal(violations(world, features), [[False, True], [False, True]])


def test_one_broken_constraint_of_two_is_a_violation():
    """Constraint 0 never exceeds its τ = 0.9; constraint 1 (τ = 0.3) is exceeded at step 1, state 0 alone."""
    gamma = [[[0.2, 0.6], [0.1, 0.2]], [[0.5, 0.8], [0.4, 0.3]]]
    world = _hand_world(gamma=gamma, threshold=(0.9, 0.3))
    features = np.broadcast_to(np.eye(2), (2, 2, 2))
    np.testing.assert_array_equal(violations(world, features), [[False, False], [True, False]])
    np.testing.assert_allclose(true_costs(world, features)[1], [[0.5, 0.4], [0.8, 0.3]], atol=1e-15)


def test_the_books_of_a_run_agree_with_the_exact_planner():
    """Regret and violations that `simulate` writes down are those of the planner for the policy that was planned."""
    world = star_world(1, states=3, horizon=3)
    agent = SlucbQvi(world.problem, SlucbConfig(value_radius=0.5))
    streams, checks = Streams.from_seed(5), Streams.from_seed(5)
    best = optimal_safe_policy(world)
    for _ in range(12):
        start = world.reset(Streams(checks.instance, _copy(streams.transitions), checks.noise, checks.agent))
        books = simulate_stepwise(world, agent, 1, streams)
        row, length = agent.current.row, agent.current.length
        features = np.empty((3, 3, world.problem.dimension))
        for h in range(3):
            for s in range(3):
                end = world.endpoints[s, max(row[h, s], 0)]
                features[h, s] = world.phi_0[s] + (length[h, s] if row[h, s] >= 0 else 0.0) * (end - world.phi_0[s])
        expected = regret(best.values, policy_values(world, features), np.array([start]))
        np.testing.assert_allclose(books.regret, expected, atol=1e-12)
        assert books.violations.sum() == 0
        assert not violations(world, features).any()


def _copy(generator):
    fresh = np.random.default_rng()
    fresh.bit_generator.state = generator.bit_generator.state
    return fresh


def _hand_world(*, gamma, threshold):
    gamma = np.array(gamma)
    problem = Problem(
        horizon=2,
        threshold=threshold,
        noise=0.1,
        dimension=2,
        actions=Problem.from_rays(
            phi_0=np.eye(2),
            endpoints=np.eye(2)[:, None],
            baseline_cost=None,
            horizon=2,
            threshold=threshold,
            noise=0.1,
        ).actions,
        baseline_cost=None,
        states=range(2),
        gamma_norm=2.0,
    )
    return LinearMDP(
        name="hand",
        problem=problem,
        true_theta=np.zeros((2, 2)),
        true_gamma=gamma,
        true_mu=np.full((2, 2, 2), 0.5),
        initial=np.array([0.5, 0.5]),
    )
