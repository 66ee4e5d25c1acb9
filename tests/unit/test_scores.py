"""Eq. (10), the explorers' bonuses and line 9 of Algorithm 1 on one state.

The state: f = (1, 0), one ray to x = (0, 1), value Gram = identity, so v00 = vxx = 1 and v0x = 0.
"""

import numpy as np
import pytest

from reference.kernels import choose, make_rules, number
from tether.learning.backup import clipped_value, share_of_hope
from tether.learning.confidence import kappa
from tether.learning.safe_sets import ALL, STATE, UNKNOWN
from tether.learning.scores import best_ray, bonus_scales, bound_of_choice, dot, score_rays
from tether.learning.statistics import (
    ADAPTIVE,
    ALARM,
    BAD_NUMBERS,
    BASELINE_BEST,
    BEST,
    CERTIFIED,
    DIRECTIONAL,
    NO_SLACK,
    ONLY_BASELINE,
    PAPER,
    PLAIN,
    WARM_UP,
)

STATE_INPUTS = {
    "weights": np.array([0.2, 0.6]),
    "gamma_hat": np.array([[0.1, 0.7]]),
    "radius": np.array([1.0]),
    "phi_0": np.array([1.0, 0.0]),
    "baseline_cost": np.array([0.1]),
    "width2": np.array([0.04]),
    "cross": np.array([0.0]),
    "g00": 1.0,
    "vxx": np.array([1.0]),
    "v0x": np.array([0.0]),
    "v00": 1.0,
    "projected": np.array([[0.6], [0.7]]),
}
"""⟨w, x⟩ = 0.6, ⟨ĝ, x⟩ = 0.7, width 0.2, residual ⟨ĝ, f⟩ − τ_s = 0: bound(x) = 0.7 + 0.2 = 0.9, lower(x) = 0.5.
So the certified length is 0.4/0.8 = 0.5 and the optimistic one is 1."""


def pick(rules, **changes):
    inputs = {**STATE_INPUTS, **changes}
    return choose(rules, **inputs)


def scales(explorer, gap, radius, step=1):
    rules = make_rules(horizon=3, explorer=explorer, value_radius=np.array([9.0, 0.5, 9.0]))
    facts = np.array([np.zeros(len(gap)), radius, gap])
    return bonus_scales(rules, step, facts)


def test_the_papers_bonus_is_kappa_beta_times_the_norm():
    """H = 3, gap 0.5: κ = 13, β_v = 0.5: 6.5, and nothing on the width."""
    assert scales(PAPER, [0.5], [2.0]) == (6.5, 0.0)
    assert scales(PAPER, [0.5], [2.0])[0] == kappa(3, 0.5) * 0.5


def test_the_certified_bonus_charges_the_width_with_the_steps_left():
    """Step h = 2 of H = 3 (index 1): 2 (H − h + 1) β_c/gap = 2·2·2/0.5 = 16."""
    assert scales(CERTIFIED, [0.5], [2.0]) == (0.5, 16.0)
    assert scales(CERTIFIED, [0.5], [2.0], step=0) == (9.0, 24.0)


@pytest.mark.parametrize("explorer", [DIRECTIONAL, ADAPTIVE, PLAIN])
def test_the_other_explorers_bonus_is_beta_times_the_norm(explorer):
    assert scales(explorer, [0.5], [2.0]) == (0.5, 0.0)


def test_with_two_constraints_the_tighter_one_sets_the_bonus():
    """Gaps 0.5 and 0.25: κ = 2·3/0.25 + 1 = 25. Certified: max(2·2·2/0.5, 2·2·0.5/0.25) = 16."""
    assert scales(PAPER, [0.5, 0.25], [2.0, 0.5]) == (12.5, 0.0)
    assert scales(CERTIFIED, [0.5, 0.25], [2.0, 0.5]) == (0.5, 16.0)


def test_the_score_at_the_end_of_a_ray_is_value_plus_bonus():
    """α = 1: 0.6 + 2·√1 + 3·1·0.2 = 3.2."""
    score = np.empty(1)
    score_rays(0.2, np.array([0.6]), np.ones(1), np.array([0.2]), np.ones(1), np.zeros(1), 1.0, 2.0, 3.0, score)
    assert score[0] == pytest.approx(3.2, rel=1e-15)


