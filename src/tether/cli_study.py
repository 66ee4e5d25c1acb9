"""The work behind `reproduce`, `run` and `list`: results as plain data, ready to print or to serialise."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tether.cli_progress import listener
from tether.experiments import claims, specs, summary, unit_summary
from tether.experiments.engines import Engine
from tether.experiments.registry import AGENTS, WORLDS, Option
from tether.experiments.results import Results, load
from tether.experiments.runner import StudyRun, run_study
from tether.experiments.specs import Study

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
        return [row.as_dict() for row in unit_summary.unit_table(results)]
    return [row.as_dict() for row in summary.table(results)]


def train_cisr(study: Path, quick: bool) -> None:
    """Students of CISR's optimised teacher on the paper's lake, kept beside the study; those that are there stay."""
    from tether.cisr.train import train_into
    from tether.experiments.cisr_curves import INTENDED, trained_folder

    folder, units = trained_folder(study), QUICK_UNITS if quick else UNITS
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1 if quick else STUDENTS):
        path = folder / f"optimised-{INTENDED}-map-{seed}.json"
        if not path.exists():
            train_into(path, "optimised", INTENDED, "map", seed, units)


def _pictures(results: Results) -> list[Path]:
    from tether.experiments import figures, report

    return [
        *figures.draw(results, results.folder / "figures"),
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
