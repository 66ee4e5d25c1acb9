"""Play misspecified twins and the worlds they are twins of, and ask the watches beside the learner what they notice.

The learner itself is not stopped: its trajectory up to an alarm is the one that a watched learner has, and from there
on the watched learner plays the safe action. So one run tells what happens with and without each watch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tether.agents.slucb_qvi import SlucbQvi
from tether.check.monitor import Monitor
from tether.problem.problem import Problem
from tether.records import Array, Decision, Transition
from tether.world.ad_load import ad_load, ad_load_twin
from tether.world.dosing import dosing, dosing_twin
from tether.world.heating import heating, heating_twin
from tether.world.linear_mdp import SAFE_TOLERANCE, LinearMDP, Streams
from tether.world.misspecified import MisspecifiedMDP

WORLDS: dict[str, Callable[[np.random.Generator], LinearMDP]] = {
    "dosing": dosing,
    "heating": heating,
    "ad-load": ad_load,
}
TWINS: dict[str, Callable[[np.random.Generator, int], MisspecifiedMDP]] = {
    "dosing": lambda rng, episodes: dosing_twin(rng),
    "heating": lambda rng, episodes: heating_twin(rng, opens=episodes // 2),
    "ad-load": lambda rng, episodes: ad_load_twin(rng),
}
"""The same instances as WORLDS for the same seed, with another truth about costs; what drifts, drifts half-way."""

WATCHES: dict[str, Callable[[Problem], Monitor]] = {
    "a test per step": Monitor,
    "one pooled test": partial(Monitor, pooled=True),
}
"""The pooled test may be used where γ*_h is the same at every step h, as in these worlds."""


@dataclass(frozen=True)
class Trip:
    """When a watch tripped: after so many steps, what it said; steps = -1 if it never did."""

    steps: int
    alarm: str


@dataclass(frozen=True, eq=False)
class TwinRun:
    """One run of an unwatched learner: true violations and largest true cost over τ (a ratio) per episode, (K,)."""

    violations: Array
    worst_cost: Array
    horizon: int
    trips: dict[str, Trip]

    def violations_with(self, watch: str) -> Array:
        """Violations per episode if this watch had stood beside the learner: none after its alarm, (K,)."""
        steps = self.trips[watch].steps
        if steps < 0:
            return self.violations
        kept = self.violations.copy()
        kept[steps // self.horizon + 1 :] = 0.0  # the episode of the alarm counts as a whole: a little too much
        return kept


def play_twin(world: LinearMDP | MisspecifiedMDP, episodes: int, streams: Streams) -> TwinRun:
    """SLUCB-QVI with all defaults for `episodes` episodes, every watch beside it."""
    problem = world.problem
    agent, watches = SlucbQvi(problem), {name: make(problem) for name, make in WATCHES.items()}
    trips = dict.fromkeys(WATCHES, Trip(-1, ""))
    violations, worst = np.zeros((2, episodes))
    threshold = np.array(problem.threshold)
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            outcome, cost = _play(world, decision, streams, episode)
            agent.observe(outcome)
            violations[episode] += float((cost > threshold + SAFE_TOLERANCE).any())
            worst[episode] = max(worst[episode], float((cost / threshold).max()))
            for name, watch in watches.items():
                if trips[name].steps < 0:
                    watch.observe(
                        step,
                        decision.feature,
                        np.atleast_1d(np.asarray(outcome.cost, dtype=np.float64)),
                        outcome.reward,
                        state,
                    )
                    if watch.alarm is not None:
                        trips[name] = Trip(episode * problem.horizon + step + 1, str(watch.alarm))
            state = outcome.next_state
    return TwinRun(violations, worst, problem.horizon, trips)


def _play(
    world: LinearMDP | MisspecifiedMDP, decision: Decision, streams: Streams, episode: int
) -> tuple[Transition, Array]:
    """The outcome of a decision and its true cost (M,)."""
    if isinstance(world, MisspecifiedMDP):
        cost = world.true_cost(decision.step, decision.state, decision.feature, episode)
        return world.step(decision, streams, episode), cost
    true: Array = world.true_gamma[decision.step] @ decision.feature
    return world.step(decision, streams), true
