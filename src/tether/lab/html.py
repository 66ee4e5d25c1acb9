"""The pieces of the report as HTML: badges, figures, tables, commands. Everything from outside is escaped."""

from collections.abc import Sequence
from html import escape

from tether.errors import TetherError
from tether.lab.books import Cell, Results, Row, paired_difference
from tether.lab.plots import Chart, Panel, Series, number, radius_note, short_name
from tether.lab.specs import Study, paper_study, shipped, to_toml
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE

ORIGINS = {
    "theorem": "theorem",
    "tuned": "tuned",
    "exact": "exact (told γ*)",
    "none": "none",
}
"""Where a radius comes from, in words."""


def badge(holds: bool) -> str:
    """A verdict that does not rest on colour alone."""
    return '<span class="badge good">✓ Holds here</span>' if holds else '<span class="badge bad">✗ Does not hold</span>'


def chart_figure(chart: Chart, image: str, *, titled: bool) -> str:
    """A chart: its legend of toggles, its panels, and the printed figure that takes their place on paper."""
    heading = f"<h4>{escape(chart.title)}</h4>" if titled else ""
    name = escape(chart.name)
    toggles = "\n".join(_toggle(curve, index) for index, curve in enumerate(chart.panels[0].series))
    panels = "\n".join(_panel(chart, panel) for panel in chart.panels)
    alt = f"{chart.title}: {', '.join(panel.title.lower() for panel in chart.panels)}. The tables hold the numbers."
    return (
        f"{heading}\n"
        f'<p class="quiet keep">{escape(chart.caption)}</p>\n'
        f'<div class="legend interactive" role="group" aria-label="Agents shown" data-legend="{name}">\n'
        '<p class="quiet">Press an agent to hide or show it in all panels. Drag in a panel to zoom (on a touch screen '
        "press the magnifier first), double-click to go back. "
        '<button type="button" class="all" hidden>Show all agents</button></p>\n'
        f"{toggles}\n</div>\n"
        f'<div class="panels interactive">\n{panels}\n</div>\n'
        f'<div class="static"><img alt="{escape(alt)}" src="{image}"></div>\n'
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
    plot = escape(f"{chart.name}-{panel.key}")
    scale = (
        f'<button type="button" class="scale" data-scale-of="{plot}">Linear axes</button>'
        if panel.y_scale != "linear"
        else ""
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in panel.notes)
    return (
        f'<figure class="panel"><div class="head"><h4>{escape(panel.title)}</h4>{scale}</div>'
        f'<div class="plot" id="{plot}" role="img" tabindex="0" aria-label="{escape(_spoken(panel))}"></div>'
        f"<figcaption>{notes}<p>{escape(panel.subtitle)}</p></figcaption></figure>"
    )


def _spoken(panel: Panel) -> str:
    """The panel for those who cannot see it: the last value of every curve."""
    ends = "; ".join(f"{curve.name}: {number(float(curve.y[-1]))}" for curve in panel.series if len(curve.x))
    return f"{panel.title}, last values. {ends}."


def main_table(results: Results, rows: Sequence[Row]) -> str:
    """A row per agent: reward, regret with its spread over seeds, violations, and whose β it is."""
    heads = (
        "Agent", "Runs", "Reward per episode", "Regret", "Median regret", "Worst seed", "Violations",
        "Runs with violations", "Largest true cost − τ", "Cost\u00a0β", "Value\u00a0β",
    )  # fmt: skip
    cells = {cell.label: cell for cell in results.cells}
    body = "\n".join(_row(row, cells[row.agent]) for row in rows)
    caption = (
        "Means over runs with 95% bootstrap intervals over seeds. Regret is the exact pseudo-regret of a whole run "
        "against the best safe policy; it can be negative for an agent that breaks the constraint. Violations are "
        "steps whose true cost exceeds τ, in all runs together."
    )
    return html_table(f"Numbers of {results.study}", caption, heads, body)


def _row(row: Row, cell: Cell) -> str:
    violations = "zero" if row.violations_total == 0 else "some"
    return (
        f"<tr>{_agent(cell)}<td>{row.seeds:,}</td>"
        f"<td>{row.reward_mean:.3f}<small>{row.reward_ci[0]:.3f} to {row.reward_ci[1]:.3f}</small></td>"
        f"<td>{number(row.regret_mean)}<small>{number(row.regret_ci[0])} to {number(row.regret_ci[1])}</small></td>"
        f"<td>{number(row.regret_median)}</td><td>{number(row.regret_worst)}</td>"
        f'<td class="{violations}">{row.violations_total:,}</td><td>{row.violating_runs:,}</td>'
        f"<td>{number(row.worst_cost if abs(row.worst_cost) > SAFE_TOLERANCE else 0.0)}</td>"
        f'<td class="text">{escape(ORIGINS.get(row.cost_radius_origin, row.cost_radius_origin))}</td>'
        f'<td class="text">{escape(ORIGINS.get(row.value_radius_origin, row.value_radius_origin))}</td></tr>'
    )


def difference_table(results: Results) -> str:
    """Regret and reward of each agent minus those of the one that is told γ*, on the same seeds."""
    done = [cell for cell in results.cells if cell.seeds]
    told = [cell for cell in done if cell.cost_radius_origin == "exact"]
    if len(told) != 1 or len(done) < 2:
        return ""
    reference, lines = told[0], []
    for cell in done:
        if cell is reference or not set(cell.seeds) & set(reference.seeds):
            continue
        reward, regret = (paired_difference(cell, reference, column) for column in ("reward", "regret"))
        lines.append(
            f"<tr>{_agent(cell)}<td>{signed(float(reward.mean), 4)}<small>{signed(float(reward.low), 4)} to "
            f"{signed(float(reward.high), 4)}</small></td><td>{number(float(regret.mean))}"
            f"<small>{number(float(regret.low))} to {number(float(regret.high))}</small></td></tr>"
        )
    caption = (
        f"Paired differences from {short_name(reference)}: each agent minus the reference on the same instance and "
        "noise, so that what they share cancels. 95% bootstrap over seeds."
    )
    return html_table("Paired differences", caption, ("Agent", "Reward per episode", "Regret"), "\n".join(lines))


def signed(value: float, digits: int) -> str:
    """A difference with its sign, a true minus among them; what rounds to zero has none."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0.0:.{digits}f}"


def _agent(cell: Cell) -> str:
    return f'<th scope="row">{escape(short_name(cell))}<small>{escape(radius_note(cell))}</small></th>'


def html_table(name: str, caption: str, heads: Sequence[str], body: str) -> str:
    """A table that scrolls sideways by itself; columns of words have their heads to the left."""
    first, *others = (escape(head) for head in heads)
    top = f'<th scope="col" class="first">{first}</th>' + "".join(
        f'<th scope="col"{" class=text" if "β" in head or "by unit" in head else ""}>{head}</th>' for head in others
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def reproduce_section(results: Results) -> str:
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
    """What to type to get these numbers again; a study of one's own needs its spec first."""
    study = Study.model_validate(results.spec)
    install = f'pip install "tether-rl[experiments]=={results.version}"'
    return f"{install}\n{_run_command(study)}\ntether report"


def _run_command(study: Study) -> str:
    name = study.name
    if name in shipped():
        try:
            original = paper_study(name)
        except TetherError:  # a shipped study of another version
            original = None
        seed = f" --seed {study.first_seed}" if study.first_seed else ""
        for quick in (False, True):
            if original is not None and study == original.resized(quick=quick, first_seed=study.first_seed):
                return f"tether reproduce {name}{' --quick' if quick else ''}{seed}"
    return f"tether run {name}.toml    # the spec below, saved under this name"
