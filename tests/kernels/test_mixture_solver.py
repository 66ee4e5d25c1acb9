"""The inner problem of Algorithm 2 on cases that a person can do by hand.

maximise ⟨p, x⟩ over x >= 0, Σx <= 1, ⟨b, x⟩ + β√(xᵀCx) <= δ, where x leaves a_0 with probability Σx.
"""

import numpy as np
import pytest

from kernels import mixture_calls as calls
from limits import stated
from tether import Problem, RslucbQvi, SlucbConfig


def test_the_width_of_a_mixture_is_the_root_of_its_quadratic_form():
    """C = [[4, 2], [2, 9]], x = (1/2, 1/2): xᵀCx = (4 + 2·2 + 9)/4 = 17/4."""
    assert calls.width_of([[4.0, 2.0], [2.0, 9.0]], [0.5, 0.5]) == pytest.approx(np.sqrt(17.0) / 2.0, rel=1e-12)


def test_opposite_residuals_cancel_in_the_width_but_for_the_allowance():
    """C = [[1, −1], [−1, 1]], x = (1/2, 1/2): 0, and the allowance is √1e-13 times the sum of the single widths."""
    width = calls.width_of([[1.0, -1.0], [-1.0, 1.0]], [0.5, 0.5])
    assert 0.0 < width <= 1.001 * np.sqrt(1e-13)


def test_the_rise_adds_the_radius_times_the_width():
    """b = (0.1, −0.2), C = diag(1, 4), β = 2, x = (0.6, 0.4): 0.06 − 0.08 + 2√(0.36 + 0.64) = 1.98."""
    rise = calls.cost_rise([0.1, -0.2], np.diag([1.0, 4.0]), 2.0, [0.6, 0.4])
    assert rise == pytest.approx(1.98, rel=1e-12)


def test_a_subgradient_of_the_rise():
    """b = (0.1, 0.2), C = [[9, 3], [3, 16]], β = 2, x = (1, 0): Cx/√(xᵀCx) = (9, 3)/3, so (0.1 + 6, 0.2 + 2)."""
    np.testing.assert_allclose(calls.slope_at([0.1, 0.2], [[9.0, 3.0], [3.0, 16.0]], 2.0, [1.0, 0.0]), [6.1, 2.2])
    np.testing.assert_array_equal(calls.slope_at([0.1, 0.2], np.zeros((2, 2)), 2.0, [1.0, 0.0]), [0.1, 0.2])


ONE = {"rise": [0.1], "joint": [[0.16]], "radius": 1.0}
"""One action besides a_0: b = 0.1 and w = 0.4, so g(x) = x/2."""


