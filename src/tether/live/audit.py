"""Audits of a log: nothing was altered, every decision can be computed again, two versions can be compared."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tether import __version__
from tether.agents.slucb import SlucbConfig
from tether.errors import InputError
from tether.live.judge import Request, judge
from tether.live.log.chain import entries_of
from tether.live.log.store import Entry, Head, Store, canonical, genesis_of
from tether.live.records import StateCodec
from tether.live.replica import Replica, settings_of
from tether.problem.problem import Problem

VERSIONS = ("library", "kernel", "numpy")
"""What a certificate says of the software; the only part of a decision that a replay by another version may change."""

SHOWN = 20
"""Differences that a report keeps in full; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that came out otherwise: the first field that differs, as logged and as computed now."""

    seq: int
    decision_id: str
    field: str
    logged: Any
    computed: Any

    def __str__(self) -> str:
        return (
            f"decision {self.decision_id} (entry {self.seq}): {self.field} is {self.logged!r:.120} in the log, and "
            f"{self.computed!r:.120} computed again"
        )


@dataclass(slots=True)
class Replay:
    """What a replay found. `versions` counts decisions that another version of the software had made."""

    decisions: int = 0
    outcomes: int = 0
    different: int = 0
    versions: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every decision came out the same, bit for bit."""
        return self.different == 0


