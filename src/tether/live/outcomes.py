"""Outcomes: everything about them is checked before anything is written, so that nothing in the log fails to apply."""

from typing import Any

from tether.agents.checks import checked_costs, checked_feature, checked_reward
from tether.errors import InputError
from tether.live.judge import looked_up
from tether.live.states import StateCodec, checked_action, encode_action
from tether.problem.action_sets import feature_of
from tether.problem.problem import Problem
from tether.records import State

LARGEST = 1e100
"""Costs and rewards beyond this are refused at the door: their squares overflow, and what is logged must apply."""


def outcome_body(
    problem: Problem,
    states: StateCodec,
    decision: dict[str, Any],
    reward: Any,
    cost: Any,
    next_state: State,
    applied: Any,
) -> dict[str, Any]:
    """The body of an outcome of this logged decision, or an InputError that names what cannot be used."""
    costs = checked_costs(cost, problem, needed=False)
    if (costs is not None and abs(costs).max() > LARGEST) or abs(checked_reward(reward)) > LARGEST:
        raise InputError(
            f"cost {cost!r:.80} or reward {reward!r:.80} is beyond ±{LARGEST:g}, whose squares overflow: a broken "
            "sensor? If the cost was not measured, pass None."
        )
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
    if next_state is not None and problem.horizon > 1:
        check_next(problem, next_state)
    return {
        "decision_id": decision["decision_id"],
        "step": decision["step"],
        "state": decision["state"],
        "feature": feature,
        "applied": done,
        "reward": checked_reward(reward),
        "cost": None if costs is None else costs.tolist(),
        "next_state": states.encode(next_state),
        "bound": bound,
        "drawn": bound is not None and decision["drawn"] is not None,
    }


def bounds_of(decision: dict[str, Any]) -> list[float] | None:
    """The bounds (M,) of a logged decision's certificate, None if one is not a number."""
    bounds = [limit["bound"] for limit in decision["certificate"]["limits"]]
    return None if any(isinstance(bound, str) for bound in bounds) else bounds


def check_next(problem: Problem, state: State) -> None:
    """Refuse a next state now that the learner could not use later."""
    try:
        problem.key_of(state)
        problem.look_up(state)
    except Exception as error:  # the problem's functions are the caller's
        raise InputError(f"next_state {state!r:.120} is not one that this problem knows: {error}.") from error
