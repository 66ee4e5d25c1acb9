"""A small driving task: the brake is safe wherever braking leads, and not wherever throttle leads."""

import gymnasium
import numpy as np
from gymnasium import spaces

BRAKE = 0.5
"""Speed that the brake takes away in one step."""


class Driving(gymnasium.Env):
    """A car before a wall. A step costs 0.1, throttle up to 0.2 more, and 0.8 more once it can no longer stop in time.

    `room` is the distance at first. Speed is what is paid for. With enough room, braking suffices wherever it gets.
    """

    def __init__(self, room=6.0):
        self.observation_space = spaces.Box(0.0, 1000.0, (2,), np.float64)
        self.action_space, self.room = spaces.Box(0.0, 1.0, (1,), np.float64), room

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.distance, self.speed = self.room, 1.0
        return np.array([self.distance, self.speed]), {}

    def step(self, action):
        throttle = float(action[0])
        self.speed = max(self.speed + 2.0 * BRAKE * throttle - BRAKE * (1.0 - throttle), 0.0)
        self.distance = max(self.distance - self.speed, 0.0)
        too_late = self.speed > 0.0 and self.distance < self.speed * (self.speed - BRAKE) / (2.0 * BRAKE)
        cost = 0.1 + 0.2 * throttle + 0.8 * too_late + 0.02 * self.np_random.standard_normal()
        observation = np.array([self.distance, self.speed])
        return observation, min(self.speed / 5.0, 1.0), False, False, {"cost": cost}


DRIVING = {
    "features": lambda place, throttle: np.array([0.7, 0.7 * float(throttle[0])]), "safe_action": [0.0],
    "threshold": 0.5, "noise": 0.02, "baseline_cost": 0.1, "gamma_norm": 1.0, "horizon": 12,
}  # fmt: skip
