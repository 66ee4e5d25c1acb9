"""spec + seed -> run. Each run is one unit of work, idempotent by (hash of its cell, seed), kept in a file of its own.

Kill it at any time and start it again: finished runs are found and kept, unfinished ones are redone, and nothing can
be counted twice, because a run has one place on disk and gets there whole or not at all.
"""

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tether.agents.agent import LeastSquaresAgent
from tether.agents.fixed import AlwaysSafe
from tether.agents.rslucb import RslucbQvi
from tether.errors import TetherError
from tether.kernels.compiled import KERNEL
from tether.lab import books, cells, storage
from tether.lab.books import MANIFEST, RUNS, CellInfo
from tether.lab.engines import Engine
from tether.lab.simulate import (
    OwnConstraint,
    Witness,
    World,
    linear_of,
    simulate,
    simulate_any,
    simulate_stepwise,
    simulate_units,
)
from tether.lab.specs import Schedule, Study, source_hash, spec_hash
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.records import Array

FAILURES = "failures"
TELL_EVERY = 0.1
"""Seconds between two reports of progress inside a run."""
NUMERICS = (
    "records.py",
    "problem",
    "kernels",
    "check",
    "agents",
    "lab/worlds",
    "lab/episodes.py",
    "lab/simulate.py",
)
"""The sources that numbers depend on, within the package."""


@dataclass(frozen=True)
class Unit:
    """One run, ready to be sent to another process or machine."""

    info: CellInfo
    episodes: int
    seed: int
    metadata: dict[str, Any]

    @property
    def title(self) -> str:
        """For progress and error messages."""
        return f"{self.info.label}, seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """A run as the bytes of its Parquet file, or the traceback of what went wrong."""

    part: bytes
    error: str
    seconds: float


@dataclass(frozen=True)
class Failure:
    """A run that did not finish."""

    label: str
    seed: int
    message: str
    traceback: Path


class Listener:
    """Progress of a study. Override what is of interest."""

    def started(self, study: Study, total: int, kept: int) -> None:
        """`total` runs are wanted, of which `kept` were finished before."""

    def advanced(self, unit: Unit, episodes: int) -> None:
        """A run has played `episodes` more episodes."""

    def finished(self, unit: Unit, seconds: float) -> None:
        """A run is done and on disk."""

    def failed(self, failure: Failure) -> None:
        """A run failed; the others go on."""

    def ended(self) -> None:
        """Nothing is left to do."""


@dataclass
class StudyRun:
    """What `run_study` did."""

    folder: Path
    ran: int = 0
    kept: int = 0
    failures: list[Failure] = field(default_factory=list)


CODE = source_hash(NUMERICS)
"""Of the sources that numbers depend on, as this process imported them: results of others are redone, not mixed in."""


def execute(unit: Unit, tell: Callable[[int], None]) -> Outcome:
    """Run one unit. Touches no files; an exception becomes part of the outcome."""
    began = time.perf_counter()
    try:
        _check_code(unit)
        columns, alarms = play(unit, tell)
        metadata = {**unit.metadata, "seed": unit.seed} | ({"alarms": alarms} if alarms else {})
        part = books.encode(unit.info, unit.seed, columns, metadata)
    except Exception:
        return Outcome(b"", traceback.format_exc(), time.perf_counter() - began)
    return Outcome(part, "", time.perf_counter() - began)


def play(unit: Unit, tell: Callable[[int], None]) -> tuple[dict[str, Array], dict[str, str]]:
    """The columns of one run (K,), from its spec and seed alone, and what its watches said."""
    info, episodes = unit.info, unit.episodes
    if info.real:
        from tether.lab.real.play import play as play_real

        return play_real(info, unit.seed, tell)
    streams = Streams.from_seed(*divmod(unit.seed, info.repeats))
    instance = unit.seed // info.repeats
    world = _world(info.world, json.dumps(info.world_options, sort_keys=True), episodes, instance)
    agent = cells.build_agent(info.agent, info.options, world, episodes, streams)
    clock = _Clock(tell)
    witness: Witness | None = None
    kept: Any
    if info.units is not None:
        if not isinstance(agent, RslucbQvi | AlwaysSafe) or linear_of(world) is not world:
            raise TetherError(f"interaction units are for randomised agents in linear worlds, unlike {info.label}.")
        kept = simulate_units(linear_of(world), agent, episodes, streams, Schedule(**info.units), clock.progress)
    elif isinstance(world, LinearMDP) and info.own:
        witness = OwnConstraint(world, info.own, episodes)
        kept = simulate_any(world, agent, episodes, streams, clock.progress, witness)
    elif isinstance(world, LinearMDP) and not info.watches:
        if isinstance(agent, LeastSquaresAgent) and not agent.mixes and not world.ended.any():
            kept = simulate(world, agent, episodes, streams, clock.progress)
        else:
            kept = simulate_any(world, agent, episodes, streams, clock.progress)
    else:
        if getattr(agent, "mixes", False):
            raise TetherError(f"watches and misspecified worlds are for agents that do not mix, unlike {info.label}.")
        witness = Witness(world, info.watches, episodes)
        single = isinstance(agent, LeastSquaresAgent) and not agent.decides_afresh
        run: Any = simulate_stepwise if single else simulate_any
        kept = run(world, agent, episodes, streams, clock.progress, witness)
    clock.say()
    columns = {**kept._asdict(), "plan_seconds": np.concatenate(clock.per_episode)}
    if info.per == "episode":
        columns["regret"] = kept.regret
    if witness is None:
        return columns, {}
    return columns | witness.columns(), witness.alarms


@lru_cache(maxsize=2)
def _world(name: str, options: str, episodes: int, seed: int) -> World:
    """The instance of a seed; its repeats follow each other, so that it need not be built for each of them."""
    return cells.build_world(name, json.loads(options), episodes, Streams.from_seed(seed))


def _check_code(unit: Unit) -> None:
    """Refuse to run with other sources: another machine may have another version, or files changed during the study."""
    for name, here in (("code", CODE), ("kernel", KERNEL)):
        if unit.metadata[name] != here:
            raise TetherError(
                f"this worker has another {name} ({here[:20]}) than the study was started with "
                f"({unit.metadata[name][:20]}): put the same Tether on every machine and start the study again."
            )


class _Clock:
    """Takes the processor time of blocks of episodes, and limits how often progress is reported."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell, self._unsaid = tell, 0
        self._last, self._said = time.process_time(), time.perf_counter()
        self.per_episode: list[Array] = []

    def progress(self, done: int) -> None:
        """`done` more episodes were played."""
        now = time.process_time()  # unlike the wall clock's, it does not depend on what else the machine does
        self.per_episode.append(np.full(done, (now - self._last) / done))
        self._last = now
        self._unsaid += done
        if time.perf_counter() - self._said >= TELL_EVERY:
            self.say()

    def say(self) -> None:
        """Pass on what was not passed on yet."""
        self._tell(self._unsaid)
        self._unsaid, self._said = 0, time.perf_counter()


