"""The claims of section 5.2, and ours, on studies that are counted in interaction units.

Each is judged only where the rows that it speaks of were run; `unit_kinds` says which they are.
"""

from collections.abc import Sequence

import numpy as np

from tether.experiments.cisr_curves import STEPS, CisrRun, cisr_runs
from tether.experiments.claims import Claim
from tether.experiments.figure_style import short_name
from tether.experiments.results import Cell, Results
from tether.experiments.summary import interval
from tether.experiments.unit_kinds import COST_SLACK, LEARNERS, Kind, kind_of, leading, of_kind, threshold_of
from tether.experiments.unit_summary import LAST, by_instance, last_units, max_expected_cost
from tether.records import Array

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
