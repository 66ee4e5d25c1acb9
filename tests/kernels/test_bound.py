"""Eq. (9) and its closed forms: on 2 x 2 numbers, and against the paper's own definitions, line searches and NaN.

By hand, A = [[4, 2], [2, 2]], so G = A^{-1} = [[0.5, -0.5], [-0.5, 1]]; f = (1, 0), x = (0, 1):
g00 = 0.5, g0x = -0.5, gxx = 1, share = -1, width² = 1 − 0.25/0.5 = 0.5.
With ĝ = (0.3, 0.2) and τ_s = 0.1 the residual is 0.2 and mean(x) = 0.2 − (−1)·0.2 = 0.4.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernels.calls import affine, fit, judged, make_rules, unconditioned, vector
from kernels.generators import bisect, costs_of, law, literal_conditioned, radii, regressions, seeds, unit_ball
from tether.kernels.bound import (
    OVERFLOW,
    ROUNDING,
    bound_along,
    largest_unconditioned_step,
    pessimistic_cost,
    solve_costs,
    state_radius,
    widened,
)
from tether.kernels.compiled import replaced
from tether.kernels.model import ALARM, BEST, KNOWN, MEASURED, NO_SLACK, TOLD
from tether.kernels.ridge import gram_residual, new_costs, unwhiten, whiten
from tether.problem.action_sets import FiniteActions, StarActions

F, X = np.array([1.0, 0.0]), np.array([0.0, 1.0])
HAND = {
    "mean": np.array([0.2]), "width2": np.array([0.5]), "cross": np.array([-0.5]), "g00": 0.5, "residual": 0.2,
    "baseline_cost": 0.1, "threshold": 0.5, "radius": 0.4,
}  # fmt: skip
FLAT = {
    "mean": np.array([0.5]), "width2": np.zeros(1), "cross": np.zeros(1), "g00": 1.0, "residual": 0.0,
    "baseline_cost": 0.1, "threshold": 0.5, "radius": 3.0,
}  # fmt: skip
"""Mean 0.5 and no width."""


def hand_costs():
    """Sums whose Gram matrix is A and whose estimate is ĝ: Σzφ = A (0.3, 0.2) = (1.6, 1)."""
    costs = new_costs(1, 2, 1, 1.0)
    costs.gram[0], costs.factor[0], costs.moment[0, 0] = [[4.0, 2.0], [2.0, 2.0]], [[2.0, 1.0], [0.0, 1.0]], [1.6, 1.0]
    return costs


def hand_state(radius=0.4, **rules):
    return judged(hand_costs(), make_rules(tuned_radius=radius, **rules), StarActions(F, X[None]), [0.1])


# The estimate


def test_the_estimate_after_one_observation():
    """λ = 0.5, φ = (0.6, 0.8), z = 0.3: ĝ = zφ/(λ + 1) = 0.2 φ = (0.12, 0.16)."""
    costs = new_costs(1, 2, 1, 0.5)
    costs.gram[0] += np.outer([0.6, 0.8], [0.6, 0.8])
    costs.factor[0] = np.linalg.cholesky(costs.gram[0]).T
    costs.moment[0, 0], costs.updates[0] = [0.18, 0.24], 1
    gamma_hat, radius, margin = fit(costs, make_rules(tuned_radius=0.7))
    np.testing.assert_allclose(gamma_hat[0], [0.12, 0.16], rtol=1e-14)
    assert radius[0] == pytest.approx(0.7, rel=1e-12)  # rounded outward
    assert radius[0] >= 0.7
    assert 0.0 < margin[0] < 1e-14


def residual_norm(costs, estimate):
    """‖b − Aĝ‖_G, what `solve_costs` reports as its error."""
    residual = np.empty(len(estimate))
    gram_residual(costs, 0, 0, estimate, residual, np.empty(len(residual)))
    whiten(costs.factor[0], residual, len(estimate))
    return np.linalg.norm(residual)


@law
@given(seeds, st.integers(3, 6), st.floats(4.0, 6.0))
def test_the_estimate_is_refined_and_its_error_is_reported(seed, d, digits):
    """Features of condition 1e4 to 1e6, so A of 1e8 to 1e12: one step of refinement takes most of the error away."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = (unit_ball(rng, 200, d) * np.logspace(0.0, -digits, d)) @ basis.T
    costs = costs_of(rows, 1e-14, rows @ rng.standard_normal(d))
    plain, refined = costs.moment[0, 0].copy(), np.empty(d)
    whiten(costs.factor[0], plain, d)
    unwhiten(costs.factor[0], plain, d)
    error = solve_costs(costs, 0, 0, refined, np.empty(d), np.empty(d))
    assert error == pytest.approx(residual_norm(costs, refined), rel=1e-6, abs=0.0)
    assert error <= 0.2 * residual_norm(costs, plain) + 1e-16 * np.linalg.norm(refined)


def test_every_constraint_has_its_own_estimate():
    costs = new_costs(1, 2, 2, 1.0)
    costs.gram[0], costs.factor[0] = np.diag([2.0, 4.0]), np.diag([np.sqrt(2.0), 2.0])
    costs.moment[0] = [[1.0, 2.0], [-3.0, 8.0]]
    gamma_hat, _, _ = fit(costs, make_rules(threshold=np.array([0.5, 0.6])))
    np.testing.assert_allclose(gamma_hat, [[0.5, 0.5], [-1.5, 2.0]], rtol=1e-14)


