"""How far a cost can be over its bound where safe costs were declared as exact and were rounded: docs/guarantee.md.

    python benchmarks/rounded_costs.py [--worlds 200]

Three states: the safe features of two differ by a small step, and their facts are remembered. That of the third, where
one stands, reaches far along that step, and by another small one out of their plane. The facts amplify an error by up
to 1e4, and so does the state's own cost; a world takes steps from around those limits upward, so that both may be met
at once. Every declared cost is off by the same amount, with every combination of signs. Printed: the largest true
cost − bound over all certified rays (negative: all bounds hold), where costs are declared as exact, and where that
amount is declared as their error.
"""

import argparse
from itertools import product

import numpy as np

from tether import Problem, SlucbQvi, StarActions
from tether.agents.certified import CertifiedSet, certified_set
from tether.records import Array

DIMENSION, RAYS = 3, 20
ERRORS = {"doubles": 0.0, "12 decimals": 5e-13, "9 decimals": 5e-10, "6 decimals": 5e-7}
"""What declared costs are off by, besides their rounding to doubles."""


def certified_with(seed: int, off: Array, error: float) -> tuple[CertifiedSet, Array]:
    """The certified set of the third state of one world, and γ* (d,); costs are `off` (3,), and `error` is declared."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)))[0]
    near, far = 10.0 ** rng.uniform(-4.3, -2.0, 2)  # facts are used from 1e-4 on, about
    aside = rng.uniform(-0.8, 0.8) * axes[1]  # times what the step between the other two leaves open of γ*
    safe = 0.5 * axes[0] + np.array([np.zeros(DIMENSION), near * axes[1], far * axes[2] + aside])
    gamma = rng.uniform(-1.0, 1.0, DIMENSION)
    ends = rng.standard_normal((RAYS, DIMENSION))
    ends /= 1.0001 * np.linalg.norm(ends, axis=1)[:, None]
    costs, sets = safe @ gamma + off, [StarActions(each, ends) for each in safe]
    problem = Problem(
        horizon=1, threshold=float(costs.max() + 0.2), noise=1e-3, dimension=DIMENSION, states=range(3), gamma_norm=2.0,
        actions=lambda state: sets[state], baseline_cost=lambda step, state: costs[state], baseline_cost_error=error,
    )  # fmt: skip
    agent = SlucbQvi(problem)
    for state in range(2):
        agent.remember(0, safe[state], costs[state : state + 1])
    return certified_set(agent, 0, 2), gamma


def largest_excess(worlds: int, error: float, *, declared: bool) -> float:
    """The largest true cost − bound over so many worlds, all signs and all certified rays."""
    worst = -np.inf
    for seed in range(worlds):
        for signs in product((-1.0, 1.0), repeat=3) if error else [(0.0, 0.0, 0.0)]:
            found, gamma = certified_with(seed, error * np.array(signs), error if declared else 0.0)
            over = (found.features[:-1] @ gamma - found.bounds[:-1, 0])[found.lengths > 0.0]
            worst = max(worst, float(over.max(initial=-np.inf)))
    return worst


def main() -> None:
    """Print one row per precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=200)
    given = parser.parse_args()
    print("| costs have | largest true cost − bound | where the error is declared |\n|---|---|---|")
    for name, error in ERRORS.items():
        exact, declared = (largest_excess(given.worlds, error, declared=told) for told in (False, True))
        print(f"| {name} | {exact:.1e} | {declared:.1e} |", flush=True)


if __name__ == "__main__":
    main()
