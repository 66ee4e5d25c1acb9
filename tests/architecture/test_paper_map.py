"""Every row of docs/paper-map.md resolves: each function it names exists, and so does each test."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import tether

ROOT = Path(tether.__file__).parent.parent.parent
MAP = ROOT / "docs" / "paper-map.md"

CODE = re.compile(r"`(tether(?:\.\w+)+)(?:\(\))?`")
TEST = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.py)(?:::([\w\[\]., -]+(?:::[\w\[\]., -]+)*))?`")


def resolve(dotted):
    """The module, class, function or constant that a dotted name stands for."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            fields = getattr(thing, "__annotations__", {}) | getattr(thing, "__dataclass_fields__", {})
            if not hasattr(thing, name) and name in fields:
                return fields[name]
            thing = getattr(thing, name)
        return thing
    raise ModuleNotFoundError(dotted)


def names_in(path):
    """Functions, classes and constants of a file, with methods as Class::method."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{sub.name}" for sub in node.body if isinstance(sub, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def references():
    """(line number, kind, reference) of everything in backticks that looks like code or like a test."""
    if not MAP.exists():
        return []
    found = []
    for number, line in enumerate(MAP.read_text().splitlines(), start=1):
        found += [(number, "code", match.group(1)) for match in CODE.finditer(line)]
        found += [(number, "file", match.group(0).strip("`")) for match in TEST.finditer(line)]
    return found


def test_every_reference_of_the_paper_map_resolves():
    broken = []
    for number, kind, reference in references():
        if kind == "code":
            try:
                resolve(reference)
            except (ModuleNotFoundError, AttributeError) as error:
                broken.append(f"line {number}: `{reference}`: {error}")
            continue
        path, _, name = reference.partition("::")
        if not (ROOT / path).is_file():
            broken.append(f"line {number}: `{reference}`: no such file")
        elif name and re.sub(r"\[.*", "", name) not in names_in(ROOT / path):
            broken.append(f"line {number}: `{reference}`: no such name in {path}")
    assert broken == []


def test_the_paper_map_names_both_code_and_tests():
    kinds = [kind for _, kind, _ in references()]
    assert kinds.count("code") >= 10
    assert kinds.count("file") >= 10


def test_references_are_recognised_and_broken_ones_noticed():
    """The checker itself: two that resolve, and three that must not."""
    assert resolve("tether.kernels.radius.mixture_radius") is not None
    assert resolve("tether.SlucbQvi.act") is not None
    with pytest.raises(AttributeError):
        resolve("tether.kernels.radius.no_such_radius")
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        resolve("tether.no_such_module.thing")
    assert "test_references_are_recognised_and_broken_ones_noticed" in names_in(Path(__file__))
    assert "no_such_test" not in names_in(Path(__file__))
    line = "| Eq. (9) | `tether.kernels.bound.state_radius` | `tests/unit/test_x.py::test_y` |"
    assert [match.group(1) for match in CODE.finditer(line)] == ["tether.kernels.bound.state_radius"]
    assert [match.group(1, 2) for match in TEST.finditer(line)] == [("tests/unit/test_x.py", "test_y")]
