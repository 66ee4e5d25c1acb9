"""Figure 2 (section 5.2) and every other study that counts interaction units: success, return and safety of RSLUCB-QVI
on the lake, beside CISR and the safe action; the claims of section 5.2 and ours; and the lake as a picture."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tether.agents.rslucb import RslucbQvi
from tether.errors import TetherError
from tether.lab.books import Cell, Interval, Results, interval
from tether.lab.cells import build_agent, build_world
from tether.lab.cisr.curves import load_curves, published
from tether.lab.plots import (
    INK,
    LOOK,
    QUIET,
    RAMPS,
    Chart,
    Guide,
    Panel,
    Series,
    Style,
    encoded,
    in_turns,
    radius_note,
    shares_of,
)
from tether.lab.registry import AGENTS, WORLDS, checked_options
from tether.lab.simulate import linear_of, simulate_units
from tether.lab.specs import Schedule
from tether.lab.view import Claim, Picture, Table, View, agent_head, counted, html_table, numbered, origin_columns
from tether.lab.worlds.lake import CELLS, DANGER, ENDS, GOAL, MOVES, SIZE, START, transition_law
from tether.lab.worlds.linear_mdp import Streams
from tether.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAST = 3
"""Units at the end of a run that its final numbers are averaged over."""
COST_SLACK = 1e-7
"""An expected cost may exceed τ by this much in floating point and still count as kept."""

# What a cell stands for, read from its options; figures and claims choose by it, labels may change.

Kind = Literal["certified", "tuned", "safe-action", "bernoulli", "text-literal", "theory-literal", "theory-small"]

LEARNERS: tuple[Kind, ...] = ("certified", "tuned", "bernoulli", "text-literal", "theory-literal")
"""Kinds that are meant to keep the expected cost under τ; `theory-small` is shown because it does not."""
SMALL_RADIUS = (5.0, 50.0)
"""The first term of the paper's β alone, about 10.4, lies between these; the whole of it is above 1e5, tuned ones are
below 1."""
PAPERS_RADIUS = 1e3
"""A given β above this is the paper's own."""


def kind_of(cell: Cell) -> Kind:
    """Which of the readings and settings it is: whose β, pooled over steps or not, one plan a unit or many."""
    options, schedule = cell.options, schedule_of(cell)
    if cell.agent == "always-safe":
        return "safe-action"
    if cell.world_options.get("costs", "gaussian") != "gaussian":
        return "bernoulli"
    given = options.get("cost_radius")
    number = float(given) if isinstance(given, int | float) else 0.0
    if SMALL_RADIUS[0] <= number <= SMALL_RADIUS[1]:
        return "theory-small"
    if not options.get("pooled", False) or number >= PAPERS_RADIUS:
        return "theory-literal"
    if schedule.plan_each == "unit" or not schedule.restarts:
        return "text-literal"
    return "certified" if cell.cost_radius_origin == "theorem" else "tuned"


def schedule_of(cell: Cell) -> Schedule:
    """How the steps of its units are cut into trajectories and plans."""
    return Schedule(**(cell.units or {}))


def threshold_of(cell: Cell) -> float:
    """τ of the cell's world."""
    return float(cell.world_options.get("threshold", 0.1))


def of_kind(cells: Sequence[Cell], *kinds: Kind) -> list[Cell]:
    """The cells of these kinds that have a finished run, in the order of the study."""
    return [cell for cell in cells if cell.seeds and kind_of(cell) in kinds]


def leading(cells: Sequence[Cell], kind: Kind) -> Cell | None:
    """The one that speaks for its kind: the study's first certified cell is the default; of the others the best."""
    found = of_kind(cells, kind)
    if kind == "certified":
        return found[0] if found else None
    return max(found, key=lambda cell: float(last_units(cell, "success").mean), default=None)


def leader(cells: Sequence[Cell]) -> Cell | None:
    """The learner that the study is about: certified, else tuned."""
    return leading(cells, "certified") or leading(cells, "tuned")


def by_instance(cell: Cell, column: str) -> Array:
    """A column averaged over the repeats of each instance: (instances, U)."""
    instances, values = np.array(cell.instances), cell[column]
    return np.array([values[instances == instance].mean(axis=0) for instance in np.unique(instances)])


def last_units(cell: Cell, column: str) -> Interval:
    """Mean over the last units, with its interval over agents."""
    return interval(by_instance(cell, column)[:, -LAST:].mean(axis=1))


def excess_by_unit(cell: Cell) -> Array:
    """The largest true expected cost over τ that any run took or planned in each unit, (U,)."""
    worst: Array = np.maximum(cell["worst_cost"], cell["planned_worst_cost"]).max(axis=0)
    return worst


def max_expected_cost(cell: Cell) -> float:
    """The largest true expected cost that any run took or planned, over all its units."""
    return threshold_of(cell) + float(excess_by_unit(cell).max())


# CISR beside ours: the curves of our students (shipped, or trained for the study), and what its authors published

