"""Every example runs as it is; the README begins with the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_stays_under_sixty_lines(script):
    assert len(script.read_text().splitlines()) <= 60
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_readme_shows_the_two_commands_on_its_first_screen():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:25])
    assert "make reproduce" in first_screen
    assert "make test" in first_screen
    assert "pip install tether-rl" in first_screen
