"""Twins: what the books count, when watches trip, and what the table and its verdicts make of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tether import Problem, SlucbQvi, TetherError
from tether.check.monitor import Monitor
from tether.cli import app
from tether.cli import study as cli_study
from tether.lab import plots as figures
from tether.lab import specs
from tether.lab.books import Cell, Results, load, part_metadata
from tether.lab.engines import InProcess
from tether.lab.runner import StudyRun, run_study
from tether.lab.simulate import Witness, alarm_columns, simulate_stepwise
from tether.lab.studies import twins as twin_study
from tether.lab.studies.twins import TWINS, WATCHES
from tether.lab.worlds.heating import heating, heating_twin
from tether.lab.worlds.linear_mdp import Streams

STEP, POOLED = WATCHES.values()


def run(violations, step=0, pooled=0):
    """The columns of a run whose watches tripped after so many steps (0: never), of four an episode."""
    counts = np.array(violations, dtype=float)
    alarms = alarm_columns(counts, {"per-step": step, "pooled": pooled}, horizon=4)
    made = {"violations": counts, "cost_ratio": 0.9 + 0.2 * (counts > 0), "value": np.full(len(counts), 3.0), **alarms}
    return made | {"safe_value": np.full(len(counts), 1.0), "misfit_ratio": np.full(len(counts), 0.25)}


def cell_of(world, runs, **options):
    return Cell(
        key=world, agent="slucb-qvi", agent_label="SLUCB-QVI", world=world, world_label=world, explorer="adaptive",
        options={}, world_options=options, cost_radius_origin="theorem", value_radius_origin="tuned",
        watches=tuple(WATCHES), seeds=tuple(range(len(runs))),
        columns={name: np.array([columns[name] for columns in runs]) for name in runs[0]},
    )  # fmt: skip


def results_of(twin, true):
    """The same runs for every world, as twin and as true world."""
    cells = [cell_of(name, twin) for name in TWINS] + [cell_of(world, true) for world, *_ in TWINS.values()]
    episodes = len(twin[0]["violations"])
    return Results("twins", "Twins", episodes, {}, tuple(cells), (), "0", "here", "none", Path("twins"))


def table_of(twin, true):
    return twin_study.table(results_of(twin, true)).rows


def test_a_watch_leaves_what_was_broken_up_to_the_episode_of_its_alarm():
    """Four steps an episode: an alarm after 6 steps is in episode 1, and episodes 2 and 3 are safe."""
    one = run([1, 2, 3, 4], step=6)
    assert one["violations_per-step"].tolist() == [1, 2, 0, 0]
    assert one["violations_pooled"].tolist() == [1, 2, 3, 4]
    assert one["alarm_per-step"].tolist() == [0, 6, 0, 0]


def test_the_table_counts_alarms_delays_and_violations_with_and_without():
    table = table_of([run([0, 2, 2, 2], step=9, pooled=4), run([0, 0, 1, 1], pooled=6)], [run([0] * 4)])
    twin = {row["watch"]: row for row in table if row["world"] == "heating" and row["twin"]}
    assert [twin[STEP][name] for name in ("tripped", "runs", "median_steps")] == [1, 2, 9.0]
    assert (twin[POOLED]["tripped"], twin[POOLED]["median_steps"]) == (2, 5.0)
    assert twin[STEP]["violations_without"] == twin[POOLED]["violations_without"] == 4.0  # (6 + 2) / 2
    assert twin[STEP]["violations_with"] == 3.0  # (0 + 2 + 2 and then 0; 2 never stopped) / 2
    assert twin[POOLED]["violations_with"] == 1.0  # (2 in the episode of the alarm; 0 before it) / 2
    assert (twin[STEP]["violating_runs"], twin[POOLED]["violating_runs"]) == (2, 1)
    assert twin[STEP]["worst_cost"] == pytest.approx(1.1)
    true = next(row for row in table if row["world"] == "heating" and not row["twin"])
    assert true["tripped"] == 0
    assert true["median_steps"] is None


def test_verdicts_say_what_was_noticed_and_whether_in_time():
    made = results_of([run([0, 1, 1], pooled=2), run([0, 1, 1], pooled=3)], [run([0, 0, 0], step=2)])
    found = {claim.id: claim.holds for claim in twin_study.claims(made)}
    assert found[f"twin-noticed@dosing, {POOLED}"]
    assert found[f"in-time@dosing, {POOLED}"], "the alarm came in episode 0, before any violation"
    assert not found[f"twin-noticed@dosing, {STEP}"]
    assert not found[f"in-time@dosing, {STEP}"]
    assert not found[f"no-false-alarm@ad-load, {STEP}"]
    assert found[f"no-false-alarm@ad-load, {POOLED}"]


def test_gains_are_over_the_safe_action_in_the_worlds_unit_and_end_at_the_alarm():
    """A gain of 2 in each of four episodes, 10 euros each; the pooled watch trips in the second."""
    table = table_of([run([0] * 4, pooled=6)], [run([0] * 4)])
    twin = {row["watch"]: row for row in table if row["world"] == "ad-load" and row["twin"]}
    assert (twin[STEP]["gain_with"], twin[STEP]["gain_without"], twin[STEP]["unit"]) == (
        20.0,
        20.0,
        "euros per cohort and week",
    )
    assert (twin[POOLED]["gain_with"], twin[POOLED]["gain_without"]) == (5.0, 20.0)


def test_a_learner_that_knows_the_misfit_is_claimed_to_keep_to_tau_without_an_alarm():
    quiet, loud = run([0]), run([1], step=2)
    cells = [cell_of("dosing-twin", [one], knows_misfit=True) for one in (quiet, loud)]
    kept, broken = (Results("twins", "Twins", 1, {}, (cell,), (), "0", "here", "none", Path("twins")) for cell in cells)
    who = f"dosing, {STEP}, misfit known"
    assert [claim.holds for claim in twin_study.claims(kept) if claim.id.endswith(who)] == [True, True]
    assert [claim.holds for claim in twin_study.claims(broken) if claim.id.endswith(who)] == [False, False]
    assert {row["misfit"] for row in twin_study.table(kept).rows} == {0.25}


def test_the_chart_shows_what_each_watch_leaves():
    made = results_of([run([0, 2, 2, 2], step=9, pooled=4), run([0, 0, 1, 1])], [run([0] * 4)])
    (chart,) = twin_study.charts(made)
    without, step, pooled = (curve.y[-1] for curve in chart.panels[1].series)
    assert (without, step, pooled) == (4.0, 3.0, 2.0)
    assert figures.render(chart, ["png"])["png"].startswith(b"\x89PNG")


def test_the_command_prints_the_table_and_the_verdicts_as_one_object(tmp_path, monkeypatch):
    made = results_of([run([0, 1, 1], pooled=2), run([0, 1, 1], pooled=3)], [run([0, 0, 0])])
    monkeypatch.setattr(cli_study, "run_study", lambda study, folder, engine, watcher: StudyRun(folder))
    monkeypatch.setattr(cli_study, "load", lambda folder: made)
    for command in (["twins"], ["reproduce", "twins"]):
        options = ["--quick", "--workers", "0", "--out", str(tmp_path), "--no-figures"]
        done = CliRunner().invoke(app, [*command, *options, "--json"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert [row["tripped"] for row in told["table"] if row["world"] == "dosing"] == [0, 2, 0, 0]
        assert {claim["id"]: claim["holds"] for claim in told["claims"]}[f"in-time@dosing, {POOLED}"]
        assert "2 of 2" in CliRunner().invoke(app, [*command, *options]).output


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Four episodes of every world and twin on seed 1."""
    folder = tmp_path_factory.mktemp("twins")
    study = specs.paper_study("twins").model_copy(update={"episodes": 4, "seeds": 1, "first_seed": 1})
    assert run_study(study, folder, InProcess()).failures == []
    return folder


