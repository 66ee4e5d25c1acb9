"""Which value radius and ridge should `learn` take by itself? Gains over a_0 on other people's environments.

    python benchmarks/learn_defaults.py [--seeds 3] [--only pendulum-20 taxi] [--rule unseen-1e-06]
    python benchmarks/learn_defaults.py --only held-out    environments that the default was not chosen on

One line per environment and rule: `result.comparison.gain` of each seed, with "LOSES" where its interval lies below 0
and "gains" where it lies above. Costs are simple and of our own. What needs packages of requirements-real.txt is left
out, and named, where they are missing.
"""

import argparse
import json
import runpy
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from continuous import cart_pole as pole_with_controller
from gymnasium import spaces

import tether
from tether import Bounded, Bridge, Constraint, Run, SlucbConfig, learn
from tether.features import Constant, Polynomial, Reading, concatenate
from tether.lab.real import find_world, motor

Setup = tuple[Bridge, dict[str, Any]]
LISTED = {"limit_on": "average over draws", "stationary": True}


class Reached(Exception):
    """An example has called `learn`."""


def example(name: str, **changes: Any) -> Setup:
    """What an example declares, without its own settings of exploration; `changes` are Bridge's."""

    def reached(bridge: Bridge, **options: Any) -> None:
        raise Reached(bridge, options)

    tether.learn = reached  # type: ignore[assignment]
    try:
        runpy.run_path(str(Path(__file__).parents[1] / "examples" / f"{name}.py"))
    except Reached as found:
        bridge, options = found.args
        kept = {key: options[key] for key in ("episodes", "limit_on", "stationary") if key in options}
        return replace(bridge, **changes), kept
    finally:
        tether.learn = learn
    raise SystemExit(f"{name} does not call learn")


def real(name: str) -> Setup:
    """The first variant of one of the study's real worlds."""
    world = find_world(name)
    cell = world.cells[0]
    bridge = Bridge(world.make_env(cell, 0), horizon=world.horizon, **world.declare(cell))
    return bridge, {"episodes": max(60, world.episodes), **world.learning}


def noisy(mean: Callable[..., float]) -> Callable[..., float]:
    """A cost with noise of σ = 0.05."""
    rng = np.random.default_rng(1)
    return lambda *step: mean(*step) + rng.normal(0.0, 0.05)


def cart_pole() -> Setup:
    """Two pushes; a_0 always pushes to one side, and falls. Each push has a cost of its own."""
    rng = np.random.default_rng(1)

    def features(obs: Any, push: int) -> Any:
        x = np.concatenate([[1.0], np.clip(obs / [2.4, 3.0, 0.21, 3.0], -1.0, 1.0)])
        return np.concatenate([x * (push == 0), x * (push == 1)]) / 5**0.5

    bridge = Bridge(
        gymnasium.make("CartPole-v1"),
        features=features,
        safe_action=0,
        constraints=Constraint(
            threshold=1.2,
            noise=0.02,
            gamma_norm=1.5,
            cost=lambda obs, push, following, info: 0.2 + 0.2 * push + rng.normal(0.0, 0.02),
        ),
        horizon=50,
    )
    return bridge, {"episodes": 60, "stationary": True}


def mountain_car() -> Setup:
    """Continuous; a_0 idles and pays nothing: hard to gain, easy to lose."""
    rng = np.random.default_rng(1)

    def state(obs: Any) -> tuple[float, float]:
        return float(obs[0]), float(obs[1])

    road = Polynomial(low=[-1.2, -0.07], high=[0.6, 0.07], degree=2, outside="clip")
    bridge = Bridge(
        gymnasium.make("MountainCarContinuous-v0"),
        features=concatenate(Constant(), Reading(state, road), weights=(1.0, 0.3)),
        safe_action=[0.0],
        constraints=Constraint(
            threshold=0.9,
            noise=0.05,
            safe_cost=0.1,
            gamma_norm=2.0,
            cost=lambda obs, force, following, info: 0.1 + 0.5 * abs(float(force[0])) + rng.normal(0.0, 0.05),
        ),
        reward_range=(-0.1, 100.0),
        horizon=100,
    )
    return bridge, {"episodes": 40, "stationary": True}


def blackjack() -> Setup:
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
        constraints=Constraint(
            threshold=0.6,
            noise=Bounded("radius"),
            safe_cost=0.0,
            gamma_norm=2.0,
            cost=lambda hand, hit, following, info: float(bool(hit) and following[0] > 21),
        ),
        reward_range=(-1.0, 1.0),
        horizon=5,
    )
    return bridge, {"episodes": 1000, "limit_on": "average over draws", "stationary": True, "compare": 1000}


