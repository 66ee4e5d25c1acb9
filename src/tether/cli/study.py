"""Progress of a study on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tether.cli.output import notice
from tether.lab import books, claims, specs
from tether.lab.books import Results, load
from tether.lab.engines import Engine
from tether.lab.registry import AGENTS, WORLDS, Option
from tether.lab.runner import Failure, Listener, StudyRun, Unit, run_study
from tether.lab.specs import Study
from tether.lab.studies.figure2 import unit_table

EVERY = 5.0
"""Seconds between two plain lines."""


def listener() -> Listener:
    """The one that suits where standard error goes."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines(Listener):
    """A line now and then, with the time left."""

    def __init__(self) -> None:
        self._name, self._total, self._kept, self._done = "", 0, 0, 0
        self._began = self._spoke = 0.0

    def started(self, study: Study, total: int, kept: int) -> None:
        """Say how much there is to do."""
        self._name, self._total, self._kept, self._done = study.name, total, kept, 0
        self._began = self._spoke = time.monotonic()
        notice(f"{study.name}: {total} runs of {study.episodes} episodes, {kept} of them finished before")

    def finished(self, unit: Unit, seconds: float) -> None:
        """Count, and speak every few seconds."""
        self._done += 1
        now = time.monotonic()
        if now - self._spoke >= EVERY:
            self._spoke = now
            left = (now - self._began) / self._done * (self._total - self._kept - self._done)
            notice(f"{self._name}: {self._kept + self._done} of {self._total} runs, about {left:.0f} s left")

    def failed(self, failure: Failure) -> None:
        """Say it at once."""
        notice(f"FAILED {failure.label}, seed {failure.seed}: {failure.message} (see {failure.traceback})")


class Bars(Listener):
    """A bar for the study and one for each run that is under way, each with its time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._study: Any = None
        self._runs: dict[tuple[str, int], Any] = {}

    def started(self, study: Study, total: int, kept: int) -> None:
        """Show the study's bar."""
        self._progress.start()
        self._study = self._progress.add_task(f"{study.name} (runs)", total=total, completed=kept)

    def advanced(self, unit: Unit, episodes: int) -> None:
        """Move the run's bar; make it on first sight."""
        key = (unit.info.key, unit.seed)
        if key not in self._runs:
            self._runs[key] = self._progress.add_task(f"  {unit.title}", total=unit.episodes)
        self._progress.advance(self._runs[key], episodes)

    def finished(self, unit: Unit, seconds: float) -> None:
        """Move the study's bar and drop the run's."""
        self._progress.advance(self._study)
        if (run := self._runs.pop((unit.info.key, unit.seed), None)) is not None:
            self._progress.remove_task(run)

    def failed(self, failure: Failure) -> None:
        """Print above the bars."""
        self._progress.advance(self._study)
        self._progress.console.print(
            f"FAILED {failure.label}, seed {failure.seed}: {failure.message} (see {failure.traceback})", markup=False
        )

    def ended(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()


# The work behind `reproduce`, `run` and `list`: results as plain data, ready to print or to serialise.

STUDENTS, UNITS, QUICK_UNITS = 5, 11, 1
"""What `--with-cisr` trains: about four CPU-minutes a student of eleven units."""


def conduct(study: Study, folder: Path, engine: Engine, figures: bool) -> dict[str, Any]:
    """Run a study, judge it, draw it; the object that `--json` prints."""
    began = time.perf_counter()
    watcher = listener()
    try:
        done = run_study(study, folder, engine, watcher)
    finally:
        watcher.ended()
    results = load(folder)
    finished = any(cell.seeds for cell in results.cells)
    artifacts = [folder / "study.json", folder / "runs"]
    if figures and finished:
        artifacts += _pictures(results)
    return {
        "study": study.name,
        "title": study.title,
        "seconds": round(time.perf_counter() - began, 3),
        "claims": [claim.as_dict() for claim in claims.evaluate(results)],
        "table": _table(results),
        "failures": _failures(done),
        "ran": done.ran,
        "kept": done.kept,
        "artifacts": [str(path) for path in artifacts],
    }


def _table(results: Results) -> list[dict[str, Any]]:
    if results.counts_units:
        return [row.as_dict() for row in unit_table(results)]
    return [row.as_dict() for row in books.table(results)]


def train_cisr(study: Path, quick: bool) -> None:
    """Students of CISR's optimised teacher on the paper's lake, kept beside the study; those that are there stay."""
    from tether.lab.cisr.train import train_into
    from tether.lab.studies.figure2 import INTENDED, trained_folder

    folder, units = trained_folder(study), QUICK_UNITS if quick else UNITS
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1 if quick else STUDENTS):
        path = folder / f"optimised-{INTENDED}-map-{seed}.json"
        if not path.exists():
            train_into(path, "optimised", INTENDED, "map", seed, units)


def _pictures(results: Results) -> list[Path]:
    from tether.lab import plots, report

    return [
        *plots.draw(results, results.folder / "figures"),
        report.write([results], results.folder / "report.html"),
    ]


def _failures(done: StudyRun) -> list[dict[str, Any]]:
    return [
        {"agent": f.label, "seed": f.seed, "message": f.message, "traceback": str(f.traceback)} for f in done.failures
    ]


def catalogue(figures: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Worlds, agents, figures and other shipped studies, with one line each and their options."""
    shipped = specs.shipped()
    return {
        "worlds": [_entry(name, WORLDS.get(name)) for name in WORLDS.names()],
        "agents": [_entry(name, AGENTS.get(name)) for name in AGENTS.names()],
        "figures": [{"name": name, "summary": text} for name, text in figures.items()],
        "studies": [
            {"name": name, "summary": specs.paper_study(name).title} for name in shipped if name not in figures
        ],
    }


def _entry(name: str, kind: Any) -> dict[str, Any]:
    options: Mapping[str, Option] = kind.options
    listed = [
        {"name": key, "type": option.type_name, "default": repr(option.default)} for key, option in options.items()
    ]
    return {"name": name, "summary": kind.summary, "options": listed}
