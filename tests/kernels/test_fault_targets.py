"""What some planted fault must turn red, and no other test does: facts and rounding (theory, sections 17 and 19)."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from kernels.calls import fit, make_rules
from kernels.generators import costs_of, unit_ball
from tether import SlucbConfig, SlucbQvi
from tether.kernels.bound import solve_costs
from tether.kernels.mixture_plan import constrain, new_step_problems
from tether.kernels.model import new_plan
from tether.kernels.plan import build, scratch_for, tables_of
from tether.kernels.ridge import GRID, ULP, new_costs, new_values, refresh_spectrum, relative_error, remember
from tether.lab.worlds.synthetic import synthetic
from tether.problem.action_sets import FiniteActions

# Facts


def told(costs, f, cost):
    """Remember ⟨γ*, f⟩ = cost; returns whether it was news."""
    return bool(remember(costs, 0, np.array(f), np.array([cost]), np.ones(1), np.zeros((3, len(f)))))


def test_a_fact_that_would_enlarge_an_error_too_much_is_not_remembered():
    """The new direction of (1, 1e-9) is 1e-9 of it: an error of 1e-16 in its cost would move γ* by 1e-7."""
    sums = new_costs(1, 2, 1, 1.0)
    assert told(sums, [1.0, 0.0], 0.3)
    assert not told(sums, [1.0, 1e-9], 0.3 + 2e-10)
    assert (sums.facts.rank[0], sums.facts.count[0]) == (1, 1)
    assert told(sums, [0.0, 1.0], 0.2)


def test_an_error_in_the_facts_is_amplified_by_no_more_than_their_pseudo_inverse():
    """γ_known = F⁺c, so an error of at most 1 in each of J costs moves it by at most √J ‖F⁺‖."""
    rng = np.random.default_rng(1)
    sums, facts = new_costs(1, 5, 1, 1.0), unit_ball(rng, 3, 5)
    for f in facts:
        assert told(sums, f, 0.1)
    expected = np.sqrt(3.0) * np.linalg.norm(np.linalg.pinv(facts))
    assert sums.facts.amplification[0] == pytest.approx(expected, rel=1e-12)


def test_what_the_facts_may_be_off_by_enlarges_the_radius_and_the_margin():
    """f = (1, 0) at 0.2, and once more at 0.2 + 1e-7: γ_known may be off by 1e-7, and A = I has the trace 2."""
    sums = new_costs(1, 2, 1, 1.0)
    assert told(sums, [1.0, 0.0], 0.2)
    assert not told(sums, [1.0, 0.0], 0.2 + 1e-7)
    _, radius, margin = fit(sums, make_rules(feature_norm=3.0))
    assert margin[0] == pytest.approx(3e-7, rel=1e-6)
    assert radius[0] == pytest.approx(1.0 + np.sqrt(2.0) * 1e-7, abs=1e-12)


def test_facts_take_no_more_off_the_radius_than_rounding_leaves_certain():
    """m = 0.3² is known up to a factor 1 ± ρ. ρ = 2.5e-3 after 10¹² updates: β_w² = 0.5² − (0.3 (1 − ρ))²."""
    sums = new_costs(1, 2, 1, 1.0)
    told(sums, [1.0, 0.0], 0.3)
    sums.updates[0] = 10**12
    rho = relative_error(sums, 0)
    assert 1e-3 < rho < 1e-2
    _, radius, _ = fit(sums, make_rules(tuned_radius=0.5, reduces_radius=True))
    assert radius[0] == pytest.approx(np.sqrt(0.25 - (0.3 * (1.0 - rho)) ** 2) * (1.0 + rho), rel=1e-9)


def test_the_margin_raises_the_cost_of_every_action_in_a_mixture():
    """f = (1/2, 0) costs 0.1, ĝ = 0: (0, 1) has share 0 and mean 0, (1, 1) share 2 and mean 0.2; a margin of 0.01."""
    rules = make_rules()
    actions = FiniteActions(np.array([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0]]), 0)
    tables = tables_of([actions], np.array([[0.1]]), np.array([np.nan]), mixes=True)
    scratch, plan, problems = scratch_for(tables), new_plan(1, 1, 1, 2, 3), new_step_problems(tables)
    build(new_costs(1, 2, 1, 1.0), new_values(1, 2, 1.0, 1), rules, tables, scratch, 0, 0)
    plan.radius[0], plan.margin[0], scratch.projected[:] = 1.0, 0.01, 0.0
    constrain(rules, tables, plan, scratch, problems, 0, 0, 0)
    np.testing.assert_allclose(problems.rise[0, 1:], [-0.1 + 0.01, 0.1 + 0.03], rtol=1e-6)


# Which facts an agent remembers


@pytest.mark.parametrize("way", ["decided", "logged", "logged, lean"])
def test_a_fact_is_the_safe_cost_of_the_state_and_step_that_an_outcome_belongs_to(way):
    """Step 1 in state 2, which leads to state 0; as the outcome of a decision, or of one that was made elsewhere."""
    world = synthetic(np.random.default_rng(6), states=3, dimension=4, horizon=2, rays=2)
    agent = SlucbQvi(world.problem, SlucbConfig(backup="lean" if way == "logged, lean" else "tables"))
    known, facts = world.problem.look_up(2), agent.costs.facts
    if way != "logged, lean":
        agent.register(range(3))
    agent.plan()
    decision = agent.act(1, 2)
    assert facts.count.tolist() == [0, 0], "a decision without an outcome is no experience"
    outcome = decision.outcome(reward=0.5, cost=0.2, next_state=0)
    agent.observe(outcome if way == "decided" else dataclasses.replace(outcome, decision_id=None))
    assert facts.count.tolist() == [0, 1]
    f = known.actions.phi_0
    np.testing.assert_allclose(facts.known[1], np.outer(known.baseline_cost[1], f) / (f @ f), atol=1e-12)


# Rounding: section 19


def badly_conditioned():
    """Sums with condition number 1e11 whose costs have no noise, and the exact ĝ of these very sums."""
    rng = np.random.default_rng(7)
    turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    rows = (unit_ball(rng, 60, 3) * np.array([1.0, 1e-3, 1e-6])) @ turned.T
    sums = costs_of(rows, 1e-10, rows @ np.array([0.5, -0.3, 0.4]))
    return sums, exact_solution(sums)


def exact_solution(sums):
    """A⁻¹b of the sums with the parts that rounding left out, in exact arithmetic."""
    size = sums.gram.shape[1]
    table = [
        [Fraction(sums.gram[0, k, i]) + Fraction(sums.gram_low[0, k, i]) for i in range(size)]
        + [Fraction(sums.moment[0, 0, k]) + Fraction(sums.moment_low[0, 0, k])]
        for k in range(size)
    ]
    for k in range(size):
        for i in range(size):
            if i != k:
                ratio = table[i][k] / table[k][k]
                table[i] = [a - ratio * b for a, b in zip(table[i], table[k], strict=True)]
    return [table[k][size] / table[k][k] for k in range(size)]


def distance(sums, estimate, exact):
    """‖ĝ − exact‖_A."""
    off = np.array([float(e - Fraction(x)) for e, x in zip(exact, estimate, strict=True)])
    return float(np.sqrt(off @ sums.gram[0] @ off))


def test_the_estimate_is_refined_until_its_error_is_that_of_its_last_digit():
    """Two triangular solves alone leave ulp·√cond(A) of ‖ĝ‖_A, two hundred times more."""
    sums, exact = badly_conditioned()
    estimate, residual, change = np.zeros((3, 3))
    solve_costs(sums, 0, 0, estimate, residual, change)
    size = np.sqrt(estimate @ sums.gram[0] @ estimate)
    assert distance(sums, estimate, exact) <= 4.0 * ULP * size


def test_the_error_of_the_estimate_is_part_of_the_radius():
    sums, exact = badly_conditioned()
    rules = make_rules(tuned_radius=0.0, known_gamma=np.zeros((0, 1, 3)))
    gamma_hat, radius, _ = fit(sums, rules)
    assert 0.0 < distance(sums, gamma_hat[0], exact) <= radius[0] <= 1e-6


def test_errors_of_rotations_may_all_point_the_same_way():
    """ρ = 8 n ulp √cond(A), here with cond(A) <= trace/λ = 2: n = 10⁴ updates count 10⁴ times."""
    sums = new_costs(1, 2, 1, 1.0)
    sums.updates[0] = 9_999
    assert relative_error(sums, 0) == pytest.approx(8.0 * 1e4 * ULP * np.sqrt(2.0), rel=1e-12, abs=0.0)


def test_the_spectrum_is_rounded_toward_a_larger_radius():
    """V = n·uuᵀ: its least eigenvalue is 0, the other is n; both ridges of the grid and λ are far smaller."""
    rows = np.tile([0.6, 0.8], (2000, 1))
    sums = costs_of(rows, 1e-3)
    refresh_spectrum(sums)
    assert sums.least[0] == 0.0
    exact = np.log1p(2000 / np.longdouble(1) / GRID.astype(np.longdouble))
    assert (sums.grid_log_det[0] > exact).all()
    np.testing.assert_allclose(sums.grid_log_det[0], exact.astype(np.float64), rtol=1e-9)
