"""Learning curves of CISR students: the authors' numbers, the shipped curves beside them, and tables of both."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from math import nan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tether.errors import InputError

CITATION = (
    "M. Turchetta, A. Kolobov, S. Shah, A. Krause, A. Agarwal: Safe Reinforcement Learning via Curriculum Induction, "
    "NeurIPS 2020; logs in github.com/zuzuba/CISR_NeurIPS20, results/flake/teacher_comparison"
)


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A teacher's final numbers at slip 0.8/0.1/0.1, means over 3 teachers × 10 students; failures in training."""

    teacher: str
    success: float
    mean_return: float
    training_failures: float


@dataclass(frozen=True, slots=True)
class Published:
    """What the authors report on the 10 × 10 lake: final numbers, and the curve of the optimised teacher.

    `optimised_success` is the mean success after the first units of 9600 steps, read from the authors' logs; they
    trained 11 units, and ten are given.
    """

    citation: str
    intended: float
    rows: tuple[PublishedRow, ...]
    optimised_success: tuple[float, ...]

    def row(self, teacher: str) -> PublishedRow:
        """The final numbers of a teacher."""
        return next(row for row in self.rows if row.teacher == teacher)


def published() -> Published:
    """The authors' final numbers and their optimised curve, with the citation."""
    return Published(
        citation=CITATION,
        intended=0.8,
        rows=(
            PublishedRow("optimised", 0.960, 5.37, 0.0),
            PublishedRow("SR2", 0.850, 4.84, 0.0),
            PublishedRow("SR1", 0.827, 4.67, 0.0),
            PublishedRow("none", 0.768, 4.33, 3076.0),
            PublishedRow("bandit", 0.574, 3.08, 0.0),
            PublishedRow("HR", 0.0, -0.22, 0.0),
        ),
        optimised_success=(0.12, 0.47, 0.66, 0.75, 0.85, 0.88, 0.95, 0.96, 0.96, 0.96),
    )


# Our own curves: the shipped ones, and how a file of them is written.

SCHEMA = "tether-cisr-curves-1"
PER_UNIT = ("success", "mean_return", "training_failures", "interventions", "training_return", "excess")
"""What is kept of each unit, beside the name of its intervention. Failures and interventions are per unit."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One student, one entry per unit.

    `success` and `mean_return` come from 10,000 steps of the stochastic policy without a teacher; the rest is counted
    in training: danger entries, reactions of the teacher, mean return of the episodes and intervention rate − limit.
    """

    teacher: str
    intended: float
    picture: str
    seed: int
    intervention: tuple[str, ...]
    success: tuple[float, ...]
    mean_return: tuple[float, ...]
    training_failures: tuple[int, ...]
    interventions: tuple[int, ...]
    training_return: tuple[float, ...]
    excess: tuple[float, ...]

    @property
    def kind(self) -> tuple[str, float, str]:
        """Teacher, P(intended move) and picture: what students with different seeds share."""
        return self.teacher, self.intended, self.picture

    def as_dict(self) -> dict[str, Any]:
        """For JSON; four decimals."""
        short = {name: [round(value, 4) for value in getattr(self, name)] for name in PER_UNIT}
        return asdict(self) | {"intervention": list(self.intervention)} | short

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Curve":
        """What `as_dict` wrote."""
        columns = {name: tuple(stored[name]) for name in (*PER_UNIT, "intervention")}
        curve = cls(**(stored | columns))
        if len({len(column) for column in columns.values()}) != 1:
            raise InputError(f"The columns of {curve.teacher}, seed {curve.seed}, have different lengths.")
        return curve


@cache
def _shipped() -> dict[str, Any]:
    text = (resources.files("tether.lab.cisr") / "curves.json").read_text()
    stored: dict[str, Any] = json.loads(text)
    if stored.get("schema") != SCHEMA:
        raise InputError(f"curves.json has schema {stored.get('schema')!r}, and this version reads {SCHEMA!r}.")
    return stored


def load_curves(
    teacher: str | None = None,
    *,
    intended: float | None = None,
    picture: str | None = "map",
    folder: Path | None = None,
) -> tuple[Curve, ...]:
    """The shipped curves of a teacher and a slip (or those trained into a folder), all seeds; None means any."""
    stored = _shipped() if folder is None else collect(folder)
    curves = (Curve.from_dict(one) for one in stored["curves"])
    return tuple(
        curve
        for curve in curves
        if (teacher is None or curve.teacher == teacher)
        and (intended is None or curve.intended == intended)
        and (picture is None or curve.picture == picture)
    )


