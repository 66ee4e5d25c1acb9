"""Monitor: anytime-valid tests of the cost model and of the safe action, online.

It ever raises a false alarm with probability <= level.

The model is "z = ⟨γ*, x⟩ + ε, ‖γ*‖ <= B, ε conditionally σ-sub-Gaussian". For a fixed tilt (a, b) and a feature q that
is known before ε is seen, Π exp((⟨a, x⟩ + bq)ε − ½(⟨a, x⟩ + bq)²) is a supermartingale (costs in units of σ). Mixing
over a ~ N(0, I/ℓ) and b ~ N(0, 1/ρ) keeps that. ε is not seen, but ε(γ) = z − ⟨γ, x⟩ is, for each γ: the *least* value
over all γ in the ball never exceeds the value at γ*, so by Ville's inequality it reaches 1/δ with probability at most
δ, at whatever time one looks. docs/check.md has the algebra. Where costs were declared to be linear up to a misfit,
each test's length loses √(Σε²) first (docs/theory.md section 12): the tests then look for more than was declared. So
it does where they were declared to drift (section 13); once that leaves too little, a step's tests start anew.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite, log, pi, sqrt
from typing import Any, NamedTuple, Self
from zlib import crc32

import numpy as np
from scipy.special import betainc, betaln, erfcx, log_ndtr

from tether.errors import InputError, StateFileError
from tether.problem.names import Names
from tether.problem.problem import Problem
from tether.records import Array, StateKey

# Evidence from sums: log e-values in closed form.

RIDGES: Array = 10.0 ** np.arange(-1.0, 6.0)
"""ℓ of the mixtures over a. Each has its share of the level."""

SCALES: Array = 10.0 ** np.arange(-6.0, 3.0, 2.0)
"""ρ of the mixtures over b: from effects of a thousand σ per unit of the extra feature down to a tenth of σ."""

TEMPERS: Array = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97])
"""s in E exp(sε²/2σ²) <= (1−s)^{-1/2}."""

RARE, STEEP = 0.01, 0.8
"""w and s of the stakes on rare large noise: a hundredth is staked on each outcome, at exp(sε²/2σ²)."""

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
    bias: Array  # ε√n/σ, where costs may miss a linear model by ε (C,)
    slack: float  # η: V + ηI is what gets inverted
    ridge_price: Array  # log det(I + V/ℓ) for each ℓ


def spectrum_of(gram: Array, moment: Array, square: Array, bound: Array, bias: Array | None = None) -> Spectrum:
    """Diagonalise V (d, d); moment (C, d), square (C,), bound (C,), bias (C,) are in units of σ, one per column z."""
    values, axes = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    slack = max(1e-3 / float(bound.max()), 1e-11 * (1.0 + float(values.sum())))
    price = np.log1p(values[:, None] / RIDGES).sum(axis=0)
    bias = np.zeros(len(bound)) if bias is None else bias
    return Spectrum(values, axes, moment @ axes, square, bound, bias, slack, price)


def less_bias(square: Array, bias: Array) -> Array:
    """(√square − bias)², not below 0: the square of a length that costs off by ε each may have made longer by ε√n."""
    left: Array = np.where(bias > 0.0, np.maximum(np.sqrt(np.maximum(square, 0.0)) - bias, 0.0) ** 2, square)
    return left


def noise_evidence(spectrum: Spectrum, count: int) -> Array:
    """Σε² too large for σ: ½n log(1−s) + ½s·min_γ Σε(γ)² for each s, (C, 8).

    min over the ball of Σε² >= min over all γ of Σε² + η‖γ‖², less ηB²: stable however few directions were seen.
    """
    explained = (spectrum.moment**2 / (spectrum.values + spectrum.slack)).sum(axis=1)
    least = spectrum.square * (1.0 - ROUNDING) - explained - spectrum.slack * spectrum.bound**2
    least = less_bias(np.maximum(least, 0.0), spectrum.bias)
    table: Array = 0.5 * count * np.log1p(-TEMPERS) + 0.5 * least[:, None] * TEMPERS
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
    most = less_bias(np.maximum(dual.max(axis=1), 0.0), spectrum.bias[:, None])
    best: Array = 0.5 * most - 0.5 * spectrum.ridge_price
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
    # (C, ℓ): what V + ηI in place of V can hide, and what costs that miss a linear model by ε can feign
    off = slack * spectrum.bound[:, None] / np.sqrt(RIDGES) + spectrum.bias[:, None]
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

STEPS = 16
"""Groups of steps, where all have one test: neighbours are together where there are more steps."""

STEP = "the step"

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
WAVE_LENGTHS = (2.0, 6.0)
"""Cosines turn by at most so much per unit of the feature's norm, alternating."""


