"""Lagrange multipliers by exponentiated gradient on a simplex of size B with a slack coordinate."""

import numpy as np

from tether.errors import InputError
from tether.records import Array

BUDGET = 0.5
"""B: what the multipliers and the slack sum to."""

RATE = 1.0
"""η: how fast they follow a violation."""

LARGEST_STEP = 200.0
"""Violations are clipped here before exp, as in the authors' code."""


def initial_weights(constraints: int, budget: float = BUDGET) -> Array:
    """The same weight for each constraint and for the slack. (constraints + 1,)."""
    if constraints < 1 or not budget > 0.0:
        raise InputError(f"The simplex needs a constraint and a positive size, not {constraints} and {budget}.")
    return np.full(constraints + 1, budget / (constraints + 1))


def multipliers(weights: Array) -> Array:
    """λ: the weights without the slack. (m + 1,) -> (m,)."""
    return weights[:-1]


def updated(weights: Array, violation: Array, rate: float = RATE) -> Array:
    """The weights after w ∝ w·exp(η·violation), the slack's violation being 0. (m + 1,), (m,) -> (m + 1,)."""
    if violation.shape != (weights.size - 1,) or not np.isfinite(violation).all():
        raise InputError(f"{weights.size - 1} finite violations are needed, not {violation}.")
    exponents = rate * np.minimum(np.append(violation, 0.0), LARGEST_STEP)
    grown = weights * np.exp(exponents - exponents.max())
    scaled: Array = weights.sum() * grown / grown.sum()
    return scaled