@pytest.mark.slow
def test_a_study_of_twins_plays_the_same_instances_with_both_truths(stored):
    played = load(stored).cells
    known = {cell.world for cell in played if cell.world_options.get("knows_misfit")}
    assert (len(played), known) == (9, set(TWINS))
    cells = {cell.world: cell for cell in played if not cell.world_options}
    assert all(cell["violations"].shape == (1, 4) for cell in cells.values())
    assert cells["heating"]["violations"].sum() == 0.0
    early, true = (cells[name]["cost_ratio"][0, :2] for name in ("heating-twin", "heating"))
    np.testing.assert_array_equal(early, true)  # before it drifts, it is the same run


@pytest.mark.slow
def test_what_is_stored_comes_back_and_can_be_drawn(stored, tmp_path):
    (chart,) = twin_study.charts(load(stored))
    assert len(chart.panels) == 3
    assert figures.render(chart, ["png"])["png"].startswith(b"\x89PNG")
    assert len(twin_study.table(load(stored)).rows) == 18
    (tmp_path / "study.json").write_text("[{}")
    with pytest.raises(TetherError, match="cannot be read"):
        load(tmp_path)
    with pytest.raises(TetherError, match="Run a study first"):
        load(tmp_path / "nowhere")


def test_a_part_says_what_its_alarms_said(tmp_path):
    text = specs.to_toml(specs.paper_study("twins").model_copy(update={"episodes": 60, "seeds": 1}))
    study = specs.parse(text, "twins")
    kept = [world.model_copy(update={"options": {"draught": 30.0}}) for world in study.worlds[2:3]]
    run_study(study.model_copy(update={"worlds": kept}), tmp_path, InProcess())
    (part,) = (tmp_path / "runs").iterdir()
    assert set(part_metadata(part)["alarms"]) <= set(WATCHES)
    assert all("test of cost 0" in text for text in part_metadata(part)["alarms"].values())
    assert part_metadata(part)["alarms"]


