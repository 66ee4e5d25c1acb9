"""The league in small: who enters where, how rivals are tuned, what the table says, and the anchors' own numbers."""

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from tether import InputError, Problem
from tether.agents.relatives import RelativeConfig, Row
from tether.cli import app
from tether.cli import study as cli_study
from tether.lab import registry, runner, specs
from tether.lab.books import load
from tether.lab.cells import cells_of, instance_hash
from tether.lab.engines import InProcess, make_engine
from tether.lab.plots import make_figure
from tether.lab.registry import AGENTS, AgentKind
from tether.lab.simulate import OwnConstraint, simulate_any
from tether.lab.studies import anchors, league, view_of
from tether.lab.studies.anchors import ANCHORS, EQUAL, OURS, Played, Task
from tether.lab.worlds.linear_mdp import LinearMDP, Streams
from tether.lab.worlds.planning import optimal_safe_policy, policy_costs
from tether.lab.worlds.synthetic import synthetic

SPEC = """
name = "league"
title = "A tiny league"
episodes = 60
seeds = 2

[[worlds]]
name = "circulant"
label = "circulant τ={threshold}"
grid = { threshold = [0.2, 0.5] }

[[worlds]]
name = "synthetic"
label = "a planner's"

[[agents]]
name = "slucb-qvi"
label = "Tether, all defaults"

[[agents]]
name = "slucb-qvi"
label = "Tether, by theorems alone"
options = { value_radius = "theorem" }

[[agents]]
name = "always-safe"
label = "Always a₀"

[[agents]]
name = "lsvi-ucb"
label = "LSVI-UCB, no constraint"
"""
STUDY = specs.parse(SPEC, "league.toml")
WORLDS = ["circulant τ=0.2", "circulant τ=0.5"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The study with two rivals, run; and where."""
    folder = tmp_path_factory.mktemp("league")
    study = league.entered(STUDY, folder, InProcess(), ["roful", "safeopt"])
    runner.run_study(study, folder, InProcess())
    return load(folder)


def test_a_rival_enters_where_it_fits_by_its_theorem_and_tuned(results):
    entered = [agent for agent in results.spec["agents"] if agent["name"] == "roful"]
    assert entered[0]["label"] == "ROFUL" and entered[0]["only"] == WORLDS, "ROFUL is a bandit rule"
    scales = league.tuned_scales(load(results.folder / "tuning"))
    tuned = {("roful", world): agent["options"]["scale"] for agent in entered[1:] for world in agent["only"]}
    assert tuned == {key: scale for key, scale in scales.items() if key[0] == "roful" and scale != 1.0} != {}
    origins = {cell.cost_radius_origin for cell in results.cells if cell.agent == "roful"}
    assert origins == {"theorem", "tuned"} and set(tuned.values()) < set(league.GRID)


def test_where_no_scale_is_better_the_theorems_row_is_the_tuned_one(results, monkeypatch, tmp_path):
    monkeypatch.setattr(league, "tuned_scales", lambda _: {("roful", WORLDS[0]): 1.0, ("roful", WORLDS[1]): 0.3})
    monkeypatch.setattr(league, "run_study", lambda *_: None)
    monkeypatch.setattr(league, "load", lambda _: None)
    entered = league.entered(STUDY, tmp_path, InProcess(), ["roful"])
    assert [agent.only for agent in entered.agents if agent.name == "roful"] == [WORLDS, WORLDS[1:]]
    lean = replace(results, cells=tuple(c for c in results.cells if c.agent == "slucb-qvi" or not c.options))
    rows = league.rows_of(lean)
    radii = {one["method"]: league._radius(one) for one in rows if one["world"] == WORLDS[0]}
    assert radii["roful"] == "theorem; no scale is better" and radii["slucb-qvi"].startswith("theorem for costs")
    assert {one["method"] for one in rows if one["tuned"]} == {"roful", "safeopt"}


def test_intervals_are_students():
    """Two seeds 0 and 2: mean 1, standard error 1, and t = 12.706 with one degree of freedom."""
    found = league.over_seeds(np.array([0.0, 2.0]))
    np.testing.assert_allclose(found, [1.0, 1.0 - 12.7062047, 1.0 + 12.7062047], rtol=1e-8)
    assert np.isnan(league.over_seeds(np.ones(1)).low)


def test_tuning_uses_seeds_that_are_not_shown(results):
    tuning = load(results.folder / "tuning")
    shown = {seed for cell in results.cells for seed in cell.seeds}
    assert not shown & {seed for cell in tuning.cells for seed in cell.seeds}
    assert {cell.options["scale"] for cell in tuning.cells} == set(league.GRID), "the grid is shared by all"


def test_the_tuned_scale_has_the_fewest_violations_and_then_the_least_regret(results):
    def cell(scale, regret, violations):
        columns = {"regret": np.full((2, 5), regret), "violations": np.full((2, 5), violations)}
        first = next(one for one in results.cells if one.agent == "roful")
        return replace(first, options={"scale": scale}, seeds=(0, 1), columns=columns)

    tuned = replace(
        results, cells=(cell(0.03, 1.0, 1.0), cell(0.1, 9.0, 0.0), cell(0.3, 8.0, 0.0), cell(3.0, 8.5, 0.0))
    )
    assert league.tuned_scales(tuned) == {("roful", WORLDS[0]): 0.3}
    equal = replace(results, cells=(cell(0.03, 8.0, 0.0), cell(1.0, 8.0, 0.0), cell(3.0, 8.0, 0.0)))
    assert league.tuned_scales(equal) == {("roful", WORLDS[0]): 1.0}, "no scale is better than the theorem's"


def test_a_promise_about_measured_costs_leaves_a_share_of_them_open(results):
    """η = .01 of 400 rounds: four over τ break nothing, so that the scale with less regret is the tuned one."""

    def cell(scale, regret, over):
        first = next(one for one in results.cells if one.agent == "roful")
        excess = np.where(np.arange(400) < over, 0.1, -0.1)[None]
        columns = {"regret": np.full((1, 400), regret), "own_excess": excess, "violations": np.zeros((1, 400))}
        columns |= {"plan_seconds": np.ones((1, 400)), "worst_cost": np.full((1, 400), -0.1)}
        at = {"world": "contexts", "world_label": "here", "world_options": {"exceedance": 0.01}, "own": "realised"}
        return replace(first, agent="hp-ucb", options={"scale": scale}, seeds=(0,), columns=columns, **at)

    tried = replace(results, cells=(cell(0.03, 1.0, 5), cell(0.1, 2.0, 4), cell(1.0, 9.0, 0)))
    assert league.tuned_scales(tried) == {("hp-ucb", "here"): 0.1}
    shown = [league._own(league.row(one, tried)) for one in tried.cells]
    assert shown == ["5 (4 allowed)", "4 (4 allowed)", "0 (4 allowed)"]


def test_a_world_that_limits_measured_costs_judges_all_by_them(tmp_path):
    """⟨γ*, X⟩ <= 1 = τ for every context, so that no expected cost is over τ, but about a sixth of those measured."""
    text = SPEC.replace("episodes = 60", "episodes = 200").split("[[worlds]]")[0]
    text += '[[worlds]]\nname = "contexts"\noptions = { threshold = 1.0 }\n[[agents]]\nname = "lsvi-ucb"\n'
    runner.run_study(specs.parse(text + '[[agents]]\nname = "always-safe"\n', "x"), tmp_path, InProcess())
    free, safe = league.rows_of(load(tmp_path))
    assert free["violations_total"] == 0 and safe["broken"] == 0 and free["limits"] == "realised"
    assert free["broken"] == free["own_broken"] - 4 > 20 and free["broken_runs"] == 2, "η = .01 of 2 × 200 rounds"


def test_nobody_is_called_by_a_theorem_that_speaks_of_half_of_it(results):
    """Ours has no theorem for its values; who promises nothing breaks no promise of its own."""
    rows = {one["agent"]: one for one in league.rows_of(results)}
    assert league._radius(rows["Tether, all defaults"]) == "theorem for costs, a rule for values"
    assert league._radius(rows["Tether, by theorems alone"]) == "theorem"
    assert league._radius(rows["ROFUL"]) == "theorem"
    assert league._own(rows["LSVI-UCB, no constraint"]) == "–"


def test_the_table_has_a_row_per_method_and_world_with_its_command(results):
    rows = view_of(results).table(results).rows
    assert len(rows) == len(results.cells)
    ours = next(one for one in rows if one["method"] == "slucb-qvi" and one["world"] == WORLDS[0])
    assert ours["violations_total"] == 0 and ours["regret_low"] <= ours["regret_mean"] <= ours["regret_high"]
    assert ours["command"] == f'tether reproduce league --agent slucb-qvi --world "{WORLDS[0]}"'
    assert {one["track"] for one in rows if one["method"] == "lsvi-ucb"} == {"none"}
    assert next(one for one in rows if one["method"] == "safeopt")["cost_radius_origin"] == "tuned", "β = 2 is nobody's"
    content = view_of(results).files(results)["league.parquet"]
    assert pq.read_table(io.BytesIO(content)).to_pylist() == rows


def test_rivals_are_compared_with_ours_seed_by_seed(results):
    """ROFUL by its theorem keeps the limit; given ours' values plus 1 it earns more, with a violation it broke it."""

    def compared(agent="roful", **columns):
        def changed(cell):
            theorem = cell.agent == agent and cell.cost_radius_origin == "theorem"
            return replace(cell, columns={**cell.columns, **columns}) if theorem else cell

        made = league.more(replace(results, cells=tuple(map(changed, results.cells))))["kept"]
        return next(" ".join(line[4:]) for line in made.lines if line[0] == "ROFUL")

    ours = next(cell for cell in results.cells if cell.agent == "slucb-qvi")
    others = next(cell for cell in results.cells if cell.agent == "slucb-qvi" and cell is not ours)
    above = np.maximum(ours["value"], others["value"]) + 1.0
    assert compared(value=above) == "0 0 2 0 0"
    assert compared(value=-above) == "0 0 0 0 2"
    assert compared(violations=np.ones((2, 60))) == "2 0 0 0 0"
    assert compared("slucb-qvi", violations=np.ones((2, 60)), value=above) == "0 2 0 0 0"


def test_worlds_that_break_an_assumption_are_neither_averaged_in_nor_filled(results, monkeypatch):
    """Where a_0 itself is over τ everybody is: that world has a panel and a table apart, with hollow dots only."""
    over = {name: np.ones((2, 60)) for name in results.cells[0].column_names}
    cells = tuple(replace(c, columns=over) if c.world_label == WORLDS[0] else c for c in results.cells)
    changed = replace(results, cells=cells)
    tables = league.more(changed)
    counts = {name: {line[0]: line[1:3] for line in tables[name].lines} for name in ("kept", "broken")}
    assert counts["kept"]["Tether (SLUCB-QVI)"] == ("2", "0 of 4")
    assert counts["broken"]["Tether (SLUCB-QVI)"] == ("1", "2 of 2")
    monkeypatch.setattr(league, "encoded", lambda figure, *how, **options: figure)
    kept, broken = league.overall(changed, 40).axes
    filled = [[line.get_markerfacecolor() != "white" for line in ax.lines if line.get_marker() in "ov^"]
              for ax in (kept, broken)]  # fmt: skip
    assert sum(filled[0]) == 3 and not any(filled[1]) and filled[1], "Tether, all by theorems, and ROFUL"
    assert (
        kept.get_title(loc="left") == league.GROUPS["kept"] and broken.get_title(loc="left") == league.GROUPS["broken"]
    )
    panel = [ax for ax in league.pareto(changed, 40).axes if ax.get_title(loc="left") == WORLDS[0]]
    assert any(league.NOT_SAFE in text.get_text() for text in panel[0].texts), "it says which assumption"
    assert {line.get_markerfacecolor() for line in panel[0].lines if line.get_marker() == "o"} == {"white"}
    assert "without 1 world in which an assumption is broken" in league.profile_chart(changed).caption


def test_twins_whose_costs_are_not_linear_break_an_assumption(tmp_path):
    text = 'name = "x"\nepisodes = 2\nseeds = 1\n[[agents]]\nname = "slucb-qvi"\n'
    text += "".join(f'[[worlds]]\nname = "{name}"\n' for name in ("dosing", "dosing-twin"))
    runner.run_study(specs.parse(text, "x"), tmp_path, InProcess())
    rows = league.rows_of(load(tmp_path))
    assert [(one["world"], one["breaks"]) for one in rows] == [("dosing", ""), ("dosing-twin", league.NOT_LINEAR)]
    assert [league.bounded(one) for one in rows] == [True, False]


def test_rules_from_memory_are_labelled_in_every_table():
    remembered = {name: league.row_for(name).memory for name in league.rivals()}
    labelled = {name for name, memory in remembered.items() if memory}
    assert labelled == {"safe-lts-paper", "ncs-lsvi", "doss", "lagrangian-lsvi"}
    assert "[from memory: its rule]" in league._remembered("safe-lts-paper") and not league._remembered("roful")
    shown = league.methods_table([*league.FRAMES, *league.rivals()])
    heads, lines = shown.heads, shown.lines
    assert {line[1].strip("`") for line in lines if line[heads.index("from memory")]} == labelled
    assert league.dagger(league.row_for("ncs-lsvi")) == "NCS-LSVI †"
    with pytest.raises(InputError, match="must say what is from memory"):
        replace(league.row_for("roful"), source="memory")


def test_numbers_of_dots_overlap_neither_each_other_nor_a_dot():
    """Where they are as close to each other as in the league itself."""
    dots = [(0.11, 0.69), (0.114, 0.6), (0.156, 0.44), (0.156, 0.48), (0.2, 0.61), (0.2, 0.44), (0.78, 0.47)]
    dots += [(0.84, 0.5), (0.78, -0.34), (0.81, -0.36), *((0.0, 0.1 * k) for k in range(8))]
    figure = Figure(figsize=(7.4, 6.1), layout="constrained")
    ax = figure.subplots()
    ax.set(xlim=(-0.03, 1.06), ylim=(-3.9, 2.9))
    drawn = [ax.plot([x], [y], "o", ms=7)[0] for x, y in dots]
    figure.draw_without_rendering()
    league._number_dots(ax, [(x, y, number) for number, (x, y) in enumerate(dots, start=10)])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == len(dots)
    assert not [(k, j) for k, box in enumerate(boxes) for j in range(k) if box.overlaps(boxes[j])]
    assert not [k for k, box in enumerate(boxes) if any(box.overlaps(dot.get_window_extent()) for dot in drawn)]


def test_regrets_far_beyond_do_not_squeeze_the_others_in_the_picture(results, monkeypatch):
    """Always a_0 has 1 and keeps its place; one that earns by breaking limits stands at the edge, with its regret."""
    rows = league.rows_of(results)
    for one in rows:
        one["regret_mean"] *= -20.0 if one["method"] == "lsvi-ucb" else 1.0
    monkeypatch.setattr(league, "rows_of", lambda results: rows)
    monkeypatch.setattr(league, "encoded", lambda figure, *how, **options: figure)
    figure = league.overall(results, 40)
    (ax,) = figure.axes
    low, high = ax.get_ylim()
    assert league.COMPARED[0] - 0.2 <= low < 1.0 < high <= league.COMPARED[1] + 0.2
    (edge,) = [line for line in ax.lines if line.get_marker() in "v^" and line.get_marker() != "None"]
    assert low < edge.get_ydata()[0] < high
    (named,) = [text.get_text() for text in figure.legends[0].texts if "no constraint" in text.get_text()]
    floor = league._relative(rows)
    true = np.mean([one["regret_mean"] / floor[one["world"]] for one in rows if one["method"] == "lsvi-ucb"])
    assert named.endswith(f": {league.number(true)}")


def test_the_page_and_the_pictures_can_be_made(results):
    from tether.lab import report

    page = report.page([results])
    assert "ROFUL" in page and "The command of every cell" in page and "Performance profiles" in page
    assert all(picture.draw(40).startswith(b"\x89PNG") for picture in league.pictures(results))
    profiles = league.profile_chart(results)
    for panel in profiles.panels:
        assert all(
            ((curve.y >= 0.0) & (curve.y <= 1.0)).all() and (np.diff(curve.y) >= 0).all() for curve in panel.series
        )


def test_the_names_of_planners_fit_into_the_picture_of_profiles(monkeypatch):
    """In the order of the league, which puts the longest into different columns: they were cut off at the edges."""
    names = ["slucb-qvi", "slucb-qvi, by theorems", "doss", "lagrangian-lsvi", "lagrangian-bisection", "ncs-lsvi"]
    names += ["opse", "ppo-lagrangian", "rslucb-qvi", "dope", "optpess-lp"]
    about = {
        "world": "one",
        "broken": 0,
        "regret_mean": 1.0,
        "scale": 1.0,
        "tuned": True,
        "breaks": "",
        "memory": "all",
    }
    monkeypatch.setattr(league, "rows_of", lambda results: [{**about, "method": name} for name in names])
    figure = make_figure(league.profile_chart(SimpleNamespace(study="league-mdp")))
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0.0 < box.x0 < box.x1 < figure.bbox.x1


def test_a_promise_that_was_broken_is_said(results):
    broken = next(cell for cell in results.cells if cell.agent == "roful" and cell.cost_radius_origin == "theorem")
    columns = {name: np.ones((2, 60)) for name in broken.column_names}
    cells = tuple(replace(cell, columns=columns) if cell is broken else cell for cell in results.cells)
    changed = replace(results, cells=cells)
    verdicts = {claim.id: claim for claim in league.claims(changed)}
    assert (
        not verdicts["roful-keeps-its-theorem"].holds and "τ=0.2: 120" in verdicts["roful-keeps-its-theorem"].evidence
    )
    assert verdicts["slucb-qvi-keeps-its-theorem"].holds


def test_a_theorem_is_not_blamed_where_its_assumptions_fail(results):
    """Where a_0 itself is over τ, every method has violations: the claim leaves the world out and says so."""
    over = {name: np.ones((2, 60)) for name in results.cells[0].column_names}
    cells = tuple(replace(c, columns=over) if c.world_label == WORLDS[0] else c for c in results.cells)
    verdict = next(c for c in league.claims(replace(results, cells=cells)) if c.id == "slucb-qvi-keeps-its-theorem")
    assert verdict.holds and f"left out: {WORLDS[0]}" in verdict.evidence


def test_one_cell_can_be_asked_for_by_agent_and_world():
    one = STUDY.narrowed(["always-safe"], [WORLDS[1]])
    (cell,) = cells_of(one)
    (same,) = [other for other in cells_of(STUDY) if other.agent == "always-safe" and other.world_label == WORLDS[1]]
    assert cell.key == same.key, "so that its run is the same run"
    hidden = STUDY.model_copy(update={"worlds": [STUDY.worlds[0].model_copy(update={"in_quick": False})]})
    assert hidden.narrowed([], [WORLDS[1]]).resized(quick=True).world_labels == [WORLDS[1]], "asked for is played"
    with pytest.raises(InputError, match="no world 'circulant'"):
        STUDY.narrowed([], ["circulant"])
    with pytest.raises(InputError, match="no agent 'slucb'"):
        STUDY.narrowed(["slucb"], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "agent", "world"),
    [
        ("league", "roful", "circulant d=5, τ=0.2"),
        ("league", "always-safe", "Hutchinson, large b"),
        ("league-mdp", "rslucb-qvi", "streaming, a budget per episode"),  # not in all worlds of the study
        ("league-axes", "lsvi-ucb-told", "noise σ = 0.1"),
    ],
)
def test_the_command_of_a_cell_makes_it(study, agent, world, tmp_path, monkeypatch):
    """As printed with the table, to its report: beside nobody, so that there may be no unit to draw regret in."""
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "league", "--quick", "--agent", agent, "--world", world]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    rows = league.table(load(Path(f"out/{study}-quick"))).rows
    assert {(one["method"], one["world"]) for one in rows} == {(agent, world)}
    assert shlex.split(rows[0]["command"]) == ["tether", *command]
    assert Path(f"out/{study}-quick/report.html").is_file()


