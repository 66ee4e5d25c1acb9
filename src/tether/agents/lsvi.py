"""LSVI-UCB (Jin et al. 2020) in the paper's three roles: unconstrained, told γ*, and penalised."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tether.agents.agent import (
    Fact,
    LeastSquaresAgent,
    LeastSquaresConfig,
    checked_costs,
    checked_reward,
    plain_rules,
    value_origin,
)
from tether.agents.outcome_order import CostOutcome
from tether.errors import InputError
from tether.problem.problem import KnownState, Problem
from tether.records import Origin, Transition


@dataclass(frozen=True, kw_only=True)
class LsviConfig(LeastSquaresConfig):
    """The choices of LSVI-UCB: bonus, ridge and the penalty λ' of the objective r − λ'c (0 is none).

    The others are those of SlucbConfig.
    """

    value_ridge: float = 1.0
    penalty: float = 0.0


class LsviUcb(LeastSquaresAgent):
    """The unsafe baseline. With `true_gamma` (H, d) it knows the safe set; without, it has no constraint.

    Told or not is visible in the signature: only a study may hand over γ*. Its evidence says "exact" or "none".
    """

    kind = "lsvi-ucb"
    config_type: ClassVar[type[LeastSquaresConfig]] = LsviConfig
    config: LsviConfig

    def __init__(
        self, problem: Problem, config: LsviConfig | None = None, *, true_gamma: ArrayLike | None = None
    ) -> None:
        config = (config or LsviConfig()).settled(problem, mixes=self.mixes)
        rules = plain_rules(problem, config, penalty=config.penalty)
        self.gamma_digest = digest_of(true_gamma)
        if true_gamma is None:
            rules.threshold[:] = np.inf
        else:
            shape, gamma = rules.known_gamma.shape, np.asarray(true_gamma, dtype=np.float64)
            shapes = [shape] + ([(shape[0], shape[2])] if shape[1] == 1 else [])
            if gamma.shape not in shapes or not np.isfinite(gamma).all():
                raise InputError(f"true_gamma must be finite with shape (H, M, d) = {shape}, but has {gamma.shape}.")
            if any(problem.drift):
                raise InputError(
                    f"true_gamma is one γ*, but with drift = {max(problem.drift):g} there is none that stays."
                )
            rules.known_gamma[:] = gamma.reshape(shape)
        origin: Origin = "none" if true_gamma is None else "exact"
        super().__init__(problem, config, rules, origins=(origin, value_origin(config)))

    def adjusted(self, known: KnownState) -> KnownState:
        """The safe action's cost follows from γ* here; without γ* there is no constraint and it is 0."""
        return replace(known, baseline_cost=self.rules.known_gamma @ known.actions.phi_0)

    def extras(self) -> dict[str, Any]:
        """What identifies γ*."""
        return {"told_gamma": self.gamma_digest}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """Refuse what was learned with another γ*."""
        if extras["told_gamma"] != self.gamma_digest:
            was = "not told γ*" if extras["told_gamma"] is None else "told another γ*"
            raise InputError(f"this state was saved by an agent that was {was}: pass the same true_gamma as then")


def digest_of(true_gamma: ArrayLike | None) -> str | None:
    """Identifies γ* in a saved state without storing it; None if there was none."""
    if true_gamma is None:
        return None
    return hashlib.sha256(np.ascontiguousarray(true_gamma, dtype=np.float64).tobytes()).hexdigest()


class PenalisedLsvi(LsviUcb):
    """LSVI-UCB on the penalised reward r − λ' Σ_j c_j / τ_j, for any number of constraints. Nothing is certified.

    Each cost is in units of its threshold, so that one λ' = `config.penalty` serves all. With one constraint it is
    LsviUcb with the penalty λ'/τ.
    """

    kind = "lsvi-ucb-penalised"

    def __init__(self, problem: Problem, config: LsviConfig | None = None) -> None:
        config = config or LsviConfig()
        super().__init__(problem, replace(config, penalty=0.0))  # the price is subtracted here, not by the kernels
        self.config = replace(self.config, penalty=config.penalty)
        self.price = config.penalty / np.array(problem.threshold)  # (M,)

    @property
    def watches_outcomes(self) -> bool:
        """The price is subtracted outcome by outcome."""
        return True

    def learn(self, transition: Transition, fact: Fact | None) -> list[CostOutcome]:
        """Learn from r − λ' Σ_j z_j / τ_j."""
        costs = checked_costs(transition.cost, self.problem, needed=True)
        price = 0.0 if costs is None else float(self.price @ costs)
        return super().learn(replace(transition, reward=checked_reward(transition.reward) - price), fact)


def penalised(problem: Problem, config: LsviConfig) -> LsviUcb:
    """The same algorithm in its fastest form: kernels do it alone where there is one constraint."""
    if len(problem.constraints) > 1:
        return PenalisedLsvi(problem, config)
    return LsviUcb(problem, replace(config, penalty=config.penalty / problem.threshold[0]))
