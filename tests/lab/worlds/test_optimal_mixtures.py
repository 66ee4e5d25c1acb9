"""Randomised policies: Eq. (13) against an occupancy-measure LP over the whole horizon, written independently."""

import numpy as np
import pytest
from scipy.optimize import linprog

from limits import stated
from tether import LinearMDP, Problem
from tether.errors import EmptySafeSet
from tether.lab.worlds.planning import optimal_safe_mixture, optimal_safe_policy, true_costs
from worlds import finite_world, literal_values, star_world


def occupancy_optimum(world):
    """max Σ ρ_h(s, a) r over occupancy measures with Σ_a ρ_h(s, a)(c_h(s, a) − τ_j) <= 0 for every h, s and j.

    One LP over all steps at once: nothing of the planner's backward induction is used. Returns E over first states.
    """
    horizon, states = world.problem.horizon, world.state_count
    points = np.concatenate([world.phi_0[:, None], world.endpoints], axis=1)  # (S, A, d)
    actions = points.shape[1]
    size = horizon * states * actions

    def at(h, s, a):
        return (h * states + s) * actions + a

    reward, flow, inflow, cost = np.zeros(size), [], [], []
    for h in range(horizon):
        for s in range(states):
            row = np.zeros(size)
            for a in range(actions):
                row[at(h, s, a)] = 1.0
                reward[at(h, s, a)] = points[s, a] @ world.true_theta[h]
            if h > 0:
                for before in range(states):
                    for a in range(actions):
                        row[at(h - 1, before, a)] -= points[before, a] @ world.true_mu[h - 1, :, s]
            flow.append(row)
            inflow.append(world.initial[s] if h == 0 else 0.0)
            for j, tau in enumerate(world.problem.threshold):
                row = np.zeros(size)
                for a in range(actions):
                    row[at(h, s, a)] = points[s, a] @ world.true_gamma[h, j] - tau
                cost.append(row)
    solution = linprog(-reward, A_ub=cost, b_ub=np.zeros(len(cost)), A_eq=flow, b_eq=inflow, method="highs")
    assert solution.status == 0, solution.message
    return -solution.fun


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("make", [finite_world, star_world])
@pytest.mark.parametrize("seed", range(4))
def test_mixture_planner_equals_the_whole_horizon_occupancy_lp(seed, make, constraints):
    world = make(seed, constraints=constraints)
    planned = optimal_safe_mixture(world)
    assert world.initial @ planned.values[0] == pytest.approx(occupancy_optimum(world), abs=1e-8)
    np.testing.assert_allclose(planned.values, literal_values(world, planned.features), atol=1e-12)


@pytest.mark.parametrize("make", [finite_world, star_world])
def test_mixtures_equal_the_deterministic_optimum_where_the_constraint_is_slack(make):
    for seed in range(4):
        world = make(seed, slack=True)
        np.testing.assert_allclose(
            optimal_safe_mixture(world).values, optimal_safe_policy(world).values, rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("make", [finite_world, star_world])
def test_mixtures_are_never_worse_than_deterministic_policies_and_sometimes_better(make, constraints):
    gains = []
    for seed in range(6):
        world = make(seed, constraints=constraints)
        gains.append(optimal_safe_mixture(world).values - optimal_safe_policy(world).values)
    gains = np.array(gains)
    assert (gains >= -1e-9).all()
    assert gains.max() > 1e-3


@pytest.mark.parametrize("constraints", [1, 2])
@pytest.mark.parametrize("make", [finite_world, star_world])
def test_expected_costs_of_the_mixture_never_exceed_the_threshold(make, constraints):
    for seed in range(6):
        world = make(seed, constraints=constraints)
        planned = optimal_safe_mixture(world)
        assert (true_costs(world, planned.features) <= np.array(world.problem.threshold) + 1e-9).all()


@pytest.mark.parametrize(("actions", "points"), [(2, 20_001), (3, 401)])
@pytest.mark.parametrize("constraints", [1, 2])
def test_the_lp_finds_what_brute_force_over_a_fine_grid_finds(actions, points, constraints):
    """Every distribution on a grid over the simplex: none that is safe earns more, and some earns almost as much."""
    share = np.linspace(0.0, 1.0, points)
    if actions == 2:
        grid = np.stack([share, 1.0 - share], axis=1)
    else:
        first, second = (part.ravel() for part in np.meshgrid(share, share))
        inside = first + second <= 1.0 + 1e-12
        grid = np.stack([first, second, 1.0 - first - second], axis=1)[inside]
    mixed = 0
    for seed in range(4):
        world = finite_world(seed, actions=actions, constraints=constraints)
        planned = optimal_safe_mixture(world)
        for step in range(world.problem.horizon):
            q = world.true_theta[step] + world.true_mu[step] @ planned.values[step + 1]
            for state in range(world.state_count):
                value, cost = world.endpoints[state] @ q, world.endpoints[state] @ world.true_gamma[step].T
                safe = (grid @ cost <= np.array(world.problem.threshold) + 1e-12).all(axis=1)
                best = (grid[safe] @ value).max()
                assert best <= planned.values[step, state] + 1e-9
                assert best >= planned.values[step, state] - 2.0 * np.ptp(value) * actions / points
                mixed += np.linalg.norm(world.endpoints[state] - planned.features[step, state], axis=1).min() > 1e-6
    assert mixed > 0


def test_half_and_half_by_hand():
    """Two actions, (cost 0, reward 0) and (cost 1, reward 1), τ = 0.5: half of each earns 0.5; no single one does."""
    world = _two_actions(threshold=0.5, baseline_cost=0.0, gamma=[0.0, 1.0])
    mixed, single = optimal_safe_mixture(world), optimal_safe_policy(world)
    np.testing.assert_allclose(mixed.values[0], [0.5], atol=1e-9)
    np.testing.assert_allclose(mixed.features, [[[0.5, 0.5]]], atol=1e-9)
    np.testing.assert_allclose(single.values[0], [0.0], atol=1e-15)


def test_an_infinite_threshold_means_no_constraint_for_mixtures_too():
    world = _two_actions(threshold=np.inf, baseline_cost=0.0, gamma=[0.0, 1.0])
    np.testing.assert_allclose(optimal_safe_mixture(world).values[0], [1.0], atol=1e-9)


def test_a_state_without_any_safe_mixture_is_an_error_that_names_step_and_state():
    world = _two_actions(threshold=0.5, baseline_cost=0.8, gamma=[0.8, 0.9])
    with pytest.raises(EmptySafeSet, match=r"0\.5.*step 0, state 0"):
        optimal_safe_mixture(world)


def _two_actions(*, threshold, baseline_cost, gamma):
    problem = Problem.from_table(
        features=[[[1.0, 0.0], [0.0, 1.0]]],
        baseline_action=[0],
        horizon=1,
        **stated(
            baseline_cost_error=0.0,
            baseline_cost=[[baseline_cost]],
            threshold=threshold,
            noise=0.1,
            tight_baseline="baseline",
        ),
    )
    return LinearMDP(
        name="two actions",
        problem=problem,
        true_theta=np.array([[0.0, 1.0]]),
        true_gamma=np.array([[gamma]]),
        true_mu=np.ones((1, 2, 1)),
        initial=np.ones(1),
    )
