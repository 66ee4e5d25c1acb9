"""CISR beside RSLUCB-QVI: the shipped curves of our students, and the one that its authors published."""

import base64
import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tether.errors import TetherError
from tether.lab.books import Cell, Interval, Results, interval
from tether.lab.cisr.curves import load_curves, published
from tether.lab.claims import Claim
from tether.lab.html import ORIGINS, html_table
from tether.lab.plots import INK, QUIET, RAMPS, Chart, Guide, Panel, Series, Style, blend, radius_note, short_name
from tether.lab.worlds.lake import CELLS, DANGER, ENDS, GOAL, MOVES, SIZE, START, transition_law
from tether.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 9600
"""Training steps in one of CISR's interaction units."""
INTENDED = 0.9
"""Probability of the intended move in the Tether paper's lake; the authors ran CISR at 0.8."""
STUDENTS = 30
"""Of the authors: 3 teachers × 10 students."""


@dataclass(frozen=True, eq=False)
class CisrRun:
    """CISR with its optimised teacher, one row per student (n, U); NaN where nothing was published."""

    name: str
    note: str
    success: Array
    earned: Array
    falls: Array
    final_return: float
    by_authors: bool = False


def trained_folder(study: Path) -> Path:
    """Where `--with-cisr` keeps the students that it trains for a study."""
    return study / "cisr"


def cisr_runs(study: Path) -> list[CisrRun]:
    """Our students on the paper's lake (trained for this study, else shipped), then the authors' mean."""
    return [*_ours(study), _authors()]


def _ours(study: Path) -> list[CisrRun]:
    own = trained_folder(study)
    try:
        anew = own if any(own.glob("*.json")) else None
        curves = load_curves("optimised", intended=INTENDED, folder=anew)
    except (OSError, ValueError, TetherError):  # not every installation brings the trained curves
        return []
    if not curves:
        return []
    students = f"{len(curves)} student{'' if len(curves) == 1 else 's'}"
    earned = np.array([curve.mean_return for curve in curves])
    return [
        CisrRun(
            "CISR, run by us" if anew is None else "CISR, trained anew",
            f"{students}, moves succeed with {INTENDED}; {STEPS:,} steps a unit",
            np.array([curve.success for curve in curves]),
            earned,
            np.array([curve.training_failures for curve in curves], dtype=np.float64),
            float(earned[:, -1].mean()),
        )
    ]


def _authors() -> CisrRun:
    told = published()
    success = np.array([told.optimised_success])
    return CisrRun(
        "CISR, its authors' logs",
        f"{STUDENTS} students, moves succeed with {told.intended}; {STEPS:,} steps a unit",
        success,
        np.full(success.shape, np.nan),
        np.zeros(success.shape),  # 0 in all of training
        told.row("optimised").mean_return,
        by_authors=True,
    )


# Numbers of studies that are counted in interaction units: success, return and safety, with intervals over agents.

LAST = 3
"""Units at the end of a run that its final numbers are averaged over."""


@dataclass(frozen=True)
class UnitRow:
    """One agent in the table. `max_expected_cost` is over every step taken and every planned state of every run."""

    agent: str
    explorer: str
    world: str
    seeds: int
    runs: int
    units: int
    success_last3: float
    success_last3_ci: tuple[float, float]
    return_last3: float
    return_last3_ci: tuple[float, float]
    success_by_unit: tuple[float, ...]
    falls_per_run: float
    max_expected_cost: float
    violations_total: int
    violating_runs: int
    cost_radius_origin: str
    value_radius_origin: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def by_instance(cell: Cell, column: str) -> Array:
    """A column averaged over the repeats of each instance: (instances, U)."""
    instances = np.array(cell.instances)
    values = cell[column]
    return np.array([values[instances == instance].mean(axis=0) for instance in np.unique(instances)])


def last_units(cell: Cell, column: str) -> Interval:
    """Mean over the last units, with its interval over agents."""
    return interval(by_instance(cell, column)[:, -LAST:].mean(axis=1))


