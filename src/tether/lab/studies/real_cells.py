"""One real world in all its variants, each played once: a map of what was gained where, with what was broken.

Every building in every climate (real-buildings), every virtual patient (real-patients).
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tether.gym.comparison import Comparison
from tether.lab.books import Cell, Results, interval
from tether.lab.plots import INK, LOOK, QUIET, encoded
from tether.lab.real import RealWorld
from tether.lab.studies.real import OURS, RIVAL, SAFE, broken_runs, broken_steps, gains, places
from tether.lab.studies.real import charts as curves
from tether.lab.view import Claim, Picture, Table, View, counted, plain_table
from tether.records import Array

COLUMNS = frozenset({"reward", "signal_0", "signal_1", "violations", "excess", "alarm", "baseline"})
"""What a variant's line is made of."""

HEADS = (
    "", "cells", "gain over the safe action", "least to most", "shown in", "violations", "worst excess", "alarms",
    "LSVI-UCB over the limit in",
)  # fmt: skip

LEAST = {"real-buildings": 17.0, "real-patients": 23.0}
"""What the mean gain is at least: README and docs lead with it."""


def variants(results: Results) -> list[dict[str, Any]]:
    """One line per variant that both our learner and the safe action have played, over the second half of its episodes.

    A gain is shown if its 95% interval, paired by episode, is above 0.
    """
    made = []
    for world, cells in places(results):
        found = {cell.agent: cell for cell in cells}
        if OURS not in found or SAFE not in found:
            continue
        ours, safe = _at_hand(found[OURS]), _at_hand(found[SAFE])
        both = sorted(set(ours.seeds) & set(safe.seeds))
        rival = broken_runs(world, _at_hand(found[RIVAL])) if RIVAL in found else {}
        played = set(found[RIVAL].seeds) if RIVAL in found else set()
        for seed in both:
            over = rival.get(seed, 0) if seed in played else None
            made.append(_variant(world, ours, safe, seed) | {"rival_violations": over})
    return made


def _at_hand(cell: Cell) -> Cell:
    """The same cell with what a variant needs in memory: else every variant would read the files of all."""
    return replace(cell, columns={name: cell[name] for name in set(cell.columns) & COLUMNS})


def _run(cell: Cell, seed: int, first: int = 0) -> Cell:
    """One run of a cell, from a step on."""
    row = cell.seeds.index(seed)
    return replace(cell, seeds=(seed,), columns={name: steps[[row], first:] for name, steps in cell.columns.items()})


def _variant(world: RealWorld, ours: Cell, safe: Cell, seed: int) -> dict[str, Any]:
    half = ours["reward"].shape[1] // world.horizon // 2 * world.horizon
    whole, late = _run(ours, seed), _run(ours, seed, half)
    gained = gains(world, late, _run(safe, seed, half))[0]
    seen = Comparison(gained, np.zeros_like(gained), paired=True)
    row, column = names_of(world.cell_of(seed))
    low, high = seen.interval
    return {
        "world": world.name,
        "row": row,
        "column": column,
        "unit": world.gain,
        "gain": seen.gain,
        "gain_low": low,
        "gain_high": high,
        "violations": int(broken_steps(world, whole).sum()),
        "worst_excess": float(whole["excess"].max()),
        "alarm": bool(whole["alarm"].any()),
        "safe_share": float(late["baseline"].mean()),
        "safe_violations": int(broken_steps(world, _run(safe, seed)).sum()),
        "lowest": float(whole["signal_0"].min()),
        "highest": float(whole["signal_0"].max()),
    }


def names_of(cell: str) -> tuple[str, str]:
    """Row and column on the map: building and climate, or kind of patient and number."""
    row, _, column = cell.replace("#", "/").partition("/")
    return row, column


