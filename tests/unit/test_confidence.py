"""Radii, κ and the warm-up rule as numbers."""

from math import e, exp, log, sqrt

import pytest

from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi, value_radius
from tether.errors import InputError
from tether.learning.confidence import (
    classical_radius,
    default_cost_ridge,
    grid_radius,
    kappa,
    mixture_radius,
    paper_cost_term,
    paper_value_term,
    warmup_gap,
    warmup_passed,
)
from tether.learning.statistics import cost_radius
from unit.cases import two_arm_problem


def test_the_mixture_radius_has_both_parts_under_one_root():
    """σ = 2, log det = 5, events = e²: 4 (5 + 4) = 36; λB² = 7·4 = 28: √64 = 8."""
    assert mixture_radius(5.0, 2.0, e**2, 7.0, 2.0) == pytest.approx(8.0, rel=1e-15)


def test_the_classical_radius_has_two_roots():
    """The same numbers: √36 + √28 = 6 + 2√7."""
    assert classical_radius(5.0, 2.0, e**2, 7.0, 2.0) == pytest.approx(6.0 + 2.0 * sqrt(7.0), rel=1e-15)


def test_a_grid_radius_by_hand():
    """v = 3, λ = 1, λ_j = 9, σ = 2, log det = 5, events = e²: √(12/4) · 6 + 1·B/√4 with B = 2: 6√3 + 1."""
    assert grid_radius(5.0, 3.0, 9.0, 2.0, e**2, 1.0, 2.0) == pytest.approx(6.0 * sqrt(3.0) + 1.0, rel=1e-15)


def test_a_grid_ridge_below_the_estimators_proves_nothing():
    assert grid_radius(5.0, 3.0, 0.5, 2.0, e**2, 1.0, 2.0) == float("inf")


def test_theorem_1s_first_term():
    """σ = 0.5, d = 4, T = 10, λ = 2, δ = 0.12: 0.5 √(4 log(12/0.12)) + √8 = √(log 100) + √8."""
    assert paper_cost_term(0.5, 4, 10, 2.0, 0.12) == pytest.approx(sqrt(log(100.0)) + sqrt(8.0), rel=1e-15)


def test_theorem_1s_second_term():
    """c_β = 0.5, d = 2, H = 3, T = 50, δ = 0.1: 0.5 · 2 · 3 √log(1000) = 3 √log(1000)."""
    assert paper_value_term(2, 3, 50, 0.1, 0.5) == pytest.approx(3.0 * sqrt(log(1000.0)), rel=1e-15)


def test_kappa_by_hand():
    """H = 3, τ − τ_s = 0.5: 2·3/0.5 + 1 = 13."""
    assert kappa(3, 0.5) == 13.0


def test_the_default_ridge_by_hand():
    """σ = 0.1, B = 2, d = 8: 0.01·8/4 = 0.02. A second constraint with σ = 0.2 asks for more; the smaller wins."""
    assert default_cost_ridge((0.1,), (2.0,), 8) == pytest.approx(0.02, rel=1e-15)
    assert default_cost_ridge((0.2, 0.1), (2.0, 2.0), 8) == pytest.approx(0.02, rel=1e-15)


def test_the_warm_up_ends_when_the_upper_estimate_is_under_the_threshold():
    """K = e⁴, σ = 0.1, n = 16: 6 · 0.1 · √(4/16) = 0.3. τ̂ = 0.2 passes τ = 0.5 exactly; 0.21 does not."""
    episodes = round(exp(4.0))
    margin = 0.6 * sqrt(log(episodes) / 16)
    assert warmup_passed(0.5 - margin - 1e-12, 0.1, episodes, 16, 0.5)
    assert not warmup_passed(0.5 - margin + 1e-3, 0.1, episodes, 16, 0.5)
    assert margin == pytest.approx(0.3, abs=0.001)


def test_the_gap_after_the_warm_up():
    """4 · 0.1 · √(log K/16) with K = 55: 0.2002."""
    assert warmup_gap(0.1, 55, 16) == pytest.approx(0.4 * sqrt(log(55.0)) / 4.0, rel=1e-15)
    assert warmup_gap(0.1, 55, 16) == pytest.approx(0.2, abs=0.001)


def test_the_remaining_value_radius_is_the_number_of_steps_left():
    """H = 3: 3, 2, 1."""
    assert value_radius(two_arm_problem(horizon=3), "remaining", None, 1.0, 1.0).tolist() == [3.0, 2.0, 1.0]


def test_a_number_is_the_value_radius_of_every_step():
    assert value_radius(two_arm_problem(horizon=2), 0.7, None, 1.0, 1.0).tolist() == [0.7, 0.7]


def test_the_theorems_value_radius_uses_all_steps_of_all_episodes():
    """d = 2, H = 3, K = 10: T = 30, δ = 0.01."""
    expected = 0.5 * 2 * 3 * sqrt(log(2 * 30 / 0.01))
    assert value_radius(two_arm_problem(horizon=3), "theorem", 10, 0.5, 1.0) == pytest.approx([expected] * 3, rel=1e-15)


def test_the_theorems_value_radius_cannot_do_without_the_number_of_episodes():
    with pytest.raises(InputError, match="episodes"):
        value_radius(two_arm_problem(), "theorem", None, 1.0, 1.0)


def test_the_union_is_over_steps_and_constraints():
    """H = 3, M = 2, δ = 0.01: H·M/δ = 600; pooled steps are one event: 200."""
    problem = two_arm_problem(horizon=3, threshold=(0.5, 0.6))
    assert SlucbQvi(problem).rules.events == pytest.approx(600.0, rel=1e-15)
    assert SlucbQvi(problem, SlucbConfig(pooled=True)).rules.events == pytest.approx(200.0, rel=1e-15)


def test_before_any_data_the_mixture_radius_of_an_agent_is_noise_and_prior():
    """log det = 0, σ = 0.1, H = 2, δ = 0.01, λ = 0.5, B = √2: √(0.01 · 2 log 200 + 0.5 · 2)."""
    agent = SlucbQvi(two_arm_problem(), SlucbConfig(cost_radius="mixture", cost_ridge=0.5))
    expected = sqrt(0.01 * 2.0 * log(200.0) + 1.0)
    assert cost_radius(agent.memory, agent.rules, 0, 0) == pytest.approx(expected, rel=1e-15)


def test_before_any_data_the_default_radius_pays_for_its_six_sets():
    """As above, but λ = σ²d/B² = 0.01 and six events instead of one: √(0.01 · 2 log 1200 + 0.01 · 2)."""
    agent = SlucbQvi(two_arm_problem())
    expected = sqrt(0.01 * 2.0 * log(1200.0) + 0.02)
    assert cost_radius(agent.memory, agent.rules, 0, 0) == pytest.approx(expected, rel=1e-15)


def test_the_unseen_value_radius_gives_a_new_unit_feature_a_bonus_of_twice_the_horizon():
    """H = 3, λ = 0.04: β_v = 2·3·0.2 = 1.2, and ‖x‖ in A^{-1} = I/λ is 5 at first: 6 = 2H."""
    assert value_radius(two_arm_problem(horizon=3), "unseen", None, 1.0, 0.04) == pytest.approx([1.2] * 3, rel=1e-15)
