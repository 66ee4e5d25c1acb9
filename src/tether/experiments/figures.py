"""Results to printed figures: a figure is a function of data, and the same data give the same bytes.

draw(load(Path("out/figure1")), Path("out/figure1/figures"))   # figure1.png, figure1.svg, figure1.pdf
"""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.errors import TetherError
from tether.experiments import storage
from tether.experiments.figure_axes import count_ticks as count_ticks
from tether.experiments.figure_axes import end_labels, floor_of, set_limits, set_scales, zero_note
from tether.experiments.figure_axes import number as number
from tether.experiments.figure_axes import spread as spread
from tether.experiments.figure_data import Chart, Guide, Panel, Series, charts
from tether.experiments.figure_style import INK, QUIET, RULE
from tether.experiments.results import Results
from tether.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
}
"""What is written, without the dates and versions that would change the bytes."""

LOOK: Any = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters everywhere
    "font.size": 9.5,
    "axes.titlesize": 12.0,
    "axes.labelsize": 10.0,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "svg.hashsalt": "tether",
    "text.parse_math": False,  # a label with a $ in it is still a label
}
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 1.6)),
    "dot": (0, (1.2, 1.4)),
    "dashdot": (0, (6, 1.5, 1.2, 1.5)),
}


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the study's figures as PNG, SVG and PDF; returns their paths, PNG first. A lake also has a portrait."""
    made = charts(results)
    if not made:
        raise TetherError(f"study {results.study!r} has no finished run to draw yet: run it first.")
    storage.make_folder(folder)
    content = {f"{chart.name}.{kind}": data for chart in made for kind, data in render(chart, tuple(FORMATS)).items()}
    if any(chart.lake for chart in made):
        from tether.experiments.lake_picture import portrait, render_portrait

        seen = portrait(results)
        content |= {} if seen is None else {f"{results.study}-lake.png": render_portrait(seen)}
    for name, data in content.items():
        storage.write_atomically(folder / name, data)
    return [folder / name for name in content]


def render(chart: Chart, kinds: Sequence[str], *, stacked: bool = False) -> dict[str, bytes]:
    """One chart as the bytes of files, by format; `stacked` puts its panels under each other, for a page upright."""
    import matplotlib

    made = {}
    with matplotlib.rc_context(LOOK):
        figure = make_figure(chart, stacked=stacked)
        for kind in kinds:
            sink = io.BytesIO()
            figure.savefig(sink, format=kind, **FORMATS[kind])
            made[kind] = sink.getvalue()
    return made