def test_a_study_without_those_who_are_asked_for_is_passed_over(tmp_path, monkeypatch):
    """A bandit rule plays in one study of the league only; a world where it cannot play, and a wrong name, are said."""
    ran = []
    monkeypatch.setattr(cli_study, "conduct", lambda study, *_: ran.append([each.name for each in study.agents]))
    monkeypatch.setattr(cli_study, "show", lambda *_, **__: None)
    monkeypatch.setattr(league, "run_study", lambda *_: None)
    monkeypatch.setattr(league, "tuned_scales", lambda _: {})
    monkeypatch.setattr(league, "load", lambda _: None)
    command = ["reproduce", "league", "--quick", "--out", str(tmp_path), "--agent"]
    done = CliRunner().invoke(app, [*command, "roful", "--agent", "rslucb-qvi"])
    assert done.exit_code == 0 and ran == [["roful"], ["rslucb-qvi"]], done.output
    done = CliRunner().invoke(app, [*command, "roful", "--world", "section 5.1"])
    assert done.exit_code == 2 and "roful cannot play in this world: is a bandit rule" in done.output
    done = CliRunner().invoke(app, [*command, "rofull"])
    assert done.exit_code == 2 and "the league has no agent 'rofull'; did you mean 'roful'?" in done.output


def test_worlds_are_told_apart_by_a_hash_of_their_instance():
    first, again, other = (synthetic(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert instance_hash(first) == instance_hash(again) != instance_hash(other)
    assert instance_hash(first) != instance_hash(replace(first, true_theta=first.true_theta + 1e-12))


class Untold:
    """A method of somebody else: the least there can be."""

    kind, config_type = "somebodys", RelativeConfig
    row = Row(
        title="Somebody's", citation="2027", track="episode", constraint="E Σ c ≤ Hτ", told="nothing", source="text",
        anchor="none",
    )  # fmt: skip

    def __init__(self, problem, config=None, *, seed=0):
        from tether.agents.fixed import DefaultAction

        self._default = DefaultAction(problem)

    def __getattr__(self, name):
        return getattr(self._default, name)


def test_who_cannot_play_is_said_with_the_reason(results):
    """A bandit rule among planners, a tabular one without one-hot features, a mixture where costs are not linear."""
    instances = league.instances_of(STUDY)
    assert not any(league.refusals(instances, "slucb-qvi").values())
    assert "bandit rule" in league.refusals(instances, "roful")["a planner's"]
    assert set(league.refusals(instances, "dope").values()) == {
        "is tabular: every feature must be one-hot, one coordinate per (s, a)."
    }, "without the method's own name, so that reasons can be grouped"
    twin = specs.parse(
        'name = "x"\nepisodes = 5\nseeds = 1\n[[worlds]]\nname = "synthetic-twin"\n[[agents]]\nname = "opse"', "x"
    )
    assert "not linear" in league.refusals(league.instances_of(twin), "opse")["synthetic-twin"]
    assert league.refusals(league.instances_of(twin), "doss") == {"synthetic-twin": ""}
    absent = {
        "roful": {"a planner's": "is a bandit rule."},
        "safeopt": {"a planner's": "is a bandit rule.", WORLDS[0]: ""},
    }
    (results.folder / league.ABSENT).write_text(json.dumps(absent))
    assert league.absentees(results) == {"a planner's": {"is a bandit rule.": ["ROFUL", "SafeOpt, linear kernel"]}}
    assert league.more(results)["absent"].lines == [
        ("ROFUL · SafeOpt, linear kernel", "a planner's", "is a bandit rule.")
    ]
    assert "Who cannot play in a planner&#x27;s" in "".join(league.table(results).html)


AXIS = """
name = "league-axes"
episodes = 8
seeds = 1

[[worlds]]
name = "synthetic"
label = "noise {noise}"
options = { rays = 4, states = 2 }
grid = { noise = [0.01, 0.1] }

[[agents]]
name = "slucb-qvi"
label = "Tether, all defaults"

[[agents]]
name = "always-safe"
label = "Always a₀"
"""


def test_an_axis_is_played_by_theorems_alone_and_drawn(tmp_path):
    study = league.entered(specs.parse(AXIS, "x"), tmp_path, InProcess(), ["doss"])
    assert [agent.options for agent in study.agents] == [{}, {}, {}] and not (tmp_path / "tuning").exists()
    runner.run_study(study, tmp_path, InProcess())
    results = load(tmp_path)
    assert league.axes_of(results) == {"noise": [(0.01, "noise 0.01"), (0.1, "noise 0.1")]}
    assert league.charts(results) == []
    (picture,) = league.pictures(results)
    assert picture.draw(40).startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_league_resumes_and_is_the_same_on_ray(tmp_path):
    """Tuning, scales and runs: bit for bit; and what is finished is not run again."""
    pytest.importorskip("ray", reason="the extra tether-rl[ray] is not installed")
    study, digests, scales = STUDY.resized(quick=True).narrowed((), WORLDS[:1]), [], []
    for engine in (InProcess(), make_engine("ray", 1)):
        folder = tmp_path / engine.name
        entered = league.entered(study, folder, engine, ["roful", "doss"])
        runner.run_study(entered, folder, engine)
        digests.append(load(folder).digest())
        scales.append(league.tuned_scales(load(folder / "tuning")))
    assert digests[0] == digests[1] and scales[0] == scales[1]
    next((folder / "runs").iterdir()).unlink()
    again = runner.run_study(league.entered(study, folder, InProcess(), ["roful", "doss"]), folder, InProcess())
    assert again.ran == 1 and not again.failures and load(folder).digest() == digests[0]


def test_worlds_of_a_study_may_have_other_numbers_of_episodes(tmp_path):
    text = (
        AXIS.replace("options = { rays", "episodes = 5\noptions = { rays") + '\n[[worlds]]\nname = "not-star-convex"\n'
    )
    study = specs.parse(text, "x")
    assert [world.episodes for world in study.resized(quick=True).worlds] == [5, None]
    runner.run_study(study, tmp_path, InProcess())
    found = {cell.label: (cell.episodes, cell["regret"].shape[1]) for cell in load(tmp_path).cells}
    assert set(found.values()) == {(5, 5), (8, 8)}


def test_a_budget_per_episode_is_judged_by_its_own_optimum(tmp_path):
    """Streaming: the best policy of the budget earns what the planner says, and an episode may be over the budget."""
    from tether.lab.simulate import best_values
    from tether.lab.worlds.cmdp import random_cmdp, streaming
    from tether.lab.worlds.planning import optimal_episode_policy

    world = streaming()
    best = best_values(world, mixes=True)
    np.testing.assert_array_equal(best, optimal_episode_policy(world).values[0])
    assert best[0] > optimal_safe_policy(world).values[0, 0], "a budget for the episode allows more than one per step"
    text = (
        SPEC.replace("episodes = 60", "episodes = 6").split("[[worlds]]")[0]
        + '[[worlds]]\nname = "streaming"\n[[agents]]\nname = "lsvi-ucb"\n'
    )
    (cell,) = cells_of(specs.parse(text, "x"))
    assert cell.own == "episode" and cell.limits == "episode", "all are judged by what the world limits"
    hard = random_cmdp(np.random.default_rng(0))
    agent = AGENTS.get("opse").build(hard, {"episodes": 5}, np.random.default_rng(0))
    assert agent.margin > 0.0, "its safe policy is the least costly one, as in the paper, and not a_0 everywhere"


def test_a_method_of_somebody_else_is_in_the_league_by_its_row(monkeypatch):
    kind = AgentKind.of_method(Untold)
    monkeypatch.setitem(AGENTS.shipped, "somebodys", lambda: kind)
    assert "somebodys" in league.rivals() and registry.row_of("somebodys") is Untold.row
    assert league.refusals(league.instances_of(STUDY), "somebodys") == dict.fromkeys([*WORLDS, "a planner's"], "")
    study = STUDY.joined_by(["somebodys"]).narrowed(["somebodys"], ["a planner's"])
    (cell,) = cells_of(study)
    assert cell.own == "episode" and "own_excess" in cell.column_names


def test_an_episodes_own_constraint_is_its_exact_expected_cost():
    world = synthetic(np.random.default_rng(3))
    witness = OwnConstraint(world, "episode", 20)
    simulate_any(world, AGENTS.get("always-safe").build(world, {}), 20, Streams.from_seed(0), witness=witness)
    features = np.tile(world.phi_0, (world.problem.horizon, 1, 1))
    expected = policy_costs(world, features)[0, :, 0] - world.problem.horizon * world.problem.threshold[0]
    excess = witness.columns()["own_excess"]
    assert set(np.round(excess, 12)) <= set(np.round(expected, 12)) and (excess < 0).all()


def test_expected_episode_costs_are_what_playing_costs_on_average():
    world = synthetic(np.random.default_rng(4), states=3)
    features, total, runs = np.tile(world.phi_0, (world.problem.horizon, 1, 1)), 0.0, 4000
    streams = Streams.from_seed(1)
    for _ in range(runs):
        state = 1
        for step in range(world.problem.horizon):
            numbers = (np.zeros(1), streams.transitions.random())
            _, cost, state = world.play(step, state, 0, features[step, state], numbers)
            total += cost
    assert total / runs == pytest.approx(policy_costs(world, features)[0, 1, 0], rel=0.02)


# Anchors

SHORT = 400


def test_their_draws_are_theirs():
    """The first trial of the published script (default_rng(0)): θ, a and b are its first five uniform numbers."""
    (first, _) = ANCHORS["hutchinson-large-b"].draw(10, 2)
    drawn = np.random.default_rng(0)
    np.testing.assert_array_equal(first.world.true_theta[0], drawn.uniform(-1, 1, (2, 1))[:, 0])
    np.testing.assert_array_equal(first.world.true_gamma[0, 0], drawn.uniform(-1, 1, (2, 1))[:, 0])
    assert first.world.problem.threshold[0] == drawn.uniform(0.25, 1)
    assert isinstance(first.world, LinearMDP) and isinstance(first.world.problem, Problem)


@pytest.mark.parametrize("player", ["ROFUL", OURS])
def test_an_anchor_is_played_as_the_agent_would_play_it(player):
    """Side by side, or in compiled blocks with recorded noise, as through act and observe, round by round."""
    anchor = ANCHORS["hutchinson-small-b"]
    played = anchors.play(anchor, player, SHORT, 3)
    for number, (world, noise) in enumerate(anchor.draw(SHORT, 3)):
        agent, regret = anchor.players[player](world, SHORT), 0.0
        best = optimal_safe_policy(world).values[0, 0]
        for t in range(SHORT):
            agent.plan()
            decision = agent.act(0, 0)
            mean, cost = world.true_theta[0] @ decision.feature, world.true_gamma[0, 0] @ decision.feature
            regret += best - mean
            agent.observe(decision.outcome(reward=mean + 0.1 * noise[t, 0], cost=cost + 0.1 * noise[t, 1]))
        assert played.regret[number, -1] == pytest.approx(regret, rel=1e-6)
    assert played.violations.sum() == 0 and played.worst.max() < 0


def test_anchors_are_kept_and_not_played_again(tmp_path, monkeypatch):
    small = {"circulant": replace(ANCHORS["circulant"], trials=2)}
    monkeypatch.setattr(anchors, "ANCHORS", small)
    monkeypatch.setattr(league, "ANCHORS", small)
    monkeypatch.setattr(anchors, "QUICK_ROUNDS", 50)
    anchors.run(tmp_path, True, InProcess())
    found = list(anchors.kept(tmp_path))
    assert [task.player for task, _ in found] == list(small["circulant"].players)
    assert all(played.regret.shape == (2, 50) for _, played in found)
    monkeypatch.setattr(anchors, "execute", lambda *_: pytest.fail("it was played again"))
    anchors.run(tmp_path, True, InProcess())
    (chart,) = league.anchor_charts(tmp_path)
    assert [curve.name for curve in chart.panels[0].series] == list(small["circulant"].players)
    assert league.anchor_claims(tmp_path) == [], "a quick look reproduces nothing"
    assert league.anchors_table(tmp_path).lines[0][1:3] == ("HPLC-LUCB, as coded", "30,683")


def judged(monkeypatch, **values):
    """The claims, if the players of the large-b anchor had ended at these numbers."""
    name, anchor = "hutchinson-large-b", ANCHORS["hutchinson-large-b"]

    def kept(folder):
        for player in anchor.players:
            value = values.get(player.split()[0].rstrip(",").lower(), 0.2)
            regret = np.full((30, 1), value * np.sqrt(anchor.rounds))
            over = np.full(30, float(values.get("over", 0)) if player == OURS else 0.0)
            yield Task(name, player, anchor.rounds), Played(np.array([anchor.rounds]), regret, over, over - 0.1)

    monkeypatch.setattr(anchors, "kept", kept)
    return {claim.id: claim for claim in league.anchor_claims(None)}


def test_badges_compare_with_what_was_published(monkeypatch):
    good = judged(monkeypatch, roful=0.6488, **{"lc-lucb": 1.931})
    assert good["anchor-hutchinson-large-b-roful"].holds and "0.6488 here, 0.65 published" in str(good)
    assert good["ours-hutchinson-large-b"].holds and "3.24 times less" in str(good)
    assert all(f"{player.removeprefix('Tether, ')}: 3.24" in str(good) for player in EQUAL)
    assert not judged(monkeypatch, roful=0.70)["anchor-hutchinson-large-b-roful"].holds
    assert not judged(monkeypatch, roful=0.55)["ours-hutchinson-large-b"].holds, "less than three times"
    assert not judged(monkeypatch, roful=0.65, over=1)["ours-hutchinson-large-b"].holds, "a violation"


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ANCHORS))
def test_an_anchor_reproduces_its_figure(name):
    anchor = ANCHORS[name]
    for player, published in anchor.published.items():
        played = anchors.play(anchor, player, anchor.rounds, anchor.trials)
        value = float(anchor.statistic(played.regret[:, -1], anchor.rounds).mean())
        assert value == pytest.approx(published, rel=anchor.within), player
        assert played.violations.sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hutchinson-large-b", "hutchinson-small-b"])
