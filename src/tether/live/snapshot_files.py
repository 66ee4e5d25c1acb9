"""The files of a snapshot: a learner as one zip file whose bytes depend on its contents alone. No pickle."""

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tether.agents.slucb import SlucbQvi
from tether.agents.state_file import MANIFEST, MANIFEST_HASH, SOFTWARE
from tether.errors import StateFileError
from tether.live.gate import Gate
from tether.records import Array

HEADER = "learner.json"


def packed_learner(header: dict[str, Any], agent: SlucbQvi, gate: Gate) -> bytes:
    """Pack what a learner consists of into the bytes of a zip file."""
    buffer = io.BytesIO()  # no file: there may be no place for one
    agent.save(buffer)
    with zipfile.ZipFile(buffer) as saved:
        files = {f"agent/{name}": saved.read(name) for name in sorted(saved.namelist())}
    for name, array in gate.arrays().items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, allow_pickle=False)
        files[f"gate/{name}.npy"] = buffer.getvalue()
    files[HEADER] = json.dumps(header, sort_keys=True).encode()
    return _packed(files)


@contextmanager
def unpacked_learner(data: bytes) -> Iterator[tuple[dict[str, Any], io.BytesIO, Callable[[str], Array]]]:
    """Unpack the bytes of `packed_learner`.

    Yields:
        The header, the file of the agent, and a function that reads an array of the gate by its name.

    Raises:
        StateFileError: the bytes are not complete, or do not fit what they are read into.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            files = {name: packed.read(name) for name in packed.namelist()}
        agent = {name.removeprefix("agent/"): files[name] for name in files if name.startswith("agent/")}

        def gate_array(name: str) -> Array:
            return np.lib.format.read_array(io.BytesIO(files[f"gate/{name}.npy"]), allow_pickle=False)

        yield json.loads(files[HEADER]), io.BytesIO(_packed(agent)), gate_array
    except (LookupError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StateFileError(f"the snapshot is not a complete learner: {error}.") from error


def _packed(files: dict[str, bytes]) -> bytes:
    """Return a zip file whose bytes depend on the contents alone: no times, a fixed order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return buffer.getvalue()


def checkpoint_of(snapshot: bytes) -> tuple[str, str]:
    """Hash a snapshot without the names of the software that wrote it.

    Returns:
        The SHA-256 in hex, and the version of Tether among those names.
    """
    (size,) = struct.unpack(">Q", snapshot[:8])
    digest = hashlib.sha256(snapshot[: 8 + size])
    with zipfile.ZipFile(io.BytesIO(snapshot[8 + size :])) as packed:
        manifest = json.loads(packed.read(f"agent/{MANIFEST}"))
        names = [manifest.pop(name) for name in SOFTWARE]
        digest.update(json.dumps(manifest, sort_keys=True).encode())
        for name in sorted(packed.namelist()):
            if name not in (f"agent/{MANIFEST}", f"agent/{MANIFEST_HASH}"):
                digest.update(name.encode() + packed.read(name))
    return digest.hexdigest(), names[0]
