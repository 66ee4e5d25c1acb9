"""Bars of RSLUCB-QVI: the inner solver against Clarabel, certificate included, and one whole Frozen Lake agent."""

import time
import tomllib
from importlib.resources import files

import clarabel
import numpy as np
from scipy import sparse

from tether.agents.rslucb import RslucbQvi
from tether.agents.slucb import SlucbConfig
from tether.kernels.compiled import replaced
from tether.kernels.mixture_solver import CLOSED, InnerProblem, best_mixture, new_inner_problem
from tether.lab.simulate import simulate_units
from tether.lab.specs import Schedule
from tether.lab.worlds.lake import frozen_lake
from tether.lab.worlds.linear_mdp import Streams


def posed(gain, rise, joint, radius: float, slack: float) -> list[InnerProblem]:
    """The instances as the kernels take them. They share their buffers, as the states of a plan do."""
    one = new_inner_problem(1, gain.shape[1])
    one.size[0], one.radius[0], one.slack[0] = gain.shape[1], radius, slack
    return [replaced(one, gain=p, rise=b[None], joint=c) for p, b, c in zip(gain, rise, joint, strict=True)]


def solve_all(problems: list[InnerProblem]) -> None:
    """Every instance, certificate included."""
    for problem in problems:
        best_mixture(problem, 0)


def gap_of(problem: InnerProblem) -> float:
    """What the certificate leaves open, relative to max p."""
    bound = best_mixture(problem, 0)
    return float((bound - problem.gain @ problem.x) / problem.gain.max())


def instances(actions: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Full-rank instances whose best action is worth having, and where a single one is seldom certified."""
    rng, n = np.random.default_rng(0), actions - 1
    residuals = rng.standard_normal((count, n + 3, n))
    gain = rng.standard_normal((count, n))
    gain[:, 0] = np.abs(gain[:, 0])
    return gain, 0.5 * rng.standard_normal((count, n)), np.einsum("kdi,kdj->kij", residuals, residuals)


def clarabel_seconds(gain, rise, joint, radius: float, slack: float) -> tuple[float, float]:
    """CPU time of Clarabel called directly, from the same p, b and C: a root of C, the sparse rows, the solve;
    and of the solve alone."""
    n, total, solving = gain.shape[1], 0.0, 0.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(n + 1), clarabel.SecondOrderConeT(n + 1)]
    nothing = sparse.csc_matrix((n, n))
    limits = np.concatenate([np.zeros(n), [1.0], [slack], np.zeros(n)])
    for p, b, c in zip(gain, rise, joint, strict=True):
        start = time.process_time()
        root = np.linalg.cholesky(c).T
        rows = sparse.csc_matrix(np.vstack([-np.eye(n), np.ones((1, n)), b[None], -radius * root]))
        built = time.process_time()
        clarabel.DefaultSolver(nothing, -p, rows, limits, cones, settings).solve()
        end = time.process_time()
        total, solving = total + end - start, solving + end - built
    return total / len(gain), solving / len(gain)


def solver_ratio(actions: int) -> tuple[float, str]:
    """How many times faster the closed forms are than Clarabel, per certified solve.

    A record takes 4 kB, and a plan has one: 300 of them stay in the cache, 4000 would measure how they are loaded.
    """
    gain, rise, joint = instances(actions, 300)
    radius, slack = 0.3, 0.1
    problems = posed(gain, rise, joint, radius, slack)
    best = np.inf
    for _ in range(30):
        start = time.process_time()
        solve_all(problems)
        best = min(best, (time.process_time() - start) / len(gain))
    theirs, alone = clarabel_seconds(gain, rise, joint, radius, slack)
    closed = float(np.mean([gap_of(problem) <= CLOSED for problem in problems]))
    clarabel_part = f"Clarabel {1e6 * theirs:.0f} µs, {1e6 * alone:.0f} of them in the solve"
    return theirs / best, f"ours {1e6 * best:.2f} µs ({closed:.1%} certified), {clarabel_part}"


def lake_agent_seconds() -> tuple[float, str]:
    """CPU seconds of one agent of figure 2's leading row: ten units of 1000 steps, world included."""
    text = files("tether.lab").joinpath("studies", "figure2.toml").read_text()
    row = tomllib.loads(text)["agents"][0]

    def run(units: int) -> float:
        streams = Streams.from_seed(0)
        start = time.process_time()
        world = frozen_lake(streams.instance)
        agent = RslucbQvi(world.problem, SlucbConfig(**row["options"]), rng=streams.agent)
        books = simulate_units(world, agent, units, streams, Schedule(**row["units"]))
        run.plans = int(books.plans.sum())
        return time.process_time() - start

    run(1)
    taken = run(10)
    return taken, f"{run.plans} plans over 100 steps x 100 states x 4 actions, d=100"
