"""From results to the panels of a figure, as plain data: printed and interactive figures both draw from these.

A study that is not a learning curve adds its own builder to `BUILDERS`; nothing else changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tether.experiments.figure_style import Style, radius_note, role, short_name, styles
from tether.experiments.results import Cell, Results
from tether.experiments.summary import interval
from tether.records import Array

POINTS = 400
"""Most points of a curve: a picture has no more columns to show."""
MOST_CURVES, MOST_WORLDS = 12, 8
"""More curves in a figure, or more figures of a study, say nothing; the tables hold them all."""


@dataclass(frozen=True, eq=False)
class Series:
    """One curve with its 95% band; x, y, low and high have the same length."""

    name: str
    note: str
    style: Style
    x: Array
    y: Array
    low: Array
    high: Array
    total: float  # the sum over episodes and seeds of what is counted, for direct labels


@dataclass(frozen=True, eq=False)
class Guide:
    """A reference line that belongs to no agent."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes. Scales: linear, log, or count, which is log10(1 + y/unit) so that zero has a place."""

    key: str
    title: str
    subtitle: str
    x_title: str
    y_title: str
    x_scale: str
    y_scale: str
    unit: float
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    notes: tuple[str, ...] = ()
    y_range: tuple[float, float] | None = None  # else as far as the curves reach


