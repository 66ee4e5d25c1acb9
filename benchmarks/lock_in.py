"""Why the default explorer is not `plain`: two rays that share no feature, and the better one is costly at first.

    python benchmarks/lock_in.py [--json] [--quick]

A bandit with three orthogonal features: the safe action, a ray that is worth .9 and costs nearly the threshold, and a
ray that is worth .5 and costs little. A run is locked in if it still plays the worse ray at the end.
"""

import argparse

import numpy as np
from results import on_all_cores, parsed, show

from tether import Constraint, Problem, SlucbConfig, SlucbQvi, StarActions

THETA, GAMMA, TAU, SIGMA = np.array([0.1, 0.9, 0.5]), np.array([0.4, 0.45, 0.1]), 0.5, 0.1
EXPLORERS = ("adaptive", "plain", "directional", "certified")


def run(explorer: str, seed: int, rounds: int) -> tuple[float, bool, int]:
    """Regret, whether the run is locked in, and steps over τ."""
    actions = StarActions(np.eye(3)[0], np.eye(3)[1:])
    problem = Problem(
        horizon=1,
        dimension=3,
        states=range(1),
        actions=lambda state: actions,
        constraints=Constraint(threshold=TAU, noise=SIGMA, safe_cost=float(GAMMA[0]), gamma_norm=1.0),
    )
    agent, rng = SlucbQvi(problem, SlucbConfig(explorer=explorer)), np.random.default_rng(seed)  # type: ignore[arg-type]
    regret, over, ray = 0.0, 0, -1
    for _ in range(rounds):
        agent.plan()
        decision = agent.act(0, 0)
        x, ray = decision.feature, decision.action.ray  # type: ignore[union-attr]
        regret += float(THETA[1] - THETA @ x)
        over += bool(GAMMA @ x > TAU + 1e-12)
        noisy = float(GAMMA @ x + SIGMA * rng.standard_normal())
        agent.observe(decision.outcome(reward=float(THETA @ x), cost=noisy))
    return regret, ray != 0, over


def main() -> None:
    """One line per explorer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=4000)
    given = parsed(parser, seeds=2, rounds=400)
    lines, values = [], {}
    for explorer in EXPLORERS:
        found = on_all_cores(run, [(explorer, seed, given.rounds) for seed in range(given.seeds)])
        regrets, locked, over = (np.array(column) for column in zip(*found, strict=True))
        cells = f"{np.median(regrets):.0f}", f"{regrets.max():.0f}", f"{locked.sum()} of {given.seeds}"
        lines.append([f"`{explorer}`", *cells, str(over.sum())])
        values[f"locked-{explorer}"] = int(locked.sum())
    heads = ["explorer", "median regret", "worst run", "locked in", "steps over τ"]
    show(given, f"{given.seeds} seeds, {given.rounds:,} rounds each", values=values, table=(heads, lines))


if __name__ == "__main__":
    main()
