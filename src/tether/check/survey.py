"""The states that are looked at: their action sets and declared safe costs, gathered without refusing any."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tether.errors import InputError
from tether.problem.action_sets import ActionSet
from tether.problem.problem import Problem
from tether.records import Array, State

MOST_STATES = 500
"""More states than that are sampled."""


@dataclass(frozen=True, eq=False)
class Survey:
    """D(s) and τ_h(s) of the states that were looked at; costs (S, H, M), NaN where unknown."""

    states: tuple[State, ...]
    sets: tuple[ActionSet, ...]
    costs: Array
    listed: int  # how many states there were to choose from

    @property
    def phi_0(self) -> Array:
        """The safe features, (S, d)."""
        return np.array([actions.phi_0 for actions in self.sets])

    @property
    def features(self) -> Array:
        """Every candidate and every safe feature, (…, d)."""
        return np.concatenate([np.vstack((actions.phi_0, actions.endpoints)) for actions in self.sets])

    @property
    def where(self) -> str:
        """How many states were examined, in words."""
        if len(self.sets) < self.listed:
            return f"{len(self.sets)} of {self.listed} states, sampled"
        return f"{len(self.sets)} state{'s' if len(self.sets) != 1 else ''}"


def survey(problem: Problem, states: Iterable[State] | None, rng: np.random.Generator) -> Survey:
    """Look at the given states, or the problem's own; at most 500 of them, drawn by rng."""
    found: Sequence[State] = list(states) if states is not None else (problem.states or ())
    chosen: Sequence[int] = range(len(found))
    if len(found) > MOST_STATES:
        chosen = sorted(rng.choice(len(found), MOST_STATES, replace=False).tolist())
    playable = [found[i] for i in chosen if np.isnan(problem.final_reward_of(found[i]))]
    sets = [problem.actions(state) for state in playable]
    for state, actions in zip(playable, sets, strict=True):
        if actions.endpoints.shape[1] != problem.dimension:
            raise InputError(
                f"state {state!r} has features of dimension {actions.endpoints.shape[1]}, but d = {problem.dimension}."
            )
    costs = np.full((len(playable), problem.horizon, len(problem.constraints)), np.nan)
    if problem.baseline_cost is not None:
        for row, state in enumerate(playable):
            for step in range(problem.horizon):
                costs[row, step] = np.asarray(problem.baseline_cost(step, state), dtype=np.float64).reshape(-1)
    return Survey(tuple(playable), tuple(sets), costs, len(found) if len(chosen) < len(found) else len(playable))