@dataclass(frozen=True, eq=False)
class Chart:
    """The panels of one study in one world. Every panel has the same curves in the same order, empty where unknown."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 0  # panels beside each other in print; 0: all of them
    lake: bool = False  # with the map of the lake beside them


def charts(results: Results) -> list[Chart]:
    """What there is to draw: one chart per world of the study."""
    if results.counts_units:
        from tether.experiments.figure2_data import unit_charts

        return unit_charts(results)
    return BUILDERS.get(results.study, learning_curves)(results)


def learning_curves(results: Results) -> list[Chart]:
    """Reward, violations and regret over episodes, for every world of the study."""
    places: dict[str, list[Cell]] = {}
    for cell in results.cells:
        if cell.seeds:
            places.setdefault(f"{cell.world} {sorted(cell.world_options.items())}", []).append(cell)
    made = []
    for index, cells in enumerate(list(places.values())[:MOST_WORLDS]):
        name = results.study if len(places) == 1 else f"{results.study}-{index + 1}"
        title = results.title or results.study
        title += "" if len(places) == 1 else f" · {_place(cells[0], results)}"
        shown = most_telling(cells)
        panels = (reward_panel(shown), violations_panel(shown), regret_panel(shown))
        caption = _caption(results, cells, shown)
        if index + 1 == MOST_WORLDS < len(places):
            caption += f" {len(places) - MOST_WORLDS} more worlds are in the table."
        made.append(Chart(name, title, caption, panels))
    return made


def most_telling(cells: Sequence[Cell]) -> list[Cell]:
    """At most MOST_CURVES cells in their order: of every kind of agent the ones with the lowest regret, in turns."""
    if len(cells) <= MOST_CURVES:
        return list(cells)
    kinds: dict[str, list[tuple[float, int]]] = {}
    for index, cell in enumerate(cells):
        kinds.setdefault(role(cell), []).append((float(cell["regret"].sum(axis=1).mean()), index))
    turns = [(place, index) for members in kinds.values() for place, (_, index) in enumerate(sorted(members))]
    return [cells[index] for index in sorted(index for _, index in sorted(turns)[:MOST_CURVES])]


def _worlds(results: Results) -> list[Chart]:
    from tether.experiments.world_figures import world_charts

    return world_charts(results)


BUILDERS: dict[str, Callable[[Results], list[Chart]]] = {"worlds": _worlds}
"""Studies that are drawn in their own way, by name."""


def reward_panel(cells: Sequence[Cell]) -> Panel:
    """Moving average of the realised return; the optimum of the same instances is exact and has no band of its own."""
    episodes = cells[0]["reward"].shape[1]
    at = log_grid(episodes)
    at = at[at >= min(10, episodes)]  # single episodes of a few seeds are only noise
    series, optimum = [], float(np.mean([cell["optimal_value"].mean() for cell in cells]))
    for cell, style in zip(cells, styles(cells), strict=True):
        reward, best = cell["reward"], cell["optimal_value"]
        level = moving_average(reward, at)
        gap = moving_average(reward - best, at)
        centre, (middle, low, high) = level.mean(axis=0), interval(gap)
        shift = centre - middle
        series.append(_series(cell, style, at, centre, low + shift, high + shift, float(reward.sum())))
    guide = Guide(f"optimal safe policy (exact): {optimum:.3f}", at[[0, -1]], np.full(2, optimum))
    return Panel(
        key="reward",
        title="Reward per episode",
        subtitle="Average over the last quarter of the episodes so far. Band: 95% over seeds, of the gap to the same "
        "instance's optimum.",
        x_title="episode",
        y_title="reward",
        x_scale="log",
        y_scale="linear",
        unit=1.0,
        series=tuple(series),
        guides=(guide,),
    )


def violations_panel(cells: Sequence[Cell]) -> Panel:
    """Steps whose true cost exceeds τ, cumulated: the point of the paper."""
    seeds = max(len(cell.seeds) for cell in cells)
    series = _cumulative(cells, "violations", even_grid)
    clean = [(curve, len(cell.seeds)) for curve, cell in zip(series, cells, strict=True) if curve.total == 0.0]
    runs = {count for _, count in clean}
    where = _runs(seeds) + " each" if runs == {seeds} else "all finished runs"
    notes = (f"0 violations in {where}: {' · '.join(curve.name for curve, _ in clean)}",) if clean else ()
    return Panel(
        key="violations",
        title="True violations so far",
        subtitle="Steps whose true cost exceeds τ, mean per run. The axis is logarithmic above one violation in all "
        "runs, so that 0 is on it.",
        x_title="episode",
        y_title="violations per run",
        x_scale="linear",
        y_scale="count",
        unit=1.0 / seeds,
        series=series,
        notes=notes,
    )


def regret_panel(cells: Sequence[Cell]) -> Panel:
    """Exact pseudo-regret against the best safe policy, on log-log axes beside the slope of √K."""
    series = _cumulative(cells, "regret", log_grid)
    negative = [curve.name for curve in series if (curve.y <= 0.0).any()]
    unsafe = any(cell.cost_radius_origin == "none" for cell in cells)
    subtitle = "Mean per run, beside the slope of √K."
    if unsafe or negative:
        subtitle = (
            "Agents that break the constraint can earn more than the safe optimum; log axes cannot show regret ≤ 0 or "
            "bands that reach it."
        )
    notes = (f"Partly ≤ 0, and on log axes not drawn there: {' · '.join(negative)}.",) if negative else ()
    return Panel(
        key="regret",
        title="Pseudo-regret so far",
        subtitle=subtitle,
        x_title="episode K",
        y_title="regret vs. the safe optimum",
        x_scale="log",
        y_scale="log",
        unit=1.0,
        series=series,
        guides=_root_guide(series),
        notes=notes,
    )


def _root_guide(series: Sequence[Series]) -> tuple[Guide, ...]:
    """√K from a tenth of the episodes on, placed under the lowest curve so that it crosses none."""
    x = series[0].x
    if len(x) < 2 or x[-1] < 10.0:
        return ()
    span = np.array([max(1.0, x[-1] / 30.0), x[-1]])
    ends = [np.interp(span, x, curve.y) for curve in series if (curve.y > 0.0).all()]
    if not ends:
        return ()
    scale = min(float((end / np.sqrt(span)).min()) for end in ends)
    return (Guide("√K", span, 0.55 * scale * np.sqrt(span)),)


def _cumulative(cells: Sequence[Cell], column: str, grid: Callable[[int], Array]) -> tuple[Series, ...]:
    """The running sum of a column, mean over seeds with its band."""
    made = []
    for cell, style in zip(cells, styles(cells), strict=True):
        sums = np.cumsum(cell[column], axis=1)  # (n, K)
        at = grid(sums.shape[1])
        picked = sums[:, at.astype(int) - 1]
        made.append(_series(cell, style, at, *interval(picked), total=float(sums[:, -1].sum())))
    return tuple(made)


def _series(cell: Cell, style: Style, x: Array, y: Array, low: Array, high: Array, total: float) -> Series:
    return Series(short_name(cell), radius_note(cell), style, x, y, low, high, total)


def even_grid(episodes: int) -> Array:
    """At most POINTS episodes, evenly spaced, the first and the last among them."""
    grid: Array = np.unique(np.linspace(1, episodes, POINTS).round())
    return grid


def log_grid(episodes: int) -> Array:
    """At most POINTS episodes, evenly spaced on a log axis."""
    grid: Array = np.unique(np.geomspace(1, episodes, POINTS).round())
    return grid


def moving_average(rows: Array, at: Array) -> Array:
    """Mean over the last quarter of the episodes up to each one in `at`: (n, K) -> (n, len(at)).

    The window grows with the episode, as the steps of a log axis do: early learning is not averaged away.
    """
    sums = np.concatenate([np.zeros((rows.shape[0], 1)), np.cumsum(rows, axis=1)], axis=1)
    last = at.astype(int)
    first = last - np.maximum(1, last // 4)
    averages: Array = (sums[:, last] - sums[:, first]) / (last - first)
    return averages


def _caption(results: Results, cells: Sequence[Cell], shown: Sequence[Cell]) -> str:
    counts = sorted({len(cell.seeds) for cell in cells})
    seeds = _runs(counts[0]) if len(counts) == 1 else f"{counts[0]} to {_runs(counts[-1])}"
    text = f"{seeds} of {_episodes(results.episodes)} each, the same instances for every agent; bands: 95% over seeds."
    if len(shown) < len(cells):
        text += f" {len(shown)} of {len(cells)} agents: the lowest regrets of every kind; the table has all."
    if results.missing:
        text += f" {_runs(len(results.missing))} missing."
    return text


def _place(cell: Cell, results: Results) -> str:
    """A world by the options in which it differs from the others of the study."""
    differing = [
        f"{name}={value}"
        for name, value in cell.world_options.items()
        if any(other.world_options.get(name) != value for other in results.cells)
    ]
    return " ".join([cell.world, *differing])


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _episodes(count: int) -> str:
    return "1 episode" if count == 1 else f"{count:,} episodes"
