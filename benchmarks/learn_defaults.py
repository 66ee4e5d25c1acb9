"""Which value radius and ridge should `learn` take by itself? Gains over a_0 on other people's environments.

    python benchmarks/learn_defaults.py [--seeds 3] [--only pendulum-20] [--rule unseen-1e-06]

One line per environment and rule: `result.comparison.gain` of each seed, and "LOSES" where the interval of some seed
lies below 0, "gains" where that of some seed lies above it and none below. Costs are simple and of our own.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformReward

from tether import Bridge, SlucbConfig, learn
from tether.features import Constant, Polynomial, Reading, concatenate

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def pendulum(horizon: int) -> tuple[Bridge, dict[str, Any]]:
    """Keep it upright with a limited torque; a_0 lets it fall."""
    rng = np.random.default_rng(1)

    def state(obs: Any) -> tuple[float, float]:
        return np.arctan2(obs[1], obs[0]), obs[2]

    near_upright = Polynomial(low=[-0.8, -3.0], high=[0.8, 3.0], degree=2, outside="clip")
    bridge = Bridge(
        gymnasium.make("Pendulum-v1"),
        features=concatenate(Constant(), Reading(state, near_upright), weights=(1.0, 0.3)),
        safe_action=[0.0],
        threshold=0.6,
        cost=lambda obs, torque, following, info: 0.2 + 0.3 * abs(float(torque[0])) + rng.normal(0.0, 0.05),
        noise=0.05,
        baseline_cost=0.2,
        gamma_norm=2.0,
        reward_range=(-16.3, 0.0),
        reset_options={"x_init": 0.2, "y_init": 0.2},
        horizon=horizon,
    )
    return bridge, {"episodes": 100, "stationary": True}


def cart_pole() -> tuple[Bridge, dict[str, Any]]:
    """Two pushes; a_0 always pushes to one side, and falls. Each push has a cost of its own."""
    rng = np.random.default_rng(1)

    def features(obs: Any, push: int) -> Any:
        x = np.concatenate([[1.0], np.clip(obs / [2.4, 3.0, 0.21, 3.0], -1.0, 1.0)])
        return np.concatenate([x * (push == 0), x * (push == 1)]) / 5**0.5

    bridge = Bridge(
        gymnasium.make("CartPole-v1"),
        features=features,
        safe_action=0,
        threshold=1.2,
        cost=lambda obs, push, following, info: 0.2 + 0.2 * push + rng.normal(0.0, 0.02),
        noise=0.02,
        gamma_norm=1.5,
        horizon=50,
    )
    return bridge, {"episodes": 60, "stationary": True}


def mountain_car() -> tuple[Bridge, dict[str, Any]]:
    """Continuous; a_0 idles and pays nothing: hard to gain, easy to lose."""
    rng = np.random.default_rng(1)

    def state(obs: Any) -> tuple[float, float]:
        return float(obs[0]), float(obs[1])

    road = Polynomial(low=[-1.2, -0.07], high=[0.6, 0.07], degree=2, outside="clip")
    bridge = Bridge(
        gymnasium.make("MountainCarContinuous-v0"),
        features=concatenate(Constant(), Reading(state, road), weights=(1.0, 0.3)),
        safe_action=[0.0],
        threshold=0.9,
        cost=lambda obs, force, following, info: 0.1 + 0.5 * abs(float(force[0])) + rng.normal(0.0, 0.05),
        noise=0.05,
        baseline_cost=0.1,
        gamma_norm=2.0,
        reward_range=(-0.1, 100.0),
        horizon=100,
    )
    return bridge, {"episodes": 40, "stationary": True}


def frozen_lake() -> tuple[Bridge, dict[str, Any]]:
    """The example's lake."""
    env = gymnasium.make("FrozenLake-v1", success_rate=0.8)
    law = np.zeros((16, 4, 16))
    for state, row in env.unwrapped.P.items():
        for action, outcomes in row.items():
            for probability, landing, *_ in outcomes:
                law[state, action, landing] += probability
    holes = np.array([5, 7, 11, 12])
    risk = law[:, :, holes].sum(axis=2)
    safe = (risk + 1e-6 * np.array([1, 3, 2, 0])).argmin(axis=1)
    bridge = Bridge(
        env,
        features=lambda state, action: law[state, action],
        safe_action=lambda state: int(safe[state]),
        threshold=0.25,
        cost=lambda state, action, landing, info: float(landing in holes),
        baseline_cost=lambda step, state: risk[state, safe[state]],
        gamma_norm=2.0,
        horizon=40,
    )
    return bridge, {"episodes": 200, "mixtures": True, "stationary": True}


def cliff_walking() -> tuple[Bridge, dict[str, Any]]:
    """The example's cliff."""
    rng = np.random.default_rng(1)
    wind = np.repeat([0.05, 0.15, 0.45, 1.0], 12)
    wind[[24, 35, 36, 47]] = 0.1

    def leads_to(cell: int, move: int) -> int:
        row, column = cell // 12 + MOVES[move][0], cell % 12 + MOVES[move][1]
        return 12 * min(max(row, 0), 3) + min(max(column, 0), 11)

    bridge = Bridge(
        TransformReward(gymnasium.make("CliffWalking-v1"), lambda reward: max(reward, -1.0)),
        features=lambda cell, move: np.eye(48)[leads_to(cell, move)],
        safe_action=0,
        threshold=0.3,
        cost=lambda cell, move, landing, info: wind[leads_to(cell, move)] + rng.normal(0.0, 0.05),
        noise=0.05,
        baseline_cost=lambda step, cell: wind[leads_to(cell, 0)],
        gamma_norm=4.0,
        reward_range=(-1.0, 0.0),
        horizon=30,
    )
    return bridge, {"episodes": 200, "mixtures": True, "stationary": True}


