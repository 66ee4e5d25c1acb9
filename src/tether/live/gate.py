"""The gate: a second, simple code path that recomputes a bound from its own sums before an action leaves.

It shares no code with `tether.learning`. Where the learner keeps triangular factors by plane rotations in machine code,
the gate adds φφᵀ and zφ in compensated sums of its own and takes an eigendecomposition, in plain numpy. Both compute
THEORY section 1:

    share = fᵀGx / fᵀGf,  y = x − share·f,  bound(x) = share·τ_s + ⟨ĝ, y⟩ + β_s ‖y‖_G

An action leaves only if (1) it is in D(s) and φ is its feature, (2) the certificate's radius is no smaller than the
theorem's, (3) the certificate's bound is, with its own radius, the gate's within a stated rounding, and (4) both are
under τ. Facts about γ* that follow from declared costs alone (`condition_on="all"`) are taken from the learner.
"""

from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from tether.live.gate_model import (
    ULP,
    Geometry,
    Model,
    Terms,
    add_to,
    bound_at,
    conditioned,
    conditioned_bounds,
    norms,
    plain,
    plain_bounds,
    solve,
)
from tether.live.mixed import Drawn, not_drawn, weights_of
from tether.problem.action_sets import ActionSet, feature_of
from tether.problem.problem import KnownState
from tether.records import Action, Array, CostBound, Mixture, StarAction

WORST_DOUBT = 0.01
"""If the gate's own rounding could exceed this part of τ − τ_s, it cannot tell, and refuses."""


MIXED = 1e-6
"""Certificates enlarge a mixture's width by up to √1e-13 of the widths of its parts; the gate allows thrice that."""


class Point(NamedTuple):
    """Where a bound is examined: φ (d,) of an action, or the mean of the mixture that it was drawn from."""

    feature: Array
    action: Action
    mixture: Mixture | None

    def parts(self, actions: ActionSet) -> tuple[Array, Array]:
        """(shares (n,), ends (n, d)) with φ = f + Σ shares·(ends − f); n = 1 unless mixed."""
        if self.mixture is not None:
            weights = weights_of(actions, self.mixture.probabilities)
            rows = np.flatnonzero(weights)
            return weights[rows], actions.endpoints[rows]
        if isinstance(self.action, StarAction):
            return np.array([self.action.length]), actions.endpoints[[self.action.ray]]
        return np.ones(1), self.feature[None]


class Verdict(NamedTuple):
    """What the gate found: its bounds (M,) and its rounding (M,); `why` is empty if the action may leave."""

    why: str
    bounds: tuple[float, ...]
    doubts: tuple[float, ...]


