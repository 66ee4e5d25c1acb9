"""Saved states: one zip file of plain arrays and a JSON manifest with their hashes. Never pickle.

The hashes find truncation and accidental change. They are not a signature: whoever can write the file can
also write matching hashes.
"""

import hashlib
import io
import json
import os
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator

from tether import __version__
from tether.errors import InputError, StateFileError
from tether.kernels.compiled import KERNEL
from tether.kernels.model import Tables
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions
from tether.problem.problem import KnownState, Problem
from tether.records import State, StateKey

FORMAT = "tether-state-2"
MANIFEST = "manifest.json"
MANIFEST_HASH = "manifest.sha256"


class Manifest(BaseModel):
    """What a saved state says of itself, beside its arrays. Subclasses of the agent may add entries."""

    model_config = ConfigDict(strict=True, extra="allow")

    format: Literal["tether-state-2"]
    kind: str
    config: dict[str, Any]
    problem: dict[str, Any]
    keys: list[Any]
    open: list[tuple[NonNegativeInt, NonNegativeInt]]
    decisions: NonNegativeInt
    outcomes: NonNegativeInt
    plan_version: int
    arrays: dict[str, str]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(decision >= self.decisions for decision, _ in self.open) or self.plan_version > self.outcomes:
            raise ValueError("its counters contradict each other")
        return self


def write(path: Path, manifest: dict[str, Any], arrays: dict[str, NDArray[np.generic]]) -> None:
    """Write to a neighbour file, flush it to disk, then rename: a crash leaves the old file or the new one."""
    contents = {name: _to_bytes(array) for name, array in arrays.items()}
    full = {
        "format": FORMAT,
        "tether": __version__,
        "numpy": np.__version__,
        "kernel": KERNEL,
        **manifest,
        "arrays": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    text = json.dumps(full, indent=1, sort_keys=True).encode()
    part = path.parent / f"{path.name}.part"
    try:
        with part.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr(MANIFEST, text)
                archive.writestr(MANIFEST_HASH, hashlib.sha256(text).hexdigest())
                for name, data in contents.items():
                    archive.writestr(f"{name}.npy", data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise StateFileError(f"cannot write {path}: {error.strerror or error}.") from error
        raise


def read(path: Path, kind: str) -> tuple[Manifest, dict[str, NDArray[np.generic]]]:
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


def fingerprint(problem: Problem) -> dict[str, Any]:
    """What a saved state remembers of its problem; the features of known states are saved as arrays."""
    return {
        "horizon": int(problem.horizon),
        "dimension": int(problem.dimension),
        "threshold": list(problem.threshold),
        "noise": list(problem.noise),
        "gamma_norm": list(problem.gamma_norm),
        "confidence": problem.confidence,
        "baseline_cost_known": problem.baseline_cost is not None,
        "baseline_cost_error": list(problem.baseline_cost_error),
        "feature_norm": float(problem.feature_norm),
    }


def check_problem(path: Path, saved: dict[str, Any], problem: Problem) -> None:
    """Refuse a state that was learned on another problem: its bounds would certify nothing here."""
    here = fingerprint(problem)
    for name, value in here.items():
        if saved.get(name) != value:
            raise StateFileError(
                f"{path} was saved for another problem: its {name} is {saved.get(name)}, this problem's is {value}."
            )


def listed_states(problem: Problem, keys: list[StateKey]) -> list[tuple[int, State]]:
    """(slot, state) of each saved state, where the problem lists its states; else nothing can be compared."""
    if problem.states is None:
        return []
    if isinstance(problem.states, range):
        return list(enumerate(keys))  # a problem that is a table refuses an index outside it
    states = {problem.key_of(state): state for state in problem.states}
    return [(slot, states[key]) for slot, key in enumerate(keys) if key in states]


def check_states(path: Path, keys: list[StateKey], tables: Tables, told: dict[int, KnownState]) -> None:
    """Where states are listed, the saved features and safe costs must be the problem's own."""
    for slot, here in told.items():
        saved = action_set(tables, slot)
        same = (
            saved.is_star == here.actions.is_star
            and saved.baseline == here.actions.baseline
            and np.array_equal(saved.endpoints, here.actions.endpoints)
            and np.array_equal(saved.phi_0, here.actions.phi_0)
            and np.array_equal(tables.baseline_cost[:, slot], here.baseline_cost, equal_nan=True)
            and np.array_equal(tables.final_reward[slot], here.final_reward, equal_nan=True)
        )
        if not same:
            raise StateFileError(f"{path} was saved with other features or safe costs for state {keys[slot]!r}.")


def action_set(tables: Tables, slot: int) -> ActionSet:
    """D(s) of a slot, from its candidates."""
    rows = tables.features[:, tables.start[slot] : tables.start[slot + 1]].T
    if tables.is_star[slot]:
        return StarActions(tables.phi_0[:, slot], rows)
    return FiniteActions(rows, int(tables.baseline_row[slot]))


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
