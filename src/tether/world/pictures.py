"""What an episode of a world looks like: a map for the lake, a chart of states and costs for the others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.records import Action, StarAction
from tether.world.lake_map import ACTIONS, CELLS, DANGER, GOAL, SIZE, START
from tether.world.linear_mdp import LinearMDP

Picture = NDArray[np.uint8]

PAPER, INK, GRID = (255, 255, 255), (40, 40, 40), (225, 225, 225)
FINE, OVER, HERE, TRACE = (70, 150, 90), (200, 60, 50), (40, 90, 200), (170, 195, 235)
ICE, HOLE, FINISH = (225, 238, 248), (60, 80, 110), (240, 200, 80)
CELL = 24
"""Pixels per cell."""


class Moment(NamedTuple):
    """A state of the episode, and what led to it."""

    state: int
    action: Action | None = None
    reward: float = 0.0
    cost: tuple[float, ...] = ()


def is_lake(world: LinearMDP) -> bool:
    """Whether the world has the lake's map."""
    return world.name == "frozen-lake" and world.state_count == CELLS


def painted(world: LinearMDP, moments: Sequence[Moment]) -> Picture:
    """The episode as an RGB picture, (height, width, 3)."""
    return _lake_picture(moments) if is_lake(world) else _chart(world, moments)


def _lake_picture(moments: Sequence[Moment]) -> Picture:
    """The map from above: ice, danger, the goal, where the trajectory went, and where it is."""
    picture = np.full((SIZE * CELL, SIZE * CELL, 3), GRID, dtype=np.uint8)
    visited = {moment.state for moment in moments}
    for state in range(CELLS):
        colour = HOLE if state in DANGER else FINISH if state == GOAL else TRACE if state in visited else ICE
        row, column = divmod(state, SIZE)
        _fill(picture, row * CELL + 1, column * CELL + 1, CELL - 2, CELL - 2, colour)
    row, column = divmod(moments[-1].state, SIZE)
    _fill(picture, row * CELL + CELL // 4, column * CELL + CELL // 4, CELL // 2, CELL // 2, HERE)
    return picture


def _chart(world: LinearMDP, moments: Sequence[Moment]) -> Picture:
    """Steps from left to right: above, the state as a cell; below, observed costs as bars up to 2τ, τ as a line."""
    steps, states, taus = world.problem.horizon + 1, world.state_count, world.problem.threshold
    bar, height = 2 * CELL, max(3, CELL // (1 + states // 20))
    picture = np.full((states * height + (bar + CELL // 2) * len(taus), steps * CELL, 3), PAPER, dtype=np.uint8)
    for step in range(steps):
        for state in range(states):
            _fill(picture, state * height, step * CELL + 1, height - 1, CELL - 2, GRID)
    for step, moment in enumerate(moments):
        last = step == len(moments) - 1
        _fill(picture, moment.state * height, step * CELL + 1, height - 1, CELL - 2, HERE if last else TRACE)
        for j, cost in enumerate(moment.cost):
            bottom = states * height + (bar + CELL // 2) * (j + 1)
            tall = round(bar * min(max(cost / (2.0 * taus[j]), 0.0), 1.0))
            _fill(picture, bottom - tall, step * CELL + 4, tall, CELL - 8, FINE if cost <= taus[j] else OVER)
    for j in range(len(taus)):
        _fill(picture, states * height + (bar + CELL // 2) * (j + 1) - bar // 2, 0, 1, steps * CELL, INK)
    return picture


def _fill(picture: Picture, top: int, left: int, height: int, width: int, colour: tuple[int, int, int]) -> None:
    picture[top : top + height, left : left + width] = colour


def written(world: LinearMDP, moments: Sequence[Moment]) -> str:
    """The episode as text: the lake's map, or one line per step."""
    if not is_lake(world):
        lines = [f"start in state {moments[0].state}"]
        lines += [_line(world, step, moment) for step, moment in enumerate(moments[1:], start=1)]
        return "\n".join(lines)
    letters = ["*" if s in DANGER else "G" if s == GOAL else "S" if s == START else "." for s in range(CELLS)]
    letters[moments[-1].state] = "@"
    rows = ["".join(letters[SIZE * row : SIZE * (row + 1)]) for row in range(SIZE)]
    return "\n".join([*rows, _line(world, len(moments) - 1, moments[-1]) if len(moments) > 1 else "start"])


def _line(world: LinearMDP, step: int, moment: Moment) -> str:
    """What was done at a step, what it paid, and what it seemed to cost."""
    action = moment.action
    if isinstance(action, StarAction):
        done = "safe action" if action.ray < 0 else f"ray {action.ray} at {action.length:.2f}"
    else:
        done = ACTIONS[action] if is_lake(world) and action is not None else f"action {action}"
    limits = zip(moment.cost, world.problem.threshold, strict=True)
    costs = ", ".join(f"{cost:.3f} (τ {tau:g})" for cost, tau in limits)
    paid = f"reward {moment.reward:.3f}, cost {costs}"
    return f"step {step} of {world.problem.horizon}: {done} -> state {moment.state}, {paid}"
