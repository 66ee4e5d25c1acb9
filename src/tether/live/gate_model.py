"""The gate's arithmetic: plain numpy, an eigendecomposition, and an account of its own rounding.

Facts about γ* are used in whitened coordinates, where A is the identity: a QR decomposition of the whitened safe
features gives the directions that they settle. What is left of a whitened feature is its width. (The learner goes the
other way: it solves the regression in the complement of the facts.)
"""

from collections.abc import Sequence
from math import inf, log, nan, sqrt
from typing import NamedTuple

import numpy as np

from tether.live.gate_facts import MISFIT, ExactFacts, WeighedFacts
from tether.live.gate_terms import ULP, Terms
from tether.records import Array

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridges of the mixtures behind the theorem's radius, in units of the squared feature norm (docs/guarantee.md): stated
here a second time on purpose."""

OUTWARD = 4e-9
"""Certificates enlarge widths by up to 2e-9 ‖x‖_G; the gate allows for twice that."""

SPANNED = 1e-6
"""A safe feature of which the facts leave open no more than this part adds nothing to them."""

MIXED = 4e-6
"""Certificates of mixtures enlarge the squared width of each part by up to 1e-6 of itself; the gate allows 4e-6."""

SHOWN = 0.9
"""The part of a misfit of facts that a certificate must at least allow for: the gate's own may differ in rounding."""


NO_PARTS = np.zeros(0)


class Model(NamedTuple):
    """One stage, solved, given the facts: A (or A + wF) = Q diag(v) Qᵀ, the estimate (M, d), the least radii (M,).

    `root` is √v (d,) and `whitener` is Q/√v (d, d), so that ‖x whitener‖ = ‖x‖_G. `free` (d, d) is the whitener without
    the directions that exact facts settle: ‖x free‖ is the width of x. `span` (d, n) is an orthonormal basis of the
    facts' features. `error` is how far rounding may have moved A (in norm), `factor` what it may do to the
    certificate's own factors, `slip` (M,) what it may do to the part of γ* that facts settle; `misfit` (M,) is what
    contradictions between facts, beyond rounding, may do to it.
    """

    root: Array
    whitener: Array
    gamma_hat: Array
    size: Array  # ‖ĝ‖ (M,)
    energy: Array  # ‖ĝ‖_A, before the facts (M,)
    radii: tuple[float, ...]  # NaN where facts and data contradict each other
    error: float
    factor: float
    free: Array
    span: Array
    slip: Array
    misfit: Array
    trace: float
    feature_norm: float
    facts: int
    troubles: tuple[str, ...]

    def margin(self, j: int) -> float:
        """What rounding may have done to a cost estimate, per unit of 1 + |share|."""
        rounding = 4.0 * len(self.root) * ULP * float(self.size[j])
        return self.feature_norm * (float(self.slip[j]) + rounding)


class Geometry(NamedTuple):
    """What a bound at one feature is made of: mean + β_s · width, where β_s² = β² − pull (docs/theory.md section 4).

    `norm` is ‖x‖_G. Rounding may have moved the mean by `moved`, the width by `wider` and the pull by `shift`. `extra`
    is what misfits of the facts must at least add to the bound; certificates may have taken `spared` off the pull.
    `parts` (n,) are the widths of what a mixture is made of, times their probabilities; empty if nothing was mixed.
    """

    mean: float
    width: float
    norm: float
    pull: float = 0.0
    moved: float = 0.0
    wider: float = 0.0
    shift: float = 0.0
    extra: float = 0.0
    spared: float = 0.0
    parts: Array = NO_PARTS


def solve(
    terms: Terms, gram: Array, moment: Array, count: int, facts: ExactFacts | WeighedFacts, stage: int
) -> Model | None:
    """One stage from its sums, gram (d, d) and moment (M, d), and its facts; None if they are not finite or A < λI."""
    if not (np.isfinite(gram).all() and np.isfinite(moment).all()):
        return None
    values, vectors = np.linalg.eigh(gram)
    error = 16.0 * ULP * float(values[-1])
    if not values[0] >= terms.ridge * (1.0 - 1e-9) - error:
        return None
    values = np.maximum(values, terms.ridge)
    plain = _fitted(terms, values, vectors, moment, count, error)
    betas = least_radii(terms, values, error)
    if isinstance(facts, ExactFacts):
        return _conditioned_on(terms, plain, betas, facts, stage)
    return _weighed(terms, plain, betas, (gram, moment, count), facts, stage)


