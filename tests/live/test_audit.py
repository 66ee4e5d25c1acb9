"""Audits: every decision computed again bit for bit, versions compared, tables exported, tampering found."""

import json
import sqlite3
from itertools import count

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from limits import kept
from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.cli import app
from tether.errors import InputError
from tether.live import audit
from tether.live.audit import export
from tether.live.log.memory import MemoryStore
from tether.live.policy import Criteria, Guards
from worlds import world_and_streams

PROBLEM = "tests.live.audited:problem"


@pytest.fixture(scope="module")
def world():
    return world_and_streams(3, horizon=2)[0]


def eventful(world, store):
    """A log with everything in it: modes, guards, switch, late and missing outcomes, a stale replica, a warm start."""
    time, numbers = {"now": 100.0}, count()
    told = {"clock": lambda: time["now"], "ids": lambda: f"decision {next(numbers)}", "refresh": None}
    advisor = Advisor(
        world.problem, store, guards=Guards(rate_window=10, guarded_rate=0.6, max_age=5.0), **kept(**told)
    )
    plant = Plant(world.true_gamma)
    lagging = Advisor(world.problem, store, **kept(**told))
    none = Criteria.none()
    for turn in range(60):
        time["now"] += 1.0
        if turn == 10:
            advisor.promote("guarded", by="me", why="test", criteria=none)
        if turn == 25:
            advisor.promote("live", by="me", why="test", criteria=none)
        if turn == 40:
            advisor.stop(by="me", why="test")
        if turn == 44:
            advisor.resume(by="me", why="test")
        if turn == 5:  # only the safe action was decided so far
            old = np.array([[0.2, 0.3, 0.5]])
            advisor.warm_start(old, old @ world.true_gamma[0, 0], steps=[0])
        step, who = turn % 2, lagging if turn % 7 == 6 else advisor
        decision = who.decide(plant.state(), step, "e", observed_at=time["now"] - (9.0 if turn % 11 == 10 else 1.0))
        if turn % 5 != 4 and decision.logged:  # one of the stale replica's is withheld: it did not know of the stop
            cost = None if turn % 9 == 8 else plant.measure(step, decision.feature)
            advisor.record(decision.id, 0.3, cost, plant.state())
    return advisor


@pytest.fixture(scope="module")
def log(world):
    store = MemoryStore()
    eventful(world, store)
    return store


def test_every_decision_is_computed_again_bit_for_bit(world, log):
    report = audit.replay(log, world.problem)
    assert report.holds
    assert (report.decisions, report.outcomes, report.different, report.versions) == (60, 47, 0, 0)
    bodies = [entry.body for entry in log.read() if entry.kind == "decision"]
    reasons = {body["reason"] for body in bodies}
    assert {"shadow", "stopped", "stale-input", "best"} <= reasons
    assert {body["mode"] for body in bodies} == {"shadow", "guarded", "live"}
    assert [entry.kind for entry in log.read()].count("withheld") == 1
    assert any(entry.body["certificate"]["seq"] < entry.seq - 2 for entry in log.read() if entry.kind == "decision")


def rewritten(log, change):
    """A copy of the log with one decision changed before it was chained: consistent, but not what Tether decides."""
    from tether.live.log.chain import Draft

    copy, changed = MemoryStore(identity=log.identity(), clock=lambda: 5.0), False
    hashes = {}
    for entry in log.read():
        body = json.loads(entry.text)
        if entry.kind == "decision":
            body["certificate"]["head"] = hashes[body["certificate"]["seq"]]
            if body["proposal"]:
                body["proposal"]["head"] = hashes[body["proposal"]["seq"]]
            if not changed and not body["is_baseline"]:
                change(body)
                changed = True
        (appended,) = copy.append([Draft(entry.kind, body, entry.unique)])
        hashes[entry.seq] = appended.entry.hash
    return copy


def shift_bound(body):
    body["certificate"]["limits"][0]["bound"] -= 1e-12


def longer(body):
    body["played"]["length"] *= 1.01


