"""What the gate says of one certificate: functions of its constants, its solved stage and what is shown."""

from collections.abc import Callable
from math import inf, isfinite, isnan
from typing import NamedTuple

import numpy as np

from tether.live.gate_bounds import (
    ONE,
    Geometry,
    Parts,
    Point,
    bound_at,
    conditioned,
    contradicts,
    most_upward,
    open_part,
    plain,
)
from tether.live.gate_facts import Terms
from tether.live.gate_model import Model
from tether.live.yes_no import Claim, YesNo, fitted
from tether.problem.action_sets import ActionSet
from tether.records import CostBound, Drift, Multipliers, StarAction

WORST_DOUBT = 0.01
"""If the gate's own rounding could exceed this part of τ − τ_s, it cannot tell, and refuses."""

STATED = 1e-9
"""A certificate may say so much less than its multipliers prove: it rounds otherwise. Over τ nothing passes."""

BELOW = 1e-9
"""A cost in [0, 1] that is proven to lie this far below 0: safe costs and data contradict each other."""

SPANNED = 1e-4
"""A safe feature of which the facts leave open no more than this part adds nothing to them."""

GOLDEN = (5.0**0.5 - 1.0) / 2.0

Found = tuple[str, float, float]
"""Why not (empty: it may leave), the gate's own bound, and its rounding."""


class Case(NamedTuple):
    """One constraint j at one point of D(s), whose safe action was `declared` to cost τ_s."""

    terms: Terms
    model: Model
    stage: int
    j: int
    declared: float
    actions: ActionSet
    point: Point

    @property
    def threshold(self) -> float:
        """τ of the constraint."""
        return float(self.terms.threshold[self.j])


def misstated(case: Case, shown: CostBound, facts: int, drift: Drift | None, *, is_drawn: bool) -> str:
    """Say what a certificate says of the problem or of the data that is not so; empty if nothing.

    Args:
        case: the constraint.
        shown: what the certificate says of it.
        facts: how many remembered facts the gate has for it.
        drift: what must be said of the drift.
        is_drawn: whether the action was drawn from a mixture.
    """
    terms, j, lost = case.terms, case.j, case.model.lost
    limited = "realised cost" if terms.limits_measured else "cost"
    bounds, lost_as = "expected cost" if is_drawn else limited, "at-random"
    if terms.cost_range is not None:
        lost_as = "worst-case"
    tau = case.threshold
    kind = "likelihood" if j in terms.bounded else "radius"
    if shown.kind != kind:
        return f"it was proven by a {shown.kind}, but this constraint's costs need a {kind}"
    if shown.assumptions != terms.assumptions[j]:
        return f"the certificate rests on {shown.assumptions!r}, the problem's constraint on {terms.assumptions[j]!r}"
    if shown.threshold != tau:
        return f"the certificate's τ is {shown.threshold!r}, the problem's {tau!r}"
    if shown.facts != facts:
        return f"it rests on {shown.facts} remembered facts, but the gate has {facts}"
    if shown.bounds != bounds:
        return f"it says that it bounds the {shown.bounds}, but what is limited here is the {bounds}"
    if (shown.lost, shown.lost_as) != (lost, lost_as):
        return f"it counts {shown.lost} lost costs ({shown.lost_as}), but the gate has {lost} ({lost_as})"
    most = 0 if terms.listed is None or j not in terms.bounded else len(terms.listed)
    if shown.listed not in (0, most):
        return f"it rests on {shown.listed} listed actions, but the gate has {most}"
    return "" if shown.drift == drift else f"the certificate says {shown.drift!r} of the drift, the gate {drift!r}"


# Costs in [0, 1]: the certificate's multipliers are added up


def examined_multipliers(case: Case, yes_no: YesNo, shown: CostBound) -> Found:
    """Examine the bound of a cost in [0, 1] by the multipliers that the certificate carries: section 14."""
    tau, by = case.threshold, shown.multipliers
    own, rounding = proven_by(case, yes_no, by, is_listed=shown.listed > 0)
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


