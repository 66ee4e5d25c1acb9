"""THEORY sections 1, 4 and 6: the safe set is ridge regression conditioned on exact facts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws.generators import law, literal_conditioned, radii, regressions, ridge_of, seeds, unit_ball
from reference.worlds import small_world
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi, known_facts
from tether.errors import AssumptionError
from tether.learning.ridge import inverse_norm
from tether.learning.safe_sets import ROUNDING, conditioned_cost, state_radius
from tether.problem.problem import Problem
from tether.records import Transition
from tether.world.linear_mdp import Streams


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0))
def test_the_conditioned_mean_is_the_papers_known_part_plus_estimate(regression, seed, tau_s):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    mean, _ = conditioned_cost(x[None], f, regression.factor, regression.estimate, tau_s)
    expected, _ = literal_conditioned(regression, f, tau_s, x)
    assert mean[0] == pytest.approx(expected, abs=1e-8)


@law
@given(regressions(), seeds)
def test_the_conditioned_width_is_the_papers_norm_in_the_projected_gram(regression, seed):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    _, width = conditioned_cost(x[None], f, regression.factor, regression.estimate, 0.0)
    _, expected = literal_conditioned(regression, f, 0.0, x)
    allowance = ROUNDING * np.sqrt(x @ regression.inverse @ x)
    assert width[0] == pytest.approx(expected + allowance, abs=1e-8)


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0), radii)
def test_the_bound_is_the_left_side_of_equation_9(regression, seed, tau_s, beta):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    mean, width = conditioned_cost(x[None], f, regression.factor, regression.estimate, tau_s)
    middle, norm = literal_conditioned(regression, f, tau_s, x)
    assert mean[0] + beta * width[0] == pytest.approx(middle + beta * norm, abs=1e-7)


@law
@given(regressions(), seeds)
def test_the_projected_gram_is_the_plain_one_between_two_projections(regression, seed):
    """A_{h,s} = P A_h P with an idempotent P."""
    f = unit_ball(np.random.default_rng(seed), 1, regression.dimension)[0]
    unit = f / np.linalg.norm(f)
    p = np.eye(len(f)) - np.outer(unit, unit)
    rest = regression.features @ p
    np.testing.assert_allclose(p @ p, p, atol=1e-14)
    np.testing.assert_allclose(regression.ridge * p + rest.T @ rest, p @ regression.gram @ p, atol=1e-11)


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0))
def test_the_safe_feature_has_its_declared_cost_and_no_width(regression, seed, tau_s):
    f = unit_ball(np.random.default_rng(seed), 1, regression.dimension)[0]
    mean, width = conditioned_cost(f[None], f, regression.factor, regression.estimate, tau_s)
    assert mean[0] == pytest.approx(tau_s, abs=1e-10)
    assert width[0] <= 2.0 * ROUNDING * inverse_norm(f[None], regression.factor)[0]


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0), radii, st.floats(0.0, 1.0))
def test_the_bound_is_affine_along_a_ray(regression, seed, tau_s, beta, alpha):
    f, end = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    points = np.array([end, f + alpha * (end - f)])
    mean, width = conditioned_cost(points, f, regression.factor, regression.estimate, tau_s)
    bound = mean + beta * width
    assert bound[1] == pytest.approx((1.0 - alpha) * tau_s + alpha * bound[0], abs=1e-7)


@law
@given(regressions(), seeds)
def test_conditioning_moves_the_distance_to_the_truth_by_pythagoras(regression, seed):
    """‖γ_c − γ*‖²_A = ‖ĝ − γ*‖²_A − (⟨ĝ, f⟩ − τ_s)²/g00 for every γ* on the plane ⟨γ, f⟩ = τ_s."""
    rng = np.random.default_rng(seed)
    f = unit_ball(rng, 1, regression.dimension)[0]
    truth = rng.standard_normal(regression.dimension)
    tau_s, plain = truth @ f, regression.estimate
    conditioned, _ = conditioned_cost(np.eye(len(f)), f, regression.factor, plain, tau_s)  # γ_c, entry by entry
    g00 = f @ regression.inverse @ f
    error, before = conditioned - truth, plain - truth
    expected = before @ regression.gram @ before - (plain @ f - tau_s) ** 2 / g00
    assert error @ regression.gram @ error == pytest.approx(expected, rel=1e-6, abs=1e-7)


@law
@given(st.floats(0.0, 5.0), st.floats(-5.0, 5.0), st.floats(0.01, 5.0))
def test_a_states_own_radius_is_never_larger_than_the_plain_one(radius, residual, g00):
    own = state_radius(np.float64(radius), np.float64(residual), np.float64(g00))
    square = radius**2 - residual**2 / g00
    if square < -1e-12:
        assert np.isnan(own)
    elif square > 1e-12:
        assert own == pytest.approx(np.sqrt(square), rel=1e-9)
        assert own <= radius


@law
@given(regressions(least_dimension=2), seeds)
def test_the_truth_is_inside_the_reduced_radius_whenever_it_is_inside_the_plain_one(regression, seed):
    """One event covers every state: |mean(x) − ⟨γ*, x⟩| <= β_s width(x) if ‖ĝ − γ*‖_A <= β_c."""
    rng = np.random.default_rng(seed)
    f, x = unit_ball(rng, 2, regression.dimension)
    truth = regression.estimate + 0.3 * rng.standard_normal(regression.dimension)
    away = regression.estimate - truth
    beta = np.sqrt(away @ regression.gram @ away) * (1.0 + 1e-9)
    tau_s = truth @ f
    own = state_radius(beta, np.float64(regression.estimate @ f - tau_s), np.float64(f @ regression.inverse @ f))
    mean, width = conditioned_cost(x[None], f, regression.factor, regression.estimate, tau_s)
    assert abs(mean[0] - truth @ x) <= own * width[0] + 1e-8


def spanning_problem(rng, states, d, horizon=2, *, wrong=0.0):
    """γ* and a problem whose `states` safe features span that many directions of R^d."""
    gamma = rng.uniform(0.0, 0.6, (horizon, 1, d))
    phi_0 = rng.dirichlet(np.ones(d), size=states)
    costs = np.einsum("hmd,sd->hs", gamma, phi_0)
    costs[0, 0] += wrong
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=rng.dirichlet(np.ones(d), size=(states, 5)),
        baseline_cost=costs,
        horizon=horizon,
        threshold=0.7,
        noise=0.1,
    )
    return problem, gamma


@law
@given(seeds, st.integers(1, 4), st.integers(5, 6), st.integers(0, 30))
def test_conditioning_on_all_facts_is_generic_gaussian_conditioning(seed, states, d, count):
    """mean = ⟨ĝ,x⟩ − xᵀGFᵀ(FGFᵀ)⁻¹(Fĝ − c) and width² = xᵀGx − xᵀGFᵀ(FGFᵀ)⁻¹FGx, F the safe features."""
    rng = np.random.default_rng(seed)
    problem, gamma = spanning_problem(rng, states, d)
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all", cost_ridge=0.3))
    agent.register(range(states))
    rows = unit_ball(rng, count, d)
    z = rows @ gamma[1, 0] + 0.1 * rng.standard_normal(count)
    for x, cost in zip(rows, z, strict=True):
        agent.observe(Transition(1, 0, x, 0.0, float(cost)))
    agent.plan()
    g = np.linalg.inv(0.3 * np.eye(d) + rows.T @ rows)
    plain = g @ (rows.T @ z)
    known = [problem.look_up(s) for s in range(states)]
    facts = np.array([entry.actions.phi_0 for entry in known])
    told = np.array([entry.baseline_cost[1, 0] for entry in known])
    gain = g @ facts.T @ np.linalg.inv(facts @ g @ facts.T)
    conditioned = plain - gain @ (facts @ plain - told)
    covariance = g - gain @ facts @ g
    np.testing.assert_allclose(agent.current.gamma_hat[1, 0], conditioned, atol=1e-6)
    for slot, entry in enumerate(known):
        ends = entry.actions.endpoints
        expected = np.einsum("ni,ij,nj->n", ends, covariance, ends)
        first = agent.tables.start[slot]
        np.testing.assert_allclose(agent.tables.width2[1, first : first + 5], expected, atol=1e-7)


@law
@given(seeds, st.integers(2, 4))
def test_safe_features_that_span_everything_determine_gamma_before_the_first_step(seed, d):
    rng = np.random.default_rng(seed)
    problem, gamma = spanning_problem(rng, d + 2, d)
    facts = np.array([problem.look_up(s).actions.phi_0 for s in range(d + 2)])
    assume(np.linalg.cond(facts) < 100.0)
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
    agent.register(range(d + 2))
    agent.plan()
    assert agent.memory.cost.basis.shape == (d, 0)
    accuracy = 1e-13 * np.linalg.cond(facts)
    np.testing.assert_allclose(agent.current.gamma_hat, gamma, atol=accuracy)
    np.testing.assert_array_equal(agent.tables.width2[:, : agent.tables.start[d + 2]], 0.0)


def test_facts_that_barely_span_a_direction_never_certify_a_cost_over_the_threshold():
    """Two safe features 4e-9 apart: their costs fix γ* only to 1e-16/4e-9, far above rounding."""
    worst = -np.inf
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gamma = rng.uniform(0.1, 0.9, (1, 1, 2))
        phi_0 = np.array([[0.5 + 4e-9, 0.5 - 4e-9], [0.5 - 4e-9, 0.5 + 4e-9]])
        costs = np.einsum("hmd,sd->hs", gamma, phi_0)
        problem = Problem.from_rays(
            phi_0=phi_0,
            endpoints=np.tile(np.eye(2), (2, 1, 1)),
            baseline_cost=costs,
            horizon=1,
            threshold=float(costs.max()) + 0.05,
            noise=0.1,
        )
        agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
        agent.register(range(2))
        agent.plan()
        for state in range(2):
            decision = agent.act(0, state)
            worst = max(worst, gamma[0, 0] @ decision.feature - decision.cost_bound)
    assert worst <= 1e-9


@pytest.mark.parametrize("nudge", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 0.0])
def test_consistent_facts_are_never_refused_however_close_the_safe_features_are(nudge):
    """Three states whose safe features almost coincide, with their true costs: nothing contradicts linearity."""
    gamma, centre = np.array([0.1, 0.3, 0.8]), np.array([0.5, 0.3, 0.2])
    phi_0 = centre + nudge * np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, -1.0, 1.0]])
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=np.tile(np.eye(3), (3, 1, 1)),
        baseline_cost=(phi_0 @ gamma)[None],
        horizon=1,
        threshold=0.6,
        noise=0.1,
    )
    agent = SlucbQvi(problem, SlucbConfig(condition_on="all"))
    agent.register(range(3))
    agent.plan()
    for state in range(3):
        decision = agent.act(0, state)
        assert gamma @ decision.feature <= decision.cost_bound + 1e-9


def test_the_known_part_and_the_open_part_are_orthogonal_and_complete():
    problem, gamma = spanning_problem(np.random.default_rng(3), 3, 5)
    basis, known, rest = known_facts(problem, np.array(problem.gamma_norm))
    assert basis.shape == (5, 2)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(known @ basis, 0.0, atol=1e-12)
    np.testing.assert_allclose(known + (gamma @ basis) @ basis.T, gamma, atol=1e-10)
    assert rest[0] == pytest.approx(np.sqrt(5.0 - (known**2).sum(axis=2).min()), rel=1e-12)


def test_contradictory_facts_are_refused_in_the_words_of_the_assumption():
    problem, _ = spanning_problem(np.random.default_rng(4), 6, 3, wrong=0.05)
    with pytest.raises(AssumptionError, match="linear in the safe features"):
        SlucbQvi(problem, SlucbConfig(condition_on="all"))


def test_conditioning_on_all_facts_never_certifies_less_than_conditioning_on_one():
    """More facts, smaller width; the radius is the same tuned number, so every bound is lower on average."""
    world, streams = small_world(5, states=2, dimension=4, noise=0.1), Streams.from_seed(1)
    one = SlucbQvi(world.problem, SlucbConfig(explorer="paper", cost_radius=1.0, cost_ridge=0.5))
    every = SlucbQvi(world.problem, SlucbConfig(explorer="paper", cost_radius=1.0, cost_ridge=0.5, condition_on="all"))
    one.register(range(2))
    every.register(range(2))
    for _ in range(10):
        state = world.reset(streams)
        for step in range(3):
            transition = world.step(one.act(step, state), streams)
            one.observe(transition)
            every.observe(replace(transition, decision_id=None))
            state = transition.next_state
    one.plan()
    every.plan()
    rows = one.tables.start[2]
    assert (every.tables.width2[:, :rows] <= one.tables.width2[:, :rows] + 1e-12).all()
    assert (every.tables.width2[:, :rows] < 0.9 * one.tables.width2[:, :rows]).any()


@law
@given(regressions(most=15))
def test_the_factor_after_rank_one_updates_is_the_factor_of_the_sum(regression):
    state = ridge_of(regression.features, regression.ridge)
    np.testing.assert_allclose(state.factor[0].T @ state.factor[0], regression.gram, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(state.gram[0], regression.gram, rtol=0.0, atol=1e-13)
    assert state.log_det[0] == pytest.approx(
        np.linalg.slogdet(regression.gram / regression.ridge)[1], rel=1e-9, abs=1e-12
    )