class TestScaleBack:
    """Shrinking toward a_0 restores feasibility: g is homogeneous."""

    def test_an_action_over_the_threshold_is_cut_where_its_bound_meets_it(self):
        """g(1) = 0.1 + 0.4 = 0.5 and δ = 0.25: half of it."""
        x, factor = calls.scale_back(**ONE, slack=0.25, x=[1.0])
        np.testing.assert_allclose(x, [0.5], rtol=1e-12)
        assert factor == pytest.approx(0.5, rel=1e-12)
        assert calls.cost_rise([0.1], [[0.16]], 1.0, x) <= 0.25

    def test_a_certified_action_keeps_probability_one(self):
        x, factor = calls.scale_back(**ONE, slack=0.6, x=[1.0])
        assert (x[0], factor) == (1.0, 1.0)

    def test_the_cap_holds_for_several_actions(self):
        """x = (0.9, 0.6) with nothing to pay is scaled by 1/1.5 to (0.6, 0.4), rounded inwards."""
        x, _ = calls.scale_back([0.0, 0.0], np.zeros((2, 2)), 1.0, 0.5, [0.9, 0.6])
        np.testing.assert_allclose(x, [0.6, 0.4], rtol=1e-12)
        assert x.sum() <= 1.0

    def test_the_cap_and_the_rise_hold_together(self):
        """x = (2, 0): the cap alone leaves 1, but g(1) = 0.5 and δ = 0.3 leave 0.6."""
        x, _ = calls.scale_back([0.1, 0.0], np.diag([0.16, 0.0]), 1.0, 0.3, [2.0, 0.0])
        np.testing.assert_allclose(x, [0.6, 0.0], rtol=1e-12)

    def test_negative_probabilities_become_zero(self):
        x, _ = calls.scale_back([0.1, 0.1], np.diag([0.16, 0.16]), 1.0, 0.5, [0.5, -0.5])
        np.testing.assert_array_equal(x, [0.5, 0.0])

    @pytest.mark.parametrize("slack", [0.0, -0.1, -np.inf, np.nan])
    def test_without_slack_only_the_safe_action_is_left(self, slack):
        x, factor = calls.scale_back(**ONE, slack=slack, x=[0.5])
        assert (x[0], factor) == (0.0, 0.0)

    @pytest.mark.parametrize("name", ["rise", "joint", "radius", "x"])
    @pytest.mark.parametrize("broken", [np.nan, np.inf])
    def test_a_number_that_is_not_finite_certifies_nothing(self, name, broken):
        given = {"rise": [0.1, 0.1], "joint": np.diag([0.16, 0.16]), "radius": 1.0, "slack": 0.5, "x": [0.3, 0.3]}
        if name == "radius":
            given["radius"] = broken
        else:
            given[name] = np.array(given[name])
            given[name].flat[0] = broken
        x, factor = calls.scale_back(**given)
        np.testing.assert_array_equal(x, [0.0, 0.0])
        assert factor == 0.0

    def test_a_rise_of_minus_infinity_certifies_nothing(self):
        x, factor = calls.scale_back([-np.inf], [[0.16]], 1.0, 0.5, [1.0])
        assert (x[0], factor) == (0.0, 0.0)

    @pytest.mark.parametrize("huge", [1e300, 1.7e308])
    def test_overflow_on_the_way_leaves_the_safe_action_or_something_feasible(self, huge):
        for given in (
            ([huge, huge], np.eye(2), 1.0),
            ([0.1, 0.1], huge * np.eye(2), huge),
            ([0.1, 0.1], np.eye(2), huge),
        ):
            for x in ([0.5, 0.5], [huge, huge]):
                out, _ = calls.scale_back(*given, 0.5, x)
                assert (out >= 0.0).all()
                assert out.sum() <= 1.0
                assert not out.any() or calls.cost_rise(*given, out) <= 0.5


class TestLinearProgram:
    """max ⟨p, y⟩ over the simplex with one linear constraint: the certificate's own problem."""

    def test_two_actions_share_the_slack(self):
        """p = (1, 3), slopes (0, 1), δ = 1/2: half of each earns 2; 3 alone could be played half the time, 1.5."""
        value, x = calls.linear_optimum([1.0, 3.0], [0.0, 1.0], 0.5)
        assert value == pytest.approx(2.0)
        np.testing.assert_allclose(x, [0.5, 0.5])

    def test_one_action_shares_it_with_the_safe_one(self):
        value, x = calls.linear_optimum([2.0, -1.0], [4.0, 0.0], 1.0)
        assert value == pytest.approx(0.5)
        np.testing.assert_allclose(x, [0.25, 0.0])

    def test_a_negative_slope_pays_for_a_dearer_action(self):
        """p = (0, 1), slopes (−1, 1), δ = 0: half and half; without the first action nothing could be played."""
        value, x = calls.linear_optimum([0.0, 1.0], [-1.0, 1.0], 1e-300)
        assert value == pytest.approx(0.5)
        np.testing.assert_allclose(x, [0.5, 0.5])

    def test_where_nothing_is_better_than_the_safe_action_nothing_is_played(self):
        value, x = calls.linear_optimum([-1.0, 0.0], [0.0, 0.0], 1.0)
        assert value == 0.0
        np.testing.assert_array_equal(x, [0.0, 0.0])