def max_expected_cost(cell: Cell) -> float:
    """The largest true expected cost that any run took or planned, over all its units."""
    threshold = float(cell.world_options.get("threshold", 0.1))
    return threshold + float(max(cell["worst_cost"].max(), cell["planned_worst_cost"].max()))


def unit_row(cell: Cell, units: int) -> UnitRow:
    """The table's line for one cell."""
    success, earned = last_units(cell, "success"), last_units(cell, "average_return")
    violations = cell["violations"].sum(axis=1)
    return UnitRow(
        agent=cell.label,
        explorer=cell.explorer,
        world=cell.world,
        seeds=len(set(cell.instances)),
        runs=len(cell.seeds),
        units=units,
        success_last3=float(success.mean),
        success_last3_ci=(float(success.low), float(success.high)),
        return_last3=float(earned.mean),
        return_last3_ci=(float(earned.low), float(earned.high)),
        success_by_unit=tuple(by_instance(cell, "success").mean(axis=0).tolist()),
        falls_per_run=float(cell["falls"].sum(axis=1).mean()),
        max_expected_cost=max_expected_cost(cell),
        violations_total=int(violations.sum()),
        violating_runs=int((violations > 0).sum()),
        cost_radius_origin=cell.cost_radius_origin,
        value_radius_origin=cell.value_radius_origin,
    )


def unit_table(results: Results) -> list[UnitRow]:
    """A row per cell that has at least one finished run, in the order of the spec."""
    return [unit_row(cell, results.episodes) for cell in results.cells if cell.seeds]


# What a cell of a lake study stands for, read from its options; figures and claims choose by it, labels may change.

Kind = Literal["certified", "tuned", "safe-action", "bernoulli", "text-literal", "theory-literal", "theory-small"]

LEARNERS: tuple[Kind, ...] = ("certified", "tuned", "bernoulli", "text-literal", "theory-literal")
"""Kinds that are meant to keep the expected cost under τ; `theory-small` is shown because it does not."""
SMALL_RADIUS = (5.0, 50.0)
"""The first term of the paper's β alone, about 10.4, lies between these; the whole of it is above 1e5, tuned ones are
below 1."""
COST_SLACK = 1e-7
"""An expected cost may exceed τ by this much in floating point and still count as kept."""
ANY_GIVEN_RADIUS = 1e3
"""A given β above this is the paper's own."""


def kind_of(cell: Cell) -> Kind:
    """Which of the readings and settings it is: whose β, pooled over steps or not, one plan a unit or many."""
    options, units = cell.options, cell.info.units or {}
    if cell.agent == "always-safe":
        return "safe-action"
    if cell.world_options.get("costs") == "bernoulli":
        return "bernoulli"
    given = options.get("cost_radius")
    number = float(given) if isinstance(given, int | float) else 0.0
    if SMALL_RADIUS[0] <= number <= SMALL_RADIUS[1]:
        return "theory-small"
    if not options.get("pooled", False) or number >= ANY_GIVEN_RADIUS:
        return "theory-literal"
    if units.get("plan_each") == "unit" or not units.get("restarts", True):
        return "text-literal"
    return "certified" if cell.cost_radius_origin == "theorem" else "tuned"


def threshold_of(cell: Cell) -> float:
    """τ of the cell's world."""
    return float(cell.world_options.get("threshold", 0.1))


def of_kind(cells: Sequence[Cell], *kinds: Kind) -> list[Cell]:
    """The cells of these kinds that have a finished run, in the order of the study."""
    return [cell for cell in cells if cell.seeds and kind_of(cell) in kinds]


def best(cells: Sequence[Cell]) -> Cell | None:
    """The cell with the highest success at the end; the first of equals."""
    return max(cells, key=lambda cell: float(last_units(cell, "success").mean), default=None)


