"""Panels as JSON for the page, which draws them with plotly: the same curves, to be zoomed, toggled and rescaled."""

import json
from typing import Any

import numpy as np

from tether.experiments.figure_data import Chart, Guide, Panel, Series
from tether.records import Array

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
    return {"name": chart.name, "panels": [_panel(panel) for panel in chart.panels]}


def embed(data: Any) -> str:
    """JSON that may stand inside a <script> element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "key": panel.key,
        "title": panel.title,
        "xTitle": panel.x_title,
        "yTitle": panel.y_title,
        "xScale": panel.x_scale,
        "yScale": panel.y_scale,
        "unit": panel.unit,
        "series": [_series(curve) for curve in panel.series],
        "guides": [_guide(guide) for guide in panel.guides],
    }


def _series(curve: Series) -> dict[str, Any]:
    style = curve.style
    return {
        "name": curve.name,
        "note": curve.note,
        "light": style.light,
        "dark": style.dark,
        "dash": style.dash,
        "symbol": SYMBOLS[style.marker],
        "width": style.width,
        "x": numbers(curve.x),
        "y": numbers(curve.y),
        "low": numbers(curve.low),
        "high": numbers(curve.high),
    }


def _guide(guide: Guide) -> dict[str, Any]:
    return {"name": guide.name, "x": numbers(guide.x), "y": numbers(guide.y)}


def numbers(values: Array) -> list[float | None]:
    """Five significant figures, more than a screen can show; what is not finite is a gap in the curve."""
    return [_short(float(value)) if np.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded
