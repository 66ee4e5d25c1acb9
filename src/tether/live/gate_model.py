"""One stage of the gate, solved: estimates, radii and what rounding may have done to them.

Plain numpy, an eigendecomposition, and an account of its own rounding. The theorem's constants stand here a second
time: docs/guarantee.md.
"""

from collections.abc import Sequence
from math import isfinite, log, nan, sqrt
from typing import NamedTuple

import numpy as np

from tether.live.gate_facts import ULP, ExactFacts, Terms, WeighedFacts, norm_of, sizes_of
from tether.records import Array

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridges of the mixtures behind the theorem's radius, in units of the squared norm of the first feature (1 if it is 0):
docs/guarantee.md."""

SHOWN = 0.9
"""The part of a misfit of facts that a certificate must at least allow for: the gate's own may differ in rounding."""


class Fit(NamedTuple):
    """The estimate of one constraint's costs, and what may be wrong with it.

    Rounding may have moved the part of γ* that facts settle by `slip`, and a cost estimate by `margin` per unit of
    1 + |share|; contradictions between facts, beyond rounding, may have moved it by `misfit`.
    """

    gamma_hat: Array  # ĝ (d,)
    size: float  # ‖ĝ‖
    energy: float  # ‖ĝ‖_A, before the facts
    margin: float
    radius: float = nan  # the least valid one; NaN where facts and data contradict each other
    slip: float = 0.0
    misfit: float = 0.0
    trouble: str = ""  # why the facts cannot all be true


class Model(NamedTuple):
    """One stage given the facts: A (or A + wF) = Q diag(v) Qᵀ, and a fit for each constraint.

    `least` is the smallest √v and `whitener` is Q/√v (d, d), so that ‖x whitener‖ = ‖x‖_G. `free` is the whitener
    without the directions that exact facts settle (d, d), and (d, 0) where they settle all: ‖x free‖ is the width of x,
    and ‖free (x free)‖ is ‖Gx‖ given the facts.
    `span` (d, n) is an orthonormal basis of the facts' features. `error` is how far rounding may have moved A (in
    norm), `factor` what it may do to the certificate's own factors.
    """

    fits: tuple[Fit, ...]
    least: float
    whitener: Array
    free: Array
    span: Array
    error: float
    factor: float
    trace_root: float  # √tr A
    feature_norm: float
    facts: int = 0
    lost: int = 0

    @property
    def radii(self) -> tuple[float, ...]:
        """The least valid radius of each constraint (M,)."""
        return tuple(fit.radius for fit in self.fits)


class StageSums(NamedTuple):
    """What one stage has seen: A (d, d), Σzφ (M, d), Σb² (M,) where sample i may be off by b_i, and how many there
    were."""

    gram: Array
    moment: Array
    bias: Array
    scale: float  # ‖φ‖² of the first feature (1 if that is 0)
    number: int
    split: float = 1.0  # 1 / its part of δ


def solve(terms: Terms, sums: StageSums, facts: ExactFacts | WeighedFacts, stage: int) -> Model | None:
    """One stage from its sums and its facts; None if they are not finite or A < λI."""
    gram, moment, bias, scale, count, split = sums
    if not isfinite(float(gram.sum() + moment.sum() + bias.sum())):
        return None
    values, vectors = np.linalg.eigh(gram)
    error = 16.0 * ULP * float(values[-1])
    if not values[0] >= terms.ridge * (1.0 - 1e-9) - error:
        return None
    values = np.maximum(values, terms.ridge)
    betas = biased(terms, least_radii(terms, values, error, scale, split), bias)
    plain = _fitted(terms, values, vectors, moment, count, error, betas)
    if isinstance(facts, ExactFacts):
        return _conditioned_on(terms, plain, gram, facts, stage) if facts.count[stage] else plain
    return _weighed(terms, plain, sums, facts, stage)


