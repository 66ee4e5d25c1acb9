"""Old entries in an archive: nothing is lost or doubled by a kill, what is open stays, and audits reach back."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from limits import kept
from live.conftest import make_place
from live.places import SqlitePlace
from live.plant import Plant, live_advisor
from tether import Advisor
from tether.agents import state_file
from tether.cli import app
from tether.errors import InputError, StoreError
from tether.live import archive as archives
from tether.live.answers import UnknownDecision
from tether.live.archive import archive, checker
from tether.live.audit import export, replay, summary
from tether.live.binding import check_decisions
from tether.live.log.archive import Archive
from tether.live.log.chain import entries_of, verify_store
from tether.live.log.sql import SqlStore
from tether.live.policy import Criteria
from tether.live.records import DecisionMade, OutcomeRecorded, decision_key
from tether.live.states import StateCodec
from worlds import world_and_streams

WORLD = world_and_streams(3, horizon=1)[0]
HERE = __name__
KEY = b"sixteen bytes at least"


def problem():
    return WORLD.problem


def play(store):
    """A log of 62 entries, whose second decision stays open, with a snapshot after entry 53."""
    advisor, plant = live_advisor(problem(), store, snapshot_every=10**9), Plant(WORLD.true_gamma)
    plant.play(advisor, 1)
    advisor.decide(2, key="order 1")
    plant.play(advisor, 24)
    advisor.snapshot()
    plant.play(advisor, 4)
    advisor.decide(1, key="young")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Such a log in a file, made once."""
    path = tmp_path_factory.mktemp("template") / "log.db"
    store = SqlitePlace(path).open()
    play(store)
    store.close()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def either_place(request):
    """Somewhere that outlives a process; on a server, where a commit takes longer, in the slow suite."""
    return make_place(request.param, request)


class Site:
    """An advisor at work on such a log."""

    def __init__(self, place, template):
        self.place, self.plant = place, Plant(WORLD.true_gamma, seed=2)
        if isinstance(place, SqlitePlace):
            shutil.copy(template, place.path)
        else:
            play(place.open())
        self.advisor = fresh(self)
        self.store = self.advisor.store
        self.whole = list(entries_of(self.store, self.store.head()))
        self.open = DecisionMade.read(self.whole[4])

    def archive(self, folder, **more):
        return archive(self.store, folder, **{"before": np.inf, "size": 10, "key": KEY, **more})

    def rows(self):
        return [seq for (seq,) in self.place.execute(f"SELECT seq FROM {self.place.prefix}entries ORDER BY seq")]

    def is_whole(self):
        """Every entry is there once, verified, and computes again."""
        store = self.place.open(read_only=True)
        entries = list(entries_of(store, store.head()))
        assert entries[: len(self.whole)] == self.whole
        assert verify_store(store, also=checker(store, KEY)).fault is None
        report = replay(store, problem())
        store.close()
        return report.holds and report.decisions == sum(entry.kind == "decision" for entry in entries)


def fresh(site):
    """An advisor that starts on the log now."""
    settings = {"criteria": Criteria.none(), "refresh": None, "snapshot_every": 10**9}
    return Advisor(problem(), site.place.open(), **kept(**settings))


def test_old_entries_move_to_files_and_everything_still_reaches_them(template, lasting_place, tmp_path):
    site = Site(lasting_place, template)
    assert [entry.kind for entry in site.whole[:6]] == [
        "configured", "mode", "decision", "outcome", "decision", "decision",
    ]  # fmt: skip
    before = summary(site.store), site.advisor.replica.learner.model_hash(0)
    done = site.archive(tmp_path / "archive")
    assert (done.first, done.last, done.files, done.checkpoint) == (1, 50, 5, 53)
    # settings, the mode, what is open, and a decision whose outcome is entry 51
    assert done.deleted == 50 - 4 and site.rows() == [1, 2, 5, 50, *range(51, 64)]
    assert site.store.archived() == 50 and site.is_whole()
    assert (summary(site.store), fresh(site).replica.learner.model_hash(0)) == before
    assert site.store.read(44, 10) == site.whole[44:54] and site.store.read(0, 1) == site.whole[:1]
    assert replay(site.store, problem()).checkpoints == 1


