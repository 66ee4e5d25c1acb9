"""The long benchmarks, for a short while: kills, a soak and made-up requests. Each ends with an error by itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import service_app  # noqa: F401  # puts tests/ on the path

from live.postgres import NoServer, binaries  # isort: skip

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"


def run(name, *options):
    """The output of a benchmark that must not fail."""
    command = [sys.executable, BENCHMARKS / name, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--postgres",)], ids=["sqlite", "postgresql"])
def test_a_service_that_is_killed_again_and_again_loses_and_doubles_nothing(options):
    try:
        binaries()
    except NoServer as why:
        if options:
            pytest.skip(str(why))
    told = run("live_kill.py", "--kills", 6, "--clients", 4, *options)
    assert "a next decision that differs from the twin's: 0" in told and "mode live" in told


@pytest.mark.slow
def test_a_soak_of_the_dosing_world_has_no_violation_and_flat_memory(tmp_path):
    run("live_soak.py", "--decisions", 4000, "--out", tmp_path / "soak.json")
    report = json.loads((tmp_path / "soak.json").read_text())
    assert report["violations"] == 0 and report["largest_true_cost"] <= report["threshold"]
    assert report["baseline_share"] < 0.5  # otherwise nothing was tried
    memory = [sample[2] for sample in report["samples"]]
    assert memory[-1] < 1.2 * memory[len(memory) // 4]


@pytest.mark.slow
def test_made_up_requests_and_calls_find_nothing():
    assert "0 wrong answers" in run("fuzz.py", "--requests", 1500)
