"""The certified set as a building block: write your own algorithm, and let it choose among what is proven safe.

    class Greedy(CertifiedAgent):
        def choose(self, options):
            return options.best(options.values)

`CertifiedAgent` does the rest: statistics, value iteration, safe set, evidence. A subclass picks a row of a list, so it
cannot return an action without the bound that justifies it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tether.agents.agent import LeastSquaresAgent, check_step
from tether.agents.likelihood import Contradiction, Proofs
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.kernels.bound import bound_at, examine, fit_costs, limit_lengths
from tether.kernels.model import ALARM, BASELINE_BEST, BEST, BOUND_0, ENDED, ONLY_BASELINE, Plan, new_plan
from tether.kernels.plan import build, scratch_for, tables_of
from tether.kernels.radius import value_radius_at
from tether.kernels.ridge import project_rows
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Decision, State, Transition


@dataclass(frozen=True, eq=False)
class CertifiedSet:
    """What may be played at one step and state: row i is candidate i at its certified length; the last is a_0(s).

    Its arrays are read-only: what is played is taken from them after a subclass has looked at them.

    Attributes:
        step: h.
        state: s.
        features: φ of each row, (N + 1, d).
        lengths: how far each candidate is certified, 0 where it is not, (N,): the minimum over constraints.
        bounds: upper bounds on the costs of each row, (N + 1, M), all under τ where the length is positive.
        weights: w_h of the last plan: ⟨w_h, φ⟩ estimates the value, (d,).
        factor: U with A_h = UᵀU of the value regression, (d, d): ‖φ‖ in A_h^{-1} is the norm of U^{-T}φ.
        trouble: why nothing but a_0 may be played (an index of records.Reason), or 0.
        known: what is known of the state: D(s), τ_h(s).
        plan: a plan of one entry, with the estimate, the radius and the facts that the bounds rest on.
        proofs: multipliers that prove the bounds of costs in [0, 1], for each row (N + 1) and constraint.
    """

    step: int
    state: State
    features: Array
    lengths: Array
    bounds: Array
    weights: Array
    factor: Array
    trouble: int
    known: KnownState
    plan: Plan
    proofs: Sequence[Proofs]

    def __post_init__(self) -> None:
        for array in (self.features, self.lengths, self.bounds, self.weights, self.factor):
            array.flags.writeable = False

    @property
    def certified(self) -> list[int]:
        """Rows that may be played, a_0's (N) last."""
        return [*np.flatnonzero(self.lengths > 0.0).tolist(), len(self.lengths)]

    @property
    def values(self) -> Array:
        """⟨w_h, φ⟩ of each row, (N + 1,)."""
        estimates: Array = self.features @ self.weights
        return estimates

    @property
    def widths(self) -> Array:
        """‖φ‖ in A_h^{-1} of each row, (N + 1,): how little is known about its value."""
        norms: Array = np.linalg.norm(np.linalg.solve(self.factor.T, self.features.T), axis=0)
        return norms

    def best(self, scores: Array) -> int:
        """The certified row with the highest score (N + 1,); a score that is not finite never wins, ties go to a_0."""
        finite = np.where(np.isfinite(scores), scores, -np.inf)
        return max(reversed(self.certified), key=lambda row: float(finite[row]))


def certified_set(agent: LeastSquaresAgent, step: int, state: State) -> CertifiedSet:
    """The set A_h^k(s) of Eq. (9), from all that the agent has observed so far, by the kernels of its own planning."""
    problem, rules = agent.problem, agent.rules
    check_step(step, problem.horizon)
    agent.check_whole()
    known, stage = agent.look_up(state), agent.stage_of(step)
    actions, count, constraints = known.actions, len(known.actions.endpoints), len(problem.constraints)
    tables = tables_of([actions], known.baseline_cost[None, step], np.array([known.final_reward]))
    scratch, plan = scratch_for(tables), new_plan(1, 1, constraints, problem.dimension)
    fit_costs(agent.costs, rules, plan, scratch, int(step), 0, stage)
    plan.value_radius[0] = value_radius_at(agent.values, rules, int(step), stage)
    build(agent.costs, agent.values, rules, tables, scratch, 0, stage)
    for j in range(constraints):
        project_rows(tables.features, count, plan.gamma_hat[0, j], scratch.projected[1 + j])
    trouble = examine(rules, tables, plan, scratch, 0, 0, 0) if np.isnan(known.final_reward) else ENDED
    lengths, bounds = scratch.work[0, :count], np.empty((count + 1, constraints))
    scratch.work[:2] = 1.0
    likelihoods = agent.likelihoods
    proven = likelihoods.bounded if likelihoods is not None else []
    for j in range(constraints):
        if j not in proven:
            limit_lengths(rules, tables, scratch, 0, 0, j)
    if trouble != BEST:
        lengths[:] = 0.0
    bounds[count] = scratch.state[BOUND_0]
    for i in range(count):
        bounds[i] = [bound_at(rules, tables, scratch, 0, 0, i, j, float(lengths[i])) for j in range(constraints)]
    proofs: list[Proofs] = [{} for _ in range(count + 1)]
    if likelihoods is not None and trouble != ENDED:
        try:
            proofs = likelihoods.certify_all(lengths, bounds, stage, known, known.baseline_cost[step])
        except Contradiction as found:
            trouble = ALARM
            plan.radius[0, found.constraint] = np.nan
            lengths[:] = 0.0
    lengths[~(bounds[:count] <= rules.threshold).all(axis=1)] = 0.0  # a NaN is not under τ
    if not actions.is_star:
        lengths[actions.baseline] = 0.0  # listed once, as a_0
    bounds[:count][lengths == 0.0] = bounds[count]
    features = actions.phi_0 + lengths[:, None] * (actions.endpoints - actions.phi_0)
    features[lengths == 1.0] = actions.endpoints[lengths == 1.0]
    return CertifiedSet(
        step=int(step),
        state=state,
        features=np.vstack([features, actions.phi_0]),
        lengths=lengths,
        bounds=bounds,
        weights=agent.current.weights[step].copy(),
        factor=agent.values.factor[stage].copy(),
        trouble=int(trouble),
        known=known,
        plan=plan,
        proofs=proofs,
    )


