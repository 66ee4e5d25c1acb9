"""Saved states: one zip file of plain arrays and a JSON manifest with their hashes. Never pickle.

The hashes find truncation and accidental change. They are not a signature: whoever can write the file can
also write matching hashes.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator
from pydantic_core import to_json

from tether import __version__
from tether.errors import InputError, StateFileError
from tether.files import written_whole
from tether.kernels.compiled import KERNEL
from tether.kernels.likelihood import ATOMS
from tether.kernels.model import Tables
from tether.kernels.plan import Visited
from tether.kernels.ridge import PENDING
from tether.problem.action_sets import FiniteActions, StarActions
from tether.problem.keys import content_key, is_plain, rebuilt
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Reason, State, StateKey

Arrays = dict[str, NDArray[np.generic]]

FORMAT = "tether-state-4"
MANIFEST = "manifest.json"
MANIFEST_HASH = "manifest.sha256"
SOFTWARE = ("tether", "numpy", "kernel")
"""Fields of the manifest that name what wrote it."""


class Manifest(BaseModel):
    """What a saved state says of itself, beside its arrays. Subclasses of the agent may add entries."""

    model_config = ConfigDict(strict=True, extra="allow")

    format: Literal["tether-state-4"]
    kind: str
    config: dict[str, Any]
    problem: dict[str, Any]
    keys: list[Any]
    order: list[dict[str, Any]]
    decisions: NonNegativeInt
    outcomes: NonNegativeInt
    plan_version: int
    arrays: dict[str, str]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        made = [id for entry in self.order if isinstance(id := entry.get("id"), int)]
        if any(not 0 <= id < self.decisions for id in made) or self.plan_version > self.outcomes:
            raise ValueError("its counters contradict each other")
        return self


def write(path: Path | io.BytesIO, manifest: dict[str, Any], arrays: Arrays) -> None:
    """Write everything into one file; a crash leaves the old file or the new one. It may be one in memory."""
    contents = {name: _to_bytes(array) for name, array in arrays.items()}
    full = {
        "format": FORMAT,
        **dict(zip(SOFTWARE, (__version__, np.__version__, KERNEL), strict=True)),
        **manifest,
        "arrays": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    try:
        text = to_json(full, inf_nan_mode="constants")  # far faster, where thousands of outcomes are late
    except ValueError:  # half a surrogate pair in a key
        text = json.dumps(full).encode()
    try:
        with (
            written_whole(path) if isinstance(path, Path) else nullcontext(path) as file,
            zipfile.ZipFile(file, "w") as archive,
        ):
            archive.writestr(MANIFEST, text)
            archive.writestr(MANIFEST_HASH, hashlib.sha256(text).hexdigest())
            for name, data in contents.items():
                archive.writestr(f"{name}.npy", data)
    except OSError as error:
        raise StateFileError(f"cannot write {path}: {error.strerror or error}.") from error


def read(path: Path | io.BytesIO, kind: str) -> tuple[Manifest, Arrays]:
    """The manifest and the arrays of an agent of this kind, after every hash was checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(MANIFEST)
            if hashlib.sha256(text).hexdigest() != archive.read(MANIFEST_HASH).decode():
                raise StateFileError(f"{path}: the manifest was altered since it was saved.")
            manifest = Manifest.model_validate_json(text)
            contents = {name: archive.read(f"{name}.npy") for name in manifest.arrays}
    except FileNotFoundError:
        raise StateFileError(f"there is no saved state at {path}.") from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, LookupError, OSError, ValueError) as error:
        # zipfile answers damage with any of these (NotImplementedError, a RuntimeError, for unknown compression)
        raise StateFileError(f"{path} is not a complete saved state of Tether: {error}.") from error
    if manifest.kind != kind:
        raise StateFileError(f"{path} holds a {manifest.kind!r} agent, not a {kind!r} one.")
    arrays = {}
    for name, data in contents.items():
        if hashlib.sha256(data).hexdigest() != manifest.arrays[name]:
            raise StateFileError(f"{path}: the array {name!r} was altered since it was saved.")
        try:
            arrays[name] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, TypeError, SyntaxError) as error:
            raise StateFileError(f"{path}: {name!r} is not an array of numbers: {error}.") from error
    return manifest, arrays


