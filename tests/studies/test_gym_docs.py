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

SMALL = """
import numpy as np
import tether
world = tether.synthetic(np.random.default_rng(0), states=3, rays=4, dimension=3, horizon=1)
problem, state, reward, cost = world.problem, 0, 0.5, float(world.true_gamma[0, 0] @ world.phi_0[0])
agent = tether.SlucbQvi(problem)
"""
"""A problem, a state and an agent, where a page supposes that the reader has them."""


class Page(NamedTuple):
    """What is printed by the code of a page, after `before` and followed by `after`."""

    printed: list[str]
    before: str = ""
    after: str = ""
    fence: str = "python"


PAGES = {
    "README.md": Page(["20 episodes, 200 steps", "theorem"], SMALL, "print(decision.certificate.limits)", "py"),
    "docs/own-environment.md": Page(["20 episodes, 200 steps", "largest certified bound", " 0.5"]),
    "docs/features.md": Page(["12 features", "[0.2 0. ]"]),
    "docs/live.md": Page(["'theorem'"], SMALL, "print(decision.certificate.limits)"),
    "docs/check.md": Page(
        ["holds", "True"],
        SMALL
        + "log = dict(phi=world.phi_0, cost=world.phi_0 @ world.true_gamma[0, 0], reward=[0.5] * 3, step=[0] * 3)",
        "print(report.ok)",
    ),
    "docs/own-algorithm.md": Page(
        ["Greedy", "SafeLts"],
        SMALL,
        """
SafeLts.inflation = 1.0
for kind in (Greedy, SafeLts):
    own = kind(problem)
    own.plan()
    print(kind.__name__, own.act(0, 0).cost_bound <= 0.5)
""",
    ),
    "docs/state-spaces.md": Page(
        ["lean"],
        """
import numpy as np
def unit(state, *more): return np.eye(50)[[0, *more]].sum(axis=0) / (1 + len(more))
def phi_0(state): return unit(state)
def endpoints(state): return [unit(state, 1 + int(10 * state))]
def cost_of_the_safe_action(step, state): return 0.2
""",
        "agent.act(0, 0.37)\nprint(agent.config.backup)",
    ),
    "docs/cisr.md": Page(["Published"], after="print(published())"),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_prints_what_it_should(page, tmp_path):
    wanted = PAGES[page]
    blocks = re.findall(rf"```{wanted.fence}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    program = "\n".join([wanted.before, *blocks, wanted.after])
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tether.__file__).parents[1]),
    }  # in a folder that it may write to
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    for words in wanted.printed:
        assert words in done.stdout


def test_the_configuration_on_the_service_s_page_is_valid(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), flags=re.DOTALL)
    (tmp_path / "service.toml").write_text(text)
    config = read_config(tmp_path / "service.toml")
    assert config.problem == "building:problem" and config.guards.max_age == 60.0


def test_the_first_program_has_ten_lines():
    """From `import` to the summary, wrapped arguments of the one call counted as they stand."""
    first = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "own-environment.md").read_text(), flags=re.DOTALL)
    call = first.group(1).split("result = ")[1].splitlines()
    assert len(call) <= 10