def test_who_is_told_gamma_estimates_nothing():
    told = np.array([[[0.1, 0.2]], [[0.3, 0.4]]])
    gamma_hat, radius, margin = fit(hand_costs(), make_rules(conditioning=TOLD, known_gamma=told), step=1)
    np.testing.assert_array_equal(gamma_hat, [[0.3, 0.4]])
    assert (radius[0], margin[0]) == (0.0, 0.0)


# Mean, width and bound


def test_the_conditioned_mean_moves_the_estimate_onto_the_known_cost():
    """mean(x) = 0.2 − (g0x/g00)(0.3 − 0.1) = 0.2 + 0.2 = 0.4."""
    assert hand_state(radius=0.0).bound(0) == pytest.approx(0.4, rel=1e-14)
    assert pessimistic_cost(0.2, -1.0, 0.0, 0.2, 0.0, 0.0) == pytest.approx(0.4, rel=1e-15)


def test_the_conditioned_width_is_what_the_safe_feature_does_not_explain():
    """width(x) = √(gxx − g0x²/g00) = √0.5, plus the allowance 1e-9 (√0.5 + |share| √g00) = 1e-9 √2."""
    state = hand_state()
    assert state.width2[0] == pytest.approx(0.5, rel=1e-14)
    assert state.widths[0] - np.sqrt(2.0) * ROUNDING == pytest.approx(np.sqrt(0.5), rel=1e-14)


def test_the_bound_adds_the_radius_times_the_width():
    """bound(x) = 0.4 + 0.4 √0.5, and bound(f + α(x − f)) = 0.1 + α (bound(x) − 0.1)."""
    state, end = hand_state(), 0.4 + 0.4 * np.sqrt(0.5)
    assert state.bound(0) == pytest.approx(end, abs=1e-9)
    assert state.bound(0, 0.25) == pytest.approx(0.1 + 0.25 * (end - 0.1), abs=1e-9)
    assert state.bound(0, 0.0) == 0.1


def test_the_pessimistic_cost_by_hand():
    """0.7 − 0.5·0.2 + 2·0.1 + 0.01 (1 + 0.5) = 0.815; optimistic 0.7 − 0.1 − 0.2 − 0.015 = 0.385."""
    assert pessimistic_cost(0.7, 0.5, 0.1, 0.2, 2.0, 0.01) == pytest.approx(0.815, rel=1e-15)
    assert pessimistic_cost(0.7, -0.5, 0.1, -0.2, 2.0, 0.01) == pytest.approx(0.815, rel=1e-15)
    assert pessimistic_cost(0.7, 0.5, 0.1, 0.2, -2.0, -0.01) == pytest.approx(0.385, rel=1e-15)


def test_a_width_is_rounded_up():
    """√0.25 = 0.5, share −3, √g00 = 2: 0.5 + 1e-9 (0.5 + 6)."""
    assert widened(0.25, -3.0, 2.0) - 0.5 == pytest.approx(6.5e-9, rel=1e-6)


def test_without_a_known_safe_cost_nothing_is_conditioned_on():
    """Unknown cost: bound(x) = ⟨ĝ, x⟩ + β ‖x‖_G = 0.2 + 0.4, and at the middle 0.25 + 0.4 √(¼ 0.5 − ½ 0.5 + ¼)."""
    state = hand_state(conditioning=MEASURED)
    assert state.bound(0) == pytest.approx(0.6, abs=1e-8)
    assert state.bound(0, 0.5) == pytest.approx(0.25 + 0.4 * np.sqrt(0.125 - 0.25 + 0.25), abs=1e-8)
    assert state.widths[0] == pytest.approx(1.0, rel=1e-14)


def test_an_error_bar_gives_the_smaller_of_two_bounds():
    """τ_s = 0.1 ± 0.05: (1 − α) 0.15 + α 0.6 beats the bound without conditioning (above) at α = ¼, not at 1."""
    state = hand_state(conditioning=MEASURED, cost_error=np.array([0.05]))
    free = hand_state(conditioning=MEASURED)
    assert state.bound(0, 0.25) == pytest.approx(0.75 * 0.15 + 0.25 * 0.6, abs=1e-8)
    assert state.bound(0, 0.25) < free.bound(0, 0.25)
    assert state.bound(0) == free.bound(0)


# Lengths by hand


def test_a_ray_over_the_threshold_is_cut_where_its_bound_meets_it():
    """bound(x) = 0.4 + 0.4 √0.5 = 0.68284, so α = (0.5 − 0.1)/(0.68284 − 0.1) = 0.68629."""
    length, _, _ = affine(**HAND)
    assert length[0] == pytest.approx(0.4 / (0.3 + 0.4 * np.sqrt(0.5)), rel=1e-8)
    assert length[0] == pytest.approx(0.68629, abs=1e-5)
    assert hand_state().lengths[0] == pytest.approx(length[0], rel=1e-12)


def test_the_optimistic_length_uses_the_lower_bound():
    """lower(x) = 0.4 − 0.4 √0.5 = 0.117 <= 0.5: all of it. With ⟨ĝ, x⟩ = 0.6: lower = 0.517, α = 0.4/0.417."""
    _, optimistic, _ = affine(**HAND)
    assert optimistic[0] == 1.0
    _, optimistic, _ = affine(**{**HAND, "mean": np.array([0.6])})
    assert optimistic[0] == pytest.approx(0.4 / (0.7 - 0.4 * np.sqrt(0.5)), rel=1e-8)


