"""Disk full, database gone, silent or stopped, clocks that jump: the safe action or a clear refusal, then recovery.

All of it by HTTP, to one service that is never restarted, on real files, a really full disk and a real PostgreSQL.
"""

import itertools
import os
import resource
import signal
import time
from contextlib import contextmanager

import psycopg
import pytest
from service_app import decide, new_advisor, plain_client, record, serving, until  # also puts tests/ on the path
from test_service_processes import configured, served

from live.postgres import _children  # isort: skip

from tether.live.log.chain import verify_store
from tether.live.log.memory import MemoryStore
from tether.live.log.postgres import PostgresStore
from tether.live.log.sqlite import SqliteStore
from tether.live.policy import Guards

SCHEMAS = itertools.count()


def named(prefix="d"):
    """Ids of decisions that tell their order."""
    return map(f"{prefix}{{}}".format, itertools.count()).__next__


def learn(client, count=60):
    """Outcomes enough for decisions other than a_0."""
    for number in range(count):
        assert record(client, decide(client, number % 4)).status_code == 200
    assert not decide(client)["is_baseline"]


def begun(client):
    """Ids of decisions that were acknowledged, and the last of them, whose outcome is still to come."""
    made = [decide(client) for _ in range(6)]
    return [decision["id"] for decision in made], made[-1]


def ask(client, **headers):
    return client.post("/v1/decisions", json={"state": 0}, headers=headers)


def assert_safe_and_unlogged(answer):
    told = answer.json()
    assert answer.status_code == 503 and told["logged"] is False and told["id"] == "" and told["seq"] == 0, answer.text
    assert told["is_baseline"] and told["action"] == {"ray": -1, "length": 0.0} and told["reason"] == "not-logged"
    assert told["certificate"]["is_baseline"] and told["proposal"] is None


def assert_refused(answer):
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "action" not in answer.json()
    assert "try again" in answer.json()["detail"].lower()


def assert_out(client, made, how="baseline"):
    """Nothing is acknowledged, the process lives, and whoever asks is told."""
    for _ in range(2):
        (assert_safe_and_unlogged if how == "baseline" else assert_refused)(ask(client))
        assert_refused(record(client, made))
    assert client.get("/healthz").status_code == 200
    assert "tether_" in client.get("/metrics").text
    status = client.get("/v1/status")
    assert status.status_code == 503 or status.json()["store_error"]


def assert_recovered(client, made, advisor, acknowledged):
    """All goes on: the outcome that was refused counts once, and the log holds what was acknowledged, no more."""
    assert client.get("/readyz").status_code == 200
    assert record(client, made).json()["repeated"] is False
    assert record(client, made).json()["repeated"] is True
    acknowledged.append(decide(client)["id"])
    assert_logged_once(advisor.store, acknowledged)
    assert client.get("/v1/status").json()["store_error"] == ""


def assert_logged_once(store, acknowledged, outcomes=1):
    entries = store.read(0, 10_000)
    assert [entry.body["decision_id"] for entry in entries if entry.kind == "decision"] == acknowledged
    counted = [entry.body["decision_id"] for entry in entries if entry.kind == "outcome"]
    assert len(counted) == len(set(counted)) == outcomes
    assert verify_store(store).fault is None


