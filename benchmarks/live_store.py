"""Durable appends per second and their latency: SQLite (full sync) and PostgreSQL, 1 and 32 threads, with group commit.

`.venv/bin/python benchmarks/live_store.py [--seconds 3] [--store sqlite]`. Beside it stands how often this disk syncs a
page by itself: the measure of what one sync per append could reach at best.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tether.live.log.chain import Draft, verify_store
from tether.live.log.group_commit import GroupCommit
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore

sys.path.append(str(Path(__file__).parent.parent))


def syncs_per_second(folder: Path, seconds: float) -> float:
    """Pages of 4 kB written and synced one after the other, as a database's log is."""
    handle, count, end = os.open(folder / "raw", os.O_RDWR | os.O_CREAT, 0o600), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        os.write(handle, bytes(4096))
        os.fdatasync(handle)
        count += 1
    os.close(handle)
    return count / seconds


def decision(name: str) -> Draft:
    """About what a decision at d = 20 is in the log: 2 kB, and two keys."""
    feature = [0.1 * n for n in range(20)]
    body = {"decision_id": name, "feature": feature, "certificate": {"sum": feature, "text": "x" * 1200}}
    return Draft("decision", body, (f"request:{name}", f"decision:{name}"))


def measure(append, threads: int, seconds: float) -> tuple[float, float, float]:
    """Appends per second, and the 50th and 99th percentile of the wait for one, in milliseconds."""
    waits: list[list[float]] = [[] for _ in range(threads)]
    barrier, run = threading.Barrier(threads + 1), time.time_ns()

    def work(number: int) -> None:
        barrier.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            append([decision(f"{run}-{number}-{len(waits[number])}")])
            waits[number].append(time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    passed, all_waits = time.perf_counter() - start, 1000 * np.concatenate([np.array(w) for w in waits])
    return len(all_waits) / passed, float(np.percentile(all_waits, 50)), float(np.percentile(all_waits, 99))


@contextmanager
def opened(kind: str, folder: Path):
    """A fresh store; for PostgreSQL with a server of its own."""
    if kind == "sqlite":
        store = SqliteStore(folder / "log.db")
        yield store
        store.close()
        return
    from tests.live.postgres import Server

    server = Server()
    try:
        server.start()
        store = PostgresStore(server.address)
        yield store
        store.close()
    finally:
        server.remove()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    arguments = parser.parse_args()
    table = Table("store", "threads", "group commit", "appends/s", "p50 ms", "p99 ms", "of raw syncs")
    with tempfile.TemporaryDirectory() as name:
        raw = syncs_per_second(Path(name), arguments.seconds)
        for kind in arguments.store or ["sqlite", "postgres"]:
            with opened(kind, Path(name)) as store:
                for threads, grouped in ((1, False), (1, True), (32, False), (32, True)):
                    with GroupCommit(store) as commits:
                        append = commits.append if grouped else store.append
                        rate, half, most = measure(append, threads, arguments.seconds)
                    share = f"{rate / raw:.2f}"
                    table.add_row(kind, str(threads), str(grouped), f"{rate:.0f}", f"{half:.2f}", f"{most:.2f}", share)
                if verify_store(store).fault is not None:
                    raise SystemExit(f"{kind}: the chain is broken")
    console = Console()
    console.print(table)
    console.print(f"raw: {raw:.0f} syncs of 4 kB per second; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