STEPS = 9600
"""Training steps in one of CISR's interaction units."""
INTENDED = 0.9
"""Probability of the intended move in the Tether paper's lake; the authors ran CISR at 0.8."""
STUDENTS = 30
"""Of the authors: 3 teachers × 10 students."""
TRAINED, TRAINED_UNITS = 5, 11
"""What `--with-cisr` trains: about four CPU-minutes a student of eleven units; with `--quick` one student, one unit."""


@dataclass(frozen=True, eq=False)
class CisrRun:
    """CISR with its optimised teacher, one row per student (n, U); NaN where nothing was published."""

    name: str
    note: str
    success: Array
    earned: Array
    falls: Array
    final_return: float
    style: Style
    by_authors: bool = False


def cisr_runs(study: Path) -> list[CisrRun]:
    """Our students on the paper's lake (trained for this study, else shipped), then the authors' mean."""
    told = published()
    success = np.array([told.optimised_success])
    authors = CisrRun(
        "CISR, its authors' logs",
        f"{STUDENTS} students, moves succeed with {told.intended}; {STEPS:,} steps a unit",
        success,
        np.full(success.shape, np.nan),
        np.zeros(success.shape),  # 0 in all of training
        told.row("optimised").mean_return,
        Style("#d98a3d", "#ffc58f", "dot", "", 2.0),
        by_authors=True,
    )
    own = study / "cisr"
    try:
        anew = own if any(own.glob("*.json")) else None
        curves = load_curves("optimised", intended=INTENDED, folder=anew)
    except (OSError, ValueError, TetherError):  # not every installation brings the trained curves
        return [authors]
    if not curves:
        return [authors]
    earned = np.array([curve.mean_return for curve in curves])
    ours = CisrRun(
        "CISR, run by us" if anew is None else "CISR, trained anew",
        f"{counted(len(curves), 'student')}, moves succeed with {INTENDED}; {STEPS:,} steps a unit",
        np.array([curve.success for curve in curves]),
        earned,
        np.array([curve.training_failures for curve in curves], dtype=np.float64),
        float(earned[:, -1].mean()),
        Style("#c1440e", "#ff9466", "dashdot", "", 2.0),
    )
    return [ours, authors]


def train_cisr(study: Path, quick: bool) -> None:
    """Students of CISR's optimised teacher on the paper's lake, kept beside the study; those that are there stay."""
    from tether.lab.cisr.train import train_into

    folder = study / "cisr"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1 if quick else TRAINED):
        path = folder / f"optimised-{INTENDED}-map-{seed}.json"
        if not path.exists():
            train_into(path, "optimised", INTENDED, "map", seed, 1 if quick else TRAINED_UNITS)


# Claims

NOTHING, ENOUGH, CLOSE = 0.10, 0.90, 0.05
"""Success up to this is as good as none; the least that counts as learned; how near is comparable."""
LEVELS = (0.5, 0.8)
"""Success rates whose first arrival measures how fast a learner is."""
IDLE: dict[Kind, tuple[str, str]] = {
    "safe-action": ("safe-action-stays", "{} does not get to the goal: what is reached beyond it was learned."),
    "theory-literal": ("theory-literal-learns-nothing", "{}: with the theory's constants nothing is learned."),
    "text-literal": (
        "text-literal-learns-nothing",
        "{}: with one plan and one trajectory a unit, as section 5.2 reads, nothing is learned.",
    ),
}
"""Rows that do not get to the goal: the safe action, and the paper taken literally."""


def claims(results: Results) -> list[Claim]:
    """Every claim that these results can decide."""
    cells = [cell for cell in results.finished if cell.per == "unit"]
    rivals, seen = cisr_runs(results.folder), dict[str, int]()
    found = [_expected_cost(cell, seen) for cell in of_kind(cells, *LEARNERS)]
    for kind in ("certified", "tuned"):
        cell = leading(cells, kind)
        if cell is not None:
            found += [_learned(cell, kind), _faster(cell, kind, rivals), _comparable(cell, kind, rivals)]
    found += [_learned(cell, "bounded") for cell in of_kind(cells, "bernoulli") if _proves(cell)][:1]
    found += [_idle(cell, kind, seen) for kind in IDLE for cell in of_kind(cells, kind)]
    found += [_too_small(cell, seen) for cell in of_kind(cells, "theory-small")]
    first = leader(cells)
    return found if first is None else [*found, _falls(first)]


def _expected_cost(cell: Cell, seen: dict[str, int]) -> Claim:
    """The constraint itself: E[c] ≤ τ at every step taken and in every state planned for."""
    threshold, largest = threshold_of(cell), max_expected_cost(cell)
    return Claim(
        numbered(f"expected-cost-{kind_of(cell)}", seen),
        f"{cell.name}: the expected cost of every step taken and of every state planned for is at most "
        f"τ = {threshold:g} ({cell.cost_radius_origin} β in the safe set).",
        largest <= threshold + COST_SLACK,
        f"largest expected cost {largest:.7f}; {_violating(cell)}",
    )


