"""The lake as CISR plays it: sampled moves, rewards, and the pictures that the student sees."""

from bisect import bisect_right
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.world.lake_map import ACTIONS, CELLS, DANGER, ENDS, GOAL, SIZE, START, transition_law

CISR_INTENDED = 0.8
"""P(the intended move) in CISR's own experiments; the Tether paper has 0.9."""

STEP_REWARD, GOAL_REWARD, DANGER_REWARD = -0.01, 6.0, 0.0
TIME_OUT = 200
"""Steps after which an episode ends."""

Picture = Literal["planes", "map"]
"""What the student sees: one plane each for itself, danger and goal; or the authors' single plane."""


class Successors(NamedTuple):
    """Where one (cell, action) may lead, and the cumulative probabilities of the first ones."""

    cells: list[int]
    cumulative: list[float]

    def at(self, uniform: float) -> int:
        """The next cell for a uniform draw in [0, 1)."""
        return self.cells[bisect_right(self.cumulative, uniform)]


def successors(intended: float) -> list[list[Successors]]:
    """Next cells by cell and action, ready for sampling. [S][A]."""
    if not 0.0 < intended <= 1.0:
        raise InputError(f"The intended move needs a probability in (0, 1], not {intended}.")
    law = transition_law(intended)
    table = []
    for state in range(CELLS):
        row = []
        for action in range(len(ACTIONS)):
            cells = np.flatnonzero(law[state, action])
            row.append(Successors(cells.tolist(), np.cumsum(law[state, action, cells])[:-1].tolist()))
        table.append(row)
    return table


def reward_of(entered: int) -> float:
    """CISR's reward for entering a cell."""
    if entered == GOAL:
        return GOAL_REWARD
    return DANGER_REWARD if entered in DANGER else STEP_REWARD


def is_end(entered: int) -> bool:
    """Whether an episode ends on entering a cell."""
    return entered in ENDS


def pictures(picture: Picture) -> NDArray[np.float32]:
    """What the student sees in each cell; its own place is the largest entry of plane 0. (S, planes, rows, columns).

    "map" is the authors' single plane: free 0, goal .2, danger .4, start .6, the student 1.
    """
    if picture not in ("planes", "map"):
        raise InputError(f"A picture is 'planes' or 'map', not {picture!r}.")
    cells = np.arange(CELLS)
    if picture == "map":
        flat = np.zeros((CELLS, 1, CELLS), dtype=np.float32)
        flat[:, 0, GOAL], flat[:, 0, list(DANGER)], flat[:, 0, START] = 0.2, 0.4, 0.6
    else:
        flat = np.zeros((CELLS, 3, CELLS), dtype=np.float32)
        flat[:, 1, list(DANGER)] = 1.0
        flat[:, 2, GOAL] = 1.0
    flat[cells, 0, cells] = 1.0
    return flat.reshape(CELLS, -1, SIZE, SIZE)
