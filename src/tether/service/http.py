"""Every request before and after its handler: authentication, limits, errors, headers, access log, OpenAPI.

An `Endpoint` declares one operation; `Application` serves them through Starlette's router, `openapi` describes them.
"""

import asyncio
import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

from prometheus_client import Histogram
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Lifespan, Message, Receive, Scope, Send

from tether.errors import AlteredLog, StoreBusy, StoreError, TetherError
from tether.live.answers import AlreadyRecorded, ImpossibleCost, LiveDecision, UnknownDecision
from tether.live.policy import PromotionRefused
from tether.sections import mistakes
from tether.service.auth import LOCAL, Caller, Role, Token, caller_of
from tether.service.config import LimitsSection, is_loopback
from tether.service.models import DecisionAnswer, Problem

Handler = Callable[[Request, Any], Awaitable[Response]]
"""Takes a request and its validated input: the request body of a POST, the query of a GET."""

METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
"""Methods that metrics name; a client could make up others."""

LARGE_BODY, MOST_HELD = 2**14, 2**26
"""Bytes of a request body that is large, and of all that are in memory, beside one of the largest that is allowed."""

TWO_LENGTHS = (
    "the request has a Content-Length and is sent in chunks: a proxy may believe the one, and this service the other. "
    "Send one of them."
)
"""RFC 9112, section 6.3."""

access_log = logging.getLogger("tether.service.access")
error_log = logging.getLogger("tether.service")


class Json(Response):
    """A response as JSON. Pydantic's serialiser is faster than Python's; its floats read back exactly."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """As bytes, unless it is bytes already."""
        return content if isinstance(content, bytes) else to_json(content, inf_nan_mode="null")


@dataclass(frozen=True)
class Endpoint:
    """One operation: its route, who may call it, what it takes and answers.

    Attributes:
        handler: answers; its docstring describes the operation.
        role: what a caller's token must allow; None is open to everybody.
        takes: model of the request body (POST) or of the query (GET).
        answers: model of the answer; None is any JSON object, or a text if `media_type` says so.
        unavailable: model of what may take the place of a problem in a 503.
        header: a header that it reads, as OpenAPI has it.
        tag: its chapter in the OpenAPI document; without one it is left out.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    _: KW_ONLY
    role: Role | None = "read"
    takes: type[BaseModel] | None = None
    answers: type[BaseModel] | None = None
    unavailable: type[BaseModel] | None = None
    media_type: str = "application/json"
    header: dict[str, Any] | None = None
    tag: str = ""


class Sender(NamedTuple):
    """Who sent a request, for the access log: the address is that of a client whose token was refused."""

    name: str | None
    address: str
    request_id: str


