"""The inner problem of Algorithm 2 by an interior-point method, for what the closed forms leave open."""

import numpy as np

from tether.learning.mixtures import linear_optimum, scale_back
from tether.records import Array

SOLVED = 1e-6
"""A solution of the interior-point method counts once its certificate leaves less than this part of max p open."""


def conic_mixture(gain: Array, rise: Array, joint: Array, radius: Array, slack: Array) -> tuple[Array, float]:
    """The optimal x (n,), exactly feasible for every constraint, and an upper bound on the optimum; ∞ if it failed.

    gain p (n,), rise b (M, n), joint C (n, n), radius β, slack δ (M,). The bound is ours, not the solver's: any dual
    point with ‖u_j‖ <= 1 gives linear minorants of every g_j, and a linear program over them bounds the optimum.
    """
    import clarabel
    from scipy import sparse

    size, constraints = len(gain), len(slack)
    if not all(np.isfinite(numbers).all() for numbers in (gain, rise, joint, radius, slack)):
        return np.zeros(size), np.inf  # eigh would raise; what is not finite certifies nothing
    eigenvalues, vectors = np.linalg.eigh(joint)
    root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T  # ‖root x‖ = √(xᵀCx)
    scale = max(float(np.abs(gain).max()), 1e-300)
    blocks, limits = [-np.eye(size), np.ones((1, size))], [np.zeros(size), np.ones(1)]
    cones = [clarabel.NonnegativeConeT(size + 1)]
    for j in range(constraints):
        blocks.append(np.vstack([rise[j], -radius[j] * root]) / slack[j])
        limits.append(np.concatenate([[1.0], np.zeros(size)]))
        cones.append(clarabel.SecondOrderConeT(size + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    problem = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)),
        -gain / scale,
        sparse.csc_matrix(np.vstack(blocks)),
        np.concatenate(limits),
        cones,
        settings,
    )
    solution = problem.solve()
    x, dual = np.array(solution.x), np.array(solution.z)
    if not (np.isfinite(x).all() and np.isfinite(dual).all()):
        return np.zeros(size), np.inf
    for j in range(constraints):
        scale_back(rise[j], joint, float(radius[j]), float(slack[j]), x)
    bound = _upper_bound(gain, rise, root, radius, slack, dual.reshape(-1)[size + 1 :].reshape(constraints, size + 1))
    return x, bound


def _upper_bound(gain: Array, rise: Array, root: Array, radius: Array, slack: Array, dual: Array) -> float:
    """The best bound from the minorants that the dual points; their weighted sum is one linear constraint."""
    slope, limit = np.zeros(len(gain)), 0.0
    for j in range(len(slack)):
        weight, direction = dual[j, 0], -dual[j, 1:]
        length = float(np.linalg.norm(direction))
        u = direction / max(length, weight) if length > 0.0 else direction
        if weight > 0.0:
            slope += weight / slack[j] * (rise[j] + radius[j] * root.T @ u)
            limit += weight
    return float(linear_optimum(gain, slope, limit)[0]) if limit > 0.0 else float(max(gain.max(), 0.0))
