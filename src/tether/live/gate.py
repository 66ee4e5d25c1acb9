"""The gate: a second, simple code path that recomputes a bound from its own sums before an action leaves.

Plain numpy, an eigendecomposition, and an account of its own rounding. It shares no code with the kernels and agents
whose certificates it examines, and states the theorem's constants a second time: on purpose.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, isfinite, isnan, log, log2, nan, pi, sqrt
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.live.yes_no import Claim, YesNo, fitted
from tether.problem.action_sets import ActionSet, feature_of
from tether.problem.problem import KnownState
from tether.records import Action, Array, CostBound, Drift, Mixture, Multipliers, StarAction

ULP = 2.0**-52

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Ridges of the mixtures behind the theorem's radius, in units of the squared norm of the first feature (1 if it is 0):
docs/guarantee.md."""

AMPLIFIED = 1e4
"""A fact is left out if errors of 1 in the facts could then move its own cost by more than this."""

MISFIT = 1e-6
"""Facts that miss each other by more than this part of max(1, |τ|) contradict each other."""

ROUNDED = 16.0 * ULP
"""The rounding error of a fact, in units of |τ_s| + ‖f‖B."""

SPANNED = 1e-4
"""A safe feature of which the facts leave open no more than this part adds nothing to them."""

OUTWARD = 4e-9
"""Certificates enlarge widths by up to 2e-9 ‖x‖_G; the gate allows for twice that."""

MIXED = 4e-6
"""Certificates of mixtures enlarge the squared width of each part by up to 1e-6 of itself; the gate allows 4e-6."""

SHOWN = 0.9
"""The part of a misfit of facts that a certificate must at least allow for: the gate's own may differ in rounding."""

WINDOWS = (1, 2, 4, 8)
"""Where costs drift by the decision: how long blocks are, in units of the shortest window."""

POWERS = (-3, -1, 1, 3, 5)
"""Where they drift by the second: powers of two by which blocks are longer than one decision per second asks for."""

FAR = 2.0**53
"""A stamp so many of the shortest windows after the first counts as none."""

WORST_DOUBT = 0.01
"""If the gate's own rounding could exceed this part of τ − τ_s, it cannot tell, and refuses."""

STATED = 1e-9
"""A certificate may say so much less than its multipliers prove: it rounds otherwise. Over τ nothing passes."""

BELOW = 1e-9
"""A cost in [0, 1] that is proven to lie this far below 0: safe costs and data contradict each other."""

