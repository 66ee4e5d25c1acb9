"""Is the layout still true? Who imports whom, read from the syntax trees."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import tether
from planting import parsed

PACKAGE = Path(tether.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
LEARNER = {"kernels", "agents", "reference", "features", "check", "gym", "live", "service"}
TRUTH = {"worlds"}
SEES_BOTH = {"lab", "cli"}
"""Only these may know both what the learner is told and what it must find out."""

BASE = {"errors", "records", "options"}
KNOWN = BASE | {"assumptions", "problem"}

MAY_IMPORT = {
    "errors": set(),
    "records": set(),
    "files": set(),
    "arguments": {"errors"},
    "options": {"records", "errors"},
    "sections": {"errors"},
    "assumptions": BASE,
    "problem": BASE | {"arguments", "assumptions", "check"},  # check: on call of Problem.check only
    "worlds": KNOWN | {"compiled"},
    "kernels": KNOWN | {"compiled"},
    "agents": KNOWN | {"compiled", "kernels", "check", "files", "version"},
    "reference": KNOWN | {"agents"},
    "features": KNOWN,
    "check": KNOWN | {"kernels"},
    "gym": KNOWN | {"arguments", "agents", "check", "features"},
    "live": KNOWN | {"arguments", "compiled", "agents", "check", "kernels", "files", "version"},
    "service": KNOWN | {"live", "check", "files", "sections", "version", "compiled"},
    "cisr": {"worlds", "records", "errors", "files"},
}
"""Layer -> layers it may import, besides itself. `version` is tether.__version__."""


def layer(*parts):
    """The first part of a name under tether; the lab's worlds and its CISR are layers of their own."""
    if parts[0] == "lab" and parts[1:] and parts[1] in ("worlds", "cisr"):
        return parts[1]
    return "cli" if parts[0] == "__main__" else parts[0]


def layer_of(path):
    """The layer that a file belongs to."""
    return layer(*path.relative_to(PACKAGE).with_suffix("").parts)


@cache
def imports_of(path):
    """(line, dotted module, names) of every import of tether in a file, function bodies included."""
    found = []
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, ()) for alias in node.names if alias.name.split(".")[0] == "tether"]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = path.relative_to(PACKAGE.parent).with_suffix("").parts[: -node.level]
                module = ".".join((*base, *filter(None, [module])))
            if module.split(".")[0] == "tether":
                found.append((node.lineno, module, tuple(alias.name for alias in node.names)))
    return tuple(found)


def targets_of(path):
    """Layers that a file imports, with the line."""
    for line, module, names in imports_of(path):
        parts = module.split(".")
        if module == "tether.kernels.compiled":  # marks and types for the compiler: no numerics of the learner
            yield line, "compiled"
            continue
        if len(parts) > 1:
            yield line, layer(*parts[1:])
            continue
        for name in names:  # from tether import X: a module, the version, or a public name that lives somewhere
            home = tether._HOME.get(name, f"tether.{name}")
            yield line, "version" if name == "__version__" else layer(*home.split(".")[1:])


MODULES = [path for path in SOURCES if path != PACKAGE / "__init__.py"]


def test_a_module_imports_only_layers_below_its_own():
    wrong = []
    for path in MODULES:
        own = layer_of(path)
        for line, target in targets_of(path) if own in MAY_IMPORT else ():
            if target not in MAY_IMPORT[own] | {own}:
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {target}")
    assert wrong == []


def test_the_learner_never_sees_the_truth_and_the_truth_never_sees_the_learner():
    wrong = []
    for path in MODULES:
        own = layer_of(path)
        for line, target in targets_of(path):
            if (own in LEARNER and target in TRUTH) or (own in TRUTH and target in LEARNER):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {target}")
    assert wrong == []


def test_only_studies_see_both_sides():
    both = {}
    for path in MODULES:
        targets = {target for _, target in targets_of(path)}
        if targets & LEARNER and targets & TRUTH:
            both[str(path.relative_to(PACKAGE))] = layer_of(path)
    assert {name: own for name, own in both.items() if own not in SEES_BOTH} == {}
    assert both, "if nothing sees both sides, this test reads the imports wrongly"


def test_nothing_below_the_studies_imports_them():
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {target}"
        for path in MODULES
        for line, target in targets_of(path)
        if target in SEES_BOTH and layer_of(path) not in SEES_BOTH
    ]
    assert wrong == []


def test_only_studies_and_the_command_line_import_the_cisr_baseline():
    importers = {layer_of(path) for path in MODULES for _, target in targets_of(path) if target == "cisr"}
    assert importers - {"cisr"} <= SEES_BOTH


