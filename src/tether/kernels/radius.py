"""How large β must be, and κ_h(s): Theorem 1, docs/theory.md sections 4, 5 and 17."""

from math import inf, log, sqrt

import numpy as np

from tether.kernels.compiled import kernel, use
from tether.kernels.model import CLASSICAL, MIXTURE, MOVING, TOLD, TUNED, Rules
from tether.kernels.ridge import Costs, Values


@kernel
def mixture_radius(log_det: float, noise: float, events: float, ridge: float, gamma_norm: float) -> float:
    """β_c of the default: β² = σ² (log det(A/λ) + 2 log(events/δ)) + λB², with `events` = H·M/δ.

    For every fixed γ, exp((⟨γ−γ*, Σεφ⟩ − ½‖γ−γ*‖²_V) / σ²) is a supermartingale when ε is σ-sub-Gaussian.
    Mixing γ over N(0, σ²/λ I) — centred at zero, not at γ* — and Ville's inequality give, at all times at
    once, ‖ĝ − γ*‖²_A <= λ‖γ*‖² + σ² (log det(A/λ) + 2 log(1/δ)). The classical bound (below) puts the two
    terms under separate roots and is larger, by up to a factor √2.
    """
    return np.sqrt(noise * noise * (log_det + 2.0 * np.log(events)) + ridge * gamma_norm * gamma_norm)


@kernel
def grid_radius(
    log_det: float, least: float, mixture_ridge: float, noise: float, events: float, ridge: float, gamma_norm: float
) -> float:
    """β_c from a mixture whose ridge λ_j need not be the estimator's λ: √((v+λ_j)/(v+λ)) r_j + λB/√(v+λ).

    With S = Σεφ and V = Σφφᵀ, mixing the supermartingale over N(0, σ²/λ_j I) *centred at γ** gives at all times at once
    ‖S‖²_{(V+λ_j I)^{-1}} <= r_j² = σ² (log det(I + V/λ_j) + 2 log(events)). Since A(ĝ − γ*) = S − λγ*,
    ‖ĝ − γ*‖_A <= ‖S‖_{A^{-1}} + λ‖γ*‖_{A^{-1}}, and A^{-1} <= (v+λ_j)/(v+λ) (V+λ_j I)^{-1} where v, `least`, is at most
    the least eigenvalue of V. Once λ_j is a fraction of v, log det no longer grows with the data: that is the gain.
    """
    if mixture_ridge < ridge:
        return np.inf
    reach = noise * np.sqrt(log_det + 2.0 * np.log(events))
    return np.sqrt((least + mixture_ridge) / (least + ridge)) * reach + ridge * gamma_norm / np.sqrt(least + ridge)


@kernel
def classical_radius(log_det: float, noise: float, events: float, ridge: float, gamma_norm: float) -> float:
    """β_c as in Theorem 2 of Abbasi-Yadkori et al. (2011): σ √(log det(A/λ) + 2 log(events)) + √λ B."""
    return noise * np.sqrt(log_det + 2.0 * np.log(events)) + np.sqrt(ridge) * gamma_norm


BIASED = 1.0 + 1e-9
"""Σ b² is a plain sum, whose rounding over 10⁶ terms this covers."""


@kernel
def bias_radius(costs: Costs, stage: int, constraint: int) -> float:
    """√(Σ b²): what samples that are off by up to b_i add to ‖ĝ − γ*‖_A, whatever they depend on.

    ĝ moves by GΣφ_i b_i, and ‖Σφ_i b_i‖_G <= √(Σ b_i²), as Φ(λI + ΦᵀΦ)^{-1}Φᵀ has no eigenvalue over 1 (section 12).
    """
    return np.sqrt(costs.bias[stage, constraint]) * BIASED


@kernel
def cost_radius(costs: Costs, rules: Rules, stage: int, constraint: int) -> float:
    """β_c of one stage and constraint, from the log-determinant of its Gram matrix. Facts add nothing to it."""
    if rules.conditioning == TOLD:
        return 0.0
    if rules.radius_kind == TUNED:
        return rules.tuned_radius
    log_det, all_events = costs.log_det[stage], rules.events * costs.split[stage]
    noise, norm = rules.noise[constraint], rules.gamma_norm[constraint]
    bias = bias_radius(costs, stage, constraint)
    if rules.radius_kind == CLASSICAL:
        return classical_radius(log_det, noise, all_events, costs.ridge, norm) + bias
    if rules.radius_kind == MIXTURE:
        return mixture_radius(log_det, noise, all_events, costs.ridge, norm) + bias
    # all the sets hold at once: any may be used at any time. The one root has half of δ, the grid the other half
    if rules.radius_kind == MOVING:  # the target of the one root must stand still, so that two roots have its half
        best = classical_radius(log_det, noise, 2.0 * all_events, costs.ridge, norm)
    else:
        best = mixture_radius(log_det, noise, 2.0 * all_events, costs.ridge, norm)
    events = 2.0 * all_events * costs.grid.shape[1]
    lag = log_det - costs.grid_at[stage]
    for j in range(costs.grid.shape[1]):
        grown_by, ridge = costs.grid_log_det[stage, j] + lag, costs.grid[stage, j]
        best = min(best, grid_radius(grown_by, costs.least[stage], ridge, noise, events, costs.ridge, norm))
    return best + bias


@kernel
def value_radius_at(values: Values, rules: Rules, step: int, stage: int) -> float:
    """β_v: a number of the rules; or, for bandits (H = 1), the root mixture radius of the reward: section 11."""
    if rules.value_events > 0.0:
        log_det = values.log_det[stage]
        return mixture_radius(log_det, rules.reward_noise, rules.value_events, values.ridge, rules.theta_norm)
    return rules.value_radius[step]


@kernel
def kappa(horizon: int, gap: float) -> float:
    """κ_h(s) = 2H/(τ − τ_h(s)) + 1: Lemma 1."""
    return 2.0 * horizon / gap + 1.0


def paper_value_term(dimension: int, horizon: int, total_steps: int, confidence: float, constant: float) -> float:
    """The second term of Theorem 1's β: c_β d H √(log(dT/δ)). c_β is "an absolute constant", never given."""
    return constant * dimension * horizon * sqrt(log(dimension * total_steps / confidence))


def default_cost_ridge(noise: tuple[float, ...], gamma_norm: tuple[float, ...], dimension: int) -> float:
    """λ_c = σ² d / B², the smallest over the constraints: the prior N(0, σ²/λ) then has ‖γ‖² = B² on average."""
    return min(s * s * dimension / (b * b) if b * b > 0.0 else inf for s, b in zip(noise, gamma_norm, strict=True))


def warmup_passed(mean: float, noise: float, episodes: int, rounds: int, threshold: float) -> bool:
    """The appendix's test that a_0(s) was played often enough: τ̂ + 6σ √(log K / n) <= τ (σ = 1 there)."""
    return rounds > 0 and mean + 6.0 * noise * sqrt(log(episodes) / rounds) <= threshold


def warmup_gap(noise: float, episodes: int, rounds: int) -> float:
    """The appendix's lower estimate of τ − τ_h(s) once the test is passed: 4σ √(log K / n)."""
    return 4.0 * noise * sqrt(log(episodes) / rounds)


use(globals())
