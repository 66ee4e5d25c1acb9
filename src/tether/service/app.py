"""The application: routes and life cycle. `create_app(config)` is all that a server needs."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response

from tether import __version__
from tether.errors import InputError
from tether.live.advisor import Advisor
from tether.live.log.sqlite import SqliteStore
from tether.live.log.store import Store
from tether.live.policy import Guards, rank
from tether.problem.problem import load_problem
from tether.service import models
from tether.service.auth import Caller, read_tokens
from tether.service.config import ServiceConfig
from tether.service.http import (
    ERRORS,
    OPEN,
    UNLOGGED,
    Answer,
    Doorway,
    Receive,
    Scope,
    Send,
    answer_errors,
    describe,
    takes,
)
from tether.service.hub import LONGEST_KEY, Desk, Hub, Watch
from tether.service.metrics import Metrics
from tether.service.views import View, add_pages

KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key gets the same decision again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}
LARGEST_SEQ = 2**53
"""Places in the log that a request may name: what JSON's readers and every database hold exactly."""


class Service(FastAPI):
    """The framework behind the doorway: every request passes that first, and most need nothing else."""

    doorway: Doorway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI has it."""
        await self.doorway(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the doorway passes on."""
        await super().__call__(scope, receive, send)


def make_advisor(config: ServiceConfig, *, read_only: bool = False) -> Advisor:
    """The advisor that a configuration describes. With several workers each decision first looks at the log.

    With `read_only` nothing is written to a log, not even what the configuration changes: a rehearsal.
    """
    given = {name: value for name, value in config.guards.model_dump().items() if value is not None}
    if isinstance(given.get("budget"), list):
        given["budget"] = tuple(given["budget"])
    return Advisor(
        load_problem(config.problem, config.folder),
        store_of(config, read_only=read_only),
        algorithm=config.algorithm,
        guards=Guards(**given) if given else None,
        watch=config.watch,
        when_store_fails=config.when_store_fails,
        snapshot_every=config.snapshot_every,
        refresh=0.0 if config.workers > 1 else 0.25,
    )


def store_of(config: ServiceConfig, *, read_only: bool) -> Store:
    """The log. No request waits longer for a PostgreSQL that hangs than it would wait for the log."""
    address = config.store_address()
    if address.startswith(("postgresql://", "postgres://")):
        from tether.live.log.postgres import PostgresStore

        return PostgresStore(address, patience=config.limits.seconds, read_only=read_only)
    return SqliteStore(address, read_only=read_only)


def create_app(config: ServiceConfig, advisor: Advisor | None = None) -> Service:
    """The service as an ASGI application; the advisor is made from the configuration unless given."""
    tokens = () if config.tokens is None else read_tokens(config.folder / config.tokens)
    metrics = Metrics()
    direct: dict[tuple[str, str], Answer] = {}

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        made = advisor if advisor is not None else make_advisor(config)
        app.state.hub = Hub(made, waiting=config.limits.waiting, seconds=config.limits.seconds)
        desk = Desk(app.state.hub, metrics)
        direct.update({("POST", "/v1/decisions"): desk.decide, ("POST", "/v1/outcomes"): desk.record})
        app.state.view = View(made, config, has_tokens=bool(tokens))
        app.state.watch = Watch(made.store)
        if advisor is None:  # a process of our own: what is loaded by now stays, and need not be searched for garbage
            gc.collect()
            gc.freeze()
        try:
            yield
            await app.state.watch.close()
        finally:
            await app.state.hub.close()

    app = Service(
        title="Tether",
        version=__version__,
        summary="Decisions that keep every step's cost under a threshold, each with its certificate.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
    )
    app.state.metrics, app.state.direct = metrics, direct
    app.doorway = Doorway(
        app.framework,
        tokens=tokens,
        body_bytes=config.limits.body_bytes,
        seconds=config.limits.seconds,
        metrics=metrics,
        host=config.host,
        direct=direct,
    )
    answer_errors(app)
    _add_decisions(app)
    _add_orders(app)
    _add_views(app)
    add_pages(app, bool(tokens))
    describe(app, models.DecisionRequest, models.OutcomeRequest, models.Problem, open_to_all=OPEN)
    return app


def _add_decisions(app: FastAPI) -> None:
    """The description of what the doorway hands to the desk."""
    taken, told = takes(models.DecisionRequest, KEY_HEADER), takes(models.OutcomeRequest)

    @app.post(
        "/v1/decisions", response_model=models.DecisionAnswer, responses=UNLOGGED, tags=["decide"], openapi_extra=taken
    )
    async def decide(request: Request) -> Response:
        """Ask for a decision. The same Idempotency-Key gets the same decision again."""
        return await _at_the_desk(request)

    @app.post("/v1/outcomes", response_model=models.OutcomeAnswer, tags=["record"], openapi_extra=told)
    async def record(request: Request) -> Response:
        """Report what was seen after a decision. A repeat with the same content is acknowledged again."""
        return await _at_the_desk(request)


