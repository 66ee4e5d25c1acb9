"""The misfit ε of a twin, computed from its truth: how far its costs are from the best linear model of them.

ε_j is the least, over ‖γ‖ <= B_j, of the largest |c_j(s, a) − ⟨γ, φ(s, a)⟩| over all states, all phases of the world
and every ray up to the first point where some cost reaches τ; and so large that beyond it ⟨γ, φ⟩ + ε is over τ, too,
for the cost that was over it first. The guarantee needs no more (docs/guarantee.md, "Linear up to ε"); `whole` looks at
all of each ray. Costs must be convex along rays, as those of our twins are.
"""

from dataclasses import replace

import numpy as np

from tether.assumptions.misfit import Misfit
from tether.lab.worlds.linear_mdp import MisspecifiedMDP
from tether.records import Array

POINTS = 129
"""Points of a ray at which residuals are computed; every eighth is used to find γ."""

ROUNDS = 200
"""Rounds of Lawson's algorithm."""


def knowing_misfit(twin: MisspecifiedMDP) -> MisspecifiedMDP:
    """The same world with a learner that knows ε."""
    limits = zip(twin.problem.constraints, misfit_of(twin).tolist(), strict=True)
    problem = replace(
        twin.problem, constraints=[replace(one, relax=(*one.relax, Misfit(error))) for one, error in limits]
    )
    return replace(twin, linear=replace(twin.linear, problem=problem))


def misfit_of(twin: MisspecifiedMDP, *, whole: bool = False) -> Array:
    """ε of each constraint, (M,): never too small, and at most a few per cent too large.

    A convex residual is largest at an end of a cell of the grid, and inside it falls below both ends by at most what
    it changes by over a neighbouring cell: the largest such change is added.
    """
    features, costs = _points(twin, whole)  # (R, POINTS, d), (R, POINTS, M)
    ends = np.tile(twin.linear.endpoints.reshape(-1, features.shape[2]), (len(twin.phases), 1))
    made = []
    for j, (bound, tau) in enumerate(zip(twin.problem.gamma_norm, twin.problem.threshold, strict=True)):
        few = features[:, ::8].reshape(-1, features.shape[2])
        gamma = _nearest_model(few, costs[:, ::8, j].ravel(), bound)
        residual = costs[..., j] - features @ gamma
        # where a ray was cut by c_j, ⟨γ, x⟩ + ε is over τ_j: it is affine, so only its end need be looked at
        cut = costs[:, -1, j] > tau
        missing = np.where(cut, tau - ends @ gamma, -np.inf).max()
        made.append(max(np.abs(residual).max() + np.abs(np.diff(residual, axis=1)).max(), missing))
    return np.array(made)


def _points(twin: MisspecifiedMDP, whole: bool) -> tuple[Array, Array]:
    """Evenly spaced points of each ray, up to its end or to where some cost reaches τ, and what they truly cost.

    At step 0: the twins' costs do not depend on the step.
    """
    rays = [
        _ray(twin, phase, state, end, whole)
        for phase in twin.phases
        for state in range(twin.linear.state_count)
        for end in twin.linear.endpoints[state]
    ]
    return np.array([features for features, _ in rays]), np.array([costs for _, costs in rays])


def _ray(twin: MisspecifiedMDP, phase: int, state: int, end: Array, whole: bool) -> tuple[Array, list[Array]]:
    start, tau = twin.linear.phi_0[state], np.array(twin.problem.threshold)

    def cost_at(length: float) -> Array:
        return twin.true_cost(0, state, start + length * (end - start), phase)

    low, reach = 0.0, 1.0
    if not whole and (cost_at(reach) > tau).any():
        for _ in range(40):
            middle = 0.5 * (low + reach)
            low, reach = (low, middle) if (cost_at(middle) > tau).any() else (middle, reach)
    lengths = np.linspace(0.0, reach, POINTS)
    return start + lengths[:, None] * (end - start), [cost_at(length) for length in lengths]


def _nearest_model(features: Array, costs: Array, bound: float) -> Array:
    """γ with ‖γ‖ <= bound whose largest residual is about the least, (n, d) -> (d,), by Lawson's algorithm.

    Least squares whose weights grow where residuals are large; the best round counts, and any γ gives a valid ε.
    """
    weights, best, least = np.full(len(costs), 1.0 / len(costs)), np.zeros(features.shape[1]), np.inf
    for _ in range(ROUNDS):
        weighted = features * weights[:, None]
        values, axes = np.linalg.eigh(weighted.T @ features)
        moment, ridges = axes.T @ (weighted.T @ costs), np.geomspace(1e-12, 1e3, 400)
        sizes = np.linalg.norm(moment / (np.maximum(values, 0.0) + ridges[:, None]), axis=1)  # falls as the ridge grows
        ridge = ridges[np.argmax(sizes <= bound)]
        gamma = axes @ (moment / (np.maximum(values, 0.0) + ridge))
        residual = np.abs(costs - features @ gamma)
        if residual.max() < least:
            best, least = gamma, residual.max()
        weights = weights * residual / (weights @ residual)
    return best
