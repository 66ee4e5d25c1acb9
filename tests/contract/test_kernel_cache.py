"""Compiled machine code must never outlive the source it came from: a stale kernel computes a stale safety bound."""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import tether
from tether.compiled import source_digest

from .agents import CASES

PACKAGE = Path(tether.__file__).parent


def _defines_kernels(path):
    """Whether a file puts @compiled, @lean or @inlined on a function, found by reading the syntax tree."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            if names & {"compiled", "lean", "inlined"}:
                return True
    return False


KERNEL_FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if _defines_kernels(path)]


@pytest.fixture
def package(tmp_path):
    """A copy of the sources."""
    copy = tmp_path / "tether"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_there_are_kernels_to_guard():
    assert Path("learning/ridge.py") in KERNEL_FILES
    assert Path("learning/safe_sets.py") in KERNEL_FILES
    assert len(KERNEL_FILES) >= 6


def test_a_copy_of_the_sources_has_the_same_key(package):
    assert source_digest(package) == source_digest(PACKAGE)


@pytest.mark.parametrize("file", KERNEL_FILES, ids=str)
def test_the_key_changes_with_every_file_that_defines_kernels(file, package):
    before = source_digest(package)
    path = package / file
    source = path.read_text()
    path.write_text(source + "\n# one comment\n")
    assert source_digest(package) != before
    path.write_text(source)
    assert source_digest(package) == before


def test_the_key_changes_with_the_decorator_itself(package):
    before = source_digest(package)
    path = package / "compiled.py"
    path.write_text(path.read_text().replace('"error_model": "numpy"', '"error_model": "python"'))
    assert source_digest(package) != before


def test_the_key_changes_when_a_kernel_file_is_renamed_or_exchanged_with_another(package):
    before = source_digest(package)
    one, two = package / KERNEL_FILES[0], package / KERNEL_FILES[1]
    one.rename(one.with_name("renamed.py"))
    assert source_digest(package) != before
    one.with_name("renamed.py").rename(one)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert source_digest(package) != before


def test_a_new_kernel_file_changes_the_key_however_it_imports_the_decorator(package):
    before = source_digest(package)
    new = package / "learning" / "extra.py"
    for line in (
        "from tether.compiled import compiled",
        "from tether import compiled as kernels",
        "import tether.compiled",
        "from ..compiled import compiled",
    ):
        new.write_text(line + "\n")
        assert source_digest(package) != before, line


def test_kernels_freeze_no_constant_from_a_file_outside_the_key():
    """A kernel file may import types and functions from anywhere, but numbers only from files that the key covers:
    numba writes the number into the machine code."""
    covered = {".".join(("tether", *file.with_suffix("").parts)) for file in KERNEL_FILES} | {"tether.compiled"}
    frozen = []
    for file in KERNEL_FILES:
        for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tether"):
                home = importlib.import_module(node.module)
                for alias in node.names:
                    value = getattr(home, alias.name)
                    constant = isinstance(value, int | float | str | tuple | list | dict | np.ndarray)
                    if constant and node.module not in covered:
                        frozen.append(f"{file}: {node.module}.{alias.name}")
    assert frozen == []


def test_every_kernel_carries_the_key():
    """numba compares this stamp with the one on disk and recompiles when they differ."""
    if numba.config.DISABLE_JIT:
        pytest.skip("there is no machine code without the compiler")
    digest, kernels = source_digest(PACKAGE), 0
    for file in KERNEL_FILES:
        module = importlib.import_module(".".join(("tether", *file.with_suffix("").parts)))
        for thing in vars(module).values():
            if hasattr(thing, "_cache") and hasattr(thing, "py_func"):
                assert digest in thing._cache._cache_file._source_stamp, f"{module.__name__}.{thing.__name__}"
                kernels += 1
    assert kernels > 20


@pytest.mark.parametrize("name", CASES)
def test_no_agent_needs_kernels_of_its_own(name):
    """Arrays of another layout or numbers of another type would compile every kernel again: forty seconds."""
    plain, agent = CASES["explorer-adaptive"].make(), CASES[name].make()
    for part in ("rules", "memory", "tables", "current"):
        for field, value in getattr(agent, part)._asdict().items():
            like = getattr(getattr(plain, part), field)
            assert numba.typeof(value) == numba.typeof(like), f"{part}.{field}"


def test_plain_python_makes_the_same_choices(tmp_path):
    """Without the compiler, minima, NaN and rounding follow Python's rules: the choices must not depend on it."""
    record = tmp_path / "plain.json"
    command = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from golden import regenerate;"
        "regenerate.EPISODES = 12; json.dump(regenerate.record('finite'), open(sys.argv[2], 'w'))"
    )
    subprocess.run(
        [sys.executable, "-c", command, str(Path(__file__).parents[1]), str(record)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=True,
    )
    plain = json.loads(record.read_text())
    compiled = json.loads((Path(__file__).parents[1] / "golden" / "finite.json").read_text())
    for column in ("state", "ray", "reason"):
        assert plain[column] == compiled[column][: len(plain[column])], column
    np.testing.assert_allclose(plain["bound"], compiled["bound"][: len(plain["bound"])], rtol=1e-9)


@pytest.mark.slow
def test_an_edited_callee_in_another_file_is_really_recompiled(tmp_path):
    """A tiny package of two kernel files: after the callee's file changes, the caller's cached code is not used."""
    if numba.config.DISABLE_JIT:
        pytest.skip("there is no machine code without the compiler")
    package = tmp_path / "tether"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "compiled.py").write_text((PACKAGE / "compiled.py").read_text())
    callee = "from tether.compiled import compiled\n\n@compiled\ndef callee(x):\n    return x + {}\n"
    caller = (
        "from tether.compiled import compiled\nfrom tether.callee import callee\n\n"
        "@compiled\ndef caller(x):\n    return callee(x)\n"
    )
    (package / "caller.py").write_text(caller)
    answers = []
    for number in ("1.0", "2.0"):
        (package / "callee.py").write_text(callee.format(number))
        command = "from tether.caller import caller; print(caller(0.0))"
        run = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
        answers.append(run.stdout.strip())
    assert answers == ["1.0", "2.0"]