def run_study(study: Study, folder: Path, engine: Engine, listener: Listener | None = None) -> StudyRun:
    """Run what is missing of a study in its folder. Raises only when nothing further can be done."""
    listener, infos = listener or Listener(), cells.cells_of(study)
    done = StudyRun(Path(folder))
    for part in ("", RUNS, FAILURES):
        storage.make_folder(done.folder / part)
    with storage.sole_writer(done.folder):
        storage.remove_unfinished(done.folder / RUNS)
        units = _units(study, infos)
        _write_manifest(study, infos, done.folder)
        todo = [unit for unit in units if not _is_finished(unit, done.folder)]
        done.kept = len(units) - len(todo)
        for unit in todo:  # what is left in its place is damaged or of other code, and must not be counted
            (done.folder / RUNS / unit.info.part(unit.seed)).unlink(missing_ok=True)
        listener.started(study, len(units), done.kept)
        for index, outcome in engine.run(execute, todo, lambda i, episodes: listener.advanced(todo[i], episodes)):
            _take(todo[index], outcome, done, listener)
        listener.ended()
    return done


def _units(study: Study, infos: list[CellInfo]) -> list[Unit]:
    """Every run, all cells of a seed before the next seed, so that an early stop leaves comparable runs."""
    made_by = {"study": study.model_dump(mode="json"), "code": CODE, **books.environment()}
    units: list[Unit] = []
    for info in infos:
        about = {**made_by, "cell": info.to_json()}
        units += [Unit(info, info.episodes, run, about) for run in info.runs(study.seed_list)]
    return sorted(units, key=lambda unit: unit.seed // unit.info.repeats)  # stable: cells in order, repeats together


def _write_manifest(study: Study, infos: list[CellInfo], folder: Path) -> None:
    manifest = {
        "spec": study.model_dump(mode="json"),
        "spec_hash": spec_hash(study),
        "seeds": study.seed_list,
        "cells": [info.to_json() for info in infos],
        "environment": books.environment(),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    storage.write_atomically(folder / MANIFEST, text.encode())


def _is_finished(unit: Unit, folder: Path) -> bool:
    """Whether the complete results of this cell, seed and code are on disk."""
    path = folder / RUNS / unit.info.part(unit.seed)
    found = books.part_metadata(path) if path.is_file() else None
    if found is None:
        return False
    same_run = found["cell"]["key"] == unit.info.key and found["seed"] == unit.seed
    return same_run and all(found[name] == unit.metadata[name] for name in ("code", "kernel"))


def _take(unit: Unit, outcome: Outcome | TetherError, done: StudyRun, listener: Listener) -> None:
    """Write a finished run to its file, or the traceback of a failed one."""
    name = unit.info.part(unit.seed)
    trace = done.folder / FAILURES / name.replace(".parquet", ".txt")
    if isinstance(outcome, Outcome) and not outcome.error:
        storage.write_atomically(done.folder / RUNS / name, outcome.part)
        trace.unlink(missing_ok=True)
        done.ran += 1
        listener.finished(unit, outcome.seconds)
        return
    text = outcome.error if isinstance(outcome, Outcome) else str(outcome)
    storage.write_atomically(trace, f"{unit.title}\n\n{text}".encode())
    failure = Failure(unit.info.label, unit.seed, text.strip().splitlines()[-1], trace)
    done.failures.append(failure)
    listener.failed(failure)