def make_figure(chart: Chart, *, stacked: bool = False) -> "Figure":
    """The chart's panels in one figure with a single legend below them."""
    from matplotlib.figure import Figure

    count = len(chart.panels) + chart.lake
    columns = 2 if stacked else chart.columns or min(4, 1 + count)
    across = (min(2, chart.columns) or 1) if stacked else (chart.columns or count)
    rows, tall = -(-count // across), 1.81 if stacked and across == 1 else 3.25  # inches
    width = (7.2 if across == 1 else 5.4 * across) if stacked else 4.8 * across
    caption = textwrap.fill(chart.caption, int(15 * width)) if chart.columns else chart.caption
    legend = 0.44 * -(-len(chart.panels[0].series) // columns) + 0.4 + 0.17 * caption.count("\n")
    left, right, top, bottom, gap = 0.78, 0.78, 0.95, legend + 0.5, 1.36
    height = top + rows * tall + (rows - 1) * gap + bottom
    figure = Figure(figsize=(width, height))
    axes = list(figure.subplots(rows, across, squeeze=False).ravel())
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=0.42,
        hspace=gap / tall,
    )
    for letter, ax, panel in zip("abcdefgh", axes, chart.panels, strict=False):
        draw_panel(ax, panel, letter, 100 if stacked and across == 1 else 66)
    if chart.lake:
        from tether.experiments.lake_picture import draw_map

        draw_map(axes[len(chart.panels)], "abcdefgh"[len(chart.panels)])
    for ax in axes[count:]:
        ax.set_axis_off()
    figure.align_ylabels()
    _legend(figure, axes, columns, 0.3 + 0.17 * caption.count("\n"))
    figure.text(0.5, 0.13 / height, caption, ha="center", color=QUIET, fontsize=8.5, linespacing=1.4)
    return figure


def draw_panel(ax: "Axes", panel: Panel, letter: str = "", line: int = 66) -> None:
    """One panel: bands, curves, reference lines, and its last values as direct labels."""
    set_scales(ax, panel)
    floor = floor_of(panel)
    for place, curve in enumerate(panel.series):
        _curve(ax, panel, curve, floor, place)
    set_limits(ax, panel, floor)
    for guide in panel.guides:
        _guide(ax, guide)
    end_labels(ax, panel, floor)
    if panel.key in ("violations", "cost") and panel.notes:
        zero_note(ax, panel)
    ax.set_xlabel(panel.x_title)
    ax.set_ylabel(panel.y_title)
    head = f"{letter}   {panel.title}" if letter else panel.title
    ax.set_title(head, loc="left", fontweight="bold", pad=38)
    ax.text(0, 1.025, textwrap.fill(panel.subtitle, line), transform=ax.transAxes, fontsize=8, color=QUIET, va="bottom")


def _curve(ax: "Axes", panel: Panel, curve: Series, floor: float, place: int) -> None:
    """A curve with its band; what a log axis cannot show is left out, never moved."""
    style = curve.style
    y, low, high = curve.y, curve.low, curve.high
    if panel.y_scale == "log":
        y = np.where(y > 0.0, y, np.nan)
        if not (low > 0.0).all():  # half a band would mislead
            low = high = y
    ax.fill_between(curve.x, low, high, color=style.light, alpha=0.16, linewidth=0, zorder=2)
    marks = _marks(curve.x, panel.x_scale, place) if len(curve.x) > 1 else [0]
    ax.plot(
        curve.x, y, color=style.light, linestyle=DASHES[style.dash], linewidth=style.width, zorder=2 + style.width / 2,
        marker=style.marker or None, markersize=4.6, markevery=marks, markeredgecolor="white", markeredgewidth=0.6,
        label=f"{curve.name}\n{curve.note}",
    )  # fmt: skip


def _marks(x: Array, scale: str, place: int) -> list[int]:
    """Six points per curve for its marker, shifted so that markers of neighbours do not coincide."""
    shares = (np.arange(6) + 0.1 + 0.11 * (place % 8)) / 6.0
    wanted = np.geomspace(x[0], x[-1], 1000) if scale == "log" else np.linspace(x[0], x[-1], 1000)
    at = np.searchsorted(x, wanted[(shares * 999).astype(int)])
    return [int(index) for index in np.unique(np.minimum(at, len(x) - 1))]


def _guide(ax: "Axes", guide: Guide) -> None:
    """A reference line with its name at its left end: above a level line, below a rising one."""
    rises = bool(guide.y[-1] > guide.y[0])
    ax.plot(guide.x, guide.y, color=QUIET, linestyle=(0, (7, 3)), linewidth=1.1, zorder=1.5)
    ax.annotate(
        guide.name, xy=(float(guide.x[0]), float(guide.y[0])), xytext=(8, 0) if rises else (4, 4),
        textcoords="offset points", fontsize=8.5, color=QUIET, va="top" if rises else "bottom", zorder=6,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
    )  # fmt: skip


def _legend(figure: "Figure", axes: Sequence["Axes"], columns: int, above: float) -> None:
    """One legend for all panels: agents with their β, then the reference lines."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="lower center", ncols=columns, frameon=False, fontsize=8.8,
        bbox_to_anchor=(0.5, above / figure.get_figheight()), handlelength=2.6, columnspacing=2.2, labelspacing=0.7,
    )  # fmt: skip
