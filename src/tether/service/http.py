"""Answers: decisions as JSON, and every error as a problem (RFC 9457) with its way out."""

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from tether.errors import AlteredLog, StoreBusy, StoreError, TetherError
from tether.live.policy import PromotionRefused
from tether.live.records import AlreadyRecorded, ImpossibleCost, LiveDecision, UnknownDecision
from tether.service import models
from tether.service.auth import NOBODY_ASKED, Caller, Role, Token, caller_of
from tether.service.config import is_loopback
from tether.service.metrics import Metrics


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


def answer_of(decision: LiveDecision) -> bytes:
    """A decision as JSON: what the record says, under the names of `DecisionAnswer`."""
    told = decision.model_dump(mode="json", exclude={"state"})
    told |= {"id": decision.id, "action": told["played"], "logged": decision.logged}
    if decision.reason == "not-logged":  # why, is a driver's text, which may hold an address
        told["detail"] = told["certificate"]["detail"] = NOT_LOGGED
    return to_json({name: told[name] for name in models.DecisionAnswer.model_fields})


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


# The doorway: what happens to every request before a handler sees it. Who is asking, how much, and a line in the log.

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = Callable[[bytes, str | None], Awaitable[tuple[int, bytes]]]
"""Something that turns a body and an Idempotency-Key into a status and JSON."""

OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/favicon.ico"})
"""Served to anybody: none of them holds data."""

NEEDS: dict[tuple[str, str], Role] = {
    ("POST", "/v1/decisions"): "decide",
    ("POST", "/v1/outcomes"): "record",
    ("POST", "/v1/mode"): "admin",
    ("POST", "/v1/stop"): "admin",
    ("POST", "/v1/resume"): "admin",
    ("POST", "/v1/alarm/reset"): "admin",
}
"""The role that a request needs; whatever is neither here nor open needs "read"."""

KNOWN = OPEN | {path for _, path in NEEDS} | {"/v1/status", "/v1/series", "/v1/events", "/metrics"}
READ = (b"idempotency-key", b"authorization", b"content-length", b"content-type", b"host")
NO_SNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = (b"cache-control", b"no-store")

access_log = logging.getLogger("tether.service.access")
error_log = logging.getLogger("tether.service")


class CutOff(HTTPException):
    """A body is too long, or too slow. The framework lets errors of this kind through when it reads a body."""


