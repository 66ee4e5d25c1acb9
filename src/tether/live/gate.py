"""The gate: a second, simple code path that recomputes a bound from its own sums before an action leaves.

It shares no code with `tether.kernels`. The learner keeps triangular factors by plane rotations in machine code, and
solves the regression in the complement of the facts it remembers. The gate has sums of φφᵀ and zφ and a list of facts
of its own, takes an eigendecomposition, and conditions on the facts in whitened coordinates, in plain numpy. Both
compute docs/theory.md sections 1 and 17:

    share = fᵀGx / fᵀGf,  y = x − share·f,  bound(x) = share·τ_s + ⟨ĝ, y⟩ + β_s ‖y‖_G     (ĝ, G and β given the facts)

An action leaves only if (1) it is in D(s) and φ is its feature, (2) the certificate's radius is no smaller than the
theorem's, less what the gate's own facts take off it, and it names as many facts, (3) the certificate's bound is, with
its own radius, the gate's within a stated rounding, (4) both are under τ, and (5) facts and data do not contradict each
other.
"""

from math import inf, isfinite, isnan
from typing import NamedTuple

import numpy as np

from tether.live.gate_facts import ExactFacts, WeighedFacts
from tether.live.gate_model import (
    SPANNED,
    Geometry,
    Model,
    Parts,
    bound_at,
    conditioned,
    conditioned_bounds,
    contradicts,
    most_upward,
    open_part,
    plain,
    plain_bounds,
    solve,
)
from tether.live.gate_terms import ULP, Terms, add_to
from tether.live.mixed import Drawn, not_drawn, weights_of
from tether.problem.action_sets import ActionSet, feature_of
from tether.problem.problem import KnownState
from tether.records import Action, Array, CostBound, Mixture, StarAction

WORST_DOUBT = 0.01
"""If the gate's own rounding could exceed this part of τ − τ_s, it cannot tell, and refuses."""


ONE = np.ones(1)
GOLDEN = (5.0**0.5 - 1.0) / 2.0


class Point(NamedTuple):
    """Where a bound is examined: φ (d,) of an action, or the mean of the mixture that it was drawn from."""

    feature: Array
    action: Action
    mixture: Mixture | None

    def parts(self, actions: ActionSet) -> Parts:
        """What φ is made of."""
        if self.mixture is not None:
            weights = weights_of(actions, self.mixture.probabilities)
            rows = np.flatnonzero(weights)
            return Parts(weights[rows], actions.endpoints[rows], mixed=True)
        if isinstance(self.action, StarAction):
            return Parts(np.array([self.action.length]), actions.endpoints[self.action.ray : self.action.ray + 1])
        return Parts(ONE, self.feature[None])


class Verdict(NamedTuple):
    """What the gate found: its bounds (M,) and its rounding (M,); `why` is empty if the action may leave."""

    why: str
    bounds: tuple[float, ...]
    doubts: tuple[float, ...]


