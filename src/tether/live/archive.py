"""Retention: whole prefixes of a log move to an archive; verification and replay read them there.

What the future depends on stays: the newest snapshot, which holds the learner's sums, the guards' windows and all that
is waited for, is the checkpoint that a restart goes on from; decisions without an outcome stay in the log, and so does
everything that is younger than `keep` (outcomes that are sent again, idempotency keys), what people ordered, settings,
and imported rows, whose keys must never be used twice.

The order of steps makes it safe to be killed anywhere: files first, on disk and read back; then an entry of the log
that names them and their digests, and so signs them into the chain; then a note in the database that readers find the
entries there; only then are rows deleted. Whatever is missing is done by the next run.
"""

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tether.errors import AlteredLog, InputError
from tether.live.log.archive import ENTRIES, Archive, File
from tether.live.log.chain import Chain, Entry, Head, Store, canonical, genesis_of
from tether.live.log.sql import SqlStore
from tether.live.records import (
    Archived,
    DecisionMade,
    GateRefused,
    OutcomeLost,
    OutcomeRecorded,
    Withheld,
    outcome_key,
    withheld_key,
)
from tether.live.snapshot_files import checkpoint_of

LEAVE = frozenset({DecisionMade.kind, OutcomeRecorded.kind, OutcomeLost.kind, Withheld.kind, GateRefused.kind})
"""Kinds of entries that leave the log; the others are few, or must be found for ever."""

AT_ONCE = 500
"""Rows that are deleted in one transaction: decisions wait for it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What an archive run did: entries `first` to `last` are in the archive now (none if last < first), in so many
    files and bytes; rows `deleted` from the log; `checkpoint`, the entry after which a restart goes on; and why no more
    was moved."""

    first: int
    last: int
    files: int
    bytes: int
    deleted: int
    checkpoint: int
    why_no_more: str


def archive(store: SqlStore, folder: Path, *, before: float, key: bytes | None = None, size: int = ENTRIES) -> Moved:
    """Move whole files of `size` entries, all of them logged before the time `before`, to `folder`; sign with `key`."""
    folder, done = folder.absolute(), store.archived()
    files = Archive(folder, store.identity())
    _check_files(store, files, done)
    if done:
        store.set_archived(done, folder)  # the folder may be another one now
    deleted = _delete(store, done)  # of a run that was killed
    snapshot = store.latest_snapshot()
    if snapshot is None:
        raise InputError(
            "this log has no snapshot to go on from: an Advisor saves one every few thousand entries, `snapshot()` at "
            "once, and a service when it starts."
        )
    written, why = _write_files(store, files, Head(done, _hash_at(store, done)), snapshot.seq, before, size)
    if not written:
        return Moved(done + 1, done, 0, 0, deleted, snapshot.seq, why)
    last = written[-1].last
    state, library = checkpoint_of(snapshot.data)
    archived = Archived(
        last=last,
        hash=_hash_at(store, last),
        files={file.path.name: file.digest() for file in written},
        checkpoint=snapshot.seq,
        state=state,
        library=library,
    )
    if key is not None:
        archived = archived.model_copy(update={"signature": signature(archived, store.identity(), key)})
    store.append([archived.draft()])
    store.set_archived(last, folder)
    deleted += _delete(store, last)
    size_of = sum(file.path.stat().st_size for file in written)
    return Moved(done + 1, last, len(written), size_of, deleted, snapshot.seq, why)


def signature(archived: Archived, identity: str, key: bytes) -> str:
    """HMAC-SHA-256, in hex, of the canonical JSON array of the log's identity and all other fields but itself."""
    fields = archived.model_dump(mode="json", exclude={"signature"})
    return hmac.new(key, canonical([identity, fields]).encode(), hashlib.sha256).hexdigest()


def checker(store: Store, key: bytes | None = None) -> Callable[[Entry], None]:
    """What `verify_store` is to check of entries that tell of an archive: digests of files, the hash of the last entry
    and, given the key, the signature. AlteredLog says what does not fit."""
    folder = store.archive_folder() if isinstance(store, SqlStore) else None

    def check(entry: Entry) -> None:
        if entry.kind != Archived.kind:
            return
        archived = Archived.read(entry)
        if key is not None and not hmac.compare_digest(archived.signature, signature(archived, store.identity(), key)):
            raise AlteredLog(f"entry {entry.seq} tells of an archive, and was not signed with this key.", entry.seq)
        if _hash_at(store, archived.last) != archived.hash:
            raise AlteredLog(f"entry {entry.seq} names another hash of entry {archived.last} than the log.", entry.seq)
        if archived.last > store.archived():  # a run that was killed: the files are to be written again
            return
        for name, digest in archived.files.items():
            if folder is None or File(archived.last, archived.last, folder / name).digest() != digest:
                raise AlteredLog(f"{name} is not the file that entry {entry.seq} names: its bytes differ.", entry.seq)

    return check


def _hash_at(store: Store, seq: int) -> str:
    return genesis_of(store.identity()) if seq == 0 else store.read(seq - 1, 1)[0].hash


def _check_files(store: SqlStore, files: Archive, done: int) -> None:
    """Refuse a folder that does not hold what was archived before."""
    end = 0
    for file in files.files():
        if file.first <= end + 1:
            end = max(end, file.last)
    if end < done:
        raise InputError(
            f"entries up to {done} are archived in {store.archive_folder()}, but {files.folder} holds them up to {end} "
            "only: copy the files there first, or give that folder."
        )


def _write_files(
    store: SqlStore, files: Archive, head: Head, checkpoint: int, before: float, size: int
) -> tuple[list[File], str]:
    """As many files as may be written, and why there are no more."""
    chain, written, end = Chain(head), list[File](), store.head().seq
    while True:
        last = chain.head.seq + size
        if last >= checkpoint:
            return written, f"the newest snapshot follows entry {checkpoint}, and a file holds {size} entries"
        if last > end - size:
            return written, f"the last {size} entries stay in the log"
        entries = list[Entry]()
        while len(entries) < size:  # pages of large entries are shorter
            entries += store.read(chain.head.seq + len(entries), size - len(entries))
        for entry in entries:
            chain.follow(entry)
            if entry.time >= before:
                return written, f"entry {entry.seq} is younger than what is to be moved"
        written.append(files.write(entries))


def _delete(store: SqlStore, last: int) -> int:
    """Delete archived entries that nothing to come refers to, the oldest first. Returns how many rows that was."""
    seq, deleted = 0, 0
    while page := store.remains(seq, AT_ONCE):
        seq, gone = page[-1].seq, _gone(store, page, last)
        if gone:
            began = time.monotonic()
            store.delete_archived(gone)
            time.sleep(time.monotonic() - began)  # who decides gets a turn: the lock is not handed over in order
        deleted += len(gone)
    return deleted


def _gone(store: SqlStore, page: list[Entry], last: int) -> list[Entry]:
    """Those that may leave: of decisions, those that have ended within what is archived."""
    ids = {entry.seq: entry.body["decision_id"] for entry in page if entry.kind == DecisionMade.kind}
    names = {seq: (outcome_key(id), withheld_key(id)) for seq, id in ids.items()}
    ends = store.places([key for keys in names.values() for key in keys])
    ended = {seq for seq, keys in names.items() if any(ends.get(key, last + 1) <= last for key in keys)}
    return [entry for entry in page if entry.kind in LEAVE and (entry.seq not in ids or entry.seq in ended)]
