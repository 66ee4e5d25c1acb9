"""What each mixture's own ellipsoid would gain over the detour by the A-norm: docs/theory.md section 4.

    python benchmarks/own_ellipsoids.py [--episodes 5000] [--seeds 8]

The mixture with ridge λ_j bounds ‖S‖ in the norm of (V + λ_j I)⁻¹, so that cost x is off by at most β_j ‖Gx‖ in the
norm of V + λ_j I, β_j = r_j + λB/√(v + λ_j). The library takes ‖x‖_G instead, times √((v + λ_j)/(v + λ)). Here both run
on the paper's synthetic problem with unknown safe costs, where only widths decide. Each stage takes the mixture (or the
one root) with the least mean width over all candidates. Cells: mean regret, and how many runs went over τ.
"""

import argparse
from math import log, sqrt

import numpy as np

from tether import SlucbConfig, SlucbQvi, Streams, synthetic
from tether.agents.outcome_order import CostOutcome
from tether.kernels.radius import grid_radius, mixture_radius
from tether.kernels.ridge import GRID, PENDING
from tether.lab.simulate import simulate_stepwise
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE
from tether.problem.problem import Problem
from tether.records import Array


class Ellipsoids(SlucbQvi):
    """SLUCB-QVI whose cost bounds come from the ellipsoid of one mixture: `own`, or that of A with the radius that
    follows from it. The kernels see A/β² for A and 1 for β, which gives the same bounds."""

    def __init__(self, problem: Problem, *, own: bool) -> None:
        super().__init__(problem, SlucbConfig(cost_radius=1.0))
        d, self.own = problem.dimension, own
        self.ridge = problem.noise[0] ** 2 * d / problem.gamma_norm[0] ** 2
        self.data, self.sums = np.zeros((self.stages, d, d)), np.zeros((self.stages, d))
        self.unit = np.zeros(self.stages)
        rows = np.vstack([problem.look_up(state).actions.endpoints for state in problem.states or ()])
        self.spread = rows.T @ rows / len(rows)

    def learn_cost(self, outcome: CostOutcome) -> None:
        """Into sums of its own."""
        x, stage = outcome.feature, self.stage_of(outcome.step)
        self.unit[stage] = self.unit[stage] or float(x @ x)
        self.data[stage] += np.outer(x, x)
        self.sums[stage] += x * (0.0 if outcome.cost is None else outcome.cost[0])
        self.data_version += 1

    def make_plan(self) -> None:
        """Show the kernels the ellipsoid of each stage, then plan as ever."""
        for stage in range(self.stages):
            gram, estimate = self._ellipsoid(stage)
            self.costs.gram[stage], self.costs.gram_low[stage] = gram, 0.0
            self.costs.moment[stage, 0], self.costs.moment_low[stage, 0] = gram @ estimate, 0.0
            self.costs.factor[stage] = np.linalg.cholesky(gram).T
            self.costs.owed.count[stage] = PENDING + 1  # tables are rebuilt
        super().make_plan()

    def _ellipsoid(self, stage: int) -> tuple[Array, Array]:
        """(A of the best ellipsoid over β² (d, d), ĝ (d,)) of one stage; of δ as much for each as in the library."""
        noise, norm, ridge = self.problem.noise[0], self.problem.gamma_norm[0], self.ridge
        values, axes = np.linalg.eigh(self.data[stage])
        values = np.maximum(values, 0.0)
        events = 2.0 * self.stages / self.problem.confidence
        root = mixture_radius(float(np.log1p(values / ridge).sum()), noise, events, ridge, norm)
        along = np.einsum("ik,ij,jk->k", axes, self.spread, axes)  # mean squared length of candidates along each axis
        found = [root**2 / (values + ridge)]  # β² times the eigenvalues of the inverse
        for other in GRID * (self.unit[stage] or 1.0):
            grown, all_events = float(np.log1p(values / other).sum()), events * len(GRID)
            if self.own and other >= ridge:
                reach = noise * sqrt(grown + 2.0 * log(all_events)) + ridge * norm / sqrt(values[0] + other)
                found.append(reach**2 * (values + other) / (values + ridge) ** 2)
            else:
                radius = grid_radius(grown, float(values[0]), float(other), noise, all_events, ridge, norm)
                found.append(radius**2 / (values + ridge))
        best = min(found, key=lambda inverse: float(along @ inverse))
        estimate: Array = axes @ ((axes.T @ self.sums[stage]) / (values + ridge))
        return (axes / best) @ axes.T, estimate


def play(seed: int, noise: float, episodes: int, own: bool | None) -> tuple[float, bool]:
    """(regret, whether a decision went over τ) of one run; `own` None is the library's agent as it is."""
    streams = Streams.from_seed(seed)
    world = synthetic(streams.instance, noise=noise, known_costs=False)
    agent = SlucbQvi(world.problem) if own is None else Ellipsoids(world.problem, own=own)
    books = simulate_stepwise(world, agent, episodes, streams)
    over = books.worst_cost.max() > world.problem.threshold[0] + SAFE_TOLERANCE
    return float((books.optimal_value - books.value).sum()), bool(over)


def main() -> None:
    """Print one row per σ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    print("| σ | library | detour by the A-norm | own ellipsoids | own / detour, by seed |\n|---|---|---|---|---|")
    for noise in (0.1, 0.3):
        cells, regrets = [], {}
        for own in (None, False, True):
            runs = [play(seed, noise, given.episodes, own) for seed in range(given.seeds)]
            regrets[own] = np.array([regret for regret, _ in runs])
            cells.append(f"{regrets[own].mean():.0f} ({sum(over for _, over in runs)} over τ)")
        ratio = regrets[True] / regrets[False]
        print(f"| {noise:g} | {' | '.join(cells)} | {ratio.mean():.3f} ± {ratio.std(ddof=1):.3f} |", flush=True)


if __name__ == "__main__":
    main()