def test_a_checkpoint_is_the_same_whatever_software_computes_it_again(template, sqlite_place, tmp_path, monkeypatch):
    """Another kernel or numpy with the same bits: their names are in a snapshot, and no difference."""
    site = Site(sqlite_place, template)
    site.archive(tmp_path / "archive")
    monkeypatch.setattr(state_file, "KERNEL", "another one")
    report = replay(site.store, problem())
    assert report.holds and report.checkpoints == 1, report.differences


def test_a_snapshot_of_another_version_is_not_taken_for_one_of_the_version_that_archives_it(
    template, sqlite_place, tmp_path, monkeypatch
):
    site = Site(sqlite_place, template)
    with monkeypatch.context() as earlier:
        earlier.setattr(state_file, "__version__", "0.1.9")
        site.advisor.snapshot()
    site.archive(tmp_path / "archive")
    report = replay(site.store, problem())
    assert report.holds and report.checkpoints == 0, report.differences


def test_a_restart_needs_no_archive_and_an_audit_says_that_it_is_gone(template, sqlite_place, tmp_path):
    site = Site(sqlite_place, template)
    site.archive(tmp_path / "archive")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    again = fresh(site)
    assert again.status().seq == 63 and again.decide(0).logged
    with pytest.raises(StoreError, match=r"entry 1 was archived, and cannot be read from .*archive: it is not there"):
        list(entries_of(again.store, again.store.head()))
    with pytest.raises(InputError, match=r"up to 50 are archived in .*archive, but .*empty holds them up to 0 only"):
        archive(again.store, tmp_path / "empty", before=np.inf, size=10)
    archive(again.store, tmp_path / "elsewhere", before=np.inf, size=10)
    assert site.is_whole()


def test_what_is_open_is_recorded_later_and_then_leaves(template, either_place, tmp_path):
    site = Site(either_place, template)
    site.archive(tmp_path)
    again = fresh(site)
    assert again.status().open == 2 and again.status().waiting > 20
    assert not again.record(site.open.decision_id, 0.3, site.plant.measure(0, site.open.feature)).repeated
    assert again.status().waiting < 20
    assert again.record(
        site.open.decision_id, 0.3, again.store.find(f"outcome:{site.open.decision_id}").body["cost"]
    ).repeated
    again.snapshot()
    site.plant.play(again, 8)
    site.archive(tmp_path)
    assert site.store.archived() == 60 and 5 in site.rows()  # its outcome is entry 65
    site.plant.play(again, 4)
    again.snapshot()
    site.plant.play(again, 6)
    site.archive(tmp_path)
    assert site.store.archived() == 80 and 5 not in site.rows() and 65 not in site.rows()
    assert site.store.find(decision_key(site.open.decision_id)) is None and site.is_whole()


def test_an_outcome_of_what_was_archived_counts_for_nothing_however_it_comes(template, sqlite_place, tmp_path):
    """Also from a process that has the decision at hand, and from one that had slept: its entry has no effect."""
    site = Site(sqlite_place, template)
    closed = next(entry for entry in site.whole if entry.kind == "outcome")
    id = closed.body["decision_id"]
    outcomes = site.advisor._outcomes
    outcomes.expect(outcomes.decision(id), 0)  # another process recorded its outcome
    site.archive(tmp_path)
    before = site.advisor.replica.learner.model_hash(0), summary(site.store)
    with pytest.raises(UnknownDecision, match="archived with its outcome"):
        site.advisor.record(id, 0.9, (0.01,))
    second = OutcomeRecorded.read(closed).model_copy(update={"cost": (0.01,)})
    assert site.store.append([second.draft()])[0].fresh
    site.advisor.sync()
    assert site.advisor.replica.learner.model_hash(0) == before[0]
    assert site.advisor.status().outcomes == before[1].counts.outcomes
    assert fresh(site).status().outcomes == before[1].counts.outcomes


def test_only_old_entries_leave_and_the_last_file_full_stays(template, sqlite_place, tmp_path):
    site = Site(sqlite_place, template)
    done = site.archive(tmp_path, before=site.whole[0].time)
    assert done.files == 0 and done.why_no_more == "entry 1 is younger than what is to be moved"
    assert site.archive(tmp_path / "other", size=60).why_no_more.startswith("the newest snapshot follows entry 53")
    assert site.archive(tmp_path / "other", size=40).why_no_more == "the last 40 entries stay in the log"


