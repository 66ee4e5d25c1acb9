"""DOSS / LSVI-AE: doubly optimistic. Optimism about rewards *and* about costs, and no way back to what is certified."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from tether.agents.agent import LeastSquaresAgent, LeastSquaresConfig, plain_rules
from tether.agents.relatives import RelativeConfig, Row
from tether.agents.relatives.episodic import solved
from tether.errors import InputError
from tether.kernels.model import BASELINE_BEST, BEST, CLASSICAL, MEASURED, Plan, new_plan
from tether.kernels.radius import classical_radius, cost_radius, value_radius_at
from tether.problem.problem import KnownState, Problem
from tether.records import Array

ON_THE_LIMIT = 1e-9
"""A root of l(α) = τ counts as under τ when rounding puts it this far over."""


@dataclass(frozen=True, kw_only=True)
class DossConfig(RelativeConfig, LeastSquaresConfig):
    """λ = 1 in both regressions. β_v "theorem": β_c's for bandits, else c_β dH√log(dT/δ), which needs `episodes`."""

    value_radius: float | Literal["remaining", "unseen", "theorem", "mixture"] = "theorem"


class Doss(LeastSquaresAgent):
    """The best action among those that *may* be safe, played at full length: what the retreat to the certified saves.

    Setting: each step's cost under τ; nothing safe is known. Violations are promised to grow like √K only.

    Rule: with ĝ_j and w_h the ridge estimates at λ = 1, play the argmax of ⟨w, x⟩ + β_v‖x‖ over the optimistic set
    {x : ⟨ĝ_j, x⟩ − β_c‖x‖ <= τ_j for all j}; where that is empty, the x with the least excess. For H = 1 this is DOSS,
    whose β holds for the reward and all M costs at once: σ √(log det(A/λ) + 2 log((M + 1)/δ)) + √λ S, with the σ of
    each. For H > 1 it is LSVI-AE, argmax Q(s, a) − Z(⟨ĝ, φ⟩ − β_c‖φ‖ − τ)_+, in the limit Z → ∞ of its growing penalty.
    Along a ray ⟨ĝ, x⟩ − β‖x‖ is concave and the score convex, so that the maximum is at one of a ray's ends or where
    the lower bound meets τ: the roots of a quadratic.

    Citation: A. Gangrade, T. Chen, V. Saligrama, "Safe Linear Bandits over Unknown Polytopes", COLT 2024, PMLR 247,
    arXiv 2209.13694, whose text was read (section 3, Appendix B.1); H. Wei, X. Liu, L. Ying, "Safe Reinforcement
    Learning with Instantaneous Constraints: The Role of Aggressive Exploration", AAAI 2024, arXiv 2312.14470: its first
    page was read, that it knows nothing safe and explores aggressively; its penalty Z is from memory.

    Deviations: DOSS prints ½ log det^½ where the theorem that it cites (Abbasi-Yadkori et al. 2011) has 2 log det^½,
    which is taken; Z = ∞ from the start; the constant c_β of LSVI-AE's bonus is taken as 1; values are clipped at
    H − h + 1 steps to go.
    """

    kind = "doss"
    config_type = DossConfig
    config: DossConfig
    plans_itself = True
    row: ClassVar[Row] = Row(
        title="DOSS / LSVI-AE (Z = ∞)",
        citation="Gangrade, Chen, Saligrama, COLT 2024, arXiv 2209.13694; Wei, Liu, Ying, AAAI 2024, arXiv 2312.14470",
        track="step",
        constraint="Σ_t (c_t − τ)_+ = O(√T): violations are allowed while learning",
        told="for H = 1 ‖θ*‖ ≤ B, too, and the reward noise σ_r; else the number of episodes K; neither a_0 nor τ_s",
        source="text",
        anchor="DOSS, Figure 7 (Example 7, 30 × 10⁴ rounds): violations 857 ± 44 (figure: 850 ± 150), regret −1661 "
        "(−1700): consistent, not reproduced. The size of their sets is not said; readings of it gave 554 to 2606",
        deviations=(
            "LSVI-AE's rule is from memory",
            "DOSS's ½ under the root of its radius is read as the 2 of the theorem that it cites",
            "LSVI-AE's penalty Z is infinite from the start",
            "the constant of LSVI-AE's bonus is 1",
            "values are clipped at H − h + 1",
        ),
        memory="LSVI-AE's rule (H > 1)",
    )

    def __init__(self, problem: Problem, config: DossConfig | None = None, *, seed: int = 0) -> None:
        config = (config or DossConfig()).settled(problem, mixes=self.mixes)
        if config.backup == "lean" or problem.final_reward is not None:
            raise InputError("Doss plans tables of states where every episode goes on: list them; no final_reward.")
        self.is_doss = problem.horizon == 1 and config.value_radius in ("theorem", "mixture")
        if self.is_doss:
            config = replace(config, value_radius="mixture")  # follows the data, and needs no `episodes`
        rules = plain_rules(
            problem,
            config,
            conditioning=MEASURED,
            cost_error=np.full(len(problem.constraints), np.inf),
            radius_kind=CLASSICAL,
            events=config.stages(problem) * (len(problem.constraints) + self.is_doss) / problem.confidence,
        )
        self.limit = rules.threshold.copy()
        rules.threshold[:] = np.inf  # no step is certified, and evidence says so
        super().__init__(problem, config, rules, origins=("none", "theorem" if config.scale == 1.0 else "tuned"))

    def make_plan(self) -> None:
        """Backwards in h: w_h, the optimistic sets, and the choice in every known state."""
        plan, known, following = self.current, self.known, np.zeros(len(self.known))
        for step in reversed(range(self.problem.horizon)):
            stage = self.stage_of(step)
            moment = self.values.reward_moment[stage] + following @ self.values.transition_moment[stage, : len(known)]
            plan.weights[step] = solved(self.values.factor[stage], moment)
            if known:
                self._choose(plan, step, step, known)
                following = plan.values[step, : len(known)]
        plan.made[0] += 1
        plan.planned[0] = len(known)

    def choose_alone(self, step: int, known: KnownState) -> Plan:
        """The same choice in a state off the plan, with the last plan's weights."""
        plan = new_plan(1, 1, len(self.problem.constraints), self.problem.dimension)
        plan.weights[0] = self.current.weights[step]
        self._choose(plan, 0, step, [known])
        return plan

    def _reward_radius(self, step: int, stage: int) -> float:
        """β_v before its scale."""
        rules, values = self.rules, self.values
        if not self.is_doss:
            return float(value_radius_at(values, rules, step, stage))
        norm = max(self.problem.gamma_norm)  # S bounds ‖θ*‖, too
        radius = classical_radius(values.log_det[stage], rules.reward_noise, rules.events, values.ridge, norm)
        return float(radius)

    def _choose(self, plan: Plan, at: int, step: int, known: list[KnownState]) -> None:
        """Row, length, score and value of some states into row `at` of a plan."""
        (start, ends), stage, scale = _stacked(known), self.stage_of(step), self.config.scale
        states, count = ends.shape[:2]
        constraints = range(len(self.problem.constraints))
        beta = np.array([scale * cost_radius(self.costs, self.rules, stage, j) for j in constraints])
        gamma = np.array([solved(self.costs.factor[stage], self.costs.moment[stage, j]) for j in constraints])
        plan.radius[at], plan.gamma_hat[at] = beta, gamma
        plan.value_radius[at] = scale * self._reward_radius(step, stage)
        cost, value = _Rays(start, ends, self.costs.factor[stage]), _Rays(start, ends, self.values.factor[stage])
        lengths = np.ones((1, states, count))
        if known[0].actions.is_star:
            roots = [cost.roots(gamma[j], beta[j], self.limit[j]) for j in constraints]
            lengths = np.concatenate([np.zeros((1, states, count)), lengths, *roots])  # (2 + 2M, S, N)
        excess = np.max([cost.at(gamma[j], -beta[j], lengths) - self.limit[j] for j in constraints], axis=0)
        scores = value.at(plan.weights[at], plan.value_radius[at], lengths)
        hopeful = excess <= ON_THE_LIMIT
        merit = np.where(hopeful, scores, -np.inf)
        lost = ~hopeful.any(axis=(0, 2))  # nothing may be safe here: as little excess as possible
        merit[:, lost] = -excess[:, lost]
        merit = np.where(np.isfinite(merit), merit, -np.inf)
        flat = np.moveaxis(merit, 1, 0).reshape(states, -1).argmax(axis=1)
        which, ray = np.divmod(flat, count)
        chosen = (which, np.arange(states), ray)
        is_safe = lengths[chosen] == 0.0
        plan.row[at, :states] = np.where(is_safe, -1, ray)
        plan.length[at, :states] = lengths[chosen]
        plan.score[at, :states] = scores[chosen]
        plan.values[at, :states] = np.clip(scores[chosen], 0.0, self.problem.horizon - step)
        plan.reason[at, :states] = np.where(is_safe, BASELINE_BEST, BEST)