class SameFare(gymnasium.Wrapper):
    """Every episode begins alike."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """The fare of the example."""
        return self.env.reset(seed=415, options=options)


def taxi() -> tuple[Bridge, dict[str, Any]]:
    """The example's taxi."""
    rng, env = np.random.default_rng(1), SameFare(gymnasium.make("Taxi-v4"))
    cab = env.unwrapped
    complaints = np.full(51, 0.1)
    complaints[[13, 38]], complaints[[11, 36]] = 0.6, 0.25

    def leads_to(state: int, action: int) -> int:
        ((_, following, _, delivered),) = cab.P[state][action]
        row, column, passenger, _ = cab.decode(following)
        return 50 if delivered else 25 * (passenger == 4) + 5 * row + column

    def up_and_down(state: int) -> int:
        return (0, 1, 1, 0, 1)[cab.decode(state)[0]]

    bridge = Bridge(
        env,
        features=lambda state, action: np.eye(51)[leads_to(state, action)],
        safe_action=up_and_down,
        mask="action_mask",
        threshold=0.3,
        cost=lambda state, action, following, info: complaints[leads_to(state, action)] + rng.normal(0.0, 0.05),
        noise=0.05,
        baseline_cost=lambda step, state: complaints[leads_to(state, up_and_down(state))],
        gamma_norm=3.0,
        reward_range=(-1.0, 20.0),
        horizon=40,
    )
    return bridge, {"episodes": 200, "mixtures": True, "stationary": True}


def blackjack() -> tuple[Bridge, dict[str, Any]]:
    """Hit or stick, told apart by the player's sum; a_0 sticks. The cost is a bust, and rewards are ±1 by luck."""

    def features(hand: Any, hit: int) -> Any:
        total, dealer, ace = hand
        x = np.zeros(24)
        x[2 * min(max(total - 11, 0), 10) + int(hit)] = 0.9
        x[22] = 0.3 * (dealer - 5.5) / 5.5
        x[23] = 0.3 * ace * hit
        return x

    bridge = Bridge(
        gymnasium.make("Blackjack-v1"),
        features=features,
        safe_action=0,
        threshold=0.6,
        cost=lambda hand, hit, following, info: float(bool(hit) and following[0] > 21),
        baseline_cost=0.0,
        gamma_norm=2.0,
        reward_range=(-1.0, 1.0),
        horizon=5,
    )
    return bridge, {"episodes": 1000, "mixtures": True, "stationary": True, "compare": 1000}


def real(name: str) -> tuple[Bridge, dict[str, Any]]:
    """One of the study's real worlds."""
    from tether.lab.real import find_world

    world = find_world(name)
    cell = world.cells[0]
    bridge = Bridge(world.make_env(cell, 0), horizon=world.horizon, **world.declare(cell))
    return bridge, {"episodes": 60, **world.learning}


ENVIRONMENTS: dict[str, Callable[[], tuple[Bridge, dict[str, Any]]]] = {
    "pendulum-10": lambda: pendulum(10),
    "pendulum-20": lambda: pendulum(20),
    "cart-pole": cart_pole,
    "mountain-car": mountain_car,
    "frozen-lake": frozen_lake,
    "cliff-walking": cliff_walking,
    "taxi": taxi,
    "blackjack": blackjack,
}
for _name, _module in (("motor", "gym_electric_motor"), ("reactor", "pcgym")):
    if find_spec(_module):
        ENVIRONMENTS[_name] = lambda name=_name: real(name)

RULES: dict[str, SlucbConfig | None] = {"learn's own": None, "remaining-1": SlucbConfig()}
RULES |= {
    f"unseen-{ridge:g}": SlucbConfig(value_radius="unseen", value_ridge=ridge) for ridge in (1e-2, 1e-4, 1e-6, 1e-8)
}


def main() -> None:
    """Print one line per environment and rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(ENVIRONMENTS))
    parser.add_argument("--rule", nargs="*", default=list(RULES))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.only:
        for rule in asked.rule:
            began, gains, worst, best, last = time.monotonic(), [], np.inf, -np.inf, []
            for seed in range(asked.seeds):
                bridge, options = ENVIRONMENTS[name]()
                config = RULES[rule]
                result = learn(bridge, seed=seed, config=config, progress=False, **{"compare": 50, **options})
                made = result.comparison
                low, high = (0.0, 0.0) if made is None else made.interval
                gains.append(0.0 if made is None else made.gain)
                worst, best = min(worst, high), max(best, low)
                last.append(float(result.returns[-20:].mean()))
            verdict = "LOSES" if worst < 0.0 else "gains" if best > 0.0 else "even"
            shown = ", ".join(f"{gain:+.3g}" for gain in gains)
            seconds = (time.monotonic() - began) / asked.seeds
            print(
                f"{name:14} {rule:14} {verdict:6} gain {shown}; last {np.mean(last):.3g}; {seconds:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
