"""Misspecified twins and the worlds they are twins of: do the watches beside the learner notice, how late, what is
broken before, and do they ever raise a false alarm? And what does it cost to know the misfit, which breaks nothing?

The learner is not stopped: see simulate.Witness. So one run tells what happens with and without each watch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tether.lab.books import Cell, Results, interval
from tether.lab.plots import RAMPS, Chart, Panel, running_sum
from tether.lab.registry import meaning_of
from tether.lab.view import Claim, Table, View, plain_table

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
    """One world and watch, over its runs; `twin` says whether its costs are the misspecified ones.

    Gains are per episode over the exact value of the safe action in the episode's first state, in the world's unit.
    """
    world = TWINS[cell.world][0] if cell.world in TWINS else cell.world
    steps, left = alarm_steps(cell, watch), cell[f"violations_{watch}"].sum(axis=1)
    meaning = meaning_of(world)
    gain = (cell["value"] - cell["safe_value"]) * (meaning.reward if meaning else 1.0)  # (n, K)
    until = np.cumsum(cell[f"alarm_{watch}"], axis=1) == 0.0  # with a watch, the safe action from its alarm on
    return {
        "world": world,
        "twin": cell.world in TWINS,
        "knows_misfit": bool(cell.world_options.get("knows_misfit")),
        "misfit": float(cell["misfit_ratio"].mean()),  # the largest known ε over τ, mean over instances
        "watch": WATCHES[watch],
        "runs": len(cell.seeds),
        "episodes": episodes,
        "tripped": len(steps),  # runs in which the watch tripped
        "median_steps": float(np.median(steps)) if steps else None,  # until it did, of those
        "violations_without": float(cell["violations"].sum(axis=1).mean()),  # per run, without any watch
        "violations_with": float(left.mean()),  # per run, with this watch
        "violating_runs": int((left > 0).sum()),  # with this watch
        "worst_cost": float(cell["cost_ratio"].max()),  # largest true cost of a run without watch, over τ
        "gain_without": float(gain.mean()),
        "gain_with": float((gain * until).mean()),
        "unit": meaning.gain if meaning else "",
    }


def rows(results: Results) -> list[dict[str, Any]]:
    """One line per world and watch, in the order of the spec: twins first."""
    return [row(cell, watch, results.episodes) for cell in results.finished for watch in cell.watches]


HEADS = (
    "world", "costs", "known ε / τ", "watch", "tripped", "steps until", "violations without", "with", "worst cost / τ",
    "gain without", "with",
)  # fmt: skip


def table(results: Results) -> Table:
    """What the watches notice, per run, and what the learner gains."""
    made = rows(results)
    units = "; ".join(f"{world}: {unit}" for world, unit in {one["world"]: one["unit"] for one in made}.items())
    caption = (
        "Violations are steps whose true cost exceeds τ, per run: without any watch, and with this one, after whose "
        "alarm the safe action is played. The median of the steps until the alarm is over the runs with an alarm. "
        f"Gains are over the safe action ({units})."
    )
    return plain_table(results.study, caption, made, HEADS, [_line(one) for one in made])


def _line(one: dict[str, Any]) -> Sequence[str]:
    return (
        one["world"],
        "twin's" if one["twin"] else "true",
        f"{one['misfit']:.2f}" if one["knows_misfit"] else "",
        one["watch"],
        f"{one['tripped']} of {one['runs']}",
        "" if one["median_steps"] is None else f"{one['median_steps']:.0f}",
        f"{one['violations_without']:.1f}",
        f"{one['violations_with']:.1f}",
        f"{one['worst_cost']:.2f}",
        f"{one['gain_without']:.3g}",
        f"{one['gain_with']:.3g}",
    )


def claims(results: Results) -> list[Claim]:
    """Verdicts: no alarm where what is known is true, and τ kept; else whether a twin is noticed, and in time."""
    made = []
    for one in rows(results):
        who = f"{one['world']}, {one['watch']}" + (", misfit known" if one["knows_misfit"] else "")
        share = f"{one['tripped']} of {one['runs']} runs of {one['episodes']:,} episodes tripped"
        every, none = one["tripped"] == one["runs"], one["violating_runs"] == 0
        if not one["twin"]:
            quiet = not one["tripped"]
            made.append(Claim(f"no-false-alarm@{who}", f"{who}: No alarm on the true world.", quiet, share))
        elif one["knows_misfit"]:
            worst = f"the largest true cost is {one['worst_cost']:.2f} τ; gain {one['gain_without']:.3g} {one['unit']}"
            kept = one["violations_without"] == 0.0
            made += [
                Claim(f"no-false-alarm@{who}", f"{who}: No alarm on the twin.", not one["tripped"], share),
                Claim(f"safe@{who}", f"{who}: τ is never broken.", kept, worst),
            ]
        else:
            delay = "" if one["median_steps"] is None else f"; median delay {one['median_steps']:.0f} steps"
            broken = (
                f"{one['violations_with']:.1f} violations per run with the watch (in {one['violating_runs']} of "
                f"{one['runs']} runs), {one['violations_without']:.1f} without"
            )
            made += [
                Claim(f"twin-noticed@{who}", f"{who}: the twin is noticed in every run.", every, share + delay),
                Claim(f"in-time@{who}", f"{who}: the alarm comes before any violation.", none, broken),
            ]
    return made


def charts(results: Results) -> list[Chart]:
    """Violations so far on each twin: without a watch, and with each of them."""
    twins = [
        cell
        for cell in results.finished
        if cell.world in TWINS and set(WATCHES) <= set(cell.watches) and not cell.world_options.get("knows_misfit")
    ]
    if not twins:
        return []
    caption = (
        f"{max(len(cell.seeds) for cell in twins)} instances per twin, SLUCB-QVI with all defaults. After an alarm the "
        "safe action is played, whose cost the twins leave as declared. Bands: 95% over instances."
    )
    return [Chart("twins", "When the model is wrong", caption, tuple(_panel(cell) for cell in twins))]


def _panel(cell: Cell) -> Panel:
    series = [running_sum(name, note, RAMPS[hue].style(0.0, 1.9), cell[column]) for column, name, note, hue in CURVES]
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


def more(results: Results) -> dict[str, Table]:
    """How wrong each twin is, by its instances."""
    lines = []
    for cell in results.finished:
        if cell.world in TWINS and cell.world_options.get("knows_misfit"):
            found, (_, title, wrong) = interval(cell["misfit_ratio"].mean(axis=1)), TWINS[cell.world]
            lines.append((title, wrong, f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"))
    return {"misfit": Table([], ("twin", "what is wrong", "largest misfit ε, in τ (95%)"), lines, [])}


VIEW = View(charts=charts, claims=claims, table=table, summary=summary, more=more)