def test_a_margin_shortens_the_certified_length_and_lengthens_the_optimistic_one():
    """Margin 0.01 with |share| = 1 counts twice: 0.4/(0.32 + 0.4 √0.5).

    From below, with ⟨ĝ, x⟩ = 0.7: 0.4/(0.78 − 0.4 √0.5).
    """
    length, _, _ = affine(**HAND, margin=0.01)
    assert length[0] == pytest.approx(0.4 / (0.32 + 0.4 * np.sqrt(0.5)), rel=1e-8)
    _, optimistic, _ = affine(**{**HAND, "mean": np.array([0.7])}, margin=0.01)
    assert optimistic[0] == pytest.approx(0.4 / (0.78 - 0.4 * np.sqrt(0.5)), rel=1e-8)


def test_a_bound_equal_to_the_threshold_is_safe():
    """mean 0.5, no width, τ = 0.5: Eq. (9) says <=."""
    length, optimistic, _ = affine(**FLAT)
    assert (length[0], optimistic[0]) == (1.0, 1.0)


@pytest.mark.parametrize(("mean", "certified"), [(0.5, 1.0), (np.nextafter(0.5, 1.0), 0.0)])
def test_a_discrete_action_is_taken_whole_or_not_at_all(mean, certified):
    length, _, _ = affine(**{**FLAT, "mean": np.array([mean])}, is_star=False)
    assert length[0] == certified


def test_an_earlier_constraint_keeps_its_shorter_length():
    """α = 0.686 here, but another constraint has already cut the ray at 0.25."""
    length, optimistic, _ = affine(**HAND, before=0.25)
    assert (length[0], optimistic[0]) == (0.25, 0.25)


def test_a_safe_action_at_the_threshold_leaves_nothing_on_a_rising_ray():
    """τ_s = τ = 0.5: slack 0, and bound(x) > τ."""
    length, _, _ = affine(**{**HAND, "mean": np.array([0.9]), "baseline_cost": 0.5})
    assert length[0] == 0.0


def test_the_width_carries_an_allowance_in_units_of_the_whole_norm():
    """w + 1e-9 (w + |share| √g00) = √0.5 + 1e-9 (√0.5 + √0.5) >= √0.5 + 1e-9 ‖x‖_G."""
    _, _, width = affine(**HAND)
    assert width[0] - np.sqrt(0.5) == pytest.approx(1e-9 * np.sqrt(2.0), rel=1e-5)


def test_where_the_facts_determine_the_safe_cost_it_moves_nothing():
    """g00 = 0: share 0, so bound(x) = 0.2 + 0.4 √0.5 = 0.483 <= 0.5, whatever the residual says."""
    length, _, width = affine(**{**HAND, "g00": 0.0})
    assert length[0] == 1.0
    assert width[0] == pytest.approx(np.sqrt(0.5), rel=2e-9)


def test_a_states_own_radius_follows_from_pythagoras():
    """β = 5, residual 3, g00 = 1: √(25 − 9) = 4. With g00 = 2.25: √(25 − 4) = √21."""
    assert state_radius(5.0, 3.0, 1.0) == 4.0
    assert state_radius(5.0, -3.0, 2.25) == pytest.approx(np.sqrt(21.0), rel=1e-15)


def test_a_residual_beyond_the_radius_is_no_radius_at_all():
    """25 − 36 < 0: the declared cost lies outside the confidence set, which the caller reads as an alarm."""
    assert np.isnan(state_radius(5.0, 6.0, 1.0))
    assert hand_state(radius=0.2828, reduces_radius=True).reason == ALARM  # 0.2/√0.5 = 0.28284
    assert hand_state(radius=0.2829, reduces_radius=True).reason != ALARM


def test_the_unconditioned_bound_between_two_orthogonal_features():
    """g00 = gxx = 1, g0x = 0, α = 0.5: ‖x(α)‖² = 0.25 + 0.25; mean 0.5·0 + 0.5·1; β = 2: 0.5 + 2 √0.5."""
    bound = bound_along(0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 0.5)
    assert bound - 2.0 * 2.0 * ROUNDING == pytest.approx(0.5 + 2.0 * np.sqrt(0.5), rel=1e-14)


def test_the_unconditioned_step_where_the_norm_is_constant():
    """All forms 0.04, so ‖x(α)‖ = 0.2 everywhere; mean α, β = 1, τ = 0.7: α + 0.2 <= 0.7 up to α = 0.5."""
    step = largest_unconditioned_step(0.0, 1.0, 0.04, 0.04, 0.04, 1.0, 0.7)
    assert step == pytest.approx(0.5, abs=1e-7)
    assert step <= 0.5


def test_a_negative_radius_gives_the_optimistic_step():
    """The same ray from below: α − 0.2 <= 0.7 up to α = 0.9."""
    step = largest_unconditioned_step(0.0, 1.0, 0.04, 0.04, 0.04, -1.0, 0.7)
    assert step == pytest.approx(0.9, abs=1e-7)


def test_the_unconditioned_step_of_a_growing_norm():
    """Means 0, ‖f‖ = 0.3, ‖x‖ = 0.4, orthogonal, β = 1, τ = 0.35: 0.09(1−α)² + 0.16α² = 0.1225.

    0.25α² − 0.18α − 0.0325 = 0: α = (0.18 + √(0.0324 + 0.0325))/0.5 = 0.86951.
    """
    step = largest_unconditioned_step(0.0, 0.0, 0.09, 0.0, 0.16, 1.0, 0.35)
    assert step == pytest.approx((0.18 + np.sqrt(0.0649)) / 0.5, abs=1e-7)