def fill(path):
    """A file that takes all the space there is."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            return


@pytest.mark.parametrize("how", ["baseline", "refuse"])
def test_a_full_disk_stops_what_is_written_not_what_is_read_until_there_is_space_again(small_disk, how):
    advisor = new_advisor(small_disk / "log.db", when_store_fails=how, ids=named())
    with serving(advisor) as client:
        acknowledged, made = begun(client)
        for _ in range(2):
            fill(small_disk / "ballast")
            assert_out(client, made, how)
            status = client.get("/v1/status").json()
            assert status["counts"]["decisions"] == len(acknowledged) and "full" in status["store_error"]
            (small_disk / "ballast").unlink()
            acknowledged.append(decide(client)["id"])
        assert_recovered(client, made, advisor, acknowledged)


def test_a_full_disk_under_a_process_of_its_own(tmp_path):
    """Its files may not grow any more, as under a quota; for this nobody needs to be root."""
    address = configured(tmp_path, snapshot_every=10)
    with served(tmp_path, address) as process, plain_client(address) as client:
        made = decide(client)
        acknowledged = [made["id"]]
        none = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        size = sum(file.stat().st_size for file in tmp_path.glob("decisions.db-wal"))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, none[1]))
        assert_out(client, made)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, none)
        store = SqliteStore(tmp_path / "decisions.db", read_only=True)
        assert record(client, made).json()["repeated"] is False
        acknowledged.extend(decide(client)["id"] for _ in range(3))
        assert_logged_once(store, acknowledged)
        store.close()


@pytest.mark.parametrize("how", ["baseline", "refuse"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_is_taken_away_is_missed_and_its_return_is_recovery(tmp_path, what, how):
    home = tmp_path / "home"
    home.mkdir()
    advisor = new_advisor(home / "log.db", when_store_fails=how, ids=named())
    lost, away = (home / "log.db" if what == "file" else home), tmp_path / "away"
    with serving(advisor) as client:
        acknowledged, made = begun(client)
        for _ in range(2):
            lost.rename(away)
            assert_out(client, made, how)
            assert not lost.exists(), "nothing is quietly made anew"
            away.rename(lost)
            acknowledged.append(decide(client)["id"])
        assert_recovered(client, made, advisor, acknowledged)


def posted(database, schema):
    """A log on the server, with little patience, so that tests need not wait."""
    return PostgresStore(database.address, schema=schema, patience=1.0)


@contextmanager
def hanging(database):
    """Every process of the server stands still: connections stay, new ones are accepted, and nothing is answered."""
    os.kill(database.process.pid, signal.SIGSTOP)  # first: from here on it starts no others
    pids = [*_children(database.process.pid), database.process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(database):
    database.stop()
    try:
        yield
    finally:
        database.start()


def until_it_answers(client):
    """The first decision that is logged again: soon, but a service may have to find out first."""
    answers = []

    def answered():
        answers.append(ask(client))
        assert answers[-1].status_code in (200, 503), answers[-1].text
        return answers[-1].status_code == 200

    until(answered)
    return answers[-1].json()["id"]


@pytest.mark.parametrize("outage", [stopped, hanging])
@pytest.mark.parametrize("how", ["baseline", "refuse"])
def test_a_server_that_is_gone_or_hangs_is_missed_and_its_return_is_recovery(database, outage, how):
    store = posted(database, f"one_{next(SCHEMAS)}")
    advisor = new_advisor(store, when_store_fails=how, ids=named())
    with serving(advisor) as client:
        acknowledged, made = begun(client)
        for _ in range(2):
            with outage(database):
                assert_out(client, made, how)
                assert client.get("/readyz").status_code == 503
            acknowledged.append(until_it_answers(client))
        assert_recovered(client, made, advisor, acknowledged)


def test_a_server_that_hangs_is_waited_for_once_not_by_every_request(database):
    """Some of the waiting is done on the event loop, so that each request that waits would hold up all others."""
    with serving(new_advisor(posted(database, f"many_{next(SCHEMAS)}"))) as client:
        decide(client)
        with hanging(database):
            began = time.monotonic()
            for _ in range(40):  # 80 s, if each found out for itself
                assert_safe_and_unlogged(ask(client))
            assert time.monotonic() - began < 40
        until_it_answers(client)


@pytest.mark.parametrize("outage", [stopped, hanging])
def test_two_services_on_one_server_come_back_to_one_log(database, outage):
    schema = f"two_{next(SCHEMAS)}"
    one = new_advisor(posted(database, schema), refresh=0.0, ids=named("one"))
    two = new_advisor(posted(database, schema), refresh=0.0, ids=named("two"), mode="shadow")
    with serving(one) as here, serving(two) as there:
        made = [decide(here), decide(there)]
        with outage(database):
            for client in (here, there):  # each is told of the other's decision, which it must look up in the log
                for decision in made:
                    assert_refused(record(client, decision))
                assert_out(client, made[0])
        acknowledged = [*(decision["id"] for decision in made), until_it_answers(here), until_it_answers(there)]
        for decision in made:
            assert [record(client, decision).json()["repeated"] for client in (here, there)] == [False, True]
        seen = [client.get("/v1/status").json() for client in (here, there)]
        assert seen[0]["head"] == seen[1]["head"] and seen[0]["model_hash"] == seen[1]["model_hash"]
        assert_logged_once(one.store, acknowledged, outcomes=2)


@pytest.mark.parametrize("pipelines", [True, False])
def test_a_commit_whose_answer_never_comes_is_not_acknowledged_and_not_made_twice(database, monkeypatch, pipelines):
    """The server stops right before it is asked to commit, and may do so when it goes on: nobody may have been told.

    Without pipelines it was sent everything else before, and does commit.
    """
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: pipelines)
    store = posted(database, f"fate_{next(SCHEMAS)}")
    advisor, commit, pauses = new_advisor(store, ids=named()), store._commit, []
    with serving(advisor) as client:
        learn(client)
        before = len(store.read(0, 10_000))

        def commit_into_the_void(connection):
            store._commit = commit
            pauses.append(hanging(database))
            pauses[0].__enter__()
            commit(connection)

        store._commit = commit_into_the_void
        try:
            assert_safe_and_unlogged(ask(client, **{"Idempotency-Key": "k"}))
        finally:
            pauses[0].__exit__(None, None, None)
        until_it_answers(client)
        first, second = (ask(client, **{"Idempotency-Key": "k"}).json() for _ in range(2))
        assert first == second and first["logged"]
        keyed = [entry for entry in store.read(0, 10_000) if entry.body.get("key") == "k"]
        assert [entry.body["decision_id"] for entry in keyed] == [first["id"]]
        assert pipelines or (keyed[0].seq, first["id"]) == (before + 1, "d61")
        assert verify_store(store).fault is None


class Clock:
    """The time, as the service and its log believe it."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@contextmanager