class Gate:
    """Sums and facts of its own, and the check. `gram` (G, d, d) starts at λI, `moment` (G, M, d) at 0."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        d, constraints = terms.dimension, len(terms.threshold)
        self.gram = np.tile(terms.ridge * np.eye(d), (terms.stages, 1, 1))
        self.moment = np.zeros((terms.stages, constraints, d))
        self.gram_rest = np.zeros_like(self.gram)  # what rounding dropped from each sum (Kahan)
        self.moment_rest = np.zeros_like(self.moment)
        self.count = np.zeros(terms.stages, dtype=np.int64)
        self.facts: ExactFacts | WeighedFacts
        self.facts = ExactFacts(terms) if terms.error is None or terms.exact else WeighedFacts(terms)
        self._solved: dict[int, Model | None] = {}

    def arrays(self) -> dict[str, Array]:
        """The state, by name: what a snapshot keeps."""
        names = ("gram", "moment", "gram_rest", "moment_rest", "count")
        mine = {name: getattr(self, name) for name in names}
        return mine | {f"facts.{name}": getattr(self.facts, name) for name in self.facts.names}

    def take(self, arrays: dict[str, Array]) -> None:
        """The reverse of `arrays`."""
        for name, mine in self.arrays().items():
            if mine.shape != arrays[name].shape:
                raise ValueError(f"{name} of the gate has shape {arrays[name].shape}, not {mine.shape}")
            mine[...] = arrays[name]
        if isinstance(self.facts, ExactFacts):
            self.facts.forget_spans()
        self._solved.clear()

    def add(self, step: int, feature: Array, cost: Array) -> None:
        """One observed cost z (M,) of φ (d,). A missing cost must not come here."""
        stage = self._stage(step)
        add_to(self.gram[stage], self.gram_rest[stage], np.outer(feature, feature))
        add_to(self.moment[stage], self.moment_rest[stage], np.outer(cost, feature))
        self.count[stage] += 1
        self._solved.pop(stage, None)

    def remember(self, step: int, phi_0: Array, baseline_cost: Array) -> None:
        """The safe cost τ_s (M,) of a state whose safe action has feature f (d,): a fact about γ*_h, if any is kept."""
        if self.terms.memory != "state" and self.terms.error is not None:
            stage = self._stage(step)
            self.facts.remember(stage, phi_0, baseline_cost)
            self._solved.pop(stage, None)

    def weigh(self, stage: int, weight: float) -> None:
        """Facts with an error bar count with weight w from now on, as many as there are by now. Any w is valid."""
        if isinstance(self.facts, WeighedFacts):
            self.facts.weigh(stage, weight)
            self._solved.pop(stage, None)

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
        if terms.exact and open_part(model, f) > SPANNED:
            return declared, conditioned_bounds(model, rows, f, declared, j, terms.reduces)
        upper = plain_bounds(model, rows, j)
        start = declared if terms.exact else min(float(plain_bounds(model, f[None], j)[0]), self._start(declared, j))
        return start, upper

    def _start(self, declared: float, j: int) -> float:
        """The most that a_0(s) may cost, by what was declared: τ_s + e, infinite if it is unknown."""
        return inf if self.terms.error is None else declared + float(self.terms.error[j])

    def _examine(
        self, model: Model, step: int, known: KnownState, point: Point, j: int, shown: CostBound
    ) -> tuple[str, float, float]:
        """(why not, the gate's bound, its rounding) for one constraint."""
        tau, least = float(self.terms.threshold[j]), model.radii[j]
        if shown.threshold != tau:
            return f"the certificate's τ is {shown.threshold!r}, the problem's {tau!r}", inf, inf
        if shown.facts != model.facts:
            return f"it rests on {shown.facts} remembered facts, but the gate has {model.facts}", inf, inf
        if model.troubles[j]:
            return model.troubles[j], inf, inf
        if isnan(least):
            return "the remembered safe costs contradict the data", inf, inf
        if not shown.radius.value >= least:
            return f"its radius {shown.radius.value:.6g} is smaller than the least valid one, {least:.6g}", inf, inf
        return self._compare(model, step, known, point, j, shown)

    def _compare(
        self, model: Model, step: int, known: KnownState, point: Point, j: int, shown: CostBound
    ) -> tuple[str, float, float]:
        """`_examine` once the radius is found valid: the bounds, with it and with the least one."""
        tau, radius, declared = shown.threshold, shown.radius.value, float(known.baseline_cost[step, j])
        if self.terms.exact:
            shape = self._shape(model, known, point, declared, j)
            if shape is None:
                return f"the remembered facts say that a_0 costs something else than {declared!r}", inf, inf
            own, _ = bound_at(model, shape, j, model.radii[j])
            same, doubt = bound_at(model, shape, j, radius)
            highest, gap = same + most_upward(shape, radius), tau - declared
        else:
            own, *_ = self._measured(model, known, point, declared, j, model.radii[j])
            same, highest, doubt = self._measured(model, known, point, declared, j, radius)
            if shown.bound < same - doubt:  # cut shorter, for a margin?
                same = min(same, self._along_chords(model, known, point, declared, j, radius))
                own = min(own, self._along_chords(model, known, point, declared, j, model.radii[j]))
            start = self._start(declared, j)
            gap = tau - start if start < tau else abs(tau)
        if not all(isfinite(number) for number in (own, same, highest, shown.bound, doubt)):
            return "a bound is not finite, or the safe cost contradicts the data", own, doubt
        if doubt > WORST_DOUBT * gap:
            return (
                f"rounding of {doubt:.3g} is too much beside a gap of {gap:.3g}: the data are ill-conditioned",
                own,
                doubt,
            )
        if not same - doubt <= shown.bound <= highest + doubt:
            return f"the certificate's bound is {shown.bound!r}, the gate's {same!r}, ± {doubt:.3g}", own, doubt
        if not (shown.bound <= tau and own <= tau + doubt):
            return f"the bound {max(own, shown.bound)!r} is over τ = {tau!r}", own, doubt
        return "", own, doubt

    def _shape(self, model: Model, known: KnownState, point: Point, declared: float, j: int) -> Geometry | None:
        """What the bound at a point is made of where τ_s is known; None if the remembered facts deny it."""
        f, parts = known.actions.phi_0, point.parts(known.actions)
        if open_part(model, f) > SPANNED:
            return conditioned(model, point.feature, parts, f, declared, j, self.terms.reduces)
        if contradicts(model, f, declared, j):
            return None
        # c(f) is settled, and c is linear: (1 − Σα) τ_s + (bound of Σα·end)
        shape = plain(model, parts.shares @ parts.ends, parts, j)
        return shape._replace(mean=declared * (1.0 - float(parts.shares.sum())) + shape.mean)

    def _measured(
        self, model: Model, known: KnownState, point: Point, declared: float, j: int, radius: float
    ) -> tuple[float, float, float]:
        """(the gate's bound, the highest one that is as valid, rounding) where τ_s is known up to e, or not at all.

        Without conditioning it is U(φ); from a_0 on it is (1 − Σα)(τ_s + e) + U(Σα·end), section 17 (b). Both hold.
        """
        parts = point.parts(known.actions)
        both = np.vstack([parts.ends, known.actions.phi_0])  # certificates round outward by both ends of the ray
        shape = plain(model, point.feature, Parts(np.ones(len(both)), both), j)
        free, doubt = bound_at(model, shape, j, radius)
        start = self._start(declared, j)
        if not isfinite(start):
            return free, free, doubt
        shape = plain(model, parts.shares @ parts.ends, parts, j)
        away, other = bound_at(model, shape, j, radius)
        tied = (1.0 - float(parts.shares.sum())) * start + away
        most = tied + most_upward(shape, radius)
        return min(free, tied), max(free, most), max(doubt, other)

    def _along_chords(
        self, model: Model, known: KnownState, point: Point, declared: float, j: int, radius: float
    ) -> float:
        """The least bound that c = (1 − α/t) c(f) + (α/t) c(x(t)) proves, over all longer lengths t on the same ray.

        A certificate for x(t) that is cut to α lies on the chord from τ_s + e. Its slope (U(x(t)) − τ_s − e)/t first
        falls and then rises, since U is convex: golden sections find its minimum, and any t gives a valid bound.
        """
        action, f, start = point.action, known.actions.phi_0, self._start(declared, j)
        if point.mixture is not None or not isinstance(action, StarAction) or not isfinite(start):
            return inf
        away = known.actions.endpoints[action.ray] - f

        def slope(t: float) -> float:
            x = f + t * away
            return (bound_at(model, plain(model, x, Parts(ONE, x[None]), j), j, radius)[0] - start) / t

        low, high = action.length, 1.0
        for _ in range(60):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            low, high = (low, right) if slope(left) <= slope(right) else (left, high)
        return start + action.length * min(slope(low), slope(high))

    def _model(self, step: int) -> Model | None:
        """The stage of a step, solved once per change."""
        stage = self._stage(step)
        if stage not in self._solved:
            sums = self.gram[stage], self.moment[stage], int(self.count[stage])
            self._solved[stage] = solve(self.terms, *sums, self.facts, stage)
        return self._solved[stage]


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
