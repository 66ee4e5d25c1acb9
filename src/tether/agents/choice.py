"""What an agent wants to play in one state, and why: the step between a plan and a Decision."""

from typing import NamedTuple

from tether.problem.action_sets import ActionSet
from tether.records import Array, Mixture


class Choice(NamedTuple):
    """What an agent wants to play in one state, and why."""

    actions: ActionSet
    row: int  # -1 is the safe action
    length: float
    score: float
    reason: int
    bounds: Array  # (M,)
    radii: Array  # β_c (M,)
    baseline_cost: Array  # τ_h(s) (M,)
    data_version: int
    mixture: Mixture | None = None
