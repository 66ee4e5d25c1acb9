"""The work behind `reproduce`, `run` and `list`: progress on standard error, results as plain data and as tables."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import typer

from tether.cli.output import notice, print_json, show_paths, show_table
from tether.errors import imported
from tether.lab import specs
from tether.lab.books import load
from tether.lab.engines import Engine
from tether.lab.registry import AGENTS, WORLDS, AgentKind, WorldKind
from tether.lab.runner import Failure, Listener, Unit, run_study
from tether.lab.specs import Study
from tether.lab.studies import view_of
from tether.lab.view import Table

EVERY = 5.0
"""Seconds between two plain lines."""


class Lines(Listener):
    """Progress as plain lines, every few seconds, with the time left."""

    def __init__(self) -> None:
        self._name, self._total, self._kept, self._done = "", 0, 0, 0
        self._began = self._spoke = 0.0

    def started(self, study: Study, total: int, kept: int) -> None:
        """Print how many runs there are."""
        self._name, self._total, self._kept, self._done = study.name, total, kept, 0
        self._began = self._spoke = time.monotonic()
        notice(f"{study.name}: {total} runs of {study.episodes} episodes, {kept} of them finished before")

    def finished(self, unit: Unit, seconds: float) -> None:
        """Count, and print a line every few seconds."""
        self._done += 1
        now = time.monotonic()
        if now - self._spoke >= EVERY:
            self._spoke = now
            left = (now - self._began) / self._done * (self._total - self._kept - self._done)
            notice(f"{self._name}: {self._kept + self._done} of {self._total} runs, about {left:.0f} s left")

    def failed(self, failure: Failure) -> None:
        """Print it at once."""
        notice(_failure_line(failure))


class Bars(Listener):
    """On a terminal: a bar for the study and one for each run that is under way, each with its time left."""

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
        """Move the run's bar; create it first if it is new."""
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
        self._progress.console.print(_failure_line(failure), markup=False)

    def ended(self) -> None:
        """Remove the bars from the terminal."""
        self._progress.stop()


def _failure_line(failure: Failure) -> str:
    return f"FAILED {failure.label}, seed {failure.seed}: {failure.message} (see {failure.traceback})"


class Conducted(NamedTuple):
    """A study that was run: the object that `--json` prints, and its table for a terminal."""

    report: dict[str, Any]
    table: Table
    more: dict[str, Table]


def conduct(study: Study, folder: Path, engine: Engine, figures: bool) -> Conducted:
    """Run a study, judge it, draw it."""
    for needed in ("pyarrow", "matplotlib", "plotly") if figures else ("pyarrow",):
        imported(needed, "experiments")  # now, not when all has run
    began = time.perf_counter()
    watcher = Bars() if sys.stderr.isatty() else Lines()
    try:
        done = run_study(study, folder, engine, watcher)
    finally:
        watcher.ended()
    results = load(folder)
    artifacts = [folder / "study.json", folder / "runs"]
    if figures and results.finished:
        from tether.lab import report

        artifacts += [*report.draw(results, folder / "figures"), report.write([results], folder / "report.html")]
    view = view_of(results)
    table = view.table(results)
    failures = [
        {"agent": f.label, "seed": f.seed, "message": f.message, "traceback": str(f.traceback)} for f in done.failures
    ]
    summary = {
        "study": study.name,
        "title": study.title,
        "seconds": round(time.perf_counter() - began, 3),
        "claims": [asdict(claim) for claim in view.claims(results)],
        "table": table.rows,
        "failures": failures,
        "ran": done.ran,
        "kept": done.kept,
        "artifacts": [str(path) for path in artifacts],
    }
    return Conducted(summary, table, view.more(results))


def show(conducted: Sequence[Conducted], *, merged: bool, json: bool) -> None:
    """The outcome of studies; with `merged`, one object with each of them inside. Exit code 1 if a run failed."""
    reports = [one.report for one in conducted]
    if json:
        together = ("claims", "table", "failures", "artifacts")
        whole = {
            "study": "all",
            "seconds": sum(report["seconds"] for report in reports),
            **{key: [entry for report in reports for entry in report[key]] for key in together},
            "studies": reports,
        }
        print_json(whole if merged else reports[0])
    else:
        for report, table, more in conducted:
            _show(report, table, more)
    if any(report["failures"] for report in reports):
        raise typer.Exit(1)


def _show(report: dict[str, Any], table: Table, more: Mapping[str, Table]) -> None:
    show_table(f"{report['study']}: {report['title']}", table.heads, table.lines)
    for name, one in more.items():
        show_table(f"{report['study']}: {name}", one.heads, one.lines)
    if report["claims"]:
        claims = [("holds" if c["holds"] else "FAILS", c["text"], c["evidence"]) for c in report["claims"]]
        show_table("Claims", ("here it", "claim", "evidence"), claims)
    for failure in report["failures"]:
        typer.echo(f"FAILED {failure['agent']}, seed {failure['seed']}: {failure['message']} ({failure['traceback']})")
    show_paths([Path(path) for path in report["artifacts"]], False)
    kept = f" ({report['kept']} kept from before)" if report["kept"] else ""
    typer.echo(f"{report['study']}: {report['ran']} runs{kept} in {report['seconds']:.1f} s")


def show_catalogue(figures: Mapping[str, str], json: bool) -> None:
    """Worlds, agents, figures and other shipped studies, with one line each and their options."""
    others = [name for name in specs.shipped() if name not in figures]
    catalogue = {
        "worlds": [_entry(name, WORLDS.get(name)) for name in WORLDS.names()],
        "agents": [_entry(name, AGENTS.get(name)) for name in AGENTS.names()],
        "figures": [{"name": name, "summary": text} for name, text in figures.items()],
        "studies": [{"name": name, "summary": specs.paper_study(name).title} for name in others],
    }
    if json:
        print_json(catalogue)
        return
    for what, entries in catalogue.items():
        show_table(what, ("name", "what it is"), [(entry["name"], entry["summary"]) for entry in entries])
        for entry in entries:
            if entry.get("options"):
                rows = [(option["name"], option["type"], option["default"]) for option in entry["options"]]
                show_table(f"options of {entry['name']}", ("option", "type", "default"), rows)


def _entry(name: str, kind: WorldKind | AgentKind) -> dict[str, Any]:
    listed = [
        {"name": key, "type": option.type_name, "default": repr(option.default)} for key, option in kind.options.items()
    ]
    return {"name": name, "summary": kind.summary, "options": listed}