def leading(cells: Sequence[Cell], kind: Kind) -> Cell | None:
    """The one that speaks for its kind: the study's first certified cell is the default; of the others the best."""
    found = of_kind(cells, kind)
    return (found[0] if found else None) if kind == "certified" else best(found)


# The claims of section 5.2, and ours, on studies that are counted in interaction units.

NOTHING, ENOUGH, CLOSE = 0.10, 0.90, 0.05
"""Success up to this is as good as none; the least that counts as learned; how near is comparable."""
LEVELS = (0.5, 0.8)
"""Success rates whose first arrival measures how fast a learner is."""


def evaluate(results: Results) -> list[Claim]:
    """Every claim that these results can decide."""
    cells = [cell for cell in results.cells if cell.seeds and cell.info.units is not None]
    rivals = cisr_runs(results.folder)
    found = [*_expected_costs(cells)]
    for kind in ("certified", "tuned"):
        cell = leading(cells, kind)
        if cell is not None:
            found += [_learned(cell, kind), _faster(cell, kind, rivals), _comparable(cell, kind, rivals)]
    found += [*_idle(cells), *_too_small(cells), *_falls(cells)]
    return found


def _expected_costs(cells: Sequence[Cell]) -> list[Claim]:
    """The constraint itself: E[c] ≤ τ at every step taken and in every state planned for."""
    claims, seen = [], dict.fromkeys(LEARNERS, 0)
    for cell in of_kind(cells, *LEARNERS):
        kind = kind_of(cell)
        seen[kind] += 1
        threshold = threshold_of(cell)
        largest, steps = max_expected_cost(cell), cell["violations"].sum(axis=1)
        claims.append(
            Claim(
                f"expected-cost-{kind}" + (f"-{seen[kind]}" if seen[kind] > 1 else ""),
                f"{short_name(cell)}: the expected cost of every step taken and of every state planned for is at most "
                f"τ = {threshold:g} ({cell.cost_radius_origin} β in the safe set).",
                largest <= threshold + COST_SLACK,
                f"largest expected cost {largest:.7f}; {int(steps.sum()):,} violating steps in "
                f"{int((steps > 0).sum())} of {_runs(cell)}",
            )
        )
    return claims


def _learned(cell: Cell, kind: Kind) -> Claim:
    final = last_units(cell, "success")
    open_verdict = "; undecided: the interval contains it" if final.low < ENOUGH <= final.high else ""
    return Claim(
        f"{kind}-learns",
        f"{short_name(cell)} learns to reach the goal: success of at least {ENOUGH:.2f} over the last {LAST} units.",
        bool(final.low >= ENOUGH),
        f"success {final} over {_agents(cell)}{open_verdict}",
    )


def _faster(cell: Cell, kind: Kind, rivals: Sequence[CisrRun]) -> Claim:
    """The lower end of our band must reach each level in fewer steps than any mean curve of CISR."""
    length = int((cell.info.units or {}).get("steps", 1000))
    low = interval(by_instance(cell, "success")).low
    parts, holds = [], True
    for level in LEVELS:
        ours = _steps_until(low, level, length)
        theirs = {rival.name: _steps_until(rival.success.mean(axis=0), level, STEPS) for rival in rivals}
        first = min((steps for steps in theirs.values() if steps is not None), default=None)
        holds &= ours is not None and (first is None or ours < first)
        told = ", ".join(f"{name}: {_steps(steps)}" for name, steps in theirs.items())
        parts.append(f"success {level:g} after {_steps(ours)} (lower end of our 95% band); {told}")
    return Claim(
        f"{kind}-faster-than-cisr",
        f"{short_name(cell)} learns faster than CISR per training step, as the paper says of RSLUCB-QVI.",
        holds,
        f"{'; '.join(parts)}; {_agents(cell)}",
    )


def _steps_until(curve: Array, level: float, length: int) -> int | None:
    """Training steps at the end of the first unit with that success."""
    reached = np.flatnonzero(curve >= level)
    return int(length * (reached[0] + 1)) if len(reached) else None


