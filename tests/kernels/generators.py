"""Random regressions for the laws, their literal definitions, and arithmetic with more digits than the code has."""

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tether.kernels.ridge import new_costs, observe_cost

law = settings(derandomize=True, deadline=None, database=None, max_examples=60)
"""Laws hold for all inputs; the same inputs are drawn on every machine."""

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 5)
ridges = st.floats(-3.0, 1.0).map(lambda e: 10.0**e)
radii = st.floats(0.0, 4.0)


@dataclass(frozen=True)
class Regression:
    """n noisy costs z at features φ (n, d), with ridge λ: the sums and the plain estimate, by definition."""

    features: np.ndarray
    costs: np.ndarray
    ridge: float

    @property
    def dimension(self):
        return self.features.shape[1]

    @property
    def gram(self):
        return self.ridge * np.eye(self.dimension) + self.features.T @ self.features

    @property
    def inverse(self):
        return np.linalg.inv(self.gram)

    @property
    def estimate(self):
        return np.linalg.solve(self.gram, self.features.T @ self.costs)

    @property
    def factor(self):
        """Upper triangular U with UᵀU = A."""
        return np.linalg.cholesky(self.gram).T

    @property
    def sums(self):
        """The package's own sums after these observations, one stage."""
        return costs_of(self.features, self.ridge, self.costs)


@st.composite
def regressions(draw, most=25, least_dimension=1):
    rng = np.random.default_rng(draw(seeds))
    d = draw(st.integers(least_dimension, 5))
    n = draw(st.integers(0, most))
    features = unit_ball(rng, n, d)
    gamma = rng.standard_normal(d)
    return Regression(features, features @ gamma + 0.1 * rng.standard_normal(n), draw(ridges))


def unit_ball(rng, n, d):
    """Features of any direction with norms in (0, 1]: (n, d)."""
    rows = rng.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(0.2, 1.0, (n, 1))


def costs_of(features, ridge, costs=None):
    """The package's own cost sums after these observations, one stage: features (n, d), costs (n,) or (n, M)."""
    z = np.zeros(len(features)) if costs is None else np.asarray(costs, dtype=np.float64)
    z = np.ascontiguousarray(z[:, None] if z.ndim == 1 else z)
    state = new_costs(1, features.shape[1], z.shape[1], ridge)
    feed(state, features, z)
    return state


def feed(state, features, costs=None):
    """Add every row as an observation of stage 0; without costs they are 0."""
    features = np.ascontiguousarray(features, dtype=np.float64)
    work, nothing = np.zeros((3, features.shape[1])), np.zeros(state.moment.shape[1])
    for n, x in enumerate(features):
        observe_cost(state, 0, x, nothing if costs is None else costs[n], work)


def literal_conditioned(regression, f, tau_s, x):
    """Known part + ⟨γ_{h,s}, Φ_0^⊥(x)⟩ and ‖Φ_0^⊥(x)‖ in (A_{h,s})^+: the paper's own definitions."""
    norm = np.linalg.norm(f)
    unit = f / norm
    away = np.eye(len(f)) - np.outer(unit, unit)
    rest = regression.features @ away
    gram = regression.ridge * away + rest.T @ rest
    inverse = np.linalg.pinv(gram, rcond=1e-11, hermitian=True)
    z = regression.costs - regression.features @ unit / norm * tau_s
    gamma = inverse @ (rest.T @ z)
    out = away @ x
    return (x @ unit) / norm * tau_s + gamma @ out, np.sqrt(max(out @ inverse @ out, 0.0))


def constrained(gram, moment, facts, told):
    """Least squares under exact facts, by Lagrange: the estimate (d,), m = ‖ĝ − estimate‖²_A, and x -> width(x).

    The estimate is argmin ‖ĝ − γ‖_A subject to Fγ = c, facts (J, d), told (J,); the width sup ⟨u, x⟩ over ‖u‖_A <= 1
    with Fu = 0: what a least-squares fit by the facts leaves of x, in A^{-1/2}. The kernels' basis is not used.
    """
    plain, gain = np.linalg.solve(gram, moment), np.linalg.solve(gram, facts.T)
    estimate = plain - gain @ np.linalg.solve(facts @ gain, facts @ plain - told)
    away, root = plain - estimate, np.linalg.cholesky(gram)

    def width(x):
        y, e = np.linalg.solve(root, x), np.linalg.solve(root, facts.T)
        return np.linalg.norm(y - e @ np.linalg.lstsq(e, y)[0])

    return estimate, away @ gram @ away, width


def bisect(holds, steps=60):
    """The largest α in [0, 1] with holds(α), when holds is true up to some α and false after it."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(steps):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def exact_factor(features, ridge):
    """U with UᵀU = λI + ΣφφT, in extended precision."""
    d = features.shape[1]
    return merged(np.sqrt(np.longdouble(ridge)) * np.eye(d, dtype=np.longdouble), features)


def merged(factor, rows):
    """U' with U'ᵀU' = UᵀU + ΣφφT, by Householder reflections of the stacked rows in extended precision.

    The Gram matrix is never formed, so that a condition number of 1e8 costs 8 digits and not 16.
    """
    d = factor.shape[1]
    stack = np.vstack([factor, rows.astype(np.longdouble)])
    for k in range(d):
        column = stack[k:, k].copy()
        norm = np.sqrt((column * column).sum())
        column[0] += norm if column[0] >= 0 else -norm
        square = (column * column).sum()
        if square > 0:
            stack[k:, k:] -= np.outer(column, (column @ stack[k:, k:]) * (2 / square))
    return stack[:d] * np.sign(np.diag(stack[:d]))[:, None]


def exact_whiten(factor, x):
    """U^{-T}x in extended precision."""
    v = x.astype(np.longdouble)
    for k in range(len(v)):
        v[k] /= factor[k, k]
        v[k + 1 :] -= factor[k, k + 1 :] * v[k]
    return v


def exact_norm(factor, x):
    """‖x‖_G in extended precision."""
    v = exact_whiten(factor, x)
    return np.sqrt((v * v).sum())


def exact_width(factor, f, x):
    """‖x − share f‖_G in extended precision."""
    e, v = exact_whiten(factor, f), exact_whiten(factor, x)
    rest = v - (v @ e) / (e @ e) * e
    return np.sqrt((rest * rest).sum())
