"""Certificates of costs in [0, 1]: what an agent plans for them is a guess, and is cut to what likelihood ratios prove.

A plan ranks actions by the ordinary regression, with a σ that the data suggest; nothing rests on that. What it would
play is certified here (docs/theory.md section 14): at the end of the ray, then shortened by convexity; candidate by
candidate in a finite set; or, for a mixture, scaled back toward a_0. A plan of mixtures of single actions uses what is
proven of each of them, so that it is certified as it stands.
"""

from collections.abc import Callable, Hashable, Iterable
from math import inf, log, sqrt
from typing import Any

import numpy as np

from tether.agents.listed import NOTHING, Listed, ListedBound, Program
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
from tether.problem.problem import KnownState, Problem
from tether.records import Array

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
        self.constraints, self.threshold, self.cost_error = problem.constraints, problem.threshold, cost_error
        self.misfit, self._tau = problem.misfit, np.array(problem.threshold)
        self.log_events = log(events)
        self.trials = new_trials(
            stages * problem.constraints, problem.dimension, problem.feature_norm, max(problem.gamma_norm)
        )
        self.dual = new_dual(problem.dimension)
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
        return (tau if error == inf else min(cost + error, tau)) + 2.0 * self.misfit[j]

    def bounds(self, stage: int, j: int, phi_0: Array, cost: float) -> Callable[..., float]:
        """Upper bounds on ⟨γ*, x⟩ given the state's own safe cost, and that listed actions (B, d) cost 0 to 1.

        One function at a time: the next call overwrites the rows that this one's function reads.
        """
        cell, f, dual = self.cell(stage, j), np.array(phi_0), self.dual  # kernels want writable arrays
        load_rows(self.trials, cell, dual)
        low, high = self._own_limits(j, cost)
        if self.cost_error[j] == 0.0:
            load_fact(self.trials, dual, f, cost, 0.0)
        else:
            load_fact(self.trials, dual, f, 0.5 * (low + high), 0.5 * (high - low))
        count = dual.count.copy()

        def bound(x: Array, boxes: Array = NOTHING.boxes) -> float:
            dual.count[:] = count
            for box in boxes:
                load_fact(self.trials, dual, np.array(box), 0.5, 0.5)
            proven = float(upper_cost(self.trials, cell, np.array(x), self.log_events, NEWTON_STEPS, dual))
            if proven < CONTRADICTION:
                raise Contradiction(j, proven)
            return max(proven, 0.0)

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
        if (place, x.tobytes()) not in proofs:
            if place not in programs:
                middle, error = trials.fact_cost[cell, :count], trials.fact_error[cell, :count]
                low, high = middle - error, middle + error
                if new:
                    facts, low, high = np.vstack([facts, f]), np.append(low, own[0]), np.append(high, own[1])
                programs[place] = Program(self.listed.limits(facts, low, high))
            proofs[place, x.tobytes()] = self.listed.proof(programs[place], x)
        proof: ListedBound = proofs[place, x.tobytes()]
        return proof

    def row_bound(self, stage: int, j: int, known: KnownState, cost: float, row: int) -> float:
        """An upper bound on the cost of one action of a finite set, by the list of actions alone if that is enough."""
        end = known.actions.endpoints[row]
        proof = self._listed_proof(stage, j, known, cost, end)
        if proof.bound <= self.threshold[j]:
            return proof.bound
        return min(proof.bound, self.bounds(stage, j, known.actions.phi_0, cost)(end, proof.boxes))

    def listed_for(self, stage: int, j: int, known: KnownState, cost: float, rows: Iterable[int]) -> int:
        """How many listed actions the bound of a choice among these rows of D(s) takes to cost 0 to 1; 0: none."""
        if known.actions.is_star:
            return 0
        ends = known.actions.endpoints[[row for row in rows if row not in (-1, known.actions.baseline)]]
        rests = any(self._listed_proof(stage, j, known, cost, end).rests for end in ends)
        return len(self.listed.features) if rests else 0

    def caps(self, stage: int, j: int, known: KnownState, cost: float) -> Array:
        """Upper bounds on the costs of every action of a finite set (N,); infinite where nothing explains the data."""
        actions, kept = known.actions, self._answers("caps", self.cell(stage, j))
        place = (actions.phi_0.tobytes(), actions.endpoints.tobytes(), cost)
        if place not in kept:
            caps = np.full(len(actions.endpoints), TRIVIAL)
            try:
                for row, end in enumerate(actions.endpoints):
                    if row == actions.baseline:
                        caps[row] = min(self._own_limits(j, cost)[1], TRIVIAL)
                    elif len(end) <= SMALL:
                        caps[row] = self.row_bound(stage, j, known, cost, row)
                    else:
                        caps[row] = self._listed_proof(stage, j, known, cost, end).bound
            except Contradiction:
                caps[:] = inf
            kept[place] = caps
        found: Array = kept[place]
        return found

    def safe_bound(self, stage: int, j: int, phi_0: Array, cost: float) -> float:
        """An upper bound on the cost of a_0: declared, proven, or (since a_0 is declared safe) τ.

        Raises Contradiction where the data rule out what was declared.
        """
        error, kept = float(self.cost_error[j]), self._answers("safe", self.cell(stage, j))
        place = (phi_0.tobytes(), str(cost))  # an unknown cost, NaN, is not equal to itself
        if place not in kept:
            kept[place] = self.bounds(stage, j, phi_0, cost)(phi_0)
        proven: float = kept[place]
        return cost if error == 0.0 else min(cost + error if error < inf else self.threshold[j], proven)

    def ray(
        self, stage: int, j: int, known: KnownState, cost: float, end: Array, cap: float = TRIVIAL
    ) -> tuple[float, float, float]:
        """How far the ray from f to `end` is certified, and the bounds at its start and there: (α, bound(f), bound(α)).

        The bound is convex along the ray, so that between two points of it the chord is a bound: with a known safe cost
        it is affine, and one evaluation is enough. `cap` is a bound at the end that is known already.
        """
        kept = self._answers("ray", self.cell(stage, j))
        place = (known.actions.phi_0.tobytes(), end.tobytes(), str(cost), cap)
        if place not in kept:
            kept[place] = self._ray(stage, j, known, cost, end, cap)
        found: tuple[float, float, float] = kept[place]
        return found

    def _ray(
        self, stage: int, j: int, known: KnownState, cost: float, end: Array, cap: float
    ) -> tuple[float, float, float]:
        phi_0, tau, exact = known.actions.phi_0, self.threshold[j], self.cost_error[j] == 0.0
        start = cost if exact else self.safe_bound(stage, j, phi_0, cost)
        bound = self.bounds(stage, j, phi_0, cost)
        low, low_bound, high, high_bound = 0.0, start, 1.0, min(bound(end), cap)
        if exact and high_bound >= TRIVIAL:
            bound(phi_0)  # a contradiction shows in every bound but the trivial one
        if high_bound <= tau:
            return 1.0, start, high_bound
        for _ in range(1 if exact else CHORDS):
            if not low_bound < tau:
                break
            at = low + INWARD * (tau - low_bound) / (high_bound - low_bound) * (high - low)
            chord = low_bound + (at - low) / (high - low) * (high_bound - low_bound)
            if not low < at <= high or not chord <= tau:
                break
            low, low_bound = at, chord
            if not exact:
                low_bound = min(chord, bound(phi_0 + at * (end - phi_0)))
        return low, start, low_bound

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
                plan.bound[0, 0, j] = self.safe_bound(stage, j, known.actions.phi_0, float(costs[j]))

    def certify_ray(self, plan: Plan, stage: int, known: KnownState, costs: Array) -> None:
        """The chosen ray as far as it is certified. Bounded costs alone may also lengthen it: the score is convex."""
        end, planned = known.actions.endpoints[plan.row[0, 0]], float(plan.length[0, 0])
        proven = {j: self.ray(stage, j, known, float(costs[j]), end) for j in self.bounded}
        length = min(reach for reach, _, _ in proven.values())
        if len(proven) < self.constraints:
            length = min(length, planned)
        bounds = np.empty(self.constraints)
        for j in range(self.constraints):
            start = self._ray_start(j, float(costs[j]))
            reach, start, there = proven.get(j, (planned, start, float(plan.bound[0, 0, j])))
            bounds[j] = start + length / reach * (there - start) if length < reach else there
        if length > 0.0 and (bounds <= self._tau).all():  # false for NaN
            plan.length[0, 0], plan.bound[0, 0] = length, bounds
        else:
            self.give_up(plan, stage, known, costs, ONLY_BASELINE)

    def certify_all(self, lengths: Array, bounds: Array, stage: int, known: KnownState, costs: Array) -> None:
        """Cut the lengths (N,) of all candidates to what is proven, and set their bounds (N + 1, M); a_0's are last."""
        actions, tau = known.actions, self.threshold
        for j in self.bounded:
            bounds[-1, j] = self.safe_bound(stage, j, actions.phi_0, float(costs[j]))
            for i in np.flatnonzero(lengths > 0.0):
                if not actions.is_star:
                    bounds[i, j] = self.row_bound(stage, j, known, float(costs[j]), int(i))
                    lengths[i] = 1.0 if bounds[i, j] <= tau[j] else 0.0
                    continue
                reach, start, there = self.ray(stage, j, known, float(costs[j]), actions.endpoints[i])
                if reach < lengths[i]:
                    share = reach / lengths[i]
                    origin = np.array([self._ray_start(k, float(cost)) for k, cost in enumerate(costs)])
                    bounds[i] = origin + share * (bounds[i] - origin)
                    lengths[i] = reach
                bounds[i, j] = start + lengths[i] / reach * (there - start) if 0.0 < lengths[i] < reach else there

    def certify_row(
        self, plan: Plan, stage: int, known: KnownState, costs: Array, ranked: list[tuple[int, Array]]
    ) -> None:
        """The first of the ranked rows of a finite set, each with its other bounds (M,), that is proven; else a_0."""
        for row, bounds in ranked[:CANDIDATES]:
            for j in self.bounded:
                bounds[j] = self.row_bound(stage, j, known, float(costs[j]), row)
            if (bounds <= self._tau).all():
                plan.row[0, 0], plan.length[0, 0], plan.bound[0, 0] = row, 1.0, bounds
                return
        self.give_up(plan, stage, known, costs, ONLY_BASELINE)

    def certify_mixture(self, plan: Plan, stage: int, known: KnownState, costs: Array) -> None:
        """The planned mixture, scaled back toward a_0 until its expected costs are certified.

        Where the plan's own bound on it is τ, that bound has limited it: it is scaled up if more is proven.
        """
        actions, theta = known.actions, plan.mixture[0, : len(known.actions.endpoints)]
        if actions.baseline >= 0:
            theta[actions.baseline] = 0.0
        played = float(theta.sum())
        if not played > 0.0:
            return
        end = actions.phi_0 + (theta / played) @ (actions.endpoints - actions.phi_0)
        binding = bool((plan.bound[0, 0] >= (1.0 - BINDING) * self._tau).any())
        caps = {j: TRIVIAL if actions.is_star else self._mixed_cap(stage, j, known, costs, theta) for j in self.bounded}
        proven = {j: self.ray(stage, j, known, float(costs[j]), end, cap) for j, cap in caps.items()}
        share = min(reach for reach, _, _ in proven.values())
        share = share if binding and len(proven) == self.constraints else min(share, played)
        bounds = np.empty(self.constraints)
        for j, tau in enumerate(self.threshold):
            start = costs[j] if self.cost_error[j] == 0.0 else tau
            reach, start, there = proven.get(j, (played, start, float(plan.bound[0, 0, j])))
            bounds[j] = start + share / reach * (there - start) if share < reach else there
        if share > 0.0 and (bounds <= self._tau).all():
            theta *= INWARD * share / played
            if actions.baseline >= 0:
                theta[actions.baseline] = 1.0 - float(theta.sum())
            plan.bound[0, 0] = bounds
        else:
            self.give_up(plan, stage, known, costs, ONLY_BASELINE)

    def _mixed_cap(self, stage: int, j: int, known: KnownState, costs: Array, theta: Array) -> float:
        """A bound on the expected cost of actions with probabilities ∝ θ (N,), from those of single actions: 1 at most.

        Costs are at least 0, so rounding adds no more than a part of the sum.
        """
        caps = self.caps(stage, j, known, float(costs[j]))
        return min(TRIVIAL, float(theta @ caps) / float(theta.sum()) * (1.0 + 8.0 * len(theta) * ULP))
