"""Twins: what the books count, when watches trip, and what the table and its verdicts make of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tether import Problem, SlucbQvi, TetherError
from tether.check.monitor import Monitor
from tether.cli import app
from tether.lab import plots as figures
from tether.lab.engines import InProcess
from tether.lab.studies import twins as twin_study
from tether.lab.studies.twins import WATCHES, WORLDS, Trip, TwinRun, play_twin
from tether.lab.worlds.heating import heating, heating_twin
from tether.lab.worlds.linear_mdp import Streams

STEP, POOLED = WATCHES


def run(violations, step=-1, pooled=-1, horizon=4):
    trips = {STEP: Trip(step, "says" * (step >= 0)), POOLED: Trip(pooled, "says" * (pooled >= 0))}
    counts = np.array(violations, dtype=float)
    return TwinRun(counts, 0.9 + 0.2 * (counts > 0), horizon, trips)


def runs_of(twin, true):
    """The same two runs for every world, as twin and as true world."""
    return {
        twin_study.TwinUnit(world, is_twin, seed, len(run.violations)): run
        for world in WORLDS
        for is_twin, members in ((True, twin), (False, true))
        for seed, run in enumerate(members)
    }


def test_a_watch_leaves_what_was_broken_up_to_the_episode_of_its_alarm():
    """Four steps an episode: an alarm after 6 steps is in episode 1, and episodes 2 and 3 are safe."""
    one = run([1, 2, 3, 4], step=6)
    assert one.violations_with(STEP).tolist() == [1, 2, 0, 0]
    assert one.violations_with(POOLED).tolist() == [1, 2, 3, 4]


def test_the_table_counts_alarms_delays_and_violations_with_and_without():
    table = twin_study.rows(runs_of([run([0, 2, 2, 2], step=9, pooled=4), run([0, 0, 1, 1], pooled=6)], [run([0] * 4)]))
    twin = {row.watch: row for row in table if row.world == "heating" and row.twin}
    assert (twin[STEP].tripped, twin[STEP].runs, twin[STEP].median_steps) == (1, 2, 9.0)
    assert (twin[POOLED].tripped, twin[POOLED].median_steps) == (2, 5.0)
    assert twin[STEP].violations_without == twin[POOLED].violations_without == 4.0  # (6 + 2) / 2
    assert twin[STEP].violations_with == 3.0  # (0 + 2 + 2 and then 0; 2 never stopped) / 2
    assert twin[POOLED].violations_with == 1.0  # (2 in the episode of the alarm; 0 before it) / 2
    assert (twin[STEP].violating_runs, twin[POOLED].violating_runs) == (2, 1)
    assert twin[STEP].worst_cost == pytest.approx(1.1)
    true = next(row for row in table if row.world == "heating" and not row.twin)
    assert true.tripped == 0
    assert true.median_steps is None


def test_verdicts_say_what_was_noticed_and_whether_in_time():
    table = twin_study.rows(runs_of([run([0, 1, 1], pooled=2), run([0, 1, 1], pooled=3)], [run([0, 0, 0], step=2)]))
    found = {claim.id: claim.holds for claim in twin_study.claims(table)}
    assert found[f"twin-noticed@dosing, {POOLED}"]
    assert found[f"in-time@dosing, {POOLED}"], "the alarm came in episode 0, before any violation"
    assert not found[f"twin-noticed@dosing, {STEP}"]
    assert not found[f"in-time@dosing, {STEP}"]
    assert not found[f"no-false-alarm@ad-load, {STEP}"]
    assert found[f"no-false-alarm@ad-load, {POOLED}"]


def test_what_is_saved_comes_back_and_can_be_drawn(tmp_path):
    runs = runs_of([run([0, 2, 2, 2], step=9, pooled=4), run([0, 0, 1, 1])], [run([0] * 4)])
    twin_study.save(runs, tmp_path)
    again = twin_study.load(tmp_path)
    assert list(again) == list(runs)
    assert twin_study.rows(again)[:6] == twin_study.rows(runs)[:6]
    chart = twin_study.chart(again)
    without, step, pooled = (curve.y[-1] for curve in chart.panels[1].series)
    assert (without, step, pooled) == (4.0, 3.0, 2.0)
    assert figures.render(chart, ["png"])["png"].startswith(b"\x89PNG")
    (tmp_path / "twins.json").write_text("[{}]")
    with pytest.raises(TetherError, match="not what"):
        twin_study.load(tmp_path)
    with pytest.raises(TetherError, match="tether twins"):
        twin_study.load(tmp_path / "nowhere")


def test_the_command_prints_the_table_and_the_verdicts_as_one_object(tmp_path, monkeypatch):
    runs = runs_of([run([0, 1, 1], pooled=2), run([0, 1, 1], pooled=3)], [run([0, 0, 0])])
    monkeypatch.setattr(twin_study, "measure", lambda episodes, seeds, engine: runs)
    done = CliRunner().invoke(app, ["twins", "--quick", "--json", "--workers", "0", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [row["tripped"] for row in told["table"] if row["world"] == "dosing"] == [0, 2, 0, 0]
    assert {claim["id"]: claim["holds"] for claim in told["claims"]}[f"in-time@dosing, {POOLED}"]
    assert all(Path(path).is_file() for path in told["artifacts"])
    plain = CliRunner().invoke(app, ["twins", "--quick", "--workers", "0", "--out", str(tmp_path), "--no-figures"])
    assert "2 of 2" in plain.output


def test_a_study_of_twins_plays_the_same_instances_with_both_truths():
    runs = twin_study.measure(4, [1], InProcess())
    assert len(runs) == 6
    assert all(len(run.violations) == 4 for run in runs.values())
    true = runs[twin_study.TwinUnit("heating", False, 1, 4)]
    assert true.violations.sum() == 0.0
    early = runs[twin_study.TwinUnit("heating", True, 1, 4)]
    np.testing.assert_array_equal(early.worst_cost[:2], true.worst_cost[:2])  # before it drifts, it is the same run


def test_the_books_of_a_twin_count_its_true_costs():
    """A draught of 30 makes every set-back of people at home a violation from the first day on."""
    twin = heating_twin(Streams.from_seed(0).instance, opens=0, draught=30.0)
    broken, world = play_twin(twin, 6, Streams.from_seed(0)), heating(Streams.from_seed(0).instance)
    assert broken.violations.sum() > 5.0  # the alarm ends it on the second day
    assert play_twin(world, 6, Streams.from_seed(0)).violations.sum() == 0.0


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
    unwatched = play_twin(
        heating_twin(Streams.from_seed(0).instance, opens=opens, draught=4.0), episodes, Streams.from_seed(0)
    )
    assert unwatched.trips[POOLED].steps == tripped
    assert unwatched.violations_with(POOLED).sum() >= broken.sum()
    assert unwatched.violations.sum() > 2.0 * broken.sum()