def _steps(count: int | None) -> str:
    return "never" if count is None else f"{count:,} steps"


def _comparable(cell: Cell, kind: Kind, rivals: Sequence[CisrRun]) -> Claim:
    """Not worse than the better of CISR's curves by more than CLOSE."""
    final = last_units(cell, "success")
    theirs = {rival.name: float(rival.success[:, -LAST:].mean()) for rival in rivals}
    told = ", ".join(f"{name}: {value:.3f}" for name, value in theirs.items())
    return Claim(
        f"{kind}-comparable-to-cisr",
        f"{short_name(cell)} ends with a success comparable to CISR's or better: at most {CLOSE:g} below it.",
        bool(final.low >= max(theirs.values()) - CLOSE),
        f"success over the last {LAST} units {final}; {told}; {_agents(cell)}. CISR is judged without its teacher, and "
        "its authors' lake is more slippery (0.8 instead of 0.9)",
    )


def _idle(cells: Sequence[Cell]) -> list[Claim]:
    """Rows that do not get to the goal: the safe action, and the paper taken literally."""
    texts: dict[Kind, tuple[str, str]] = {
        "safe-action": ("safe-action-stays", "{} does not get to the goal: what is reached beyond it was learned."),
        "theory-literal": ("theory-literal-learns-nothing", "{}: with the theory's constants nothing is learned."),
        "text-literal": ("text-literal-learns-nothing", "{}: with one plan and one trajectory a unit, as section 5.2 "
                         "reads, nothing is learned."),
    }  # fmt: skip
    claims = []
    for kind, (name, text) in texts.items():
        for place, cell in enumerate(of_kind(cells, kind)):
            means = by_instance(cell, "success").mean(axis=0)
            claims.append(
                Claim(
                    name + (f"-{place + 1}" if place else ""),
                    text.format(short_name(cell)) + f" Success of at most {NOTHING:.2f} in every unit.",
                    bool(means.max() <= NOTHING),
                    f"success per unit {' '.join(f'{mean:.2f}' for mean in means)} over {_agents(cell)}",
                )
            )
    return claims


def _too_small(cells: Sequence[Cell]) -> list[Claim]:
    """The first term of β alone is no confidence radius at the theory's ridge."""
    claims = []
    for place, cell in enumerate(of_kind(cells, "theory-small")):
        threshold = threshold_of(cell)
        largest, steps = max_expected_cost(cell), cell["violations"].sum(axis=1)
        claims.append(
            Claim(
                "theory-small-violates" + (f"-{place + 1}" if place else ""),
                f"{short_name(cell)}: the first term of the theory's β alone does not keep the constraint.",
                largest > threshold + COST_SLACK,
                f"largest expected cost {largest:.3f} with τ = {threshold:g}; {int(steps.sum()):,} violating steps in "
                f"{int((steps > 0).sum())} of {_runs(cell)}",
            )
        )
    return claims


def _falls(cells: Sequence[Cell]) -> list[Claim]:
    """What a reader may take "safe" to mean; the paper's constraint does not promise it."""
    cell = leading(cells, "certified") or leading(cells, "tuned")
    if cell is None:
        return []
    falls, ended = cell["falls"].sum(axis=1), cell["trajectories"].sum()
    return [
        Claim(
            "zero-falls",
            f"{short_name(cell)} never falls into danger. (Not what the constraint promises: it bounds the expected "
            f"cost of a step, and τ = {threshold_of(cell):g} allows a risk.)",
            bool(falls.sum() == 0.0),
            f"{int(falls.sum()):,} falls in {int(ended):,} trajectories of {_runs(cell)}, {falls.mean():.1f} a run",
        )
    ]


def _agents(cell: Cell) -> str:
    count = len(set(cell.instances))
    return f"{count} agent{'' if count == 1 else 's'}, {_runs(cell)}"


