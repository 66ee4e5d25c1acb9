"""Is V* exact? The planner against brute force, against fine grids, by hand, and against random policies."""

import numpy as np
import pytest

from limits import stated
from tether import Constraint, InputError, LinearMDP, Problem, SafeCost, StarActions
from tether.lab.worlds.planning import optimal_safe_policy, policy_values, safe_candidates, true_costs
from tether.problem.action_sets import FiniteActions
from worlds import all_deterministic_policies, finite_world, is_safe, literal_values, star_world

SEEDS = range(6)


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_planner_equals_brute_force_over_all_deterministic_policies(seed, constraints):
    world = finite_world(seed, constraints=constraints)
    safe = [
        literal_values(world, features) for features in all_deterministic_policies(world) if is_safe(world, features)
    ]
    best = np.max(safe, axis=0)  # the best safe policy is the best one from every state and step at once
    planned = optimal_safe_policy(world)
    np.testing.assert_allclose(planned.values, best, rtol=0, atol=1e-13)
    np.testing.assert_allclose(planned.values, literal_values(world, planned.features), rtol=0, atol=1e-13)


def test_the_constraint_binds_in_the_brute_force_worlds():
    """Otherwise the comparison above would say nothing about safety."""
    lost = []
    for seed in SEEDS:
        world = finite_world(seed)
        free = max((literal_values(world, f)[0] for f in all_deterministic_policies(world)), key=np.sum)
        lost.append((free - optimal_safe_policy(world).values[0]).sum())
    assert sum(gap > 1e-3 for gap in lost) >= 4


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_planner_on_stars_equals_a_fine_grid_of_lengths(seed, constraints):
    """Backward induction over 2001 lengths per ray. Q is linear along a ray, so the grid's best safe length loses at
    most one grid cell, |⟨q, x − f⟩|/2000, per step; the closed form may be better by that and never worse."""
    world = star_world(seed, constraints=constraints)
    grid = np.linspace(0.0, 1.0, 2001)
    values = np.zeros(world.state_count)
    cell = 0.0
    for h in reversed(range(world.problem.horizon)):
        q = world.true_theta[h] + world.true_mu[h] @ values
        best = np.full(world.state_count, -np.inf)
        lost = 0.0
        for s in range(world.state_count):
            for end in world.endpoints[s]:
                points = (1.0 - grid)[:, None] * world.phi_0[s] + grid[:, None] * end
                safe = (points @ world.true_gamma[h].T <= np.array(world.problem.threshold)).all(axis=1)
                best[s] = max(best[s], (points @ q)[safe].max())
                lost = max(lost, abs(q @ (end - world.phi_0[s])) / 2000)
        values, cell = best, cell + lost
    gap = optimal_safe_policy(world).values[0] - values
    assert (gap >= -1e-12).all()
    assert (gap <= cell + 1e-12).all()


@pytest.mark.parametrize("constraints", [1, 2])
def test_planned_features_are_playable_and_never_cost_more_than_the_threshold(constraints):
    for seed in SEEDS:
        for world in (star_world(seed, constraints=constraints), finite_world(seed, constraints=constraints)):
            planned = optimal_safe_policy(world)
            assert (true_costs(world, planned.features) <= np.array(world.problem.threshold) + 1e-12).all()
            for h in range(world.problem.horizon):
                for s in range(world.state_count):
                    assert _distance_to_set(world, s, planned.features[h, s]) < 1e-12


def _distance_to_set(world, state, x):
    f, ends = world.phi_0[state], world.endpoints[state]
    if not world.is_star:
        return np.abs(ends - x).sum(axis=1).min()
    along = np.clip(((x - f) * (ends - f)).sum(axis=1) / ((ends - f) ** 2).sum(axis=1), 0.0, 1.0)
    return np.abs(f + along[:, None] * (ends - f) - x).sum(axis=1).min()


