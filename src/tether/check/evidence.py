"""Anytime-valid evidence against "z = ⟨γ*, x⟩ + ε, ‖γ*‖ <= B, ε conditionally σ-sub-Gaussian", from sums.

For a fixed tilt (a, b) and a feature q that is known before ε is seen, Π exp((⟨a, x⟩ + bq)ε − ½(⟨a, x⟩ + bq)²) is a
supermartingale (costs in units of σ). Mixing over a ~ N(0, I/ℓ) and b ~ N(0, 1/ρ) keeps that. ε is not seen, but
ε(γ) = z − ⟨γ, x⟩ is, for each γ: the *least* value over all γ in the ball never exceeds the value at γ*, so by Ville's
inequality it reaches 1/δ with probability at most δ, at whatever time one looks. docs/check.md has the algebra.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self
from zlib import crc32

import numpy as np

from tether.errors import StateFileError
from tether.records import Array, StateKey

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


# What a cost could depend on besides the features: one number each, known before the cost is seen.

SQUARES, MIXES, WAVES, BUCKETS = 16, 8, 8, 16
"""Squares of single features, squares of signed sums, cosines, and groups of states."""

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
WAVE_LENGTHS = (2.0, 6.0)
"""Cosines turn by at most so much per unit of the feature's norm, alternating."""


class Alternatives:
    """The extra features of one problem: fixed formulas, no randomness, so that a restored monitor has the same."""

    def __init__(self, dimension: int, columns: int) -> None:
        self.squares = min(dimension, SQUARES)
        rows = np.arange(1, MIXES + WAVES + 1)[:, None] * np.arange(1, dimension + 1)
        spread = np.modf(rows * GOLDEN + rows[:, :1] * np.sqrt(2.0))[0]  # quasi-random in [0, 1)
        self.signs: Array = np.where(spread[:MIXES] < 0.5, 1.0, -1.0) / np.sqrt(dimension)
        directions = spread[MIXES:] - 0.5
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self.waves: Array = directions * np.resize(WAVE_LENGTHS, WAVES)[:, None]
        self.columns = columns
        self.count = self.squares + MIXES + WAVES + columns + BUCKETS

    def names(self) -> list[str]:
        """What each extra feature is, in words."""
        return [
            *(f"the square of feature {i}" for i in range(self.squares)),
            *("a product of features" for _ in range(MIXES)),
            *("a wave along the features" for _ in range(WAVES)),
            *("the square of the predicted value" for _ in range(self.columns)),
            *("a group of states" for _ in range(BUCKETS)),
        ]

    def of(self, x: Array, fitted: Array, key: StateKey | None) -> Array:
        """(p,) from x (d,) with ‖x‖ <= 1, the last fit of each column (C, d), and the state's key if it is told."""
        extra = np.zeros(self.count)
        at = self.squares
        extra[:at] = x[:at] ** 2
        extra[at : at + MIXES] = (self.signs @ x) ** 2
        at += MIXES
        extra[at : at + WAVES] = np.cos(self.waves @ x + 1.0)
        at += WAVES
        extra[at : at + self.columns] = (fitted @ x) ** 2
        if key is not None:
            at += self.columns
            extra[at + crc32(repr(key).encode("utf-8", "surrogatepass")) % BUCKETS] = 1.0
        return extra


# What the online tests remember of one step h: sums, and copies of some of them from earlier times.

FIRST_MARK, MARKS = 16, 6
"""Sums are copied after 16, 32, 64, … observations; the latest six copies are kept."""

LOOK_EVERY, LOOK_SHARE = 8, 32
"""The evidence is computed after 8 + d/4 + n/32 further observations: it is as valid when looked at seldom."""

EARLY = 0.1
"""λ of the estimates that only serve to choose what is tested next."""


