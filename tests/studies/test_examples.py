"""Every example runs as it is; the README begins with the commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ELSEWHERE = {"motor.py": "test_gym_docs.py runs it where gym-electric-motor is installed"}
SLOW = {"safe_set.py"}
HERE = [
    pytest.param(path, marks=[pytest.mark.slow] if path.name in SLOW else [], id=path.name)
    for path in EXAMPLES
    if path.name not in ELSEWHERE
]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_stays_under_sixty_lines(script):
    assert len(script.read_text().splitlines()) <= 60


@pytest.mark.parametrize("script", HERE)
def test_example_runs(script, tmp_path):
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert [path.name for path in tmp_path.iterdir()] == (["safe-set.gif"] if script.stem == "safe_set" else [])


def test_the_animation_on_the_pages_is_small_and_its_last_picture_stays():
    """Made by `python examples/safe_set.py docs/safe-set.gif`."""
    image = pytest.importorskip("PIL.Image").open(ROOT / "docs" / "safe-set.gif")
    assert (ROOT / "docs" / "safe-set.gif").stat().st_size < 600_000 and image.n_frames > 20
    durations = []
    for frame in range(image.n_frames):
        image.seek(frame)
        durations.append(image.info["duration"])
    assert durations[-1] == max(durations) >= 2000


def test_the_readme_s_first_screen_has_the_commands_and_no_symbols():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:25])
    assert "make reproduce" in first_screen
    assert "make test" in first_screen
    assert "pip install ." in first_screen and "expected cost" in first_screen.split(".")[0]
    assert not re.search(r"[Α-Ωα-ω‖²⟨⟩≤≥_]", first_screen)
