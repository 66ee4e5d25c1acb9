"""`tether check`: studies, problems of one's own, logs, and exit codes."""

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from check.cases import linear, outcomes
from tether.check.growth import NAME
from tether.cli import app
from tether.cli.check import of_problem

MODULE = """
import gymnasium
import numpy as np

from tether import Constraint, FiniteActions, Problem, StarActions


def star():
    return Problem.from_rays(
        phi_0=np.full((1, 4), 0.25),
        endpoints=np.eye(4)[None],
        constraints=Constraint(threshold=0.6, noise=0.1, safe_cost=[[0.4]]),
        horizon=1,
    )


class Holder:
    problem = star()


ready = star()
number = 7
finite = Problem.from_table(
    features=[[[1.0, 0.0], [0.0, 1.0]]],
    baseline_action=[0],
    constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=[[0.1]]),
    horizon=1,
)
rays = StarActions([0.5], [[1.0]])
unlisted = Problem(
    horizon=1, constraints=Constraint(threshold=0.5, noise=0.1), dimension=1, actions=lambda s: rays
)
environment = gymnasium.make("Pendulum-v1")


def needs(argument):
    return argument


def broken():
    raise ValueError("sensor table missing")


def mistyped():
    return len(3)


def refused():
    return Problem.from_rays(
        phi_0=[[0.5, 0.5]],
        endpoints=[[[3.0, 0.0]]],
        constraints=Constraint(threshold=0.5, noise=0.1, safe_cost=[[0.1]]),
        horizon=1,
    )
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of one's own in the current folder, under a name that no other test has imported."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def check(*arguments, code):
    found = CliRunner().invoke(app, ["check", *map(str, arguments)])
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


@pytest.mark.parametrize("name", ["star", "ready", "Holder", "Holder.problem"])
def test_a_problem_of_ones_own_is_found_and_checked(module, name):
    found = json.loads(check(f"{module}:{name}", "--json", code=0).stdout)
    assert found["ok"] is True and found["problem"] == f"{module}:{name}"
    verdicts = {finding["name"]: finding["verdict"] for finding in found["findings"]}
    assert verdicts[NAME] == "holds"
    assert verdicts["A1: linear dynamics"] == "cannot be known"


def test_a_failure_exits_with_1_and_shows_the_way_out(module):
    text = check(f"{module}:finite", code=1).stdout
    assert f"FAILS    {NAME}" in text and "way out: features that actions share" in text


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("ready", " 0 fails, 9 cannot be known"),
        ("finite", f"FAILS: {NAME}"),
        ("unlisted", "NOTHING EXAMINED: nothing was looked at."),
    ],
)
def test_a_terminal_s_table_ends_with_the_verdict(module, monkeypatch, capsys, name, ends):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    of_problem(f"{module}:{name}", None, False, {})
    assert ends in capsys.readouterr().out.rpartition("┘")[2]


def test_a_learner_that_mixes_needs_no_rays(module):
    found = json.loads(check(f"{module}:finite", "--limit-on", "average over draws", "--json", code=0).stdout)
    assert found["ok"] is True


def test_a_problem_that_is_refused_at_the_door_exits_with_1_and_names_the_assumption(module):
    assert "Assumption 4" in check(f"{module}:refused", code=1).stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_module_here:problem", "cannot import"),
        ("{module}:nothing", "has no 'nothing'"),
        ("{module}:number", "is int, not a Problem"),
        ("{module}:environment", "name its tether.Bridge(env, …)"),
        ("{module}:needs", "without arguments"),
        ("{module}:broken", "error: calling {module}:broken failed: ValueError: sensor table missing."),
        ("{module}:mistyped", "error: calling {module}:mistyped failed: TypeError: object of type 'int' has no len()."),
        ("nothing-of-this-name", "nothing-of-this-name"),
        ("{module}.py", "is a module: name the problem or bridge in it, {module}:problem"),
        ("./{module}.py:problem", "names a file: in its folder, name the module, {module}:problem"),
    ],
)
def test_what_cannot_be_found_exits_with_2(module, spec, words):
    assert words.format(module=module) in check(spec.format(module=module), code=2).stderr


def test_a_module_that_fails_to_import_exits_with_2(module, tmp_path):
    (tmp_path / f"{module}_bad.py").write_text("1 / 0")
    assert "ZeroDivisionError" in check(f"{module}_bad:problem", code=2).stderr
    (tmp_path / f"{module}_bare.py").write_text("import not_installed_here")
    assert "'not_installed_here'. Install what it imports" in check(f"{module}_bare:problem", code=2).stderr
    assert "Run this where the module can be found" in check(f"{module}_missing:problem", code=2).stderr


@pytest.mark.parametrize(("noise", "code", "verdict"), [(0.1, 0, "holds"), (0.3, 1, "fails")])
def test_a_log_is_read_and_tested(module, tmp_path, noise, code, verdict):
    rows = list(outcomes(0, 300, linear, noise=noise))
    np.savez(tmp_path / "log.npz", phi=[x for x, _ in rows], cost=[z for _, z in rows])
    arguments = (f"{module}:star", "--log", tmp_path / "log.npz", "--level", "0.001", "--json")
    found = json.loads(check(*arguments, code=code).stdout)
    (noise_finding,) = [entry for entry in found["findings"] if entry["name"] == "A3: noise on costs within σ"]
    assert noise_finding["verdict"] == verdict


def test_a_missing_log_exits_with_2(module):
    assert "there is no log at" in check(f"{module}:star", "--log", "absent.csv", code=2).stderr


def test_a_missing_package_is_no_failed_assumption(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "log.parquet").write_bytes(b"")
    assert "tether-rl[experiments]" in check(f"{module}:star", "--log", tmp_path / "log.parquet", code=2).stderr


def test_a_study_shows_what_its_problems_allow():
    found = json.loads(check("figure1", "--json", code=0).stdout)
    assert len(found["checks"]) == 5 and all(row["holds"] for row in found["checks"])
    names = {entry["name"] for entry in found["findings"] if entry["world"] == "synthetic"}
    assert {"radius: H, d and δ leave a usable one", "outlook: steps of safe play to something new"} <= names
    assert all(entry["verdict"] == "holds" for entry in found["findings"])


BRIDGE = """
import numpy as np
from gymnasium import Env, spaces

