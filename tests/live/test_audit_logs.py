"""Audits of logs as they are found: backups, read-only media, files of others, altered and empty logs, busy logs."""

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from live.places import draft
from live.plant import Plant, live_advisor
from live.test_audit import PROBLEM, run
from tether.cli import audit as cli_audit
from tether.errors import AlteredLog, StoreError
from tether.live import audit
from tether.live.audit import export
from tether.live.log.chain import Head, entries_of, verify_store
from tether.live.log.memory import MemoryStore
from tether.live.log.sqlite import SqliteStore
from worlds import world_and_streams

NOBODY = 65534


def digests(folder):
    """What a folder holds, byte for byte."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()}


def audits(log, folder):
    """One call of each command."""
    return [
        ("verify", log),
        ("replay", log, "--problem", PROBLEM),
        ("diff", log, "--problem", PROBLEM),
        ("export", log, folder),
    ]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A log of 26 entries as an SQLite file; tests work on a copy."""
    world, _ = world_and_streams(3, horizon=2)
    path = tmp_path_factory.mktemp("original") / "log.db"
    advisor = live_advisor(world.problem, path)
    Plant(world.true_gamma).play(advisor, 12, horizon=2)
    advisor.close()
    return path


@pytest.fixture
def folder(tmp_path):
    """A folder with nothing but the log."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def log(original, folder):
    return Path(shutil.copy(original, folder / "log.db"))


def tamper(path, sql, *parameters):
    """Change a log behind its triggers, as a forger would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for trigger in ("entries_stay", "entries_last"):
            database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        database.execute(sql, parameters)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_an_audit_does_not_change_a_byte_of_the_log(log, tmp_path, mode):
    with closing(sqlite3.connect(log)) as database:
        assert database.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
    before = digests(log.parent)
    assert list(before) == ["log.db"]
    for command in audits(log, tmp_path / "tables"):
        assert run(*command).exit_code == 0
    assert digests(log.parent)["log.db"] == before["log.db"]


def test_what_a_killed_service_left_is_audited_as_it_is(log, folder, tmp_path):
    """Its last entries are in the write-ahead log, where they stay."""
    left = tmp_path / "left"
    left.mkdir()
    with closing(SqliteStore(log)) as store:
        store.append([draft(1)])
        for name in ("log.db", "log.db-wal"):
            shutil.copy(folder / name, left / name)
    before = digests(left)
    done = run("verify", left / "log.db")
    assert (done.exit_code, "27 entries, none altered" in done.output) == (0, True), done.output
    assert {name: digests(left)[name] for name in before} == before


@contextmanager
def somebody_else():
    """Act as a user who may write nowhere; root may write to any folder, whatever its mode."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def sealed(original):
    """The log in a folder that may be read and not be written to; beyond pytest's, which only its owner may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tether-sealed-"))
    path = Path(shutil.copy(original, folder / "log.db"))
    path.chmod(0o644)
    folder.chmod(0o555)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def unsealed(path):
    path.parent.chmod(0o755)
    yield
    for file in path.parent.iterdir():
        file.chmod(0o644)
    path.parent.chmod(0o555)


def test_a_backup_on_a_read_only_medium_can_be_audited(sealed):
    with somebody_else():
        done = run("verify", sealed)
    assert (done.exit_code, "26 entries, none altered" in done.output) == (0, True), done.output
    with unsealed(sealed):
        sealed.with_name("log.db-wal").touch()  # whoever reads leaves an empty one behind
    with somebody_else():
        assert run("verify", sealed).exit_code == 0


def test_a_backup_on_a_read_only_medium_without_its_last_entries_is_not_good(sealed):
    """Beside a write-ahead log the file alone is an older log; SQLite needs to write there to read both."""
    with unsealed(sealed), closing(SqliteStore(sealed)) as store:
        store.append([draft(1)])
        kept = sealed.with_name("log.db-wal").read_bytes()
    with unsealed(sealed):
        sealed.with_name("log.db-wal").write_bytes(kept)
    with somebody_else():
        done = run("verify", sealed)
    assert done.exit_code == 2
    assert "log.db-wal" in done.output and "Copy both" in done.output


def test_a_file_that_was_thought_to_rest_and_is_written_to_is_not_read_on(sealed):
    with somebody_else():
        store = SqliteStore(sealed, read_only=True)
        assert store.head().seq == 26
    with unsealed(sealed), closing(SqliteStore(sealed)) as writer:
        writer.append([draft(1)])
        with pytest.raises(StoreError, match="open it again"):
            store.read()
    with pytest.raises(StoreError, match="open it again"):
        store.head()
    store.close()


def test_an_empty_file_is_no_log_and_stays_empty(tmp_path):
    path = tmp_path / "zero.db"
    path.touch()
    for command in audits(path, tmp_path / "tables"):
        assert run(*command).exit_code == 2
    assert path.read_bytes() == b""


def test_a_log_without_entries_does_not_pass(log, tmp_path):
    head = run("verify", log).output.split()[-1]
    tamper(log, "DELETE FROM entries")
    for command in audits(log, tmp_path / "tables"):
        done = run(*command)
        assert done.exit_code == 2
        assert "no entries" in done.output
    cut = run("verify", log, "--head", head)
    assert (cut.exit_code, "tail is cut off" in cut.output) == (1, True)