def test_the_lab_and_the_command_line_have_no_import_cycles():
    """Not inside functions either: whoever shows studies asks their registry, and no study imports who shows it."""
    places = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in SOURCES
        if layer_of(path) in SEES_BOTH
    }
    needs = {}
    for name, path in places.items():
        wanted = {
            f"{module}.{part}" if f"{module}.{part}" in places else module
            for _, module, parts in imports_of(path)
            for part in parts or ("",)
        }
        needs[name] = wanted & places.keys() - {name}
    while free := {name for name, wanted in needs.items() if not wanted & needs.keys()}:
        needs = {name: wanted for name, wanted in needs.items() if name not in free}
    assert needs == {}


def test_every_layer_is_known():
    """A new folder or module at the top must be given its place in the rules above."""
    known = {*MAY_IMPORT, *SEES_BOTH, "__init__"}
    assert {layer_of(path) for path in SOURCES} - known == set()


def test_folders_are_one_deep_but_for_the_log_and_the_lab_and_there_is_no_utils():
    deep = {path.parent.relative_to(PACKAGE).as_posix() for path in SOURCES if len(path.relative_to(PACKAGE).parts) > 2}
    assert deep == {"agents/relatives", "live/log", "lab/worlds", "lab/studies", "lab/cisr", "lab/real"}
    assert [path.name for path in SOURCES if path.stem in ("utils", "util", "helpers", "misc", "common")] == []


CALLED_LATE = {
    ("tether.problem.problem", "tether.check.problem_check"),
    ("tether.gym.bridge", "tether.gym.check"),
}
"""Imports upwards that happen within one call: `Problem.check` is a short name for `check_problem(problem)`, and
`Bridge.check` for `check_bridge(bridge)`."""


def modules_imported(path):
    """Modules of the package that a file imports anywhere: in functions and for type checkers, too."""
    names = {".".join(one.relative_to(PACKAGE.parent).with_suffix("").parts) for one in SOURCES}
    for _, module, imported in imports_of(path):
        wanted = {module} if not imported else {f"{module}.{name}" for name in imported} | {module}
        yield from wanted & names


def test_no_modules_import_each_other_in_a_circle():
    """Not even inside functions: repeatedly leave out whoever imports nothing that is left."""
    name_of = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in MODULES}
    left = {name: set(modules_imported(path)) - {name} for path, name in name_of.items()}
    for importer, imported in CALLED_LATE:
        left[importer].remove(imported)
    while free := [name for name, imported in left.items() if not imported & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == [], "these import each other, or import those that do"


IMPORT_ONLY = "import sys, json; import tether; print(json.dumps(sorted(sys.modules)))"


def test_importing_tether_loads_nothing_heavy():
    run = subprocess.run([sys.executable, "-c", IMPORT_ONLY], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(run.stdout)}
    assert loaded & {"gymnasium", "matplotlib", "scipy", "pandas", "pyarrow", "ray", "plotly", "typer"} == set()
    assert loaded & {"torch", "stable_baselines3", "optuna"} == set()


def test_the_learner_runs_without_the_simulator():
    """A live system imports the agent; neither the worlds nor the studies come along."""
    command = "import sys, json; from tether import SlucbQvi; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert "tether.agents.slucb" in loaded
    assert {name for name in loaded if name.startswith("tether.lab")} == set()
    assert loaded & {"gymnasium", "matplotlib"} == set()


def test_only_the_adapters_import_gymnasium():
    importers = []
    for path in SOURCES:
        for node in ast.walk(parsed(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "gymnasium" for name in names):
                importers.append(str(path.relative_to(PACKAGE)))
    elsewhere = {name for name in importers if not name.startswith(("gym/", "lab/real/"))}
    assert elsewhere <= {
        "lab/worlds/gym_env.py",
        "lab/cisr/env.py",
        "agents/relatives/ppo_lagrangian.py",  # Stable-Baselines3 takes spaces, imported when a learner is made
    }


GATE = ("gate", "gate_facts", "gate_model", "gate_bounds", "examine", "mixtures", "turns", "yes_no", "certified_share")
"""What verifies a certificate. `gate_terms` only hands it the constants of a problem."""


def test_the_gate_shares_no_numerics_with_the_learner():
    """Nothing but numpy, values that cross layers, what the problem declares, and its own parts; 400 lines at most."""
    shared = ("records", "problem.action_sets", "problem.problem", *(f"live.{name}" for name in GATE))
    allowed = {f"tether.{name}" for name in shared}
    for name in GATE:
        path = PACKAGE / "live" / f"{name}.py"
        assert {module for _, module, _ in imports_of(path)} <= allowed, name
        assert len(path.read_text().splitlines()) <= 400, name
        outside = [node for node in ast.walk(parsed(path.read_text())) if isinstance(node, ast.Import)]
        assert {alias.name for node in outside for alias in node.names} <= {"numpy"}, name
