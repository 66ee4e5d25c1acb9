"""Answers: decisions as JSON, and every error as a problem (RFC 9457) with its way out."""

from collections.abc import Collection
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from tether.errors import AlteredLog, StoreBusy, StoreError, TetherError
from tether.live.decisions import AlreadyRecorded, ImpossibleCost, LiveDecision, UnknownDecision
from tether.live.modes import PromotionRefused
from tether.live.states import encode_action
from tether.service import models


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"content": {"application/problem+json": _schema(models.Problem)}, "description": text}
    for status, text in {
        400: "The request cannot be used.",
        401: "No valid token.",
        403: "The token lacks the role.",
        404: "No such decision.",
        408: "The body did not arrive in time.",
        409: "It contradicts what is in the log.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        422: "The request does not fit the description.",
        503: "The log cannot be used now; try again.",
    }.items()
}
UNLOGGED: dict[int | str, dict[str, Any]] = {
    503: {
        "content": {**ERRORS[503]["content"], "application/json": _schema(models.DecisionAnswer)},
        "description": "The log cannot be used now: the safe action, or a problem.",
    }
}
"""What takes the place of a decision that could not be logged."""


def takes(model: type[BaseModel], *headers: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a route that the desk answers."""
    told: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": _schema(model)}}}
    return {**told, "parameters": list(headers)} if headers else told


def describe(app: FastAPI, *more: type[BaseModel], open_to_all: Collection[str]) -> None:
    """Add to OpenAPI what the framework does not know: more models, and that every path but the open ones needs a
    token."""
    generated = app.openapi
    _, made = models_json_schema([(model, "validation") for model in more], ref_template="#/components/schemas/{model}")

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            told = generated()
            told["components"]["schemas"].update(made["$defs"])
            told["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path in told["paths"].keys() - open_to_all:
                for operation in told["paths"][path].values():
                    operation["security"] = [{"token": []}]
        return generated()

    app.openapi = openapi  # type: ignore[method-assign]


def answer_of(decision: LiveDecision, body: dict[str, Any] | None) -> bytes:
    """A decision as JSON, from its body in the log where it has one. Pydantic's serialiser is several times faster than
    Python's, and its floats read back exactly."""
    if body is None:
        proposal = decision.proposal
        body = {
            "decision_id": decision.id,
            "played": encode_action(decision.action),
            "proposed": encode_action(decision.proposed),
            "certificate": decision.certificate.to_json(),
            "proposal": None if proposal is None else proposal.to_json(),
            **{name: getattr(decision, name) for name in AS_THEY_ARE},
        }
        if decision.reason == "not-logged":  # why, is a driver's text, which may hold an address
            body["detail"] = body["certificate"]["detail"] = NOT_LOGGED
    answer = {name: body[name] for name in AS_THEY_ARE}
    answer.update(id=body["decision_id"], action=body["played"], proposed=body["proposed"], seq=decision.seq)
    answer.update(certificate=body["certificate"], proposal=body["proposal"], logged=decision.logged)
    return to_json(answer)


AS_THEY_ARE = ("is_baseline", "reason", "detail", "mode", "step", "episode", "certified", "drawn")
"""Fields of an answer that are called the same in the log."""


CUT_OFF = {408: "too slow", 413: "too large"}
"""Titles of the refusals that leave a body unread."""


NOT_LOGGED = "the log cannot be used now, so this is the safe action, and nothing was learned: see the service's log."


class Refusal(NamedTuple):
    """An error for the caller: status, title, the way out, and which criteria of a promotion were not met."""

    status: int
    title: str
    detail: str
    unmet: list[str] | None = None

    def to_json(self, request_id: str) -> bytes:
        """As problem+json."""
        told = {name: value for name, value in self._asdict().items() if value is not None}
        return to_json({"type": "about:blank", **told, "request_id": request_id})

    def headers(self) -> dict[str, str]:
        """Headers that belong to it."""
        told = {"content-type": "application/problem+json"}
        if self.status == 401:
            told["www-authenticate"] = "Bearer"
        if self.status in CUT_OFF:  # the rest of the body may still come, and nobody reads it
            told["connection"] = "close"
        if self.status == 503:
            told["retry-after"] = "1"
        return told


LATE = "the log took too long. Try again, with the same Idempotency-Key: nothing is then counted twice."


UNFORESEEN = Refusal(500, "failed", "this should not happen: see the service's log.")


def refusal_of(error: Exception) -> Refusal:
    """The words for an error; UNFORESEEN if it is none that should reach a caller. Addresses of databases stay out."""
    if isinstance(error, ValidationError | RequestValidationError):
        lines = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()[:5]]
        return Refusal(422, "does not fit", "; ".join(lines))
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, CUT_OFF.get(error.status_code, "not possible"), str(error.detail))
    if isinstance(error, TimeoutError):
        return Refusal(503, "time-out", LATE)
    if isinstance(error, UnknownDecision):
        return Refusal(404, "unknown decision", str(error))
    if isinstance(error, AlreadyRecorded):
        return Refusal(409, "already recorded", str(error))
    if isinstance(error, ImpossibleCost):
        return Refusal(409, "impossible cost", str(error))
    if isinstance(error, PromotionRefused):
        return Refusal(409, "promotion refused", str(error), list(error.unmet))
    if isinstance(error, AlteredLog):
        return Refusal(503, "the log was altered", "the log is not what was written; nothing is decided.")
    if isinstance(error, StoreBusy):
        return Refusal(503, "too busy", "too many requests wait for the log; nothing was taken. Try again.")
    if isinstance(error, StoreError):
        return Refusal(503, "the log cannot be used now", "nothing was acknowledged; try again.")
    return Refusal(400, "cannot be used", str(error)) if isinstance(error, TetherError) else UNFORESEEN


def answer_errors(app: FastAPI) -> None:
    """Every error as problem+json. The doorway logs those that are not foreseen."""

    async def refuse(request: Request, error: Exception) -> Response:
        refusal = refusal_of(error)
        headers = refusal.headers() | (dict(getattr(error, "headers", None) or {}))
        return Response(refusal.to_json(request.scope["state"]["request_id"]), refusal.status, headers)

    for kind in (Exception, TetherError, TimeoutError, ValidationError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)
