"""How often is the measured cost over τ? A limit on the mean beside a limit on what happens, on random bandits.

    python benchmarks/realised.py [--rounds 10000] [--seeds 5] [--dimension 5] [--json]

The shape of Table 1 of Dragazis and Pacchiano (2026): unit Gaussian θ*, γ* and ten unit Gaussian rays from the origin;
doing nothing costs 0. The noise of a cost is σ = 1 times the amount played. A limit on the mean is kept in the mean,
and exceeded by the noise in many rounds; a limit on the realised cost leaves room for the noise.
"""

import argparse

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import Constraint, Problem, Realised, SlucbQvi

RAYS = 10


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Gaussian directions of norm 1, along the last axis."""
    rows = rng.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def share_over(seed: int, dimension: int, rounds: int, tau: float, relax: list[Realised]) -> tuple[float, float, float]:
    """Share of rounds with a measured cost over τ, with a mean cost over τ, and the reward per round."""
    rng = np.random.default_rng(seed)
    theta, gamma, rays = unit(rng, dimension), unit(rng, dimension), unit(rng, 1, RAYS, dimension)
    problem = Problem.from_rays(
        phi_0=np.zeros((1, dimension)), endpoints=rays,
        constraints=Constraint(threshold=tau, noise=1.0, safe_cost=0.0, gamma_norm=1.0, relax=relax),
        horizon=1,
    )  # fmt: skip
    agent, over, expected, earned = SlucbQvi(problem), 0, 0, 0.0
    for _ in range(rounds):
        agent.plan()
        decision = agent.act(0, 0)
        length = getattr(decision.action, "length", 0.0)
        mean = float(gamma @ decision.feature)
        cost = mean + length * rng.normal()
        agent.observe(decision.outcome(reward=float(theta @ decision.feature), cost=cost))
        over, expected, earned = over + (cost > tau), expected + (mean > tau + 1e-9), earned + theta @ decision.feature
    return over / rounds, expected / rounds, earned / rounds


def main() -> None:
    """Print one row per τ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--dimension", type=int, default=5)
    given = parsed(parser, rounds=300, seeds=1)
    kinds: tuple[list[Realised], ...] = (
        [],
        [Realised(0.05, noise_scales=True)],
        [Realised(0.0002, noise_scales=True)],
    )
    lines, most = [], 0.0
    for tau in (0.1, 0.5, 1.0):
        note(f"τ = {tau:g}")
        cells = []
        for kind in kinds:
            cases = [(seed, given.dimension, given.rounds, tau, kind) for seed in range(given.seeds)]
            measured, mean, earned = np.mean(on_all_cores(share_over, cases), axis=0)
            most = max(most, float(mean))
            cells.append(f"{measured:.4f} / {earned:.3f}")
        lines.append([f"{tau:g}", *cells])
    heads = ["τ", "limit on the mean", "realised, η = 0.05", "realised, η = 0.0002"]
    show(
        given,
        f"{given.rounds:,} rounds, mean of {given.seeds} seeds",
        table=(heads, lines),
        values={"mean-over": most},  # the largest share of rounds whose mean cost was over τ
    )


if __name__ == "__main__":
    main()