class _Rays:
    """Means and norms along the rays of some states: x(α) = f + α(x − f), in the metric of A = UᵀU."""

    def __init__(self, start: Array, ends: Array, factor: Array) -> None:
        self.start, self.ends = start, ends
        whitening = np.linalg.inv(factor)  # one product for all rays; nothing is certified by it
        f = start @ whitening  # (S, d)
        step = ends @ whitening - f[:, None]
        self.constant = (f * f).sum(axis=1)[:, None]
        self.linear = np.einsum("snd,sd->sn", step, f)
        self.square = (step * step).sum(axis=2)

    def at(self, vector: Array, radius: float, lengths: Array) -> Array:
        """⟨v, x(α)⟩ + radius·‖x(α)‖ at lengths (C, S, N)."""
        base = (self.start @ vector)[:, None]
        norm2 = self.constant + lengths * (2.0 * self.linear + lengths * self.square)
        bound: Array = base + lengths * (self.ends @ vector - base) + radius * np.sqrt(np.maximum(norm2, 0.0))
        return bound

    def roots(self, vector: Array, radius: float, limit: float) -> Array:
        """Where (⟨v, x(α)⟩ − τ)² = β²‖x(α)‖², cut to [0, 1], (2, S, N); 1 where there is no root."""
        base = (self.start @ vector)[:, None]
        rise, over = self.ends @ vector - base, base - limit
        a = rise**2 - radius**2 * self.square
        b = rise * over - radius**2 * self.linear
        c = over**2 - radius**2 * self.constant
        with np.errstate(all="ignore"):
            q = -(b + np.copysign(np.sqrt(b * b - a * c), b))  # without cancellation
            found = np.array([q / a, c / q])
        inside: Array = np.where((found > 0.0) & (found < 1.0), found, 1.0)
        return inside


def _stacked(known: list[KnownState]) -> tuple[Array, Array]:
    """φ_0 (S, d) and the candidates (S, N, d) of some states."""
    sets = [each.actions for each in known]
    if len({(each.is_star, each.endpoints.shape) for each in sets}) > 1:
        raise InputError("Doss needs the same kind and number of actions in every state.")
    return np.array([each.phi_0 for each in sets]), np.array([each.endpoints for each in sets])


METHODS = (Doss,)