class Gate:
    """Sums of its own, and the check. `gram` (G, p, p) starts at λI, `moment` (G, M, p) at 0."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        rank, constraints = terms.basis.shape[1], len(terms.threshold)
        self.gram = np.tile(terms.ridge * np.eye(rank), (terms.stages, 1, 1))
        self.moment = np.zeros((terms.stages, constraints, rank))
        self.gram_rest = np.zeros_like(self.gram)  # what rounding dropped from each sum (Kahan)
        self.moment_rest = np.zeros_like(self.moment)
        self.count = np.zeros(terms.stages, dtype=np.int64)
        self._solved: dict[int, tuple[int, Model | None]] = {}

    def arrays(self) -> dict[str, Array]:
        """The state, by name: what a snapshot keeps."""
        names = ("gram", "moment", "gram_rest", "moment_rest", "count")
        return {name: getattr(self, name) for name in names}

    def take(self, arrays: dict[str, Array]) -> None:
        """The reverse of `arrays`."""
        for name, mine in self.arrays().items():
            mine[...] = arrays[name]
        self._solved.clear()

    def add(self, step: int, feature: Array, cost: Array) -> None:
        """One observed cost z (M,) of φ (d,). A missing cost must not come here."""
        stage = step if self.terms.stages > 1 else 0
        inside = feature @ self.terms.basis
        rest = cost - self.terms.known_gamma[step] @ feature
        add_to(self.gram[stage], self.gram_rest[stage], np.outer(inside, inside))
        add_to(self.moment[stage], self.moment_rest[stage], np.outer(rest, inside))
        self.count[stage] += 1
        self._solved.pop(stage, None)

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
        why = _not_in(known, action, feature)
        if not why and drawn is not None:
            why = not_drawn(known.actions, _row_of(known, action), drawn)
        if why or (drawn is None and is_safe_action(known, action)):
            return Verdict(why, nothing, nothing)
        if len(evidence) != len(self.terms.threshold):
            return Verdict(f"{len(evidence)} bounds for {len(self.terms.threshold)} constraints", nothing, nothing)
        try:
            model = self._model(step)
        except np.linalg.LinAlgError as error:
            return Verdict(f"the sums cannot be solved: {error}", nothing, nothing)
        if model is None:
            return Verdict("the sums are not finite, or A is not at least λI", nothing, nothing)
        bounds, doubts, found = [], [], []
        point = Point(feature, action, None)
        if drawn is not None:
            point = Point(drawn.mixture.mean_feature, action, drawn.mixture)
        for j, shown in enumerate(evidence):
            why, bound, doubt = self._examine(model, step, known, point, j, shown)
            bounds.append(bound)
            doubts.append(doubt)
            found += [f"constraint {j}: {why}"] if why else []
        return Verdict("; ".join(found), tuple(bounds), tuple(doubts))

    def prepare(self, step: int) -> Model | None:
        """The stage of a step, solved; None if it cannot be. `check` then finds it done."""
        try:
            return self._model(step)
        except np.linalg.LinAlgError:
            return None

    def certified(self, step: int, known: KnownState) -> float:
        """How much of D(s) is certified: the mean over its actions of the length, 0 to 1, that could be played."""
        model = self.prepare(step)
        if model is None:
            return 0.0
        actions, lengths = known.actions, None
        for j, tau in enumerate(self.terms.threshold.tolist()):
            each = _lengths(*self._upper(model, step, known, j), tau, actions.is_star)
            lengths = each if lengths is None else np.minimum(lengths, each)
        if lengths is None:
            return 0.0
        if not actions.is_star:
            lengths[actions.baseline] = 1.0
        return float(lengths.sum()) / len(lengths)

    def _upper(self, model: Model, step: int, known: KnownState, j: int) -> tuple[float, Array]:
        """(bound of a_0(s), bounds (N,) of the candidates) for one constraint."""
        terms, f, rows = self.terms, known.actions.phi_0, known.actions.endpoints
        declared = float(known.baseline_cost[step, j])
        if terms.conditioning == "state":
            return declared, conditioned_bounds(model, rows, f, declared, j, terms.reduces)
        upper = plain_bounds(model, np.vstack([f, rows]) @ terms.basis, j)
        if terms.conditioning == "unknown":
            return float(upper[0]), upper[1:]
        return declared, rows @ terms.known_gamma[step, j] + upper[1:]

    def _examine(
        self, model: Model, step: int, known: KnownState, point: Point, j: int, shown: CostBound
    ) -> tuple[str, float, float]:
        """(why not, the gate's bound, its rounding) for one constraint."""
        tau, radius = float(self.terms.threshold[j]), model.radii[j]
        if shown.threshold != tau:
            return f"the certificate's τ is {shown.threshold!r}, the problem's {tau!r}", inf, inf
        if not shown.radius.value >= radius:
            return f"its radius {shown.radius.value:.6g} is smaller than the least valid one, {radius:.6g}", inf, inf
        shape = self._shape(model, step, known, point, j)
        own, _ = bound_at(model, shape, j, radius)
        same, doubt = bound_at(model, shape, j, shown.radius.value)
        upward = doubt + shown.radius.value * self._rounded_up(model, known, point)
        if not (isfinite(own) and isfinite(same) and isfinite(shown.bound) and isfinite(upward)):
            return "a bound is not finite, or the safe cost contradicts the data", own, doubt
        declared = float(known.baseline_cost[step, j])
        gap = tau - declared if isfinite(declared) else abs(tau)
        if upward > WORST_DOUBT * gap:
            return (
                f"rounding of {upward:.3g} is too much beside a gap of {gap:.3g}: the data are ill-conditioned",
                own,
                doubt,
            )
        if not -doubt <= shown.bound - same <= upward:
            return f"the certificate's bound is {shown.bound!r}, the gate's {same!r}, ± {upward:.3g}", own, doubt
        if not (shown.bound <= tau and own <= tau + doubt):
            return f"the bound {max(own, shown.bound)!r} is over τ = {tau!r}", own, doubt
        return "", own, doubt

    def _shape(self, model: Model, step: int, known: KnownState, point: Point, j: int) -> Geometry:
        """What the bound at a point is made of, for one constraint."""
        terms, f, declared = self.terms, known.actions.phi_0, float(known.baseline_cost[step, j])
        shares, ends = point.parts(known.actions)
        if terms.conditioning == "state":
            shape = conditioned(model, point.feature, f, declared, j, terms.reduces)
            # certificates round outward by the end of the ray, which may lie farther out than the point
            return shape._replace(norm=max(shape.norm, float(shares @ norms(model, ends))))
        if terms.conditioning == "unknown":  # certificates round outward by both ends of the ray
            norm = sum(plain(model, end, j).norm for end in (*ends, f))
            return plain(model, point.feature, j)._replace(norm=norm)
        # c(f) is a known fact, and c is linear: (1 − Σα) τ_s + (bound of Σα·end)
        away = shares @ ends
        shape = plain(model, away @ terms.basis, j)
        known_part = declared * (1.0 - float(shares.sum())) + float(terms.known_gamma[step, j] @ away)
        return shape._replace(mean=known_part + shape.mean)

    def _rounded_up(self, model: Model, known: KnownState, point: Point) -> float:
        """By how much the certificate may have enlarged the width of a mixture."""
        if point.mixture is None:
            return 0.0
        shares, ends = point.parts(known.actions)
        return MIXED * float(shares @ norms(model, ends @ self.terms.basis))

    def _model(self, step: int) -> Model | None:
        """The stage of a step, solved once per observation."""
        stage = step if self.terms.stages > 1 else 0
        count = int(self.count[stage])
        solved = self._solved.get(stage)
        if solved is None or solved[0] != count:
            solved = self._solved[stage] = (count, solve(self.terms, self.gram[stage], self.moment[stage], count))
        return solved[1]


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


def _not_in(known: KnownState, action: Action, feature: Array) -> str:
    """Why this is not an action of D(s) with this feature; empty if it is."""
    actions = known.actions
    if isinstance(action, StarAction):
        inside = actions.is_star and -1 <= action.ray < len(actions.endpoints) and 0.0 <= action.length <= 1.0
    else:
        inside = not actions.is_star and 0 <= action < len(actions.endpoints)
    if not inside:
        return f"{action!r} is not in D(s)"
    expected = feature_of(actions, action)
    if feature.shape == expected.shape and (feature == expected).all():
        return ""
    if feature.shape != expected.shape or not np.abs(feature - expected).max() <= 4.0 * ULP * max(
        1.0, np.abs(expected).max()
    ):
        return f"the feature is not that of {action!r}"
    return ""


def _lengths(start: float, upper: Array, tau: float, is_star: bool) -> Array:
    """How far along each ray a bound that is `start` at a_0(s) and `upper` (N,) at the end stays under τ: (N,)."""
    slack, rise = tau - start, upper - start
    if not (slack > 0.0 and np.isfinite(rise).all()):
        return np.zeros_like(rise)
    lengths: Array = slack / np.maximum(rise, slack)
    return lengths if is_star else np.floor(lengths)
