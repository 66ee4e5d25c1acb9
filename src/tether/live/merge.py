"""Many sites, one learner: logs of sites that share one γ* become old data of a new log, and so one confidence event.

Sums are additive, but a bound holds for a prefix of *one* order. All decisions of all sites are therefore put in the
order of their times, each site's own order kept, and taken up to the first that has no outcome yet, whichever site it
belongs to (docs/theory.md section 18): a site that is slow to report what was bad must not bias the others' sum. What
waits is taken by the next merge. A decision counts once, however often its log, or a copy of it, is merged, and if it
is one of the log that the others are merged into.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge as in_order
from itertools import islice

import numpy as np

from tether.agents.state_file import fingerprint
from tether.errors import InputError
from tether.live.judge import looked_up
from tether.live.log.chain import Store, entries_of
from tether.live.records import DecisionMade, OutcomeLost, OutcomeRecorded, Withheld
from tether.live.replica import settings_of
from tether.live.states import StateCodec
from tether.live.warm_start import MOST_ROWS, OldData, append_in_time, keyed_drafts
from tether.problem.action_sets import feature_of
from tether.problem.problem import Problem

END = (OutcomeRecorded.kind, OutcomeLost.kind, Withheld.kind)
"""What ends the wait for a decision's outcome."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did: decisions of each site that were read and that took effect by now, how many of all were `new`,
    how many had lost their outcome and so say nothing, and the decision that the rest waits for (empty: nothing)."""

    read: tuple[int, ...]
    used: tuple[int, ...]
    new: int
    lost: int
    waits_for: str


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """A decision in the order of all: its time, its site, its place there, its id, and how it ended, if it did."""

    time: float
    site: int
    seq: int
    id: str
    outcome: OutcomeRecorded | OutcomeLost | None


def merge(sources: Sequence[Store], into: Store, problem: Problem, states: StateCodec | None = None) -> Merged:
    """Take the outcomes of these logs into another one, as old data. All is checked before anything is written."""
    for site, store in enumerate(sources):
        _check_site(store, site, problem)
    names = [store.identity() for store in sources]
    # what that log has decided itself counts there already, and a copy of it holds the same decisions
    own = {item.id for item in decisions(into)} if into.identity() in names else set()
    sites = [[item for item in decisions(store, site) if item.id not in own] for site, store in enumerate(sources)]
    return take(sites, names, into, problem, states or StateCodec(), "merge of " + ", ".join(names))


def take(
    sites: list[list[Item]], names: list[str], into: Store, problem: Problem, states: StateCodec, source: str
) -> Merged:
    """Decisions of logs with these identities, site by site, into another log, up to the first without an outcome."""
    used, lost, waits_for, rows = [0] * len(sites), 0, "", dict[str, OldData]()
    for item in in_order(*sites):
        if item.outcome is None:
            waits_for = f"{item.id} of {names[item.site]}"
            break
        used[item.site] += 1
        if isinstance(item.outcome, OutcomeLost):
            lost += 1
            continue
        _check_feature(problem, states, item.outcome)
        key = f"merged:{names[item.site]}:{item.id}"
        seen = item.outcome
        after = None if problem.horizon == 1 else states.decode(seen.next_state)
        rows[key] = OldData(seen.feature, seen.cost, seen.reward, seen.step, states.decode(seen.state), after)
    if lost and problem.lost == "worst-case":
        raise InputError(
            f"{lost} decisions of these logs have lost their outcome, and Lost('worst-case') must count them: old data "
            "cannot say that. Merge logs without lost outcomes, or declare nothing of lost costs."
        )
    drafts, pending = [], iter(rows.items())
    while part := dict(islice(pending, MOST_ROWS)):
        drafts += keyed_drafts(into, problem, states, part, source)
    new = sum(len(each.entry.body["rows"]) for each in append_in_time(into, drafts) if each.fresh)
    return Merged(tuple(len(site) for site in sites), tuple(used), new, lost, waits_for)


def _check_site(store: Store, site: int, problem: Problem) -> None:
    """Refuse a log that is empty, or about another problem."""
    settings, here = settings_of(store), fingerprint(problem)
    if settings is None:
        raise InputError(f"log {site} ({store.identity()}) has no entries: there is nothing to merge.")
    for name, value in here.items():
        if settings.problem.get(name) != value:
            raise InputError(
                f"log {site} ({store.identity()}) is about another problem: its {name} is "
                f"{settings.problem.get(name)}, here it is {value}. Only sites with one γ* can share what they measure."
            )


def decisions(store: Store, site: int = 0) -> Iterator[Item]:
    """The decisions of one log that left, in its order, at times that never go back."""
    entries = list(entries_of(store, store.head()))
    ends = {entry.body["decision_id"]: entry for entry in reversed(entries) if entry.kind in END}
    latest = 0.0
    for entry in entries:
        if entry.kind != DecisionMade.kind:
            continue
        id, latest = entry.body["decision_id"], max(latest, entry.time)
        end = ends.get(id)
        if end is None:
            yield Item(latest, site, entry.seq, id, None)
        elif end.kind != Withheld.kind:
            kind = OutcomeRecorded if end.kind == OutcomeRecorded.kind else OutcomeLost
            yield Item(latest, site, entry.seq, id, kind.read(end))


def _check_feature(problem: Problem, states: StateCodec, seen: OutcomeRecorded) -> None:
    """Refuse a site whose φ is not this problem's: its costs would be those of other features."""
    if seen.applied is None:
        return
    actions = looked_up(problem, seen.step, states.decode(seen.state)).actions
    phi = feature_of(actions, seen.applied)
    if not np.allclose(phi, seen.feature, rtol=1e-9, atol=1e-12 * problem.feature_norm):
        raise InputError(
            f"decision {seen.decision_id!r} was logged with φ = {seen.feature}, but for its state and action this "
            f"problem says {phi.tolist()}: the site has other features, so its costs say nothing about γ* here."
        )
