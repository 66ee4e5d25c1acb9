"""Continuous states: time per decision, memory and planning of the lean backup, against re-planning every episode.

    python benchmarks/continuous.py                                  d=50, N=200, 1e5 transitions; then d=500
    python benchmarks/continuous.py --transitions 20000 --large 0    shorter

The world is an exact linear MDP over [0, 1]². With ψ(s) in the simplex of k soft cells and u_a in the simplex of m
parts, φ(s, a) = ψ(s) ⊗ u_a lies in the simplex of d = k·m: each of its entries has its own mean reward, mean cost and
next-state distribution (a small square), and a step draws from their mixture φ. States hardly ever repeat.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.problem.action_sets import StarActions
from tether.problem.problem import Problem

NOISE = 0.05


class Plane:
    """An exact linear MDP over points of the unit square, with a star of N rays in every state."""

    def __init__(self, cells: int, parts: int, rays: int, horizon: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.horizon, d = horizon, cells * parts
        self.centres = rng.random((cells, 2))
        self.scale = 4.0 * cells
        self.safe = np.full(parts, 0.2 / (parts - 1))
        self.safe[0] = 0.8
        self.rays = rng.dirichlet(np.ones(parts), size=rays)
        gamma = rng.uniform(0.2, 1.0, (horizon, cells, parts))
        gamma[:, :, 0] = rng.uniform(0.0, 0.2, (horizon, cells))
        self.gamma, self.theta = gamma.reshape(horizon, d), rng.random((horizon, d))
        self.landing = rng.uniform(0.0, 0.7, (horizon, d, 2))
        self.problem = Problem(
            horizon=horizon,
            threshold=0.5,
            noise=NOISE,
            dimension=d,
            actions=self.actions,
            baseline_cost=lambda step, state: float(self.gamma[step] @ self.lift(state, self.safe)),
        )

    def cells_of(self, state: np.ndarray) -> np.ndarray:
        """ψ(s): how much of each soft cell, (k,)."""
        weights = np.exp(-self.scale * ((self.centres - state) ** 2).sum(axis=1))
        return weights / weights.sum()

    def lift(self, state: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """ψ(s) ⊗ u: (m,) -> (d,), (N, m) -> (N, d)."""
        return (self.cells_of(state)[:, None] * parts[..., None, :]).reshape(*parts.shape[:-1], -1)

    def actions(self, state: np.ndarray) -> StarActions:
        """D(s): rays from the safe feature to N points of the simplex."""
        return StarActions(self.lift(state, self.safe), self.lift(state, self.rays))

    def step(self, step: int, feature: np.ndarray, rng: np.random.Generator) -> tuple[float, float, np.ndarray]:
        """Reward, noisy cost and next state."""
        entry = rng.choice(len(feature), p=feature / feature.sum())
        cost = float(self.gamma[step] @ feature) + NOISE * rng.standard_normal()
        return float(self.theta[step] @ feature), cost, self.landing[step, entry] + 0.3 * rng.random(2)


@dataclass(frozen=True)
class Measured:
    """One run: CPU seconds by what they were spent on, and what was kept."""

    decisions: np.ndarray
    planning: float
    observing: float
    plans: int
    longest_plan: float
    states: int
    worst_cost: float

    @property
    def total(self) -> float:
        """CPU seconds of the agent: deciding, observing, planning."""
        return float(self.decisions.sum()) + self.observing + self.planning


def run(plane: Plane, agent: SlucbQvi, transitions: int, seed: int = 1) -> Measured:
    """Whole episodes until there were so many transitions; only the agent's own calls are timed."""
    rng, clock = np.random.default_rng(seed), time.process_time
    decisions, plans, observing, worst = [], [], 0.0, -np.inf
    while len(decisions) < transitions:
        state, made = rng.random(2), int(agent.current.made[0])
        start = clock()
        agent.plan()
        if agent.current.made[0] > made:
            plans.append(clock() - start)
        for step in range(plane.horizon):
            start = clock()
            decision = agent.act(step, state)
            decisions.append(clock() - start)
            worst = max(worst, float(plane.gamma[step] @ decision.feature))
            reward, cost, state = plane.step(step, decision.feature, rng)
            outcome = decision.outcome(reward=reward, cost=cost, next_state=state)
            start = clock()
            agent.observe(outcome)
            observing += clock() - start
    return Measured(
        np.array(decisions), sum(plans), observing, len(plans), max(plans), len(list(agent.known_states)), worst
    )


