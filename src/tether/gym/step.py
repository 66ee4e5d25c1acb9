"""One step of an environment: what it answers, and where the cost is in it."""

import copy
from collections.abc import Sequence
from contextlib import suppress
from inspect import Signature, signature
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from tether.errors import InputError
from tether.options import is_masked, real_numbers
from tether.problem.constraint import Constraint, CostSource
from tether.records import State

OLD_API = "Wrap old environments so that they follow Gymnasium 1.0, or let tether.gym.remote play them: it knows Gym's."


def check_takes(function: Any, what: str, *arguments: str, **named: Any) -> None:
    """Refuse a user's function that cannot be called with these arguments, at the door."""
    takes: Signature | None = None
    with suppress(TypeError, ValueError):  # some built-ins do not say what they take
        takes = signature(function)
    try:
        if takes is not None:
            takes.bind(*arguments, **named)
    except TypeError as error:
        asked = ", ".join([*arguments, *(f"{name}=…" for name in named)])
        raise InputError(f"{what} is called with ({asked}), but cannot be: {error}.") from None


class Stepped(NamedTuple):
    """What an environment answered to one action; `cost` is the third of six values (Safety-Gymnasium), else None."""

    observation: Any
    reward: float
    cost: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def unpack(answer: Any) -> Stepped:
    """The five values of Gymnasium's step, or the six of Safety-Gymnasium's, by name."""
    if not isinstance(answer, tuple) or len(answer) not in (5, 6):
        raise InputError(
            "env.step must return Gymnasium's 5 values, or Safety-Gymnasium's 6 with the cost as the third, but it "
            f"returned {answer!r}. {OLD_API}"
        )
    observation, reward, *cost, terminated, truncated, info = answer
    number = nan
    with suppress(TypeError, ValueError):
        number = float(reward)
    if not isfinite(number):
        raise InputError(
            f"the reward of a step must be a finite number, but is {reward!r}. Where nothing is earned, give 0."
        )
    if not isinstance(info, dict):
        raise InputError(f"the info of a step must be a dictionary, an empty one if need be, but is {info!r}.")
    return Stepped(observation, number, cost[0] if cost else None, bool(terminated), bool(truncated), info)


def read_costs(
    constraints: Sequence[Constraint], observation: State, action: Any, stepped: Stepped
) -> float | tuple[float, ...] | None:
    """z of this step: one number, or one per constraint; None if the environment says it was not measured."""
    if all(one.cost is None for one in constraints):
        return numbers_of(stepped.info.get("cost", stepped.cost) if has_cost(stepped) else missing(stepped, "cost"))
    found = [read_cost(one.cost, len(constraints), observation, action, stepped) for one in constraints]
    if all(cost is None for cost in found):
        return None
    for j, cost in enumerate(found):
        if np.size(cost) != 1 or cost is None:
            raise InputError(
                f"a step reported {cost!r} as cost {j}, which must be one number. Where no cost was measured, report "
                "None for all of them."
            )
    return numbers_of(found[0] if len(found) == 1 else found)


def has_cost(stepped: Stepped) -> bool:
    """Whether a cost stands where it stands unless the user says otherwise."""
    return "cost" in stepped.info or stepped.cost is not None


def missing(stepped: Stepped, name: str) -> Any:
    """Refuse a step without a cost."""
    raise InputError(
        f"env.step reported no cost: info has {sorted(map(str, stepped.info))} but no {name!r}. Name the "
        "entry that holds it, Constraint(cost='…'), give a function cost(observation, action, next_observation, "
        "info), or use an environment whose step returns 6 values with the cost as the third."
    )


def read_cost(source: CostSource | None, count: int, observation: State, action: Any, stepped: Stepped) -> Any:
    """What the environment reports as the cost of one constraint."""
    if callable(source):  # whatever it writes into is its own
        return source(owned(observation), owned(action), owned(stepped.observation), stepped.info)
    if source in stepped.info:
        return stepped.info[source]
    if stepped.cost is not None and count == 1:
        return stepped.cost
    if source is None and has_cost(stepped):
        return stepped.info.get("cost", stepped.cost)
    return missing(stepped, source or "cost")


def numbers_of(found: Any) -> float | tuple[float, ...] | None:
    """A cost as Python's own numbers; None if it was not measured."""
    if found is None:
        return None
    if is_masked(found):
        raise InputError("the cost of a step is masked: if it was not measured, report None.")
    try:
        numbers = real_numbers(found, "the cost of a step").reshape(-1)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the cost of a step must be numbers, but is {found!r}: {error}.") from error
    return float(numbers[0]) if numbers.size == 1 else tuple(numbers.tolist())


def owned(observation: Any) -> Any:
    """A copy of an observation or action: environments reuse theirs, and functions write into what they are given."""
    if isinstance(observation, dict):
        return {name: owned(part) for name, part in observation.items()}
    if type(observation) in (tuple, list):
        return type(observation)(map(owned, observation))
    try:
        return copy.deepcopy(observation)
    except Exception as error:
        raise InputError(
            f"{observation!r:.80} cannot be copied ({error}), so nobody could tell what it was when it is reused: let "
            "the environment observe numbers, strings, arrays, and tuples, dictionaries or dataclasses of them."
        ) from error
