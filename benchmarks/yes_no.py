"""Yes/no costs: trials until a threshold is certified, with σ = 1/2 and by likelihood ratios; and the times.

    python benchmarks/yes_no.py [--json]   prints the table of docs/guarantee.md
    python benchmarks/yes_no.py --times    prints how long decisions and studies take
    python benchmarks/yes_no.py --world    prints what docs/worlds.md says of the bottling line

The true risk is τ/4 everywhere; features are uniform on the simplex, and nothing is known of safe costs. The table
counts trials until the bound of the mean feature is at most τ (δ = 0.01, median over seeds).
"""

import argparse
import json
import time
from dataclasses import replace
from itertools import product

import numpy as np
from results import note, on_all_cores, parsed, show

from tether import Advisor, Bounded, Constraint, Problem, SlucbConfig, SlucbQvi, Transition, bottling, synthetic
from tether.agents.slucb import slucb_rules
from tether.kernels.likelihood import NEWTON_STEPS, load_rows, new_dual, new_trials, observe_trial, upper_cost
from tether.kernels.radius import cost_radius, default_cost_ridge
from tether.kernels.ridge import new_costs, observe_cost, refresh_spectrum
from tether.lab.simulate import simulate
from tether.lab.worlds.linear_mdp import Streams
from tether.live.policy import Criteria
from tether.problem.action_sets import StarActions

DELTA = 0.01
MOST = 300_000


def trials_needed(dimension: int, tau: float, seed: int, kind: str) -> int | None:
    """Trials until the bound of the middle of the simplex is at most τ; None if MOST are not enough."""
    rng = np.random.default_rng(seed)
    middle = np.full(dimension, 1.0 / dimension)
    gamma, n, due = np.full(dimension, tau / 4.0), 0, 16
    trials, dual = new_trials(1, dimension, 1.0, np.sqrt(dimension)), new_dual(dimension)
    problem = _problem(dimension, tau, kind)
    ridge = default_cost_ridge((0.5,), problem.gamma_norm, dimension)
    costs, rules = new_costs(1, dimension, 1, ridge), slucb_rules(problem, SlucbConfig(), ridge)
    work = np.zeros((3, dimension))
    while n < MOST:
        x = rng.dirichlet(np.ones(dimension))
        z = float(rng.random() < x @ gamma)
        n += 1
        if kind == "bounded":
            observe_trial(trials, 0, x, z, dual)
        else:
            observe_cost(costs, 0, x, np.array([z]), work)
        if n == due:
            due = int(1.05 * due) + 1
            if kind == "bounded":
                load_rows(trials, 0, dual)
                bound = upper_cost(trials, 0, middle, np.log(1.0 / DELTA), NEWTON_STEPS, dual)
            else:
                refresh_spectrum(costs)
                inverse = np.linalg.inv(costs.gram[0])
                width = np.sqrt(middle @ inverse @ middle)
                bound = middle @ inverse @ costs.moment[0, 0] + cost_radius(costs, rules, 0, 0) * width
            if bound <= tau:
                return n
    return None


def _problem(dimension: int, tau: float, kind: str) -> Problem:
    ends = np.eye(dimension)
    return Problem(
        horizon=1,
        dimension=dimension,
        actions=lambda state: StarActions(ends[0], ends),
        constraints=Constraint(threshold=tau, noise=noise_of(kind)),
        confidence=DELTA,
    )


def noise_of(kind: str) -> Bounded | float:
    """What is declared of yes/no costs: that they are, or only σ."""
    return Bounded() if kind == "bounded" else 0.5


