"""Where the work is done: processes on this machine, or a Ray cluster, behind one small interface.

An engine calls task(unit, tell) for every unit and yields (unit's index, result) as they finish. Task and units must
be picklable; `tell(done)` reports progress inside a unit. A unit whose process died yields a `WorkerDied`. The numbers
do not depend on the engine or the number of workers: every unit draws from its own seed, on one BLAS thread.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tether.errors import InputError, TetherError, nearest

Task = Callable[[Any, Callable[[int], None]], Any]
Tell = Callable[[int, int], None]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
AHEAD = 2
"""Units that a worker holds: the one it works on, and the next, so that it never waits for the parent."""
FALSE_STARTS = 3
"""Workers that may die in a row without any result before the engine gives up."""


class WorkerDied(TetherError):
    """The process that held a unit ended without an answer: killed, out of memory, or crashed in native code."""


class Engine(Protocol):
    """The whole interface."""

    name: str
    workers: int

    def run(self, task: Task, units: Sequence[Any], tell: Tell) -> Iterator[tuple[int, Any]]:
        """Yield (index, result) as units finish, in any order."""


def make_engine(name: str = "local", workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by name. `workers` defaults to all cores."""
    if workers is not None and workers < 0:
        raise InputError(f"workers must be >= 0, but is {workers}.")
    if name == "local":
        if address is not None:
            raise InputError("--address is for the ray engine: add --engine ray.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return InProcess() if workers == 0 else Local(workers or cores)
    if name == "ray":
        return RayEngine(workers or None, address)
    raise InputError(f"unknown engine {name!r}{nearest(name, ['local', 'ray'])}")


class InProcess:
    """No processes at all (workers = 0): for debuggers and for tiny studies."""

    name = "local"
    workers = 0

    def run(self, task: Task, units: Sequence[Any], tell: Tell) -> Iterator[tuple[int, Any]]:
        """One unit after another, here."""
        for index, unit in enumerate(units):
            yield index, task(unit, lambda done, index=index: tell(index, done))  # type: ignore[misc]


class _Worker:
    """One spawned process with a pipe of its own, so that its death is noticed and the lost unit is known."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(task, theirs), daemon=True)
        with _one_thread_each(), _interrupts_ignored():
            self.process.start()
        theirs.close()
        self.held: deque[int] = deque()

    def give(self, index: int, unit: Any) -> None:
        self.held.append(index)
        with suppress(OSError):  # a dead worker is noticed when its answer is read
            self.pipe.send((index, unit))

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class Local:
    """A pool of spawned processes, one BLAS thread each."""

    name = "local"

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, task: Task, units: Sequence[Any], tell: Tell) -> Iterator[tuple[int, Any]]:
        """Feed the workers; replace one that dies. Leaving early (Ctrl-C, an error) ends them all."""
        waiting = deque(range(len(units)))
        crew = [_Worker(task) for _ in range(min(self.workers, len(units)))]
        deaths = 0
        try:
            while waiting or any(worker.held for worker in crew):
                for _ in range(AHEAD):  # breadth first: every worker has work before any has two
                    for worker in crew:
                        if waiting and len(worker.held) < AHEAD:
                            worker.give(waiting[0], units[waiting.popleft()])
                for worker in _ready(crew):
                    try:
                        kind, index, content = worker.pipe.recv()
                    except (EOFError, OSError):
                        deaths += 1
                        yield from self._replace(worker, crew, waiting, task, deaths)
                        continue
                    if kind == "progress":
                        tell(index, content)
                        continue
                    deaths = 0
                    worker.held.remove(index)
                    yield index, content
        finally:
            for worker in crew:
                worker.stop()

    def _replace(
        self, worker: _Worker, crew: list[_Worker], waiting: deque[int], task: Task, deaths: int
    ) -> Iterator[tuple[int, Any]]:
        """Report the unit that a dead worker was running, queue the one it had not begun, start another worker."""
        worker.stop()
        crew.remove(worker)
        if deaths >= FALSE_STARTS:
            raise TetherError(
                f"{deaths} worker processes in a row ended without a result (last exit code "
                f"{worker.process.exitcode}). Try --workers 1, or --workers 0 --debug to see the error."
            )
        blamed = worker.held.popleft()
        waiting.extendleft(reversed(worker.held))
        crew.append(_Worker(task))
        code = worker.process.exitcode
        reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        yield blamed, WorkerDied(f"the worker process died ({reason}): killed, out of memory, or crashed.")


def _ready(crew: list[_Worker]) -> list[_Worker]:
    """Workers whose pipe can be read: they sent a message, or have died."""
    said = set(wait([worker.pipe for worker in crew if worker.held], timeout=1.0))
    return [worker for worker in crew if worker.pipe in said]


def _serve(task: Task, pipe: Connection) -> None:
    """Run units until the parent closes the pipe or dies."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # standard output belongs to the parent
    with suppress(EOFError, OSError):
        while True:
            index, unit = pipe.recv()
            result = task(unit, lambda done, index=index: pipe.send(("progress", index, done)))  # type: ignore[misc]
            pipe.send(("done", index, result))
    os._exit(0)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set the number of BLAS threads for spawned processes, which read it once, when they load the library."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start children that ignore Ctrl-C, which the parent handles."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# The same units on a Ray cluster: `pip install "tether-rl[ray]"`, then `--engine ray [--address auto]`.

AHEAD_ON_RAY = 4
"""Units in flight per core of the cluster, so that no core waits for the driver."""


class RayEngine:
    """Every unit is a Ray task of one core. Without an address a Ray is started on this machine."""

    name = "ray"

    def __init__(self, workers: int | None, address: str | None) -> None:
        try:
            import ray
        except ImportError:
            raise TetherError('the ray engine needs Ray: pip install "tether-rl[ray]".') from None
        self._ray, self._address = ray, address
        self.workers = workers or os.cpu_count() or 1

    def run(self, task: Task, units: Sequence[Any], tell: Tell) -> Iterator[tuple[int, Any]]:
        """Keep a window of tasks in flight; results come back through Ray's object store."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            self._connect()
        try:
            self.workers = int(ray.cluster_resources().get("CPU", self.workers))
            remote = ray.remote(num_cpus=1)(_call)
            shared, upcoming = ray.put(task), iter(enumerate(units))
            flying: dict[Any, int] = {}
            while True:
                while len(flying) < AHEAD_ON_RAY * self.workers and (item := next(upcoming, None)) is not None:
                    flying[remote.remote(shared, item[1])] = item[0]
                if not flying:
                    return
                done, _ = ray.wait(list(flying), num_returns=1)
                for reference in done:
                    yield flying.pop(reference), self._result(reference)
        finally:
            if ours:
                ray.shutdown()

    def _connect(self) -> None:
        settings: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
        if self._address is None:
            settings |= {"num_cpus": self.workers, "include_dashboard": False}
        try:
            self._ray.init(address=self._address or "local", **settings)
        except Exception as error:
            where = self._address or "on this machine"
            raise TetherError(f"cannot reach or start Ray {where}: {error}") from error

    def _result(self, reference: Any) -> Any:
        """The answer of a task; Ray has already retried a task whose machine went away."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return WorkerDied(f"Ray could not finish this run: {str(error).splitlines()[0]}")


def _call(task: Task, unit: Any) -> Any:
    """Run a unit on a worker. Ray itself sets OMP_NUM_THREADS to the task's one core."""
    return task(unit, lambda done: None)