class Application:
    """Endpoints as an ASGI application.

    Each request gets an id, a caller and a line in the access log; each error becomes a problem (RFC 9457). `requests`
    takes the seconds of every request, by method, route and status.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        tokens: tuple[Token, ...],
        host: str,
        limits: LimitsSection,
        requests: Histogram,
        lifespan: Lifespan[Any],
    ) -> None:
        self._tokens, self._host, self._limits, self._requests = tokens, host, limits, requests
        self._router = Router(default=self._unknown_path, lifespan=lifespan)
        self._id_prefix, self._count = secrets.token_hex(6), itertools.count(1)
        self._held, self._large = 0, asyncio.Lock()
        for endpoint in reversed([*endpoints]):
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> None:
        """Serve one more endpoint, which is looked for before the others."""
        answer = partial(self._answer, endpoint)
        self._router.routes.insert(0, Route(endpoint.path, answer, methods=[endpoint.method]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its line in the access log; or the start and end of the service."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        began, status, caller = time.perf_counter(), 0, None
        request_id = f"{self._id_prefix}-{next(self._count):x}"

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                headers += [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        try:
            scope["app"] = self  # the router then raises what it refuses
            headers = dict(scope["headers"])
            if b"transfer-encoding" in headers and b"content-length" in headers:
                raise HTTPException(400, TWO_LENGTHS, {"connection": "close"})
            caller = scope["user"] = self._authenticate(headers)
            await self._router(scope, receive, reply)
        except ClientDisconnect:  # nobody is left to answer
            pass
        except Exception as error:
            if status:  # the response has begun: all that is left is to cut it off
                raise
            problem = problem_of(error, request_id)
            if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                error_log.exception("request %s failed", request_id)
            await _response_of(problem, getattr(error, "headers", None))(scope, receive, reply)
        finally:
            seconds = time.perf_counter() - began
            address = scope["client"][0] if status == HTTPStatus.UNAUTHORIZED and scope.get("client") else ""
            who = Sender(None if caller is None else caller.name, address, request_id)
            self._log(scope["method"], scope.get("template", "other"), status, seconds, who)

    def _authenticate(self, headers: dict[bytes, bytes]) -> Caller | None:
        """Who is calling; None if no known token was sent.

        Without tokens the Host header must be a name of this machine: another name that resolves to it (DNS rebinding)
        is refused.
        """
        if self._tokens:
            return caller_of(self._tokens, headers.get(b"authorization", b"").decode("latin-1"), time.time())
        host = headers.get(b"host", b"").decode("latin-1")
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name != self._host and not is_loopback(name):
            raise HTTPException(403, "without tokens this service answers under this machine's own name only.")
        return LOCAL

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        """Check the caller's role, read and validate the input, and let the handler answer."""
        request.scope["template"] = endpoint.path  # for metrics and logs: an id in a path could fill both
        if endpoint.role is not None:
            _authorize(request.user, endpoint.role)
        if endpoint.method == "POST":
            return await self._answer_post(endpoint, request)
        taken = None if endpoint.takes is None else endpoint.takes.model_validate_strings(dict(request.query_params))
        return await endpoint.handler(request, taken)

    async def _answer_post(self, endpoint: Endpoint, request: Request) -> Response:
        """Bodies in memory are limited in all, and large ones are answered one after the other: each may hold up the
        others for some milliseconds, but not all of them at once."""
        body = bytearray()
        try:
            await self._receive(body, request)
            async with self._large if len(body) > LARGE_BODY else nullcontext():
                taken = None if endpoint.takes is None else endpoint.takes.model_validate_json(body)
                return await endpoint.handler(request, taken)
        finally:
            self._held -= len(body)

    async def _unknown_path(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _authorize(scope["user"], "read")
        await self._router.not_found(scope, receive, send)

    async def _receive(self, body: bytearray, request: Request) -> None:
        """Fill in the request body: JSON, within the limits on its size, declared or not, and on its time."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # a page of another site could send anything else here without the browser asking first
            raise HTTPException(415, "send the body as Content-Type: application/json.")
        self._check_size(int(request.headers.get("content-length", 0)))
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for part in request.stream():
                    body += part
                    self._held += len(part)
                    self._check_size(len(body))
                    if self._held > MOST_HELD + self._limits.body_bytes:
                        raise StoreBusy("too many large requests are here already.")
        except TimeoutError:
            words = f"the body did not arrive within {self._limits.seconds:g} s, the limit of this service."
            raise HTTPException(408, f"{words} Send it again.") from None

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_bytes:
            words = f"the body is longer than {self._limits.body_bytes} bytes, the limit of this service."
            raise HTTPException(413, words)

    def _log(self, method: str, path: str, status: int, seconds: float, who: Sender) -> None:
        """The metrics and the line in the access log. Neither holds a token, a state or a query."""
        known = method if method in METHODS else "other"
        self._requests.labels(known, path, status).observe(seconds)
        if access_log.isEnabledFor(logging.INFO):
            line = {"time": round(time.time(), 3), "method": method, "path": path, "status": status}
            line |= {"ms": round(1e3 * seconds, 2), "caller": who.name, "request_id": who.request_id}
            if who.address:
                line["address"] = who.address
            access_log.info(json.dumps(line))


def _authorize(caller: Caller | None, role: Role) -> None:
    if caller is None:
        raise HTTPException(401, "this needs a valid token: Authorization: Bearer <token>.")
    if role not in caller.roles:
        raise HTTPException(403, f"this needs the role {role!r}, which this token does not have.")


# Errors: as problem+json, in words that name the way out.

TITLES = {401: "unauthorized", 403: "forbidden", 408: "too slow", 413: "too large", 415: "not JSON", 429: "too many"}
HEADERS = {
    401: {"www-authenticate": "Bearer"},
    408: {"connection": "close"},  # the rest of the body may still come, and nobody reads it
    413: {"connection": "close"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}
"""Headers that belong to a status."""

LATE = "the log took too long. Try again, with the same Idempotency-Key: nothing is then counted twice."
PROBLEMS: dict[type, tuple[int, str, str]] = {
    TimeoutError: (503, "time-out", LATE),
    UnknownDecision: (404, "unknown decision", ""),
    AlreadyRecorded: (409, "already recorded", ""),
    ImpossibleCost: (409, "impossible cost", ""),
    PromotionRefused: (409, "promotion refused", ""),
    AlteredLog: (503, "the log was altered", "the log is not what was written; nothing is decided."),
    StoreBusy: (503, "too busy", "too many requests wait for the log; nothing was taken. Try again."),
    StoreError: (503, "the log cannot be used now", "nothing was acknowledged; try again."),
    TetherError: (400, "cannot be used", ""),
    Exception: (500, "failed", "this should not happen: see the service's log."),
}
"""Status, title and detail of an error and its subclasses; "" is the error's own words, where they hold no address."""


def problem_of(error: Exception, request_id: str) -> Problem:
    """The error as a problem (RFC 9457), without what callers should not read."""
    if isinstance(error, ValidationError):
        status, title, detail = 422, "does not fit", "; ".join(mistakes(error)[:5])
    elif isinstance(error, HTTPException):
        status, title, detail = error.status_code, TITLES.get(error.status_code, "not possible"), error.detail
    else:
        status, title, detail = next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)
    unmet = list(error.unmet) if isinstance(error, PromotionRefused) else None
    return Problem(title=title, status=status, detail=detail or str(error), request_id=request_id, unmet=unmet)


