"""Outcomes: everything about them is checked before anything is written, so that nothing in the log fails to apply."""

from typing import Any

import numpy as np

from tether.agents.checks import checked_costs, checked_feature, checked_reward
from tether.errors import InputError
from tether.live.decisions import ImpossibleCost
from tether.live.judge import looked_up
from tether.live.learner import Learner
from tether.live.states import StateCodec, as_logged, checked_action, detached, encode_action, retyped
from tether.problem.action_sets import feature_of
from tether.problem.problem import Problem
from tether.records import Array, State

LARGEST = 1e100
"""Costs and rewards beyond this are refused at the door: their squares overflow, and what is logged must apply."""

FAR = 10.0
"""A cost further than this many σ outside ±B‖φ‖ contradicts the declared B or σ: a sensor failed, or another unit."""


def outcome_body(
    learner: Learner, decision: dict[str, Any], reward: Any, cost: Any, next_state: State, applied: Any
) -> dict[str, Any]:
    """The body of an outcome of this logged decision, or an InputError that names what cannot be used."""
    problem, states = learner.problem, learner.states
    costs = checked_costs(cost, problem, needed=False)
    if abs(checked_reward(reward)) > LARGEST:
        raise InputError(f"reward {reward!r:.80} is beyond ±{LARGEST:g}, whose squares overflow: a broken sensor?")
    feature = decision["drawn"] or decision["certificate"]["feature"]
    done, bound = decision["played"], bounds_of(decision)
    if applied is not None:
        known = looked_up(problem, decision["step"], states.decode(decision["state"]))
        if hasattr(applied, "__len__"):
            feature, done, bound = checked_feature(applied, problem).tolist(), None, None
        else:
            action = checked_action(known.actions, applied)
            done = encode_action(action)
            if done != decision["played"]:
                feature, bound = feature_of(known.actions, action).tolist(), None
    if costs is not None:
        _check_range(problem, decision["decision_id"], feature, costs)
    return {
        "decision_id": decision["decision_id"],
        "step": decision["step"],
        "state": decision["state"],
        "feature": feature,
        "applied": done,
        "reward": checked_reward(reward),
        "cost": None if costs is None else costs.tolist(),
        "next_state": checked_next(problem, states, next_state, is_lean=learner.agent.visited is not None),
        "bound": bound,
        "drawn": bound is not None and decision["drawn"] is not None,
        "rests_on": decision["certificate"]["seq"],
        "safe_feature": decision["safe_feature"],
        "safe_cost": safe_cost_of(decision),
    }


def cost_limit(problem: Problem, feature: Any) -> Array:
    """B‖φ‖ + 10σ: costs (M,) of an action with φ (d,) stay within ± this, or B or σ was declared too small."""
    return np.array(problem.gamma_norm) * float(np.linalg.norm(feature)) + FAR * np.array(problem.noise)


def _check_range(problem: Problem, id: str, feature: Any, costs: Array) -> None:
    limit = np.minimum(cost_limit(problem, feature), LARGEST)
    if not (np.abs(costs) <= limit).all():
        raise ImpossibleCost(
            f"cost {costs.tolist()} of decision {id!r} is beyond ±{limit.tolist()} (B‖φ‖ + {FAR:g}σ): with ‖γ*‖ <= B = "
            f"{problem.gamma_norm} and noise σ = {problem.noise}, Assumptions 3 and 4, no cost lies there. If a sensor "
            "failed, record cost=None, and reset_alarm. If such costs do happen, σ or B was declared too small, and "
            "nothing certified so far holds: declare larger ones (noise, gamma_norm) and start a new log."
        )


def bounds_of(decision: dict[str, Any]) -> list[float] | None:
    """The bounds (M,) of a logged decision's certificate, None if one is not a number."""
    bounds = [limit["bound"] for limit in decision["certificate"]["limits"]]
    return None if any(isinstance(bound, str) for bound in bounds) else bounds


def safe_cost_of(decision: dict[str, Any]) -> list[float] | None:
    """τ_s (M,) as it was declared when the decision was made; None if it is unknown, or not to be remembered."""
    costs = [limit["baseline_cost"] for limit in decision["certificate"]["limits"]]
    return None if decision["safe_feature"] is None or None in costs else costs


def checked_next(problem: Problem, states: StateCodec, state: State, *, is_lean: bool) -> Any:
    """A next state as the log will hold it; refused now if the learner could not use what it will read there."""
    if problem.horizon == 1:  # nothing follows: it is logged, and never read
        return None if state is None else detached(states.encode(state))
    logged, again = as_logged(states, state)
    if again is None:
        return logged
    try:
        problem.key_of(again)
        problem.look_up(problem.kept(again) if is_lean else again)
    except Exception as error:  # the problem's functions are the caller's
        raise InputError(
            f"next_state {state!r:.120} is not one that this problem knows: {error}.{retyped(state, again)}"
        ) from error
    return logged
