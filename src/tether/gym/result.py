"""What comes back from `learn`: every step in arrays, a summary in words, a table and a figure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.agents.agent import Agent
from tether.errors import imported
from tether.gym.bridge import Bridge
from tether.gym.comparison import WHY_SAFE, Comparison, amount, compare
from tether.problem.limit_on import CAVEAT
from tether.problem.problem import Problem
from tether.records import Array, Reason


@dataclass(frozen=True, eq=False, repr=False)
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
        own_bound: the certified bound of the played action by itself, (T, M). It can lie over the threshold where
            actions are drawn, as the limit is then on the average.
        is_baseline: whether the safe action was played, (T,).
        reasons: how often each reason was given.
        bounds: what the bounds speak of: "cost", "expected cost" over the agent's own coin, or "realised cost".
        alarms: declared safe costs that contradict the data, and what the online tests of the assumptions found.
        comparison: returns against those of the safe action, from episodes that were played for this alone; None if
            there were none, the agent cannot be asked without playing, or costs drift with each decision.
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
    own_bound: Array
    is_baseline: NDArray[np.bool_]
    reasons: dict[Reason, int]
    bounds: str
    alarms: list[str]
    comparison: Comparison | None

    def __repr__(self) -> str:
        size = f"{self.episodes} episodes, {len(self.reward)} steps"
        return f"<LearningResult: {size}; summary(), plot() and to_pandas() tell more>"

    @property
    def problem(self) -> Problem:
        """What the learner knows."""
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

    @property
    def over_by_itself(self) -> int:
        """Played actions whose own certified bound is over the threshold: drawn, and within it on average only."""
        over = ~(self.own_bound <= np.array(self.problem.threshold)).all(axis=1)  # NaN is no bound under it
        return int((over & ~self.is_baseline).sum())

    def summary(self) -> str:
        """The run in a few lines for people."""
        if not self.episodes:
            return "no step was played."
        part = max(1, self.episodes // 10)
        early, late = slice(None, part), slice(-part, None)
        earned, safe, unit = self.returns, self.baseline_share, self.problem.names.reward_unit
        lines = [
            self.bridge.describe(),
            f"{self.episodes} episodes, {len(self.reward)} steps in {self.seconds:.1f} s, seed {self.seed}"
            + (", INTERRUPTED" if self.interrupted else ""),
            f"mean return: {amount(earned[early].mean())} in the first {part} episode{'s' if part > 1 else ''}, "
            f"{amount(earned[late].mean())} in the last {part}" + (f", in {unit}" if unit else ""),
            f"safe action played: {safe[early].mean():.0%} of steps at first, {safe[late].mean():.0%} at the end",
            f"{self.bounds}: largest certified bound {self._largest(self.bound)}, τ = "
            f"{self._largest(np.array([self.problem.threshold]))}",
            *self._by_themselves(),
            f"largest observed (noisy) cost {self._largest(self.cost)}; {self._over()}",
        ]
        if self.bridge.odd_rewards:
            lines.append(f"{self.bridge.odd_rewards} rewards lay outside reward_range: learning may suffer, safety not")
        if self.is_baseline.all():
            lines.append(f"WARNING: only the safe action was played: {self._why_safe()}")
        elif self.comparison is not None:
            lines.append(self.comparison.describe())
            if safe[late].mean() > 0.99 and self.comparison.interval[0] <= 0.0:
                lines.append(f"WARNING: at the end hardly anything but the safe action was played: {self._why_safe()}")
        lines += [f"ALARM: {alarm}" for alarm in self.alarms]
        return "\n".join(lines)

    def compare(self, episodes: int = 100, seed: int | None = None) -> Comparison | None:
        """Play so many episodes with what was learned, and as many with the safe action: a `Comparison` of your own."""
        return compare(self.bridge, self.agent, episodes, self.seed if seed is None else seed)

    def to_pandas(self) -> Any:
        """One row per step: episode, step, reward, is_baseline, and cost, bound and threshold of each constraint.

        Needs pandas: pip install "tether-rl[pandas]".
        """
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]) if self.episodes else np.zeros(0, dtype=np.int64)
        columns: dict[str, Any] = {
            "episode": self.episode,
            "step": np.arange(len(self.episode)) - starts[self.episode],
            "reward": self.reward,
            "is_baseline": self.is_baseline,
        }
        for j, threshold in enumerate(self.problem.threshold):
            named = self.problem.names.constraints
            suffix = f"_{named[j]}" if named else "" if len(self.problem.constraints) == 1 else f"_{j}"
            columns |= {f"cost{suffix}": self.cost[:, j], f"bound{suffix}": self.bound[:, j]}
            if self.bounds == "expected cost":
                columns[f"own_bound{suffix}"] = self.own_bound[:, j]
            columns[f"threshold{suffix}"] = threshold
        return imported("pandas", "pandas").DataFrame(columns)

    def plot(self) -> Any:
        """A matplotlib Figure: returns, bounds and costs against τ, the certified share, and the gain over a_0.

        `result.plot().savefig("run.png")`. Needs matplotlib: pip install "tether-rl[experiments]".
        """
        figure = imported("matplotlib.figure", "experiments").Figure(figsize=(9.0, 6.0), layout="constrained")
        (returns, costs), (share, gain) = figure.subplots(2, 2)
        episodes, steps = np.arange(self.episodes), np.arange(len(self.reward))
        returns.plot(episodes, self.returns, ".", markersize=3)
        units = set(self.problem.names.cost_units)
        returns.set(title="return", xlabel="episode", ylabel=self.problem.names.reward_unit)
        for j in range(len(self.problem.constraints)):
            costs.plot(steps, self.cost[:, j], ".", markersize=2, alpha=0.4, label=f"observed {self.constraint(j)}")
            costs.plot(steps, self.bound[:, j], ".", markersize=2, label=f"certified bound on {self.constraint(j)}")
        for threshold in sorted(set(self.problem.threshold)):
            costs.axhline(threshold, color="black", linewidth=1, label=f"threshold {threshold:g}")
        costs.set(title="cost of each step", xlabel="step", ylabel=units.pop() if len(units) == 1 else "")
        costs.legend(fontsize="x-small", markerscale=4, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        share.plot(episodes, 1.0 - self.baseline_share)
        share.set(title="share of steps beyond the safe action", xlabel="episode")
        share.set(ylim=(-0.02, 1.02))
        self._plot_gain(gain)
        return figure

    def _over(self) -> str:
        """How many steps were observed over τ, and what that says about the bounds."""
        over = f"{self.violations} step{'s' if self.violations != 1 else ''} observed over τ"
        if not self.violations or self.alarms or self.bounds == "realised cost":
            return over
        if self.bounds == "expected cost":
            return f"{over}, by noise or by the draw; bounds are on the average over the draw"
        return f"{over}, noise included; bounds are on the mean"

    def _by_themselves(self) -> list[str]:
        """Where actions are drawn: how many played ones are not certified by themselves, apart from noise."""
        if self.bounds != "expected cost":
            return []
        played = int((~self.is_baseline).sum())
        return [
            f"drawn actions: {self.over_by_itself} of {played} played beyond the safe action have an own bound over τ "
            f"(largest {self._largest(self.own_bound)}); {CAVEAT}"
        ]

    def _why_safe(self) -> str:
        """Why the safe action was played: a failed test, which is final, or the most frequent reason."""
        if np.isnan(self.cost).all():
            return "no cost was measured, for `cost` gave None at every step: without readings nothing can be certified"
        known = [reason for reason in self.reasons if reason in WHY_SAFE] or list(self.reasons)
        most = "tripped" if "tripped" in known else max(known, key=lambda reason: self.reasons[reason])
        return WHY_SAFE.get(most, most)

    def _plot_gain(self, axes: Any) -> None:
        axes.set(title="return over the safe action", ylabel=self.problem.names.reward_unit)
        if self.comparison is None:
            axes.text(0.5, 0.5, "not compared", ha="center", transform=axes.transAxes)
            return
        low, high = self.comparison.interval
        gain, n = self.comparison.gain, len(self.comparison.learner)
        if self.comparison.paired:
            axes.plot(np.arange(n), self.comparison.learner - self.comparison.safe, ".", label="one pair of episodes")
            axes.set(xlabel="pair")
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.axhline(0.0, color="black", linewidth=1)
        axes.axhline(gain, color="C1", label="mean and 95% interval")
        if np.isfinite(low):
            axes.axhspan(low, high, color="C1", alpha=0.2)
        axes.legend(fontsize="small")

    def constraint(self, number: int) -> str:
        """What to call a constraint."""
        names = self.problem.names
        return "cost" if len(self.problem.constraints) == 1 and not names.constraints else names.constraint(number)

    def _largest(self, numbers: Array) -> str:
        """The largest of each column (T, M) that is known, in words: with its name if there is one, and its unit."""
        names, largest = self.problem.names, np.where(np.isnan(numbers), -np.inf, numbers).max(axis=0)
        called = [f"{name} " for name in names.constraints] or [""] * len(largest)
        amounts = [names.cost(j, each) if each > -np.inf else "unknown" for j, each in enumerate(largest)]
        return ", ".join(f"{name}{amount}" for name, amount in zip(called, amounts, strict=True))
