"""Safe costs that are exact up to double precision never put a cost over its bound; rounded ones do, by so much.

docs/guarantee.md says what "exact" means and how much is lost by fewer digits; benchmarks/rounded_costs.py prints it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from rounded_costs import DIGITS, ERRORS, SIX, certified_with, excesses, largest_excess


def test_costs_that_are_exact_up_to_double_precision_are_under_their_bounds():
    """Although facts and the state's own cost amplify their rounding by up to 1e4 each: it is counted as often."""
    assert largest_excess(60, 0.0, 0.0) < 0.0
    found = [certified_with(seed, np.zeros(3), 0.0, 0.0)[0] for seed in range(5)]
    # what facts add to a bound for their rounding, before the state's own cost amplifies it
    assert max(each.plan.margin[0, 0] for each in found) > 1e-12
    assert np.concatenate([each.lengths for each in found]).max() == 1.0


def test_costs_with_fewer_digits_are_no_facts_and_hold_once_their_error_is_declared():
    """Taken for exact, nine decimals may miss by what both limits together amplify them to, and the page says so."""
    assert 1e-4 < largest_excess(20, 5e-10, 0.0) < 5e-10 * 2e8
    assert largest_excess(20, 5e-10, 5e-10) < 0.0


@pytest.mark.parametrize("name", ERRORS)
def test_typed_costs_are_under_their_bounds_once_half_a_unit_of_their_last_digit_is_declared(name):
    error = ERRORS[name]
    found = excesses(20, error, SIX if error is None else error)
    assert len(found) > 100
    assert found.max() < 0.0


def test_six_digits_that_are_declared_as_exact_do_break_bounds():
    """So that the worlds of the test above can tell."""
    assert (excesses(20, ERRORS[DIGITS], 0.0) > 0.0).sum() > 100
