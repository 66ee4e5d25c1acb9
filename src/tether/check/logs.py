"""Logged outcomes as arrays: from Transitions, from columns (a mapping or a pandas DataFrame), or from a file.

A table has features (phi_0 …), or states and actions, to which the problem's own features are applied; and costs. What
`tether audit export` writes is such a table: name its folder.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from re import fullmatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError, TetherError, imported, nearest
from tether.problem.action_sets import feature_of
from tether.problem.problem import Problem
from tether.records import Array, StarAction, State, Transition

FeatureOf = Callable[[State, Any], Array]
"""φ(s, a) of an action as the log names it; unless given, a row of the problem's D(s), or a ray and a length."""

JOINED = ("phi", "cost", "state", "action")
"""What may be spread over columns phi_0, phi_1, …"""


@dataclass(frozen=True, eq=False)
class Log:
    """n outcomes in the order in which they happened.

    feature (n, d); cost (n, M), NaN where it was not measured; reward (n,), NaN where unknown; step (n,); `states` and
    `time`, when each was decided in seconds (n,), are None where the log does not say.
    """

    feature: Array
    cost: Array
    reward: Array
    step: NDArray[np.int64]
    states: tuple[State, ...] | None = None
    time: Array | None = None

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which outcomes have all their costs."""
        return np.array(~np.isnan(self.cost).any(axis=1), dtype=np.bool_)


def as_log(problem: Problem, log: Any, feature_of_action: FeatureOf | None = None) -> Log:
    """A Log from Transitions, a file, or columns phi (n, d) (or state and action), cost (n, M), reward and step."""
    if isinstance(log, Log):
        return _checked(problem, log)
    if isinstance(log, str | Path):
        return _from_columns(problem, read_columns(Path(log)), feature_of_action, f"{log}: a log")
    if hasattr(log, "columns") and hasattr(log, "to_dict"):  # pandas
        log = {str(name): log[name].to_list() for name in log.columns}
    if isinstance(log, Mapping):
        return _from_columns(problem, log, feature_of_action)
    if isinstance(log, Iterable):
        transitions = list(log)
        if transitions and all(isinstance(t, Transition) for t in transitions):
            return _from_transitions(problem, transitions)
    raise InputError(
        "log must be a file, a list of Transitions, a DataFrame, or a mapping with phi (n, d) (or state and action), "
        f"cost (n, M), and if known reward (n,) and step (n,), but is {type(log).__name__}."
    )


def read_columns(path: Path) -> dict[str, Any]:
    """The columns of an .npz, .csv or .parquet file, or of an export's folder; those of a .csv as text."""
    readers = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    reader = _read_export if path.is_dir() else readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: a log is an .npz, .csv or .parquet file, or the folder of an export.")
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise InputError(f"there is no log at {error.filename or path}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a log: {error}.") from error


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_csv(path: Path) -> dict[str, Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin UTF-8 with a mark
        rows = list(csv.DictReader(file))
    if rows and len(rows[0]) == 1 and ";" in next(iter(rows[0])):
        raise ValueError("its columns are separated by semicolons: write commas between them, and points in numbers")
    if not rows:
        raise ValueError("it has no rows")
    return {name: [row[name] for row in rows] for name in rows[0] if name}


def _read_parquet(path: Path) -> dict[str, Any]:
    arrow, parquet = imported("pyarrow", "experiments"), imported("pyarrow.parquet", "experiments")
    try:
        table = parquet.read_table(path)
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from error
    return {name: table[name].to_pylist() for name in table.column_names}


def _read_export(folder: Path) -> dict[str, Any]:
    """Outcomes in the order of their decisions; a decision without one, before the last that has one, lost its cost."""
    made, seen = (_read_parquet(folder / f"{name}.parquet") for name in ("decisions", "outcomes"))
    place = {id: row for row, id in enumerate(seen["decision_id"])}
    rows = [place.get(id) for id, held in zip(made["decision_id"], made["withheld"], strict=True) if held is None]
    played = [row for row, held in enumerate(made["withheld"]) if held is None]
    last = max((at for at, row in enumerate(rows) if row is not None), default=-1) + 1
    pairs = list(zip(played[:last], rows[:last], strict=True))
    unseen = [None] * len(made["threshold"][0]) if made["threshold"] else []
    return {
        **{name: [made[name][at] for at, _ in pairs] for name in ("step", "state")},
        **({"time": [made["decided_at"][at] for at, _ in pairs]} if "decided_at" in made else {}),
        "phi": [made["feature"][at] if row is None else seen["feature"][row] for at, row in pairs],
        "cost": [unseen if row is None else seen["cost"][row] or unseen for _, row in pairs],
        "reward": [None if row is None else seen["reward"][row] for _, row in pairs],
    }


def _joined(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns phi_0, phi_1, … put together, likewise of cost, state and action; others as they are."""
    found = dict(columns)
    for name in JOINED:
        parts = [column for column in columns if fullmatch(rf"{name}_[0-9]+", column)]
        if parts:
            parts.sort(key=lambda column: int(column.split("_")[1]))
            found[name] = np.array([numbers_in(column, columns[column]) for column in parts]).T
    if "phi" not in found and "feature" in found:
        found["phi"] = found["feature"]
    if "action" not in found and {"ray", "length"} <= found.keys():
        rays, lengths = (numbers_in(name, found[name]) for name in ("ray", "length"))
        found["action"] = [StarAction(int(ray), float(length)) for ray, length in zip(rays, lengths, strict=True)]
    return found


def numbers_in(name: str, values: Any) -> Array:
    """A column as numbers: NaN where it is empty."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    numbers = []
    for row, value in enumerate(values):
        empty = value is None or (isinstance(value, str) and not value.strip())
        try:
            numbers.append(np.array(np.nan if empty else value, dtype=np.float64))
        except (TypeError, ValueError):
            where = f"column {name!r} of the log holds {value!r:.60} in row {row}"
            raise InputError(f"{where}, which is no number.") from None
    try:
        return np.array(numbers, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"the rows of column {name!r} of the log differ in length: {error}.") from error


def _value(given: Any) -> Any:
    """A state or an action as a table holds it: JSON in text, an array where it is a row of numbers."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return given
    if isinstance(given, dict) and given.keys() == {"ray", "length"}:
        return StarAction(int(given["ray"]), float(given["length"]))
    if isinstance(given, list | tuple) and given and all(isinstance(part, int | float) for part in given):
        return np.array(given, dtype=np.float64)
    return given.item() if isinstance(given, np.generic) else given


def _from_columns(
    problem: Problem, given: Mapping[str, Any], feature_of_action: FeatureOf | None, what: str = "a log"
) -> Log:
    columns = _joined(given)
    if "cost" not in columns or not ("phi" in columns or {"state", "action"} <= columns.keys()):
        needed = "cost" if "cost" not in columns else "phi" if "state" not in columns else "action"
        other = sorted(set(given) - {"state", "action", "ray", "length", "reward", "step", "time"})
        close = nearest(needed, other) if other else "."
        raise InputError(
            f"{what} needs the costs (cost, or cost_0 …), and either features (phi_0 …, d = {problem.dimension}) or "
            f"states and actions (state, or state_0 …; action, or ray and length). This one has no {needed!r}{close}"
        )
    cost, states = numbers_in("cost", columns["cost"]), None
    if "state" in columns:
        states = tuple(_value(state) for state in columns["state"])
    if "phi" in columns:
        phi = numbers_in("phi", columns["phi"])
        states = states if states and _are_states(problem, states) else None
    else:
        phi = _applied(problem, states or (), columns["action"], feature_of_action)
    reward = numbers_in("reward", columns["reward"]) if "reward" in columns else np.full(len(phi), np.nan)
    step = numbers_in("step", columns["step"]) if "step" in columns else np.zeros(len(phi))
    if not (np.isfinite(step).all() and (step % 1.0 == 0.0).all()):
        raise InputError("the steps of a log must be whole numbers.")
    time = numbers_in("time", columns["time"]) if "time" in columns else None
    cost = cost[:, None] if cost.ndim == 1 else cost
    return _checked(problem, Log(phi, cost, reward, step.astype(np.int64), states, time))


def _are_states(problem: Problem, states: tuple[State, ...]) -> bool:
    """Whether the problem knows what a log beside its features calls a state; else only tests by state are left out."""
    try:
        problem.look_up(states[0])
    except Exception:  # whatever the user's functions raise at something that is no state of theirs
        return False
    return True


def _applied(problem: Problem, states: tuple[State, ...], actions: Any, feature_of_action: FeatureOf | None) -> Array:
    """φ(s, a) of each row, (n, d), by the problem's own features."""
    rows: list[Array] = []
    for state, action in zip(states, map(_value, actions), strict=True):
        try:
            if feature_of_action is not None:
                rows.append(feature_of_action(state, action))
                continue
            sets = problem.actions(state)
            if sets.is_star != isinstance(action, StarAction):
                wanted = "a ray and a length" if sets.is_star else "the number of an action"
                raise InputError(f"D(s) asks for {wanted} (columns ray and length, or action)")
            chosen = action if isinstance(action, StarAction) else int(action)
            if not -1 <= (chosen.ray if isinstance(chosen, StarAction) else chosen) < len(sets.endpoints):
                raise InputError(f"D(s) has {len(sets.endpoints)} of them")
            rows.append(feature_of(sets, chosen))
        except (TetherError, TypeError, ValueError, LookupError) as error:
            raise InputError(
                f"row {len(rows)} of the log, state {state!r:.80} and action {action!r:.80}, does not fit the problem: "
                f"{str(error).rstrip('.')}."
            ) from error
    return np.array(rows, dtype=np.float64)


def _from_transitions(problem: Problem, transitions: list[Transition]) -> Log:
    missing = np.full(len(problem.constraints), np.nan)
    columns = {
        "phi": [t.feature for t in transitions],
        "cost": [missing if t.cost is None else np.reshape(t.cost, -1) for t in transitions],
        "reward": [t.reward for t in transitions],
        "step": [t.step for t in transitions],
    }
    if all(t.time is not None for t in transitions):
        columns["time"] = [t.time for t in transitions]
    return replace(_from_columns(problem, columns, None), states=tuple(t.state for t in transitions))


def _checked(problem: Problem, log: Log) -> Log:
    count, d, m = len(log.feature), problem.dimension, len(problem.constraints)
    shapes = (log.feature.shape, log.cost.shape, log.reward.shape, log.step.shape)
    if shapes != ((count, d), (count, m), (count,), (count,)) or count == 0:
        raise InputError(f"a log has phi (n, {d}), cost (n, {m}), reward (n,), step (n,) and n >= 1, not {shapes}.")
    if not np.isfinite(log.feature).all() or np.isinf(log.cost).any() or np.isinf(log.reward).any():
        bad = ~np.isfinite(log.feature).all(axis=1) | np.isinf(log.cost).any(axis=1) | np.isinf(log.reward)
        raise InputError(
            "the features of a log must be finite, its costs and rewards finite or NaN (not measured): "
            f"{int(bad.sum())} of {count} rows are not, the first of them row {int(bad.argmax())}."
        )
    for j, one in enumerate(problem.constraints):
        low, high = one.cost_range
        bad = (log.cost[:, j] < low) | (log.cost[:, j] > high)  # a cost that was not measured is neither
        if bad.any():
            raise InputError(
                f"cost {j} of row {int(bad.argmax())} is {log.cost[bad.argmax(), j]:.6g}, outside the declared range "
                f"of {low:g} to {high:g}, as are {int(bad.sum())} of {count} rows. Declare which readings there can be."
            )
    if log.step.min() < 0 or log.step.max() >= problem.horizon:
        raise InputError(
            f"the steps of a log lie in 0..{problem.horizon - 1} (H = {problem.horizon}), but go from {log.step.min()} "
            f"to {log.step.max()}."
        )
    if log.time is not None and (log.time.shape != (count,) or not np.isfinite(log.time).all()):
        return replace(log, time=None)  # in part is as good as not at all: it is needed for every row, or for none
    return log
