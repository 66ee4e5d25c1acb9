"""Algorithm 1 and its two relatives, transcribed word for word: loops, full history, pseudo-inverses, line search.

Slow on purpose, and shares no code with `tether.kernels`. Everything is recomputed from the history at every plan.
Symbols are the paper's: f is φ(s, a_0(s)), `unit` is φ̃(s, a_0(s)), `tau_s` is τ_h(s).
"""

from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np

BISECTIONS = 30
PSEUDO_INVERSE_CUT = 1e-10


@dataclass(frozen=True)
class Seen:
    """One row of the history."""

    step: int
    state: int
    feature: np.ndarray
    reward: float
    costs: tuple | None
    next_state: int


@dataclass(frozen=True)
class Choice:
    """What line 9 plays, and every score it was compared with (index -1 is the safe action)."""

    ray: int
    length: float
    score: float
    scores: dict
    lengths: dict


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """paper: one β and κ. certified and directional: docs/theory.md section 5, with the radius of section 4."""

    explorer: str
    value_radius: float
    value_ridge: float
    cost_ridge: float
    cost_radius: float | None  # None is the mixture radius of the default
    conditioned: bool = True
    remembers: bool = False  # the safe costs of visited states, too: docs/theory.md section 17
    pooled: bool = False


class Literal:
    """The agent. `observe` only appends; `plan` recomputes everything."""

    def __init__(self, problem, states, recipe):
        self.problem = problem
        self.recipe = recipe
        self.known = [problem.look_up(s) for s in range(states)]
        self.history = []
        self.choices = {}
        self.values = {}
        self.plans = 0

    def observe(self, transition):
        cost = transition.cost
        costs = None if cost is None else tuple(np.atleast_1d(cost).tolist())
        self.history.append(
            Seen(
                transition.step,
                transition.state,
                transition.feature.copy(),
                transition.reward,
                costs,
                transition.next_state,
            )
        )

    def plan(self):
        """Lines 4-7: for h = H..1, the safe sets and Q for every state."""
        horizon = self.problem.horizon
        self.plans += 1
        self.values = {(horizon, s): 0.0 for s in range(len(self.known))}
        for h in reversed(range(horizon)):
            gram, weights = self.value_regression(h)
            inverse = np.linalg.inv(gram)
            for s in range(len(self.known)):
                choice = self.choose(h, s, weights, inverse)
                self.choices[h, s] = choice
                limit = horizon if self.recipe.explorer == "paper" else horizon - h
                self.values[h, s] = min(choice.score, limit)

    def rows(self, h):
        """The part of the history that belongs to step h."""
        return [row for row in self.history if self.recipe.pooled or row.step == h]

    def value_regression(self, h):
        """A_h = λI + Σ φφᵀ and w_h = A_h^{-1} Σ φ (r + max Q_{h+1}(s'))."""
        rows, d = self.rows(h), self.problem.dimension
        phi = np.array([row.feature for row in rows]).reshape(-1, d)
        targets = np.array([row.reward + self.values[h + 1, row.next_state] for row in rows])
        gram = self.recipe.value_ridge * np.eye(d) + phi.T @ phi
        return gram, np.linalg.inv(gram) @ (phi.T @ targets)

    def measured(self, h, j):
        """The features (n, d) and the costs (n,) of step h that were measured."""
        rows = [row for row in self.rows(h) if row.costs is not None]
        phi = np.array([row.feature for row in rows]).reshape(-1, self.problem.dimension)
        return phi, np.array([row.costs[j] for row in rows])

    def plain_cost_regression(self, h, j):
        """A_h of the costs and ĝ = A_h^{-1} Σ zφ."""
        phi, z = self.measured(h, j)
        gram = self.recipe.cost_ridge * np.eye(self.problem.dimension) + phi.T @ phi
        return gram, np.linalg.inv(gram) @ (phi.T @ z)

    def radius(self, gram, j):
        """β_c: the tuned number, or σ²(log det(A/λ) + 2 log(H·M/δ)) + λB² under a root."""
        if self.recipe.cost_radius is not None:
            return self.recipe.cost_radius
        p, ridge = self.problem, self.recipe.cost_ridge
        stages = 1 if self.recipe.pooled else p.horizon
        log_det = np.linalg.slogdet(gram / ridge)[1]
        union = log(stages * len(p.constraints) / p.confidence)
        return sqrt(p.noise[j] ** 2 * (log_det + 2.0 * union) + ridge * p.gamma_norm[j] ** 2)

    def cost_interval(self, h, s, j):
        """x -> (lower, upper, width) of the cost of feature x under constraint j, and the radius; None is an alarm."""
        f = self.known[s].actions.phi_0
        plain_gram, plain = self.plain_cost_regression(h, j)
        beta = self.radius(plain_gram, j)
        if not self.recipe.conditioned:
            inverse = np.linalg.inv(plain_gram)

            def unconditioned(x):
                width = sqrt(max(x @ inverse @ x, 0.0))
                return plain @ x - beta * width, plain @ x + beta * width, width

            return unconditioned, beta
        if self.recipe.remembers:
            return self.remembering_interval(h, s, j, plain_gram, plain, beta)
        tau_s = self.known[s].baseline_cost[h, j]
        if self.recipe.explorer != "paper":  # docs/theory.md section 4: β_s² = β_c² − (⟨ĝ, f⟩ − τ_s)²/g00
            square = beta**2 - (plain @ f - tau_s) ** 2 / (f @ np.linalg.inv(plain_gram) @ f)
            if square < 0.0:
                return None, beta
            beta = sqrt(square)
        norm = np.linalg.norm(f)
        unit = f / norm
        onto = np.outer(unit, unit)  # Φ_0
        away = np.eye(len(f)) - onto  # Φ_0^⊥
        phi, z = self.measured(h, j)
        rests = phi @ away  # Φ_0^⊥ φ of each row
        gram = self.recipe.cost_ridge * away + rests.T @ rests  # A_{h,s}
        moment = rests.T @ (z - (phi @ unit) / norm * tau_s)  # r_{h,s}
        inverse = np.linalg.pinv(gram, rcond=PSEUDO_INVERSE_CUT, hermitian=True)
        gamma = inverse @ moment  # γ_{h,s}

        def conditioned(x):
            rest = away @ x
            middle = ((onto @ x) @ unit) / norm * tau_s + gamma @ rest
            width = sqrt(max(rest @ inverse @ rest, 0.0))
            return middle - beta * width, middle + beta * width, width

        return conditioned, beta

    def remembering_interval(self, h, s, j, gram, plain, beta):
        """`cost_interval` where every visited state's safe cost is a fact, beside that of the state itself."""
        visited = {(row.step, row.state) for row in self.rows(h)} | {(h, s)}
        facts = np.array([self.known[state].actions.phi_0 for _, state in visited])
        told = np.array([self.known[state].baseline_cost[step, j] for step, state in visited])
        _, sizes, directions = np.linalg.svd(facts)
        rank = int((sizes > 1e-8 * sizes[0]).sum())
        given = np.linalg.pinv(facts, rcond=1e-8) @ told  # the part of γ* that the facts determine
        basis = directions[rank:].T  # what they leave open
        inside = np.linalg.inv(basis.T @ gram @ basis)
        conditioned = given + basis @ inside @ basis.T @ gram @ (plain - given)
        if self.recipe.explorer != "paper":
            square = beta**2 - (plain - conditioned) @ gram @ (plain - conditioned)
            if square < 0.0:
                return None, beta
            beta = sqrt(square)

        def interval(x):
            rest = basis.T @ x
            width = sqrt(max(rest @ inside @ rest, 0.0))
            return conditioned @ x - beta * width, conditioned @ x + beta * width, width

        return interval, beta

    def choose(self, h, s, weights, inverse):
        """Eq. (9), Eq. (10) and line 9 at one state."""
        p, explorer = self.problem, self.recipe.explorer
        actions = self.known[s].actions
        f = actions.phi_0
        intervals, widths_scale, gap = [], 0.0, inf
        for j in range(len(p.constraints)):
            interval, beta = self.cost_interval(h, s, j)
            if interval is None:
                score = weights @ f + self.recipe.value_radius * sqrt(f @ inverse @ f)
                return Choice(-1, 0.0, score, {-1: score}, {})
            intervals.append(interval)
            here = p.threshold[j] - self.known[s].baseline_cost[h, j]
            if not self.recipe.conditioned:
                here = max(p.gap_floor, p.threshold[j] - interval(f)[1], 1e-9)
            gap = min(gap, here)
            widths_scale = max(widths_scale, 2.0 * (p.horizon - h) * beta / here)
        kappa = 2.0 * p.horizon / gap + 1.0
        norm_scale = (kappa if explorer == "paper" else 1.0) * self.recipe.value_radius
        widths_scale = widths_scale if explorer == "certified" else 0.0

        def score_of(x, width):
            return weights @ x + norm_scale * sqrt(max(x @ inverse @ x, 0.0)) + widths_scale * width

        scores, lengths = {-1: score_of(f, 0.0)}, {}
        for i, end in enumerate(actions.endpoints):
            if i == actions.baseline:
                continue
            lengths[i] = min(self.reach(b, j, f, end, actions.is_star, 1) for j, b in enumerate(intervals))
            if lengths[i] <= 0.0:
                continue
            optimistic = lengths[i]
            if self.optimism_share() > 0.0 and actions.is_star:
                optimistic = min(self.reach(b, j, f, end, True, 0) for j, b in enumerate(intervals))
            width = intervals[0](end)[2]
            here, there = (score_of(f + at * (end - f), at * width) for at in (lengths[i], optimistic))
            scores[i] = (1.0 - self.optimism_share()) * here + self.optimism_share() * there
        best = max(scores, key=lambda i: (scores[i], i == -1, -i))
        return Choice(best, lengths.get(best, 0.0), scores[best], scores, lengths)

    def optimism_share(self):
        """How much the optimistic length counts: all in `directional`, and in plans 1, 4, 9, … of `adaptive`."""
        if self.recipe.explorer == "adaptive":
            return 1.0 if self.plans in {n * n for n in range(1, 100)} else 0.25
        return 1.0 if self.recipe.explorer == "directional" else 0.0

    def reach(self, interval, j, f, end, is_star, side):
        """The largest α in [0, 1] with interval(f + α(end − f))[side] <= τ, by line search; 0 if there is none."""
        tau = self.problem.threshold[j]

        def over(alpha):
            return interval(f + alpha * (end - f))[side] - tau

        if over(1.0) <= 0.0:
            return 1.0
        if not is_star:
            return 0.0
        low, high = 0.0, 1.0
        if not self.recipe.conditioned and side == 1:  # convex, and a_0 itself may not be proven: start at the lowest
            left, right = 0.0, 1.0
            for _ in range(BISECTIONS):
                a, b = left + (right - left) / 3.0, right - (right - left) / 3.0
                left, right = (left, b) if over(a) <= over(b) else (a, right)
            low = left
        if not self.recipe.conditioned and over(low) > 0.0:
            return 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if over(middle) <= 0.0 else (low, middle)
        return low