def show_table(given: argparse.Namespace) -> None:
    """Trials, σ = 1/2 against likelihood ratio."""
    lines = []
    for dimension, tau in product((2, 5, 10), (0.2, 0.1, 0.05, 0.01)):
        note(f"d = {dimension}, τ = {tau:g}")
        if given.quick and tau < 0.1:
            continue
        cases = [(dimension, tau, seed, kind) for kind in ("gaussian", "bounded") for seed in range(given.seeds)]
        found = [trials or MOST for trials in on_all_cores(trials_needed, cases)]
        plain, ratio = (int(np.median(part)) for part in (found[: given.seeds], found[given.seeds :]))
        more = "over " if plain == MOST else ""
        lines.append([f"{dimension}", f"{tau:g}", f"{more}{plain:,}", f"{ratio:,}", f"{more}{plain / ratio:.1f}"])
    heads = ["d", "τ", "σ = ½", "likelihood ratio", "times fewer"]
    show(given, f"median of {given.seeds} seeds", table=(heads, lines))


def decision_times(dimension: int, rays: int, rounds: int, kind: str, states: int = 3) -> np.ndarray:
    """Seconds of each `act` (N rays, known safe costs), and of the whole run: (rounds + 1,)."""
    rng = np.random.default_rng(0)
    gamma = rng.uniform(0.0, 0.4, dimension)
    gamma[0] = 0.01
    starts = 0.1 * rng.dirichlet(np.ones(dimension), states)
    starts[:, 0] += 0.9
    ends = rng.dirichlet(np.full(dimension, 0.5), (states, rays))
    limit = Constraint(threshold=0.1, noise=noise_of(kind), safe_cost=(starts @ gamma)[None])
    problem = Problem.from_rays(phi_0=starts, endpoints=ends, constraints=limit, horizon=1)
    agent, theta, times = SlucbQvi(problem), rng.uniform(0.0, 1.0, dimension), np.zeros(rounds + 1)
    for x in rng.dirichlet(np.ones(dimension), 2000):  # every direction has been seen, and all atoms are in use
        agent.observe(Transition(0, 0, x, float(x @ theta), float(rng.random() < x @ gamma)))
    begun = time.thread_time()
    for i in range(rounds):
        agent.plan()
        before = time.thread_time()  # what other processes take on a shared machine does not count
        decision = agent.act(0, int(rng.integers(states)))
        times[i] = time.thread_time() - before
        cost = float(rng.random() < decision.feature @ gamma)
        agent.observe(decision.outcome(reward=float(decision.feature @ theta), cost=cost))
    times[-1] = time.thread_time() - begun
    return times


def live_times(dimension: int, rays: int, rounds: int) -> np.ndarray:
    """Seconds of processor time of each `Advisor.decide`, its gate included, after 2000 old outcomes: (rounds,)."""
    rng = np.random.default_rng(0)
    gamma, theta = rng.uniform(0.0, 0.4, dimension), rng.uniform(0.5, 1.0, dimension)
    gamma[0], theta[0] = 0.01, 0.0
    starts = 0.1 * rng.dirichlet(np.ones(dimension), 3)
    starts[:, 0] += 0.9
    ends = rng.dirichlet(np.full(dimension, 0.5), (3, rays))
    limit = Constraint(threshold=0.1, noise=Bounded(), safe_cost=(starts @ gamma)[None])
    problem = Problem.from_rays(phi_0=starts, endpoints=ends, constraints=limit, horizon=1)
    advisor, old = Advisor(problem, mode="live", criteria=Criteria.none()), rng.dirichlet(np.ones(dimension), 2000)
    costs = (rng.random(len(old)) < old @ gamma).astype(float)
    advisor.warm_start(old, costs, rewards=old @ theta, seen_states=[0] * len(old), duplicates="keep")
    times = np.zeros(rounds)
    for i in range(rounds):
        before = time.thread_time()
        made = advisor.decide(int(rng.integers(3)))
        times[i] = time.thread_time() - before
        assert not made.is_baseline, made.detail
        x = np.array(made.feature)
        advisor.record(made.id, float(theta @ x), float(rng.random() < x @ gamma))
    return times