def test_a_ray_may_be_certified_where_the_safe_action_itself_is_not():
    """‖f‖_G = 1 > τ = 0.5, ‖x‖_G = 0.1, orthogonal, means 0: the whole ray's end is proven although f is not."""
    assert largest_unconditioned_step(0.0, 0.0, 1.0, 0.0, 0.01, 1.0, 0.5) == 1.0


def test_no_step_is_left_where_even_the_lowest_bound_is_too_high():
    """‖x(α)‖ >= 1/√2 between orthonormal features, and τ = 0.5."""
    assert largest_unconditioned_step(0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.5) == 0.0


def test_the_unconditioned_step_is_the_far_end_where_both_ends_of_a_ray_cost_too_much():
    """f = −x = 1: the norm at α is |1 − 2α| <= 0.5 from 0.25 to 0.75."""
    step = largest_unconditioned_step(0.0, 0.0, 1.0, -1.0, 1.0, 1.0, 0.5)
    assert step == pytest.approx(0.75, abs=1e-8)


def test_unconditioned_widths_are_whole_norms():
    """0.2 + 0.25 · 1 <= 0.5: all of it."""
    length, optimistic, width = unconditioned(
        mean=np.array([0.2]), gxx=np.array([1.0]), cross=np.array([-0.5]), g00=0.5, mean_0=0.1, threshold=0.5,
        radius=0.25,
    )  # fmt: skip
    assert width[0] == pytest.approx(1.0, rel=1e-15)
    assert length[0] == 1.0
    assert optimistic[0] == 1.0


def test_an_error_bar_certifies_the_longer_of_two_lengths():
    """No data: ‖f‖ = ‖x‖ = 1, orthogonal, means 0, β = 1, τ = 0.5. The quadratic has no root: 0.

    From τ_s + e = 0.2 the affine bound 0.2 + α (1 − 0.2) <= 0.5 holds up to 0.375. And where the data prove more than
    the bar, the quadratic wins: all forms 0.04 and mean α (above) give 0.3 with τ = 0.5; from 0.49 affine 0.01/0.71.
    """
    forms = {"gxx": np.array([1.0]), "cross": np.zeros(1), "g00": 1.0, "mean": np.zeros(1), "mean_0": 0.0}
    length, _, _ = unconditioned(**forms, threshold=0.5, radius=1.0, declared=0.2)
    assert length[0] == pytest.approx(0.375, abs=1e-8)
    length, _, _ = unconditioned(**forms, threshold=0.5, radius=1.0)
    assert length[0] == 0.0
    flat = {"gxx": np.array([0.04]), "cross": np.array([0.04]), "g00": 0.04, "mean": np.ones(1), "mean_0": 0.0}
    length, _, _ = unconditioned(**flat, threshold=0.5, radius=1.0, declared=0.49)
    assert length[0] == pytest.approx(0.3, abs=1e-7)


def test_an_error_bar_at_the_threshold_certifies_nothing_by_itself():
    """τ_s + e >= τ: no affine step, whatever the end of the ray."""
    forms = {"gxx": np.array([1.0]), "cross": np.zeros(1), "g00": 1.0, "mean": np.zeros(1), "mean_0": 0.0}
    for declared in (0.5, 0.6):
        length, _, _ = unconditioned(**forms, threshold=0.5, radius=1.0, declared=declared)
        assert length[0] == 0.0


# Laws: the closed form is the paper's conditioned regression (sections 1 and 4)

WIDE = {"threshold": np.array([2.0])}
"""A threshold that every declared safe cost is under."""


def at_ends(regression, f, ends, tau_s, radius=0.0, **rules):
    """The state with safe feature f and these endpoints."""
    rules = make_rules(tuned_radius=radius, **{**WIDE, **rules})
    return judged(regression.sums, rules, StarActions(f, np.array(ends)), [tau_s])


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0))
def test_the_conditioned_mean_is_the_papers_known_part_plus_estimate(regression, seed, tau_s):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    expected, _ = literal_conditioned(regression, f, tau_s, x)
    assert at_ends(regression, f, [x], tau_s).bound(0) == pytest.approx(expected, abs=1e-8)


@law
@given(regressions(), seeds)
def test_the_conditioned_width_is_the_papers_norm_in_the_projected_gram(regression, seed):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    state = at_ends(regression, f, [x], 0.0)
    _, expected = literal_conditioned(regression, f, 0.0, x)
    allowance = ROUNDING * np.sqrt(x @ regression.inverse @ x)
    assert state.widths[0] == pytest.approx(expected + allowance, abs=1e-8)
    assert np.sqrt(state.width2[0]) == pytest.approx(expected, abs=1e-8)


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0), radii)
def test_the_bound_is_the_left_side_of_equation_9(regression, seed, tau_s, beta):
    f, *ends = unit_ball(np.random.default_rng(seed), 4, regression.dimension)
    state = at_ends(regression, f, ends, tau_s, beta)
    for i, x in enumerate(ends):
        middle, norm = literal_conditioned(regression, f, tau_s, x)
        assert state.bound(i) == pytest.approx(middle + beta * norm, abs=1e-7)


