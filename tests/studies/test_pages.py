"""README and docs show what is stored in docs/results, cell by cell; no measured table is typed by hand."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import figures  # noqa: E402

FILES = sorted((ROOT / "docs" / "results").glob("*.json"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

BY_HAND = {
    "docs/features.md": {"ψ(s)": "the sizes of feature maps, by definition"},
    "docs/league.md": {"row": "published by others"},
}
"""Tables with numbers that no measurement made: page, first head, and why."""

NOT_YET: dict[str, list[str]] = {}
"""Measured tables that are still typed by hand: this list only becomes shorter."""

QUICK_YET = {"league", "league-mdp", "league-axes"}
"""Stored from a quick look, and the pages say so, until `make figures-real` has run: this set only becomes smaller."""

TYPED = re.compile(
    r"\d ?(?:ms|µs)\b"
    r"|\d (?:a|per) second\b"
    r"|\d times as\b"
    r"|\d violations?\b"
    r"|\b(?:regret|violations?) (?:of |in |is )?\d"
    r"|\bin \d[\d,]* of (?:the )?\d"
    r"|\b\d[\d,]* of (?:the )?\d[\d,]* (?:runs|worlds|episodes|decisions|steps|seeds)\b"
)
"""How a measured number looks in a sentence: a time, a rate, a ratio, a count of violations, so many of so many."""

IN_SENTENCES = {"docs/guarantee.md": {"in 96 of 1": "an example, worked out below it"}}
"""What no one measured: page, what is found, and why."""

NOT_YET_IN_SENTENCES: set[str] = set()
"""Pages whose sentences still have measured numbers: this set only becomes smaller."""


def test_every_page_shows_the_stored_results():
    assert figures.check() == []


def test_a_changed_cell_is_noticed(tmp_path):
    (tmp_path / "docs" / "results").mkdir(parents=True)
    stored = {
        "command": "tether reproduce figure1",
        "version": "1",
        "quick": False,
        "tables": {"table": {"heads": ["a", "b"], "lines": [["x", "0.987"]]}},
        "values": {"best": 0.987},
    }
    (tmp_path / "docs" / "results" / "figure1.json").write_text(json.dumps(stored))
    page = tmp_path / "README.md"
    page.write_text(
        "It is <!-- =figure1.values.best .1% --><!-- / -->.\n\n<!-- figures: figure1 -->\n<!-- /figures -->\n"
    )
    assert figures.write(tmp_path) == [page]
    assert "It is <!-- =figure1.values.best .1% -->98.7%<!-- / -->." in page.read_text()
    assert "| x | 0.987 |" in page.read_text()
    assert figures.check(tmp_path) == []
    page.write_text(page.read_text().replace("| 0.987 |", "| 0.169 |"))
    assert "README.md differs" in figures.check(tmp_path)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a <!-- =figure1.values.nothing -->1<!-- / -->", "no key 'nothing'|there is no 'nothing'"),
        ("<!-- figures: figure1.nothing -->\n<!-- /figures -->", "no table 'nothing'"),
        ("a <!-- =nothing.values.best -->1<!-- / -->", "does not exist"),
        ("a <!-- =figure1.values -->1<!-- / -->", "is no value"),
        ("a <!-- =figure1.values.best -->1", "has no end"),
        ("<!-- figures: figure1 -->\n", "has no end"),
        ("<!-- =figure1.values.best -->1<!-- / --> leads", "a line begins"),
        ("no code\n<!-- output -->\n<!-- /output -->", "lacks what must stand before"),
    ],
)  # fmt: skip
def test_a_mark_that_leads_nowhere_is_noticed(tmp_path, text, words):
    (tmp_path / "docs" / "results").mkdir(parents=True)
    stored = {
        "command": "tether reproduce figure1",
        "version": "1",
        "quick": False,
        "tables": {},
        "values": {"best": 1},
    }
    (tmp_path / "docs" / "results" / "figure1.json").write_text(json.dumps(stored))
    (tmp_path / "README.md").write_text(text)
    assert any(re.search(words, one) for one in figures.check(tmp_path))


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.stem)
def test_no_measured_table_is_typed_by_hand(page):
    found = {table_head(lines) for lines in tables(figures.BLOCK.sub("", page.read_text("utf-8"))) if measured(lines)}
    name = str(page.relative_to(ROOT))
    assert found == {*BY_HAND.get(name, {}), *NOT_YET.get(name, ())}, (
        "a table of numbers stands between marks (tools/figures.py), or here with a reason"
    )


@pytest.mark.parametrize("page", [*figures.pages(), *NOTEBOOKS], ids=lambda page: page.name)
def test_no_sentence_has_a_measured_number_that_is_typed_by_hand(page):
    name = str(page.relative_to(ROOT))
    found = {match.group() for match in TYPED.finditer(sentences(page))}
    if name in NOT_YET_IN_SENTENCES:
        assert found, f"{name} has none any more: take it out of NOT_YET_IN_SENTENCES"
    else:
        assert found == set(IN_SENTENCES.get(name, {})), (
            "a measured number in a sentence is the mark of a stored value (tools/figures.py), or goes"
        )


def test_measured_numbers_in_sentences_are_recognised():
    """The checker itself."""
    for text in ("takes 0.21 ms", "595 a second", "12.8 times as long", "0 violations", "in 7 of 8 runs", "regret 463"):
        assert TYPED.search(text), text
    for text in ("σ = 0.1", "within 30 s", "six runs", "τ is 0.3", "section 2 of the paper"):
        assert not TYPED.search(text), text


def sentences(page: Path) -> str:
    """A page without marks and what stands between them, tables and code; of a notebook the cells of text."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for pattern in (figures.BLOCK, figures.VALUE, figures.OUTPUT):
        text = pattern.sub("", text)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"^(?: {4}|\|).*$|`[^`\n]*`", "", text, flags=re.MULTILINE)


