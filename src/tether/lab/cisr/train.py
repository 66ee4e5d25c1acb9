"""Train CISR students: `python -m tether.lab.cisr.train students | collect | search`. `make cisr` does the first two.

A unit is 9600 steps under a teacher, then 10,000 steps of the stochastic policy without one, as CISR evaluates. One
small file per student, so an interrupted run goes on where it stopped. Needs Stable-Baselines3, the search Optuna too.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tether.errors import InputError, TetherError
from tether.files import written_whole
from tether.lab.cisr.curves import PER_UNIT, Curve, collect, final_table, summarise, unit_table
from tether.lab.cisr.env import (
    BY_NAME,
    CISR_INTENDED,
    TEACHERS_CHOICE,
    TIME_OUT,
    Picture,
    Successors,
    reward_of,
    successors,
)
from tether.lab.cisr.student import Student, StudentSpec
from tether.lab.cisr.teacher import EXCESS_RANGE, RETURN_RANGE, Curriculum, CurriculumTeacher, Teacher, make_teacher
from tether.lab.worlds.lake import ACTIONS, CELLS, DANGER, ENDS, GOAL, START
from tether.records import Array

UNITS, STEPS = 11, 10_000
"""Units of training, and steps of the evaluation after each."""

RANDOM_POINTS, FURTHER_POINTS = 10, 20
"""Points of the search for a curriculum: random ones first."""

Job = tuple[str, float, Picture, int]
"""Teacher, P(intended move), picture, seed."""

FIXED = ("none", "SR2", "SR1", "HR", "bandit")
ORDERS: tuple[tuple[tuple[str, ...], tuple[float, ...], Picture, range], ...] = (
    (("optimised",), (0.9, 0.8), "map", range(3)),
    (FIXED, (0.9,), "map", range(2)),
    (("optimised",), (0.9,), "map", range(3, 10)),
    (("optimised",), (0.8,), "map", range(3, 5)),
    (("optimised",), (0.9,), "planes", range(3)),
    (FIXED, (0.8,), "map", range(2)),
    (("optimised",), (0.8,), "map", range(5, 10)),
    (("optimised",), (0.9,), "planes", range(3, 7)),
)
"""Teachers, P(intended move), picture and seeds of the students of the shipped file, in the order of training."""


# How good a policy is without a teacher.


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What happened in the ended episodes: `success` is goals over episodes, `mean_return` CISR's return."""

    success: float
    mean_return: float
    falls: int
    episodes: int


def evaluate(
    policy: Array, rng: np.random.Generator, *, intended: float = CISR_INTENDED, steps: int = STEPS
) -> Evaluation:
    """Play π(a|s) (S, A) for `steps` steps, one episode after another, without a teacher."""
    if policy.shape != (CELLS, len(ACTIONS)) or steps < 1:
        raise InputError(f"A policy is ({CELLS}, {len(ACTIONS)}) and is played, not {policy.shape} for {steps} steps.")
    actions = (policy.cumsum(axis=1)[:, :-1, None] <= rng.random(steps)).sum(axis=1).T.tolist()
    returns, goals, falls = _play(actions, rng.random(steps).tolist(), successors(intended))
    if not returns:
        return Evaluation(0.0, 0.0, 0, 0)
    return Evaluation(goals / len(returns), float(np.mean(returns)), falls, len(returns))


def _play(
    actions: list[list[int]], uniforms: list[float], table: list[list[Successors]]
) -> tuple[list[float], int, int]:
    """Returns of the ended episodes, goals and falls. actions: what the policy would do, [steps][S]."""
    returns: list[float] = []
    goals = falls = length = 0
    state, earned = START, 0.0
    for chosen, uniform in zip(actions, uniforms, strict=True):
        state = table[state][chosen[state]].at(uniform)
        earned += reward_of(state)
        length += 1
        if state in ENDS or length >= TIME_OUT:
            goals += state == GOAL
            falls += state in DANGER
            returns.append(earned)
            state, earned, length = START, 0.0, 0
    return returns, goals, falls


# One student under one teacher.


def train_student(teacher_name: str, seed: int, spec: StudentSpec | None = None, units: int = UNITS) -> Curve:
    """Train one student from scratch under a teacher; the seed decides everything."""
    spec = spec or StudentSpec()
    roles = np.random.SeedSequence(seed).generate_state(3)
    student = Student(spec, int(roles[0]))
    teacher = make_teacher(teacher_name, np.random.default_rng(roles[1]))
    rows = train_under(student, teacher, units, np.random.default_rng(roles[2]))
    columns = {name: tuple(row[name] for row in rows) for name in (*PER_UNIT, "intervention")}
    return Curve(teacher=teacher_name, intended=spec.intended, picture=spec.picture, seed=seed, **columns)


