"""What benchmarks share: sizes and flags, runs on all cores, and the tables that tools/figures.py stores.

With --json a benchmark prints one object {"tables", "values", "sizes"}, else its tables for people.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Heads and lines; cells are texts."""


def parsed(parser: argparse.ArgumentParser, **quick: int | float) -> argparse.Namespace:
    """The arguments, with --json, and with --quick for the sizes that are given here."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, which tools/figures.py stores")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    if given.quick:
        vars(given).update(quick)
    return given


def on_all_cores(function: Callable[..., T], cases: Iterable[tuple[Any, ...]]) -> list[T]:
    """`function(*case)` of each case, in order. Not for timings."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *zip(*cases, strict=True)))


def show(
    given: argparse.Namespace,
    sizes: str,
    *,
    timed: bool = False,
    values: Mapping[str, float | str] | None = None,
    **tables: Table,
) -> None:
    """Print the tables. `timed`: they depend on the machine, so it is named, and no test computes them again."""
    found: dict[str, Any] = {
        "tables": {name: {"heads": list(heads), "lines": [list(line) for line in lines]}
                   for name, (heads, lines) in tables.items()},
        "values": dict(values or {}),
        "sizes": sizes,
        "date": time.strftime("%Y-%m-%d"),
        "timed": timed,
    }  # fmt: skip
    if timed:
        found["sizes"] += (
            f"; one run on a machine with {os.cpu_count()} cores ({processor()}): compare rows, not machines"
        )
    if given.json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for heads, lines in tables.values():
        print("\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines)) + "\n")
    print(*(f"{name}: {value}" for name, value in found["values"].items()), found["sizes"], sep="\n")


def note(*words: object) -> None:
    """Say how far it is, on standard error."""
    print(*words, file=sys.stderr, flush=True)


def processor() -> str:
    """What the machine calls its processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
