"""Algorithms 1 and 2 in plain NumPy, beside the paper's line numbers. Read this file first, with the paper open.

`Slucb` is Algorithm 1 (SLUCB-QVI), `Rslucb` Algorithm 2 (RSLUCB-QVI): one tuned radius β and one ridge λ, as published,
and no options. They plan, act and observe like every agent of Tether. `tether.SlucbQvi` and `tether.RslucbQvi` make the
same choices many times faster, and have a radius that is proven. N candidate actions, d features, M constraints.
"""

from pathlib import Path
from typing import Any, Self

import clarabel
import numpy as np
from scipy.sparse import csc_matrix

from tether.agents.agent import check_step, checked_costs, checked_feature, checked_reward
from tether.errors import InputError
from tether.problem.action_sets import feature_of
from tether.problem.problem import KnownState, Problem
from tether.records import Array, CostBound, Decision, Mixture, Radius, Reason, State, Transition

SUMS = ("gram", "reward_moment", "cost_moment", "transition_moment", "open", "count")


def inverse_norm(rows: Array, inverse: Array) -> Array:
    """‖x‖ in A^-1 for each row x: (N, d), (d, d) -> (N,)."""
    squares: Array = np.einsum("nd,de,ne->n", rows, inverse, rows)
    return np.sqrt(np.maximum(squares, 0.0))


def safe_set_terms(rows: Array, phi_0: Array, tau_s: float, inverse: Array, moment: Array) -> tuple[Array, Array]:
    """Mean (N,) and residual (N, d) of Eq. (9): its left side is mean + β‖residual‖ in A^-1.

    The paper projects on what is orthogonal to φ(s, a_0(s)) and inverts A_{h,s}, which is singular. Ridge regression
    conditioned on the one exact fact ⟨γ*, φ(s, a_0(s))⟩ = τ_h(s) gives the same numbers: docs/theory.md section 1.
    """
    share = rows @ inverse @ phi_0 / (phi_0 @ inverse @ phi_0)
    estimate = inverse @ moment
    return rows @ estimate - share * (phi_0 @ estimate - tau_s), rows - share[:, None] * phi_0


def pessimistic_cost(rows: Array, phi_0: Array, tau_s: float, inverse: Array, moment: Array, beta: float) -> Array:
    """The left side of Eq. (9), an upper bound on the cost of each row: (N, d) -> (N,)."""
    mean, residual = safe_set_terms(rows, phi_0, tau_s, inverse, moment)
    return mean + beta * inverse_norm(residual, inverse)


def safe_lengths(bound: Array, tau_s: float, tau: float) -> Array:
    """How far along each ray from φ(s, a_0(s)) Eq. (9) holds, given the bound at its end: (N,) -> (N,). NaN gives 0."""
    rise = np.where(bound > tau, (bound - tau_s) * (1.0 + 1e-12), np.inf)  # rounding carries no bound over τ
    return np.where(bound <= tau, 1.0, (tau - tau_s) / rise)