def timed(clock, max_age=5.0):
    """A service that has learned, and its log; the clock is the service's and the log's."""
    store = MemoryStore(clock=clock)
    advisor = new_advisor(store, clock=clock, guards=Guards(max_age=max_age), ids=named())
    with serving(advisor) as client:
        for number in range(60):
            record(client, decide(client, number % 4, observed_at=clock.now))
        assert not decide(client, observed_at=clock.now)["is_baseline"]
        yield client, store
        entries = store.read(0, 10_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert verify_store(store).fault is None


def assert_stale(made, words):
    assert made["logged"] and made["is_baseline"] and made["reason"] == "stale-input" and words in made["detail"]
    assert made["certificate"]["is_baseline"] and made["certificate"]["limits"][0]["margin"] >= 0.0


def test_a_clock_that_jumps_back_gives_the_safe_action_until_it_is_right_again():
    clock = Clock()
    with timed(clock) as (client, store):
        clock.now -= 600.0
        for observed in (clock.now, clock.now + 600.0, None):
            made = decide(client, observed_at=observed)
            assert_stale(made, "went back")
            assert record(client, made).json()["repeated"] is False
        last = store.read(made["seq"] - 1, 1)[0]
        assert last.time == clock.now, "the log says what the clock said; its order is that of its numbers"
        clock.now += 601.0
        assert not decide(client, observed_at=clock.now)["is_baseline"]


def test_a_clock_that_jumps_far_ahead_makes_inputs_stale_and_is_believed_where_they_agree():
    clock = Clock()
    with timed(clock) as (client, _):
        right, clock.now = clock.now, 4e9
        assert_stale(decide(client, observed_at=right), "s ago")
        ahead = decide(client, observed_at=clock.now)
        assert not ahead["is_baseline"] and record(client, ahead).status_code == 200
        clock.now = right
        assert_stale(decide(client, observed_at=right), "went back")
        clock.now = 4e9 + 1.0
        assert not decide(client, observed_at=clock.now)["is_baseline"]


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -float("inf")])
def test_a_clock_that_says_nothing_lets_nothing_be_logged_until_it_is_right_again(nonsense):
    clock = Clock()
    with timed(clock) as (client, store):
        made = decide(client, observed_at=clock.now)
        right, clock.now, before = clock.now, nonsense, store.head()
        assert_out(client, made)
        assert store.head() == before
        clock.now = right
        assert record(client, made).json()["repeated"] is False
        assert not decide(client, observed_at=right)["is_baseline"]


def test_without_an_age_limit_no_clock_changes_a_decision():
    clock = Clock()
    with timed(clock, max_age=None) as (client, store):
        right, plain = clock.now, decide(client)
        for now in (right - 1e6, 4e9, right):
            clock.now = now
            made = decide(client)
            assert [made[name] for name in ("action", "reason")] == [plain[name] for name in ("action", "reason")]
        store._clock, clock.now = lambda: right, float("nan")  # the service's own clock alone
        made = decide(client)
        assert made["action"] == plain["action"] and client.get(f"/v1/decisions/{made['id']}").status_code == 200