def _runs(cell: Cell) -> str:
    return f"{len(cell.seeds)} run{'' if len(cell.seeds) == 1 else 's'}"


# Studies in interaction units to panels: success, return and safety of RSLUCB-QVI beside CISR and the safe action.

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
RIVALS = (Style("#c1440e", "#ff9466", "dashdot", "", 2.0), Style("#d98a3d", "#ffc58f", "dot", "", 2.0))
"""CISR, run by us and by its authors."""


def unit_charts(results: Results) -> list[Chart]:
    """One chart for the study; none if nothing has run."""
    done = [cell for cell in results.cells if cell.seeds and cell.info.units is not None]
    if not done:
        return []
    shown, rivals = most_telling(done), cisr_runs(results.folder)
    panels = (
        success_panel(shown, rivals),
        return_panel(shown, rivals),
        steps_panel(shown, rivals),
        cost_panel(shown, rivals),
        falls_panel(shown, rivals),
    )
    title = results.title or results.study
    lake = all(cell.world == "frozen-lake" for cell in shown)
    return [Chart(results.study, title, _caption(results, done, shown), panels, columns=3, lake=lake)]


def most_telling(cells: Sequence[Cell]) -> list[Cell]:
    """At most MOST_CELLS in their order: of every kind the ones with the highest final success, in turns.

    A row of a few agents beside rows of many is mostly band: it stays in the table.
    """
    many = [cell for cell in cells if len(set(cell.instances)) >= FEWEST_AGENTS]
    cells = many if len(many) > 2 else cells
    if len(cells) <= MOST_CELLS:
        return list(cells)
    kinds: dict[Kind, list[tuple[float, int]]] = {}
    for index, cell in enumerate(cells):
        kinds.setdefault(kind_of(cell), []).append((-float(last_units(cell, "success").mean), index))
    order = list(LOOKS)
    turns = [
        (place, order.index(kind), index)
        for kind, members in kinds.items()
        for place, (_, index) in enumerate(sorted(members))
    ]
    return [cells[index] for index in sorted(index for _, _, index in sorted(turns)[:MOST_CELLS])]


def success_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """How many of a unit's trajectories end at the goal."""
    return _learning_panel(
        "success", "Success rate per unit",
        "Trajectories that end at the goal, of all that end in the unit. Band: 95% over agents (CISR: over students).",
        "success rate", cells, rivals, "success", lambda rival: rival.success, (0.0, 1.04),
    )  # fmt: skip


def return_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Return per trajectory; of the authors' CISR only the final number is published."""
    guides = tuple(
        Guide(f"CISR, authors, final: {rival.final_return:.2f}", np.array([1.0, _units(cells)]), _level(rival))
        for rival in rivals
        if np.isnan(rival.earned).all()
    )
    return _learning_panel(
        "return", "Average return per unit",
        "Per trajectory: 6 at the goal, 0.01 otherwise. CISR also pays 0.01 for every step, so its best is lower.",
        "return", cells, rivals, "average_return", lambda rival: rival.earned, (-0.6, 6.4), guides,
    )  # fmt: skip


def _level(rival: CisrRun) -> Array:
    return np.full(2, rival.final_return)


def _learning_panel(
    key: str,
    title: str,
    subtitle: str,
    y_title: str,
    cells: Sequence[Cell],
    rivals: Sequence[CisrRun],
    column: str,
    theirs: Callable[[CisrRun], Array],
    y_range: tuple[float, float],
    guides: tuple[Guide, ...] = (),
) -> Panel:
    """A column per unit, with its band over agents."""
    units = _units(cells)
    series = [
        _series(cell, style, _first(units), interval(by_instance(cell, column)))
        for cell, style in zip(cells, styles(cells), strict=True)
    ]
    series += [_rival(rival, theirs(rival), units) for rival in rivals]
    return Panel(
        key, title, subtitle, "interaction unit", y_title, "linear", "linear", 1.0, tuple(series), guides,
        y_range=y_range,
    )  # fmt: skip