def test_ours_is_three_times_below_roful_on_their_draws_without_a_violation(name):
    anchor = ANCHORS[name]
    ours, rival = (anchors.play(anchor, player, anchor.rounds, anchor.trials) for player in (OURS, "ROFUL"))
    assert rival.regret[:, -1].mean() >= 3.0 * ours.regret[:, -1].mean()
    assert (ours.violations == 0).all()


def test_the_published_league_is_a_study_that_can_be_checked():
    for name in ("league", "league-mdp", "league-axes"):
        study = specs.paper_study(name)
        assert study.quick is not None and study.agents[0].name == "slucb-qvi"


def test_nothing_is_played_after_a_trajectory_has_ended():
    """Frozen Lake, H = 6, from a cell beside danger: steps after a fall are no steps, and cost nothing."""
    from tether.lab.worlds.lake import DANGER, frozen_lake

    lake = frozen_lake(np.random.default_rng(0), horizon=6)
    start = np.eye(lake.state_count)[DANGER[0]]
    ended = replace(lake, initial=start)
    agent = AGENTS.get("lsvi-ucb").build(ended, {})
    books = simulate_any(ended, agent, 2, Streams.from_seed(0))
    assert (books.violations == 0).all() and (books.reward == 0.0).all(), "a fall is worth nothing"
    cell = runner.Unit(cells_of(specs.parse(LAKE, "x"))[0], 1, 0, {})
    columns, _ = runner.play(cell, lambda done: None)
    assert np.isnan(columns["optimism"]).all(), "played step by step, not in compiled blocks"


LAKE = """
name = "x"
episodes = 1
seeds = 1

[[worlds]]
name = "frozen-lake"
options = { horizon = 2 }

[[agents]]
name = "lsvi-ucb"
"""
