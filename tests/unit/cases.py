"""Problems small enough for paper and pencil."""

import numpy as np

from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.problem import Problem

SAFE, OTHER = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def two_arm_problem(*, horizon=2, threshold=0.5, baseline_cost=0.1, finite=False, **more):
    """d = 2, every state has the safe feature (1, 0) and one other, (0, 1): σ = 0.1, δ = 0.01."""
    actions = FiniteActions(np.array([SAFE, OTHER]), 0) if finite else StarActions(SAFE, OTHER[None])
    count = np.atleast_1d(threshold).size
    told = None if baseline_cost is None else lambda step, state: np.full(count, baseline_cost)
    settings = {"noise": 0.1, "confidence": 0.01, "states": range(3)}
    return Problem(
        horizon=horizon,
        threshold=threshold,
        dimension=2,
        actions=lambda state: actions,
        baseline_cost=told,
        **{**settings, **more},
    )