def test_the_score_within_a_ray_uses_the_norm_of_the_point():
    """α = 0.25: value 0.75·0.2 + 0.25·0.6 = 0.3; ‖x(α)‖² = 0.5625 + 0.0625 = 0.625; width 0.25·0.2."""
    score = np.empty(1)
    score_rays(0.2, np.array([0.6]), np.array([0.25]), np.array([0.2]), np.ones(1), np.zeros(1), 1.0, 2.0, 3.0, score)
    assert score[0] == pytest.approx(0.3 + 2.0 * np.sqrt(0.625) + 0.15, rel=1e-14)


def test_the_cross_term_enters_the_norm_twice():
    """α = 0.5, v0x = 0.5: ‖x(α)‖² = 0.25 + 2·0.25·0.5 + 0.25 = 0.75."""
    score = np.empty(1)
    score_rays(0.0, np.zeros(1), np.array([0.5]), np.zeros(1), np.ones(1), np.array([0.5]), 1.0, 1.0, 0.0, score)
    assert score[0] == pytest.approx(np.sqrt(0.75), rel=1e-15)


def test_the_highest_score_wins_even_far_above_the_clip():
    """Unclipped: 7 beats 5 although both exceed H."""
    assert best_ray(1.0, np.ones(3), np.array([5.0, 7.0, 6.0])) == (1, 7.0)


def test_a_tie_goes_to_the_safe_action_and_then_to_the_first_ray():
    assert best_ray(2.0, np.ones(2), np.array([2.0, 2.0])) == (-1, 2.0)
    assert best_ray(1.0, np.ones(2), np.array([2.0, 2.0])) == (0, 2.0)


def test_a_ray_without_certified_length_does_not_compete():
    assert best_ray(1.0, np.array([0.0, 0.1]), np.array([9.0, 2.0])) == (1, 2.0)


def test_the_papers_value_is_clipped_at_the_horizon():
    rules = make_rules(horizon=3, explorer=PAPER)
    assert clipped_value(rules, 1, number(7.0)) == 3.0
    assert clipped_value(rules, 1, number(2.5)) == 2.5


def test_other_values_are_clipped_at_the_steps_left():
    """H = 3, index 1: two steps are left."""
    rules = make_rules(horizon=3, explorer=CERTIFIED)
    assert clipped_value(rules, 1, number(2.5)) == 2.0
    assert clipped_value(rules, 2, number(2.5)) == 1.0
    assert clipped_value(rules, 1, number(-0.5)) == -0.5


def test_a_value_that_is_not_a_number_is_as_large_as_can_be():
    assert clipped_value(make_rules(horizon=3, explorer=CERTIFIED), 1, number(np.nan)) == 2.0


def test_hope_is_all_or_nothing_except_for_adaptive():
    """`adaptive` hopes fully in plans 1, 4, 9, 16 and by a quarter in the others."""
    assert share_of_hope(make_rules(explorer=DIRECTIONAL), 7) == 1.0
    assert share_of_hope(make_rules(explorer=CERTIFIED), 4) == 0.0
    assert share_of_hope(make_rules(explorer=PAPER), 4) == 0.0
    full = [n for n in range(1, 30) if share_of_hope(make_rules(explorer=ADAPTIVE), n) == 1.0]
    assert full == [1, 4, 9, 16, 25]
    assert share_of_hope(make_rules(explorer=ADAPTIVE), 5) == 0.25


def test_a_dot_product():
    assert dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 11.0


def test_directional_scores_the_hoped_length_and_plays_the_certified_one():
    """Optimistic length 1: score 0.6 + 1. Certified length 0.5: that is what is played."""
    (row, length, score, reason), bound = pick(make_rules(explorer=DIRECTIONAL))
    assert (row, reason) == (0, BEST)
    assert length == pytest.approx(0.5, abs=1e-8)
    assert score == pytest.approx(1.6, rel=1e-14)
    assert bound[0] == pytest.approx(0.5, abs=1e-9)
    assert bound[0] <= 0.5