def steps_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Success against the steps taken: a unit of ours is about a tenth of one of CISR's."""
    source = success_panel(cells, rivals)
    lengths = [float((cell.info.units or {}).get("steps", 1000)) for cell in cells] + [float(STEPS)] * len(rivals)
    series = tuple(
        Series(c.name, c.note, c.style, c.x * length, c.y, c.low, c.high, c.total)
        for c, length in zip(source.series, lengths, strict=True)
    )
    return Panel(
        "steps", "Success rate by steps taken", "The same success over all training steps so far: "
        "a unit of CISR has nearly ten times as many.",
        "training steps", "success rate", "log", "linear", 1.0, series, y_range=(0.0, 1.04),
    )  # fmt: skip


def cost_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """The largest true expected cost of any step taken or planned, in any run: what the constraint bounds."""
    units, series, clean = _units(cells), [], []
    for cell, style in zip(cells, styles(cells), strict=True):
        threshold = threshold_of(cell)
        over = np.maximum(cell["worst_cost"], cell["planned_worst_cost"]).max(axis=0)
        worst = threshold + over
        excess = float(np.maximum(over, 0.0).max())
        curve = _series(cell, style, _first(units), Interval(worst, worst, worst))
        series.append(_counted(curve, excess if excess > COST_SLACK else 0.0))
        clean += [cell] if excess <= COST_SLACK else []
    series += [_rival(rival, np.full((1, units), np.nan), units) for rival in rivals]
    tau = threshold_of(cells[0])
    runs = sum(len(cell.seeds) for cell in clean)
    names = " · ".join(short_name(cell) for cell in clean)
    notes = (f"never above τ, in any of {runs:,} runs: {names}",) if clean else ()
    return Panel(
        "cost", "Largest expected cost", "The largest true risk of danger of any step taken or planned, over all runs: "
        "what the constraint bounds. CISR has no such bound.", "interaction unit", "largest expected cost",
        "linear", "log", 1.0, tuple(series), (Guide(f"τ = {tau:g}", np.array([1.0, units]), np.full(2, tau)),), notes,
        y_range=(0.2 * tau, 1.5),
    )  # fmt: skip


def falls_panel(cells: Sequence[Cell], rivals: Sequence[CisrRun]) -> Panel:
    """Trajectories that end in danger: the constraint bounds the risk of a step, so that there are some."""
    made = _learning_panel(
        "falls", "Falls into danger per unit",
        "Mean per run, while learning. CISR's teacher stops its students in time: 0 by construction.",
        "falls per unit", cells, rivals, "falls", lambda rival: rival.falls, (0.0, 1.0),
    )  # fmt: skip
    top = max(float(curve.high.max()) for curve in made.series if len(curve.x))
    series = tuple(_counted(curve, float(curve.y.sum())) for curve in made.series)
    return Panel(
        made.key, made.title, made.subtitle, made.x_title, made.y_title, made.x_scale, made.y_scale, 1.0, series,
        notes=(f"Safe is not fall-free: τ bounds the expected cost of a step, and {_allowed(cells)}.",),
        y_range=(-0.03 * max(top, 1.0), 1.15 * max(top, 1.0)),
    )  # fmt: skip


def styles(cells: Sequence[Cell]) -> list[Style]:
    """A look per cell: its kind's, shaded by its place among the cells of that kind."""
    kinds = [kind_of(cell) for cell in cells]
    made = []
    for index, kind in enumerate(kinds):
        hue, dash, marker = LOOKS[kind]
        share = kinds[:index].count(kind) / max(1, kinds.count(kind) - 1)
        light, dark = blend(*RAMPS[hue].light, share), blend(*RAMPS[hue].dark, share)
        made.append(Style(light, dark, dash, marker, 2.4 if kind == "certified" and share == 0.0 else 1.7))
    return made


