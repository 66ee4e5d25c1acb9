"""HP-UCB: a limit on the cost that is measured, not on its mean (Dragazis, Pacchiano 2026)."""

import numpy as np

from tether.agents.relatives import Row
from tether.agents.relatives.bandit import Pick, RayBandit, Rays, best_of, length_under
from tether.errors import InputError
from tether.problem.problem import Problem
from tether.records import Array


class HpUcb(RayBandit):
    """Leave room for the noise, which grows with what is played, and regress what is left of it per unit.

    Setting: C_t = α(⟨γ*, X⟩ + ξ) with σ-sub-Gaussian ξ; P(C_t <= τ) >= 1 − η in every round. Rule, with λ = 1:

        regress C/α and R/α on X, over rounds with α > 0
        α_i = min(1, τ/(⟨ĝ,u_i⟩ + β‖u_i‖ + σ√(2 log(1/η)))),  1 where that is negative
        play argmax α_i (⟨θ̂,u_i⟩ + β_r‖u_i‖);  the origin if the maximum is negative
        β_t = σ √(d log((1 + tL²/λ)/(δ/2))) + √λ S over t such rounds;  β_r with the noise of rewards

    Citation: S. Dragazis, A. Pacchiano, "Safety by Design: Realized-Cost Constraints for Contextual Bandits with
    Continuous Actions", August 2026: Algorithm 1, whose text was read.

    Deviations: the paper has one context, so one ray, per round, and any increasing g(α) where α stands here; its first
    round trusts the norms alone; δ/2 is its δ'. All rays must have one norm, L, from which α is read off.
    """

    kind = "hp-ucb"
    limit = "realised"
    row = Row(
        title="HP-UCB",
        citation="Dragazis, Pacchiano: Safety by Design, August 2026",
        track="realised",
        constraint="P(C_t ≤ τ) ≥ 1 − η in every round",
        told="‖θ*‖ ≤ B, too; the reward noise σ_r",
        source="text",
        anchor="Table 1, τ = 0.5: measured costs over τ in 0.015 % of 10 × 10⁴ rounds (published: 0.02 %), without "
        "room for the noise in 20.6 % (20.2 %). σ and η are not said there: with σ = 1, η = 0.01",
        horizon=1,
        deviations=("several rays per round", "g(α) = α", "the first round is played by the same rule"),
    )

    def __init__(self, problem: Problem, config: object = None, *, seed: int = 0) -> None:
        super().__init__(problem, config, seed=seed)
        self.noise = problem.noise[0]
        if not problem.noise_scales:
            raise InputError("HP-UCB is for noise that grows with the length played: Realised(…, noise_scales=True).")
        self.room = float(problem.quantile[0])  # σ√(2 log(1/η)) at the end of a ray

    def reward_radius(self, rays: Rays) -> float:
        """β_r: rewards may be less noisy than costs, or exact."""
        return self.classical(rays.round, self.confidence / 2.0, self.problem.reward_noise)

    def choose(self, rays: Rays) -> Pick:
        """The best ray at the length that leaves room for its noise."""
        norms = np.linalg.norm(rays.ends, axis=-1)
        if not np.allclose(norms, self.problem.feature_norm):
            raise InputError(
                f"HP-UCB reads the length off the norm of what was played, so every ray must have the norm "
                f"{self.problem.feature_norm:g} (feature_norm), but norms are {norms.min():.6g} to {norms.max():.6g}."
            )
        bounds = rays.cost + self.radius(rays) * rays.width + self.room
        lengths = length_under(bounds, rays.threshold)
        return best_of(lengths, bounds, lengths * (rays.reward + self.reward_radius(rays) * rays.width))

    def learn(self, feature: Array, outcomes: Array) -> None:
        """What a unit of the ray earns and costs; nothing is learned where nothing was played."""
        length = float(np.linalg.norm(feature)) / self.problem.feature_norm
        if length > 0.0:
            self.sums.add(feature / length, outcomes / length)


METHODS = (HpUcb,)
