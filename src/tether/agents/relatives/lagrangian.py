"""Lagrangian LSVI: what "constrained RL" means to most. One multiplier on the budget of an episode, learned (2022) or
found by bisection (2024); both optimistic about the constraint, so both violate it while they learn."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tether.agents.relatives import Row
from tether.agents.relatives.episodic import (
    Backup,
    EpisodicAgent,
    EpisodicConfig,
    Regression,
    smallest_multiplier,
    softmax_policies,
)
from tether.errors import InputError
from tether.records import Array


@dataclass(frozen=True, kw_only=True)
class LagrangianConfig(EpisodicConfig):
    """β of both bonuses: dH√log(4 log|A| dT/δ) ("theorem") or a number."""

    bonus: float | Literal["theorem"] = "theorem"


class LagrangianLsvi(EpisodicAgent):
    """A primal-dual LSVI: softmax over Q_r + Y Q_g, and a multiplier Y that follows the violations.

    Setting: linear MDP, finite actions, E Σ_h g_h >= b over the *run*, here g = 1 − c and b = H(1 − τ). Known: Slater's
    γ, which is `margin`.

    Rule: Q_r = min(r̂ + P̂V_r + β‖φ‖, H), Q_g likewise, π ∝ exp(α(Q_r + Y Q_g)) with α = log|A|√K/(2(1 + ξ + H)), then
    Y ← clip(Y + η(b − V_g(s_1)), 0, ξ) with ξ = 2H/γ and η = ξ/√(KH²); one update per episode.

    Citation: A. Ghosh, X. Zhou, N. Shroff, "Provably Efficient Model-Free Constrained RL with Linear Function
    Approximation", NeurIPS 2022, arXiv 2206.11889. Its text could not be read. Its abstract was, and what its authors
    say of it in their paper of 2024 (see `LagrangianBisection`): both Q functions and the softmax, Y moved once after
    each episode, at most 2H/γ, by a step of order 1/√(KH²).

    Deviations: α and the form of η and β are from memory; V_g is averaged over the start states seen so far; values are
    clipped at the H − h + 1 steps to go; the constant of β is taken as 1.
    """

    kind = "lagrangian-lsvi"
    config_type = LagrangianConfig
    config: LagrangianConfig
    row: ClassVar[Row] = Row(
        title="Lagrangian LSVI (2022)",
        citation="Ghosh, Zhou, Shroff, NeurIPS 2022, arXiv 2206.11889",
        track="episode",
        constraint="Σ_k (E Σ_h c_h − Hτ) = O(√K) over the run",
        told="Slater's γ, the number of episodes K; not τ_s",
        source="summary",
        anchor="no figure could be reproduced: that of the paper of 2024 (a scheduler, 3 × 10⁵ episodes) does not say "
        "its bonus",
        deviations=(
            "α, η and β are from memory of the paper",
            "V_g(s_1) is averaged over the start states seen so far",
            "values are clipped at H − h + 1",
            "the constant of β is 1",
        ),
        memory="its step sizes and radii",
    )

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.price = 0.0  # Y

    @property
    def episodes(self) -> int:
        """K."""
        if not self.config.episodes:
            raise InputError(f"{type(self).__name__} sets its constants by K: set episodes=K in the configuration.")
        return self.config.episodes

    @property
    def log_actions(self) -> float:
        """log|A|."""
        return float(np.log(self.features.shape[1]))

    def bonus(self) -> float:
        """β."""
        p, c = self.problem, self.config
        if c.bonus != "theorem":
            return c.scale * c.bonus
        terms = 4.0 * self.log_actions * p.dimension * self.episodes * p.horizon / p.confidence
        return c.scale * p.dimension * p.horizon * float(np.sqrt(np.log(terms)))

    def policy(self) -> Array:
        """π of this episode with the present Y; then Y moves."""
        p, episodes = self.problem, self.episodes
        most = 2.0 * p.horizon / self.margin  # ξ
        temperature = 2.0 * (1.0 + most + p.horizon) / (self.log_actions * np.sqrt(episodes))
        utility, policy = self.planned(self.regressions(), np.array([self.price]), temperature)
        rate = most / np.sqrt(episodes * p.horizon**2)
        self.price = float(
            np.clip(self.price + rate * (p.horizon - self.budget - self.initial @ utility[:, 0]), 0.0, most)
        )
        chosen: Array = policy[..., 0]
        return chosen

    def planned(self, model: list[Regression], prices: Array, temperature: float) -> tuple[Array, Array]:
        """Optimistic V_g (S, L) at the first step and π (H, S, A, L) for each price (L,)."""
        bonus = self.bonus()
        backups = [self.backup(known, bonus, len(model) - step) for step, known in enumerate(model)]
        self.current.value_radius[:] = bonus
        values, policy = softmax_policies(model, backups, np.array([np.ones_like(prices), prices]), temperature)
        return values[1], policy

    def backup(self, known: Regression, bonus: float, left: int) -> Backup:
        """Q = clip(r̂ + β‖φ‖ + P̂V, 0, H − h + 1), and likewise with g = 1 − ĉ."""
        both = np.array([known.reward, 1.0 - known.cost])
        return Backup(np.zeros_like(both), both + bonus * known.width, np.full(2, float(left)))

    def extras(self) -> dict[str, Any]:
        """Also Y."""
        return {**super().extras(), "price": self.price}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""
        super().take_extras(extras)
        self.price = float(extras["price"])


@dataclass(frozen=True, kw_only=True)
class BisectionConfig(LagrangianConfig):
    """Also κ and the largest multiplier, by default the theorem's: 4H/(log|A| √K) and √K.

    Kitamura et al. compare with bonus 2 (streaming) or 5 (linear), as OPSE's, temperature 0.1 and multiplier 300.
    """

    temperature: float | Literal["theorem"] = "theorem"
    multiplier: float | Literal["theorem"] = "theorem"


class LagrangianBisection(LagrangianLsvi):
    """The same optimism with the smallest multiplier that the optimistic utility asks for, found afresh every episode.

    Setting: as LagrangianLsvi, but violations of one episode do not make up for another's: Σ_k (b − V_g)_+ = O(√K), and
    no strictly feasible policy is needed.

    Rule: Q_r = min(r̂ + P̂V_r + β‖φ‖, H), Q_g likewise, π ∝ exp(α(Q_r + Y Q_g)) with α = log|A|√K/(4H), the smallest Y in
    [0, √K] with V_g(s_1) >= b; √K if that fails. β = C_1 dH√log(4 log|A| dT/δ), λ = 1.

    Citation: A. Ghosh, X. Zhou, N. Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in
    Model-free RL", AISTATS 2024, PMLR 238: Algorithm 1 and Theorem 1, whose text was read. Also as coded for comparison
    by Kitamura et al. (Ghosh_algo.py in matsuolab/Episode-Wise-Safe-Linear-CMDP), who know r and u and bisect for Y:
    with `told`, Q_r = r + clip(β‖φ‖ + P̂V_r, 0, H − h + 1) as there.

    Deviations: values are clipped at the H − h + 1 steps to go; V_g(s_1) is the least over the start states seen so
    far; Y by sections into sixteen, where the paper goes up in tiny steps and the code halves; C_1 is taken as 1.
    """

    kind = "lagrangian-bisection"
    needs_margin = False
    config_type = BisectionConfig
    config: BisectionConfig
    row: ClassVar[Row] = Row(
        title="Lagrangian LSVI, bisection (2024)",
        citation="Ghosh, Zhou, Shroff, AISTATS 2024",
        track="episode",
        constraint="Σ_k (E Σ_h c_h − Hτ)_+ = O(√K)",
        told="the number of episodes K; not τ_s",
        source="text",
        anchor="Kitamura et al.'s streaming, 10 × 10⁴ episodes: violations 2743 ± 82 (figure: 2701 ± 69), regret "
        "279 ± 174 (312 ± 192), with the constants of their code",
        deviations=(
            "values are clipped at H − h + 1",
            "V_g(s_1) is the least over the start states seen so far",
            "Y is found by sections into sixteen",
            "the constant of β is 1",
        ),
    )

    def constants(self) -> tuple[float, float]:
        """κ = 1/α and the largest Y."""
        c, p = self.config, self.problem
        kappa, most = c.temperature, c.multiplier
        if kappa == "theorem":
            kappa = 4.0 * p.horizon / (self.log_actions * np.sqrt(self.episodes))
        return kappa, float(np.sqrt(self.episodes)) if most == "theorem" else most

    def policy(self) -> Array:
        """π with the smallest Y whose optimistic utility reaches b."""
        (kappa, most), model = self.constants(), self.regressions()
        utility = lambda tried: self.worst_start(self.planned(model, tried, kappa)[0])  # noqa: E731
        found = smallest_multiplier(utility, self.problem.horizon - self.budget, most)
        self.price = most if found is None else found
        chosen: Array = self.planned(model, np.array([self.price]), kappa)[1][..., 0]
        return chosen

    def backup(self, known: Regression, bonus: float, left: int) -> Backup:
        """As LagrangianLsvi's; where r and u = 1 − c are told, they stand outside the clip."""
        if self.told is None:
            return super().backup(known, bonus, left)
        both = np.array([known.reward, 1.0 - known.cost])
        return Backup(both, np.broadcast_to(bonus * known.width, both.shape), np.full(2, float(left)))


METHODS = (LagrangianLsvi, LagrangianBisection)