def train_under(student: Student, teacher: Teacher, units: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Let a teacher train a student; one row per unit."""
    rows = []
    for _ in range(units):
        intervention = teacher.choose()
        log = student.train_unit(intervention)
        teacher.observe(log)
        score = evaluate(student.action_probabilities(), rng, intended=student.spec.intended)
        rows.append(
            {
                "intervention": intervention.name,
                "success": score.success,
                "mean_return": score.mean_return,
                "training_failures": log.failures,
                "interventions": log.interventions,
                "training_return": log.mean_return,
                "excess": log.excess,
            }
        )
    return rows


def provenance(spec: StudentSpec, units: int = UNITS) -> dict[str, Any]:
    """What a curve depends on beside teacher, dynamics, picture and seed: the rest of the spec, and the versions."""
    shared = {name: value for name, value in asdict(spec).items() if name not in ("intended", "picture")}
    packages = ("stable_baselines3", "torch", "gymnasium", "numpy")
    return {
        "command": "make cisr",
        "units": units,
        "evaluation_steps": STEPS,
        "spec": shared,
        "versions": {name: metadata.version(name) for name in packages},
    }


# The search for a curriculum: the authors' Bayesian optimisation, done with Optuna.


def search_curriculum(
    seed: int,
    spec: StudentSpec | None = None,
    *,
    random_points: int = RANDOM_POINTS,
    further_points: int = FURTHER_POINTS,
    units: int = UNITS,
) -> tuple[Curriculum, float]:
    """The best curriculum found, and its objective: the return of a fresh student over 10,000 steps without teacher.

    Random points first, then a Gaussian process. Each point trains a student, so 30 points take about an hour.
    """
    try:
        import optuna
    except ImportError as error:
        raise TetherError("The search for a curriculum needs Optuna: pip install 'tether-rl[cisr]'.") from error
    student_spec = spec or StudentSpec()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=random_points)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    children = np.random.SeedSequence(seed).spawn(random_points + further_points)

    def objective(trial: Any) -> float:
        student_seed, evaluation_seed = (int(word) for word in children[trial.number].generate_state(2))
        teacher = CurriculumTeacher(suggested(trial))
        rng = np.random.default_rng(evaluation_seed)
        rows = train_under(Student(student_spec, student_seed), teacher, units, rng)
        return float(rows[-1]["mean_return"])

    study.optimize(objective, n_trials=random_points + further_points)
    return suggested(study.best_trial), float(study.best_value)


def suggested(trial: Any) -> Curriculum:
    """The curriculum that an Optuna trial stands for: three interventions and two pairs of thresholds."""
    names = [intervention.name for intervention in TEACHERS_CHOICE]
    first, second, third = (BY_NAME[trial.suggest_categorical(f"intervention_{stage}", names)] for stage in range(3))
    pairs = [
        (
            float(trial.suggest_float(f"return_{stage}", *RETURN_RANGE)),
            float(trial.suggest_float(f"excess_{stage}", *EXCESS_RANGE)),
        )
        for stage in range(2)
    ]
    return Curriculum((first, second, third), (pairs[0], pairs[1]))


# All students of the shipped file, and the file itself.


def jobs() -> Iterator[Job]:
    """Every student of the shipped file, the most useful first."""
    for teachers, slips, picture, seeds in ORDERS:
        for intended, seed, teacher in product(slips, seeds, teachers):
            yield teacher, intended, picture, seed


def train_jobs(folder: Path, *, stop_after: float, units: int = UNITS) -> int:
    """Train the students that are not in the folder yet; begin none after `stop_after` hours. Returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    trained = 0
    for teacher, intended, picture, seed in jobs():
        path = folder / f"{teacher}-{intended}-{picture}-{seed}.json"
        if path.exists():
            continue
        if time.monotonic() - begun > 3600.0 * stop_after:
            print(f"{stop_after:g} h are over; the same command goes on from here.")
            break
        train_into(path, teacher, intended, picture, seed, units)
        trained += 1
    return trained


def train_into(path: Path, teacher: str, intended: float, picture: Picture, seed: int, units: int = UNITS) -> None:
    """Train one student and keep it in a file, whole or not at all."""
    spec = replace(StudentSpec(), intended=intended, picture=picture)
    curve = train_student(teacher, seed, spec, units)
    with written_whole(path) as file:
        file.write(json.dumps({"provenance": provenance(spec, units), "curve": curve.as_dict()}).encode())
    print(f"{path.stem}: success {curve.success[-1]:.3f}, falls {sum(curve.training_failures)}", file=sys.stderr)


def write_collected(folder: Path, file: Path) -> None:
    """Write the data file from the students in a folder."""
    data = collect(folder)
    lines = json.dumps({name: value for name, value in data.items() if name != "curves"}, indent=1)
    curves = ",\n".join(json.dumps(curve) for curve in data["curves"])
    file.write_text(f'{lines[:-2]},\n "curves": [\n{curves}\n]\n}}\n')
    print(f"{file}: {len(data['curves'])} students")
    summaries = summarise([Curve.from_dict(curve) for curve in data["curves"]])
    print(final_table(summaries).markdown)
    if any(one.teacher == "optimised" for one in summaries):
        print(unit_table(summaries).markdown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, call, print."""
    parser = argparse.ArgumentParser(prog="python -m tether.lab.cisr.train", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    students = commands.add_parser("students", help="train what is not trained yet")
    students.add_argument("--out", type=Path, default=Path("out/cisr"))
    students.add_argument("--stop-after", type=float, default=24.0, help="hours after which no student is begun")
    gather = commands.add_parser("collect", help="make the data file from the trained students")
    gather.add_argument("--out", type=Path, default=Path("out/cisr"))
    gather.add_argument("--file", type=Path, default=Path(__file__).with_name("curves.json"))
    search = commands.add_parser("search", help="search a curriculum with Optuna, as the authors did")
    search.add_argument("--seed", type=int, default=0)
    search.add_argument("--intended", type=float, default=0.8)
    chosen = parser.parse_args(arguments)
    if chosen.command == "students":
        train_jobs(chosen.out, stop_after=chosen.stop_after)
    elif chosen.command == "collect":
        write_collected(chosen.out, chosen.file)
    else:
        print(search_curriculum(chosen.seed, replace(StudentSpec(), intended=chosen.intended)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
