"""The lake as a picture: its map, what the safe action does, what was learned, where that leads and what it risks.

    Path("lake.png").write_bytes(render_portrait(portrait(load(Path("out/figure2")))))

A portrait plays one run of the study again, which takes some seconds: the same spec and seed give the same plan.
"""

import io
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tether.errors import TetherError
from tether.experiments.figure_style import INK, QUIET, short_name
from tether.experiments.results import Cell, Results
from tether.experiments.unit_kinds import leading
from tether.records import Array
from tether.world.lake_map import CELLS, DANGER, ENDS, GOAL, MOVES, SIZE, START, transition_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ICE, EDGE, WATER, FLAG, SAFE, LEARNED = "#eef5fb", "#c3d3e2", "#2b3440", "#00805c", "#7d8894", "#004f9e"
OVER = "#a3211d"
FAINT = 0.02
"""Probabilities below this are not drawn."""


@dataclass(frozen=True, eq=False)
class Portrait:
    """One run's last plan. `visits` and the three odds are exact, not counted: they follow from plan and lake."""

    name: str
    run: int
    safe: NDArray[np.int64]  # a_0(s), (S,)
    mixture: Array  # probabilities of the four moves at the plan's first step (S, A)
    visits: Array  # expected per trajectory (S,)
    cost: Array  # true expected cost of that mixture, NaN where a trajectory has ended (S,)
    threshold: float
    goal: float
    danger: float

    @property
    def late(self) -> float:
        """Probability that a trajectory ends at neither."""
        return 1.0 - self.goal - self.danger


def portrait(results: Results) -> Portrait | None:
    """The leading learner's first finished run, played again; None where the study has no such run."""
    cell = leading(results.cells, "certified") or leading(results.cells, "tuned")
    if cell is None or cell.world != "frozen-lake":
        return None
    try:
        return _played_again(cell, results.episodes)
    except TetherError:  # a study of another version, whose agents this one cannot build
        return None


def _played_again(cell: Cell, units: int) -> Portrait:
    from tether.agents.rslucb_qvi import RslucbQvi
    from tether.experiments.cells import build_agent, build_world
    from tether.experiments.registry import AGENTS, WORLDS, checked_options
    from tether.experiments.units import Schedule, simulate_units
    from tether.world.linear_mdp import Streams

    info, run = cell.info, cell.seeds[0]
    streams = Streams.from_seed(*divmod(run, info.repeats))
    checked_options("the world", info.world_options, WORLDS.get(info.world).options)
    checked_options("the agent", info.options, AGENTS.get(info.agent).options)
    world = build_world(info.world, info.world_options, streams)
    agent = build_agent(info.agent, info.options, world, units, streams)
    if not isinstance(agent, RslucbQvi):
        raise TetherError(f"{cell.label} plays no mixtures.")
    schedule = Schedule(**(info.units or {}))
    simulate_units(world, agent, units, streams, schedule)
    rows = agent.tables.start[:CELLS, None] + np.arange(len(MOVES))
    plan = agent.current.mixture[:, rows]  # (H, S, A)
    law = transition_law(float(info.world_options.get("intended", 0.9)))
    steps = schedule.steps if schedule.receding else world.problem.horizon
    visits, ended = _occupancy(plan, law, steps, receding=schedule.receding)
    cost = np.einsum("sa,sa->s", plan[0], law[:, :, list(DANGER)].sum(axis=2))
    cost[list(ENDS)] = np.nan
    return Portrait(
        name=short_name(cell),
        run=run,
        safe=agent.tables.baseline_row[:CELLS].astype(np.int64),
        mixture=plan[0],
        visits=visits,
        cost=cost,
        threshold=float(world.problem.threshold[0]),
        goal=float(ended[GOAL]),
        danger=float(ended[list(DANGER)].sum()),
    )


