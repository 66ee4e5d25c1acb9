"""The code on the pages runs as it is printed."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import tether
from tether.service.config import read_config

ROOT = Path(__file__).parents[2]


class Page(NamedTuple):
    """What is printed by the code of a page, in the order of the page, followed by `after`."""

    printed: list[str]
    after: str = ""


PAGES = {
    "README.md": Page(["theorem"], "print(decision.certificate.limits)"),
    "docs/own-environment.md": Page(["against the safe action: +", " 0.5"]),
    "docs/choosing.md": Page(["(21.748563170931547,)"]),
    "docs/guarantee.md": Page(["second"], "print(drift.per)"),
    "docs/features.md": Page(["12 features", "[0.2 0. ]"]),
    "docs/live.md": Page(["'theorem'"], "print(decision.certificate.limits)"),
    "docs/later-effects.md": Page(["0.7"], "print(on_board(1.0, 0.0))"),
    "docs/check.md": Page(["holds", "True"], "print(report.ok)"),
    "docs/own-algorithm.md": Page(
        ["Greedy True", "SafeLts True", "Greedy enters"],
        """
from tether import synthetic
for kind in (Greedy, SafeLts):
    own = kind(synthetic(np.random.default_rng(0), states=3, rays=4, dimension=3, horizon=1).problem)
    own.plan()
    print(kind.__name__, own.act(0, 0).cost_bound <= 0.5)
from tether.agents.testing import SmallWorld, check_agent
check_agent(Greedy, ".", worlds=[SmallWorld(finite=True)])
print(GREEDY.row.title, "enters")
""",
    ),
    "docs/state-spaces.md": Page(["lean"], "agent.act(0, 0.37)\nprint(agent.config.backup)"),
    "docs/cisr.md": Page(["Published"], "print(published())"),
    "docs/notebooks/quickstart.ipynb": Page(["against the safe action: +", "theorem's"]),
}
ITS_OUTPUT_IS_SHOWN = ("docs/notebooks/quickstart.ipynb",)
"""Pages that show what their code prints, in blocks of text; every line of them is printed."""
ELSEWHERE = {
    "docs/tutorial.md": "test_example.py of the service runs its files",
    "docs/service.md": "test_example.py of the service runs it in front of one",
    "docs/remote.md": "needs three packages, each in an environment of its own; run by hand",
    "docs/frozen-lake.md": "needs a finished study; test_figure2.py calls what it calls",
    "docs/notebooks/motor.ipynb": "needs gym-electric-motor: a slow test runs it where that is installed",
}
"""Pages whose code cannot run by itself in a fresh interpreter, and why."""


def code_of(page):
    """The blocks of Python of a page or a notebook, in their order, and the lines that it shows as printed.

    The README's first block needs gym-electric-motor: a slow test runs it where that is installed.
    """
    text = (ROOT / page).read_text()
    if page.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        printed = "".join("".join(output["text"]) for cell in cells for output in cell["outputs"])
        return ["".join(cell["source"]) for cell in cells], printed.splitlines()
    shown = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", text, flags=re.DOTALL)
    return [block for block in blocks if "gym_electric_motor" not in block], "".join(shown).splitlines()


def printed_by(page, folder, python=sys.executable, after=""):
    """What the code of a page prints, all of it in a fresh interpreter and a folder that it may write to."""
    blocks, _ = code_of(page)
    assert blocks
    environment = {**os.environ, "PYTHONPATH": str(Path(tether.__file__).parents[1])}
    done = subprocess.run(
        [python, "-c", "\n".join([*blocks, after])],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_times(text):
    """The same whatever the machine: seconds are taken out."""
    return re.sub(r" in [\d.]+ s,", ",", text)


def test_every_page_with_code_is_run_or_says_why_not():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    with_code = {str(page.relative_to(ROOT)) for page in pages if code_of(str(page.relative_to(ROOT)))[0]}
    assert with_code == {*PAGES, *ELSEWHERE}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page.endswith(".ipynb") else []) for page in PAGES]
)
def test_the_code_of_a_page_runs_as_printed_in_a_fresh_interpreter(page, tmp_path):
    """All of it, in the order of the page, with nothing before it; what is shown as printed is printed."""
    wanted = PAGES[page]
    output = without_times(printed_by(page, tmp_path, after=wanted.after))
    shown = code_of(page)[1] if page in ITS_OUTPUT_IS_SHOWN else []
    for words in wanted.printed + shown:
        assert without_times(words) in output


def motor_python():
    """An interpreter that has gym-electric-motor: this one, or that of `make real`; None if there is none."""
    beside = ROOT / ".venv-real" / "bin" / "python"
    return sys.executable if find_spec("gym_electric_motor") else str(beside) if beside.exists() else None


@pytest.mark.slow
@pytest.mark.skipif(
    motor_python() is None, reason="gym-electric-motor is not installed: pip install gym-electric-motor"
)
def test_the_motor_on_each_page_runs_and_breaks_no_limit(tmp_path):
    output = printed_by("docs/notebooks/motor.ipynb", tmp_path, motor_python())
    assert "0 steps observed over τ" in output and "against the safe action: +" in output
    assert (tmp_path / "motor.png").exists()
    environment = {**os.environ, "PYTHONPATH": str(Path(tether.__file__).parents[1])}
    run = {"check": True, "cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    subprocess.run([motor_python(), str(ROOT / "examples" / "motor.py")], **run)
    printed = json.loads(subprocess.run([motor_python(), str(ROOT / "benchmarks" / "motor.py")], **run).stdout)
    assert printed["values"]["over"] == 0 and printed["values"]["gain"] > 0.0  # the README's own block
    assert printed["values"]["random-over"] > 1000
    subprocess.run([motor_python(), str(ROOT / "tools" / "figures.py"), "check-outputs"], **run)  # of the README


def test_the_configuration_on_the_service_s_page_is_valid(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), flags=re.DOTALL)
    (tmp_path / "service.toml").write_text(text)
    config = read_config(tmp_path / "service.toml")
    assert config.problem == "building:problem" and config.guards.max_age == 60.0


def test_the_tutorial_counts_as_the_check_does():
    named, (building, *_) = {}, code_of("docs/tutorial.md")[0]
    exec(building, named)
    report = named["problem"].check()
    assert f"*{str(report).splitlines()[-1]}*" in (ROOT / "docs" / "tutorial.md").read_text()