@dataclass
class Sums:
    """Sums over n observations (x, q, z): x in R^d with ‖x‖ <= 1, q the extra features (p,), z the columns (C,) over σ.

    A leading 1 is put before x, so that `gram` holds n and Σx too. Of each q only q − Px is used, where P is what was
    known of Σqxᵀ V^{-1} at the last look: known before z, as the tests need, and nearly free of x, which sharpens them.
    """

    counts: Array  # n, the n at which to look next, and how many copies were ever made (3,)
    gram: Array  # Σ (1,x)(1,x)ᵀ (d+1, d+1)
    moment: Array  # Σ z (1,x) (C, d+1)
    square: Array  # Σ z² (C,)
    extra_square: Array  # Σ (q − Px)² (p,)
    extra_cross: Array  # Σ (q − Px) xᵀ (p, d)
    extra_moment: Array  # Σ (q − Px) z (C, p)
    plain_cross: Array  # Σ q xᵀ (p, d)
    known: Array  # P, as of the last look (p, d)
    fitted: Array  # direction of the last ridge estimate, as of the last look (C, d)
    mark_gram: Array  # `gram` as it was after 16·2^k observations, the latest last (6, d+1, d+1)
    mark_moment: Array  # (6, C, d+1)

    @classmethod
    def empty(cls, dimension: int, columns: int, extras: int) -> Self:
        """Nothing seen yet."""
        d, c, p = dimension, columns, extras
        return cls(
            np.array([0.0, LOOK_EVERY + d // 4, 0.0]),
            np.zeros((d + 1, d + 1)),
            np.zeros((c, d + 1)),
            np.zeros(c),
            np.zeros(p),
            np.zeros((p, d)),
            np.zeros((c, p)),
            np.zeros((p, d)),
            np.zeros((p, d)),
            np.zeros((c, d)),
            np.zeros((MARKS, d + 1, d + 1)),
            np.zeros((MARKS, c, d + 1)),
        )

    @property
    def count(self) -> int:
        """n."""
        return int(self.counts[0])

    @property
    def marks(self) -> range:
        """The numbers k of the copies that are kept, made after 16·2^k observations."""
        made = int(self.counts[2])
        return range(max(made - MARKS, 0), made)

    def add(self, x: Array, extra: Array, z: Array) -> None:
        """One observation: x (d,), q (p,), z (C,)."""
        led = np.concatenate(([1.0], x))
        self.gram += led[:, None] * led
        self.moment += z[:, None] * led
        self.square += z * z
        self.plain_cross += extra[:, None] * x
        rest = extra - self.known @ x
        self.extra_square += rest * rest
        self.extra_cross += rest[:, None] * x
        self.extra_moment += z[:, None] * rest
        self.counts[0] += 1.0
        if self.counts[0] == FIRST_MARK * 2.0 ** self.counts[2]:
            self.mark_gram = np.concatenate((self.mark_gram[1:], self.gram[None]))
            self.mark_moment = np.concatenate((self.mark_moment[1:], self.moment[None]))
            self.counts[2] += 1.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the evidence."""
        return bool(self.counts[0] >= self.counts[1])

    def looked(self, spectrum: Spectrum) -> None:
        """After a look: the time of the next one, and what it taught about P and about the columns' direction."""
        shrunk = spectrum.values + EARLY
        self.known = ((self.plain_cross @ spectrum.axes) / shrunk) @ spectrum.axes.T
        estimate = (spectrum.moment / shrunk) @ spectrum.axes.T
        self.fitted = estimate / np.maximum(np.linalg.norm(estimate, axis=1, keepdims=True), 1e-300)
        pause = LOOK_EVERY + len(shrunk) // 4 + self.count // LOOK_SHARE
        self.counts[1] = self.counts[0] + pause

    def to_json(self) -> dict[str, str]:
        """Every array as base64 of its little-endian bytes: exact."""
        return {name: b64encode(array.astype("<f8").tobytes()).decode() for name, array in self._arrays()}

    def take_json(self, saved: dict[str, Any]) -> None:
        """The reverse of `to_json`, into sums of the same shape."""
        for name, array in self._arrays():
            try:
                read = np.frombuffer(b64decode(saved[name], validate=True), dtype="<f8").astype(np.float64)
            except (KeyError, TypeError, ValueError) as error:
                raise StateFileError(f"the saved monitor's {name!r} cannot be read: {error!r}.") from error
            if read.size != array.size:
                raise StateFileError(f"the saved monitor's {name!r} has {read.size} numbers, not {array.size}.")
            setattr(self, name, read.reshape(array.shape))
        if not (np.isfinite(self.counts).all() and (self.counts >= 0.0).all() and (self.counts % 1.0 == 0.0).all()):
            raise StateFileError(f"the saved monitor's counts are {self.counts.tolist()}: they must be whole numbers.")

    def _arrays(self) -> list[tuple[str, Array]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
