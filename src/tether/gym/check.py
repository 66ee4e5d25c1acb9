"""Check a Bridge by playing it: the safe action, and where you allow it small certified steps, until there is a log."""

from itertools import islice
from typing import Any

import numpy as np

from tether.agents.agent import LeastSquaresAgent
from tether.agents.fixed import DefaultAction
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.check.logs import as_log
from tether.check.monitor import Monitor
from tether.check.problem_check import check_problem
from tether.check.report import Report
from tether.errors import InputError
from tether.features.actions import ActionFeatures
from tether.gym.bridge import BoxRays, Bridge
from tether.gym.learn import play
from tether.records import Array, State, Transition

ON_RAY = 1e-6
"""How far from a ray a logged action may lie, relative to the ray's length."""


def check_bridge(
    bridge: Bridge, log: Any = None, *, plays: int = 1000, explore: bool = False, seed: int = 0, **options: Any
) -> Report:
    """Every test of `Problem.check`, on a log of what is played here, or on a given one.

    Args:
        bridge: the environment as a problem.
        log: Transitions, a DataFrame, columns or a file (observations and the environment's own actions will do, the
            bridge knows their features); nothing is played then.
        plays: how many steps are played, in whole episodes from the first on.
        explore: play certified steps beside the safe action, as the learner would. The guarantee covers them as far as
            what you declared is true, which is what is being tested here; the online tests look on.
        seed: of the environment.
        options: those of `Problem.check`.
    """
    if not (isinstance(plays, int | np.integer) and plays >= 1):
        raise InputError(f"plays must be an integer >= 1, but is {plays!r}.")
    feature_of = lambda state, action: feature_of_action(bridge, state, action)  # noqa: E731
    outcomes = played(bridge, int(plays), explore, seed) if log is None else log
    logged = as_log(bridge.problem, outcomes, feature_of)
    return check_problem(bridge.problem, logged, **options)


def played(bridge: Bridge, plays: int, explore: bool, seed: int) -> list[Transition]:
    """Outcomes of so many steps of the safe action, or of certified steps."""
    agent: LeastSquaresAgent = DefaultAction(bridge.problem, SlucbConfig(backup="lean", pooled=False))
    if explore:
        agent = SlucbQvi(bridge.problem)
        agent.watch = Monitor(bridge.problem)
    return [outcome for _, _, outcome in islice(play([bridge], agent, plays, seed), plays)]


def feature_of_action(bridge: Bridge, state: State, action: Any) -> Array:
    """φ(s, a) of an action as the environment names it: one of its list, or a point on a ray in its box."""
    sets = bridge.action_sets
    if not isinstance(sets, BoxRays):
        listed = sets.allowed(state)
        for number, candidate in enumerate(listed):
            if np.array_equal(candidate, action):
                row: Array = bridge.problem.actions(state).endpoints[number]
                return row
        raise InputError(f"it is none of the {len(listed)} actions there")
    safe, ends = sets.points(state)
    point, star = np.asarray(action, dtype=np.float64).reshape(safe.shape), bridge.problem.actions(state)
    if np.array_equal(point, safe):
        return star.phi_0
    for end, feature in zip(ends - safe, star.endpoints, strict=True):
        if not end.any():  # the safe action stands at this wall
            continue
        length = float((point - safe) @ end / (end @ end))
        if 0.0 <= length <= 1.0 + ON_RAY and np.abs(safe + length * end - point).max() <= ON_RAY * np.abs(end).max():
            point_on_ray: Array = star.phi_0 + min(length, 1.0) * (feature - star.phi_0)
            return point_on_ray
    if isinstance(sets.features, ActionFeatures):
        return sets.features(state, point)
    raise InputError("it lies on no ray, and the features are those of rays")
