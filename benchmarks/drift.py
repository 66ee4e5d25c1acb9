"""Costs that drift: what it costs to be told how fast, and what it costs not to be.

    python benchmarks/drift.py [--rounds 3000] [--seeds 4] [--json]

A bandit with d = 5, 60 rays on the simplex, σ = 0.05 and a safe action 0.1 under τ. γ* moves by ρ with each decision:
for 1000 decisions so that what was played gets dearer, then so that it gets cheaper, and so on; the safe cost stays.
What costs more pays more. Cells: decisions whose true cost was over τ (runs with one) / gain over the safe action, as a
share of that of an oracle that always knows γ*.
"""

import argparse

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import Constraint, Drift, Problem, SlucbQvi

DIMENSION, RAYS, NOISE, GAP, BOUND, TURN = 5, 60, 0.05, 0.1, 2.0, 1000


def play(seed: int, rate: float, declared: float, rounds: int) -> tuple[int, float]:
    """(decisions over τ, share of the oracle's gain) of one run."""
    rng = np.random.default_rng(seed)
    f, rays = rng.dirichlet(np.ones(DIMENSION)), rng.dirichlet(np.full(DIMENSION, 0.5), RAYS)
    gamma = rng.uniform(0.1, 0.8, DIMENSION)
    theta, safe = gamma + rng.uniform(0.0, 0.3, DIMENSION), float(gamma @ f)
    tau = safe + GAP
    problem = Problem.from_rays(
        phi_0=f[None], endpoints=rays[None],
        constraints=Constraint(
            threshold=tau, noise=NOISE, safe_cost=safe, gamma_norm=BOUND, relax=[Drift(declared)] if declared else []
        ),
        horizon=1,
    )  # fmt: skip
    agent, over, gained, possible = SlucbQvi(problem), 0, 0.0, 0.0
    for count in range(rounds):
        agent.plan()
        decision = agent.act(0, 0)
        x = decision.feature
        true = float(gamma @ x)
        agent.observe(decision.outcome(reward=float(theta @ x), cost=true + NOISE * rng.normal()))
        over += true > tau + 1e-9
        gained += theta @ (x - f)
        above = np.maximum(rays @ gamma - safe, 1e-12)
        possible += max(0.0, float((np.minimum(1.0, GAP / above) * ((rays - f) @ theta)).max()))
        away = x - f - (x - f) @ f / (f @ f) * f
        if away.any():
            moved = gamma + (1.0 if count // TURN % 2 == 0 else -1.0) * rate * away / np.linalg.norm(away)
            gamma = moved if np.linalg.norm(moved) <= BOUND else gamma
    return over, gained / possible


def main() -> None:
    """Print one row per ρ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=4)
    given = parsed(parser, rounds=300, seeds=1)
    lines = []
    for rate in (0.0, 1e-5, 1e-4, 1e-3):
        note(f"ρ = {rate:g}")
        cells = ["", "", ""]
        for column, declared in enumerate((0.0, rate, 10.0 * rate)[: 1 if rate == 0.0 else 3]):
            runs = on_all_cores(play, [(seed, rate, declared, given.rounds) for seed in range(given.seeds)])
            over, share = zip(*runs, strict=True)
            broken = f" in {sum(map(bool, over))} runs" if any(over) else ""
            cells[column] = f"{sum(over)}{broken} / {np.mean(share):.2f}"
        lines.append([f"{rate:g}", *cells])
    heads = ["ρ", "not declared", "declared", "declared ten times as fast"]
    show(given, f"{given.seeds} runs of {given.rounds:,} decisions", table=(heads, lines))


if __name__ == "__main__":
    main()
