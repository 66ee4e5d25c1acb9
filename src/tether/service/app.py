"""The application: handlers, endpoints and life cycle. `create_app(config)` is all that a server needs."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tether import __version__
from tether.errors import InputError, StoreError
from tether.live.advisor import Advisor
from tether.live.log import open_store
from tether.live.log.chain import Store
from tether.live.policy import Guards, rank
from tether.live.records import limit_of
from tether.live.upkeep import Upkeep
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem, load_problem
from tether.service import models
from tether.service.auth import read_tokens
from tether.service.config import ServiceConfig
from tether.service.http import Application, Endpoint, Json, answer_of, openapi
from tether.service.hub import Hub
from tether.service.views import LogPoll, Metrics, Pages, Readers, View

error_log = logging.getLogger("tether.service")

REPLACED_AFTER = 2.0
"""Seconds before one of several workers that cannot start ends, and is replaced."""

LONGEST_KEY = 400
"""Characters of an Idempotency-Key."""

KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key gets the same decision again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}
NOT_LOGGED_YET = (
    "this process plays the safe action only from now on, and will write the order to the log as soon as it can. Other "
    "processes do not know of it yet: if there are any, stop them by other means."
)
"""The error of a stop that could not be logged."""

WHICH = "/v1/status names it."
"""Ends what everyone may read of a decision that others wait for."""

ASK_WHEN_LOST = (
    "lost_after is not set: one decision whose outcome never comes stops all learning, until you report it or declare "
    'it lost. Choose in [guards]: lost_after = 3600 counts it as lost after so many seconds, "never" waits, and you '
    "watch for it. A lost cost "
)
"""Asked at each start until the configuration answers. What a loss means is added."""

LOST_AS = {
    "at-random": "is left out, which assumes that chance loses costs; Lost('worst-case', cost_range=…) does not.",
    "worst-case": "counts at its worst: nothing is assumed, and each loss makes bounds wider.",
}

INFO = {
    "title": "Tether",
    "version": __version__,
    "summary": "Decisions that keep the expected cost of every step under a threshold, each with its certificate.",
}


def create_app(config: ServiceConfig, advisor: Advisor | None = None) -> Application:
    """The service as an ASGI application; the advisor is made from the configuration unless given."""
    tokens = () if config.tokens is None else read_tokens(config.folder / config.tokens)
    service = Service(config, advisor, is_open=not tokens)
    return Application(
        service.endpoints,
        tokens=tokens,
        host=config.host,
        limits=config.limits,
        requests=service.metrics.requests,
        lifespan=service.lifespan,
    )


class Service:
    """The handlers, around one advisor, and what they share from the start of the service to its end."""

    hub: Hub
    view: View
    poll: LogPoll
    readers: Readers

    def __init__(self, config: ServiceConfig, advisor: Advisor | None, *, is_open: bool) -> None:
        self._config, self._advisor, self._is_open = config, advisor, is_open
        self.metrics, self._pages = Metrics(), Pages()
        self._answers = cache(self.metrics.answers.labels)
        self._orders = ThreadPoolExecutor(2, "tether-orders")  # of their own: no order waits behind readers
        self.endpoints = self._endpoints()
        self._openapi = openapi(self.endpoints, INFO)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Make the advisor, unless one was given; at the end finish what has begun and save a snapshot."""
        try:
            self.hub = self._make_hub()
        except Exception as error:
            if self._config.workers == 1:
                raise
            # by itself, to be replaced: a start that is said to fail would end the workers that run, too
            error_log.error("this worker cannot start, and will be replaced: %s", error)
            self.metrics.forget()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            await asyncio.sleep(REPLACED_AFTER)
            os._exit(1)
        advisor = self.hub.advisor
        self.view = View(advisor, self._config, has_tokens=not self._is_open)
        self.poll, self.readers = LogPoll(advisor.store), Readers(self._config.limits)
        if self._advisor is None:  # a process of our own
            warm_up(advisor)
            gc.collect()
            gc.freeze()  # what is loaded by now stays, and need not be searched for garbage
            gc.set_threshold(10_000, 20, 100)  # a request leaves hundreds of objects, and hardly a cycle
            sys.setswitchinterval(0.001)  # of 0.005 s: threads that compute charts delay decisions and orders less
            self._stop_polls_on_signals()
        try:
            yield
            await self.poll.close()
        finally:
            await self.hub.close()
            self._orders.shutdown(wait=False)
            self.readers.close()

    def _make_hub(self) -> Hub:
        advisor, noted = self._advisor, None
        if advisor is None:
            advisor, noted = make_advisor(self._config), self._config.note_file()
        if self._config.guards.lost_after is None and advisor.replica.ledger.guards.lost_after is None:
            error_log.warning("%s", ASK_WHEN_LOST + LOST_AS[advisor.problem.lost])
        limits, syncs = self._config.limits, self.metrics.syncs.observe
        return Hub(advisor, waiting=limits.waiting, seconds=limits.seconds, noted=noted, observe_sync=syncs)

    def _stop_polls_on_signals(self) -> None:
        """Answer long polls when a signal asks for the end: a server tells the application only after the last one."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(of_the_server := signal.getsignal(number)):

                def both(number: int, frame: Any, then: Callable[[int, Any], object] = of_the_server) -> None:
                    self.poll.stop()
                    then(number, frame)

                signal.signal(number, both)

    async def decide(self, request: Request, body: models.DecisionRequest) -> Response:
        """Ask for a decision. The same Idempotency-Key gets the same decision again."""
        key = request.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= LONGEST_KEY:
            raise InputError(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters, not {len(key)}.")
        decision = await self.hub.decide(body, key, request.user.name)
        played = "baseline" if decision.is_baseline else "other"
        self._answers(decision.mode, played, decision.reason).inc()
        return Json(answer_of(decision), 200 if decision.logged else 503)

    async def record(self, request: Request, body: models.OutcomeRequest) -> Response:
        """Report what was seen after a decision. A repeat with the same content is acknowledged again."""
        recorded = await self.hub.record(body)
        self.metrics.acknowledged.labels(str(recorded.repeated).lower()).inc()
        return Json({"decision_id": recorded.decision_id, "seq": recorded.seq, "repeated": recorded.repeated})

    async def lose(self, request: Request, body: models.LostRequest) -> Response:
        """Declare the outcome of a decision lost. Later costs no longer wait for it."""
        await asyncio.to_thread(self.hub.advisor.lose, body.decision_id, by=request.user.name, why=body.why)
        return Json({"decision_id": body.decision_id})

    async def stop(self, request: Request, body: models.OrderRequest) -> Response:
        """Throw the kill switch: the safe action only, in every process, until it is released."""
        stop = self.hub.advisor.latch(by=request.user.name, why=body.why)  # in effect from here on
        try:
            return await self._ordered(request, partial(self.hub.advisor.log_stop, stop))
        except (StoreError, TimeoutError) as error:
            raise HTTPException(503, NOT_LOGGED_YET) from error

    async def resume(self, request: Request, body: models.OrderRequest) -> Response:
        """Release the kill switch."""
        return await self._order(request, self.hub.advisor.resume, body.why)

    async def reset_alarm(self, request: Request, body: models.OrderRequest) -> Response:
        """Start the tests of the assumptions anew, after an alarm was understood."""
        return await self._order(request, self.hub.advisor.reset_alarm, body.why)

    async def set_mode(self, request: Request, body: models.ModeRequest) -> Response:
        """Promote, if the criteria are met, or demote, always. The present mode stays as it is."""
        advisor = self.hub.advisor

        def enter(by: str, why: str) -> None:
            advisor.sync()  # another process may have changed the mode
            present = advisor.status().mode
            if rank(body.mode) > rank(present):
                asked = replace(advisor.criteria, uplift=None) if body.override else advisor.criteria
                advisor.promote(body.mode, by=by, why=why, criteria=asked)
            elif body.mode != present:
                advisor.demote(body.mode, by=by, why=why)
            elif not why.strip():
                raise InputError("`why` must say something: the log is read by people.")

        return await self._order(request, enter, body.why)

    async def _order(self, request: Request, order: Callable[..., None], why: str) -> Response:
        """Give an order to the advisor; the answer is the status then."""
        return await self._ordered(request, partial(order, by=request.user.name, why=why))

    async def _ordered(self, request: Request, order: Callable[[], None]) -> Response:
        """Carry out an order. Its answer waits neither for readers nor, longer than the limit, for the log."""
        loop = asyncio.get_running_loop()

        def answered() -> bytes:
            order()
            return to_json(self.view.status(request.user, wait=False), inf_nan_mode="null")

        return Json(await asyncio.wait_for(loop.run_in_executor(self._orders, answered), self._config.limits.seconds))

    async def status(self, request: Request, query: None) -> Response:
        """Mode, switch, alarm, counts and where the log ends."""
        return await self._read(request, self.view.status, request.user)

    async def decisions(self, request: Request, query: models.DecisionsQuery) -> Response:
        """The last decisions, newest first."""
        return await self._read(request, self.view.decisions, query.limit, query.before, query.kind)

    async def decision(self, request: Request, query: None) -> Response:
        """One decision with its certificate and its place in the log."""
        return await self._read(request, self.view.decision, request.path_params["id"])

    async def series(self, request: Request, query: models.SeriesQuery) -> Response:
        """Columns for charts."""
        return await self._read(request, self.view.series, query.window, query.points)

    async def _read(self, request: Request, view: Callable[..., dict[str, Any]], *given: Any) -> Response:
        """Answer from a view, which reads the log, in the readers' thread."""
        who = (request.user.name, request.client and request.client.host)
        return Json(await self.readers.run(who, lambda: to_json(view(*given), inf_nan_mode="null")))

    async def events(self, request: Request, query: models.EventsQuery) -> Response:
        """Wait until the log is longer than `after`, at most `wait` seconds."""
        head = await self.poll.head_after(query.after, query.wait)
        kinds = await asyncio.to_thread(self.view.kinds, query.after) if head > query.after else []
        return Json({"head": head, "kinds": kinds})

    async def prometheus(self, request: Request, query: None) -> Response:
        """For Prometheus. What the log knows is of its end; requests and answers are those of all workers."""
        text = await self.readers.run(None, lambda: self.metrics.text(*self.view.advisor_status()))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthz(self, request: Request, query: None) -> Response:
        """The process answers. `open`: the service asks for no tokens."""
        return Json({"status": "ok", "open": self._is_open})

    async def readyz(self, request: Request, query: None) -> Response:
        """The log can be read, and could be written when last used; the problem's functions did not fail on it."""
        if await self.hub.ready():
            waits = self.hub.advisor.waits()  # a process that does not learn decides as safely as before
            learning = {} if waits is None else {"learning": f"{waits.said(time.time(), named=False)} {WHICH}"}
            return Json({"status": "ready", **learning})
        return Json({"status": "the log cannot be used, or not be applied: the service's own log says why"}, 503)

    async def page(self, request: Request, query: None) -> Response:
        """The dashboard and its files."""
        return self._pages.response(request.path_params.get("name", "index.html"))

    async def description(self, request: Request, query: None) -> Response:
        """The OpenAPI document."""
        return Json(self._openapi)

    def _endpoints(self) -> list[Endpoint]:
        """Everything that is served, most frequent first."""
        order, decision, readiness = models.OrderRequest, models.DecisionAnswer, models.Readiness
        return [
            Endpoint("POST", "/v1/decisions", self.decide, role="decide", takes=models.DecisionRequest,
                     answers=decision, unavailable=decision, header=KEY_HEADER, tag="decide"),
            Endpoint("POST", "/v1/outcomes", self.record, role="record", takes=models.OutcomeRequest,
                     answers=models.OutcomeAnswer, tag="record"),
            Endpoint("POST", "/v1/lost", self.lose, role="record", takes=models.LostRequest,
                     answers=models.LostAnswer, tag="record"),
            Endpoint("GET", "/v1/status", self.status, tag="read"),
            Endpoint("GET", "/v1/decisions", self.decisions, takes=models.DecisionsQuery, tag="read"),
            Endpoint("GET", "/v1/decisions/{id}", self.decision, tag="read"),
            Endpoint("GET", "/v1/series", self.series, takes=models.SeriesQuery, tag="read"),
            Endpoint("GET", "/v1/events", self.events, takes=models.EventsQuery, tag="read"),
            Endpoint("GET", "/metrics", self.prometheus, media_type="text/plain", tag="read"),
            Endpoint("POST", "/v1/stop", self.stop, role="admin", takes=order, tag="admin"),
            Endpoint("POST", "/v1/resume", self.resume, role="admin", takes=order, tag="admin"),
            Endpoint("POST", "/v1/alarm/reset", self.reset_alarm, role="admin", takes=order, tag="admin"),
            Endpoint("POST", "/v1/mode", self.set_mode, role="admin", takes=models.ModeRequest, tag="admin"),
            Endpoint("GET", "/healthz", self.healthz, role=None, tag="health"),
            Endpoint("GET", "/readyz", self.readyz, role=None, answers=readiness, unavailable=readiness, tag="health"),
            Endpoint("GET", "/openapi.json", self.description, role=None),
            Endpoint("GET", "/static/{name}", self.page, role=None),
            Endpoint("GET", "/", self.page, role=None),
        ]  # fmt: skip


