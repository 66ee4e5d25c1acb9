"""What a cell of a lake study stands for, read from its options; figures and claims choose by it, labels may change."""

from collections.abc import Sequence
from typing import Literal

from tether.experiments.results import Cell
from tether.experiments.unit_summary import last_units

Kind = Literal["certified", "tuned", "safe-action", "bernoulli", "text-literal", "theory-literal", "theory-small"]

LEARNERS: tuple[Kind, ...] = ("certified", "tuned", "bernoulli", "text-literal", "theory-literal")
"""Kinds that are meant to keep the expected cost under τ; `theory-small` is shown because it does not."""
SMALL_RADIUS = (5.0, 50.0)
"""The first term of the paper's β alone, about 10.4, lies between these; the whole of it is above 1e5, tuned ones are
below 1."""
COST_SLACK = 1e-7
"""An expected cost may exceed τ by this much in floating point and still count as kept."""
ANY_GIVEN_RADIUS = 1e3
"""A given β above this is the paper's own."""


def kind_of(cell: Cell) -> Kind:
    """Which of the readings and settings it is: whose β, pooled over steps or not, one plan a unit or many."""
    options, units = cell.options, cell.info.units or {}
    if cell.agent == "always-safe":
        return "safe-action"
    if cell.world_options.get("costs") == "bernoulli":
        return "bernoulli"
    given = options.get("cost_radius")
    number = float(given) if isinstance(given, int | float) else 0.0
    if SMALL_RADIUS[0] <= number <= SMALL_RADIUS[1]:
        return "theory-small"
    if not options.get("pooled", False) or number >= ANY_GIVEN_RADIUS:
        return "theory-literal"
    if units.get("plan_each") == "unit" or not units.get("restarts", True):
        return "text-literal"
    return "certified" if cell.cost_radius_origin == "theorem" else "tuned"


def threshold_of(cell: Cell) -> float:
    """τ of the cell's world."""
    return float(cell.world_options.get("threshold", 0.1))


def of_kind(cells: Sequence[Cell], *kinds: Kind) -> list[Cell]:
    """The cells of these kinds that have a finished run, in the order of the study."""
    return [cell for cell in cells if cell.seeds and kind_of(cell) in kinds]


def best(cells: Sequence[Cell]) -> Cell | None:
    """The cell with the highest success at the end; the first of equals."""
    return max(cells, key=lambda cell: float(last_units(cell, "success").mean), default=None)


def leading(cells: Sequence[Cell], kind: Kind) -> Cell | None:
    """The one that speaks for its kind: the study's first certified cell is the default; of the others the best."""
    found = of_kind(cells, kind)
    return (found[0] if found else None) if kind == "certified" else best(found)