def _fitted(terms: Terms, values: Array, vectors: Array, moment: Array, count: int, error: float) -> Model:
    """The ridge estimate from eigenvalues (d,) and eigenvectors (d, d), no facts yet."""
    root = np.sqrt(values)
    whitener = vectors / root
    inside = moment @ whitener  # ĝ in whitened coordinates
    gamma_hat = inside @ whitener.T
    none = np.zeros(len(moment))
    return Model(
        root=root,
        whitener=whitener,
        gamma_hat=gamma_hat,
        size=_sizes(gamma_hat),
        energy=_sizes(inside),
        radii=(),
        error=error,
        factor=4.0 * ULP * sqrt((1.0 + count) * float(values.sum() / values[0])),
        free=whitener,
        span=np.zeros((len(root), 0)),
        slip=none,
        misfit=none,
        trace=float(values.sum()),
        feature_norm=terms.feature_norm,
        facts=0,
        troubles=("",) * len(moment),
    )


def _conditioned_on(terms: Terms, plain: Model, betas: Sequence[float], facts: ExactFacts, stage: int) -> Model:
    """The model on the affine space that exact facts leave: section 17 (a). m = ‖ĝ − γ_c‖²_A is taken off β²."""
    count = int(facts.count[stage])
    if count == 0:
        return plain._replace(radii=tuple(betas))
    features, costs = facts.accepted(stage)
    held, triangle = np.linalg.qr((features @ plain.whitener).T)
    taken = np.linalg.solve(triangle.T, features @ plain.gamma_hat.T - costs)  # (n, M), whitened
    gamma_hat = plain.gamma_hat - (plain.whitener @ (held @ taken)).T
    free = plain.whitener - (plain.whitener @ held) @ held.T
    free -= (free @ held) @ held.T  # what rounding left of it
    amplified, floor = float(facts.amplification[stage]), facts.rounding(stage)
    slip = 2.0 * amplified * floor
    misfit = SHOWN * amplified * np.maximum(facts.misfit[stage] - 2.0 * floor, 0.0)
    radii = []
    for j, beta in enumerate(betas):
        moved = _norm(taken[:, j]) if terms.reduces else 0.0
        least = float(plain.root[0])
        doubt = moved * (1e-9 + plain.error / least**2) + plain.error * float(plain.size[j]) / least
        doubt += float(slip[j]) * sqrt(plain.trace)
        grown = beta + float(misfit[j]) * sqrt(plain.trace)
        radii.append(_root(grown * grown, moved * moved, (2.0 * moved + doubt) * doubt if terms.reduces else 0.0))
    return plain._replace(
        gamma_hat=gamma_hat,
        size=np.maximum(_sizes(gamma_hat), plain.size),
        radii=tuple(radii),
        free=free,
        span=facts.span(stage).basis,
        slip=slip,
        misfit=misfit,
        facts=count,
        troubles=tuple(facts.contradiction(stage)),
    )


def _weighed(
    terms: Terms,
    plain: Model,
    betas: Sequence[float],
    sums: tuple[Array, Array, int],
    facts: WeighedFacts,
    stage: int,
) -> Model | None:
    """The model with facts that are known up to an error bar e: A + wF, and β_w² = β² + wJe² − m_w: section 17 (b).

    m_w is the least value of ‖ĝ − γ‖²_A + w Σ(⟨γ, f⟩ − τ_s)², which is taken at ĝ_w.
    """
    weight, visits = float(facts.weight[stage]), float(facts.used_visits[stage])
    if weight == 0.0 or terms.error is None:
        return plain._replace(radii=tuple(betas))
    gram, moment, count = sums
    added, safe, square = facts.used_gram[stage], facts.used_moment[stage], facts.used_square[stage]
    total = gram + weight * added
    if not (np.isfinite(total).all() and np.isfinite(safe).all() and np.isfinite(square).all()):
        return None
    values, vectors = np.linalg.eigh(total)
    error = 4.0 * (4 + len(values)) * ULP * float(values[-1])  # the certificate's factor is one of this sum
    fitted = _fitted(terms, np.maximum(values, terms.ridge), vectors, moment + weight * safe, count, error)
    radii = []
    for j, beta in enumerate(betas):
        mine, moved = fitted.gamma_hat[j], plain.gamma_hat[j] - fitted.gamma_hat[j]
        missed = float(square[j] + mine @ (added @ mine) - 2.0 * (mine @ safe[j]))
        least = float(moved @ gram @ moved) + weight * max(missed, 0.0)
        scale = float(square[j]) + float(np.trace(added)) * max(float(plain.size[j]), float(fitted.size[j])) ** 2
        doubt = sqrt(least) * 1e-9 + error * float(plain.size[j] + fitted.size[j]) / float(plain.root[0])
        rounding = (2.0 * sqrt(least) + doubt) * doubt + 64.0 * ULP * (len(mine) + visits) * weight * scale
        grown = beta * beta + weight * visits * float(terms.error[j]) ** 2
        radii.append(_root(grown, least, rounding) if terms.reduces else sqrt(grown) * (1.0 - 1e-9))
    return fitted._replace(radii=tuple(radii), facts=int(visits))