def proven_by(case: Case, yes_no: YesNo, by: Multipliers | None, *, is_listed: bool) -> tuple[float, float]:
    """Return the bound that multipliers prove by weak duality, and its rounding; infinite for none.

    The rows are the outcomes and the facts that the gate has counted, the safe cost of the state, and the actions of
    which the point is made, each of which costs 0 to 1; only with `is_listed` the listed ones, too.
    """
    terms, actions, rows = case.terms, case.actions, case.point.rows
    ends = None if by is None else fitted(by.actions, len(actions.endpoints))
    if by is None or ends is None:
        return inf, inf
    error = 0.0 if terms.error is None else float(terms.error[case.j])
    start = (0.0, case.threshold) if terms.error is None else (case.declared - error, case.declared + error)
    more = [
        Claim(actions.phi_0[None], *start, np.array([by.own])),
        Claim(actions.endpoints[rows], 0.0, 1.0, ends[rows]),
    ]
    if is_listed and terms.listed is not None:
        more.append(Claim(terms.listed, 0.0, 1.0, by.listed))
    events = terms.stages * len(terms.threshold) / terms.confidence
    return yes_no.proven((case.stage, terms.bounded.index(case.j)), case.point.feature, by, more, error, events)


# Costs with noise of a known size: the bound is recomputed


def examined_radius(case: Case, shown: CostBound) -> Found:
    """Examine the bound of a cost by recomputing it, with the certificate's radius and with the least valid one."""
    terms, model, point, j = case.terms, case.model, case.point, case.j
    fit, tau, radius = model.fits[j], case.threshold, shown.radius.value
    why = ""
    if fit.trouble:
        why = fit.trouble
    elif isnan(fit.radius):
        why = "the remembered safe costs contradict the data"
    elif not shown.radius.value >= fit.radius:
        why = f"its radius {radius:.6g} is smaller than the least valid one, {fit.radius:.6g}"
    if why:
        return why, inf, inf
    noise, least = noise_of(terms, j, point.parts.total), noise_of(terms, j, 0.0)
    if terms.exact:
        shape = shape_of(case)
        if shape is None:
            return f"the remembered facts say that a_0 costs something else than {case.declared!r}", inf, inf
        own, _ = bound_at(model, fit, shape, fit.radius)
        same, doubt = bound_at(model, fit, shape, radius)
        highest, gap = same + most_upward(shape, radius), tau - case.declared
    else:
        start = start_of(terms, case.declared, j, point.parts.mixed)
        own, *_ = measured(case, start, fit.radius)
        same, highest, doubt = measured(case, start, radius)
        if shown.bound - noise < same - doubt:  # cut shorter, for a margin?
            same = min(same, along_chords(case, start, radius))
            own = min(own, along_chords(case, start, fit.radius))
        gap = tau - start if start < tau else abs(tau)
        if terms.bounded:  # another constraint may have cut it shorter: on the chord from τ, which bounds a_0
            highest = max(highest, tau)
    own, same, highest, gap = own + noise, same + noise, highest + noise, max(gap - least, 0.0)
    if not (isfinite(own) and isfinite(same) and isfinite(highest) and isfinite(shown.bound) and isfinite(doubt)):
        why = "a bound is not finite, or the safe cost contradicts the data"
    elif not doubt <= WORST_DOUBT * gap:
        why = f"rounding of {doubt:.3g} is too much beside a gap of {gap:.3g}: the data are ill-conditioned"
    elif not same - doubt <= shown.bound <= highest + doubt:
        why = f"the certificate's bound is {shown.bound!r}, the gate's {same!r}, ± {doubt:.3g}"
    elif not (shown.bound <= tau and own <= tau + doubt):
        why = f"the bound {max(own, shown.bound)!r} is over τ = {tau!r}"
    return why, own, doubt


def recomputed(case: Case) -> float:
    """Return the gate's own bound with the least valid radius; infinite where there is none."""
    fit = case.model.fits[case.j]
    if fit.trouble:
        return inf
    if not case.terms.exact:
        bound = measured(case, start_of(case.terms, case.declared, case.j, case.point.parts.mixed), fit.radius)[0]
    else:
        shape = shape_of(case)
        bound = inf if shape is None else bound_at(case.model, fit, shape, fit.radius)[0]
    return bound if isfinite(bound) else inf


