"""Safe-LTS, linear Thompson sampling within the certified set (Moradipari, Amani, Alizadeh, Thrampoulidis 2019)."""

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from tether.agents.relatives import RelativeConfig, Row
from tether.agents.relatives.bandit import Pick, RayBandit, Rays, best_of, length_under
from tether.agents.relatives.genop import HplcLucb
from tether.records import Array


def sampled(rays: Rays, spread: Any) -> Array:
    """⟨θ̃, u_i⟩ for θ̃ = θ̂ + spread · A^{-1/2} η with η standard normal: (..., N)."""
    root = np.linalg.cholesky(rays.inverse)  # any root gives the law
    shift = np.matmul(root, rays.normal[..., None])[..., 0]
    drawn: Array = rays.reward + spread * np.matmul(rays.ends, shift[..., None])[..., 0]
    return drawn


@dataclass(frozen=True, kw_only=True)
class SafeLtsConfig(RelativeConfig):
    """`episodes` is T, over which the paper's δ' = δ/(6T) is spread."""

    episodes: int | None = None


class SafeLts(RayBandit):
    """Thompson sampling whose draws stray far enough to make up for what the pessimistic set hides.

    Setting: ⟨γ*, x⟩ <= τ in every round, on rays from a safe origin, ‖θ*‖, ‖γ*‖ <= S, ‖x‖ <= L. Rule, with λ = 1:

        α_i = min(1, τ/(⟨ĝ,u_i⟩ + β‖u_i‖)),  1 where that is negative
        θ̃ = θ̂ + β A^{-1/2} η,  η ~ N(0, (1 + 2LS/τ)² I);  play argmax α_i ⟨θ̃,u_i⟩, the origin if that is negative
        β_t = σ √(d log(1 + tL²/λ) + 2 log(1/δ')) + √λ S,  δ' = δ/(6T)

    Citation: A. Moradipari, S. Amani, M. Alizadeh, C. Thrampoulidis, "Safe Linear Thompson Sampling with Side
    Information", IEEE Transactions on Signal Processing 2021, arXiv 1911.02156. Only the abstract and the first page
    could be read, and what Hutchinson et al. (2024, section 3.3) and Gangrade et al. (2024, Appendix H) say of it:
    Thompson sampling with a widened set within the pessimistic one. The rule's numbers are from memory.

    Deviations: not known without the text. T is unknown to an agent outside a study, δ' is then δ/6 (t + 1)^{-2}.
    """

    kind = "safe-lts-paper"
    config_type = SafeLtsConfig
    config: SafeLtsConfig
    draws = True
    row = Row(
        title="Safe-LTS",
        citation="Moradipari, Amani, Alizadeh, Thrampoulidis: arXiv 1911.02156, IEEE Trans. Signal Processing 2021",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r; T",
        source="memory",
        anchor="none of its own: neither code nor the text of its experiments could be read. Its form in the code of "
        "Pacchiano et al. is a row of its own",
        horizon=1,
        deviations=("rule from memory of the paper",),
        memory="its rule",
    )

    def radius(self, rays: Rays) -> float:
        """β_t."""
        rounds = self.config.episodes or (rays.round + 1) ** 2
        grown = self.dimension * log(1.0 + rays.round * self.problem.feature_norm**2 / self.ridge)
        root = self.noise * sqrt(grown + 2.0 * log(6.0 * rounds / self.confidence))
        return float(self.config.scale * (root + sqrt(self.ridge) * self.norm))

    def choose(self, rays: Rays) -> Pick:
        """The best certified ray for the drawn reward vector."""
        radius = self.radius(rays)
        bounds = rays.cost + radius * rays.width
        lengths = length_under(bounds, rays.threshold)
        spread = radius * (1.0 + 2.0 * self.problem.feature_norm * self.norm / rays.threshold)
        return best_of(lengths, bounds, lengths * sampled(rays, spread))


class SafeLtsAsCoded(HplcLucb):
    """Safe-LTS as Pacchiano et al. run it against HPLC-LUCB: the same lengths, θ̃ ~ N(θ̂, d f_r² A^{-1}).

    Setting and citation: HPLC-LUCB's; rule read in LinTS of its authors' utilities_linear.py.
    Rule: HPLC-LUCB's α_i and f_r, with λ = 0.1; play argmax α_i ⟨θ̃,u_i⟩.
    Deviations: those of HPLC-LUCB.
    """

    kind = "safe-lts-coded"
    draws = True
    row = Row(
        title="Safe-LTS, as coded",
        citation="the rival in the code of Pacchiano, Ghavamzadeh, Bartlett, arXiv 2401.08016",
        track="step",
        constraint="⟨γ*, x_t⟩ ≤ τ in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r",
        source="code",
        anchor="regret on the circulant instance (d = 5, τ = ½, σ = 0.1, T = 10⁵): 51 828 stored in their repository, "
        "see the badges of the league",
        horizon=1,
        deviations=("those of HPLC-LUCB, as coded",),
    )

    def choose(self, rays: Rays) -> Pick:
        """The best certified ray for the drawn reward vector."""
        bounds = rays.cost + self.radius(rays) * rays.width
        lengths = length_under(bounds, rays.threshold)
        spread = sqrt(self.dimension) * self.reward_radius(rays)
        return best_of(lengths, bounds, lengths * sampled(rays, spread))


METHODS = (SafeLts, SafeLtsAsCoded)