def _response_of(problem: Problem, headers: dict[str, str] | None) -> Response:
    headers = {"content-type": "application/problem+json", **HEADERS.get(problem.status, {}), **(headers or {})}
    return Response(problem.model_dump_json(exclude_none=True), problem.status, headers)


# The OpenAPI document.

ERRORS = {
    400: "The request cannot be used.",
    401: "No valid token.",
    403: "The token lacks the role.",
    404: "No such decision.",
    408: "The body did not arrive in time.",
    409: "It contradicts what is in the log.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request does not fit the description.",
    429: "Too many requests of readers wait already.",
    503: "The log cannot be used now; try again.",
}


def openapi(endpoints: Iterable[Endpoint], info: dict[str, str]) -> dict[str, Any]:
    """The OpenAPI document of these endpoints."""
    paths: dict[str, Any] = {}
    models: set[type[BaseModel]] = {Problem}
    for endpoint in endpoints:
        if endpoint.tag:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
            body = endpoint.takes if endpoint.method == "POST" else None
            models.update(model for model in (body, endpoint.answers, endpoint.unavailable) if model is not None)
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=REFERENCE)
    security = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": info,
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": security},
    }


REFERENCE = "#/components/schemas/{model}"


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    """One operation, as OpenAPI has it."""
    text, responses = (endpoint.handler.__doc__ or "").strip(), dict[str, Any]()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    if endpoint.header is not None:
        parameters.append(endpoint.header)
    if endpoint.takes is not None and endpoint.method == "GET":
        for name, schema in endpoint.takes.model_json_schema()["properties"].items():
            parameters.append({"name": name, "in": "query", "required": "default" not in schema, "schema": schema})
    responses["200"] = {"description": "Done.", "content": _content(endpoint.answers, endpoint.media_type)}
    for status, words in ERRORS.items():
        content = _content(Problem, "application/problem+json")
        if status == HTTPStatus.SERVICE_UNAVAILABLE and endpoint.unavailable is not None:
            content |= _content(endpoint.unavailable)
        responses[str(status)] = {"description": words, "content": content}
    described: dict[str, Any] = {"tags": [endpoint.tag], "summary": text.partition(".")[0], "description": text}
    described |= {"operationId": getattr(endpoint.handler, "__name__", ""), "responses": responses}
    if parameters:
        described["parameters"] = parameters
    if endpoint.takes is not None and endpoint.method == "POST":
        described["requestBody"] = {"required": True, "content": _content(endpoint.takes)}
    if endpoint.role is not None:
        described["security"] = [{"token": []}]
    return described


def _content(model: type[BaseModel] | None, media_type: str = "application/json") -> dict[str, Any]:
    if model is None:
        return {media_type: {"schema": {"type": "object" if media_type == "application/json" else "string"}}}
    return {media_type: {"schema": {"$ref": REFERENCE.format(model=model.__name__)}}}


# A decision as JSON.


def answer_of(decision: LiveDecision) -> bytes:
    """A decision as JSON: what the record says, under the names of `DecisionAnswer`.

    The text of a logged one is at hand. From its mode on it holds nothing that a caller could have put there, but
    within strings, where quotes are escaped: so the fields of the answer are found by their names.
    """
    own = {"id": decision.id, "action": decision.action, "step": decision.step, "episode": decision.episode}
    own |= {"seq": decision.seq, "logged": decision.logged}
    if decision.text.startswith(FIRST_FIELD):
        said = decision.text[decision.text.rindex(',"mode":"') : decision.text.rindex(',"safe_feature":')]
        return b"%b%b}" % (to_json(own)[:-1], said.encode())
    record = decision.model_dump(mode="json", exclude={"state"})
    if decision.reason == "not-logged":  # why, is a driver's text, which may hold an address
        record["detail"] = record["certificate"]["detail"] = NOT_LOGGED
    return to_json({name: (own | record)[name] for name in DecisionAnswer.model_fields})


FIRST_FIELD = '{"decision_id":'
"""How a record begins whose fields stand in their order, as all do but those with text that only Python can write."""

NOT_LOGGED = "the log cannot be used now, so this is the safe action, and nothing was learned: see the service's log."
