"""Whether what can be certified grows, from the safe action, to other actions: what Assumption 5 is for.

A star-convex set always grows where there is a gap under τ. A finite set may, too: where features are shared, playing
some actions teaches about others. Nothing here needs data.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.check.report import Finding, judged, unknown
from tether.check.survey import Survey
from tether.problem.action_sets import ActionSet
from tether.problem.limit_on import ASK
from tether.problem.problem import Problem
from tether.records import Array

NAME = "A5: what can be certified grows from the safe action"

Rows = NDArray[np.bool_]

RELATIVE_RANK = 1e-9
"""Singular values below this part of the largest count as zero."""

MAX_LISTED = 200
"""Where costs are bounded, so many actions are looked at: each is a linear programme."""


class Reachable(NamedTuple):
    """What certified play could reach if all open costs were as low as the declarations allow."""

    actions: int  # other actions that could be certified at some time
    of: int  # other actions
    directions: int  # dimension of the span of their features and of the safe ones
    everything: int  # dimension of the span of all features
    least: float  # the least bound over τ of any action that stays out, in units of the cost; inf if none does


def basis_of(rows: Array) -> Array:
    """Orthonormal rows that span the given ones (N, d), up to a relative 1e-9; (rank, d)."""
    if not rows.size:
        return np.zeros((0, rows.shape[1]))
    _, singular, axes = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(axes[singular > RELATIVE_RANK * max(float(singular[0]), 1e-300)])


def reachable(problem: Problem, sets: Sequence[ActionSet], costs: Array, averages: bool, logged: Array) -> Reachable:
    """Follow what can be certified, from the safe features on; costs (S, H, M), NaN where unknown.

    `logged` (n, d) are features whose costs a log has. Ample data settle γ* in the span W of what is played. The
    declared costs fix its part γ_0 in the span F of the safe features, and leave a part of length b = √(B² − ‖γ_0‖²)
    open. So a bound at x is at least ⟨γ_0, x⟩ − b‖x in W, not in F‖ + b‖x outside W‖ + ε: the costs in W as low as they
    may be, the rest at its worst. An action joins W once that is under τ for all constraints at some step; a ray, or a
    draw, wherever a gap is left.
    """
    safe = np.array([actions.phi_0 for actions in sets])
    rows, owner, divisible = [], [], []
    for state, actions in enumerate(sets):
        others = actions.endpoints[np.abs(actions.endpoints - actions.phi_0).max(axis=1) > 0.0]
        rows.append(others)
        owner += [state] * len(others)
        divisible += [averages or actions.is_star] * len(others)
    ends, known = np.vstack(rows), bool(np.isfinite(costs).all())
    limit, misfit = problem.mean_limit, problem.point_error
    facts = basis_of(safe)
    flat = costs.reshape(len(sets), -1)
    gamma = np.linalg.lstsq(safe, flat, rcond=RELATIVE_RANK)[0] if known else np.zeros((safe.shape[1], flat.shape[1]))
    rough = float(np.max(problem.baseline_cost_error)) > 0.0 or not known
    norm = np.tile(np.asarray(problem.gamma_norm), problem.horizon)
    open_length = np.sqrt(np.maximum(norm**2 - (gamma**2).sum(axis=0), 0.0))  # (H·M,)
    pinned = np.zeros_like(ends) if rough else ends @ facts.T @ facts
    gap: Rows = np.array([not (each >= limit).any() for each in costs])
    joined = np.array(divisible) & gap[owner]
    everything = len(basis_of(np.vstack([safe, logged, ends])))
    while True:
        span = basis_of(np.vstack([safe, logged, ends[joined]]))
        inside = ends @ span.T @ span
        low, out = np.linalg.norm(inside - pinned, axis=1), np.linalg.norm(ends - inside, axis=1)
        base = np.zeros((len(ends), len(norm))) if rough else ends @ gamma
        bound = (base - low[:, None] * open_length + out[:, None] * open_length).reshape(
            len(ends), problem.horizon, len(problem.constraints)
        )
        over = (bound + misfit - limit).max(axis=2).min(axis=1)  # (R,): at the step where it is least
        more = joined | (over <= 0.0)
        if (more == joined).all():
            least = float(over[~joined].min()) if not joined.all() else inf
            return Reachable(int(joined.sum()), len(ends), len(span), everything, least)
        joined = more


def certified_at_once(problem: Problem, seen: Survey) -> bool:
    """Whether declared safe costs and the range [0, 1] of all listed actions alone certify another action somewhere.

    The largest ⟨γ, x⟩ of all γ that give every listed action a cost in [0, 1], and the safe ones what was declared.
    """
    from scipy.optimize import linprog  # slow to import, and few problems need it

    listed = np.unique(seen.features, axis=0)[:MAX_LISTED] if problem.states is not None else seen.features[:0]
    candidates = np.vstack([actions.endpoints[_others(actions)] for actions in seen.sets])
    error, tau = np.asarray(problem.baseline_cost_error), np.asarray(problem.threshold)
    for x in np.unique(candidates, axis=0)[:MAX_LISTED]:
        rows = np.vstack([listed, x])
        sides = np.vstack([rows, -rows, seen.phi_0, -seen.phi_0])
        highest = []
        for j in range(len(problem.constraints)):
            costs = seen.costs[:, 0, j]
            limits = np.concatenate([np.ones(len(rows)), np.zeros(len(rows)), costs + error[j], error[j] - costs])
            found = linprog(-x, A_ub=sides, b_ub=limits, bounds=(None, None))
            highest.append(-float(found.fun) if found.success else inf)
        if (np.array(highest) <= tau).all():
            return True
    return False


def growth(problem: Problem, seen: Survey, averages: bool, first_new: int | None, logged: Array) -> Finding:
    """Judge A5 by what matters. `first_new`: after how many plays of a_0 something new is certified, as far as known.

    That is the answer of the learner's own bounds where safe costs are declared; -1 if it could not be asked.
    """
    sets = seen.sets
    stars = sum(actions.is_star or len(actions.endpoints) == 1 for actions in sets)
    shape = f"action sets are star-convex in {stars} of {seen.where}"
    found = reachable(problem, sets, seen.costs, averages, logged)
    reach = (
        f"certified play can reach at most {found.actions} of {found.of} other actions, and {found.directions} of "
        f"{found.everything} directions of their features"
    )
    way_out = (
        "features that actions share, so that playing some teaches about others; amounts between the safe action and "
        f"another (StarActions); logged costs of other actions; or, where only an average has to keep to τ, {ASK}"
    )
    if found.of == 0:
        return judged(NAME, False, f"{shape}; it does not grow: the safe action is the only one", "declare others")
    if averages or any(actions.is_star for actions in sets):
        how = "draws between actions" if averages else "rays"
        text = f"{shape}; {how} start at any length, so it grows wherever a gap under τ is left; {reach}"
        return judged(NAME, found.actions > 0, text, "name a safer action, or raise τ: no state leaves a gap")
    if any(problem.bounded):
        if first_new != -1 and certified_at_once(problem, seen):
            return judged(
                NAME, True, f"{shape}; it grows: declared safe costs and costs in [0, 1] certify another action"
            )
        safe = basis_of(np.array([actions.phi_0 for actions in sets]))
        if max(float(np.abs(actions.endpoints @ safe.T)[_others(actions)].max(initial=0.0)) for actions in sets) == 0.0:
            text = f"{shape}; it does not grow: no other action shares a feature with a safe one"
            return judged(NAME, False, text, way_out)
        return unknown(NAME, f"{shape}; it depends on the costs: only outcomes can show whether it grows", way_out)
    if first_new is not None and first_new >= 0:
        return judged(NAME, True, f"{shape}, but it grows: what safe play teaches certifies another action; {reach}")
    if found.actions == 0:
        text = f"{shape}; it does not grow: whatever the costs are, each other action keeps a bound over τ (by "
        return judged(NAME, False, f"{text}{found.least:.3g} at least), as safe play says too little about it", way_out)
    safe = np.array([actions.phi_0 for actions in sets])
    more = len(basis_of(np.vstack([safe, logged]))) - len(basis_of(safe))
    if first_new is None and more:
        text = f"{shape}; the log tells of {more} directions that safe play does not. If costs are low, {reach}"
        return unknown(NAME, text, "hand the log to the learner: a warm start")
    if first_new is None:
        text = f"{shape}; it does not grow: with these σ, B and δ no amount of safe play certifies another action"
        return judged(
            NAME, False, f"{text}. With the smallest radius there could be, {reach}", f"a smaller B; {way_out}"
        )
    return unknown(NAME, f"{shape}; it depends on the costs: if they are low, {reach}", f"declare safe_cost; {way_out}")


def _others(actions: ActionSet) -> Array:
    """Which candidates are not the safe action, (N,)."""
    return np.asarray(np.abs(actions.endpoints - actions.phi_0).max(axis=1) > 0.0)
