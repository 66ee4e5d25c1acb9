"""Certificates of costs in [0, 1]: what an agent plans for them is a guess, and is cut to what likelihood ratios prove.

A plan ranks actions by the ordinary regression, with a σ that the data suggest; nothing rests on that. What it would
play is certified here (docs/theory.md section 14): at the end of the ray, then shortened by convexity; candidate by
candidate in a finite set; or, for a mixture, scaled back toward a_0. A plan of mixtures of single actions uses what is
proven of each of them, so that it is certified as it stands.
"""

from collections.abc import Callable, Hashable, Mapping
from math import inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.agents.listed import NOTHING, NOWHERE, Listed, ListedBound, Program
from tether.kernels.likelihood import (
    NEWTON_STEPS,
    TRIVIAL,
    Trials,
    keep_fact,
    load_fact,
    load_rows,
    lose_trial,
    new_dual,
    new_trials,
    observe_trial,
    upper_cost,
)
from tether.kernels.model import ALARM, NO_SLACK, ONLY_BASELINE, Plan
from tether.kernels.ridge import ULP
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import NONE, SAFE, Array, Multipliers

CONTRADICTION = -1e-9
"""A cost in [0, 1] whose upper bound lies below this: the facts contradict the data, or each other."""

CHORDS = 2
"""How often a ray from a safe action of unknown cost is extended, each time to where a chord of the bound meets τ."""

SMALL = 32
"""Plans look for proofs by Newton's method in up to so many dimensions; above, the list of actions has to do."""

CANDIDATES = 8
"""Actions of a finite set that are tried, best score first, before a_0 is played."""

BINDING = 1e-3
"""A mixture whose planned bound is within this part of τ was limited by that bound."""

MOST_KEPT = 4096
"""Answers of one kind that are kept; then they are found anew. Between two renewals there may be millions of states."""

INWARD = 1.0 - 1e-12
"""Lengths are rounded toward the safe action."""

ROOM = 64.0 * ULP
"""Rays and mixtures are cut this far under τ, in units of the limits on ‖φ‖ and ‖γ*‖: multipliers of a point on a ray
are rounded, and whoever adds them up must find no more than τ."""


class Proven(NamedTuple):
    """An upper bound on a cost, and the multipliers that prove it."""

    bound: float
    by: Multipliers


class Ray(NamedTuple):
    """How far a ray is certified, and what is proven at its start and there."""

    reach: float
    start: Proven
    there: Proven

    def at(self, length: float) -> Multipliers:
        """Return the proof for a point of the ray, at most `reach` away."""
        share = length / self.reach
        return Multipliers.sum_of(((1.0 - share, self.start.by), (share, self.there.by)))


Proofs = Mapping[int, Multipliers]
"""The multipliers of each bounded constraint."""


def alone(actions: ActionSet, row: int) -> Multipliers:
    """Return the proof that one candidate of D(s) costs at most 1."""
    return Multipliers(actions=np.eye(1, len(actions.endpoints), row)[0])


class Contradiction(ValueError):
    """No γ satisfies the data and the facts of one constraint: misspecification."""

    def __init__(self, constraint: int, proven: float) -> None:
        super().__init__(f"no cost vector in [0, 1] explains the data and the safe costs (bound {proven:.3g})")
        self.constraint = constraint