def table(results: Results) -> Table:
    """A line per row of the map, and one for all; every variant is in the data and in the files."""
    made = variants(results)
    rows = list(dict.fromkeys(one["row"] for one in made))
    lines = [_line(row, [one for one in made if one["row"] == row]) for row in rows]
    if made:
        lines.append(_line("all", made))
    unit = made[0]["unit"] if made else ""
    caption = (
        f"Gains in {unit}, over the second half of each run; 95% over cells. The worst excess is in units of cost."
    )
    return plain_table(results.study, caption, made, HEADS, lines)


def _line(name: str, some: list[dict[str, Any]]) -> Sequence[str]:
    gains = np.array([one["gain"] for one in some])
    found, broken = interval(gains), sum(one["violations"] for one in some)
    rival = [one["rival_violations"] for one in some if one["rival_violations"] is not None]
    return (
        name,
        str(len(some)),
        f"{float(found.mean):+.3g} ({float(found.low):+.3g} to {float(found.high):+.3g})",
        f"{gains.min():+.3g} to {gains.max():+.3g}",
        f"{sum(one['gain_low'] > 0.0 for one in some)} of {len(some)}",
        f"{broken:,}",
        f"{max(one['worst_excess'] for one in some):.3g}" if broken else "none",
        f"{sum(one['alarm'] for one in some)}",
        f"{sum(count > 0 for count in rival)} of {len(rival)}" if rival else "",
    )


def claims(results: Results) -> list[Claim]:
    """Nothing is broken in any cell, the learner gains on the whole, and loses in none."""
    made = variants(results)
    if not made:
        return []
    broken = sum(one["violations"] > 0 for one in made)
    gains = np.array([one["gain"] for one in made])
    found, worse = interval(gains), [f"{one['row']} {one['column']}" for one in made if one["gain_high"] < 0.0]
    shown = sum(one["gain_low"] > 0.0 for one in made)
    least = LEAST.get(results.study)
    text = f"{gains.mean():+.3g} {made[0]['unit']} ({float(found.low):+.3g} to {float(found.high):+.3g}); "
    return [
        Claim("safe", "No true violation in any cell.", broken == 0, f"violations in {broken} of {len(made)} cells"),
        Claim(
            "gains",
            "On the whole the learner gains over the safe action, its interval above 0.",
            bool(found.low > 0.0),
            f"{text}in {shown} of {len(made)} cells alone",
        ),
        Claim(
            "no-loss",
            "It is worse than the safe action in no cell.",
            not worse,
            f"worse in {len(worse)} of {len(made)} cells{': ' if worse else ''}{', '.join(worse)}",
        ),
        *(
            [
                Claim(
                    "headline",
                    f"The mean gain is {least:g} {made[0]['unit']} at least.",
                    bool(gains.mean() >= least),
                    text,
                )
            ]
            if least is not None
            else []
        ),
    ]


def values(results: Results) -> dict[str, float | str]:
    """What pages say in sentences: the mean gain, the extremes of the limited quantity, where LSVI-UCB was over."""
    made = variants(results)
    if not made:
        return {}
    gains = np.array([one["gain"] for one in made])
    found: dict[str, float | str] = {
        "cells": len(made),
        "gain": float(gains.mean()),
        "shown": sum(one["gain_low"] > 0.0 for one in made),
        "not-shown": sum(not one["gain_low"] > 0.0 for one in made),
        "violations": sum(one["violations"] for one in made),
        "lowest": min(one["lowest"] for one in made),
        "highest": max(one["highest"] for one in made),
        "worst": f"{(worst := min(made, key=lambda one: one['gain']))['row']}#{worst['column']}",
        "worst-loss": -float(gains.min()),
    }
    rival = [one["rival_violations"] for one in made if one["rival_violations"] is not None]
    return found | ({"rival-cells": sum(count > 0 for count in rival), "rival-steps": sum(rival)} if rival else {})


def pictures(results: Results) -> list[Picture]:
    """The map."""
    made = variants(results)
    if not made:
        return []
    broken = counted(sum(one["violations"] > 0 for one in made), "cell")
    words = f"Gain in {made[0]['unit']} in {counted(len(made), 'cell')}; violations in {broken}."
    return [Picture(f"{results.study}-map", "What was gained where", words, lambda dpi: draw(made, dpi))]


