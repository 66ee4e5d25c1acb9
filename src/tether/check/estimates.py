"""What a log says about numbers that nobody declared: σ, B, the misfit ε and the drift ρ, each with a margin.

Every bound names what it rests on, or says that the log does not allow one; docs/check.md has the proofs. They hold for
logs whose actions were chosen by what was seen before.
"""

from dataclasses import dataclass
from math import log as ln
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import chi2

from tether.check.logs import Log
from tether.check.report import Finding, judged, unknown
from tether.problem.effects import HOW, ROUNDED
from tether.problem.problem import Problem
from tether.records import Array

Rows = NDArray[np.bool_]
"""Which rows of a log (n,)."""

MISFIT, DRIFT = "estimate: misfit ε", "estimate: drift ρ"
NOISE, NORM, FAMILY = "estimate: noise σ", "estimate: norm B", "estimate: features"

PRIOR = 10.0
"""ρ of the mixture N(0, 1/ρ) behind the mean of a cell: tightest after about ten times as many outcomes."""

COVERED = 0.9
"""The share of the outcomes whose cells a bound on ε speaks of: those that were visited most."""

MOST_CELLS = 400
"""More cells than that make no bound sharper, and the linear programme slow."""


# Misfit: cells of equal features.


@dataclass(frozen=True, eq=False)
class Cells:
    """Outcomes of equal features: the feature (K, d), how many (K,), the mean cost (K, M), and each outcome's cell."""

    feature: Array
    count: Array
    mean: Array
    place: NDArray[np.intp]

    @classmethod
    def of(cls, feature: Array, cost: Array) -> "Cells":
        """From features (n, d) and costs (n, M), in the order in which they are first met."""
        _, first, place = np.unique(feature, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        place = rank[place.reshape(-1)]
        count = np.bincount(place, minlength=len(first)).astype(np.float64)
        total = np.array([np.bincount(place, column, len(first)) for column in cost.T]).T
        return cls(feature[first[order]], count, total / count[:, None], place)

    def radius(self, sigma: float, level: float) -> Array:
        """How far each mean may be from what it estimates, all at once with probability 1 − level, (K,).

        |Σε| <= σ√((n + ρ)(log((n + ρ)/ρ) + 2 log(1/δ_k))) at all times; δ_k = level/(k(k+1)) for the k-th cell met.
        """
        n, k = self.count, np.arange(1.0, len(self.count) + 1.0)
        return sigma * np.sqrt((n + PRIOR) * (np.log((n + PRIOR) / PRIOR) + 2.0 * np.log(k * (k + 1.0) / level))) / n


@dataclass(frozen=True, slots=True)
class Misfit:
    """ε lies in [low, high] with the stated confidence, for a γ of length `norm`, over `cells` cells."""

    low: float
    high: float
    norm: float
    cells: int


def misfit_bound(feature: Array, cost: Array, sigma: float, level: float, moved: Array | None = None) -> Misfit | None:
    """How far the expected costs (n,) of the most visited features (n, d) are from the best linear model of them.

    For every γ, |c_k − ⟨γ, x_k⟩| lies within r_k of |mean_k − ⟨γ, x_k⟩|: so the least over γ of the largest of
    |mean_k − ⟨γ, x_k⟩| ± r_k brackets ε. Nothing is assumed but σ. None where features do not repeat. By `moved` (n,) a
    declared drift may have shifted each cost: the mean of a cell by no more than its mean.
    """
    moved = np.zeros(len(cost)) if moved is None else moved
    cells = Cells.of(feature, np.column_stack([cost, moved]))
    radius = cells.radius(sigma, level) + cells.mean[:, 1]
    order = np.argsort(-cells.count)[:MOST_CELLS]
    reached = np.searchsorted(np.cumsum(cells.count[order]), COVERED * len(feature)) + 1
    if reached > len(order) or cells.count[order[:reached]].min() < 2.0:
        return None
    kept = order[:reached]
    x, mean, r = cells.feature[kept], cells.mean[kept, 0], radius[kept]
    high, gamma = _least_largest(x, mean, r)
    low, _ = _least_largest(x, mean, -r)
    return Misfit(max(low, 0.0), high, float(np.linalg.norm(gamma)), len(kept))


def _least_largest(x: Array, mean: Array, radius: Array) -> tuple[float, Array]:
    """min over γ of max_k |mean_k − ⟨γ, x_k⟩| + radius_k, and that γ: a linear programme. (K, d), (K,), (K,)."""
    one = np.ones((len(x), 1))
    rows, right = np.block([[x, -one], [-x, -one]]), np.concatenate([mean - radius, -mean - radius])
    free = [(None, None)] * (x.shape[1] + 1)
    found = linprog(np.append(np.zeros(x.shape[1]), 1.0), A_ub=rows, b_ub=right, bounds=free, method="highs").x
    return float(found[-1]), found[:-1]


# How far least squares may be off.

RIDGES: Array = 10.0 ** np.arange(-3.0, 7.0)
"""ℓ of the mixtures, fixed beforehand; each has its share of the level, so that the best may be taken."""


def fit_radius(gram: Array, level: float) -> float:
    """b with ‖e‖_V <= σb for the error e of least squares, with probability 1 − level; V (d, d) is positive definite.

    ‖e‖²_V = ‖S‖²_{V⁻¹} <= (1 + ℓ/v) ‖S‖²_{(V+ℓI)⁻¹} <= (1 + ℓ/v) σ²(log det(I + V/ℓ) + 2 log(1/δ)), where
    S = Σψε and v is the least eigenvalue.
    """
    values = np.linalg.eigvalsh(gram)
    price = np.log1p(values[:, None] / RIDGES).sum(axis=0) + 2.0 * ln(len(RIDGES) / level)
    return sqrt(float(((1.0 + RIDGES / values[0]) * price).min()))


# Drift: a straight line in time.


@dataclass(frozen=True, slots=True)
class Drift:
    """With the stated confidence ρ >= low, however γ moves; and ‖v‖ <= high if γ_t = γ_0 + tv. Per unit of time."""

    low: float
    high: float


def drift_bound(
    feature: Array, cost: Array, time: Array, sigma: float, level: float, misfit: float = 0.0
) -> Drift | None:
    """How fast γ moves along a straight line in time, in the directions that the log has explored; (n, d), (n,), (n,).

    Least squares on ψ = (x, tx), with t scaled to [0, 1] over the log. None where ψ does not vary in all directions.
    Costs that are off by up to `misfit` move the estimate by up to ε√n in the norm of V (docs/theory.md section 12).
    The length of the estimate is a sum Σ w_i z_i with Σ w_i x_i = 0. So a γ that moves by up to ρ, along whatever path,
    moves it by Σ w_i ⟨γ_i, x_i⟩ = ∫ ⟨γ'(s), Σ_{t_i > s} w_i x_i⟩ ds, at most ρ times the integral of the norms.
    """
    values, axes = np.linalg.eigh(feature.T @ feature)
    seen = axes[:, values > 1e-9 * max(float(values[-1]), 1e-300)]  # nothing is known of directions without data
    x, span = feature @ seen, float(np.ptp(time)) or 1.0
    psi = np.hstack([x, ((time - time.min()) / span)[:, None] * x])
    gram = psi.T @ psi
    least = float(np.linalg.eigvalsh(gram)[0])
    if len(psi) <= psi.shape[1] or least <= 1e-9 * float(np.trace(gram)):
        return None
    inverse = np.linalg.inv(gram)
    moved = (inverse @ (psi.T @ cost))[x.shape[1] :]
    largest = float(np.linalg.eigvalsh(inverse[x.shape[1] :, x.shape[1] :])[-1])
    error = (sigma * fit_radius(gram, level) + misfit * sqrt(len(psi))) * sqrt(largest)
    size = float(np.linalg.norm(moved))
    order = np.argsort(time, kind="stable")
    weighed = (psi @ (inverse[:, x.shape[1] :] @ moved) / max(size, 1e-300))[order, None] * x[order]  # w_i x_i
    before = np.linalg.norm(np.cumsum(weighed, axis=0)[:-1], axis=1)  # as long as the sum over those after each row
    reach = max(float(before @ np.diff(time[order])), span)
    return Drift(max(size - error, 0.0) / reach, (size + error) / span)


# What the checker reports.


def estimates(problem: Problem, log: Log, level: float, pooled: bool) -> list[Finding]:
    """σ, B, ε, ρ and a feature family from the measured rows of a log, as far as it allows."""
    steps = [None] if pooled else list(range(problem.horizon))
    parts = [log.measured if step is None else log.measured & (log.step == step) for step in steps]
    parts = [rows for rows in parts if rows.any()]
    share = level / (len(steps) * len(problem.constraints))
    return [
        _misfit(problem, log, parts, share, level),
        _drift(problem, log, parts, share, level),
        _noise(problem, log, parts, share, level),
        _norm(problem, log, parts, share, level),
        _family(problem, log, parts),
    ]


def _times(problem: Problem, log: Log) -> Array | None:
    """When each row was decided, in the drift's unit (n,); None if that is seconds and the log has no times."""
    return np.arange(len(log.step), dtype=np.float64) if problem.drift_per == "decision" else log.time


def _misfit(problem: Problem, log: Log, parts: list[Rows], share: float, level: float) -> Finding:
    """The largest bracket of ε over steps and constraints, compared with what was declared."""
    worst, cells, time = Misfit(0.0, 0.0, 0.0, 0), 0, _times(problem, log)
    if time is None and any(problem.drift):
        return unknown(MISFIT, "drift is per second, and the log has no times", "log a column `time`")
    for rows in parts:
        for j, sigma in enumerate(problem.noise):
            x, moved = log.feature[rows], None
            if problem.drift[j] and time is not None:
                away = np.abs(time[rows] - (time[rows].min() + time[rows].max()) / 2.0)
                moved = problem.drift[j] * away * np.linalg.norm(x, axis=1)
            found = misfit_bound(x, log.cost[rows, j], sigma, share, moved)
            if found is None:
                why = (
                    f"too few features repeat to cover {COVERED:.0%} of the outcomes, and σ hides what single ones say"
                )
                return unknown(MISFIT, why, "log some actions many times each, or declare Misfit(ε) from what you know")
            declared, cells = problem.misfit[j], cells + found.cells
            if found.low > declared:
                text = f"ε >= {found.low:.3g} with confidence {1.0 - level:g}, over {found.cells} features that repeat"
                text += f", but Misfit({declared:g}) was declared"
                return judged(MISFIT, False, text, f"declare Misfit({found.high:.2g}) or more, or add features")
            worst = max(worst, found, key=lambda one: one.high)
    text = (
        f"ε <= {worst.high:.3g} with confidence {1.0 - level:g}, over {cells} features that repeat and hold "
        f"{COVERED:.0%} of the outcomes, if σ is right; declared {max(problem.misfit):g}. Other features may be worse"
    )
    return judged(MISFIT, True, text)


def _drift(problem: Problem, log: Log, parts: list[Rows], share: float, level: float) -> Finding:
    """The largest bracket of ρ over steps and constraints, compared with what was declared."""
    time, worst = _times(problem, log), Drift(0.0, 0.0)
    unit = "row" if problem.drift_per == "decision" else "second"
    given = "if costs are linear" + (" up to the declared misfit" if any(problem.misfit) else "")
    if time is None:
        return unknown(DRIFT, "drift is per second, and the log has no times", "log a column `time`")
    for rows in parts:
        for j, sigma in enumerate(problem.noise):
            costs = log.cost[rows, j]
            found = drift_bound(log.feature[rows], costs, time[rows], sigma, share, problem.sample_error[j])
            if found is None:
                why = "too few outcomes, or features that change together with time"
                return unknown(DRIFT, why, "log more outcomes of the same actions, early and late")
            if found.low > problem.drift[j]:
                text = (
                    f"ρ >= {found.low:.2g} per {unit} with confidence {1.0 - level:g}, {given} and σ is right; but "
                    f"Drift({problem.drift[j]:g}) was declared"
                )
                way_out = "or make what changes a feature, or start anew without the old rows"
                return judged(DRIFT, False, text, f"declare Drift({found.high:.2g}) or more, {way_out}")
            worst = Drift(max(worst.low, found.low), max(worst.high, found.high))
    at_least = f" and at least {worst.low:.2g}" if worst.low > 0.0 else ""
    text = (
        f"ρ <= {worst.high:.2g}{at_least} per {unit}, with confidence {1.0 - level:g}, {given}, σ is right and (for "
        f"the upper end) γ moves along a straight line in time; declared {_text(problem.drift)}. What came and went is "
        "not seen, nor directions that were not played"
    )
    return judged(DRIFT, True, text)


def _noise(problem: Problem, log: Log, parts: list[Rows], share: float, level: float) -> Finding:
    """σ from the scatter of outcomes of equal features, or else around the fit, with a χ² margin."""
    suggested, kind = np.zeros(len(problem.constraints)), "of equal features"
    for rows in parts:
        x, z = log.feature[rows], log.cost[rows]
        cells = Cells.of(x, z)
        free = len(z) - len(cells.count)
        if free >= 30:
            residual = z - cells.mean[cells.place]
        else:
            gamma, _, rank, _ = np.linalg.lstsq(x, z, rcond=1e-9)
            residual, free, kind = z - x @ gamma, len(z) - int(rank), "around the best linear fit (misfit included)"
        if free < 30:
            return unknown(NOISE, f"only {max(free, 0)} outcomes more than unknowns", "log more; σ is your upper bound")
        suggested = np.maximum(suggested, np.sqrt((residual**2).sum(axis=0) / chi2.ppf(share, free)))
    enough, text = bool((np.asarray(problem.noise) >= suggested).all()), ", ".join(f"{one:.3g}" for one in suggested)
    evidence = f"σ <= {text} with confidence {1.0 - level:g} from the scatter {kind}, if the noise is Gaussian"
    if log.cost[log.measured].min() >= 0.0 and log.cost[log.measured].max() <= 1.0:
        evidence += "; if costs always lie in [0, 1], σ = 0.5 holds whatever the noise is"
    if enough:
        return judged(NOISE, True, evidence)
    return unknown(
        NOISE, f"{evidence}; declared {_text(problem.noise)}", f"declare noise={text}, or more if tails may be heavy"
    )


def _norm(problem: Problem, log: Log, parts: list[Rows], share: float, level: float) -> Finding:
    """What the log demands of ‖γ*‖, and at most allows where it has explored every direction well enough."""
    told = any(one.feature_effects is not None for one in problem.constraints)
    guess = not told and np.allclose(problem.gamma_norm, np.sqrt(problem.dimension))
    prefix = "B = √d is the paper's default, a guess about your costs; " if guess else ""
    floor, ceiling = np.zeros(len(problem.constraints)), np.zeros(len(problem.constraints))
    open_ways = ""
    for rows in parts:
        x, off = log.feature[rows] / problem.feature_norm, np.zeros(int(rows.sum()))
        time = _times(problem, log)
        values, axes = np.linalg.eigh(x.T @ x)
        seen = len(x) > x.shape[1] and values[0] > 1e-9 * values[-1]
        for j, sigma in enumerate(problem.noise):
            off = np.full(len(x), problem.sample_error[j])
            if problem.drift[j] and time is not None:
                away = np.abs(time[rows] - (time[rows].min() + time[rows].max()) / 2.0)
                off = off + problem.drift[j] * away * np.linalg.norm(log.feature[rows], axis=1)
            z, far = log.cost[rows, j], float(np.linalg.norm(off))
            floor[j] = max(floor[j], norm_floor(x, z, sigma, far, share) / problem.feature_norm)
            if not seen:
                open_ways = "the log leaves directions of γ open, whose length nobody has seen"
                continue
            reach = (sigma * fit_radius(x.T @ x, share) + far) / sqrt(float(values[0]))
            fitted = float(np.linalg.norm((axes.T @ (x.T @ z)) / values))
            if not reach <= fitted:  # a ceiling of noise alone says nothing about γ*
                open_ways = open_ways or "the log hardly explores some directions of γ, where it shows noise"
            ceiling[j] = max(ceiling[j], (fitted + reach) / problem.feature_norm)
    declared = np.asarray(problem.gamma_norm)
    sure = f"with confidence {1.0 - level:g}, if costs are linear and σ is right"
    at_most = "" if open_ways else f" and ‖γ*‖ <= {_text(ceiling)}"
    evidence = f"{prefix}‖γ*‖ >= {_text(floor)}{at_most} {sure}; declared {_text(problem.gamma_norm)}"
    evidence += f"; {open_ways}" if open_ways else ""
    advice = f"declare {HOW}. This log demands at least gamma_norm={_text(floor)}"
    advice += "; data cannot bound it from above" if open_ways else f", and gamma_norm={_text(ceiling)} is enough"
    if not open_ways and (declared >= ceiling).all():
        return judged(NORM, True, evidence)
    if (declared * (1.0 + ROUNDED) < floor).any():
        return judged(NORM, False, evidence, advice)
    return unknown(NORM, evidence, advice)


def norm_floor(feature: Array, cost: Array, sigma: float, off: float, level: float) -> float:
    """A B that ‖γ*‖ is not under with probability 1 − level, from features (n, d) and costs (n,).

    For γ̂ of ridge ℓ, ‖γ̂ − γ*‖ <= r + √ℓ‖γ*‖ in the norm of V + ℓI, with r² = σ²(log det(I + V/ℓ) + 2 log(1/δ)), and
    r larger by the root of the squares that costs are `off` by. On the span of the eigenvectors of V whose values are
    at least v, lengths are at most 1/√(v + ℓ) of that norm: ‖Pγ̂‖ <= ‖γ*‖ + (r + √ℓ‖γ*‖)/√(v + ℓ). Every v and ℓ
    gives a bound. Directions that were hardly played have a large ‖γ̂‖ and a small v: they cannot raise the floor.
    """
    values, axes = np.linalg.eigh(feature.T @ feature)
    values, along = np.maximum(values[::-1], 0.0), (axes.T @ (feature.T @ cost))[::-1]
    best = 0.0
    for ridge in RIDGES:
        price = float(np.log1p(values / ridge).sum()) + 2.0 * ln(len(RIDGES) / level)
        stiff = np.sqrt(values + ridge)
        length = np.sqrt(np.cumsum((along / (values + ridge)) ** 2))
        floors = (length - (sigma * sqrt(price) + off) / stiff) / (1.0 + sqrt(ridge) / stiff)
        best = max(best, float(floors.max()))
    return best


def _family(problem: Problem, log: Log, parts: list[Rows]) -> Finding:
    """Whether more features predict later costs better: an indication, not a test."""
    errors: dict[str, list[Array]] = {}
    for rows in parts:
        x, z = log.feature[rows] / problem.feature_norm, log.cost[rows] / np.asarray(problem.noise)
        half = len(x) // 2
        pairs = np.triu_indices(x.shape[1]) if x.shape[1] <= 12 else (np.arange(x.shape[1]),) * 2
        families = {
            "the features as they are": x,
            "a constant beside them": np.hstack([x, np.ones((len(x), 1))]),
            "their squares and products beside them (Polynomial, degree=2)": np.hstack(
                [x, x[:, pairs[0]] * x[:, pairs[1]]]
            ),
        }
        if half < 2 * max(made.shape[1] for made in families.values()):
            continue
        for name, made in families.items():
            gram = made[:half].T @ made[:half] + 1e-6 * half * np.eye(made.shape[1])
            gamma = np.linalg.solve(gram, made[:half].T @ z[:half])
            errors.setdefault(name, []).append(((z[half:] - made[half:] @ gamma) ** 2).max(axis=1))
    if not errors:
        return unknown(FAMILY, "too few outcomes to compare families of features", "log more")
    square = {name: np.concatenate(parts) for name, parts in errors.items()}
    plain, *others = square
    best = min(others, key=lambda name: float(square[name].mean()))
    gained = square[plain] - square[best]
    before, after = (sqrt(float(square[name].mean())) for name in (plain, best))
    if gained.mean() <= 3.0 * gained.std() / sqrt(len(gained)) or after > 0.98 * before or before < 0.1:
        return judged(FAMILY, True, f"held-out residuals are {before:.2f} σ; no richer family predicts clearly better")
    text = f"held-out residuals fall from {before:.2f} σ to {after:.2f} σ with {best}"
    return unknown(FAMILY, text, f"try {best}; then check again on a fresh log")


def _text(values: Array | tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