from tether import Bridge, Constraint, Problem, StarActions


class Room(Env):
    observation_space, action_space = spaces.Box(-1.0, 1.0, (1,)), spaces.Box(0.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation(), {}

    def observation(self):
        return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)

    def step(self, action):
        cost = COST + 0.2 * float(action[0]) + 0.05 * self.np_random.standard_normal()
        return self.observation(), float(action[0]), False, False, {"cost": cost}


COST = 0.3


def bridge():
    features = lambda state, action: np.array([0.7, 0.7 * float(action[0])])
    return Bridge(
        Room(),
        features=features,
        safe_action=[0.0],
        constraints=Constraint(threshold=0.5, noise=0.05),
        horizon=5,
    )


def unsafe():
    global COST
    COST = 0.6
    return bridge()


vast = Problem(
    horizon=1,
    constraints=Constraint(threshold=0.5, noise=0.1),
    dimension=1,
    actions=lambda state: StarActions(np.array([0.5]), np.array([[0.9]])),
)
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    name = f"env_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(BRIDGE)
    monkeypatch.chdir(tmp_path)
    return name


def test_nothing_examined_is_a_verdict_with_an_exit_code_of_its_own(environment):
    found = check(f"{environment}:vast", "--json", code=3)
    assert json.loads(found.stdout)["verdict"] == "nothing examined" and json.loads(found.stdout)["ok"] is False
    assert "NOTHING EXAMINED" in check(f"{environment}:vast", code=3).stdout


def test_a_bridge_is_played_before_anything_is_said_about_it(environment):
    found = json.loads(check(f"{environment}:bridge", "--plays", 200, "--json", code=0).stdout)
    verdicts = {finding["name"]: finding["verdict"] for finding in found["findings"]}
    assert verdicts["A2: the safe action keeps to τ when it is played"] == "holds"
    assert verdicts["A3: noise on costs within σ"] == "holds"
    assert "keeps to τ" in check(f"{environment}:unsafe", "--plays", 200, code=1).stdout


def test_a_name_that_is_no_study_is_told_how_to_name_a_problem():
    text = check("building", code=2).stderr
    assert "no study of that name" in text and "building:problem" in text


def test_a_table_with_other_columns_is_told_which_are_needed(module, tmp_path):
    (tmp_path / "log.csv").write_text("phi_0,phi_1,phi_2,phi_3,costs\n0.25,0.25,0.25,0.25,0.4\n")
    text = check(f"{module}:star", "--log", "log.csv", code=2).stderr
    assert "no 'cost'; did you mean 'costs'?" in text
    (tmp_path / "log.csv").write_text("temperature,cost\n21.5,0.4\n")
    text = check(f"{module}:star", "--log", "log.csv", code=2).stderr
    assert "features (phi_0 …, d = 4) or states and actions" in text and "temperature" in text


def test_a_log_without_any_cost_fails_and_says_so(module, tmp_path):
    np.savez(tmp_path / "log.npz", phi=np.full((30, 4), 0.25), cost=np.full(30, np.nan))
    text = check(f"{module}:star", "--log", "log.npz", code=1).stdout
    assert "all 30 outcomes lack a cost" in text and "no log was given" not in text
