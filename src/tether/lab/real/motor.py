"""Motor: the current of a DC motor of gym-electric-motor (Paderborn University) follows a reference, and must not trip.

`Cont-CC-PermExDc-v0`, its physics, reference and limit as they are: 60 V supply, 210 A limit at which the package ends
the episode, a step of 0.1 ms. Reward: its own weighted error, squared. The next current is linear in current and
voltage, by coefficients (resistance, inductance, flux) that the learner is not told. In the twin the winding is another
one from half-way on.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tether.lab.real import RealWorld
from tether.problem.constraint import Constraint
from tether.problem.names import Names
from tether.records import Array

HORIZON, EPISODES = 20, 30
REWOUND = {"r_a": 32e-3, "l_a": 9.5e-6}
"""The twin's winding from half-way on: twice the resistance and half the inductance of the package's motor."""
SPEED_VOLTAGE = 0.275
"""The back-EMF at 100 rad/s as a share of the supply, from the data sheet: the voltage at which the current decays."""
REACH = 0.3
"""How far a voltage may lie from that one, for every method."""


class Motor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment with a flat observation (current, reference), voltages within REACH of the safe one, and both
    directions of the current as costs."""

    def __init__(self, env: Any, rewound_after: int | None = None) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-1.5, 1.5, (2,), np.float64)
        self.action_space = spaces.Box(SPEED_VOLTAGE - REACH, SPEED_VOLTAGE + REACH, (1,), np.float64)
        self._left = rewound_after

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """The first current and reference."""
        answer, info = self.env.reset(seed=seed, options=options)
        return self._flat(answer), info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One tenth of a millisecond."""
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._rewind()
        answer, reward, terminated, truncated, info = self.env.step(action)
        seen = self._flat(answer)
        told = {"cost": np.array([seen[0], -seen[0]]), "signals": (210.0 * seen[0], 210.0 * seen[1])}
        return seen, float(reward), bool(terminated), bool(truncated), {**info, **told}

    def _flat(self, answer: Any) -> Array:
        state, reference = answer
        return np.array([state[2], reference[0]])

    def _rewind(self) -> None:
        """Another winding, in the package's own parameters and model matrix."""
        unwrapped: Any = self.env.unwrapped
        motor = unwrapped.physical_system.electrical_motor
        motor._motor_parameter = {**motor.motor_parameter, **REWOUND}
        motor._update_model()


def make_env(cell: str, seed: int) -> Motor:
    """The package's environment with its reward squared; the twin's winding changes half-way."""
    import gym_electric_motor
    from gym_electric_motor.reward_functions import WeightedSumOfErrors

    squared = WeightedSumOfErrors(reward_weights={"i": 1.0}, reward_power=2)
    env = gym_electric_motor.make("Cont-CC-PermExDc-v0", reward_function=squared)
    return Motor(env, HORIZON * EPISODES // 2 if cell == "re-wound" else None)


def features(observation: Array, voltage: Array) -> Array:
    """Current, reference and voltage, linear for the cost and squared for the reward: (10,), norm at most 1."""
    x = np.array([1.0, observation[0], observation[1], 2.0 * (voltage[0] - SPEED_VOLTAGE)])
    return np.outer(x, x)[np.triu_indices(4)] / 4.0


def voltages(observation: Array) -> list[Array]:
    """31 voltages around the safe one."""
    return [np.array([SPEED_VOLTAGE + share]) for share in np.linspace(-REACH, REACH, 31)]


def declare(cell: str) -> dict[str, Any]:
    """What is known: the limit of 210 A both ways, a sensor good to 1 A, and a voltage that lets the current decay."""
    return {
        "features": features,
        "actions": voltages,
        "safe_action": np.array([SPEED_VOLTAGE]),
        "constraints": [Constraint(threshold=1.0, noise=0.005, gamma_norm=8.0)] * 2,
        "reward_range": (-0.5, 0.0),
        "names": Names(constraints=["current", "reverse current"], cost_units=["of 210 A"] * 2),
    }


WORLD = RealWorld(
    name="motor",
    title="Motor (gym-electric-motor)",
    needs={"gym_electric_motor": "gym-electric-motor==3.0.3"},
    cells=("as delivered",),
    horizon=HORIZON,
    episodes=EPISODES,
    make_env=make_env,
    declare=declare,
    learning={"stationary": True},
    setup=(features, voltages, declare),
    truth="the simulator is deterministic, and sensors are exact",
    gain="squared error (% of the range) avoided per step",
    reward_scale=100.0 / HORIZON,
    signals=(("current", "A"), ("reference", "A")),
    limits=(-210.0, 210.0),
)
