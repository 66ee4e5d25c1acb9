"""Results to files: the figures of a study, and one HTML page that needs nothing else: no network, no second file.

    draw(load(Path("out/figure1")), Path("out/figure1/figures"))
    write([load(Path("out/figure1"))], Path("out/report.html"))

The same results give the same bytes. The page holds claims with verdicts, figures, tables, specs and commands. What a
study shows is its own `View`. Everything from outside is escaped.
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
from tether.lab.books import Results
from tether.lab.plots import FORMATS, Chart, Panel, Series, embed, number, payload, render
from tether.lab.specs import Study, paper_study, shipped, to_toml
from tether.lab.studies import view_of
from tether.lab.view import Claim, Picture, Table

PRINT_DPI, PAGE_DPI = 160, 110
"""Of pictures that are no charts, as files and inside the page."""


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the study's figures as PNG, SVG and PDF, and its other pictures; returns their paths, PNG first."""
    view = view_of(results)
    charts = view.charts(results)
    if not charts and not results.finished:
        raise TetherError(f"study {results.study!r} has no finished run to draw yet: run it first.")
    storage.make_folder(folder)
    content = {f"{chart.name}.{kind}": data for chart in charts for kind, data in render(chart, tuple(FORMATS)).items()}
    content |= {f"{picture.name}.png": picture.draw(PRINT_DPI) for picture in view.pictures(results)}
    content |= view.files(results)
    for name, data in content.items():
        storage.write_atomically(folder / name, data)
    return [folder / name for name in content]


def write(results_list: Sequence[Results], path: Path) -> Path:
    """Write the report of one or several studies; returns its path."""
    if not any(results.finished for results in results_list):
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
    table: Table
    summary: str
    pictures: list[Picture]


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
    key, view = f"study-{index + 1}", view_of(results)
    title = results.title or results.study
    if results.folder.name != results.study:
        title += f" ({results.folder.name})"
    charts = [replace(chart, name=f"{key}-{chart.name}") for chart in view.charts(results)]
    table = view.table(results)
    summary = view.summary(results, table.rows)
    return Part(key, title, results, charts, view.claims(results), table, summary, view.pictures(results))


def _template(name: str) -> str:
    return files("tether.lab").joinpath("templates", name).read_text(encoding="utf-8")


def _summary(part: Part, *, named: bool) -> str:
    """A summary of the page."""
    text = part.summary
    if part.claims:
        text += f" {sum(claim.holds for claim in part.claims)} of {len(part.claims)} claims hold."
    for origin, words in (("theorem", "With the theorem's β in the safe set"), ("tuned", "With a tuned β")):
        rows = [row for row in part.table.rows if row.get("cost_radius_origin") == origin]
        if rows:
            total, broken = (sum(row[name] for row in rows) for name in ("violations_total", "violating_runs"))
            runs = sum(row.get("runs", row["seeds"]) for row in rows)
            text += f" {words}: {total:,} violations in {f'{broken:,} of ' if broken else ''}{runs:,} runs."
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
        *(_picture(picture) for picture in part.pictures),
        "<h3>Numbers</h3>",
        *part.table.html,
        "<h3>How to reproduce</h3>",
        _reproduce(part.results),
        "</section>",
    ]
    return "\n".join(piece for piece in pieces if piece)


def _missing(results: Results) -> str:
    """List the runs that the spec asks for and the folder lacks."""
    if not results.missing:
        return ""
    named = "; ".join(f"{label}, seed {seed}" for label, seed in results.missing[:5])
    more = f" and {len(results.missing) - 5:,} more" if len(results.missing) > 5 else ""
    count = "1 run is" if len(results.missing) == 1 else f"{len(results.missing):,} runs are"
    return f'<p class="alert"><strong>{count} missing:</strong> {escape(named + more)}.</p>'


def _claims(part: Part) -> str:
    """Verdicts in words and symbols, not in colour alone."""
    if not part.claims:
        return ""
    good, bad = '<span class="badge good">✓ Holds here</span>', '<span class="badge bad">✗ Does not hold</span>'
    items = "\n".join(
        f'<li id="{part.key}-{escape(claim.id)}">{good if claim.holds else bad}<div><p>{escape(claim.text)}</p>'
        f'<p class="evidence">{escape(claim.evidence)}</p></div></li>'
        for claim in part.claims
    )
    return f'<h3>Claims</h3>\n<ul class="claims">\n{items}\n</ul>'


