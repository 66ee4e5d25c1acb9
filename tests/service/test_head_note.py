"""A log that was restored or rewound starts stopped; one that only grew does not."""

import asyncio
import json
import math
import shutil

import psycopg
import pytest
from service_app import new_advisor

from tether.errors import StoreError
from tether.files import written_whole
from tether.live.archive import archive
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore
from tether.service.hub import Hub
from tether.service.models import DecisionRequest


async def a_run_on(store, note, decisions=2):
    """The service's hub for so many decisions; returns why it is stopped."""
    advisor = new_advisor(store)
    hub = Hub(advisor, waiting=100, seconds=5.0, noted=note)
    try:
        made = [await hub.decide(DecisionRequest(state=0), None) for _ in range(decisions)]
        assert (made[-1].reason == "stopped") == bool(advisor.status().stopped)
        return advisor.status().stopped
    finally:
        await hub.close()


def played(folder):
    """The same over folder/log.db."""
    return asyncio.run(a_run_on(SqliteStore(folder / "log.db"), folder / "log.db.head"))


def test_a_log_that_grew_starts_as_it_ended(tmp_path):
    assert [played(tmp_path) for _ in range(3)] == ["", "", ""]


@pytest.mark.parametrize("how", ["restored", "another", "unreadable"])
def test_a_log_that_is_not_the_noted_one_starts_stopped(tmp_path, how):
    played(tmp_path)
    shutil.copy(tmp_path / "log.db", tmp_path / "backup.db")
    played(tmp_path)
    for left in tmp_path.glob("log.db*"):
        if left.suffix != ".head":
            left.unlink()
    if how == "restored":
        shutil.copy(tmp_path / "backup.db", tmp_path / "log.db")
    elif how == "unreadable":
        (tmp_path / "log.db.head").write_text("{")
    assert "starts stopped" in played(tmp_path)
    advisor = new_advisor(SqliteStore(tmp_path / "log.db"))
    advisor.resume(by="me", why="the missing hour was looked into")
    advisor.close()
    assert played(tmp_path) == "", "it was confirmed"


@pytest.mark.parametrize("away", [False, True])
def test_a_note_as_old_as_the_archive_needs_the_archive_or_a_person(tmp_path, away):
    """That of a machine which was off for a while: the service starts in any case."""
    with new_advisor(SqliteStore(tmp_path / "log.db")) as advisor:
        for _ in range(8):
            advisor.record(advisor.decide(0).id, 0.5, 0.1)
        advisor.snapshot()
        assert archive(advisor.store, tmp_path / "archive", before=math.inf, size=4).last >= 8
        old, identity = advisor.store.read(7, 1)[0], advisor.store.identity()
    assert played(tmp_path) == ""
    (tmp_path / "log.db.head").write_text(json.dumps({"log": identity, "head": [old.seq, old.hash]}))
    if away:
        (tmp_path / "archive").rename(tmp_path / "elsewhere")
    assert ("cannot be compared" in played(tmp_path)) == away


def test_two_workers_may_note_the_head_at_once(tmp_path, monkeypatch):
    """Each note is whole, whoever ends last: in one neighbour for both, one would be cut short, the other missing."""
    path = tmp_path / "log.db.head"
    with written_whole(path) as first:
        first.write(b"the note of one worker")
        monkeypatch.setattr("os.getpid", lambda: 2**22 + 1)
        with written_whole(path) as second:
            second.write(b"that of another")
        assert path.read_bytes() == b"that of another"
    assert path.read_bytes() == b"the note of one worker" and [*tmp_path.iterdir()] == [path]


class Database:
    """A log in a schema of a PostgreSQL server, and what may happen to it."""

    def __init__(self, address, name):
        self.address, self.schema = address, f"note_{name.replace(' ', '_')}"

    def run(self, note):
        """The service's hub for two decisions; returns why it is stopped."""
        return asyncio.run(a_run_on(PostgresStore(self.address, schema=self.schema), note))

    def do(self, *statements):
        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                done = connection.execute(statement.replace("_.", f"{self.schema}."))
            return done.fetchall() if done.description else []

    def cut(self, seq):
        tables = ("entries", "keys", "snapshots")
        self.do("ALTER TABLE _.entries DISABLE TRIGGER ALL", *(f"DELETE FROM _.{t} WHERE seq > {seq}" for t in tables))

    def read_back(self):
        """As from a dump: tables of the same content that have other numbers."""
        self.do("CREATE TABLE _.again (LIKE _.entries INCLUDING ALL)", "INSERT INTO _.again SELECT * FROM _.entries",
                "DROP TABLE _.entries", "ALTER TABLE _.again RENAME TO entries")  # fmt: skip


@pytest.mark.parametrize("how", ["a cold copy", "cut", "a dump"])
def test_a_database_that_is_not_as_it_was_noted_starts_stopped(running, tmp_path, how):
    database, note = Database(running.address, how), tmp_path / "postgres.head"
    assert database.run(note) == ""
    ((before, end),) = database.do("SELECT value, (SELECT max(seq) FROM _.entries) FROM _.meta WHERE name = 'note'")
    assert database.run(note) == ""
    if how == "a dump":
        database.read_back()
    else:
        database.cut(end)
    if how == "a cold copy":  # the note beside the log is as old as the copy: only the service's file knows better
        database.do(f"UPDATE _.meta SET value = '{before}' WHERE name = 'note'")
    else:  # only the note beside the log knows
        note.unlink()
    stopped = database.run(note)
    assert "the log starts stopped" in stopped
    assert database.run(note) == stopped, "it holds until somebody resumes, and is said once"


def test_a_place_that_the_server_does_not_tell_is_not_compared(running, tmp_path, monkeypatch):
    database = Database(running.address, "untold")
    assert database.run(None) == ""
    ((text,),) = database.do("SELECT value FROM _.meta WHERE name = 'note'")
    place = json.loads(text)["place"].split(".")
    assert len(place) == 3 and all(part.isdigit() for part in place)

    def forbidden(store):
        raise StoreError("permission denied")

    database.read_back()
    monkeypatch.setattr(PostgresStore, "place", forbidden)
    assert database.run(None) == ""
