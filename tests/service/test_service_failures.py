"""When the log fails, is slow or full, or the caller hangs up: the safe action or a clear refusal, then recovery."""

import json
import socket
import sqlite3
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_app import PROBLEM, decide, new_advisor, record, serving, until

from live.test_half_way import Shop, played
from tether import SlucbConfig
from tether.errors import AlteredLog, InputError, StoreError
from tether.kernels import plan
from tether.live import batches, following
from tether.live.judge import judge
from tether.live.log.chain import Draft, verify_store
from tether.live.log.memory import MemoryStore
from tether.service.hub import Hub


class Moody(MemoryStore):
    """A log in memory that fails or waits when told to."""

    def __init__(self):
        super().__init__()
        self.error, self.open = None, threading.Event()
        self.open.set()

    def append(self, drafts):
        self.open.wait(60)
        if self.error is not None:
            raise self.error
        return super().append(drafts)

    def head(self):
        if self.error is not None:
            raise self.error
        return super().head()

    def read(self, after=0, limit=1000):
        if self.error is not None:
            raise self.error
        return super().read(after, limit)


@pytest.fixture
def store():
    return Moody()


def settled(advisor):
    """Wait until nothing is under way any more, and everything in the log was taken."""
    until(lambda: advisor._follower.in_flight == 0 and advisor.replica.head == advisor.store.head())
    return True


def learn(client, count=60):
    for number in range(count):
        record(client, decide(client, number % 4))


@pytest.mark.parametrize("error", [StoreError("the disk is full"), sqlite3.ProgrammingError("of another kind")])
def test_a_decision_that_cannot_be_logged_is_the_safe_action_and_says_so(store, error):
    advisor = new_advisor(store)
    with serving(advisor) as client:
        learn(client)
        assert not decide(client)["is_baseline"]
        kept, store.error = record(client, decide(client)), error
        answer = client.post("/v1/decisions", json={"state": 0})
        told = answer.json()
        assert answer.status_code == 503 and told["logged"] is False and told["id"] == "" and told["seq"] == 0
        assert told["is_baseline"] and told["action"] == {"ray": -1, "length": 0.0} and told["reason"] == "not-logged"
        assert told["certificate"]["is_baseline"] and told["proposal"] is None
        assert record(client, told).status_code == 422
        assert client.get("/readyz").status_code == 503 and client.get("/healthz").status_code == 200
        store.error = None
        assert kept.status_code == 200 and decide(client)["logged"] and client.get("/readyz").status_code == 200
        assert settled(advisor) and verify_store(store).fault is None


def test_with_refuse_nothing_is_answered_without_a_log_and_the_address_stays_unsaid(store):
    advisor = new_advisor(store, when_store_fails="refuse")
    with serving(advisor) as client:
        made = decide(client)
        for error in (StoreError, sqlite3.ProgrammingError):
            store.error = error("postgresql://user:secret@host is gone")
            for answer in (client.post("/v1/decisions", json={"state": 0}), record(client, made)):
                assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
                assert "secret" not in answer.text and "try again" in answer.json()["detail"]
        store.error = None
        assert record(client, made).json()["repeated"] is False
        assert settled(advisor) and advisor.status().outcomes == 1


def test_an_altered_log_stops_decisions_altogether(store):
    with serving(new_advisor(store)) as client:
        store.error = AlteredLog("entry 2 was altered", 2)
        answer = client.post("/v1/decisions", json={"state": 0})
        assert answer.status_code == 503 and "action" not in answer.json() and "not what was written" in answer.text
        store.error = None


