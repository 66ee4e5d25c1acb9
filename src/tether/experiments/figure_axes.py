"""Scales, limits and direct labels of a printed panel."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tether.experiments.figure_data import Panel, Series
from tether.experiments.figure_style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    drawn = [] if panel.key == "steps" else _drawn(panel)  # its curves end in different places, with panel a's values
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
