"""Studies in interaction units to panels: success, return and safety of RSLUCB-QVI beside CISR and the safe action."""

from collections.abc import Callable, Sequence

import numpy as np

from tether.experiments.cisr_curves import STEPS, CisrRun, cisr_runs
from tether.experiments.figure_data import Chart, Guide, Panel, Series
from tether.experiments.figure_style import RAMPS, Style, blend, radius_note, short_name
from tether.experiments.results import Cell, Results
from tether.experiments.summary import Interval, interval
from tether.experiments.unit_kinds import COST_SLACK, Kind, kind_of, threshold_of
from tether.experiments.unit_summary import by_instance, last_units
from tether.records import Array

MOST_CELLS = 7
"""More curves than these, with two of CISR beside them, cannot be told apart; the table has all."""

FEWEST_AGENTS = 5
"""Rows of fewer agents are drawn only where there is little else."""

LOOKS: dict[Kind, tuple[str, str, str]] = {
    "certified": ("adaptive", "solid", "o"),
    "tuned": ("paper", "solid", "D"),
    "bernoulli": ("certified", "solid", "^"),
    "theory-small": ("penalised", "solid", "v"),
    "theory-literal": ("unconstrained", "dot", "X"),
    "text-literal": ("unconstrained", "dash", "P"),
    "safe-action": ("told", "dash", "s"),
}
"""Hue, dash and marker of each kind of cell."""
RIVALS = (Style("#c1440e", "#ff9466", "dashdot", "", 2.0), Style("#d98a3d", "#ffc58f", "dot", "", 2.0))
"""CISR, run by us and by its authors."""


def unit_charts(results: Results) -> list[Chart]:
    """One chart for the study; none if nothing has run."""
    done = [cell for cell in results.cells if cell.seeds and cell.info.units is not None]
    if not done:
        return []
    shown, rivals = most_telling(done), cisr_runs(results.folder)
    panels = (
        success_panel(shown, rivals),
        return_panel(shown, rivals),
        steps_panel(shown, rivals),
        cost_panel(shown, rivals),
        falls_panel(shown, rivals),
    )
    title = results.title or results.study
    lake = all(cell.world == "frozen-lake" for cell in shown)
    return [Chart(results.study, title, _caption(results, done, shown), panels, columns=3, lake=lake)]


def most_telling(cells: Sequence[Cell]) -> list[Cell]:
    """At most MOST_CELLS in their order: of every kind the ones with the highest final success, in turns.

    A row of a few agents beside rows of many is mostly band: it stays in the table.
    """
    many = [cell for cell in cells if len(set(cell.instances)) >= FEWEST_AGENTS]
    cells = many if len(many) > 2 else cells
    if len(cells) <= MOST_CELLS:
        return list(cells)
    kinds: dict[Kind, list[tuple[float, int]]] = {}
    for index, cell in enumerate(cells):
        kinds.setdefault(kind_of(cell), []).append((-float(last_units(cell, "success").mean), index))
    order = list(LOOKS)
    turns = [
        (place, order.index(kind), index)
        for kind, members in kinds.items()
        for place, (_, index) in enumerate(sorted(members))
    ]
    return [cells[index] for index in sorted(index for _, _, index in sorted(turns)[:MOST_CELLS])]


def success_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """How many of a unit's trajectories end at the goal."""
    return _learning_panel(
        "success", "Success rate per unit",
        "Trajectories that end at the goal, of all that end in the unit. Band: 95% over agents (CISR: over students).",
        "success rate", cells, rivals, "success", lambda rival: rival.success, (0.0, 1.04),
    )  # fmt: skip


def return_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Return per trajectory; of the authors' CISR only the final number is published."""
    guides = tuple(
        Guide(f"CISR, authors, final: {rival.final_return:.2f}", np.array([1.0, _units(cells)]), _level(rival))
        for rival in rivals
        if np.isnan(rival.earned).all()
    )
    return _learning_panel(
        "return", "Average return per unit",
        "Per trajectory: 6 at the goal, 0.01 otherwise. CISR also pays 0.01 for every step, so its best is lower.",
        "return", cells, rivals, "average_return", lambda rival: rival.earned, (-0.6, 6.4), guides,
    )  # fmt: skip


def _level(rival: CisrRun) -> Array:
    return np.full(2, rival.final_return)


def _learning_panel(
    key: str,
    title: str,
    subtitle: str,
    y_title: str,
    cells: Sequence[Cell],
    rivals: Sequence[CisrRun],
    column: str,
    theirs: Callable[[CisrRun], Array],
    y_range: tuple[float, float],
    guides: tuple[Guide, ...] = (),
) -> Panel:
    """A column per unit, with its band over agents."""
    units = _units(cells)
    series = [
        _series(cell, style, _first(units), interval(by_instance(cell, column)))
        for cell, style in zip(cells, styles(cells), strict=True)
    ]
    series += [_rival(rival, theirs(rival), units) for rival in rivals]
    return Panel(
        key, title, subtitle, "interaction unit", y_title, "linear", "linear", 1.0, tuple(series), guides,
        y_range=y_range,
    )  # fmt: skip


def steps_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Success against the steps taken: a unit of ours is about a tenth of one of CISR's."""
    source = success_panel(cells, rivals)
    lengths = [float((cell.info.units or {}).get("steps", 1000)) for cell in cells] + [float(STEPS)] * len(rivals)
    series = tuple(
        Series(c.name, c.note, c.style, c.x * length, c.y, c.low, c.high, c.total)
        for c, length in zip(source.series, lengths, strict=True)
    )
    return Panel(
        "steps", "Success rate by steps taken", "The same success over all training steps so far: "
        "a unit of CISR has nearly ten times as many.",
        "training steps", "success rate", "log", "linear", 1.0, series, y_range=(0.0, 1.04),
    )  # fmt: skip