class Doorway:
    """Before the framework: authorisation, the size of bodies, request ids, headers, metrics and the access log."""

    def __init__(
        self,
        app: Asgi,
        *,
        tokens: tuple[Token, ...],
        body_bytes: int,
        seconds: float,
        metrics: Metrics,
        host: str,
        direct: Mapping[tuple[str, str], Answer],
    ) -> None:
        self._app, self._tokens, self._body_bytes, self._metrics, self._host = app, tokens, body_bytes, metrics, host
        self._seconds = seconds
        self._direct = direct  # requests that are answered without the framework, by method and path
        words = f"the body is longer than {body_bytes} bytes, the limit of this service."
        self._long = Refusal(413, "too large", words)
        self._prefix, self._count = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its line in the log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, ended = time.perf_counter(), 0, False
        method, path = scope["method"], scope["path"]
        request_id = f"{self._prefix}-{next(self._count):x}"
        scope.setdefault("state", {})["request_id"] = request_id
        headers = {name: value for name, value in scope["headers"] if name in READ}
        page = path == "/" or path.startswith("/static/")

        async def answer(message: Message) -> None:
            nonlocal status, ended
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                more = ((b"x-request-id", request_id.encode()), NO_SNIFF, *(() if page else (NO_STORE,)))
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        caller, refusal = self._admit(method, path, headers)
        if refusal is not None:
            await _refuse(answer, refusal, request_id)
        else:
            scope["state"]["caller"] = caller
            try:
                await self._pass_on(scope, headers, self._measured(receive, began), answer)
            except Exception as error:
                refusal = refusal_of(error)
                if refusal is UNFORESEEN:
                    error_log.exception("request %s failed", request_id)
                if not status:
                    await _refuse(answer, refusal, request_id)
                elif not ended:  # all that is left is to cut the answer off
                    raise
        self._note(method, path, status, time.perf_counter() - began, caller, request_id)

    async def _pass_on(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        """To the desk, or to the framework."""
        answer = self._direct.get((scope["method"], scope["path"]))
        if answer is None:
            await self._app(scope, receive, send)
            return
        body = await _whole(receive)
        if body is None:
            return
        key = headers.get(b"idempotency-key")
        status, content = await answer(body, None if key is None else key.decode("latin-1"))
        await _send(send, status, content, {"content-type": "application/json"})

    def _note(
        self, method: str, path: str, status: int, seconds: float, caller: Caller | None, request_id: str
    ) -> None:
        """The metrics and the line in the access log. Neither holds a token, a state or a query."""
        self._metrics.request(method, _group(path), status, seconds)
        if access_log.isEnabledFor(logging.INFO):
            line = {
                "time": round(time.time(), 3), "method": method, "path": _group(path), "status": status,
                "ms": round(1e3 * seconds, 2), "caller": None if caller is None else caller.name,
                "request_id": request_id,
            }  # fmt: skip
            access_log.info(json.dumps(line))

    def _admit(self, method: str, path: str, headers: dict[bytes, bytes]) -> tuple[Caller | None, Refusal | None]:
        """The caller, and the refusal if there is one."""
        caller, refusal = self._known(method, path, headers)
        if refusal is None and method == "POST":
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                # a page of another site could send anything else here without the browser asking first
                refusal = Refusal(415, "not JSON", "send the body as Content-Type: application/json.")
        length = headers.get(b"content-length")
        if refusal is None and length is not None and not (length.isdigit() and int(length) <= self._body_bytes):
            refusal = self._long
        return caller, refusal

    def _known(self, method: str, path: str, headers: dict[bytes, bytes]) -> tuple[Caller | None, Refusal | None]:
        if not self._tokens:
            if not self._is_here(headers.get(b"host", b"").decode("latin-1")):
                words = "without tokens this service answers under this machine's own name only."
                return None, Refusal(403, "forbidden", words)
            return NOBODY_ASKED, None
        if path in OPEN or path.startswith("/static/"):
            return None, None
        header = headers.get(b"authorization")
        caller = caller_of(self._tokens, None if header is None else header.decode("latin-1"), time.time())
        if caller is None:
            return None, Refusal(401, "unauthorized", "this needs a valid token: Authorization: Bearer <token>.")
        role = NEEDS.get((method, path), "read")
        if role not in caller.roles:
            return caller, Refusal(403, "forbidden", f"this needs the role {role!r}, which this token does not have.")
        return caller, None

    def _is_here(self, host: str) -> bool:
        """Whether a Host header names this machine: a foreign name that was pointed at it (DNS rebinding) does not."""
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        return name == self._host or is_loopback(name)

    def _measured(self, receive: Receive, began: float) -> Receive:
        """`receive`, counting: a body is cut off where it is too long, declared or not, and when it is too late."""
        taken, whole = 0, False

        async def measured() -> Message:
            nonlocal taken, whole
            if whole:  # what may come now is that the caller hangs up, and that may take as long as the answer
                return await receive()
            try:
                message = await _within(receive, began + self._seconds)
            except TimeoutError:
                words = f"the body did not arrive within {self._seconds:g} s, the limit of this service. Send it again."
                raise CutOff(408, words) from None
            taken, whole = taken + len(message.get("body", b"")), not message.get("more_body", False)
            if taken > self._body_bytes:
                raise CutOff(413, self._long.detail)
            return message

        return measured


def _group(path: str) -> str:
    """The path without ids, for metrics and logs; paths that do not exist are all one, or anybody could fill both."""
    if path.startswith("/v1/decisions/"):
        return "/v1/decisions/{id}"
    if path.startswith("/static/"):
        return "/static"
    return path if path in KNOWN else "other"


async def _within(receive: Receive, deadline: float) -> Message:
    """The next message, until the deadline. Nearly always it is there: then no timer is made, which would take longer
    than all else here. If not, the first attempt is given up, as in a cancellation, for one with a timer."""
    attempt = receive().__await__()
    try:
        next(attempt)
    except StopIteration as there:
        message: Message = there.value
        return message
    attempt.close()
    async with asyncio.timeout(deadline - time.perf_counter()):
        return await receive()


async def _whole(receive: Receive) -> bytes | None:
    """The body of a request; None if the caller hung up before its end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _refuse(send: Send, refusal: Refusal, request_id: str) -> None:
    await _send(send, refusal.status, refusal.to_json(request_id), refusal.headers())


async def _send(send: Send, status: int, content: bytes, told: dict[str, str]) -> None:
    headers = [(name.encode(), value.encode()) for name, value in told.items()]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
