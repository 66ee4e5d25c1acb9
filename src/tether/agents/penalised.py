"""LSVI-UCB on a penalised objective for any number of constraints: the usual way to *hope* for safety."""

from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np

from tether.agents.checks import checked_costs, checked_reward
from tether.agents.lsvi_ucb import LsviConfig, LsviUcb
from tether.problem.problem import Problem
from tether.records import Transition


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