@law
@given(regressions(), seeds, radii)
def test_without_a_known_cost_the_bound_is_the_whole_norm(regression, seed, beta):
    """⟨ĝ, x⟩ + β ‖x‖_G at any point of a ray: section 7."""
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    state = at_ends(regression, f, [x], np.nan, beta, conditioning=MEASURED)
    for alpha in (0.3, 1.0):
        point = f + alpha * (x - f)
        expected = regression.estimate @ point + beta * np.sqrt(point @ regression.inverse @ point)
        assert state.bound(0, alpha) == pytest.approx(expected, abs=1e-6)


@law
@given(regressions(), seeds)
def test_the_projected_gram_is_the_plain_one_between_two_projections(regression, seed):
    """A_{h,s} = P A_h P with an idempotent P, so the sums A_h are enough; ‖Px‖ in its pseudo-inverse is width(x)."""
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    unit = f / np.linalg.norm(f)
    p = np.eye(len(f)) - np.outer(unit, unit)
    rest = regression.features @ p
    np.testing.assert_allclose(p @ p, p, atol=1e-14)
    gram = regression.ridge * p + rest.T @ rest
    np.testing.assert_allclose(gram, p @ regression.sums.gram[0] @ p, atol=1e-11)
    norm2 = (p @ x) @ np.linalg.pinv(gram, rcond=1e-11, hermitian=True) @ (p @ x)
    assert at_ends(regression, f, [x], 0.0).width2[0] == pytest.approx(norm2, rel=1e-6, abs=1e-10)


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0), radii)
def test_the_safe_feature_has_its_declared_cost_and_no_width(regression, seed, tau_s, beta):
    f, x = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    rules = make_rules(tuned_radius=beta, **WIDE)
    state = judged(regression.sums, rules, FiniteActions(np.array([x, f]), 1), [tau_s])
    norm = np.sqrt(f @ regression.inverse @ f)
    assert state.widths[1] <= 3.0 * ROUNDING * norm
    assert state.bound(1) == pytest.approx(tau_s, abs=1e-10 + 3.0 * beta * ROUNDING * norm)
    assert state.bound(0, 0.0) == tau_s


@law
@given(regressions(), seeds, st.floats(-1.0, 1.0), radii, st.floats(0.0, 1.0))
def test_the_bound_is_affine_along_a_ray(regression, seed, tau_s, beta, alpha):
    f, end = unit_ball(np.random.default_rng(seed), 2, regression.dimension)
    state = at_ends(regression, f, [end, f + alpha * (end - f)], tau_s, beta)
    assert state.bound(1) == pytest.approx((1.0 - alpha) * tau_s + alpha * state.bound(0), abs=1e-7)
    assert state.bound(0, alpha) == pytest.approx(state.bound(1), abs=1e-7)


@law
@given(regressions(), seeds)
def test_conditioning_moves_the_distance_to_the_truth_by_pythagoras(regression, seed):
    """‖γ_c − γ*‖²_A = ‖ĝ − γ*‖²_A − (⟨ĝ, f⟩ − τ_s)²/g00 for every γ* on the plane ⟨γ, f⟩ = τ_s.

    So β_s, which `choose` takes from a β that just covers ĝ, just covers γ_c.
    """
    rng = np.random.default_rng(seed)
    f = unit_ball(rng, 1, regression.dimension)[0]
    truth = rng.standard_normal(regression.dimension)
    tau_s, plain = truth @ f, regression.estimate
    state = at_ends(regression, f, np.eye(len(f)), tau_s, threshold=np.array([9.0]))
    conditioned = np.array([state.bound(i) for i in range(len(f))])  # γ_c, entry by entry
    g00 = f @ regression.inverse @ f
    error, before = conditioned - truth, plain - truth
    expected = before @ regression.gram @ before - (plain @ f - tau_s) ** 2 / g00
    assert error @ regression.gram @ error == pytest.approx(expected, rel=1e-6, abs=1e-7)
    beta = np.sqrt(before @ regression.gram @ before)
    assert state_radius(beta, plain @ f - tau_s, g00) ** 2 == pytest.approx(expected, rel=1e-6, abs=1e-7) or (
        expected < 1e-7
    )


@law
@given(st.floats(0.0, 5.0), st.floats(-5.0, 5.0), st.floats(0.01, 5.0))
def test_a_states_own_radius_is_never_larger_than_the_plain_one(radius, residual, g00):
    own = state_radius(radius, residual, g00)
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
    wide = {"threshold": np.array([1e3]), "reduces_radius": True}
    state = at_ends(regression, f, [x], truth @ f, beta, **wide)
    assert state.reason not in (ALARM, NO_SLACK)
    assert truth @ x <= state.bound(0) + 1e-8
    mirrored = replaced_signs(regression, f, x, truth, beta)
    assert -(truth @ x) <= mirrored.bound(0) + 1e-8


def replaced_signs(regression, f, x, truth, beta):
    """The same state for −z and −γ*: its upper bound is the lower bound of the first."""
    costs = regression.sums
    costs.moment[:] *= -1.0
    costs.moment_low[:] *= -1.0
    rules = make_rules(tuned_radius=beta, threshold=np.array([1e3]), reduces_radius=True)
    return judged(costs, rules, StarActions(f, x[None]), [-truth @ f])


# Laws: how far along a ray the bound holds (sections 2 and 7)

RADIUS = st.floats(0.01, 4.0)


