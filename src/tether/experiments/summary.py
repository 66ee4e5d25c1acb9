"""Numbers from results: means with 95% bootstrap intervals over seeds, paired differences, a table per agent.

A seed is one independent realisation; episodes of a run are not independent, so nothing is ever resampled over them.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from tether.errors import TetherError
from tether.experiments.results import Cell, Results
from tether.records import Array

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2000
"""Curve points per block of the bootstrap: bounds its memory to 32 MB."""


class Interval(NamedTuple):
    """A mean over seeds with its bootstrap interval; each is a number, or a curve (...,)."""

    mean: Array
    low: Array
    high: Array

    def __str__(self) -> str:
        return f"{float(self.mean):.4g} [{float(self.low):.4g}, {float(self.high):.4g}]"


@dataclass(frozen=True)
class Row:
    """One agent in the table. Regret is R_K, summed over the episodes of a run."""

    agent: str
    explorer: str
    world: str
    seeds: int
    episodes: int
    reward_mean: float
    reward_ci: tuple[float, float]
    regret_mean: float
    regret_ci: tuple[float, float]
    regret_median: float
    regret_worst: float
    violations_total: int
    violating_runs: int
    worst_cost: float
    cost_radius_origin: str
    value_radius_origin: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def interval(samples: Array, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Mean over the first axis (seeds) with a percentile bootstrap: (n, ...) -> (...). Same seed, same interval."""
    rows = np.asarray(samples, dtype=np.float64)
    if rows.shape[0] == 0:
        raise TetherError("no run has finished, so there is no mean: run the study again.")
    count, flat = rows.shape[0], rows.reshape(rows.shape[0], -1)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples) / count
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    bounds = np.empty((2, flat.shape[1]))
    for first in range(0, flat.shape[1], BLOCK):
        part = slice(first, first + BLOCK)
        bounds[:, part] = np.quantile(drawn @ flat[:, part], tails, axis=0)
    shape = rows.shape[1:]
    return Interval(rows.mean(axis=0), bounds[0].reshape(shape), bounds[1].reshape(shape))


def per_seed(cell: Cell, column: str) -> Array:
    """One number per run (n,): totals of regret and violations, means of the rest."""
    values = cell[column]
    totals: Array = values.sum(axis=1) if column in ("regret", "violations") else values.mean(axis=1)
    return totals


def paired_difference(first: Cell, second: Cell, column: str) -> Interval:
    """first − second on the seeds that both finished: the same instances and noise, so what they share cancels."""
    shared = sorted(set(first.seeds) & set(second.seeds))
    if not shared:
        raise TetherError(f"{first.label} and {second.label} have no finished seed in common.")
    ours, theirs = (per_seed(cell, column)[[cell.seeds.index(seed) for seed in shared]] for cell in (first, second))
    return interval(ours - theirs)


def row(cell: Cell, episodes: int) -> Row:
    """The table's line for one cell."""
    rewards, regrets, violations = (per_seed(cell, name) for name in ("reward", "regret", "violations"))
    reward, regret = interval(rewards), interval(regrets)
    return Row(
        agent=cell.label,
        explorer=cell.explorer,
        world=cell.world,
        seeds=len(cell.seeds),
        episodes=episodes,
        reward_mean=float(reward.mean),
        reward_ci=(float(reward.low), float(reward.high)),
        regret_mean=float(regret.mean),
        regret_ci=(float(regret.low), float(regret.high)),
        regret_median=float(np.median(regrets)),
        regret_worst=float(regrets.max()),
        violations_total=int(violations.sum()),
        violating_runs=int((violations > 0).sum()),
        worst_cost=float(cell["worst_cost"].max()),
        cost_radius_origin=cell.cost_radius_origin,
        value_radius_origin=cell.value_radius_origin,
    )


def table(results: Results) -> list[Row]:
    """A row per cell that has at least one finished run, in the order of the spec."""
    return [row(cell, results.episodes) for cell in results.cells if cell.seeds]
