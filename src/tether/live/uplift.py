"""Uplift: what the certified proposal earns, and costs, over a_0 per decision, with an interval valid at any time.

Of a decision that was drawn with probability p (live/canary.py), with the value v in [0, 1] seen afterwards,

    Y = m_1 − m_0 + (v − m_1)/p  if the proposal was played,   m_1 − m_0 − (v − m_0)/(1 − p)  if a_0 was,

has the mean v_1 − v_0, whatever the guesses m_1, m_0 were, as long as they were made before the draw. For y >= `least`,
any guess ŷ and s >= ŷ − least, exp(λ(y − μ) − ψ(λs)((y − ŷ)/s)²) has a mean of at most 1, ψ(x) = −log(1 − x) − x, so
by Ville's inequality, with probability 1 − α, at all times and while the learner changes (docs/theory.md section 16),

    Σμ_i >= ΣY_i − min_j [ log(J/α) + Σ ψ(λ_j s_i)((Y_i − Ŷ_i)/s_i)² ] / λ_j .

The other end is the same for −Y. What was never measured counts as the worst value at each end.
"""

from dataclasses import dataclass
from math import inf, isfinite, log, log1p
from typing import Any, NamedTuple, Self

from tether.live.canary import Canary, Trial, Trials
from tether.live.policy import FAR

ERROR = 0.05
"""α: how likely it is that any interval which a log ever shows for its rewards is wrong; for each cost the same."""

RATES = tuple(0.5**j for j in range(1, 17))
"""λ_j, J of them: a fixed grid, one of which is right, up to √2, for any scatter and up to 10⁹ decisions."""

Span = tuple[float, float]
"""The lowest and the highest value that can be seen."""


def pseudo_outcome(share: float, played: bool, value: float, guess: Span) -> float:
    """Y: a number whose mean over the draw is v_1 − v_0. `guess` is (m_1, m_0), made before the draw."""
    first, second = guess
    if played:
        return first - second + (value - first) / share
    return first - second - (value - second) / (1.0 - share)


class Side:
    """One end of an interval: ΣY and, for each λ_j, Σψ(λ_j s)((Y − Ŷ)/s)²."""

    def __init__(self, total: float = 0.0, spread: list[float] | None = None) -> None:
        self.total, self.spread = total, spread or [0.0] * len(RATES)

    def add(self, y: float, least: float, guess: float) -> None:
        """A pseudo-outcome that is never under `least`, after a guess of it."""
        reach = max(guess - least, 1.0)
        square = ((y - guess) / reach) ** 2
        for j, rate in enumerate(RATES):
            x = rate * reach
            self.spread[j] += (-log1p(-x) - x) * square if x < 1.0 else inf  # too large a λ says nothing any more
        self.total += y

    def under(self, level: float) -> float:
        """Σμ is at least this at all times, but with probability e^−level / J."""
        return self.total - min((level + spread) / rate for spread, rate in zip(self.spread, RATES, strict=True))

    def needed(self, count: int, level: float, target: float) -> float:
        """Of how many decisions like those so far the mean would be shown to be above `target`; inf if of none."""
        above = self.total / count - target
        gained = [above - spread / (count * rate) for spread, rate in zip(self.spread, RATES, strict=True)]
        return min(level / (rate * each) if each > 0.0 else inf for rate, each in zip(RATES, gained, strict=True))