def lengths_of(regression, f, ends, tau_s, tau, radius, *, is_star=True):
    """Certified and optimistic lengths of the fast code, and its widths."""
    g = regression.inverse
    g00, cross = f @ g @ f, ends @ g @ f
    gxx = np.einsum("ni,ij,nj->n", ends, g, ends)
    estimate = regression.estimate
    return affine(
        mean=ends @ estimate,
        width2=np.maximum(gxx - cross**2 / g00, 0.0),
        cross=cross,
        g00=g00,
        residual=estimate @ f - tau_s,
        baseline_cost=tau_s,
        threshold=tau,
        radius=radius,
        is_star=is_star,
    )


@st.composite
def rays(draw):
    """A ray in mean and norm: (mean_0, mean, g00, g0x, gxx), from two vectors, so that |g0x|² <= g00 gxx."""
    rng = np.random.default_rng(draw(seeds))
    f, x = unit_ball(rng, 2, draw(st.integers(1, 4))) * draw(st.floats(0.05, 2.0))
    mean_0, mean = draw(st.floats(-1.0, 1.0)), draw(st.floats(-1.0, 2.0))
    return mean_0, mean, f @ f, f @ x, x @ x


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_closed_form_length_is_what_a_line_search_finds(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    state = at_ends(regression, f, ends, tau_s, radius, threshold=np.array([0.5]))
    for i, end in enumerate(ends):

        def holds(alpha, end=end):
            mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
            return mean + radius * norm <= 0.5

        assert state.lengths[i] == pytest.approx(bisect(holds), abs=1e-6)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_optimistic_length_is_what_a_line_search_on_the_lower_bound_finds(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    state = at_ends(regression, f, ends, tau_s, radius, threshold=np.array([0.5]))
    for i, end in enumerate(ends):

        def holds(alpha, end=end):
            mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
            return mean - radius * norm <= 0.5

        assert state.optimistic[i] == pytest.approx(bisect(holds), abs=1e-6)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_cost_bound_at_the_certified_length_is_never_over_the_threshold(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 8, regression.dimension)
    state = at_ends(regression, f, ends, tau_s, radius, threshold=np.array([0.5]))
    for i, (alpha, end) in enumerate(zip(state.lengths, ends, strict=True)):
        assert state.bound(i, alpha) <= 0.5
        mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
        assert mean + radius * norm <= 0.5 + 1e-9


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_every_ray_has_some_certified_length_so_the_safe_action_is_never_the_only_one(regression, seed, tau_s, radius):
    """Assumption 2 leaves a gap τ − τ_s > 0, and a finite bound always fits a short step into it."""
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    assert (length > 0.0).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii, radii, st.booleans())
def test_lengths_shrink_as_the_radius_grows(regression, seed, tau_s, radius, more, is_star):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    small, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=is_star)
    large, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius + more, is_star=is_star)
    assert (large <= small * (1.0 + 1e-14)).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii, st.floats(0.0, 2.0), st.booleans())
def test_lengths_grow_with_the_threshold(regression, seed, tau_s, radius, more, is_star):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    small, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=is_star)
    large, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5 + more, radius, is_star=is_star)
    assert (small <= large * (1.0 + 1e-14)).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_certified_length_is_never_longer_than_the_optimistic_one(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, optimistic, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    assert (length <= optimistic).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_price_of_directional_optimism_is_bounded_as_the_theory_says(regression, seed, tau_s, radius):
    """1 − α_i/α_opt <= 2 β width(played)/(τ − τ_s): section 5."""
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, optimistic, width = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    lost = 1.0 - length / optimistic
    assert (lost <= 2.0 * radius * length * width / (0.5 - tau_s) + 1e-9).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_a_discrete_action_is_certified_exactly_when_its_bound_is_under_the_threshold(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=False)
    for i, end in enumerate(ends):
        mean, norm = literal_conditioned(regression, f, tau_s, end)
        bound = mean + radius * norm
        assume(abs(bound - 0.5) > 1e-6)
        assert length[i] == (1.0 if bound <= 0.5 else 0.0)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.3), st.floats(-0.5, 0.3), radii)
