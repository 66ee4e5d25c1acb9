"""How good a policy is without a teacher: CISR plays the stochastic policy for 10,000 steps after each unit."""

from dataclasses import dataclass

import numpy as np

from tether.cisr.dynamics import CISR_INTENDED, TIME_OUT, Successors, is_end, reward_of, successors
from tether.errors import InputError
from tether.records import Array
from tether.world.lake_map import ACTIONS, CELLS, DANGER, GOAL, START

STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What happened in the ended episodes: `success` is goals over episodes, `mean_return` CISR's return."""

    success: float
    mean_return: float
    falls: int
    episodes: int


def evaluate(
    policy: Array, rng: np.random.Generator, *, intended: float = CISR_INTENDED, steps: int = STEPS
) -> Evaluation:
    """Play π(a|s) (S, A) for `steps` steps, one episode after another, without a teacher."""
    if policy.shape != (CELLS, len(ACTIONS)) or steps < 1:
        raise InputError(f"A policy is ({CELLS}, {len(ACTIONS)}) and is played, not {policy.shape} for {steps} steps.")
    actions = (policy.cumsum(axis=1)[:, :-1, None] <= rng.random(steps)).sum(axis=1).T.tolist()
    returns, goals, falls = _play(actions, rng.random(steps).tolist(), successors(intended))
    if not returns:
        return Evaluation(0.0, 0.0, 0, 0)
    return Evaluation(goals / len(returns), float(np.mean(returns)), falls, len(returns))


def _play(
    actions: list[list[int]], uniforms: list[float], table: list[list[Successors]]
) -> tuple[list[float], int, int]:
    """Returns of the ended episodes, goals and falls. actions: what the policy would do, [steps][S]."""
    returns: list[float] = []
    goals = falls = length = 0
    state, earned = START, 0.0
    for chosen, uniform in zip(actions, uniforms, strict=True):
        state = table[state][chosen[state]].at(uniform)
        earned += reward_of(state)
        length += 1
        if is_end(state) or length >= TIME_OUT:
            goals += state == GOAL
            falls += state in DANGER
            returns.append(earned)
            state, earned, length = START, 0.0, 0
    return returns, goals, falls