def _root(grown: float, less: float, doubt: float) -> float:
    """√(grown − less), rounded down by `doubt` within the root; NaN if `less` is too large in any case."""
    if not less - doubt <= grown:
        return nan
    return sqrt(max(grown - less - doubt, 0.0)) * (1.0 - 1e-9)


def least_radii(terms: Terms, values: Array, error: float) -> tuple[float, ...]:
    """The smallest radius of each constraint that the theorem allows before facts, less what rounding may have added.

    The formulas are those of docs/guarantee.md; values (d,) are the eigenvalues of A.
    """
    if not isinstance(terms.radius, str):
        return (float(terms.radius),) * len(terms.threshold)
    ridge, data = terms.ridge, np.maximum(values - error, terms.ridge) - terms.ridge
    events = terms.stages * len(terms.threshold) / terms.confidence
    log_det = float(np.log1p(data / ridge).sum())
    grid = [each * terms.feature_norm**2 for each in GRID]
    if terms.radius == "theorem":
        events *= 1 + len(grid)
        grown = np.log1p(data / np.array(grid)[:, None]).sum(axis=1)
        least = float(data[0]) + 2.0 * error
    radii = []
    for noise, norm in zip(terms.noise.tolist(), terms.gamma_norm.tolist(), strict=True):
        reach, pull = noise * sqrt(log_det + 2.0 * log(events)), sqrt(ridge) * norm
        best = reach + pull if terms.radius == "classical" else sqrt(reach * reach + pull * pull)
        if terms.radius == "theorem":
            for other, more in zip(grid, grown.tolist(), strict=True):
                if other >= ridge:
                    stretch = sqrt((least + other) / (least + ridge))
                    wide = stretch * noise * sqrt(more + 2.0 * log(events)) + ridge * norm / sqrt(least + ridge)
                    best = min(best, wide)
        radii.append(best * (1.0 - 1e-9))
    return tuple(radii)


# A bound at one feature


def open_part(model: Model, f: Array) -> float:
    """The part of ‖f‖ that the remembered facts leave open."""
    settled = model.span.shape[1]
    if settled in (0, len(f)):
        return 0.0 if settled else 1.0
    rest = f - model.span @ (f @ model.span)
    rest -= model.span @ (rest @ model.span)
    return _norm(rest) / _norm(f)


class Parts(NamedTuple):
    """What a point is made of: φ = f + Σ shares·(ends − f), with shares (n,) and ends (n, d); n = 1 unless mixed."""

    shares: Array
    ends: Array
    mixed: bool = False


def plain(model: Model, x: Array, parts: Parts, j: int) -> Geometry:
    """⟨γ_c, x⟩ and its width given the remembered facts; the state's own fact is not used. x (d,).

    Certificates round outward by the ends of `parts`, which may lie farther out than x.
    """
    shares, ends, mixed = parts
    free, total = x @ model.free, float(shares.sum())
    width, solved = _norm(free), _norm(free / model.root)  # ‖x‖ and ‖Gx‖, given the facts
    moved = solved * model.error * float(model.size[j])
    wider = sqrt(width * width + solved * solved * model.error) - width
    moved += float(model.slip[j]) * sqrt(model.trace) * width + model.margin(j) * (1.0 + total)
    return Geometry(
        mean=float(model.gamma_hat[j] @ x),
        width=width,
        norm=max(_norm(x @ model.whitener), float(shares @ _sizes(ends @ model.whitener))),
        moved=moved,
        wider=wider,
        extra=model.feature_norm * float(model.misfit[j]) * total,
        parts=shares * _sizes(ends @ model.free) if mixed else NO_PARTS,
    )


