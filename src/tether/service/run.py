"""Start the service: uvicorn, one process or several, with structured logs."""

import asyncio
import json
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tether.errors import InputError
from tether.service.config import ServiceConfig, read_config

if TYPE_CHECKING:
    from tether.live.advisor import Advisor
    from tether.service.app import Service

CONFIG = "TETHER_SERVICE_CONFIG"
"""Environment variable by which worker processes find their configuration."""

ACCESS_LOG = "TETHER_SERVICE_ACCESS_LOG"
"""Environment variable that is "no" if worker processes shall write no line per request."""

MOST_FILES = 2**15
"""Open files that are counted on, however many the system allows."""

SAY_AGAIN = 60.0
"""Seconds after which the log says again that connections are turned away."""


class JsonLines(logging.Formatter):
    """One JSON object per line. The access log comes as JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line."""
        if record.name == "tether.service.access":
            return record.getMessage()
        line = {"time": round(time.time(), 3), "level": record.levelname, "logger": record.name}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, access: bool = True) -> None:
    """Structured logs on standard error; nothing secret is ever handed to a logger."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("tether.service.access").setLevel(logging.INFO if access else logging.WARNING)


class Line(H11Protocol):
    """A connection, one of `most` at once, that ends if `seconds` after a request began only part of it is here, unless
    somebody waits for the rest: a late body is the doorway's to refuse. Answers take their time.
    """

    _said: ClassVar[float] = -math.inf

    def __init__(self, *given: Any, seconds: float, most: int, **named: Any) -> None:
        super().__init__(*given, **named)
        self._seconds, self._most = seconds, most
        self._arriving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for the first request, unless there are too many who do."""
        super().connection_made(transport)
        self._arriving = self.loop.call_later(self._seconds, self._end)
        if len(self.connections) > self._most:
            transport.abort()
            if self.loop.time() - Line._said > SAY_AGAIN:  # once, not for each of those who try
                Line._said = self.loop.time()
                logging.getLogger("tether.service").warning(
                    "%d connections are open, the limit: more are turned away. `ulimit -n` sets it, to half of that",
                    self._most,
                )

    def data_received(self, data: bytes) -> None:
        """Take what came. The timer runs from a request's first byte to its last: most come whole, and need none."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self.conn.their_state is h11.SEND_BODY:
            if self._arriving is None:
                self._arriving = self.loop.call_later(self._seconds, self._end)
        elif self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._arriving is not None:
            self._arriving.cancel()
        super().connection_lost(exc)

    def _end(self) -> None:
        self._arriving = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


def how_to_listen(config: ServiceConfig) -> dict[str, Any]:
    """Options for uvicorn: connections have half of the files that this process may open; of the other half, those who
    are taken in together, and then turned away, have some. Without files the loop would do nothing but fail to accept.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MOST_FILES if files == resource.RLIM_INFINITY else min(files, MOST_FILES)
    line = partial(Line, seconds=config.limits.seconds, most=max(1, files // 2))
    return {"http": line, "backlog": max(1, files // 16)}


def serve(config_path: Path, *, access_log: bool = True, listening: Callable[[str], object] = str) -> None:
    """Serve until told to stop, and say where, once it can be reached.

    SIGTERM and Ctrl-C finish what has begun and save a snapshot.
    """
    config = read_config(config_path)
    log_to_stderr(access=access_log)
    if config.tokens is None:
        logging.getLogger("tether.service").warning(
            "no tokens are set: every program on this machine may do everything"
        )
    os.environ[CONFIG], os.environ[ACCESS_LOG] = str(Path(config_path).resolve()), "yes" if access_log else "no"
    threading.Thread(target=_tell, args=(config, listening), daemon=True).start()
    uvicorn.run(
        "tether.service.run:app_of_worker",
        factory=True,
        host=config.host,
        port=config.port,
        workers=config.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(config.limits.seconds) + 1,
        **how_to_listen(config),
    )


def _tell(config: ServiceConfig, listening: Callable[[str], object]) -> None:
    """Wait until somebody listens: a worker of ours, for `check_port` found nobody. Port 0 is in the log only."""
    while config.port:
        with suppress(OSError), socket.create_connection((config.host, config.port), 1.0):
            host = f"[{config.host}]" if ":" in config.host else config.host
            listening(f"http://{host}:{config.port}/")
            return
        time.sleep(0.05)


def check_port(config: ServiceConfig) -> None:
    """Refuse an address that cannot be listened on, in plain words and before anything is started."""
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((config.host, config.port), family=family).close()
    except OSError as error:
        raise InputError(
            f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}. Is a service running "
            "there? Stop it, or set another `port` in the configuration."
        ) from error


def check_start(config: ServiceConfig) -> None:
    """Everything that would fail in a worker, said before one is started: the problem, the tokens, the log.

    A log is made if there is none; nothing is written to one that another service may be using.
    """
    from tether.service.app import make_advisor, store_of
    from tether.service.auth import read_tokens

    if config.tokens is not None:
        read_tokens(config.folder / config.tokens)
    store_of(config, read_only=False).close()
    advisor = make_advisor(config, read_only=True)
    warm_up(advisor)
    advisor.close()


def warm_up(advisor: "Advisor") -> None:
    """Load every kernel that a decision and an outcome need, so that the first request need not wait for it.

    Played on stand-ins of the advisor's problem, in memory: neither its log nor its functions are touched, whose states
    are anyway unknown before the first request. Kernels depend on the kind of a problem, not on its numbers.
    """
    from tether.live.advisor import Advisor
    from tether.problem.problem import Problem

    told, learner = advisor.problem, advisor.replica.learner
    horizon, m = min(2, told.horizon), told.constraints
    rows, costs = [[0.5, 0.0], [0.0, 0.5]], [[[0.1] * m]] * horizon
    shared: dict[str, Any] = {"baseline_cost": costs, "horizon": horizon, "threshold": (1.0,) * m, "noise": (0.1,) * m}
    problems = (
        Problem.from_rays(phi_0=rows[:1], endpoints=[rows[1:]], **shared),
        Problem.from_table(features=[rows], baseline_action=[0], **shared),
    )
    settings = advisor.replica.ledger.settings
    how: dict[str, Any] = {}
    if settings is not None:  # as the log was set up
        how = {"algorithm": settings.algorithm, "watch": settings.watch}
    for problem in problems:
        with suppress(Exception):  # it saves time and nothing else: whatever fails here, the service can do without
            stand_in = Advisor(problem, config=learner.config, **how)
            for step in [*range(horizon)] * 2:
                decision = stand_in.decide(0, step, "warm-up")
                stand_in.record(decision.id, 0.0, [0.1] * m, 0)


def app_of_worker() -> object:
    """The application of one worker process, whose configuration is named by the environment."""
    path = os.environ.get(CONFIG)
    if not path:
        raise InputError(f"{CONFIG} is not set: start the service with `tether serve CONFIG.toml`.")
    if not logging.getLogger().handlers:
        log_to_stderr(access=os.environ.get(ACCESS_LOG) != "no")
    from tether.service.app import create_app

    app = create_app(read_config(Path(path)))
    begin = app.router.lifespan_context

    @asynccontextmanager
    async def life(running: "Service") -> AsyncIterator[None]:
        async with begin(running):
            warm_up(running.state.hub.advisor)
            _end_waits_on_signals(running)
            yield

    app.router.lifespan_context = life
    return app


def _end_waits_on_signals(app: "Service") -> None:
    """Answer long polls when a signal asks for the end: uvicorn tells the application only after the last request."""
    for number in (signal.SIGINT, signal.SIGTERM):
        theirs = signal.getsignal(number)

        def both(number: int, frame: object, theirs: object = theirs) -> None:
            app.state.watch.end()
            if callable(theirs):
                theirs(number, frame)
            elif theirs is signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        signal.signal(number, both)
