"""Faults as edits of a function's syntax tree: how one is found, planted in a copy of the source, and looked for.

    Fault("flip <=", "bound:known_lengths", swap("upper <= limit", "upper < limit"), "tests/kernels/test_bound.py")

A fault says what it changes by name, `module:function` or `module:Class.method` (a constant or a class counts as well),
and by meaning: fragments are compared as syntax trees, so that layout, comments and everything else in the function may
change. `module` is the end of the module's dotted name. A function that has moved is followed while its name is unique.
"""

import argparse
import ast
import difflib
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LONGEST = 300
"""Seconds that a test may take with a fault in it; most take two."""

LOADED_ONCE = ("gymnasium", "hypothesis", "numpy", "pydantic", "scipy.linalg", "scipy.optimize", "scipy.stats")
"""Modules that most tests import and no fault is planted in."""

FIRST_EXAMPLE = """
from hypothesis import Phase, settings

settings.register_profile("first example", phases=[Phase.explicit, Phase.generate])
settings.load_profile("first example")
"""
"""For a law to turn red, the first example that breaks it is enough; a smaller one would take ten times as long."""

NOT_A_FAULT = "NameError|UnboundLocalError|SyntaxError|AttributeError"
"""A test that is red for one of these is red for the wrong reason: what was planted does not run."""

Edit = Callable[[ast.AST], None]
"""Changes a definition in place; raises NotFound if what it should change is not there."""


class NotFound(Exception):
    """The code that a fault attacks is not, or not as often as stated, where the fault says."""


@dataclass(frozen=True)
class Fault:
    """Apply `edit` to the definition named by `where`; `test` must then fail."""

    name: str
    where: str
    edit: Edit
    test: str


# Edits


def swap(old: str, new: str, times: int = 1) -> Edit:
    """Replace the expression, or the statements in a row, `old` by `new`, in each of the `times` places.

    `...` in `old` stands for any expression; at the end of a list of arguments or statements, for the rest of the list.
    """
    before, after = ast.parse(old).body, ast.parse(new).body
    of_expressions = _is_expression(before) and _is_expression(after)

    def edit(tree: ast.AST) -> None:
        original = deepcopy(tree)
        swapping = _SwapExpression(before, after) if of_expressions else _SwapStatements(before, after)
        swapping.generic_visit(tree)
        if swapping.found != times:
            nearest = _nearest(original, old, ast.expr if of_expressions else ast.stmt)
            raise NotFound(f"`{old}` occurs {swapping.found} times, not {times}; the nearest is {nearest}")

    return edit


def drop(statement: str, times: int = 1) -> Edit:
    """Leave a statement out."""
    return swap(statement, "pass", times)


def never(condition: str) -> Edit:
    """Take a condition for false."""
    return swap(condition, "False")


def becomes(expression: str) -> Edit:
    """A function that returns `expression` and does nothing else, or a constant that is `expression`."""
    value = ast.parse(expression, mode="eval").body

    def edit(tree: ast.AST) -> None:
        if isinstance(tree, ast.FunctionDef):
            tree.body = [ast.Return(value)]
        elif isinstance(tree, ast.Assign | ast.AnnAssign):
            tree.value = value
        else:
            raise NotFound("it is neither a function nor a constant")

    return edit


def _is_expression(fragment: list[ast.stmt]) -> bool:
    return len(fragment) == 1 and isinstance(fragment[0], ast.Expr)


class _SwapExpression(ast.NodeTransformer):
    def __init__(self, before: list[ast.stmt], after: list[ast.stmt]) -> None:
        self.old, self.new, self.found = before[0].value, after[0].value, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if matches(self.old, node):
            self.found += 1
            return deepcopy(self.new)
        return self.generic_visit(node)


class _SwapStatements(ast.NodeTransformer):
    def __init__(self, before: list[ast.stmt], after: list[ast.stmt]) -> None:
        self.old, self.new, self.found = before, after, 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for body in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
            at = 0
            while isinstance(body, list) and at <= len(body) - len(self.old):
                if all(map(matches, self.old, body[at : at + len(self.old)])):
                    body[at : at + len(self.old)] = deepcopy(self.new)
                    at += len(self.new) - 1
                    self.found += 1
                at += 1
        return super().generic_visit(node)


def matches(pattern: object, code: object) -> bool:
    """Whether two fragments are the same code, where `...` in the pattern is anything: lists, nodes or plain values."""
    if isinstance(pattern, list) and isinstance(code, list):
        if pattern and _is_anything(pattern[-1]):
            return len(code) >= len(pattern) - 1 and all(map(matches, pattern[:-1], code))
        return len(pattern) == len(code) and all(map(matches, pattern, code))
    if isinstance(pattern, ast.AST):
        if _is_anything(pattern):
            return isinstance(code, ast.expr)
        return type(pattern) is type(code) and all(
            matches(value, getattr(code, field)) for field, value in ast.iter_fields(pattern)
        )
    return type(pattern) is type(code) and pattern == code


def _is_anything(pattern: object) -> bool:
    pattern = pattern.value if isinstance(pattern, ast.Expr) else pattern
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def _nearest(tree: ast.AST, wanted: str, kind: type[ast.AST]) -> str:
    """The code in a definition that looks most like a fragment, with its line."""
    found = [(ast.unparse(node), node.lineno) for node in ast.walk(tree) if isinstance(node, kind)]
    code, line = max(found, key=lambda place: difflib.SequenceMatcher(None, wanted, place[0]).ratio())
    return f"`{code.splitlines()[0]}` in line {line}"


# Definitions


