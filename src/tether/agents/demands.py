"""The least B that declared safe costs and data demand, for decisions whose declared safe cost contradicts the data."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tether.kernels.compiled import replaced
from tether.kernels.model import ALARM, TOLD, Rules, add_state, new_plan, new_scratch, new_tables
from tether.kernels.plan import choose_alone
from tether.kernels.ridge import Costs, Values
from tether.problem.action_sets import StarActions
from tether.problem.effects import HOW
from tether.problem.problem import KnownState
from tether.records import Array

DOUBLINGS = 40
"""A B that is larger than declared by 2 to this power is none: where it would not help, the safe costs are wrong."""

BISECTIONS = 10
"""The least B is found to 2^(2^-10), less than one in a thousand."""


class Learned(NamedTuple):
    """What an agent knows of costs: its rules, and both regressions."""

    rules: Rules
    costs: Costs
    values: Values


def demanded_norm(learned: Learned, step: int, known: KnownState) -> Array:
    """Return the least B (M,) with which declared safe costs and data agree here; 0 where the declared B does.

    A radius is larger for a larger B, whatever its ridge. So if the safe costs are right, ‖γ*‖ is at least that, with
    probability 1 − δ: else the set of radius β(‖γ*‖) would not have contained γ*. Infinite where no B helps.
    """
    declared, dimension = learned.rules.gamma_norm, len(known.actions.phi_0)
    m, stage = len(declared), step if len(learned.costs.log_det) > 1 else 0
    least = np.zeros(m)
    here = replace(known, actions=StarActions(known.actions.phi_0, known.actions.endpoints[:1]))
    tables = add_state(new_tables(dimension, 1, 1, m), here, known.baseline_cost[step : step + 1])
    plan, scratch = new_plan(1, 1, m, dimension), new_scratch(dimension, m, tables.features.shape[1], 1)
    unlatched = np.zeros_like(learned.costs.facts.alarm)  # an alarm that stays would be one for every B
    costs = replaced(learned.costs, facts=replaced(learned.costs.facts, alarm=unlatched))

    def contradicted(norms: Array) -> bool:
        rules = replaced(learned.rules, gamma_norm=norms)
        tables.built[0] = 0
        unlatched[:] = 0
        with np.errstate(all="ignore"):  # the root of a negative square is the alarm
            choose_alone(costs, learned.values, rules, tables, plan, scratch, step, stage)
        return bool(plan.reason[0, 0] == ALARM)

    enough = declared * 2.0**DOUBLINGS
    if contradicted(enough):
        return np.full(m, np.inf)
    for j in range(m):
        norms = enough.copy()
        norms[j] = declared[j]
        if not contradicted(norms):
            continue
        low, high = 0.0, float(DOUBLINGS)  # powers of two times the declared B
        for _ in range(BISECTIONS + DOUBLINGS.bit_length()):
            middle = (low + high) / 2.0
            norms[j] = declared[j] * 2.0**middle
            low, high = (middle, high) if contradicted(norms) else (low, middle)
        least[j] = declared[j] * 2.0**low
    return least


def contradiction(learned: Learned, step: int, known: KnownState) -> str:
    """Return in words which B the data demand where a declared safe cost contradicts them; "" if none does now."""
    if learned.rules.conditioning == TOLD:
        return ""
    demanded = demanded_norm(learned, step, known)
    if np.isinf(demanded).any():
        return (
            "the declared safe cost contradicts the recorded costs or other declared safe costs, whatever B is: "
            "correct safe_cost, or declare how far it may be off, SafeCost(…, error=…)"
        )
    said = []
    for j in np.flatnonzero(demanded):
        which = f" {j}" if len(demanded) > 1 else ""
        said.append(
            f"the declared safe cost{which} contradicts the recorded costs if B = {learned.rules.gamma_norm[j]:.4g} is "
            f"right: the data then demand at least B = {demanded[j]:.3g}. Correct safe_cost, or declare {HOW}"
        )
    return "; ".join(said)
