"""ROFUL, restrained optimism in the face of uncertainty for linear bandits (Hutchinson, Turan, Alizadeh 2024)."""

import numpy as np

from tether.agents.relatives import Row
from tether.agents.relatives.bandit import DOWN, Pick, RayBandit, Rays, at, length_under


class Roful(RayBandit):
    """Directional optimism: trust the optimistic length to pick a direction, play it as far as is certified.

    Setting: ⟨γ*, x⟩ <= τ in every round, on rays {αu_i : 0 <= α <= 1} from a safe origin, ‖θ*‖, ‖γ*‖ <= S.
    Rule, with one β for rewards and costs and λ = 1:

        α_i^opt = min(1, τ/(⟨ĝ,u_i⟩ − β‖u_i‖)),  1 where that is negative
        i* = argmax α_i^opt (⟨θ̂,u_i⟩ + β‖u_i‖),  x̃ = α^opt u_{i*};  x̃ = 0 if the maximum is negative
        play max(μ, min(1, (τ/S)/‖x̃‖)) x̃  with μ = min(1, τ/(⟨ĝ,x̃⟩ + β‖x̃‖)):  the ball of radius τ/S is safe anyway
        β_t = σ √(d log((1 + tL²/λ)/(δ/2))) + √λ S,  ‖x‖ <= L, which is 1 in their code

    Citation: S. Hutchinson, B. Turan, M. Alizadeh, "Directional Optimism for Safe Linear Bandits", AISTATS 2024, PMLR
    238. Rule read in the authors' code (shutch1/Directional-Optimism-for-Safe-Linear-Bandits) and text.

    Deviations: none known; rounding is toward safety.
    """

    kind = "roful"
    row = Row(
        title="ROFUL",
        citation="Hutchinson, Turan, Alizadeh: Directional Optimism for Safe Linear Bandits, AISTATS 2024",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r",
        source="code",
        anchor="R_T/√T of their Figure 2: 0.65 and 7.4 (published), see the badges of the league",
        horizon=1,
    )

    def choose(self, rays: Rays) -> Pick:
        """The direction that is best at its optimistic length, at the certified one."""
        radius, tau = self.radius(rays), rays.threshold[..., 0]
        bonus = radius * rays.width
        hoped = length_under(rays.cost - bonus, rays.threshold)
        scores = hoped * (rays.reward + bonus)
        ray = scores.argmax(axis=-1)
        score, length = at(scores, ray), at(hoped, ray)
        end = np.linalg.norm(rays.ends, axis=-1)
        bound, known = at(rays.cost + bonus, ray), self.norm * at(end, ray)  # of the ray's end, learned and declared
        certified = np.minimum(length, np.maximum(length_under(bound, tau), DOWN * tau / np.maximum(known, tau)))
        certified = np.where(score >= 0.0, certified, 0.0)
        return Pick(ray, certified, certified * np.minimum(bound, known), np.maximum(score, 0.0))


METHODS = (Roful,)
