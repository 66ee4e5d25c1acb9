"""What a log is: drafts that become entries, each holding the hash of the one before it, and the store that keeps them.

The format is open. An entry's hash is SHA-256, in hex, of the canonical JSON array
`[previous, seq, time, kind, unique, body]`, where `body` is the JSON text of the body, as a string, just as stored.
Canonical JSON: keys sorted, no spaces, ASCII, no NaN or infinity, floats in the shortest form that reads back exactly.
A body's text is as strict, but its keys may come in any order and its letters need not be ASCII.
The first entry's `previous` is the genesis hash: SHA-256 of `["tether-log-1", identity]`.

The chain proves that nothing *inside* the log was changed, dropped, added or moved. Whoever can write the whole file
can write a whole new chain, and a cut tail leaves a valid shorter one: note the head (seq, hash) elsewhere, and
`verify_store` compares.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from types import NoneType
from typing import Any, NamedTuple, Protocol, Self

from pydantic_core import to_json

from tether.errors import AlteredLog, InputError, StoreError

FORMAT = "tether-log-1"
"""Name and version of the log's format; it is part of the genesis hash."""

LARGEST_BODY = 2**26
"""Bytes of canonical JSON that one body may have. Databases take more, but a reader must hold a page of them."""

PAGE_BYTES = 2**24
"""Characters of bodies after which a page of entries ends, however few they are: a reader holds a page in memory."""

LONGEST_UNIQUE = 512
"""Characters of a uniqueness key: what an index of either database holds in one row, whatever the script."""

PIECE = 2047
"""Bytes that are hashed at once. For more, hashlib releases Python's global lock, and the writer of an entry would wait
for the threads that decide to release it again: longer than the hash takes, and in the middle of a transaction."""

KEEP_SNAPSHOTS = 3
"""Snapshots that a store keeps: the newest, and two to fall back on."""