async def _at_the_desk(request: Request) -> Response:
    """The way through the framework, for a server whose doorway is not ours."""
    answer = request.app.state.direct[request.method, request.url.path]
    status, content = await answer(await request.body(), request.headers.get("idempotency-key"))
    return Response(content, status, media_type="application/json")


def _add_orders(app: FastAPI) -> None:
    async def ordered(request: Request, order: str, why: str) -> dict[str, Any]:
        advisor, by = request.app.state.hub.advisor, _caller(request).name
        await asyncio.to_thread(getattr(advisor, order), by=by, why=why)
        return await _status(request)

    @app.post("/v1/stop", tags=["admin"])
    async def stop(request: Request, told: models.Reasoned) -> dict[str, Any]:
        """Throw the kill switch: the safe action only, in every process, until it is released."""
        return await ordered(request, "stop", told.why)

    @app.post("/v1/resume", tags=["admin"])
    async def resume(request: Request, told: models.Reasoned) -> dict[str, Any]:
        """Release the kill switch."""
        return await ordered(request, "resume", told.why)

    @app.post("/v1/alarm/reset", tags=["admin"])
    async def reset(request: Request, told: models.Reasoned) -> dict[str, Any]:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        return await ordered(request, "reset_alarm", told.why)

    @app.post("/v1/mode", tags=["admin"])
    async def set_mode(request: Request, told: models.ModeRequest) -> dict[str, Any]:
        """Promote, if the criteria are met, or demote, always. The present mode stays as it is."""
        await asyncio.to_thread(_enter, request.app.state.hub.advisor, told, _caller(request).name)
        return await _status(request)


def _enter(advisor: Advisor, told: models.ModeRequest, by: str) -> None:
    """Change the mode, seen from the end of the log: another process may have changed it."""
    advisor.sync()
    present = advisor.status().mode
    if rank(told.mode) > rank(present):
        advisor.promote(told.mode, by=by, why=told.why)
    elif told.mode != present:
        advisor.demote(told.mode, by=by, why=told.why)
    elif not told.why.strip():
        raise InputError("`why` must say something: the log is read by people.")


def _add_views(app: FastAPI) -> None:
    @app.get("/v1/status", tags=["read"])
    async def status(request: Request) -> dict[str, Any]:
        """Mode, switch, alarm, counts and where the log ends."""
        return await _status(request)

    @app.get("/v1/decisions", tags=["read"])
    async def decisions(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=200)] = 25,
        before: Annotated[int | None, Query(ge=0, le=LARGEST_SEQ)] = None,
        kind: Annotated[str, Query(pattern="^(all|baseline|other)$")] = "all",
    ) -> dict[str, Any]:
        """The last decisions, newest first."""
        return await asyncio.to_thread(_view(request).decisions, limit, before, kind)

    @app.get("/v1/decisions/{id}", tags=["read"])
    async def decision(request: Request, id: str) -> dict[str, Any]:
        """One decision with its certificate and its place in the log."""
        return await asyncio.to_thread(_view(request).decision, id)

    @app.get("/v1/series", tags=["read"])
    async def series(
        request: Request,
        window: Annotated[int, Query(ge=0, le=10**9)] = 0,
        points: Annotated[int, Query(ge=1, le=2000)] = 500,
    ) -> dict[str, Any]:
        """Columns for charts."""
        return await asyncio.to_thread(_view(request).series, window, points)

    @app.get("/v1/events", tags=["read"])
    async def events(
        request: Request,
        after: Annotated[int, Query(ge=0, le=LARGEST_SEQ)] = 0,
        wait: Annotated[float, Query(ge=0.0, le=25.0)] = 0.0,
    ) -> dict[str, Any]:
        """Wait until the log is longer than `after`, at most `wait` seconds."""
        head = await request.app.state.watch.head_after(after, wait)
        kinds = await asyncio.to_thread(_view(request).kinds, after) if head > after else []
        return {"head": head, "kinds": kinds}

    @app.get("/metrics", response_class=PlainTextResponse, tags=["read"])
    async def metrics(request: Request) -> Response:
        """For Prometheus. What the log knows is of its end; the label `worker` marks what is of one process only."""
        text = request.app.state.metrics.text(await asyncio.to_thread(_view(request).standing))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


def _view(request: Request) -> View:
    view: View = request.app.state.view
    return view


async def _status(request: Request) -> dict[str, Any]:
    return await asyncio.to_thread(_view(request).status, _caller(request))
