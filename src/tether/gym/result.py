"""What a run of `tether.learn` leaves behind, step by step and episode by episode."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.agents.agent import Agent
from tether.gym.bridge import Bridge, Played
from tether.problem.problem import Problem
from tether.records import Array, Decision, Reason


@dataclass(frozen=True, eq=False)
class LearningResult:
    """T steps in K episodes. Arrays over steps share their order; `episode` says which step belongs where.

    Attributes:
        agent: the learner, ready to go on; `agent.save(path)` keeps it.
        bridge: the environment as a problem.
        seed: what the run was seeded with.
        interrupted: whether it was stopped by Ctrl-C before all episodes were played.
        seconds: how long it took.
        episode: number of the episode of each step, (T,).
        reward: the environment's own reward, (T,).
        cost: the observed, noisy cost, (T, M); NaN where it was not measured.
        bound: the certified bound on the step's cost, (T, M).
        is_baseline: whether the safe action was played, (T,).
        reasons: how often each reason was given.
        bounds: what the bounds speak of: "cost", or "expected cost" over the agent's own coin.
        alarms: declared safe costs that contradict the data, and what the online tests of the assumptions found.
    """

    agent: Agent
    bridge: Bridge
    seed: int
    interrupted: bool
    seconds: float
    episode: NDArray[np.int64]
    reward: Array
    cost: Array
    bound: Array
    is_baseline: NDArray[np.bool_]
    reasons: dict[Reason, int]
    bounds: str
    alarms: list[str]

    @property
    def problem(self) -> Problem:
        """What the learner was told."""
        return self.bridge.problem

    @property
    def episodes(self) -> int:
        """Episodes that were begun."""
        return int(self.episode[-1]) + 1 if len(self.episode) else 0

    @property
    def returns(self) -> Array:
        """The sum of rewards of each episode, (K,)."""
        total: Array = np.bincount(self.episode, self.reward, self.episodes).astype(np.float64)
        return total

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode, (K,)."""
        return np.bincount(self.episode, minlength=self.episodes)

    @property
    def baseline_share(self) -> Array:
        """The share of steps of each episode on which the safe action was played, (K,)."""
        share: Array = np.bincount(self.episode, self.is_baseline, self.episodes) / np.maximum(self.lengths, 1)
        return share

    @property
    def violations(self) -> int:
        """Steps whose *observed* cost was over τ. Noise alone can do that; the certificate speaks of expected cost."""
        return int((self.cost > np.array(self.problem.threshold)).any(axis=1).sum())

    def summary(self) -> str:
        """The run in a few lines for people."""
        if not self.episodes:
            return "no step was played."
        part = max(1, self.episodes // 10)
        early, late = slice(None, part), slice(-part, None)
        earned = self.returns
        measured = np.where(np.isnan(self.cost), -np.inf, self.cost).max(axis=0)
        lines = [
            self.bridge.describe(),
            f"{self.episodes} episodes, {len(self.reward)} steps in {self.seconds:.1f} s, seed {self.seed}"
            + (", INTERRUPTED" if self.interrupted else ""),
            f"mean return: {earned[early].mean():.4g} in the first {part} episodes, "
            f"{earned[late].mean():.4g} in the last {part}",
            f"safe action played: {self.baseline_share[early].mean():.0%} of steps at first, "
            f"{self.baseline_share[late].mean():.0%} at the end",
            f"{self.bounds}: largest certified bound {_listed(self._largest_bound())}, τ = "
            f"{_listed(self.problem.threshold)}",
            f"largest observed (noisy) cost {_listed(measured)}; {self.violations} steps observed over τ",
        ]
        if self.bridge.odd_rewards:
            lines.append(f"{self.bridge.odd_rewards} rewards lay outside reward_range: learning may suffer, safety not")
        lines += [f"ALARM: {alarm}" for alarm in self.alarms]
        return "\n".join(lines)

    def _largest_bound(self) -> Array:
        known = np.where(np.isnan(self.bound), -np.inf, self.bound)
        largest: Array = known.max(axis=0)
        return largest


class Recorder:
    """Grows with the run; a result can be made at any moment."""

    def __init__(self) -> None:
        self._episode: list[int] = []
        self._reward: list[float] = []
        self._cost: list[Any] = []
        self._bound: list[list[float]] = []
        self._safe: list[bool] = []
        self._reasons: dict[Reason, int] = {}
        self._bounds = "cost"

    def add(self, episode: int, decision: Decision, played: Played) -> None:
        """Note one step."""
        self._episode.append(episode)
        self._reward.append(played.reward)
        self._cost.append(played.transition.cost)
        self._bound.append([evidence.bound for evidence in decision.evidence])
        self._safe.append(decision.is_baseline)
        self._reasons[decision.reason] = self._reasons.get(decision.reason, 0) + 1
        self._bounds = decision.tightest.bounds

    def last(self, episode: int) -> tuple[float, float]:
        """The return of the last episode and its share of safe actions."""
        first = bisect_left(self._episode, episode)
        safe = self._safe[first:]
        return sum(self._reward[first:]), sum(safe) / max(len(safe), 1)

    def result(
        self, agent: Agent, bridge: Bridge, *, seed: int, interrupted: bool, seconds: float, alarms: list[str]
    ) -> LearningResult:
        """Everything noted so far."""
        m = bridge.problem.constraints
        costs = [np.full(m, np.nan) if cost is None else np.reshape(cost, m) for cost in self._cost]
        return LearningResult(
            agent=agent,
            bridge=bridge,
            seed=seed,
            interrupted=interrupted,
            seconds=seconds,
            episode=np.array(self._episode, dtype=np.int64),
            reward=np.array(self._reward),
            cost=np.array(costs, dtype=np.float64).reshape(-1, m),
            bound=np.array(self._bound, dtype=np.float64).reshape(-1, m),
            is_baseline=np.array(self._safe, dtype=np.bool_),
            reasons=dict(self._reasons),
            bounds=self._bounds,
            alarms=alarms,
        )


def _listed(numbers: Any) -> str:
    return ", ".join(f"{float(number):.4g}" for number in np.atleast_1d(numbers))
