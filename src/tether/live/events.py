"""What is logged: one frozen, strict model per kind of event, and the way to a `Draft` and back.

A store sees only a kind, a JSON body and keys that may occur once. Here the bodies get their names and types.
States and actions are JSON as the caller gave them; numbers are finite; a missing cost is null.
"""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, JsonValue, NonNegativeInt, ValidationError

from tether.errors import AlteredLog, InputError
from tether.live.store import Draft, Entry

EDITION = 3
"""Of the events' meaning. A log that was started with another one is refused: its entries would be misread, or its
decisions would not come out the same when they are computed again."""


class Event(BaseModel):
    """Base of all events. `kind` is the name in the log; `keys` are what may occur once in the whole log."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    kind: ClassVar[str]

    def keys(self) -> tuple[str, ...]:
        """The keys that make a repeat of this event visible; none for events that may come again."""
        return ()

    def draft(self, *also: str) -> Draft:
        """The event, ready to be appended, with further keys that may occur once."""
        return Draft(self.kind, self.model_dump(mode="json"), (*self.keys(), *also))


class DecisionMade(Event):
    """A decision left the advisor: what was proposed, what was played, and the certificate, which holds its φ (d,).

    `key` is the caller's idempotency key. In shadow mode `played` is a0 and `proposed` what would have been played;
    `proposal` is the certificate of what was proposed, where that was not played. `decided_at` is the advisor's clock,
    `certified` the share of D(s) that is certified. Where the certificate speaks of a mixture, `drawn` is φ (d,) of the
    action that was drawn from it. `safe_feature` is φ (d,) of a0, where safe costs are remembered.
    """

    kind: ClassVar[str] = "decision"

    decision_id: str
    key: str | None
    episode: str | int | None
    step: NonNegativeInt
    state: JsonValue
    mode: str
    proposed: JsonValue
    played: JsonValue
    is_baseline: bool
    reason: str
    detail: str
    certificate: dict[str, JsonValue]
    observed_at: FiniteFloat | None = None
    decided_at: FiniteFloat | None = None
    proposal: dict[str, JsonValue] | None = None
    certified: FiniteFloat | None = None
    drawn: list[FiniteFloat] | None = None
    safe_feature: list[FiniteFloat] | None = None

    def keys(self) -> tuple[str, ...]:
        """One entry per decision, and one per idempotency key. The key comes first: a repeat gets the old decision."""
        request = () if self.key is None else (request_key(self.key),)
        return (*request, decision_key(self.decision_id))


class OutcomeRecorded(Event):
    """What was seen after a decision. `feature` (d,) is φ of the action that was *applied*; `cost` (M,) or null.

    `bound` (M,) is the certificate's, if it speaks of the applied action, or of the mixture that it was `drawn` from.
    `rests_on` is the entry up to which the log was read for the decision: the certificate's `seq`. `safe_feature` (d,)
    and `safe_cost` (M,) are what was declared of a0 in this state when the decision was made: a fact to be remembered.
    """

    kind: ClassVar[str] = "outcome"

    decision_id: str
    step: NonNegativeInt
    state: JsonValue
    feature: list[FiniteFloat]
    applied: JsonValue
    reward: FiniteFloat
    cost: list[FiniteFloat] | None
    next_state: JsonValue
    bound: list[FiniteFloat] | None = None
    drawn: bool = False
    rests_on: NonNegativeInt = 0
    safe_feature: list[FiniteFloat] | None = None
    safe_cost: list[FiniteFloat] | None = None

    def keys(self) -> tuple[str, ...]:
        """Exactly one outcome per decision."""
        return (outcome_key(self.decision_id),)


class ModeChanged(Event):
    """Somebody set the mode."""

    kind: ClassVar[str] = "mode"

    mode: str
    by: str
    why: str
    criteria: dict[str, JsonValue] | None = None


class Stopped(Event):
    """Somebody threw the kill switch: a0 from here on."""

    kind: ClassVar[str] = "stopped"

    by: str
    why: str


class Resumed(Event):
    """Somebody released the kill switch."""

    kind: ClassVar[str] = "resumed"

    by: str
    why: str


class Tripped(Event):
    """A test of the assumptions, or a guard, failed: a0 from here on."""

    kind: ClassVar[str] = "tripped"

    test: str
    message: str
    number: NonNegativeInt = 0

    def keys(self) -> tuple[str, ...]:
        """Whoever sees the n-th alarm of a log first writes it down."""
        return (f"tripped:{self.number}",)


class AlarmReset(Event):
    """Somebody looked into an alarm and reset it."""

    kind: ClassVar[str] = "alarm-reset"

    by: str
    why: str


class WarmStarted(Event):
    """Data from before the log: rows of (φ, z, …), and their digest, which may occur once."""

    kind: ClassVar[str] = "warm-start"

    digest: str
    rows: list[dict[str, JsonValue]]
    source: str = ""

    def keys(self) -> tuple[str, ...]:
        """The same rows only once."""
        return (f"warm-start:{self.digest}",)


class GateRefused(Event):
    """The independent gate did not confirm a certificate, so a0 was played: both sets of numbers, and why."""

    kind: ClassVar[str] = "gate-refused"

    decision_id: str
    mine: dict[str, JsonValue]
    theirs: dict[str, JsonValue]
    why: str = ""


class Withheld(Event):
    """A logged decision did not leave: something that forbids it was logged first. The caller got a0 in its place."""

    kind: ClassVar[str] = "withheld"

    decision_id: str
    reason: str
    detail: str

    def keys(self) -> tuple[str, ...]:
        """A decision is withheld once."""
        return (withheld_key(self.decision_id),)


class Configured(Event):
    """What an advisor was started with, where that differs from the last time: all that a replay needs to know."""

    kind: ClassVar[str] = "configured"

    edition: int = EDITION
    problem: dict[str, JsonValue]
    algorithm: str
    config: dict[str, JsonValue]
    guards: dict[str, JsonValue]
    watch: bool
    library: str
    kernel: str
    numpy: str


EVENTS: dict[str, type[Event]] = {
    model.kind: model
    for model in (
        DecisionMade,
        OutcomeRecorded,
        ModeChanged,
        Stopped,
        Resumed,
        Tripped,
        AlarmReset,
        WarmStarted,
        GateRefused,
        Withheld,
        Configured,
    )
}
"""Kind -> model."""


def decision_key(decision_id: str) -> str:
    """The uniqueness key of a decision."""
    return f"decision:{decision_id}"


def request_key(key: str) -> str:
    """The uniqueness key of a caller's idempotency key."""
    return f"request:{key}"


def outcome_key(decision_id: str) -> str:
    """The uniqueness key of a decision's outcome."""
    return f"outcome:{decision_id}"


def withheld_key(decision_id: str) -> str:
    """The uniqueness key of the note that a decision did not leave."""
    return f"withheld:{decision_id}"


def event_of(entry: Entry) -> Event:
    """The event that an entry holds. An unknown kind is an InputError; a body that does not fit it, an AlteredLog."""
    model: Any = EVENTS.get(entry.kind)
    if model is None:
        raise InputError(
            f"entry {entry.seq} is of kind {entry.kind!r}, which this version of Tether does not know: the log was "
            "written by a newer one, or by other software."
        )
    try:
        event: Event = model.model_validate_json(entry.text)
    except ValidationError as error:
        raise AlteredLog(f"entry {entry.seq} is not a {entry.kind!r} event: {error}.", entry.seq) from error
    return event
