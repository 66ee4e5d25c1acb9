"""The two-action example after Assumption 5: why star-convexity is needed, and its star-convex completion."""

import numpy as np

from tether.problem.action_sets import ActionSet, FiniteActions, StarActions
from tether.problem.problem import Problem
from tether.world.linear_mdp import LinearMDP


def not_star_convex(
    *, completed: bool = False, threshold: float = 1.2, noise: float = 0.01, confidence: float = 0.01
) -> LinearMDP:
    """S = {s_1}, φ(a_1) = (0, 1), φ(a_2) = (1, 0), a_0 = a_2, θ* = γ* = (0, 1), μ* = (1, 1), H = 1.

    Both actions are safe and a_1 is better, but playing a_2 teaches nothing about a_1. With `completed` the
    segment between them can be played, and a safe learner finds a_1. The paper has τ = 2; since ‖γ*‖ <= √2
    already proves every cost under 1.42, a learner that knows the norm bound is not stuck there. The default
    τ = 1.2 lies below that bound, so that *every* safe learner must stay at a_2.
    """
    first, second = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    actions: ActionSet = StarActions(second, first[None]) if completed else FiniteActions(np.array([first, second]), 1)
    problem = Problem(
        horizon=1,
        threshold=(threshold,),
        noise=(noise,),
        dimension=2,
        actions=lambda state: actions,
        baseline_cost=lambda step, state: 0.0,
        confidence=confidence,
        states=range(1),
    )
    return LinearMDP(
        name="star_convex" if completed else "not_star_convex",
        problem=problem,
        true_theta=np.array([[0.0, 1.0]]),
        true_gamma=np.array([[[0.0, 1.0]]]),
        true_mu=np.ones((1, 2, 1)),
        initial=np.ones(1),
    )
