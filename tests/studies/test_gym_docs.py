"""The code on the pages runs as it is printed."""

import os
import re
import subprocess
import sys
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
    "README.md": Page(["against the safe action: +", "theorem"], "print(decision.certificate.limits)"),
    "docs/own-environment.md": Page(["against the safe action: +", " 0.5"]),
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
}
ELSEWHERE = {
    "docs/tutorial.md": "test_service_start.py runs its files",
    "docs/service.md": "needs a service, and a system to apply actions to",
    "docs/frozen-lake.md": "needs a finished study",
}
"""Pages whose code cannot run by itself in a fresh interpreter, and why."""


def test_every_page_with_code_is_run_or_says_why_not():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    with_code = {str(page.relative_to(ROOT)) for page in pages if "```py" in page.read_text()}
    assert with_code == {*PAGES, *ELSEWHERE}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_as_printed_in_a_fresh_interpreter(page, tmp_path):
    """All of it, in the order of the page, with nothing before it; what is shown as printed is printed."""
    wanted, text = PAGES[page], (ROOT / page).read_text()
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    program = "\n".join([*blocks, wanted.after])
    shown = [line for block in re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tether.__file__).parents[1]),
    }  # in a folder that it may write to
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    for words in wanted.printed + (shown if page == "README.md" else []):
        assert words in done.stdout


def test_the_configuration_on_the_service_s_page_is_valid(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), flags=re.DOTALL)
    (tmp_path / "service.toml").write_text(text)
    config = read_config(tmp_path / "service.toml")
    assert config.problem == "building:problem" and config.guards.max_age == 60.0
