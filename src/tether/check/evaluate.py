"""What another policy would have earned, from a log: importance weights where the log overlaps, else a linear model.

With w_i = π(a_i|s_i)/p_i, p_i the probability with which the log's own policy played a_i, and q̂ = ⟨θ̂, φ⟩:

    IPS     Σ w_i r_i / n                    SNIPS   Σ w_i r_i / Σ w_i
    DR      Σ [ ⟨θ̂, φ_π(s_i)⟩ + w_i (r_i − ⟨θ̂, φ_i⟩) ] / n ,  θ̂ from the other half of the log.

All three need overlap: whatever π plays, the log's policy played with some probability. Decisions that were not drawn
have none, and no weight can make up for that: then they are refused. The linear value needs no overlap, but rewards
that are linear in φ, with a declared noise: with probability 1 − δ, for all policies at once (docs/guarantee.md),

    | ⟨θ̂, φ̄_π⟩ − ⟨θ*, φ̄_π⟩ | <= β ‖φ̄_π‖_{A^-1} ,  φ̄_π the mean over the logged contexts.
"""

from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tether.check.logs import numbers_in
from tether.errors import InputError
from tether.kernels.radius import default_cost_ridge, mixture_radius
from tether.problem.problem import Problem
from tether.records import Array

FAR_FROM_1, ROUNDED = 4.0, 1e-6
"""Standard errors by which weights may be off 1 on average, and what rounded probabilities may add: under 1 the log
lacks overlap, over 1 probabilities are not what was played with."""

FEW = 30.0
"""Equal weights that weights must be worth, unless a tenth of the log is fewer: else a handful of decisions with tiny
propensities makes the estimate, and its standard error is as much by chance."""


