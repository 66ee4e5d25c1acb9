"""Exponentiated gradient on the simplex of size B."""

import numpy as np
import pytest

from tether.errors import InputError
from tether.lab.cisr.student import BUDGET, initial_weights, multipliers, updated


def test_the_first_weights_share_the_budget_with_the_slack():
    np.testing.assert_allclose(initial_weights(2), [0.5 / 3] * 3)
    np.testing.assert_allclose(multipliers(initial_weights(2)), [0.5 / 3] * 2)


def test_one_step_by_hand():
    """exp(ln 2) doubles the first of three equal weights: 2 : 1 : 1 of .5."""
    np.testing.assert_allclose(updated(initial_weights(2), np.array([np.log(2.0), 0.0])), [0.25, 0.125, 0.125])


def test_the_rate_scales_the_step():
    np.testing.assert_allclose(
        updated(initial_weights(2), np.array([0.3, -0.2]), rate=2.0),
        updated(initial_weights(2), np.array([0.6, -0.4])),
    )


def test_the_budget_is_kept_and_slack_grows_when_nothing_is_violated():
    weights = initial_weights(2)
    for violation in ([0.4, 0.1], [-0.05, -0.3], [-0.2, -0.2]):
        before = weights
        weights = updated(weights, np.array(violation))
        assert weights.sum() == pytest.approx(BUDGET)
        assert (weights > 0.0).all()
    assert weights[-1] > before[-1]
    assert (multipliers(weights) < multipliers(before)).all()


def test_a_huge_violation_takes_the_budget_without_overflow():
    np.testing.assert_allclose(updated(initial_weights(2), np.array([1e6, 0.0])), [0.5, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("violation", [[np.nan, 0.0], [0.1], [0.1, 0.2, 0.3]])
def test_violations_that_cannot_be_used_are_refused(violation):
    with pytest.raises(InputError):
        updated(initial_weights(2), np.array(violation))


def test_an_empty_simplex_is_refused():
    with pytest.raises(InputError):
        initial_weights(0)
    with pytest.raises(InputError):
        initial_weights(2, budget=0.0)
