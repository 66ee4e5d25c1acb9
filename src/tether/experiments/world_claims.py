"""Claims about a learner beside its default action: what it gains, and what those break who have no safe set."""

from tether.experiments.claims import Claim
from tether.experiments.results import Cell
from tether.experiments.summary import Interval, paired_difference, per_seed
from tether.experiments.world_units import MEANINGS


def default_of(cells: list[Cell]) -> Cell | None:
    """The cell that plays the safe action and nothing else, if the study has one."""
    return next((cell for cell in cells if cell.agent == "always-safe"), None)


def penalised_cells(cells: list[Cell]) -> list[Cell]:
    """LSVI-UCB with a penalty, by its λ'."""
    found = [cell for cell in cells if cell.cost_radius_origin == "none" and cell.options.get("penalty")]
    return sorted(found, key=lambda cell: float(cell.options["penalty"]))


def best_penalty(cells: list[Cell]) -> Cell | None:
    """The penalty with the fewest violations; among equals the one that earns most."""
    return min(
        penalised_cells(cells),
        key=lambda cell: (float(per_seed(cell, "violations").sum()), -float(per_seed(cell, "reward").mean())),
        default=None,
    )


def gain_over_default(cell: Cell, default: Cell) -> Interval:
    """Reward per episode above the default's on the same instances, in the world's own units."""
    factor = MEANINGS[cell.world].reward if cell.world in MEANINGS else 1.0
    return Interval(*(factor * part for part in paired_difference(cell, default, "reward")))


def beside_default(cells: list[Cell]) -> list[Claim]:
    """What can be said where a learner with the theorem's radius ran beside the default action; else nothing."""
    default = default_of(cells)
    learners = [cell for cell in cells if cell.cost_radius_origin == "theorem"]
    if default is None or not learners or learners[0].world not in MEANINGS:
        return []
    learner, unit = learners[0], MEANINGS[default.world].gain
    gain = gain_over_default(learner, default)
    claims = [
        Claim(
            "learner-beats-default",
            "The safe learner earns more than the default action, while it learns.",
            bool(gain.low > 0.0),
            f"{learner.label} minus the default, in {unit}: {gain} over {len(learner.seeds)} runs",
        )
    ]
    unconstrained = [c for c in cells if c.cost_radius_origin == "none" and not c.options.get("penalty")]
    if unconstrained:
        broken = per_seed(unconstrained[0], "violations")
        claims.append(
            Claim(
                "unconstrained-breaks-the-constraint",
                "LSVI-UCB without a constraint breaks it in every run.",
                bool((broken > 0).all()),
                f"{broken.mean():.0f} violating steps per run; {_harm(unconstrained[0])}",
            )
        )
    return claims + _no_substitute(cells, learner, default)


def _no_substitute(cells: list[Cell], learner: Cell, default: Cell) -> list[Claim]:
    """Whether some penalty does as well as the safe learner: no violation, and no less reward."""
    penalised = penalised_cells(cells)
    if not penalised:
        return []
    ours, parts, rivals = float(per_seed(learner, "reward").mean()), [], 0
    for cell in penalised:
        violations, gain = per_seed(cell, "violations"), gain_over_default(cell, default)
        rivals += bool(violations.sum() == 0 and per_seed(cell, "reward").mean() >= ours)
        parts.append(
            f"λ' = {cell.options['penalty']:g}: {violations.mean():.0f} violations, gain {float(gain.mean):.3g}"
        )
    return [
        Claim(
            "no-penalty-is-a-substitute",
            "No penalty of the grid earns as much as the safe learner without breaking the constraint.",
            rivals == 0,
            f"per run, gain in {MEANINGS[default.world].gain} (the safe learner: 0 violations claimed above, gain "
            f"{float(gain_over_default(learner, default).mean):.3g}): {'; '.join(parts)}",
        )
    ]


def _harm(cell: Cell) -> str:
    """The largest true cost over τ in the world's own units."""
    meaning = MEANINGS[cell.world]
    return f"largest excess over τ: {meaning.cost * float(cell['worst_cost'].max()):.3g} {meaning.harm}"
