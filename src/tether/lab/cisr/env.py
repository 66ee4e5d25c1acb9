"""The lake as CISR plays it: sampled moves, rewards, and the pictures that the student sees."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.lab.worlds.lake import ACTIONS, CELLS, DANGER, ENDS, GOAL, SIZE, START, transition_law
from tether.records import Array

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


# When the teacher steps in and what it does: SR1, SR2 and HR of CISR, and no teacher at all.

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


# The lake as a Gymnasium environment with a teacher in it, and its Lagrangian form r − λ·g for the student.

Observation = NDArray[np.float32]


class LakeEnv(gym.Env[Observation, np.int64]):
    """The 10 × 10 lake with CISR's rewards, a time-out, and a teacher that may step in.

    `info` says what happened: the cell `entered`, whether it was `danger` or `goal`, whether the teacher `intervened`.
    """

    def __init__(
        self, intended: float = CISR_INTENDED, intervention: Intervention = NONE, picture: Picture = "map"
    ) -> None:
        self._next = successors(intended)
        self._pictures = pictures(picture)
        self._triggers = trigger_cells(intervention).tolist()
        self.intervention = intervention
        self.cell = START
        self._steps = 0
        self.observation_space = gym.spaces.Box(0.0, 1.0, self._pictures.shape[1:], np.float32)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Back to the start."""
        super().reset(seed=seed)
        self.cell, self._steps = START, 0
        return self._pictures[START].copy(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move, slip, and let the teacher react to the cell that was entered."""
        if self.cell in ENDS:
            raise InputError(f"The episode ended in cell {self.cell}: reset before the next step.")
        entered = self._next[self.cell][int(action)].at(self.np_random.random())
        intervened = self._triggers[entered]
        put_back = intervened and self.intervention.reaction == "put back"
        if not put_back:
            self.cell = entered
        self._steps += 1
        terminated = entered in ENDS or (intervened and not put_back)
        info = {"entered": entered, "danger": entered in DANGER, "goal": entered == GOAL, "intervened": intervened}
        return self._pictures[self.cell].copy(), reward_of(entered), terminated, self._steps >= TIME_OUT, info


class Episode(NamedTuple):
    """One ended training episode: its return, and the two means minus their limits (2,)."""

    earned: float
    violation: Array


class LagrangianLake(gym.Wrapper[Observation, np.int64, Observation, np.int64]):
    """Pay r − λ·g, where g sums over an episode to (mean of 1{danger} − 0, mean of 1{intervened} − limit).

    Each step pays the change of the running means, as the authors' solver does. A time-out is reported as an ordinary
    end, because their solver knew no other. `episodes` keeps what ended since it was last emptied; `failures` and
    `interventions` count every danger entry and every reaction of the teacher.
    """

    def __init__(self, env: LakeEnv, multipliers: Array) -> None:
        super().__init__(env)
        self.multipliers = multipliers
        self._limits = np.array([0.0, env.intervention.limit])
        self.episodes: list[Episode] = []
        self.failures = self.interventions = 0
        self._begin()

    def _begin(self) -> None:
        self._counts, self._violation = np.zeros(2), np.zeros(2)
        self._length, self._return = 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; one that did not end is forgotten, its danger entries are not."""
        self._begin()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step with the multipliers' price in the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        happened = (float(info["danger"]), float(info["intervened"]))
        self.failures += int(happened[0])
        self.interventions += int(happened[1])
        self._counts += happened
        self._length += 1
        self._return += float(reward)
        violation = self._counts / self._length - self._limits
        price = float(self.multipliers @ (violation - self._violation))
        self._violation = violation
        ended = terminated or truncated
        if ended:
            self.episodes.append(Episode(self._return, violation))
        return observation, float(reward) - price, ended, False, info