class Interval(NamedTuple):
    """An estimate of what is gained per decision, and where the truth is at all times, with probability 1 − α."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"over that of a_0: {self.estimate:+.4g} per decision, {self.low:+.4g} to {self.high:+.4g} at all times "
            f"with probability {1.0 - ERROR:g}"
        )


class Gain:
    """v_1 − v_0 per decision, of one reward or cost that lies in `span`, over the decisions that were compared.

    Sums are in units of the span. `arms` holds count and sum of what was seen of (a_0, the proposal). `void` says why
    there is no interval: something was seen outside the span.
    """

    def __init__(self, span: Span) -> None:
        self.span, self.count, self.void = span, 0, ""
        self.low, self.high = Side(), Side()
        self.arms = [[0, 0.0], [0, 0.0]]

    @property
    def width(self) -> float:
        """Highest minus lowest value."""
        return self.span[1] - self.span[0]

    def add(self, trial: Trial, value: float | None, expected: Span | None = None) -> None:
        """One decision more: what was seen, None if that never came, and what was expected; the arms' means else."""
        lowest, highest = self.span
        if value is not None and not lowest <= value <= highest:
            self.void = self.void or f"{value:.6g} was seen, and {lowest:g} to {highest:g} was declared"
        if self.void:
            return
        if expected is None:
            expected = (self._seen(1), self._seen(0))
        first, second = (min(max((each - lowest) / self.width, 0.0), 1.0) for each in expected)
        guess = (first, second)
        ends = (0.0, 1.0) if trial.played else (1.0, 0.0)  # the values least and most in favour of the proposal
        if value is not None:
            seen = (value - lowest) / self.width
            ends = (seen, seen)
            self.arms[trial.played][0] += 1
            self.arms[trial.played][1] += value
        share, played = trial.share, trial.played
        least = min(pseudo_outcome(share, True, 0.0, guess), pseudo_outcome(share, False, 1.0, guess))
        most = max(pseudo_outcome(share, True, 1.0, guess), pseudo_outcome(share, False, 0.0, guess))
        self.low.add(pseudo_outcome(share, played, ends[0], guess), least, self._mean(self.low))
        self.high.add(-pseudo_outcome(share, played, ends[1], guess), -most, self._mean(self.high))
        self.count += 1

    def _seen(self, arm: int) -> float:
        count, total = self.arms[arm]
        return total / count if count else sum(self.span) / 2.0

    def _mean(self, side: Side) -> float:
        return min(max(side.total / self.count, -1.0), 1.0) if self.count else 0.0

    def interval(self, level: float) -> Interval:
        """In the units of the reward or cost."""
        if not self.count or self.void:
            return Interval(0.0, -self.width, self.width)
        least, most = self.low.under(level) / self.count, -self.high.under(level) / self.count
        middle = (self.low.total - self.high.total) / (2.0 * self.count)
        return Interval(middle * self.width, max(least, -1.0) * self.width, min(most, 1.0) * self.width)

    def needed(self, level: float, target: float) -> float:
        """About how many more decisions would show a gain above `target`, if they are like those so far."""
        if not self.count or self.void:
            return inf
        return max(self.low.needed(self.count, level, target / self.width) - self.count, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        sides = [[side.total, side.spread] for side in (self.low, self.high)]
        return {"span": self.span, "count": self.count, "void": self.void, "sides": sides, "arms": self.arms}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        gain = cls(tuple(saved["span"]))
        gain.count, gain.void, gain.arms = saved["count"], saved["void"], saved["arms"]
        gain.low, gain.high = (Side(total, spread) for total, spread in saved["sides"])
        return gain


@dataclass(frozen=True, slots=True)
class UpliftStatus:
    """Where a comparison stands: `compared` decisions, `played` of which played the proposal; `waiting` are without
    their outcome, or wait for one. `reward` is None without an interval; `why` says what is missing then. `costs` has
    one per constraint. It has `ended` if the mode has changed since, or an alarm was reset."""

    compared: int
    played: int
    waiting: int
    ended: bool
    reward: Interval | None
    costs: tuple[Interval | None, ...]
    why: str

    def __str__(self) -> str:
        waiting = f" {self.waiting} wait for outcomes." if self.waiting else ""
        reward = f"There is no interval for the reward: {self.why}" if self.reward is None else f"Reward {self.reward}"
        costs = [f" Cost {j} {found}." for j, found in enumerate(self.costs) if found is not None]
        return (
            f"{self.compared} decisions compared, {self.played} of which played the proposal.{waiting} {reward}."
            + "".join(costs)
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON, with the probability 1 − α that each interval is right."""
        reward, *costs = (found and found._asdict() for found in (self.reward, *self.costs))
        counts = {name: getattr(self, name) for name in ("compared", "played", "waiting", "ended")}
        return {**counts, "reward": reward, "costs": costs, "why": self.why, "confidence": 1.0 - ERROR}


class Uplift:
    """The comparison since the last change of mode, alarm or declared range, a fold over the log; it stays to be seen
    until the next one begins.

    The k-th comparison of a log gets α/(k(k + 1)), so that all intervals which it ever shows are right together.
    """

    def __init__(self, number: int = 1, reward_range: Span | None = None, cost_spans: tuple[Span, ...] = ()) -> None:
        self.number, self.compared, self.played, self.ended = number, 0, 0, False
        self.reward = None if reward_range is None else Gain(reward_range)
        self.costs = [Gain(span) for span in cost_spans]
        self.trials = Trials()

    def anew(self, reward_range: Span | None, cost_spans: tuple[Span, ...]) -> "Uplift":
        """The next comparison."""
        return Uplift(self.number + (self.compared > 0), reward_range, cost_spans)

    def end(self) -> None:
        """The mode changed, or an alarm was reset: what was found stays to be seen, and is no evidence any more."""
        self.ended, self.trials = True, Trials()

    @property
    def level(self) -> float:
        """log(J/α) of one end of an interval."""
        return log(2.0 * len(RATES) * self.number * (self.number + 1) / ERROR)

    def expect(self, id: str, canary: Canary, *, played: bool) -> None:
        """A decision was drawn."""
        self.trials.expect(id, canary, played=played)

    def settle(self, id: str, reward: float | None, cost: tuple[float, ...] | None) -> None:
        """Its outcome has come, or will never come."""
        self._fold(self.trials.settle(id, reward, cost))

    def withdraw(self, id: str) -> None:
        """It did not leave."""
        self._fold(self.trials.withdraw(id))

    def _fold(self, due: list[Trial]) -> None:
        for trial in due:
            self.compared += 1
            self.played += trial.played
            if self.reward is not None:
                self.reward.add(trial, trial.reward, trial.expected)
            for j, gain in enumerate(self.costs):
                gain.add(trial, None if trial.cost is None else trial.cost[j])

    def status(self) -> UpliftStatus:
        """Numbers for people."""
        costs = tuple(gain.interval(self.level) if gain.count and not gain.void else None for gain in self.costs)
        why = self._missing()
        shown = None if why or self.reward is None else self.reward.interval(self.level)
        return UpliftStatus(self.compared, self.played, len(self.trials), self.ended, shown, costs, why)

    def _missing(self) -> str:
        """Why there is no interval for the reward; empty if there is one."""
        if self.reward is None:
            return "no range of rewards is declared, Guards(reward_range=(lowest, highest))"
        if self.reward.void:
            return f"a reward of {self.reward.void}: declare a wider Guards(reward_range), which starts anew"
        if not self.compared:
            return (
                "no decision was compared: Guards(canary=p), p under 1, draws between proposal and a_0 in guarded mode"
            )
        return ""

    def unmet(self, target: float) -> str:
        """Why it is not shown that the proposals earn more than a_0 plus `target`; empty if it is."""
        why = "no decision was compared since the mode changed" if self.ended else self._missing()
        if why or self.reward is None:
            return f"no evidence yet that it earns more than a_0: {why}"
        found = self.reward.interval(self.level)
        if found.low > target:
            return ""
        more = self.reward.needed(self.level, target)
        effect = (
            f"about {more:.0f} more decisions at this effect" if isfinite(more) else "at this effect there never is"
        )
        return (
            f"no evidence yet that it earns more than a_0: {found.estimate:.4g} per decision over {self.compared} "
            f"compared, the interval is {found.low:.4g} to {found.high:.4g}, and must lie above {target:g}; {effect}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        reward = None if self.reward is None else self.reward.to_json()
        gains = {"reward": reward, "costs": [gain.to_json() for gain in self.costs]}
        plain = {name: getattr(self, name) for name in ("number", "compared", "played", "ended")}
        return {**plain, **gains, "trials": self.trials.to_json()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        uplift = cls(saved["number"])
        uplift.compared, uplift.played, uplift.ended = saved["compared"], saved["played"], saved["ended"]
        uplift.reward = None if saved["reward"] is None else Gain.from_json(saved["reward"])
        uplift.costs = [Gain.from_json(gain) for gain in saved["costs"]]
        uplift.trials.take_json(saved["trials"])
        return uplift


def cost_spans(problem: dict[str, Any]) -> tuple[Span, ...]:
    """What can be recorded as cost of each constraint, from the declared problem as the log holds it: [0, 1], or
    ±(B‖φ‖ + ε + 10σ), beyond which an outcome is refused."""
    parts = zip(problem["bounded"], problem["gamma_norm"], problem["sample_error"], problem["noise"], strict=True)
    return tuple(
        (0.0, 1.0) if is_bounded else (-reach, reach)
        for is_bounded, norm, error, noise in parts
        for reach in [norm * problem["feature_norm"] + error + FAR * noise]
    )
