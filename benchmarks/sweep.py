"""Proof of scale: a sweep of 1008 runs (worlds x explorers x radii x seeds) through both engines.

    python benchmarks/sweep.py [--json] [--seeds 21] [--repeat 3]

For each engine and number of workers: runs per minute, the overhead per run (what a worker's time holds beyond the runs
themselves), and the growth from 1 to 2 workers. All of them must give the same bits.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tether.lab.books import load
from tether.lab.engines import make_engine
from tether.lab.runner import Listener, Unit, run_study
from tether.lab.specs import Study, parse

SWEEP = """
name = "sweep"
title = "worlds x explorers x radii x seeds"
episodes = 200
seeds = {seeds}

[[worlds]]
name = "synthetic"
options = {{ rays = 20, dimension = 4, horizon = 3 }}
grid = {{ states = [5, 10], noise = [0.01, 0.1] }}

[[agents]]
name = "slucb-qvi"
label = "slucb"
grid = {{ explorer = ["paper", "certified", "directional"], cost_radius = ["theorem", 1.0], value_radius = [1.0, 2.0] }}
"""


class Clock(Listener):
    """Adds up what the runs themselves took, and when the first was done."""

    def __init__(self) -> None:
        self.inside, self.first, self.counted = 0.0, 0.0, 0

    def finished(self, unit: Unit, seconds: float) -> None:
        """Count a run; the first one starts the clock."""
        if self.first:
            self.inside += seconds
            self.counted += 1
        else:
            self.first = time.perf_counter()


@dataclass(frozen=True)
class Line:
    """One engine with one number of workers."""

    engine: str
    workers: int
    runs: int
    seconds: float
    start_up_seconds: float
    runs_per_minute: float
    run_milliseconds: float
    overhead_milliseconds: float
    kilobytes_per_run: float
    digest: str


def measure(study: Study, engine_name: str, workers: int) -> Line:
    """Run the whole sweep into a folder of its own."""
    folder, clock = Path(tempfile.mkdtemp(prefix="tether-sweep-")), Clock()
    try:
        engine, began = make_engine(engine_name, workers), time.perf_counter()
        done = run_study(study, folder, engine, clock)
        ended = time.perf_counter()
        if done.failures:
            sys.exit(f"{len(done.failures)} runs failed, the first: {done.failures[0]}")
        size = sum(path.stat().st_size for path in (folder / "runs").iterdir())
        busy = (ended - clock.first) * workers
        return Line(
            engine=engine_name,
            workers=workers,
            runs=done.ran,
            seconds=round(ended - began, 2),
            start_up_seconds=round(clock.first - began, 2),
            runs_per_minute=round(60.0 * clock.counted / (ended - clock.first)),
            run_milliseconds=round(1000.0 * clock.inside / clock.counted, 2),
            overhead_milliseconds=round(1000.0 * (busy - clock.inside) / clock.counted, 2),
            kilobytes_per_run=round(size / done.ran / 1000.0, 1),
            digest=load(folder).digest()[:16],
        )
    finally:
        shutil.rmtree(folder)


def show(lines: list[Line]) -> None:
    titles = [name for name in asdict(lines[0]) if name != "digest"]
    table = Table(*(title.replace("_", " ") for title in titles))
    for line in lines:
        table.add_row(*(str(asdict(line)[title]) for title in titles))
    Console(width=160).print(table)
    by_key = {(line.engine, line.workers): line.runs_per_minute for line in lines}
    for engine in ("local", "ray"):
        print(f"{engine}: 1 to 2 workers gives {by_key[engine, 2] / by_key[engine, 1]:.2f} times the runs per minute")
    print("all results are equal bit for bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--seeds", type=int, default=21, help="runs per cell; the sweep has 48 cells")
    parser.add_argument("--repeat", type=int, default=1, help="times to measure; the best of each counts")
    chosen = parser.parse_args()
    study = parse(SWEEP.format(seeds=chosen.seeds), "sweep")
    ways = [(engine, workers) for engine in ("local", "ray") for workers in (1, 2)]
    rounds = [[measure(study, *way) for way in ways] for _ in range(chosen.repeat)]
    if len({line.digest for lines in rounds for line in lines}) != 1:
        sys.exit(f"engines disagree: {[(line.engine, line.workers, line.digest) for line in rounds[0]]}")
    lines = [max(tries, key=lambda line: line.runs_per_minute) for tries in zip(*rounds, strict=True)]
    if chosen.json:
        print(json.dumps({"lines": [asdict(line) for line in lines]}, indent=2))
    else:
        show(lines)


if __name__ == "__main__":
    main()
