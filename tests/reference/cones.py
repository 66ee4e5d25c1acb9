"""The inner problem of Algorithm 2 by Clarabel, written over the whole simplex, and instances that are hard for it.

Nothing is shared with `mixture_solver.conic_mixture`: a_0 is a variable of its own, the residuals enter as they are
drawn (no square root of C is taken), and the tolerance is the one stated here.
"""

from dataclasses import dataclass

import clarabel
import numpy as np
from scipy import sparse

TOLERANCES = (1e-11, 1e-9)
"""Gap and feasibility asked of Clarabel, in units of max |p|; the second is tried where the first leaves much open."""

USEFUL = 3e-9
"""An interval for the optimum narrower than this part of max |p| is good enough to compare with."""

KINDS = (
    "full", "duplicates", "rank 1", "rank 2", "opposite", "zero widths", "tiny widths", "huge radius", "no slack",
    "ties", "only a_0", "cheap",
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """max ⟨p, x⟩ over x >= 0, Σx <= 1, ⟨b_j, x⟩ + β_j‖Rx‖ <= δ_j; the residuals R are (k, n)."""

    gain: np.ndarray
    rise: np.ndarray
    residuals: np.ndarray
    radius: np.ndarray
    slack: np.ndarray

    @property
    def joint(self):
        return self.residuals.T @ self.residuals

    @property
    def size(self):
        return len(self.gain)

    @property
    def largest(self):
        """max p, but not below 0."""
        return max(float(self.gain.max()), 0.0)

    def rises(self, x):
        """g_j(x) by definition, (M,)."""
        return self.rise @ x + self.radius * np.linalg.norm(self.residuals @ x)

    @property
    def several(self):
        """Arguments of the kernels that take M constraints."""
        return {
            "gain": self.gain, "rise": self.rise, "joint": self.joint, "radius": self.radius, "slack": self.slack
        }  # fmt: skip

    @property
    def single(self):
        """Arguments of the kernel that takes one."""
        return {
            "gain": self.gain, "rise": self.rise[0], "joint": self.joint, "radius": self.radius[0],
            "slack": self.slack[0],
        }  # fmt: skip


def draw(rng, kind, size, constraints=1):
    """One instance. Costs, widths and slacks are of the size that plans have; kinds add what is degenerate."""
    gain = rng.normal(0.4, 1.0, size)
    rise = rng.normal(0.1, 0.5, (constraints, size))
    rank = {"rank 1": 1, "rank 2": 2}.get(kind, size)
    residuals = rng.normal(size=(rank, size)) * 10.0 ** rng.uniform(-1.5, 0.5)
    radius = 10.0 ** rng.uniform(-2.0, 1.0, constraints)
    slack = rng.uniform(0.02, 0.5, constraints)
    some = rng.random(size) < 0.5
    if kind in ("duplicates", "opposite") and size > 1:
        source = rng.integers(0, size, size)
        sign = -1.0 if kind == "opposite" else 1.0
        residuals[:, some] = sign * residuals[:, source[some]]
        if rng.random() < 0.5:
            gain[some], rise[:, some] = gain[source[some]], rise[:, source[some]]
    if kind in ("zero widths", "tiny widths"):
        residuals[:, some] *= 0.0 if kind == "zero widths" else 1e-9
    if kind == "huge radius":
        radius = 10.0 ** rng.uniform(2.0, 6.0, constraints)
    if kind == "no slack":
        slack = 10.0 ** rng.uniform(-12.0, -2.0, constraints)
    if kind == "ties":
        gain = np.round(2.0 * gain) / 2.0
        rise = np.round(4.0 * rise) / 4.0
        residuals = np.round(2.0 * residuals) / 2.0
        slack = np.full(constraints, 0.25)
    if kind == "only a_0":
        rise = np.abs(rise) + 0.5
    if kind == "cheap":
        rise -= 0.5
    return Instance(gain, rise, residuals, radius, slack)


def conic_optimum(problem):
    """(lowest, highest): an interval that contains the optimum, whatever Clarabel's tolerance did.

    Variables θ_0, x_1 … x_n with θ_0 + Σx = 1, all >= 0, and (δ_j − ⟨b_j, x⟩, β_j R x) in the second-order cone. The
    lower end is Clarabel's x after it was made feasible. The upper end is weak duality with its multipliers: with
    ‖w_j‖ <= λ_j, no x earns more than Σ λ_j δ_j + max(0, max_i p_i − Σ_j (λ_j b_ji + β_j (Rᵀw_j)_i)).
    """
    n, k = problem.size, len(problem.residuals)
    scale = max(float(np.abs(problem.gain).max()), 1e-300)
    blocks, limits = [np.ones((1, n + 1)), -np.eye(n + 1)], [np.ones(1), np.zeros(n + 1)]
    cones, units = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n + 1)], []
    for b, beta, delta in zip(problem.rise, problem.radius, problem.slack, strict=True):
        rows = np.hstack([np.zeros((1 + k, 1)), np.vstack([b, -beta * problem.residuals])])
        units.append(max(float(np.abs(rows).max()), float(delta)))
        blocks.append(rows / units[-1])
        limits.append(np.concatenate([[delta], np.zeros(k)]) / units[-1])
        cones.append(clarabel.SecondOrderConeT(1 + k))
    objective = np.concatenate([[0.0], -problem.gain / scale])
    matrix, limit = sparse.csc_matrix(np.vstack(blocks)), np.concatenate(limits)
    lowest, highest = 0.0, max(float(problem.gain.max()), 0.0)
    for tolerance in TOLERANCES:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = 100
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(
            sparse.csc_matrix((n + 1, n + 1)), objective, matrix, limit, cones, settings
        ).solve()  # fmt: skip
        x, dual = np.array(solution.x)[1:], scale * np.array(solution.z)[n + 2 :]
        if not (np.isfinite(x).all() and np.isfinite(dual).all()):
            continue
        lowest = max(lowest, float(problem.gain @ made_feasible(problem, x)))
        price, limits_price = np.zeros(n), 0.0
        for j, unit in enumerate(units):
            lam, w = dual[j * (1 + k)] / unit, -dual[j * (1 + k) + 1 : (j + 1) * (1 + k)] / unit
            lam = max(lam, float(np.linalg.norm(w)))
            price += lam * problem.rise[j] + problem.radius[j] * (problem.residuals.T @ w)
            limits_price += lam * problem.slack[j]
        highest = min(highest, limits_price + max(0.0, float((problem.gain - price).max())))
        if highest - lowest <= USEFUL * scale:
            break
    return lowest, highest


def made_feasible(problem, x):
    """The largest multiple of max(x, 0) with Σx <= 1 and g_j(x) <= δ_j: g is homogeneous."""
    x = np.maximum(x, 0.0)
    over = max(1.0, float(x.sum()), float((problem.rises(x) / problem.slack).max()))
    return x / over