SHOWING = [page for page in figures.pages() if figures.OUTPUT.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.stem)
def test_a_page_shows_the_whole_output_of_its_code(page):
    text = page.read_text("utf-8")
    assert figures.with_outputs(text) == text, "`python tools/figures.py outputs` writes it anew"


def test_an_output_is_written_after_the_blocks_before_it_and_times_alone_change_nothing():
    first, second = "```python\nx = 2\nprint('no')\n```\n", "```python\nprint('done in 0.1 s, with', x)\n```\n"
    page = f"{first}{second}It prints:\n\n<!-- output -->\n{{}}<!-- /output -->\n"
    whole = figures.with_outputs(page.format(""))
    assert whole == page.format("```text\ndone in 0.1 s, with 2\n```\n")
    later = whole.replace("0.1 s, with 2\n", "7.5 s, with 2\n")
    assert figures.with_outputs(later) == later
    assert figures.with_outputs(whole.replace("with 2", "with 3")) == whole
    varying = whole.replace("output -->", "output: varies -->", 1).replace("with 2", "with 3")
    assert figures.with_outputs(varying) == varying
    other = varying.replace("text\ndone", "text\nmade")
    assert figures.with_outputs(other) != other


def test_numbers_that_vary_are_taken_out_and_an_exact_zero_stays():
    assert figures.without_numbers("0 steps over 84 A, +0.86 (−1.2e-05)") == "0 steps over # A, # (#)"


def test_a_block_that_needs_an_absent_package_stays_as_it_is():
    page = "```python\nimport no_such_package_at_all\n```\n<!-- output -->\nleft\n<!-- /output -->\n"
    assert figures.with_outputs(page) == page


def tables(text: str) -> list[list[str]]:
    """The Markdown tables of a page, as lines."""
    return [found.group().splitlines() for found in re.finditer(r"(?:^\|.*\n?)+", text, re.MULTILINE)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def table_head(lines: list[str]) -> str:
    """What names a table: its first head, or where that is empty its second, or the first cell below."""
    return next(cell for line in (lines[0], lines[2]) for cell in cells(line) if cell)


def measured(lines: list[str]) -> bool:
    """Whether a cell right of the first begins with a number."""
    below = [cell for line in lines[2:] for cell in cells(line)[1:]]
    return any(re.match(r"[*+−~<≤≥±-]*\.?\d", cell) for cell in below)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_claim_of_a_stored_study_holds_or_is_shown_to_fail(file):
    claims = json.loads(file.read_text("utf-8")).get("claims", {})
    failing = {name for name, claim in claims.items() if not claim["holds"]}
    assert failing == set(figures.SOURCES[file.stem].fails)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_stored_results_are_small_and_of_full_size(file):
    assert file.stat().st_size <= figures.MOST_BYTES
    assert json.loads(file.read_text("utf-8"))["quick"] == (file.stem in QUICK_YET)
