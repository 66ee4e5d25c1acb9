"""What goes over the wire, as models: they validate requests and make the OpenAPI description."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue

Episode = Annotated[str, Field(max_length=200)] | int | None
Why = Annotated[str, Field(min_length=1, max_length=1000)]
Seq = Annotated[int, Field(ge=0, le=2**53)]
"""A place in the log that a request may name: what JSON's readers and every database hold exactly."""


class Wire(BaseModel):
    """A request. Keys that it does not know are refused: a misspelt one must not pass as missing. Nothing is taken for
    something else either: `"applied": true` is not action 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DecisionRequest(Wire):
    """Ask for a decision: where the system stands. `observed_at` is when that was seen, in seconds since 1970."""

    state: JsonValue
    step: Annotated[int, Field(ge=0, strict=True)] = 0
    episode: Episode = None
    observed_at: FiniteFloat | None = None


class StarActionModel(Wire):
    """A point of a star-convex set: so far along a ray; ray -1 is the safe action."""

    ray: Annotated[int, Field(ge=-1, strict=True)]
    length: Annotated[float, Field(ge=0.0, le=1.0)]


class OutcomeRequest(Wire):
    """Report what was seen after a decision, exactly once. `cost` is null if it was not measured.

    `applied` is what was really done, if that was not the decision's action: another action, or its feature.
    """

    decision_id: Annotated[str, Field(min_length=1, max_length=200)]
    reward: FiniteFloat
    cost: FiniteFloat | list[FiniteFloat] | None
    next_state: JsonValue = None
    applied: int | StarActionModel | list[FiniteFloat] | None = None


class LostRequest(Wire):
    """Say that the outcome of a decision will never come, so that later costs need not wait for it."""

    decision_id: Annotated[str, Field(min_length=1, max_length=200)]
    why: Why


class ModeRequest(Wire):
    """Enter a mode. Going up needs the criteria to be met; going down is always allowed.

    `override` enters live mode without evidence of a gain over a_0; `why` says why, and the log holds both.
    """

    mode: Literal["shadow", "guarded", "live"]
    why: Why
    override: bool = False


class OrderRequest(Wire):
    """An order of an admin, with its reason, for the log."""

    why: Why


class DecisionsQuery(BaseModel):
    """A page of decisions: so many, before an entry of the log, with a_0, without it, or all."""

    limit: Annotated[int, Field(ge=1, le=200)] = 25
    before: Seq | None = None
    kind: Literal["all", "baseline", "other"] = "all"


class SeriesQuery(BaseModel):
    """Columns over the last `window` decisions (0: all that are held), in at most `points` buckets."""

    window: Annotated[int, Field(ge=0, le=10**9)] = 0
    points: Annotated[int, Field(ge=1, le=2000)] = 500


class EventsQuery(BaseModel):
    """Wait for an entry after `after`, at most `wait` seconds."""

    after: Seq = 0
    wait: Annotated[FiniteFloat, Field(ge=0.0, le=25.0)] = 0.0


class DecisionAnswer(BaseModel):
    """An action with the certificate that justifies it. `logged` is false if the log could not be written: then the
    action is the safe one, there is no id, and no outcome can be reported."""

    id: str
    action: int | StarActionModel
    is_baseline: bool
    reason: str
    detail: str
    mode: str
    proposed: int | StarActionModel
    played: int | StarActionModel
    step: int
    episode: Episode
    observed_at: float | None
    decided_at: float | None
    certificate: dict[str, Any]
    proposal: dict[str, Any] | None
    certified: float | None
    drawn: list[float] | None
    seq: int
    logged: bool


class OutcomeAnswer(BaseModel):
    """The outcome is in the log, durably; `repeated` if it was there before."""

    decision_id: str
    seq: int
    repeated: bool


class LostAnswer(BaseModel):
    """The loss is in the log."""

    decision_id: str


class Readiness(BaseModel):
    """Whether to send requests here; `learning` says what it waits for, if it waits."""

    status: str
    learning: str | None = None


class Problem(BaseModel):
    """What went wrong, and the way out (RFC 9457). `unmet` names the criteria that a promotion did not meet."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str = ""
    unmet: list[str] | None = None
