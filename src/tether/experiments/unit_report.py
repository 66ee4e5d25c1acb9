"""What the report says of studies in interaction units: a lead, a table, and the portrait of the lake."""

import base64
from collections.abc import Sequence
from html import escape

from tether.experiments.cisr_curves import STEPS, cisr_runs
from tether.experiments.figure2_data import cell_note
from tether.experiments.figure_style import short_name
from tether.experiments.lake_picture import describe, portrait, render_portrait
from tether.experiments.report_parts import ORIGINS, html_table
from tether.experiments.results import Cell, Results
from tether.experiments.unit_kinds import COST_SLACK, threshold_of
from tether.experiments.unit_summary import LAST, UnitRow


def lead(results: Results, rows: Sequence[UnitRow]) -> str:
    """What a reader should know who reads nothing else."""
    steps = sorted({int(cell.info.units["steps"]) for cell in results.cells if cell.info.units is not None})
    length = " or ".join(f"{count:,}" for count in steps)
    return (
        f"{len(rows)} settings, {sum(row.runs for row in rows):,} runs of {results.episodes:,} interaction units of "
        f"{length} steps. “Safe” bounds the expected cost of a step, here its risk of danger; it does not "
        "mean that nobody falls."
    )


def unit_main_table(results: Results, rows: Sequence[UnitRow]) -> str:
    """A row per cell, then CISR's: success in every unit, final numbers, safety, and whose β it is."""
    heads = (
        "Agent", "Agents × runs", f"Success, last {LAST} units", f"Return, last {LAST} units", "Largest expected cost",
        "Violating steps", "Runs with violations", "Falls per run", "Cost\u00a0β", "Value\u00a0β", "Success by unit",
    )  # fmt: skip
    cells = {cell.label: cell for cell in results.cells}
    body = "\n".join([*(_row(row, cells[row.agent]) for row in rows), *_rivals(results)])
    caption = (
        "Success: the share of a unit's trajectories that end at the goal. Means over agents with 95% bootstrap "
        "intervals over agents; an agent's repeated runs are averaged first. The largest expected cost is over every "
        "step taken and every state planned for, in all runs; a violating step is one whose expected cost exceeds τ; "
        f"a fall is a trajectory that ends in danger. CISR's unit is {STEPS:,} training steps. Its success is measured "
        "without its teacher, its return also pays 0.01 a step, and its falls are those in training, where the teacher "
        "stops them."
    )
    return html_table(f"Numbers of {results.study}", caption, heads, body)


def _row(row: UnitRow, cell: Cell) -> str:
    threshold = threshold_of(cell)
    kept = "zero" if row.max_expected_cost <= threshold + COST_SLACK else "some"
    count = "zero" if row.violations_total == 0 else "some"
    learns = cell.agent != "always-safe"
    origins = (row.cost_radius_origin, row.value_radius_origin) if learns else ("–", "–")
    return (
        f'<tr><th scope="row">{escape(short_name(cell))}<small>{escape(cell_note(cell))}</small></th>'
        f"<td>{row.seeds:,} × {row.runs // max(1, row.seeds):,}</td>"
        f"<td>{row.success_last3:.3f}<small>{_span(row.success_last3_ci, 3)}</small></td>"
        f"<td>{row.return_last3:.2f}<small>{_span(row.return_last3_ci, 2)}</small></td>"
        f'<td class="{kept}">{row.max_expected_cost:.4f}</td>'
        f'<td class="{count}">{row.violations_total:,}</td><td>{row.violating_runs:,}</td>'
        f"<td>{row.falls_per_run:.1f}</td>"
        + "".join(f'<td class="text">{escape(ORIGINS.get(origin, origin))}</td>' for origin in origins)
        + f"{_units(row.success_by_unit)}</tr>"
    )


def _rivals(results: Results) -> list[str]:
    """CISR as far as its numbers are known."""
    lines = []
    for rival in cisr_runs(results.folder):
        success = rival.success
        final = float(success[:, -LAST:].mean())
        lines.append(
            f'<tr><th scope="row">{escape(rival.name)}<small>{escape(rival.note)}</small></th>'
            f"<td>{'–' if rival.by_authors else f'{len(success)} × 1'}</td><td>{final:.3f}</td>"
            f"<td>{rival.final_return:.2f}<small>last unit</small></td><td>–</td><td>–</td><td>–</td>"
            f"<td>{float(rival.falls.sum(axis=1).mean()):.1f}</td>"
            + '<td class="text">–</td><td class="text">–</td>'
            + f"{_units(success.mean(axis=0).tolist())}</tr>"
        )
    return lines


def by_unit(success: Sequence[float]) -> str:
    """One number per unit, as short as it gets: .02 .09 … 1."""
    return " ".join(f"{value:.2f}".removeprefix("0") if value < 0.995 else "1" for value in success)


def _units(success: Sequence[float]) -> str:
    return f'<td class="text" style="white-space:normal;min-width:10.5rem">{by_unit(success)}</td>'


def _span(ends: tuple[float, float], digits: int) -> str:
    return f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def portrait_figure(results: Results) -> str:
    """The lake as a picture inside the page; nothing where there is no run to portray."""
    seen = portrait(results)
    if seen is None:
        return ""
    image = base64.b64encode(render_portrait(seen, dpi=110)).decode()
    look = "display:block;width:100%;max-width:62rem;height:auto;background:#fff;border-radius:.4rem"
    return (
        f'<div style="margin-top:1.5rem"><h4>The lake, run {seen.run} of {escape(seen.name)}</h4>\n'
        f'<p><img alt="{escape(describe(seen))}" style="{look}" src="data:image/png;base64,{image}"></p></div>'
    )