def _fitted(
    terms: Terms, values: Array, vectors: Array, moment: Array, count: int, error: float, radii: Sequence[float]
) -> Model:
    """The ridge estimate from eigenvalues (d,) and eigenvectors (d, d), no facts yet."""
    root = np.sqrt(values)
    whitener = vectors / root
    inside = moment @ whitener  # ĝ in whitened coordinates
    gamma_hat = inside @ whitener.T
    sizes = zip(gamma_hat, sizes_of(gamma_hat).tolist(), sizes_of(inside).tolist(), radii, strict=True)
    return Model(
        fits=tuple(Fit(g, size, energy, _margin(terms, size, 0.0), beta) for g, size, energy, beta in sizes),
        least=float(root[0]),
        whitener=whitener,
        free=whitener,
        span=np.zeros((len(root), 0)),
        error=error,
        factor=4.0 * ULP * sqrt((1.0 + count) * float(values.sum() / values[0])),
        trace_root=sqrt(float(values.sum())),
        feature_norm=terms.feature_norm,
    )


def _margin(terms: Terms, size: float, slip: float) -> float:
    return terms.feature_norm * (slip + 4.0 * terms.dimension * ULP * size)


def _with_radii(model: Model, radii: Sequence[float]) -> Model:
    fits = zip(model.fits, radii, strict=True)
    return model._replace(fits=tuple(fit._replace(radius=radius) for fit, radius in fits))


def _conditioned_on(terms: Terms, plain: Model, gram: Array, facts: ExactFacts, stage: int) -> Model:
    """The model on the affine space that exact facts leave: section 17 (a). m = ‖ĝ − γ_c‖²_A is taken off β².

    γ_c is the point of that space which is nearest to ĝ in the norm of A: another formula than the learner's.
    """
    (features, costs), span = facts.accepted(stage), facts.span(stage)
    estimates, free = np.array([fit.gamma_hat for fit in plain.fits]), np.zeros((len(gram), 0))
    if len(costs) == len(gram):  # facts leave a single point: ‖δ‖_A is ‖Aδ‖_G
        gamma_hat = span.known
        taken = ((gamma_hat - estimates) @ gram @ plain.whitener).T
    else:
        held, triangle = np.linalg.qr((features @ plain.whitener).T)
        taken = np.linalg.solve(triangle.T, features @ estimates.T - costs)  # (n, M), whitened
        gamma_hat = estimates - (plain.whitener @ (held @ taken)).T
        free = plain.whitener - (plain.whitener @ held) @ held.T
        free -= (free @ held) @ held.T  # what rounding left of it
    amplified, floor = float(facts.amplification[stage]), span.rounding
    slips = (2.0 * amplified * floor).tolist()
    misfits = (SHOWN * amplified * np.maximum(facts.misfit[stage] - 2.0 * floor, 0.0)).tolist()
    sizes, troubles, fits = sizes_of(gamma_hat).tolist(), facts.contradiction(stage), []
    for j, fit in enumerate(plain.fits):
        moved, least = norm_of(taken[:, j]) if terms.reduces else 0.0, plain.least
        size = max(sizes[j], fit.size)
        doubt = moved * (1e-9 + plain.error / least**2) + plain.error * size / least
        doubt += slips[j] * plain.trace_root
        grown = fit.radius + misfits[j] * plain.trace_root
        radius = _root(grown * grown, moved * moved, (2.0 * moved + doubt) * doubt if terms.reduces else 0.0)
        margin = _margin(terms, size, slips[j])
        fits.append(Fit(gamma_hat[j], size, fit.energy, margin, radius, slips[j], misfits[j], troubles[j]))
    return plain._replace(fits=tuple(fits), free=free, span=span.basis, facts=len(costs))


