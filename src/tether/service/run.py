"""Start the service: uvicorn, one process or several, with structured logs."""

import asyncio
import json
import logging
import math
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from tether.errors import InputError, TetherError
from tether.service.app import create_app, make_advisor, store_of, warm_up
from tether.service.auth import read_tokens
from tether.service.config import ServiceConfig, read_config
from tether.service.views import SHARED

CONFIG = "TETHER_SERVICE_CONFIG"
"""Environment variable by which worker processes find their configuration."""

ACCESS_LOG = "TETHER_SERVICE_ACCESS_LOG"
"""Environment variable that is "no" if worker processes shall write no line per request."""

MOST_FILES = 2**15
"""Open files that are counted on, however many the system allows."""

STARTUP = 60
"""Seconds that a worker may take to start, or to answer its supervisor, before it is replaced."""

WARN_EVERY = 60.0
"""Seconds between two warnings that connections are turned away."""

service_log = logging.getLogger("tether.service")


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


class Connection(H11Protocol):
    """Limits concurrent connections to `most`, and to `each` per address (`of_address` counts them).

    It closes one whose request is incomplete after `seconds`, or whose answer is not taken for as long. A handler that
    waits for the rest of a request body refuses it by itself (408), and may take its time to answer.
    """

    _warned_at: ClassVar[float] = -math.inf

    def __init__(
        self, *given: Any, seconds: float, most: int, each: int, of_address: Counter[str], **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._seconds, self._most, self._each, self._of_address = seconds, most, each, of_address
        self._timeout: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the timeout of the first request, or refuse a connection beyond the limits."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that a pause says that the peer has not taken everything
        self._timeout = self.loop.call_later(self._seconds, self._close_if_incomplete)
        self._address = self.client[0] if self.client else ""
        self._of_address[self._address] += 1
        if len(self.connections) > self._most or self._of_address[self._address] > self._each:
            transport.abort()
            if self.loop.time() - Connection._warned_at > WARN_EVERY:  # not for each connection that is refused
                Connection._warned_at = self.loop.time()
                service_log.warning(
                    "%d connections are open, %d of them by %s: more than %d, or %d of one address, are turned away. "
                    "`ulimit -n` sets the first, to half of that; limits.connections_each the other",
                    len(self.connections), self._of_address[self._address], self._address, self._most, self._each,
                )  # fmt: skip

    def data_received(self, data: bytes) -> None:
        """Parse what came. The timeout runs from a request's first byte to its last: most come whole, and need none."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self.conn.their_state is h11.SEND_BODY:
            if self._timeout is None:
                self._timeout = self.loop.call_later(self._seconds, self._close_if_incomplete)
        elif self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def pause_writing(self) -> None:
        """The peer takes no more of an answer for now: it has so many seconds to go on."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._seconds, self._cut_off)

    def resume_writing(self) -> None:
        """It has taken everything."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        self._of_address[self._address] -= 1
        if not self._of_address[self._address]:
            del self._of_address[self._address]
        for timeout in (self._timeout, self._unread):
            if timeout is not None:
                timeout.cancel()
        super().connection_lost(exc)

    def _cut_off(self) -> None:
        """Reset the connection: else the kernel would keep what was not read, and try for minutes to deliver it."""
        line = self.transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _close_if_incomplete(self) -> None:
        self._timeout = None
        if self.cycle is None or self.cycle.response_complete:  # else a handler waits for the body, or answers
            self.transport.abort()


def server_options(config: ServiceConfig) -> dict[str, Any]:
    """Options for uvicorn that limit connections.

    They have half of the files that this process may open; those that are accepted together, and then refused, have
    some of the other half. Without free files the loop would do nothing but fail to accept.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MOST_FILES if files == resource.RLIM_INFINITY else min(files, MOST_FILES)
    most, limits = max(1, files // 2), config.limits
    each = limits.connections_each or max(1, most // 2)
    connection = partial(Connection, seconds=limits.seconds, most=most, each=each, of_address=Counter())
    return {"http": connection, "backlog": max(1, files // 16)}


def serve(config_path: Path, *, access_log: bool = True, listening: Callable[[str], object] = str) -> None:
    """Serve until a signal ends it; `listening` is called with the address once that can be reached.

    SIGTERM and Ctrl-C finish what has begun and save a snapshot.
    """
    config = read_config(config_path)
    log_to_stderr(access=access_log)
    if config.tokens is None:
        service_log.warning("no tokens are set: every program on this machine may do everything")
    os.environ[CONFIG], os.environ[ACCESS_LOG] = str(Path(config_path).resolve()), "yes" if access_log else "no"
    threading.Thread(target=_announce, args=(config, listening), daemon=True).start()
    options = {
        "app": "tether.service.run:app_of_worker",
        "factory": True,
        "host": config.host,
        "port": config.port,
        "workers": config.workers,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": math.ceil(config.limits.seconds) + 1,
        "timeout_worker_healthcheck": STARTUP,
        **server_options(config),
    }
    if config.workers == 1:
        uvicorn.run(**options)
        return
    with shared_counts(), WorkerSocket(config.host, config.port) as port:
        service_log.info("%d workers listen on port %d", config.workers, port.getsockname()[1])
        Supervisor(uvicorn.Config(**options), sockets=[port]).run()


class Supervisor(Multiprocess):
    """Replaces workers that have died, at once."""

    def keep_subprocess_alive(self) -> None:
        """Ping each worker. One that dies before it answers closes its pipe, unless another process holds the same end:
        then no worker would be replaced, and no signal handled, until the timeout."""
        for worker in self.processes:
            worker.child_conn.close()
        super().keep_subprocess_alive()


class WorkerSocket(socket.socket):
    """A bound socket of which each worker process that it is sent to makes one of its own, on the same port.

    The kernel then divides connections evenly; of a socket that all share, the first worker to wake up accepts all
    pending ones. Its protocol is named, so that asyncio sets TCP_NODELAY: else the second half of an answer would wait
    until the peer has acknowledged the first.
    """

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.bind((host, port))

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerSocket, self.getsockname()[:2]


@contextmanager
def shared_counts() -> Iterator[None]:
    """A folder in which several workers count together, in memory where the system has such a place, until the end."""
    if os.environ.get(SHARED):
        yield
        return
    try:
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="tether-metrics-", dir=place)
    except OSError as error:
        service_log.warning("/metrics counts the requests of one worker at a time: %s", error.strerror or error)
        yield
        return
    os.environ[SHARED] = folder
    try:
        yield
    finally:
        del os.environ[SHARED]
        shutil.rmtree(folder, ignore_errors=True)


def _announce(config: ServiceConfig, listening: Callable[[str], object]) -> None:
    """Wait until a worker accepts connections (`claim_port` found no other listener). Port 0 is in the log only."""
    while config.port:
        with suppress(OSError), socket.create_connection((config.host, config.port), 1.0):
            host = f"[{config.host}]" if ":" in config.host else config.host
            listening(f"http://{host}:{config.port}/")
            return
        time.sleep(0.05)


def claim_port(config: ServiceConfig) -> socket.socket:
    """Refuse an address that cannot be listened on, in plain words and before anything is started.

    What is returned keeps it for this service, until it is closed: several workers share a port, and so would those of
    a second service that is started at the same moment, with another log. Its name lives where ports do.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        if config.port and sys.platform == "linux":
            claim.bind(f"\0tether {address[0]} {config.port}")
        socket.create_server((config.host, config.port), family=family).close()
    except OSError as error:
        claim.close()
        raise InputError(
            f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}. Is a service running "
            "there? Stop it, or set another `port` in the configuration."
        ) from error
    return claim


MUCH = 500
"""Entries that take longer to read again, in the worker, than a snapshot takes to be saved: about 0.1 s."""


def check_start(config: ServiceConfig, *, saves: bool = False) -> None:
    """Everything that would fail in a worker, said before one is started: the problem, the tokens, the log.

    A log is made if there is none; no entry is written to one that another service may be using. With `saves`, a
    snapshot is left behind where much of the log had to be read, so that no worker reads it all again.
    """
    if config.tokens is not None:
        read_tokens(config.folder / config.tokens)
    if config.traces:
        import tether.service.traces  # noqa: F401  # is the extra installed?
    store_of(config, read_only=False).close()
    advisor = make_advisor(config, read_only=True)
    warm_up(advisor)
    if saves and advisor.replica.head.seq - advisor.replica.saved_at >= min(config.snapshot_every, MUCH):
        with closing(store_of(config, read_only=False)) as store, suppress(TetherError):  # it only saves time
            store.save_snapshot(advisor.replica.head.seq, advisor.replica.to_bytes())
    advisor.close()


def _end_with(supervisor: Any) -> None:
    """End this worker when its supervisor has ended: nothing else would, and its port would stay taken."""
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


def app_of_worker() -> ASGIApp:
    """The application of one worker process, whose configuration is named by the environment."""
    path = os.environ.get(CONFIG)
    if not path:
        raise InputError(f"{CONFIG} is not set: start the service with `tether serve CONFIG.toml`.")
    if not logging.getLogger().handlers:
        log_to_stderr(access=os.environ.get(ACCESS_LOG) != "no")
    if (supervisor := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(supervisor,), name="tether-supervised", daemon=True).start()
    config = read_config(Path(path))
    app = create_app(config)
    if config.traces:
        from tether.service.traces import Traced, otlp_tracer  # opentelemetry need not be installed

        return Traced(app, otlp_tracer())
    return app
