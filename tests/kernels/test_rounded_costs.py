"""Safe costs that are exact up to double precision never put a cost over its bound; rounded ones do, by so much.

docs/guarantee.md says what "exact" means and how much is lost by fewer digits; benchmarks/rounded_costs.py prints it.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from rounded_costs import certified_with, largest_excess


def test_costs_that_are_exact_up_to_double_precision_are_under_their_bounds():
    """Although facts and the state's own cost amplify their rounding by up to 1e4 each: it is counted as often."""
    worst, margin = largest_excess(60, 0.0)
    assert worst < 0.0
    assert margin > 1e-12  # what facts add to a bound for their rounding, before the state's own cost amplifies it
    lengths = [certified_with(seed, np.zeros(3))[0].lengths for seed in range(5)]
    assert np.concatenate(lengths).max() == 1.0


def test_costs_with_twelve_decimals_miss_by_less_than_a_hundred_millionth():
    """Counting them as exact is not rigorous, and the page says by how much."""
    worst, _ = largest_excess(20, 5e-13)
    assert 0.0 < worst < 1e-7
