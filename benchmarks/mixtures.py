"""Bars of RSLUCB-QVI: the inner solver against Clarabel, certificate included, and one whole Frozen Lake agent."""

import time
import tomllib
from importlib.resources import files

import clarabel
import numpy as np
from scipy import sparse

from tether.agents.rslucb_qvi import RslucbQvi
from tether.agents.slucb_qvi import SlucbConfig
from tether.compiled import compiled
from tether.experiments.units import Schedule, simulate_units
from tether.learning.mixture_search import CLOSED, SCRATCH_ROWS, best_mixture
from tether.world.frozen_lake import frozen_lake
from tether.world.linear_mdp import Streams


@compiled
def solve_all(gain, rise, joint, radius, slack, factor, work, support, x, gaps):
    """Every instance, with what its certificate leaves open relative to max p."""
    for i in range(gain.shape[0]):
        bound = best_mixture(gain[i], rise[i], joint[i], radius, slack, factor, work, support, x)
        gaps[i] = (bound - (gain[i] * x).sum()) / gain[i].max()


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
    """How many times faster the closed forms are than Clarabel, per certified solve."""
    gain, rise, joint = instances(actions, 4000)
    n, radius, slack = actions - 1, 0.3, 0.1
    gaps, x, support = np.empty(len(gain)), np.zeros(n), np.zeros(n, dtype=np.int64)
    scratch = (np.zeros((n, n)), np.zeros((SCRATCH_ROWS, n)), support, x)
    solve_all(gain[:2], rise[:2], joint[:2], radius, slack, *scratch, gaps)
    best = np.inf
    for _ in range(5):
        start = time.process_time()
        solve_all(gain, rise, joint, radius, slack, *scratch, gaps)
        best = min(best, (time.process_time() - start) / len(gain))
    theirs, alone = clarabel_seconds(gain[:300], rise[:300], joint[:300], radius, slack)
    closed = float((gaps <= CLOSED).mean())
    clarabel_part = f"Clarabel {1e6 * theirs:.0f} µs, {1e6 * alone:.0f} of them in the solve"
    return theirs / best, f"ours {1e6 * best:.2f} µs ({closed:.1%} certified), {clarabel_part}"


def lake_agent_seconds() -> tuple[float, str]:
    """CPU seconds of one agent of figure 2's leading row: ten units of 1000 steps, world included."""
    text = files("tether.experiments").joinpath("studies", "figure2.toml").read_text()
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