@pytest.mark.parametrize(("change", "field"), [(shift_bound, "certificate.limits[0].bound"), (longer, "played.length")])
def test_a_decision_that_tether_would_not_make_is_found_and_named(world, log, change, field):
    assert audit.replay(rewritten(log, lambda body: None), world.problem).holds
    report = audit.replay(rewritten(log, change), world.problem)
    assert report.different == 1
    (difference,) = report.differences
    assert difference.field == field
    first = next(e for e in log.read() if e.kind == "decision" and not e.body["is_baseline"])
    assert difference.seq == first.seq
    assert first.body["decision_id"] in str(difference)


def test_decisions_of_another_version_are_counted_but_compared_without_their_version(world, log):
    def older(body):
        body["certificate"]["library"] = "0.0.9"

    report = audit.replay(rewritten(log, older), world.problem)
    assert (report.holds, report.versions) == (True, 1)


def test_a_log_replayed_with_another_problem_does_not_come_out_the_same(log):
    other, _ = world_and_streams(4, horizon=2)
    report = audit.replay(log, other.problem)
    assert not report.holds


def test_two_versions_are_compared_decision_by_decision(world, log, tmp_path):
    mine = audit.decisions_by_this_version(log, world.problem)
    assert audit.compare(mine, audit.decisions_in_the_log(log)).same
    path = tmp_path / "decisions.jsonl"
    audit.write_decisions(mine, path, log.identity(), log.head())
    theirs, head = audit.read_decisions(path, log.identity())
    assert head == log.head()
    assert audit.compare(mine, theirs).same
    theirs[3]["bounds"][0] += 0.25
    theirs[5]["played"] = {"ray": 0, "length": 0.5}
    theirs[7]["reason"] = "whim"
    found = audit.compare(mine, theirs)
    assert (found.decisions, found.actions, found.reasons, found.bounds) == (60, 1, 1, 1)
    assert found.largest == 0.25
    assert mine[3]["decision_id"] in found.first
    assert not audit.compare(mine, theirs[:-1]).same
    with pytest.raises(InputError, match="no decisions on this log"):
        audit.read_decisions(path, "another")
    path.write_text("nonsense")
    with pytest.raises(InputError, match="cannot be read"):
        audit.read_decisions(path, log.identity())


def test_tables_hold_what_the_log_holds(log, tmp_path):
    assert export(log, tmp_path / "out") == {"decision": 60, "outcome": 47}
    decisions = pq.read_table(tmp_path / "out" / "decisions.parquet")
    outcomes = pq.read_table(tmp_path / "out" / "outcomes.parquet")
    rows = decisions.to_pylist()
    entries = [entry for entry in log.read() if entry.kind == "decision"]
    for row, entry in zip(rows, entries, strict=True):
        assert (row["seq"], row["hash"], row["decision_id"]) == (entry.seq, entry.hash, entry.body["decision_id"])
        assert row["bound"] == [entry.body["certificate"]["limits"][0]["bound"]]
        assert row["feature"] == entry.body["certificate"]["feature"]
        assert json.loads(row["played"]) == entry.body["played"]
    withheld = [entry.body["decision_id"] for entry in log.read() if entry.kind == "withheld"]
    assert [row["decision_id"] for row in rows if row["withheld"] == "stopped"] == withheld
    assert len(withheld) == len(rows) - [row["withheld"] for row in rows].count(None) == 1
    costs = [row["cost"] for row in outcomes.to_pylist()]
    assert costs.count(None) == sum(e.body["cost"] is None for e in log.read() if e.kind == "outcome") > 0
    told = {name.decode(): value.decode() for name, value in decisions.schema.metadata.items()}
    assert told["tether.log"] == log.identity()
    assert told["tether.head_hash"] == log.head().hash
    assert json.loads(told["tether.settings"])["problem"]["horizon"] == 2


def test_an_empty_log_is_fine(world, tmp_path):
    store = MemoryStore()
    assert audit.replay(store, world.problem).holds
    assert export(store, tmp_path) == {"decision": 0, "outcome": 0}


