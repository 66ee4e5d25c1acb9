"""The bound of a drawn action by itself, beside that of the mixture it was drawn from."""

from math import nan

import numpy as np

from tether.agents.agent import Agent, LeastSquaresAgent
from tether.agents.likelihood import Contradiction, Likelihoods, Proofs
from tether.kernels.bound import bound_at, examine, fit_costs
from tether.kernels.model import BEST, new_plan
from tether.kernels.plan import build, scratch_for, tables_of
from tether.kernels.radius import value_radius_at
from tether.kernels.ridge import project_rows
from tether.problem.action_sets import FiniteActions
from tether.problem.problem import KnownState
from tether.records import Array, Decision, StarAction


def own_bounds(agent: Agent, decision: Decision) -> Array:
    """Bound the cost of the played action by itself, from what the agent has observed so far; (M,).

    That is the decision's own bound unless the action was drawn from a mixture. Ask before the outcome is observed.
    NaN where nothing can be said.
    """
    stated = np.array([shown.bound for shown in decision.evidence])
    mixture = decision.mixture
    if mixture is None or decision.is_baseline or not isinstance(agent, LeastSquaresAgent):
        return stated
    row = decision.action.ray if isinstance(decision.action, StarAction) else decision.action
    if mixture.probabilities[row] == 1.0:
        return stated
    with agent.at(decision.time):
        return _alone(agent, decision.step, agent.look_up(decision.state), row)


def _alone(agent: LeastSquaresAgent, step: int, known: KnownState, row: int) -> Array:
    """The left side of Eq. (9) at one candidate, by the kernels of the agent's own planning; (M,)."""
    problem, rules, stage = agent.problem, agent.rules, agent.stage_of(step)
    alone = FiniteActions(np.vstack([known.actions.phi_0, known.actions.endpoints[row]]), 0)
    tables = tables_of([alone], known.baseline_cost[None, step], np.array([known.final_reward]))
    scratch, plan = scratch_for(tables), new_plan(1, 1, len(problem.constraints), problem.dimension)
    fit_costs(agent.costs, rules, plan, scratch, step, 0, stage)
    plan.value_radius[0] = value_radius_at(agent.values, rules, step, stage)
    build(agent.costs, agent.values, rules, tables, scratch, 0, stage)
    for j in range(len(problem.constraints)):
        project_rows(tables.features, 2, plan.gamma_hat[0, j], scratch.projected[1 + j])
    if examine(rules, tables, plan, scratch, 0, 0, 0) != BEST:
        return np.full(len(problem.constraints), np.nan)
    found = np.array([bound_at(rules, tables, scratch, 0, 0, 1, j, 1.0) for j in range(len(problem.constraints))])
    likelihoods = agent.likelihoods
    if likelihoods is not None:
        costs = known.baseline_cost[step]
        for j in likelihoods.bounded:
            found[j] = _proven(likelihoods, stage, j, known, float(costs[j]), row)
    return found


def _proven(likelihoods: Likelihoods, stage: int, j: int, known: KnownState, cost: float, row: int) -> float:
    """The likelihood-ratio bound of one candidate whose costs lie in [0, 1]; NaN where nothing explains the data."""
    try:
        return min(likelihoods.alone_by(stage, j, known, cost, row).bound, 1.0)
    except Contradiction:
        return nan


def proofs_alone(agent: LeastSquaresAgent, step: int, known: KnownState, row: int) -> Proofs:
    """Return multipliers that bound the costs in [0, 1] of one candidate by itself."""
    if agent.likelihoods is None or row < 0:
        return {}
    stage, costs, likelihoods = agent.stage_of(step), known.baseline_cost[step], agent.likelihoods
    try:
        return {j: likelihoods.alone_by(stage, j, known, float(costs[j]), row).by for j in likelihoods.bounded}
    except Contradiction:
        return {}