def _too_small(cell: Cell, seen: dict[str, int]) -> Claim:
    """The first term of β alone is no confidence radius at the theory's ridge."""
    threshold, largest = threshold_of(cell), max_expected_cost(cell)
    return Claim(
        numbered("theory-small-violates", seen),
        f"{cell.name}: the first term of the theory's β alone does not keep the constraint.",
        largest > threshold + COST_SLACK,
        f"largest expected cost {largest:.3f} with τ = {threshold:g}; {_violating(cell)}",
    )


def _violating(cell: Cell) -> str:
    steps = cell["violations"].sum(axis=1)
    return f"{int(steps.sum()):,} violating steps in {int((steps > 0).sum())} of {counted(len(cell.seeds), 'run')}"


def _agents(cell: Cell) -> str:
    return f"{counted(len(set(cell.instances)), 'agent')}, {counted(len(cell.seeds), 'run')}"


def _proves(cell: Cell) -> bool:
    """Whether costs are declared to be yes or no, so that the list of actions proves most safe moves."""
    return bool(cell.world_options.get("costs") == "bounded")


def _learned(cell: Cell, kind: Kind | Literal["bounded"]) -> Claim:
    final = last_units(cell, "success")
    open_verdict = "; undecided: the interval contains it" if final.low < ENOUGH <= final.high else ""
    return Claim(
        f"{kind}-learns",
        f"{cell.name} learns to reach the goal: success of at least {ENOUGH:.2f} over the last {LAST} units.",
        bool(final.low >= ENOUGH),
        f"success {final} over {_agents(cell)}{open_verdict}",
    )


def _faster(cell: Cell, kind: Kind, rivals: Sequence[CisrRun]) -> Claim:
    """The lower end of our band must reach each level in fewer steps than any mean curve of CISR."""
    low, parts, holds = interval(by_instance(cell, "success")).low, [], True
    for level in LEVELS:
        ours = _steps_until(low, level, schedule_of(cell).steps)
        theirs = {rival.name: _steps_until(rival.success.mean(axis=0), level, STEPS) for rival in rivals}
        first = min((steps for steps in theirs.values() if steps is not None), default=None)
        holds &= ours is not None and (first is None or ours < first)
        told = ", ".join(f"{name}: {_in_steps(steps)}" for name, steps in theirs.items())
        parts.append(f"success {level:g} after {_in_steps(ours)} (lower end of our 95% band); {told}")
    return Claim(
        f"{kind}-faster-than-cisr",
        f"{cell.name} learns faster than CISR per training step, as the paper says of RSLUCB-QVI.",
        holds,
        f"{'; '.join(parts)}; {_agents(cell)}",
    )


def _steps_until(curve: Array, level: float, length: int) -> int | None:
    """Training steps until the end of the first unit with that success."""
    reached = np.flatnonzero(curve >= level)
    return int(length * (reached[0] + 1)) if len(reached) else None


def _in_steps(count: int | None) -> str:
    return "never" if count is None else f"{count:,} steps"


def _comparable(cell: Cell, kind: Kind, rivals: Sequence[CisrRun]) -> Claim:
    """Not worse than the better of CISR's curves by more than CLOSE."""
    final = last_units(cell, "success")
    theirs = {rival.name: float(rival.success[:, -LAST:].mean()) for rival in rivals}
    told = ", ".join(f"{name}: {value:.3f}" for name, value in theirs.items())
    return Claim(
        f"{kind}-comparable-to-cisr",
        f"{cell.name} ends with a success comparable to CISR's or better: at most {CLOSE:g} below it.",
        bool(final.low >= max(theirs.values()) - CLOSE),
        f"success over the last {LAST} units {final}; {told}; {_agents(cell)}. CISR is judged without its teacher, and "
        "its authors' lake is more slippery (0.8 instead of 0.9)",
    )


def _idle(cell: Cell, kind: Kind, seen: dict[str, int]) -> Claim:
    name, text = IDLE[kind]
    means = by_instance(cell, "success").mean(axis=0)
    return Claim(
        numbered(name, seen),
        text.format(cell.name) + f" Success of at most {NOTHING:.2f} in every unit.",
        bool(means.max() <= NOTHING),
        f"success per unit {' '.join(f'{mean:.2f}' for mean in means)} over {_agents(cell)}",
    )


def _falls(cell: Cell) -> Claim:
    """What a reader may take "safe" to mean; the paper's constraint does not promise it."""
    falls, ended = cell["falls"].sum(axis=1), cell["trajectories"].sum()
    return Claim(
        "zero-falls",
        f"{cell.name} never falls into danger. (Not what the constraint promises: it bounds the expected "
        f"cost of a step, and τ = {threshold_of(cell):g} allows a risk.)",
        bool(falls.sum() == 0.0),
        f"{int(falls.sum()):,} falls in {int(ended):,} trajectories of {counted(len(cell.seeds), 'run')}, "
        f"{falls.mean():.1f} a run",
    )


