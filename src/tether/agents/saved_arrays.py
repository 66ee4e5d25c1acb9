"""Saved arrays are checked before compiled code reads them: kernels do not check bounds."""

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.kernels.ridge import PENDING
from tether.records import Reason

REASONS = len(Reason.__args__)  # type: ignore[attr-defined]
MAY_BE_INFINITE = {
    "planned_growth",
    "tables.baseline_cost",
    "tables.final_reward",
    "plan.bound",
    "plan.score",
    "plan.radius",
    "plan.values",
}

Arrays = dict[str, NDArray[np.generic]]


def check_arrays(fresh: Arrays, saved: Arrays, states: int) -> None:
    """Refuse arrays whose names, types, shapes or contents a fresh agent of the same capacity could not have."""
    for name, expected in fresh.items():
        if name not in saved:
            raise InputError(f"the array {name!r} is missing")
        found = saved[name]
        if found.dtype != expected.dtype or found.shape != expected.shape:
            raise InputError(
                f"{name!r} should be {expected.dtype} of shape {expected.shape}, but is {found.dtype} of {found.shape}"
            )
        if found.dtype.kind == "f" and name not in MAY_BE_INFINITE and not np.isfinite(found).all():
            raise InputError(f"{name!r} has entries that are not finite")
    start = np.asarray(saved["tables.start"], dtype=np.int64)[: states + 1]
    rows = saved["tables.features"].shape[1]
    if not (_all_equal(saved, "tables.slots", states) and start[0] == 0):
        raise InputError(f"its tables are not for the {states} states it lists")
    if not ((np.diff(start) > 0).all() and start[-1] <= rows):
        raise InputError("the rows of its states overlap or leave the tables")
    _check_range(saved, "tables.built", 0, states)
    _check_range(saved, "tables.age", 0, None)
    _check_range(saved, "plan.planned", 0, states)
    _check_range(saved, "plan.made", 0, None)
    _check_range(saved, "plan.reason", 0, REASONS - 1)
    _check_range(saved, "plan.length", 0, 1)
    _check_range(saved, "plan.mixture", 0, 1)
    for ridge in ("costs", "values"):
        _check_range(saved, f"{ridge}.owed.count", 0, PENDING + 1)
        _check_range(saved, f"{ridge}.updates", 0, None)
    _check_range(saved, "costs.facts.rank", 0, saved["costs.gram"].shape[1])
    _check_range(saved, "costs.facts.count", 0, None)
    counts = np.diff(start)
    planned = np.asarray(saved["plan.row"], dtype=np.int64)[:, :states]
    if not ((planned >= -1) & (planned < counts)).all():
        raise InputError("its plan names an action that does not exist")


def _all_equal(saved: Arrays, name: str, value: int) -> bool:
    return bool((saved[name] == value).all())


def _check_range(saved: Arrays, name: str, low: float, high: float | None) -> None:
    values = np.asarray(saved[name], dtype=np.float64)
    if not ((values >= low).all() and (high is None or (values <= high).all())):
        raise InputError(f"{name!r} leaves its range, {low} to {high}")