GOLDEN = (5.0**0.5 - 1.0) / 2.0
ONE = np.ones(1)
NOTHING = np.zeros(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The theorem's constants, and which safe costs are known: constants of the problem, never a learner's number.

    `radius` names the theorem's radius or is a tuned number; `reduces` says whether facts reduce its square
    (docs/theory.md sections 4 and 17). `memory` says which safe costs are remembered beside that of the state one
    stands in: none, those of states with an outcome, or those of all listed states.
    """

    memory: Literal["state", "visited", "all"]
    error: Array | None  # e: safe costs are known up to this (M,); None if they are unknown
    misfit: Array  # ε: expected costs are linear in the features up to this (M,)
    exceedance: float | None  # η, where τ limits the realised cost; None where it limits the mean
    noise_scales: bool  # whether noise has the size σα at length α, so that a_0 has none
    radius: float | str
    reduces: bool
    threshold: Array  # τ (M,)
    noise: Array  # σ (M,)
    gamma_norm: Array  # B (M,)
    feature_norm: float  # the limit on ‖φ‖
    confidence: float  # δ
    stages: int  # G: H, or 1 where steps are pooled
    dimension: int  # d
    ridge: float  # λ
    cost_range: Array | None = None  # lowest and highest reading (M, 2), where a lost cost counts as the worst one
    bounded: tuple[int, ...] = ()  # constraints whose costs lie in [0, 1], which are bounded by likelihood ratios
    drift: Array | None = None  # ρ: how far γ* may move with each decision (M,); None if costs do not drift
    drift_per: Literal["decision", "second"] = "decision"  # or in each second
    listed: Array | None = None  # φ of the listed actions (L, d), whose bounded costs lie in [0, 1]; None if none count

    @cached_property
    def windows(self) -> tuple[float, ...]:
        """Decisions, or seconds, between the beginnings of two blocks: theory, section 13. Empty without drift."""
        if self.drift is None:
            return ()
        limits = zip(self.noise.tolist(), self.drift.tolist(), strict=True)
        pace = min(sigma / (rho * self.feature_norm) for sigma, rho in limits if rho > 0.0)
        length = min(pace * sqrt(self.stages), 1e15) ** (2.0 / 3.0)
        if self.drift_per == "second":
            return tuple(2.0 ** (ceil(log2(length)) + power) for power in POWERS)
        return tuple(float(max(8, ceil(length)) * times) for times in WINDOWS)

    @cached_property
    def exact(self) -> bool:
        """Whether safe costs are exact facts about γ*: then they are conditioned on."""
        return self.error is not None and not self.error.any() and not self.misfit.any()


def add_to(total: Array, rest: Array, term: Array) -> None:
    """total += term, with what rounding drops kept in `rest` for the next time (Kahan), in place."""
    term = term - rest
    larger = total + term
    rest[...] = (larger - total) - term
    total[...] = larger


def _norm(vector: Array) -> float:
    return sqrt(vector.dot(vector))  # of short vectors, `dot` is the same number in half the time of `@`


def _sizes(rows: Array) -> Array:
    sizes: Array = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return sizes


def length_outside(basis: Array, f: Array) -> float:
    """‖f − BBᵀf‖ of f (d,) for an orthonormal basis B (d, n); taken off twice, as the first time leaves rounding."""
    rest = f - basis @ (f @ basis)
    return _norm(rest - basis @ (rest @ basis))


# Known safe costs ⟨γ*, f⟩ = τ_s (docs/theory.md section 17): the gate's own account of them.


class Span(NamedTuple):
    """What exact facts settle: an orthonormal basis (d, n) of their features' span, and the part of γ* in it (M, d)."""

    basis: Array
    known: Array


class ExactFacts:
    """Safe costs that are known exactly: those that were accepted, in their order; at most d for each stage.

    `amplification` K (G,) bounds what an error of 1 in every fact does to γ*; `misfit` (G, M) is the largest error that
    the facts have shown, at least that of rounding.
    """

    names = ("features", "costs", "count", "amplification", "misfit")

    def __init__(self, terms: Terms) -> None:
        stages, d, constraints = terms.stages, terms.dimension, len(terms.threshold)
        self._terms = terms
        self.features = np.zeros((stages, d, d))  # f_j, one a row
        self.costs = np.zeros((stages, d, constraints))  # τ_j
        self.count = np.zeros(stages, dtype=np.int64)
        self.amplification = np.zeros(stages)
        self.misfit = np.zeros((stages, constraints))
        self._spans: dict[int, tuple[int, Span]] = {}

    def accepted(self, stage: int) -> tuple[Array, Array]:
        """f_j (n, d) and τ_j (n, M) of one stage."""
        n = int(self.count[stage])
        return self.features[stage, :n], self.costs[stage, :n]

    def span(self, stage: int) -> Span:
        """What the accepted facts settle, by a QR decomposition; kept until another one is accepted."""
        n = int(self.count[stage])
        kept = self._spans.get(stage)
        if kept is None or kept[0] != n:
            features, costs = self.accepted(stage)
            basis, triangle = np.linalg.qr(features.T)
            kept = self._spans[stage] = (n, Span(basis, (basis @ np.linalg.solve(triangle.T, costs)).T))
        return kept[1]

    def forget_spans(self) -> None:
        """After the arrays were replaced."""
        self._spans.clear()

    def remember(self, stage: int, f: Array, cost: Array) -> None:
        """Accept a fact that adds a direction, without amplifying errors too much; compare any other with the accepted.

        Leaving a fact out is always allowed, since the others hold without it.
        """
        span, norm, bound = self.span(stage), _norm(f), self._terms.gamma_norm
        rest = length_outside(span.basis, f)
        before, n = float(self.amplification[stage]), int(self.count[stage])
        after = self._amplification_with(stage, f, norm, rest)
        news = n < self._terms.dimension and after * norm <= AMPLIFIED
        missed = np.zeros_like(cost) if news else np.abs(span.known @ f - cost) - rest * bound
        missed = np.where(missed <= before * norm * self.misfit[stage], 0.0, missed)
        rounding = ROUNDED * (np.abs(cost) + norm * bound)
        self.misfit[stage] = np.maximum(self.misfit[stage], np.maximum(rounding, missed))
        if news:
            self.features[stage, n], self.costs[stage, n] = f, cost
            self.count[stage], self.amplification[stage] = n + 1, after

    def _amplification_with(self, stage: int, f: Array, norm: float, rest: float) -> float:
        """√n ‖F⁺‖ (Frobenius) once f is a row of F (n, d): what errors of 1 in the facts may do to γ* on their span."""
        if not norm <= AMPLIFIED * 2.0 * rest:  # the least singular value is at most `rest`: f is left out anyway
            return inf
        values = np.linalg.svd(np.vstack([self.accepted(stage)[0], f]), compute_uv=False)
        return sqrt(len(values) * float(np.square(1.0 / values).sum())) if values[-1] > 0.0 else inf

    def rounding(self, stage: int) -> Array:
        """A bound on the rounding error of each accepted fact, (M,)."""
        features, costs = self.accepted(stage)
        norms = np.sqrt(np.square(features).sum(axis=1))
        rounded = ROUNDED * (np.abs(costs) + np.outer(norms, self._terms.gamma_norm))
        rounding: Array = rounded.max(axis=0, initial=0.0)
        return rounding

    def contradiction(self, stage: int) -> list[str]:
        """Why each constraint's facts cannot all be true; empty where they can."""
        terms, span = self._terms, self.span(stage)
        found = []
        for j, tau in enumerate(terms.threshold.tolist()):
            misfit, error = float(self.misfit[stage, j]), float(self.amplification[stage] * self.misfit[stage, j])
            size, most = _norm(span.known[j]), float(terms.gamma_norm[j])
            why = ""
            if not misfit <= MISFIT * max(1.0, abs(tau)):
                why = f"the remembered safe costs contradict each other, by {misfit:.3g}"
            elif not size <= most * (1.0 + 1e-9) + error:
                why = f"the remembered safe costs need ‖γ*‖ >= {size:.6g}, but B is {most:.6g}"
            found.append(why)
        return found


class WeighedFacts:
    """Safe costs that are known up to an error bar: sums over all visits, and those sums as of the last weighing.

    F = Σ ffᵀ (G, d, d), Σ τ_s f (G, M, d), Σ τ_s² (G, M) and their number J (G,). Any weight w >= 0 is valid.
    """

    names = (
        "gram", "gram_rest", "moment", "moment_rest", "square", "square_rest", "visits",
        "weight", "used_gram", "used_moment", "used_square", "used_visits",
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        stages, d, constraints = terms.stages, terms.dimension, len(terms.threshold)
        self.gram, self.gram_rest, self.used_gram = (np.zeros((stages, d, d)) for _ in range(3))
        self.moment, self.moment_rest, self.used_moment = (np.zeros((stages, constraints, d)) for _ in range(3))
        self.square, self.square_rest, self.used_square = (np.zeros((stages, constraints)) for _ in range(3))
        self.visits, self.weight, self.used_visits = (np.zeros(stages) for _ in range(3))

    def remember(self, stage: int, f: Array, cost: Array) -> None:
        """Count one visit; it takes effect at the next weighing."""
        self.visits[stage] += 1.0
        add_to(self.gram[stage], self.gram_rest[stage], np.outer(f, f))
        add_to(self.moment[stage], self.moment_rest[stage], np.outer(cost, f))
        add_to(self.square[stage], self.square_rest[stage], cost * cost)

    def weigh(self, stage: int, weight: float) -> None:
        """From now on the facts so far count with this weight. One that is no weight lets nothing pass."""
        self.weight[stage] = weight if isfinite(weight) and weight >= 0.0 else np.nan
        self.used_gram[stage], self.used_moment[stage] = self.gram[stage], self.moment[stage]
        self.used_square[stage], self.used_visits[stage] = self.square[stage], self.visits[stage]


# One stage, solved


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

    `root` is √v (d,) and `whitener` is Q/√v (d, d), so that ‖x whitener‖ = ‖x‖_G. `free` (d, d) is the whitener without
    the directions that exact facts settle: ‖x free‖ is the width of x. `span` (d, n) is an orthonormal basis of the
    facts' features. `error` is how far rounding may have moved A (in norm), `factor` what it may do to the
    certificate's own factors.
    """

    fits: tuple[Fit, ...]
    root: Array
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
    if not (np.isfinite(gram).all() and np.isfinite(moment).all() and np.isfinite(bias).all()):
        return None
    values, vectors = np.linalg.eigh(gram)
    error = 16.0 * ULP * float(values[-1])
    if not values[0] >= terms.ridge * (1.0 - 1e-9) - error:
        return None
    values = np.maximum(values, terms.ridge)
    betas = biased(terms, least_radii(terms, values, error, scale, split), bias)
    plain = _with_radii(_fitted(terms, values, vectors, moment, count, error), betas)
    if isinstance(facts, ExactFacts):
        return _conditioned_on(terms, plain, facts, stage) if facts.count[stage] else plain
    return _weighed(terms, plain, sums, facts, stage)


def _fitted(terms: Terms, values: Array, vectors: Array, moment: Array, count: int, error: float) -> Model:
    """The ridge estimate from eigenvalues (d,) and eigenvectors (d, d), no facts and no radii yet."""
    root = np.sqrt(values)
    whitener = vectors / root
    inside = moment @ whitener  # ĝ in whitened coordinates
    gamma_hat = inside @ whitener.T
    sizes = zip(gamma_hat, _sizes(gamma_hat).tolist(), _sizes(inside).tolist(), strict=True)
    return Model(
        fits=tuple(Fit(g, size, energy, _margin(terms, size, 0.0)) for g, size, energy in sizes),
        root=root,
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


def _conditioned_on(terms: Terms, plain: Model, facts: ExactFacts, stage: int) -> Model:
    """The model on the affine space that exact facts leave: section 17 (a). m = ‖ĝ − γ_c‖²_A is taken off β²."""
    features, costs = facts.accepted(stage)
    held, triangle = np.linalg.qr((features @ plain.whitener).T)
    estimates = np.array([fit.gamma_hat for fit in plain.fits])
    taken = np.linalg.solve(triangle.T, features @ estimates.T - costs)  # (n, M), whitened
    gamma_hat = estimates - (plain.whitener @ (held @ taken)).T
    free = plain.whitener - (plain.whitener @ held) @ held.T
    free -= (free @ held) @ held.T  # what rounding left of it
    amplified, floor = float(facts.amplification[stage]), facts.rounding(stage)
    slips = (2.0 * amplified * floor).tolist()
    misfits = (SHOWN * amplified * np.maximum(facts.misfit[stage] - 2.0 * floor, 0.0)).tolist()
    sizes, troubles, fits = _sizes(gamma_hat).tolist(), facts.contradiction(stage), []
    for j, fit in enumerate(plain.fits):
        moved = _norm(taken[:, j]) if terms.reduces else 0.0
        least = float(plain.root[0])
        doubt = moved * (1e-9 + plain.error / least**2) + plain.error * fit.size / least
        doubt += slips[j] * plain.trace_root
        grown = fit.radius + misfits[j] * plain.trace_root
        radius = _root(grown * grown, moved * moved, (2.0 * moved + doubt) * doubt if terms.reduces else 0.0)
        size = max(sizes[j], fit.size)
        margin = _margin(terms, size, slips[j])
        fits.append(Fit(gamma_hat[j], size, fit.energy, margin, radius, slips[j], misfits[j], troubles[j]))
    return plain._replace(fits=tuple(fits), free=free, span=facts.span(stage).basis, facts=int(facts.count[stage]))


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
    fitted = _fitted(terms, np.maximum(values, terms.ridge), vectors, moment + weight * safe, count, error)
    radii = []
    for j, (before, fit) in enumerate(zip(plain.fits, fitted.fits, strict=True)):
        mine, moved = fit.gamma_hat, before.gamma_hat - fit.gamma_hat
        missed = float(square[j] + mine @ (added @ mine) - 2.0 * (mine @ safe[j]))
        least = float(moved @ gram @ moved) + weight * max(missed, 0.0)
        scale = float(square[j]) + float(np.trace(added)) * max(before.size, fit.size) ** 2
        doubt = sqrt(least) * 1e-9 + error * (before.size + fit.size) / float(plain.root[0])
        rounding = (2.0 * sqrt(least) + doubt) * doubt + 64.0 * ULP * (len(mine) + visits) * weight * scale
        grown = before.radius * before.radius + weight * visits * float(terms.error[j] + terms.misfit[j]) ** 2
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


# A bound at one point


class Parts(NamedTuple):
    """What a point is made of: φ = f + Σ shares·(ends − f), with shares (n,), their `total`, and ends (n, d).

    n = 1 unless it was mixed, and then numbers do what arrays would do more slowly.
    """

    shares: Array
    total: float
    ends: Array
    mixed: bool = False

    @property
    def away(self) -> Array:
        """Σ shares·ends: (d,)."""
        away: Array = self.total * self.ends[0] if len(self.ends) == 1 else self.shares.dot(self.ends)
        return away

    def length(self, rows: Array) -> float:
        """Σ shares·‖row‖ over rows (n, …) that belong to the ends."""
        return self.total * _norm(rows[0]) if len(rows) == 1 else float(self.shares @ _sizes(rows))


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
    parts: Array = NOTHING


def open_part(model: Model, f: Array) -> float:
    """The part of ‖f‖ that the remembered facts leave open."""
    settled = model.span.shape[1]
    if settled == len(f) or (length := _norm(f)) == 0.0:
        return 0.0  # the cost of the origin is 0 in any case
    if settled == 0:
        return 1.0
    return length_outside(model.span, f) / length


def plain(model: Model, fit: Fit, x: Array, parts: Parts, start: float = 0.0) -> Geometry:
    """`start` + ⟨γ_c, x⟩ and its width given the remembered facts; the state's own fact is not used. x (d,).

    Certificates round outward by the ends of `parts`, which may lie farther out than x.
    """
    free, total = x.dot(model.free), parts.total
    width, solved = _norm(free), _norm(free / model.root)  # ‖x‖ and ‖Gx‖, given the facts
    moved = solved * model.error * fit.size + fit.slip * model.trace_root * width + fit.margin * (1.0 + total)
    return Geometry(
        mean=start + float(fit.gamma_hat.dot(x)),
        width=width,
        norm=parts.length(parts.ends.dot(model.whitener)),
        moved=moved,
        wider=sqrt(width * width + solved * solved * model.error) - width,
        extra=model.feature_norm * fit.misfit * total,
        parts=parts.shares * _sizes(parts.ends @ model.free) if parts.mixed else NOTHING,
    )


def conditioned(model: Model, fit: Fit, point: "Point", f: Array, declared: float, reduces: bool) -> Geometry:
    """Section 1 on top of the remembered facts: mean and width at a point, given c(f) = `declared`; with `reduces`, the
    pull of section 4."""
    x, parts = point.feature, point.parts
    v, e, tips = x.dot(model.free), f.dot(model.free), parts.ends.dot(model.free)
    g00 = float(e.dot(e))
    share = float(e.dot(v)) / g00
    along = tips.dot(e) / g00
    reach = float(parts.shares.dot(1.0 + np.abs(along)))  # what a certificate's margin was multiplied by
    across = v - share * e
    width = _norm(across)
    residual = float(fit.gamma_hat.dot(f)) - declared
    uf, ux, uy = _norm(e / model.root), _norm(v / model.root), _norm(across / model.root)  # ‖Gf‖, ‖Gx‖, ‖Gy‖
    error, side = model.error, abs(residual)
    moved = error * (ux + abs(share) * uf) * (fit.size + uf * side / g00)
    moved += fit.slip * model.trace_root * width + fit.margin * (1.0 + reach)
    misfit = model.feature_norm * fit.misfit
    outward = tips if model.free is model.whitener else parts.ends.dot(model.whitener)
    shape = Geometry(
        mean=float(fit.gamma_hat.dot(x)) - share * residual,
        width=width,
        norm=max(_norm(v if model.free is model.whitener else x.dot(model.whitener)), parts.length(outward)),
        moved=moved,
        wider=sqrt(width * width + uy * uy * error) - width,
        extra=misfit * reach,
        parts=parts.shares * _sizes(tips - along[:, None] * e) if parts.mixed else NOTHING,
    )
    if not reduces:
        return shape
    shift = error * uf * side / g00 * (2.0 * fit.size + uf * side / g00) + 4.0 * side * fit.margin / g00
    return shape._replace(pull=residual * residual / g00, shift=shift, spared=4.0 * side * misfit / g00)


def contradicts(model: Model, fit: Fit, f: Array, left_open: float, declared: float, gamma_norm: float) -> bool:
    """Whether the remembered facts, which settle c(f) but for a small part `left_open`, deny that τ_s = `declared`."""
    missed = abs(float(fit.gamma_hat.dot(f)) - declared) - 2.0 * fit.margin
    missed -= left_open * _norm(f) * (gamma_norm + fit.size)
    missed -= model.feature_norm * 2.0 * fit.misfit
    return not missed <= MISFIT * max(1.0, abs(declared)) * (1.0 + 1e-6)


def bound_at(model: Model, fit: Fit, shape: Geometry, radius: float) -> tuple[float, float]:
    """The bound with radius β, and by how much the certificate's may differ; NaN if τ_s contradicts the data.

    A certificate rounds outward (OUTWARD), and its factors have rounding of their own (`factor`).
    """
    square = radius * radius - shape.pull
    if not square >= 0.0:
        return nan, inf
    reduced, own = sqrt(square), model.factor * (radius + fit.energy)
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


# Many bounds at once, with the least radius: for display


def conditioned_bounds(model: Model, fit: Fit, rows: Array, f: Array, declared: float, reduces: bool) -> Array:
    """The bounds of many rows (N, d), given c(f) = `declared`: (N,)."""
    v, e = rows @ model.free, f @ model.free
    g00 = float(e @ e)
    share = v @ (e / g00)
    residual = float(fit.gamma_hat @ f) - declared
    square = fit.radius**2 - (residual * residual / g00 if reduces else 0.0)
    width2 = np.einsum("nd,nd->n", v, v) - share * share * g00
    radius = sqrt(square) if square >= 0.0 else nan
    bounds: Array = rows @ fit.gamma_hat - share * residual + radius * np.sqrt(np.maximum(width2, 0.0))
    return bounds


def plain_bounds(model: Model, fit: Fit, rows: Array) -> Array:
    """The bounds of many rows (N, d), the state's own fact not used: (N,)."""
    v = rows @ model.free
    bounds: Array = rows @ fit.gamma_hat + fit.radius * np.sqrt(np.einsum("nd,nd->n", v, v))
    return bounds


def _lengths(start: float, upper: Array, tau: float, is_star: bool) -> Array:
    """How far along each ray a bound that is `start` at a_0(s) and `upper` (N,) at the end stays under τ: (N,)."""
    slack, rise = tau - start, upper - start
    if not (slack > 0.0 and np.isfinite(rise).all()):
        return np.zeros_like(rise)
    lengths: Array = slack / np.maximum(rise, slack)
    return lengths if is_star else np.floor(lengths)


# Mixtures of actions as the judge and the gate see them: plain sums, apart from the code that plans mixtures.


class Drawn(NamedTuple):
    """What an action was drawn from, the number in [0, 1) that drew it, and proofs of what it costs by itself."""

    mixture: Mixture
    coin: float
    proofs: Mapping[int, Multipliers] = MappingProxyType({})


def weights_of(actions: ActionSet, probabilities: Array) -> Array:
    """The probabilities (N,) of the candidates, that of a_0 set to 0: a_0 has whatever they leave over."""
    weights = probabilities.copy()
    if actions.baseline >= 0:
        weights[actions.baseline] = 0.0
    return weights


def mean_feature(actions: ActionSet, probabilities: Array) -> Array:
    """φ^θ(s) = φ_0 + Σ θ_a (φ(s, a) − φ_0): (d,)."""
    mean: Array = actions.phi_0 + weights_of(actions, probabilities) @ (actions.endpoints - actions.phi_0)
    return mean


def drawn_row(actions: ActionSet, probabilities: Array, coin: float) -> tuple[int, float]:
    """(row, length) of the candidate that a number in [0, 1) falls on, in the order of D(s); (-1, 0) is a_0."""
    row = int(np.searchsorted(np.cumsum(probabilities), coin, side="right"))
    return (-1, 0.0) if row in (len(probabilities), actions.baseline) else (row, 1.0)


def diluted(actions: ActionSet, mixture: Mixture, kept: float) -> Mixture:
    """The mixture with `kept` of every probability but that of a_0, which gets the rest."""
    probabilities = kept * weights_of(actions, mixture.probabilities)
    rest = 1.0 - float(probabilities.sum())
    if actions.baseline >= 0:
        probabilities[actions.baseline] = rest
    return Mixture(probabilities, rest, mean_feature(actions, probabilities))


def parts_of(actions: ActionSet, mixture: Mixture) -> tuple[tuple[int, float], ...]:
    """(candidate, probability) wherever it is not 0, without a_0, which has the rest."""
    weights = weights_of(actions, mixture.probabilities)
    return tuple((int(row), float(weights[row])) for row in np.flatnonzero(weights))


def not_drawn(actions: ActionSet, row: int, drawn: Drawn) -> str:
    """Why this candidate (-1: a_0) is not what was drawn from a mixture over D(s); empty if it is."""
    mixture, coin = drawn.mixture, drawn.coin
    p = mixture.probabilities
    if p.shape != (len(actions.endpoints),) or not (np.isfinite(p).all() and (p >= 0.0).all()):
        return "the mixture is not one over D(s)"
    total = float(p.sum())
    if not (total <= 1.0 + 1e-12 and (actions.is_star or total >= 1.0 - 1e-12)):
        return f"the probabilities sum to {total!r}"
    if not 0.0 <= coin < 1.0 or drawn_row(actions, p, coin)[0] != row:
        return f"{coin!r} does not draw candidate {row}"
    rounding = 1e-12 * float(np.abs(actions.endpoints).max())
    if not np.abs(mixture.mean_feature - mean_feature(actions, p)).max() <= rounding:
        return "the mean feature is not that of the mixture"
    return ""


# The gate


class Point(NamedTuple):
    """Where a bound is examined: φ (d,) of an action, or the mean of the mixture that it was drawn from; its parts."""

    feature: Array
    action: Action
    parts: Parts
    rows: NDArray[np.intp]  # the candidates that it is made of

    @classmethod
    def of(cls, actions: ActionSet, action: Action, feature: Array, mixture: Mixture | None) -> "Point":
        """The point that an action of D(s), or the mixture it was drawn from, stands for."""
        if mixture is not None:
            weights = weights_of(actions, mixture.probabilities)
            rows = np.flatnonzero(weights)
            shares = weights[rows]
            parts = Parts(shares, float(shares.sum()), actions.endpoints[rows], True)
            return cls(mixture.mean_feature, action, parts, rows)
        if isinstance(action, StarAction):
            length, ends = action.length, actions.endpoints[action.ray : action.ray + 1]
            return cls(feature, action, Parts(np.array([length]), length, ends), np.array([action.ray]))
        return cls(feature, action, Parts(ONE, 1.0, feature[None]), np.array([action]))


class Ways(NamedTuple):
    """What bounds a point where a_0's cost is not an exact fact: the way from a_0, whose cost is at most `start`, too.

    `misfit` is ε, which the point's own cost may lie over ⟨γ*, φ⟩.
    """

    actions: ActionSet
    point: Point
    start: float
    misfit: float


class Verdict(NamedTuple):
    """What the gate found: its bounds (M,) and its rounding (M,); `why` is empty if the action may leave.

    If the action was drawn from a mixture, `own` (M,) are bounds on its cost by itself, which may lie over τ.
    """

    why: str
    bounds: tuple[float, ...]
    doubts: tuple[float, ...]
    own: tuple[float, ...] | None = None


Place = int | tuple[int, int]
"""Where sums are kept: a stage, or (stage, block) where costs drift."""


class Turn(NamedTuple):
    """A decision whose cost has not counted: φ (d,) of what was decided, or played, and z (M,), None if it was lost."""

    feature: Array
    cost: Array | None = None
    has_come: bool = False


class Turns:
    """The order of decisions, kept a second time: a cost may count once no earlier decision of its stage is open."""

    def __init__(self, stages: int) -> None:
        self.queues: list[OrderedDict[str, Turn]] = [OrderedDict() for _ in range(stages)]
        self.has_acted = False  # a decision other than a_0 was made, and has rested on what had counted by then

    def expect(self, stage: int, id: str, feature: Array, *, acts: bool = True) -> None:
        """A decision was made; it `acts` if it may play anything but a_0."""
        self.queues[stage][id] = Turn(feature)
        self.has_acted |= acts

    def come(self, id: str, feature: Array | None = None, cost: Array | None = None) -> None:
        """Its outcome has come; without a feature, it was lost."""
        for queue in self.queues:
            if id in queue:
                queue[id] = Turn(queue[id].feature if feature is None else feature, cost, has_come=True)

    def withdraw(self, id: str) -> None:
        """It was never played."""
        for queue in self.queues:
            queue.pop(id, None)

    def is_next(self, stage: int, feature: Array, cost: Array | None) -> bool:
        """Whether this outcome is the next to count; from now on it has."""
        if not self.queues[stage]:
            return False
        _, turn = self.queues[stage].popitem(last=False)
        same_cost = turn.cost is cost if cost is None or turn.cost is None else np.array_equal(turn.cost, cost)
        return turn.has_come and same_cost and np.array_equal(turn.feature, feature)


class Gate:
    """Sums and facts of its own, and the check. `gram` (G, d, d) starts at λI, `moment` (G, M, d) at 0.

    Where costs drift there are sums for each of 2K blocks, (G, 2K, …): of window k those that began at the last two
    multiples of it, in the places 2k and 2k + 1. `begun` (G, 2K) is the decision that each began with, or, where drift
    is per second, the time since `origin` (G,), the first stamp (NaN before there is one); -1 while there is none.
    `ages` (G, 2K, 3) sums ‖φ‖²aᵏ over its outcomes, k = 0, 1, 2, with ages a up to `clock` (G,), the latest decision;
    `using` (G,) is the block that certificates rest on. `asked_at` is the time of the decision that is examined, None
    for the clock's.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        d, constraints = terms.dimension, len(terms.threshold)
        places = (terms.stages, 2 * len(terms.windows)) if terms.windows else (terms.stages,)
        self.gram = np.tile(terms.ridge * np.eye(d), (*places, 1, 1))
        self.moment = np.zeros((*places, constraints, d))
        self.gram_rest = np.zeros_like(self.gram)  # what rounding dropped from each sum (Kahan)
        self.moment_rest = np.zeros_like(self.moment)
        self.bias = np.zeros((*places, constraints))  # Σ b², where sample i may be off by b_i
        self.scale = np.ones(places)  # ‖φ‖² of the first feature (1 if that is 0)
        self.count = np.zeros(places, dtype=np.int64)
        self.lost = np.zeros(terms.stages, dtype=np.int64)  # costs that were never measured
        self.begun = np.full(places, -1.0)
        self.ages = np.zeros((*places, 3))
        self.using = np.zeros(terms.stages, dtype=np.int64)
        self.clock = np.zeros(terms.stages)
        self.origin = np.full(terms.stages, nan if terms.drift_per == "second" else 0.0)
        self.asked_at: float | None = None
        # certificates hold for so many decisions more, or seconds
        self.ahead = terms.windows[0] / 8.0 if terms.windows else 0.0
        if terms.drift_per == "decision":
            self.ahead = float(int(self.ahead))
        self.facts: ExactFacts | WeighedFacts
        self.facts = ExactFacts(terms) if terms.error is None or terms.exact else WeighedFacts(terms)
        self.yes_no = YesNo(terms.bounded, terms.stages, d, terms.feature_norm, float(terms.gamma_norm.max()))
        self.turns = Turns(terms.stages)
        self.alarm = np.zeros((terms.stages, constraints), dtype=np.int64)  # 1: a declared safe cost was found false
        self._solved: dict[int, Model | None] = {}
        self._begin()

    def arrays(self) -> dict[str, Array]:
        """The state, by name: what a snapshot keeps."""
        names = ["gram", "moment", "gram_rest", "moment_rest", "bias", "scale", "count", "lost", "alarm"]
        names += ["begun", "ages", "using", "clock", "origin"] if self.terms.windows else []
        mine = {name: getattr(self, name) for name in names}
        mine |= {f"facts.{name}": getattr(self.facts, name) for name in self.facts.names}
        return mine | {f"yes_no.{name}": getattr(self.yes_no, name) for name in self.yes_no.names}

    def take(self, arrays: dict[str, Array]) -> None:
        """The reverse of `arrays`."""
        for name, mine in self.arrays().items():
            if mine.shape != arrays[name].shape:
                raise ValueError(f"{name} of the gate has shape {arrays[name].shape}, not {mine.shape}")
            mine[...] = arrays[name]
        if isinstance(self.facts, ExactFacts):
            self.facts.forget_spans()
        self.yes_no.forget_rows()
        self._solved.clear()

    def guess(self, step: int, gamma: Array) -> None:
        """The learner's γ̂ (K, d) for the next outcome of each bounded cost, which nobody has been handed yet."""
        self.yes_no.guess[self._stage(step)] = gamma

    def tick(self, time: float | None = None) -> None:
        """One decision more, where costs drift: outcomes grow older by one, or up to its stamp if no later one has
        come. A decision without a stamp moves nothing."""
        if self.terms.drift_per == "second":
            if time is None or not isfinite(time):
                return
            if isnan(self.origin[0]):
                self.origin[:] = time
            if not time - float(self.origin[0]) < FAR * self.terms.windows[0]:
                return
            older = max(time - float(self.origin[0]) - float(self.clock[0]), 0.0)
            self.clock[:] = max(time - float(self.origin[0]), float(self.clock[0]))
        else:
            older = 1.0
            self.clock += 1.0
        self.ages[..., 2] += older * older * self.ages[..., 0] + 2.0 * older * self.ages[..., 1]
        self.ages[..., 1] += older * self.ages[..., 0]
        self._begin()
        self._solved.clear()

    def _begin(self) -> None:
        """Empty the blocks that are not of the last two turns of their window: what they held is too old."""
        for k, window in enumerate(self.terms.windows):
            turn = int(self.clock[0] // window)
            for each in (turn - 1, turn):
                block = (slice(None), 2 * k + each % 2)
                if each < 0 or self.begun[0, block[1]] == each * window:
                    continue
                self.gram[block] = self.terms.ridge * np.eye(self.terms.dimension)
                for sums in (self.moment, self.gram_rest, self.moment_rest, self.bias, self.ages, self.count):
                    sums[block] = 0
                self.scale[block], self.begun[block] = 1.0, each * window

    def use(self, stage: int, window: float, since: float) -> None:
        """Certificates of this stage rest on the block of this window that began with decision `since`, or then. Any is
        valid; one that is not here lets nothing pass."""
        found = [2 * k + i for k, w in enumerate(self.terms.windows) if w == window for i in range(2)]
        found = [block for block in found if self.begun[stage, block] + self._first(stage) == since]
        self.using[stage] = found[0] if found else -1
        self._solved.pop(stage, None)

    def _first(self, stage: int) -> float:
        """The first stamp; before there is one, that of the decision that is examined, or 0."""
        first = float(self.origin[stage])
        return first if not isnan(first) else self.asked_at or 0.0

    def look_at(self, time: float | None) -> None:
        """The decision that is examined is made at this time; None: at the clock's."""
        self.asked_at = time
        self._solved.clear()

    def _lead(self, stage: int) -> float:
        """How long after the clock, or before it, the decision is made: by so much all outcomes are older, at most."""
        if self.asked_at is None or self.terms.drift_per == "decision" or isnan(self.origin[stage]):
            return 0.0
        return abs(self.asked_at - float(self.origin[stage]) - float(self.clock[stage]))

    def _drift(self, stage: int, j: int) -> Drift | None:
        """What a certificate of this stage must say of the drift."""
        if self.terms.drift is None:
            return None
        block, per = int(self.using[stage]), self.terms.drift_per
        since, made = self._first(stage) + float(self.begun[stage, block]), float(self.clock[stage])
        if per == "second":
            made = self.asked_at if self.asked_at is not None else made + self._first(stage)
        return Drift(float(self.terms.drift[j]), self.terms.windows[block // 2], since, made + self.ahead, per)

    def _places(self, stage: int, at: float | None) -> list[Place]:
        """Where the outcome of decision `at` counts: in its stage, or in the blocks that had begun by then."""
        if not self.terms.windows:
            return [stage]
        begun = self.begun[stage]
        when = -1.0 if at is None else at - float(self.origin[stage])  # NaN, too, is in no block
        return [(stage, int(block)) for block in np.flatnonzero((begun >= 0.0) & (begun <= when))]

    def add(self, step: int, feature: Array, cost: Array | None, at: float | None = None) -> None:
        """One cost z (M,) of φ (d,), in its turn; None if it was lost: in the worst case half its range off.

        `at` is the number of its decision, or its stamp, which matters where costs drift.
        """
        stage, off = self._stage(step), self.terms.misfit
        self._solved.pop(stage, None)
        if cost is not None or self.terms.cost_range is not None:
            self.yes_no.add(stage, feature, cost)
        if cost is None:
            self.lost[stage] += 1
            if self.terms.cost_range is None:
                return
            cost, off = self.terms.cost_range.mean(axis=1), off + np.ptp(self.terms.cost_range, axis=1) / 2.0
        norm2 = float(feature @ feature)
        for place in self._places(stage, at):
            if self.count[place] == 0 and norm2 > 0.0:
                self.scale[place] = max(norm2, 1e-200)
            add_to(self.gram[place], self.gram_rest[place], np.outer(feature, feature))
            add_to(self.moment[place], self.moment_rest[place], np.outer(cost, feature))
            self.bias[place] += off**2
            self.count[place] += 1
            if at is not None and self.terms.windows:
                age = float(self.clock[stage] - (at - self.origin[stage]))
                self.ages[place] += norm2 * np.array([1.0, age, age * age])

    def add_next(self, step: int, feature: Array, cost: Array | None, at: float | None) -> None:
        """`add`, for an outcome that the learner has counted. Out of its turn it leaves sums that certify nothing."""
        if not self.turns.is_next(self._stage(step), feature, cost):
            self.gram[self._stage(step)] = nan
        self.add(step, feature, cost, at)

    def add_old(self, step: int, feature: Array, cost: Array | None, at: float | None) -> None:
        """`add`, for a row of old data. After a decision that acts it leaves sums that certify nothing."""
        if self.turns.has_acted:
            self.gram[self._stage(step)] = nan
        self.add(step, feature, cost, at)

    def remember(self, step: int, phi_0: Array, baseline_cost: Array) -> None:
        """The safe cost τ_s (M,) of a state whose safe action has feature f (d,): a fact about γ*_h, if any is kept."""
        if self.terms.memory != "state" and self.terms.error is not None:
            stage = self._stage(step)
            self.facts.remember(stage, phi_0, baseline_cost)
            self.yes_no.remember(stage, phi_0, baseline_cost)
            self._solved.pop(stage, None)

    def weigh(self, stage: int, weight: float) -> None:
        """Facts with an error bar count with weight w from now on, as many as there are by now. Any w is valid."""
        if isinstance(self.facts, WeighedFacts):
            self.facts.weigh(stage, weight)
            self._solved.pop(stage, None)

    def keep_alarms(self, step: int, radii: Sequence[float]) -> None:
        """A logged decision says by a NaN for a radius (M,) that no γ explains data and declarations. This holds until
        `alarm` is reset by an order; a tuned radius says nothing."""
        for j, radius in enumerate(radii):
            if isnan(radius) and (isinstance(self.terms.radius, str) or j in self.terms.bounded):
                self.alarm[self._stage(step), j] = 1

    def _stage(self, step: int) -> int:
        return step if self.terms.stages > 1 else 0

    def check(
        self,
        step: int,
        known: KnownState,
        action: Action,
        feature: Array,
        evidence: tuple[CostBound, ...],
        drawn: Drawn | None = None,
    ) -> Verdict:
        """Whether this action, with this feature (d,) and this evidence, may leave. If it was drawn from a mixture, the
        evidence is on the expected cost, so it is the mixture that is examined."""
        nothing = (inf,) * len(evidence)
        why = _not_in(known, action, feature, self.terms.feature_norm)
        if not why and drawn is not None:
            why = not_drawn(known.actions, _row_of(known, action), drawn)
        if why or (drawn is None and is_safe_action(known, action)):
            return Verdict(why, nothing, nothing)
        if self.alarm[self._stage(step)].any():
            return Verdict(
                "the declared safe costs have contradicted the data, and no order has come", nothing, nothing
            )
        if len(evidence) != len(self.terms.threshold):
            return Verdict(f"{len(evidence)} bounds for {len(self.terms.threshold)} constraints", nothing, nothing)
        try:
            model = self._model(step)
        except np.linalg.LinAlgError as error:
            return Verdict(f"the sums cannot be solved: {error}", nothing, nothing)
        if model is None:
            return Verdict("the sums are not finite, or A is not at least λI", nothing, nothing)
        bounds, doubts, found = [], [], []
        point = Point.of(known.actions, action, feature, None if drawn is None else drawn.mixture)
        for j, shown in enumerate(evidence):
            declared = float(known.baseline_cost[step, j])
            why = self._misstated(step, j, shown, model, is_drawn=drawn is not None)
            if why:
                bound = doubt = inf
            elif j in self.terms.bounded:
                why, bound, doubt = self._examine_yes_no(step, known.actions, point, declared, j, shown)
            else:
                why, bound, doubt = self._examine(model, known.actions, point, declared, j, shown)
            bounds.append(bound)
            doubts.append(doubt)
            found += [f"constraint {j}: {why}"] if why else []
        row = _row_of(known, action)
        own = None if drawn is None or found or row < 0 else self._by_itself(step, model, known, row, drawn.proofs)
        return Verdict("; ".join(found), tuple(bounds), tuple(doubts), own)

    def _by_itself(
        self, step: int, model: Model, known: KnownState, row: int, proofs: Mapping[int, Multipliers]
    ) -> tuple[float, ...]:
        """The gate's own bound on the cost of one candidate alone, per constraint (M,); infinite where it has none."""
        found = []
        point = Point.of(known.actions, known.actions.action(row, 1.0), known.actions.endpoints[row], None)
        for j in range(len(self.terms.threshold)):
            declared = float(known.baseline_cost[step, j])
            if j in self.terms.bounded:
                proven = self._proven_by(step, known.actions, point, declared, j, proofs.get(j), is_listed=True)[0]
                bound = min(proven, 1.0)
            else:
                bound = inf if model.fits[j].trouble else float(self._upper(model, known.actions, declared, j)[1][row])
            found.append(bound if isfinite(bound) else inf)
        return tuple(found)

    def prepare(self, step: int) -> Model | None:
        """The stage of a step, solved; None if it cannot be. `check` then finds it done."""
        try:
            return self._model(step)
        except np.linalg.LinAlgError:
            return None

    def certified(self, step: int, known: KnownState) -> float:
        """How much of D(s) is certified: the mean over its actions of the length, 0 to 1, that could be played.

        NaN where costs are bounded: to look at every action would take longer than to decide.
        """
        if self.terms.bounded:
            return nan
        model = self.prepare(step)
        if model is None:
            return 0.0
        actions, lengths = known.actions, None
        for j, tau in enumerate(self.terms.threshold.tolist()):
            declared = float(known.baseline_cost[step, j])
            start, upper = self._upper(model, actions, declared, j)
            each = _lengths(start + self._noise(j, 0.0), upper + self._noise(j, 1.0), tau, actions.is_star)
            lengths = each if lengths is None else np.minimum(lengths, each)
        if lengths is None:
            return 0.0
        if not actions.is_star:
            lengths[actions.baseline] = 1.0
        return float(lengths.sum()) / len(lengths)

    def _upper(self, model: Model, actions: ActionSet, declared: float, j: int) -> tuple[float, Array]:
        """(bound of a_0(s), bounds (N,) of the candidates) for one constraint."""
        terms, fit, f, rows = self.terms, model.fits[j], actions.phi_0, actions.endpoints
        if terms.exact and open_part(model, f) > SPANNED:
            return declared, conditioned_bounds(model, fit, rows, f, declared, terms.reduces)
        upper = plain_bounds(model, fit, rows) + float(terms.misfit[j])
        if terms.exact:
            return declared, upper
        free = float(plain_bounds(model, fit, f[None])[0]) + float(terms.misfit[j])
        return min(free, self._start(declared, j, not actions.is_star)), upper

    def _noise(self, j: int, total: float) -> float:
        """What noise may add to a mean cost where τ limits the realised one: σ√(2 log(1/η)), or `total` of it."""
        if self.terms.exceedance is None:
            return 0.0
        reach = float(self.terms.noise[j]) * sqrt(2.0 * log(1.0 / self.terms.exceedance))
        return total * reach if self.terms.noise_scales else reach

    def _start(self, declared: float, j: int, mixed: bool) -> float:
        """The most that a_0(s) may cost, by what was declared: τ_s + e, infinite if it is unknown.

        Points on a ray from it are not a_0: their bound begins at τ_s + e + 2ε (section 12). What is drawn is.
        """
        if self.terms.error is None:
            return inf
        return declared + float(self.terms.error[j]) + (0.0 if mixed else 2.0 * float(self.terms.misfit[j]))

    def _misstated(self, step: int, j: int, shown: CostBound, model: Model, *, is_drawn: bool) -> str:
        """What a certificate says of the problem or of the data that is not so; empty if nothing."""
        limited = "cost" if self.terms.exceedance is None else "realised cost"
        bounds, lost_as = "expected cost" if is_drawn else limited, "at-random"
        if self.terms.cost_range is not None:
            lost_as = "worst-case"
        tau, misfit, lost = float(self.terms.threshold[j]), float(self.terms.misfit[j]), model.lost
        kind, facts = "radius", model.facts
        if j in self.terms.bounded:
            kind, facts = "likelihood", int(self.yes_no.fact_count[self._stage(step), self.terms.bounded.index(j)])
        if shown.kind != kind:
            return f"it was proven by a {shown.kind}, but this constraint's costs need a {kind}"
        if shown.exceedance != (self.terms.exceedance or 0.0):
            return f"the certificate's η is {shown.exceedance!r}, the problem's {self.terms.exceedance!r}"
        if shown.misfit != misfit:
            return f"the certificate's misfit ε is {shown.misfit!r}, the problem's {misfit!r}"
        if shown.threshold != tau:
            return f"the certificate's τ is {shown.threshold!r}, the problem's {tau!r}"
        if shown.facts != facts:
            return f"it rests on {shown.facts} remembered facts, but the gate has {facts}"
        if shown.bounds != bounds:
            return f"it says that it bounds the {shown.bounds}, but what is limited here is the {bounds}"
        if (shown.lost, shown.lost_as) != (lost, lost_as):
            return f"it counts {shown.lost} lost costs ({shown.lost_as}), but the gate has {lost} ({lost_as})"
        most = 0 if self.terms.listed is None or j not in self.terms.bounded else len(self.terms.listed)
        if shown.listed not in (0, most):
            return f"it rests on {shown.listed} listed actions, but the gate has {most}"
        drift = self._drift(self._stage(step), j)
        return "" if shown.drift == drift else f"the certificate says {shown.drift!r} of the drift, the gate {drift!r}"

    def _examine_yes_no(
        self, step: int, actions: ActionSet, point: Point, declared: float, j: int, shown: CostBound
    ) -> tuple[str, float, float]:
        """(why not, the bound that the certificate's multipliers prove, its rounding) for a cost in [0, 1]."""
        tau, by = float(self.terms.threshold[j]), shown.multipliers
        own, rounding = self._proven_by(step, actions, point, declared, j, by, is_listed=shown.listed > 0)
        why = ""
        if by is None:
            why = "it carries no multipliers that prove its bound"
        elif not (isfinite(own) and isfinite(shown.bound)):
            why = "a bound is not finite: its multipliers prove nothing"
        elif not own >= -BELOW:
            why = f"the safe cost contradicts the data: the cost would be under {own:.3g}"
        elif not own <= shown.bound + STATED:
            why = f"the certificate's bound is {shown.bound!r}, but its multipliers prove {own!r}"
        elif not (shown.bound <= tau and own <= tau):
            why = f"the bound {max(own, shown.bound)!r} is over τ = {tau!r}"
        return why, own, rounding

    def _proven_by(
        self,
        step: int,
        actions: ActionSet,
        point: Point,
        declared: float,
        j: int,
        by: Multipliers | None,
        *,
        is_listed: bool,
    ) -> tuple[float, float]:
        """The bound that multipliers prove of a cost in [0, 1] by weak duality, and its rounding; infinite for none.

        Section 14. The rows are the outcomes and the facts that the gate has counted, the safe cost of the state, and
        the actions of which the point is made, each of which costs 0 to 1; only with `is_listed` the listed ones, too.
        """
        if by is None:
            return inf, inf
        terms, stage = self.terms, self._stage(step)
        error, candidates = 0.0 if terms.error is None else float(terms.error[j]), len(actions.endpoints)
        start = (0.0, float(terms.threshold[j])) if terms.error is None else (declared - error, declared + error)
        ends = fitted(by.actions, candidates)
        if ends is None:
            return inf, inf
        more = [
            Claim(actions.phi_0[None], *start, np.array([by.own])),
            Claim(actions.endpoints[point.rows], 0.0, 1.0, ends[point.rows]),
        ]
        if is_listed and terms.listed is not None:
            more.append(Claim(terms.listed, 0.0, 1.0, by.listed))
        events = terms.stages * len(terms.threshold) / terms.confidence
        return self.yes_no.proven((stage, terms.bounded.index(j)), point.feature, by, more, error, events)

    def _examine(
        self, model: Model, actions: ActionSet, point: Point, declared: float, j: int, shown: CostBound
    ) -> tuple[str, float, float]:
        """(why not, the gate's bound, its rounding) for one constraint, whose safe cost τ_s was `declared`."""
        fit, tau, radius = model.fits[j], float(self.terms.threshold[j]), shown.radius.value
        why = ""
        if fit.trouble:
            why = fit.trouble
        elif isnan(fit.radius):
            why = "the remembered safe costs contradict the data"
        elif not shown.radius.value >= fit.radius:
            why = f"its radius {radius:.6g} is smaller than the least valid one, {fit.radius:.6g}"
        if why:
            return why, inf, inf
        noise = self._noise(j, point.parts.total)
        if self.terms.exact:
            shape = self._shape(model, actions.phi_0, point, declared, j)
            if shape is None:
                return f"the remembered facts say that a_0 costs something else than {declared!r}", inf, inf
            own, _ = bound_at(model, fit, shape, fit.radius)
            same, doubt = bound_at(model, fit, shape, radius)
            highest, gap = same + most_upward(shape, radius), tau - declared
        else:
            start, misfit = self._start(declared, j, point.parts.mixed), float(self.terms.misfit[j])
            ways = Ways(actions, point, start, misfit)
            own, *_ = self._measured(model, fit, ways, fit.radius)
            same, highest, doubt = self._measured(model, fit, ways, radius)
            if shown.bound - noise < same - doubt:  # cut shorter, for a margin?
                same = min(same, self._along_chords(model, fit, ways, radius))
                own = min(own, self._along_chords(model, fit, ways, fit.radius))
            gap = tau - start if start < tau else abs(tau)
            if self.terms.bounded:  # another constraint may have cut it shorter: on the chord from τ, which bounds a_0
                highest = max(highest, tau)
        own, same, highest, gap = own + noise, same + noise, highest + noise, max(gap - self._noise(j, 0.0), 0.0)
        if not (isfinite(own) and isfinite(same) and isfinite(highest) and isfinite(shown.bound) and isfinite(doubt)):
            why = "a bound is not finite, or the safe cost contradicts the data"
        elif doubt > WORST_DOUBT * gap:
            why = f"rounding of {doubt:.3g} is too much beside a gap of {gap:.3g}: the data are ill-conditioned"
        elif not same - doubt <= shown.bound <= highest + doubt:
            why = f"the certificate's bound is {shown.bound!r}, the gate's {same!r}, ± {doubt:.3g}"
        elif not (shown.bound <= tau and own <= tau + doubt):
            why = f"the bound {max(own, shown.bound)!r} is over τ = {tau!r}"
        return why, own, doubt

    def _shape(self, model: Model, f: Array, point: Point, declared: float, j: int) -> Geometry | None:
        """What the bound at a point is made of where τ_s is known; None if the remembered facts deny it."""
        fit, parts = model.fits[j], point.parts
        left_open = open_part(model, f)
        if left_open > SPANNED:
            return conditioned(model, fit, point, f, declared, self.terms.reduces)
        if contradicts(model, fit, f, left_open, declared, float(self.terms.gamma_norm[j])):
            return None
        # c(f) is settled, and c is linear: (1 − Σα) τ_s + (bound of Σα·end)
        return plain(model, fit, parts.away, parts, declared * (1.0 - parts.total))

    def _measured(self, model: Model, fit: Fit, ways: "Ways", radius: float) -> tuple[float, float, float]:
        """(the gate's bound, the highest one that is as valid, rounding) where τ_s is known up to e, or not at all.

        Without conditioning it is U(φ) + ε; from a_0, which costs at most `start`, it is (1 − Σα) start + U(Σα·end) +
        Σα·ε, sections 12 and 17 (b). Both hold.
        """
        point, start, misfit, f = ways.point, ways.start, ways.misfit, ways.actions.phi_0
        parts = point.parts
        both = np.vstack([parts.ends, f])  # certificates round outward by both ends of the ray
        shape = plain(model, fit, point.feature, Parts(np.ones(len(both)), float(len(both)), both))
        free, doubt = bound_at(model, fit, shape, radius)
        free += misfit
        if not isfinite(start):
            return free, free, doubt
        shape = plain(model, fit, parts.away, parts)
        away, other = bound_at(model, fit, shape, radius)
        tied = (1.0 - parts.total) * start + away + parts.total * misfit
        most = tied + most_upward(shape, radius)
        return min(free, tied), max(free, most), max(doubt, other)

    def _along_chords(self, model: Model, fit: Fit, ways: "Ways", radius: float) -> float:
        """The least bound that c = (1 − α/t) c(f) + (α/t) c(x(t)) proves, over all longer lengths t on the same ray.

        A certificate for x(t) that is cut to α lies on the chord from τ_s + e. Its slope (U(x(t)) − τ_s − e)/t first
        falls and then rises, since U is convex: golden sections find its minimum, and any t gives a valid bound.
        """
        actions, point, start, misfit = ways
        action, f = point.action, actions.phi_0
        if point.parts.mixed or not isinstance(action, StarAction) or not isfinite(start):
            return inf
        away = actions.endpoints[action.ray] - f

        def slope(t: float) -> float:
            x = f + t * away
            there = bound_at(model, fit, plain(model, fit, x, Parts(ONE, 1.0, x[None])), radius)[0] + misfit
            return (there - start) / t

        low, high = action.length, 1.0
        for _ in range(60):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            low, high = (low, right) if slope(left) <= slope(right) else (left, high)
        return start + action.length * min(slope(low), slope(high))

    def _model(self, step: int) -> Model | None:
        """The stage of a step, solved once per change."""
        stage = self._stage(step)
        if stage not in self._solved:
            place: Place = (stage, int(self.using[stage])) if self.terms.windows else stage
            model = None if self.using[stage] < 0 else solve(self.terms, self._sums(place), self.facts, stage)
            self._solved[stage] = None if model is None else model._replace(lost=int(self.lost[stage]))
        return self._solved[stage]

    def _sums(self, place: Place) -> StageSums:
        """What was summed up at a place. Drift makes an outcome of age a off by ρ‖φ‖a, and a block has a part of δ."""
        sums = StageSums(
            self.gram[place], self.moment[place], self.bias[place], float(self.scale[place]), int(self.count[place])
        )
        if isinstance(place, int) or self.terms.drift is None:
            return sums
        weight, age, square = self.ages[place].tolist()
        more, windows = self._lead(place[0]) + self.ahead, self.terms.windows
        moved = self.terms.drift * sqrt(square + 2.0 * more * age + more**2 * weight)
        turn = self.begun[place] / windows[place[1] // 2] + 1.0
        return sums._replace(bias=(np.sqrt(sums.bias) + moved) ** 2, split=len(windows) * turn**2 * pi**2 / 6.0)


def _row_of(known: KnownState, action: Action) -> int:
    """The candidate that an action is, -1 for a_0, -2 for a point within a ray, which is none."""
    if isinstance(action, StarAction) and action.ray >= 0 and action.length != 1.0:
        return -2
    row = action.ray if isinstance(action, StarAction) else int(action)
    return -1 if row == known.actions.baseline else row


def is_safe_action(known: KnownState, action: Action) -> bool:
    """Whether this is a_0(s), which needs no bound: it was declared safe."""
    if isinstance(action, StarAction):
        return action.ray < 0 or action.length == 0.0
    return action == known.actions.baseline


def _not_in(known: KnownState, action: Action, feature: Array, limit: float) -> str:
    """Why this is not an action of D(s) with this feature; empty if it is. `limit` bounds the size of features."""
    actions = known.actions
    if isinstance(action, StarAction):
        inside = actions.is_star and -1 <= action.ray < len(actions.endpoints) and 0.0 <= action.length <= 1.0
    else:
        inside = not actions.is_star and 0 <= action < len(actions.endpoints)
    if not inside:
        return f"{action!r} is not in D(s)"
    expected = feature_of(actions, action)
    rounding = 4.0 * ULP * max(1.0, limit)
    if feature.shape != expected.shape or not _norm(feature - expected) <= rounding:
        return f"the feature is not that of {action!r}"
    return ""
