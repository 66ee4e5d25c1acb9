"""The benchmarks whose figures the docs show: what they print is what is stored, and timings name their machine."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import figures  # noqa: E402

STORED = {name: figures.read(name) for name in figures.BENCHMARKS}
AGAIN = ["rounded-costs", "drift", "realised"]
"""Computed again from the first cell to the last. Timings never are: another machine has others."""


@pytest.mark.parametrize("name", STORED)
def test_a_stored_benchmark_says_its_size_and_a_timing_its_machine(name):
    assert STORED[name]["sizes"] and STORED[name]["date"]
    timed = any(word in name for word in ("live", "continuous"))
    assert STORED[name]["timed"] is timed is (" cores (" in STORED[name]["sizes"])


def test_the_costs_of_options_broke_no_constraint():
    """Every run of the table of docs/choosing.md and of that on realised costs, counted by its true costs."""
    assert STORED["options"]["values"]["over"] == 0
    assert STORED["realised"]["values"]["mean-over"] == 0.0
    threshold_of_its_world = 0.5
    assert STORED["continuous"]["values"]["worst-cost"] <= threshold_of_its_world


def test_declared_drift_and_worst_case_losses_broke_no_constraint():
    """What docs/guarantee.md says of its tables."""
    drift = STORED["drift"]["tables"]["table"]["lines"]
    assert all(cell.startswith("0 / ") for _, _, *declared in drift for cell in declared if cell)
    lost = STORED["lost-outcomes"]["tables"]["table"]["lines"]
    assert all(line[3] in ("", "0") for line in lost)
    assert [line[2] for line in lost if "not measured" not in line[0]] == ["0"] * (len(lost) - 1)
    rounded = STORED["rounded-costs"]["tables"]["bounds"]["lines"]
    assert {line[2] for line in rounded} == {"never over"} and rounded[0][1] == "never over"
    assert {line[-1] for line in STORED["rounded-costs"]["tables"]["price"]["lines"]} == {"0"}


@pytest.mark.slow
@pytest.mark.parametrize("name", AGAIN)
def test_a_benchmark_that_is_run_again_prints_what_is_stored(name):
    script, *options = shlex.split(figures.SOURCES[name].command)[1:]
    command = [sys.executable, ROOT / script, *options, *figures.SOURCES[name].flags]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert printed["tables"] == STORED[name]["tables"]