class Slucb:
    """Algorithm 1: optimistic values over the actions whose pessimistic cost is under τ."""

    def __init__(self, problem: Problem, beta: float, *, ridge: float = 1.0) -> None:
        if problem.states is None or problem.baseline_cost is None:
            raise InputError("the paper's algorithms plan for every state: give Problem its states and safe_cost.")
        self.problem, self.beta = problem, beta
        self.keys = {problem.key_of(state): s for s, state in enumerate(problem.states)}
        self.known = [problem.look_up(state) for state in problem.states]
        steps, states, d = problem.horizon, len(self.known), problem.dimension
        self.gram = np.tile(ridge * np.eye(d), (steps, 1, 1))  # line 1: A_h = λI
        self.reward_moment = np.zeros((steps, d))  # Σ rφ, the part of b_h that stays
        self.cost_moment = np.zeros((steps, len(problem.constraints), d))  # Σ zφ, from which r_{h,s} follows
        self.transition_moment = np.zeros((steps, states, d))  # Σ φ by next state, for the rest of b_h
        self.values = np.zeros((steps + 1, states))  # V_{H+1} = 0
        self.choices: dict[tuple[int, int], Any] = {}
        self.open, self.count = np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64)  # decisions, outcomes

    def plan(self) -> None:
        """Lines 4 to 7: backwards through the steps, the safe set and Q of every state."""
        for h in reversed(range(self.problem.horizon)):
            inverse = np.linalg.inv(self.gram[h])
            weights = inverse @ (self.reward_moment[h] + self.values[h + 1] @ self.transition_moment[h])  # w_h
            for s, known in enumerate(self.known):
                gap = min(np.array(self.problem.threshold) - known.baseline_cost[h])
                bonus = (2.0 * self.problem.horizon / gap + 1.0) * self.beta  # κ_h(s) β, Lemma 1
                self.choices[h, s] = choice = self.best(h, known, weights, inverse, bonus)
                self.values[h, s] = min(choice[2], self.problem.horizon)  # Eq. (10): clip the value, not the scores

    def best(self, h: int, known: KnownState, weights: Array, inverse: Array, bonus: float) -> Any:
        """Lines 5, 6 and 9: the safe set, Q on it, and where Q is largest: row (-1: a_0), length, score, no mixture."""
        ends, f = known.actions.endpoints, known.actions.phi_0
        lengths = np.ones(len(ends))
        for tau, tau_s, moment in self.limits(h, known):
            bound = pessimistic_cost(ends, f, tau_s, inverse, moment, self.beta)
            lengths = np.minimum(lengths, safe_lengths(bound, tau_s, tau))
        if not known.actions.is_star:
            lengths = np.floor(lengths)  # nothing between two actions can be played
        rows = np.vstack([f, f + lengths[:, None] * (ends - f)])
        scores = rows @ weights + bonus * inverse_norm(rows, inverse)  # Q_h of Eq. (10)
        best = int(scores.argmax())
        return best - 1, float(lengths[best - 1]) if best else 0.0, float(scores[best]), None

    def act(self, step: int, state: State) -> Decision:
        """Line 9: play the best action of the safe set, with the bound that justifies it."""
        check_step(step, self.problem.horizon)
        if not self.choices:
            self.plan()
        known = self.known[self.slot(state)]
        row, length, score, mixture = self.drawn(known, *self.choices[step, self.slot(state)])
        x = feature_of(known.actions, action := known.actions.action(row, length))
        evidence = self.evidence(step, known, x, mixture)
        reason: Reason = "baseline-best" if row < 0 and mixture is None else "best"
        if not all(bound.bound <= bound.threshold for bound in evidence):  # NaN, or data that came after the plan
            action, x, mixture, reason = known.actions.action(-1, 0.0), known.actions.phi_0, None, "only-baseline"
            evidence = self.evidence(step, known, x, mixture)
        is_safe, number = bool((x == known.actions.phi_0).all()), int(self.count[0])
        self.count[0], self.open = number + 1, np.append(self.open, number)
        told = (evidence, Radius(self.beta, "tuned"), score, int(self.count[1]), mixture)
        return Decision(number, step, state, action, x, is_safe, reason, *told)

    def evidence(self, step: int, known: KnownState, x: Array, mixture: Mixture | None) -> tuple[CostBound, ...]:
        """The left side of Eq. (9) at the feature x (d,), or of Eq. (14) at the mixture, for each constraint."""
        inverse, radius, f = np.linalg.inv(self.gram[step]), Radius(self.beta, "tuned"), known.actions.phi_0
        mean, found = x if mixture is None else mixture.mean_feature, []
        for tau, tau_s, moment in self.limits(step, known):
            (bound,) = pessimistic_cost(mean[None], f, tau_s, inverse, moment, self.beta)
            bound = tau_s if (mean == f).all() else float(bound)
            found.append(CostBound(bound, tau, radius, tau_s, bounds="cost" if mixture is None else "expected cost"))
        return tuple(found)

    def limits(self, step: int, known: KnownState) -> list[tuple[float, float, Array]]:
        """τ, τ_h(s) and Σ zφ (d,) of each constraint."""
        costs, moments = known.baseline_cost[step].tolist(), self.cost_moment[step]
        return list(zip(self.problem.threshold, costs, moments, strict=True))

    def slot(self, state: State) -> int:
        """The place of a state among those that the problem lists."""
        if (key := self.problem.key_of(state)) not in self.keys:
            raise InputError(f"state {state!r:.80} is not among the {len(self.known)} states of the problem.")
        return self.keys[key]

    def drawn(self, known: KnownState, row: int, length: float, score: float, mixture: Any) -> Any:
        """What is played of a choice: Algorithm 1 draws nothing."""
        return row, length, score, mixture

    def observe(self, transition: Transition) -> None:
        """Lines 8 to 10: add the outcome to the sums, once. A cost that was not measured is refused."""
        t, p = transition, self.problem
        check_step(t.step, p.horizon)
        x, reward = checked_feature(t.feature, p), checked_reward(t.reward)
        costs = checked_costs(t.cost, p, needed=False)
        follows = self.slot(t.next_state) if t.step < p.horizon - 1 else 0  # V_{H+1} = 0 wherever the last step leads
        if costs is None or t.decision_id not in self.open:
            raise InputError(
                f"decision {t.decision_id} is not open here, or has cost None: the paper needs a cost each."
            )
        self.gram[t.step] += np.outer(x, x)
        self.reward_moment[t.step] += reward * x
        self.cost_moment[t.step] += np.outer(costs, x)
        self.transition_moment[t.step, follows] += x
        self.open, self.count[1] = self.open[self.open != t.decision_id], self.count[1] + 1

    def save(self, path: Path) -> None:
        """Every sum. The plan follows from them."""
        with path.open("wb") as file:
            np.savez(file, **{name: getattr(self, name) for name in SUMS})

    @classmethod
    def restore(cls, path: Path, problem: Problem, **told: Any) -> Self:
        """The agent as it was saved, given what it was made with."""
        agent = cls(problem, **told)
        with np.load(path, allow_pickle=False) as saved:
            vars(agent).update({name: saved[name] for name in SUMS})
        return agent


