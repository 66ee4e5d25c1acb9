"""Files that survive a crash: written whole or not at all, by one process at a time, with errors in plain words."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tether.errors import TetherError
from tether.files import UNFINISHED, written_whole

try:
    import fcntl
except ImportError:  # not a POSIX system: two runs in one folder are not detected
    fcntl = None  # type: ignore[assignment]

REASONS = {
    errno.ENOSPC: "the disk is full. Free some space",
    errno.EDQUOT: "the disk quota is used up. Free some space",
    errno.EFBIG: "the file would be larger than this system allows. Raise the limit",
    errno.EROFS: "the folder is read-only. Choose another with --out",
    errno.EACCES: "permission is denied. Choose another folder with --out",
    errno.EPERM: "permission is denied. Choose another folder with --out",
    errno.ENOTDIR: "part of the path is a file, not a folder. Choose another folder with --out",
    errno.EEXIST: "part of the path is a file, not a folder. Choose another folder with --out",
}


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, f"{error.strerror or error}. Choose another folder with --out")
        raise TetherError(
            f"cannot write {path}: {reason} and run the same command again; finished runs are kept."
        ) from error


def make_folder(folder: Path) -> None:
    """Create a folder and check that it is writable."""
    with plain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe{UNFINISHED}"
        probe.write_bytes(b"")
        probe.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or nothing, with errors in plain words."""
    with plain_errors(path), written_whole(path) as file:
        file.write(content)


def remove_unfinished(folder: Path) -> None:
    """Delete files that a killed process left half written."""
    for leftover in folder.glob(f".*{UNFINISHED}"):
        with suppress(OSError):
            leftover.unlink()


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock the folder against a second run; the system releases the lock even on kill -9."""
    if fcntl is None:
        yield
        return
    with plain_errors(folder):
        stream = (folder / ".lock").open("w")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TetherError(f"another tether is writing to {folder}: wait for it, or choose another --out.") from None
        yield