def noise_of(terms: Terms, j: int, total: float) -> float:
    """Return what a bound on a mean leaves for the noise: q, or `total` of it where the noise grows with the length."""
    return float(terms.reserve[j]) + total * float(terms.end_reserve[j])


def start_of(terms: Terms, declared: float, j: int, mixed: bool) -> float:
    """Return the most that a_0(s) may cost, by what was declared: τ_s + e, infinite if it is unknown.

    Points on a ray from it are not a_0: their bound begins at τ_s + e + 2ε (section 12). What is drawn is.
    """
    if terms.error is None:
        return inf
    return declared + float(terms.error[j]) + (0.0 if mixed else 2.0 * float(terms.point_error[j]))


def shape_of(case: Case) -> Geometry | None:
    """Return what the bound at a point is made of where τ_s is known; None if the remembered facts deny it."""
    terms, model, declared, parts = case.terms, case.model, case.declared, case.point.parts
    fit, f = model.fits[case.j], case.actions.phi_0
    left_open = open_part(model, f)
    if left_open > SPANNED:
        return conditioned(model, fit, case.point, f, declared, terms.reduces)
    if contradicts(model, fit, f, left_open, declared, float(terms.gamma_norm[case.j])):
        return None
    # c(f) is settled, and c is linear: (1 − Σα) τ_s + (bound of Σα·end)
    return plain(model, fit, parts.away, parts, declared * (1.0 - parts.total))


def measured(case: Case, start: float, radius: float) -> tuple[float, float, float]:
    """(the gate's bound, the highest one that is as valid, rounding) where τ_s is known up to e, or not at all.

    Without conditioning it is U(φ) + ε; from a_0, which costs at most `start`, it is (1 − Σα) start + U(Σα·end) +
    Σα·ε, sections 12 and 17 (b). Both hold.
    """
    model, fit, parts = case.model, case.model.fits[case.j], case.point.parts
    misfit = float(case.terms.point_error[case.j])
    both = np.vstack([parts.ends, case.actions.phi_0])  # certificates round outward by both ends of the ray
    shape = plain(model, fit, case.point.feature, Parts(np.ones(len(both)), float(len(both)), both))
    free, doubt = bound_at(model, fit, shape, radius)
    free += misfit
    if not isfinite(start):
        return free, free, doubt
    shape = plain(model, fit, parts.away, parts)
    away, other = bound_at(model, fit, shape, radius)
    tied = (1.0 - parts.total) * start + away + parts.total * misfit
    most = tied + most_upward(shape, radius)
    return min(free, tied), max(free, most), max(doubt, other)


def along_chords(case: Case, start: float, radius: float) -> float:
    """Return the least bound that c = (1 − α/t) c(f) + (α/t) c(x(t)) proves, over all longer lengths t on the same ray.

    A certificate for x(t) that is cut to α lies on the chord from τ_s + e. Its slope (U(x(t)) − τ_s − e)/t first
    falls and then rises, since U is convex: golden sections find its minimum, and any t gives a valid bound.
    """
    model, action, f = case.model, case.point.action, case.actions.phi_0
    if case.point.parts.mixed or not isinstance(action, StarAction) or not isfinite(start):
        return inf
    fit, misfit = model.fits[case.j], float(case.terms.point_error[case.j])
    away = case.actions.endpoints[action.ray] - f

    def slope(t: float) -> float:
        x = f + t * away
        there = bound_at(model, fit, plain(model, fit, x, Parts(ONE, 1.0, x[None])), radius)[0] + misfit
        return (there - start) / t

    low, high = least_within(slope, action.length, 1.0)
    return start + action.length * min(slope(low), slope(high))


def least_within(slope: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Narrow an interval down to the least value of a function that falls and then rises."""
    for _ in range(60):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if slope(left) <= slope(right) else (left, high)
    return low, high