_SCALARS = frozenset({str, float, bool, NoneType})
_NAMES = frozenset({str})
_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """The canonical JSON text of a value. NaN, infinity and what JSON does not know are an InputError."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"this cannot go into the log: {error}. A log holds JSON: finite numbers, strings, booleans, null, "
            "lists, and dicts with string keys."
        ) from error


def text_of(body: Any) -> str:
    """The JSON text of a body. Pydantic's serialiser is far faster than Python's, but lets too much pass: it
    gets what is plain JSON, and `canonical` gets, or refuses, the rest."""
    with suppress(ValueError, RecursionError):  # half a surrogate pair, a list within itself
        if _is_plain(body):
            text = to_json(body).decode()
            if is_finite(text):
                return text
    return canonical(body)


def is_finite(text: str) -> bool:
    """Whether JSON text holds no NaN or infinity, as a number or as a word in a string. A letter is found
    sooner than a word, and most texts lack both."""
    return ("N" not in text or "NaN" not in text) and ("I" not in text or "Infinity" not in text)


def _is_plain(value: Any) -> bool:
    """Whether this is JSON as it stands: no subclasses, tuples or keys that would come back as something else."""
    kind = type(value)
    if kind is list:
        return _are_plain(value)
    if kind is dict:
        return set(map(type, value)) <= _NAMES and _are_plain(value.values())
    if kind is int:
        return bool(-(2**63) <= value < 2**63)  # pydantic writes integers that Python would refuse to read
    return kind in _SCALARS


def _are_plain(values: Iterable[Any]) -> bool:
    """`_is_plain` of each: most are scalars, and those are looked at together."""
    kinds = set(map(type, values))
    if kinds <= _SCALARS:
        return True
    return all(_is_plain(value) for value in values if type(value) not in _SCALARS)


def genesis_of(identity: str) -> str:
    """The hash that the first entry of the log with this identity builds on, in hex."""
    return hashlib.sha256(canonical([FORMAT, identity]).encode("ascii")).hexdigest()


def _list_of(unique: Sequence[str]) -> str:
    """The canonical JSON of some keys."""
    return f"[{','.join(map(_quoted, unique))}]"


def _digest(previous: str, seq: int, time: float, kind: str, unique: Sequence[str], text: str) -> str:
    """The hash of an entry: of the canonical JSON array of all this, put together here, which is faster."""
    when = repr(time) if type(time) is float and isfinite(time) else canonical(time)
    line = f"[{_quoted(previous)},{seq:d},{when},{_quoted(kind)},{_list_of(unique)},{_quoted(text)}]"
    digest, data = hashlib.sha256(), line.encode("ascii")
    for start in range(0, len(data), PIECE):
        digest.update(data[start : start + PIECE])
    return digest.hexdigest()


class Draft:
    """Something to be logged: its kind, its body, and the keys that may occur only once in the whole log.

    The body is a dict or the JSON text of one. It is checked and turned into text here, in the caller's thread, so that
    a bad draft reaches nobody else.
    """

    __slots__ = ("kind", "text", "unique")

    def __init__(self, kind: str, body: dict[str, Any] | str, unique: Sequence[str] = ()) -> None:
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise InputError(f"kind {kind!r} must be 1 to 64 lower-case letters, digits and dashes.")
        if not isinstance(body, dict | str):
            raise InputError(f"a body must be a dict, not {type(body).__name__}.")
        self.kind, self.unique = kind, _checked_unique(unique)
        self.text = body if isinstance(body, str) else text_of(body)
        if len(self.text) > LARGEST_BODY:
            raise InputError(
                f"the body of a {kind!r} entry has {len(self.text)} bytes, the limit is {LARGEST_BODY}: split it."
            )

    @property
    def body(self) -> dict[str, Any]:
        """The body as it will be read from the log."""
        body: dict[str, Any] = json.loads(self.text)
        return body

    def __repr__(self) -> str:
        return f"Draft({self.kind!r}, unique={self.unique!r})"


def _checked_unique(unique: Sequence[str]) -> tuple[str, ...]:
    """The keys as a tuple, after those were refused that not every database could hold."""
    if isinstance(unique, str):
        raise InputError(f"unique must be a tuple of strings, not the string {unique!r}.")
    keys = tuple(dict.fromkeys(unique))
    for key in keys:
        if not storable(key):
            raise InputError(
                f"uniqueness key {key!r:.80} must be a string of 1 to {LONGEST_UNIQUE} characters of valid Unicode "
                "without NUL."
            )
    return keys


@dataclass(frozen=True)
class Entry:
    """One entry of the log: `seq` counts from 1 without gaps, and the order of the log is the order of `seq`.

    `time` is the writer's clock in seconds since 1970, for people only: clocks jump. `text` is the canonical JSON of
    the body, byte for byte as stored; `previous` and `hash` are hex.
    """

    seq: int
    time: float
    kind: str
    text: str = field(repr=False)
    unique: tuple[str, ...]
    previous: str
    hash: str

    @cached_property
    def body(self) -> dict[str, Any]:
        """The body, read from its text once. It is shared by all who hold this entry: read it, do not change it."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise AlteredLog(f"entry {self.seq} was altered: its body is not JSON ({error}).", self.seq) from error
        if not isinstance(body, dict):
            raise AlteredLog(f"entry {self.seq} was altered: its body is not a JSON object.", self.seq)
        return body

    def expected_hash(self) -> str:
        """The hash that this content must carry, computed anew, in hex."""
        return _digest(self.previous, self.seq, self.time, self.kind, self.unique, self.text)

    def genuine(self) -> Self:
        """The entry itself, if its content gives its hash; else AlteredLog: nothing is learned from it."""
        try:
            whole = self.expected_hash() == self.hash
        except InputError:  # an infinite time, say
            whole = False
        if not whole:
            raise AlteredLog(f"entry {self.seq} was altered: its content does not give its hash.", self.seq)
        return self

    @classmethod
    def seal(cls, draft: Draft, seq: int, time: float, previous: str) -> Self:
        """The entry that a draft becomes at place `seq`, on top of the entry with hash `previous`."""
        time = float(time)
        if not isfinite(time):
            raise StoreError(f"the clock says {time}: nothing can be logged until it gives a finite time.")
        hash_ = _digest(previous, seq, time, draft.kind, draft.unique, draft.text)
        return cls(seq, time, draft.kind, draft.text, draft.unique, previous, hash_)