def _occupancy(plan: Array, law: Array, steps: int, *, receding: bool) -> tuple[Array, Array]:
    """Expected visits of a trajectory from the start, and where it ends, whatever is planned there: (S,) each."""
    here = np.eye(CELLS)[START]
    visits, goes_on = np.zeros(CELLS), ~np.isin(np.arange(CELLS), ENDS)
    for step in range(steps):
        visits += here * goes_on
        here = here * ~goes_on + np.einsum("s,sa,sat->t", here * goes_on, plan[0 if receding else step], law)
    return visits, here


def render_portrait(seen: Portrait, *, dpi: int = 160) -> bytes:
    """Four maps as one PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    from tether.experiments.figures import FORMATS, LOOK

    with matplotlib.rc_context({**LOOK, "axes.grid": False}):
        figure = Figure(figsize=(11.0, 12.7))
        axes = figure.subplots(2, 2).ravel()
        figure.subplots_adjust(left=0.03, right=0.97, top=0.865, bottom=0.02, wspace=0.1, hspace=0.19)
        figure.suptitle(
            "The frozen lake, and what was learned on it", x=0.03, y=0.985, ha="left", fontsize=16, weight="bold"
        )
        figure.text(
            0.03, 0.962, textwrap.fill(_story(seen), 138), va="top", color=QUIET, fontsize=9.5, linespacing=1.45
        )
        _safe_panel(axes[0], seen)
        _learned_panel(axes[1], seen)
        _visits_panel(axes[2], seen)
        _cost_panel(axes[3], seen)
        sink = io.BytesIO()
        figure.savefig(sink, **{**FORMATS["png"], "format": "png", "dpi": dpi})
    return sink.getvalue()


def _story(seen: Portrait) -> str:
    return (
        f"The last plan of “{seen.name}”, run {seen.run}, from the start: it reaches the goal with probability "
        f"{seen.goal:.3f}, falls into danger with probability {seen.danger:.3f} and runs out of time with probability "
        f"{max(seen.late, 0.0):.3f}. All numbers here are exact: they follow from the plan and the lake."
    )


def describe(seen: Portrait) -> str:
    """The picture in words, for those who cannot see it."""
    largest = float(np.nanmax(seen.cost))
    return (
        "Four maps of the 10 by 10 lake: the safe action in every cell, the learned mixture of moves, the expected "
        f"visits per trajectory, and the expected cost of a step, at most {largest:.3f} with τ = {seen.threshold:g}. "
        f"{_story(seen)}"
    )


def draw_map(ax: "Axes", letter: str = "") -> None:
    """The lake alone: start, goal and danger."""
    words = "S is the start, G the goal, ✕ danger. A move slips to one side with probability 0.1."
    _frame(ax, letter, "The lake", words)
    _fill(ax, np.full(CELLS, np.nan), None)
    _signs(ax)


def _safe_panel(ax: "Axes", seen: Portrait) -> None:
    words = "One move per cell of least risk, given to the agent. Following it everywhere leads nowhere."
    _frame(ax, "a", "What is known before: the safe action", words)
    _fill(ax, np.full(CELLS, np.nan), None)
    for state in _free():
        _arrow(ax, state, int(seen.safe[state]), 1.0, SAFE)
    _signs(ax)


def _learned_panel(ax: "Axes", seen: Portrait) -> None:
    words = "The longer and darker an arrow, the likelier the move. Grey: the safe action. Blue: another, by choice."
    _frame(ax, "b", "What was learned: a mixture of moves", words)
    _fill(ax, np.full(CELLS, np.nan), None)
    for state in _free():
        for action, probability in enumerate(seen.mixture[state]):
            if probability > FAINT:
                _arrow(ax, state, action, float(probability), SAFE if action == seen.safe[state] else LEARNED)
    _signs(ax)


def _visits_panel(ax: "Axes", seen: Portrait) -> None:
    words = "Expected visits to each cell in one trajectory from the start. Blank: below 0.005."
    _frame(ax, "c", "Where it leads", words)
    top = float(seen.visits.max())
    _fill(ax, np.sqrt(seen.visits / top), "Blues")
    for state in _free():
        if seen.visits[state] >= 0.005:
            _number(ax, state, f"{seen.visits[state]:.2f}", dark=bool(seen.visits[state] > 0.4 * top))
    _signs(ax, "white" if seen.visits[START] > 0.4 * top else INK)


def _cost_panel(ax: "Axes", seen: Portrait) -> None:
    words = "True expected cost of the next step: its risk of danger; blank where it is 0. "
    _frame(ax, "d", "What it risks", words + f"At most τ = {seen.threshold:g} is allowed.")
    _fill(ax, seen.cost / (1.4 * seen.threshold), "Oranges")
    for state in _free():
        if seen.cost[state] >= 5e-4:
            _number(ax, state, f"{seen.cost[state]:.3f}", dark=False)
        if seen.cost[state] > seen.threshold + 1e-7:
            _square(ax, state, facecolor="none", edgecolor=OVER, linewidth=2.4, zorder=4)
    _signs(ax)


def _free() -> list[int]:
    return [state for state in range(CELLS) if state not in ENDS]


def _frame(ax: "Axes", letter: str, title: str, subtitle: str) -> None:
    """Equal cells, row 0 on top, no ticks; the head of a panel as in the other figures."""
    ax.set_xlim(0, SIZE)
    ax.set_ylim(SIZE, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(f"{letter}   {title}" if letter else title, loc="left", fontweight="bold", pad=38)
    ax.text(0, 1.025, textwrap.fill(subtitle, 72), transform=ax.transAxes, fontsize=8.3, color=QUIET, va="bottom")


def _square(ax: "Axes", state: int, **look: Any) -> None:
    from matplotlib.patches import Rectangle

    row, column = divmod(state, SIZE)
    ax.add_patch(Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, **look))


def _fill(ax: "Axes", shares: Array, colours: str | None) -> None:
    """Each cell in its colour; danger is water, whatever the shares say."""
    from matplotlib import colormaps

    for state in range(CELLS):
        face: Any = ICE
        if colours is not None and np.isfinite(shares[state]):
            face = colormaps[colours](0.85 * min(1.0, float(shares[state])))
        if state in DANGER:
            face = WATER
        _square(ax, state, facecolor=face, edgecolor=EDGE, linewidth=0.7)


def _signs(ax: "Axes", start: str = INK) -> None:
    """S in its corner, so that what is drawn at the start remains readable; the goal and danger hold nothing else."""
    row, column = divmod(START, SIZE)
    ax.text(column + 0.1, row + 0.12, "S", weight="bold", color=start, va="top", fontsize=8, zorder=5)
    row, column = divmod(GOAL, SIZE)
    _square(ax, GOAL, facecolor=FLAG, edgecolor=FLAG)
    ax.text(column + 0.5, row + 0.52, "G", weight="bold", color="white", ha="center", va="center", fontsize=12)
    for state in DANGER:
        row, column = divmod(state, SIZE)
        ax.text(column + 0.5, row + 0.5, "✕", color="#9fb3c8", ha="center", va="center", fontsize=9)


def _arrow(ax: "Axes", state: int, action: int, probability: float, colour: str) -> None:
    """Toward where the move leads, as long as it is likely; from the middle of the cell if there may be others."""
    row, column = divmod(state, SIZE)
    move = np.array(MOVES[action][::-1], dtype=np.float64)
    middle = np.array([column + 0.5, row + 0.5])
    length = 0.12 + 0.3 * probability
    tail = middle - 0.3 * move if probability > 1.0 - FAINT else middle
    tip = middle + (0.3 if probability > 1.0 - FAINT else length) * move
    ax.annotate(
        "", xy=tuple(tip), xytext=tuple(tail), zorder=3,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.22,head_length=0.3", "color": colour, "alpha": 0.35 + 0.65 * probability,
            "linewidth": 0.8 + 1.1 * probability, "shrinkA": 0, "shrinkB": 0,
        },
    )  # fmt: skip


def _number(ax: "Axes", state: int, text: str, *, dark: bool) -> None:
    row, column = divmod(state, SIZE)
    middle = row + (0.66 if state == START else 0.53)
    colour = "white" if dark else INK
    ax.text(column + 0.5, middle, text, ha="center", va="center", fontsize=8, color=colour, zorder=5)
