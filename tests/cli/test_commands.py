"""The command line: what it prints, where, and how it ends."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tether.cli import app

SPEC = """
name = "tiny"
episodes = 40
seeds = 2

[[worlds]]
name = "synthetic"
options = { states = 3, rays = 4, dimension = 3, horizon = 2 }

[[agents]]
name = "slucb-qvi"
label = "paper"
options = { explorer = "paper", cost_radius = 1.0, value_radius = 1.0 }

[[agents]]
name = "lsvi-ucb-told"
label = "told"
options = { value_radius = 1.0 }
"""
ROW = {
    "agent", "explorer", "seeds", "episodes", "reward_mean", "regret_mean", "regret_ci", "violations_total",
    "cost_radius_origin", "value_radius_origin",
}  # fmt: skip


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SPEC)
    return path


def tether(*arguments, code=0):
    """Run a command in this process; standard output and standard error apart."""
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


def test_help_needs_none_of_the_heavy_imports():
    heavy = {"numpy", "scipy", "pyarrow", "matplotlib", "plotly", "pydantic", "gymnasium", "ray"}
    script = "import sys, tether.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)


def test_every_command_is_listed_and_explains_itself():
    listed = tether("--help").stdout
    for command in ("reproduce", "run", "list", "plot", "report", "check", "bench"):
        assert command in listed
        assert "--json" in tether(command, "--help").stdout


def test_run_json_prints_one_object_and_nothing_else(spec, tmp_path):
    arguments = ("run", spec, "--out", tmp_path / "out", "--workers", 0, "--no-figures", "--json")
    report = json.loads(tether(*arguments).stdout)
    assert report["study"] == "tiny" and report["seconds"] > 0 and report["failures"] == []
    assert [row["agent"] for row in report["table"]] == ["paper (β=1 tuned)", "told (β=1 tuned)"]
    for row in report["table"]:
        assert set(row) >= ROW and row["seeds"] == 2 and row["episodes"] == 40
        assert row["regret_ci"][0] <= row["regret_mean"] <= row["regret_ci"][1]
    assert [row["cost_radius_origin"] for row in report["table"]] == ["tuned", "exact"]
    assert {claim["id"] for claim in report["claims"]} == {"told-beats-slucb", "slucb-zero-violations"}
    assert all(set(claim) == {"id", "text", "holds", "evidence"} for claim in report["claims"])
    again = json.loads(tether(*arguments).stdout)
    assert (again["ran"], again["kept"]) == (0, 4) and again["table"] == report["table"]


def test_a_package_that_figures_need_is_missed_before_the_first_run(spec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = tether("run", spec, "--out", tmp_path / "out", code=2)
    assert 'needs matplotlib: pip install "tether-rl[experiments]"' in found.stderr
    assert not (tmp_path / "out").exists()


def test_run_in_a_pipe_prints_plain_lines(spec, tmp_path):
    found = tether("run", spec, "--out", tmp_path / "out", "--workers", 0, "--no-figures")
    assert "told (β=1 tuned)" in found.stdout and "told-γ*" not in found.stdout
    assert "\x1b" not in found.output and "╭" not in found.output
    assert "tiny: 4 runs of 40 episodes" in found.stderr and "4 runs of 40" not in found.stdout


def test_seed_moves_the_seeds(spec, tmp_path):
    first, second = (
        json.loads(
            tether(
                "run", spec, "--out", tmp_path / str(s), "--workers", 0, "--no-figures", "--json", "--seed", s
            ).stdout
        )
        for s in (0, 5)
    )
    assert first["table"][0]["reward_mean"] != second["table"][0]["reward_mean"]


def test_run_draws_the_figures_and_the_report_and_plot_and_report_redo_them(spec, tmp_path):
    out = tmp_path / "out"
    report = json.loads(tether("run", spec, "--out", out, "--workers", 0, "--json").stdout)
    assert any(path.endswith(".png") for path in report["artifacts"])
    assert any(path.endswith("report.html") for path in report["artifacts"])
    drawn = json.loads(tether("plot", "--out", out, "--json").stdout)["artifacts"]
    assert {path for path in report["artifacts"] if "/figures/" in path} == set(drawn)
    (page,) = json.loads(tether("report", "--out", out, "--json").stdout)["artifacts"]
    assert page == str(out / "report.html")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reproduce", "figur1"), "did you mean 'figure1'"),
        (("reproduce", "figure3"), "did you mean"),
        (("reprodce",), "Did you mean 'reproduce'"),
        (("run", "missing.toml"), "cannot read the spec missing.toml"),
        (("run", "figure"), "did you mean 'figure2'"),
        (("reproduce", "figure1", "--engine", "rai"), "did you mean 'ray'"),
        (("reproduce", "figure1", "--workers", "-1"), "--workers"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_was_meant(arguments, words):
    assert words in tether(*arguments, code=2).stderr


def test_packages_of_the_service_that_are_missing_exit_with_2(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert 'pip install "tether-rl[service]"' in tether("serve", "service.toml", code=2).stderr


def test_a_misspelt_key_in_a_spec_exits_with_2_and_names_the_right_one(spec):
    spec.write_text(SPEC.replace("episodes", "episods"))
    assert "unknown key 'episods'; did you mean 'episodes'" in tether("run", spec, code=2).stderr
    assert "did you mean 'episodes'" in tether("check", spec, code=2).stderr


def test_a_folder_that_cannot_be_written_exits_with_1(spec, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in tether("run", spec, "--out", tmp_path / "file", "--workers", 0, code=1).stderr


def test_debug_shows_what_is_otherwise_one_line(spec, tmp_path):
    (tmp_path / "file").write_text("")
    found = CliRunner().invoke(app, ["run", str(spec), "--out", str(tmp_path / "file"), "--workers", "0", "--debug"])
    assert found.exit_code == 1 and type(found.exception).__name__ == "TetherError"


def test_plot_without_results_says_what_to_do(tmp_path):
    assert "tether reproduce figure1" in tether("plot", "--out", tmp_path, code=1).stderr


def test_list_names_worlds_agents_and_figures_with_their_options():
    found = json.loads(tether("list", "--json").stdout)
    agents = {entry["name"]: entry for entry in found["agents"]}
    assert {"slucb-qvi", "lsvi-ucb", "lsvi-ucb-told"} <= set(agents)
    (explorer,) = [option for option in agents["slucb-qvi"]["options"] if option["name"] == "explorer"]
    assert "'directional'" in explorer["type"]
    assert all(entry["summary"] for kind in found.values() for entry in kind)
    assert [entry["name"] for entry in found["figures"]] == ["figure1", "figure2"]
    assert "synthetic" in tether("list").stdout


def test_check_reports_the_assumptions_of_every_world(spec):
    rows = json.loads(tether("check", spec, "--json").stdout)["checks"]
    assert all(row["holds"] for row in rows) and len(rows) == 5
    assert "smallest gap" in tether("check", spec).stdout


def test_a_paper_study_can_be_named_instead_of_a_file():
    assert json.loads(tether("check", "figure1", "--json").stdout)["study"] == "figure1"


def test_check_exits_with_1_where_an_assumption_fails(spec):
    world = 'name = "synthetic"\noptions = { states = 3, rays = 4, dimension = 3, horizon = 2 }'
    spec.write_text(SPEC.replace(world, 'name = "not-star-convex"'))
    found = json.loads(tether("check", spec, "--json", code=1).stdout)
    assert all(row["holds"] for row in found["checks"])  # finite sets alone are no failure
    failed = [row["name"] for row in found["findings"] if row["verdict"] == "fails"]
    assert "A5: what can be certified grows from the safe action" in failed


@pytest.mark.slow
def test_reproduce_all_quick_runs_both_figures_and_judges_the_paper(tmp_path):
    command = [sys.executable, "-m", "tether", "reproduce", "all", "--quick", "--json", "--out", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    whole = json.loads(found.stdout)
    assert whole["study"] == "all" and [study["study"] for study in whole["studies"]] == ["figure1", "figure2"]
    verdicts = {claim["id"]: claim["holds"] for claim in whole["claims"]}
    assert verdicts["told-beats-slucb"] and verdicts["certified-zero-violations"]
    assert verdicts["directional-zero-violations"] and len(whole["studies"][0]["table"]) == 9
    lake = whole["studies"][1]["table"]
    assert all(row["max_expected_cost"] <= 0.1 + 1e-7 for row in lake)
    assert {"success_last3", "return_last3"} <= lake[0].keys()
