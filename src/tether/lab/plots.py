"""Charts as plain data, printed with matplotlib and embedded in the report as JSON. Nothing here knows a study.

The same data give the same bytes. Colours, dashes and markers say what an agent is, the same in print and on the page;
all are colour-blind safe.
"""

import io
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tether.lab.books import Cell, interval
from tether.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, RULE = "#1b1f24", "#57606a", "#d8dee4"
"""Text, secondary text (contrast above 5:1 on white) and grid lines of printed figures."""


@dataclass(frozen=True)
class Style:
    """How one curve looks wherever it is drawn."""

    light: str
    dark: str
    dash: str
    marker: str
    width: float


class Ramp(NamedTuple):
    """A hue from its first to its last shade, on white and on a dark page, with the line's form."""

    light: tuple[str, str]
    dark: tuple[str, str]
    dash: str
    marker: str

    def style(self, share: float, width: float) -> Style:
        """The style that lies `share` of the way along the ramp."""
        return Style(blend(*self.light, share), blend(*self.dark, share), self.dash, self.marker, width)


RAMPS = {
    "adaptive": Ramp(("#004f9e", "#6d9fd6"), ("#4da3ff", "#b4d6ff"), "solid", "o"),
    "directional": Ramp(("#2b86c5", "#93c4e6"), ("#86ccf7", "#d3edfd"), "solid", "P"),
    "certified": Ramp(("#00805c", "#6cc4a8"), ("#37c99c", "#b5ecd9"), "solid", "^"),
    "paper": Ramp(("#a0388c", "#d79bcb"), ("#e391d3", "#f5d2ee"), "solid", "D"),
    "told": Ramp(("#30363d", "#8b949e"), ("#e6edf3", "#9aa4ae"), "dash", "s"),
    "penalised": Ramp(("#e39a12", "#7a2d00"), ("#ffdca0", "#e0701a"), "solid", ""),
    "unconstrained": Ramp(("#8a6d00", "#c9b458"), ("#e0c84c", "#f0e4a8"), "dot", "v"),
    "default": Ramp(("#6e7781", "#b6bec6"), ("#9aa4ae", "#d0d7de"), "dashdot", ""),
    "other": Ramp(("#5b5fc7", "#b0b2ec"), ("#a5a8ff", "#d9dbff"), "dashdot", "X"),
}
"""One hue per role; several cells of a role take shades of its hue."""


def role(cell: Cell) -> str:
    """What the agent stands for in a comparison: whose safe set, whose optimism."""
    if cell.explorer in RAMPS:
        return cell.explorer
    if cell.agent == "always-safe":
        return "default"
    if cell.cost_radius_origin == "exact":
        return "told"
    if cell.cost_radius_origin == "none":
        return "penalised" if cell.options.get("penalty") else "unconstrained"
    return "other"


def styles(cells: Sequence[Cell]) -> list[Style]:
    """A style per cell: its role's hue, shaded by its place among the cells of that role."""
    roles = [role(cell) for cell in cells]
    ramps = [RAMPS[name] for name in roles]
    widths = [1.4 if name == "penalised" else 1.9 for name in roles]
    return [ramp.style(share, width) for ramp, share, width in zip(ramps, shares_of(roles), widths, strict=True)]


def shares_of(kinds: Sequence[str]) -> list[float]:
    """How far along its ramp each one lies: its place among those of its kind, 0 to 1."""
    return [kinds[:index].count(kind) / max(1, kinds.count(kind) - 1) for index, kind in enumerate(kinds)]


def in_turns(kinds: Sequence[str], scores: Sequence[float], most: int, order: Sequence[str] = ()) -> list[int]:
    """At most `most` places, ascending: of every kind those with the lowest scores, in turns; `order` settles ties."""
    ranks = {kind: order.index(kind) if kind in order else 0 for kind in kinds}
    turns = []
    for kind, rank in ranks.items():
        members = sorted((scores[place], place) for place in range(len(kinds)) if kinds[place] == kind)
        turns += [(turn, rank, place) for turn, (_, place) in enumerate(members)]
    return sorted(place for _, _, place in sorted(turns)[:most])


