"""Colours, dashes and markers by what an agent is, the same in print and on the page; all colour-blind safe."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tether.experiments.results import Cell

INK, QUIET, RULE = "#1b1f24", "#57606a", "#d8dee4"
"""Text, secondary text (contrast above 5:1 on white) and grid lines of printed figures."""


class Ramp(NamedTuple):
    """A hue from its first to its last shade, on white and on a dark page, with the line's form."""

    light: tuple[str, str]
    dark: tuple[str, str]
    dash: str
    marker: str


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


@dataclass(frozen=True)
class Style:
    """How one curve looks wherever it is drawn."""

    light: str
    dark: str
    dash: str
    marker: str
    width: float


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
    peers: dict[str, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        peers[role(cell)].append(index)
    chosen: dict[int, Style] = {}
    for name, members in peers.items():
        ramp = RAMPS[name]
        width = 1.4 if name == "penalised" else 1.9
        for place, index in enumerate(members):
            share = place / max(1, len(members) - 1)
            light, dark = blend(*ramp.light, share), blend(*ramp.dark, share)
            chosen[index] = Style(light, dark, ramp.dash, ramp.marker, width)
    return [chosen[index] for index in range(len(cells))]


def blend(first: str, last: str, share: float) -> str:
    """The colour that lies `share` of the way from one #rrggbb to another."""
    pairs = ((int(first[i : i + 2], 16), int(last[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)


def short_name(cell: Cell) -> str:
    """The label without its note on β."""
    return cell.label.rpartition(" (")[0] if cell.label.endswith(")") and " (" in cell.label else cell.label


def radius_note(cell: Cell) -> str:
    """The label's note on β, in full: which β it is, and what stands in for the other where there is only one."""
    note = cell.label[len(short_name(cell)) :].strip(" ()")
    if cell.agent == "always-safe":
        return "the safe action a₀, whose cost is known"
    if not note:
        note = f"cost β {cell.cost_radius_origin}, value β {cell.value_radius_origin}"
    if cell.cost_radius_origin == "exact":
        return f"safe set known; value {note.removeprefix('value ')}"
    if cell.cost_radius_origin == "none":
        return f"no constraint; value {note.removeprefix('value ')}"
    return note