def study_ratios(episodes: int = 1000, times: int = 7) -> np.ndarray:
    """Processor time of a run of the synthetic world with yes/no costs, with exact regret, over that of one with
    σ = 1/2, which runs in compiled blocks: in turn, so many times, (times,)."""
    seconds = np.zeros((times, 2))
    for i, which in product(range(times), range(2)):
        streams = Streams.from_seed(1)
        world = synthetic(streams.instance, noise=0.5)
        limit = replace(world.problem.constraints[0], noise=(0.5, Bounded())[which])
        world = replace(world, problem=replace(world.problem, constraints=limit))
        begun = time.thread_time()
        simulate(world, SlucbQvi(world.problem), episodes, streams)
        seconds[i, which] = time.thread_time() - begun
    gaussian, bounded = np.median(seconds, axis=0) * 1e3 / episodes
    print(f"an episode of the synthetic world: {gaussian:.3f} ms with σ (compiled), {bounded:.3f} ms yes/no")
    return seconds[:, 1] / seconds[:, 0]


def line_gain(seed: int, kind: str, episodes: int) -> np.ndarray:
    """On one bottling line: bottles gained over the default per episode, in its last quarter, and stoppage chances
    over τ. The costs are yes or no in both cases; "gaussian" is told σ = 1/2 instead."""
    streams = Streams.from_seed(seed)
    world = bottling(streams.instance)
    limit = replace(world.problem.constraints[0], noise=noise_of(kind))
    problem = replace(world.problem, constraints=limit)
    agent, earned, broken = SlucbQvi(problem, SlucbConfig(pooled=True)), np.zeros(episodes), 0
    for episode in range(episodes):
        state = world.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            outcome = world.step(agent.act(step, state), streams)
            more = outcome.feature - world.phi_0[state]
            earned[episode] += 6000.0 * float(world.true_theta[step] @ more)
            broken += bool(world.true_gamma[step, 0] @ outcome.feature > problem.threshold[0] + 1e-9)
            agent.observe(outcome)
            state = outcome.next_state
    return np.array([earned.mean(), earned[-episodes // 4 :].mean(), broken])


def print_world(seeds: int, episodes: int) -> None:
    """Means over lines with their standard errors, as JSON for tools/figures.py."""
    lines = []
    for kind, said in (("gaussian", "`noise=0.5`"), ("bounded", "`noise=Bounded()`")):
        runs = np.array([line_gain(seed, kind, episodes) for seed in range(seeds)])
        means, errors = runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(seeds)
        shares = [f"{mean:.0f} ± {error:.0f}" for mean, error in zip(means[:2], errors[:2], strict=True)]
        lines.append([said, *shares, f"{runs[:, 2].sum():.0f}"])
    heads = ["what is declared", "bottles more per episode", "in the last quarter", "hours with a chance over τ"]
    sizes = f"{seeds} lines, {episodes:,} episodes each, ± one standard error"
    print(json.dumps({"tables": {"table": {"heads": heads, "lines": lines}}, "sizes": sizes}))


def main() -> None:
    """The table, the times or the world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--world", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parsed(parser, seeds=1)
    if asked.world:
        print_world(*((2, 200) if asked.quick else (10, 2000)))
        return
    if not asked.times:
        show_table(asked)
        return
    for dimension, rays in ((5, 100), (20, 100)):
        both = {kind: decision_times(dimension, rays, 1000, kind) for kind in ("gaussian", "bounded")}
        for kind, times in both.items():
            middle, late = np.quantile(times[:-1], [0.5, 0.99]) * 1e3
            print(
                f"d = {dimension}, N = {rays}, {kind}: a decision takes {middle:.2f} ms of processor time, p99 "
                f"{late:.2f} ms; the run {times[-1]:.2f} s"
            )
        print(f"the run is {both['bounded'][-1] / both['gaussian'][-1]:.1f} times slower than with σ, step by step")
    for dimension in (5, 20):
        middle, late = np.quantile(live_times(dimension, 100, 300), [0.5, 0.99]) * 1e3
        print(f"live, d = {dimension}, N = 100: a decision takes {middle:.1f} ms of processor time, p99 {late:.1f} ms")
    low, middle, high = np.quantile(study_ratios(), [0.0, 0.5, 1.0])
    print(f"the study's run is {middle:.1f} times slower ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
