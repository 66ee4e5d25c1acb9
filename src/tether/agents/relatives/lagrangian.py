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
    """β of both bonuses: dH√log(dT/δ) ("theorem") or a number."""

    bonus: float | Literal["theorem"] = "theorem"


class LagrangianLsvi(EpisodicAgent):
    """A primal-dual LSVI: softmax over Q_r + Y Q_g, and a multiplier Y that follows the violations.

    Setting: linear MDP, finite actions, E Σ_h g_h >= b over the *run*, here g = 1 − c and b = H(1 − τ). Known: Slater's
    γ, which is `margin`.

    Rule: Q_r = min(r̂ + P̂V_r + β‖φ‖, H), Q_g likewise, π ∝ exp(α(Q_r + Y Q_g)) with α = log|A|√K/(2(1 + ξ + H)), then
    Y ← clip(Y + η(b − V_g(s_1)), 0, ξ) with ξ = 2H/γ and η = ξ/√(KH²); one update per episode.

    Citation: A. Ghosh, X. Zhou, N. Shroff, "Provably Efficient Model-Free Constrained RL with Linear Function
    Approximation", NeurIPS 2022, arXiv 2206.11889. The abstract was read (primal-dual LSVI-UCB with a softmax policy,
    √K regret and violation); the rest of the text could not be, so that the constants are from memory.

    Deviations: V_g is averaged over the start states seen so far; values are clipped at the H − h + 1 steps to go;
    the constant of β is taken as 1.
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
        source="memory",
        anchor="no figure: the paper has no experiments that could be found",
        deviations=(
            "V_g(s_1) is averaged over the start states seen so far",
            "values are clipped at H − h + 1",
            "the constant of β is 1",
        ),
    )

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.price = 0.0  # Y

    def bonus(self) -> float:
        """β."""
        c = self.config
        return c.scale * (self.theorem_bonus() if c.bonus == "theorem" else c.bonus)

    def policy(self) -> Array:
        """π of this episode with the present Y; then Y moves."""
        p, episodes = self.problem, self.config.episodes
        if not episodes:
            raise InputError("Lagrangian LSVI sets its step sizes by K: set episodes=K in the configuration.")
        most = 2.0 * p.horizon / self.margin  # ξ
        temperature = 2.0 * (1.0 + most + p.horizon) / (np.log(self.features.shape[1]) * np.sqrt(episodes))
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
    """Also κ and the largest multiplier; the published experiments have bonus 2 (streaming) or 5 (linear), as OPSE."""

    temperature: float = 0.1
    multiplier: float = 300.0


class LagrangianBisection(LagrangianLsvi):
    """The same optimism with the smallest multiplier that the optimistic utility asks for, found afresh every episode.

    Setting: as LagrangianLsvi, but violations of one episode do not make up for another's: Σ_k (b − V_u)_+ = O(√K).

    Rule: Q_r = r + clip(β‖φ‖ + P̂V_r, 0, H − h + 1), Q_u likewise, π = softmax((Q_r + λQ_u)/κ), the smallest λ in
    [0, 300] with V_u(s_1) >= b; 300 if that fails.

    Citation: A. Ghosh, X. Zhou, N. Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in
    Model-free RL", AISTATS 2024; rule as coded for comparison by Kitamura et al. (Ghosh_algo.py in
    matsuolab/Episode-Wise-Safe-Linear-CMDP).

    Deviations: r and u are ridge estimates unless `told`; V_u(s_1) is the least over the start states seen so far; λ by
    sections into sixteen, not halves.
    """

    kind = "lagrangian-bisection"
    config_type = BisectionConfig
    config: BisectionConfig
    row: ClassVar[Row] = Row(
        title="Lagrangian LSVI, bisection (2024)",
        citation="Ghosh, Zhou, Shroff, AISTATS 2024",
        track="episode",
        constraint="Σ_k (E Σ_h c_h − Hτ)_+ = O(√K)",
        told="not τ_s; in the code also r and c",
        source="code",
        anchor="Kitamura et al.'s streaming, 10 × 10⁴ episodes: violations 2743 ± 82 (figure: 2701 ± 69), regret "
        "279 ± 174 (312 ± 192)",
        deviations=(
            "rewards and costs are estimated, not known",
            "V_u(s_1) is the least over the start states seen so far",
            "λ is found by sections into sixteen",
        ),
    )

    def policy(self) -> Array:
        """π with the smallest λ whose optimistic utility reaches b."""
        c, model, wanted = self.config, self.regressions(), self.problem.horizon - self.budget
        utility = lambda tried: self.worst_start(self.planned(model, tried, c.temperature)[0])  # noqa: E731
        found = smallest_multiplier(utility, wanted, c.multiplier)
        self.price = c.multiplier if found is None else found
        chosen: Array = self.planned(model, np.array([self.price]), c.temperature)[1][..., 0]
        return chosen

    def backup(self, known: Regression, bonus: float, left: int) -> Backup:
        """Q = r + clip(β‖φ‖ + P̂V, 0, H − h + 1), and likewise with u = 1 − c."""
        both = np.array([known.reward, 1.0 - known.cost])
        return Backup(both, np.broadcast_to(bonus * known.width, both.shape), np.full(2, float(left)))


METHODS = (LagrangianLsvi, LagrangianBisection)
