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
    """Write the study's figures as PNG, SVG and PDF; returns their paths, PNG first."""
    made = charts(results)
    if not made:
        raise TetherError(f"study {results.study!r} has no finished run to draw yet: run it first.")
    storage.make_folder(folder)
    paths = []
    for chart in made:
        for kind, content in render(chart, tuple(FORMATS)).items():
            paths.append(folder / f"{chart.name}.{kind}")
            storage.write_atomically(paths[-1], content)
    return paths


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

    count = len(chart.panels)
    columns = 2 if stacked else min(4, 1 + count)
    legend = 0.44 * -(-len(chart.panels[0].series) // columns) + 0.4  # inches
    width, height = (7.2, 3.2 * count + legend) if stacked else (4.8 * count, 4.7 + legend)
    figure = Figure(figsize=(width, height))
    rows, across = (count, 1) if stacked else (1, count)
    axes = list(figure.subplots(rows, across, squeeze=False).ravel())
    left, right, top, bottom = 0.78, 0.78, 0.95, legend + 0.5
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=0.42,
        hspace=0.75,
    )
    for letter, ax, panel in zip("abcdefgh", axes, chart.panels, strict=False):
        draw_panel(ax, panel, letter, 100 if stacked else 66)
    figure.align_ylabels()
    _legend(figure, axes, columns)
    figure.text(0.5, 0.13 / height, chart.caption, ha="center", color=QUIET, fontsize=8.5)
    return figure


def draw_panel(ax: "Axes", panel: Panel, letter: str = "", line: int = 66) -> None:
    """One panel: bands, curves, reference lines, and its last values as direct labels."""
    _scales(ax, panel)
    floor = _floor(panel)
    for place, curve in enumerate(panel.series):
        _curve(ax, panel, curve, floor, place)
    _limits(ax, panel, floor)
    for guide in panel.guides:
        _guide(ax, guide)
    _end_labels(ax, panel, floor)
    if panel.key == "violations" and panel.notes:
        _zero_note(ax, panel)
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
    marks = _marks(curve.x, panel.x_scale, place)
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


def _scales(ax: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    if panel.x_scale == "log":
        ax.set_xscale("log")
    ax.xaxis.set_major_formatter(plain)
    if panel.y_scale == "log":
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(plain)
    if panel.y_scale == "count":
        ax.set_yscale(
            "function", functions=(lambda y: np.log10(1 + np.maximum(y, -0.9 * panel.unit) / panel.unit),
                                   lambda t: panel.unit * (10.0**t - 1)),
        )  # fmt: skip
        ax.yaxis.set_major_locator(FixedLocator(count_ticks(panel)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(plain)


def count_ticks(panel: Panel) -> list[float]:
    """Zero and the powers of ten that a count axis shows."""
    top = max([float(curve.high.max()) for curve in panel.series] + [1.0])
    powers = range(int(np.ceil(np.log10(panel.unit))), int(np.floor(np.log10(top))) + 1)
    return [0.0, *(10.0**power for power in powers)]


def _floor(panel: Panel) -> float:
    """The lowest value that a log panel needs to show."""
    if panel.y_scale != "log":
        return 0.0
    positive = [float(curve.y[curve.y > 0.0].min()) for curve in panel.series if (curve.y > 0.0).any()]
    return 0.6 * min(positive, default=1.0)


def _limits(ax: "Axes", panel: Panel, floor: float) -> None:
    last = max(float(curve.x[-1]) for curve in panel.series)
    first = min(float(curve.x[0]) for curve in panel.series)
    ax.set_xlim(first if panel.x_scale == "log" else 0.0, max(last, 2.0 * first))
    if panel.y_scale == "count":
        top = max([float(curve.high.max()) for curve in panel.series] + [1.0])
        ax.set_ylim(-0.45 * panel.unit, 3.0 * top)
    if panel.y_scale == "log":
        top = max([float(curve.high.max()) for curve in panel.series] + [2.0 * floor])
        ax.set_ylim(floor, 1.6 * top)


def _guide(ax: "Axes", guide: Guide) -> None:
    """A reference line with its name at its left end: above a level line, below a rising one."""
    rises = bool(guide.y[-1] > guide.y[0])
    ax.plot(guide.x, guide.y, color=QUIET, linestyle=(0, (7, 3)), linewidth=1.1, zorder=1.5)
    ax.annotate(
        guide.name, xy=(float(guide.x[0]), float(guide.y[0])), xytext=(8, 0) if rises else (4, 4),
        textcoords="offset points", fontsize=8.5, color=QUIET, va="top" if rises else "bottom",
    )  # fmt: skip


def _end_labels(ax: "Axes", panel: Panel, floor: float) -> None:
    """The last value of each curve at the right edge, pushed apart where they would overlap."""
    zero = [curve for curve in panel.series if curve.total == 0.0]
    shown = [curve for curve in panel.series if curve.total != 0.0] + zero[:1]
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = [float(to_axes.transform((curve.x[-1], max(floor, curve.y[-1])))[1]) for curve in shown]
    apart = 12.5 / (ax.get_window_extent().height * 72 / ax.figure.dpi)  # points
    for curve, height in zip(shown, spread(heights, apart), strict=True):
        colour = INK if curve.total == 0.0 else curve.style.light
        last = float(curve.y[-1])
        text = f"{last:.3f}" if panel.y_scale == "linear" else number(last) + ("" if last >= 0.0 else " ↓")
        ax.text(1.02, height, text, transform=ax.transAxes, color=colour, va="center", fontsize=9, fontweight="bold")


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """The same heights in the same order, moved as little as keeps them `distance` apart and below 1."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    groups: list[list[float]] = []  # centre, size
    for index in order:
        groups.append([heights[index], 1.0])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < distance * (groups[-1][1] + groups[-2][1]) / 2:
            centre, size = groups.pop()
            below, count = groups.pop()
            groups.append([(centre * size + below * count) / (size + count), size + count])
    placed = [centre + distance * (k - (size - 1) / 2) for centre, size in groups for k in range(int(size))]
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], 1.0 - distance * (len(placed) - 1 - k))
    moved = [0.0] * len(heights)
    for index, height in zip(order, placed, strict=True):
        moved[index] = height
    return moved


def number(value: float) -> str:
    """A value for a label: three figures, thousands apart."""
    return (f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}").replace("-", "−")


def _zero_note(ax: "Axes", panel: Panel) -> None:
    """Say "0 violations" where the curves of those who have none lie on each other."""
    head, _, names = panel.notes[0].partition(": ")
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.0}
    wrapped = textwrap.fill(names, 62)
    if wrapped.count("\n") > 1:
        wrapped = f"{len(names.split(' · '))} of {len(panel.series)} agents"
    lift = 8 + 11 * len(wrapped.splitlines())
    for text, above, size, weight in ((head, lift, 10, "bold"), (wrapped, 7, 8, "normal")):
        ax.annotate(
            text, xy=(0.03, 0.0), xycoords=("axes fraction", "data"), xytext=(0, above), textcoords="offset points",
            fontsize=size, fontweight=weight, color=INK, va="bottom", bbox=box, zorder=4,
        )  # fmt: skip


def _legend(figure: "Figure", axes: Sequence["Axes"], columns: int) -> None:
    """One legend for all panels: agents with their β, then the reference lines."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="lower center", ncols=columns, frameon=False, fontsize=8.8,
        bbox_to_anchor=(0.5, 0.3 / figure.get_figheight()), handlelength=2.6, columnspacing=2.2, labelspacing=0.7,
    )  # fmt: skip