@pytest.fixture(scope="module")
def file(world, tmp_path_factory):
    """The eventful log as an SQLite file; tests that spoil it work on a copy."""
    path = tmp_path_factory.mktemp("log") / "log.db"
    advisor = live_advisor(world.problem, path)
    Plant(world.true_gamma).play(advisor, 12, horizon=2)
    advisor.close()
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_the_command_line_verifies_against_a_noted_head(file, tmp_path):
    done = run("verify", file)
    assert done.exit_code == 0, done.output
    assert "26 entries, none altered" in done.output
    head = done.output.split()[-1]
    assert run("verify", file, "--head", head).exit_code == 0
    beyond = run("verify", file, "--head", f"99:{'0' * 64}")
    assert beyond.exit_code == 1
    assert "tail is cut off" in beyond.output
    assert run("verify", file, "--head", f"5:{'0' * 64}", "--json").exit_code == 1
    assert run("verify", file, "--head", "nonsense").exit_code == 2
    assert run("verify", tmp_path / "none.db").exit_code == 2
    assert not (tmp_path / "none.db").exists()


def test_the_command_line_names_the_altered_entry(file, tmp_path):
    spoilt = tmp_path / "spoilt.db"
    spoilt.write_bytes(file.read_bytes())
    with sqlite3.connect(spoilt) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = next(t for t in tables if "body" in [c[1] for c in database.execute(f"PRAGMA table_info({t})")])
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(f"UPDATE {table} SET body = replace(body, 'best', 'rest') WHERE seq = 15")
    database.close()
    done = run("verify", spoilt)
    assert done.exit_code == 1
    assert "ALTERED at entry 15" in done.output
    told = json.loads(run("verify", spoilt, "--json").output)
    assert told["fault"]["seq"] == 15


def test_the_command_line_replays_and_compares(file, tmp_path):
    done = run("replay", file, "--problem", PROBLEM)
    assert done.exit_code == 0, done.output
    assert "12 decisions computed again from 12 outcomes" in done.output
    assert "All are equal, bit for bit." in done.output
    assert json.loads(run("replay", file, "--problem", PROBLEM, "--json").output)["different"] == 0
    other = run("replay", file, "--problem", "tests.live.audited:other_problem")
    assert other.exit_code == 1
    assert "DIFFER. The first:" in other.output
    assert run("replay", file, "--problem", "tests.live.audited:nothing").exit_code == 2
    kept = tmp_path / "mine.jsonl"
    assert run("diff", file, "--problem", PROBLEM, "--write", kept).exit_code == 0
    again = run("diff", file, "--problem", PROBLEM, "--against", kept)
    assert again.exit_code == 0
    assert "12 decisions: 0 differ in the action" in again.output
    lines = kept.read_text().splitlines()
    row = json.loads(lines[4])
    row["bounds"] = [row["bounds"][0] + 0.125]
    kept.write_text("\n".join([*lines[:4], json.dumps(row), *lines[5:]]))
    moved = run("diff", file, "--problem", PROBLEM, "--against", kept)
    assert moved.exit_code == 1
    assert "1 in a bound (by at most 0.125)" in moved.output


def test_the_command_line_exports_tables(file, tmp_path):
    done = run("export", file, tmp_path / "tables")
    assert done.exit_code == 0, done.output
    assert "12 decisions and 12 outcomes" in done.output
    assert pq.read_table(tmp_path / "tables" / "decisions.parquet").num_rows == 12
    (tmp_path / "occupied").write_text("")
    assert run("export", file, tmp_path / "occupied").exit_code == 2


def test_a_report_shows_counts_and_every_comparison_of_a_log(log, file, world):
    found = audit.summary(log)
    ledger = Advisor(world.problem, log, upkeep=Upkeep(refresh=None)).replica.ledger
    assert found.counts == ledger.ever and found.mode == "live"
    assert found.comparisons[-1] == ledger.uplift.status()
    compared = sum(entry.body.get("canary") is not None for entry in log.read(0, 10**6) if entry.kind == "decision")
    assert compared >= sum(each.compared + each.waiting for each in found.comparisons)
    shown = run("report", file)
    assert shown.exit_code == 0 and "12 decisions, " in shown.output and "0 decisions compared" in shown.output
    told = json.loads(run("report", file, "--json").output)
    assert told["waiting"] == 0 or "Learning waits for the outcome of decision" in shown.output
    assert told["decisions"] == 12 and [each["compared"] for each in told["comparisons"]] == [0]
