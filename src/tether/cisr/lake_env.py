"""The lake as a Gymnasium environment with a teacher in it, and its Lagrangian form r − λ·g for the student."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from tether.cisr.dynamics import CISR_INTENDED, TIME_OUT, Picture, is_end, pictures, reward_of, successors
from tether.cisr.interventions import NONE, Intervention, trigger_cells
from tether.errors import InputError
from tether.records import Array
from tether.world.lake_map import ACTIONS, DANGER, GOAL, START

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
        if is_end(self.cell):
            raise InputError(f"The episode ended in cell {self.cell}: reset before the next step.")
        entered = self._next[self.cell][int(action)].at(self.np_random.random())
        intervened = self._triggers[entered]
        put_back = intervened and self.intervention.reaction == "put back"
        if not put_back:
            self.cell = entered
        self._steps += 1
        terminated = is_end(entered) or (intervened and not put_back)
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
