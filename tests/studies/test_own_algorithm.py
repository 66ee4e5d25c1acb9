"""The example of one's own algorithm is found by name through its entry point, as an installed package is."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tether.agents.testing import check_agent

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The module and a dist-info with the entry points of its own pyproject.toml: what an installer would write."""
    place = tmp_path_factory.mktemp("site")
    told = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    project = told["project"]
    for name in told["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        shutil.copy(EXAMPLE / name, place)
    info = place / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return place


def tether(*words, site=None, cwd):
    path = os.pathsep.join(filter(None, [str(site) if site else "", os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "tether", *words],
        capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_the_module_has_under_fifty_lines():
    assert len((EXAMPLE / "safe_lts.py").read_text().splitlines()) < 50


@pytest.mark.slow
def test_it_keeps_the_contract_of_agents(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLE)
    check_agent(import_module("safe_lts").SafeLts, tmp_path)


def test_it_is_listed_with_its_options_once_installed(installed, tmp_path):
    listed = json.loads(tether("list", "--json", site=installed, cwd=tmp_path).stdout)
    (found,) = [agent for agent in listed["agents"] if agent["name"] == "safe-lts"]
    assert [option["name"] for option in found["options"]] == ["inflation"]
    without = json.loads(tether("list", "--json", cwd=tmp_path).stdout)
    assert "safe-lts" not in [agent["name"] for agent in without["agents"]]


def test_it_runs_in_a_study_beside_the_others_and_breaks_nothing(installed, tmp_path):
    words = ("run", str(EXAMPLE / "study.toml"), "--quick", "--json", "--workers", "0", "--no-figures")
    done = tether(*words, site=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    rows = {row["agent"].partition(" (")[0]: row for row in told["table"]}
    assert set(rows) == {"Safe-LTS, inflation 0.1", "Safe-LTS, inflation 0.3", "SLUCB-QVI", "Always the default"}
    for name in ("Safe-LTS, inflation 0.1", "Safe-LTS, inflation 0.3"):
        assert rows[name]["violations_total"] == 0
        assert rows[name]["cost_radius_origin"] == "theorem"
        assert rows[name]["seeds"] == 2
        assert rows[name]["regret_mean"] < rows["Always the default"]["regret_mean"], "it learns"


def test_without_the_package_the_study_says_what_is_missing(tmp_path):
    done = tether("run", str(EXAMPLE / "study.toml"), "--quick", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown agent 'safe-lts'" in done.stderr


@pytest.mark.slow
def test_it_joins_a_shipped_study_by_name(installed, tmp_path):
    words = ("reproduce", "worlds", "--quick", "--also", "safe-lts", "--json", "--no-figures")
    told = json.loads(tether(*words, site=installed, cwd=tmp_path).stdout)
    mine = [row for row in told["table"] if row["agent"].startswith("safe-lts")]
    assert len(mine) == 3
    assert sum(row["violations_total"] for row in mine) == 0