def cost_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """The largest true expected cost of any step taken or planned, in any run: what the constraint bounds."""
    units, series, clean = _units(cells), [], []
    for cell, style in zip(cells, styles(cells), strict=True):
        threshold = threshold_of(cell)
        over = np.maximum(cell["worst_cost"], cell["planned_worst_cost"]).max(axis=0)
        worst = threshold + over
        excess = float(np.maximum(over, 0.0).max())
        curve = _series(cell, style, _first(units), Interval(worst, worst, worst))
        series.append(_counted(curve, excess if excess > COST_SLACK else 0.0))
        clean += [cell] if excess <= COST_SLACK else []
    series += [_rival(rival, np.full((1, units), np.nan), units) for rival in rivals]
    tau = threshold_of(cells[0])
    runs = sum(len(cell.seeds) for cell in clean)
    names = " · ".join(short_name(cell) for cell in clean)
    notes = (f"never above τ, in any of {runs:,} runs: {names}",) if clean else ()
    return Panel(
        "cost", "Largest expected cost", "The largest true risk of danger of any step taken or planned, over all runs: "
        "what the constraint bounds. CISR has no such bound.", "interaction unit", "largest expected cost",
        "linear", "log", 1.0, tuple(series), (Guide(f"τ = {tau:g}", np.array([1.0, units]), np.full(2, tau)),), notes,
        y_range=(0.2 * tau, 1.5),
    )  # fmt: skip


def falls_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Trajectories that end in danger: the constraint bounds the risk of a step, so that there are some."""
    made = _learning_panel(
        "falls", "Falls into danger per unit",
        "Mean per run, while learning. CISR's teacher stops its students in time: 0 by construction.",
        "falls per unit", cells, rivals, "falls", lambda rival: rival.falls, (0.0, 1.0),
    )  # fmt: skip
    top = max(float(curve.high.max()) for curve in made.series if len(curve.x))
    series = tuple(_counted(curve, float(curve.y.sum())) for curve in made.series)
    return Panel(
        made.key, made.title, made.subtitle, made.x_title, made.y_title, made.x_scale, made.y_scale, 1.0, series,
        notes=(f"Safe is not fall-free: τ bounds the expected cost of a step, and {_allowed(cells)}.",),
        y_range=(-0.03 * max(top, 1.0), 1.15 * max(top, 1.0)),
    )  # fmt: skip


def styles(cells: Sequence[Cell]) -> list[Style]:
    """A look per cell: its kind's, shaded by its place among the cells of that kind."""
    kinds = [kind_of(cell) for cell in cells]
    made = []
    for index, kind in enumerate(kinds):
        hue, dash, marker = LOOKS[kind]
        share = kinds[:index].count(kind) / max(1, kinds.count(kind) - 1)
        light, dark = blend(*RAMPS[hue].light, share), blend(*RAMPS[hue].dark, share)
        made.append(Style(light, dark, dash, marker, 2.4 if kind == "certified" and share == 0.0 else 1.7))
    return made


def _rival(rival: CisrRun, rows: Array, units: int) -> Series:
    """A curve of CISR, as far as our axis reaches; without points where nothing is known."""
    style = RIVALS[-1] if rival.by_authors else RIVALS[0]
    shown = rows[:, :units]
    if np.isnan(shown).any():
        shown = np.empty((1, 0))
    return Series(rival.name, rival.note, style, _first(shown.shape[1]), *interval(shown), total=1.0)


def _series(cell: Cell, style: Style, x: Array, band: Interval) -> Series:
    return Series(short_name(cell), cell_note(cell), style, x, *band, total=1.0)


def _counted(curve: Series, total: float) -> Series:
    return Series(curve.name, curve.note, curve.style, curve.x, curve.y, curve.low, curve.high, total)


def cell_note(cell: Cell) -> str:
    """Whose β it is; the safe action alone has none."""
    return "the safe action everywhere; learns nothing" if cell.agent == "always-safe" else radius_note(cell)


def _first(units: int) -> Array:
    return np.arange(1.0, units + 1.0)


def _units(cells: Sequence[Cell]) -> int:
    return int(cells[0]["success"].shape[1])


def _allowed(cells: Sequence[Cell]) -> str:
    tau = threshold_of(cells[0])
    return f"τ = {tau:g} allows a {100 * tau:g}% risk"


def _caption(results: Results, cells: Sequence[Cell], shown: Sequence[Cell]) -> str:
    steps = sorted({int((cell.info.units or {}).get("steps", 1000)) for cell in cells})
    length = " or ".join(f"{count:,}" for count in steps)
    agents = sorted({len(set(cell.instances)) for cell in cells})
    runs = sum(len(cell.seeds) for cell in cells)
    text = (
        f"A unit is {length} steps for RSLUCB-QVI and {STEPS:,} training steps for CISR, nearly ten times as many. "
        "Ours is counted while it learns; CISR is judged after each unit, by 10,000 further steps without its teacher. "
        f"“Safe” bounds the expected cost of a step: {_allowed(cells)} at every step, so falls remain. "
        f"{' to '.join(str(count) for count in dict.fromkeys((agents[0], agents[-1])))} agents, {runs:,} runs."
    )
    if len(shown) < len(cells):
        text += f" {len(shown)} of {len(cells)} rows are drawn, some of every kind; the table has all."
    if results.missing:
        text += f" {len(results.missing):,} runs are missing."
    return text
