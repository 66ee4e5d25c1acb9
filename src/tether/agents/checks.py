"""What agents refuse, before anything changes: settings that make no sense, outcomes that cannot be counted."""

from math import isfinite
from typing import Any

import numpy as np

from tether.errors import InputError
from tether.problem.action_sets import check_norms
from tether.problem.problem import Problem
from tether.records import Array, Transition


def check_choice(name: str, value: object, allowed: Any) -> None:
    """Refuse a misspelt option by naming the right ones."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, but is {value!r}.")


def checked_radius(name: str, value: object, allowed: Any) -> float | str:
    """A radius by its name, or a number >= 0 of any numeric type."""
    if isinstance(value, str):
        check_choice(name, value, allowed)
        return value
    return checked_number(name, value)


def checked_number(name: str, value: object) -> float:
    """A finite number >= 0 as a float."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not 0.0 <= float(value) < np.inf:  # type: ignore[arg-type]
        raise InputError(f"{name} must be a finite number >= 0, but is {value!r}.")
    return float(value)  # type: ignore[arg-type]


def checked_episodes(value: object) -> int | None:
    """K, or None."""
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"episodes K must be an integer >= 1, but is {value!r}.")
    return int(value)


def as_numbers(value: Any) -> Array | None:
    """Real numbers as a float array, None if they are not that. What is masked was not measured: it is no number."""
    if np.ma.is_masked(value):
        return None
    try:
        numbers = np.asarray(value)
        return numbers.astype(np.float64) if numbers.dtype.kind in "iufb" else None
    except (TypeError, ValueError):
        return None


def checked_reward(reward: Any) -> float:
    """A finite real number."""
    number = as_numbers(reward)
    if number is None or number.shape != () or not isfinite(float(number)):
        raise InputError(f"reward must be a finite number, but is {reward!r}.")
    return float(number)


def check_step(step: Any, horizon: int) -> None:
    """h as 0..H-1."""
    if not isinstance(step, int | np.integer) or not 0 <= step < horizon:
        raise InputError(f"step must be an integer in 0..{horizon - 1} (H = {horizon}), but is {step!r}.")


def check_decision(t: Transition, outstanding: dict[int, int]) -> None:
    """An outcome belongs to a decision of this agent that has none yet (`outstanding`: id -> step), or to none."""
    if t.decision_id is None:
        return
    if not isinstance(t.decision_id, int | np.integer) or t.decision_id not in outstanding:
        raise InputError(
            f"decision {t.decision_id!r} has no outstanding outcome: either its outcome was recorded before, or "
            "this agent never made it. An outcome is counted exactly once."
        )
    made = outstanding[t.decision_id]
    if made != t.step:
        raise InputError(f"decision {t.decision_id} was made at step {made}, but its outcome says step {t.step}.")


def checked_feature(feature: Any, problem: Problem) -> Array:
    """φ of the applied action: d finite numbers of norm at most `feature_norm` (Assumption 4)."""
    x = as_numbers(feature)
    if x is None or x.shape != (problem.dimension,) or not np.isfinite(x).all():
        raise InputError(f"feature must be {problem.dimension} finite numbers, but is {feature!r}.")
    check_norms(x, problem.feature_norm, "this transition")
    return x


def checked_costs(cost: Any, problem: Problem, *, needed: bool) -> Array | None:
    """z, one per constraint, or None if it was not measured."""
    if cost is None:
        if needed:
            raise InputError("the penalised objective r − λ'c needs a cost with every outcome, but got None.")
        return None
    m, numbers = problem.constraints, as_numbers(cost)
    if numbers is None or numbers.shape not in ((m,), ()) or numbers.size != m or not np.isfinite(numbers).all():
        raise InputError(
            f"cost must be {m} finite number(s), but is {cost!r}. "
            "If it was not measured, pass None: a missing cost never enters the regression."
        )
    return numbers.reshape(m)
