"""What crosses the log: states as JSON, certificates, one typed record per kind of entry, and what is handed out."""

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    NonNegativeInt,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from tether import __version__
from tether.errors import AlteredLog, InputError, TetherError
from tether.kernels.compiled import KERNEL
from tether.live.canary import Canary
from tether.live.log.chain import Draft, Entry, canonical, is_finite, text_of
from tether.live.policy import Mode
from tether.live.uplift import UpliftStatus
from tether.problem.limit_on import LimitOn, is_average
from tether.problem.problem import Problem
from tether.records import Action, CostBound, Drift, Origin, Proof, Radius, State


def new_id() -> str:
    """A random id, 32 hex digits, that begins with the time in milliseconds.

    Ids of one hour are then neighbours in a database's index, which writes a few pages over and over, and not a
    different one for each. A clock that jumps costs that order, and nothing else: 80 bits are random.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


# States as JSON and back: what the log holds must be enough to decide again.

_TAGS = ("tuple", "bytes", "array", "dict")


DEEPEST = 64
"""How deep lists, tuples and dicts may lie in each other: what reads them back goes down step by step, too."""


def encode_state(state: State, depth: int = 0) -> Any:
    """A state as JSON: numbers, strings and lists as they are; tuples, bytes, dicts and arrays tagged."""
    if depth > DEEPEST:
        raise InputError(f"a state nests lists, tuples or dicts more than {DEEPEST} deep: it cannot be logged.")
    if isinstance(state, np.generic):
        state = state.item()
    if state is None or isinstance(state, bool | int | str):
        return state
    if isinstance(state, float):
        if not math.isfinite(state):
            raise InputError(f"a state holds {state}: nothing can be decided from numbers that are not finite.")
        return state
    if isinstance(state, list):
        return [encode_state(entry, depth + 1) for entry in state]
    if isinstance(state, tuple):
        return {"tuple": [encode_state(entry, depth + 1) for entry in state]}
    if isinstance(state, bytes):
        return {"bytes": state.hex()}
    if isinstance(state, dict) and all(isinstance(name, str) for name in state):
        return {"dict": {name: encode_state(entry, depth + 1) for name, entry in state.items()}}
    if isinstance(state, np.ndarray) and state.dtype.kind in "biuf":
        if not np.isfinite(state).all():
            raise InputError("a state holds numbers that are not finite: nothing can be decided from them.")
        whole = np.ascontiguousarray(state)
        return {"array": [whole.dtype.str, list(state.shape), whole.tobytes().hex()]}
    raise InputError(
        f"state {state!r:.80} of type {type(state).__name__} cannot be logged: use numbers, strings, lists, tuples, "
        "dicts or arrays, or pass states=StateCodec(encode, decode) to the Advisor."
    )


def decode_state(value: Any) -> State:
    """The reverse of `encode_state`."""
    if isinstance(value, list):
        return [decode_state(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(decode_state(entry) for entry in content)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag == "dict":
        return {name: decode_state(entry) for name, entry in content.items()}
    if tag == "array":
        kind, shape, data = content
        return np.frombuffer(bytes.fromhex(data), dtype=np.dtype(kind)).reshape(shape).copy()
    raise InputError(f"a logged state has the tag {tag!r}, but only {', '.join(_TAGS)} are known.")


@dataclass(frozen=True)
class StateCodec:
    """How states become JSON and come back. The two must be each other's reverse, or a replay decides otherwise."""

    encode: Callable[[State], Any] = encode_state
    decode: Callable[[Any], State] = decode_state


PLAIN = frozenset({int, float, str, bool, NoneType})
"""Types that JSON gives back as they are and that nobody can change."""


def _is_scalar(value: Any) -> bool:
    """Whether every JSON library reads this back as it was written: an integer must fit into 64 bits."""
    return type(value) in PLAIN and (type(value) is not int or -(2**63) <= value < 2**63)


def detached(value: Any) -> Any:
    """A copy of some JSON as the log gives it back: no part of it is the caller's, or of a type that JSON lacks."""
    return value if _is_scalar(value) else json.loads(text_of(value))