def row_of(entry: Entry) -> tuple[int, float, str, str, str, str, str]:
    """The row of an entry: seq, time, kind, body, keys, previous, hash."""
    return (entry.seq, entry.time, entry.kind, entry.text, _list_of(entry.unique), entry.previous, entry.hash)


def entry_of(row: Sequence[Any]) -> Entry:
    """The entry in a row. A row that no store can have written is an AlteredLog."""
    seq, time, kind, text, keys, previous, hash_ = row
    try:
        unique = json.loads(keys)
        texts = all(isinstance(part, str) for part in (kind, text, previous, hash_, *unique))
        sound = texts and isinstance(time, float) and isfinite(time)
    except (TypeError, ValueError, RecursionError):
        sound = False
    if not sound or not isinstance(unique, list) or _list_of(unique) != keys:
        raise AlteredLog(f"entry {seq} was altered: its row is not one that Tether writes.", seq)
    return Entry(seq, time, kind, text, tuple(unique), previous, hash_)


class Appended(NamedTuple):
    """What became of a draft: its entry, and whether it is fresh. False: one of its keys was in the log already,
    nothing was written, and `entry` is the one that holds the key (whose content may differ: compare)."""

    entry: Entry
    fresh: bool


class Head(NamedTuple):
    """Where a log ends: the last entry's seq and hash; (0, genesis hash) when it is empty."""

    seq: int
    hash: str


class Snapshot(NamedTuple):
    """The saved state of a fold over the entries 1 to `seq` of the log."""

    seq: int
    data: bytes


class Usage(NamedTuple):
    """What a log takes: bytes on disk, and the newest snapshot: the entry that it follows (0: none), and its time."""

    size: int
    snapshot: int
    saved: float


def extend(
    head: Head, drafts: Sequence[Draft], time: float, found: Mapping[str, Entry]
) -> tuple[list[Entry], list[Appended]]:
    """The entries to write after `head`, and what becomes of each draft. `found`: key -> entry already in the log."""
    known, fresh, results = dict(found), list[Entry](), list[Appended]()
    for draft in drafts:
        earlier = next((known[key] for key in draft.unique if key in known), None)
        if earlier is not None:
            results.append(Appended(earlier, False))
            continue
        entry = Entry.seal(draft, head.seq + 1, time, head.hash)
        head = Head(entry.seq, entry.hash)
        known.update(dict.fromkeys(entry.unique, entry))
        fresh.append(entry)
        results.append(Appended(entry, True))
    return fresh, results