def minigrid() -> Setup:
    """MiniGrid-Empty-6x6: turn or go on, and not into three crowded cells before the goal. a_0 turns on the spot."""
    import minigrid

    minigrid.register_minigrid_envs()
    crowd = np.full(17, 0.1)  # what it costs to go into a cell, and last to turn
    crowd[[1, 5, 9]] = 0.6
    ahead = ((1, 0), (0, 1), (-1, 0), (0, -1))

    class Place(gymnasium.ObservationWrapper):
        """Four times the cell, and the direction."""

        observation_space = spaces.Discrete(64)

        def observation(self, seen: Any) -> int:
            (x, y), facing = self.unwrapped.agent_pos, self.unwrapped.agent_dir
            return int(16 * (y - 1) + 4 * (x - 1) + facing)

    def leads_to(place: int, move: int) -> tuple[int, int]:
        cell, facing = divmod(place, 4)
        if move < 2:
            return cell, (facing + 2 * move - 1) % 4
        x, y = (min(max(at + by, 0), 3) for at, by in zip((cell % 4, cell // 4), ahead[facing], strict=True))
        return 4 * y + x, facing

    def features(place: int, move: int) -> Any:
        cell, facing = leads_to(place, move)
        return np.concatenate([0.95 * np.eye(17)[entered(place, move)], 0.3 * np.eye(64)[4 * cell + facing]])

    def entered(place: int, move: int) -> int:
        return leads_to(place, move)[0] if move == 2 else 16

    bridge = Bridge(
        Place(gymnasium.make("MiniGrid-Empty-6x6-v0")),
        features=features,
        actions=[0, 1, 2],
        safe_action=0,
        constraints=Constraint(
            threshold=0.3,
            noise=0.05,
            safe_cost=0.1,
            gamma_norm=2.0,
            cost=noisy(lambda place, move, following, info: crowd[entered(place, move)]),
        ),
        horizon=40,
    )
    return bridge, {"episodes": 200, **LISTED}


# Held out: set up after the default was chosen, and not used to choose it. In most a_0 is good: much can be lost.


def pole() -> Setup:
    """CartPole with a controller as a_0."""
    return pole_with_controller(100), {"episodes": 60, "stationary": True}


def hill() -> Setup:
    """MountainCar-v0, three pushes; a_0 pushes along the speed, which arrives after about 120 steps."""
    road = Polynomial(low=[-1.2, -0.07], high=[0.6, 0.07], degree=2, outside="clip")
    return swing("MountainCar-v0", road, lambda seen: 2 if seen[1] >= 0.0 else 0, 150)


def acrobot() -> Setup:
    """Acrobot-v1, three torques; a_0 pushes against the first joint's speed, which swings it up."""
    far = [1.0, 1.0, 1.0, 1.0, 12.0, 28.0]
    links = Polynomial(low=[-x for x in far], high=far, degree=1, outside="clip")
    return swing("Acrobot-v1", links, lambda seen: 0 if seen[4] >= 0.0 else 2, 150)


def swing(name: str, state: Polynomial, safe: Callable[[Any], int], horizon: int) -> Setup:
    """Three actions around "none"; each unit of force costs 0.2, and every step until the end a reward of -1."""
    cost = lambda push: 0.1 + 0.2 * abs(int(push) - 1)  # noqa: E731
    bridge = Bridge(
        gymnasium.make(name),
        features=concatenate(Constant(), state, weights=(1.0, 0.3)),
        safe_action=safe,
        constraints=Constraint(
            threshold=0.5,
            noise=0.05,
            safe_cost=lambda step, seen: cost(safe(seen)),
            gamma_norm=2.0,
            cost=noisy(lambda seen, push, following, info: cost(push)),
        ),
        reward_range=(-1.0, 0.0),
        horizon=horizon,
    )
    return bridge, {"episodes": 30, **LISTED}


def large_lake() -> Setup:
    """FrozenLake's map of 8 x 8; a_0 is the least risky move, of several the last."""
    env: Any = gymnasium.make("FrozenLake-v1", map_name="8x8", success_rate=0.8)
    law = np.zeros((64, 4, 64))
    for state, row in env.unwrapped.P.items():
        for action, outcomes in row.items():
            for probability, landing, *_ in outcomes:
                law[state, action, landing] += probability
    hole = (env.unwrapped.desc == b"H").ravel()
    risk = law @ hole
    safe = 3 - risk[:, ::-1].argmin(axis=1)
    bridge = Bridge(
        env,
        features=lambda state, action: law[state, action],
        safe_action=lambda state: int(safe[state]),
        constraints=Constraint(
            threshold=0.25,
            noise=Bounded("radius"),
            safe_cost=lambda step, state: risk[state, safe[state]],
            gamma_norm=4.0,
            cost=lambda state, action, landing, info: float(hole[landing]),
        ),
        horizon=80,
    )
    return bridge, {"episodes": 100, **LISTED}


def slippery_cliff() -> Setup:
    """The example's cliff where every third move slips to each side: its features know only where a move aims at."""
    env = gymnasium.make("CliffWalking-v1", is_slippery=True)
    return example("gym_cliff_walking", env=gymnasium.wrappers.TransformReward(env, lambda reward: max(reward, -1.0)))


def series_motor() -> Setup:
    """The study's motor with its field in series, `Cont-CC-SeriesDc-v0`; a_0 is no voltage."""
    import gym_electric_motor
    from gym_electric_motor.reward_functions import WeightedSumOfErrors

    squared = WeightedSumOfErrors(reward_weights={"i": 1.0}, reward_power=2)
    told = motor.declare("") | {
        "features": lambda seen, voltage: motor.features(seen, voltage + motor.SPEED_VOLTAGE),
        "actions": lambda seen: [voltage - motor.SPEED_VOLTAGE for voltage in motor.voltages(seen)],
        "safe_action": np.zeros(1),
    }
    env = motor.Motor(gym_electric_motor.make("Cont-CC-SeriesDc-v0", reward_function=squared))
    return Bridge(env, horizon=motor.HORIZON, **told), {"episodes": 30, "stationary": True}


def four_tanks() -> Setup:
    """pc-gym's four tanks: two levels follow set points by two pumps, whose power is the cost; a_0 pumps half."""
    import casadi
    import pcgym

    casadi.GlobalOptions.setNumpyMode(-1)
    steps, low, high = 40, np.full(2, 0.1), np.full(2, 10.0)
    env = pcgym.make_env(
        {
            "model": "four_tank",
            "N": steps + 2,
            "tsim": 16.0 * (steps + 2),
            "x0": np.array([0.141, 0.112, 0.072, 0.42, 0.3, 0.2]),
            "SP": {"h3": [0.3] * (steps + 2), "h4": [0.2] * (steps + 2)},
            "r_scale": {"h3": 1.0, "h4": 1.0},
            "a_space": {"low": low, "high": high},
            "o_space": {"low": np.zeros(6), "high": np.full(6, 0.6)},
            "normalise_a": False,
            "normalise_o": False,
        }
    )
    env.observation_space = spaces.Box(0.0, 5.0, (6,), np.float64)
    env.action_space = spaces.Box(low, high, dtype=np.float64)
    levels = Reading(lambda seen: seen[:4], Polynomial(low=[0.0] * 4, high=[1.0] * 4, degree=2, outside="clip"))
    bridge = Bridge(
        env,
        features=concatenate(Constant(), levels, weights=(1.0, 0.3)),
        safe_action=(low + high) / 2.0,
        constraints=Constraint(
            threshold=0.6,
            noise=0.05,
            gamma_norm=2.0,
            cost=noisy(lambda seen, pumps, following, info: 0.3 + 0.03 * float(np.sum(pumps - (low + high) / 2.0))),
        ),
        reward_range=(-2.0, 0.0),
        horizon=steps,
    )
    return bridge, {"episodes": 30, "stationary": True}


TWELVE: dict[str, Callable[[], Setup]] = {
    "pendulum-10": lambda: example("gym_continuous"),
    "pendulum-20": lambda: example("gym_continuous", horizon=20, reward_range=(-16.3, 0.0)),
    "cart-pole": cart_pole,
    "mountain-car": mountain_car,
    "frozen-lake": lambda: example("gym_frozen_lake"),
    "cliff-walking": lambda: example("gym_cliff_walking"),
    "taxi": lambda: example("gym_taxi"),
    "blackjack": blackjack,
    "motor": lambda: real("motor"),
    "reactor": lambda: real("reactor"),
    "buildings": lambda: real("buildings"),
    "bolus": lambda: real("bolus"),
    "minigrid": minigrid,
}
"""Twelve environments, one of them with two horizons. The default was chosen on the first ten lines."""
HELD_OUT: dict[str, Callable[[], Setup]] = {
    "pole": pole,
    "hill": hill,
    "acrobot": acrobot,
    "large-lake": large_lake,
    "slippery-cliff": slippery_cliff,
    "series-motor": series_motor,
    "four-tanks": four_tanks,
}
NEEDS = {
    "motor": "gym_electric_motor",
    "reactor": "pcgym",
    "buildings": "sustaingym",
    "minigrid": "minigrid",
    "series-motor": "gym_electric_motor",
    "four-tanks": "pcgym",
}

RULES: dict[str, SlucbConfig | None] = {"learn's own": None, "remaining-1": SlucbConfig()}
RULES |= {
    f"unseen-{ridge:g}": SlucbConfig(value_radius="unseen", value_ridge=ridge) for ridge in (1e-2, 1e-4, 1e-6, 1e-8)
}


TITLES = {
    "pendulum-10": "Pendulum, H = 10",
    "pendulum-20": "Pendulum, H = 20",
    "cart-pole": "CartPole, H = 50",
    "mountain-car": "MountainCarContinuous, H = 100",
    "frozen-lake": "FrozenLake",
    "cliff-walking": "CliffWalking",
    "taxi": "Taxi",
    "blackjack": "Blackjack",
    "motor": "motor",
    "reactor": "reactor",
    "buildings": "building, the first",
    "bolus": "patient, the first",
    "minigrid": "MiniGrid, Empty 6 × 6",
    "pole": "CartPole, H = 100, a controller that holds it",
    "hill": "MountainCar, H = 150, the safe action arrives",
    "acrobot": "Acrobot, H = 150, the safe action swings up",
    "large-lake": "FrozenLake, 8 × 8, the least risky move",
    "slippery-cliff": "CliffWalking, slippery",
    "series-motor": "motor with its field in series",
    "four-tanks": "pc-gym's four tanks",
}


def compared(name: str, rule: str, seed: int) -> tuple[str, float, float]:
    """Learn once: "gains", "LOSES" or "even" by the interval; the gain; and the mean of the last 20 returns."""
    bridge, options = (TWELVE | HELD_OUT)[name]()
    result = learn(bridge, seed=seed, agent=RULES[rule], run=Run(progress=False, compare=50), **options)
    made = result.comparison
    low, high = (0.0, 0.0) if made is None else made.interval
    word = "LOSES" if high < 0.0 else "gains" if low > 0.0 else "even"
    return word, 0.0 if made is None else made.gain, float(result.returns[-20:].mean())


def print_tables(seeds: int, only: list[str]) -> None:
    """Gains of the default as JSON for tools/figures.py, one table for the twelve and one for those held out."""
    tables, own = {}, "learn's own"
    for title, group in (("twelve", TWELVE), ("held-out", HELD_OUT)):
        lines = []
        for name in (name for name in group if name in only):
            found = [compared(name, own, seed) for seed in range(seeds)]
            print(name, found, file=sys.stderr, flush=True)
            gains = ", ".join(f"{gain:+.3g}".replace("-", "−") for _, gain, _ in found)
            words = dict.fromkeys(word for word, _, _ in found)
            lines.append([TITLES[name], gains, ", ".join(words).replace("LOSES", "**loses**")])
        tables[title] = {
            "heads": ["environment", f"gain, seeds 0 to {seeds - 1}", "by its 95% interval"],
            "lines": lines,
        }
    print(json.dumps({"tables": tables, "sizes": f"{seeds} seeds, paired with the safe action"}))


def main() -> None:
    """Print one line per environment and rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(TWELVE), help='names, or "held-out"')
    parser.add_argument("--rule", nargs="*", default=list(RULES))
    parser.add_argument("--json", action="store_true", help="the default alone, on all that needs no other package")
    parser.add_argument("--quick", action="store_true", help="with --json, one environment")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.json:
        ours = [name for name in [*TWELVE, *HELD_OUT] if name not in NEEDS]
        print_tables(asked.seeds, ["cliff-walking"] if asked.quick else ours)
        return
    for name in list(HELD_OUT) if asked.only == ["held-out"] else asked.only:
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            print(f"{name:14} left out: {NEEDS[name]} is not installed", flush=True)
            continue
        for rule in asked.rule:
            began = time.process_time()
            found = [compared(name, rule, seed) for seed in range(asked.seeds)]
            shown, last = [f"{word} {gain:+.3g}" for word, gain, _ in found], [late for *_, late in found]
            seconds = (time.process_time() - began) / asked.seeds
            print(
                f"{name:14} {rule:14} {', '.join(shown)}; last {np.mean(last):.3g}; {seconds:.0f} s CPU a seed",
                flush=True,
            )


if __name__ == "__main__":
    main()
