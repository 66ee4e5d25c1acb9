"""Does a bandit with noisy rewards lock in on a poor ray? 30 seeds of 10⁵ rounds of the circulant instance.

    python benchmarks/circulant.py [--rounds 100000] [--seeds 30] [--noises 0.1 1 3]

For each noise σ_r of the rewards: the default learner that takes them for exact, the default that is told σ_r, and the
theorem's value radius. Lock-in is a tail event: look at the worst seed.
"""

import argparse

import numpy as np

from tether import SlucbConfig, SlucbQvi, Streams
from tether.lab.simulate import simulate
from tether.lab.worlds.circulant import circulant

BEST = 25.0 / 30.0
"""What the best certified ray is worth (d = 5, τ = ½): the regret of doing nothing, per round."""


def main() -> None:
    """Print one row per noise and setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--noises", type=float, nargs="+", default=[0.1, 1.0, 3.0])
    given = parser.parse_args()
    half = given.rounds // 2
    print(f"{given.seeds} seeds of {given.rounds} rounds; a tenth of linear over the last half: {BEST * half / 10:.0f}")
    for noise in given.noises:
        for name, told, radius in (
            ("default, told 0", 0.0, "remaining"),
            ("default", noise, "remaining"),
            ("mixture", noise, "mixture"),
        ):
            regrets, over = [], 0
            for seed in range(given.seeds):
                world = circulant(reward_noise=noise, told_reward_noise=told)
                agent = SlucbQvi(world.problem, SlucbConfig(value_radius=radius))
                books = simulate(world, agent, given.rounds, Streams.from_seed(seed))
                regrets.append((books.regret.sum(), books.regret[half:].sum()))
                over += int(books.violations.sum())
            (mean, late), (worst, latest) = np.mean(regrets, axis=0), np.max(regrets, axis=0)
            print(
                f"σ_r {noise:<4g} {name:16} regret: mean {mean:6.0f}, worst {worst:6.0f}; last half: mean {late:6.0f}, "
                f"worst {latest:6.0f}; steps over τ: {over}"
            )


if __name__ == "__main__":
    main()
