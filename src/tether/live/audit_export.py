"""A log as two Parquet tables, decisions and outcomes, for whoever wants to look with other tools."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tether import __version__
from tether.errors import InputError
from tether.live.chain import entries_of
from tether.live.replica import settings_of
from tether.live.store import Entry, Head, Store, canonical

ROWS = 10_000
"""Rows of one row group: what is held in memory at a time."""


def export(store: Store, folder: Path) -> dict[str, int]:
    """Write decisions.parquet and outcomes.parquet; returns how many rows each has.

    The metadata hold the log's identity, its settings, and the head at which both tables end, so that a table can be
    traced to its log.
    """
    import pyarrow as pa

    def column(name: str, kind: Any) -> Any:
        return pa.field(name, kind)

    numbers, text = pa.list_(pa.float64()), pa.string()
    entry = [column("seq", pa.int64()), column("time", pa.float64()), column("hash", text)]
    decisions = [
        *entry,
        *(column(name, text) for name in ("decision_id", "key", "episode", "state", "mode", "proposed", "played")),
        *(column(name, text) for name in ("reason", "detail", "origin", "bounds", "mixture", "withheld")),
        *(column(name, text) for name in ("model_hash", "library", "kernel")),
        column("step", pa.int64()),
        column("is_baseline", pa.bool_()),
        *(column(name, pa.float64()) for name in ("observed_at", "decided_at", "certified")),
        *(column(name, numbers) for name in ("feature", "bound", "threshold", "margin", "radius", "baseline_cost")),
        *(column(name, numbers) for name in ("gate_bound", "proposed_bound", "drawn")),
        column("facts", pa.list_(pa.int64())),
        *(column(name, pa.int64()) for name in ("data_version", "rests_on")),
    ]
    outcomes = [
        *entry,
        *(column(name, text) for name in ("decision_id", "state", "applied", "next_state")),
        column("step", pa.int64()),
        column("reward", pa.float64()),
        column("drawn", pa.bool_()),
        *(column(name, numbers) for name in ("feature", "cost", "bound")),
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        until = store.head()
        metadata = _metadata(store, until)
        held = {e.body["decision_id"]: e.body["reason"] for e in entries_of(store, until) if e.kind == "withheld"}
        tables = (("decision", decisions, partial(_decision, held=held)), ("outcome", outcomes, _outcome))
        return {
            name: _write(store, until, folder / f"{name}s.parquet", name, pa.schema(fields, metadata), row)
            for name, fields, row in tables
        }
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}. Choose another folder.") from error


def _write(
    store: Store, until: Head, path: Path, kind: str, schema: Any, row: Callable[[Entry], dict[str, Any]]
) -> int:
    """One table, a group of rows at a time; to a neighbour file first, so that a table is whole or not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: Iterator[dict[str, Any]] = (row(entry) for entry in entries_of(store, until) if entry.kind == kind)
    part, count = path.with_name(f".{path.name}.part"), 0
    try:
        with pq.ParquetWriter(part, schema) as writer:
            while group := list(islice(rows, ROWS)):
                writer.write_table(pa.Table.from_pylist(group, schema))
                count += len(group)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count


def _metadata(store: Store, until: Head) -> dict[str, str]:
    told = {"log": store.identity(), "head_seq": str(until.seq), "head_hash": until.hash, "exported_by": __version__}
    return {f"tether.{name}": value for name, value in {**told, "settings": json.dumps(settings_of(store))}.items()}


def _decision(entry: Entry, held: dict[str, str]) -> dict[str, Any]:
    body, certificate = entry.body, entry.body["certificate"]
    limits = certificate["limits"]
    names = ("decision_id", "key", "mode", "reason", "detail", "step", "is_baseline", "observed_at", "decided_at")
    proposal = body["proposal"]
    return {
        **_place(entry),
        **{name: body[name] for name in (*names, "certified", "drawn")},
        **{name: canonical(body[name]) for name in ("episode", "state", "proposed", "played")},
        **{name: certificate[name] for name in ("feature", "model_hash", "library", "kernel", "data_version")},
        **{name: _numbers(limits, name) for name in ("bound", "threshold", "margin", "radius")},
        **{name: _numbers(limits, name) for name in ("baseline_cost", "gate_bound")},
        **{name: limits[0][name] for name in ("origin", "bounds")},
        "facts": [int(limit.get("facts", 0)) for limit in limits],
        "mixture": None if certificate["mixture"] is None else canonical(certificate["mixture"]),
        "proposed_bound": None if proposal is None else _numbers(proposal["limits"], "bound"),
        "rests_on": certificate["seq"],
        "withheld": held.get(body["decision_id"]),
    }


def _outcome(entry: Entry) -> dict[str, Any]:
    names = ("decision_id", "step", "reward", "feature", "cost", "bound", "drawn")
    texts = {name: canonical(entry.body[name]) for name in ("state", "applied", "next_state")}
    return {**_place(entry), **{name: entry.body[name] for name in names}, **texts}


def _place(entry: Entry) -> dict[str, Any]:
    return {"seq": entry.seq, "time": entry.time, "hash": entry.hash}


def _numbers(limits: list[dict[str, Any]], name: str) -> list[float | None]:
    return [None if limit[name] is None else float(limit[name]) for limit in limits]
