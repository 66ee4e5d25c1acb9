"""What the tabular methods share: one-hot features, counts from the same sums, and a linear programme per plan.

Coordinate k of φ is one pair (s, a): A_h is diagonal, n_h(k) = A_h(k, k) − λ, and Σφ by next state divided by n is the
empirical law. Actions with the same feature are the same pair.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.agents.relatives.episodic import EpisodicAgent, EpisodicConfig
from tether.errors import InputError
from tether.problem.problem import Problem
from tether.records import Array, Transition


@dataclass(frozen=True, kw_only=True)
class TabularConfig(EpisodicConfig):
    """Plans are made when some det(A_h) has doubled, as UCRL2 does: a linear programme every episode takes too long.

    log_term: L of the confidence intervals, the method's own ("theorem") or a number.
    """

    replan: Literal["auto", "every-episode", "on-doubling", "on-growth"] = "on-doubling"
    pooled: bool = True
    log_term: float | Literal["theorem"] = "theorem"


class Counts(NamedTuple):
    """What was seen of each pair at one step."""

    visits: Array  # n (d,)
    law: Array  # p̂, uniform where n = 0 (d, S)
    reward: Array  # r, or its mean so far, 1 where n = 0 (d,)
    cost: Array  # c, or an upper bound on it, 1 where n = 0 (d,)


class TabularAgent(EpisodicAgent):
    """An episodic agent whose features are one-hot; a subclass solves for occupancies of its own kind."""

    config_type = TabularConfig
    config: TabularConfig

    def _check_fit(self, problem: Problem) -> None:
        super()._check_fit(problem)
        rows = np.concatenate([problem.actions(state).endpoints for state in problem.states or ()])
        if (
            problem.actions((problem.states or [0])[0]).is_star
            or not (np.sort(rows, axis=1) == np.eye(rows.shape[1])[-1]).all()
        ):
            raise InputError(
                f"{type(self).__name__} is tabular: every feature must be one-hot, one coordinate per (s, a)."
            )

    def _next_slot(self, t: Transition, stage: int, feature: Array) -> int:
        """Also after the last step: intervals are about the law, whether or not anything follows."""
        return -1 if t.next_state is None else self._slot(t.next_state)

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """The coordinate of each action, (S, A)."""
        return np.asarray(self.features.argmax(axis=2), dtype=np.int64)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The state of each coordinate, (d,)."""
        owner = np.zeros(self.problem.dimension, dtype=np.int64)
        owner[self.pairs] = np.arange(len(self.pairs))[:, None]
        return owner

    @cached_property
    def leaves(self) -> Array:
        """1 where a pair belongs to a state, (S, d)."""
        leaves: Array = (np.arange(len(self.pairs))[:, None] == self.owner).astype(np.float64)
        return leaves

    def log_term(self, theorem: float) -> float:
        """L = log(`theorem`·HK/δ), or the number that was set."""
        p, c = self.problem, self.config
        if c.log_term != "theorem":
            return c.log_term
        if not c.episodes:
            raise InputError("the theorem's confidence intervals use log K: set episodes=K in the configuration.")
        return float(np.log(theorem * p.horizon * c.episodes / p.confidence))

    def counts(self, step: int, log_term: float) -> Counts:
        """Visits and means of every pair."""
        stage, states, values = self.stage_of(step), len(self.known), self.values
        visits = np.rint((values.factor[stage] ** 2).sum(axis=0) - values.ridge)
        seen, some = visits > 0.0, np.maximum(visits, 1.0)
        law = np.where(seen[:, None], values.transition_moment[stage, :states].T / some[:, None], 1.0 / states)
        if self.told is not None:
            return Counts(visits, law, *(one[step % len(one)] for one in self.told))
        error = self.problem.noise[0] * np.sqrt(2.0 * log_term / some)
        reward = np.where(seen, values.reward_moment[stage] / some, 1.0)
        cost = np.where(seen, np.minimum(self.costs.moment[stage, 0] / some + error, 1.0), 1.0)
        return Counts(visits, law, reward, cost)

    def policy_of(self, occupancy: Array) -> Array:
        """π (H, S, A) from occupancies of pairs (H, d); the safe policy where an occupancy never comes."""
        visits = np.maximum(occupancy, 0.0)
        total = visits @ self.leaves.T  # (H, S)
        share = visits / np.maximum(total[:, self.owner], 1e-300)
        copies = (self.pairs[:, :, None] == self.pairs[:, None, :]).sum(axis=2)
        policy = share[:, self.pairs] / copies
        reached: Array = np.where(total[:, :, None] > 1e-12, policy, self.safe_policy)
        return reached