@pytest.mark.parametrize("make", [star_world, finite_world])
@pytest.mark.parametrize("constraints", [1, 2])
def test_no_random_safe_policy_beats_the_optimum(make, constraints):
    rng = np.random.default_rng(11)
    for seed in range(3):
        world = make(seed, constraints=constraints)
        best = optimal_safe_policy(world).values
        horizon, states = world.problem.horizon, world.state_count
        for _ in range(200):
            features = np.empty((horizon, states, world.problem.dimension))
            for h in range(horizon):
                points, safe = safe_candidates(world, h)
                for s in range(states):
                    row = rng.choice(np.flatnonzero(safe[s]))
                    length = rng.random() ** 0.25 if world.is_star else 1.0
                    features[h, s] = (1.0 - length) * points[s, 0] + length * points[s, row]
            assert (true_costs(world, features) <= np.array(world.problem.threshold) + 1e-9).all()
            assert (policy_values(world, features) <= best + 1e-12).all()


def test_one_state_one_step_by_hand():
    """f = (1, 0) costs 0.2; the ray to (0, 1) costs 1.0 and pays 0.9; τ = 0.6 cuts it at α = 0.4/0.8 = 1/2, where
    the reward is ½·0.1 + ½·0.9 = 0.5."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        constraints=Constraint(threshold=0.6, noise=0.1, safe_cost=[[0.2]]),
        horizon=1,
    )
    world = _single_state(problem, theta=[[0.1, 0.9]], gamma=[[[0.2, 1.0]]])
    planned = optimal_safe_policy(world)
    np.testing.assert_allclose(planned.features, [[[0.5, 0.5]]], atol=1e-15)
    np.testing.assert_allclose(planned.values, [[0.5], [0.0]], atol=1e-15)


def test_the_tighter_of_two_constraints_cuts_the_ray_by_hand():
    """Constraint 0 allows α = 0.4/0.8 = 1/2, constraint 1 (0.1 at f, 0.9 at the end, τ = 0.3) allows 0.2/0.8 = 1/4."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        horizon=1,
        **stated(baseline_cost_error=0.0, baseline_cost=[[[0.2, 0.1]]], threshold=(0.6, 0.3), noise=0.1),
    )
    world = _single_state(problem, theta=[[0.1, 0.9]], gamma=[[[0.2, 1.0], [0.1, 0.9]]])
    planned = optimal_safe_policy(world)
    np.testing.assert_allclose(planned.features, [[[0.75, 0.25]]], atol=1e-15)
    np.testing.assert_allclose(planned.values[0], [0.3], atol=1e-15)
    np.testing.assert_allclose(true_costs(world, planned.features), [[[0.4, 0.3]]], atol=1e-15)


def test_two_steps_by_hand_give_up_reward_now_for_a_better_state():
    """Step 2 pays 1 in state 1 and 0 in state 0. At step 1, action 0 pays 0.3 and stays; action 1 pays 0 and moves to
    state 1: worth 0 + 1 > 0.3 + 0. Action 2 would pay 0.9 and move, but costs 0.8 > τ = 0.5."""
    features = np.eye(5)[[[0, 1, 2], [3, 4, 2]]]  # state 0: e0, e1, e2; state 1: e3, e4, e2
    theta = np.array([[0.3, 0.0, 0.9, 0.3, 0.2], [0.0, 0.0, 0.9, 1.0, 0.4]])
    gamma = np.array([[[0.0, 0.4, 0.8, 0.1, 0.2]], [[0.1, 0.3, 0.8, 0.2, 0.0]]])
    mu = np.zeros((2, 5, 2))
    mu[:, [0, 4], 0] = 1.0
    mu[:, [1, 2, 3], 1] = 1.0
    problem = Problem.from_table(
        features=features,
        baseline_action=[0, 1],
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=[[0.0, 0.2], [0.1, 0.0]]),
        horizon=2,
    )
    world = LinearMDP(
        name="hand", problem=problem, true_theta=theta, true_gamma=gamma, true_mu=mu, initial=np.array([1.0, 0.0])
    )
    planned = optimal_safe_policy(world)
    np.testing.assert_array_equal(planned.features[0, 0], features[0, 1])
    np.testing.assert_array_equal(planned.features[1, 1], features[1, 0])
    np.testing.assert_allclose(planned.values, [[1.0, 1.3], [0.0, 1.0], [0.0, 0.0]], atol=1e-15)


