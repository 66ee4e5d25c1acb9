"""Where the cost of a step is found: in `info`, in a 6-tuple, or in a function of the user."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from tether.errors import InputError
from tether.records import State

Costs = float | tuple[float, ...] | None
CostSource = str | Sequence[str] | Callable[[Any, Any, Any, dict[str, Any]], Any]


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
            f"returned {answer!r}. Wrap old environments so that they follow Gymnasium 1.0."
        )
    if len(answer) == 5:
        observation, reward, terminated, truncated, info = answer
        return Stepped(observation, float(reward), None, bool(terminated), bool(truncated), info)
    observation, reward, cost, terminated, truncated, info = answer
    return Stepped(observation, float(reward), cost, bool(terminated), bool(truncated), info)


def read_cost(source: CostSource, observation: State, action: Any, stepped: Stepped) -> Costs:
    """z of this step: one number, or one per constraint; None if the environment says it was not measured."""
    if callable(source):
        found = source(observation, action, stepped.observation, stepped.info)
    elif isinstance(source, str):
        in_info = source in stepped.info
        found = stepped.info[source] if in_info else _third_value(source, stepped)
    else:
        for name in source:
            if name not in stepped.info:
                _third_value(name, stepped._replace(cost=None))
        found = [stepped.info[name] for name in source]
    return _as_costs(found)


def _third_value(name: str, stepped: Stepped) -> Any:
    if stepped.cost is None:
        raise InputError(
            f"env.step reported no cost: info has {sorted(map(str, stepped.info))} but no {name!r}. Name the "
            "entry that holds it (cost='…'), give a function cost(observation, action, next_observation, info), or "
            "use an environment whose step returns 6 values with the cost as the third."
        )
    return stepped.cost


def _as_costs(found: Any) -> Costs:
    if found is None:
        return None
    try:
        numbers = np.asarray(found, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"the cost of a step must be numbers, but is {found!r}: {error}.") from error
    return float(numbers[0]) if numbers.size == 1 else tuple(numbers.tolist())


class FiveTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Safety-Gymnasium style environment as an ordinary one: the third of its 6 values becomes info["cost"].

    `tether.learn` does without; this is for Gymnasium's own wrappers and other libraries.
    """

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step in Gymnasium's five values."""
        stepped = unpack(self.env.step(action))
        info = stepped.info if stepped.cost is None else {**stepped.info, "cost": stepped.cost}
        return stepped.observation, stepped.reward, stepped.terminated, stepped.truncated, info
