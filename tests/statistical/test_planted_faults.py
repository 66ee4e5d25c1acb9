"""The tests themselves are tested: every planted fault must turn its test red. And so is what plants them."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import planting
from planted_faults import FAULTS
from planting import ROOT, Fault, NotFound, becomes, drop, locate, never, parsed, planted, swap

PARTS = 6
"""So that the processes that run the tests can share them."""

SOURCE = """
LIMIT = 1.0

class Gate:
    kind: str = "gate"

    def passes(self, upper, limit):
        '''Whether `upper <= limit`.'''
        if (upper
                <= limit):  # layout and comments do not count
            self.count(1, 2, exact=True)
            self.log()
        return upper <= limit and shift(upper, limit) > LIMIT
"""


@pytest.fixture
def package(tmp_path):
    """A package with one module, deep.gates."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "gates.py").write_text(SOURCE)
    return tmp_path


def after(package, edit, where="gates:Gate.passes"):
    """The definition as it reads once an edit was made."""
    path, source = planted(package, Fault("planted", where, edit, ""))
    assert path == package / "deep" / "gates.py" and path.read_text() == SOURCE
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "name", "") == "passes":
            node.body = node.body[ast.get_docstring(node) is not None :]
            passes = [line.strip() for line in ast.unparse(node).splitlines()[1:]]
    return passes if where == "gates:Gate.passes" else source


def test_an_expression_is_swapped_wherever_it_occurs_but_not_in_text(package):
    assert after(package, swap("upper <= limit", "upper < limit", times=2)) == [
        "if upper < limit:",
        "self.count(1, 2, exact=True)",
        "self.log()",
        "return upper < limit and shift(upper, limit) > LIMIT",
    ]


def test_three_dots_stand_for_any_expression_and_for_the_rest_of_a_list(package):
    assert after(package, swap("shift(...) > ...", "True"))[-1] == "return upper <= limit and True"
    assert after(package, swap("shift(..., limit)", "0"))[-1] == "return upper <= limit and 0 > LIMIT"
    assert after(package, swap("if upper <= limit:\n    ...", "self.log()")) == [
        "self.log()",
        "return upper <= limit and shift(upper, limit) > LIMIT",
    ]


def test_statements_in_a_row_are_swapped_or_dropped(package):
    assert after(package, drop("self.log()"))[1:3] == ["self.count(1, 2, exact=True)", "pass"]
    assert after(package, swap("self.count(1, 2, exact=True)\nself.log()", "raise ValueError"))[1] == "raise ValueError"


def test_a_condition_is_never_met_and_a_function_or_constant_becomes_something_else(package):
    assert after(package, never("shift(upper, limit) > LIMIT"))[-1] == "return upper <= limit and False"
    assert after(package, becomes("upper + 1")) == ["return upper + 1"]
    assert after(package, becomes("2.0"), "deep.gates:LIMIT") == SOURCE.replace("LIMIT = 1.0", "LIMIT = 2.0")
    assert "kind: str = 'door'" in after(package, becomes("'door'"), "gates:Gate.kind")


@pytest.mark.parametrize(
    ("edit", "found", "nearest"),
    [
        (swap("upper <= limit", "upper < limit"), "occurs 2 times, not 1", "`upper <= limit` in line 9"),
        (swap("upper <= limits", "True"), "occurs 0 times, not 1", "`upper <= limit` in line"),
        (drop("self.count(1, 3)"), "occurs 0 times, not 1", "`self.count(1, 2, exact=True)` in line 11"),
        (drop("log()"), "occurs 0 times", "`self.log()` in line 12"),
        (swap("LIMIT", "(LIMIT)"), "the edit changes nothing", ""),
    ],
)
def test_an_edit_that_does_not_fit_names_the_function_and_the_nearest_code(package, edit, found, nearest):
    with pytest.raises(NotFound) as error:
        after(package, edit)
    assert 'fault "planted", gates:Gate.passes: ' in str(error.value)
    assert found in str(error.value) and nearest in str(error.value)


def test_a_function_is_followed_while_its_name_is_unique(package):
    assert locate(package, "deep.gates:Gate.passes")[0].name == "gates.py"
    (package / "deep" / "moved.py").write_text("def alone():\n    return 1\n")
    (package / "other.py").write_text("class Gate:\n    def passes(self):\n        return 1\n")
    assert locate(package, "gates:alone")[0].name == "moved.py"
    assert locate(package, "other:Gate.passes")[0].name == "other.py"
    with pytest.raises(NotFound, match=r"may be any of deep\.gates:Gate\.passes, other:Gate\.passes"):
        locate(package, "gone:Gate.passes")
    with pytest.raises(NotFound, match=r"nor is there a Gate\.fails"):
        locate(package, "gates:Gate.fails")


def test_faults_have_names_of_their_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_fault_finds_its_code_and_its_test(part, monkeypatch):
    monkeypatch.setattr(planting, "modules", cache(planting.modules))  # no file comes or goes meanwhile
    lost = []
    for fault in FAULTS[part::PARTS]:
        try:
            planted(ROOT / "src" / "tether", fault)
        except NotFound as error:
            lost.append(str(error))
        file, *names = fault.test.partition("[")[0].split("::")
        if not defines(parsed((ROOT / file).read_text()), names):
            lost.append(f'fault "{fault.name}": there is no {fault.test}')
    assert lost == []


def defines(scope, names):
    """Whether there is one test of this name: a function, or a method of a class."""
    for name in names:
        found = [node for node in scope.body if getattr(node, "name", None) == name]
        if len(found) != 1:
            return False
        (scope,) = found
    return True


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_every_planted_fault_is_noticed(part):
    script = Path(__file__).parent.parent / "planted_faults.py"
    command = [sys.executable, str(script), "--part", f"{part}/{PARTS}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