def test_two_constraints_leave_the_shorter_of_their_lengths(regression, seed, first_tau, second_tau, radius):
    """The same costs under two safe costs and thresholds, together and one by one."""
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    actions, both = StarActions(f, np.array(ends)), [[0.5, first_tau], [0.4, second_tau]]
    alone = []
    for tau, tau_s in both:
        rules = make_rules(tuned_radius=radius, threshold=np.array([tau]))
        alone.append(judged(regression.sums, rules, actions, [tau_s]))
    costs = new_costs(1, regression.dimension, 2, regression.ridge)
    one = regression.sums
    for name in ("gram", "gram_low", "factor", "log_det", "updates"):
        getattr(costs, name)[:] = getattr(one, name)
    costs.moment[:], costs.moment_low[:], costs.size[:] = one.moment, one.moment_low, one.size
    rules = make_rules(tuned_radius=radius, threshold=np.array([0.5, 0.4]))
    together = judged(costs, rules, actions, [first_tau, second_tau])
    np.testing.assert_array_equal(together.lengths, np.minimum(alone[0].lengths, alone[1].lengths))
    np.testing.assert_array_equal(together.optimistic, np.minimum(alone[0].optimistic, alone[1].optimistic))


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_the_unconditioned_step_satisfies_its_own_bound(ray, radius, tau, sign):
    step = largest_unconditioned_step(*ray, sign * radius, tau)
    assert 0.0 <= step <= 1.0
    if step > 0.0:
        assert bound_along(*ray, sign * radius, step) <= tau


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_no_point_of_a_grid_beyond_the_unconditioned_step_satisfies_the_bound(ray, radius, tau, sign):
    """The quadratic's root is the *largest* step: a negative radius gives the optimistic one."""
    mean_0, mean, g00, g0x, gxx = ray
    step = largest_unconditioned_step(*ray, sign * radius, tau)
    grid = np.linspace(0.0, 1.0, 2001)
    norm = np.sqrt(np.maximum((1 - grid) ** 2 * g00 + 2 * grid * (1 - grid) * g0x + grid**2 * gxx, 0.0))
    bound = (1 - grid) * mean_0 + grid * mean + sign * radius * norm
    clear = grid[bound <= tau - 1e-6]
    assert clear.size == 0 or step >= clear.max() - 1e-5


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_the_unconditioned_step_is_what_a_line_search_finds(ray, radius, tau, sign):
    mean_0, mean, g00, g0x, gxx = ray

    def bound(alpha):
        norm2 = (1 - alpha) ** 2 * g00 + 2 * alpha * (1 - alpha) * g0x + alpha**2 * gxx
        return (1 - alpha) * mean_0 + alpha * mean + sign * radius * np.sqrt(max(norm2, 0.0))

    assume(bound(0.0) < tau - 1e-3)  # then the bound crosses τ once
    expected = bisect(lambda alpha: bound(alpha) <= tau)
    assert largest_unconditioned_step(*ray, sign * radius, tau) == pytest.approx(expected, abs=1e-5)


@law
@given(rays(), RADIUS, RADIUS, st.floats(-0.5, 1.5))
def test_unconditioned_steps_shrink_as_the_radius_grows(ray, radius, more, tau):
    larger = largest_unconditioned_step(*ray, radius + more, tau)
    assert larger <= largest_unconditioned_step(*ray, radius, tau) + 1e-5


@law
@given(rays(), RADIUS, st.floats(0.0, 1.0), st.floats(-0.5, 1.5))
def test_unconditioned_steps_grow_with_the_threshold(ray, radius, more, tau):
    assert largest_unconditioned_step(*ray, radius, tau) <= largest_unconditioned_step(*ray, radius, tau + more) + 1e-5


@law
@given(regressions(), seeds, st.floats(0.01, 0.8), RADIUS)
def test_unconditioned_lengths_follow_from_the_forms_of_the_tables(regression, seed, tau, radius):
    """The same tables with xᵀGx in the place of the conditioned width²."""
    f, *ends = unit_ball(np.random.default_rng(seed), 5, regression.dimension)
    state = at_ends(regression, f, ends, np.nan, radius, conditioning=MEASURED, threshold=np.array([tau]))
    estimate = regression.estimate
    whole = np.sqrt(np.einsum("ni,ij,nj->n", np.array(ends), regression.inverse, np.array(ends)))
    np.testing.assert_allclose(state.widths, whole, rtol=1e-6)
    for i, end in enumerate(ends):

        def bound(alpha, end=end):
            x = f + alpha * (end - f)
            return estimate @ x + radius * np.sqrt(x @ regression.inverse @ x)

        def lower(alpha, end=end):
            x = f + alpha * (end - f)
            return estimate @ x - radius * np.sqrt(x @ regression.inverse @ x)

        if bound(0.0) < tau - 1e-3:
            assert state.lengths[i] == pytest.approx(bisect(lambda alpha, b=bound: b(alpha) <= tau), abs=1e-5)
        if lower(0.0) < tau - 1e-3:  # concave: it may come back under τ at the far end
            expected = 1.0 if lower(1.0) <= tau else bisect(lambda alpha, b=lower: b(alpha) <= tau)
            assert state.optimistic[i] == pytest.approx(expected, abs=1e-5)
        assert state.lengths[i] <= state.optimistic[i]


@law
@given(regressions(), seeds, st.floats(-0.3, 0.4), st.floats(0.0, 0.2), RADIUS)
def test_a_length_with_an_error_bar_is_the_longer_of_the_affine_and_the_quadratic_one(
    regression, seed, tau_s, error, radius
):
    """Section 17 (b), before any fact is remembered: U is the bound of section 7."""
    f, *ends = unit_ball(np.random.default_rng(seed), 5, regression.dimension)
    rules = {"conditioning": MEASURED, "threshold": np.array([0.5])}
    state = at_ends(regression, f, ends, tau_s, radius, cost_error=np.array([error]), **rules)
    free = at_ends(regression, f, ends, np.nan, radius, **rules)
    for i, end in enumerate(ends):
        upper = regression.estimate @ end + radius * np.sqrt(end @ regression.inverse @ end)
        slack = 0.5 - tau_s - error
        affine_length = 1.0 if upper <= 0.5 else max(slack / (upper - tau_s - error), 0.0)
        assert state.lengths[i] == pytest.approx(max(affine_length, free.lengths[i]), abs=1e-5)
        if state.lengths[i] > 0.0:
            assert state.bound(i, state.lengths[i]) <= 0.5


# Laws: no NaN, wherever it enters, ever yields a length above 0; nor does a bound of minus infinity

COUNT = 4
ROWS = ("mean", "width", "cross")
AFFINE = ("g00", "residual", "baseline_cost", "threshold", "radius", "margin")
UNCONDITIONED = ("g00", "mean_0", "threshold", "radius")


