"""Ids of decisions and of requests."""

import json
import math
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, FiniteFloat, JsonValue, NonNegativeInt, ValidationError

from tether import __version__
from tether.errors import AlteredLog, InputError, TetherError
from tether.kernels.compiled import KERNEL
from tether.live.log.store import Draft, Entry, text_of
from tether.problem.action_sets import ActionSet
from tether.problem.problem import Problem
from tether.records import Action, CostBound, Origin, Radius, StarAction, State


def new_id() -> str:
    """A random id, 32 hex digits, that begins with the time in milliseconds.

    Ids of one hour are then neighbours in a database's index, which writes a few pages over and over, and not a
    different one for each. A clock that jumps costs that order, and nothing else: 80 bits are random.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


# States and actions as JSON and back: what the log holds must be enough to decide again.

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


def detached(value: Any) -> Any:
    """A copy of some JSON as the log gives it back: no part of it is the caller's, or of a type that JSON lacks."""
    return value if type(value) in PLAIN else json.loads(text_of(value))


def as_logged(states: StateCodec, state: State) -> tuple[Any, State]:
    """A state as the log will hold it, and as a replay will read it: what must be checked, and decided on."""
    if states.encode is encode_state and states.decode is decode_state and type(state) in PLAIN:
        return encode_state(state), state
    try:
        logged = detached(states.encode(state))
        # what a codec of the caller's hands back may be the very dict that it was given; `decode_state` makes its own
        return logged, states.decode(logged if states.decode is decode_state else detached(logged))
    except TetherError:
        raise
    except Exception as error:  # a codec is the caller's
        raise InputError(
            f"state {state!r:.120} cannot be logged and read back: {type(error).__name__}: {error}. The two functions "
            "of states=StateCodec(encode, decode) must take every state, also None where nothing follows."
        ) from error


def with_way_out(error: InputError, state: State, again: State) -> InputError:
    """The error; if the caller's functions failed on a state whose type the log does not keep, with the way out."""
    way_out = "" if error.__cause__ is None else retyped(state, again)
    return InputError(f"{error}{way_out}") if way_out else error


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


def encode_action(action: Action) -> Any:
    """An index as it is, a point of a star as its ray and length."""
    if isinstance(action, StarAction):
        return {"ray": action.ray, "length": action.length}
    return int(action)


def decode_action(value: Any) -> Action:
    """The reverse of `encode_action`."""
    if isinstance(value, dict):
        return StarAction(int(value["ray"]), float(value["length"]))
    return int(value)


def checked_action(actions: ActionSet, action: Any) -> Action:
    """An action that is really in D(s), refused by name otherwise."""
    count = len(actions.endpoints)
    if isinstance(action, StarAction):
        length = action.length
        number = isinstance(length, int | float | np.integer | np.floating) and not isinstance(length, bool)
        inside = (
            isinstance(action.ray, int | np.integer) and not isinstance(action.ray, bool) and -1 <= action.ray < count
        )
        if not (actions.is_star and inside and number and 0.0 <= length <= 1.0):
            kind = f"{count} rays, lengths 0 to 1" if actions.is_star else f"{count} single actions, no rays"
            raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
        return StarAction(int(action.ray), float(length))
    is_index = isinstance(action, int | np.integer) and not isinstance(action, bool)
    if actions.is_star or not is_index or not 0 <= action < count:
        kind = "rays: give a StarAction(ray, length)" if actions.is_star else f"actions 0 to {count - 1}"
        raise InputError(f"action {action!r} is not in D(s): this state has {kind}.")
    return int(action)


# Certificates: everything that somebody needs who asks, later, why an action was thought safe.


