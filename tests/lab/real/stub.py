"""A real world that needs no package: a valve whose opening a costs 0.2 + 0.6 a and earns a; τ = 0.5, so a <= 1/2."""

import gymnasium
import numpy as np

from tether import Constraint
from tether.lab.real import RealWorld

HORIZON = 4


class Valve(gymnasium.Env):
    """Remembers how it was reset and what was played."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float64)

    def __init__(self):
        self.seeds, self.told = [], {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        return self.np_random.uniform(-1.0, 1.0, 1), {}

    def step(self, action):
        opening = float(np.asarray(action).reshape(-1)[0])
        info = {"cost": np.array([0.2 + 0.6 * opening]), "signals": (100.0 * opening,), **self.told}
        return self.np_random.uniform(-1.0, 1.0, 1), opening, False, False, info


LIMIT = Constraint(threshold=0.5, noise=0.01, gamma_norm=2.0)


def declare(cell):
    """Set up in one line."""
    return {"features": lambda o, a: [0.5, 0.5 * a[0]], "safe_action": [0.0], "constraints": [LIMIT]}


STUB = RealWorld(
    name="valve",
    title="Valve",
    needs={"numpy": "numpy"},
    cells=("left", "right"),
    horizon=HORIZON,
    episodes=8,
    make_env=lambda cell, seed: Valve(),
    declare=declare,
    learning={"stationary": True},
    setup=(declare,),
    truth="it is ours",
    gain="litres",
    reward_scale=10.0,
    signals=(("opening", "%"),),
    limits=(None, 50.0),
)
