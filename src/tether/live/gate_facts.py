"""The gate's constants, and its own account of the safe costs that are known: docs/theory.md section 17.

It shares no code with the kernels and agents whose certificates it examines: on purpose.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, isfinite, log2, sqrt
from typing import Literal, NamedTuple

import numpy as np

from tether.records import Array

ULP = 2.0**-52

AMPLIFIED = 1e4
"""A fact is left out if errors of 1 in the facts could then move its own cost by more than this."""

MISFIT = 1e-6
"""Facts that miss each other by more than this part of max(1, |τ|) contradict each other."""

ROUNDED = 16.0 * ULP
"""The rounding error of a fact, in units of |τ_s| + ‖f‖B."""

MAX_COMPARED = 4096
"""Facts of a stage that are known to have been compared."""

WINDOWS = (1, 2, 4, 8)
"""Where costs drift by the decision: how long blocks are, in units of the shortest window."""

POWERS = (-3, -1, 1, 3, 5)
"""Where they drift by the second: powers of two by which blocks are longer than one decision per second asks for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The theorem's constants, and which safe costs are known: constants of the problem, never a learner's number.

    `radius` names the theorem's radius or is a tuned number; `reduces` says whether facts reduce its square
    (docs/theory.md sections 4 and 17). `memory` says which safe costs are remembered beside that of the state one
    stands in: none, those of states with an outcome, or those of all listed states.
    """

    memory: Literal["state", "visited", "all"]
    error: Array | None  # e: safe costs are known up to this (M,); None if they are unknown
    point_error: Array  # ε: how far expected costs may lie from linear ones (M,)
    sample_error: Array  # how far the means of measured costs may (M,)
    assumptions: tuple[tuple[str, ...], ...]  # what certificates of each constraint rest on beyond the paper's
    reserve: Array  # what a bound on a mean leaves for the noise (M,)
    end_reserve: Array  # the same at the end of a ray, in proportion to the length (M,)
    limits_measured: bool  # whether τ limits the measured cost, not the mean
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
        return self.error is not None and not self.error.any() and not self.point_error.any()


def add_to(total: Array, rest: Array, term: Array) -> None:
    """total += term, with what rounding drops kept in `rest` for the next time (Kahan), in place."""
    term = term - rest
    larger = total + term
    rest[...] = (larger - total) - term
    total[...] = larger


def norm_of(vector: Array) -> float:
    """Return ‖v‖."""
    return sqrt(vector.dot(vector))  # of short vectors, `dot` is the same number in half the time of `@`


def sizes_of(rows: Array) -> Array:
    """Return ‖row‖ of each row (n, d): (n,)."""
    sizes: Array = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return sizes


def length_outside(basis: Array, f: Array) -> float:
    """‖f − BBᵀf‖ of f (d,) for an orthonormal basis B (d, n); taken off twice, as the first time leaves rounding."""
    rest = f - basis @ (f @ basis)
    return norm_of(rest - basis @ (rest @ basis))


class Span(NamedTuple):
    """What exact facts settle: the part of γ* in their features' span, and its rounding; made anew for each fact."""

    basis: Array  # orthonormal, of the span (d, n)
    known: Array  # the part of γ* (M, d)
    rounding: Array  # a bound on the rounding error of each accepted fact (M,)


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
        self._spans: dict[int, Span] = {}
        self._compared: list[set[bytes]] = [set() for _ in range(stages)]

    def accepted(self, stage: int) -> tuple[Array, Array]:
        """f_j (n, d) and τ_j (n, M) of one stage."""
        n = int(self.count[stage])
        return self.features[stage, :n], self.costs[stage, :n]

    def span(self, stage: int) -> Span:
        """What the accepted facts settle, by a QR decomposition; kept until another one is accepted."""
        kept = self._spans.get(stage)
        if kept is None:
            features, costs = self.accepted(stage)
            basis, triangle = np.linalg.qr(features.T)
            known = (basis @ np.linalg.solve(triangle.T, costs)).T
            rounded = ROUNDED * (np.abs(costs) + np.outer(sizes_of(features), self._terms.gamma_norm))
            kept = self._spans[stage] = Span(basis, known, rounded.max(axis=0, initial=0.0))
        return kept

    def forget_spans(self) -> None:
        """After the arrays were replaced."""
        self._spans.clear()
        for compared in self._compared:
            compared.clear()

    def remember(self, stage: int, f: Array, cost: Array) -> None:
        """Accept a fact that adds a direction, without amplifying errors too much; compare any other with the accepted.

        Leaving a fact out is always allowed, since the others hold without it. To compare a fact a second time with the
        same ones changes nothing.
        """
        place = f.tobytes() + cost.tobytes()
        if place in self._compared[stage]:
            return
        span, norm, bound = self.span(stage), norm_of(f), self._terms.gamma_norm
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
            self._spans.pop(stage, None)
        if news or len(self._compared[stage]) >= MAX_COMPARED:
            self._compared[stage].clear()
        self._compared[stage].add(place)

    def _amplification_with(self, stage: int, f: Array, norm: float, rest: float) -> float:
        """√n ‖F⁺‖ (Frobenius) once f is a row of F (n, d): what errors of 1 in the facts may do to γ* on their span."""
        if not norm <= AMPLIFIED * 2.0 * rest:  # the least singular value is at most `rest`: f is left out anyway
            return inf
        values = np.linalg.svd(np.vstack([self.accepted(stage)[0], f]), compute_uv=False)
        return sqrt(len(values) * float(np.square(1.0 / values).sum())) if values[-1] > 0.0 else inf

    def contradiction(self, stage: int) -> list[str]:
        """Why each constraint's facts cannot all be true; empty where they can."""
        terms, span = self._terms, self.span(stage)
        found = []
        for j, tau in enumerate(terms.threshold.tolist()):
            misfit, error = float(self.misfit[stage, j]), float(self.amplification[stage] * self.misfit[stage, j])
            size, most = norm_of(span.known[j]), float(terms.gamma_norm[j])
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