def modules(package: Path) -> dict[str, Path]:
    """The files of a package by the dotted names of their modules."""
    return {".".join(path.relative_to(package).with_suffix("").parts): path for path in sorted(package.rglob("*.py"))}


def locate(package: Path, where: str) -> tuple[Path, ast.stmt]:
    """The file and the definition that `module:name` stands for."""
    module, _, name = where.partition(":")
    files = modules(package)
    named = {dotted: path for dotted, path in files.items() if f".{dotted}".endswith(f".{module}")}
    elsewhere = {dotted: path for dotted, path in files.items() if dotted not in named}
    for places in (named, elsewhere):
        found = [(dotted, node) for dotted, path in places.items() for node in _definitions(path, name)]
        if len(found) == 1:
            return files[found[0][0]], found[0][1]
        if found:
            raise NotFound(f"it may be any of {', '.join(f'{dotted}:{name}' for dotted, _ in found)}")
    raise NotFound(f"it does not exist any more, nor is there a {name} in another module")


def _definitions(path: Path, name: str) -> list[ast.stmt]:
    """Every definition of a qualified name in a file."""
    source = path.read_text()
    if name.rpartition(".")[2] not in source:  # reading is quicker than parsing
        return []
    return [deepcopy(node) for node in _named(parsed(source), name.split("."))]


parsed = cache(ast.parse)  # several faults are in one file


def _named(scope: ast.AST, name: list[str]) -> Iterator[ast.stmt]:
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        if name[0] in defined and len(name) == 1:
            yield node
        elif name[0] in defined and hasattr(node, "body"):
            yield from _named(node, name[1:])


def planted(package: Path, fault: Fault) -> tuple[Path, str]:
    """The file that a fault changes, and what it then says. Nothing is written."""
    try:
        path, definition = locate(package, fault.where)
        before = ast.dump(definition)
        fault.edit(definition)
        if ast.dump(definition) == before:
            raise NotFound("the edit changes nothing")
    except NotFound as error:
        raise NotFound(f'fault "{fault.name}", {fault.where}: {error}') from None
    lines = path.read_text().splitlines(keepends=True)
    first = min(node.lineno for node in [definition, *getattr(definition, "decorator_list", [])])
    lines[first - 1 : definition.end_lineno] = (
        textwrap.indent(ast.unparse(definition), " " * definition.col_offset),
        "\n",
    )
    return path, "".join(lines)


# Copies


class Copy:
    """A copy of the sources to plant faults in, and what runs tests in it.

    A test runs in a fork of this process, which has pytest and the largest libraries loaded; the package itself is
    imported anew each time, without machine code, as plain Python.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.package = folder, folder / "src" / "tether"
        for part in ("src", "tests", "benchmarks"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "conftest.py").write_text(FIRST_EXAMPLE)
        for name in LOADED_ONCE:
            importlib.import_module(name)

    def outcome(self, fault: Fault) -> str:
        """Plant the fault, run its test and take the fault out again: "noticed", or why it was not."""
        path, source = planted(self.package, fault)
        original, times = path.read_text(), (path.stat().st_atime, path.stat().st_mtime)
        path.write_text(source)
        os.utime(path, (0, 0))  # never the time of the original, which its bytecode in the cache is known by
        try:
            code, output = self.run_tests(fault.test)
        finally:
            path.write_text(original)
            os.utime(path, times)
        if re.search(rf"^E +({NOT_A_FAULT})\b", output, re.MULTILINE):
            return "BROKEN"
        return {0: "SURVIVED", 1: "noticed", -signal.SIGKILL: "ENDLESS"}.get(code, "NOT RUN")

    def run_tests(self, *tests: str, write_bytecode: bool = False) -> tuple[int, str]:
        """pytest's exit code, and what it said: 0 is green, 1 is red, negative took too long, others are neither."""
        said = self.folder / "said.txt"
        child = multiprocessing.get_context("fork").Process(target=self._child, args=(tests, said, write_bytecode))
        child.start()
        child.join(LONGEST * len(tests))
        child.kill()  # if it has not ended
        child.join()
        return child.exitcode, said.read_text()

    def _child(self, tests: tuple[str, ...], said: Path, write_bytecode: bool) -> None:
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(self.folder)
        os.environ |= {
            "TETHER_KERNELS": "python",
            "PYTHONPATH": str(self.package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # loading plugins takes three times as long as most tests
        }
        sys.path[:] = [os.environ["PYTHONPATH"], *(path for path in sys.path if Path(path) != ROOT / "tests")]
        sys.dont_write_bytecode = not write_bytecode
        sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", *tests]))


def main(faults: Sequence[Fault], summary: str) -> int:
    """Plant the chosen faults one by one; 0 if every one was noticed."""
    parser = argparse.ArgumentParser(description=summary.splitlines()[0])
    parser.add_argument("-k", default="", metavar="NAME", help="only faults whose name contains this")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th of them, from the I-th on")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.part.split("/"))
    chosen = [fault for fault in faults if options.k in fault.name][part - 1 :: parts]
    if not chosen:
        raise SystemExit("no fault has such a name")
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy(Path(folder))
        for fault in chosen:
            planted(copy.package, fault)
        code, output = copy.run_tests(*dict.fromkeys(fault.test for fault in chosen), write_bytecode=True)
        if code != 0:
            print(output[-3000:], "some of the named tests are not green without any fault: fix them first", sep="\n")
            return 1
        missed = 0
        for fault in chosen:
            found = copy.outcome(fault)
            print(f"{found:8}  {fault.name:60}  {fault.test.split('::')[-1]}", flush=True)
            missed += found != "noticed"
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults noticed")
    return 1 if missed else 0
