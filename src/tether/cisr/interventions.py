"""When the teacher steps in and what it does: SR1, SR2 and HR of CISR, and no teacher at all."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.world.lake_map import CELLS, DANGER, ENDS, SIZE, START

Reaction = Literal["put back", "end"]


@dataclass(frozen=True, slots=True)
class Intervention:
    """A teacher that reacts when the student enters a free cell at most `distance` (L1) from danger.

    "put back" returns the student to the cell it came from; "end" ends the episode. `limit` bounds the mean of
    1{intervened} over an episode in the student's constraint. Distance 0 never triggers.
    """

    name: str
    distance: int
    reaction: Reaction
    limit: float


SR1 = Intervention("SR1", 2, "put back", 0.1)
SR2 = Intervention("SR2", 1, "put back", 0.1)
HR = Intervention("HR", 1, "end", 0.0)
NONE = Intervention("none", 0, "end", 0.0)

TEACHERS_CHOICE = (SR1, SR2, HR)
"""What a teacher may choose from, in the authors' order."""

BY_NAME = {intervention.name: intervention for intervention in (*TEACHERS_CHOICE, NONE)}


def named(name: str) -> Intervention:
    """The intervention of that name."""
    if name not in BY_NAME:
        raise InputError(f"No intervention is called {name!r}; there are {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def danger_distance() -> NDArray[np.int64]:
    """L1 distance from each cell to the nearest danger. (S,)."""
    rows, columns = np.divmod(np.arange(CELLS), SIZE)
    danger_rows, danger_columns = np.divmod(np.array(DANGER), SIZE)
    apart = np.abs(rows[:, None] - danger_rows) + np.abs(columns[:, None] - danger_columns)
    nearest: NDArray[np.int64] = apart.min(axis=1).astype(np.int64)
    return nearest


def trigger_cells(intervention: Intervention) -> NDArray[np.bool_]:
    """Cells whose entry triggers the intervention: near danger and free, so neither start, goal nor danger. (S,)."""
    near = danger_distance() <= intervention.distance
    near[[START, *ENDS]] = False
    return near