def blend(first: str, last: str, share: float) -> str:
    """The colour that lies `share` of the way from one #rrggbb to another."""
    pairs = ((int(first[i : i + 2], 16), int(last[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def radius_note(cell: Cell) -> str:
    """Which β it is, and what stands in for the other where there is only one."""
    if cell.agent == "always-safe":
        return "the safe action a₀, whose cost is known"
    note = cell.note or f"cost β {cell.cost_radius_origin}, value β {cell.value_radius_origin}"
    if cell.cost_radius_origin == "exact":
        return f"safe set known; value {note.removeprefix('value ')}"
    if cell.cost_radius_origin == "none":
        return f"no constraint; value {note.removeprefix('value ')}"
    return note


# Charts as data

POINTS = 400
"""Most points of a curve: a picture has no more columns to show."""


@dataclass(frozen=True, eq=False)
class Series:
    """One curve with its 95% band; x, y, low and high have the same length."""

    name: str
    note: str
    style: Style
    x: Array
    y: Array
    low: Array
    high: Array
    total: float  # the sum over episodes and seeds of what is counted, for direct labels


@dataclass(frozen=True, eq=False)
class Guide:
    """A reference line that belongs to no agent."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel:
    """One pair of axes. Scales: linear, log, or count, which is log10(1 + y/unit) so that zero has a place."""

    key: str
    title: str
    subtitle: str
    x_title: str
    y_title: str
    x_scale: str = "linear"
    y_scale: str = "linear"
    unit: float = 1.0
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    notes: tuple[str, ...] = ()
    prints_note: bool = False  # the first note, "what: who", also stands at the bottom of the printed panel
    labels_ends: bool = True  # the last value of each curve at the right edge of the printed panel
    y_range: tuple[float, float] | None = None  # else as far as the curves reach


@dataclass(frozen=True, eq=False)
class Chart:
    """The panels of one study in one world. Every panel has the same curves in the same order, empty where unknown."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 0  # panels beside each other in print; 0: all of them
    beside: "Callable[[Axes, str], None] | None" = None  # draws one more printed panel, with its letter


def running_sum(
    name: str, note: str, style: Style, counts: Array, grid: Callable[[int], Array] | None = None
) -> Series:
    """What was counted so far, (n, K): the mean over runs with its band, at even steps or on another grid."""
    sums = np.cumsum(counts, axis=1)
    at = (grid or even_grid)(sums.shape[1])
    band = interval(sums[:, at.astype(int) - 1])
    return Series(name, note, style, at, *band, total=float(sums[:, -1].sum()))


def even_grid(episodes: int) -> Array:
    """At most POINTS episodes, evenly spaced, the first and the last among them."""
    grid: Array = np.unique(np.linspace(1, episodes, POINTS).round())
    return grid


def log_grid(episodes: int) -> Array:
    """At most POINTS episodes, evenly spaced on a log axis."""
    grid: Array = np.unique(np.geomspace(1, episodes, POINTS).round())
    return grid


def moving_average(rows: Array, at: Array) -> Array:
    """Mean over the last quarter of the episodes up to each one in `at`: (n, K) -> (n, len(at)).

    The window grows with the episode, as the steps of a log axis do: early learning is not averaged away.
    """
    sums = np.concatenate([np.zeros((rows.shape[0], 1)), np.cumsum(rows, axis=1)], axis=1)
    last = at.astype(int)
    first = last - np.maximum(1, last // 4)
    averages: Array = (sums[:, last] - sums[:, first]) / (last - first)
    return averages


# Scales, limits and direct labels of a printed panel.


def set_scales(ax: "Axes", panel: Panel) -> None:
    """Linear, log or count axes with plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    if panel.x_scale == "log":
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(plain)
    if panel.y_scale == "log":
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(plain)
        if panel.y_range is not None:
            ax.yaxis.set_major_locator(FixedLocator([b * 10.0**a for a in range(-4, 5) for b in (1.0, 2.0, 5.0)]))
            ax.yaxis.set_minor_locator(NullLocator())
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


def floor_of(panel: Panel) -> float:
    """The lowest value that a log panel needs to show."""
    if panel.y_scale != "log":
        return 0.0
    if panel.y_range is not None:
        return panel.y_range[0]
    positive = [float(curve.y[curve.y > 0.0].min()) for curve in panel.series if (curve.y > 0.0).any()]
    return 0.6 * min(positive, default=1.0)


def set_limits(ax: "Axes", panel: Panel, floor: float) -> None:
    """As far as the curves reach, or as the panel says."""
    drawn = _drawn(panel)
    last = max(float(curve.x[-1]) for curve in drawn)
    first = min(float(curve.x[0]) for curve in drawn)
    ax.set_xlim(first if panel.x_scale == "log" else 0.0, max(last, 2.0 * first))
    if panel.y_range is not None:
        ax.set_ylim(*panel.y_range)
        return
    if panel.y_scale == "count":
        top = max([float(curve.high.max()) for curve in panel.series] + [1.0])
        ax.set_ylim(-0.45 * panel.unit, 3.0 * top)
    if panel.y_scale == "log":
        top = max([float(curve.high.max()) for curve in panel.series] + [2.0 * floor])
        ax.set_ylim(floor, 1.6 * top)


def _drawn(panel: Panel) -> list[Series]:
    return [curve for curve in panel.series if len(curve.x)]


def end_labels(ax: "Axes", panel: Panel, floor: float) -> None:
    """The last value of each curve at the right edge, pushed apart where they would overlap."""
    drawn = _drawn(panel) if panel.labels_ends else []
    zero = [curve for curve in drawn if curve.total == 0.0]
    shown = [curve for curve in drawn if curve.total != 0.0] + zero[:1]
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = [float(to_axes.transform((curve.x[-1], max(floor, curve.y[-1])))[1]) for curve in shown]
    apart = 12.5 / (ax.get_window_extent().height * 72 / ax.figure.dpi)  # points
    for curve, height in zip(shown, spread(heights, apart), strict=True):
        colour = INK if curve.total == 0.0 else curve.style.light
        ax.text(
            1.02, height, _end_value(panel, float(curve.y[-1])), transform=ax.transAxes, color=colour, va="center",
            fontsize=9, fontweight="bold",
        )  # fmt: skip


def _end_value(panel: Panel, last: float) -> str:
    if panel.y_range is not None:
        return f"{last:.2f}"
    if panel.y_scale == "linear":
        return f"{last:.3f}" if abs(last) < 100.0 else number(last)
    return number(last) + ("" if last >= 0.0 else " ↓")


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """The same heights in the same order, moved as little as keeps them `distance` apart and in 0 to 1."""
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
    for k in range(len(placed)):
        placed[k] = max(placed[k], distance * k)
    moved = [0.0] * len(heights)
    for index, height in zip(order, placed, strict=True):
        moved[index] = height
    return moved


def number(value: float) -> str:
    """A value for a label: three figures, thousands apart."""
    return (f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}").replace("-", "−")


def zero_note(ax: "Axes", panel: Panel) -> None:
    """Say "0 violations" where the curves of those who have none lie on each other."""
    head, _, names = panel.notes[0].partition(": ")
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.0}
    wrapped = textwrap.fill(names, 62)
    if wrapped.count("\n") > 1:
        wrapped = f"{len(names.split(' · '))} of {len(panel.series)} agents"
    bottom = 0.0 if panel.y_scale == "count" else floor_of(panel)
    lift = 8 + 11 * len(wrapped.splitlines())
    for text, above, size, weight in ((head, lift, 10, "bold"), (wrapped, 7, 8, "normal")):
        ax.annotate(
            text, xy=(0.03, bottom), xycoords=("axes fraction", "data"), xytext=(0, above), textcoords="offset points",
            fontsize=size, fontweight=weight, color=INK, va="bottom", bbox=box, zorder=4,
        )  # fmt: skip


# Panels as JSON for the page, which draws them with plotly: the same curves, to be zoomed, toggled and rescaled.

SYMBOLS = {
    "o": "circle",
    "P": "cross",
    "^": "triangle-up",
    "D": "diamond",
    "s": "square",
    "v": "triangle-down",
    "X": "x",
    "": "",
}
"""matplotlib's markers by plotly's names."""


def payload(chart: Chart) -> dict[str, Any]:
    """One chart as plain data."""
    panels = [
        {
            "key": panel.key,
            "title": panel.title,
            "xTitle": panel.x_title,
            "yTitle": panel.y_title,
            "xScale": panel.x_scale,
            "yScale": panel.y_scale,
            "unit": panel.unit,
            "series": [_curve_data(curve) for curve in panel.series],
            "guides": [{"name": guide.name, "x": numbers(guide.x), "y": numbers(guide.y)} for guide in panel.guides],
        }
        for panel in chart.panels
    ]
    return {"name": chart.name, "panels": panels}


def _curve_data(curve: Series) -> dict[str, Any]:
    style = curve.style
    look = {"light": style.light, "dark": style.dark, "dash": style.dash, "symbol": SYMBOLS[style.marker]}
    points = {axis: numbers(getattr(curve, axis)) for axis in ("x", "y", "low", "high")}
    return {"name": curve.name, "note": curve.note, **look, "width": style.width, **points}


def embed(data: Any) -> str:
    """JSON that may stand inside a <script> element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def numbers(values: Array) -> list[float | None]:
    """Five significant figures, more than a screen can show; what is not finite is a gap in the curve."""
    return [_short(float(value)) if np.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded


# Printed figures

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


def render(chart: Chart, kinds: Sequence[str], *, stacked: bool = False) -> dict[str, bytes]:
    """One chart as the bytes of files, by format; `stacked` puts its panels under each other, for a page upright."""
    import matplotlib

    with matplotlib.rc_context(LOOK):
        figure = make_figure(chart, stacked=stacked)
        return {kind: encoded(figure, kind) for kind in kinds}


def encoded(figure: "Figure", kind: str, **changes: Any) -> bytes:
    """A figure as the bytes of a file, with these changes to what FORMATS says."""
    sink = io.BytesIO()
    figure.savefig(sink, format=kind, **{**FORMATS[kind], **changes})
    return sink.getvalue()


def make_figure(chart: Chart, *, stacked: bool = False) -> "Figure":
    """The chart's panels in one figure with a single legend below them."""
    from matplotlib.figure import Figure

    count = len(chart.panels) + (chart.beside is not None)
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
    if chart.beside is not None:
        chart.beside(axes[len(chart.panels)], "abcdefgh"[len(chart.panels)])
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
        _curve(ax, panel, curve, place)
    set_limits(ax, panel, floor)
    for guide in panel.guides:
        _draw_guide(ax, guide)
    end_labels(ax, panel, floor)
    if panel.prints_note and panel.notes:
        zero_note(ax, panel)
    ax.set_xlabel(panel.x_title)
    ax.set_ylabel(panel.y_title)
    head = f"{letter}   {panel.title}" if letter else panel.title
    ax.set_title(head, loc="left", fontweight="bold", pad=38)
    ax.text(0, 1.025, textwrap.fill(panel.subtitle, line), transform=ax.transAxes, fontsize=8, color=QUIET, va="bottom")


def _curve(ax: "Axes", panel: Panel, curve: Series, place: int) -> None:
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


def _draw_guide(ax: "Axes", guide: Guide) -> None:
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
