"""The 10 × 10 lake of section 5.2: start, goal, danger, how a move slips, and how far the goal is."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from tether.records import Array

SIZE = 10
CELLS = SIZE * SIZE
ACTIONS = ("left", "right", "down", "up")
MOVES = ((0, -1), (0, 1), (1, 0), (-1, 0))
"""(row, column) of each action, in the paper's order; row 0 is at the top."""

SIDEWAYS = ((2, 3), (2, 3), (0, 1), (0, 1))
"""The two actions orthogonal to each action."""


def cell(row: int, column: int) -> int:
    """The state of a cell: row by row from the top left."""
    return SIZE * row + column


START = cell(0, 0)
GOAL = cell(9, 3)
DANGER = tuple(
    cell(*place) for place in ((2, 0), (3, 2), (4, 0), (4, 5), (5, 2), (5, 6), (6, 0), (6, 5), (7, 2), (8, 0))
)
ENDS = (GOAL, *DANGER)
"""Where a trajectory ends: in success, or in failure."""


def neighbour(state: int, action: int) -> int:
    """Where a move leads if it does not slip; against a wall one stays."""
    row, column = divmod(state, SIZE)
    to_row, to_column = row + MOVES[action][0], column + MOVES[action][1]
    return cell(to_row, to_column) if 0 <= to_row < SIZE and 0 <= to_column < SIZE else state


def transition_law(intended: float = 0.9) -> Array:
    """P(s'|s, a): `intended`, else one of the two orthogonal moves; goal and danger keep what they have. (S, A, S)."""
    law = np.zeros((CELLS, len(ACTIONS), CELLS))
    for state in range(CELLS):
        for action in range(len(ACTIONS)):
            if state in ENDS:
                law[state, action, state] = 1.0
                continue
            law[state, action, neighbour(state, action)] += intended
            for side in SIDEWAYS[action]:
                law[state, action, neighbour(state, side)] += (1.0 - intended) / 2.0
    return law


def goal_distance() -> NDArray[np.int64]:
    """Moves to the goal around danger, (S,); -1 in danger."""
    distance = np.full(CELLS, -1, dtype=np.int64)
    distance[GOAL] = 0
    frontier = deque([GOAL])
    while frontier:
        here = frontier.popleft()
        for action in range(len(ACTIONS)):
            there = neighbour(here, action)
            if distance[there] < 0 and there not in DANGER:
                distance[there] = distance[here] + 1
                frontier.append(there)
    return distance
