"""Sizes, documentation, and things that must not be in the sources."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tether
from planting import parsed

PACKAGE = Path(tether.__file__).parent
ROOT = PACKAGE.parent.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

MOST_ARGUMENTS = 8
"""What travels together is a record."""


@pytest.fixture(scope="module")
def trees():
    """The syntax tree of every file of the package, by its path."""
    return {path.relative_to(PACKAGE).as_posix(): parsed(path.read_text()) for path in SOURCES}


def in_which(trees, wrong):
    """What `wrong(path, tree)` finds, by file, where it finds anything."""
    found = {path: wrong(path, tree) for path, tree in trees.items()}
    return {path: each for path, each in found.items() if each}


def is_option(path, owner, name):
    """Whether the arguments of a function are options that a user sets one by one: a public name, or a command."""
    return path.startswith("cli/") or (owner if name == "__init__" else name) in tether.__all__


def functions_of(tree, owner=""):
    """(class or empty, function) of every function of a file, those inside functions included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, node
        yield from functions_of(node, node.name if isinstance(node, ast.ClassDef) else owner)


def test_no_function_takes_more_than_eight_arguments(trees):
    """Besides `self`, and besides the options of public functions and of commands."""

    def wide(path, tree):
        found = {}
        for owner, node in functions_of(tree):
            given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in given if name not in ("self", "cls")])
            if count > MOST_ARGUMENTS and not is_option(path, owner, node.name):
                found[f"{owner}.{node.name}"] = count
        return found

    assert in_which(trees, wide) == {}


def test_no_kernel_is_imported_by_an_underscore(trees):
    """What other files use has no underscore."""

    def hidden(_, tree):
        return [
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tether.kernels")
            for alias in node.names
            if alias.name.startswith("_")
        ]

    assert in_which(trees, hidden) == {}


def test_every_module_class_and_function_says_what_it_is(trees):
    """Private helpers, magic methods and functions inside functions may go without."""

    def silent(nodes):
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    yield node.name
                if isinstance(node, ast.ClassDef):
                    yield from silent(node.body)

    def unsaid(_, tree):
        return [*([] if ast.get_docstring(tree) or not tree.body else ["the module"]), *silent(tree.body)]

    assert in_which(trees, unsaid) == {}


PUBLIC = [name for name in tether.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported_and_is_documented(name):
    thing = getattr(tether, name)
    assert inspect.getdoc(thing)
    assert thing.__doc__ and not thing.__doc__.startswith(f"{name}("), "the docstring is the one dataclasses invent"
    assert getattr(importlib.import_module(tether._HOME[name]), name) is thing
    assert thing.__module__ == tether._HOME[name]


def test_public_names_are_unique_and_listed():
    assert len(set(tether.__all__)) == len(tether.__all__)
    assert sorted(dir(tether)) == sorted(tether.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tether.nonsense


def test_import_tether_is_enough_for_what_the_docs_call_by_its_full_name():
    code = "import tether; tether.gym.remote, tether.features.Tiles"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_same_public_names_as_the_interpreter():
    """The names under TYPE_CHECKING and those loaded on first use are two lists; they must agree."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    guarded = {}
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                guarded.update({alias.name: line.module for alias in line.names})
    assert guarded == tether._HOME


MACHINE_PATHS = re.compile(r"""["'(\s](/(home|root|work|tmp|Users|usr|var|opt|mnt)/|[A-Za-z]:\\\\|~/)""")


def test_no_source_names_a_place_on_some_machine():
    assert [
        (path.relative_to(PACKAGE).as_posix(), line)
        for path in SOURCES
        for line in path.read_text().splitlines()
        if MACHINE_PATHS.search(line)
    ] == []


UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unsafe(node):
    """What a node does that could run code from a file, or None."""
    match node:
        case ast.Import(names=names):
            return next((alias.name for alias in names if alias.name.split(".")[0] in UNSAFE), None)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNSAFE:
            return module
        case ast.keyword(arg="allow_pickle", value=value) if not (
            isinstance(value, ast.Constant) and value.value is False
        ):
            return "allow_pickle"
        case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="load"), keywords=given) if not any(
            one.arg == "allow_pickle" for one in given
        ):
            return "np.load without allow_pickle=False"
    return None


def test_no_source_unpickles_or_evaluates(trees):
    """A saved state or a result from elsewhere must never be able to run code."""
    assert in_which(trees, lambda _, tree: [what for node in ast.walk(tree) if (what := unsafe(node))]) == {}


@pytest.mark.parametrize(
    "code",
    ["import json, pickle", "from joblib.memory import x", "np.load(f, allow_pickle=True)", "eval(x)", "np.load(f)"],
)
def test_what_could_run_code_is_noticed(code):
    assert any(unsafe(node) for node in ast.walk(ast.parse(code)))
    assert not any(unsafe(node) for node in ast.walk(ast.parse("np.load(f, allow_pickle=False)")))


def test_checks_are_not_asserts(trees):
    """An assert vanishes under python -O; a broken assumption must not."""
    asserts = in_which(trees, lambda _, tree: [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)])
    assert asserts == {}


def test_randomness_is_always_an_argument(trees):
    """np.random.seed and the global functions are shared, order-dependent state."""
    allowed = {"Generator", "SeedSequence", "default_rng", "PCG64", "BitGenerator"}

    def shared(_, tree):
        return [
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr not in allowed
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "random"
            and isinstance(node.value.value, ast.Name)
            and node.value.value.id == "np"
        ]

    assert in_which(trees, shared) == {}


def test_no_compiled_or_generated_file_is_under_version_control():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    generated = re.compile(r"(__pycache__/|\.pyc$|\.nbc$|\.nbi$|\.egg-info/|^\.venv|\.pytest_cache|\.hypothesis/)")
    assert [line for line in listed.stdout.splitlines() if generated.search(line)] == []
