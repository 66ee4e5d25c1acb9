"""Bounds as the gate recomputes them: at one point with all rounding counted, and of many rows for display."""

from math import inf, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.live.gate_facts import MISFIT, length_outside, norm_of, sizes_of
from tether.live.gate_model import Fit, Model
from tether.live.mixtures import weights_of
from tether.problem.action_sets import ActionSet
from tether.records import Action, Array, Mixture, StarAction

OUTWARD = 4e-9
"""Certificates enlarge widths by up to 2e-9 ‖x‖_G; the gate allows for twice that."""

MIXED = 4e-6
"""Certificates of mixtures enlarge the squared width of each part by up to 1e-6 of itself; the gate allows 4e-6."""

ONE = np.ones(1)
NOTHING = np.zeros(0)


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
        return self.total * norm_of(rows[0]) if len(rows) == 1 else float(self.shares @ sizes_of(rows))


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
    if settled == len(f) or (length := norm_of(f)) == 0.0:
        return 0.0  # the cost of the origin is 0 in any case
    if settled == 0:
        return 1.0
    return length_outside(model.span, f) / length


def plain(model: Model, fit: Fit, x: Array, parts: Parts, start: float = 0.0) -> Geometry:
    """`start` + ⟨γ_c, x⟩ and its width given the remembered facts; the state's own fact is not used. x (d,).

    Certificates round outward by the ends of `parts`, which may lie farther out than x.
    """
    free, total = x.dot(model.free), parts.total
    width, solved = norm_of(free), norm_of(model.free.dot(free))  # ‖x‖ and ‖Gx‖, given the facts
    moved = solved * model.error * fit.size + fit.slip * model.trace_root * width + fit.margin * (1.0 + total)
    return Geometry(
        mean=start + float(fit.gamma_hat.dot(x)),
        width=width,
        norm=parts.length(parts.ends.dot(model.whitener)),
        moved=moved,
        wider=sqrt(width * width + solved * solved * model.error) - width,
        extra=model.feature_norm * fit.misfit * total,
        parts=parts.shares * sizes_of(parts.ends @ model.free) if parts.mixed else NOTHING,
    )


def conditioned(model: Model, fit: Fit, point: Point, f: Array, declared: float, reduces: bool) -> Geometry:
    """Section 1 on top of the remembered facts: mean and width at a point, given c(f) = `declared`; with `reduces`, the
    pull of section 4."""
    x, parts = point.feature, point.parts
    v, e, tips = x.dot(model.free), f.dot(model.free), parts.ends.dot(model.free)
    g00 = float(e.dot(e))
    share = float(e.dot(v)) / g00
    along = tips.dot(e) / g00
    reach = float(parts.shares.dot(1.0 + np.abs(along)))  # what a certificate's margin was multiplied by
    across = v - share * e
    width = norm_of(across)
    residual = float(fit.gamma_hat.dot(f)) - declared
    uf, ux, uy = (norm_of(model.free.dot(each)) for each in (e, v, across))  # ‖Gf‖, ‖Gx‖, ‖Gy‖
    error, side = model.error, abs(residual)
    moved = error * (ux + abs(share) * uf) * (fit.size + uf * side / g00)
    moved += fit.slip * model.trace_root * width + fit.margin * (1.0 + reach)
    misfit = model.feature_norm * fit.misfit
    outward = tips if model.free is model.whitener else parts.ends.dot(model.whitener)
    shape = Geometry(
        mean=float(fit.gamma_hat.dot(x)) - share * residual,
        width=width,
        norm=max(norm_of(v if model.free is model.whitener else x.dot(model.whitener)), parts.length(outward)),
        moved=moved,
        wider=sqrt(width * width + uy * uy * error) - width,
        extra=misfit * reach,
        parts=parts.shares * sizes_of(tips - along[:, None] * e) if parts.mixed else NOTHING,
    )
    if not reduces:
        return shape
    shift = error * uf * side / g00 * (2.0 * fit.size + uf * side / g00) + 4.0 * side * fit.margin / g00
    return shape._replace(pull=residual * residual / g00, shift=shift, spared=4.0 * side * misfit / g00)


def contradicts(model: Model, fit: Fit, f: Array, left_open: float, declared: float, gamma_norm: float) -> bool:
    """Whether the remembered facts, which settle c(f) but for a small part `left_open`, deny that τ_s = `declared`."""
    missed = abs(float(fit.gamma_hat.dot(f)) - declared) - 2.0 * fit.margin
    missed -= left_open * norm_of(f) * (gamma_norm + fit.size)
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
