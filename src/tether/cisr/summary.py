"""Our students beside the authors': the tables of docs/cisr.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np

from tether.cisr.curves import Curve
from tether.cisr.published import published


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
    kinds = sorted(
        {(curve.intended, curve.picture, order.index(curve.teacher)) for curve in curves},
        key=lambda kind: (-kind[0], kind[1], kind[2]),
    )
    return [
        _summary([c for c in curves if (c.intended, c.picture, c.teacher) == (intended, picture, order[place])])
        for intended, picture, place in kinds
    ]


def _summary(curves: Sequence[Curve]) -> Summary:
    success = np.array([curve.success for curve in curves])
    final = success[:, -1]
    return Summary(
        teacher=curves[0].teacher,
        intended=curves[0].intended,
        picture=curves[0].picture,
        students=len(curves),
        success=float(final.mean()),
        success_error=float(final.std(ddof=1) / sqrt(len(final))) if len(final) > 1 else nan,
        mean_return=float(np.mean([curve.mean_return[-1] for curve in curves])),
        training_failures=float(np.mean([sum(curve.training_failures) for curve in curves])),
        interventions=float(np.mean([sum(curve.interventions) for curve in curves])),
        success_by_unit=tuple(success.mean(axis=0).tolist()),
    )


def final_table(summaries: Sequence[Summary]) -> str:
    """Markdown: the final numbers, with the authors' beside those at their own slip and picture."""
    theirs = published()
    lines = [
        "| intended | picture | teacher | students | success | return | falls | authors: success / return / falls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in summaries:
        quoted = "–"
        if (one.intended, one.picture) == (theirs.intended, "map"):
            row = theirs.row(one.teacher)
            quoted = f"{row.success:.3f} / {row.mean_return:.2f} / {row.training_failures:.0f}"
        error = "" if np.isnan(one.success_error) else f" ± {one.success_error:.3f}"
        lines.append(
            f"| {one.intended} | {one.picture} | {one.teacher} | {one.students} | {one.success:.3f}{error} "
            f"| {one.mean_return:.2f} | {one.training_failures:.0f} | {quoted} |"
        )
    return "\n".join(lines)


def unit_table(summaries: Sequence[Summary]) -> str:
    """Markdown: mean success by unit under the optimised teacher, and the authors' curve."""
    chosen = [one for one in summaries if one.teacher == "optimised"]
    units = len(chosen[0].success_by_unit)
    lines = [
        "| optimised teacher | " + " | ".join(str(unit + 1) for unit in range(units)) + " |",
        "|---" * (units + 1) + "|",
    ]
    for one in chosen:
        cells = " | ".join(f"{success:.2f}" for success in one.success_by_unit)
        lines.append(f"| {one.intended}, {one.picture}, {one.students} students | {cells} |")
    theirs = published().optimised_success
    cells = " | ".join([f"{success:.2f}" for success in theirs] + ["–"] * (units - len(theirs)))
    lines.append(f"| {published().intended}, authors, 30 students | {cells} |")
    return "\n".join(lines)
