"""One figure per recognisable world: reward, violations, and what was gained over the default in its own units."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tether.experiments.figure_data import (
    Chart,
    Panel,
    Series,
    even_grid,
    reward_panel,
    violations_panel,
)
from tether.experiments.figure_style import radius_note, short_name, styles
from tether.experiments.results import Cell, Results
from tether.experiments.summary import interval
from tether.experiments.world_claims import best_penalty, default_of, penalised_cells
from tether.experiments.world_units import MEANINGS, Meaning


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