class Alternatives:
    """The extra features of one problem: fixed formulas, no randomness, so that a restored monitor has the same."""

    def __init__(self, dimension: int, columns: int, steps: int = 0, constraints: int = 0) -> None:
        self.steps, self.apart = steps, constraints if steps else 0
        self.squares = min(dimension, SQUARES)
        rows = np.arange(1, MIXES + WAVES + 1)[:, None] * np.arange(1, dimension + 1)
        spread = np.modf(rows * GOLDEN + rows[:, :1] * np.sqrt(2.0))[0]  # quasi-random in [0, 1)
        self.signs: Array = np.where(spread[:MIXES] < 0.5, 1.0, -1.0) / np.sqrt(dimension)
        directions = spread[MIXES:] - 0.5
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self.waves: Array = directions * np.resize(WAVE_LENGTHS, WAVES)[:, None]
        self.columns = columns
        self.count = self.squares + MIXES + WAVES + columns + BUCKETS + self.steps + self.apart

    def words(self, names: Names) -> list[str]:
        """What each extra feature is."""
        return [
            *(f"the square of {names.feature(i)}" for i in range(self.squares)),
            *("a product of features" for _ in range(MIXES)),
            *("a wave along the features" for _ in range(WAVES)),
            *("the square of the predicted value" for _ in range(self.columns)),
            *("a group of states" for _ in range(BUCKETS)),
            *(STEP for _ in range(self.steps + self.apart)),
        ]

    def of(
        self, x: Array, fitted: Array, key: StateKey | None, step: int = 0, apart: Sequence[float] | Array = ()
    ) -> Array:
        """(p,) from x (d,) with ‖x‖ <= 1, the last fit of each column (C, d), and the state's key if it is known; where
        steps are pooled, from the group of steps, and by how much they seem to differ at x (M,)."""
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
            extra[at + group_of(key)] = 1.0
        if self.steps:
            first = self.count - self.steps - self.apart
            extra[first + step], extra[first + self.steps :] = 1.0, apart
        return extra


# Whether costs get lost because they are high.


def loss_evidence(losses: Array) -> Array:
    """log e-value that the dearer of two neighbours loses its cost more often: (C, 2) -> (C,); docs/check.md.

    Of two decisions in a row that lost one cost, each is as likely to be the one if losing does not depend on the cost:
    the dearer one was it in k of n such pairs, each with probability p <= ½. Mixing (2p)^k (2 − 2p)^{n−k} over uniform
    p in [½, 1] gives 2^{n+1} ∫ p^k (1−p)^{n−k} dp, a supermartingale in n whatever p <= ½ is, and also if it changes.
    """
    dearer, cheaper = losses[:, 0], losses[:, 1]
    n = dearer + cheaper
    tail = betainc(cheaper + 1.0, dearer + 1.0, 0.5)  # of the beta distribution, over [½, 1]
    with np.errstate(divide="ignore"):  # a tail under the smallest number: nearly all pairs were of the other kind
        log_e: Array = (n + 1.0) * log(2.0) + betaln(dearer + 1.0, cheaper + 1.0) + np.log(tail)
    return log_e


# Whether the safe action is safe.


def excess_evidence(total: Array, count: Array) -> Array:
    """log e-value that terms of mean <= 0 have a positive one: total Σx and count n, (...,) -> (...,).

    x is 1-sub-Gaussian around its mean. Mixing exp(λΣx − ½nλ²) over λ > 0 from a halved N(0, 1/ρ) gives
    2√(ρ/(n+ρ)) exp(S²/2(n+ρ)) Φ(S/√(n+ρ)), a supermartingale however the means change; then the mean over ρ.
    """
    size = count[..., None] + SCALES
    z = total[..., None] / np.sqrt(size)
    over, under = np.maximum(z, 0.0), np.maximum(-z, 0.0)
    # log of 2 exp(z²/2) Φ(z); where z < 0 in one function, as two logs of the size of z² would leave their rounding
    tilted = log(2.0) + 0.5 * over * over + log_ndtr(over) + np.log(erfcx(under / sqrt(2.0)))
    return log_mean(tilted - 0.5 * np.log(size / SCALES))


# What the online tests remember of one step h: sums, and copies of some of them from earlier times.

FIRST_MARK, MARKS = 16, 6
"""Sums are copied after 16, 32, 64, … observations; the latest six copies are kept."""

LOOK_EVERY, LOOK_SHARE = 8, 32
"""The evidence is computed after 8 + d/4 + n/32 further observations: it is as valid when looked at seldom."""

EARLY = 0.1
"""λ of the estimates that only serve to choose what is tested next."""


class Saved:
    """Arrays in the fields of a dataclass that go to JSON and come back exactly."""

    def to_json(self) -> dict[str, str]:
        """Every array as base64 of its little-endian bytes: exact."""
        return {name: b64encode(array.astype("<f8").tobytes()).decode() for name, array in self._arrays()}

    def take_json(self, saved: dict[str, Any]) -> None:
        """The reverse of `to_json`, into arrays of the same shape."""
        for name, array in self._arrays():
            try:
                read = np.frombuffer(b64decode(saved[name], validate=True), dtype="<f8").astype(np.float64)
            except (KeyError, TypeError, ValueError) as error:
                raise StateFileError(f"the saved monitor's {name!r} cannot be read: {error!r}.") from error
            if read.size != array.size:
                raise StateFileError(f"the saved monitor's {name!r} has {read.size} numbers, not {array.size}.")
            setattr(self, name, read.reshape(array.shape))
        counts: Array = vars(self)["counts"]
        if not (np.isfinite(counts).all() and (counts >= 0.0).all() and (counts % 1.0 == 0.0).all()):
            raise StateFileError(f"the saved monitor's counts are {counts.tolist()}: they must be whole numbers.")

    def _arrays(self) -> list[tuple[str, Array]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]


