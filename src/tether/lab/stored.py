"""What a page of the documentation shows of a study, as plain data: tables, rows, runs, claims.

The tables are those that `tether reproduce` prints, so that command and page cannot disagree.
"""

import re
from collections.abc import Sequence
from typing import Any

from tether.lab.books import Cell, Results, per_seed
from tether.lab.cells import cells_of
from tether.lab.runner import Unit, play
from tether.lab.specs import paper_study
from tether.lab.studies import view_of
from tether.lab.view import Table

PER_RUN = {
    "episode": ("reward", "regret", "violations"),
    "unit": ("average_return", "violations", "falls"),
    "step": ("reward", "violations"),
}
"""What is kept of each run: totals of regret, violations and falls, means of the rest."""
RUN_DIGITS = 6
"""Significant digits of what is kept of a run."""


def stored(results: Results) -> dict[str, Any]:
    """Take from a study what its pages show."""
    view = view_of(results)
    table = view.table(results)
    tables = {"table": table, **view.more(results)}
    titles = [str(row.get("name", row.get("agent", ""))) for row in table.rows]
    names = slugs(titles) if all(titles) and len(set(titles)) == len(titles) else []
    rows = [{key: row[key] for key in view.stored or row if key in row} for row in table.rows]
    cells = {name: kept for name, cell in zip(slugs([c.label for c in results.cells]), results.cells, strict=True)
             if (kept := runs_of(cell))}  # fmt: skip
    return {
        "sizes": sizes(results),
        "machine": {"platform": results.platform, "kernel": results.kernel},
        "tables": {name: plain(one) for name, one in tables.items()},
        "values": view.values(results),
        "rows": dict(zip(names, rows, strict=True)) if names else rows,
        "runs": cells,
        "claims": {claim.id: {"holds": claim.holds, "evidence": claim.evidence} for claim in view.claims(results)},
    }


def plain(table: Table) -> dict[str, Any]:
    """Heads and lines, as a terminal shows them."""
    return {"heads": list(table.heads), "lines": [list(line) for line in table.lines]}


def sizes(results: Results) -> str:
    """How much was run, in a few words."""
    seeds, length = results.spec["seeds"], results.episodes
    return f"{seeds} seeds, {length:,} {'interaction units' if results.per == 'unit' else results.per + 's'} each"


def runs_of(cell: Cell) -> dict[str, Any]:
    """The numbers of the runs, and what is kept of each: a number per run, of units success in each."""
    if not cell.seeds:
        return {}
    kept: dict[str, Any] = {"seeds": list(cell.seeds)}
    for name in PER_RUN[cell.per]:
        totals = cell[name].sum(axis=1) if name == "falls" else per_seed(cell, name)
        kept[name] = [shortened(value) for value in totals.tolist()]
    if cell.per == "unit":
        kept["success"] = [[shortened(value) for value in run] for run in cell["success"].tolist()]
    return kept


def played_again(study: str, row: str, run: int, *, quick: bool = False) -> dict[str, Any]:
    """Play one run of a stored row anew, at its quick size if asked; returns what is kept of it, as `runs_of` does."""
    infos = cells_of(paper_study(study).resized(quick=quick))
    info = dict(zip(slugs([info.label for info in infos]), infos, strict=True))[row]
    columns, _ = play(Unit(info, info.episodes, run, {}), lambda episodes: None)
    return runs_of(Cell(**vars(info), seeds=(run,), columns={name: each[None] for name, each in columns.items()}))


def shortened(value: float) -> float:
    """A number of `RUN_DIGITS` digits."""
    return float(f"{value:.{RUN_DIGITS}g}")


def slugs(labels: Sequence[str]) -> list[str]:
    """Short unique names for rows: "Ours, certified (cost β theorem)" is "ours-certified" where no other is."""
    short = [slug(re.sub(r" \(.*?β.*\)$", "", label)) for label in labels]
    return [name if short.count(name) == 1 else slug(label) for name, label in zip(short, labels, strict=True)]


def slug(label: str) -> str:
    """Letters and digits with hyphens between; a name in a mark has no spaces or dots."""
    return re.sub(r"[\W_]+", "-", label.lower()).strip("-")