def draw(made: list[dict[str, Any]], dpi: int) -> bytes:
    """The gain as colour and number; a cross where something was broken, a circle where no gain is shown. PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    rows, columns = (list(dict.fromkeys(one[side] for one in made)) for side in ("row", "column"))
    rows, columns = sorted(rows), sorted(columns, key=_climate)
    values: Array = np.full((len(rows), len(columns)), np.nan)
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(3.0 + 0.55 * len(columns), 1.6 + 0.36 * len(rows)), layout="constrained")
        ax = figure.subplots()
        for one in made:
            values[rows.index(one["row"]), columns.index(one["column"])] = one["gain"]
        top = max(float(np.nanmax(values)), 1e-9)
        image = ax.imshow(values, cmap="YlGn", vmin=min(0.0, float(np.nanmin(values))), vmax=top, aspect="auto")
        for one in made:
            at = (columns.index(one["column"]), rows.index(one["row"]))
            ax.text(*at, str(round(one["gain"])), ha="center", va="center", fontsize=7,
                    color="white" if one["gain"] > 0.7 * top else INK)  # fmt: skip
            if one["violations"]:
                ax.plot(*at, "x", color="#c62828", markersize=13, markeredgewidth=2)
            elif not one["gain_low"] > 0.0:
                ax.plot(*at, "o", color=QUIET, markersize=14, fillstyle="none", markeredgewidth=0.8)
            if one.get("rival_violations"):
                ax.plot(at[0] + 0.36, at[1] - 0.3, ".", color="#c62828", markersize=4)
        ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize=8)
        ax.set_yticks(range(len(rows)), rows, fontsize=8)
        ax.tick_params(length=0)
        ax.grid(visible=False)
        for side in ax.spines.values():
            side.set_visible(False)
        figure.colorbar(image, ax=ax, label=made[0]["unit"], fraction=0.03)
        broken = sum(one["violations"] > 0 for one in made)
        rival = sum(bool(one.get("rival_violations")) for one in made)
        words = (
            f"Gain over the safe action. Circles: no gain is shown. Crosses: τ was broken ({counted(broken, 'cell')})."
        )
        if any(one.get("rival_violations") is not None for one in made):
            cells = f"{rival} of {counted(len(made), 'cell')}"
            words += f"\nRed dots: there LSVI-UCB with a penalty was over the limit ({cells})."
        ax.set_title(words, loc="left", fontsize=9.5, color=INK)
        return encoded(figure, "png", dpi=dpi)


def _climate(name: str) -> tuple[int, str]:
    """Climates from warm to cold, as the file of the buildings lists them; others by name."""
    from tether.lab.real.buildings import CLIMATES

    known = list(CLIMATES)
    return (known.index(name) if name in known else len(known), name)


def files(results: Results) -> dict[str, bytes]:
    """Every variant as CSV, and the table as Markdown."""
    import pyarrow as pa
    from pyarrow import csv

    sink = io.BytesIO()
    made = variants(results)
    if made:
        csv.write_csv(pa.Table.from_pylist(made), sink)
    return {f"{results.study}.csv": sink.getvalue(), f"{results.study}.md": table(results).markdown.encode()}


def summary(results: Results, made: list[dict[str, Any]]) -> str:
    """How much was run."""
    return f"{counted(len(made), 'variant')} of a world that nobody here wrote, each played once."


STORED = (
    "row",
    "column",
    "gain",
    "gain_low",
    "gain_high",
    "violations",
    "rival_violations",
    "alarm",
    "lowest",
    "highest",
)
"""What is stored of each variant."""

VIEW = View(
    charts=curves, claims=claims, table=table, summary=summary, pictures=pictures, files=files, values=values,
    stored=STORED,
)  # fmt: skip