def peak_megabytes() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def long_run(cells: int, parts: int, transitions: int) -> dict[str, float]:
    """The defaults on a long run, and how time per decision and memory behave. For a process of its own."""
    plane = Plane(cells, parts, rays=200, horizon=5)
    run(plane, SlucbQvi(plane.problem), 10)  # machine code is loaded, and work space allocated
    agent = SlucbQvi(plane.problem)
    before = peak_megabytes()
    measured = run(plane, agent, transitions)
    peak, d = peak_megabytes(), plane.problem.dimension
    late = measured.decisions[-max(1, len(measured.decisions) // 10) :]
    return {
        "d": d,
        "N": len(plane.rays),
        "H": plane.horizon,
        "transitions": len(measured.decisions),
        "p50 ms": 1e3 * float(np.quantile(measured.decisions, 0.5)),
        "p99 ms": 1e3 * float(np.quantile(measured.decisions, 0.99)),
        "p50 ms, last tenth": 1e3 * float(np.quantile(late, 0.5)),
        "p99 ms, last tenth": 1e3 * float(np.quantile(late, 0.99)),
        "ms per transition in all": 1e3 * measured.total / len(measured.decisions),
        "plans": measured.plans,
        "longest plan, s": measured.longest_plan,
        "planning over last plan": measured.planning / measured.longest_plan,
        "planning share": measured.planning / measured.total,
        "CPU seconds": measured.total,
        "distinct next states": measured.states,
        "peak MB": peak,
        "MB before": before,
        "kB per next state": 1024.0 * (peak - before) / measured.states,
        "tables would need GB": measured.states * len(plane.rays) * (d + 4 * plane.horizon) * 8 / 1e9,
        "worst true cost": measured.worst_cost,
    }


def against_every_episode(transitions: int) -> dict[str, float]:
    """CPU time of the first transitions of the same run, re-planning in every episode and by default."""
    plane = Plane(cells=10, parts=5, rays=200, horizon=5)
    run(plane, SlucbQvi(plane.problem), 10)
    often = run(plane, SlucbQvi(plane.problem, SlucbConfig(replan="every-episode")), transitions)
    rarely = run(plane, SlucbQvi(plane.problem), transitions)
    return {
        "transitions": transitions,
        "plans, every episode": often.plans,
        "plans, on growth": rarely.plans,
        "CPU seconds, every episode": often.total,
        "CPU seconds, on growth": rarely.total,
        "ratio": often.total / rarely.total,
    }


def measure(transitions: int, prefix: int, large: int) -> dict[str, dict[str, float]]:
    """All three: the long run at d=50, the prefix against re-planning every episode, and d=500."""
    found = {"long": alone(long_run, 10, 5, transitions)}
    if prefix:
        found["prefix"] = alone(against_every_episode, prefix)
    if large:
        found["large"] = alone(long_run, 50, 10, large)
    return found


def alone(work: Callable[..., dict[str, float]], *sizes: int) -> dict[str, float]:
    """`work` in a new process: its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *sizes).result()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=100_000, help="of the long run at d=50")
    parser.add_argument("--prefix", type=int, default=1000, help="of the comparison with re-planning every episode")
    parser.add_argument("--large", type=int, default=1000, help="transitions at d=500")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(options.transitions, options.prefix, options.large)
    if options.json:
        print(json.dumps(found))
        return
    for part, figures in found.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:28} {value:.4g}")


if __name__ == "__main__":
    main()