class CertifiedAgent:
    """An agent whose choices are yours and whose safety is SLUCB-QVI's: override `choose`, and `prepare` if you draw.

    Draws come from `prepare(rng)`, called once per plan with a generator that depends on `seed` and on the number of
    plans alone: within an episode the policy is fixed, and a saved agent needs no generator to continue as it was.
    """

    config = SlucbConfig(explorer="plain", value_radius=0.0)
    """How values are planned: without a bonus, so that exploration is up to the subclass."""

    def __init__(self, problem: Problem, *, seed: int = 0, core: SlucbQvi | None = None) -> None:
        self.problem, self.seed = problem, int(seed)
        self.core = core or SlucbQvi(problem, self.config)
        if self.core.mixes or self.core.problem is not problem:
            raise InputError("core must be a SlucbQvi for the same problem: its bounds are what justifies each choice.")
        self._prepared = -1

    def choose(self, options: CertifiedSet) -> int:
        """The row to play: one of `options.certified`."""
        raise NotImplementedError(f"{type(self).__name__} must say what it chooses: def choose(self, options) -> row.")

    def prepare(self, rng: np.random.Generator) -> None:
        """Draw what this episode's policy needs."""

    def plan(self) -> None:
        """Value iteration on what was observed, then this episode's draws."""
        self.core.plan()
        self._draw()

    def _draw(self) -> None:
        plans = int(self.core.current.made[0])
        if self._prepared != plans:
            self.prepare(np.random.default_rng([self.seed, plans]))
            self._prepared = plans

    def act(self, step: int, state: State, *, time: float | None = None) -> Decision:
        """What `choose` picks, with its evidence; a_0(s) where nothing else is certified or a watch has tripped.

        The core notes the decision, so that its outcome is counted exactly once, and in its turn.
        """
        with self.core.at(time):
            decision, known = self._answer(step, state)
        self.core.note_decision(decision, known)
        return decision

    def peek(self, step: int, state: State, *, time: float | None = None) -> Decision:
        """What `act` would answer. Nothing is expected to come of it."""
        with self.core.at(time):
            return self._answer(step, state)[0]

    def _answer(self, step: int, state: State) -> tuple[Decision, KnownState]:
        if self.core.current.made[0] == 0:
            self.core.plan()
        self._draw()
        options = certified_set(self.core, step, state)
        if options.trouble == ENDED or self.core.tripped_by:
            return self.core.peek(step, state, time=self.core.time), options.known
        last = len(options.lengths)
        if options.trouble != BEST:
            return self._decided(options, last, options.trouble), options.known
        row = int(self.choose(options))
        if row not in options.certified:
            raise InputError(
                f"{type(self).__name__}.choose picked row {row}, which is not certified at step {step}, state "
                f"{state!r}: pick one of options.certified = {options.certified}."
            )
        reason = BEST if row < last else BASELINE_BEST if len(options.certified) > 1 else ONLY_BASELINE
        return self._decided(options, row, reason), options.known

    def _decided(self, options: CertifiedSet, row: int, reason: int) -> Decision:
        plan, is_safe = options.plan, row == len(options.lengths)
        plan.row[0, 0], plan.length[0, 0] = (-1, 0.0) if is_safe else (row, options.lengths[row])
        plan.score[0, 0], plan.reason[0, 0], plan.bound[0, 0] = options.values[row], reason, options.bounds[row]
        proofs = options.proofs[row]
        return self.core.decide(options.step, options.state, options.known, plan, proofs=proofs)

    def observe(self, transition: Transition) -> None:
        """Learn from one outcome."""
        self.core.observe(transition)

    def lose(self, decision_id: int) -> None:
        """The outcome of this decision will never come."""
        self.core.lose(decision_id)

    def withdraw(self, decision_id: int) -> None:
        """Forget a decision that was never played."""
        self.core.withdraw(decision_id)

    def save(self, path: Path) -> None:
        """Write what was learned."""
        self.core.save(path)

    @classmethod
    def restore(cls, path: Path, problem: Problem, **options: Any) -> Self:
        """The agent as it was saved; `options`, such as `seed`, are those that it was made with."""
        return cls(problem, core=SlucbQvi.restore(path, problem), **options)
