"""The machine code belongs to the sources, is found or missed with a clear word, and gives the same bits everywhere."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import tether
from tether.kernels.compiled import EXTENSION, SOURCES, source_digest

PACKAGE = Path(tether.__file__).parent
TESTS = Path(__file__).parents[1]

compiled_only = pytest.mark.skipif(EXTENSION is None, reason="TETHER_KERNELS=python: there is no machine code here")


def run(*arguments, kernels="", package=PACKAGE, **variables):
    """Python on a package of its own, with the kernels that TETHER_KERNELS asks for."""
    environment = {
        **os.environ,
        "TETHER_KERNELS": kernels,
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(TESTS)]),
        "PYTHONHASHSEED": "0",  # sets are printed in one order
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore::RuntimeWarning",  # plain Python says where NaN arises; machine code does not
        **variables,
    }
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def bits(episodes, kernels="", **variables):
    """Which kernels ran, and a digest by agent."""
    done = run("-m", "kernels.bits", str(episodes), kernels=kernels, **variables)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["ran"], result["digests"]


def differing(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]


@pytest.fixture
def package(tmp_path):
    """A copy of the package, machine code included."""
    copy = tmp_path / "tether"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


# The same bits


@pytest.mark.slow
@compiled_only
def test_every_agent_learns_the_same_bits_with_and_without_avx2():
    if not EXTENSION.has_avx2():
        pytest.skip("this processor has no AVX2: only the baseline can run")
    wide, with_avx2 = bits(40)
    narrow, without = bits(40, kernels="baseline")
    assert (wide, narrow) == ("tether.kernels._avx2", "tether.kernels._baseline")
    assert len(with_avx2) > 30
    assert differing(with_avx2, without) == []


@pytest.mark.slow
@compiled_only
def test_every_agent_learns_the_same_bits_in_plain_python():
    """NumPy's logarithm for wide registers is not the C library's in one case of 500 or so: it is turned off."""
    here = " ".join(feature for feature in __cpu_dispatch__ if __cpu_features__[feature])
    ran, plain = bits(6, kernels="python", NPY_DISABLE_CPU_FEATURES=here)
    assert ran == "python"
    assert differing(bits(6, NPY_DISABLE_CPU_FEATURES=here)[1], plain) == []


# Machine code and sources


@compiled_only
def test_machine_code_of_the_sources_as_they_are_loads(package):
    done = run("-c", "import tether; print(tether.SlucbQvi.__name__, tether.__file__)", package=package)
    assert done.stdout.split() == ["SlucbQvi", str(package / "__init__.py")], done.stderr


@compiled_only
def test_an_edited_kernel_is_refused_and_the_way_out_is_named(package):
    with (package / "kernels" / "bound.py").open("a") as source:
        source.write("# edited\n")
    refuses(package, "edited", "make kernels")


def refuses(package, *words):
    """An import fails with an error that says these words, and what to do meanwhile; that works."""
    refused = run("-c", "import tether; tether.SlucbQvi", package=package)
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    for word in ("KernelError", *words, "TETHER_KERNELS=python"):
        assert word in last
    assert run("-c", "import tether; tether.SlucbQvi", kernels="python", package=package).returncode == 0


@compiled_only
def test_missing_machine_code_is_an_error_with_a_way_out(package):
    for extension in (package / "kernels").glob("_*.so"):
        extension.unlink()
    refuses(package, "_baseline", "Install the package again")


def test_an_unknown_choice_of_kernels_is_refused():
    refused = run("-c", "import tether; tether.SlucbQvi", kernels="nonsense")
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    assert "KernelError" in last
    assert "'python' or 'baseline'" in last
    assert "'nonsense'" in last


@pytest.mark.parametrize("source", SOURCES)
def test_the_digest_follows_every_kernel_file(source, package):
    before = source_digest(package)
    assert before == source_digest(PACKAGE)
    path = package / source
    path.write_bytes(path.read_bytes() + b"\n")
    assert source_digest(package) != before


def test_every_file_with_kernels_is_listed_and_ends_by_taking_its_machine_code():
    marked = {
        str(path.relative_to(PACKAGE)): tree.body[-1]
        for path in PACKAGE.rglob("*.py")
        for tree in [ast.parse(path.read_text())]
        if any(
            isinstance(mark, ast.Name) and mark.id in ("kernel", "record")
            for node in tree.body
            for mark in getattr(node, "decorator_list", [])
        )
    }
    assert sorted(marked) == sorted(SOURCES)
    assert {name for name, last in marked.items() if ast.unparse(last) != "use(globals())"} == set()