ODDS: Array = 2.0 ** np.array([0.25, 0.5, 1.0, 2.0, 3.0, 5.0])
"""By how much the odds of a mean may differ from what was declared: each factor has its share of the stakes."""

SMALLEST_MEAN = 1e-6
"""A declared mean of 0 is tested as this one: else one outcome above 0 would say it all, however it was rounded."""


@dataclass
class DeclaredMeans(Saved):
    """Outcomes of the safe action in [0, 1] whose mean was declared, and what stakes against that have won.

    With m the largest declared mean and q another one, E[1 + (z − m)(q − m)/(m(1 − m))] <= 1 while q is above m and the
    true mean is not, whatever z in [0, 1] does else; so is its mirror image for the least one. For z of 0 or 1 this is
    the likelihood ratio of q and m. Products over all outcomes, of every step and state, are averaged over q.
    """

    counts: Array  # n (1,)
    seen: Array  # Σz and Σ of what was declared (2, M)
    won: Array  # log of the products: q above m, and q below it, for each of ODDS (M, 2, 6)

    @classmethod
    def none(cls, constraints: int) -> Self:
        """Nothing seen yet."""
        return cls(np.zeros(1), np.zeros((2, constraints)), np.zeros((constraints, 2, len(ODDS))))

    def add(self, z: Array, declared: Array, error: Array, tested: Array) -> None:
        """One outcome (M,), its declared mean (M,), known up to an error (M,), for the constraints that are tested."""
        self.counts[0] += 1.0
        self.seen += z, declared
        for j in np.flatnonzero(tested & np.isfinite(error)):
            for side, sign in enumerate((1.0, -1.0)):
                mean = float(declared[j] + sign * error[j])
                if side == 0:
                    mean = max(mean, SMALLEST_MEAN)
                if 0.0 < mean < 1.0:
                    q = mean * ODDS**sign / (1.0 - mean + mean * ODDS**sign)
                    self.won[j, side] += np.log1p((z[j] - mean) * (q - mean) / (mean * (1.0 - mean)))

    def evidence(self) -> Array:
        """log e-value that what was declared is not the mean, (M,)."""
        return log_mean(self.won.reshape(len(self.won), -1))

    def means(self, constraint: int) -> dict[str, float]:
        """What was declared and what was observed, on average, and over how many outcomes."""
        plays, (observed, declared) = float(self.counts[0]), self.seen[:, constraint].tolist()
        return {"observed": observed / plays, "declared": declared / plays, "plays": plays}


LARGEST_STAKE = 3.0
"""λ at most, in units of 1/σ: a larger excess is found soon enough, and a wrong forecast costs no more."""


@dataclass
class SafePlays(Saved):
    """Outcomes of the safe action: how many, Σ(z − τ)/σ, and what stakes on them by forecasts have won.

    That a_0 costs at most τ is claimed of every step and state, so one test may pool them all: Σ is then the sum of
    terms of mean at most 0. A third of the weight is on the sum over all, a third on groups of states, where one may be
    worse. Where no two states are the same, both hide the few in which a_0 costs too much behind the many in which it
    costs little. So the last third is on stakes: with λ = (⟨γ̂, φ_0⟩ − τ)/σ within [0, 3], known before z, the product
    of exp(λx − ½λ²), x = (z − τ)/σ, is a supermartingale while the mean of x is at most 0, linear or not.
    """

    counts: Array  # n, over all and per group (1 + 16,)
    excess: Array  # Σ(z − τ)/σ (M, 1 + 16)
    won: Array  # Σ(λx − ½λ²), λ by γ̂ of the step, and by γ̂ of all steps together (2, M)

    @classmethod
    def none(cls, constraints: int) -> Self:
        """Nothing seen yet."""
        return cls(np.zeros(1 + BUCKETS), np.zeros((constraints, 1 + BUCKETS)), np.zeros((2, constraints)))

    def add(self, excess: Array, foreseen: Array, key: StateKey | None) -> None:
        """One outcome: (z − τ)/σ (M,), the same by each forecast (2, M), and the state's key if it is known."""
        for place in (0, 1 + group_of(key)) if key is not None else (0,):
            self.counts[place] += 1.0
            self.excess[:, place] += excess
        stake = np.minimum(np.maximum(foreseen, 0.0), LARGEST_STAKE)
        self.won += stake * excess - 0.5 * stake**2

    def evidence(self) -> Array:
        """log e-value that a_0 costs more than τ, (M,)."""
        each = excess_evidence(self.excess, self.counts)
        staked = np.logaddexp(self.won[0], self.won[1]) - log(2.0)
        total: Array = np.logaddexp(np.logaddexp(each[:, 0], log_mean(each[:, 1:])), staked) - log(3.0)
        return total

    def where(self, constraint: int) -> str:
        """The strongest evidence in words: by how many σ, over how many outcomes."""
        each = excess_evidence(self.excess[constraint], self.counts)
        place = int(each.argmax())
        if self.won[:, constraint].max() > each[place]:
            return f"what the costs before predict, in some of {self.counts[0]:.0f} outcomes of it"
        mean = self.excess[constraint, place] / self.counts[place]
        return f"{mean:.3g} σ on average over {self.counts[place]:.0f} outcomes of it" + (
            " in one group of states" if place else ""
        )


