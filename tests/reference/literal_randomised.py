"""Algorithm 2, transcribed word for word: loops, full history, pseudo-inverses, and cvxpy for Eq. (14).

Slow on purpose, and shares no code with `tether.kernels` or with the literal Algorithm 1. Symbols are the paper's: f
is φ(s, a_0(s)), `unit` is φ̃(s, a_0(s)), `tau_s` is τ_h(s), θ a distribution over all actions of D(s).
"""

from dataclasses import dataclass
from math import sqrt

import cvxpy
import numpy as np

CUT = 1e-10
"""Eigenvalues of A_{h,s} below this part of the largest belong to the direction of f, which it does not measure."""


@dataclass(frozen=True)
class Row:
    """One row of the history."""

    step: int
    feature: np.ndarray
    reward: float
    costs: tuple
    next_state: int


@dataclass(frozen=True)
class Mixed:
    """What is drawn from at one (h, s): θ over D(s), its score, and what it was chosen from."""

    theta: np.ndarray
    score: float
    scores: np.ndarray
    rises: tuple  # θ -> the left side of Eq. (14), one per constraint


@dataclass(frozen=True, kw_only=True)
class Recipe2:
    """One β, one λ, and κ (None is Lemma 2's 2H/(τ − τ_s) + 1)."""

    beta: float
    ridge: float
    kappa: float | None = None
    pooled: bool = False


class LiteralRandomised:
    """The agent. `observe` only appends; `plan` recomputes everything."""

    def __init__(self, problem, states, recipe):
        self.problem = problem
        self.recipe = recipe
        self.known = [problem.look_up(s) for s in range(states)]
        self.history = []
        self.mixtures = {}
        self.values = {}

    def observe(self, transition):
        costs = tuple(np.atleast_1d(transition.cost).tolist())
        self.history.append(
            Row(transition.step, transition.feature.copy(), transition.reward, costs, transition.next_state)
        )

    def plan(self):
        """The first loop: for h = H..1, Γ_h(s) and Q̃_h for every state, then Ṽ_h = min(max E_θ Q̃, H)."""
        horizon = self.problem.horizon
        self.values = {(horizon, s): 0.0 for s in range(len(self.known))}
        for h in reversed(range(horizon)):
            inverse, weights = self.value_regression(h)
            for s in range(len(self.known)):
                mixed = self.mixtures[h, s] = self.best_of(h, s, self.scores(h, s, weights, inverse))
                self.values[h, s] = min(mixed.score, float(horizon))

    def rows(self, h):
        return [row for row in self.history if self.recipe.pooled or row.step == h]

    def value_regression(self, h):
        """(A_h)^{-1} and w̃_h = A_h^{-1} Σ φ (r + Ṽ_{h+1}(s'))."""
        d = self.problem.dimension
        gram, moment = self.recipe.ridge * np.eye(d), np.zeros(d)
        for row in self.rows(h):
            gram = gram + np.outer(row.feature, row.feature)
            moment = moment + row.feature * (row.reward + self.values[h + 1, row.next_state])
        inverse = np.linalg.inv(gram)
        return inverse, inverse @ moment

    def scores(self, h, s, weights, inverse):
        """Eq. (15): Q̃_h(s, a) = ⟨w̃, φ⟩ + κ_h(s) β ‖φ‖ in (A_h)^{-1}, for every action."""
        p = self.problem
        kappa = self.recipe.kappa
        if kappa is None:
            gap = min(tau - tau_s for tau, tau_s in zip(p.threshold, self.known[s].baseline_cost[h], strict=True))
            kappa = 2.0 * p.horizon / gap + 1.0
        features = self.known[s].actions.endpoints
        return np.array([weights @ x + kappa * self.recipe.beta * sqrt(x @ inverse @ x) for x in features])

    def parts(self, h, s, j):
        """Eq. (14) for one constraint: (known, root) with left side ⟨known, θ⟩ + β‖root θ‖."""
        actions, tau_s = self.known[s].actions, self.known[s].baseline_cost[h, j]
        f = actions.phi_0
        norm = np.linalg.norm(f)
        unit = f / norm
        onto = np.outer(unit, unit)  # Φ_0
        away = np.eye(len(f)) - onto  # Φ_0^⊥
        gram, moment = self.recipe.ridge * away, np.zeros(len(f))  # A_{h,s} and r_{h,s}
        for row in self.rows(h):
            rest = away @ row.feature
            z = row.costs[j] - (row.feature @ unit) / norm * tau_s
            gram = gram + np.outer(rest, rest)
            moment = moment + z * rest
        gamma = np.linalg.pinv(gram, rcond=CUT, hermitian=True) @ moment  # γ_{h,s}
        eigenvalues, vectors = np.linalg.eigh(gram)
        kept = eigenvalues > CUT * eigenvalues.max()
        half = vectors[:, kept].T / np.sqrt(eigenvalues[kept])[:, None]  # halfᵀ half is the pseudo-inverse
        known = [((onto @ x) @ unit) / norm * tau_s + gamma @ (away @ x) for x in actions.endpoints]
        root = np.array([half @ (away @ x) for x in actions.endpoints]).T
        return np.array(known), root

    def best_of(self, h, s, scores):
        """argmax of E_{a~θ} Q̃(s, a) over Γ_h(s)."""
        p = self.problem
        theta = cvxpy.Variable(len(scores), nonneg=True)
        limits, rises = [cvxpy.sum(theta) == 1.0], []
        for j, tau in enumerate(p.threshold):
            known, root = self.parts(h, s, j)
            limits.append(known @ theta + self.recipe.beta * cvxpy.norm(root @ theta, 2) <= tau)
            rises.append(lambda t, known=known, root=root: known @ t + self.recipe.beta * np.linalg.norm(root @ t))
        unit = max(np.ptp(scores), 1e-9)
        task = cvxpy.Problem(cvxpy.Maximize((scores - scores.mean()) / unit @ theta), limits)
        task.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        assert task.status in (cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE), task.status
        chosen = np.maximum(theta.value, 0.0)
        chosen = chosen / chosen.sum()
        return Mixed(chosen, float(scores @ chosen), scores, tuple(rises))
