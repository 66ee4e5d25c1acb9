"""Eq. (9) and its closed forms on 2 x 2 numbers.

A = [[4, 2], [2, 2]], so G = A^{-1} = [[0.5, -0.5], [-0.5, 1]]; f = (1, 0), x = (0, 1):
g00 = 0.5, g0x = -0.5, gxx = 1, share = -1, width² = 1 − 0.25/0.5 = 0.5.
With ĝ = (0.3, 0.2) and τ_s = 0.1 the residual is 0.2 and mean(x) = 0.2 − (−1)·0.2 = 0.4.
"""

import numpy as np
import pytest

from reference.kernels import affine, number, unconditioned
from tether.learning.safe_sets import (
    ROUNDING,
    bound_along,
    conditioned_cost,
    largest_unconditioned_step,
    state_radius,
)

U = np.array([[2.0, 1.0], [0.0, 1.0]])
HAND = {
    "mean": np.array([0.2]), "width2": np.array([0.5]), "cross": np.array([-0.5]), "g00": 0.5, "residual": 0.2,
    "baseline_cost": 0.1, "threshold": 0.5, "radius": 0.4,
}  # fmt: skip


def test_the_conditioned_mean_moves_the_estimate_onto_the_known_cost():
    """mean(x) = 0.2 − (g0x/g00)(0.3 − 0.1) = 0.2 + 0.2 = 0.4."""
    mean, _ = conditioned_cost(np.array([[0.0, 1.0]]), np.array([1.0, 0.0]), U, np.array([0.3, 0.2]), 0.1)
    assert mean[0] == pytest.approx(0.4, rel=1e-14)


def test_the_conditioned_width_is_what_the_safe_feature_does_not_explain():
    """width(x) = √(gxx − g0x²/g00) = √0.5, plus the allowance 1e-9 ‖x‖_G = 1e-9."""
    _, width = conditioned_cost(np.array([[0.0, 1.0]]), np.array([1.0, 0.0]), U, np.array([0.3, 0.2]), 0.1)
    assert width[0] - ROUNDING == pytest.approx(np.sqrt(0.5), rel=1e-14)


def test_a_ray_over_the_threshold_is_cut_where_its_bound_meets_it():
    """bound(x) = 0.4 + 0.4 √0.5 = 0.68284, so α = (0.5 − 0.1)/(0.68284 − 0.1) = 0.68629."""
    length, _, _ = affine(**HAND)
    assert length[0] == pytest.approx(0.4 / (0.3 + 0.4 * np.sqrt(0.5)), rel=1e-8)
    assert length[0] == pytest.approx(0.68629, abs=1e-5)


def test_the_optimistic_length_uses_the_lower_bound():
    """lower(x) = 0.4 − 0.4 √0.5 = 0.117 <= 0.5: all of it. With ⟨ĝ, x⟩ = 0.6: lower = 0.517, α = 0.4/0.417."""
    _, optimistic, _ = affine(**HAND)
    assert optimistic[0] == 1.0
    _, optimistic, _ = affine(**{**HAND, "mean": np.array([0.6])})
    assert optimistic[0] == pytest.approx(0.4 / (0.7 - 0.4 * np.sqrt(0.5)), rel=1e-8)


def test_a_bound_equal_to_the_threshold_is_safe():
    """mean 0.5, no width, τ = 0.5: Eq. (9) says <=."""
    length, optimistic, _ = affine(
        mean=np.array([0.5]), width2=np.zeros(1), cross=np.zeros(1), g00=1.0, residual=0.0, baseline_cost=0.1,
        threshold=0.5, radius=3.0,
    )  # fmt: skip
    assert (length[0], optimistic[0]) == (1.0, 1.0)


@pytest.mark.parametrize(("mean", "certified"), [(0.5, 1.0), (np.nextafter(0.5, 1.0), 0.0)])
def test_a_discrete_action_is_taken_whole_or_not_at_all(mean, certified):
    length, _, _ = affine(
        mean=np.array([mean]), width2=np.zeros(1), cross=np.zeros(1), g00=1.0, residual=0.0, baseline_cost=0.1,
        threshold=0.5, radius=3.0, is_star=False,
    )  # fmt: skip
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


