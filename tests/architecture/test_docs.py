"""What the pages name exists: sections, files, commands, options and public names."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import tether
from architecture.entered import resolve
from tether.cli import app

PACKAGE = Path(tether.__file__).parent
ROOT = PACKAGE.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NOW = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""Pages about the present; the changelog also names what is gone."""
SOURCES = [
    path
    for folder in ("src", "tests", "examples", "benchmarks", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != Path(__file__).name
]

# Sections of the theory

CITED = re.compile(r"theory(?:\.md|\]\(theory\.md\))?,?\s+sections?\s+((?:\d+(?:,\s*|\s+and\s+|\s+to\s+)?)+)")
ELSEWHERE = re.compile(r"\b([A-Z][A-Z_]{3,})(?:\.md)?,?\s+(?:sections?\b|§)")


def numbers_in(cited):
    """The sections that "1, 2 and 17" or "4 to 7" stand for."""
    numbers = set()
    for first, last in re.findall(r"(\d+)(?:\s+to\s+(\d+))?", cited):
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def test_every_cited_section_of_the_theory_exists():
    sections = {
        int(number) for number in re.findall(r"^## (\d+)\. ", (ROOT / "docs/theory.md").read_text(), re.MULTILINE)
    }
    assert sections == set(range(1, len(sections) + 1))
    found = [
        (path, numbers_in(match.group(1))) for path in [*SOURCES, *PAGES] for match in CITED.finditer(path.read_text())
    ]
    assert len(found) > 20
    assert [f"{path.relative_to(ROOT)}: {cited - sections}" for path, cited in found if cited - sections] == []


def test_no_source_cites_a_document_that_is_not_here():
    cited = {(path, match.group(1)) for path in [*SOURCES, *PAGES] for match in ELSEWHERE.finditer(path.read_text())}
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in cited if not (ROOT / f"{name}.md").exists()] == []


def test_citations_are_recognised():
    """The checker itself."""
    assert numbers_in(CITED.search("docs/theory.md sections 1, 2, 7 and 17.").group(1)) == {1, 2, 7, 17}
    assert numbers_in(CITED.search("docs/theory.md sections 4 to 7 and 17").group(1)) == {4, 5, 6, 7, 17}
    assert numbers_in(CITED.search("([theory](theory.md), section 17)").group(1)) == {17}
    assert ELSEWHERE.search("as in THEORY section 4") and ELSEWHERE.search("FROZEN_LAKE.md §1")


# Files, links and commands

