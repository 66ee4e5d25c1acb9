"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"
"""How the name of a file ends while it is written."""


@contextmanager
def written_whole(path: Path, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once the block has ended: whole, and on disk.

    A hidden neighbour, fsync, rename: after a crash, kill -9 or loss of power, the old file or the new one is there.
    Each process has a neighbour of its own: of two that write at once, the one that ends last counts.
    """
    part = path.parent / f".{path.name}.{os.getpid()}{UNFINISHED}"
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, permissions), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