@dataclass
class Forecast(Saved):
    """γ̂ by least squares over the outcomes of all steps so far, in units of σ, renewed now and then."""

    counts: Array  # n, and the n at which to renew it (2,)
    gram: Array  # Σxxᵀ (d, d)
    moment: Array  # Σzx (M, d)
    gamma: Array  # γ̂ (M, d)

    @classmethod
    def none(cls, dimension: int, constraints: int) -> Self:
        """Nothing seen yet."""
        shapes = (dimension, dimension), (constraints, dimension), (constraints, dimension)
        return cls(np.array([0.0, LOOK_EVERY]), *(np.zeros(shape) for shape in shapes))

    def add(self, x: Array, z: Array) -> None:
        """One outcome: a feature (d,) and its costs over σ (M,)."""
        self.gram += x[:, None] * x
        self.moment += z[:, None] * x
        self.counts[0] += 1.0
        if self.counts[0] >= self.counts[1] and np.isfinite(self.moment).all():
            estimate = np.linalg.solve(self.gram + EARLY * np.eye(len(x)), self.moment.T).T
            self.gamma = np.ascontiguousarray(estimate, dtype=np.float64)
            self.counts[1] = self.counts[0] + LOOK_EVERY + self.counts[0] // LOOK_SHARE


def group_of(key: StateKey) -> int:
    """Which of the groups of states a state belongs to."""
    return crc32(repr(key).encode("utf-8", "surrogatepass")) % BUCKETS


@dataclass
class Sums(Saved):
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
    length: Array  # of that estimate (C, 1)
    inverse: Array  # of V + ℓI as of then (d, d)
    reach: Array  # how far off the estimate may be in the norm of V + ℓI (0: no look yet), and mean time (C + 1,)
    mark_gram: Array  # `gram` as it was after 16·2^k observations, the latest last (6, d+1, d+1)
    mark_moment: Array  # (6, C, d+1)
    far: Array  # what stakes on rare large noise have won, as a log, and the farthest that a cost lay off (2, C)
    losses: Array  # pairs of which the dearer, and of which the cheaper decision lost its cost (C, 2)
    neighbour: Array  # the first of the next pair: its predicted costs, 1 if it was lost, 1 if there is one (C + 2,)
    times: Array  # mean m of the decisions' numbers, Σ(number − m)², and how often the sums began anew (3,)

    @classmethod
    def empty(cls, dimension: int, columns: int, extras: int) -> Self:
        """Nothing seen yet."""
        d, c, p = dimension, columns, extras
        seen = (3,), (d + 1, d + 1), (c, d + 1), (c,), (p,), (p, d), (c, p), (p, d)
        looked = (p, d), (c, d), (c, 1), (d, d), (c + 1,)
        marks = (MARKS, d + 1, d + 1), (MARKS, c, d + 1)
        sums = cls(*(np.zeros(shape) for shape in (*seen, *looked, *marks, (2, c), (c, 2), (c + 2,), (3,))))
        sums.counts[1] = LOOK_EVERY + d // 4
        return sums

    @property
    def count(self) -> int:
        """n."""
        return int(self.counts[0])

    @property
    def marks(self) -> range:
        """The numbers k of the copies that are kept, made after 16·2^k observations."""
        made = int(self.counts[2])
        return range(max(made - MARKS, 0), made)

    def add(self, x: Array, extra: Array, z: Array, at: float) -> None:
        """One observation, of decision number `at`: x (d,), q (p,), z (C,)."""
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
        off = at - self.times[0]
        self.times[0] += off / self.counts[0]
        self.times[1] += off * (at - self.times[0])
        if self.counts[0] == FIRST_MARK * 2.0 ** self.counts[2]:
            self.mark_gram = np.concatenate((self.mark_gram[1:], self.gram[None]))
            self.mark_moment = np.concatenate((self.mark_moment[1:], self.moment[None]))
            self.counts[2] += 1.0

    def stake(self, x: Array, z: Array, at: float, misfit: Array, drift: Array) -> None:
        """Before an observation is added: how far beyond what the estimate can be off by it lies, and what a stake of
        1 − w + w√(1−s) exp(sε²/2) on that wins, for which no σ-sub-Gaussian noise gives more than 1 on average."""
        if self.reach[0] == 0.0:
            return
        width = self.reach[:-1] * sqrt(x @ self.inverse @ x) + misfit + drift * abs(at - self.reach[-1])
        beyond = np.maximum(np.abs(z - self.length[:, 0] * (self.fitted @ x)) - width, 0.0)
        won = log(RARE * sqrt(1.0 - STEEP)) + 0.5 * STEEP * beyond * beyond
        self.far[0] += np.logaddexp(log(1.0 - RARE), won)
        self.far[1] = np.maximum(self.far[1], beyond)

    def close(self, x: Array, lost: bool) -> None:
        """A decision has its cost, or has lost it; every second one is compared with the one before."""
        predicted, before = self.fitted @ x, self.neighbour[:-2]
        if not self.neighbour[-1]:
            self.neighbour = np.concatenate((predicted, [float(lost), 1.0]))
            return
        self.neighbour[-1] = 0.0
        if bool(self.neighbour[-2]) != lost:
            dearer = (predicted > before) if lost else (before > predicted)
            self.losses[:, 0] += dearer
            self.losses[:, 1] += ~dearer & (predicted != before)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the evidence."""
        return bool(self.counts[0] >= self.counts[1])

    def looked(self, spectrum: Spectrum, limit: float) -> None:
        """After a look: the time of the next one, and what it taught about P and about the columns' γ.

        ‖γ̂ − γ*‖ <= √(log det(I + V/ℓ) + 2 log(1/δ)) + √ℓ B in the norm of V + ℓI, at all times with probability 1 − δ.
        """
        shrunk = spectrum.values + EARLY
        self.inverse = (spectrum.axes / shrunk) @ spectrum.axes.T
        price = float(np.log1p(spectrum.values / EARLY).sum())
        reach = sqrt(price + 2.0 * (limit - log(REACH_SHARE))) + sqrt(EARLY) * spectrum.bound + spectrum.bias
        self.reach = np.append(reach * (1.0 + 1e-6), self.times[0])
        self.known = ((self.plain_cross @ spectrum.axes) / shrunk) @ spectrum.axes.T
        estimate = (spectrum.moment / shrunk) @ spectrum.axes.T
        self.length = np.maximum(np.linalg.norm(estimate, axis=1, keepdims=True), 1e-300)
        self.fitted = estimate / self.length
        pause = LOOK_EVERY + len(shrunk) // 4 + self.count // LOOK_SHARE
        self.counts[1] = self.counts[0] + pause

    def forget(self) -> None:
        """Begin anew, but for the pairs that tell of losses: they do not rest on a γ* that stands still."""
        kept = {"losses": self.losses, "neighbour": self.neighbour, "times": np.array([0.0, 0.0, self.times[2] + 1.0])}
        fresh = type(self).empty(self.gram.shape[0] - 1, *self.extra_moment.shape)
        for name, array in fresh._arrays():
            setattr(self, name, kept.get(name, array))


# The monitor itself.

FORMAT = "tether-monitor-5"
SHARES = {"noise": 0.19, "norm": 0.1, "shape": 0.35, "drift": 0.25, "loss": 0.05}
"""How the level is divided among the tests of each step."""

REACH_SHARE = 0.01
"""Of it, for how far off the estimate may be that rare large noise is measured from."""

SAFE_SHARE = 0.05
"""What is left of it for the one test of the safe action's own cost; where costs are bounded, half of it is for that of
what was declared of it."""

FORGET = 0.25
"""Where costs drift, sums begin anew once drift may explain this part of the noise's length, √n."""

