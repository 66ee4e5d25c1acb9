"""Train CISR students anew: `python -m tether.lab.cisr.train students | collect | search`. `make cisr` does the
first two.

One small file per student, so an interrupted run goes on where it stopped.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tether.lab.cisr.curves import Curve, collect, final_table, summarise, unit_table
from tether.lab.cisr.env import Picture
from tether.lab.cisr.student import StudentSpec
from tether.lab.cisr.training import UNITS, provenance, train_student

FIXED = ("none", "SR2", "SR1", "HR", "bandit")
Job = tuple[str, float, Picture, int]
"""Teacher, P(intended move), picture, seed."""


def jobs() -> Iterator[Job]:
    """Every student of the shipped file, the most useful first."""
    for intended in (0.9, 0.8):
        for seed in range(3):
            yield "optimised", intended, "map", seed
    for seed in range(2):
        for teacher in FIXED:
            yield teacher, 0.9, "map", seed
    for seed in range(3, 10):
        yield "optimised", 0.9, "map", seed
    for seed in range(3, 5):
        yield "optimised", 0.8, "map", seed
    for seed in range(3):
        yield "optimised", 0.9, "planes", seed
    for seed in range(2):
        for teacher in FIXED:
            yield teacher, 0.8, "map", seed
    for seed in range(5, 10):
        yield "optimised", 0.8, "map", seed
    for seed in range(3, 7):
        yield "optimised", 0.9, "planes", seed


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
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps({"provenance": provenance(spec, units), "curve": curve.as_dict()}))
    unfinished.replace(path)
    print(f"{path.stem}: success {curve.success[-1]:.3f}, falls {sum(curve.training_failures)}", file=sys.stderr)


def write_collected(folder: Path, file: Path) -> None:
    """Write the data file from the students in a folder."""
    data = collect(folder)
    lines = json.dumps({name: value for name, value in data.items() if name != "curves"}, indent=1)
    curves = ",\n".join(json.dumps(curve) for curve in data["curves"])
    file.write_text(f'{lines[:-2]},\n "curves": [\n{curves}\n]\n}}\n')
    print(f"{file}: {len(data['curves'])} students")
    summaries = summarise([Curve.from_dict(curve) for curve in data["curves"]])
    print(final_table(summaries))
    if any(one.teacher == "optimised" for one in summaries):
        print(unit_table(summaries))


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
        from tether.lab.cisr.search import search_curriculum

        found = search_curriculum(chosen.seed, replace(StudentSpec(), intended=chosen.intended))
        print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
