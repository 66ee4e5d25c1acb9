"""Eq. (10), the explorers' bonuses and line 9 of Algorithm 1 on one state: by hand, and what no NaN may do to them.

The state: f = (1, 0), one ray to x = (0, 1), value Gram = identity, so v00 = vxx = 1 and v0x = 0.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.calls import choose_at, make_rules, one_state
from kernels.generators import law, seeds
from tether.kernels.bound import bound_at, examine, limit_lengths
from tether.kernels.choice import (
    best_ray,
    choose,
    clipped_value,
    norm_scale,
    optimism_share,
    score_rays,
    width_scale,
)
from tether.kernels.model import (
    ADAPTIVE,
    ALARM,
    BAD_NUMBERS,
    BASELINE_BEST,
    BEST,
    CERTIFIED,
    DIRECTIONAL,
    ENDED,
    GAP,
    KNOWN,
    MEASURED,
    NO_SLACK,
    ONLY_BASELINE,
    PAPER,
    PLAIN,
    RADIUS,
    TOLD,
    WARM_UP,
    new_plan,
    new_scratch,
)
from tether.kernels.radius import kappa

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
    return choose_at(rules, **{**STATE_INPUTS, **changes})


def scales(explorer, gap, radius, step=1, **more):
    """(factor of the norm, factor of the width) in the bonus."""
    rules = make_rules(
        horizon=3, explorer=explorer, value_radius=np.array([9.0, 0.5, 9.0]), threshold=np.full(len(gap), 0.5), **more
    )
    scratch = new_scratch(2, len(gap), 1, 1)
    scratch.state[GAP], scratch.state[RADIUS] = gap, radius
    return norm_scale(rules, scratch, rules.value_radius[step]), width_scale(rules, scratch, step)


def score(value_0, value, alpha, width, vxx, v0x, v00, per_norm, per_width, at=0):
    """Eq. (10) on one ray, before clipping."""
    tables = one_state(width2=[0.0], cross=[0.0], g00=1.0, vxx=[vxx], v0x=[v0x], v00=v00)
    scratch = new_scratch(2, 1, 1, 1)
    scratch.projected[0, 0], scratch.work[at, 0], scratch.work[2, 0] = value, alpha, width
    score_rays(tables, scratch, 0, 0, at, value_0, per_norm, per_width)
    return scratch.work[3 + at, 0]


def ray_with(score_0, lengths, scores):
    scratch = new_scratch(2, 1, len(lengths), len(lengths))
    scratch.work[0], scratch.work[3] = lengths, scores
    return best_ray(score_0, scratch, len(lengths))


# Bonuses, scores and values


def test_the_papers_bonus_is_kappa_beta_times_the_norm():
    """H = 3, gap 0.5: κ = 13, β_v = 0.5: 6.5, and nothing on the width."""
    assert scales(PAPER, [0.5], [2.0]) == (6.5, 0.0)
    assert scales(PAPER, [0.5], [2.0])[0] == kappa(3, 0.5) * 0.5


def test_a_tuned_kappa_takes_the_place_of_lemma_1s():
    """κ = 2: 2 · 0.5, whatever the gap."""
    assert scales(PAPER, [0.5], [2.0], kappa=2.0) == (1.0, 0.0)


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
    assert score(0.2, 0.6, 1.0, 0.2, 1.0, 0.0, 1.0, 2.0, 3.0) == pytest.approx(3.2, rel=1e-15)


def test_the_score_within_a_ray_uses_the_norm_of_the_point():
    """α = 0.25: value 0.75·0.2 + 0.25·0.6 = 0.3; ‖x(α)‖² = 0.5625 + 0.0625 = 0.625; width 0.25·0.2."""
    expected = 0.3 + 2.0 * np.sqrt(0.625) + 0.15
    assert score(0.2, 0.6, 0.25, 0.2, 1.0, 0.0, 1.0, 2.0, 3.0) == pytest.approx(expected, rel=1e-14)
    assert score(0.2, 0.6, 0.25, 0.2, 1.0, 0.0, 1.0, 2.0, 3.0, at=1) == pytest.approx(expected, rel=1e-14)


def test_the_cross_term_enters_the_norm_twice():
    """α = 0.5, v0x = 0.5: ‖x(α)‖² = 0.25 + 2·0.25·0.5 + 0.25 = 0.75."""
    assert score(0.0, 0.0, 0.5, 0.0, 1.0, 0.5, 1.0, 1.0, 0.0) == pytest.approx(np.sqrt(0.75), rel=1e-15)


def test_the_highest_score_wins_even_far_above_the_clip():
    """Unclipped: 7 beats 5 although both exceed H."""
    assert ray_with(1.0, np.ones(3), [5.0, 7.0, 6.0]) == (1, 7.0)


def test_a_tie_goes_to_the_safe_action_and_then_to_the_first_ray():
    assert ray_with(2.0, np.ones(2), [2.0, 2.0]) == (-1, 2.0)
    assert ray_with(1.0, np.ones(2), [2.0, 2.0]) == (0, 2.0)


def test_a_ray_without_certified_length_does_not_compete():
    assert ray_with(1.0, np.array([0.0, 0.1]), [9.0, 2.0]) == (1, 2.0)


def test_the_papers_value_is_clipped_at_the_horizon():
    rules = make_rules(horizon=3, explorer=PAPER)
    assert clipped_value(rules, 1, 7.0) == 3.0
    assert clipped_value(rules, 1, 2.5) == 2.5


def test_other_values_are_clipped_at_the_steps_left():
    """H = 3, index 1: two steps are left."""
    rules = make_rules(horizon=3, explorer=CERTIFIED)
    assert clipped_value(rules, 1, 2.5) == 2.0
    assert clipped_value(rules, 2, 2.5) == 1.0
    assert clipped_value(rules, 1, -0.5) == -0.5


def test_a_value_that_is_not_a_number_is_as_large_as_can_be():
    assert clipped_value(make_rules(horizon=3, explorer=CERTIFIED), 1, np.nan) == 2.0


def test_the_optimism_share_is_0_or_1_except_for_adaptive():
    """`adaptive` takes all of it in plans 1, 4, 9, 16 and a quarter in the others."""
    assert optimism_share(make_rules(explorer=DIRECTIONAL), 7) == 1.0
    assert optimism_share(make_rules(explorer=CERTIFIED), 4) == 0.0
    assert optimism_share(make_rules(explorer=PAPER), 4) == 0.0
    full = [n for n in range(1, 30) if optimism_share(make_rules(explorer=ADAPTIVE), n) == 1.0]
    assert full == [1, 4, 9, 16, 25]
    assert optimism_share(make_rules(explorer=ADAPTIVE), 5) == 0.25


# Choices by hand


def test_directional_scores_the_optimistic_length_and_plays_the_certified_one():
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


def test_adaptive_takes_a_quarter_of_the_optimism():
    """Certified end: 0.4 + √0.5; optimistic end: 1.6; a quarter of the way from one to the other. Plan 4: all."""
    (_, _, score, _), _ = pick(make_rules(explorer=ADAPTIVE), plans=5)
    assert score == pytest.approx(0.75 * (0.4 + np.sqrt(0.5)) + 0.25 * 1.6, abs=1e-7)
    (_, _, score, _), _ = pick(make_rules(explorer=ADAPTIVE), plans=4)
    assert score == pytest.approx(1.6, rel=1e-14)


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


def test_a_margin_excuses_a_residual_of_its_size():
    """The residual 1.1 may be 0.2 of margin: 0.9 is within β √g00 = 1. It then widens the bound: 0.7 − 0 + …"""
    changed = {"gamma_hat": np.array([[1.2, 0.7]]), "margin": np.array([0.2])}
    (_, length, _, reason), _ = pick(make_rules(reduces_radius=True), **changed)
    assert reason == BEST
    own = np.sqrt(1.0 - 0.81)
    assert length == pytest.approx(0.4 / (0.7 + own * 0.2 + 0.2 - 0.1), abs=1e-8)


def test_a_radius_that_is_no_number_is_an_alarm_for_every_explorer():
    """`fit_costs` leaves it where the remembered facts contradict each other or the data."""
    for explorer in (PAPER, CERTIFIED, DIRECTIONAL):
        rules = make_rules(explorer=explorer, reduces_radius=explorer != PAPER)
        (row, length, _, reason), bound = pick(rules, radius=np.array([np.nan]))
        assert (row, length, reason) == (-1, 0.0, ALARM)
        assert bound[0] == 0.1


def test_conditioning_on_facts_that_determine_a_cost_needs_no_residual():
    """g00 = 0: the facts say what f costs. ⟨ĝ, f⟩ differs from τ_s by rounding only and must not move the mean."""
    changed = {"cross": np.array([0.5]), "gamma_hat": np.array([[0.3, 0.7]])}
    (_, with_state, _, _), _ = pick(make_rules(), **changed)
    assert with_state == pytest.approx(0.4 / 0.7, abs=1e-8)  # mean 0.7 − 0.5·0.2 = 0.6, bound 0.8
    rounded = {"cross": np.array([0.5]), "gamma_hat": np.array([[0.1 + 1e-12, 0.7]]), "g00": 0.0}
    (_, with_facts, _, _), _ = pick(make_rules(), **rounded)
    assert with_facts == pytest.approx(0.5, abs=1e-8)


def test_a_safe_cost_that_the_facts_contradict_is_an_alarm():
    """g00 = 0 and ⟨ĝ, f⟩ − τ_s = 1e-3: the remembered facts determine this cost, and say something else."""
    (row, _, _, reason), _ = pick(make_rules(), g00=0.0, gamma_hat=np.array([[0.101, 0.7]]))
    assert (row, reason) == (-1, ALARM)
    (_, _, _, reason), _ = pick(make_rules(), g00=0.0, gamma_hat=np.array([[0.101, 0.7]]), margin=np.array([2e-3]))
    assert reason == BEST


def test_an_unmeasured_safe_cost_is_warmed_up():
    rules = make_rules(conditioning=MEASURED, warms_up=True)
    (row, _, _, reason), bound = pick(rules, baseline_cost=np.array([np.nan]))
    assert (row, reason) == (-1, WARM_UP)
    assert bound[0] == 0.5


def test_a_measured_gap_serves_the_bonus_and_never_the_bound():
    """Warm-up done with gap 0.4 (declared 0.1): κ = 2·2/0.4 + 1 = 11, as if τ_s were known; the bound is not."""
    rules = make_rules(conditioning=MEASURED, warms_up=True, explorer=PAPER)
    (row, _, score, reason), bound = pick(rules, width2=np.array([0.04]))
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
    (row, _, _, reason), bound = pick(make_rules(conditioning=MEASURED), baseline_cost=np.array([np.nan]))
    assert (row, reason) == (-1, ONLY_BASELINE)
    assert bound[0] == 0.5


def test_a_proven_safe_action_reports_what_is_proven():
    """β = 0.1: bound(f) = 0.1 + 0.1 = 0.2 < τ."""
    (_, _, _, _), bound = pick(
        make_rules(conditioning=MEASURED), baseline_cost=np.array([np.nan]), radius=np.array([0.1]),
        projected=np.array([[-9.0], [0.7]]),
    )  # fmt: skip
    assert bound[0] == pytest.approx(0.2, rel=1e-14)


def test_a_safe_cost_with_an_error_bar_is_the_least_that_the_bar_or_the_data_prove():
    """τ_s = 0.1 ± 0.05. β = 1: the data prove 1.1, the bar 0.15. β = 0.01: the data prove 0.11."""
    rules = make_rules(conditioning=MEASURED, cost_error=np.array([0.05]))
    for radius, proven in ((1.0, 0.15), (0.01, 0.11)):
        (row, _, _, _), bound = pick(rules, radius=np.array([radius]), projected=np.array([[-9.0], [0.7]]))
        assert row == -1
        assert bound[0] == pytest.approx(proven, rel=1e-14)


def test_a_safe_cost_over_the_threshold_by_more_than_its_error_is_not_called_safe():
    """τ_s = 0.6 ± 0.05, τ = 0.5: it costs 0.55 at least, so no bound of 0.5 can be claimed for it."""
    rules = make_rules(conditioning=MEASURED, cost_error=np.array([0.05]))
    (row, _, _, reason), bound = pick(rules, baseline_cost=np.array([0.6]))
    assert (row, reason) == (-1, NO_SLACK)
    assert bound[0] >= 0.55


def test_an_error_bar_certifies_part_of_a_ray():
    """U(x) = 0.7 + 0.2 = 0.9; from 0.15: α = 0.35/0.75, and its bound is τ."""
    rules = make_rules(conditioning=MEASURED, cost_error=np.array([0.05]))
    (row, length, _, reason), bound = pick(rules)
    assert (row, reason) == (0, BEST)
    assert length == pytest.approx(0.35 / 0.75, abs=1e-8)
    assert bound[0] == pytest.approx(0.5, abs=1e-8)
    assert bound[0] <= 0.5


def test_a_step_that_one_constraint_refuses_falls_back_with_sound_evidence():
    """Unknown costs, M = 2. Constraint 1 is proven only near x; constraint 2 only near f: nothing satisfies both.

    The evidence is then about a_0: min(τ, ⟨ĝ_j, f⟩ + β_j √g00) = (0.5, 0.1 + 0.01) and never NaN.
    """
    rules = make_rules(conditioning=MEASURED, threshold=np.array([0.5, 0.3]))
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
    """τ_s + α (bound(x) − τ_s) = 0.1 + 0.25 (0.9 − 0.1) = 0.3; and it is what `limit_lengths` solved for α."""
    rules = make_rules()
    tables = one_state(**{name: STATE_INPUTS[name] for name in ("width2", "cross", "g00", "phi_0", "baseline_cost")})
    plan, scratch = new_plan(1, 1, 1, 2), new_scratch(2, 1, 1, 1)
    plan.gamma_hat[0], plan.radius[0], scratch.projected[1, 0], scratch.work[:2] = [0.1, 0.7], 1.0, 0.7, 1.0
    assert examine(rules, tables, plan, scratch, 0, 0, 0) == BEST
    limit_lengths(rules, tables, scratch, 0, 0, 0)
    assert bound_at(rules, tables, scratch, 0, 0, 0, 0, 0.25) == pytest.approx(0.3, abs=1e-9)
    assert bound_at(rules, tables, scratch, 0, 0, 0, 0, scratch.work[0, 0]) == pytest.approx(0.5, rel=1e-14)


def test_where_a_trajectory_ends_nothing_is_played_and_the_value_is_known():
    """H = 2, final reward 0.7 a step: 1.4 with both left, 0.7 at the last one; there is no bound to speak of."""
    rules, tables = make_rules(), one_state(width2=[0.04], cross=[0.0], g00=1.0)
    tables.final_reward[0] = 0.7
    for step, worth in ((0, 1.4), (1, 0.7)):
        plan, scratch = new_plan(1, 1, 1, 2), new_scratch(2, 1, 1, 1)
        choose(rules, tables, plan, scratch, step, 0, 0, 0)
        assert (plan.row[0, 0], plan.length[0, 0], plan.reason[0, 0]) == (-1, 0.0, ENDED)
        assert plan.values[0, 0] == plan.score[0, 0] == pytest.approx(worth, rel=1e-15)
        assert np.isnan(plan.bound[0, 0, 0])


# Laws: no NaN, wherever it enters, is ever played

COUNT = 4
CONDITIONING = {
    "known": (KNOWN, np.zeros(2)),
    "determined by facts": (KNOWN, np.zeros(2)),
    "up to an error": (MEASURED, np.array([0.01, 0.02])),
    "unknown": (MEASURED, np.full(2, np.inf)),
    "told": (TOLD, np.zeros(2)),
}


def rules_for(explorer, name):
    conditioning, error = CONDITIONING[name]
    return make_rules(
        horizon=3,
        explorer=explorer,
        conditioning=conditioning,
        cost_error=error,
        reduces_radius=explorer != PAPER,
        threshold=np.array([0.5, 0.6]),
        value_radius=np.ones(3),
        known_gamma=np.zeros((3, 2, 2)),
    )


def state_inputs(rng, name):
    """One state, two constraints, d = 2: everything that a choice reads."""
    phi_0, gamma_hat = rng.dirichlet(np.ones(2)), rng.uniform(0.0, 0.1, (2, 2))
    determined = name == "determined by facts"
    return {
        "weights": rng.uniform(0.2, 1.0, 2),
        "gamma_hat": gamma_hat,
        "radius": np.array([0.2, 0.3]),
        "phi_0": phi_0,
        "baseline_cost": gamma_hat @ phi_0 if determined else np.array([0.05, 0.1]),
        "width2": rng.uniform(0.001, 0.01, COUNT),
        "cross": rng.uniform(-0.1, 0.1, COUNT),
        "g00": 0.0 if determined else 0.8,
        "vxx": rng.uniform(0.3, 0.5, COUNT),
        "v0x": rng.uniform(-0.1, 0.1, COUNT),
        "v00": 0.2,
        "projected": np.vstack([rng.uniform(0.5, 1.0, COUNT), rng.uniform(0.0, 0.1, (2, COUNT))]),
        "margin": np.full(2, 1e-9),
    }


def run_choice(rules, inputs, is_star):
    return choose_at(rules, **inputs, is_star=is_star, baseline_row=-1 if is_star else 0)


EXPLORER = st.sampled_from([PAPER, CERTIFIED, DIRECTIONAL, PLAIN])
KINDS = st.sampled_from(list(CONDITIONING))


@law
@given(seeds, EXPLORER, KINDS, st.booleans())
def test_sound_inputs_let_some_candidate_be_played(seed, explorer, kind, is_star):
    rules, inputs = rules_for(explorer, kind), state_inputs(np.random.default_rng(seed), kind)
    (row, length, score, _), bound = run_choice(rules, inputs, is_star)
    assert row >= 0
    assert length == 1.0
    assert np.isfinite(score)
    assert (bound <= rules.threshold).all()


@law
@given(
    seeds, EXPLORER, KINDS, st.booleans(),
    st.sampled_from(["weights", "gamma_hat", "radius", "phi_0", "baseline_cost", "g00", "v00", "margin"]),
)  # fmt: skip
def test_a_nan_that_every_candidate_shares_leaves_only_the_safe_action(seed, explorer, kind, is_star, name):
    if name == "baseline_cost" and CONDITIONING[kind][0] == MEASURED:
        return  # that is what unknown means
    if name == "gamma_hat" and kind in ("determined by facts", "told"):
        return  # enters through `projected` alone: next law
    rules, inputs = rules_for(explorer, kind), state_inputs(np.random.default_rng(seed), kind)
    inputs[name] = np.full_like(inputs[name], np.nan)
    (row, length, _, _), _ = run_choice(rules, inputs, is_star)
    assert (row, length) == (-1, 0.0)


@law
@given(
    seeds, EXPLORER, KINDS, st.booleans(), st.sampled_from(["width2", "cross", "projected", "vxx", "v0x"]),
    st.integers(0, 2),
)  # fmt: skip
def test_a_candidate_with_a_nan_is_never_played(seed, explorer, kind, is_star, name, line):
    """Let one candidate win by far, then make one of its numbers NaN: something else must win."""
    rules, inputs = rules_for(explorer, kind), state_inputs(np.random.default_rng(seed), kind)
    inputs["projected"][0, 2] += 100.0
    assert run_choice(rules, inputs, is_star)[0][0] == 2
    broken = inputs[name][line] if name == "projected" else inputs[name]
    broken[2] = np.nan
    (row, _, score, _), bound = run_choice(rules, inputs, is_star)
    assert row != 2
    assert np.isfinite(score)
    assert np.isfinite(bound).all()
