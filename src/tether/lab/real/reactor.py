"""Reactor: the concentration in a stirred tank of pc-gym (Imperial College London) follows a set point, not too hot.

Its model `cstr` as it is: an exothermic reaction that a jacket cools, 0.26 min a step. The tank must stay between 319
and 327 K at every step; the coolant is set to 295-302 K. Set points and starts are drawn by the seed. The next
temperature is close to quadratic in temperature, concentration and coolant: what is left is declared as a misfit.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tether.assumptions.misfit import Misfit
from tether.lab.real import RealWorld
from tether.problem.constraint import Constraint
from tether.problem.names import Names
from tether.records import Array

HORIZON, EPISODES = 50, 12
COLD, HOT = 319.0, 327.0
"""Limits of the tank's temperature, K."""
COOLANT = (295.0, 302.0)


class Reactor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment with starts and set points of the seed, and both limits of the temperature as costs."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(*COOLANT, (1,), np.float64)
        self.observation_space = spaces.Box(0.0, 500.0, (3,), np.float64)
        self.tank: Any = env
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """A start near a_0's steady state; half-way the set point changes."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        first, second = self._rng.uniform(0.855, 0.9, 2)
        start = [self._rng.uniform(0.88, 0.905), self._rng.uniform(320.5, 323.0), first]
        self.tank.SP = {"Ca": [first] * (HORIZON // 2 + 1) + [second] * (HORIZON // 2 + 1)}
        self.tank.env_params["x0"] = np.array(start)
        answer, info = self.env.reset()
        return np.array(answer, dtype=np.float64), dict(info)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """A quarter of a minute."""
        answer, reward, *_ = self.env.step(np.asarray(action, dtype=np.float64))
        seen = np.array(answer, dtype=np.float64)
        seen[2] = self.tank.SP["Ca"][self.tank.t]  # the package shows the set point of the step before
        share = (seen[1] - (COLD + HOT) / 2.0) / ((HOT - COLD) / 2.0)
        told = {"cost": np.array([share, -share]), "signals": (seen[1], seen[0], seen[2])}
        return seen, float(reward), False, self.tank.t >= HORIZON, told


def make_env(cell: str, seed: int) -> Reactor:
    """The package's reactor, in its own units."""
    import casadi
    import pcgym

    casadi.GlobalOptions.setNumpyMode(-1)  # as the package expects it
    parameters = {
        "model": "cstr",
        "N": HORIZON + 2,
        "tsim": 0.26 * (HORIZON + 2),
        "x0": np.array([0.9, 321.7, 0.9]),
        "SP": {"Ca": [0.9] * (HORIZON + 2)},
        "r_scale": {"Ca": 1e3},
        "a_space": {"low": np.array([COOLANT[0]]), "high": np.array([COOLANT[1]])},
        "o_space": {"low": np.array([0.7, 300.0, 0.8]), "high": np.array([1.0, 350.0, 0.9])},
        "normalise_a": False,
        "normalise_o": False,
    }
    return Reactor(pcgym.make_env(parameters))


def features(observation: Array, coolant: Array) -> Array:
    """Products of concentration, temperature, set point and coolant: (15,), norm at most 1 where it is played."""
    near = (observation - [0.88, 323.0, 0.88]) / [0.04, 4.0, 0.025]
    x = np.array([1.0, *np.clip(near, -1.2, 1.2), (coolant[0] - 298.5) / 3.5])
    return np.outer(x, x)[np.triu_indices(5)] / 6.4


def coolants(observation: Array) -> list[Array]:
    """The safe coolant, and 28 more in steps of a quarter of a degree."""
    return [safe_coolant(observation), *np.linspace(*COOLANT, 29)[:, None]]


def safe_coolant(observation: Array) -> Array:
    """A proportional controller that keeps the tank at 321.7 K."""
    return np.array([min(max(298.2 - 2.0 * (observation[1] - 321.7), COOLANT[0]), COOLANT[1])])


def declare(cell: str) -> dict[str, Any]:
    """What is known: the limits, a thermometer good to 0.01 K, and that quadratics miss 0.02 K at most."""
    return {
        "features": features,
        "actions": coolants,
        "safe_action": safe_coolant,
        "constraints": [Constraint(threshold=1.0, noise=0.01 / 4.0, gamma_norm=10.0, relax=[Misfit(0.02 / 4.0)])] * 2,
        "reward_range": (-2.5, 0.0),
        "names": Names(constraints=["heat", "cold"], cost_units=["of 4 K from 323 K"] * 2),
    }


WORLD = RealWorld(
    name="reactor",
    title="Reactor (pc-gym)",
    needs={"pcgym": "pcgym==0.1.8", "casadi": "casadi", "jax": "jax", "diffrax": "diffrax", "do_mpc": "do-mpc"},
    cells=("cstr",),
    horizon=HORIZON,
    episodes=EPISODES,
    make_env=make_env,
    declare=declare,
    learning={"stationary": True},
    setup=(features, coolants, safe_coolant, declare),
    truth="the simulator is deterministic, and sensors are exact",
    gain="squared error of the set point (10⁻³) avoided per step",
    reward_scale=1.0 / HORIZON,
    signals=(("temperature", "K"), ("concentration", ""), ("set point", "")),
    limits=(COLD, HOT),
)
