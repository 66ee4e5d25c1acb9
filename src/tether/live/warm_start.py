"""Warm start: data from before the log, checked row by row. The cost model needs only (φ, z), no propensities."""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tether.agents.agent import check_step, checked_costs, checked_feature, checked_reward
from tether.errors import InputError, TetherError
from tether.live.following import Follower
from tether.live.judge import LARGEST, checked_next, cost_limit
from tether.live.log.chain import Appended, Draft, Store, canonical, entries_of
from tether.live.policy import FAR
from tether.live.records import WHOLE, DecisionMade, Measured, WarmStarted
from tether.live.states import StateCodec, as_logged, detached, retyped
from tether.problem.problem import KnownState, Problem
from tether.records import State

MOST_ROWS = 100_000
"""Rows of one warm start: all of them are checked, and looked for in the log, before any is written."""

ROWS_PER_ENTRY = 100
"""Each row has a key of its own, and a store that finds keys taken reads the whole entry for each of them."""

KEYS_AT_ONCE = 10_000

TOO_LATE = (
    "other actions than the safe one have been decided in this log already{}, so these rows come too late, and never "
    "count. Old data count as a whole or not at all: a part of a table that is sorted by what it says is biased, and "
    "those decisions have rested on what was there. If this log holds a part of this table, stop it: its bounds may be "
    "too small. Start a new log, hand the whole table to its warm_start, and then "
    "what this log has measured: `tether merge this.db --into new.db`."
)
"""Why old data are refused once an action may have rested on a part of them."""

Duplicates = Literal["refuse", "drop", "keep", "new"]


@dataclass(frozen=True, slots=True)
class OldData:
    """Rows from before the log, by columns: features (n, d), costs (n,) or (n, M), and others of n entries, if any."""

    features: Any
    costs: Any
    rewards: Any = None
    steps: Any = None
    states: Sequence[Any] | None = None
    next_states: Sequence[Any] | None = None

    def __len__(self) -> int:
        """n, the same for every column."""
        try:
            lengths = {name: len(column) for name in COLUMNS if (column := getattr(self, name)) is not None}
        except TypeError as error:
            raise InputError(f"a warm start needs features (n, d) and costs (n,) or (n, M): {error}.") from error
        if self.costs is None:
            raise InputError("a warm start needs costs: they are what it is for.")
        count = lengths.get("features", 0)
        if not 1 <= count <= MOST_ROWS:
            raise InputError(f"a warm start has 1 to {MOST_ROWS} rows, but these are {count}: split it into several.")
        for name, length in lengths.items():
            if length != count:
                raise InputError(f"there are {count} features but {length} {name}: each row needs one of each.")
        return count

    def row(self, n: int) -> "OldData":
        """Row n of every column."""
        columns = (getattr(self, name) for name in COLUMNS)
        return OldData(*(None if column is None else column[n] for column in columns))


COLUMNS = tuple(OldData.__dataclass_fields__)


def take_old_data(follower: Follower, data: OldData, duplicates: Duplicates, source: str) -> int:
    """Write old data into the log and learn from them.

    Args:
        follower: of the log.
        data: all rows are checked before any is written.
        duplicates: what becomes of rows that are equal in every number and state, here or in the log.
        source: where the data are from, for people.

    Returns:
        How many rows were taken.

    Raises:
        InputError: a row cannot be used, or the rows come too late, or another process wrote some of them meanwhile.
    """
    follower.sync()
    learner = follower.replica.learner
    waits, ignored = bool(learner.batches), learner.ignored
    drafts = warm_start_drafts(follower.store, learner.problem, learner.states, data, duplicates, source, waits)
    if drafts and follower.replica.learner.agent.has_acted:
        raise InputError(TOO_LATE.format(""))
    appended = append_in_turn(follower.store, drafts)
    follower.sync()
    if follower.replica.learner.ignored > ignored:  # another process has decided meanwhile
        raise InputError(TOO_LATE.format(""))
    taken = sum(len(each.entry.body["rows"]) for each in appended if each.fresh)
    if not all(each.fresh for each in appended):
        raise InputError(
            f"some of these rows were written by another process at the same time (entry {appended[-1].entry.seq}):"
            f" {taken} were taken now. Call again with duplicates='drop', or 'new' where you said 'keep'."
        )
    return taken


