"""Numbers of studies that are counted in interaction units: success, return and safety, with intervals over agents.

An agent is one draw of the instance; its repeats share that instance, so they are averaged before any resampling.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tether.experiments.results import Cell, Results
from tether.experiments.summary import Interval, interval
from tether.records import Array

LAST = 3
"""Units at the end of a run that its final numbers are averaged over."""


@dataclass(frozen=True)
class UnitRow:
    """One agent in the table. `max_expected_cost` is over every step taken and every planned state of every run."""

    agent: str
    explorer: str
    world: str
    seeds: int
    runs: int
    units: int
    success_last3: float
    success_last3_ci: tuple[float, float]
    return_last3: float
    return_last3_ci: tuple[float, float]
    success_by_unit: tuple[float, ...]
    falls_per_run: float
    max_expected_cost: float
    violations_total: int
    violating_runs: int
    cost_radius_origin: str
    value_radius_origin: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def by_instance(cell: Cell, column: str) -> Array:
    """A column averaged over the repeats of each instance: (instances, U)."""
    instances = np.array(cell.instances)
    values = cell[column]
    return np.array([values[instances == instance].mean(axis=0) for instance in np.unique(instances)])


def last_units(cell: Cell, column: str) -> Interval:
    """Mean over the last units, with its interval over agents."""
    return interval(by_instance(cell, column)[:, -LAST:].mean(axis=1))


def max_expected_cost(cell: Cell) -> float:
    """The largest true expected cost that any run took or planned, over all its units."""
    threshold = float(cell.world_options.get("threshold", 0.1))
    return threshold + float(max(cell["worst_cost"].max(), cell["planned_worst_cost"].max()))


def unit_row(cell: Cell, units: int) -> UnitRow:
    """The table's line for one cell."""
    success, earned = last_units(cell, "success"), last_units(cell, "average_return")
    violations = cell["violations"].sum(axis=1)
    return UnitRow(
        agent=cell.label,
        explorer=cell.explorer,
        world=cell.world,
        seeds=len(set(cell.instances)),
        runs=len(cell.seeds),
        units=units,
        success_last3=float(success.mean),
        success_last3_ci=(float(success.low), float(success.high)),
        return_last3=float(earned.mean),
        return_last3_ci=(float(earned.low), float(earned.high)),
        success_by_unit=tuple(by_instance(cell, "success").mean(axis=0).tolist()),
        falls_per_run=float(cell["falls"].sum(axis=1).mean()),
        max_expected_cost=max_expected_cost(cell),
        violations_total=int(violations.sum()),
        violating_runs=int((violations > 0).sum()),
        cost_radius_origin=cell.cost_radius_origin,
        value_radius_origin=cell.value_radius_origin,
    )


def unit_table(results: Results) -> list[UnitRow]:
    """A row per cell that has at least one finished run, in the order of the spec."""
    return [unit_row(cell, results.episodes) for cell in results.cells if cell.seeds]