def test_without_a_snapshot_nothing_is_moved(sqlite_place, tmp_path):
    advisor = live_advisor(problem(), sqlite_place.open())
    with pytest.raises(InputError, match="no snapshot to go on from"):
        archive(advisor.store, tmp_path, before=np.inf, size=1)


def test_rows_that_are_not_archived_cannot_be_deleted(template, either_place, tmp_path):
    site = Site(either_place, template)
    for entries in (site.whole[:1], site.whole[-1:]):
        with pytest.raises(StoreError, match="append-only"):
            site.store.delete_archived(entries)
        site.archive(tmp_path)
    with pytest.raises(StoreError, match="append-only"):
        site.store.delete_archived(site.whole[50:51])
    assert 51 in site.rows()


def test_imported_rows_stay_and_count_once(sqlite_place, tmp_path):
    advisor = live_advisor(problem(), sqlite_place.open(), mode="shadow")
    rows, costs = [problem().look_up(0).actions.phi_0] * 2, [0.1, 0.2]
    assert advisor.warm_start(rows, costs) == 2
    Plant(WORLD.true_gamma).play(advisor, 12)
    advisor.snapshot()
    Plant(WORLD.true_gamma).play(advisor, 12)
    assert archive(advisor.store, tmp_path, before=np.inf, size=10).last == 20
    assert advisor.warm_start([*rows, rows[0]], [*costs, 0.3], duplicates="drop") == 1


# Killed anywhere


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def crash(monkeypatch, target, name, calls):
    """Let a function work `calls` times, and die after that."""
    real, count = getattr(target, name), [0]

    def dies(*arguments, **named):
        if count[0] == calls:
            raise Killed
        count[0] += 1
        return real(*arguments, **named)

    monkeypatch.setattr(target, name, dies)


@pytest.mark.parametrize(
    ("target", "name", "calls"),
    [
        (Archive, "write", 0),
        (Archive, "write", 3),
        (SqlStore, "append", 0),
        (SqlStore, "set_archived", 0),
        (SqlStore, "delete_archived", 0),
        (SqlStore, "delete_archived", 1),
    ],
)
def test_a_run_that_is_killed_loses_and_doubles_nothing(
    target, name, calls, template, either_place, tmp_path, monkeypatch
):
    site = Site(either_place, template)
    monkeypatch.setattr(archives, "AT_ONCE", 7)
    with monkeypatch.context() as patch:
        crash(patch, target, name, calls)
        with pytest.raises(Killed):
            site.archive(tmp_path)
        assert site.store.read(0, 100) == site.place.open().read(0, 100) != []
    assert site.is_whole()
    again = fresh(site)
    site.plant.play(again, 2)
    site.archive(tmp_path)
    assert site.store.archived() == 50 and site.rows()[:5] == [1, 2, 5, 50, 51] and site.is_whole()