LARGEST = 1e300
"""Stands for evidence that is not finite: JSON has no infinity."""

MESSAGES = {
    "noise": "the costs scatter more around every linear model than the declared σ allows{far}. Raise noise σ, or find "
    "what the features leave out",
    "norm": "no γ with ‖γ‖ <= B explains the costs. Raise gamma_norm B",
    "shape": "the costs also depend on {extra}, which the features leave out. Add a feature for it",
    "drift": "the costs of the same features have changed since {since}. Start anew with reset(why), or make what "
    "changed a feature",
    "loss": "costs get lost more often where higher ones are expected: of two neighbouring decisions of which one lost "
    "its cost, it was the dearer one in {lost}, so what is left is biased. Find out why, or declare "
    "Lost('worst-case', cost_range=…) and start anew",
    "safe": "the safe action itself costs more than τ, by {where}. Name a safer action or raise τ: to play a_0 is no "
    "way out",
    "declared": "the safe action was declared to cost {declared:.3g} on average over {plays:.0f} outcomes of it, and "
    "{observed:.3g} was observed. Correct safe_cost, declare how far it may be off (SafeCost(…, error=…)), or "
    "leave it out, and start anew",
    "numbers": "the sums behind the tests are no longer finite. Look for absurd costs",
}

BY_STEP = "the costs also depend on the step, which pooled=True rules out. Use pooled=False"
"""What the test "shape" says where steps are pooled, and the step is what features leave out."""

POOLED = ". Or costs differ between steps, which pooled=True rules out: then use pooled=False"
"""Ends the messages of tests that costs which depend on the step may fail, too, where steps are pooled."""

BIASED = (
    ". Or costs get lost by their size, which the bounds allow for and this test does not: of two neighbouring "
    "decisions of which one lost its cost, it was the dearer one in {lost}"
)
"""Ends any test's message where lost costs count at their worst."""


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
    name: str = ""  # what people call that cost

    def __str__(self) -> str:
        what = "the reward" if self.constraint < 0 else self.name or f"cost {self.constraint}"
        return (
            f"{self.test} test of {what}: {self.message} (log evidence {self.evidence:.1f} >= {self.limit:.1f} "
            f"after {self.observations} observations)."
        )


