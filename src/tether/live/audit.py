"""Audits of a log: nothing was altered, every decision can be computed again, two versions can be compared."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from tether import __version__
from tether.agents.slucb import SlucbConfig
from tether.check.evaluate import Logged
from tether.errors import InputError
from tether.files import written_whole
from tether.live.certificate import Certificate
from tether.live.event import Event
from tether.live.judge import Question, checked_action, judge, looked_up
from tether.live.learner import Learner
from tether.live.ledger import Counts, Ledger
from tether.live.log.chain import Entry, Head, Store, canonical, entries_of, genesis_of
from tether.live.records import EVENTS, Archived, DecisionMade, OutcomeRecorded, Withheld, event_of
from tether.live.replica import Replica, settings_of
from tether.live.snapshot_files import checkpoint_of
from tether.live.states import StateCodec, detached
from tether.live.uplift import UpliftStatus
from tether.problem.action_sets import feature_of
from tether.problem.problem import Problem
from tether.records import State

VERSIONS = {"library", "kernel", "numpy"}
"""What a certificate says of the software; the only part of a decision that a replay by another version may change."""

Kind = TypeVar("Kind", bound=Event)

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
    """What a replay found. `versions` counts decisions that another version of the software had made, `checkpoints`
    those of archives that were compared."""

    decisions: int = 0
    outcomes: int = 0
    different: int = 0
    versions: int = 0
    checkpoints: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every decision came out the same, bit for bit."""
        return self.different == 0


def _events(store: Store, until: Head, kind: type[Kind]) -> Iterator[tuple[Entry, Kind]]:
    """The events of one kind up to the head `until`, with their entries."""
    for entry in entries_of(store, until):
        if entry.kind == kind.kind:
            yield entry, kind.read(entry)


def recomputed(
    store: Store,
    problem: Problem,
    states: StateCodec | None = None,
    until: Head | None = None,
    after: Callable[[Replica], None] | None = None,
) -> Iterator[tuple[Entry, DecisionMade, DecisionMade]]:
    """(entry, decision in it, decision computed again) up to `until` (now: the end), in the order of what they rest on.

    A decision names the entry up to which its replica had read; it is computed again from exactly that prefix. `after`
    gets the replica after each entry.
    """
    states, until = states or StateCodec(), until or store.head()
    settings = settings_of(store)
    if settings is None:
        return
    config = SlucbConfig(**settings.config)
    learner = Learner(problem, config, algorithm=settings.algorithm, watch=settings.watch, states=states)
    replica = Replica(learner, genesis_of(store.identity()))
    waiting: dict[int, list[int]] = defaultdict(list)
    for entry, made in _events(store, until, DecisionMade):
        if not made.certificate.seq < entry.seq:
            raise InputError(f"the decision at entry {entry.seq} says that it rests on entry {made.certificate.seq}.")
        waiting[made.certificate.seq].append(entry.seq)
    for entry in entries_of(store, until):
        for seq in waiting.pop(replica.head.seq, ()):
            (decision,) = store.read(seq - 1, 1)
            made = DecisionMade.read(decision)
            yield decision, made, judge(replica, Question.of(made, states))[0]
        replica.apply(entry)
        if after is not None:
            after(replica)


def replay(store: Store, problem: Problem, states: StateCodec | None = None) -> Replay:
    """Compute every decision again from the log, as it ends now, and compare bit for bit; and so the checkpoints that
    archived entries were left behind, as far as this version wrote them."""
    report, until = Replay(), store.head()
    archived = {each.checkpoint: (entry.seq, each) for entry, each in _events(store, until, Archived)}

    def check(replica: Replica) -> None:
        seq, each = archived.get(replica.head.seq, (0, None))
        if each is not None and each.library == __version__:
            report.checkpoints += 1
            state, _ = checkpoint_of(replica.to_bytes())
            if state != each.state:
                report.different += 1
                report.differences.append(Difference(seq, "none", "checkpoint", each.state, state))

    for entry, logged, computed in recomputed(store, problem, states, until, check):
        report.decisions += 1
        before, now = logged.certificate, computed.certificate
        report.versions += any(getattr(before, name) != getattr(now, name) for name in VERSIONS)
        one, other = _comparable(logged), _comparable(computed)
        if canonical(one) != canonical(other):
            report.different += 1
            if len(report.differences) < SHOWN:
                report.differences.append(Difference(entry.seq, logged.decision_id, *_first_difference(one, other)))
    report.differences.sort(key=lambda difference: difference.seq)
    report.outcomes = sum(entry.kind == OutcomeRecorded.kind for entry in entries_of(store, until))
    return report