class TestBestMixture:
    """Values, probabilities and certificates."""

    def check(self, found, x, value):
        got, bound = found
        np.testing.assert_allclose(got, x, atol=1e-9)
        assert bound == pytest.approx(value, abs=1e-7)

    def test_one_action_is_mixed_with_the_safe_one(self):
        """p = 3, g(1) = 0.1 + 0.4, δ = 0.25: x = 1/2 earns 1.5."""
        self.check(
            calls.best_mixture(gain=[3.0], rise=[0.1], joint=[[0.16]], radius=1.0, slack=0.25), [0.5], 1.5
        )  # fmt: skip

    def test_independent_actions_share_the_radius_like_a_ball(self):
        """b = 0, C = I, β = 1, δ = 0.1: x = δ p/‖p‖ with p = (3, 4) is (0.06, 0.08), and earns 0.5."""
        self.check(
            calls.best_mixture(gain=[3.0, 4.0], rise=[0.0, 0.0], joint=np.eye(2), radius=1.0, slack=0.1),
            [0.06, 0.08],
            0.5,
        )

    def test_three_independent_actions_share_it_too(self):
        """p = (2, 3, 6), ‖p‖ = 7, δ = 0.07: x = (0.02, 0.03, 0.06), and earns 0.49."""
        self.check(
            calls.best_mixture(gain=[2.0, 3.0, 6.0], rise=[0.0] * 3, joint=np.eye(3), radius=1.0, slack=0.07),
            [0.02, 0.03, 0.06],
            0.49,
        )

    def test_six_independent_actions_share_it_too(self):
        """More than are enumerated: the support grows. p = (1, …, 1) and 2 on the last: ‖p‖ = 3, δ = 0.3, x = 0.1 p."""
        gain = [1.0] * 5 + [2.0]
        self.check(
            calls.best_mixture(gain=gain, rise=[0.0] * 6, joint=np.eye(6), radius=1.0, slack=0.3),
            [0.1] * 5 + [0.2],
            0.9,
        )

    def test_the_cap_moves_probability_to_the_better_action(self):
        """p = (1, 1/2), C = I, β = 1, δ = √0.68: the ball alone would want a sum of 1.1; on Σx = 1, ‖x‖ = δ at
        (0.8, 0.2), which earns 0.9."""
        self.check(
            calls.best_mixture(gain=[1.0, 0.5], rise=[0.0, 0.0], joint=np.eye(2), radius=1.0, slack=np.sqrt(0.68)),
            [0.8, 0.2],
            0.9,
        )

    def test_the_best_action_alone_if_it_is_certified(self):
        x, bound = calls.best_mixture(
            gain=[1.0, 2.0], rise=[0.0, 0.1], joint=np.diag([0.0, 0.04]), radius=1.0, slack=0.31
        )  # fmt: skip
        np.testing.assert_array_equal(x, [0.0, 1.0])
        assert bound == 2.0

    def test_the_best_action_is_not_played_alone_just_over_the_threshold(self):
        x, _ = calls.best_mixture(
            gain=[1.0, 2.0], rise=[0.0, 0.1], joint=np.diag([0.0, 0.04]), radius=1.0, slack=0.29
        )  # fmt: skip
        assert x[1] < 1.0
        assert x[0] == pytest.approx(1.0 - x[1], abs=1e-9)  # the known action costs nothing: it takes the rest

    def test_actions_worse_than_the_safe_one_are_not_played(self):
        x, bound = calls.best_mixture(
            gain=[-1.0, 0.0], rise=[0.0, 0.0], joint=np.eye(2), radius=1.0, slack=0.5
        )  # fmt: skip
        np.testing.assert_array_equal(x, [0.0, 0.0])
        assert bound == 0.0

    def test_a_cheap_action_pays_for_a_dear_one(self):
        """No width; p = (0, 1), b = (−0.3, 0.5), δ = 0.1: t of the second and 1 − t of the first, −0.3 + 0.8t = 0.1."""
        self.check(
            calls.best_mixture(gain=[0.0, 1.0], rise=[-0.3, 0.5], joint=np.zeros((2, 2)), radius=1.0, slack=0.1),
            [0.5, 0.5],
            0.5,
        )

    def test_stationary_points_on_a_support_are_the_hand_made_ones(self):
        """As above: inside the cap, on the cap, and on a support that leaves an action out; none if C is singular."""
        ball = {"gain": [3.0, 4.0, 9.0], "rise": [0.0] * 3, "joint": np.eye(3), "radius": 1.0, "slack": 0.1}
        np.testing.assert_allclose(calls.on_support(**ball, support=[0, 1]), [0.06, 0.08, 0.0], atol=1e-12)
        np.testing.assert_allclose(calls.on_support(**ball, support=[2]), [0.0, 0.0, 0.1], atol=1e-12)
        cap = {**ball, "gain": [1.0, 0.5, 9.0], "slack": np.sqrt(0.68)}
        np.testing.assert_allclose(calls.on_support(**cap, support=[0, 1]), [0.8, 0.2, 0.0], atol=1e-9)
        assert calls.on_support(**{**ball, "joint": np.ones((3, 3))}, support=[0, 1]) is None

    def test_actions_that_cancel_exactly_are_left_to_the_interior_point_method(self):
        """C = [[1, −1], [−1, 1]], b = 0, β = 10, δ = 0.1, p = (1, 1): half of each is known exactly, and earns 1."""
        cancelling = {"gain": [1.0, 1.0], "rise": [[0.0, 0.0]], "joint": [[1.0, -1.0], [-1.0, 1.0]], "radius": [10.0]}
        _, _, solved = calls.certified_optimum(**cancelling, slack=[0.1])
        assert not solved
        x, bound = calls.conic_mixture(**cancelling, slack=[0.1])
        np.testing.assert_allclose(x, [0.5, 0.5], atol=1e-6)
        assert bound == pytest.approx(1.0, abs=1e-6)

    def test_a_pair_under_the_cap_keeps_its_digits_where_scores_are_nearly_equal(self):
        """b and C of two actions of a lake's plan, p = 84.0416 and 84.0359: multipliers would miss g = δ by 3e-7."""
        given = {
            "rise": [-4.78e-4, 3.48e-6],
            "joint": [[0.996, 1.703e-4], [1.703e-4, 9.037e-7]],
            "radius": 0.13911669724451106,
            "slack": 0.1,
        }  # fmt: skip
        x, bound = calls.best_mixture(gain=[84.04160513709445, 84.03590669266889], **given)
        assert x.sum() == pytest.approx(1.0, abs=1e-12)
        assert calls.cost_rise(given["rise"], given["joint"], given["radius"], x) == pytest.approx(0.1, abs=1e-11)
        assert 0.0 <= bound - x @ [84.04160513709445, 84.03590669266889] <= 1e-11

    def test_a_pair_under_the_cap_stops_on_the_side_where_the_gain_grows(self):
        """b = 0, C = I, β = δ/√0.52: x = (t, 1 − t) with t² + (1 − t)² = 0.52 is t = 0.4 or 0.6."""
        given = {"rise": [0.0, 0.0], "joint": np.eye(2), "radius": 0.1 / np.sqrt(0.52), "slack": 0.1}
        np.testing.assert_allclose(calls.best_mixture(gain=[5.1, 5.0], **given)[0], [0.6, 0.4], rtol=1e-9)
        np.testing.assert_allclose(calls.best_mixture(gain=[5.0, 5.1], **given)[0], [0.4, 0.6], rtol=1e-9)