# Charts: success, return and safety of RSLUCB-QVI beside CISR and the safe action

MOST_CELLS = 7
"""More curves than these, with two of CISR beside them, cannot be told apart; the table has all."""
FEWEST_AGENTS = 5
"""Rows of fewer agents are drawn only where there is little else."""
LOOKS: dict[Kind, tuple[str, str, str]] = {
    "certified": ("adaptive", "solid", "o"),
    "tuned": ("paper", "solid", "D"),
    "bernoulli": ("certified", "solid", "^"),
    "theory-small": ("penalised", "solid", "v"),
    "theory-literal": ("unconstrained", "dot", "X"),
    "text-literal": ("unconstrained", "dash", "P"),
    "safe-action": ("told", "dash", "s"),
}
"""Hue, dash and marker of each kind of cell."""


def charts(results: Results) -> list[Chart]:
    """One chart for the study; none if nothing has run."""
    done = [cell for cell in results.finished if cell.per == "unit"]
    if not done:
        return []
    shown, rivals = most_telling(done), cisr_runs(results.folder)
    success = success_panel(shown, rivals)
    panels = (
        success,
        return_panel(shown, rivals),
        steps_panel(success, shown, rivals),
        cost_panel(shown, rivals),
        falls_panel(shown, rivals),
    )
    title, caption = results.title or results.study, _caption(results, done, shown)
    lake = draw_map if all(cell.world == "frozen-lake" for cell in shown) else None
    return [Chart(results.study, title, caption, panels, columns=3, beside=lake)]


def most_telling(cells: Sequence[Cell]) -> list[Cell]:
    """At most MOST_CELLS in their order: of every kind the ones with the highest final success, in turns.

    A row of a few agents beside rows of many is mostly band: it stays in the table.
    """
    many = [cell for cell in cells if len(set(cell.instances)) >= FEWEST_AGENTS]
    cells = many if len(many) > 2 else cells
    if len(cells) <= MOST_CELLS:
        return list(cells)
    kinds, scores = [kind_of(cell) for cell in cells], [-float(last_units(cell, "success").mean) for cell in cells]
    return [cells[index] for index in in_turns(kinds, scores, MOST_CELLS, list(LOOKS))]


def styles(cells: Sequence[Cell]) -> list[Style]:
    """A look per cell: its kind's, shaded by its place among the cells of that kind; the leading one is widest."""
    kinds = [kind_of(cell) for cell in cells]
    made = []
    for kind, share in zip(kinds, shares_of(kinds), strict=True):
        hue, dash, marker = LOOKS[kind]
        ramp = RAMPS[hue]._replace(dash=dash, marker=marker)
        made.append(ramp.style(share, 2.4 if kind == "certified" and share == 0.0 else 1.7))
    return made


def cell_note(cell: Cell) -> str:
    """Whose β it is; the safe action alone has none."""
    return "the safe action everywhere; learns nothing" if cell.agent == "always-safe" else radius_note(cell)


def _curves(
    cells: Sequence[Cell],
    ours: Callable[[Cell], Interval],
    rivals: Sequence[CisrRun],
    theirs: Callable[[CisrRun], Array],
) -> tuple[Series, ...]:
    """A curve per cell, then CISR's as far as our axis reaches; without points where nothing is known."""
    units = cells[0]["success"].shape[1]
    made = []
    for cell, style in zip(cells, styles(cells), strict=True):
        made.append(Series(cell.name, cell_note(cell), style, _first(units), *ours(cell), total=1.0))
    for rival in rivals:
        shown = theirs(rival)[:, :units]
        if np.isnan(shown).any():
            shown = np.empty((1, 0))
        x = _first(shown.shape[1])
        made.append(Series(rival.name, rival.note, rival.style, x, *interval(shown), total=1.0))
    return tuple(made)


def _first(units: int) -> Array:
    return np.arange(1.0, units + 1.0)


def _band(column: str) -> Callable[[Cell], Interval]:
    """A column per unit, with its band over agents."""
    return lambda cell: interval(by_instance(cell, column))


def _level(name: str, value: float, cells: Sequence[Cell]) -> Guide:
    return Guide(name, np.array([1.0, cells[0]["success"].shape[1]]), np.full(2, value))


def success_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """How many of a unit's trajectories end at the goal."""
    return Panel(
        key="success",
        title="Success rate per unit",
        subtitle="Trajectories that end at the goal, of all that end in the unit. Band: 95% over agents (CISR: over "
        "students).",
        x_title="interaction unit",
        y_title="success rate",
        series=_curves(cells, _band("success"), rivals, lambda rival: rival.success),
        y_range=(0.0, 1.04),
    )