def _comparable(made: DecisionMade) -> dict[str, Any]:
    """A decision as JSON, without the names of the software that made it."""
    return made.model_dump(mode="json", exclude={"certificate": VERSIONS, "proposal": VERSIONS})


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


def summary_of(entry: Entry, made: DecisionMade) -> dict[str, Any]:
    """What a comparison of versions looks at: who, what was proposed and played, why, and with which bounds."""
    shown: Certificate = made.proposal or made.certificate
    return {
        "seq": entry.seq,
        **made.model_dump(mode="json", include={"decision_id", "proposed", "played", "reason"}),
        "bounds": [limit.bound for limit in shown.limits],
        "radii": [limit.radius for limit in shown.limits],
        "facts": [limit.facts for limit in shown.limits],
        "library": shown.library,
        "kernel": shown.kernel,
    }


def decisions_by_this_version(store: Store, problem: Problem, until: Head | None = None) -> list[dict[str, Any]]:
    """The decisions that this version of the library makes on the log, in its order."""
    rows = [summary_of(entry, computed) for entry, _, computed in recomputed(store, problem, None, until)]
    return sorted(rows, key=lambda row: int(row["seq"]))


def decisions_in_the_log(store: Store, until: Head | None = None) -> list[dict[str, Any]]:
    """The decisions as they were made, in the same form."""
    return [summary_of(entry, made) for entry, made in _events(store, until or store.head(), DecisionMade)]


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


# What a log says in numbers: counts, and each comparison of the proposals with a_0.


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over a log, its mode at the end, and its comparisons, the last of which may go on.

    `waiting` outcomes have no effect at its end, because these decisions have none: `waiting_for`.
    """

    mode: str
    counts: Counts
    comparisons: tuple[UpliftStatus, ...]
    waiting: int = 0
    waiting_for: tuple[str, ...] = ()


def summary(store: Store) -> Summary:
    """A log in numbers. Nothing is computed again, so no problem is needed."""
    settings = settings_of(store)
    threshold: Any = () if settings is None else settings.problem["threshold"]
    ledger, ended = Ledger(tuple(threshold)), list[UpliftStatus]()
    for entry in entries_of(store, store.head()):
        before = ledger.uplift
        ledger.apply(entry.seq, event_of(entry) if entry.kind in EVENTS else None)
        if ledger.uplift is not before and before.compared:
            ended.append(before.status())
    waiting, ids = ledger.queues.behind()
    return Summary(ledger.mode, ledger.ever, (*ended, ledger.uplift.status()), waiting, tuple(ids))


# A log as arrays, to evaluate another policy on it.

Policy = Callable[[State], Any] | Literal["proposal", "baseline"]
"""state -> action of D(s); or what was proposed, or a_0."""


def logged(store: Store, problem: Problem, policy: Policy, states: StateCodec | None = None) -> Logged:
    """Every decision that left, in order, and what a policy does in its place. Only the canary's have a propensity
    under 1; where others were made, one action was possible."""
    states, until, rows = states or StateCodec(), store.head(), list[tuple[Any, ...]]()
    held = {note.decision_id for _, note in _events(store, until, Withheld)}
    seen = {outcome.decision_id: outcome for _, outcome in _events(store, until, OutcomeRecorded)}
    for _, made in _events(store, until, DecisionMade):
        if made.decision_id in held:
            continue
        state = states.decode(detached(made.state))
        actions, outcome = looked_up(problem, made.step, state).actions, seen.get(made.decision_id)
        offered, arm = made.proposal or made.certificate, "baseline" if made.is_baseline else "proposal"
        if callable(policy):
            action = checked_action(actions, policy(state))
            wanted = feature_of(actions, action)
            is_safe = np.array_equal(wanted, actions.phi_0)
            is_offered = action == made.proposed and offered.mixture is None
            wants = "baseline" if is_safe else "proposal" if is_offered else "another"
        else:
            wanted = actions.phi_0 if policy == "baseline" else np.array(offered.feature)
            wants = arm if made.is_baseline and made.proposal is None else policy  # a_0 was what it proposed
        share = None if made.canary is None else made.canary.share
        chance = 1.0 if share is None else 1.0 - share if made.is_baseline else share
        could = wants == arm or (share is not None and wants != "another")
        seen_of = (math.nan, made.feature) if outcome is None else (outcome.reward, outcome.feature)
        rows.append((seen_of[0], chance, wants == arm, could, seen_of[1], wanted, actions.phi_0))
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    if not columns:
        raise InputError("this log has no decisions: there is nothing to evaluate.")
    return Logged(*columns)


# A log as two Parquet tables, decisions and outcomes, for whoever wants to look with other tools.

ROWS = 10_000
"""Rows of one row group: what is held in memory at a time."""

DECISIONS = {
    "int64": ("seq", "step", "data_version", "rests_on"),
    "float64": ("time", "observed_at", "decided_at", "certified", "canary"),
    "bool_": ("is_baseline",),
    "string": (
        "hash", "decision_id", "key", "episode", "state", "mode", "proposed", "played", "reason", "detail", "origin",
        "bounds", "mixture", "withheld", "model_hash", "library", "kernel",
    ),
    "float64 list": (
        "feature", "bound", "threshold", "margin", "radius", "baseline_cost", "gate_bound", "own_bound",
        "proposed_bound", "drawn",
    ),
    "int64 list": ("facts", "listed"),
}  # fmt: skip
OUTCOMES = {
    "int64": ("seq", "step"),
    "float64": ("time", "reward"),
    "bool_": ("drawn",),
    "string": ("hash", "decision_id", "state", "applied", "next_state"),
    "float64 list": ("feature", "cost", "bound"),
}
"""Columns of each table, by their type."""


def export(store: Store, folder: Path) -> dict[str, int]:
    """Write decisions.parquet and outcomes.parquet; returns how many rows each has.

    The metadata hold the log's identity, its settings, and the head at which both tables end, so that a table can be
    traced to its log.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        until, settings = store.head(), settings_of(store)
        about = {"log": store.identity(), "head_seq": str(until.seq), "head_hash": until.hash}
        about |= {"exported_by": __version__, "settings": json.dumps(settings and settings.model_dump())}
        metadata = {f"tether.{name}": value for name, value in about.items()}
        held = {note.decision_id: note.reason for _, note in _events(store, until, Withheld)}
        decisions = (_decision_row(entry, made, held) for entry, made in _events(store, until, DecisionMade))
        outcomes = (_outcome_row(entry, seen) for entry, seen in _events(store, until, OutcomeRecorded))
        return {
            "decision": _write(folder / "decisions.parquet", DECISIONS, metadata, decisions),
            "outcome": _write(folder / "outcomes.parquet", OUTCOMES, metadata, outcomes),
        }
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}. Choose another folder.") from error


