"""From an older edition of the log to this one: a new log, which learns from what the old one measured.

Entries of an older edition mean something else, so none is copied: bounds (edition 3) and alarms (4 and 5) followed
other rules and would not come out the same. What stays true is what was measured. Outcomes become old data of the new
log, in the order of *decisions* and up to the first that has none (docs/theory.md section 18): edition 3 counted
outcomes in the order in which they came, and what came early, because it was good, must not certify anything now. The
old log stays as it is, for audits; the new one names it and its head.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tether.agents.slucb import SlucbConfig
from tether.agents.state_file import fingerprint
from tether.errors import InputError
from tether.live.advisor import Advisor
from tether.live.log.chain import Entry, Store, entries_of
from tether.live.merge import Item, decisions, take
from tether.live.policy import Guards
from tether.live.records import (
    EDITION,
    WHOLE,
    AlarmReset,
    OutcomeLost,
    Resumed,
    Stopped,
    Tripped,
    WarmStarted,
    limit_of,
)
from tether.live.states import StateCodec
from tether.live.warm_start import OldData, append_in_time, keyed_drafts
from tether.problem.problem import Problem

READABLE = (3, 4, 5)
"""Older editions whose outcomes have the form of this one's."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did: decisions of the old log that left, how many of them teach the new one, rows of its warm
    starts, whether the new log is stopped, and what could not be known or kept, in words."""

    edition: int
    decisions: int
    used: int
    imported: int
    stopped: bool
    notes: tuple[str, ...]


def migrate(
    old: Store, new: str | Path | Store, problem: Problem, states: StateCodec | None = None, lost: str = ""
) -> Migrated:
    """Start `new` with what `old` has measured. `lost` says why outcomes that never came are lost by chance; without
    it, nothing after the first of them counts. Called again after a kill, it completes what it began."""
    states, head = states or StateCodec(), old.head()
    entries = list(entries_of(old, head))
    was = _settings(entries)
    new_names = _check_problem(was["problem"], problem)
    items = list(decisions(old))
    open_ones = [item for item in items if item.outcome is None]
    if lost:
        gone = OutcomeLost(decision_id="", by="tether audit migrate", why=lost)
        items = [replace(item, outcome=item.outcome or gone) for item in items]
    source = f"migration of {old.identity()}, edition {was['edition']}, up to {head.seq}:{head.hash}"
    halted = _halted(entries)
    as_before = {"limit_on": limit_of(was["algorithm"]), "config": SlucbConfig(**was["config"]), "watch": was["watch"]}
    guards = Guards.from_json(was["guards"])
    with Advisor(problem, new, states=states, refresh=None, guards=guards, **as_before) as advisor:
        imported = _import_rows(entries, advisor.store, problem, states, source)
        found = take([items], [old.identity()], advisor.store, problem, states, source)
        if halted:
            why = f"the old log was not running when it was migrated: {halted}"
            stop = Stopped(by="tether audit migrate", why=why, id=f"migration-{old.identity()}")
            advisor.store.append([stop.draft()])
        advisor.sync()
        advisor.snapshot()
    (used,) = found.used
    notes = _notes(was["edition"], items, used, open_ones, lost, new_names)
    return Migrated(was["edition"], len(items), used, imported, bool(halted), notes)


def _settings(entries: list[Entry]) -> dict[str, Any]:
    """What the old log was started with last; refused if it is of this edition, or of one that cannot be read."""
    configured = [entry.body for entry in entries if entry.kind == "configured"]
    if not configured or entries[0].kind != "configured":
        raise InputError("this log was not written by an Advisor: there is nothing to migrate.")
    edition = configured[0].get("edition")
    if edition == EDITION:
        raise InputError(f"this log is of edition {EDITION}, which is this version's: there is nothing to migrate.")
    if edition not in READABLE:
        raise InputError(
            f"this log is of edition {edition}; only edition {', '.join(map(str, READABLE))} can be migrated. Export "
            "it with the version that wrote it, and hand the measurements to warm_start."
        )
    return configured[-1]


def _check_problem(before: dict[str, Any], problem: Problem) -> list[str]:
    """Refuse another problem; returns the declarations that the old log knows nothing of."""
    here = fingerprint(problem)
    for name, value in before.items():
        if name in here and here[name] != value:
            raise InputError(
                f"this log is about another problem: its {name} is {value}, here it is {here[name]}. To declare "
                "something else of the same measurements, start a new log and hand them to warm_start."
            )
    return [name for name in here if name not in before]


def _halted(entries: list[Entry]) -> str:
    """Why the old log played nothing but a_0 in the end: a stop, or an alarm; empty if neither."""
    on = dict[str, str]()
    ends = {Resumed.kind: Stopped.kind, AlarmReset.kind: Tripped.kind}
    for entry in entries:
        if entry.kind in ends.values():
            on[entry.kind] = str(entry.body.get("why") or entry.body.get("message"))
        elif entry.kind in ends:
            on.pop(ends[entry.kind], None)
    return "; ".join(f"{kind} ({why})" for kind, why in on.items())


def _import_rows(entries: list[Entry], into: Store, problem: Problem, states: StateCodec, source: str) -> int:
    """Rows of the old log's warm starts, under their keys, as one batch. Returns how many there are."""
    rows = dict[str, OldData]()
    for entry in entries:
        if entry.kind == WarmStarted.kind:
            keys = [key for key in entry.unique if not key.startswith(WHOLE)]
            for key, row in zip(keys, WarmStarted.read(entry).rows, strict=True):
                seen = None if row.state is None else states.decode(row.state)
                after = None if problem.horizon == 1 else states.decode(row.next_state)
                rows[key] = OldData(row.feature, row.cost, row.reward, row.step, seen, after)
    if rows:
        append_in_time(into, keyed_drafts(into, problem, states, rows, source))
    return len(rows)


def _notes(
    edition: int, items: list[Item], used: int, open_ones: list[Item], lost: str, new_names: list[str]
) -> tuple[str, ...]:
    """What is not in the new log, or was never in the old one."""
    measured = sum(item.outcome is not None for item in items[used:])
    stays = f"Decisions and orders stay in the old log, whose {'bounds' if edition == 3 else 'alarms'} follow other "
    notes = [stays + "rules: keep it. `tether audit verify` reads it; only the version that wrote it can replay it."]
    if edition == 3:
        counted = "The old log counted outcomes in the order in which they came, "
        notes.append(counted + "this one counts them in the order of decisions.")
    if open_ones and lost:
        notes.append(f"{len(open_ones)} outcomes never came and are taken as lost by chance: {lost}")
    elif open_ones:
        notes.append(
            f"Decision {open_ones[0].id} has no outcome: {measured} outcomes of later decisions were left out, since a "
            "bound on what happened to come is not valid. If it will never come, say why by --lost."
        )
    if open_ones:
        notes.append(f"Outcomes of {len(open_ones)} decisions that may yet come cannot be recorded in the new log.")
    if new_names:
        notes.append(f"Not in the old log, and taken from the problem as it is now: {', '.join(new_names)}.")
    return tuple(notes)