def test_a_states_own_radius_follows_from_pythagoras():
    """β = 5, residual 3, g00 = 1: √(25 − 9) = 4. With g00 = 2.25: √(25 − 4) = √21."""
    assert state_radius(number(5.0), number(3.0), number(1.0)) == 4.0
    assert state_radius(number(5.0), number(-3.0), number(2.25)) == pytest.approx(np.sqrt(21.0), rel=1e-15)


def test_a_residual_beyond_the_radius_is_no_radius_at_all():
    """25 − 36 < 0: the declared cost lies outside the confidence set, which the caller reads as an alarm."""
    assert np.isnan(state_radius(number(5.0), number(6.0), number(1.0)))


def test_the_unconditioned_bound_between_two_orthogonal_features():
    """g00 = gxx = 1, g0x = 0, α = 0.5: ‖x(α)‖² = 0.25 + 0.25; mean 0.5·0 + 0.5·1; β = 2: 0.5 + 2 √0.5."""
    bound = bound_along(*map(number, (0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 0.5)))
    assert bound - 2.0 * 2.0 * ROUNDING == pytest.approx(0.5 + 2.0 * np.sqrt(0.5), rel=1e-14)


def test_the_unconditioned_step_where_the_norm_is_constant():
    """All forms 0.04, so ‖x(α)‖ = 0.2 everywhere; mean α, β = 1, τ = 0.7: α + 0.2 <= 0.7 up to α = 0.5."""
    step = largest_unconditioned_step(*map(number, (0.0, 1.0, 0.04, 0.04, 0.04, 1.0, 0.7)))
    assert step == pytest.approx(0.5, abs=1e-7)
    assert step <= 0.5


def test_a_negative_radius_gives_the_optimistic_step():
    """The same ray from below: α − 0.2 <= 0.7 up to α = 0.9."""
    step = largest_unconditioned_step(*map(number, (0.0, 1.0, 0.04, 0.04, 0.04, -1.0, 0.7)))
    assert step == pytest.approx(0.9, abs=1e-7)


def test_the_unconditioned_step_of_a_growing_norm():
    """Means 0, ‖f‖ = 0.3, ‖x‖ = 0.4, orthogonal, β = 1, τ = 0.35: 0.09(1−α)² + 0.16α² = 0.1225.

    0.25α² − 0.18α − 0.0325 = 0: α = (0.18 + √(0.0324 + 0.0325))/0.5 = 0.86951.
    """
    step = largest_unconditioned_step(*map(number, (0.0, 0.0, 0.09, 0.0, 0.16, 1.0, 0.35)))
    assert step == pytest.approx((0.18 + np.sqrt(0.0649)) / 0.5, abs=1e-7)


def test_a_ray_may_be_certified_where_the_safe_action_itself_is_not():
    """‖f‖_G = 1 > τ = 0.5, ‖x‖_G = 0.1, orthogonal, means 0: the whole ray's end is proven although f is not."""
    assert largest_unconditioned_step(*map(number, (0.0, 0.0, 1.0, 0.0, 0.01, 1.0, 0.5))) == 1.0


def test_no_step_is_left_where_even_the_lowest_bound_is_too_high():
    """‖x(α)‖ >= 1/√2 between orthonormal features, and τ = 0.5."""
    assert largest_unconditioned_step(*map(number, (0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.5))) == 0.0


def test_the_unconditioned_step_is_the_far_end_where_both_ends_of_a_ray_cost_too_much():
    """f = −x = 1: the norm at α is |1 − 2α| <= 0.5 from 0.25 to 0.75."""
    step = largest_unconditioned_step(*map(number, (0.0, 0.0, 1.0, -1.0, 1.0, 1.0, 0.5)))
    assert step == pytest.approx(0.75, abs=1e-8)


def test_unconditioned_widths_are_whole_norms():
    """gxx = width² + g0x²/g00 = 0.5 + 0.25/0.5 = 1."""
    length, optimistic, width = unconditioned(
        mean=np.array([0.2]), width2=np.array([0.5]), cross=np.array([-0.5]), g00=0.5, mean_0=0.1, threshold=0.5,
        radius=0.25,
    )  # fmt: skip
    assert width[0] == pytest.approx(1.0, rel=1e-15)
    assert length[0] == 1.0  # 0.2 + 0.25 · 1 <= 0.5
    assert optimistic[0] == 1.0
