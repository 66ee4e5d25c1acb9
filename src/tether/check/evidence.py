"""Anytime-valid evidence against "z = ⟨γ*, x⟩ + ε, ‖γ*‖ <= B, ε conditionally σ-sub-Gaussian", from sums.

For a fixed tilt (a, b) and a feature q that is known before ε is seen, Π exp((⟨a, x⟩ + bq)ε − ½(⟨a, x⟩ + bq)²) is a
supermartingale (costs in units of σ). Mixing over a ~ N(0, I/ℓ) and b ~ N(0, 1/ρ) keeps that. ε is not seen, but
ε(γ) = z − ⟨γ, x⟩ is, for each γ: the *least* value over all γ in the ball never exceeds the value at γ*, so by Ville's
inequality it reaches 1/δ with probability at most δ, at whatever time one looks. docs/check.md has the algebra.
"""

from typing import NamedTuple

import numpy as np

from tether.records import Array

RIDGES: Array = 10.0 ** np.arange(-1.0, 6.0)
"""ℓ of the mixtures over a. Each has its share of the level."""

SCALES: Array = 10.0 ** np.arange(-6.0, 3.0, 2.0)
"""ρ of the mixtures over b: from effects of a thousand σ per unit of the extra feature down to a tenth of σ."""

TEMPERS: Array = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97])
"""s in E exp(sε²/2σ²) <= (1−s)^{-1/2}."""

PRICES: Array = 10.0 ** np.arange(-5.0, 7.0, 0.5)
"""Multipliers μ of ‖γ‖² <= B²: by duality each gives a lower bound, so that a grid is as valid as the best one."""

ROUNDING = 1e-10
"""What sums in floating point may have lost, relative to their size: taken off the evidence."""


class Spectrum(NamedTuple):
    """The eigenvalues of V = Σxxᵀ, and everything else in the eigenvectors' coordinates; costs in units of σ."""

    values: Array  # v (d,)
    axes: Array  # U (d, d)
    moment: Array  # Uᵀ Σxz (C, d)
    square: Array  # Σz² (C,)
    bound: Array  # B/σ (C,)
    slack: float  # η: V + ηI is what gets inverted
    ridge_price: Array  # log det(I + V/ℓ) for each ℓ


def spectrum_of(gram: Array, moment: Array, square: Array, bound: Array) -> Spectrum:
    """Diagonalise V (d, d); moment (C, d), square (C,), bound (C,) are in units of σ, one per column z."""
    values, axes = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    slack = max(1e-3 / float(bound.max()), 1e-11 * (1.0 + float(values.sum())))
    price = np.log1p(values[:, None] / RIDGES).sum(axis=0)
    return Spectrum(values, axes, moment @ axes, square, bound, slack, price)


def noise_evidence(spectrum: Spectrum, count: int) -> Array:
    """Σε² too large for σ: ½n log(1−s) + ½s·min_γ Σε(γ)² for each s, (C, 8).

    min over the ball of Σε² >= min over all γ of Σε² + η‖γ‖², less ηB²: stable however few directions were seen.
    """
    explained = (spectrum.moment**2 / (spectrum.values + spectrum.slack)).sum(axis=1)
    least = spectrum.square * (1.0 - ROUNDING) - explained - spectrum.slack * spectrum.bound**2
    table: Array = 0.5 * count * np.log1p(-TEMPERS) + 0.5 * np.maximum(least, 0.0)[:, None] * TEMPERS
    return table


def norm_evidence(spectrum: Spectrum) -> Array:
    """No γ in the ball explains the costs: min over the ball of ½‖Σxε‖² in (V+ℓI)^{-1}, less its price, (C, 7)."""
    v = spectrum.values
    estimate = spectrum.moment / (v + spectrum.slack)
    if ((estimate**2).sum(axis=1) <= spectrum.bound**2).all():  # some γ in the ball explains all that can be
        return np.tile(-0.5 * spectrum.ridge_price, (len(estimate), 1))
    scale = v**2 + PRICES[:, None, None] * (v + RIDGES[:, None])  # (μ, ℓ, d)
    weights = PRICES[:, None, None] / scale
    dual = np.einsum("cd,mld->cml", spectrum.moment**2, weights) * (1.0 - ROUNDING)
    dual -= PRICES[:, None] * (spectrum.bound**2)[:, None, None]
    best: Array = 0.5 * np.maximum(dual.max(axis=1), 0.0) - 0.5 * spectrum.ridge_price
    return best


def extra_evidence(spectrum: Spectrum, cross: Array, square: Array, moment: Array) -> Array:
    """One extra feature q at a time explains what x cannot: (C, p), each the mean over the ridges ℓ and scales ρ.

    cross Σqxᵀ (p, d), square Σq² (p,), moment Σqz (C, p). With P = Σqxᵀ V^{-1} (what x knows of q), q̃ = q − Px:
    ½ (Σq̃z)² / (Σq̃² + ρ + ℓ‖P‖²) − ½ log det(I + V/ℓ) − ½ log((Σq² + ρ − Σqxᵀ (V+ℓI)^{-1} Σxq) / ρ).
    """
    v, slack = spectrum.values, spectrum.slack
    turned = cross @ spectrum.axes  # (p, d)
    part = turned / (v + slack)
    lost = ROUNDING * square
    rest = np.maximum(square - (turned * part).sum(axis=1), 0.0) + lost
    spread = (part**2).sum(axis=1)
    size = rest[:, None, None] + SCALES + RIDGES[:, None] * spread[:, None, None]  # (p, ℓ, ρ)
    known = turned**2 @ (1.0 / (v[:, None] + RIDGES))  # (p, ℓ)
    schur = np.maximum(square[:, None] - known, 0.0) + lost[:, None]
    price = np.log1p(schur[:, :, None] / SCALES) + spectrum.ridge_price[:, None]
    left = np.abs(moment - spectrum.moment @ part.T) - 1e-2 * ROUNDING * np.sqrt(np.outer(spectrum.square, square))
    off = slack * spectrum.bound[:, None] / np.sqrt(RIDGES)  # (C, ℓ): what V + ηI in place of V can hide
    seen = np.maximum(left[:, :, None, None] / np.sqrt(size) - off[:, None, :, None], 0.0)
    table = 0.5 * (seen**2 - price)
    return log_mean(table.reshape(*table.shape[:2], -1))


def log_mean(values: Array) -> Array:
    """log of the mean of exp(values) over the last axis."""
    top = values.max(axis=-1)
    mean: Array = top + np.log(np.exp(values - top[..., None]).mean(axis=-1))
    return mean
