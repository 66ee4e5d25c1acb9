"""The doorway: what happens to every request before a handler sees it. Who is asking, how much, and a line in the log.

It stands before the body is read: a caller without the right token learns nothing, not even that its JSON is bad.
"""

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from tether.service.answers import UNFORESEEN, Refusal, refusal_of
from tether.service.config import is_loopback
from tether.service.metrics import Metrics
from tether.service.tokens import NOBODY_ASKED, Caller, Role, Token, caller_of

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