def warm_start_drafts(
    store: Store, problem: Problem, states: StateCodec, data: OldData, duplicates: Duplicates, source: str, waits: bool
) -> list[Draft]:
    """What a warm start writes into the log, or an InputError that names the first row that cannot be used.

    `waits` says whether the log holds a warm start that was cut short.
    """
    if duplicates not in get_args(Duplicates):
        raise InputError(f"duplicates is one of {', '.join(map(repr, get_args(Duplicates)))}, not {duplicates!r}.")
    _refuse_drift(problem)
    count = len(data)
    if data.steps is None and problem.horizon > 1:
        raise InputError(f"with H = {problem.horizon} each row needs its step: pass steps (n,).")
    rows = []
    for n in range(count):
        try:
            rows.append(_row(problem, states, data.row(n)))
        except TetherError as error:
            raise InputError(f"row {n} of the warm start cannot be used: {error}") from error
    if duplicates == "drop" and (any(problem.bounded) or _yes_or_no(rows)):
        raise InputError(
            "duplicates='drop' counts equal rows once, but where costs are yes or no they are separate measurements: "
            "27 accidents in 30 trials of one setting would count as one in two. Pass duplicates='keep', or 'new' to "
            "take of a table what the log does not hold yet."
        )
    return _drafts(store, _keyed(_without_duplicates(rows, duplicates)), duplicates, source, waits)


def _yes_or_no(rows: list[Measured]) -> bool:
    """Whether some cost was 0 or 1 whenever it was measured, and both occur: declared with σ = ½, say."""
    measured = [row.cost for row in rows if row.cost is not None]
    return any(set(column) == {0.0, 1.0} for column in zip(*measured, strict=True))


def keyed_drafts(
    store: Store, problem: Problem, states: StateCodec, data: dict[str, OldData], source: str
) -> list[Draft]:
    """The same for single rows that have names of their own; those whose name the log holds are skipped."""
    _refuse_drift(problem)
    return _drafts(store, {key: _row(problem, states, row) for key, row in data.items()}, "new", source, waits=True)


def _refuse_drift(problem: Problem) -> None:
    if any(problem.drift):
        raise InputError(
            f"with drift = {max(problem.drift):g} an outcome says less the older it is, and rows of old data do not "
            "say how many decisions ago they were: they cannot be used. Start without them."
        )


def append_in_time(store: Store, drafts: Sequence[Draft]) -> list[Appended]:
    """`append_in_turn`, unless a decision of the log acts before the last of them: they would never count."""
    if not drafts:
        return []
    _check_in_time(store, math.inf)
    appended = append_in_turn(store, drafts)
    _check_in_time(store, appended[-1].entry.seq)
    return appended


def _check_in_time(store: Store, before: float) -> None:
    """Refuse a log in which a decision acts before this entry."""
    for entry in entries_of(store, store.head()):
        if entry.seq >= before:
            return
        if entry.kind == DecisionMade.kind and DecisionMade.read(entry).acts:
            raise InputError(TOO_LATE.format(f" (entry {entry.seq})"))


def append_in_turn(store: Store, drafts: Sequence[Draft]) -> list[Appended]:
    """Write one entry after the other, and stop at the first whose rows somebody else wrote since they were looked for.

    Decisions get their turn in between, and see nothing of it before the last: half a table, sorted by what it says,
    would be biased (docs/theory.md section 18). What was written before a failure is found by its keys the next time.
    """
    appended: list[Appended] = []
    for draft in drafts:
        appended += store.append([draft])
        if not appended[-1].fresh:
            break
    return appended