class Likelihoods:
    """Outcomes and facts of the bounded costs, one cell per stage and constraint, and the bounds that they prove.

    Attributes:
        bounded: numbers of the bounded constraints.
        trials: the sums that everything is a function of; saved with the agent.
        cost_error: how far safe costs may be off (M,); infinite where they are unknown.
        listed: the actions that the problem lists, whose costs are known to lie in [0, 1].
    """

    def __init__(self, problem: Problem, stages: int, events: float, cost_error: Array) -> None:
        self.bounded = [j for j, is_bounded in enumerate(problem.bounded) if is_bounded]
        self.constraints, self.threshold, self.cost_error = len(problem.constraints), problem.threshold, cost_error
        self.point_error, self._tau = problem.point_error, np.array(problem.threshold)
        self.log_events = log(events)
        self.trials = new_trials(
            stages * len(problem.constraints), problem.dimension, problem.feature_norm, max(problem.gamma_norm)
        )
        self.dual = new_dual(problem.dimension)
        self._room = ROOM * self.trials.norm * self.trials.reach
        self.listed = Listed(problem.listed_features(), problem.feature_norm, self.trials.reach)
        self._kept: dict[tuple[str, int], tuple[Hashable, dict[Hashable, Any]]] = {}

    def _memory(self, kind: str, cell: int, version: Hashable) -> dict[Hashable, Any]:
        """A cache of answers of one kind, valid until the data change."""
        kept = self._kept.get((kind, cell))
        if kept is None or kept[0] != version or len(kept[1]) >= MOST_KEPT:
            kept = self._kept[kind, cell] = (version, {})
        return kept[1]

    def played(self, stage: int) -> dict[Hashable, Any]:
        """Features that would be played where all costs are bounded, as long as nothing new is proven."""
        cells = [self.cell(stage, j) for j in self.bounded]
        used, facts = self.trials.used_total, self.trials.fact_count
        return self._memory("played", stage, tuple((float(used[cell]), int(facts[cell])) for cell in cells))

    def _answers(self, kind: str, cell: int) -> dict[Hashable, Any]:
        """A cache that is valid until bounds rest on newer outcomes, or on another fact."""
        return self._memory(kind, cell, (float(self.trials.used_total[cell]), int(self.trials.fact_count[cell])))

    @property
    def fields(self) -> dict[str, Trials]:
        """What the future depends on, as records of the kernels say it."""
        return {"trials": self.trials}

    def cell(self, stage: int, j: int) -> int:
        """Where a stage and constraint are kept."""
        return stage * self.constraints + j

    def observe(self, stage: int, feature: Array, costs: Array) -> bool:
        """Count one outcome (M,) of every bounded cost; whether bounds rest on new outcomes now."""
        for j in self.bounded:
            observe_trial(self.trials, self.cell(stage, j), feature, float(costs[j]), self.dual)
        cell = self.cell(stage, self.bounded[0])  # all bounded costs of a stage have equally many
        return bool(self.trials.used_total[cell] == self.trials.total[cell])

    def lose(self, stage: int, feature: Array) -> None:
        """Count an outcome that will never be known, at its worst."""
        for j in self.bounded:
            lose_trial(self.trials, self.cell(stage, j), feature)

    def remember(self, stage: int, phi_0: Array, costs: Array) -> None:
        """Remember the safe costs (M,) of one state."""
        for j in self.bounded:
            keep_fact(self.trials, self.cell(stage, j), phi_0, float(costs[j]), float(self.cost_error[j]))

    def guess(self, stage: int) -> Array:
        """γ̂ (K, d) of each bounded cost, which the next outcome will be guessed with."""
        guess: Array = self.trials.fit[[self.cell(stage, j) for j in self.bounded]]
        return guess

    def spread(self, j: int) -> float:
        """σ that steers plans: that of a yes/no cost with the mean of the outcomes in use, begun at τ."""
        cells = slice(j, None, self.constraints)
        accidents, total = self.trials.used_weight[cells, 0::2].sum(), self.trials.used_total[cells].sum()
        mean = (accidents + self.threshold[j]) / (total + 1.0)
        return sqrt(min(max(mean * (1.0 - mean), 1e-12), 0.25))

    def _own_limits(self, j: int, cost: float) -> tuple[float, float]:
        """Where the cost of the present state's a_0 lies: if unknown, in [0, τ] (Assumption 2)."""
        error = float(self.cost_error[j])
        return (0.0, self.threshold[j]) if error == inf else (cost - error, cost + error)

    def _ray_start(self, j: int, cost: float) -> float:
        """What bounds a cost as the length of a ray goes to 0: min(τ_s + e, τ) + 2ε, since points beside a_0 are not
        a_0 (docs/theory.md section 12). So the cost of a ray that is cut lies under the chord from there."""
        tau, error = self.threshold[j], float(self.cost_error[j])
        return (tau if error == inf else min(cost + error, tau)) + 2.0 * float(self.point_error[j])

    def bounds(self, stage: int, j: int, phi_0: Array, cost: float) -> Callable[..., Proven]:
        """Return a function that bounds ⟨γ*, x⟩ given the state's own safe cost, and that some listed actions cost 0 to
        1: it is given their places.

        `itself` proves that x costs at most 1. One function at a time: the next call overwrites the rows that this
        one's function reads.
        """
        cell, f, dual = self.cell(stage, j), np.array(phi_0), self.dual  # kernels want writable arrays
        load_rows(self.trials, cell, dual)
        low, high = self._own_limits(j, cost)
        if self.cost_error[j] == 0.0:
            load_fact(self.trials, dual, f, cost, 0.0)
        else:
            load_fact(self.trials, dual, f, 0.5 * (low + high), 0.5 * (high - low))
        count = dual.count.copy()
        rows, facts = int(count[0]), int(count[1])

        def bound(x: Array, itself: Multipliers = SAFE, boxes: NDArray[np.intp] = NOWHERE) -> Proven:
            dual.count[:] = count
            for place in boxes:
                load_fact(self.trials, dual, self.listed.features[place].copy(), 0.5, 0.5)
            proven = float(upper_cost(self.trials, cell, np.array(x), self.log_events, NEWTON_STEPS, dual))
            if proven < CONTRADICTION:
                raise Contradiction(j, proven)
            if proven >= TRIVIAL:
                return Proven(TRIVIAL, itself)
            y, listed = dual.best[: rows + len(boxes)].copy(), NONE
            if len(boxes):
                listed = np.zeros(len(self.listed.features))
                listed[boxes] = y[rows:]
            atoms = rows - facts  # the last fact is the state's own
            by = Multipliers(
                price=float(dual.price[0]),
                outcomes=y[:atoms],
                facts=y[atoms : rows - 1],
                own=float(y[rows - 1]),
                listed=listed,
            )
            return Proven(max(proven, 0.0), by)

        return bound

    def _listed_proof(self, stage: int, j: int, known: KnownState, cost: float, x: Array) -> ListedBound:
        """What the list of actions, the facts and the state's own safe cost prove of a listed action x (d,)."""
        if x not in self.listed:
            return NOTHING
        trials, cell, f = self.trials, self.cell(stage, j), known.actions.phi_0
        count = int(trials.fact_count[cell])
        programs, proofs = (self._memory(kind, cell, count) for kind in ("program", "proof"))
        facts, own = trials.facts[cell, :count], self._own_limits(j, cost)
        new = not any(f.tobytes() == fact.tobytes() for fact in facts)
        place = (f.tobytes(), *own) if new else ()
        if (place, x.tobytes()) not in proofs:  # a fact of the state's own comes last
            if place not in programs:
                middle, error = trials.fact_cost[cell, :count], trials.fact_error[cell, :count]
                low, high = middle - error, middle + error
                if new:
                    facts, low, high = np.vstack([facts, f]), np.append(low, own[0]), np.append(high, own[1])
                programs[place] = Program(self.listed.limits(facts, low, high))
            proofs[place, x.tobytes()] = self.listed.proof(programs[place], x)
        proof: ListedBound = proofs[place, x.tobytes()]
        return proof

    def row_proof(self, stage: int, j: int, known: KnownState, cost: float, row: int) -> Proven:
        """Bound the cost of one action of a finite set, by the list of actions alone if that is enough."""
        end, proof = known.actions.endpoints[row], self._row_listed(stage, j, known, cost, row)
        if proof.bound <= self.threshold[j]:
            return proof
        boxes = self._listed_proof(stage, j, known, cost, end).boxes
        other = self.bounds(stage, j, known.actions.phi_0, cost)(end, alone(known.actions, row), boxes)
        return other if other.bound < proof.bound else proof

    def _row_listed(self, stage: int, j: int, known: KnownState, cost: float, row: int) -> Proven:
        """Bound it by the list of actions and the facts alone; by 1 where they prove nothing."""
        proof = self._listed_proof(stage, j, known, cost, known.actions.endpoints[row])
        if not len(proof.facts) and not len(proof.listed):
            return Proven(proof.bound, alone(known.actions, row))
        count = int(self.trials.fact_count[self.cell(stage, j)])
        own = float(proof.facts[count]) if len(proof.facts) > count else 0.0
        return Proven(proof.bound, Multipliers(facts=proof.facts[:count], own=own, listed=proof.listed))

    def caps(self, stage: int, j: int, known: KnownState, cost: float) -> Array:
        """Bound the costs of every action of a finite set (N,); infinite where nothing explains the data."""
        return self._caps(stage, j, known, cost)[0]

    def _caps(self, stage: int, j: int, known: KnownState, cost: float) -> tuple[Array, list[Multipliers]]:
        """The same, with the multipliers of each."""
        actions, kept = known.actions, self._answers("caps", self.cell(stage, j))
        place = (actions.phi_0.tobytes(), actions.endpoints.tobytes(), cost)
        if place not in kept:
            caps, by = np.full(len(actions.endpoints), TRIVIAL), [SAFE] * len(actions.endpoints)
            try:
                for row, end in enumerate(actions.endpoints):
                    if row == actions.baseline:
                        caps[row] = min(self._own_limits(j, cost)[1], TRIVIAL)
                        continue
                    prove = self.row_proof if len(end) <= SMALL else self._row_listed
                    caps[row], by[row] = prove(stage, j, known, cost, row)
            except Contradiction:
                caps[:] = inf
            kept[place] = caps, by
        found: tuple[Array, list[Multipliers]] = kept[place]
        return found

    def safe_bound(self, stage: int, j: int, phi_0: Array, cost: float) -> Proven:
        """Bound the cost of a_0: declared, proven, or (since a_0 is declared safe) τ.

        Raises Contradiction where the data rule out what was declared.
        """
        error, kept = float(self.cost_error[j]), self._answers("safe", self.cell(stage, j))
        place = (phi_0.tobytes(), str(cost))  # an unknown cost, NaN, is not equal to itself
        if place not in kept:
            kept[place] = self.bounds(stage, j, phi_0, cost)(phi_0)
        proven: Proven = kept[place]
        declared = Proven(cost + error if error < inf else self.threshold[j], SAFE)
        return declared if error == 0.0 or declared.bound <= proven.bound else proven

    def ray(self, stage: int, j: int, known: KnownState, cost: float, end: Array, cap: Proven) -> Ray:
        """Find how far the ray from f to `end` is certified.

        The bound is convex along the ray, so that between two points of it the chord is a bound: with a known safe cost
        it is affine, and one evaluation is enough. `cap` is what is proven at the end already: 1 at most.
        """
        kept = self._answers("ray", self.cell(stage, j))
        place = (known.actions.phi_0.tobytes(), end.tobytes(), str(cost), cap.bound, cap.by.actions.tobytes())
        if place not in kept:
            kept[place] = self._ray(stage, j, known, cost, end, cap)
        found: Ray = kept[place]
        return found

    def _ray(self, stage: int, j: int, known: KnownState, cost: float, end: Array, cap: Proven) -> Ray:
        phi_0, tau, exact = known.actions.phi_0, self.threshold[j], self.cost_error[j] == 0.0
        start = Proven(cost, SAFE) if exact else self.safe_bound(stage, j, phi_0, cost)
        bound = self.bounds(stage, j, phi_0, cost)
        high = bound(end, cap.by)
        if cap.bound < high.bound:
            high = cap
        if exact and high.bound >= TRIVIAL:
            bound(phi_0)  # a contradiction shows in every bound but the trivial one
        if high.bound <= tau:
            return Ray(1.0, start, high)
        at, low, most = 0.0, start, tau - self._room
        for _ in range(1 if exact else CHORDS):
            if not low.bound < most:
                break
            share = INWARD * (most - low.bound) / (high.bound - low.bound)
            longer, chord = at + share * (1.0 - at), low.bound + share * (high.bound - low.bound)
            if not at < longer <= 1.0 or not chord <= tau:
                break
            between = Multipliers.sum_of(((1.0 - share, low.by), (share, high.by)))
            at, low = longer, Proven(chord, between)
            if not exact:
                there = bound(phi_0 + at * (end - phi_0), between)
                low = there if there.bound < chord else low
        return Ray(at, start, low)

    def alone_by(self, stage: int, j: int, known: KnownState, cost: float, row: int) -> Proven:
        """Bound the cost of one candidate by itself, by 1 at most.

        Raises Contradiction where nothing explains the data.
        """
        if not known.actions.is_star:
            return self.row_proof(stage, j, known, cost, row)
        return self.bounds(stage, j, known.actions.phi_0, cost)(known.actions.endpoints[row], alone(known.actions, row))

    def rests_on(self, by: Multipliers | None) -> int:
        """Count the listed actions that a proof takes to cost 0 to 1: all of them, or none."""
        return len(self.listed.features) if by is not None and by.listed.any() else 0

    # What a plan of one entry would play, cut to what is proven

    def give_up(self, plan: Plan, stage: int, known: KnownState, costs: Array, reason: int) -> None:
        """Play a_0, with the bounds on its cost."""
        plan.row[0, 0], plan.length[0, 0], plan.reason[0, 0] = -1, 0.0, reason
        plan.mixture[0] = 0.0
        if known.actions.baseline >= 0 and plan.mixture.shape[1]:
            plan.mixture[0, known.actions.baseline] = 1.0
        for j, tau in enumerate(self.threshold):
            cost, error = float(costs[j]), float(self.cost_error[j])
            plan.bound[0, 0, j] = cost if error == 0.0 or cost >= tau else tau
        if reason not in (ALARM, NO_SLACK):
            for j in self.bounded:
                plan.bound[0, 0, j] = self.safe_bound(stage, j, known.actions.phi_0, float(costs[j])).bound

    def _rays(self, stage: int, known: KnownState, costs: Array, row: int) -> dict[int, Ray]:
        """How far one ray is certified for each bounded constraint."""
        end, cap = known.actions.endpoints[row], Proven(TRIVIAL, alone(known.actions, row))
        return {j: self.ray(stage, j, known, float(costs[j]), end, cap) for j in self.bounded}

    def certify_ray(self, plan: Plan, stage: int, known: KnownState, costs: Array) -> Proofs:
        """The chosen ray as far as it is certified. Bounded costs alone may also lengthen it: the score is convex."""
        planned = float(plan.length[0, 0])
        proven = self._rays(stage, known, costs, int(plan.row[0, 0]))
        length = min(ray.reach for ray in proven.values())
        if len(proven) < self.constraints:
            length = min(length, planned)
        bounds = np.empty(self.constraints)
        for j in range(self.constraints):
            reach, start, there = planned, self._ray_start(j, float(costs[j])), float(plan.bound[0, 0, j])
            if j in proven:
                reach, start, there = proven[j].reach, proven[j].start.bound, proven[j].there.bound
            bounds[j] = start + length / reach * (there - start) if length < reach else there
        if length > 0.0 and (bounds <= self._tau).all():  # false for NaN
            plan.length[0, 0], plan.bound[0, 0] = length, bounds
            return {j: ray.at(length) for j, ray in proven.items()}
        self.give_up(plan, stage, known, costs, ONLY_BASELINE)
        return {}

    def certify_all(self, lengths: Array, bounds: Array, stage: int, known: KnownState, costs: Array) -> list[Proofs]:
        """Cut the lengths (N,) of all candidates to what is proven, and set their bounds (N + 1, M); a_0's are last.

        Returns the proofs of each row (N + 1).
        """
        actions, tau = known.actions, self.threshold
        rays: list[dict[int, Ray]] = [{} for _ in range(len(lengths) + 1)]
        for j in self.bounded:
            bounds[-1, j] = self.safe_bound(stage, j, actions.phi_0, float(costs[j])).bound
            for i in np.flatnonzero(lengths > 0.0):
                if not actions.is_star:
                    proven = self.row_proof(stage, j, known, float(costs[j]), int(i))
                    rays[i][j], bounds[i, j] = Ray(1.0, proven, proven), proven.bound
                    lengths[i] = 1.0 if bounds[i, j] <= tau[j] else 0.0
                    continue
                cap = Proven(TRIVIAL, alone(actions, int(i)))
                ray = rays[i][j] = self.ray(stage, j, known, float(costs[j]), actions.endpoints[i], cap)
                reach, start, there = ray.reach, ray.start.bound, ray.there.bound
                if reach < lengths[i]:
                    share = reach / lengths[i]
                    origin = np.array([self._ray_start(k, float(cost)) for k, cost in enumerate(costs)])
                    bounds[i] = origin + share * (bounds[i] - origin)
                    lengths[i] = reach
                bounds[i, j] = start + lengths[i] / reach * (there - start) if 0.0 < lengths[i] < reach else there
        certified = zip(rays, [*lengths.tolist(), 0.0], strict=True)
        return [{j: ray.at(length) for j, ray in each.items()} if length > 0.0 else {} for each, length in certified]

    def certify_row(
        self, plan: Plan, stage: int, known: KnownState, costs: Array, ranked: list[tuple[int, Array]]
    ) -> Proofs:
        """The first of the ranked rows of a finite set, each with its other bounds (M,), that is proven; else a_0."""
        for row, bounds in ranked[:CANDIDATES]:
            proven = {j: self.row_proof(stage, j, known, float(costs[j]), row) for j in self.bounded}
            for j, proof in proven.items():
                bounds[j] = proof.bound
            if (bounds <= self._tau).all():
                plan.row[0, 0], plan.length[0, 0], plan.bound[0, 0] = row, 1.0, bounds
                return {j: proof.by for j, proof in proven.items()}
        self.give_up(plan, stage, known, costs, ONLY_BASELINE)
        return {}

    def certify_mixture(self, plan: Plan, stage: int, known: KnownState, costs: Array) -> Proofs:
        """The planned mixture, scaled back toward a_0 until its expected costs are certified.

        Where the plan's own bound on it is τ, that bound has limited it: it is scaled up if more is proven.
        """
        actions, theta = known.actions, plan.mixture[0, : len(known.actions.endpoints)]
        if actions.baseline >= 0:
            theta[actions.baseline] = 0.0
        played = float(theta.sum())
        if not played > 0.0:
            return {}
        end = actions.phi_0 + (theta / played) @ (actions.endpoints - actions.phi_0)
        binding = bool((plan.bound[0, 0] >= (1.0 - BINDING) * self._tau).any())
        caps = {j: self._mixed_cap(stage, j, known, costs, theta / played) for j in self.bounded}
        proven = {j: self.ray(stage, j, known, float(costs[j]), end, cap) for j, cap in caps.items()}
        share = min(ray.reach for ray in proven.values())
        share = share if binding and len(proven) == self.constraints else min(share, played)
        bounds = np.empty(self.constraints)
        for j, tau in enumerate(self.threshold):
            reach, start, there = played, costs[j] if self.cost_error[j] == 0.0 else tau, float(plan.bound[0, 0, j])
            if j in proven:
                reach, start, there = proven[j].reach, proven[j].start.bound, proven[j].there.bound
            bounds[j] = start + share / reach * (there - start) if share < reach else there
        if share > 0.0 and (bounds <= self._tau).all():
            theta *= INWARD * share / played
            kept = float(theta.sum())
            if actions.baseline >= 0:
                theta[actions.baseline] = 1.0 - kept
            plan.bound[0, 0] = bounds
            return {j: ray.at(kept) for j, ray in proven.items()}
        self.give_up(plan, stage, known, costs, ONLY_BASELINE)
        return {}

    def _mixed_cap(self, stage: int, j: int, known: KnownState, costs: Array, theta: Array) -> Proven:
        """Bound the expected cost of actions with probabilities θ (N,) by those of single actions, and by 1 at most.

        Costs are at least 0, so rounding adds no more than a part of the sum.
        """
        together = Proven(TRIVIAL, Multipliers(actions=theta))
        if known.actions.is_star:
            return together
        caps, by = self._caps(stage, j, known, float(costs[j]))
        bound = float(theta @ caps) / float(theta.sum()) * (1.0 + 8.0 * len(theta) * ULP)
        if not bound < TRIVIAL:
            return together
        rows = np.flatnonzero(theta)
        return Proven(bound, Multipliers.sum_of((float(theta[row]), by[row]) for row in rows))
