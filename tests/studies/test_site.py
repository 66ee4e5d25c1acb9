"""The pages as a site: all of them are in its navigation, it builds without a warning, and search finds words."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAVIGATION = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]


def test_every_page_and_notebook_is_in_the_navigation_once():
    listed = re.findall(r": (\S+\.md)$", NAVIGATION, flags=re.MULTILINE)
    docs = ROOT / "docs"
    written = [path.relative_to(docs).with_suffix(".md") for path in [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]]
    assert sorted(listed) == sorted(map(str, written))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_no_table_is_empty(page):
    assert not re.findall(r"^\|[-:| ]+\|\n(?!\|)", page.read_text("utf-8"), flags=re.MULTILINE)


def test_warnings_count_when_the_site_is_built():
    """MkDocs counts warnings for --strict only if it logs them."""
    recipe = re.search(r"^docs:.*\n(\t.*\n)+", (ROOT / "Makefile").read_text(), flags=re.MULTILINE).group()
    assert "--strict" in recipe and "--quiet" not in recipe and " -q" not in recipe


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a_0(s), 2σ_r and ‖e‖²_A", "a<sub>0</sub>(s), 2σ<sub>r</sub> and ‖e‖²<sub>A</sub>"),
        ("A_{h,s} of V_h^k in R^d", "A<sub>h,s</sub> of V<sub>h</sub><sup>k</sup> in R<sup>d</sup>"),
        ("λ_jI, r_j², A^(−1/2)", "λ<sub>j</sub>I, r<sub>j</sub>², A<sup>−1/2</sup>"),
        ("Σ_{j: s'_j = s'}", "Σ<sub>j: s'<sub>j</sub> = s'</sub>"),
        ("baseline_cost, <code>a_0</code>, phi_0", "baseline_cost, <code>a_0</code>, phi_0"),
        ('<a href="x_0">1_000 max_episode_steps</a>', '<a href="x_0">1_000 max_episode_steps</a>'),
    ],
)
def test_indices_and_powers_are_set_beside_the_line_but_names_are_not(monkeypatch, written, shown):
    monkeypatch.syspath_prepend(ROOT / "tools")
    assert importlib.import_module("docs_hook").with_indices(written) == shown


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_its_search_finds_words(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    found = {page["location"].split("#")[0] for page in index if "Certified length." in page["text"]}
    assert found == {"glossary/"}
    shown = (tmp_path / "notebooks" / "quickstart" / "index.html").read_text()
    assert "largest risk of a safe move: 0.20" in shown and 'src="../quickstart.png"' in shown
    assert 'href="../motor/"' in shown  # a link to the other notebook leads to its page
