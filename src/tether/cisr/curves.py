"""Learning curves of CISR students: the shipped ones, and how a file of them is written."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from tether.cisr.published import Published as Published
from tether.cisr.published import PublishedRow as PublishedRow
from tether.cisr.published import published as published
from tether.errors import InputError

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
    text = (resources.files("tether.cisr") / "curves.json").read_text()
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


def shipped_provenance() -> dict[str, Any]:
    """How the shipped curves were made: command, spec, versions, and the seeds of each row."""
    return {name: value for name, value in _shipped().items() if name != "curves"}


def collect(folder: Path) -> dict[str, Any]:
    """The data file from the students in a folder, one JSON each: spec, versions, seeds and curves."""
    stored = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not stored:
        raise InputError(f"There is no trained student in {folder}: run `python -m tether.cisr.train students` first.")
    if any(one["provenance"] != stored[0]["provenance"] for one in stored):
        raise InputError(f"The students in {folder} come from different specs or versions; collect one kind.")
    curves = sorted((Curve.from_dict(one["curve"]) for one in stored), key=_order)
    rows = [
        {"teacher": t, "intended": p, "picture": i, "seeds": [c.seed for c in curves if _kind(c) == (t, p, i)]}
        for t, p, i in dict.fromkeys(_kind(curve) for curve in curves)
    ]
    return {
        "schema": SCHEMA,
        **stored[0]["provenance"],
        "students": rows,
        "curves": [curve.as_dict() for curve in curves],
    }


def _kind(curve: Curve) -> tuple[str, float, str]:
    return curve.teacher, curve.intended, curve.picture


def _order(curve: Curve) -> tuple[float, str, str, int]:
    return -curve.intended, curve.picture, curve.teacher, curve.seed