@dataclass(frozen=True, eq=False)
class Logged:
    """n decisions of a log, in their order, and what a policy π does in the same contexts.

    reward (n,), NaN where it never came; propensity (n,), with which the log's policy played what it played; target
    (n,), with which π does; covered (n,), how much of what π plays the log's policy could have played, NaN if that is
    not known. feature (n, d) of what was played, target_feature (n, d) of what π plays on average, baseline_feature
    (n, d) of a_0; None where the log does not say.
    """

    reward: Array
    propensity: Array
    target: Array
    covered: Array
    feature: Array | None = None
    target_feature: Array | None = None
    baseline_feature: Array | None = None

    def __post_init__(self) -> None:
        count = len(self.reward)
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and len(value) != count:
                raise InputError(f"{each.name} has {len(value)} rows, but reward has {count}.")
        chance = self.propensity
        if not ((chance > 0.0) & (chance <= 1.0)).all():
            raise InputError("a propensity is the probability of what was played: it must be over 0, and at most 1.")
        if not ((self.target >= 0.0) & (self.target <= 1.0)).all():
            raise InputError("the policy's probabilities of what was played must lie in 0 to 1.")

    def where(self, rows: NDArray[np.bool_]) -> Self:
        """Only these decisions."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        kept: dict[str, Any] = {name: part[rows] for name, part in parts.items() if part is not None}
        return replace(self, **kept)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The value of a policy per decision, by one method; `error` is its standard error, for one look at a fixed n."""

    name: str
    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a log says of a policy: `decisions` with a reward (`missing` had none), what they earned on average, and the
    estimates, or why there are none (`refused`). `effective` is how many equal weights say as much as theirs."""

    decisions: int
    missing: int
    observed: float
    estimates: tuple[Estimate, ...]
    effective: float
    refused: str


def evaluate(logged: Logged) -> Evaluation:
    """IPS, SNIPS and, where there are features, the doubly robust estimate; refused on logs without overlap."""
    seen = ~np.isnan(logged.reward)
    rows = logged.where(seen)
    count, missing = int(seen.sum()), int((~seen).sum())
    observed = float(rows.reward.mean()) if count else np.nan
    refused = _no_overlap(rows)
    if refused:
        return Evaluation(count, missing, observed, (), 0.0, refused)
    weights = rows.target / rows.propensity
    estimates = [_mean("IPS", weights * rows.reward)]
    value = float(weights @ rows.reward / weights.sum())
    error = float(np.linalg.norm(weights * (rows.reward - value)) / weights.sum())
    estimates.append(Estimate("SNIPS", value, error))
    if rows.feature is not None and rows.target_feature is not None:
        played, wanted = _predicted(rows.feature, rows.target_feature, rows.reward)
        estimates.append(_mean("DR", wanted + weights * (rows.reward - played)))
    return Evaluation(count, missing, observed, tuple(estimates), _effective(weights), "")


def _mean(name: str, values: Array) -> Estimate:
    return Estimate(name, float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values)))


def _no_overlap(rows: Logged) -> str:
    """Why these decisions cannot be weighted; empty if they can."""
    if len(rows.reward) < 2:
        return f"{len(rows.reward)} decisions have a reward: at least 2 are needed."
    never = (rows.covered < 1.0) | ((rows.propensity >= 1.0) & (rows.target < 1.0))
    if never.any():
        return (
            f"in {int(never.sum())} of {len(never)} decisions the policy plays what the log's policy never did there: "
            "no weight turns rewards of one action into those of another. Draw decisions (Guards(canary=p)), or use "
            "the linear value."
        )
    weights = rows.target / rows.propensity
    mean, error = float(weights.mean()), float(weights.std(ddof=1)) / sqrt(len(weights))
    if abs(mean - 1.0) > FAR_FROM_1 * error + ROUNDED:
        rarely = "it plays what the log's policy hardly ever did, or " if mean < 1.0 else ""
        return (
            f"weights are {mean:.4g} ± {error:.2g} on average, and 1 where the log overlaps with the policy: {rarely}"
            "propensities are wrong."
        )
    if (effective := _effective(weights)) < max(2.0, min(FEW, len(weights) / 10.0)):
        return (
            f"the weights of {len(weights)} decisions say as much as {effective:.1f} equal ones: a few that the log's "
            "policy hardly ever makes would decide everything."
        )
    return ""


def _effective(weights: Array) -> float:
    """How many equal weights say as much: (Σw)²/Σw²."""
    return float(weights.sum() ** 2 / (weights @ weights))


def _predicted(feature: Array, wanted: Array, reward: Array) -> tuple[Array, Array]:
    """⟨θ̂, φ⟩ of what was played and of what π plays (n,), (n,), each with θ̂ from the other half of the log."""
    first = np.arange(len(reward)) % 2 == 0
    one, other = np.zeros(len(reward)), np.zeros(len(reward))
    for half in (first, ~first):
        theta, _ = _ridge(feature[~half], reward[~half], 1.0)
        one[half], other[half] = feature[half] @ theta, wanted[half] @ theta
    return one, other


def _ridge(feature: Array, reward: Array, ridge: float) -> tuple[Array, Array]:
    """θ̂ (d,) and A (d, d)."""
    gram: Array = ridge * np.eye(feature.shape[1]) + feature.T @ feature
    return np.array(np.linalg.solve(gram, feature.T @ reward), dtype=np.float64), gram


@dataclass(frozen=True, slots=True)
class LinearValue:
    """(value, low, high) of a policy, and of what it gains over a_0 (None if a_0's features are not known), over the
    logged contexts, with probability `confidence` where rewards are linear with noise `noise`."""

    value: tuple[float, float, float]
    gain: tuple[float, float, float] | None
    confidence: float
    noise: float


def linear_value(problem: Problem, logged: Logged) -> LinearValue:
    """The value of a policy if rewards are linear in φ, from a log of any policy. What it needs, and lacks, is an
    InputError."""
    if problem.horizon != 1:
        raise InputError(f"the linear value is one of bandits (H = 1), but H = {problem.horizon}.")
    if not problem.reward_noise > 0.0:
        raise InputError("the linear value needs the noise of rewards: declare Problem(reward_noise=…), over 0.")
    if logged.feature is None or logged.target_feature is None:
        raise InputError("the linear value needs the features of what was played, and of what the policy plays.")
    seen, noise = ~np.isnan(logged.reward), float(problem.reward_noise)
    norm = sqrt(problem.dimension) / problem.feature_norm  # ‖θ*‖, as everywhere
    ridge = default_cost_ridge((noise,), (norm,), problem.dimension)
    theta, gram = _ridge(logged.feature[seen], logged.reward[seen], ridge)
    log_det = float(np.linalg.slogdet(gram / ridge)[1])
    beta = float(mixture_radius(log_det, noise, 1.0 / problem.confidence, ridge, norm))

    def around(x: Array) -> tuple[float, float, float]:
        middle, reach = float(theta @ x), beta * sqrt(float(x @ np.linalg.solve(gram, x)))
        return middle, middle - reach, middle + reach

    wanted = logged.target_feature.mean(axis=0)
    gain = None if logged.baseline_feature is None else around(wanted - logged.baseline_feature.mean(axis=0))
    return LinearValue(around(wanted), gain, 1.0 - problem.confidence, noise)


def logged_table(columns: dict[str, Any], policy: str) -> Logged:
    """A table with columns reward, propensity, `policy` (its probability of what was played), and if known phi_0, … and
    `policy`_phi_0, …: the features of what was played, and of what the policy plays on average."""
    missing = [name for name in ("reward", "propensity", policy) if name not in columns]
    if missing:
        raise InputError(
            f"the table has no column {' and no column '.join(map(repr, missing))}, only {', '.join(sorted(columns))}. "
            "Without the probabilities with which the log's policy played, nothing can be weighted."
        )

    def features(prefix: str) -> Array | None:
        count = 0
        while f"{prefix}{count}" in columns:
            count += 1
        rows = np.array([numbers_in(f"{prefix}{j}", columns[f"{prefix}{j}"]) for j in range(count)])
        return rows.T if count else None

    reward, propensity, target = (numbers_in(name, columns[name]) for name in ("reward", "propensity", policy))
    covered = np.full(len(reward), np.nan)
    return Logged(reward, propensity, target, covered, features("phi_"), features(f"{policy}_phi_"))