def _write(
    path: Path, columns: dict[str, tuple[str, ...]], metadata: dict[str, str], rows: Iterator[dict[str, Any]]
) -> int:
    """One table, a group of rows at a time; it is whole or not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = []
    for kind, names in columns.items():
        single = getattr(pa, kind.split()[0])()
        fields += [pa.field(name, pa.list_(single) if kind.endswith("list") else single) for name in names]
    schema = pa.schema(fields, metadata)
    count = 0
    with written_whole(path) as file, pq.ParquetWriter(file, schema) as writer:
        while group := list(islice(rows, ROWS)):
            writer.write_table(pa.Table.from_pylist(group, schema))
            count += len(group)
    return count


def _decision_row(entry: Entry, made: DecisionMade, held: dict[str, str]) -> dict[str, Any]:
    """The fields of the record, of its certificate and, as lists, of the certificate's limits; states as JSON."""
    certificate, limits = made.certificate, made.certificate.limits
    numbers = ("bound", "threshold", "margin", "radius", "baseline_cost", "gate_bound", "own_bound", "facts", "listed")
    return {
        **{name: getattr(certificate, name) for name in ("feature", "model_hash", "library", "kernel", "data_version")},
        **made.model_dump(mode="json", exclude={"certificate", "proposal", "safe_feature"}),
        **_in_text(made, ("episode", "state", "proposed", "played")),
        **_place(entry),
        **{name: [getattr(limit, name) for limit in limits] for name in numbers},
        "origin": limits[0].origin,
        "bounds": limits[0].bounds,
        "mixture": None if certificate.mixture is None else canonical(certificate.mixture),
        "proposed_bound": None if made.proposal is None else [limit.bound for limit in made.proposal.limits],
        "rests_on": certificate.seq,
        "canary": None if made.canary is None else made.canary.share,
        "withheld": held.get(made.decision_id),
    }


def _outcome_row(entry: Entry, seen: OutcomeRecorded) -> dict[str, Any]:
    names = {name for several in OUTCOMES.values() for name in several}
    row = seen.model_dump(mode="json", include=names)
    return {**row, **_in_text(seen, ("state", "applied", "next_state")), **_place(entry)}


def _in_text(event: Event, names: tuple[str, ...]) -> dict[str, str]:
    return {name: canonical(value) for name, value in event.model_dump(mode="json", include=set(names)).items()}


def _place(entry: Entry) -> dict[str, Any]:
    return {"seq": entry.seq, "time": entry.time, "hash": entry.hash}
