"""The code on the pages about environments and features runs as it is printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "own-environment.md": ["20 episodes, 200 steps", "largest certified bound", " 0.5"],
    "features.md": ["12 features", "[0.2 0. ]"],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_prints_what_it_should(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    assert blocks
    program = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in PAGES[page]:
        assert words in done.stdout


def test_the_first_program_has_ten_lines():
    """From `import` to the summary, wrapped arguments of the one call counted as they stand."""
    first = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "own-environment.md").read_text(), flags=re.DOTALL)
    call = first.group(1).split("result = ")[1].splitlines()
    assert len(call) <= 10