def conditioned(model: Model, x: Array, parts: Parts, f: Array, declared: float, j: int, reduces: bool) -> Geometry:
    """Section 1 on top of the remembered facts: mean and width at x (d,), given c(f) = `declared`; with `reduces`, the
    pull of section 4. `parts` are those of `plain`."""
    shares, ends, mixed = parts
    v, e, tips = x @ model.free, f @ model.free, ends @ model.free
    g00 = float(e @ e)
    share = float(e @ v) / g00
    along = tips @ e / g00
    reach = float(shares @ (1.0 + np.abs(along)))  # what a certificate's margin was multiplied by
    across = v - share * e
    width = _norm(across)
    residual = float(model.gamma_hat[j] @ f) - declared
    mean = float(model.gamma_hat[j] @ x) - share * residual
    uf, ux, uy = _norm(e / model.root), _norm(v / model.root), _norm(across / model.root)  # ‖Gf‖, ‖Gx‖, ‖Gy‖
    size, error, side, margin = float(model.size[j]), model.error, abs(residual), model.margin(j)
    moved = error * (ux + abs(share) * uf) * (size + uf * side / g00)
    moved += float(model.slip[j]) * sqrt(model.trace) * width + margin * (1.0 + reach)
    misfit = model.feature_norm * float(model.misfit[j])
    outward = tips if model.free is model.whitener else ends @ model.whitener
    shape = Geometry(
        mean=mean,
        width=width,
        norm=max(_norm(v if model.free is model.whitener else x @ model.whitener), float(shares @ _sizes(outward))),
        moved=moved,
        wider=sqrt(width * width + uy * uy * error) - width,
        extra=misfit * reach,
        parts=shares * _sizes(tips - along[:, None] * e) if mixed else NO_PARTS,
    )
    if not reduces:
        return shape
    shift = error * uf * side / g00 * (2.0 * size + uf * side / g00) + 4.0 * side * margin / g00
    return shape._replace(pull=residual * residual / g00, shift=shift, spared=4.0 * side * misfit / g00)


def bound_at(model: Model, shape: Geometry, j: int, radius: float) -> tuple[float, float]:
    """The bound with radius β, and by how much the certificate's may differ; NaN if τ_s contradicts the data.

    A certificate rounds outward (OUTWARD), and its factors have rounding of their own (`factor`).
    """
    square = radius * radius - shape.pull
    if not square >= 0.0:
        return nan, inf
    reduced, own = sqrt(square), model.factor * (radius + float(model.energy[j]))
    shift = shape.shift + (1e-9 * radius + 2.0 * own) * radius
    looser = sqrt(square + shift) - reduced if shape.pull > 0.0 else 0.0
    rounding = shape.moved + reduced * shape.wider + looser * (shape.width + shape.wider)
    rounding += (OUTWARD * radius + own) * shape.norm + 1e-12 * (1.0 + abs(shape.mean))
    return shape.mean + shape.extra + reduced * shape.width, rounding


def most_upward(shape: Geometry, radius: float) -> float:
    """How much a certificate may have added on purpose: for misfits of the facts, and to the width of a mixture."""
    square = max(radius * radius - shape.pull, 0.0)
    misfit = 2.0 * shape.extra + (sqrt(square + shape.spared) - sqrt(square)) * (shape.width + shape.wider)
    if not len(shape.parts):
        return misfit
    parts = MIXED * (float(shape.parts @ shape.parts) + MIXED * float(shape.parts.sum()) ** 2)
    return misfit + radius * (sqrt(shape.width**2 + parts) - shape.width)


# Many bounds at once, for display


def conditioned_bounds(model: Model, rows: Array, f: Array, declared: float, j: int, reduces: bool) -> Array:
    """The bounds of many rows (N, d) with the least radius, given c(f) = `declared`: (N,)."""
    v, e = rows @ model.free, f @ model.free
    g00 = float(e @ e)
    share = v @ (e / g00)
    residual = float(model.gamma_hat[j] @ f) - declared
    square = model.radii[j] ** 2 - (residual * residual / g00 if reduces else 0.0)
    width2 = np.einsum("nd,nd->n", v, v) - share * share * g00
    radius = sqrt(square) if square >= 0.0 else nan
    bounds: Array = rows @ model.gamma_hat[j] - share * residual + radius * np.sqrt(np.maximum(width2, 0.0))
    return bounds


def plain_bounds(model: Model, rows: Array, j: int) -> Array:
    """The bounds of many rows (N, d) with the least radius, the state's own fact not used: (N,)."""
    v = rows @ model.free
    bounds: Array = rows @ model.gamma_hat[j] + model.radii[j] * np.sqrt(np.einsum("nd,nd->n", v, v))
    return bounds


def contradicts(model: Model, f: Array, declared: float, j: int) -> bool:
    """Whether the remembered facts, which settle c(f), say something else than τ_s = `declared`."""
    missed = abs(float(model.gamma_hat[j] @ f) - declared) - 2.0 * model.margin(j)
    missed -= model.feature_norm * 2.0 * float(model.misfit[j])
    return not missed <= MISFIT * max(1.0, abs(declared)) * (1.0 + 1e-6)


def _norm(vector: Array) -> float:
    return sqrt(float(vector @ vector))


def _sizes(rows: Array) -> Array:
    sizes: Array = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return sizes