class TestOptimism:
    """`directional`: the optimistic mixture, cut back to what is certified."""

    def test_the_optimistic_value_and_the_certified_share(self):
        """p = 2, b = 0.5, w = 0.5, β = 1, δ = 0.5: optimistic cost 0, so all of it, 2; certified g(1) = 1, so half."""
        x, value = calls.optimistic_optimum(gain=[2.0], rise=[[0.5]], joint=[[0.25]], radius=[1.0], slack=[0.5])
        assert value == pytest.approx(2.0)
        np.testing.assert_allclose(x, [0.5], rtol=1e-12)

    def test_every_constraint_cuts(self):
        x, value = calls.optimistic_optimum(
            gain=[2.0], rise=[[0.5], [1.0]], joint=[[0.25]], radius=[1.0, 2.0], slack=[0.5, 0.2]
        )  # fmt: skip
        assert value == pytest.approx(2.0)  # optimistic costs 0 and 0
        np.testing.assert_allclose(x, [0.1], rtol=1e-12)  # certified costs 1 and 2: 1/2 and 1/10


class TestDraw:
    """Which candidate a uniform number falls on."""

    @pytest.mark.parametrize(("uniform", "row"), [(0.0, 0), (0.249, 0), (0.25, -1), (0.749, -1), (0.75, 2), (0.999, 2)])
    def test_rows_own_intervals_as_long_as_their_probability(self, uniform, row):
        assert calls.draw_row([0.25, 0.5, 0.25], 1, uniform) == row

    def test_what_is_left_over_goes_to_the_safe_action(self):
        assert calls.draw_row([0.25, 0.25], -1, 0.49) == 1
        assert calls.draw_row([0.25, 0.25], -1, 0.5) == -1
        assert calls.draw_row([0.5, 0.5 - 1e-15, 0.0], 0, 1.0 - 1e-16) == -1

    def test_a_row_without_probability_is_never_drawn(self):
        assert calls.draw_row([0.0, 1.0, 0.0], 0, 0.0) == 1
        assert calls.draw_row([0.0, 1.0, 0.0], 0, np.nextafter(1.0, 0.0)) == 1


