"""Backups of a running log: one moment of it, whole and compact, stopped until somebody confirms what is missing."""

import json
import shutil
import sqlite3
import threading

import pytest
from typer.testing import CliRunner

from live.plant import Plant, live_advisor
from tether import Advisor, Upkeep
from tether.cli import app
from tether.errors import InputError, StoreError
from tether.live.archive import archive
from tether.live.backup import backup, stop
from tether.live.log import open_store
from tether.live.log.chain import Head, verify_store
from tether.live.policy import Criteria
from tether.service.head_note import HeadNote
from worlds import world_and_streams

WORLD = world_and_streams(3, horizon=1)[0]
HERE = __name__


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_a_copy_of_a_log_that_is_written_to_is_one_moment_of_it(tmp_path):
    advisor, plant = live_advisor(WORLD.problem, tmp_path / "log.db"), Plant(WORLD.true_gamma)
    plant.play(advisor, 5)
    running = threading.Thread(target=plant.play, args=(advisor, 30))
    running.start()
    heads = [backup(open_store(tmp_path / "log.db", read_only=True), tmp_path / f"copy{n}.db") for n in range(3)]
    running.join()
    assert sorted(path.name for path in tmp_path.glob("*copy*")) == ["copy0.db", "copy1.db", "copy2.db"]
    for n, head in enumerate(heads):
        copy = open_store(tmp_path / f"copy{n}.db", read_only=True)
        assert copy.read(0, head.seq) == advisor.store.read(0, head.seq) and copy.head().seq == head.seq + 1
        assert verify_store(copy, known=head).fault is None
        assert advisor.store.read(head.seq - 1, 1)[0].hash == head.hash


def test_a_restored_copy_plays_a_0_until_somebody_resumes(tmp_path):
    with live_advisor(WORLD.problem, tmp_path / "log.db") as advisor:
        Plant(WORLD.true_gamma).play(advisor, 20)
        head = backup(advisor.store, tmp_path / "copy.db")
        note = HeadNote(advisor.store, tmp_path / "log.db.head")
        Plant(WORLD.true_gamma).play(advisor, 3)
        note.write()
    for beside in tmp_path.glob("log.db-*"):
        beside.unlink()
    shutil.copy(tmp_path / "copy.db", tmp_path / "log.db")
    with Advisor(WORLD.problem, tmp_path / "log.db", criteria=Criteria.none(), upkeep=Upkeep(refresh=None)) as restored:
        assert f"a backup that ends at {head.seq}:{head.hash}" in restored.status().stopped
        assert restored.decide(0).reason == "stopped"
        assert "restored, or rewound" in HeadNote(restored.store, tmp_path / "log.db.head").contradiction()
        restored.resume(by="me", why="three decisions are missing, and did no harm")
        assert restored.decide(0).reason != "stopped" and restored.status().mode == "live"


def test_a_copy_leaves_free_pages_behind_and_knows_its_archive(tmp_path):
    advisor, plant = live_advisor(WORLD.problem, tmp_path / "log.db"), Plant(WORLD.true_gamma)
    plant.play(advisor, 60)
    advisor.snapshot()
    plant.play(advisor, 10)
    archive(advisor.store, tmp_path / "archive", before=float("inf"), size=20)
    backup(advisor.store, tmp_path / "copy.db")
    pages = sqlite3.connect(tmp_path / "copy.db").execute("PRAGMA freelist_count").fetchone()[0]
    before = sqlite3.connect(tmp_path / "log.db").execute("PRAGMA freelist_count").fetchone()[0]
    assert pages == 0 < before
    assert verify_store(open_store(tmp_path / "copy.db", read_only=True)).fault is None


def test_an_altered_log_gives_no_copy(tmp_path):
    with live_advisor(WORLD.problem, tmp_path / "log.db") as advisor:
        Plant(WORLD.true_gamma).play(advisor, 2)
    connection = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    connection.execute("DROP TRIGGER entries_stay")
    connection.execute("UPDATE entries SET time = 1.0 WHERE seq = 3")
    connection.close()
    with pytest.raises(StoreError, match="entry 3 was altered"):
        backup(open_store(tmp_path / "log.db", read_only=True), tmp_path / "copy.db")
    assert not list(tmp_path.glob("*copy*"))


def test_the_commands_back_up_and_stop(tmp_path):
    with live_advisor(WORLD.problem, tmp_path / "log.db") as advisor:
        Plant(WORLD.true_gamma).play(advisor, 2)
        head = advisor.store.head()
    done = run("backup", tmp_path / "log.db", tmp_path / "copy.db", "--json")
    assert done.exit_code == 0 and json.loads(done.output)["head"] == list(head)
    assert run("backup", tmp_path / "log.db", tmp_path / "copy.db").exit_code == 2
    assert run("backup", tmp_path / "log.db", tmp_path / "no" / "copy.db").exit_code == 2
    done = run("stop", tmp_path / "log.db", "--why", "restored")
    assert done.exit_code == 0 and f"Stopped (entry {head.seq + 1})" in done.output
    assert run("stop", tmp_path / "none.db", "--why", "restored").exit_code == 2
    assert run("stop", tmp_path / "log.db", "--why", " ").exit_code == 2
    assert Advisor(WORLD.problem, tmp_path / "log.db").status().stopped == "by tether audit stop: restored"
    assert run("verify", tmp_path / "copy.db", "--head", f"{head.seq}:{head.hash}").exit_code == 0


@pytest.mark.slow
def test_postgres_is_dumped_and_restored_and_stopped_as_the_page_says(postgres_place, tmp_path):
    import subprocess

    server, schema = postgres_place.server, postgres_place.schema
    advisor = live_advisor(WORLD.problem, postgres_place.open())
    Plant(WORLD.true_gamma).play(advisor, 5)
    head, tools = advisor.store.head(), server.bin
    dump = [tools / "pg_dump", "-Fc", f"--schema={schema}", "-f", tmp_path / "log.dump", server.address]
    subprocess.run(dump, check=True)
    Plant(WORLD.true_gamma).play(advisor, 2)
    advisor.close()
    postgres_place.execute(f"DROP SCHEMA {schema} CASCADE")
    subprocess.run([tools / "pg_restore", "-d", server.address, tmp_path / "log.dump"], check=True)
    store = postgres_place.open()
    assert store.head() == head and verify_store(store, known=head).fault is None
    with pytest.raises(InputError, match="pg_dump"):
        backup(store, tmp_path / "copy.db")
    stop(store, by="me", why="restored")
    again = Advisor(WORLD.problem, store, upkeep=Upkeep(refresh=None))
    assert again.decide(0).reason == "stopped" and again.store.head().seq == head.seq + 2
    assert verify_store(again.store, known=Head(*head)).fault is None
