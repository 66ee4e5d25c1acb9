"""Progress of a study on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from tether.cli_output import notice
from tether.experiments.runner import Failure, Listener, Unit
from tether.experiments.specs import Study

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
