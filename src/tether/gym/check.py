"""Check a Bridge by playing it: the safe action, then certified ones with the safe action after them."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tether.agents.agent import LeastSquaresAgent
from tether.agents.fixed import DefaultAction
from tether.agents.slucb import SlucbConfig
from tether.check.logs import as_log
from tether.check.problem_check import check_problem
from tether.check.report import Report
from tether.errors import InputError
from tether.features.actions import ActionFeatures
from tether.gym.bridge import Bridge
from tether.gym.learn import attach_monitor, default_agent, play
from tether.gym.spaces import BoxRays
from tether.problem.limit_on import LimitOn
from tether.records import Array, Decision, State, Transition

ON_RAY = 1e-6
"""How far from a ray a logged action may lie, relative to the ray's length."""


def check_bridge(
    bridge: Bridge, log: Any = None, *, plays: int = 1000, explore: bool = True, seed: int = 0, **options: Any
) -> Report:
    """Test what `Problem.check` tests on a log of what is played here, or on a given log.

    Args:
        bridge: the environment as a problem.
        log: Transitions, a DataFrame, columns or a file (observations and the environment's own actions will do, the
            bridge knows their features); nothing is played then.
        plays: how many steps are played, in whole episodes from the first on.
        explore: play certified actions in the second half of the plays, as the learner would, and the safe action
            after them: it must stay safe in every state that the learner can reach. The guarantee covers these plays
            as far as your declarations are true, which is what is tested. The online tests look on, and a contradiction
            in the first half leaves only the safe action. Turn it off for real equipment that must not be explored yet.
        seed: of the environment.
        options: those of `Problem.check`.
    """
    if not (isinstance(plays, int | np.integer) and plays >= 1):
        raise InputError(f"plays must be an integer >= 1, but is {plays!r}.")
    feature_of = lambda state, action: feature_of_action(bridge, state, action)  # noqa: E731
    if log is None:
        learner = {name: options[name] for name in ("pooled", "limit_on") if name in options}
        log = played(bridge, int(plays), explore, seed, **learner)
    return check_problem(bridge.problem, as_log(bridge.problem, log, feature_of), **options)


def played(
    bridge: Bridge,
    plays: int,
    explore: bool,
    seed: int,
    *,
    pooled: bool = False,
    limit_on: LimitOn = "single actions",
) -> list[Transition]:
    """Play the safe action for so many steps; with `explore`, for half of them, and then what is certified, too."""
    safe = DefaultAction(bridge.problem, SlucbConfig(backup="lean", pooled=False))
    first = (plays + 1) // 2 if explore else plays
    found = [outcome for _, _, outcome in islice(play([bridge], safe, plays, seed), first)]
    if first == plays:
        return found
    rng = np.random.default_rng([seed, 3])
    learner = default_agent(bridge, rng, limit_on=limit_on, stationary=pooled, config=None)
    attach_monitor(learner, bridge.problem)
    probe = Probe(learner, safe, rng)
    for outcome in found:
        probe.observe(outcome)
    return found + [outcome for _, _, outcome in islice(play([bridge], probe, plays, seed + 1), plays - first)]


class Probe:
    """Play what the learner would for a while, then the safe action to the end of the episode: does it stay safe there?

    `rng` draws at which step of each episode that begins.
    """

    def __init__(self, learner: LeastSquaresAgent, safe: LeastSquaresAgent, rng: np.random.Generator) -> None:
        self.learner, self.safe, self.rng, self.turn = learner, safe, rng, 0

    def plan(self) -> None:
        """Draw the step from which the safe action is played, and renew the learner's plan."""
        self.turn = int(self.rng.integers(1, max(self.learner.problem.horizon, 2)))
        self.learner.plan()

    def act(self, step: int, state: State, *, time: float | None = None) -> Decision:
        """What the learner does before the turn, the safe action after it."""
        agent = self.learner if step < self.turn else self.safe
        return agent.peek(step, state, time=time)

    def observe(self, transition: Transition) -> None:
        """Teach the learner every outcome, also of the safe action."""
        self.learner.observe(replace(transition, decision_id=None))

    def save(self, path: Path) -> None:
        """Save the learner."""
        self.learner.save(path)


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
