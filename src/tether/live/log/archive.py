"""Old entries in files: JSON lines, compressed by gzip, each file the continuation of the one before it, written once.

A file holds the entries `first` to `last` of one log; its name says so, and of which log. Its first line is a JSON
object `{"format": "tether-archive-1", "log": identity, "first": …, "last": …, "previous": …}`, where `previous` is the
hash of the entry before the first, so that files are linked as entries are. Every other line is a JSON array
`[seq, time, kind, body, keys, previous, hash]`: a row of the log's table, `body` and `keys` as the text that is stored
there. Nothing else is needed to verify a log, or to compute it again.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tether.errors import AlteredLog, StoreError
from tether.files import written_whole
from tether.live.log.chain import Chain, Entry, Head, canonical, entry_of, row_of

FORMAT = "tether-archive-1"

ENTRIES = 10_000
"""Entries of one file: about 11 MB of text, which is what a reader holds in memory."""

READ_AGAIN = 2
"""Files that are kept as they were read: a replay goes back and forth between neighbours."""


class File(NamedTuple):
    """One file of an archive, and the entries that it holds."""

    first: int
    last: int
    path: Path

    def digest(self) -> str:
        """SHA-256 of its bytes, in hex: what `sha256sum` says."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as error:
            raise _missing(self.path, self.first, error) from error


class Archive:
    """The files of one log in one folder."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self._identity = folder, identity
        self._files: list[File] = []

    def files(self) -> list[File]:
        """Its files, in the order of their entries."""
        found = []
        for path in self.folder.glob(f"{self._identity}-*-*.jsonl.gz"):
            first, last = path.name.removesuffix(".jsonl.gz").split("-")[-2:]
            if first.isdigit() and last.isdigit():
                found.append(File(int(first), int(last), path))
        self._files = sorted(found)
        return self._files

    def _file(self, seq: int) -> File | None:
        """The file that holds an entry; they are listed again where none of those known does."""
        for _ in range(2):
            for file in self._files:
                if file.first <= seq <= file.last:
                    return file
            self.files()
        return None

    def read(self, after: int, limit: int) -> list[Entry]:
        """Up to `limit` entries with seq > `after`, which must be in the archive; hashes are not checked."""
        entries = list[Entry]()
        while len(entries) < limit:
            seq = after + 1 + len(entries)
            file = self._file(seq)
            if file is None:
                break
            lines = _lines_of(file, self._identity)[seq - file.first + 1 :][: limit - len(entries)]
            if not lines:
                raise _damaged(file)
            entries += [_entry_in(line, file, seq + place) for place, line in enumerate(lines)]
        if not entries:
            raise _missing(self.folder, after + 1)
        return entries

    def write(self, entries: Sequence[Entry]) -> File:
        """One more file, on disk and read back when this returns. Written again, it has the same bytes."""
        first, last = entries[0], entries[-1]
        path = self.folder / f"{self._identity}-{first.seq:012d}-{last.seq:012d}.jsonl.gz"
        head = {"format": FORMAT, "log": self._identity, "first": first.seq, "last": last.seq}
        lines = [canonical({**head, "previous": first.previous}), *(canonical(row_of(entry)) for entry in entries)]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with written_whole(path, permissions=0o600) as file:
                file.write(gzip.compress("\n".join(lines).encode("ascii") + b"\n", compresslevel=6, mtime=0))
            path.chmod(0o400)
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # the entries are deleted next: a power cut must not lose the file's name
            finally:
                os.close(folder)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}. Nothing was moved.") from error
        written = File(first.seq, last.seq, path)
        chain = Chain(Head(first.seq - 1, first.previous))
        for entry in self.read(first.seq - 1, len(entries)):
            chain.follow(entry)
        if chain.head != Head(last.seq, last.hash):
            raise StoreError(f"{path} does not read back as it was written: nothing was moved. Is the disk in order?")
        return written


def _lines_of(file: File, identity: str) -> list[bytes]:
    """The lines of a file, read again only if it has changed."""
    try:
        lines = _lines(file.path, file.path.stat().st_mtime_ns)
        first = json.loads(lines[0])
        header = {name: first.get(name) for name in ("format", "log", "first", "last")}
    except (EOFError, ValueError, LookupError, AttributeError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(file) from error
    except OSError as error:
        raise _missing(file.path, file.first, error) from error
    if header != {"format": FORMAT, "log": identity, "first": file.first, "last": file.last}:
        raise AlteredLog(f"{file.path} is not what its name says: its first line is {first!r:.200}.", file.first)
    return lines


@lru_cache(maxsize=READ_AGAIN)
def _lines(path: Path, changed: int) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines()


def _entry_in(line: bytes, file: File, seq: int) -> Entry:
    try:
        return entry_of(json.loads(line))
    except (ValueError, TypeError) as error:
        raise AlteredLog(f"entry {seq} was altered: {file.path} does not hold it as Tether writes it.", seq) from error


def _damaged(file: File) -> AlteredLog:
    return AlteredLog(f"{file.path} was altered or damaged: it cannot be read. Restore it from a copy.", file.first)


def _missing(path: Path, seq: int, error: OSError | None = None) -> StoreError:
    why = "it is not there" if error is None else error.strerror or str(error)
    return StoreError(
        f"entry {seq} was archived, and cannot be read from {path}: {why}. Bring the archive's files back; if they are "
        "in another folder now, name it by `tether audit archive LOG --to FOLDER`."
    )