def _rival(rival: CisrRun, rows: Array, units: int) -> Series:
    """A curve of CISR, as far as our axis reaches; without points where nothing is known."""
    style = RIVALS[-1] if rival.by_authors else RIVALS[0]
    shown = rows[:, :units]
    if np.isnan(shown).any():
        shown = np.empty((1, 0))
    return Series(rival.name, rival.note, style, _first(shown.shape[1]), *interval(shown), total=1.0)


def _series(cell: Cell, style: Style, x: Array, band: Interval) -> Series:
    return Series(short_name(cell), cell_note(cell), style, x, *band, total=1.0)


def _counted(curve: Series, total: float) -> Series:
    return Series(curve.name, curve.note, curve.style, curve.x, curve.y, curve.low, curve.high, total)


def cell_note(cell: Cell) -> str:
    """Whose β it is; the safe action alone has none."""
    return "the safe action everywhere; learns nothing" if cell.agent == "always-safe" else radius_note(cell)


def _first(units: int) -> Array:
    return np.arange(1.0, units + 1.0)


def _units(cells: Sequence[Cell]) -> int:
    return int(cells[0]["success"].shape[1])


def _allowed(cells: Sequence[Cell]) -> str:
    tau = threshold_of(cells[0])
    return f"τ = {tau:g} allows a {100 * tau:g}% risk"


def _caption(results: Results, cells: Sequence[Cell], shown: Sequence[Cell]) -> str:
    steps = sorted({int((cell.info.units or {}).get("steps", 1000)) for cell in cells})
    length = " or ".join(f"{count:,}" for count in steps)
    agents = sorted({len(set(cell.instances)) for cell in cells})
    runs = sum(len(cell.seeds) for cell in cells)
    text = (
        f"A unit is {length} steps for RSLUCB-QVI and {STEPS:,} training steps for CISR, nearly ten times as many. "
        "Ours is counted while it learns; CISR is judged after each unit, by 10,000 further steps without its teacher. "
        f"“Safe” bounds the expected cost of a step: {_allowed(cells)} at every step, so falls remain. "
        f"{' to '.join(str(count) for count in dict.fromkeys((agents[0], agents[-1])))} agents, {runs:,} runs."
    )
    if len(shown) < len(cells):
        text += f" {len(shown)} of {len(cells)} rows are drawn, some of every kind; the table has all."
    if results.missing:
        text += f" {len(results.missing):,} runs are missing."
    return text


# The lake as a picture: its map, what the safe action does, what was learned, where that leads and what it risks.

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
    from tether.agents.rslucb import RslucbQvi
    from tether.lab.cells import build_agent, build_world
    from tether.lab.registry import AGENTS, WORLDS, checked_options
    from tether.lab.units import Schedule, simulate_units
    from tether.lab.worlds.linear_mdp import Streams

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

    from tether.lab.plots import FORMATS, LOOK

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


# What the report says of studies in interaction units: a lead, a table, and the portrait of the lake.


def lead(results: Results, rows: Sequence[UnitRow]) -> str:
    """What a reader should know who reads nothing else."""
    steps = sorted({int(cell.info.units["steps"]) for cell in results.cells if cell.info.units is not None})
    length = " or ".join(f"{count:,}" for count in steps)
    return (
        f"{len(rows)} settings, {sum(row.runs for row in rows):,} runs of {results.episodes:,} interaction units of "
        f"{length} steps. “Safe” bounds the expected cost of a step, here its risk of danger; it does not "
        "mean that nobody falls."
    )


