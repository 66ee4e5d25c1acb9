"""The same units on a Ray cluster: `pip install "tether-rl[ray]"`, then `--engine ray [--address auto]`."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tether.errors import TetherError
from tether.experiments.engines import Task, Tell, WorkerDied

AHEAD = 4
"""Units in flight per core of the cluster, so that no core waits for the driver."""


class RayEngine:
    """Every unit is a Ray task of one core. Without an address a Ray is started on this machine."""

    name = "ray"

    def __init__(self, workers: int | None, address: str | None) -> None:
        try:
            import ray
        except ImportError:
            raise TetherError('the ray engine needs Ray: pip install "tether-rl[ray]".') from None
        self._ray, self._address, self._wanted = ray, address, workers
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
                while len(flying) < AHEAD * self.workers and (item := next(upcoming, None)) is not None:
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