def _row(problem: Problem, states: StateCodec, row: OldData) -> Measured:
    """One row as the log holds it, checked."""
    step = 0 if row.steps is None else row.steps
    check_step(step, problem.horizon)
    x = checked_feature(row.features, problem)
    z = checked_costs(row.costs, problem, needed=False)
    reward = None if row.rewards is None else checked_reward(row.rewards)
    if z is None and reward is None:
        raise InputError("it has neither a cost nor a reward, so it says nothing.")
    if reward is not None and abs(reward) > LARGEST:
        raise InputError(f"its reward {reward:g} is beyond ±{LARGEST:g}, whose square overflows: leave the row out.")
    if z is not None:
        limit = cost_limit(problem, x)
        if not (np.abs(z) <= limit).all():
            raise InputError(
                f"its cost is {z.tolist()}, but with ‖γ*‖ <= B and noise σ it stays within ±{limit.tolist()} "
                f"(B‖φ‖ + {FAR:g}σ). Is it in another unit? Else raise gamma_norm or noise."
            )
    if row.states is None and problem.baseline_cost is None and reward is not None:
        raise InputError("the cost of the safe action is unknown here, so rows with rewards need their states.")
    seen, after = row.states, row.next_states
    is_used = reward is not None  # without a reward nothing is learned of states: they are logged, and never read
    logged, known = _checked_seen(problem, states, seen) if is_used else (detached(states.encode(seen)), None)
    safe_feature = safe_cost = None  # what is declared of a_0 in the row's state: a fact to be remembered
    if known is not None and np.isfinite(known.baseline_cost[step]).all():
        safe_feature, safe_cost = tuple(known.actions.phi_0.tolist()), tuple(known.baseline_cost[step].tolist())
    return Measured(  # + 0.0: a zero is a zero, however it is signed, or one row would count as two
        step=int(step),
        state=logged,
        feature=tuple((x + 0.0).tolist()),
        reward=None if reward is None else reward + 0.0,
        cost=None if z is None else tuple((z + 0.0).tolist()),
        next_state=checked_next(problem, states, after, is_lean=True) if is_used else detached(states.encode(after)),
        safe_feature=safe_feature,
        safe_cost=safe_cost,
    )


def _checked_seen(problem: Problem, states: StateCodec, state: State) -> tuple[Any, KnownState | None]:
    """A state as the log will hold it, and what is known of it; refused now if the learner could not use it later."""
    logged, again = as_logged(states, state)
    known = None
    try:
        problem.key_of(again)  # also of None: the learner asks for it
        if state is not None:
            known = problem.look_up(again)
    except Exception as error:  # the problem's functions are the caller's
        if state is None:
            raise InputError(f"rows with rewards need their states here, so pass seen_states: {error}.") from error
        raise InputError(
            f"state {state!r:.120} is not one that this problem knows: {error}.{retyped(state, again)}"
        ) from error
    return logged, known


def _without_duplicates(rows: list[Measured], duplicates: Duplicates) -> list[Measured]:
    if duplicates in ("keep", "new"):
        return rows
    texts = [_measured(row) for row in rows]
    repeated = {text: times for text, times in Counter(texts).items() if times > 1}
    if not repeated:
        return rows
    if duplicates == "refuse":
        first = next(n for n, text in enumerate(texts) if text in repeated)
        again = texts.index(texts[first], first + 1)
        raise InputError(
            f"rows {first} and {again} of the warm start are equal in every number, and {len(repeated)} rows occur "
            "more than once: counting a measurement twice makes bounds too small. Pass duplicates='drop' to count each "
            "once, or duplicates='keep' if equal rows are separate measurements (costs of 0 or 1, say)."
        )
    return list(dict(zip(texts, rows, strict=True)).values())


def _keyed(rows: list[Measured]) -> dict[str, Measured]:
    """Key -> row. A key is a digest of the row, and the number of equal ones before it: each occurs once in a log."""
    keyed: dict[str, Measured] = {}
    before = Counter[str]()
    for row in rows:
        digest = _digest(_measured(row))
        keyed[f"warm-row:{digest}:{before[digest]}"] = row
        before[digest] += 1
    return keyed