def test_an_empty_database_stays_empty(postgres_server, tmp_path):
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tether'"
    with psycopg.connect(postgres_server.address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE unused")
    address = postgres_server.address.replace("/postgres?", "/unused?")
    for command in audits(address, tmp_path / "tables"):
        assert run(*command).exit_code == 2
    with psycopg.connect(address) as connection:
        assert connection.execute(schemas).fetchone() == (0,)


def test_what_is_no_log_is_not_called_altered(tmp_path):
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("precious text, and no database " * 40)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE entries (a)")
    for log in (text, other, f"postgresql://tether@/postgres?host={tmp_path}"):
        done = run("verify", log)
        assert done.exit_code == 2, done.output
        assert "error: the log" in done.output


def rename_reward(body):
    return body.replace('"reward"', '"award"')


def raise_reward(body):
    return json.dumps({**json.loads(body), "reward": 99.0})


@pytest.mark.parametrize("change", [rename_reward, raise_reward])
def test_no_audit_takes_an_altered_log_for_good(log, tmp_path, change):
    """The commands other than verify refuse it too, with the same code, and name the entry."""
    with closing(SqliteStore(log, read_only=True)) as store:
        entry = next(entry for entry in store.read(10) if entry.kind == "outcome")
    tamper(log, "UPDATE entries SET body = ? WHERE seq = ?", change(entry.text), entry.seq)
    for command in audits(log, tmp_path / "tables"):
        done = run(*command)
        assert done.exit_code == 1, done.output
        assert f"entry {entry.seq}" in done.output
    assert list((tmp_path / "tables").iterdir()) == []


def test_an_altered_configuration_is_not_used(log, tmp_path):
    """The first entry says how to replay: it is read before all others, and must not be believed unseen."""
    tamper(log, "UPDATE entries SET kind = 'outcome' WHERE seq = 1")
    for command in audits(log, tmp_path / "tables"):
        done = run(*command)
        assert done.exit_code == 1, done.output
        assert "entry 1" in done.output


def test_a_problem_that_cannot_be_used_is_not_a_difference(log):
    done = run("replay", log, "--problem", "tests.live.audited:broken_problem")
    assert done.exit_code == 2
    assert "Assumption 2" in done.output


def test_decisions_are_not_written_to_a_folder_that_is_not_there(log, tmp_path):
    done = run("diff", log, "--problem", PROBLEM, "--write", tmp_path / "none" / "mine.jsonl")
    assert done.exit_code == 2
    assert "cannot be written" in done.output and "mine.jsonl" in done.output


class Busy:
    """A log that a service writes to: whenever it is read from the start, it has two more decisions and an outcome."""

    def __init__(self):
        world, _ = world_and_streams(3, horizon=2)
        self.problem, self.store, self.plant = world.problem, MemoryStore(), Plant(world.true_gamma)
        self.advisor = live_advisor(world.problem, self.store)
        self.plant.play(self.advisor, 6, horizon=2)

    def __getattr__(self, name):
        return getattr(self.store, name)

    def read(self, after=0, limit=1000):
        if after == 0:
            first, _ = self.advisor.decide(0, 0, "busy"), self.advisor.decide(0, 0, "busy")
            self.advisor.record(first.id, 0.3, self.plant.measure(0, first.feature), 1)
        return self.store.read(after, limit)


@pytest.fixture
def busy(monkeypatch):
    log = Busy()
    monkeypatch.setattr(cli_audit, "opened", lambda _: log)
    return log


def test_a_busy_log_is_replayed_as_it_was_at_one_moment(busy):
    seq = busy.head().seq
    report = audit.replay(busy, busy.problem)
    assert (report.holds, report.decisions, report.outcomes) == (True, 6, 6)
    assert busy.head().seq > seq


def test_a_busy_log_does_not_differ_from_itself(busy, tmp_path):
    kept = tmp_path / "mine.jsonl"
    done = run("diff", "log.db", "--problem", PROBLEM, "--write", kept)
    assert (done.exit_code, "6 decisions: 0 differ" in done.output) == (0, True), done.output
    later = run("diff", "log.db", "--problem", PROBLEM, "--against", kept)
    assert (later.exit_code, "6 decisions: 0 differ" in later.output) == (0, True), later.output
    assert busy.head().seq > 20


def test_decisions_on_another_chain_are_not_compared(log, tmp_path):
    kept = tmp_path / "mine.jsonl"
    assert run("diff", log, "--problem", PROBLEM, "--write", kept).exit_code == 0
    first, *rows = kept.read_text().splitlines()
    told = json.loads(first)
    for head, why in (([20, "0" * 64], "the noted head has"), ([99, "0" * 64], "tail is cut off")):
        kept.write_text("\n".join([json.dumps({**told, "head": head}), *rows]))
        done = run("diff", log, "--problem", PROBLEM, "--against", kept)
        assert (done.exit_code, why in done.output) == (1, True), done.output


def test_tables_of_a_busy_log_end_at_the_head_that_they_name(busy, tmp_path):
    head = busy.head()
    assert export(busy, tmp_path) == {"decision": 6, "outcome": 6}
    for name in ("decisions", "outcomes"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        told = table.schema.metadata
        assert (int(told[b"tether.head_seq"]), told[b"tether.head_hash"].decode()) == head
        assert max(table["seq"].to_pylist()) <= head.seq


def test_entries_are_followed_up_to_a_head(log):
    with closing(SqliteStore(log, read_only=True)) as store:
        whole = list(entries_of(store, store.head(), page=7))
        assert whole == store.read()
        assert list(entries_of(store, Head(9, whole[8].hash), page=4)) == whole[:9]
        for head, why in ((Head(9, "0" * 64), "noted head has"), (Head(27, "0" * 64), "tail is cut off")):
            with pytest.raises(AlteredLog, match=why):
                list(entries_of(store, head))
        assert verify_store(store).head == store.head()