def test_certified_scores_the_length_it_plays():
    """α = 0.5: value 0.4, ‖x(α)‖ = √0.5, width 0.1 at 2(H − h + 1)β_c/gap = 2·1·1/0.4 = 5: 0.4 + √0.5 + 0.5."""
    (row, length, score, _), _ = pick(make_rules(explorer=CERTIFIED))
    assert row == 0
    assert length == pytest.approx(0.5, abs=1e-8)
    assert score == pytest.approx(0.9 + np.sqrt(0.5), abs=1e-7)


def test_the_papers_score_carries_kappa():
    """κ = 2·2/0.4 + 1 = 11: the safe action scores 0.2 + 11, the half ray 0.4 + 11 √0.5 = 8.18: f wins."""
    (row, length, score, reason), bound = pick(make_rules(explorer=PAPER))
    assert (row, length, reason) == (-1, 0.0, BASELINE_BEST)
    assert score == pytest.approx(11.2, rel=1e-14)
    assert bound[0] == 0.1


def test_adaptive_takes_a_quarter_of_the_hope():
    """Certified end: 0.4 + √0.5; hoped end: 1.6; a quarter of the way from the first to the second."""
    (_, _, score, _), _ = pick(make_rules(explorer=ADAPTIVE), hope=0.25)
    assert score == pytest.approx(0.75 * (0.4 + np.sqrt(0.5)) + 0.25 * 1.6, abs=1e-7)


def test_a_reduced_radius_certifies_more():
    """⟨ĝ, f⟩ = 0.7, τ_s = 0.1, g00 = 1: β_s = √(1 − 0.36) = 0.8. bound(x) = 0.7 + 0.8·0.2 = 0.86: α = 0.4/0.76."""
    changed = {"gamma_hat": np.array([[0.7, 0.7]])}
    (_, length, _, _), _ = pick(make_rules(reduces_radius=True), **changed)
    assert length == pytest.approx(0.4 / 0.76, abs=1e-8)
    (_, plain, _, _), _ = pick(make_rules(), **changed)
    assert plain == pytest.approx(0.5, abs=1e-8)


def test_a_contradicted_safe_cost_is_an_alarm():
    """⟨ĝ, f⟩ = 1.2: the residual 1.1 exceeds β √g00 = 1."""
    (row, length, _, reason), bound = pick(make_rules(reduces_radius=True), gamma_hat=np.array([[1.2, 0.7]]))
    assert (row, length, reason) == (-1, 0.0, ALARM)
    assert bound[0] == 0.1


def test_conditioning_on_all_facts_needs_no_residual():
    """Where every fact is already in ĝ, ⟨ĝ, f⟩ differs from τ_s by rounding only and must not move the mean."""
    changed = {"cross": np.array([0.5]), "gamma_hat": np.array([[0.3, 0.7]])}
    (_, with_state, _, _), _ = pick(make_rules(conditioning=STATE), **changed)
    (_, with_all, _, _), _ = pick(make_rules(conditioning=ALL), **changed)
    assert with_state == pytest.approx(0.4 / 0.7, abs=1e-8)  # mean 0.7 − 0.5·0.2 = 0.6, bound 0.8
    assert with_all == pytest.approx(0.5, abs=1e-8)


def test_an_unmeasured_safe_cost_is_warmed_up():
    rules = make_rules(conditioning=UNKNOWN, warms_up=True)
    (row, _, _, reason), bound = pick(rules, baseline_cost=np.array([np.nan]))
    assert (row, reason) == (-1, WARM_UP)
    assert bound[0] == 0.5


def test_a_measured_gap_serves_the_bonus_and_never_the_bound():
    """Warm-up done with gap 0.4 (declared 0.1): κ = 2·2/0.4 + 1 = 11, as if τ_s were known; the bound is not."""
    rules = make_rules(conditioning=UNKNOWN, warms_up=True, explorer=PAPER)
    (row, _, score, reason), bound = pick(rules)
    assert (row, reason) == (-1, ONLY_BASELINE)
    assert score == pytest.approx(0.2 + 11.0, rel=1e-14)
    assert bound[0] == 0.5  # ⟨ĝ, f⟩ + β √g00 = 1.1 proves nothing: declared safe at τ