def _known(store: Store, keyed: dict[str, Measured], duplicates: Duplicates) -> set[str]:
    """Keys of rows that a warm start of this log brought in before; where they may not be skipped, they are refused."""
    keys, known = list(keyed), dict[str, int]()
    for first in range(0, len(keys), KEYS_AT_ONCE):
        known |= store.places(keys[first : first + KEYS_AT_ONCE])
    if known and duplicates in ("refuse", "keep"):
        others = "drop" if duplicates == "refuse" else "new"
        raise InputError(
            f"{len(known)} of these {len(keyed)} rows are in the log already (the first in entry "
            f"{min(known.values())}): counting a measurement twice makes bounds too small. Pass "
            f"duplicates={others!r} to take the others only."
        )
    return set(known)


def _cut_short(store: Store, keyed: dict[str, Measured], batch: str) -> tuple[str, ...]:
    """Batches of the log that wait for the rest of their rows, and of which this one holds all that wait.

    A call that was cut short, and was not made again as it was, leaves rows that are in the log and have no effect. To
    skip them as known would leave out the first rows of a table, and it may be sorted by what it says.
    """
    waiting: dict[str, set[str]] = {}
    for entry in entries_of(store, store.head()):
        if entry.kind == WarmStarted.kind:
            part = entry.body
            waiting.setdefault(part["batch"], set()).update(entry.unique)
            if part["last"]:
                for done in (part["batch"], *part.get("completes", ())):
                    waiting.pop(done, None)
    found = []
    for name, unique in waiting.items():
        rows = {key for key in unique if not key.startswith(WHOLE)}
        if name != batch and not rows.isdisjoint(keyed):
            if not rows <= keyed.keys():
                raise InputError(
                    f"{len(rows & keyed.keys())} of these rows wait in the log for the rest of a warm start that was "
                    f"cut short, and {len(rows - keyed.keys())} that wait there are not among these. Half a table may "
                    "be biased: hand in that table again, as it was or with more rows."
                )
            found.append(name)
    return tuple(found)


def _measured(row: Measured) -> str:
    """What makes a row this row: all but what was declared of a_0, which may change for the same measurement, and but
    for how its states are spelled: another export of the same table says "1", 1.0 or −0.0."""
    fields = row.model_dump(mode="json", exclude={"safe_feature", "safe_cost"})
    return canonical(fields | {name: plainly_spelled(fields[name]) for name in ("state", "next_state")})


def plainly_spelled(state: Any) -> Any:
    """A state in which equal numbers are written alike, also within strings."""
    if isinstance(state, list):
        return [plainly_spelled(part) for part in state]
    if isinstance(state, dict):
        return {name: plainly_spelled(part) for name, part in state.items()}
    if isinstance(state, str):
        with suppress(ValueError):
            number = float(state)
            state = number if math.isfinite(number) else state
    return int(state) if isinstance(state, float) and state.is_integer() else state


def _drafts(store: Store, keyed: dict[str, Measured], duplicates: Duplicates, source: str, waits: bool) -> list[Draft]:
    """Rows that the log does not hold, in entries of a readable size.

    A batch is named by all rows that were handed in, so that a call that was cut short and is made again completes what
    it began; one with more rows completes that, too.
    """
    known, batch = _known(store, keyed, duplicates), _digest(canonical(list(keyed)))
    completes = _cut_short(store, keyed, batch) if known and waits else ()
    keys, drafts = [key for key in keyed if key not in known], []
    for first in range(0, max(len(keys), bool(completes)), ROWS_PER_ENTRY):
        part, last = keys[first : first + ROWS_PER_ENTRY], first + ROWS_PER_ENTRY >= len(keys)
        rows, also = [keyed[key] for key in part], completes if last else ()
        digest = _digest(canonical(part or [batch, *completes]))
        event = WarmStarted(digest=digest, rows=rows, source=source, batch=batch, last=last, completes=also)
        drafts.append(event.draft(*part))
    return drafts


def _digest(text: str) -> str:
    """Half of SHA-256, in hex: there are as many keys as rows, and 128 bits tell them apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
