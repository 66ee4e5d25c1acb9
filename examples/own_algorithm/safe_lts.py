"""Safe Thompson sampling: draw a value vector once per episode, play the certified action that it likes best.

At H = 1 this is the idea of Safe-LTS. What may be played, and why, is Tether's; only the choice is ours.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tether import CertifiedAgent, CertifiedSet, Problem
from tether.lab.registry import AgentKind


@dataclass(frozen=True, kw_only=True)
class SafeLtsConfig:
    """The options of the agent in a study."""

    inflation: float = 0.3  # how many standard deviations of w_h a draw strays


class SafeLts(CertifiedAgent):
    """Thompson sampling within the certified set."""

    def __init__(self, problem: Problem, *, inflation: float = 0.3, **told: Any) -> None:
        super().__init__(problem, **told)
        self.inflation = inflation

    def prepare(self, rng: np.random.Generator) -> None:
        """One draw per step h, for this episode."""
        self.draw = rng.standard_normal((self.problem.horizon, self.problem.dimension))

    def choose(self, options: CertifiedSet) -> int:
        """The best certified row for w_h + inflation · N(0, A_h^{-1})."""
        sample = options.weights + self.inflation * np.linalg.solve(options.factor, self.draw[options.step])
        return options.best(options.features @ sample)


def build(world: Any, options: dict[str, Any], rng: np.random.Generator) -> SafeLts:
    """What a study calls: the world's problem (not its truth), the options, the seed's own stream."""
    return SafeLts(world.problem, seed=int(rng.integers(2**63)), **options)


SAFE_LTS = AgentKind.of(
    SafeLtsConfig, build, summary="Thompson sampling in the certified set.", explorer=lambda _: "thompson", draws=True
)