def test_a_declared_safe_cost_that_is_no_number_leaves_the_safe_action():
    (row, length, _, reason), _ = pick(make_rules(), baseline_cost=np.array([np.nan]))
    assert (row, length, reason) == (-1, 0.0, BAD_NUMBERS)


def test_a_safe_cost_at_the_threshold_leaves_no_slack():
    (row, _, _, reason), bound = pick(make_rules(), baseline_cost=np.array([0.5]))
    assert (row, reason) == (-1, NO_SLACK)
    assert bound[0] == 0.5


def test_numbers_that_are_not_finite_leave_the_safe_action():
    (row, length, _, reason), bound = pick(make_rules(), weights=np.array([np.nan, 0.6]))
    assert (row, length, reason) == (-1, 0.0, BAD_NUMBERS)
    assert bound[0] == 0.1


def test_a_discrete_action_over_the_threshold_leaves_only_the_safe_one():
    features = {
        "width2": np.array([0.0, 0.04]), "cross": np.array([1.0, 0.0]), "vxx": np.ones(2), "v0x": np.array([1.0, 0.0]),
        "projected": np.array([[0.2, 0.6], [0.1, 0.7]]),
    }  # fmt: skip
    (row, _, _, reason), bound = pick(make_rules(), **features, is_star=False, baseline_row=0)
    assert (row, reason) == (-1, ONLY_BASELINE)
    assert bound[0] == 0.1


def test_without_a_known_safe_cost_the_bound_is_the_plain_one():
    """bound(f) = 0.1 + 1·1 = 1.1 > τ: a_0 is declared safe at τ itself. bound(x) = 0.7 + 0.2 = 0.9: not certified,
    and between them ‖x(α)‖ is too large: only a_0 is left."""
    (row, _, _, reason), bound = pick(make_rules(conditioning=UNKNOWN), baseline_cost=np.array([np.nan]))
    assert (row, reason) == (-1, ONLY_BASELINE)
    assert bound[0] == 0.5


def test_a_proven_safe_action_reports_what_is_proven():
    """β = 0.1: bound(f) = 0.1 + 0.1 = 0.2 < τ."""
    (_, _, _, _), bound = pick(
        make_rules(conditioning=UNKNOWN), baseline_cost=np.array([np.nan]), radius=np.array([0.1]),
        projected=np.array([[-9.0], [0.7]]),
    )  # fmt: skip
    assert bound[0] == pytest.approx(0.2, rel=1e-14)


def test_a_step_that_one_constraint_refuses_falls_back_with_sound_evidence():
    """Unknown costs, M = 2. Constraint 1 is proven only near x; constraint 2 only near f: nothing satisfies both.

    The evidence is then about a_0: min(τ, ⟨ĝ_j, f⟩ + β_j √g00) = (0.5, 0.1 + 0.01) and never NaN.
    """
    rules = make_rules(conditioning=UNKNOWN, threshold=np.array([0.5, 0.3]), noise=np.ones(2), gamma_norm=np.ones(2))
    (row, length, _, reason), bound = pick(
        rules,
        gamma_hat=np.array([[0.0, 0.3], [0.1, 1.0]]),
        radius=np.array([1.0, 0.01]),
        baseline_cost=np.full(2, np.nan),
        width2=np.array([0.01]),
        projected=np.array([[5.0], [0.3], [1.0]]),
    )
    assert (row, length, reason) == (-1, 0.0, ONLY_BASELINE)
    np.testing.assert_allclose(bound, [0.5, 0.11], rtol=1e-14)


def test_the_bound_of_a_choice_is_affine_between_the_safe_cost_and_the_end():
    """τ_s + α (bound(x) − τ_s) = 0.1 + 0.25 (0.9 − 0.1) = 0.3."""
    bound = bound_of_choice(make_rules(), *map(number, (0.25, 0.7, 0.1, 0.1, 1.0, 0.2, 0.04, 0.0, 1.0)))
    assert bound == pytest.approx(0.3, rel=1e-14)