class Rslucb(Slucb):
    """Algorithm 2: mixtures of actions whose expected pessimistic cost is under τ. The action is drawn."""

    def __init__(self, problem: Problem, beta: float, *, rng: np.random.Generator, ridge: float = 1.0) -> None:
        super().__init__(problem, beta, ridge=ridge)
        self.rng = rng

    def best(self, h: int, known: KnownState, weights: Array, inverse: Array, bonus: float) -> Any:
        """The mixture θ in Γ_h(s), Eq. (14), with the largest mean of Q, Eq. (15): a second-order cone programme."""
        actions = known.actions
        rows = np.vstack([actions.endpoints, actions.phi_0]) if actions.is_star else actions.endpoints
        scores, factor, n = rows @ weights + bonus * inverse_norm(rows, inverse), np.linalg.cholesky(inverse), len(rows)
        parts, right = [np.ones((1, n)), -np.eye(n)], [1.0, *np.zeros(n)]
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
        for tau, tau_s, moment in self.limits(h, known):
            mean, residual = safe_set_terms(rows, actions.phi_0, tau_s, inverse, moment)
            parts += [mean[None], -self.beta * (residual @ factor).T]  # (τ − mean·θ, β residual·θ) lies in the cone
            right += [tau - 1e-9 * (tau - tau_s), *np.zeros(rows.shape[1])]
            cones.append(clarabel.SecondOrderConeT(1 + rows.shape[1]))
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.tol_feas, settings.tol_gap_abs, settings.tol_gap_rel = False, 1e-12, 1e-12, 1e-12
        goal = (scores.mean() - scores) / max(float(np.ptp(scores)), 1e-9)
        told = csc_matrix((n, n)), goal, csc_matrix(np.vstack(parts)), np.array(right)
        solved = np.maximum(clarabel.DefaultSolver(*told, cones, settings).solve().x, 0.0)
        return -1, 1.0, float(scores @ solved / solved.sum()), (solved / solved.sum(), solved @ rows / solved.sum())

    def drawn(self, known: KnownState, row: int, length: float, score: float, mixture: Any) -> Any:
        """Draw the action from θ, the last row of which is the safe action where the set is a star."""
        (theta, mean), safe = mixture, known.actions.baseline % len(mixture[0])
        row = min(int(np.searchsorted(theta.cumsum(), self.rng.random(), side="right")), len(theta) - 1)
        return -1 if row == safe else row, 1.0, score, Mixture(theta, float(theta[safe]), mean)