def make_advisor(config: ServiceConfig, *, read_only: bool = False) -> Advisor:
    """The advisor that a configuration describes. With several workers each batch first looks at the log.

    With `read_only` nothing is written to a log, not even what the configuration changes: a rehearsal.
    """
    guards = config.guards.model_dump(exclude_none=True)
    if guards.get("lost_after") == "never":
        guards["lost_after"] = None
    return Advisor(
        load_problem(config.problem, config.folder),
        store_of(config, read_only=read_only),
        limit_on=config.limit_on,
        guards=Guards(**guards) if guards else None,
        watch=config.watch,
        upkeep=Upkeep(
            when_store_fails=config.when_store_fails,
            snapshot_every=config.snapshot_every,
            refresh=0.0 if config.workers > 1 else 0.25,
        ),
    )


def store_of(config: ServiceConfig, *, read_only: bool) -> Store:
    """The log. No request waits longer for a PostgreSQL that hangs than it would wait for the log."""
    return open_store(config.store_address(), read_only=read_only, patience=config.limits.seconds)


def warm_up(advisor: Advisor) -> None:
    """Load what a decision and an outcome need, so that the first request need not wait for it.

    Played on stand-ins of the advisor's problem, in memory: neither its log nor its functions are touched, whose states
    are anyway unknown before the first request.
    """
    horizon, m = min(2, advisor.problem.horizon), len(advisor.problem.constraints)
    rows = [[0.5, 0.0], [0.0, 0.5]]
    shared: dict[str, Any] = {
        "horizon": horizon,
        "constraints": [Constraint(threshold=1.0, noise=0.1, safe_cost=0.1) for _ in range(m)],
    }
    problems = (
        Problem.from_rays(phi_0=rows[:1], endpoints=[rows[1:]], **shared),
        Problem.from_table(features=[rows], baseline_action=[0], **shared),
    )
    settings = advisor.replica.ledger.settings
    how: dict[str, Any] = {}
    if settings is not None:  # as the log was set up
        how = {"limit_on": limit_of(settings.algorithm), "watch": settings.watch}
    for problem in problems:
        with suppress(Exception):  # it saves time and nothing else: whatever fails here, the service can do without
            stand_in = Advisor(problem, config=advisor.replica.learner.config, **how)
            for step in [*range(horizon)] * 2:
                decision = stand_in.decide(0, step, "warm-up")
                stand_in.record(decision.id, 0.0, [0.1] * m, 0)