ARCHIVER = """
import sys
from pathlib import Path
from tether.live import archive as archives
from tether.live.log import open_store
archives.AT_ONCE = 3
print("ready", flush=True)
store, folder = open_store(sys.argv[1]), Path(sys.argv[2])
archives.archive(store, folder, before=float("inf"), key=b"sixteen bytes at least", size=10)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_beside_a_writer_loses_nothing(template, tmp_path):
    site, moments = Site(SqlitePlace(tmp_path / "log.db"), template), random.Random(1)
    site.archive(tmp_path / "archive")
    for _ in range(25):
        site.plant.play(site.advisor, 10)
        site.advisor.snapshot()
        site.plant.play(site.advisor, 5)
        run = subprocess.Popen(
            [sys.executable, "-c", ARCHIVER, str(tmp_path / "log.db"), str(tmp_path / "archive")],
            stdout=subprocess.PIPE,
        )
        run.stdout.readline()
        site.plant.play(site.advisor, 1)
        time.sleep(moments.uniform(0.0, 0.05))
        run.send_signal(signal.SIGKILL)
        run.wait()
        site.plant.play(site.advisor, 1)
        site.whole += site.store.read(site.whole[-1].seq, 10**6)
        assert site.is_whole()
    site.archive(tmp_path / "archive")
    assert site.store.archived() > 500 and site.is_whole()


# Tampering


def fault_of(store, **more):
    """What verification says against a log; empty if nothing."""
    fault = verify_store(store, **more).fault
    return "" if fault is None else fault.why


def test_an_altered_file_is_found_by_the_entry_that_it_spoils(template, sqlite_place, tmp_path):
    import gzip

    site = Site(sqlite_place, template)
    site.archive(tmp_path)
    file = Archive(tmp_path, site.store.identity()).files()[1]
    lines = gzip.decompress(file.path.read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    rows[4][3] = rows[4][3].replace("0", "1", 1)
    file.path.chmod(0o600)
    file.path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    fault = verify_store(site.place.open()).fault
    assert fault.seq == 14 and "altered" in fault.why
    file.path.write_bytes(file.path.read_bytes()[:-40])
    assert "altered or damaged" in fault_of(site.place.open())


def test_a_file_that_was_compressed_anew_is_not_the_one_that_was_signed(template, sqlite_place, tmp_path):
    import gzip

    site = Site(sqlite_place, template)
    site.archive(tmp_path)
    file = Archive(tmp_path, site.store.identity()).files()[0]
    file.path.chmod(0o600)
    file.path.write_bytes(gzip.compress(gzip.decompress(file.path.read_bytes()), 1))
    store = site.place.open()
    assert verify_store(store).fault is None
    assert "its bytes differ" in fault_of(store, also=checker(store))


def test_an_archive_without_the_keys_signature_is_found(template, sqlite_place, tmp_path):
    site = Site(sqlite_place, template)
    site.archive(tmp_path)
    for key, fault in ((KEY, ""), (b"another key of 24 bytes.", "not signed with this key"), (None, "")):
        found = fault_of(site.store, also=checker(site.store, key))
        assert fault in found and bool(fault) == bool(found)


def test_what_remains_in_the_log_must_be_what_the_archive_holds(template, sqlite_place, tmp_path):
    site = Site(sqlite_place, template)
    site.archive(tmp_path)
    site.place.rewrite(5, time=1.0)
    assert "not the one in the archive" in fault_of(site.place.open())
    other = Site(SqlitePlace(tmp_path / "other.db"), template)
    other.archive(tmp_path)
    other.place.forget_key(decision_key(other.open.decision_id))
    assert "index of keys points at entry None" in fault_of(other.place.open())


def test_an_edited_problem_is_refused_by_the_decisions_that_are_left(template, sqlite_place, tmp_path):
    site = Site(sqlite_place, template)
    site.archive(tmp_path / "archive")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    assert check_decisions(site.store, problem(), StateCodec())
    with pytest.raises(InputError, match="not the one that the log was written for"):
        check_decisions(site.store, world_and_streams(4, horizon=1)[0].problem, StateCodec())


def test_the_command_archives_verifies_and_exports(template, tmp_path, monkeypatch):
    site = Site(SqlitePlace(tmp_path / "log.db"), template)
    monkeypatch.setattr(archives, "archive", lambda *given, **more: archive(*given, **more, size=10))
    (tmp_path / "key").write_bytes(KEY)
    monkeypatch.setenv("TETHER_ARCHIVE_KEY", str(tmp_path / "key"))
    log, to = str(tmp_path / "log.db"), str(tmp_path / "files")

    def run(*arguments):
        return CliRunner().invoke(app, ["audit", *arguments])

    done = run("archive", log, "--to", to)
    assert done.exit_code == 0 and "Nothing was moved" in done.output and "younger" in done.output
    done = run("archive", log, "--to", to, "--keep", "0")
    assert done.exit_code == 0 and "Entries 1 to 50 are in" in done.output and "from entry 53" in done.output
    done = run("verify", log)
    assert done.exit_code == 0 and "63 entries (50 of them in the archive), none altered" in done.output
    assert "checkpoints" in run("replay", log, "--problem", f"{HERE}:problem").output
    (tmp_path / "key").write_bytes(b"another key of 24 bytes.")
    assert run("verify", log).exit_code == 1
    (tmp_path / "key").write_bytes(b"short")
    assert run("verify", log).exit_code == 2
    assert export(site.store, tmp_path / "tables") == {"decision": 31, "outcome": 29}


def test_the_dashboard_counts_what_is_archived(template, sqlite_place, tmp_path):
    from tether.service.views import Journal

    site = Site(sqlite_place, template)
    site.archive(tmp_path)
    journal = Journal(fresh(site))
    found = journal.series(0, 100)
    assert len(journal.rows) == 6 and found["total"] == 31 and found["before"] is None
    assert journal.history[0]["text"] == "entries up to 50 are in the archive"
