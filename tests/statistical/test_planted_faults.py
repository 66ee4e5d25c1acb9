"""The tests themselves are tested: every planted fault must turn its test red."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_planted_fault_is_noticed():
    script = Path(__file__).parent.parent / "planted_faults.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
