"""Is a policy's value what playing it earns? And costs and violations on cases a person can do by hand."""

import numpy as np
import pytest

from limits import stated
from tether import Decision, LinearMDP, Problem, Radius, SlucbConfig, SlucbQvi
from tether.lab.simulate import Books, note_decision, simulate_stepwise
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_policy, policy_values, true_costs
from worlds import finite_world, is_safe, literal_values, star_world


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


def test_the_optimal_policy_has_the_optimal_value_and_the_safe_action_no_larger_one():
    for seed in range(4):
        world = star_world(seed)
        best = optimal_safe_policy(world)
        np.testing.assert_allclose(policy_values(world, best.features), best.values, atol=1e-13)
        baseline = np.broadcast_to(world.phi_0, best.features.shape)
        assert (policy_values(world, baseline) <= best.values + 1e-13).all()


def _counted(world, features):
    """Whether the books of a run count a violation at each (h, s) of a policy's features (H, S, d): (H, S)."""
    found = np.zeros(features.shape[:2], dtype=bool)
    for step, state in np.ndindex(found.shape):
        books = Books(*np.zeros((len(Books._fields), 1)))
        note_decision(books, 0, _decision(step, state, features[step, state]), 0.0, world)
        found[step, state] = books.violations[0]
    return found


def test_violations_by_hand_name_the_step_and_the_state():
    """Costs at (h, s): (0.2, 0.6) and (0.5, 0.5 + 1e-6) with τ = 0.5: equal is not over, one millionth is."""
    world = _hand_world(gamma=[[[0.2, 0.6]], [[0.5, 0.5 + 1e-6]]], threshold=0.5)
    features = np.broadcast_to(np.eye(2), (2, 2, 2))  # state s plays e_s, whose cost is γ_h[s]
    np.testing.assert_allclose(true_costs(world, features)[:, :, 0], [[0.2, 0.6], [0.5, 0.5 + 1e-6]], atol=1e-15)
    np.testing.assert_array_equal(_counted(world, features), [[False, True], [False, True]])


def test_one_broken_constraint_of_two_is_a_violation():
    """Constraint 0 never exceeds its τ = 0.9; constraint 1 (τ = 0.3) is exceeded at step 1, state 0 alone."""
    gamma = [[[0.2, 0.6], [0.1, 0.2]], [[0.5, 0.8], [0.4, 0.3]]]
    world = _hand_world(gamma=gamma, threshold=(0.9, 0.3))
    features = np.broadcast_to(np.eye(2), (2, 2, 2))
    np.testing.assert_array_equal(_counted(world, features), [[False, False], [True, False]])
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
        expected = best.values[0, start] - policy_values(world, features)[0, start]
        np.testing.assert_allclose(books.regret, [expected], atol=1e-12)
        assert books.violations.sum() == 0
        assert is_safe(world, features)


def _copy(generator):
    fresh = np.random.default_rng()
    fresh.bit_generator.state = generator.bit_generator.state
    return fresh


def _hand_world(*, gamma, threshold):
    gamma = np.array(gamma)
    problem = Problem(
        horizon=2,
        dimension=2,
        actions=Problem.from_rays(
            phi_0=np.eye(2),
            endpoints=np.eye(2)[:, None],
            horizon=2,
            **stated(baseline_cost=None, threshold=threshold, noise=0.1),
        ).actions,
        states=range(2),
        **stated(threshold=threshold, noise=0.1, baseline_cost=None, gamma_norm=2.0),
    )
    return LinearMDP(
        name="hand",
        problem=problem,
        true_theta=np.zeros((2, 2)),
        true_gamma=gamma,
        true_mu=np.full((2, 2, 2), 0.5),
        initial=np.array([0.5, 0.5]),
    )