def test_a_log_that_is_too_slow_gives_a_time_out_and_the_same_key_finds_the_decision_later(store):
    advisor = new_advisor(store)
    with serving(advisor, limits={"seconds": 1.5}) as client:
        store.open.clear()
        answer = client.post("/v1/decisions", json={"state": 1}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 503 and "same Idempotency-Key" in answer.json()["detail"]
        store.open.set()
        assert settled(advisor)
        assert advisor.status().decisions == 1
        again = decide(client, 1, key="k")
        assert again["logged"] and advisor.status().decisions == 1


def test_a_caller_that_hangs_up_leaves_nothing_half_done(store):
    advisor = new_advisor(store)
    with serving(advisor) as client:
        made = decide(client)
        store.open.clear()
        body = json.dumps({"decision_id": made["id"], "reward": 0.5, "cost": 0.2}).encode()
        with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
            head = "POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}"
            line.sendall(head.encode() + b"\r\n\r\n" + body)
            until(lambda: advisor._follower.in_flight)
        with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
            line.sendall(head.encode() + b"\r\n\r\n" + body[:5])
        store.open.set()
        assert settled(advisor) and advisor.status().outcomes == 1
        assert record(client, made, cost=0.2).json()["repeated"] is True


def test_when_too_many_wait_the_rest_is_answered_at_once(store):
    advisor = new_advisor(store, when_store_fails="refuse")
    with serving(advisor, limits={"waiting": 3}) as client:
        store.open.clear()
        answers = []
        lines = [
            threading.Thread(target=lambda: answers.append(client.post("/v1/decisions", json={"state": 0})))
            for _ in range(12)
        ]
        for line in lines:
            line.start()
        until(lambda: len(answers) >= 5)
        assert {answer.status_code for answer in answers} == {503}
        store.open.set()
        for line in lines:
            line.join(60)
        good = [answer for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} == {200, 503} and len(answers) == 12
        assert len(good) == advisor.status().decisions >= 3
        assert settled(advisor)


def test_requests_that_arrive_together_share_batches_and_each_gets_its_own_answer(store, monkeypatch):
    advisor, sizes, arrived = new_advisor(store), [], []
    append, decided = store.append, Hub.decide
    monkeypatch.setattr(Hub, "decide", lambda *asked: (arrived.append(asked), decided(*asked))[1])
    store.append = lambda drafts: (sizes.append(len(drafts)), append(drafts))[1]
    with serving(advisor) as client:
        store.open.clear()
        found = {}

        def ask(number):
            found[number] = decide(client, number % 4, episode=number)

        lines = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
        for line in lines:
            line.start()
        until(lambda: len(arrived) == 24)
        store.open.set()
        for line in lines:
            line.join(60)
    assert sum(sizes) == 24 and len(sizes) <= 6
    assert {made["episode"]: number for number, made in found.items()} == {number: number for number in range(24)}
    assert sorted(made["seq"] for made in found.values()) == list(range(3, 27))


def test_a_bug_in_a_view_is_a_500_that_tells_nothing_and_is_in_the_log(store, caplog):
    advisor = new_advisor(store)
    with serving(advisor) as client:
        advisor.store.find = None
        answer = client.get("/v1/decisions/some")
        assert answer.status_code == 500 and answer.json()["detail"].startswith("this should not happen")
    assert answer.json()["request_id"] in caplog.text and "TypeError" in caplog.text


def test_a_restart_keeps_decisions_keys_mode_and_what_was_learned(tmp_path):
    path = tmp_path / "log.db"
    with serving(new_advisor(path)) as client:
        learn(client, 20)
        first = decide(client, 2, key="k")
        client.post("/v1/stop", json={"why": "for the night"})
        before = client.get("/v1/status").json()
    advisor = new_advisor(path, mode="shadow", problem=PROBLEM)
    with serving(advisor) as client:
        after = client.get("/v1/status").json()
        for name in ("mode", "head", "data_version", "model_hash", "counts", "stopped"):
            assert after[name] == before[name], name
        again = client.post("/v1/decisions", json={"state": 2}, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["reason"], again.json()["id"]) == (503, "stopped", "")
        assert again.json()["is_baseline"] and not first["is_baseline"], "what was decided before does not leave now"
        assert record(client, first).json()["repeated"] is False
        assert record(client, first).json()["repeated"] is True
        assert decide(client, 2)["reason"] == "stopped"
        client.post("/v1/resume", json={"why": "morning"})
        assert decide(client, 2, key="k") == first


def test_two_services_on_one_log_count_once_and_the_switch_of_one_stops_the_other_at_once(tmp_path):
    path = tmp_path / "log.db"
    one, two = new_advisor(path, refresh=0.0), new_advisor(path, refresh=0.0, mode="shadow")
    with serving(one) as here, serving(two) as there:
        for number in range(40):
            decision = decide((here, there)[number % 2], 0)
            assert record((there, here)[number % 2], decision).json()["repeated"] is False
            assert record((here, there)[number % 2], decision).json()["repeated"] is True
        assert not decide(here)["is_baseline"] and not decide(there)["is_baseline"]
        here.post("/v1/stop", json={"why": "a test"})
        assert decide(there)["reason"] == "stopped"
        there.post("/v1/resume", json={"why": "a test"})
        assert decide(here)["reason"] != "stopped"
        assert decide(here, 1, key="k")["id"] == decide(there, 1, key="k")["id"]
        seen = [client.get("/v1/status").json() for client in (here, there)]
        assert seen[0]["head"] == seen[1]["head"] and seen[0]["model_hash"] == seen[1]["model_hash"]
        assert seen[0]["data_version"] == 40
        fault = verify_store(one.store).fault
    assert fault is None


def metrics_of(client):
    """(name, labels) -> value."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labels = tuple(sorted((name, value) for name, value in sample.labels.items()))
            found[sample.name, labels] = sample.value
    return found


def test_metrics_of_what_the_log_knows_are_the_same_in_all_processes_on_it(tmp_path):
    path = tmp_path / "log.db"
    with serving(new_advisor(path)) as here, serving(new_advisor(path, mode="shadow")) as there:
        learn(here, 3)
        here.post("/v1/stop", json={"why": "a test"})
        seen = [metrics_of(client) for client in (here, there)]
        for name, value in {
            "tether_stopped": 1,
            "tether_outcomes_learned_total": 3,
            "tether_outcomes_total": 3,
        }.items():
            assert [each[name, ()] for each in seen] == [value, value], name
        for key in [("tether_log_entries_total", ()), ("tether_mode", (("mode", "live"),)), *PLAYED]:
            assert seen[0][key] == seen[1][key], key
        assert [sum(each[key] for key in PLAYED) for each in seen] == [3, 3]


PLAYED = [("tether_decisions_total", (("played", played),)) for played in ("baseline", "other")]


def test_metrics_are_told_while_the_log_is_out_of_reach_and_say_so(store):
    with serving(new_advisor(store)) as client:
        learn(client, 2)
        assert metrics_of(client)["tether_log_failed", ()] == 0
        store.error = StoreError("gone")
        told = metrics_of(client)
        assert told["tether_log_failed", ()] == 1 and told["tether_outcomes_learned_total", ()] == 2
        store.error = None


def told_by_the_service(caplog):
    """What the service logged, apart from the question at its start."""
    told = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "tether.service"]
    return [(level, said) for level, said in told if not said.startswith("lost_after is not set")]


def test_readers_scrapes_and_stops_are_answered_while_the_problems_functions_fail(monkeypatch):
    """Else neither the dashboard nor the alert could say so, and whoever orders a stop would be told that it failed."""
    monkeypatch.setattr(plan, "KEPT_NUMBERS", 0)  # a plan asks for the actions of visited states anew
    monkeypatch.setattr(following, "RETRY_AFTER", 60.0)
    shop = Shop()
    advisor = played(shop, config=SlucbConfig(backup="lean", replan="every-episode"))
    with serving(advisor) as client:
        made = decide(client, 7)
        shop.fails, shop.only = True, 10
        assert client.post("/v1/outcomes", json={"decision_id": made["id"], "reward": 0.5, "cost": 0.1}).is_success
        assert client.get("/readyz").status_code == 503
        scraped = {each.name: each for each in text_string_to_metric_families(client.get("/metrics").text)}
        assert scraped["tether_problem_failed"].samples[0].value == 1.0
        told = client.get("/v1/status")
        assert told.status_code == 200 and "ConnectionError" in told.json()["store_error"]
        assert client.get("/v1/decisions").json()["decisions"][0]["id"] == made["id"]
        stopped = client.post("/v1/stop", json={"why": "smoke"})
        assert stopped.status_code == 200 and stopped.json()["stopped"]["why"] == "smoke"
        assert client.post("/v1/decisions", json={"state": 8}).json()["is_baseline"]
        shop.fails = False
        assert client.get("/v1/status").json()["store_error"] == ""
        assert decide(client, 8)["reason"] == "stopped"


def test_a_log_that_can_only_be_read_makes_it_not_ready_and_is_in_its_own_log_once(tmp_path, caplog):
    path, away = tmp_path / "secret.db", tmp_path / "away"
    caplog.set_level("INFO", "tether.service")
    with serving(new_advisor(path)) as client:
        made = decide(client)
        path.rename(away)
        for _ in range(3):
            answer = client.post("/v1/decisions", json={"state": 0})
            assert answer.status_code == 503 and answer.json()["reason"] == "not-logged"
            assert "secret.db" not in answer.text and "safe action" in answer.json()["detail"]
            assert answer.json()["certificate"]["detail"] == answer.json()["detail"]
            assert record(client, made).status_code == 503
        assert client.get("/readyz").status_code == 503 and "secret" not in client.get("/readyz").text
        ((level, said),) = told_by_the_service(caplog)
        assert level == "ERROR" and "secret.db is gone" in said
        away.rename(path)  # nobody who asks first sends a decision before it is ready
        assert client.get("/readyz").status_code == 200
        assert [level for level, _ in told_by_the_service(caplog)] == ["ERROR", "INFO"]
        assert decide(client)["logged"] and len(told_by_the_service(caplog)) == 2


def test_a_log_that_does_not_answer_makes_it_not_ready_until_it_does(store, caplog):
    advisor = new_advisor(store)
    with serving(advisor, limits={"seconds": 1.5}) as client:
        store.open.clear()
        assert client.post("/v1/decisions", json={"state": 1}).status_code == 503
        assert client.get("/readyz").status_code == 503
        assert [level for level, _ in told_by_the_service(caplog)] == ["ERROR"]
        store.open.set()
        assert settled(advisor) and client.get("/readyz").status_code == 200


def test_an_altered_log_is_in_the_services_own_log_and_no_try_makes_it_ready(store, caplog, monkeypatch):
    advisor = new_advisor(store)
    with serving(advisor) as client:

        def altered(*more, **named):
            raise AlteredLog("entry 2 was altered", 2)

        monkeypatch.setattr(batches, "judge", altered)
        assert client.post("/v1/decisions", json={"state": 0}).status_code == 503
        assert client.get("/readyz").status_code == 503 and client.get("/readyz").status_code == 503
        assert told_by_the_service(caplog)[0][1].endswith("entry 2 was altered")
        monkeypatch.undo()
        assert decide(client)["logged"] and client.get("/readyz").status_code == 200


def test_a_log_that_came_back_is_ready_although_no_snapshot_can_be_saved(store, monkeypatch):
    """A balancer that asks first would otherwise never send what shows that it can be used."""
    advisor = new_advisor(store)
    with serving(advisor) as client:
        store.error = StoreError("gone")
        assert client.post("/v1/decisions", json={"state": 0}).status_code == 503
        assert client.get("/readyz").status_code == 503

        def cannot_be_saved():
            raise InputError("a state cannot be rebuilt from its key")

        monkeypatch.setattr(advisor, "snapshot", cannot_be_saved)
        store.error = None
        assert client.get("/readyz").status_code == 200 and decide(client)["logged"]


def test_what_is_withheld_is_noted_by_the_next_batch_and_nobody_waits_for_it(store, monkeypatch):
    advisor = new_advisor(store)
    with serving(advisor) as client:
        learn(client, 60)
        state = next(state for state in range(4) if not decide(client, state)["is_baseline"])

        def slowly(replica, request):
            made = judge(replica, request)
            store.append([Draft("stopped", {"by": "somebody", "why": "smoke"})])  # another process, in between
            return made

        monkeypatch.setattr(batches, "judge", slowly)
        answer = client.post("/v1/decisions", json={"state": state})
        monkeypatch.undo()
        assert answer.status_code == 503 and answer.json()["reason"] == "stopped" and answer.json()["is_baseline"]
        until(lambda: store.read(0, 1000)[-1].kind == "withheld")
        assert [entry.kind for entry in store.read(0, 1000)][-3:] == ["stopped", "decision", "withheld"]
        assert settled(advisor)