def collect(folder: Path) -> dict[str, Any]:
    """The data file from the students in a folder, one JSON each: spec, versions, seeds and curves."""
    stored = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not stored:
        raise InputError(
            f"There is no trained student in {folder}: run `python -m tether.lab.cisr.train students` first."
        )
    if any(one["provenance"] != stored[0]["provenance"] for one in stored):
        raise InputError(f"The students in {folder} come from different specs or versions; collect one kind.")
    curves = [Curve.from_dict(one["curve"]) for one in stored]
    curves.sort(key=lambda curve: (-curve.intended, curve.picture, curve.teacher, curve.seed))
    rows = [
        {"teacher": t, "intended": p, "picture": i, "seeds": [c.seed for c in curves if c.kind == (t, p, i)]}
        for t, p, i in dict.fromkeys(curve.kind for curve in curves)
    ]
    return {
        "schema": SCHEMA,
        **stored[0]["provenance"],
        "students": rows,
        "curves": [curve.as_dict() for curve in curves],
    }


# Our students beside the authors': the tables of docs/cisr.md.


@dataclass(frozen=True, slots=True)
class Summary:
    """The students of one teacher, slip and picture: means after the last unit, and totals over training.

    `success_error` is the standard error over students, NaN for a single one.
    """

    teacher: str
    intended: float
    picture: str
    students: int
    success: float
    success_error: float
    mean_return: float
    training_failures: float
    interventions: float
    success_by_unit: tuple[float, ...]


def summarise(curves: Sequence[Curve]) -> list[Summary]:
    """One summary per teacher, slip and picture, in the authors' order of teachers."""
    order = [row.teacher for row in published().rows]
    kinds = sorted({curve.kind for curve in curves}, key=lambda kind: (-kind[1], kind[2], order.index(kind[0])))
    found = []
    for kind in kinds:
        students = [curve for curve in curves if curve.kind == kind]
        success = np.array([curve.success for curve in students])
        final = success[:, -1]
        found.append(
            Summary(
                *kind,
                students=len(students),
                success=float(final.mean()),
                success_error=float(final.std(ddof=1) / sqrt(len(final))) if len(final) > 1 else nan,
                mean_return=float(np.mean([curve.mean_return[-1] for curve in students])),
                training_failures=float(np.mean([sum(curve.training_failures) for curve in students])),
                interventions=float(np.mean([sum(curve.interventions) for curve in students])),
                success_by_unit=tuple(success.mean(axis=0).tolist()),
            )
        )
    return found


class Rows(NamedTuple):
    """A table of texts."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The table for a terminal or a page."""
        rows = ["| " + " | ".join(row) + " |" for row in (self.heads, *self.lines)]
        return "\n".join([rows[0], "|" + "---|" * len(self.heads), *rows[1:]]) + "\n"


def final_table(summaries: Sequence[Summary]) -> Rows:
    """The final numbers, with the authors' beside those at their own slip and picture."""
    theirs = published()
    heads = (
        "intended", "picture", "teacher", "students", "success", "return", "falls",
        "authors: success / return / falls",
    )  # fmt: skip
    lines = []
    for one in summaries:
        quoted = "–"
        if (one.intended, one.picture) == (theirs.intended, "map"):
            row = theirs.row(one.teacher)
            quoted = f"{row.success:.3f} / {row.mean_return:.2f} / {row.training_failures:.0f}"
        error = "" if np.isnan(one.success_error) else f" ± {one.success_error:.3f}"
        who = (f"{one.intended}", one.picture, one.teacher, f"{one.students}")
        numbers = (f"{one.success:.3f}{error}", f"{one.mean_return:.2f}", f"{one.training_failures:.0f}")
        lines.append((*who, *numbers, quoted))
    return Rows(heads, lines)


def unit_table(summaries: Sequence[Summary]) -> Rows:
    """Mean success by unit under the optimised teacher, and the authors' curve."""
    chosen = [one for one in summaries if one.teacher == "optimised"]
    units = len(chosen[0].success_by_unit)
    lines = []
    for one in chosen:
        cells = [f"{success:.2f}" for success in one.success_by_unit]
        lines.append((f"{one.intended}, {one.picture}, {one.students} students", *cells))
    theirs = published().optimised_success
    cells = [f"{success:.2f}" for success in theirs] + ["–"] * (units - len(theirs))
    lines.append((f"{published().intended}, authors, 30 students", *cells))
    return Rows(("optimised teacher", *(str(unit + 1) for unit in range(units))), lines)


def main() -> None:
    """Print both tables of the shipped curves as JSON, for tools/figures.py."""
    found = summarise(load_curves(picture=None))
    tables = {"final": final_table(found), "units": unit_table(found)}
    shown = {name: {"heads": one.heads, "lines": one.lines} for name, one in tables.items()}
    print(json.dumps({"tables": shown, "sizes": "the shipped curves, which `make cisr` trains anew"}))


if __name__ == "__main__":
    main()