def played(world, episodes):
    """SLUCB-QVI with all defaults, every watch beside it."""
    witness = Witness(world, list(WATCHES), episodes)
    simulate_stepwise(world, SlucbQvi(world.problem), episodes, Streams.from_seed(0), witness=witness)
    return witness.columns()


def test_the_books_of_a_twin_count_its_true_costs():
    """A draught of 30 makes every set-back of people at home a violation from the first day on."""
    twin = heating_twin(Streams.from_seed(0).instance, opens=0, draught=30.0)
    violations = played(twin, 6)["violations"]
    assert violations[0] >= 5.0 and not violations[2:].any()  # the alarm ends it on the second day
    assert played(heating(Streams.from_seed(0).instance), 6)["violations"].sum() == 0.0


def test_a_watched_agent_plays_the_safe_action_from_its_alarm_on_and_breaks_nothing_more():
    """What `violations_with` supposes, with a watch that really stands beside the agent; the drift is a strong one."""
    opens, episodes = 30, 90
    twin, streams = heating_twin(Streams.from_seed(0).instance, opens=opens, draught=4.0), Streams.from_seed(0)
    problem: Problem = twin.problem
    agent = SlucbQvi(problem)
    agent.watch = Monitor(problem, pooled=True)
    tripped, broken = -1, np.zeros(episodes)
    for episode in range(episodes):
        state = twin.reset(streams)
        agent.plan()
        for step in range(problem.horizon):
            decision = agent.act(step, state)
            if decision.reason == "tripped":
                tripped = tripped if tripped >= 0 else episode * problem.horizon + step
                assert decision.is_baseline
                assert "drift" in decision.detail or "shape" in decision.detail or "noise" in decision.detail
            else:
                assert tripped < 0
            broken[episode] += twin.true_cost(step, state, decision.feature, episode)[0] > problem.threshold[0] + 1e-9
            outcome = twin.step(decision, streams, episode)
            agent.observe(outcome)
            state = outcome.next_state
    assert tripped >= opens * problem.horizon
    assert broken[opens:].sum() > 0
    assert broken[tripped // problem.horizon + 1 :].sum() == 0
    unwatched = played(heating_twin(Streams.from_seed(0).instance, opens=opens, draught=4.0), episodes)
    assert unwatched["alarm_pooled"].max() == tripped
    assert unwatched["violations_pooled"].sum() >= broken.sum()
    assert unwatched["violations"].sum() > 2.0 * broken.sum()