class Store(Protocol):
    """An append-only log. Safe to use from many threads; SQLite and PostgreSQL also from many processes.

    Every method raises StoreError when the log cannot be read or written now, and can be called again later.
    """

    read_only: bool
    """Whether it was opened for looking only: then nothing can be appended."""

    def append(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Add all drafts, in this order, as one atomic batch that is durable when this returns.

        A draft of which a key is in the log already (or earlier in this batch) is not written again. A draft whose
        keys point at two different entries gets that of the first such key. After a StoreError the batch is either not
        in the log or, if only the acknowledgment was lost, wholly in it: try again with the same keys to find out.
        """

    def head(self) -> Head:
        """Where the log ends now."""

    def read(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Up to `limit` entries with seq > `after`, in order, and fewer, but one, where they are large: see `is_end`.
        The hashes are not checked: see `Chain`. Entries that were archived are read from the archive's files."""

    def archived(self) -> int:
        """The last entry that was moved to an archive, 0 if none was."""

    def remains(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Up to `limit` archived entries with seq > `after` that the log itself still holds."""

    def find(self, unique: str) -> Entry | None:
        """The entry that holds this key, if there is one."""

    def places(self, unique: Sequence[str]) -> dict[str, int]:
        """Key -> seq, for those of the keys that are in the index of keys. `verify_store` compares it with the log."""

    def save_snapshot(self, seq: int, data: bytes) -> None:
        """Keep the state after entry `seq` (which must exist). The newest `KEEP_SNAPSHOTS` are kept."""

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is whole and belongs to this very chain; damaged ones are passed over, because the
        log alone decides and a snapshot only saves time."""

    def snapshots(self) -> list[tuple[int, bool]]:
        """The entry that each snapshot follows, and whether the snapshot is whole and belongs to this very chain."""

    def announce_stop(self, text: str) -> None:
        """Tell all who share this log of a stop, ahead of its entry and without waiting for other writers."""

    def announced_stop(self, *, fresh: bool) -> str:
        """The last announcement, empty if there was none: as of now, or, unless `fresh`, as of the last `append`."""

    def usage(self) -> Usage:
        """What the log takes, for people."""

    def place(self) -> str:
        """Where the log is kept, as its server knows it: a restored one is elsewhere. Empty if there is no server."""

    def note(self, text: str) -> None:
        """Keep a note beside the log, in place of the last one; where the log is a file, nothing is kept."""

    def noted(self) -> str:
        """The last note; empty if there is none."""

    def identity(self) -> str:
        """A random name that the log got when it was created, in hex; the genesis hash holds it."""

    def close(self) -> None:
        """Let go of files and connections. A second call does nothing."""


def storable(key: str) -> bool:
    """Whether a key could be in a log at all: the right length, valid Unicode, no NUL."""
    return isinstance(key, str) and 1 <= len(key) <= LONGEST_UNIQUE and not _UNSTORABLE.search(key)


def snapshot_digest(entry_hash: str, data: bytes) -> str:
    """SHA-256 of the hash of the entry that a snapshot follows, and its bytes: it fits this prefix of this log only."""
    return hashlib.sha256(entry_hash.encode() + b"\n" + data).hexdigest()


def is_end(page: Sequence[Entry], limit: int) -> bool:
    """Whether a page that was read with this limit is the log's last."""
    return len(page) < limit and sum([len(entry.text) for entry in page]) < PAGE_BYTES


def check_page(after: int, limit: int) -> None:
    """Refuse a page that cannot be read."""
    if after < 0 or limit < 1:
        raise InputError(f"a page needs after >= 0 and limit >= 1, not after={after}, limit={limit}.")


# Verification: the chain is followed to prove that nothing in it was altered.


class Chain:
    """Follows a log entry by entry from `head` on, and refuses the first that does not fit."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def follow(self, entry: Entry) -> None:
        """Check that this is the next entry and unaltered; AlteredLog says what is wrong with which one."""
        expected = self.head.seq + 1
        if entry.seq != expected:
            what = f"entry {expected} is missing" if entry.seq > expected else f"entry {entry.seq} comes again"
            raise AlteredLog(f"{what}: after entry {self.head.seq} the log goes on with {entry.seq}.", expected)
        if entry.previous != self.head.hash:
            raise AlteredLog(
                f"entry {entry.seq} does not follow the one before it: it names the hash {entry.previous:.16}…, and "
                f"entry {self.head.seq} has {self.head.hash:.16}….",
                entry.seq,
            )
        if (computed := _hash_of(entry)) != entry.hash:
            raise AlteredLog(
                f"entry {entry.seq} was altered: its content gives the hash {computed:.16}…, not {entry.hash:.16}….",
                entry.seq,
            )
        self.head = Head(entry.seq, entry.hash)


def _hash_of(entry: Entry) -> str:
    """The hash that the content gives; none for what cannot be content, such as an infinite time."""
    try:
        return entry.expected_hash()
    except InputError:
        return "none"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first entry that is not as it was written (0: the log as a whole), and why."""

    seq: int
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of a whole log found: where it ends as far as it is good, and the first fault, if any."""

    head: Head
    fault: Fault | None


def verify_store(
    store: Store, known: Head | None = None, page: int = 1000, also: Callable[[Entry], None] | None = None
) -> Verdict:
    """Follow a store's whole chain, and compare its index of keys and its snapshots. `known`: a head noted earlier,
    which finds a cut tail and a chain that was computed anew. Entries that arrive meanwhile are checked too. `also`
    gets each entry that was followed, and may raise AlteredLog."""
    chain = Chain(Head(0, genesis_of(store.identity())))
    if known is not None and known.seq == 0 and known != chain.head:
        return Verdict(chain.head, Fault(0, "the noted head is the start of another log."))
    try:
        while entries := _page(store, chain, page):
            for entry in entries:
                chain.follow(entry)
                if known is not None and entry.seq == known.seq and entry.hash != known.hash:
                    raise _written_anew(chain.head, known)
                if also is not None:
                    also(entry)
            _check_keys(store, entries)
        if known is not None and chain.head.seq < known.seq:
            raise _cut_off(chain.head, known)
        for seq in (seq for seq, is_whole in store.snapshots() if not is_whole):
            raise AlteredLog(f"the snapshot after entry {seq} was altered. A restart passes it over.", seq)
    except AlteredLog as error:
        return Verdict(chain.head, Fault(error.seq, str(error)))
    return Verdict(chain.head, None)


def entries_of(store: Store, until: Head, page: int = 1000) -> Iterator[Entry]:
    """The entries up to the head `until`, whatever arrives meanwhile, each followed before it is handed on."""
    chain = Chain(Head(0, genesis_of(store.identity())))
    while chain.head.seq < until.seq:
        entries = _page(store, chain, min(page, until.seq - chain.head.seq))
        if not entries:
            raise _cut_off(chain.head, until)
        for entry in entries:
            chain.follow(entry)
            yield entry
    if chain.head.hash != until.hash:
        raise _written_anew(chain.head, until)


def _written_anew(head: Head, noted: Head) -> AlteredLog:
    return AlteredLog(
        f"entry {head.seq} has the hash {head.hash:.16}…, the noted head has {noted.hash:.16}…: this is another log, "
        "or it was written anew.",
        head.seq,
    )


def _cut_off(head: Head, noted: Head) -> AlteredLog:
    return AlteredLog(
        f"the tail is cut off: the log ends at entry {head.seq}, the noted head is entry {noted.seq}.", head.seq + 1
    )


def _page(store: Store, chain: Chain, limit: int) -> list[Entry]:
    """The next page. Where a row cannot even be read, the rows before it are followed first: they may be the fault."""
    try:
        return store.read(chain.head.seq, limit)
    except AlteredLog as error:
        before = error.seq - chain.head.seq - 1
        if before > 0:
            for entry in store.read(chain.head.seq, before):
                chain.follow(entry)
        raise


def _check_keys(store: Store, entries: Sequence[Entry]) -> None:
    """Every key of these entries must be in the index, pointing at its entry: else it could be used twice. What was
    archived has left the index with its keys; what remains of it must be what the archive holds."""
    expected = [(key, entry.seq) for entry in entries for key in entry.unique]
    places, archived = store.places([key for key, _ in expected]), store.archived()
    first = entries[0].seq
    remains = store.remains(first - 1, len(entries)) if first <= archived else []
    remains = [entry for entry in remains if entry.seq <= entries[-1].seq]
    for entry in remains:
        if entry != entries[entry.seq - first]:
            raise AlteredLog(f"entry {entry.seq} in the log is not the one in the archive.", entry.seq)
    here = {entry.seq for entry in remains}
    for key, seq in expected:
        has_left = seq <= archived and seq not in here and key not in places
        if places.get(key) != seq and not has_left:
            raise AlteredLog(
                f"entry {seq} holds the key {key!r:.80}, but the index of keys points at entry {places.get(key)}.", seq
            )
