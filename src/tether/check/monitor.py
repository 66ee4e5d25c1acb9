"""Monitor: the tests of the cost model, online. Valid at all times at once: a false alarm has probability <= level."""

from dataclasses import asdict, dataclass
from math import inf, isfinite, log
from typing import Any, Self

import numpy as np

from tether.check.evidence import (
    FIRST_MARK,
    MARKS,
    Alternatives,
    Spectrum,
    Sums,
    extra_evidence,
    log_mean,
    noise_evidence,
    norm_evidence,
    spectrum_of,
)
from tether.errors import InputError, StateFileError
from tether.problem.problem import Problem
from tether.records import Array, StateKey

FORMAT = "tether-monitor-1"
SHARES = {"noise": 0.25, "norm": 0.125, "shape": 0.375, "drift": 0.25}
"""How the level is divided among the tests."""

LARGEST = 1e300
"""Stands for evidence that is not finite: JSON has no infinity."""

MESSAGES = {
    "noise": "the costs scatter more around every linear model than the declared σ allows. Raise noise σ, or find what "
    "the features leave out",
    "norm": "no γ with ‖γ‖ <= B explains the costs. Raise gamma_norm B",
    "shape": "the costs also depend on {extra}, which the features leave out. Add a feature for it",
    "drift": "the costs of the same features have changed since observation {since} of this step. Start anew with "
    "reset(why), or make what changed a feature",
    "numbers": "the sums behind the tests are no longer finite. Look for absurd costs",
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A rejected assumption: the log e-value `evidence` reached `limit`, after so many observations of one step h.

    `constraint` says which cost (-1: the reward). Under the assumptions this happens with probability <= level, ever.
    """

    test: str
    message: str
    evidence: float
    limit: float
    observations: int
    constraint: int

    def __str__(self) -> str:
        what = "the reward" if self.constraint < 0 else f"cost {self.constraint}"
        return (
            f"{self.test} test of {what}: {self.message} (log evidence {self.evidence:.1f} >= {self.limit:.1f} "
            f"after {self.observations} observations)."
        )


class Monitor:
    """Watches whether costs stay linear in the features, with ‖γ*‖ <= B and σ-sub-Gaussian noise, and without drift.

    Attributes:
        problem: whose σ, B and limit on ‖φ‖ are tested.
        level: the probability that it ever alarms although the assumptions hold; the problem's δ unless given. It is
            divided among steps and constraints.
        pooled: one test for all steps; only where γ*_h does not depend on h.
        reward_noise: σ of the rewards (0.5 is always enough for rewards in [0, 1]); None leaves rewards untested.
        trip_on_reward: whether a failing reward model raises the alarm. It threatens no bound, so by default it only
            sets `warning`.
        alarm: the first alarm, until `reset`.
        warning: the same for the reward.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        level: float | None = None,
        pooled: bool = False,
        reward_noise: float | None = None,
        trip_on_reward: bool = False,
    ) -> None:
        self.level = problem.confidence if level is None else float(level)
        if not 0.0 < self.level < 1.0:
            raise InputError(f"level must lie in (0, 1), but is {level}: it is the probability of a false alarm.")
        if reward_noise is not None and not 0.0 < reward_noise < inf:
            raise InputError(f"reward_noise must be positive and finite, or None, but is {reward_noise}.")
        if trip_on_reward and reward_noise is None:
            raise InputError("trip_on_reward needs reward_noise: 0.5 is enough for rewards in [0, 1].")
        self.problem, self.pooled = problem, bool(pooled)
        self.reward_noise, self.trip_on_reward = reward_noise, bool(trip_on_reward)
        noise, norm = list(problem.noise), list(problem.gamma_norm)
        if reward_noise is not None:
            noise.append(float(reward_noise))
            norm.append(float(np.sqrt(problem.dimension)))  # ‖θ*‖ <= √d: Assumption 4
        self._noise: Array = np.array(noise)
        self._bound: Array = np.array(norm) * problem.feature_norm / self._noise
        self._extras = Alternatives(problem.dimension, len(noise))
        self._names = self._extras.names()
        self.resets: list[str] = []
        self._start()

    def _start(self) -> None:
        stages = 1 if self.pooled else int(self.problem.horizon)
        sizes = (self.problem.dimension, len(self._noise), self._extras.count)
        self._sums = [Sums.empty(*sizes) for _ in range(stages)]
        self.alarm: Alarm | None = None
        self.warning: Alarm | None = None

    @property
    def limit(self) -> float:
        """What a log e-value must reach: log of the number of tests that share the level, over the level."""
        return log(len(self._sums) * (self.problem.constraints + self.trip_on_reward) / self.level)

    @property
    def observations(self) -> int:
        """Outcomes with a measured cost so far."""
        return sum(sums.count for sums in self._sums)

    def observe(
        self, step: int, feature: Array, cost: Array | None, reward: float = 0.0, state: StateKey | None = None
    ) -> None:
        """Take one outcome into account: feature (d,), cost (M,) or None (then nothing is tested).

        `state`, a hashable key, lets the tests see costs that depend on the state beyond its features.
        """
        if cost is None:
            return
        x, z = np.asarray(feature, dtype=np.float64), np.asarray(cost, dtype=np.float64).reshape(-1)
        wanted = (self.problem.dimension,), (self.problem.constraints,)
        if (x.shape, z.shape) != wanted or not (np.isfinite(x).all() and np.isfinite(z).all() and isfinite(reward)):
            raise InputError(f"feature {x.shape}, cost {z.shape} and reward must be finite, of shapes {wanted}.")
        if not 0 <= step < self.problem.horizon:
            raise InputError(f"step must lie in 0..{self.problem.horizon - 1}, but is {step!r}.")
        sums = self._sums[0 if self.pooled else int(step)]
        if self.reward_noise is not None:
            z = np.append(z, reward)
        x = x / self.problem.feature_norm
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows raises the alarm at the next look
            sums.add(x, self._extras.of(x, sums.fitted, state), z / self._noise)
            if sums.is_due:
                self._look(sums)

    def look(self) -> None:
        """Compute the evidence now, whether it is due or not. Looking more often does not harm its validity."""
        for sums in self._sums:
            if sums.count:
                self._look(sums)

    def evidence(self) -> list[dict[str, float]]:
        """log e-value of each test, the largest over the steps: one entry per cost (and the reward, last)."""
        tables = [self._tables(sums)[0] for sums in self._sums if sums.count]
        names = list(SHARES)
        if not tables:
            return [dict.fromkeys(names, 0.0) for _ in self._noise]
        largest = np.max(tables, axis=0)
        return [{name: float(largest[i, c]) for i, name in enumerate(names)} for c in range(len(self._noise))]

    def reset(self, why: str) -> None:
        """Forget everything seen and start anew, after an alarm was understood. Each start may spend `level` again."""
        self.resets.append(f"{why} (after: {self.alarm or self.warning or 'no alarm'})")
        self._start()

    def _look(self, sums: Sums) -> None:
        """Compare the evidence of one step with the limit."""
        finite = all(np.isfinite(array).all() for array in (sums.gram, sums.moment, sums.square, sums.extra_moment))
        if not finite:
            self._note(Alarm("numbers", MESSAGES["numbers"], LARGEST, self.limit, sums.count, 0))
            return
        tables, spectrum, details = self._tables(sums)
        for column in range(len(self._noise)):
            total = float(np.logaddexp.reduce(tables[:, column]))
            if total < self.limit:
                continue
            test = list(SHARES)[int(tables[:, column].argmax())]
            message = MESSAGES[test].format(**{name: words[column] for name, words in details.items()})
            constraint = column if column < self.problem.constraints else -1
            evidence = total if total < LARGEST else LARGEST  # NaN too: what cannot be computed does not reassure
            self._note(Alarm(test, message, evidence, self.limit, sums.count, constraint))
        sums.looked(spectrum)

    def _note(self, alarm: Alarm) -> None:
        if alarm.constraint >= 0 or self.trip_on_reward:
            self.alarm = self.alarm or alarm
        if alarm.constraint < 0:
            self.warning = self.warning or alarm

    def _tables(self, sums: Sums) -> tuple[Array, Spectrum, dict[str, list[str]]]:
        """log(share × e-value) of each test and column (4, C), and what the largest parts point at."""
        spectrum = spectrum_of(sums.gram[1:, 1:], sums.moment[:, 1:], sums.square, self._bound)
        cross, square, moment = [sums.extra_cross], [sums.extra_square], [sums.extra_moment]
        marks = sums.marks
        for place in range(MARKS - len(marks), MARKS):  # extra features (1, x)·1{after observation 16·2^k}
            late = sums.gram - sums.mark_gram[place]
            cross.append(late[:, 1:])
            square.append(np.diagonal(late))
            moment.append(sums.moment - sums.mark_moment[place])
        each = extra_evidence(spectrum, np.concatenate(cross), np.concatenate(square), np.concatenate(moment, axis=1))
        count = self._extras.count
        shape, drift, since = each[:, :count], np.full(len(each), -inf), ["0"] * len(each)
        if marks:
            when = log_mean(each[:, count:].reshape(len(each), len(marks), -1))
            when -= [log((mark + 1) * (mark + 2)) for mark in marks]  # Σ 1/((k+1)(k+2)) = 1
            drift = np.logaddexp.reduce(when, axis=1)
            since = [str(FIRST_MARK * 2 ** marks[int(k)]) for k in when.argmax(axis=1)]
        extra = [self._names[int(best)] for best in shape.argmax(axis=1)]
        noise, norm = log_mean(noise_evidence(spectrum, sums.count)), log_mean(norm_evidence(spectrum))
        rows = [noise, norm, log_mean(shape), drift]
        shares = np.log(list(SHARES.values()))
        return np.array(rows) + shares[:, None], spectrum, {"extra": extra, "since": since}

    def to_json(self) -> dict[str, Any]:
        """Everything that its future depends on, as JSON; `from_json` restores it bit for bit."""
        return {
            "format": FORMAT,
            "settings": self._settings(),
            "problem": self._fingerprint(),
            "sums": [sums.to_json() for sums in self._sums],
            "alarm": asdict(self.alarm) if self.alarm else None,
            "warning": asdict(self.warning) if self.warning else None,
            "resets": list(self.resets),
        }

    @classmethod
    def from_json(cls, problem: Problem, saved: dict[str, Any]) -> Self:
        """The monitor as it was saved, for the same problem."""
        try:
            if saved["format"] != FORMAT:
                raise StateFileError(f"a saved monitor of format {saved['format']!r} cannot be read: {FORMAT!r} can.")
            monitor = cls(problem, **saved["settings"])
            if saved["problem"] != monitor._fingerprint():
                raise StateFileError(
                    f"the monitor was saved for another problem: {saved['problem']}, not {monitor._fingerprint()}."
                )
            for sums, entry in zip(monitor._sums, saved["sums"], strict=True):
                sums.take_json(entry)
            monitor.alarm = Alarm(**saved["alarm"]) if saved["alarm"] else None
            monitor.warning = Alarm(**saved["warning"]) if saved["warning"] else None
            monitor.resets = [str(why) for why in saved["resets"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateFileError(f"the saved monitor is not complete: {error}.") from error
        return monitor

    def _settings(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "pooled": self.pooled,
            "reward_noise": self.reward_noise,
            "trip_on_reward": self.trip_on_reward,
        }

    def _fingerprint(self) -> dict[str, Any]:
        p = self.problem
        numbers = {"horizon": int(p.horizon), "dimension": int(p.dimension), "feature_norm": float(p.feature_norm)}
        return {**numbers, "noise": list(p.noise), "gamma_norm": list(p.gamma_norm)}
