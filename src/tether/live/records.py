"""Records: one frozen, strict type for each kind of entry of the log, and the keys that may occur once."""

import os
import time
from typing import Any, ClassVar, Literal

from pydantic import Field, FiniteFloat, JsonValue, NonNegativeInt

from tether.errors import InputError
from tether.live.canary import Canary
from tether.live.certificate import Certificate, Vector
from tether.live.event import Event
from tether.live.log.chain import Entry
from tether.live.policy import Mode
from tether.problem.limit_on import LimitOn, is_average
from tether.records import Action


def new_id() -> str:
    """Return a random id, 32 hex digits, that begins with the time in milliseconds.

    Ids of one hour are then neighbours in a database's index, which writes a few pages over and over, and not a
    different one for each. A clock that jumps costs that order, and nothing else: 80 bits are random.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


Algorithm = Literal["slucb-qvi", "rslucb-qvi"]


def algorithm_for(limit_on: LimitOn) -> Algorithm:
    """Return the algorithm that keeps to a limit on single actions, or on the average over draws."""
    return "rslucb-qvi" if is_average(limit_on) else "slucb-qvi"


def limit_of(algorithm: Algorithm) -> LimitOn:
    """Say what the limit of an algorithm is on."""
    return "average over draws" if algorithm == "rslucb-qvi" else "single actions"


EDITION = 7
"""Of the events' meaning. A log that was started with another one is refused: its entries would be misread, or its
decisions would not come out the same when they are computed again."""


class DecisionMade(Event):
    """The record of a decision: what was asked, proposed and played, and the certificate, which holds its φ (d,).

    It is built where it is judged, stored by the log, computed again by the audit, and shown by the API, the export and
    the dashboard.

    Attributes:
        decision_id: its name, unique in the log.
        key: the idempotency key; it belongs to the `caller`.
        episode: as it was given.
        step: h, from 0.
        state: as JSON.
        mode: of the log, when it was judged.
        proposed: what the learner wanted.
        played: what is handed out; in shadow mode a0.
        is_baseline: whether that is a0.
        reason: why, in a word.
        detail: the same in a sentence.
        certificate: of what was played.
        observed_at: when the state was observed, if that was said.
        decided_at: the advisor's clock.
        proposal: the certificate of what was proposed, where that was not played.
        certified: the share of D(s) that is certified; None where nobody looked (`judge.LOOK_EVERY`).
        drawn: φ (d,) of the action that was drawn, where the certificate speaks of a mixture.
        safe_feature: φ (d,) of a0, where safe costs are remembered.
        canary: how it was drawn between the proposal and a0, if it was.
        sketch: a number made of all that the problem says of the state (`binding.sketch`); None where nobody looked
            (`judge.SKETCH_EVERY`).
        caller: who asked, if that is known.
        under_way: how many decisions other than a0 were made before this one and not in the log yet, for the guard on
            their rate.
    """

    kind: ClassVar[str] = "decision"

    decision_id: str
    key: str | None
    episode: str | int | None
    step: NonNegativeInt
    state: JsonValue
    mode: str
    proposed: Action
    played: Action
    is_baseline: bool
    reason: str
    detail: str
    certificate: Certificate
    observed_at: FiniteFloat | None = None
    decided_at: FiniteFloat | None = None
    proposal: Certificate | None = None
    certified: FiniteFloat | None = None
    drawn: Vector | None = None
    safe_feature: Vector | None = None
    canary: Canary | None = None
    sketch: FiniteFloat | None = None
    caller: str | None = None
    under_way: NonNegativeInt = 0

    def keys(self) -> tuple[str, ...]:
        """One entry per decision, and one per idempotency key. The key comes first: a repeat gets the old decision."""
        request = () if self.key is None else (request_key(self.key, self.caller),)
        return (*request, decision_key(self.decision_id))

    @property
    def feature(self) -> tuple[float, ...]:
        """φ of the action (d,); the certificate's own is a mean, if the action was drawn from a mixture."""
        return self.certificate.feature if self.drawn is None else self.drawn

    @property
    def acts(self) -> bool:
        """Whether what was learned may matter for what is played: the safe action rests on its declaration alone."""
        return not self.is_baseline or self.drawn is not None


class Measured(Event):
    """What was learned from: `feature` (d,) is φ of the action that was *applied*, `cost` is (M,) or None.

    `safe_feature` (d,) and `safe_cost` (M,) are what was declared of a0 in this state: a fact to be remembered.
    """

    step: NonNegativeInt
    state: JsonValue
    feature: Vector
    reward: FiniteFloat | None
    cost: Vector | None
    next_state: JsonValue
    safe_feature: Vector | None = None
    safe_cost: Vector | None = None


class OutcomeRecorded(Measured):
    """What was seen after a decision.

    `bound` (M,) is the certificate's, if it speaks of the applied action, or of the mixture that it was `drawn` from.
    `rests_on` is the entry up to which the log was read for the decision: the certificate's `seq`.
    """

    kind: ClassVar[str] = "outcome"

    decision_id: str
    reward: FiniteFloat
    applied: Action | None
    bound: Vector | None = None
    drawn: bool = False
    rests_on: NonNegativeInt = 0

    def keys(self) -> tuple[str, ...]:
        """Exactly one outcome per decision."""
        return (outcome_key(self.decision_id),)


class OutcomeLost(Event):
    """The outcome of a decision will never come: what was seen after later decisions no longer waits for it."""

    kind: ClassVar[str] = "lost"

    decision_id: str
    by: str
    why: str

    def keys(self) -> tuple[str, ...]:
        """A decision has an outcome, or has lost it."""
        return (outcome_key(self.decision_id),)


