"""Worlds that people recognise: what a safe learner gains over the default in the world's own units, and what the
others break. Claims and table are those of every study in episodes."""

from collections.abc import Sequence
from dataclasses import replace

from tether.lab.books import Cell, Results, paired, per_seed
from tether.lab.plots import Chart, Panel, radius_note, running_sum, styles
from tether.lab.registry import Meaning, meaning_of
from tether.lab.studies import figure1
from tether.lab.studies.figure1 import (
    best_penalty,
    default_of,
    gain_over_default,
    penalised,
    reward_panel,
    violations_panel,
)
from tether.lab.view import Table, View


def charts(results: Results) -> list[Chart]:
    """A chart for every world that has a meaning and a default to compare with."""
    made = []
    for world in dict.fromkeys(cell.world for cell in results.cells):
        meaning, cells = meaning_of(world), [cell for cell in results.finished if cell.world == world]
        default = default_of(cells)
        if meaning is None or default is None:
            continue
        shown = [replace(cell, world_label="") for cell in shown_cells(cells)]  # the figure's title names the world
        panels = (reward_panel(shown), _violations(shown, meaning), gain_panel(shown, default, meaning))
        made.append(Chart(f"{results.study}-{world}", meaning.title, _caption(results, cells, meaning), panels))
    return made


def shown_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Every cell, but of the penalties only the best."""
    best = best_penalty(cells)
    dropped = [cell for cell in penalised(cells) if cell is not best]
    return [cell for cell in cells if cell not in dropped]


def gain_panel(cells: Sequence[Cell], default: Cell, meaning: Meaning) -> Panel:
    """What was earned beyond the default on the same instances, summed over the episodes so far."""
    series = []
    for cell, style in zip(cells, styles(cells), strict=True):
        ours, theirs = paired(cell, default, "reward")
        series.append(running_sum(cell.name, radius_note(cell), style, meaning.reward * (ours - theirs)))
    return Panel(
        key="gain",
        title="Gained over the default so far",
        subtitle=f"Gain in {meaning.unit} over the default on the same instances, summed over the episodes of a run.",
        x_title=f"episode ({meaning.episode})",
        y_title=meaning.unit,
        series=tuple(series),
    )


def _violations(cells: Sequence[Cell], meaning: Meaning) -> Panel:
    """The usual panel; its subtitle says how far the constraint was broken."""
    worst = [(cell.name, meaning.cost * float(cell["worst_cost"].max())) for cell in cells]
    over = [f"{name}: {excess:.2g}" for name, excess in worst if excess > 1e-9]
    text = f"Steps whose true cost exceeds τ. Largest excess in {meaning.harm}: {'; '.join(over) or 'none'}."
    return replace(violations_panel(cells), subtitle=text)


def _caption(results: Results, cells: Sequence[Cell], meaning: Meaning) -> str:
    runs, tried = min(len(cell.seeds) for cell in cells), penalised(cells)
    size = f"{runs} instances × {results.episodes:,} episodes"
    text = f"{meaning.title}: {size}, the same for every agent; bands: 95% over instances."
    if len(tried) > 1:
        grid = ", ".join(f"{cell.options['penalty']:g}" for cell in tried)
        text += f" Of the penalties λ' in {{{grid}}} the one with the fewest violations is shown."
    return text


# What a page shows


def gains(results: Results) -> list[tuple[Cell, Cell, Meaning]]:
    """Every agent beside the default of its world, and what its gain means."""
    found = []
    for cells in figure1.by_world(results):
        default, meaning = default_of(cells), meaning_of(cells[0].world)
        if default is not None and meaning is not None:
            found += [(cell, default, meaning) for cell in cells if cell is not default]
    return found


def more(results: Results) -> dict[str, Table]:
    """A row per world and agent: the gain over the default while learning, steps over τ, the worst of them."""
    heads = (
        "world",
        "agent",
        "gain while learning (95%)",
        "in",
        "steps over τ a run",
        "in runs",
        "largest cost over τ by",
    )
    lines = []
    for cell, default, meaning in gains(results):
        gain, broken = gain_over_default(cell, default), per_seed(cell, "violations")
        excess = meaning.cost * float(cell["worst_cost"].max())
        lines.append(
            (
                cell.world,
                cell.agent_label,
                f"{float(gain.mean):+.3g} ({float(gain.low):.3g} to {float(gain.high):.3g})",
                meaning.gain,
                f"{broken.mean():.0f}",
                f"{int((broken > 0).sum())} of {len(broken)}",
                f"{excess:.2g} {meaning.harm}" if excess > 1e-9 else "never",
            )
        )
    return {"gains": Table([], heads, lines, [])}


LATE = 0.25
"""The share of the episodes that the end of a run is judged by."""


def values(results: Results) -> dict[str, float | str]:
    """Of each world: the default's reward, the learner's gain over it, early and late, and the best safe policy's; and
    how often those break the constraint who have no safe set."""
    found: dict[str, float | str] = {}
    free, fined, runs, ours = [], [], 0, 0
    for cell, default, meaning in gains(results):
        if cell.cost_radius_origin == "theorem":
            late, (mine, plain) = -int(LATE * results.episodes), paired(cell, default, "value")
            best, world = paired(cell, default, "optimal_value")[0], cell.world
            gain = gain_over_default(cell, default)
            found[f"default-{world}"] = meaning.reward * float(per_seed(default, "reward").mean())
            found[f"gain-{world}"] = float(gain.mean)
            found[f"gain-{world}-low"], found[f"gain-{world}-high"] = float(gain.low), float(gain.high)
            found[f"late-gain-{world}"] = meaning.reward * float((mine - plain)[:, late:].mean())
            found[f"best-gain-{world}"] = meaning.reward * float((best - plain).mean())
            runs, ours = runs + len(cell.seeds), ours + int(per_seed(cell, "violations").sum())
        elif cell.options.get("penalty"):
            fined.append(float(per_seed(cell, "violations").mean()))
        elif cell.cost_radius_origin == "none":
            free.append(float(per_seed(cell, "violations").mean()))
    if free and fined:
        found |= {"free-least": min(free), "free-most": max(free), "fined-least": min(fined), "fined-most": max(fined)}
        found["fined-most-careful-most"] = max(
            float(per_seed(careful, "violations").mean())
            for cells in figure1.by_world(results)
            if (careful := best_penalty(cells)) is not None
        )
    return found | {"runs": runs, "violations": ours}


VIEW = View(
    charts=charts, claims=figure1.claims, table=figure1.table, summary=figure1.summary, more=more, values=values
)