def as_logged(states: StateCodec, state: State) -> tuple[Any, State]:
    """A state as the log will hold it, and as a replay will read it: what must be checked, and decided on."""
    if states.encode is encode_state and states.decode is decode_state and _is_scalar(state):
        return encode_state(state), state
    try:
        logged = detached(states.encode(state))
        # what a codec of the caller's hands back may be the very dict that it was given; `decode_state` makes its own
        return logged, states.decode(logged if states.decode is decode_state else detached(logged))
    except TetherError:
        raise
    except Exception as error:  # a codec is the caller's
        raise InputError(
            f"state {state!r:.120} cannot be logged and read back: {said_of(error)}. The two functions "
            "of states=StateCodec(encode, decode) must take every state, also None where nothing follows."
        ) from error


def said_of(error: Exception) -> str:
    """An error in the problem's functions, or in the learner, as callers see it: Tether's own words, or its type alone,
    as its text may hold what they should not read. The cause of the error, and the program's log, have it."""
    if isinstance(error, TetherError):
        return str(error)
    return f"{type(error).__name__}, whose text is in the program's own log only"


def retyped(state: State, again: State) -> str:
    """The way out, if some part of a state comes back from the log as another type; empty if none does."""
    if type(state) is not type(again):
        return (
            f" The log turns {type(state).__name__} into {type(again).__name__}: pass states=StateCodec(encode, "
            "decode) to the Advisor, so that it comes back as it was."
        )
    pairs: Iterable[tuple[State, State]] = ()
    if isinstance(state, list | tuple):
        pairs = zip(state, again, strict=False)
    elif isinstance(state, dict):
        pairs = ((entry, again.get(name)) for name, entry in state.items())
    return next(filter(None, (retyped(*pair) for pair in pairs)), "")


# Certificates: everything that somebody needs who asks, later, why an action was thought safe.


def _written(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _read(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_read), PlainSerializer(_written)]
"""A float; in JSON, which has no infinities and no NaN, those are strings."""

Vector = Annotated[tuple[FiniteFloat, ...], Field(strict=False)]
"""Numbers (d,) or (M,); in JSON a list."""