def _chart(chart: Chart, *, titled: bool) -> str:
    """A legend of toggles and interactive panels on the screen; the printed figure on paper and without scripts."""
    image = base64.b64encode(render(chart, ["svg"], stacked=True)["svg"]).decode()
    heading = f"<h4>{escape(chart.title)}</h4>" if titled else ""
    toggles = "\n".join(_toggle(curve, index) for index, curve in enumerate(chart.panels[0].series))
    panels = "\n".join(_panel(chart, panel) for panel in chart.panels)
    alt = f"{chart.title}: {', '.join(panel.title.lower() for panel in chart.panels)}. The tables hold the numbers."
    return (
        f"{heading}\n"
        f'<p class="quiet keep">{escape(chart.caption)}</p>\n'
        f'<div class="legend interactive" role="group" aria-label="Agents shown" data-legend="{escape(chart.name)}">\n'
        '<p class="quiet">Press an agent to hide or show it in all panels. Drag in a panel to zoom (on a touch screen '
        "press the magnifier first), double-click to go back. "
        '<button type="button" class="all" hidden>Show all agents</button></p>\n'
        f"{toggles}\n</div>\n"
        f'<div class="panels interactive">\n{panels}\n</div>\n'
        f'<div class="static"><img alt="{escape(alt)}" src="data:image/svg+xml;base64,{image}"></div>\n'
        f"<noscript><style>.interactive {{ display: none }} .static {{ display: block }}</style></noscript>"
    )


def _toggle(curve: Series, index: int) -> str:
    dash = {"dash": "6 3", "dot": "2 3", "dashdot": "7 3 2 3"}.get(curve.style.dash, "none")
    swatch = (
        f'<svg width="30" height="10" aria-hidden="true" class="swatch" style="--on-light:{curve.style.light};'
        f'--on-dark:{curve.style.dark}"><line x1="1" y1="5" x2="29" y2="5" stroke-width="3" '
        f'stroke-dasharray="{dash}"/></svg>'
    )
    return (
        f'<button type="button" data-series="{index}" aria-pressed="true">{swatch}'
        f"<span><b>{escape(curve.name)}</b><small>{escape(curve.note)}</small></span></button>"
    )


def _panel(chart: Chart, panel: Panel) -> str:
    """The place of a plot, with the last value of every curve for those who cannot see it."""
    plot = escape(f"{chart.name}-{panel.key}")
    scale = (
        f'<button type="button" class="scale" data-scale-of="{plot}">Linear axes</button>'
        if panel.y_scale != "linear"
        else ""
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in panel.notes)
    ends = "; ".join(f"{curve.name}: {number(float(curve.y[-1]))}" for curve in panel.series if len(curve.x))
    spoken = escape(f"{panel.title}, last values. {ends}.")
    return (
        f'<figure class="panel"><div class="head"><h4>{escape(panel.title)}</h4>{scale}</div>'
        f'<div class="plot" id="{plot}" role="img" tabindex="0" aria-label="{spoken}"></div>'
        f"<figcaption>{notes}<p>{escape(panel.subtitle)}</p></figcaption></figure>"
    )


def _picture(picture: Picture) -> str:
    image = base64.b64encode(picture.draw(PAGE_DPI)).decode()
    look = "display:block;width:100%;max-width:62rem;height:auto;background:#fff;border-radius:.4rem"
    return (
        f'<div style="margin-top:1.5rem"><h4>{escape(picture.title)}</h4>\n'
        f'<p><img alt="{escape(picture.words)}" style="{look}" src="data:image/png;base64,{image}"></p></div>'
    )


def _reproduce(results: Results) -> str:
    """Commands, the environment the numbers depend on, and the spec."""
    facts = {
        "Tether": results.version,
        "Platform": results.platform,
        "Kernel": results.kernel,
        "Digest of all numbers": results.digest(),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    spec = to_toml(Study.model_validate(results.spec))
    return (
        f"<pre><code>{escape(commands(results))}</code></pre>\n<dl>{listed}</dl>\n"
        f"<details><summary>The spec, {escape(results.study)}.toml</summary>"
        f"<pre><code>{escape(spec)}</code></pre></details>"
    )


def commands(results: Results) -> str:
    """The commands that reproduce these numbers; a user's own study needs its spec first."""
    study = Study.model_validate(results.spec)
    run = f"tether run {study.name}.toml    # the spec below, saved under this name"
    if study.name in shipped():
        seed = f" --seed {study.first_seed}" if study.first_seed else ""
        for quick in (False, True):
            if study == paper_study(study.name).resized(quick=quick, first_seed=study.first_seed):
                run = f"tether reproduce {study.name}{' --quick' if quick else ''}{seed}"
                break
    return f'pip install "tether-rl[experiments]=={results.version}"\n{run}\ntether report'