def return_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Return per trajectory; of the authors' CISR only the final number is published."""
    unknown = [rival for rival in rivals if np.isnan(rival.earned).all()]
    return Panel(
        key="return",
        title="Average return per unit",
        subtitle="Per trajectory: 6 at the goal, 0.01 otherwise. CISR also pays 0.01 for every step, so its best is "
        "lower.",
        x_title="interaction unit",
        y_title="return",
        series=_curves(cells, _band("average_return"), rivals, lambda rival: rival.earned),
        guides=tuple(
            _level(f"CISR, authors, final: {one.final_return:.2f}", one.final_return, cells) for one in unknown
        ),
        y_range=(-0.6, 6.4),
    )


def steps_panel(success: Panel, cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Success against the steps taken: a unit of ours is about a tenth of one of CISR's."""
    lengths = [schedule_of(cell).steps for cell in cells] + [STEPS] * len(rivals)
    return Panel(
        key="steps",
        title="Success rate by steps taken",
        subtitle="The same success over all training steps so far: a unit of CISR has nearly ten times as many.",
        x_title="training steps",
        y_title="success rate",
        x_scale="log",
        series=tuple(replace(curve, x=curve.x * length) for curve, length in zip(success.series, lengths, strict=True)),
        labels_ends=False,  # curves end in different places, with the values of the panel of success
        y_range=(0.0, 1.04),
    )


def cost_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """The largest true expected cost of any step taken or planned, in any run: what the constraint bounds."""
    tau = threshold_of(cells[0])
    worst = {cell.label: threshold_of(cell) + excess_by_unit(cell) for cell in cells}
    excess = [float(np.maximum(excess_by_unit(cell), 0.0).max()) for cell in cells]
    clean = [cell for cell, over in zip(cells, excess, strict=True) if over <= COST_SLACK]
    curves = _curves(
        cells, lambda cell: Interval(*[worst[cell.label]] * 3), rivals, lambda rival: np.full((1, 1), np.nan)
    )
    totals = [over if over > COST_SLACK else 0.0 for over in excess] + [1.0] * len(rivals)
    runs, names = sum(len(cell.seeds) for cell in clean), " · ".join(cell.name for cell in clean)
    return Panel(
        key="cost",
        title="Largest expected cost",
        subtitle="The largest true risk of danger of any step taken or planned, over all runs: what the constraint "
        "bounds. CISR has no such bound.",
        x_title="interaction unit",
        y_title="largest expected cost",
        y_scale="log",
        series=tuple(replace(curve, total=total) for curve, total in zip(curves, totals, strict=True)),
        guides=(_level(f"τ = {tau:g}", tau, cells),),
        notes=(f"never above τ, in any of {runs:,} runs: {names}",) if clean else (),
        prints_note=True,
        y_range=(0.2 * tau, 1.5),
    )


def falls_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Trajectories that end in danger: the constraint bounds the risk of a step, so that there are some."""
    curves = _curves(cells, _band("falls"), rivals, lambda rival: rival.falls)
    top = max(1.0, *(float(curve.high.max()) for curve in curves if len(curve.x)))
    return Panel(
        key="falls",
        title="Falls into danger per unit",
        subtitle="Mean per run, while learning. CISR's teacher stops its students in time: 0 by construction.",
        x_title="interaction unit",
        y_title="falls per unit",
        series=tuple(replace(curve, total=float(curve.y.sum())) for curve in curves),
        notes=(f"Safe is not fall-free: τ bounds the expected cost of a step, and {_allowed(cells)}.",),
        y_range=(-0.03 * top, 1.15 * top),
    )


def _allowed(cells: Sequence[Cell]) -> str:
    tau = threshold_of(cells[0])
    return f"τ = {tau:g} allows a {100 * tau:g}% risk"


def _lengths(cells: Sequence[Cell]) -> str:
    return " or ".join(f"{steps:,}" for steps in sorted({schedule_of(cell).steps for cell in cells}))


def _caption(results: Results, cells: Sequence[Cell], shown: Sequence[Cell]) -> str:
    agents = sorted({len(set(cell.instances)) for cell in cells})
    runs = sum(len(cell.seeds) for cell in cells)
    text = (
        f"A unit is {_lengths(cells)} steps for RSLUCB-QVI and {STEPS:,} training steps for CISR, nearly ten times as "
        "many. "
        "Ours is counted while it learns; CISR is judged after each unit, by 10,000 further steps without its teacher. "
        f"“Safe” bounds the expected cost of a step: {_allowed(cells)} at every step, so falls remain. "
        f"{' to '.join(str(count) for count in dict.fromkeys((agents[0], agents[-1])))} agents, {runs:,} runs."
    )
    if len(shown) < len(cells):
        text += f" {len(shown)} of {len(cells)} rows are drawn, some of every kind; the table has all."
    if results.missing:
        text += f" {len(results.missing):,} runs are missing."
    return text


# The table


def row(cell: Cell, units: int) -> dict[str, Any]:
    """One agent. `max_expected_cost` is over every step taken and every planned state of every run."""
    success, earned = last_units(cell, "success"), last_units(cell, "average_return")
    violations = cell["violations"].sum(axis=1)
    return {
        "agent": cell.label,
        "explorer": cell.explorer,
        "world": cell.world,
        "seeds": len(set(cell.instances)),
        "runs": len(cell.seeds),
        "units": units,
        "success_last3": float(success.mean),
        "success_last3_ci": (float(success.low), float(success.high)),
        "return_last3": float(earned.mean),
        "return_last3_ci": (float(earned.low), float(earned.high)),
        "success_by_unit": tuple(by_instance(cell, "success").mean(axis=0).tolist()),
        "falls_per_run": float(cell["falls"].sum(axis=1).mean()),
        "max_expected_cost": max_expected_cost(cell),
        "violations_total": int(violations.sum()),
        "violating_runs": int((violations > 0).sum()),
        "cost_radius_origin": cell.cost_radius_origin,
        "value_radius_origin": cell.value_radius_origin,
    }


def table(results: Results) -> Table:
    """A row per cell, and on the page CISR's: success in every unit, final numbers, safety, and whose β it is."""
    rows = [row(cell, results.episodes) for cell in results.finished]
    body = [_page_row(one, cell) for one, cell in zip(rows, results.finished, strict=True)]
    body += [_cisr_row(rival) for rival in cisr_runs(results.folder)]
    heads = (
        "Agent", "Agents × runs", f"Success, last {LAST} units", f"Return, last {LAST} units", "Largest expected cost",
        "Violating steps", "Runs with violations", "Falls per run", "Cost\u00a0β", "Value\u00a0β", "Success by unit",
    )  # fmt: skip
    caption = (
        "Success: the share of a unit's trajectories that end at the goal. Means over agents with 95% bootstrap "
        "intervals over agents; an agent's repeated runs are averaged first. The largest expected cost is over every "
        "step taken and every state planned for, in all runs; a violating step is one whose expected cost exceeds τ; "
        f"a fall is a trajectory that ends in danger. CISR's unit is {STEPS:,} training steps. Its success is measured "
        "without its teacher, its return also pays 0.01 a step, and its falls are those in training, where the teacher "
        "stops them."
    )
    page = html_table(f"Numbers of {results.study}", caption, heads, "\n".join(body), words=3)
    columns = (
        "row", "agents × runs", f"success in units 1 to {results.episodes}", f"last {LAST} (95%)", "return",
        "falls per run", "largest expected cost", "steps over τ", "in runs",
    )  # fmt: skip
    lines = [_line(one) for one in rows] + [_cisr_line(rival, results.episodes) for rival in cisr_runs(results.folder)]
    return Table(rows, columns, lines, [page])


def _line(one: dict[str, Any]) -> Sequence[str]:
    low, high = one["success_last3_ci"]
    return (
        one["agent"],
        f"{one['seeds']:,} × {one['runs'] // max(1, one['seeds']):,}",
        _short(one["success_by_unit"]),
        f"{one['success_last3']:.3f} ({low:.3f} to {high:.3f})",
        f"{one['return_last3']:.2f}",
        f"{one['falls_per_run']:.1f}",
        f"{one['max_expected_cost']:.4f}",
        str(one["violations_total"]),
        str(one["violating_runs"]),
    )


def _cisr_line(rival: CisrRun, units: int) -> Sequence[str]:
    """CISR's success in as many units of its own; its expected costs are not known."""
    success = rival.success[:, :units]
    agents = f"{STUDENTS}" if rival.by_authors else f"{len(success)}"
    falls = f"{float(rival.falls.sum(axis=1).mean()):.1f} in training"
    last = f"{float(success[:, -LAST:].mean()):.3f}"
    means = success.mean(axis=0).tolist()
    return (f"{rival.name}", f"{agents} × 1", _short(means), last, f"{rival.final_return:.2f}", falls, "–", "–", "–")


def _short(success: Sequence[float]) -> str:
    """One number per unit, as short as it gets: .02 .09 … 1."""
    return " ".join(f"{value:.2f}".removeprefix("0") if value < 0.995 else "1" for value in success)


def _page_row(one: dict[str, Any], cell: Cell) -> str:
    kept = "zero" if one["max_expected_cost"] <= threshold_of(cell) + COST_SLACK else "some"
    count = "zero" if one["violations_total"] == 0 else "some"
    learns = cell.agent != "always-safe"
    origins = (cell.cost_radius_origin, cell.value_radius_origin) if learns else ("–", "–")
    (low, high), (least, most) = one["success_last3_ci"], one["return_last3_ci"]
    return (
        f"<tr>{agent_head(cell, cell_note(cell))}<td>{one['seeds']:,} × {one['runs'] // max(1, one['seeds']):,}</td>"
        f"<td>{one['success_last3']:.3f}<small>{low:.3f} to {high:.3f}</small></td>"
        f"<td>{one['return_last3']:.2f}<small>{least:.2f} to {most:.2f}</small></td>"
        f'<td class="{kept}">{one["max_expected_cost"]:.4f}</td>'
        f'<td class="{count}">{one["violations_total"]:,}</td><td>{one["violating_runs"]:,}</td>'
        f"<td>{one['falls_per_run']:.1f}</td>{origin_columns(*origins)}{_by_unit(one['success_by_unit'])}</tr>"
    )


def _cisr_row(rival: CisrRun) -> str:
    """CISR as far as its numbers are known."""
    success = rival.success
    return (
        f'<tr><th scope="row">{escape(rival.name)}<small>{escape(rival.note)}</small></th>'
        f"<td>{'–' if rival.by_authors else f'{len(success)} × 1'}</td><td>{float(success[:, -LAST:].mean()):.3f}</td>"
        f"<td>{rival.final_return:.2f}<small>last unit</small></td><td>–</td><td>–</td><td>–</td>"
        f"<td>{float(rival.falls.sum(axis=1).mean()):.1f}</td>{origin_columns('–', '–')}"
        f"{_by_unit(success.mean(axis=0).tolist())}</tr>"
    )


def _by_unit(success: Sequence[float]) -> str:
    """The same as a cell of the page."""
    return f'<td class="text" style="white-space:normal;min-width:10.5rem">{_short(success)}</td>'


def summary(results: Results, rows: list[dict[str, Any]]) -> str:
    """How much was run, and what "safe" means here."""
    return (
        f"{len(rows)} settings, {sum(one['runs'] for one in rows):,} runs of {results.episodes:,} interaction units of "
        f"{_lengths([cell for cell in results.cells if cell.per == 'unit'])} steps. “Safe” bounds the expected cost of "
        "a step, here its risk of danger; it does not mean that nobody falls."
    )


# The lake as a picture: its map, what the safe action does, what was learned, where that leads and what it risks

ICE, EDGE, WATER, FLAG, SAFE, LEARNED = "#eef5fb", "#c3d3e2", "#2b3440", "#00805c", "#7d8894", "#004f9e"
OVER = "#a3211d"
FAINT = 0.02
"""Probabilities below this are not drawn."""
FREE = [state for state in range(CELLS) if state not in ENDS]
"""Cells where a trajectory goes on."""


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


def pictures(results: Results) -> list[Picture]:
    """The portrait, where there is a run to portray."""
    seen = portrait(results)
    if seen is None:
        return []
    title = f"The lake, run {seen.run} of {seen.name}"
    return [Picture(f"{results.study}-lake", title, describe(seen), lambda dpi: render_portrait(seen, dpi=dpi))]


def portrait(results: Results) -> Portrait | None:
    """The leading learner's first finished run, played again; None where the study has no such run."""
    cell = leader(results.cells)
    if cell is None or cell.world != "frozen-lake":
        return None
    try:
        return _played_again(cell, results.episodes)
    except TetherError:  # a study of another version, whose agents this one cannot build
        return None


def _played_again(cell: Cell, units: int) -> Portrait:
    run, schedule = cell.seeds[0], schedule_of(cell)
    streams = Streams.from_seed(*divmod(run, cell.repeats))
    checked_options("the world", cell.world_options, WORLDS.get(cell.world).options)
    checked_options("the agent", cell.options, AGENTS.get(cell.agent).options)
    world = linear_of(build_world(cell.world, cell.world_options, units, streams))
    agent = build_agent(cell.agent, cell.options, world, units, streams)
    if not isinstance(agent, RslucbQvi):
        raise TetherError(f"{cell.label} plays no mixtures.")
    simulate_units(world, agent, units, streams, schedule)
    rows = agent.tables.start[:CELLS, None] + np.arange(len(MOVES))
    plan = agent.current.mixture[:, rows]  # (H, S, A)
    law = transition_law(float(cell.world_options.get("intended", 0.9)))
    steps = schedule.steps if schedule.receding else world.problem.horizon
    visits, ended = _occupancy(plan, law, steps, receding=schedule.receding)
    cost = np.einsum("sa,sa->s", plan[0], law[:, :, list(DANGER)].sum(axis=2))
    cost[list(ENDS)] = np.nan
    return Portrait(
        name=cell.name,
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

    with matplotlib.rc_context({**LOOK, "axes.grid": False}):
        figure = Figure(figsize=(11.0, 12.7))
        axes = figure.subplots(2, 2).ravel()
        figure.subplots_adjust(left=0.03, right=0.97, top=0.865, bottom=0.02, wspace=0.1, hspace=0.19)
        figure.suptitle(
            "The frozen lake, and what was learned on it", x=0.03, y=0.985, ha="left", fontsize=16, weight="bold"
        )
        story = textwrap.fill(_story(seen), 138)
        figure.text(0.03, 0.962, story, va="top", color=QUIET, fontsize=9.5, linespacing=1.45)
        for ax, draw in zip(axes, (_safe_panel, _learned_panel, _visits_panel, _cost_panel), strict=True):
            draw(ax, seen)
        return encoded(figure, "png", dpi=dpi)


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
    _lake(ax, letter, "The lake", words)


def _safe_panel(ax: "Axes", seen: Portrait) -> None:
    words = "One move per cell of least risk, given to the agent. Following it everywhere leads nowhere."
    _lake(ax, "a", "What is known before: the safe action", words)
    for state in FREE:
        _arrow(ax, state, int(seen.safe[state]), 1.0, SAFE)


def _learned_panel(ax: "Axes", seen: Portrait) -> None:
    words = "The longer and darker an arrow, the likelier the move. Grey: the safe action. Blue: another, by choice."
    _lake(ax, "b", "What was learned: a mixture of moves", words)
    for state in FREE:
        for action, probability in enumerate(seen.mixture[state]):
            if probability > FAINT:
                _arrow(ax, state, action, float(probability), SAFE if action == seen.safe[state] else LEARNED)


def _visits_panel(ax: "Axes", seen: Portrait) -> None:
    words = "Expected visits to each cell in one trajectory from the start. Blank: below 0.005."
    top = float(seen.visits.max())
    often = seen.visits > 0.4 * top
    _lake(ax, "c", "Where it leads", words, np.sqrt(seen.visits / top), "Blues", "white" if often[START] else INK)
    for state in FREE:
        if seen.visits[state] >= 0.005:
            _number(ax, state, f"{seen.visits[state]:.2f}", "white" if often[state] else INK)


def _cost_panel(ax: "Axes", seen: Portrait) -> None:
    words = "True expected cost of the next step: its risk of danger; blank where it is 0. "
    words += f"At most τ = {seen.threshold:g} is allowed."
    _lake(ax, "d", "What it risks", words, seen.cost / (1.4 * seen.threshold), "Oranges")
    for state in FREE:
        if seen.cost[state] >= 5e-4:
            _number(ax, state, f"{seen.cost[state]:.3f}", INK)
        if seen.cost[state] > seen.threshold + COST_SLACK:
            _square(ax, state, facecolor="none", edgecolor=OVER, linewidth=2.4, zorder=4)


def _lake(
    ax: "Axes",
    letter: str,
    title: str,
    subtitle: str,
    shares: Array | None = None,
    colours: str = "",
    start: str = INK,
) -> None:
    """The map, row 0 on top, each cell coloured by its share (S,); danger is water, whatever the shares say.

    S stands in its corner, so that what is drawn at the start remains readable; the goal and danger hold nothing else.
    """
    from matplotlib import colormaps

    ax.set_xlim(0, SIZE)
    ax.set_ylim(SIZE, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(f"{letter}   {title}" if letter else title, loc="left", fontweight="bold", pad=38)
    ax.text(0, 1.025, textwrap.fill(subtitle, 72), transform=ax.transAxes, fontsize=8.3, color=QUIET, va="bottom")
    for state in range(CELLS):
        face: Any = ICE
        if shares is not None and np.isfinite(shares[state]):
            face = colormaps[colours](0.85 * min(1.0, float(shares[state])))
        look = {"facecolor": WATER if state in DANGER else face, "edgecolor": EDGE, "linewidth": 0.7}
        _square(ax, state, **({"facecolor": FLAG, "edgecolor": FLAG} if state == GOAL else look))
    row, column = divmod(START, SIZE)
    ax.text(column + 0.1, row + 0.12, "S", weight="bold", color=start, va="top", fontsize=8, zorder=5)
    row, column = divmod(GOAL, SIZE)
    ax.text(column + 0.5, row + 0.52, "G", weight="bold", color="white", ha="center", va="center", fontsize=12)
    for state in DANGER:
        row, column = divmod(state, SIZE)
        ax.text(column + 0.5, row + 0.5, "✕", color="#9fb3c8", ha="center", va="center", fontsize=9)


def _square(ax: "Axes", state: int, **look: Any) -> None:
    from matplotlib.patches import Rectangle

    row, column = divmod(state, SIZE)
    ax.add_patch(Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, **look))


def _arrow(ax: "Axes", state: int, action: int, probability: float, colour: str) -> None:
    """Toward where the move leads, as long as it is likely; from the middle of the cell if there may be others."""
    row, column = divmod(state, SIZE)
    move = np.array(MOVES[action][::-1], dtype=np.float64)
    middle = np.array([column + 0.5, row + 0.5])
    alone = probability > 1.0 - FAINT
    tail = middle - 0.3 * move if alone else middle
    tip = middle + (0.3 if alone else 0.12 + 0.3 * probability) * move
    ax.annotate(
        "", xy=tuple(tip), xytext=tuple(tail), zorder=3,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.22,head_length=0.3", "color": colour, "alpha": 0.35 + 0.65 * probability,
            "linewidth": 0.8 + 1.1 * probability, "shrinkA": 0, "shrinkB": 0,
        },
    )  # fmt: skip


def _number(ax: "Axes", state: int, text: str, colour: str) -> None:
    row, column = divmod(state, SIZE)
    middle = row + (0.66 if state == START else 0.53)
    ax.text(column + 0.5, middle, text, ha="center", va="center", fontsize=8, color=colour, zorder=5)


VIEW = View(charts=charts, claims=claims, table=table, summary=summary, pictures=pictures)
