"""Logged outcomes as arrays: from Transitions, from arrays, or from a file (npz, CSV, Parquet)."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from re import fullmatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.problem.problem import Problem
from tether.records import Array, State, Transition


@dataclass(frozen=True, eq=False)
class Log:
    """n outcomes in the order in which they happened.

    feature (n, d); cost (n, M), NaN where it was not measured; reward (n,), NaN where unknown; step (n,); `states` are
    None where the log does not say.
    """

    feature: Array
    cost: Array
    reward: Array
    step: NDArray[np.int64]
    states: tuple[State, ...] | None = None

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which outcomes have all their costs."""
        return np.array(~np.isnan(self.cost).any(axis=1), dtype=np.bool_)


def as_log(problem: Problem, log: Any) -> Log:
    """A Log from Transitions, or from a mapping of arrays: phi (n, d), cost (n, M) or (n,), perhaps reward and step."""
    if isinstance(log, Log):
        return _checked(problem, log)
    if isinstance(log, Mapping):
        return _from_arrays(problem, log)
    if isinstance(log, Iterable):
        transitions = list(log)
        if transitions and all(isinstance(t, Transition) for t in transitions):
            return _from_transitions(problem, transitions)
    raise InputError(
        "log must be a list of Transitions, or a mapping with arrays phi (n, d), cost (n, M), and if known reward (n,) "
        f"and step (n,), but is {type(log).__name__}."
    )


def read_log(problem: Problem, path: Path) -> Log:
    """A log from an .npz file (arrays phi, cost, …), or a table: columns phi_0 …, cost or cost_0 …, reward, step."""
    readers = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: a log is an .npz, .csv or .parquet file, not {path.suffix!r}.")
    try:
        columns = readers[path.suffix.lower()](path)
    except FileNotFoundError:
        raise InputError(f"there is no log at {path}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a log: {error}.") from error
    return _from_arrays(problem, columns)


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_csv(path: Path) -> dict[str, Any]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError("it has no rows")
    return _joined({name: [_number(row[name]) for row in rows] for name in rows[0] if name})


def _read_parquet(path: Path) -> dict[str, Any]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path)
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from error
    return _joined({name: table[name].to_pylist() for name in table.column_names})


def _number(text: str | None) -> float:
    return float(text) if text and text.strip() else np.nan


def _joined(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Columns phi_0, phi_1, … and cost_0, … put together; others as they are."""
    found: dict[str, Any] = {name: columns[name] for name in ("phi", "cost", "reward", "step") if name in columns}
    for name in ("phi", "cost"):
        parts = [column for column in columns if fullmatch(rf"{name}_[0-9]+", column)]
        if parts:
            parts.sort(key=lambda column: int(column.split("_")[1]))
            found[name] = np.array([columns[part] for part in parts], dtype=np.float64).T
    return found


def _from_arrays(problem: Problem, arrays: Mapping[str, Any]) -> Log:
    features = arrays.get("phi", arrays.get("feature"))
    if features is None or arrays.get("cost") is None:
        raise InputError(f"a log needs phi (n, d) and cost (n, M), but this one has {sorted(arrays)}.")
    try:
        phi = np.asarray(features, dtype=np.float64)
        cost = np.asarray(arrays["cost"], dtype=np.float64)
        count = len(phi)
        told = arrays.get("reward")
        reward = np.full(count, np.nan) if told is None else np.asarray(told, dtype=np.float64)
        step = np.asarray(arrays["step"], dtype=np.float64) if arrays.get("step") is not None else np.zeros(count)
    except (TypeError, ValueError) as error:
        raise InputError(f"a log must hold numbers: {error}.") from error
    cost = cost[:, None] if cost.ndim == 1 else cost
    if not (np.isfinite(step).all() and (step % 1.0 == 0.0).all()):
        raise InputError("the steps of a log must be whole numbers.")
    return _checked(problem, Log(phi, cost, reward, step.astype(np.int64)))


def _from_transitions(problem: Problem, transitions: list[Transition]) -> Log:
    missing = np.full(problem.constraints, np.nan)
    arrays = {
        "phi": [t.feature for t in transitions],
        "cost": [missing if t.cost is None else np.reshape(t.cost, -1) for t in transitions],
        "reward": [t.reward for t in transitions],
        "step": [t.step for t in transitions],
    }
    return replace(_from_arrays(problem, arrays), states=tuple(t.state for t in transitions))


def _checked(problem: Problem, log: Log) -> Log:
    count, d, m = len(log.feature), problem.dimension, problem.constraints
    shapes = (log.feature.shape, log.cost.shape, log.reward.shape, log.step.shape)
    if shapes != ((count, d), (count, m), (count,), (count,)) or count == 0:
        raise InputError(f"a log has phi (n, {d}), cost (n, {m}), reward (n,), step (n,) and n >= 1, not {shapes}.")
    if not np.isfinite(log.feature).all() or np.isinf(log.cost).any() or np.isinf(log.reward).any():
        raise InputError("the features of a log must be finite, its costs and rewards finite or NaN (not measured).")
    if log.step.min() < 0 or log.step.max() >= problem.horizon:
        raise InputError(
            f"the steps of a log lie in 0..{problem.horizon - 1} (H = {problem.horizon}), but go from {log.step.min()} "
            f"to {log.step.max()}."
        )
    return log