def safe_inputs(rng):
    """Inputs under which every ray is certified in full: cost about 0.1, threshold 0.5."""
    return {
        "mean": rng.uniform(0.0, 0.2, COUNT),
        "width": rng.uniform(0.0, 0.01, COUNT),
        "cross": rng.uniform(-0.1, 0.1, COUNT),
        "g00": rng.uniform(0.5, 1.0),
        "residual": rng.uniform(-0.1, 0.1),
        "mean_0": rng.uniform(0.0, 0.1),
        "baseline_cost": rng.uniform(0.0, 0.2),
        "threshold": 0.5,
        "radius": 0.1,
        "margin": 1e-3,
    }


def affine_of(inputs, is_star):
    """Certified and optimistic lengths."""
    named = {name: inputs[name] for name in ("mean", "cross", *AFFINE)}
    return affine(**named, width2=inputs["width"], is_star=is_star)[:2]


def unconditioned_of(inputs, is_star):
    """Certified and optimistic lengths."""
    named = {name: inputs[name] for name in ("mean", "cross", *UNCONDITIONED)}
    return unconditioned(**named, gxx=inputs["width"], is_star=is_star)[:2]


def declared_of(inputs, is_star):
    """Certified and optimistic lengths where an error bar is declared, too."""
    named = {name: inputs[name] for name in ("mean", "cross", *UNCONDITIONED)}
    return unconditioned(**named, gxx=inputs["width"], declared=inputs["baseline_cost"], is_star=is_star)[:2]


@law
@given(seeds, st.booleans())
def test_sound_inputs_certify_every_ray(seed, is_star):
    """Otherwise the laws below could not fail."""
    inputs = safe_inputs(np.random.default_rng(seed))
    for lengths in (affine_of, unconditioned_of, declared_of):
        np.testing.assert_array_equal(lengths(inputs, is_star), 1.0)


@law
@given(
    seeds,
    st.booleans(),
    st.sampled_from([affine_of, unconditioned_of, declared_of]),
    st.sampled_from(ROWS),
    st.integers(0, COUNT - 1),
)
def test_a_nan_of_one_candidate_leaves_it_without_length_and_the_others_untouched(seed, is_star, lengths, name, at):
    inputs = safe_inputs(np.random.default_rng(seed))
    inputs[name][at] = np.nan
    certified, optimistic = lengths(inputs, is_star)
    for result in (certified, optimistic):
        np.testing.assert_array_equal(np.delete(result, at), 1.0)
        assert result[at] == 0.0


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("is_star", [True, False])
def test_a_nan_shared_by_all_candidates_leaves_none_with_a_length(name, is_star):
    inputs = safe_inputs(np.random.default_rng(0))
    inputs[name] = np.nan
    length, _ = affine_of(inputs, is_star)
    np.testing.assert_array_equal(length, 0.0)


@pytest.mark.parametrize("name", UNCONDITIONED)
@pytest.mark.parametrize("is_star", [True, False])
@pytest.mark.parametrize("lengths", [unconditioned_of, declared_of])
def test_a_nan_shared_by_all_candidates_leaves_none_with_an_unconditioned_length(lengths, name, is_star):
    inputs = safe_inputs(np.random.default_rng(0))
    inputs[name] = np.nan
    length, _ = lengths(inputs, is_star)
    np.testing.assert_array_equal(length, 0.0)


@pytest.mark.parametrize("lengths", [affine_of, unconditioned_of, declared_of])
@pytest.mark.parametrize("is_star", [True, False])
def test_a_bound_of_minus_infinity_certifies_nothing(lengths, is_star):
    """It is an overflow, not a cheap action."""
    for cost in (-np.inf, 10.0 * OVERFLOW):
        inputs = safe_inputs(np.random.default_rng(0))
        inputs["mean"][1] = cost
        length, _ = lengths(inputs, is_star)
        assert length[1] == 0.0


@pytest.mark.parametrize("position", range(7))
def test_a_nan_anywhere_gives_an_unconditioned_step_of_zero(position):
    inputs = np.array([0.1, 0.2, 1.0, 0.3, 1.0, 0.1, 0.9])
    assert largest_unconditioned_step(*inputs) == 1.0
    inputs[position] = np.nan
    assert largest_unconditioned_step(*inputs) == 0.0


@pytest.mark.parametrize("position", range(7))
def test_a_nan_anywhere_makes_the_bound_along_a_ray_nan(position):
    inputs = np.array([0.1, 0.2, 1.0, 0.3, 1.0, 0.1, 0.5])
    inputs[position] = np.nan
    assert np.isnan(bound_along(*inputs))


@pytest.mark.parametrize("name", ["gram", "factor", "moment", "size", "least"])
@pytest.mark.parametrize("conditioning", [KNOWN, MEASURED])
def test_a_nan_in_the_sums_reaches_the_radius_or_the_estimate(name, conditioning):
    """Whatever is broken in the sums, no other action is certified from them."""
    costs = hand_costs()
    getattr(costs, name)[:] = np.nan
    state = judged(costs, make_rules(conditioning=conditioning), StarActions(F, X[None]), [0.1])
    assert state.plan.row[0, 0] == -1
    assert state.reason != BEST


def test_rules_are_changed_one_field_at_a_time():
    """`replaced` is how the cases above vary; it leaves the original as it was."""
    rules = make_rules()
    changed = replaced(rules, threshold=vector([0.9]))
    assert (rules.threshold[0], changed.threshold[0], changed.horizon) == (0.5, 0.9, 2)
