"""Save and restore of a lean backup: its next states come back from their keys, its sums as arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.agents import state_file
from tether.errors import InputError
from tether.kernels.plan import Visited
from tether.problem.keys import content_key, is_plain, rebuilt
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State, StateKey

Arrays = dict[str, NDArray[np.generic]]

SAMPLED = 16
"""States whose features are compared when a state is restored: sums over other features would certify nothing."""

SAME = 1e-6
"""Features of norm 1 that differ by less are the same, computed by another machine."""


def manifest_of(visited: Visited, problem: Problem) -> dict[str, Any]:
    """Keys, and what states are rebuilt from: the key itself with `state_of`, else the content of the state."""
    if problem.state_of is None:
        for state in visited.states:
            if not is_plain(state):
                raise InputError(
                    f"state {state!r} of type {type(state).__name__} cannot be rebuilt from a saved key: give Problem "
                    "state_of=..., a function from its key (see Problem.key_of) to the state, or use backup='tables'."
                )
    keys = [state_file.encode_key(key) for key in visited.index]
    if problem.key is None or problem.state_of is not None:
        return {"visited": {"keys": keys, "contents": None}}
    contents = [state_file.encode_key(content_key(state)) for state in visited.states]
    return {"visited": {"keys": keys, "contents": contents}}


def arrays_of(visited: Visited, tell: Callable[[State], KnownState]) -> Arrays:
    """The sums of each stage, what was told of each state, and a sample of features to recognise the problem by."""
    arrays: Arrays = {
        "visited.baseline_cost": visited.baseline_cost,
        "visited.final_reward": visited.final_reward,
        "visited.alarms": visited.alarms,
        "visited.sample": sample_of(visited.states, tell, visited.dimension),
    }
    for stage in range(visited.stages):
        arrays[f"visited.{stage}.member"] = visited.members(stage)
        arrays[f"visited.{stage}.moment"] = visited.moment(stage)
    return arrays


def sample_of(states: list[State], tell: Callable[[State], KnownState], dimension: int) -> Array:
    """The safe feature and the mean candidate of some states, evenly spaced: (<= SAMPLED, 2, d)."""
    chosen = np.unique(np.linspace(0, len(states) - 1, min(SAMPLED, len(states))).astype(np.int64))
    told = [tell(states[number]).actions for number in chosen]
    return np.array([[actions.phi_0, actions.endpoints.mean(axis=0)] for actions in told]).reshape(-1, 2, dimension)


def take_visits(
    visited: Visited, problem: Problem, manifest: dict[str, Any], arrays: Arrays, tell: Callable[[State], KnownState]
) -> None:
    """The reverse of both, into a fresh store; what no agent could have saved for this problem is refused."""
    index, states = _states_of(problem, manifest["visited"])
    here = sample_of(states, tell, visited.dimension)
    if not np.abs(here - _numbers(arrays, "visited.sample", here.shape, finite=True)).max(initial=0.0) <= SAME:
        raise InputError("it was saved with other features for the states it has visited")
    stages = []
    for stage in range(visited.stages):
        members = _members(arrays, f"visited.{stage}.member", len(states))
        shape = (len(members), visited.dimension)
        stages.append((members, _numbers(arrays, f"visited.{stage}.moment", shape, finite=True)))
    costs = _numbers(arrays, "visited.baseline_cost", (len(states), *visited.baseline_cost.shape[1:]))
    ends = _numbers(arrays, "visited.final_reward", (len(states),))
    alarms = np.asarray(arrays["visited.alarms"], dtype=np.int64).reshape(-1, 2)
    if not ((alarms[:, 1] >= 0) & (alarms[:, 1] < len(states))).all():
        raise InputError("'visited.alarms' names states that it does not list")
    visited.take(index, states, (costs, ends), alarms, stages)


def _states_of(problem: Problem, saved: dict[str, Any]) -> tuple[dict[StateKey, int], list[State]]:
    """The states that were saved, each checked against its key."""
    keys = [state_file.decode_key(key) for key in saved["keys"]]
    if problem.state_of is not None:
        states = [problem.state_of(key) for key in keys]
    else:
        states = [rebuilt(state_file.decode_key(content)) for content in saved["contents"] or saved["keys"]]
    if [problem.key_of(state) for state in states] != keys or len(set(keys)) != len(keys):
        raise InputError("its states do not have the keys they were saved under: key or state_of has changed")
    return {key: number for number, key in enumerate(keys)}, states


def _members(arrays: Arrays, name: str, states: int) -> NDArray[np.int64]:
    """Numbers of known states, none twice: they index arrays."""
    found = arrays[name]
    numbers = np.asarray(found, dtype=np.int64)
    good = found.dtype == np.int64 and numbers.ndim == 1 and len(np.unique(numbers)) == len(numbers)
    if not good or not ((numbers >= 0) & (numbers < states)).all():
        raise InputError(f"{name!r} names states that are not among the {states} it lists, or one of them twice")
    return numbers


def _numbers(arrays: Arrays, name: str, shape: tuple[int, ...], *, finite: bool = False) -> Array:
    """An array of sums, refused if its type or shape is another, or if it has entries that no sum of features has."""
    found = arrays[name]
    if found.dtype != np.float64 or found.shape != shape:
        raise InputError(f"{name!r} should be float64 of shape {shape}, but is {found.dtype} of {found.shape}")
    numbers = np.asarray(found, dtype=np.float64)
    if finite and not np.isfinite(numbers).all():
        raise InputError(f"{name!r} has entries that are not finite")
    return numbers