def unit_main_table(results: Results, rows: Sequence[UnitRow]) -> str:
    """A row per cell, then CISR's: success in every unit, final numbers, safety, and whose β it is."""
    heads = (
        "Agent", "Agents × runs", f"Success, last {LAST} units", f"Return, last {LAST} units", "Largest expected cost",
        "Violating steps", "Runs with violations", "Falls per run", "Cost\u00a0β", "Value\u00a0β", "Success by unit",
    )  # fmt: skip
    cells = {cell.label: cell for cell in results.cells}
    body = "\n".join([*(_row(row, cells[row.agent]) for row in rows), *_rivals(results)])
    caption = (
        "Success: the share of a unit's trajectories that end at the goal. Means over agents with 95% bootstrap "
        "intervals over agents; an agent's repeated runs are averaged first. The largest expected cost is over every "
        "step taken and every state planned for, in all runs; a violating step is one whose expected cost exceeds τ; "
        f"a fall is a trajectory that ends in danger. CISR's unit is {STEPS:,} training steps. Its success is measured "
        "without its teacher, its return also pays 0.01 a step, and its falls are those in training, where the teacher "
        "stops them."
    )
    return html_table(f"Numbers of {results.study}", caption, heads, body)


def _row(row: UnitRow, cell: Cell) -> str:
    threshold = threshold_of(cell)
    kept = "zero" if row.max_expected_cost <= threshold + COST_SLACK else "some"
    count = "zero" if row.violations_total == 0 else "some"
    learns = cell.agent != "always-safe"
    origins = (row.cost_radius_origin, row.value_radius_origin) if learns else ("–", "–")
    return (
        f'<tr><th scope="row">{escape(short_name(cell))}<small>{escape(cell_note(cell))}</small></th>'
        f"<td>{row.seeds:,} × {row.runs // max(1, row.seeds):,}</td>"
        f"<td>{row.success_last3:.3f}<small>{_span(row.success_last3_ci, 3)}</small></td>"
        f"<td>{row.return_last3:.2f}<small>{_span(row.return_last3_ci, 2)}</small></td>"
        f'<td class="{kept}">{row.max_expected_cost:.4f}</td>'
        f'<td class="{count}">{row.violations_total:,}</td><td>{row.violating_runs:,}</td>'
        f"<td>{row.falls_per_run:.1f}</td>"
        + "".join(f'<td class="text">{escape(ORIGINS.get(origin, origin))}</td>' for origin in origins)
        + f"{_success_columns(row.success_by_unit)}</tr>"
    )


def _rivals(results: Results) -> list[str]:
    """CISR as far as its numbers are known."""
    lines = []
    for rival in cisr_runs(results.folder):
        success = rival.success
        final = float(success[:, -LAST:].mean())
        lines.append(
            f'<tr><th scope="row">{escape(rival.name)}<small>{escape(rival.note)}</small></th>'
            f"<td>{'–' if rival.by_authors else f'{len(success)} × 1'}</td><td>{final:.3f}</td>"
            f"<td>{rival.final_return:.2f}<small>last unit</small></td><td>–</td><td>–</td><td>–</td>"
            f"<td>{float(rival.falls.sum(axis=1).mean()):.1f}</td>"
            + '<td class="text">–</td><td class="text">–</td>'
            + f"{_success_columns(success.mean(axis=0).tolist())}</tr>"
        )
    return lines


def by_unit(success: Sequence[float]) -> str:
    """One number per unit, as short as it gets: .02 .09 … 1."""
    return " ".join(f"{value:.2f}".removeprefix("0") if value < 0.995 else "1" for value in success)


def _success_columns(success: Sequence[float]) -> str:
    return f'<td class="text" style="white-space:normal;min-width:10.5rem">{by_unit(success)}</td>'


def _span(ends: tuple[float, float], digits: int) -> str:
    return f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def portrait_figure(results: Results) -> str:
    """The lake as a picture inside the page; nothing where there is no run to portray."""
    seen = portrait(results)
    if seen is None:
        return ""
    image = base64.b64encode(render_portrait(seen, dpi=110)).decode()
    look = "display:block;width:100%;max-width:62rem;height:auto;background:#fff;border-radius:.4rem"
    return (
        f'<div style="margin-top:1.5rem"><h4>The lake, run {seen.run} of {escape(seen.name)}</h4>\n'
        f'<p><img alt="{escape(describe(seen))}" style="{look}" src="data:image/png;base64,{image}"></p></div>'
    )
