"""The gate's arithmetic: plain numpy, an eigendecomposition, and an account of its own rounding."""

from dataclasses import dataclass
from math import inf, log, nan, sqrt
from typing import Literal, NamedTuple

import numpy as np

from tether.records import Array

ULP = 2.0**-52
GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridges of the mixtures behind the theorem's radius (docs/guarantee.md): stated here a second time on purpose."""

OUTWARD = 4e-9
"""Certificates enlarge widths by up to 2e-9 ‖x‖_G; the gate allows for twice that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """What the gate is told beside the data: the theorem's constants, and which facts are known.

    `radius` names the theorem's radius or is a tuned number; `reduces` says whether β_s of THEORY section 4 is used.
    """

    conditioning: Literal["state", "all", "unknown"]
    radius: float | str
    reduces: bool
    threshold: Array  # τ (M,)
    noise: Array  # σ (M,)
    gamma_norm: Array  # B of the unknown part (M,)
    confidence: float  # δ
    stages: int  # G: H, or 1 where steps are pooled
    ridge: float  # λ
    basis: Array  # (d, p): where known facts leave γ* open
    known_gamma: Array  # what they determine (H, M, d)


class Model(NamedTuple):
    """One stage, solved: A = Q diag(v) Qᵀ, ĝ (M, p) and its ‖ĝ‖ and ‖ĝ‖_A (M,), the least radii (M,).

    `root` is √v (p,) and `whitener` is Q/√v (p, p), so that ‖x whitener‖ = ‖x‖_G. `error` is how far rounding may have
    moved A (in norm), `factor` what it may do to the certificate's own factors.
    """

    root: Array
    whitener: Array
    gamma_hat: Array
    size: Array
    energy: Array
    radii: tuple[float, ...]
    error: float
    factor: float


class Geometry(NamedTuple):
    """What a bound at one feature is made of: mean + β_s · width, where β_s² = β² − pull (THEORY section 4).

    `norm` is ‖x‖_G. Rounding may have moved the mean by `moved`, the width by `wider` and the pull by `shift`.
    """

    mean: float
    width: float
    norm: float
    pull: float = 0.0
    moved: float = 0.0
    wider: float = 0.0
    shift: float = 0.0


def solve(terms: Terms, gram: Array, moment: Array, count: int) -> Model | None:
    """One stage from its sums, gram (p, p) and moment (M, p); None if they are not finite or A is not at least λI."""
    if not (np.isfinite(gram).all() and np.isfinite(moment).all()):
        return None
    values, vectors = np.linalg.eigh(gram)
    largest = float(values[-1]) if len(values) else terms.ridge
    error = 16.0 * ULP * largest
    if len(values) and not values[0] >= terms.ridge * (1.0 - 1e-9) - error:
        return None
    root = np.sqrt(np.maximum(values, terms.ridge))
    whitener = vectors / root
    inside = moment @ whitener  # ĝ in whitened coordinates
    gamma_hat = inside @ whitener.T
    spread = float((root @ root) / root[0] ** 2) if len(values) else 1.0
    return Model(
        root,
        whitener,
        gamma_hat,
        np.sqrt((gamma_hat * gamma_hat).sum(axis=1)),
        np.sqrt((inside * inside).sum(axis=1)),
        least_radii(terms, np.maximum(values, terms.ridge), error),
        error,
        4.0 * ULP * sqrt((1.0 + count) * spread),
    )


def least_radii(terms: Terms, values: Array, error: float) -> tuple[float, ...]:
    """The smallest radius of each constraint that the theorem allows, less what rounding of A may have added.

    The formulas are those of docs/guarantee.md; values (p,) are the eigenvalues of A.
    """
    if not isinstance(terms.radius, str):
        return (float(terms.radius),) * len(terms.threshold)
    ridge, data = terms.ridge, np.maximum(values - error, terms.ridge) - terms.ridge
    events = terms.stages * len(terms.threshold) / terms.confidence
    log_det = float(np.log1p(data / ridge).sum())
    if terms.radius == "theorem":
        events *= 1 + len(GRID)
        grown = np.log1p(data / np.array(GRID)[:, None]).sum(axis=1)
        least = (float(data[0]) if len(data) else 0.0) + 2.0 * error
    radii = []
    for noise, norm in zip(terms.noise.tolist(), terms.gamma_norm.tolist(), strict=True):
        reach, pull = noise * sqrt(log_det + 2.0 * log(events)), sqrt(ridge) * norm
        best = reach + pull if terms.radius == "classical" else sqrt(reach * reach + pull * pull)
        if terms.radius == "theorem":
            for other, more in zip(GRID, grown.tolist(), strict=True):
                if other >= ridge:
                    stretch = sqrt((least + other) / (least + ridge))
                    wide = stretch * noise * sqrt(more + 2.0 * log(events)) + ridge * norm / sqrt(least + ridge)
                    best = min(best, wide)
        radii.append(best * (1.0 - 1e-9))
    return tuple(radii)


def add_to(total: Array, rest: Array, term: Array) -> None:
    """total += term, with what rounding drops kept in `rest` for the next time (Kahan), in place."""
    term = term - rest
    larger = total + term
    rest[...] = (larger - total) - term
    total[...] = larger


def plain(model: Model, x: Array, j: int) -> Geometry:
    """⟨ĝ, x⟩ and ‖x‖_G, nothing conditioned on; x (p,)."""
    if not len(x):
        return Geometry(0.0, 0.0, 0.0)
    whitened = x @ model.whitener
    norm, solved = _norm(whitened), _norm(whitened / model.root)  # ‖x‖_G and ‖Gx‖
    moved = solved * model.error * float(model.size[j])
    wider = sqrt(norm * norm + solved * solved * model.error) - norm
    return Geometry(float(model.gamma_hat[j] @ x), norm, norm, moved=moved, wider=wider)


def conditioned(model: Model, x: Array, f: Array, declared: float, j: int, reduces: bool) -> Geometry:
    """THEORY section 1: mean and width at x (d,), given c(f) = `declared`; with `reduces`, the pull of section 4."""
    e, v = f @ model.whitener, x @ model.whitener
    g00 = float(e @ e)
    share = float(e @ v) / g00
    across = v - share * e
    width, norm = _norm(across), _norm(v)
    residual = float(model.gamma_hat[j] @ f) - declared
    mean = float(model.gamma_hat[j] @ x) - share * residual
    uf, ux, uy = _norm(e / model.root), _norm(v / model.root), _norm(across / model.root)  # ‖Gf‖, ‖Gx‖, ‖Gy‖
    size, error, side = float(model.size[j]), model.error, abs(residual)
    moved = error * (ux + abs(share) * uf) * (size + uf * side / g00)
    wider = sqrt(width * width + uy * uy * error) - width
    pull = residual * residual / g00 if reduces else 0.0
    shift = error * uf * side / g00 * (2.0 * size + uf * side / g00) if reduces else 0.0
    return Geometry(mean, width, norm, pull, moved, wider, shift)


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
    return shape.mean + reduced * shape.width, rounding


def _norm(vector: Array) -> float:
    return sqrt(float(vector @ vector))


def norms(model: Model, rows: Array) -> Array:
    """‖x‖_G of many rows (N, p): (N,)."""
    widths: Array = np.sqrt(np.square(rows @ model.whitener).sum(axis=1))
    return widths


def conditioned_bounds(model: Model, rows: Array, f: Array, declared: float, j: int, reduces: bool) -> Array:
    """The bounds of many rows (N, d) with the least radius, for display: (N,)."""
    v, e = rows @ model.whitener, f @ model.whitener
    g00 = float(e @ e)
    share = v @ (e / g00)
    residual = float(model.gamma_hat[j] @ f) - declared
    square = model.radii[j] ** 2 - (residual * residual / g00 if reduces else 0.0)
    width2 = np.einsum("nd,nd->n", v, v) - share * share * g00
    radius = sqrt(square) if square >= 0.0 else nan
    bounds: Array = rows @ model.gamma_hat[j] - share * residual + radius * np.sqrt(np.maximum(width2, 0.0))
    return bounds


def plain_bounds(model: Model, rows: Array, j: int) -> Array:
    """The bounds of many rows (N, p) with the least radius, nothing conditioned on, for display: (N,)."""
    v = rows @ model.whitener
    bounds: Array = rows @ model.gamma_hat[j] + model.radii[j] * np.sqrt(np.einsum("nd,nd->n", v, v))
    return bounds