def _to_bytes(array: NDArray[np.generic]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


# Is it the same problem?


def fingerprint(problem: Problem) -> dict[str, Any]:
    """What a saved state remembers of its problem; the features of known states are saved as arrays."""
    return {
        "horizon": int(problem.horizon),
        "dimension": int(problem.dimension),
        "threshold": list(problem.threshold),
        "noise": list(problem.noise),
        "bounded": list(problem.bounded),
        "in_unit_interval": [one.in_unit_interval for one in problem.constraints],
        "gamma_norm": list(problem.gamma_norm),
        "confidence": problem.confidence,
        "baseline_cost_known": problem.baseline_cost is not None,
        "baseline_cost_error": list(problem.baseline_cost_error),
        "reward_noise": float(problem.reward_noise),
        "relax": [[one.to_json() for one in each.relax] for each in problem.constraints],
        "sample_error": problem.sample_error.tolist(),
        "feature_norm": float(problem.feature_norm),
        "version": problem.version,
    }


def check_problem(path: object, saved: dict[str, Any], problem: Problem) -> None:
    """Refuse a state that was learned on another problem: its bounds would certify nothing here."""
    here = fingerprint(problem)
    for name, value in here.items():
        if saved.get(name) != value:
            raise StateFileError(
                f"{path} was saved for another problem: its {name} is {saved.get(name)}, this problem's is {value}."
            )


def listed(problem: Problem, keys: list[StateKey]) -> list[tuple[int, State]]:
    """(slot, state) of each saved state, where the problem lists its states; else nothing can be compared."""
    if problem.states is None:
        return []
    if isinstance(problem.states, range):
        return list(enumerate(keys))  # a problem that is a table refuses an index outside it
    states = {problem.key_of(state): state for state in problem.states}
    return [(slot, states[key]) for slot, key in enumerate(keys) if key in states]


def known_state(tables: Tables, key: StateKey, slot: int) -> KnownState:
    """What was known of the state in a slot."""
    rows, phi_0 = tables.features[:, tables.start[slot] : tables.start[slot + 1]].T, tables.phi_0[:, slot]
    star = bool(tables.is_star[slot])
    actions = StarActions(phi_0, rows) if star else FiniteActions(rows, int(tables.baseline_row[slot]))
    return KnownState(key, actions, tables.baseline_cost[:, slot].copy(), float(tables.final_reward[slot]))


# Arrays are checked before compiled code reads them: kernels do not check bounds

MAY_BE_INFINITE = {
    "planned_growth",
    "tables.baseline_cost",
    "tables.final_reward",
    "tables.proven",
    "plan.bound",
    "plan.score",
    "plan.radius",
    "plan.values",
}


def check_arrays(fresh: Arrays, saved: Arrays, states: int) -> None:
    """Refuse arrays whose names, types, shapes or contents a fresh agent of the same capacity could not have."""
    for name, expected in fresh.items():
        if name not in saved:
            raise InputError(f"the array {name!r} is missing")
        _numbers(saved, name, expected.shape, dtype=expected.dtype, finite=name not in MAY_BE_INFINITE)
    start = np.asarray(saved["tables.start"], dtype=np.int64)[: states + 1]
    rows, dimension = saved["tables.features"].shape[1], saved["costs.gram"].shape[1]
    if not ((saved["tables.slots"] == states).all() and start[0] == 0):
        raise InputError(f"its tables are not for the {states} states it lists")
    if not ((np.diff(start) > 0).all() and start[-1] <= rows):
        raise InputError("the rows of its states overlap or leave the tables")
    ranges = {
        "tables.built": states,
        "tables.age": np.inf,
        "plan.planned": states,
        "plan.made": np.inf,
        "plan.reason": len(get_args(Reason)) - 1,
        "plan.length": 1,
        "plan.mixture": 1,
        "costs.owed.count": PENDING + 1,
        "values.owed.count": PENDING + 1,
        "costs.updates": np.inf,
        "values.updates": np.inf,
        "costs.facts.rank": dimension,
        "costs.facts.count": np.inf,
        "lost": np.inf,
    }
    for name, most in ranges.items():
        values = np.asarray(saved[name], dtype=np.float64)
        if not ((values >= 0) & (values <= most)).all():
            raise InputError(f"{name!r} leaves its range, 0 to {most}")
    if "blocks.used" in fresh:
        used, first = np.asarray(saved["blocks.used"], dtype=np.int64), fresh["blocks.used"]
        each = len(fresh["blocks.number"]) // len(first)
        numbers = [np.asarray(saved[f"blocks.{name}"], dtype=np.float64) for name in ("number", "ages", "updates")]
        if not ((used // each == np.arange(len(first))).all() and all((array >= -1.0).all() for array in numbers)):
            raise InputError("its blocks of outcomes are not such as an agent keeps")
    if "trials.atoms" in fresh:
        check_trials(saved)
    planned = np.asarray(saved["plan.row"], dtype=np.int64)[:, :states]
    if not ((planned >= -1) & (planned < np.diff(start))).all():
        raise InputError("its plan names an action that does not exist")


def check_trials(saved: Arrays) -> None:
    """Refuse counts and indices of atoms and facts that compiled code must not follow."""
    atoms, closest = (np.asarray(saved[f"trials.{name}"], dtype=np.float64) for name in ("atoms", "closest"))
    counts = ((atoms >= 0) & (atoms <= ATOMS)).all()
    places = ((closest[:, :2] >= 0) & (closest[:, :2] < ATOMS)).all()
    facts = np.asarray(saved["trials.fact_count"], dtype=np.float64)
    held = ((facts >= 0) & (facts <= saved["trials.facts"].shape[1])).all()
    if not (counts and places and held and (np.asarray(saved["trials.weight"], dtype=np.float64) >= 0.0).all()):
        raise InputError("its outcomes of bounded costs are not such as an agent counts")


def _numbers(
    arrays: Arrays, name: str, shape: tuple[int, ...], *, dtype: Any = np.float64, finite: bool = False
) -> Array:
    """An array, refused if its type or shape is another, or if it has entries that it cannot have."""
    found = arrays[name]
    if found.dtype != dtype or found.shape != shape:
        raise InputError(f"{name!r} should be {dtype} of shape {shape}, but is {found.dtype} of {found.shape}")
    if finite and found.dtype.kind == "f" and not np.isfinite(found).all():
        raise InputError(f"{name!r} has entries that are not finite")
    numbers: Array = found.astype(np.float64, copy=False)
    return numbers


# A lean backup: its next states come back from their keys, its sums as arrays

SAMPLED = 16
"""States whose features are compared when a state is restored: sums over other features would certify nothing."""

SAME = 1e-6
"""Features that differ by less, as a part of feature_norm, are the same, computed by another machine."""


def visited_keys(visited: Visited, problem: Problem) -> dict[str, Any]:
    """Keys, and what states are rebuilt from: the key itself with `state_of`, else the content of the state."""
    if problem.state_of is None:
        for state in visited.states:
            if not is_plain(state):
                raise InputError(
                    f"state {state!r} of type {type(state).__name__} cannot be rebuilt from a saved key: give Problem "
                    "key=StateKeys(key, state_of): state_of takes a key (see Problem.key_of) to the "
                    "state, or use backup='tables'."
                )
    own_keys = problem.own_key is not None and problem.state_of is None
    contents = [encode_key(content_key(state)) for state in visited.states] if own_keys else None
    return {"keys": [encode_key(key) for key in visited.index], "contents": contents}


def visited_arrays(visited: Visited, look_up: Callable[[State], KnownState]) -> Arrays:
    """The sums of each stage, what is known of each state, and a sample of features to recognise the problem by."""
    arrays: Arrays = {
        "visited.baseline_cost": visited.baseline_cost,
        "visited.final_reward": visited.final_reward,
        "visited.alarms": visited.alarms,
        "visited.sample": _sample(visited.states, look_up, visited.dimension),
    }
    for stage in range(visited.stages):
        arrays[f"visited.{stage}.member"] = visited.members(stage)
        arrays[f"visited.{stage}.moment"] = visited.moment(stage)
    return arrays


def take_visited(
    visited: Visited,
    problem: Problem,
    saved: dict[str, Any],
    arrays: Arrays,
    look_up: Callable[[State], KnownState],
) -> None:
    """The reverse of both, into a fresh store; what no agent could have saved for this problem is refused."""
    keys = [decode_key(key) for key in saved["keys"]]
    if problem.state_of is not None:
        states = [problem.state_of(key) for key in keys]
    else:
        states = [rebuilt(decode_key(content)) for content in saved["contents"] or saved["keys"]]
    if [problem.key_of(state) for state in states] != keys or len(set(keys)) != len(keys):
        raise InputError("its states do not have the keys they were saved under: key or state_of has changed")
    count, d = len(states), visited.dimension
    here = _sample(states, look_up, d)
    off = np.abs(here - _numbers(arrays, "visited.sample", here.shape, finite=True)).max(initial=0.0)
    if not off <= SAME * problem.feature_norm:
        raise InputError("it was saved with other features for the states it has visited")
    stages = []
    for stage in range(visited.stages):
        found = arrays[f"visited.{stage}.member"]
        members = found.astype(np.int64, copy=False)
        distinct = found.dtype == np.int64 and members.ndim == 1 and len(np.unique(members)) == len(members)
        if not distinct or not ((members >= 0) & (members < count)).all():
            raise InputError(f"stage {stage} names next states that are not among the {count} it lists, or one twice")
        stages.append((members, _numbers(arrays, f"visited.{stage}.moment", (len(members), d), finite=True)))
    costs = _numbers(arrays, "visited.baseline_cost", (count, *visited.baseline_cost.shape[1:]))
    ends = _numbers(arrays, "visited.final_reward", (count,))
    alarms = np.asarray(arrays["visited.alarms"], dtype=np.int64).reshape(-1, 2)
    if not ((alarms[:, 1] >= 0) & (alarms[:, 1] < count)).all():
        raise InputError("'visited.alarms' names states that it does not list")
    visited.take({key: number for number, key in enumerate(keys)}, states, (costs, ends), alarms, stages)


def _sample(states: list[State], look_up: Callable[[State], KnownState], dimension: int) -> Array:
    """The safe feature and the mean candidate of some states, evenly spaced: (<= SAMPLED, 2, d)."""
    chosen = np.unique(np.linspace(0, len(states) - 1, min(SAMPLED, len(states))).astype(np.int64))
    sets = [look_up(states[number]).actions for number in chosen]
    return np.array([[each.phi_0, each.endpoints.mean(axis=0)] for each in sets]).reshape(-1, 2, dimension)


# Keys of states as JSON


def encode_key(key: StateKey) -> Any:
    """A state's identity as JSON: numbers and strings as they are, tuples and bytes tagged."""
    if isinstance(key, str) and any("\ud800" <= letter <= "\udfff" for letter in key):
        raise InputError(f"state key {key!r} is not valid Unicode and cannot be saved: pass key=... to Problem.")
    if key is None or isinstance(key, bool | int | float | str):
        return key
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, tuple):
        return {"tuple": [encode_key(entry) for entry in key]}
    raise InputError(
        f"state key {key!r} of type {type(key).__name__} cannot be saved: pass key=... to Problem, a function "
        "from a state to numbers, strings, bytes or tuples of them."
    )


def decode_key(value: Any) -> StateKey:
    """The reverse of `encode_key`."""
    if isinstance(value, dict):
        if "bytes" in value:
            return bytes.fromhex(value["bytes"])
        return tuple(decode_key(entry) for entry in value["tuple"])
    key: StateKey = value
    hash(key)
    return key