@dataclass(frozen=True, slots=True)
class Limit:
    """The evidence for one constraint: cost <= bound <= threshold, with this radius.

    `bounds` says what is bounded ("cost" or "expected cost"), `gate_bound` is what the independent gate computed
    (None for the safe action, which needs no data), `baseline_cost` is τ_h(s), None if unknown. `facts` is how many
    remembered safe costs the bound rests on, beside that of the state itself.
    """

    bound: float
    threshold: float
    radius: float
    origin: Origin
    baseline_cost: float | None
    bounds: str = "cost"
    gate_bound: float | None = None
    facts: int = 0

    @property
    def margin(self) -> float:
        """τ − bound: what is left under the threshold."""
        return self.threshold - self.bound

    @classmethod
    def of(cls, evidence: CostBound, gate_bound: float | None = None) -> Self:
        """The evidence of a Decision, with the gate's own bound."""
        known = None if math.isnan(evidence.baseline_cost) else evidence.baseline_cost
        return cls(
            evidence.bound,
            evidence.threshold,
            evidence.radius.value,
            evidence.radius.origin,
            known,
            evidence.bounds,
            gate_bound,
            evidence.facts,
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why an action may be played: φ (d,), a bound per constraint, and what the bounds rest on.

    If the action was drawn, `mixture` holds (candidate, probability) of all that could have been but a_0, which has the
    rest; φ is then the mean over it, and the bounds are on the expected cost.

    `seq` and `head` name the entry of the log up to which outcomes were used, `data_version` counts those outcomes,
    `model_hash` is a hash of the numbers that the decision was computed from.
    """

    feature: tuple[float, ...]
    limits: tuple[Limit, ...]
    is_baseline: bool
    reason: str
    detail: str
    data_version: int
    seq: int
    head: str
    model_hash: str
    mixture: tuple[tuple[int, float], ...] | None = None
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
        return {
            "feature": list(self.feature),
            "limits": [
                {
                    "bound": _number(limit.bound),
                    "threshold": _number(limit.threshold),
                    "margin": _number(limit.margin),
                    "radius": _number(limit.radius),
                    "origin": limit.origin,
                    "baseline_cost": _number(limit.baseline_cost),
                    "bounds": limit.bounds,
                    "gate_bound": _number(limit.gate_bound),
                    "facts": limit.facts,
                }
                for limit in self.limits
            ],
            "is_baseline": self.is_baseline,
            "reason": self.reason,
            "detail": self.detail,
            "data_version": self.data_version,
            "seq": self.seq,
            "head": self.head,
            "model_hash": self.model_hash,
            "mixture": None if self.mixture is None else [list(part) for part in self.mixture],
            "kernel": self.kernel,
            "library": self.library,
            "numpy": self.numpy,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The reverse of `to_json`."""
        limits = tuple(
            Limit(
                float(entry["bound"]),
                float(entry["threshold"]),
                float(entry["radius"]),
                entry["origin"],
                _maybe(entry["baseline_cost"]),
                entry["bounds"],
                _maybe(entry["gate_bound"]),
                int(entry.get("facts", 0)),
            )
            for entry in value["limits"]
        )
        mixture = None if value["mixture"] is None else tuple((int(row), float(p)) for row, p in value["mixture"])
        return cls(**{**value, "feature": tuple(value["feature"]), "limits": limits, "mixture": mixture})

    def because(self, reason: str, detail: str) -> Self:
        """The same evidence with another reason."""
        return replace(self, reason=reason, detail=detail)


def baseline_evidence(problem: Problem, baseline_cost: Any, radii: tuple[Radius, ...]) -> tuple[CostBound, ...]:
    """The evidence for a_0(s): its declared cost τ_h(s) (M,), or, where that is unknown, that it was declared safe.

    Where the cost is known up to an error bar, a_0 costs at most the upper end of it, and at most τ.
    """
    errors = problem.baseline_cost_error
    return tuple(
        CostBound(tau if math.isnan(cost) else min(cost + error, max(cost, tau)), tau, radius, cost)
        for cost, error, tau, radius in zip(map(float, baseline_cost), errors, problem.threshold, radii, strict=True)
    )


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else repr(value)


def _maybe(value: float | str | None) -> float | None:
    return None if value is None else float(value)


# What the advisor hands back: decisions with their certificates, acknowledgments, and where it stands.


class AlreadyRecorded(InputError):
    """A decision has an outcome already, with other content. The first one stands; nothing was changed."""


class ImpossibleCost(InputError):
    """A cost that B and σ do not allow: a sensor failed, or they were declared too small. It is not learned from."""


class UnknownDecision(InputError):
    """No such decision is in the log: it was made elsewhere, or it could not be logged."""


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """An action to play now, with the certificate that justifies it.

    `proposed` is what the learner wanted; in shadow mode, or when something objected, `action` is a_0 all the same,
    `reason` says what objected, and `proposal` is the certificate of what was proposed. `logged` is False if the log
    could not be written: then the action is a_0, `id` is empty and no outcome can be recorded. `certified` is the share
    of D(s) that could be played, None between two looks at it (one in eight decisions).
    """

    id: str
    action: Action
    certificate: Certificate
    mode: str
    proposed: Action
    proposal: Certificate | None
    is_baseline: bool
    reason: str
    detail: str
    step: int
    state: State
    episode: str | int | None
    certified: float | None
    seq: int
    logged: bool
    drawn: tuple[float, ...] | None = None

    @property
    def feature(self) -> tuple[float, ...]:
        """φ of the action (d,); the certificate's own is a mean, if the action was drawn from a mixture."""
        return self.certificate.feature if self.drawn is None else self.drawn

    @classmethod
    def from_body(cls, body: dict[str, Any], states: StateCodec, seq: int) -> Self:
        """A decision as the log holds it, at entry `seq`."""
        proposal = None if body["proposal"] is None else Certificate.from_json(body["proposal"])
        return cls.made_of(
            body, Certificate.from_json(body["certificate"]), proposal, states.decode(detached(body["state"])), seq
        )

    @classmethod
    def unlogged(
        cls, action: Action, certificate: Certificate, mode: str, state: State, step: int, episode: str | int | None
    ) -> Self:
        """a_0 without an entry in the log; the certificate says why."""
        return cls(
            id="",
            action=action,
            certificate=certificate,
            mode=mode,
            proposed=action,
            proposal=None,
            is_baseline=True,
            reason=certificate.reason,
            detail=certificate.detail,
            step=step,
            state=state,
            episode=episode,
            certified=None,
            seq=0,
            logged=False,
        )

    @classmethod
    def made_of(
        cls, body: dict[str, Any], certificate: Certificate, proposal: Certificate | None, state: State, seq: int
    ) -> Self:
        """A decision from its body and the certificates in it."""
        return cls(
            id=body["decision_id"],
            action=decode_action(body["played"]),
            certificate=certificate,
            mode=body["mode"],
            proposed=decode_action(body["proposed"]),
            proposal=proposal,
            is_baseline=body["is_baseline"],
            reason=body["reason"],
            detail=body["detail"],
            step=body["step"],
            state=state,
            episode=body["episode"],
            certified=body["certified"],
            seq=seq,
            logged=seq > 0,
            drawn=None if body["drawn"] is None else tuple(body["drawn"]),
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """An outcome is in the log, durably, at entry `seq`; `repeated` if it was there before."""

    decision_id: str
    seq: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Where an advisor stands, as of entry `seq` of its log.

    `outcomes` counts what was learned from, `baseline` and `proposed` how many decisions played a_0 and how many wanted
    something else, `unsynced` entries that have arrived out of order and wait for others. `model_hash` is of step 0.
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
    outcomes: int
    costs: int
    spent: tuple[float, ...]
    certified: float
    unsynced: int
    store_error: str


def check_names(key: object, episode: object) -> None:
    """Refuse a key or an episode that no log could hold."""
    if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 400):
        raise InputError(f"key must be a string of 1 to 400 characters, or None, but is {key!r:.80}.")
    if episode is not None and (not isinstance(episode, str | int) or isinstance(episode, bool)):
        raise InputError(f"episode must be a string, an integer or None, but is {episode!r:.80}.")


def check_same(body: dict[str, Any], state: Any, step: int, episode: str | int | None) -> None:
    """Refuse a key that a logged decision got for another question."""
    if (body["state"], body["step"], body["episode"]) != (detached(state), step, episode):
        raise InputError(
            f"key {body['key']!r} was used for another request (state {body['state']!r:.80}, step {body['step']}, "
            f"episode {body['episode']!r}): use a new key for a new request."
        )


# What is logged: one frozen, strict model per kind of event, and the way to a `Draft` and back.

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
