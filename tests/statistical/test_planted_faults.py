"""The tests themselves are tested: every planted fault must turn its test red."""

import subprocess
import sys
from pathlib import Path

import pytest

PARTS = 6
"""So that the processes that run the tests can share them."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_every_planted_fault_is_noticed(part):
    script = Path(__file__).parent.parent / "planted_faults.py"
    command = [sys.executable, str(script), "--part", f"{part}/{PARTS}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
