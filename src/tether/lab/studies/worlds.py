"""What rewards and costs mean in the worlds that people recognise: numbers for figures, claims and pages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tether.lab.books import Cell, Interval, Results, interval, paired_difference, per_seed
from tether.lab.claims import Claim
from tether.lab.plots import (
    Chart,
    Panel,
    Series,
    even_grid,
    radius_note,
    reward_panel,
    short_name,
    styles,
    violations_panel,
)
from tether.lab.worlds.heating import KELVIN, MOST_SAVED

EUROS = 10.0
"""Per cohort and day: what the ad world's reward is a share of."""


@dataclass(frozen=True)
class Meaning:
    """A world in its own words: `reward` units of gain per unit of reward, `cost` units of harm per unit of cost."""

    title: str
    episode: str  # what an episode is
    unit: str  # in which gain is counted
    gain: str  # the gain of one episode
    reward: float
    harm: str  # what an excess over τ is counted in
    cost: float


MEANINGS = {
    "dosing": Meaning(
        title="Dose titration",
        episode="patient, six monthly visits",
        unit="quality-adjusted months",
        gain="quality-adjusted months per patient",
        reward=1.0,
        harm="points of toxicity",
        cost=1.0,
    ),
    "heating": Meaning(
        title="Heating",
        episode="house, one day",
        unit="kWh",
        gain="kWh saved per house and day",
        reward=MOST_SAVED,
        harm="K",
        cost=KELVIN,
    ),
    "ad-load": Meaning(
        title="Ad load",
        episode="cohort, one week",
        unit="euros",
        gain="euros per cohort and week",
        reward=EUROS,
        harm="percentage points",
        cost=100.0,
    ),
}
"""By the registry name of the world."""


# Claims about a learner beside its default action: what it gains, and what those break who have no safe set.


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


# One figure per recognisable world: reward, violations, and what was gained over the default in its own units.


def world_charts(results: Results) -> list[Chart]:
    """A chart for every world that has a meaning and a default to compare with."""
    made = []
    for world in dict.fromkeys(cell.world for cell in results.cells if cell.world in MEANINGS):
        cells = [cell for cell in results.cells if cell.world == world and cell.seeds]
        default = default_of(cells)
        if default is None:
            continue
        meaning, shown = MEANINGS[world], shown_cells(cells)
        panels = (
            _named(reward_panel(shown), world),
            _named(_violations(shown, meaning), world),
            _named(gain_panel(shown, default, meaning), world),
        )
        made.append(Chart(f"{results.study}-{world}", meaning.title, _caption(results, cells, meaning), panels))
    return made


def shown_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Every cell, but of the penalties only the best."""
    best = best_penalty(list(cells))
    dropped = [cell for cell in penalised_cells(list(cells)) if cell is not best]
    return [cell for cell in cells if cell not in dropped]


def gain_panel(cells: Sequence[Cell], default: Cell, meaning: Meaning) -> Panel:
    """What was earned beyond the default on the same instances, summed over the episodes so far."""
    series = []
    for cell, style in zip(cells, styles(cells), strict=True):
        shared = sorted(set(cell.seeds) & set(default.seeds))
        ours, theirs = (
            one["reward"][[one.seeds.index(seed) for seed in shared]] for one in (cell, default)
        )  # the same seeds of both, (n, K)
        at = even_grid(ours.shape[1])
        so_far = meaning.reward * np.cumsum(ours - theirs, axis=1)[:, at.astype(int) - 1]
        middle, low, high = interval(so_far)
        series.append(
            Series(short_name(cell), radius_note(cell), style, at, middle, low, high, float(so_far[:, -1].sum()))
        )
    return Panel(
        key="gain",
        title="Gained over the default so far",
        subtitle=f"Gain in {meaning.unit} over the default on the same instances, summed over the episodes of a run.",
        x_title=f"episode ({meaning.episode})",
        y_title=meaning.unit,
        x_scale="linear",
        y_scale="linear",
        unit=1.0,
        series=tuple(series),
    )


def _violations(cells: Sequence[Cell], meaning: Meaning) -> Panel:
    """The usual panel; its subtitle says how far the constraint was broken."""
    worst = [(short_name(cell), meaning.cost * float(cell["worst_cost"].max())) for cell in cells]
    over = [f"{name.partition(' in ')[0]}: {excess:.2g}" for name, excess in worst if excess > 1e-9]
    text = f"Steps whose true cost exceeds τ. Largest excess in {meaning.harm}: {'; '.join(over) or 'none'}."
    return replace(violations_panel(cells), subtitle=text)


def _named(panel: Panel, world: str) -> Panel:
    """Labels without the world's name, which the figure has in its title."""
    place = f" in {world}"
    series = tuple(replace(curve, name=curve.name.replace(place, "")) for curve in panel.series)
    return replace(panel, series=series, notes=tuple(note.replace(place, "") for note in panel.notes))


def _caption(results: Results, cells: Sequence[Cell], meaning: Meaning) -> str:
    runs, tried = min(len(cell.seeds) for cell in cells), penalised_cells(list(cells))
    size = f"{runs} instances × {results.episodes:,} episodes"
    text = f"{meaning.title}: {size}, the same for every agent; bands: 95% over instances."
    if len(tried) > 1:
        grid = ", ".join(f"{cell.options['penalty']:g}" for cell in tried)
        text += f" Of the penalties λ' in {{{grid}}} the one with the fewest violations is shown."
    return text