def agent_of(features, *, baseline_action, cost=0.1, threshold=0.5, **settings):
    """H = 1, one state, no data, λ = 1, β_c = β_v = 1: everything can be done by hand."""
    problem = Problem.from_table(
        features=[features],
        baseline_action=[baseline_action],
        horizon=1,
        feature_norm=4.0,
        **stated(baseline_cost_error=0.0, baseline_cost=[[cost]], threshold=threshold, noise=0.1),
    )
    given = {
        "explorer": "paper", "cost_radius": 1.0, "value_radius": 1.0,
        "cost_ridge": 1.0 / 16.0, "value_ridge": 1.0 / 16.0,  # in units of feature_norm²
        **settings,
    }  # fmt: skip
    return RslucbQvi(problem, SlucbConfig(**given), rng=np.random.default_rng(0))


class TestTheWholeDecision:
    """f = (1/2, 0), τ_s = 0.1, τ = 0.5, so δ = 0.4 and κ = 2H/δ + 1 = 6. Without data ĝ = w = 0 and G = I."""

    def test_a_feature_orthogonal_to_the_safe_one(self):
        """φ = (0, 1): width 1, mean 0, b = −0.1, g = 0.9 x <= 0.4: x = 4/9. Scores 6·(1/2) = 3 and 6: 3 + 3·4/9."""
        d = agent_of([[0.5, 0.0], [0.0, 1.0]], baseline_action=0).act(0, 0)
        np.testing.assert_allclose(d.mixture.probabilities, [5.0 / 9.0, 4.0 / 9.0], rtol=1e-8)
        assert d.mixture.baseline == pytest.approx(5.0 / 9.0)
        assert d.score == pytest.approx(3.0 + 3.0 * 4.0 / 9.0)
        assert d.cost_bound == pytest.approx(0.5)
        assert d.cost_bound <= 0.5
        np.testing.assert_allclose(d.mean_feature, [2.5 / 9.0, 4.0 / 9.0], rtol=1e-8)

    def test_a_share_of_the_safe_feature_costs_its_share(self):
        """φ = (1, 1) is 2f + (0, 1): mean 2·0.1, b = 0.1, width 1, 1.1 x <= 0.4: x = 4/11."""
        d = agent_of([[0.5, 0.0], [1.0, 1.0]], baseline_action=0).act(0, 0)
        np.testing.assert_allclose(d.mixture.probabilities, [7.0 / 11.0, 4.0 / 11.0], rtol=1e-8)
        assert d.score == pytest.approx(3.0 + (6.0 * np.sqrt(2.0) - 3.0) * 4.0 / 11.0)

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_rows_keep_their_place_around_the_safe_action(self, place):
        """The worse third action (0, 0.1) gets nothing, wherever a_0 stands."""
        features = [[0.0, 1.0], [0.0, 0.1]]
        features.insert(place, [0.5, 0.0])
        d = agent_of(features, baseline_action=place).act(0, 0)
        expected = [4.0 / 9.0, 0.0]
        expected.insert(place, 5.0 / 9.0)
        np.testing.assert_allclose(d.mixture.probabilities, expected, rtol=1e-8, atol=1e-12)

    def test_a_tuned_kappa_takes_the_place_of_lemma_1s(self):
        """κ = 2: scores 1 and 2, so 1 + 4/9; the mixture is the same."""
        d = agent_of([[0.5, 0.0], [0.0, 1.0]], baseline_action=0, kappa=2.0).act(0, 0)
        assert d.score == pytest.approx(1.0 + 4.0 / 9.0)
        np.testing.assert_allclose(d.mixture.probabilities, [5.0 / 9.0, 4.0 / 9.0], rtol=1e-8)

    def test_two_actions_whose_residuals_cancel_are_played_half_and_half(self):
        """φ = f ± (0, 1): b = 0 and the mean of both is f itself, at no risk, while one alone allows 0.4 of it."""
        d = agent_of([[0.5, 0.0], [0.5, 1.0], [0.5, -1.0]], baseline_action=0).act(0, 0)
        np.testing.assert_allclose(d.mixture.probabilities, [0.0, 0.5, 0.5], atol=1e-4)
        np.testing.assert_allclose(d.mean_feature, [0.5, 0.0], atol=1e-4)
        assert d.reason == "best"

    def test_cancelling_actions_that_cost_more_are_played_as_far_as_they_are_certified(self):
        """φ = 6f ± (0, 1): b = 6·0.1 − 0.1 = 0.5, so 0.4/0.5 = 4/5 of the time."""
        d = agent_of([[0.5, 0.0], [3.0, 1.0], [3.0, -1.0]], baseline_action=0).act(0, 0)
        np.testing.assert_allclose(d.mixture.probabilities, [0.2, 0.4, 0.4], atol=1e-3)
        assert d.reason == "best"

    def test_the_safe_action_where_no_mixture_can_be_shown_to_be_the_best(self):
        """The same at β_c = 30: the allowance on a width that cancels costs 2e-5 of the value, so that no certificate
        closes; the rule is then a_0, and the decision says why."""
        d = agent_of([[0.5, 0.0], [3.0, 1.0], [3.0, -1.0]], baseline_action=0, cost_radius=30.0).act(0, 0)
        np.testing.assert_array_equal(d.mixture.probabilities, [1.0, 0.0, 0.0])
        assert (d.reason, d.is_baseline) == ("unsolved", True)

    def test_the_safe_action_if_nothing_scores_higher(self):
        d = agent_of([[0.5, 0.0], [0.0, 0.25]], baseline_action=0).act(0, 0)
        np.testing.assert_array_equal(d.mixture.probabilities, [1.0, 0.0])
        assert (d.reason, d.is_baseline, d.cost_bound) == ("baseline-best", True, pytest.approx(0.1))

    def test_a_certified_action_is_played_outright(self):
        """τ = 1.5: δ = 1.4 and g(1) = 0.9."""
        d = agent_of([[0.5, 0.0], [0.0, 1.0]], baseline_action=0, threshold=1.5).act(0, 0)
        np.testing.assert_array_equal(d.mixture.probabilities, [0.0, 1.0])
        assert (d.action, d.is_baseline) == (1, False)
        assert d.cost_bound == pytest.approx(1.0)