STRICT = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants")
"""Nothing is taken for something else. A NaN that should not be is written as one, which `Draft` refuses."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The evidence for one constraint: cost <= bound <= threshold, with this radius; `margin` is threshold − bound.

    `bounds` says what is bounded ("cost", "expected cost" or "realised cost"), `gate_bound` is what the independent
    gate computed (None for the safe action, which needs no data), `baseline_cost` is τ_h(s), None if unknown. `facts`
    is how many remembered safe costs the bound rests on, beside that of the state itself; `misfit` the ε by which
    costs were declared to differ from linear ones; `drift` what it rests on where they were declared to drift; `lost`
    how many costs were never measured, `lost_as` what they count as. A bound on the "realised cost" holds with
    probability 1 − `exceedance`. `kind` says how it was proven: by the radius, or (costs in [0, 1]) by a likelihood
    ratio; the radius has then only steered the choice. `listed` is how many listed actions are taken to cost between 0
    and 1, played or not; 0 where the bound does not rest on that (or is of a log from before it was said). If the
    action was drawn, `own_bound` is the gate's bound on its cost by itself, which may lie over τ; else it is None.
    """

    __pydantic_config__ = STRICT

    bound: Number
    threshold: Number
    margin: Number
    radius: Number
    origin: Origin
    baseline_cost: Number | None
    bounds: str = "cost"
    gate_bound: Number | None = None
    facts: int = 0
    misfit: Number = 0.0
    exceedance: Number = 0.0
    lost: int = 0
    lost_as: str = "at-random"
    kind: Proof = "radius"
    drift: Drift | None = None
    listed: int = 0
    own_bound: Number | None = None

    @classmethod
    def of(cls, evidence: CostBound, gate_bound: float | None = None, own_bound: float | None = None) -> Self:
        """The evidence of an agent's Decision, with the gate's own bound."""
        known = None if math.isnan(evidence.baseline_cost) else evidence.baseline_cost
        radius = evidence.radius
        return cls(
            evidence.bound, evidence.threshold, evidence.margin, radius.value, radius.origin, known, evidence.bounds,
            gate_bound, evidence.facts, evidence.misfit, evidence.exceedance, evidence.lost, evidence.lost_as,
            evidence.kind, evidence.drift, evidence.listed, own_bound,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why an action may be played: φ (d,), a bound per constraint, and what the bounds rest on.

    If the action was drawn, `mixture` holds (candidate, probability) of all that could have been but a_0, which has the
    rest; φ is then the mean over it, and the bounds are on the expected cost.

    `seq` and `head` name the entry of the log up to which outcomes were used, `data_version` counts those outcomes,
    `model_hash` is a hash of the numbers that the decision was computed from.
    """

    __pydantic_config__ = STRICT

    feature: Vector
    limits: Annotated[tuple[Limit, ...], Field(strict=False)]
    is_baseline: bool
    reason: str
    detail: str
    data_version: int
    seq: int
    head: str
    model_hash: str
    mixture: Annotated[tuple[tuple[int, float], ...], Field(strict=False)] | None = None
    kernel: str = KERNEL
    library: str = __version__
    numpy: str = np.__version__

    @property
    def tightest(self) -> Limit:
        """The constraint with the smallest margin."""
        return min(self.limits, key=lambda limit: limit.margin)

    @property
    def margin(self) -> float:
        """τ − bound of the tightest constraint."""
        return self.tightest.margin

    @property
    def is_over_by_itself(self) -> bool:
        """Whether the action was drawn, and its own bound is over τ: only the average is under it."""
        return any(limit.own_bound is not None and limit.own_bound > limit.threshold for limit in self.limits)

    @property
    def is_theorem(self) -> bool:
        """Whether every radius is the theorem's; a tuned one forfeits the guarantee."""
        return all(limit.origin == "theorem" for limit in self.limits)

    @property
    def holds(self) -> bool:
        """Whether this justifies its action: a_0(s), or finite bounds under τ that the gate confirmed."""
        if self.reason == "gate-refused":
            return self.is_baseline
        return self.is_baseline or all(
            limit.gate_bound is not None
            and math.isfinite(limit.bound)
            and math.isfinite(limit.gate_bound)
            and limit.bound <= limit.threshold
            for limit in self.limits
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON. Numbers that are not finite become strings, as JSON has none."""
        value: dict[str, Any] = _CERTIFICATE.dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Certificate":
        """The reverse of `to_json`."""
        return _CERTIFICATE.validate_json(canonical(value))


_CERTIFICATE = TypeAdapter(Certificate)


def baseline_limits(problem: Problem, baseline_cost: Any, radii: tuple[Radius, ...]) -> tuple[Limit, ...]:
    """The evidence for a_0(s): its declared cost τ_h(s) (M,), or, where that is unknown, that it was declared safe.

    Where the cost is known up to an error bar, a_0 costs at most the upper end of it, and at most τ.
    """
    realised, shown = problem.limit == "realised", []
    for j, (cost, radius) in enumerate(zip(map(float, baseline_cost), radii, strict=True)):
        tau, most = problem.threshold[j], cost + problem.baseline_cost_error[j] + float(problem.reserve[j])
        evidence = CostBound(tau if math.isnan(cost) else min(most, max(cost, tau)), tau, radius, cost)
        evidence = replace(evidence, misfit=problem.misfit[j], kind="likelihood" if problem.bounded[j] else "radius")
        if realised:
            evidence = replace(evidence, bounds="realised cost", exceedance=problem.exceedance)
        shown.append(Limit.of(evidence))
    return tuple(shown)


# What is logged: one frozen, strict record per kind of entry.

Algorithm = Literal["slucb-qvi", "rslucb-qvi"]


def algorithm_for(limit_on: LimitOn) -> Algorithm:
    """The algorithm that keeps to a limit on single actions, or on the average over draws."""
    return "rslucb-qvi" if is_average(limit_on) else "slucb-qvi"


def limit_of(algorithm: Algorithm) -> LimitOn:
    """What the limit of an algorithm is on."""
    return "average over draws" if algorithm == "rslucb-qvi" else "single actions"


EDITION = 6
"""Of the events' meaning. A log that was started with another one is refused: its entries would be misread, or its
decisions would not come out the same when they are computed again."""


class Event(BaseModel):
    """Base of all events. `kind` is the name in the log; `keys` are what may occur once in the whole log."""

    model_config = ConfigDict(frozen=True, **STRICT)

    kind: ClassVar[str]

    def keys(self) -> tuple[str, ...]:
        """The keys that make a repeat of this event visible; none for events that may come again."""
        return ()

    def draft(self, *also: str) -> Draft:
        """The event, ready to be appended, with further keys that may occur once."""
        return Draft(self.kind, self._text(), (*self.keys(), *also))

    @classmethod
    def trusted(cls, values: dict[str, Any]) -> Self:
        """The event with these fields, all of them, unchecked: for what was computed here. Readers check it."""
        event, put = cls.__new__(cls), object.__setattr__
        put(event, "__dict__", values)
        put(event, "__pydantic_fields_set__", _names_of(cls))
        put(event, "__pydantic_extra__", None)
        put(event, "__pydantic_private__", None)
        return event

    @classmethod
    def read(cls, entry: Entry) -> Self:
        """The event of this kind that an entry holds. A body that does not fit it is an AlteredLog."""
        try:
            if "\\ud" in entry.text:  # half a surrogate pair, perhaps, which only Python reads
                return cls.model_validate(entry.body, strict=False)
            return cls.model_validate_json(entry.text)
        except ValidationError as error:
            raise AlteredLog(f"entry {entry.seq} is not a {cls.kind!r} event: {error}.", entry.seq) from error

    def _text(self) -> str:
        """The fields as JSON, in their order. What pydantic cannot write (half a surrogate pair), or what must not be
        written (a NaN), goes the slow way, which tells them apart."""
        try:
            text = self.__pydantic_serializer__.to_json(self).decode()
        except ValueError:
            return text_of(self.model_dump(mode="json"))
        return text if is_finite(text) else text_of(json.loads(text))


@cache
def _names_of(model: type[Event]) -> set[str]:
    """Names of its fields, one set for all events of a kind: nothing changes it, and a copy gets its own."""
    return set(model.model_fields)


class DecisionMade(Event):
    """The record of a decision: what was asked, proposed and played, and the certificate, which holds its φ (d,).

    Built where it is judged, stored by the log, computed again by the audit, shown by the API, the export and the
    dashboard. `key` is the idempotency key, which belongs to its `caller`. In shadow mode `played` is a0 and `proposed`
    what would have been played; `proposal` is the certificate of what was proposed, where that was not played.
    `decided_at` is the advisor's clock, `certified` the share of D(s) that is certified and `sketch` a number made of
    all that the problem says of the state (`binding.sketch`), both None where nobody looked (`judge.LOOK_EVERY`,
    `judge.SKETCH_EVERY`). Where the certificate speaks of a mixture, `drawn` is φ (d,) of the action that was drawn
    from it. `safe_feature` is φ (d,) of a0, where safe costs are remembered. `under_way` is how many decisions other
    than a0 were made before this one and not in the log yet, for the guard on their rate. `canary` is how it was drawn
    between the proposal and a0, if it was.
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
    listed: list[FiniteFloat] = []
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
    """The uniqueness key of a decision."""
    return f"decision:{decision_id}"


def request_key(key: str, caller: str | None = None) -> str:
    """The uniqueness key of a caller's idempotency key: another caller's is another, whose decision is not this one's.
    The names of callers have no line breaks."""
    return f"request:{key}" if caller is None else f"request:{caller}\n{key}"


def outcome_key(decision_id: str) -> str:
    """The uniqueness key of a decision's outcome."""
    return f"outcome:{decision_id}"


def withheld_key(decision_id: str) -> str:
    """The uniqueness key of the note that a decision did not leave."""
    return f"withheld:{decision_id}"


def event_of(entry: Entry) -> Event:
    """The event that an entry holds. An unknown kind is an InputError."""
    if entry.kind not in EVENTS:
        raise InputError(
            f"entry {entry.seq} is of kind {entry.kind!r}, which this version of Tether does not know: the log was "
            "written by a newer one, or by other software."
        )
    return EVENTS[entry.kind].read(entry)


# What is handed out: decisions, acknowledgments, and where an advisor stands.


class LiveDecision(DecisionMade):
    """An action to play now, with the certificate that justifies it: the record, as it is handed out.

    `proposed` is what the learner wanted; in shadow mode, or when something objected, `action` is a_0 all the same,
    `reason` says what objected, and `proposal` is the certificate of what was proposed. `logged` is False if the log
    could not be written: then the action is a_0, `id` is empty and no outcome can be recorded. `state` is the state as
    the log gives it back, no longer as JSON, `seq` the entry of the log, and `text` what stands there.
    """

    state: Any
    seq: int = 0
    text: str = Field(default="", exclude=True, repr=False)

    @classmethod
    def of(cls, record: DecisionMade, state: State, entry: Entry | None = None) -> Self:
        """A record with its state as an object, and its place in the log."""
        seq, text = (0, "") if entry is None else (entry.seq, entry.text)
        return cls.trusted({**vars(record), "state": state, "seq": seq, "text": text})

    @property
    def id(self) -> str:
        """What `Advisor.record` asks for."""
        return self.decision_id

    @property
    def action(self) -> Action:
        """What to play."""
        return self.played

    @property
    def logged(self) -> bool:
        """Whether it is in the log, so that an outcome can be recorded."""
        return self.seq > 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """An outcome is in the log, durably, at entry `seq`; `repeated` if it was there before."""

    decision_id: str
    seq: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Where an advisor stands, as of entry `seq` of its log.

    `outcomes` counts those recorded, `open` decisions without one, `lost` costs that never came, `waiting` outcomes
    whose costs have no effect yet, because earlier decisions are open. `waiting_for` names the first open decision of
    each step, the oldest made at `waiting_since` (seconds since 1970, 0 if none is open). `baseline` and `proposed` are
    how many decisions played a_0 and how many wanted something else, `over_by_itself` how many played a drawn action
    whose own bound is over τ, `unsynced` entries of the log that wait for others. `model_hash` is of step 0. `spent`
    (M,) are the costs in the budget's window, `over` (M,) counts those measured above τ. `uplift` is what the proposals
    gain over a_0, since the last change of mode. `failure` says that
    the problem's functions failed, so that the log cannot be followed.
    """

    mode: str
    stopped: str
    alarm: str
    seq: int
    head: str
    data_version: int
    model_hash: str
    decisions: int
    baseline: int
    proposed: int
    refusals: int
    over_by_itself: int
    outcomes: int
    costs: int
    spent: tuple[float, ...]
    over: tuple[int, ...]
    certified: float
    open: int
    waiting: int
    waiting_since: float
    waiting_for: str
    lost: int
    unsynced: int
    uplift: UpliftStatus
    store_error: str
    failure: str


class Waits(NamedTuple):
    """Outcomes that have no effect yet, the decisions that they wait for, and when the oldest of these was made."""

    outcomes: int
    ids: tuple[str, ...]
    since: float

    def said(self, now: float, *, named: bool = True) -> str:
        """It in plain words, for people; without ids where anybody may read it."""
        which = f"decision{'s' * (len(self.ids) > 1)} {', '.join(self.ids)}" if named else "one decision"
        made = f", made {age(now - self.since)} ago" if self.since > 0.0 else ""
        wait = "1 outcome waits" if self.outcomes == 1 else f"{self.outcomes} outcomes wait"
        return f"Learning waits for the outcome of {which}{made}. {wait} behind it. Report it, or declare it lost."


def age(seconds: float) -> str:
    """A time span in its largest unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


class AlreadyRecorded(InputError):
    """A decision has an outcome already, with other content. The first one stands; nothing was changed."""


class ImpossibleCost(InputError):
    """A cost that B and σ do not allow: a sensor failed, or they were declared too small. It is not learned from."""


class UnknownDecision(InputError):
    """No such decision is in the log: it was made elsewhere, or it could not be logged."""
