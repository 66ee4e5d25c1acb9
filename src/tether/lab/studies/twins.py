"""Misspecified twins and the worlds they are twins of: do the watches beside the learner notice, how late, what is
broken before, and do they ever raise a false alarm?

The learner is not stopped: see simulate.Witness. So one run tells what happens with and without each watch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tether.lab.books import Cell, Results
from tether.lab.plots import RAMPS, Chart, Panel, running_sum
from tether.lab.view import Claim, Table, View, html_table

TWINS = {
    "dosing-twin": ("dosing", "Dosing twin", "Toxicity is convex in the dose."),
    "heating-twin": ("heating", "Heating twin", "A window stays open from half-way on."),
    "ad-load-twin": ("ad-load", "Ad load twin", "Patience ends at a threshold."),
}
"""Twin: the true world, the title of its panel, and what is wrong."""

WATCHES = {"per-step": "a test per step", "pooled": "one pooled test"}
CURVES = (
    ("violations", "no watch", "no alarm", "unconstrained"),
    ("violations_per-step", WATCHES["per-step"], "stops at its alarm: level δ over all steps", "paper"),
    ("violations_pooled", WATCHES["pooled"], "stops at its alarm: level δ, steps pooled", "adaptive"),
)
"""Column, name, note and hue of each curve."""


def alarm_steps(cell: Cell, watch: str) -> list[int]:
    """Steps until this watch tripped, of the runs in which it did."""
    return [int(steps) for steps in cell[f"alarm_{watch}"].max(axis=1) if steps]


def row(cell: Cell, watch: str, episodes: int) -> dict[str, Any]:
    """One world and watch, over its runs; `twin` says whether its costs are the misspecified ones."""
    steps, left = alarm_steps(cell, watch), cell[f"violations_{watch}"].sum(axis=1)
    return {
        "world": TWINS[cell.world][0] if cell.world in TWINS else cell.world,
        "twin": cell.world in TWINS,
        "watch": WATCHES[watch],
        "runs": len(cell.seeds),
        "episodes": episodes,
        "tripped": len(steps),  # runs in which the watch tripped
        "median_steps": float(np.median(steps)) if steps else None,  # until it did, of those
        "violations_without": float(cell["violations"].sum(axis=1).mean()),  # per run, without any watch
        "violations_with": float(left.mean()),  # per run, with this watch
        "violating_runs": int((left > 0).sum()),  # with this watch
        "worst_cost": float(cell["cost_ratio"].max()),  # largest true cost of a run without watch, over τ
    }


def rows(results: Results) -> list[dict[str, Any]]:
    """One line per world and watch, in the order of the spec: twins first."""
    return [row(cell, watch, results.episodes) for cell in results.finished for watch in cell.watches]


def table(results: Results) -> Table:
    """What the watches notice, per run."""
    made = rows(results)
    heads = ("world", "costs", "watch", "tripped", "steps until", "violations without", "with", "worst cost / τ")
    lines = [_line(one) for one in made]
    body = "\n".join(
        f'<tr><th scope="row">{world}</th>{"".join(f"<td>{entry}</td>" for entry in others)}</tr>'
        for world, *others in lines
    )
    caption = (
        "Violations are steps whose true cost exceeds τ, per run: without any watch, and with this one, after whose "
        "alarm the safe action is played. The median of the steps until the alarm is over the runs with an alarm."
    )
    page = html_table(f"Numbers of {results.study}", caption, [head.capitalize() for head in heads], body)
    return Table(made, heads, lines, [page])


def _line(one: dict[str, Any]) -> Sequence[str]:
    return (
        one["world"],
        "twin's" if one["twin"] else "true",
        one["watch"],
        f"{one['tripped']} of {one['runs']}",
        "" if one["median_steps"] is None else f"{one['median_steps']:.0f}",
        f"{one['violations_without']:.1f}",
        f"{one['violations_with']:.1f}",
        f"{one['worst_cost']:.2f}",
    )


def claims(results: Results) -> list[Claim]:
    """Verdicts: no false alarm on true worlds; every twin noticed; and whether that was in time."""
    made = []
    for one in rows(results):
        who = f"{one['world']}, {one['watch']}"
        share = f"{one['tripped']} of {one['runs']} runs of {one['episodes']:,} episodes tripped"
        if not one["twin"]:
            quiet = one["tripped"] == 0
            made.append(Claim(f"no-false-alarm@{who}", f"{who}: No alarm on the true world.", quiet, share))
            continue
        delay = "" if one["median_steps"] is None else f"; median delay {one['median_steps']:.0f} steps"
        broken = (
            f"{one['violations_with']:.1f} violations per run with the watch (in {one['violating_runs']} of "
            f"{one['runs']} runs), {one['violations_without']:.1f} without"
        )
        every, none = one["tripped"] == one["runs"], one["violating_runs"] == 0
        made += [
            Claim(f"twin-noticed@{who}", f"{who}: the twin is noticed in every run.", every, share + delay),
            Claim(f"in-time@{who}", f"{who}: the alarm comes before any violation.", none, broken),
        ]
    return made


def charts(results: Results) -> list[Chart]:
    """Violations so far on each twin: without a watch, and with each of them."""
    twins = [cell for cell in results.finished if cell.world in TWINS and set(WATCHES) <= set(cell.watches)]
    if not twins:
        return []
    caption = (
        f"{max(len(cell.seeds) for cell in twins)} instances per twin, SLUCB-QVI with all defaults. After an alarm the "
        "safe action is played, whose cost the twins leave as declared. Bands: 95% over instances."
    )
    return [Chart("twins", "When the model is wrong", caption, tuple(_panel(cell) for cell in twins))]


def _panel(cell: Cell) -> Panel:
    series = []
    for column, name, note, hue in CURVES:
        series.append(running_sum(name, note, RAMPS[hue].style(0.0, 1.9), cell[column]))
    zero = [curve.name for curve in series if curve.total == 0.0]
    _, title, wrong = TWINS[cell.world]
    return Panel(
        key=f"violations-{cell.world}",
        title=title,
        subtitle=f"{wrong} Steps whose true cost exceeds τ, mean per run.",
        x_title="episode",
        y_title="violations per run",
        y_scale="count",
        unit=1.0 / len(cell.seeds),
        series=tuple(series),
        notes=(f"0 violations: {' · '.join(zero)}",) if zero else (),
        prints_note=True,
    )


def summary(results: Results, made: list[dict[str, Any]]) -> str:
    """How much was run."""
    runs = sum(len(cell.seeds) for cell in results.finished)
    return f"{len(results.finished)} worlds, {runs:,} runs of {results.episodes:,} episodes, two watches beside each."


VIEW = View(charts=charts, claims=claims, table=table, summary=summary)