def _weighed(terms: Terms, plain: Model, sums: StageSums, facts: WeighedFacts, stage: int) -> Model | None:
    """The model with facts that are known up to an error bar e: A + wF, and β_w² = β² + wJe² − m_w: section 17 (b).

    m_w is the least value of ‖ĝ − γ‖²_A + w Σ(⟨γ, f⟩ − τ_s)², which is taken at ĝ_w. With a misfit, e is e + ε.
    """
    weight, visits = float(facts.weight[stage]), float(facts.used_visits[stage])
    if weight == 0.0 or terms.error is None:
        return plain
    gram, moment, _, _, count, _ = sums
    added, safe, square = facts.used_gram[stage], facts.used_moment[stage], facts.used_square[stage]
    total = gram + weight * added
    if not (np.isfinite(total).all() and np.isfinite(safe).all() and np.isfinite(square).all()):
        return None
    values, vectors = np.linalg.eigh(total)
    error = 4.0 * (4 + len(values)) * ULP * float(values[-1])  # the certificate's factor is one of this sum
    values, betas = np.maximum(values, terms.ridge), plain.radii
    fitted = _fitted(terms, values, vectors, moment + weight * safe, count, error, betas)
    radii = []
    for j, (before, fit) in enumerate(zip(plain.fits, fitted.fits, strict=True)):
        mine, moved = fit.gamma_hat, before.gamma_hat - fit.gamma_hat
        missed = float(square[j] + mine @ (added @ mine) - 2.0 * (mine @ safe[j]))
        least = float(moved @ gram @ moved) + weight * max(missed, 0.0)
        scale = float(square[j]) + float(np.trace(added)) * max(before.size, fit.size) ** 2
        doubt = sqrt(least) * 1e-9 + error * (before.size + fit.size) / plain.least
        rounding = (2.0 * sqrt(least) + doubt) * doubt + 64.0 * ULP * (len(mine) + visits) * weight * scale
        grown = before.radius * before.radius + weight * visits * float(terms.error[j] + terms.point_error[j]) ** 2
        radii.append(_root(grown, least, rounding) if terms.reduces else sqrt(grown) * (1.0 - 1e-9))
    return _with_radii(fitted, radii)._replace(facts=int(visits))


def _root(grown: float, less: float, doubt: float) -> float:
    """√(grown − less), rounded down by `doubt` within the root; NaN if `less` is too large in any case."""
    if not less - doubt <= grown:
        return nan
    return sqrt(max(grown - less - doubt, 0.0)) * (1.0 - 1e-9)


def biased(terms: Terms, radii: Sequence[float], bias: Array) -> tuple[float, ...]:
    """The radii of samples that are off by up to b_i: larger by √(Σ b_i²), section 12. A tuned one is what it is."""
    if not isinstance(terms.radius, str):
        return tuple(radii)
    return tuple(radius + sqrt(more) for radius, more in zip(radii, bias.tolist(), strict=True))


def least_radii(terms: Terms, values: Array, error: float, scale: float, split: float = 1.0) -> tuple[float, ...]:
    """The smallest radius of each constraint that the theorem allows before facts, less what rounding may have added.

    The formulas are those of docs/guarantee.md; values (d,) are the eigenvalues of A, `scale` the unit of the grid. The
    one root has half of δ, the grid the other half; where costs drift, two roots take the place of the one.
    """
    if not isinstance(terms.radius, str):
        return (float(terms.radius),) * len(terms.threshold)
    ridge, data = terms.ridge, np.maximum(values - error, terms.ridge) - terms.ridge
    events = split * terms.stages * len(terms.threshold) / terms.confidence
    two_roots = terms.radius == "classical" or terms.drift is not None
    log_det = float(np.log1p(data / ridge).sum())
    grid = [each * scale for each in GRID]
    if terms.radius == "theorem":
        events *= 2
        grown = np.log1p(data / np.array(grid)[:, None]).sum(axis=1)
        least = float(data[0]) + 2.0 * error
    radii = []
    for noise, norm in zip(terms.noise.tolist(), terms.gamma_norm.tolist(), strict=True):
        reach, pull = noise * sqrt(log_det + 2.0 * log(events)), sqrt(ridge) * norm
        best = reach + pull if two_roots else sqrt(reach * reach + pull * pull)
        if terms.radius == "theorem":
            for other, more in zip(grid, grown.tolist(), strict=True):
                if other >= ridge:
                    stretch = sqrt((least + other) / (least + ridge))
                    reach = noise * sqrt(more + 2.0 * log(events * len(grid)))
                    wide = stretch * reach + ridge * norm / sqrt(least + ridge)
                    best = min(best, wide)
        radii.append(best * (1.0 - 1e-9))
    return tuple(radii)
