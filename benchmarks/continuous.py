"""Continuous states: time per decision, memory and planning of the lean backup, against re-planning every episode.

    python benchmarks/continuous.py                                  d=50, N=200, 1e5 transitions; then d=500
    python benchmarks/continuous.py --transitions 20000 --large 0    shorter
    python benchmarks/continuous.py --transitions 0 --prefix 0 --large 0    Gymnasium's CartPole and MountainCar alone

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

import gymnasium
import numpy as np
from results import parsed, show

from tether import Constraint, Run
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.features import Polynomial
from tether.gym.bridge import Bridge
from tether.gym.learn import learn
from tether.kernels import plan
from tether.problem.action_sets import StarActions
from tether.problem.problem import Problem
from tether.records import Decision, Transition

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
            constraints=Constraint(
                threshold=0.5,
                noise=NOISE,
                safe_cost=lambda step, state: float(self.gamma[step] @ self.lift(state, self.safe)),
            ),
            dimension=d,
            actions=self.actions,
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


def cart_pole(horizon: int) -> Bridge:
    """CartPole-v1 with a controller as safe action, which holds the pole for about a hundred steps."""
    return Bridge(
        gymnasium.make("CartPole-v1"),
        features=Polynomial([-4.8, -4.0, -0.42, -4.0], [4.8, 4.0, 0.42, 4.0], degree=2, outside="clip"),
        safe_action=lambda seen: int(seen[2] + 0.5 * seen[3] + 0.05 * seen[0] + 0.1 * seen[1] > 0.0),
        constraints=Constraint(
            threshold=0.35, noise=NOISE, safe_cost=0.2, cost=lambda seen, action, following, info: 0.2
        ),
        horizon=horizon,
    )


def mountain_car(horizon: int) -> Bridge:
    """MountainCarContinuous-v0: a force to both sides, which costs what it is strong."""
    env = gymnasium.make("MountainCarContinuous-v0")
    return Bridge(
        env,
        features=Polynomial(env.observation_space.low, env.observation_space.high, degree=2, outside="clip"),
        safe_action=[0.0],
        constraints=Constraint(
            threshold=0.35,
            noise=NOISE,
            safe_cost=0.2,
            cost=lambda seen, action, following, info: 0.2 + 0.3 * abs(float(action[0])),
        ),
        reward_range=(-0.1, 100.0),
        horizon=horizon,
    )


def classic(make: Callable[[int], Bridge], steps: int) -> dict[str, float]:
    """`learn` on one of Gymnasium's own worlds, H = 200: CPU time, all included. For a process of its own.

    Ratios: the last tenth of the steps over the first, and H = 200 over H = 10, which a plan must not feel. `forgetful`
    keeps no candidates, as version 0.1 did, over the first 400 steps.
    """
    learned(make(200), 20)
    before = peak_megabytes()
    whole, deciding = learned(make(200), steps)
    after = peak_megabytes()
    short, _ = learned(make(10), steps)
    kept, plan.KEPT_NUMBERS = plan.KEPT_NUMBERS, 0
    forgetful, _ = learned(make(200), 400)
    plan.KEPT_NUMBERS = kept
    tenth = steps // 10
    return {
        "steps": steps,
        "ms a step": 1e3 * float(whole.mean()),
        "p99 ms of a decision": 1e3 * float(np.quantile(deciding, 0.99)),
        "longest step, plan included, ms": 1e3 * float(whole.max()),
        "ratio, last tenth over first": float(whole[-tenth:].mean() / whole[:tenth].mean()),
        "ratio, H = 200 over H = 10": float(whole.mean() / short.mean()),
        "ratio, forgetful over kept": float(forgetful.mean() / whole[:400].mean()),
        "MB gained": after - before,
        "MB of candidates at most": kept * 8 / 2**20,
    }


def learned(bridge: Bridge, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """CPU seconds of each step with all that belongs to it, and of each decision alone."""
    clock, marks, deciding = time.process_time, [time.process_time()], []

    def factory(problem: Problem, rng: np.random.Generator) -> SlucbQvi:
        agent = SlucbQvi(problem, SlucbConfig(pooled=True))
        act = agent.act

        def timed(step: int, state: object) -> Decision:
            start = clock()
            decision = act(step, state)
            deciding.append(clock() - start)
            return decision

        agent.act = timed
        return agent

    def note(decision: Decision, outcome: Transition) -> None:
        marks.append(clock())
        if len(marks) > steps:
            raise KeyboardInterrupt

    learn(bridge, agent=factory, episodes=steps, run=Run(on_step=note, compare=0))
    return np.diff(marks), np.array(deciding)


def measure(transitions: int, prefix: int, large: int, steps: int) -> dict[str, dict[str, float]]:
    """The long run at d=50, the prefix against re-planning every episode, d=500, and two worlds of Gymnasium."""
    found = {"long": alone(long_run, 10, 5, transitions)} if transitions else {}
    if prefix:
        found["prefix"] = alone(against_every_episode, prefix)
    if large:
        found["large"] = alone(long_run, 50, 10, large)
    if steps:
        found["CartPole"] = alone(classic, cart_pole, steps)
        found["MountainCarContinuous"] = alone(classic, mountain_car, steps)
    return found


def alone(work: Callable[..., dict[str, float]], *sizes: object) -> dict[str, float]:
    """`work` in a new process: its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *sizes).result()


def show_table(options: argparse.Namespace) -> None:
    """A short run at d = 50 and one at d = 500, side by side: the table of docs/state-spaces.md."""
    long, short = (1000, 100) if options.quick else (20_000, 1000)
    narrow, wide = alone(long_run, 10, 5, long), alone(long_run, 50, 10, short)
    rows = {
        "transitions": ("transitions", "{:,.0f}"),
        "distinct next states": ("distinct next states", "{:,.0f}"),
        "time per decision, median, ms": ("p50 ms", "{:.2f}"),
        "time per decision, 99 %, ms": ("p99 ms", "{:.2f}"),
        "the same over the last tenth of the run, ms": ("p99 ms, last tenth", "{:.2f}"),
        "plans": ("plans", "{:.0f}"),
        "longest plan, s": ("longest plan, s", "{:.1f}"),
        "part of the time that goes into plans": ("planning share", "{:.0%}"),
        "time per transition: decide, observe, plan, ms": ("ms per transition in all", "{:.1f}"),
        "tables would need, GB": ("tables would need GB", "{:.1f}"),
    }
    lines = [[name, *(form.format(found[key]) for found in (narrow, wide))] for name, (key, form) in rows.items()]
    over = max(narrow["worst true cost"], wide["worst true cost"])
    show(options, "processor time", timed=True, values={"worst-cost": over}, table=(["", "d = 50", "d = 500"], lines))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=100_000, help="of the long run at d=50")
    parser.add_argument("--prefix", type=int, default=1000, help="of the comparison with re-planning every episode")
    parser.add_argument("--large", type=int, default=1000, help="transitions at d=500")
    parser.add_argument("--steps", type=int, default=5000, help="on CartPole and MountainCarContinuous with H = 200")
    parser.add_argument("--raw", action="store_true", help="print one JSON object with all that was measured")
    options = parsed(parser)
    if options.json:
        show_table(options)
        return
    found = measure(options.transitions, options.prefix, options.large, options.steps)
    if options.raw:
        print(json.dumps(found))
        return
    for part, figures in found.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:28} {value:.4g}")


if __name__ == "__main__":
    main()
