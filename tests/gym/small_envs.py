"""Gymnasium environments small enough to know everything about."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Shop(gymnasium.Env):
    """Two states that alternate, three actions. Action a in state s pays PAY[s, a] and costs COST[s, a] plus noise.

    `style` is where the cost is reported: "info", "six" values, or "nowhere".
    """

    PAY = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.8]])
    COST = np.array([[0.1, 0.3, 0.9], [0.2, 0.35, 0.7]])

    def __init__(self, style="info", noise=0.02, name="cost"):
        self.observation_space, self.action_space = spaces.Discrete(2), spaces.Discrete(3)
        self.style, self.noise, self.name = style, noise, name

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(2)), 0
        return self.state, {"action_mask": self.mask()}

    def mask(self):
        return np.array([1, 1, self.state], dtype=np.int8)  # action 2 only in state 1

    def step(self, action):
        reward = float(self.PAY[self.state, action])
        cost = float(self.COST[self.state, action] + self.noise * self.np_random.standard_normal())
        self.state, self.steps = 1 - self.state, self.steps + 1
        info = {"action_mask": self.mask()}
        if self.style == "six":
            return self.state, reward, cost, False, False, info
        if self.style == "info":
            info[self.name] = cost
        return self.state, reward, False, False, info


def shop_features(state, action):
    """Two numbers that COST is linear in. The safe actions of both states span R², so a_0 teaches about the others."""
    return np.array([Shop.COST[state, action], 0.1])


class Quit(gymnasium.Env):
    """Each step pays -1; action 1 ends the episode. The best return is -1, the worst -H."""

    def __init__(self, truncates_after=None):
        self.observation_space, self.action_space = spaces.Discrete(1), spaces.Discrete(2)
        self.truncates_after = truncates_after

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, -1.0, action == 1, self.steps == self.truncates_after, {"cost": 0.1 + 0.2 * action}


class Valve(gymnasium.Env):
    """A Box of two openings in [-1, 1] x [0, 4]; cost 0.2 + slopes · distance along each axis; reward for opening."""

    def __init__(self, dtype=np.float32):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.action_space = spaces.Box(np.array([-1.0, 0.0], dtype), np.array([1.0, 4.0], dtype), dtype=dtype)
        self.played = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1.0, 1.0, 2)
        return self.place, {}

    def step(self, action):
        self.played.append(action.copy())
        self.place[:] = self.np_random.uniform(-1.0, 1.0, 2)  # the same array each time
        cost = self.expected(action) + 0.02 * self.np_random.standard_normal()
        return self.place, float(action[1]) / 4.0, False, False, {"cost": cost}

    @staticmethod
    def expected(action):
        """0.2 at (0, 1); each direction has its own slope."""
        x, y = float(action[0]), float(action[1]) - 1.0
        return 0.2 + 0.5 * max(x, 0) + 0.1 * max(-x, 0) + 0.2 * max(y, 0) + 0.05 * max(-y, 0)