def recomputed(
    store: Store, problem: Problem, states: StateCodec | None = None, until: Head | None = None
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """(entry, body computed again) of every decision up to `until` (now: the end), in the order of what they rest on.

    A decision names the entry up to which its replica had read; it is computed again from exactly that prefix.
    """
    states, until = states or StateCodec(), until or store.head()
    settings = settings_of(store)
    if settings is None:
        return
    config = SlucbConfig(**settings["config"])
    how = {"algorithm": settings["algorithm"], "watch": settings["watch"], "states": states}
    replica = Replica(problem, config, genesis_of(store.identity()), **how)
    waiting: dict[int, list[int]] = defaultdict(list)
    for entry in entries_of(store, until):
        if entry.kind == "decision":
            rests_on = int(entry.body["certificate"]["seq"])
            if not rests_on < entry.seq:
                raise InputError(f"the decision at entry {entry.seq} says that it rests on entry {rests_on}.")
            waiting[rests_on].append(entry.seq)
    for entry in entries_of(store, until):
        for seq in waiting.pop(replica.head.seq, ()):
            (decision,) = store.read(seq - 1, 1)
            yield decision, judge(replica, _request(decision.body, states)).body
        replica.apply(entry)


def _request(body: dict[str, Any], states: StateCodec) -> Request:
    """What was asked, from what was logged."""
    now = body["decided_at"]
    return Request(
        body["decision_id"],
        body["key"],
        body["episode"],
        body["step"],
        states.decode(body["state"]),
        body["state"],
        body["observed_at"],
        float("nan") if now is None else now,
    )


def replay(store: Store, problem: Problem, states: StateCodec | None = None) -> Replay:
    """Compute every decision again from the log, as it ends now, and compare bit for bit."""
    report, until = Replay(), store.head()
    for entry, body in recomputed(store, problem, states, until):
        report.decisions += 1
        logged, computed = _comparable(entry.body), _comparable(json.loads(canonical(body)))
        report.versions += any(entry.body["certificate"][name] != body["certificate"][name] for name in VERSIONS)
        if canonical(logged) != canonical(computed):
            report.different += 1
            if len(report.differences) < SHOWN:
                name, was, now = _first_difference(logged, computed)
                report.differences.append(Difference(entry.seq, entry.body["decision_id"], name, was, now))
    report.differences.sort(key=lambda difference: difference.seq)
    report.outcomes = sum(entry.kind == "outcome" for entry in entries_of(store, until))
    return report


def _comparable(body: dict[str, Any]) -> dict[str, Any]:
    """A decision without the names of the software that made it."""

    def plain(certificate: Any) -> Any:
        if certificate is None:
            return None
        return {name: value for name, value in certificate.items() if name not in VERSIONS}

    return {**body, "certificate": plain(body["certificate"]), "proposal": plain(body["proposal"])}


def _first_difference(a: Any, b: Any, path: str = "") -> tuple[str, Any, Any]:
    """(path, one value, the other) of the first place where two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in sorted({*a, *b}):
            if name not in a or name not in b or canonical(a[name]) != canonical(b[name]):
                return _first_difference(a.get(name), b.get(name), f"{path}.{name}" if path else name)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for place, (left, right) in enumerate(zip(a, b, strict=True)):
            if canonical(left) != canonical(right):
                return _first_difference(left, right, f"{path}[{place}]")
    return path, a, b


def summary_of(entry: Entry, body: dict[str, Any]) -> dict[str, Any]:
    """What a comparison of versions looks at: who, what was proposed and played, why, and with which bounds."""
    shown = body["proposal"] or body["certificate"]
    return {
        "seq": entry.seq,
        "decision_id": body["decision_id"],
        "proposed": body["proposed"],
        "played": body["played"],
        "reason": body["reason"],
        "bounds": [float(limit["bound"]) for limit in shown["limits"]],
        "radii": [float(limit["radius"]) for limit in shown["limits"]],
        "facts": [int(limit.get("facts", 0)) for limit in shown["limits"]],
        "library": shown["library"],
        "kernel": shown["kernel"],
    }


def decisions_by_this_version(
    store: Store, problem: Problem, states: StateCodec | None = None, until: Head | None = None
) -> list[dict[str, Any]]:
    """The decisions that this version of the library makes on the log, in its order."""
    rows = [summary_of(entry, body) for entry, body in recomputed(store, problem, states, until)]
    return sorted(rows, key=lambda row: int(row["seq"]))


def decisions_in_the_log(store: Store, until: Head | None = None) -> list[dict[str, Any]]:
    """The decisions as they were made, in the same form."""
    entries = entries_of(store, until or store.head())
    return [summary_of(entry, entry.body) for entry in entries if entry.kind == "decision"]


def write_decisions(rows: list[dict[str, Any]], path: Path, identity: str, until: Head) -> None:
    """Decisions of one version as a text file, a JSON object per line; the first names the log and where it ended."""
    first = {"format": "tether-decisions-1", "log": identity, "head": list(until)}
    try:
        path.write_text("\n".join(json.dumps(line) for line in (first, *rows)) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}. Choose another path.") from error


def read_decisions(path: Path, identity: str) -> tuple[list[dict[str, Any]], Head | None]:
    """The reverse of `write_decisions`, and the head (None: of an older version); those on another log are refused."""
    try:
        first, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        if first.get("format") != "tether-decisions-1" or first.get("log") != identity:
            raise InputError(f"{path} holds no decisions on this log ({identity}): its first line is {first}.")
        head = first.get("head")
        return rows, None if head is None else Head(int(head[0]), str(head[1]))
    except (OSError, ValueError, AttributeError, TypeError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as decisions of another version: {error}.") from error


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions on one log: how many decisions differ in action, reason and bound, and by how much at most."""

    decisions: int
    actions: int
    reasons: int
    bounds: int
    largest: float
    first: str

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.actions == self.reasons == self.bounds == 0 and not self.first


def compare(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Comparison:
    """Decision by decision. Both must be about the same log; one that only one side has is the first difference."""
    others = {row["seq"]: row for row in theirs}
    actions = reasons = bounds = 0
    largest, first = 0.0, ""
    for row in mine:
        other = others.pop(row["seq"], None)
        if other is None:
            first = first or f"decision {row['decision_id']} (entry {row['seq']}) is missing on one side"
            continue
        moved = max((abs(a - b) for a, b in zip(row["bounds"], other["bounds"], strict=False) if a != b), default=0.0)
        acts = (row["proposed"], row["played"]) != (other["proposed"], other["played"])
        why = row["reason"] != other["reason"]
        shifts = row["bounds"] != other["bounds"]
        actions, reasons, bounds, largest = actions + acts, reasons + why, bounds + shifts, max(largest, moved)
        if (acts or why or shifts) and not first:
            first = f"decision {row['decision_id']} (entry {row['seq']}): {other['played']} ({other['reason']}, bounds "
            first += f"{other['bounds']}) against {row['played']} ({row['reason']}, bounds {row['bounds']})"
    if others and not first:
        first = f"entry {min(others)} is missing on one side"
    return Comparison(len(mine), actions, reasons, bounds, largest, first)


# A log as two Parquet tables, decisions and outcomes, for whoever wants to look with other tools.

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