def test_a_ray_that_lowers_the_cost_is_followed_to_its_end():
    """Cost falls from 0.5 to 0.1 along the ray: the whole ray is safe, though τ = 0.55 is close."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        constraints=Constraint(threshold=0.55, noise=0.1, safe_cost=[[0.5]]),
        horizon=1,
    )
    planned = optimal_safe_policy(_single_state(problem, theta=[[0.1, 0.9]], gamma=[[[0.5, 0.1]]]))
    np.testing.assert_array_equal(planned.features, [[[0.0, 1.0]]])


def test_without_slack_the_planner_stays_at_the_safe_action():
    """τ_h(s) = τ with tight_baseline='baseline': every rising ray has length 0."""
    problem = Problem.from_rays(
        phi_0=[[1.0, 0.0]],
        endpoints=[[[0.0, 1.0]]],
        constraints=Constraint(threshold=0.6, noise=0.1, safe_cost=SafeCost([[0.6]], if_tight="safe action")),
        horizon=1,
    )
    planned = optimal_safe_policy(_single_state(problem, theta=[[0.1, 0.9]], gamma=[[[0.6, 1.0]]]))
    np.testing.assert_array_equal(planned.features, [[[1.0, 0.0]]])
    np.testing.assert_allclose(planned.values[0], [0.1], atol=1e-15)


def test_an_infinite_threshold_gives_the_unconstrained_optimum():
    free = finite_world(3, slack=True)
    problem = Problem.from_table(
        features=free.endpoints,
        baseline_action=np.zeros(free.state_count, dtype=int),
        horizon=free.problem.horizon,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=np.einsum("sd,hmd->hsm", free.endpoints[:, 0], free.true_gamma),
            threshold=np.inf,
            noise=0.1,
            gamma_norm=3.0,
        ),
    )
    world = LinearMDP(
        name="free",
        problem=problem,
        true_theta=free.true_theta,
        true_gamma=free.true_gamma,
        true_mu=free.true_mu,
        initial=free.initial,
    )
    best = np.max([literal_values(world, features) for features in all_deterministic_policies(world)], axis=0)
    np.testing.assert_allclose(optimal_safe_policy(world).values, best, atol=1e-13)


def test_a_world_that_mixes_stars_and_finite_sets_is_planned_state_by_state_or_refused():
    """State 0 is a star whose ray may be cut at ½ (worth 0.5); state 1 has two isolated actions. A planner that treats
    both as finite reports V* = 0.1 in state 0, and the learner, which does cut rays, earns negative regret."""
    f, end = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    sets = [StarActions(f, np.array([end, end])), FiniteActions(np.array([f, end]), 0)]
    try:
        values = optimal_safe_policy(_mixed(sets)).values[0]
    except InputError as refused:
        assert "star" in str(refused).lower()
        return
    np.testing.assert_allclose(values, [0.5, 0.1], atol=1e-12)


def test_states_with_different_numbers_of_actions_are_planned_or_refused_by_name():
    f, end = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    sets = [StarActions(f, end[None]), StarActions(f, np.array([end, f, end]))]
    try:
        values = optimal_safe_policy(_mixed(sets)).values[0]
    except InputError as refused:
        assert "state" in str(refused)
        return
    np.testing.assert_allclose(values, [0.5, 0.5], atol=1e-12)


def _mixed(sets):
    problem = Problem(
        horizon=1,
        constraints=Constraint(threshold=0.6, noise=0.1, safe_cost=lambda step, state: 0.2),
        dimension=2,
        actions=lambda state: sets[state],
        states=range(2),
    )
    return LinearMDP(
        name="mixed",
        problem=problem,
        true_theta=np.array([[0.1, 0.9]]),
        true_gamma=np.array([[[0.2, 1.0]]]),
        true_mu=np.full((1, 2, 2), 0.5),
        initial=np.array([0.5, 0.5]),
    )


def _single_state(problem, theta, gamma):
    return LinearMDP(
        name="hand",
        problem=problem,
        true_theta=np.array(theta),
        true_gamma=np.array(gamma),
        true_mu=np.ones((1, 2, 1)),
        initial=np.ones(1),
    )