class Monitor:
    """Watches whether costs stay linear in the features, with ‖γ*‖ <= B and σ-sub-Gaussian noise, and without drift;
    and whether the safe action costs at most τ.

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
        noise, norm, misfit, drift = (
            list(each) for each in (problem.noise, problem.gamma_norm, problem.sample_error, problem.drift)
        )
        if reward_noise is not None:
            noise.append(float(reward_noise))
            norm.append(float(np.sqrt(problem.dimension)))  # ‖θ*‖ <= √d: Assumption 4
            misfit.append(0.0)
            drift.append(0.0)
        self._noise: Array = np.array(noise)
        self._bound: Array = np.array(norm) * problem.feature_norm / self._noise
        self._tau: Array = np.array(problem.threshold) / self._noise[: len(problem.constraints)]
        self._unlimited = ~np.isfinite(self._tau)
        self._bounded = np.array(problem.bounded)
        # of a bounded cost, half of it is for the test of what was declared
        self._safe_share = np.log(np.where(self._bounded, SAFE_SHARE / 2.0, SAFE_SHARE))
        self._misfit: Array = np.array(misfit) / self._noise
        self._drift: Array = np.array(drift) * problem.feature_norm * (1.0 + 1e-6) / self._noise
        self._groups = min(problem.horizon, STEPS) if self.pooled and problem.horizon > 1 else 0
        self._extras = Alternatives(problem.dimension, len(noise), self._groups, len(problem.constraints))
        self._words = self._extras.words(problem.names)
        self.resets: list[str] = []
        self._start()

    def _start(self) -> None:
        stages = 1 if self.pooled else int(self.problem.horizon)
        sizes = (self.problem.dimension, len(self._noise), self._extras.count)
        self._sums = [Sums.empty(*sizes) for _ in range(stages)]
        self._safe = SafePlays.none(len(self.problem.constraints))
        sizes_of_forecast = self.problem.dimension, len(self.problem.constraints)
        self._forecast = Forecast.none(*sizes_of_forecast)
        self._by_step = [Forecast.none(*sizes_of_forecast) for _ in range(self._groups)]
        self._told = DeclaredMeans.none(len(self.problem.constraints))
        self.alarm: Alarm | None = None
        self.warning: Alarm | None = None

    @property
    def limit(self) -> float:
        """What a log e-value must reach: log of the number of tests that share the level, over the level."""
        return log(len(self._sums) * (len(self.problem.constraints) + self.trip_on_reward) / self.level)

    @property
    def safe_limit(self) -> float:
        """The same for the test of the safe action's own cost, which pools all steps."""
        return log((len(self.problem.constraints) + self.trip_on_reward) / self.level)

    @property
    def observations(self) -> int:
        """Outcomes with a measured cost so far."""
        return sum(sums.count for sums in self._sums)

    def observe(
        self,
        step: int,
        feature: Array,
        cost: Array | None,
        reward: float = 0.0,
        state: StateKey | None = None,
        is_baseline: bool = False,
        at: float | None = None,
        declared: Array | None = None,
    ) -> None:
        """Take one outcome into account: feature (d,), cost (M,), or None if it was lost (was that by chance?).

        `state`, a hashable key, lets the tests see costs that depend on the state beyond its features. `is_baseline`
        says that a_0 was played, whose own cost is then tested against τ, and, where costs are bounded, against what
        was `declared` of it (M,). `at` is the number of its decision, or its time in seconds, for costs that drift;
        without it, every decision is said to have an outcome here, or, where
        drift is per second, only a_0's own cost is tested.
        """
        if cost is None:
            sums = self._sums[0 if self.pooled else int(step)]
            sums.close(np.asarray(feature, dtype=np.float64) / self.problem.feature_norm, lost=True)
            self._look_at_losses(sums)
            return
        x, z = np.asarray(feature, dtype=np.float64), np.asarray(cost, dtype=np.float64).reshape(-1)
        wanted = (self.problem.dimension,), (len(self.problem.constraints),)
        if (x.shape, z.shape) != wanted or not (np.isfinite(x).all() and np.isfinite(z).all() and isfinite(reward)):
            raise InputError(f"feature {x.shape}, cost {z.shape} and reward must be finite, of shapes {wanted}.")
        if not 0 <= step < self.problem.horizon:
            raise InputError(f"step must lie in 0..{self.problem.horizon - 1}, but is {step!r}.")
        sums, x = self._sums[0 if self.pooled else int(step)], x / self.problem.feature_norm
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows raises the alarm
            if is_baseline:
                self._look_at_safe_action(sums, x, z, state)
                if declared is not None and self._bounded.any():
                    self._look_at_declared(z, np.asarray(declared, dtype=np.float64))
            group = int(step) * self._groups // self.problem.horizon
            apart = self._apart(x, group)  # before z is known to any forecast
            if len(self._sums) > 1 or self._groups:
                self._forecast.add(x, z / self._noise[: len(z)])
            if self._groups:
                self._by_step[group].add(x, z / self._noise[: len(z)])
        if at is None:
            at = float(sums.count * len(self._sums))
            if self._drift.any() and self.problem.drift_per == "second":
                return
        if not isfinite(at):
            return
        if self.reward_noise is not None:
            z = np.append(z, reward)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows raises the alarm at the next look
            sums.close(x, lost=False)
            sums.stake(x, z / self._noise, at, self._misfit, self._drift)
            sums.add(x, self._extras.of(x, sums.fitted, state, group, apart), z / self._noise, at)
            if sums.is_due:
                self._look(sums)
                if (self._drift * sqrt(sums.times[1] / sums.count)).max() > FORGET:
                    sums.forget()

    def look(self) -> None:
        """Compute the evidence now, whether it is due or not. Looking more often does not harm its validity."""
        for sums in self._sums:
            if sums.count:
                self._look(sums)

    def evidence(self) -> list[dict[str, float]]:
        """log e-value of each test, the largest over the steps: one entry per cost (and the reward, last)."""
        tables = [self._tables(sums)[0] for sums in self._sums if sums.count]
        names = [*SHARES, "safe"]
        if not tables:
            return [dict.fromkeys(names, 0.0) for _ in self._noise]
        safe = np.full((1, len(self._noise)), -inf)
        safe[0, : len(self.problem.constraints)] = self._safe.evidence() + self._safe_share
        largest = np.concatenate((np.max(tables, axis=0), safe))
        return [{name: float(largest[i, c]) for i, name in enumerate(names)} for c in range(len(self._noise))]

    def left_out(self) -> str:
        """What the features leave out of the costs, in words: that for which the evidence is largest."""
        tables = [self._tables(sums) for sums in self._sums if sums.count]
        shape, costs = list(SHARES).index("shape"), range(len(self.problem.constraints))
        found = [(evidence[shape, j], words["extra"][j]) for evidence, _, words in tables for j in costs]
        return max(found, default=(0.0, "something"))[1]

    def reset(self, why: str) -> None:
        """Forget everything seen and start anew, after an alarm was understood. Each start may spend `level` again."""
        self.resets.append(f"{why} (after: {self.alarm or self.warning or 'no alarm'})")
        self._start()

    def _limit_of(self, sums: Sums) -> float:
        """The limit for one step, whose j-th start has the part 6/(π²j²) of the level where costs drift."""
        return self.limit + (log(pi**2 / 6.0 * (sums.times[2] + 1.0) ** 2) if self._drift.any() else 0.0)

    def _look(self, sums: Sums) -> None:
        """Compare the evidence of one step with the limit."""
        limit = self._limit_of(sums)
        finite = all(np.isfinite(array).all() for array in (sums.gram, sums.moment, sums.square, sums.extra_moment))
        if not finite:
            self._note(Alarm("numbers", MESSAGES["numbers"], LARGEST, limit, sums.count, 0))
            return
        tables, spectrum, details = self._tables(sums)
        for column in range(len(self._noise)):
            total = float(np.logaddexp.reduce(tables[:, column]))
            if total < limit:
                continue
            test = list(SHARES)[int(tables[:, column].argmax())]
            words = {name: each[column] for name, each in details.items()}
            by_step = test == "shape" and words["extra"] == STEP
            message = (BY_STEP if by_step else MESSAGES[test]).format(**words)
            if self._groups and not by_step and test != "loss":
                message += POOLED
            if self.problem.lost == "worst-case" and sums.losses[column].any():
                message += BIASED.format(lost=details["lost"][column])
            constraint = column if column < len(self.problem.constraints) else -1
            evidence = total if total < LARGEST else LARGEST  # NaN too: what cannot be computed does not reassure
            self._note(Alarm(test, message, evidence, limit, sums.count, constraint))
        sums.looked(spectrum, limit)

    def _look_at_losses(self, sums: Sums) -> None:
        """After a loss, as pairs are cheap to count: there may be nothing else to look at."""
        if self.problem.lost == "at-random":
            evidence, limit = loss_evidence(sums.losses) + log(SHARES["loss"]), self._limit_of(sums)
            for column in range(len(self.problem.constraints)):
                if evidence[column] >= limit:
                    message = MESSAGES["loss"].format(lost=self._lost_words(sums, column))
                    self._note(Alarm("loss", message, float(evidence[column]), limit, sums.count, column))

    def _look_at_safe_action(self, sums: Sums, x: Array, cost: Array, state: StateKey | None) -> None:
        """Count an outcome of a_0, and compare the evidence that it costs more than τ with its limit."""
        count = len(cost)
        own = sums.length[:count, 0] * (sums.fitted[:count] @ x)
        foreseen = own, self._forecast.gamma @ x if len(self._sums) > 1 else own
        excess = np.array((cost / self._noise[:count], *foreseen)) - self._tau
        excess[:, self._unlimited] = 0.0
        self._safe.add(excess[0], excess[1:], state)
        evidence = self._safe.evidence() + self._safe_share
        for column in map(int, np.flatnonzero(~(evidence < self.safe_limit))):
            message, plays = MESSAGES["safe"].format(where=self._safe.where(column)), int(self._safe.counts[0])
            found = float(evidence[column]) if evidence[column] < LARGEST else LARGEST
            self._note(Alarm("safe", message, found, self.safe_limit, plays, column))

    def _apart(self, x: Array, group: int) -> Array:
        """Where steps are pooled: x (d,) along the direction in which γ̂ of its steps differs from that of all, (M,)."""
        if not self._groups:
            return np.zeros(0)
        off = self._by_step[group].gamma - self._forecast.gamma
        along: Array = off @ x / np.maximum(np.linalg.norm(off, axis=1), 1e-300)
        return along

    def _look_at_declared(self, cost: Array, declared: Array) -> None:
        """Count an outcome of a_0 whose mean was declared, and compare the evidence against that with its limit."""
        error = np.array(self.problem.baseline_cost_error)
        self._told.add(cost, declared, error, self._bounded)
        evidence = self._told.evidence() + log(SAFE_SHARE / 2.0)
        for column in map(int, np.flatnonzero(~(evidence < self.safe_limit) & self._bounded)):
            message, plays = MESSAGES["declared"].format(**self._told.means(column)), int(self._told.counts[0])
            found = float(evidence[column]) if evidence[column] < LARGEST else LARGEST
            self._note(Alarm("declared", message, found, self.safe_limit, plays, column))

    @staticmethod
    def _lost_words(sums: Sums, column: int) -> str:
        dearer, cheaper = sums.losses[column]
        return f"{dearer:.0f} of {dearer + cheaper:.0f} pairs"

    def _note(self, alarm: Alarm) -> None:
        if self.problem.names.constraints and alarm.constraint >= 0:
            alarm = replace(alarm, name=self.problem.names.constraint(alarm.constraint))
        if self.alarm is None and (alarm.constraint >= 0 or self.trip_on_reward):
            self.alarm = alarm
        elif alarm.test == "safe" and self.alarm is not None and self.alarm.test != "safe":
            self.alarm = alarm  # after any other alarm a_0 is played, and now that is no way out
        if alarm.constraint < 0:
            self.warning = self.warning or alarm

    def _tables(self, sums: Sums) -> tuple[Array, Spectrum, dict[str, list[str]]]:
        """log(share × e-value) of each test and column (5, C), and what the largest parts point at."""
        bias = self._misfit * np.sqrt(sums.count) + self._drift * np.sqrt(sums.times[1])
        spectrum = spectrum_of(sums.gram[1:, 1:], sums.moment[:, 1:], sums.square, self._bound, bias)
        cross, square, moment = [sums.extra_cross], [sums.extra_square], [sums.extra_moment]
        marks = sums.marks
        for place in range(MARKS - len(marks), MARKS):  # extra features (1, x)·1{after observation 16·2^k}
            late = sums.gram - sums.mark_gram[place]
            cross.append(late[:, 1:])
            square.append(np.diagonal(late))
            moment.append(sums.moment - sums.mark_moment[place])
        each = extra_evidence(spectrum, np.concatenate(cross), np.concatenate(square), np.concatenate(moment, axis=1))
        count = self._extras.count
        shape, drift, since = each[:, :count], np.full(len(each), -inf), [""] * len(each)
        if marks:
            when = log_mean(each[:, count:].reshape(len(each), len(marks), -1))
            when -= [log((mark + 1) * (mark + 2)) for mark in marks]  # Σ 1/((k+1)(k+2)) = 1
            drift = np.logaddexp.reduce(when, axis=1)
            since = [f"observation {FIRST_MARK * 2 ** marks[int(k)]} of this step" for k in when.argmax(axis=1)]
        extra = [self._words[int(best)] for best in shape.argmax(axis=1)]
        noise, norm = log_mean(noise_evidence(spectrum, sums.count)), log_mean(norm_evidence(spectrum))
        far = [f": one lay {beyond:.3g} σ beyond what they predict" if beyond > 3.0 else "" for beyond in sums.far[1]]
        noise = np.logaddexp(noise, sums.far[0]) - log(2.0)
        lost = [self._lost_words(sums, column) for column in range(len(each))]
        rows = [noise, norm, self._shape(shape), drift, self._loss(sums)]
        shares = np.log(list(SHARES.values()))
        return np.array(rows) + shares[:, None], spectrum, {"extra": extra, "since": since, "lost": lost, "far": far}

    def _shape(self, each: Array) -> Array:
        """The mean over the extra features (C, p) -> (C,). Where steps are pooled, half of it is for those of the step:
        that they do not matter was declared, and is what fails first."""
        if not self._groups:
            return log_mean(each)
        plain = self._extras.count - self._extras.steps - self._extras.apart
        either: Array = np.logaddexp(log_mean(each[:, :plain]), log_mean(each[:, plain:])) - log(2.0)
        return either

    def _loss(self, sums: Sums) -> Array:
        """The evidence on losses (C,), where they are said to be a matter of chance. Lost rewards threaten nothing."""
        evidence = loss_evidence(sums.losses)
        evidence[len(self.problem.constraints) :] = -inf
        return evidence if self.problem.lost == "at-random" else np.full_like(evidence, -inf)

    def to_json(self) -> dict[str, Any]:
        """Everything that its future depends on, as JSON; `from_json` restores it bit for bit."""
        return {
            "format": FORMAT,
            "settings": self._settings(),
            "problem": self._fingerprint(),
            "sums": [sums.to_json() for sums in self._sums],
            "safe": self._safe.to_json(),
            "forecast": self._forecast.to_json(),
            "by_step": [forecast.to_json() for forecast in self._by_step],
            "told": self._told.to_json(),
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
            monitor._safe.take_json(saved["safe"])
            monitor._forecast.take_json(saved["forecast"])
            for forecast, entry in zip(monitor._by_step, saved["by_step"], strict=True):
                forecast.take_json(entry)
            monitor._told.take_json(saved["told"])
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
        lists = {"threshold": p.threshold, "noise": p.noise, "gamma_norm": p.gamma_norm, "sample_error": p.sample_error}
        lists["drift"] = p.drift
        return numbers | {name: list(values) for name, values in lists.items()} | {"drift_per": p.drift_per}
