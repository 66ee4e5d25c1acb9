"""Entries as rows of a table, and back: what no store can have written is refused."""

import json
import math
from collections.abc import Sequence
from typing import Any

from tether.errors import AlteredLog
from tether.live.store import Entry, canonical

COLUMNS = "e.seq, e.time, e.kind, e.body, e.keys, e.previous, e.hash"
"""The columns of the table `entries e`, in the order of a row."""


def row_of(entry: Entry) -> tuple[int, float, str, str, str, str, str]:
    """The row of an entry, in the order of `COLUMNS`."""
    keys = canonical(list(entry.unique))
    return (entry.seq, entry.time, entry.kind, entry.text, keys, entry.previous, entry.hash)


def entry_of(row: Sequence[Any]) -> Entry:
    """The entry in a row. A row that no store can have written is an AlteredLog."""
    seq, time, kind, text, keys, previous, hash_ = row
    try:
        unique = json.loads(keys)
        texts = all(isinstance(part, str) for part in (kind, text, previous, hash_, *unique))
        sound = texts and isinstance(time, float) and math.isfinite(time)
    except (TypeError, ValueError, RecursionError):
        sound = False
    if not sound or not isinstance(unique, list) or canonical(unique) != keys:
        raise AlteredLog(f"entry {seq} was altered: its row is not one that Tether writes.", seq)
    return Entry(seq, time, kind, text, tuple(unique), previous, hash_)


def holder(key: str, seq: int, entries: Sequence[Entry]) -> Entry:
    """The entry that the index of keys names for a key, after checking that it does hold it."""
    if not entries or key not in entries[0].unique:
        raise AlteredLog(f"the index of keys was altered: entry {seq} does not hold {key!r:.80}.", seq)
    return entries[0]
