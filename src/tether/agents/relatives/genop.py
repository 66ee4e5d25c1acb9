"""The κ rule of safe linear bandits: LC-LUCB, OPLB at deterministic actions, SLUCB-QVI at H = 1; and HPLC-LUCB."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tether.agents.relatives import RelativeConfig, Row
from tether.agents.relatives.bandit import Pick, RayBandit, Rays, best_of, length_under
from tether.records import Origin


class GenOp(RayBandit):
    """Optimism for what the pessimistic set hides: the reward bonus times κ = 1 + 2S/τ ("GenOP" in Hutchinson et al.).

    Setting: ⟨γ*, x⟩ <= τ in every round, on rays from a safe origin, ‖θ*‖, ‖γ*‖ <= S. Rule, with λ = 1:

        α_i = min(1, τ/(⟨ĝ,u_i⟩ + β‖u_i‖)),  1 where that is negative
        play argmax α_i (⟨θ̂,u_i⟩ + κβ‖u_i‖);  the origin if the maximum is negative
        β_t = σ √(d log((1 + tL²/λ)/(δ/2))) + √λ S,  ‖x‖ <= L

    Citation: A. Pacchiano, M. Ghavamzadeh, P. Bartlett, H. Jiang, "Stochastic Bandits with Linear Constraints", AISTATS
    2021, PMLR 130 (OPLB: Algorithm 1 was read); A. Pacchiano, M. Ghavamzadeh, P. Bartlett, arXiv 2401.08016 (LC-LUCB).
    This form was read in the code of Hutchinson et al. 2024 and in their text (section 3.3).

    Deviations: OPLB plays mixtures of contexts' actions and conditions on the cost of x_0 (RSLUCB-QVI at H = 1 does
    that); with a free origin there is nothing to condition on, and on rays from it a mixture is worth no more.
    """

    kind = "genop"
    row = Row(
        title="LC-LUCB / GenOP",
        citation="Pacchiano, Ghavamzadeh, Bartlett, Jiang: AISTATS 2021 (OPLB), arXiv 2401.08016 (LC-LUCB)",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r",
        source="code",
        anchor="R_T/√T in Hutchinson et al.'s Figure 2: 1.94 and 13.0 (published), see the badges of the league",
        horizon=1,
        deviations=(
            "neither OPLB's mixtures nor its conditioning on the cost of x_0: from a free origin both add nothing",
        ),
    )

    def choose(self, rays: Rays) -> Pick:
        """The best certified ray by the inflated bonus."""
        bonus = self.radius(rays) * rays.width
        bounds = rays.cost + bonus
        lengths = length_under(bounds, rays.threshold)
        inflated = 1.0 + 2.0 * self.norm / rays.threshold
        return best_of(lengths, bounds, lengths * (rays.reward + inflated * bonus))


@dataclass(frozen=True, kw_only=True)
class HplcConfig(RelativeConfig):
    """`logged`: the authors' script counts for δ_t only the rounds that it keeps, one in so many."""

    logged: int = 1


class HplcLucb(RayBandit):
    """LC-LUCB as its authors run it on the circulant instance: radii from log det A that shrink δ as 1/t.

    Setting: GenOp's. Rule, with λ = 0.1 and δ_t = 1/(1 + t):

        f = 2 √(2 log(√(det A/λ^d)/δ_t));  f_c = f + √λ S,  f_r = f/min(1, τ) + √λ S
        α_i = min(1, τ/(⟨ĝ,u_i⟩ + f_c‖u_i‖));  play argmax α_i (⟨θ̂,u_i⟩ + f_r‖u_i‖)

    Citation: A. Pacchiano, M. Ghavamzadeh, P. Bartlett, "Contextual Bandits with Stage-wise Constraints", arXiv
    2401.08016. Rule read in the authors' code (pacchiano/constrainedBandits: LinUCB in utilities_linear.py).

    Deviations: the authors' script takes the true norms ‖γ*‖ and ‖θ*‖ for S (on their instance both are 1) and noise 1
    whatever it is; here S is declared and f is in units of σ. Its t counts the rounds that it keeps (`logged`). Its
    first round, one ray at random, is left out; the origin is played where all scores are negative.
    """

    kind = "hplc-lucb"
    config_type = HplcConfig
    config: HplcConfig
    row = Row(
        title="HPLC-LUCB, as coded",
        citation="Pacchiano, Ghavamzadeh, Bartlett: Contextual Bandits with Stage-wise Constraints, arXiv 2401.08016",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r",
        source="code",
        anchor="regret on the circulant instance (d = 5, τ = ½, σ = 0.1, T = 10⁵): 30 683 stored in their repository, "
        "see the badges of the league",
        horizon=1,
        deviations=(
            "S is declared, where the script takes the true norms; f is in units of σ",
            "all rounds count for δ_t, where the script counts those that it keeps",
            "the first round is not played at random",
            "the origin is played where all scores are negative",
        ),
    )

    @property
    def ridge(self) -> float:
        """λ of their script."""
        return 0.1

    @property
    def origin(self) -> Origin:
        """δ_t = 1/(1 + t) adds up to more than any δ: these radii are what the script has, and no theorem."""
        return "tuned"

    def growth(self, rays: Rays) -> Any:
        """f: twice the classical radius without its norm term, (..., 1)."""
        counted = 1.0 + rays.round // self.config.logged  # 1/δ_t
        return 2.0 * self.config.scale * self.noise * np.sqrt(rays.log_det + 2.0 * np.log(counted))

    def radius(self, rays: Rays) -> Any:
        """f_c."""
        return self.growth(rays) + self.config.scale * np.sqrt(self.ridge) * self.norm

    def reward_radius(self, rays: Rays) -> Any:
        """f_r."""
        per_step = self.config.scale * np.sqrt(self.ridge) * self.norm
        return self.growth(rays) / np.minimum(1.0, rays.threshold) + per_step

    def choose(self, rays: Rays) -> Pick:
        """The best certified ray."""
        bounds = rays.cost + self.radius(rays) * rays.width
        lengths = length_under(bounds, rays.threshold)
        return best_of(lengths, bounds, lengths * (rays.reward + self.reward_radius(rays) * rays.width))


METHODS = (GenOp, HplcLucb)
