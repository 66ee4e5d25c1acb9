"""Results to one HTML page that needs nothing else: no network, no fonts, no second file.

    write([load(Path("out/figure1"))], Path("out/report.html"))

The same results give the same bytes. The page holds claims with verdicts, figures, tables, specs and commands.
"""

import base64
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from tether.errors import TetherError
from tether.lab import storage
from tether.lab.books import Results, Row, table
from tether.lab.claims import Claim, evaluate
from tether.lab.html import (
    badge,
    chart_figure,
    difference_table,
    main_table,
    reproduce_section,
)
from tether.lab.plots import Chart, charts, embed, payload, render
from tether.lab.studies.figure2 import UnitRow, lead, portrait_figure, unit_main_table, unit_table


def write(results_list: Sequence[Results], path: Path) -> Path:
    """Write the report of one or several studies; returns its path."""
    if not any(cell.seeds for results in results_list for cell in results.cells):
        raise TetherError("there is no finished run to report on yet: run a study first.")
    path = Path(path)
    storage.make_folder(path.parent)
    storage.write_atomically(path, page(results_list).encode())
    return path


class Part(NamedTuple):
    """A study on the page; `key` is unique there, even where two folders hold studies of one name."""

    key: str
    title: str
    results: Results
    charts: list[Chart]
    claims: list[Claim]
    rows: list[Row]
    unit_rows: list[UnitRow]  # instead, where runs are counted in interaction units


def page(results_list: Sequence[Results]) -> str:
    """The whole page as text."""
    from plotly.offline import get_plotlyjs

    parts = [_part(results, index) for index, results in enumerate(results_list)]
    alone = len(parts) == 1
    heading = parts[0].title if alone else f"{len(parts)} studies"
    return Template(_template("report.html")).substitute(
        title=escape(f"{heading} · Tether report"),
        heading=escape(heading),
        version=escape(results_list[0].version),
        style=_template("report.css"),
        summary="\n".join(_summary(part, named=not alone) for part in parts),
        contents="" if alone else _contents(parts),
        studies="\n".join(_study(part, alone=alone) for part in parts),
        charts=embed([payload(chart) for part in parts for chart in part.charts]),
        plotly=get_plotlyjs(),
        script=_template("report.js"),
    )


def _part(results: Results, index: int) -> Part:
    key = f"study-{index + 1}"
    title = results.title or results.study
    if results.folder.name != results.study:
        title += f" ({results.folder.name})"
    made = [replace(chart, name=f"{key}-{chart.name}") for chart in charts(results)]
    rows, unit_rows = ([], unit_table(results)) if results.counts_units else (table(results), [])
    return Part(key, title, results, made, evaluate(results), rows, unit_rows)


def _template(name: str) -> str:
    return files("tether.lab").joinpath("templates", name).read_text(encoding="utf-8")


def _summary(part: Part, *, named: bool) -> str:
    """What a reader should know who reads nothing else."""
    counted = [(row, row.seeds) for row in part.rows] + [(row, row.runs) for row in part.unit_rows]
    text = (
        f"{len(counted)} agents, {sum(runs for _, runs in counted):,} runs of {part.results.episodes:,} episodes, "
        "the same instances for all agents."
    )
    if part.results.counts_units:
        text = lead(part.results, part.unit_rows)
    if part.claims:
        text += f" {sum(claim.holds for claim in part.claims)} of {len(part.claims)} claims hold."
    for origin, words in (("theorem", "With the theorem's β in the safe set"), ("tuned", "With a tuned β")):
        agents = [(row, runs) for row, runs in counted if row.cost_radius_origin == origin]
        if agents:
            total, broken = sum(row.violations_total for row, _ in agents), sum(row.violating_runs for row, _ in agents)
            among = f"{sum(runs for _, runs in agents):,} runs"
            text += f" {words}: {total:,} violations in {f'{broken:,} of ' if broken else ''}{among}."
    name = f"<strong>{escape(part.title)}.</strong> " if named else ""
    return f'<p class="lead">{name}{escape(text)}</p>'


def _contents(parts: Sequence[Part]) -> str:
    links = "".join(f'<li><a href="#{part.key}">{escape(part.title)}</a></li>' for part in parts)
    return f'<nav aria-label="Studies"><ul>{links}</ul></nav>'


def _study(part: Part, *, alone: bool) -> str:
    """One study: verdicts, pictures, numbers, and how to get them again. Alone, the page's title is its title."""
    pieces = [
        f'<section id="{part.key}" aria-label="{escape(part.title)}">',
        f"<h2{' class=unseen' if alone else ''}>{escape(part.title)}</h2>",
        _missing(part.results),
        _claims(part),
        "<h3>Figures</h3>",
        *(_chart(chart, titled=len(part.charts) > 1) for chart in part.charts),
        portrait_figure(part.results) if part.results.counts_units else "",
        "<h3>Numbers</h3>",
        *_numbers(part),
        "<h3>How to reproduce</h3>",
        reproduce_section(part.results),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _numbers(part: Part) -> list[str]:
    if part.results.counts_units:
        return [unit_main_table(part.results, part.unit_rows)]
    return [main_table(part.results, part.rows), difference_table(part.results)]


def _missing(results: Results) -> str:
    """Runs that the spec asks for and the folder lacks are said, not hidden."""
    if not results.missing:
        return ""
    named = "; ".join(f"{label}, seed {seed}" for label, seed in results.missing[:5])
    more = f" and {len(results.missing) - 5:,} more" if len(results.missing) > 5 else ""
    count = "1 run is" if len(results.missing) == 1 else f"{len(results.missing):,} runs are"
    return f'<p class="alert"><strong>{count} missing:</strong> {escape(named + more)}.</p>'


def _claims(part: Part) -> str:
    if not part.claims:
        return ""
    items = "\n".join(
        f'<li id="{part.key}-{escape(claim.id)}">{badge(claim.holds)}<div><p>{escape(claim.text)}</p>'
        f'<p class="evidence">{escape(claim.evidence)}</p></div></li>'
        for claim in part.claims
    )
    return f'<h3>Claims</h3>\n<ul class="claims">\n{items}\n</ul>'


def _chart(chart: Chart, *, titled: bool) -> str:
    """Interactive panels on the screen; the printed figure on paper and where scripts are off."""
    image = base64.b64encode(render(chart, ["svg"], stacked=True)["svg"]).decode()
    return chart_figure(chart, f"data:image/svg+xml;base64,{image}", titled=titled)