WHOLE = "warm-start:"
"""How the key of an entry of a warm start begins; its rows have keys of their own."""


class WarmStarted(Event):
    """Data from before the log, and their digest, which may occur once. A row without a reward teaches the cost.

    A warm start is several entries with the same `batch`; its rows take effect together, at the one that is `last`, and
    with them those of batches that were cut short, which it `completes`.
    """

    kind: ClassVar[str] = "warm-start"

    digest: str
    rows: list[Measured]
    source: str = ""
    batch: str = ""
    last: bool = True
    completes: tuple[str, ...] = ()

    def keys(self) -> tuple[str, ...]:
        """The same rows only once."""
        return (f"{WHOLE}{self.digest}",)


class Order(Event):
    """What people ordered, by whom and why. Orders are numbered: one is written only if no other came in between."""

    by: str
    why: str


def who_or_why(text: str) -> str:
    """Return `by` or `why` of an order, which must say something: the log is read by people."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"`by` and `why` must say something, but one is {text!r}: the log is read by people.")
    return text


class ModeChanged(Order):
    """Somebody set the mode."""

    kind: ClassVar[str] = "mode"

    mode: Mode
    criteria: dict[str, JsonValue] | None = None


class Stopped(Order):
    """Somebody threw the kill switch: a0 from here on. `id` makes a retry of the same order harmless."""

    kind: ClassVar[str] = "stopped"

    id: str = ""

    def keys(self) -> tuple[str, ...]:
        """The same order once."""
        return (f"stop:{self.id}",) if self.id else ()


class Resumed(Order):
    """Somebody released the kill switch."""

    kind: ClassVar[str] = "resumed"


class AlarmReset(Order):
    """Somebody looked into an alarm and reset it."""

    kind: ClassVar[str] = "alarm-reset"


class Tripped(Event):
    """A test of the assumptions, or a guard, failed: a0 from here on."""

    kind: ClassVar[str] = "tripped"

    test: str
    message: str
    number: NonNegativeInt = 0

    def keys(self) -> tuple[str, ...]:
        """One entry for the n-th alarm of a log, by the process that sees it first."""
        return (f"tripped:{self.number}",)


class GateRefused(Event):
    """The independent gate did not confirm a certificate, so a0 was played: both sets of numbers, and why."""

    kind: ClassVar[str] = "gate-refused"

    decision_id: str
    mine: dict[str, JsonValue]
    theirs: dict[str, JsonValue]
    why: str = ""


class Withheld(Event):
    """A logged decision did not leave: something that forbids it was logged first. The caller got a0 in its place.

    `is_baseline` if it was a0 itself, as the canary had drawn: it leaves only where the proposal would have.
    """

    kind: ClassVar[str] = "withheld"

    decision_id: str
    reason: str
    detail: str
    is_baseline: bool = False

    def keys(self) -> tuple[str, ...]:
        """A decision is withheld once."""
        return (withheld_key(self.decision_id),)


class Archived(Event):
    """Entries up to `last`, whose hash is `hash`, are in the archive's `files` (name -> SHA-256 of its bytes).

    `state` is the SHA-256 of the snapshot after entry `checkpoint`, from which a restart goes on: learner, gate and
    ledger, as `library` writes them, but for the names of the software (`replica.checkpoint_of`). `signature` is the
    HMAC of all this (`archive.signature`), empty without a key.
    """

    kind: ClassVar[str] = "archived"

    last: NonNegativeInt
    hash: str
    files: dict[str, str]
    checkpoint: NonNegativeInt
    state: str
    library: str
    signature: str = ""

    def keys(self) -> tuple[str, ...]:
        """A prefix is archived once."""
        return (f"archived:{self.last}",)


class Configured(Event):
    """What an advisor was started with, where that differs from the last time: all that a replay needs to know.

    `listed` holds a sketch of each of some listed states (`binding.listed_sketches`).
    """

    kind: ClassVar[str] = "configured"

    edition: int = EDITION
    problem: dict[str, JsonValue]
    algorithm: Algorithm
    config: dict[str, Any]
    guards: dict[str, JsonValue]
    watch: bool
    listed: list[FiniteFloat] = Field(default_factory=list)
    library: str
    kernel: str
    numpy: str


EVENTS: dict[str, type[Event]] = {
    model.kind: model
    for model in (
        DecisionMade,
        OutcomeRecorded,
        OutcomeLost,
        ModeChanged,
        Stopped,
        Resumed,
        Tripped,
        AlarmReset,
        WarmStarted,
        GateRefused,
        Withheld,
        Archived,
        Configured,
    )
}
"""Kind -> model."""


def decision_key(decision_id: str) -> str:
    """Return the key of a decision, which may occur once."""
    return f"decision:{decision_id}"


def request_key(key: str, caller: str | None = None) -> str:
    """Return the key of a caller's idempotency key: another caller's is another, whose decision is not this one's.

    The names of callers have no line breaks.
    """
    return f"request:{key}" if caller is None else f"request:{caller}\n{key}"


def outcome_key(decision_id: str) -> str:
    """Return the key of a decision's outcome, which may occur once."""
    return f"outcome:{decision_id}"


def withheld_key(decision_id: str) -> str:
    """Return the key of the note that a decision did not leave, which may occur once."""
    return f"withheld:{decision_id}"


def event_of(entry: Entry) -> Event:
    """Return the event that an entry holds.

    Raises:
        InputError: its kind is unknown.
    """
    if entry.kind not in EVENTS:
        raise InputError(
            f"entry {entry.seq} is of kind {entry.kind!r}, which this version of Tether does not know: the log was "
            "written by a newer one, or by other software."
        )
    return EVENTS[entry.kind].read(entry)
