"""NCS-LSVI: first learn near the safe action, then be optimistic within what is certified. The 2025 repair."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tether.agents.certified import CertifiedAgent, CertifiedSet
from tether.agents.relatives import RelativeConfig, Row
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.kernels.compiled import replaced
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, Origin, State


@dataclass(frozen=True, kw_only=True)
class NcsLsviConfig(RelativeConfig):
    """K' episodes of the first phase, its ε, and β₁.

    first_phase K': their figure has 1, 300 and 2000; None takes a fifth of the run, at most 300, and 300 where
    `episodes` is unknown. neighbourhood ε: how far from φ(s, a_0) its actions may lie; None takes every certified one,
    which without data are those within (τ − τ_s)/B. value_radius "theorem" is dH√log(dT/δ), which needs `episodes`.
    """

    first_phase: int | None = None
    neighbourhood: float | None = None
    value_radius: float | Literal["theorem"] = "theorem"
    episodes: int | None = None

    @property
    def explored(self) -> int:
        """K'."""
        if self.first_phase is not None:
            return self.first_phase
        return 300 if self.episodes is None else min(300, self.episodes // 5)

    def core(self) -> SlucbConfig:
        """Optimism by widths within the certified set, λ = 1, OFUL's radius."""
        value = self.value_radius if self.value_radius == "theorem" else self.scale * self.value_radius
        return SlucbConfig(
            explorer="certified",
            cost_radius="classical",
            cost_ridge=1.0,
            value_ridge=1.0,
            condition_on="state",
            value_radius=value,
            c_beta=self.scale,
            episodes=self.episodes,
            replan="every-episode",
        )


class NcsLsvi(CertifiedAgent):
    """Two phases: random actions near the safe one, then LSVI-UCB with a second bonus for what the safe set may hide.

    Setting: each step's cost under τ with high probability; the set of features need not be star-convex, but around
    φ(s, a_0(s)) there are actions to learn from. Known: a_0, its cost, that neighbourhood.

    Rule: for K' episodes play at random within it. Then A_h^k(s) = {a : bound on c(s, a) <= τ} and, with the gap
    Δ = τ − τ_s, which is the paper's τ (its a_0 costs 0),

        Q(s, a) = ⟨w, φ⟩ + β₁‖φ‖ + (2H/Δ) β₂‖φ − φ_0‖,    a = argmax over A_h^k(s),   V clipped.

    Citation: A. Roknilamouki, A. Ghosh, M. Shi, F. Nourzad, E. Ekici, N. Shroff, "Provably Efficient RL for Linear MDPs
    under Instantaneous Safety Constraints in Non-Convex Feature Spaces", ICML 2025, arXiv 2502.18655. The abstract and
    a third party's summary were read: both phases, the ε-neighbourhood, the least-squares safe set, the bonus with its
    2H/τ, the argmax. The constants of β₁ and β₂ and the theorem's K' could not be read.

    Deviations: K' is a fifth of the run; bound and width are SLUCB-QVI's, conditioned on the known cost of a_0 instead
    of centred at φ_0; 2(H − h + 1) for 2H; in stars the certified lengths are played; the constant of β₁ is taken as 1.
    """

    kind = "ncs-lsvi"
    config_type: ClassVar[type[NcsLsviConfig]] = NcsLsviConfig
    row: ClassVar[Row] = Row(
        title="NCS-LSVI",
        citation="Roknilamouki et al., ICML 2025, arXiv 2502.18655",
        track="step",
        constraint="c_h(s, a) <= τ at every step, with high probability",
        told="K' of its first phase, the number of episodes K",
        source="summary",
        anchor="no figure: the intersection of their experiments is described, not published",
        deviations=(
            "K' is a fifth of the run, at most 300",
            "widths are conditioned on the known cost of a_0, not centred at φ_0",
            "2(H − h + 1) for 2H in the second bonus",
            "the constant of β₁ is 1",
        ),
        memory="its constants",
    )

    def __init__(
        self,
        problem: Problem,
        config: NcsLsviConfig | None = None,
        *,
        seed: int = 0,
        core: SlucbQvi | None = None,
    ) -> None:
        self.settings = config or NcsLsviConfig()
        super().__init__(problem, seed=seed, core=core or SlucbQvi(problem, self.settings.core()))
        if problem.baseline_cost is None:
            raise InputError("NCS-LSVI explores around a safe action of known cost: give the Constraint its safe_cost.")
        scale = self.settings.scale
        self.core.rules = replaced(
            self.core.rules,
            reduces_radius=False,
            noise=scale * np.array(problem.noise),  # OFUL's radius is linear in (σ, B)
            gamma_norm=scale * np.array(problem.gamma_norm),
        )
        origin: Origin = "theorem" if scale == 1.0 else "tuned"
        self.core.relabel(origin, origin if self.settings.value_radius == "theorem" else "tuned")
        self.draws = np.zeros(problem.horizon)

    def prepare(self, rng: np.random.Generator) -> None:
        """Draw one number per step, for episodes of the first phase."""
        self.draws = rng.random(self.problem.horizon)

    def choose(self, options: CertifiedSet) -> int:
        """The first phase: any certified action near a_0, each as likely."""
        reach, safe = self.settings.neighbourhood, options.features[-1]
        near = [
            row for row in options.certified if reach is None or np.linalg.norm(options.features[row] - safe) <= reach
        ]
        return near[int(self.draws[options.step] * len(near))]

    @property
    def is_second_phase(self) -> bool:
        """Whether what the core plans is played."""
        return bool(self.core.current.made[0] > self.settings.explored)

    def _answer(self, step: int, state: State) -> tuple[Decision, KnownState]:
        if self.is_second_phase:
            return self.core.peek(step, state, time=self.core.time), self.core.look_up(state)
        return super()._answer(step, state)

    def peek_feature(self, step: int, state: State) -> Array:
        """φ of what `act` would play, without its evidence."""
        return self.core.peek_feature(step, state) if self.is_second_phase else self.peek(step, state).feature


METHODS = (NcsLsvi,)
