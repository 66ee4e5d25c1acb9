"""LSVI-UCB (Jin et al. 2020) in the paper's three roles: unconstrained, told γ*, and penalised."""

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from tether.agents.agent import (
    Backup,
    LeastSquaresAgent,
    Replan,
    check_backup,
    checked_costs,
    checked_episodes,
    checked_number,
    checked_radius,
    checked_reward,
    settled,
)
from tether.agents.slucb import VALUE_RADII, value_radius
from tether.errors import InputError
from tether.kernels.model import PLAIN, STATE, TOLD, TUNED, Rules
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Origin, State, Transition


@dataclass(frozen=True, kw_only=True)
class LsviConfig:
    """The choices of LSVI-UCB: bonus, ridge and the penalty λ' of the objective r − λ'c (0 is none).

    `backup` and `replan` are those of SlucbConfig.
    """

    value_radius: float | Literal["remaining", "unseen", "theorem"] = "remaining"
    value_ridge: float = 1.0
    penalty: float = 0.0
    backup: Backup = "auto"
    replan: Replan = "auto"
    pooled: bool = False
    episodes: int | None = None
    c_beta: float = 1.0

    def __post_init__(self) -> None:
        check_backup(self.backup, self.replan)
        object.__setattr__(self, "value_radius", checked_radius("value_radius", self.value_radius, VALUE_RADII))
        object.__setattr__(self, "value_ridge", checked_number("value_ridge", self.value_ridge))
        object.__setattr__(self, "penalty", checked_number("penalty λ'", self.penalty))
        object.__setattr__(self, "c_beta", checked_number("c_beta", self.c_beta))
        object.__setattr__(self, "episodes", checked_episodes(self.episodes))


class LsviUcb(LeastSquaresAgent):
    """The unsafe baseline. With `true_gamma` (H, d) it knows the safe set; without, it has no constraint.

    Told or not is visible in the signature: only a study may hand over γ*. Its evidence says "exact" or "none".
    """

    kind = "lsvi-ucb"

    def __init__(
        self, problem: Problem, config: LsviConfig | None = None, *, true_gamma: ArrayLike | None = None
    ) -> None:
        self.config = config = settled(config or LsviConfig(), problem, self.mixes)
        d, m = problem.dimension, problem.constraints
        gamma = np.zeros((problem.horizon, m, d))
        origin: Origin = "none"
        if true_gamma is not None:
            told = np.asarray(true_gamma, dtype=np.float64)
            shapes = [gamma.shape] + ([(problem.horizon, d)] if m == 1 else [])
            if told.shape not in shapes or not np.isfinite(told).all():
                raise InputError(
                    f"true_gamma must be finite with shape (H, M, d) = {gamma.shape}, but has {told.shape}."
                )
            gamma, origin = told.reshape(gamma.shape), "exact"
        self._told_gamma = true_gamma is not None
        stages = 1 if config.pooled else problem.horizon
        rules = Rules(
            horizon=problem.horizon,
            explorer=PLAIN,
            conditioning=TOLD,
            memory=STATE,
            radius_kind=TUNED,
            reduces_radius=False,
            threshold=np.array(problem.threshold) if self._told_gamma else np.full(m, np.inf),
            noise=np.array(problem.noise),
            gamma_norm=np.array(problem.gamma_norm),
            feature_norm=problem.feature_norm,
            cost_error=np.zeros(m),
            events=1.0,
            tuned_radius=0.0,
            value_radius=value_radius(problem, config.value_radius, config.episodes, config.c_beta, config.value_ridge),
            kappa=np.nan,
            gap_floor=0.0,
            warms_up=False,
            penalty=config.penalty,
            known_gamma=np.ascontiguousarray(gamma),
        )
        super().__init__(
            problem,
            rules,
            stages=stages,
            cost_ridge=1.0,
            value_ridge=config.value_ridge,
            cost_origin=origin,
            value_origin="theorem" if config.value_radius == "theorem" else "tuned",
            backup=config.backup,
            replan=config.replan,
            config={**asdict(config), "told_gamma": digest_of(true_gamma)},
        )

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        settings = {name: value for name, value in config.items() if name != "told_gamma"}
        if config["told_gamma"] != digest_of(told.get("true_gamma")):
            was = "not told γ*" if config["told_gamma"] is None else "told another γ*"
            raise InputError(f"this state was saved by an agent that was {was}: pass the same true_gamma as then")
        return cls(problem, LsviConfig(**settings), **told)

    def _told(self, state: State) -> KnownState:
        """The safe action's cost follows from γ* here; without γ* there is no constraint and it is 0."""
        known = super()._told(state)
        costs: Array = self.rules.known_gamma @ known.actions.phi_0
        return KnownState(known.key, known.actions, costs)


def digest_of(true_gamma: ArrayLike | None) -> str | None:
    """Identifies γ* in a saved state without storing it; None if there was none."""
    if true_gamma is None:
        return None
    return hashlib.sha256(np.ascontiguousarray(true_gamma, dtype=np.float64).tobytes()).hexdigest()


# LSVI-UCB on a penalised objective for any number of constraints: the usual way to *hope* for safety.


class PenalisedLsvi(LsviUcb):
    """LSVI-UCB on r − λ' Σ_j c_j / τ_j: each cost in units of its threshold, so that one λ' serves all. Unsafe.

    `config.penalty` is λ'. With one constraint it is LsviUcb with the penalty λ'/τ.
    """

    kind = "lsvi-ucb-penalised"

    def __init__(self, problem: Problem, config: LsviConfig | None = None) -> None:
        wanted = config or LsviConfig()
        super().__init__(problem, replace(wanted, penalty=0.0))
        self.config = wanted
        self._config = {**asdict(wanted), "told_gamma": None}
        self._price = wanted.penalty / np.array(problem.threshold)  # (M,)

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        settings = {name: value for name, value in config.items() if name != "told_gamma"}
        return cls(problem, LsviConfig(**settings), **told)

    @property
    def watches_outcomes(self) -> bool:
        """The price is subtracted here, outcome by outcome."""
        return True

    def observe(self, transition: Transition) -> None:
        """Learn from r − λ' Σ_j z_j / τ_j."""
        costs = checked_costs(transition.cost, self.problem, needed=True)
        price = 0.0 if costs is None else float(self._price @ costs)
        reward = checked_reward(transition.reward) - price
        super().observe(replace(transition, reward=reward))


def penalised(problem: Problem, config: LsviConfig) -> LsviUcb:
    """The same algorithm in its fastest form: kernels do it alone where there is one constraint."""
    if problem.constraints > 1:
        return PenalisedLsvi(problem, config)
    return LsviUcb(problem, replace(config, penalty=config.penalty / problem.threshold[0]))