PLACE = re.compile(r"(?<![\w./-])((?:docs|examples|tests|benchmarks|tools|src)/[\w./-]*\w)")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[\w-]+)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", NOW, ids=lambda page: page.name)
def test_every_place_in_the_repository_that_a_page_names_exists(page):
    named = set(PLACE.findall(page.read_text()))
    assert sorted(place for place in named if not (ROOT / place).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    broken = []
    for target, anchor in LINK.findall(page.read_text()):
        file = page.parent / target
        if not file.exists():
            broken.append(target)
        elif anchor and anchor[1:] not in map(slug, HEADING.findall(file.read_text())):
            broken.append(target + anchor)
    assert broken == []


def slug(heading):
    """The anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def shell_lines(text):
    """What a reader would type: lines of code blocks, and inline code."""
    indented = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    fenced = [line for block in re.findall(r"```(?:sh)?\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [*indented, *fenced, *re.findall(r"`([^`\n]+)`", text)]


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page.name, match.group(1)) for page in NOW for match in re.finditer(r"`make ([\w-]+)", page.read_text())}
    assert len(named) > 10
    assert [pair for pair in named if pair[1] not in targets] == []


def wrong_command(line):
    """What a `tether …` line names that the command line does not have; None if all is there."""
    words = shlex.split(line.replace("…", ""), comments=True)
    command, words = typer.main.get_command(app), words[1:]
    while getattr(command, "commands", None) and words and not words[0].startswith("-"):
        if words[0] == "|" or words[0].isupper():
            return None
        if words[0] not in command.commands:
            return words[0]
        command, words = command.commands[words[0]], words[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    return next((word for word in words if word.startswith("--") and word.partition("=")[0] not in known), None)


@pytest.mark.parametrize("page", NOW, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_exists_with_its_options(page):
    lines = [line.removeprefix(".venv/bin/") for line in shell_lines(page.read_text())]
    lines = [line for line in lines if re.match(r"tether [a-z-]", line)]
    assert [line for line in lines if wrong_command(line) is not None] == []


def test_commands_are_recognised():
    """The checker itself: three that exist and two that do not."""
    assert wrong_command("tether reproduce figure1 --quick") is None
    assert wrong_command("tether audit verify log.db  # nothing was altered") is None
    assert wrong_command("tether --help") is None
    assert wrong_command("tether replay log.db") == "replay"
    assert wrong_command("tether reproduce figure1 --quickly") == "--quickly"


# Symbols

EMPHASIS = re.compile(r"[γθμηwxV]\*(?![*\s.,;:)])|(?<![\w\\])_(?=[\w{(])")


def prose(text):
    """A page without its code, in blocks or in a line."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"^ {4}.*$|`[^`\n]*`", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_symbols_are_not_read_as_emphasis(page):
    """The star of γ\\* and the index of ‖x‖\\_G are escaped: else a pair of them is set in italics and lost."""
    assert [match.group() for match in EMPHASIS.finditer(prose(page.read_text()))] == []


# The API page

API = (ROOT / "docs/api.md").read_text()
LISTED = re.findall(r"^::: (\S+)$", API, re.MULTILINE)


def test_what_the_api_page_lists_can_be_imported_as_it_says():
    for name in LISTED:
        assert resolve(name) is not None


def test_the_api_page_lists_every_public_name_and_each_once():
    assert len(set(LISTED)) == len(LISTED)
    public = {f"tether.{name}" for name in tether.__all__ if name != "__version__"}
    assert public - set(LISTED) == set()
    assert {name for name in LISTED if re.fullmatch(r"tether\.\w+", name)} == public


@pytest.mark.parametrize("page", NOW, ids=lambda page: page.name)
def test_every_import_that_a_page_shows_works(page):
    for module, names in re.findall(r"^\s*from (tether[\w.]*) import ([\w, ]+)", page.read_text(), re.MULTILINE):
        for name in re.findall(r"\w+", names):
            assert resolve(f"{module}.{name}") is not None


def test_imports_in_examples_and_pages_take_public_names_from_tether():
    """Where `from tether import X` works, no page shows a longer way."""
    longer = []
    for path in [*NOW, *sorted((ROOT / "examples").rglob("*.py"))]:
        for module, names in re.findall(r"^from (tether\.[\w.]+) import (.+)$", path.read_text(), re.MULTILINE):
            longer += [f"{path.name}: {module}.{name}" for name in re.findall(r"\w+", names) if name in tether.__all__]
    assert longer == []


# Versions

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_changelog_begins_with_this_version_and_every_version_has_a_date():
    versions = re.findall(r"^## (\S+)(?: \((\d{4}-\d{2}-\d{2})\))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0][0] == VERSION
    assert all(date for _, date in versions)
    assert f"version: {VERSION}" in (ROOT / "CITATION.cff").read_text().splitlines()


def test_what_the_changelog_says_has_moved_is_where_it_says():
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    moved = [row.split("|")[2] for row in newest.splitlines() if row.startswith("| `tether.")]
    assert len(moved) > 10
    for name in re.findall(r"`(tether[\w.]+)`", " ".join(moved)):
        assert resolve(name) is not None


def test_the_citation_names_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    assert "Safe Reinforcement Learning with Linear Function Approximation" in text
    assert "cff-version: 1.2.0" in text
