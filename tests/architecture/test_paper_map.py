"""The paper map tells the truth: what each row names exists, its test calls its function, and so does the program."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import tether
from architecture.entered import code_of, resolve
from planting import parsed

PACKAGE = Path(tether.__file__).parent
ROOT = PACKAGE.parent.parent
MAP = ROOT / "docs" / "paper-map.md"

CODE = re.compile(r"`(tether(?:\.\w+)+)(?:\(\))?`")
TEST = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.py(?:::[\w\[\]., -]+)*)`")


class Row(NamedTuple):
    """A row of a table: its line, the functions and the tests it names."""

    line: int
    functions: tuple[str, ...]
    tests: tuple[str, ...]


def rows_of(text):
    """The rows of all tables whose columns are `code` and `test`, headings left out."""
    rows, inside = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.endswith("| code | test |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(Row(number, tuple(CODE.findall(line)), tuple(TEST.findall(line))))
    return rows


ROWS = rows_of(MAP.read_text())


def names_in(path):
    """Functions, classes and constants of a file, with methods as Class::method."""
    found = set()
    for node in parsed(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{sub.name}" for sub in node.body if isinstance(sub, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def broken_references(text):
    """What a page names in backticks, code of the package or files of the repository, and what is not there."""
    broken = []
    for number, line in enumerate(text.splitlines(), start=1):
        for dotted in CODE.findall(line):
            try:
                resolve(dotted)
            except (ModuleNotFoundError, AttributeError) as error:
                broken.append(f"line {number}: `{dotted}`: {error}")
        for reference in TEST.findall(line):
            path, _, name = reference.partition("::")
            if not (ROOT / path).is_file():
                broken.append(f"line {number}: `{reference}`: no such file")
            elif name and re.sub(r"\[.*", "", name) not in names_in(ROOT / path):
                broken.append(f"line {number}: `{reference}`: no such name in {path}")
    return broken


def test_every_reference_of_the_paper_map_resolves():
    assert broken_references(MAP.read_text()) == []


def test_every_row_names_a_function_and_a_test():
    assert len(ROWS) >= 60
    assert [row for row in ROWS if not row.functions or not row.tests] == []


def entered_by(asked, folder):
    """Run tests in one process, with the kernels in plain Python: {test: the functions that it entered}."""
    request = folder / "asked.json"
    request.write_text(json.dumps({test: sorted(names) for test, names in asked.items()}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"TETHER_KERNELS": "python", "TETHER_ENTERED": str(request)}
    options = ["-p", "tests.architecture.entered", "-p", "no:cacheprovider", "-o", "filterwarnings=ignore", "-q"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *asked], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    answer = Path(f"{request}.out")
    assert answer.exists(), run.stdout[-4000:] + run.stderr[-4000:]
    return {test: set(names) for test, names in json.loads(answer.read_text()).items()}


def never_called(rows, folder):
    """(line, test, function) wherever the test of a row runs without calling the function of that row."""
    asked = {}
    for row in rows:
        for test in row.tests:
            asked.setdefault(test, set()).update(row.functions)
    entered = entered_by(asked, folder)
    return [
        (row.line, test, name)
        for row in rows
        for test in row.tests
        for name in row.functions
        if name not in entered[test]
    ]


@pytest.mark.slow
def test_the_test_of_every_row_calls_the_functions_of_that_row(tmp_path):
    """By execution: the tests run, and every function of the map that they enter is noted. About 20 seconds."""
    assert never_called(ROWS, tmp_path) == []


def test_a_row_with_the_wrong_test_is_noticed(tmp_path):
    """The checker itself: a right row, a row whose test calls something else, and a row whose test calls nothing."""
    by_hand = "tests/kernels/test_radius.py::test_theorem_1s_second_term"
    bound = "tests/kernels/test_bound.py::test_the_bound_is_the_left_side_of_equation_9"
    rows = [
        Row(1, ("tether.kernels.radius.paper_value_term",), (by_hand,)),
        Row(2, ("tether.kernels.bound.pessimistic_cost",), (by_hand, bound)),
        Row(3, ("tether.kernels.radius.paper_value_term",), ("tests/kernels/test_ridge.py::test_a_dot_product",)),
    ]
    found = never_called(rows, tmp_path)
    assert [(line, test) for line, test, _ in found] == [(2, by_hand), (3, rows[2].tests[0])]


@cache
def sources():
    """Module -> syntax tree, of the whole package."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        trees[".".join(parts).removesuffix(".__init__")] = parsed(path.read_text())
    return trees


def used_names(tree, without):
    """Names and .attributes that code reads, the bodies of functions called `without` left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == without:
            continue
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
        yield from used_names(node, without)


def is_used(dotted):
    """Whether the package itself, tests aside, uses a function or a method somewhere outside its own body."""
    module = max((name for name in sources() if dotted.startswith(f"{name}.")), key=len)
    *owner, name = dotted.removeprefix(f"{module}.").split(".")
    if owner and name.startswith("__"):  # a constructor is used where its class is
        return is_used(dotted.removesuffix(f".{name}"))
    if owner:
        return any(f".{name}" in set(used_names(tree, name)) for tree in sources().values())
    if name in used_names(sources()[module], name):
        return True
    for other, tree in sources().items():
        for node in ast.walk(tree):
            if other == module or not isinstance(node, ast.ImportFrom):
                continue
            if node.module == module and name in {alias.name for alias in node.names}:
                return True
            if f"{node.module}.{node.names[0].name}" == module and f".{name}" in set(used_names(tree, name)):
                return True
    return False


def test_the_program_itself_uses_what_the_map_names():
    """A function that only tests call proves nothing about the program."""
    assert [f"line {row.line}: {name}" for row in ROWS for name in row.functions if not is_used(name)] == []


def test_references_are_recognised_and_broken_ones_noticed():
    """The checker itself: two that resolve, and three that must not."""
    assert code_of(resolve("tether.agents.slucb.SlucbConfig.__post_init__")) is not None
    assert resolve("tether.SlucbQvi.act") is not None
    with pytest.raises(AttributeError):
        resolve("tether.kernels.radius.no_such_radius")
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        resolve("tether.no_such_module.thing")
    line = "| Eq. (9) | `tether.kernels.radius.no_such` | `tests/unit/test_x.py::test_y` |"
    assert len(broken_references(line)) == 2
    assert len(broken_references("`tests/architecture/test_paper_map.py::no_such_test`")) == 1
    assert (
        broken_references("`tests/architecture/test_paper_map.py::test_the_program_itself_uses_what_the_map_names`")
        == []
    )
    table = f"| paper | code | test |\n|---|---|---|\n{line}\n\n`tether.kernels`"
    assert rows_of(table) == [Row(3, ("tether.kernels.radius.no_such",), ("tests/unit/test_x.py::test_y",))]
    assert not is_used("tether.agents.testing.check_agent")
    assert is_used("tether.kernels.bound.pessimistic_cost")
