"""B from a data sheet: feature_effects become gamma_norm, and safe costs that no such γ can give are refused."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated, stated
from tether import Constraint, Problem, SafeCost, StarActions
from tether.errors import AssumptionError, InputError
from tether.problem.effects import norm_of_effects


def heating(**options):
    """Rays from φ_0 = (½, 0) toward (½, ½), in °C unless told otherwise: τ = 25, the safe action costs 20."""
    given = {"threshold": 25.0, "noise": 0.5, "baseline_cost": 20.0, "baseline_cost_error": 0.0} | options
    return Problem(
        horizon=1, dimension=2, actions=lambda state: StarActions([0.5, 0.0], [[0.5, 0.5]]), **stated(**given)
    )


def test_effects_become_their_euclidean_norm():
    """e = (3, 4): no γ with |γ_1| <= 3 and |γ_2| <= 4 is longer than 5."""
    assert norm_of_effects([3.0, 4.0], 2) == 5.0
    assert heating(feature_effects=[30.0, 40.0]).gamma_norm == (50.0,)


def test_effects_are_given_once_for_all_constraints_or_for_each():
    two = {"threshold": (25.0, 8.0), "baseline_cost": (20.0, 1.0)}
    assert heating(feature_effects=[30.0, 40.0], **two).gamma_norm == (50.0, 50.0)
    assert heating(feature_effects=[[30.0, 40.0], [0.0, 2.0]], **two).gamma_norm == (50.0, 2.0)


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ([1.0], r"one number for each of the d = 2 features.*has shape \(1,\)"),
        ([[1.0, 2.0], [3.0, 4.0]], r"has shape \(2, 2\)"),
        ([1.0, -2.0], r"that of feature 1 is -2\.0.*up or down"),
        ([np.nan, 2.0], "that of feature 0 is nan"),
        ([np.inf, 2.0], "that of feature 0 is inf"),
        (["1", "2"], "must be numbers, one per feature"),
        ([True, 2.0], "must be numbers, one per feature"),
        ("big", "must be numbers, one per feature"),
        ([[1.0], [2.0, 3.0]], "must be numbers, one per feature"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), "feature_effects must be numbers"),
    ],
)
def test_effects_that_are_none_are_refused_by_name(effects, said):
    with pytest.raises(InputError, match=said):
        heating(feature_effects=effects)


def test_effects_of_zero_are_refused_as_a_norm_of_zero_is():
    with pytest.raises(AssumptionError, match=r"feature_effects are all 0.*Assumption 4"):
        heating(feature_effects=[0.0, 0.0])


def test_effects_exclude_another_gamma_norm_and_survive_a_copy():
    with pytest.raises(InputError, match="feature_effects say B = 50, and gamma_norm says B = 40: give one of the two"):
        heating(feature_effects=[30.0, 40.0], gamma_norm=40.0)
    assert replace(heating(feature_effects=[30.0, 40.0]), confidence=0.05).gamma_norm == (50.0,)


def test_a_safe_cost_that_no_gamma_within_b_can_give_is_refused_where_it_is_first_seen():
    """20 °C at ‖φ_0‖ = ½ needs ‖γ*‖ >= 40, but √2 is the default."""
    with pytest.raises(AssumptionError, match=r"B = 1\.41421.*demands at least B = 40,.*feature_effects"):
        heating().look_up(0)
    assert heating(gamma_norm=40.0).look_up(0).baseline_cost == 20.0
    with pytest.raises(AssumptionError, match="demands at least B = 40"):
        heating(gamma_norm=39.9).look_up(0)
    with pytest.raises(AssumptionError, match=r"declared cost -20 .* demands at least B = 40"):
        heating(baseline_cost=-20.0).look_up(0)


def test_what_a_safe_cost_may_be_off_by_is_not_held_against_b():
    """20 ± 1 needs ‖γ*‖ >= 38 at ‖φ_0‖ = ½, and ± ½ more of misfit 37."""
    heating(gamma_norm=38.0, baseline_cost_error=1.0).look_up(0)
    heating(gamma_norm=37.0, baseline_cost_error=1.0, misfit=0.5).look_up(0)
    with pytest.raises(AssumptionError, match="demands at least B = 38"):
        heating(gamma_norm=37.9, baseline_cost_error=1.0).look_up(0)


def test_unknown_safe_costs_and_costs_in_the_unit_interval_demand_no_b():
    heating(baseline_cost=None).look_up(0)
    heating(threshold=0.9, cost_kind="bounded", noise=(), baseline_cost=0.8, gamma_norm=0.01).look_up(0)


@pytest.mark.parametrize(("error", "least"), [(0.0, 5.0), (0.1, 4.86)])
def test_the_checker_names_the_b_that_safe_costs_demand_together_and_calls_it_a_floor(error, least):
    """τ = (3, 4) at the unit features: ‖γ‖ >= 5; each off by 0.1, u = γ gives (25 − 0.1·7)/5 = 4.86."""
    safe = np.eye(2)
    problem = Problem(
        horizon=1,
        constraints=Constraint(
            threshold=5.0,
            noise=0.5,
            safe_cost=SafeCost(lambda step, state: (3.0, 4.0)[state], error=error),
            gamma_norm=4.5,
        ),
        dimension=2,
        actions=lambda state: StarActions(safe[state], [[0.5, 0.5]]),
        states=range(2),
    )
    found = problem.check()["A1: declared safe costs are linear in φ"]
    assert found.verdict == "fails" and f"they need ‖γ‖ >= {least:.4g}" in found.evidence
    assert "feature_effects=[…]" in found.way_out and "at least" in found.way_out
    assert restated(problem, gamma_norm=least).check()["A1: declared safe costs are linear in φ"].verdict == "holds"


def in_degrees(**more):
    """Up to 60 °C: what a heater adds is far more than √d."""
    sets = StarActions(np.array([0.6, 0.0]), np.array([[0.6, 0.7]]))
    limit = Constraint(**{"threshold": 60.0, "noise": 0.5} | more)
    return Problem(actions=lambda state: sets, dimension=2, horizon=1, constraints=limit, states=[0])


def test_a_default_b_by_which_no_action_could_reach_tau_is_named_at_the_door():
    with pytest.warns(UserWarning, match="no action costs over 1.414, so that τ = 60 limits nothing"):
        in_degrees()


@pytest.mark.parametrize("more", [{"gamma_norm": 1.5}, {"feature_effects": [40.0, 90.0]}, {"threshold": 1.4}])
def test_a_declared_b_and_a_default_that_reaches_tau_are_not(more, recwarn):
    in_degrees(**more)
    assert not recwarn.list


def test_the_check_fails_a_b_by_which_no_action_could_reach_tau():
    failing = [each.name for each in in_degrees(gamma_norm=1.5).check().failures]
    assert "A4: some action may cost more than τ" in failing
    assert "A4: some action may cost more than τ" not in str(in_degrees(gamma_norm=90.0).check())
