"""Sizes, documentation, and things that must not be in the sources."""

import ast
import importlib
import inspect
import re
import subprocess
from pathlib import Path

import pytest

import tether

PACKAGE = Path(tether.__file__).parent
ROOT = PACKAGE.parent.parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

MOST_ARGUMENTS = 8
"""What travels together is a record."""

ids = [str(path.relative_to(PACKAGE)) for path in SOURCES]


def is_option(path, owner, name):
    """Whether the arguments of a function are options that a user sets one by one: a public name, or a command."""
    return path.parent.name == "cli" or (owner if name == "__init__" else name) in tether.__all__


def functions_of(tree, owner=""):
    """(class or empty, function) of every function of a file, those inside functions included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, node
        yield from functions_of(node, node.name if isinstance(node, ast.ClassDef) else owner)


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_function_takes_more_than_eight_arguments(path):
    """Besides `self`, and besides the options of public functions and of commands."""
    wide = {}
    for owner, node in functions_of(ast.parse(path.read_text())):
        given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in given if name not in ("self", "cls")])
        if count > MOST_ARGUMENTS and not is_option(path, owner, node.name):
            wide[f"{owner}.{node.name}"] = count
    assert wide == {}


def test_no_kernel_is_imported_by_an_underscore():
    """What other files use has no underscore."""
    hidden = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tether.kernels"):
                hidden += [f"{path.name}: {alias.name}" for alias in node.names if alias.name.startswith("_")]
    assert hidden == []


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_every_module_class_and_function_says_what_it_is(path):
    """Private helpers, magic methods and functions inside functions may go without."""
    tree = ast.parse(path.read_text())
    silent = [] if ast.get_docstring(tree) or not path.read_text().strip() else ["the module"]

    def visit(nodes):
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    silent.append(node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body)

    visit(tree.body)
    assert silent == []


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


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_source_names_a_place_on_some_machine(path):
    found = [line for line in path.read_text().splitlines() if MACHINE_PATHS.search(line)]
    assert found == []


UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_no_source_unpickles_or_evaluates(path):
    """A saved state or a result from elsewhere must never be able to run code."""
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wrong += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE:
            wrong.append(node.module)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                wrong.append("allow_pickle")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            wrong.append(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            owner = node.func.value
            if (
                isinstance(owner, ast.Name)
                and owner.id == "np"
                and not any(k.arg == "allow_pickle" for k in node.keywords)
            ):
                wrong.append("np.load without allow_pickle=False")
    assert wrong == []


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_checks_are_not_asserts(path):
    """An assert vanishes under python -O; a broken assumption must not."""
    asserts = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)]
    assert asserts == []


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_randomness_is_always_an_argument(path):
    """np.random.seed and the global functions are shared, order-dependent state."""
    allowed = {"Generator", "SeedSequence", "default_rng", "PCG64", "BitGenerator"}
    used = [
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "random"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "np"
    ]
    assert set(used) <= allowed


def test_no_compiled_or_generated_file_is_under_version_control():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    generated = re.compile(r"(__pycache__/|\.pyc$|\.nbc$|\.nbi$|\.egg-info/|^\.venv|\.pytest_cache|\.hypothesis/)")
    assert [line for line in listed.stdout.splitlines() if generated.search(line)] == []
