"""MisspecifiedMDP: a world whose costs are *not* linear in the features that the learner is told. For measuring alarms.

Everything else (features, rewards, transitions, the declared costs of the safe actions) is a LinearMDP's. It is a type
of its own, not a kind of LinearMDP, so that nothing that relies on linear costs can be handed one by mistake.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tether.problem.problem import Problem
from tether.records import Array, Decision, Transition
from tether.world.linear_mdp import LinearMDP, Streams

ExtraCost = Callable[[int, int, Array, int], Array]
"""(step, state, feature (d,), episode) -> what the model leaves out of each cost, (M,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MisspecifiedMDP:
    """c_h(s, a) = ⟨γ*_h, φ⟩ + extra: the learner's Problem is `linear.problem`, and it is wrong about `extra`.

    Attributes:
        linear: the world that the learner is told of, and whose rewards and transitions are true.
        extra: what it leaves out; 0 at the safe actions, so that their declared costs stay true.
        story: what is wrong, in the world's own words.
    """

    linear: LinearMDP
    extra: ExtraCost
    story: str

    @property
    def name(self) -> str:
        """What results call it."""
        return f"{self.linear.name}-twin"

    @property
    def problem(self) -> Problem:
        """What the learner is told."""
        return self.linear.problem

    def true_cost(self, step: int, state: int, feature: Array, episode: int) -> Array:
        """What an action truly costs in expectation, (M,)."""
        cost: Array = self.linear.true_gamma[step] @ feature + self.extra(step, state, feature, episode)
        return cost

    def reset(self, streams: Streams) -> int:
        """The first state of an episode."""
        return self.linear.reset(streams)

    def step(self, decision: Decision, streams: Streams, episode: int) -> Transition:
        """Play a decision: the linear world's reward, next state and noise, with the extra cost added."""
        seen = self.linear.step(decision, streams)
        extra = self.extra(decision.step, decision.state, decision.feature, episode)
        costs = tuple((np.atleast_1d(np.asarray(seen.cost, dtype=np.float64)) + extra).tolist())
        cost = costs[0] if len(costs) == 1 else costs
        return decision.outcome(reward=seen.reward, cost=cost, next_state=seen.next_state)
