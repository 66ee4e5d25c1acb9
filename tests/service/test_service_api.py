"""The endpoints: decisions and outcomes, exactly once; what bad input is told; what readers and operators see."""

import json
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_app import PROBLEM, decide, new_advisor, record, serving

from limits import stated
from tether import Names
from tether.live.certificate import Certificate
from tether.live.policy import Criteria, Guards
from tether.problem.action_sets import FiniteActions
from tether.problem.problem import Problem
from tether.service.app import create_app
from tether.service.config import ServiceConfig
from tether.service.http import Endpoint, answer_of
from tether.service.models import DecisionAnswer

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def advisor():
    return new_advisor()


@pytest.fixture
def client(advisor):
    with serving(advisor) as found:
        yield found


@pytest.fixture(scope="module")
def shared():
    """A service that nothing in these tests may change: (client, advisor)."""
    advisor = new_advisor()
    with serving(advisor) as found:
        yield found, advisor


def learn(client, count=60):
    """So many decisions with their outcomes."""
    return [(record(client, made), made)[1] for made in (decide(client, n % 4) for n in range(count))]


def test_a_decision_carries_the_certificate_that_justifies_it_and_is_in_the_log(client, advisor):
    learn(client)
    made = decide(client, 1, step=0, episode="e", observed_at=time.time())
    certificate = Certificate.from_json(made["certificate"])
    assert certificate.holds and made["logged"] and made["mode"] == "live" and not made["is_baseline"]
    entry = advisor.store.read(made["seq"] - 1, 1)[0]
    assert entry.body["decision_id"] == made["id"] and entry.body["played"] == made["action"]
    assert Certificate.from_json(entry.body["certificate"]) == certificate
    assert certificate.limits[0].bound <= PROBLEM.threshold[0]


def test_an_outcome_is_counted_once_and_a_repeat_is_acknowledged(client, advisor):
    made = decide(client)
    first, again = record(client, made), record(client, made)
    assert first.json() == {"decision_id": made["id"], "seq": 4, "repeated": False}
    assert again.json() == {"decision_id": made["id"], "seq": 4, "repeated": True}
    assert advisor.status().outcomes == 1
    other = record(client, made, cost=0.3)
    assert other.status_code == 409 and "exactly once" in other.json()["detail"]
    assert advisor.status().outcomes == 1


def test_the_same_key_gets_the_same_decision_and_another_request_may_not_use_it(client, advisor):
    first = decide(client, 2, key="k-1")
    seq = advisor.store.head().seq
    assert decide(client, 2, key="k-1") == first and advisor.store.head().seq == seq
    assert decide(client, 2, key="k-2")["id"] != first["id"]
    taken = client.post("/v1/decisions", json={"state": 3}, headers={"Idempotency-Key": "k-1"})
    assert taken.status_code in (400, 409) and "another request" in taken.json()["detail"]


@pytest.mark.parametrize("applied", [{"ray": 1, "length": 0.25}, [0.2, 0.3, 0.5]])
def test_what_was_really_done_is_what_is_learned(client, advisor, applied):
    made = decide(client)
    assert record(client, made, applied=applied).status_code == 200
    entry = advisor.store.read(advisor.store.head().seq - 1, 1)[0]
    if isinstance(applied, dict):
        actions = PROBLEM.look_up(0).actions
        expected = actions.phi_0 + 0.25 * (actions.endpoints[1] - actions.phi_0)
    else:
        expected = applied
    np.testing.assert_allclose(entry.body["feature"], expected, rtol=0, atol=1e-15)


BAD = {
    "not JSON": (b"{", 422),
    "empty": (b"", 422),
    "no object": (b"[1]", 422),
    "no state": (b"{}", 422),
    "an unknown key": (b'{"state": 0, "stp": 1}', 422),
    "a step that is no integer": (b'{"state": 0, "step": "0"}', 422),
    "a step beyond the horizon": (b'{"state": 0, "step": 7}', 400),
    "a negative step": (b'{"state": 0, "step": -1}', 422),
    "an unknown state": (b'{"state": "nowhere"}', 400),
    "a state that is no number": (b'{"state": NaN}', 400),
    "an infinite state": (b'{"state": 1e999}', 400),
    "a deep state": (b'{"state": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422),
    "a huge integer": (b'{"state": ' + b"9" * 4000 + b"}", 400),
    "an observation at no time": (b'{"state": 0, "observed_at": NaN}', 422),
    "an episode that is an object": (b'{"state": 0, "episode": {}}', 422),
    "half a character": (b'{"state": "\\ud800"}', None),
    "bytes that are no text": (b'{"state": "\xff"}', 422),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_for_decisions_are_refused_in_words_and_change_nothing(shared, name):
    (client, advisor), (body, status) = shared, BAD[name]
    before = advisor.store.head()
    answer = client.post("/v1/decisions", content=body, headers=JSON)
    assert answer.status_code == status or (status is None and 400 <= answer.status_code < 500), answer.text
    told = answer.json()
    assert told["status"] == answer.status_code and told["detail"] and told["request_id"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert advisor.store.head() == before and advisor._follower.in_flight == 0


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"decision_id": "nobody's"}, 404),
        ({"decision_id": "\x00"}, 404),
        ({"decision_id": ""}, 422),
        ({"reward": None}, 422),
        ({"cost": "much"}, 422),
        ({"cost": [0.1, 0.2]}, 400),
        ({"applied": {"ray": 99, "length": 0.5}}, 400),
        ({"applied": {"ray": 0, "length": 1.5}}, 422),
        ({"applied": [0.0]}, 400),
        ({"applied": 2}, 400),
        ({"applied": True}, 422),
        ({"applied": "1"}, 422),
        ({"cost": True}, 422),
        ({"cost": "0.1"}, 422),
        ({"reward": "1e3"}, 422),
        ({"cots": 1}, 422),
    ],
)
def test_bad_outcomes_are_refused_and_nothing_is_learned(shared, change, status):
    client, advisor = shared
    told = {"decision_id": decide(client)["id"], "reward": 0.5, "cost": 0.2}
    before = advisor.store.head()
    answer = client.post("/v1/outcomes", json={**told, **change})
    assert answer.status_code == status, answer.text
    assert advisor.store.head() == before and advisor._follower.in_flight == 0
    assert client.post("/v1/outcomes", json=told).status_code == 200


def test_a_cost_that_cannot_be_is_409_and_a_0_acts_until_the_alarm_is_reset(client, advisor):
    learn(client)
    made = decide(client, 1)
    for _ in range(2):
        refused = record(client, made, cost=-1000.0)
        assert refused.status_code == 409 and refused.json()["title"] == "impossible cost"
        assert "[-1000.0]" in refused.json()["detail"] and "cost=None" in refused.json()["detail"]
    assert [entry.kind for entry in advisor.store.read(made["seq"])] == ["tripped"]
    assert advisor.status().outcomes == 60 and advisor._follower.in_flight == 0
    assert decide(client, 1)["reason"] == "tripped"
    unmeasured = {"decision_id": made["id"], "reward": 0.5, "cost": None}
    assert client.post("/v1/outcomes", json=unmeasured).status_code == 200
    assert client.post("/v1/alarm/reset", json={"why": "a loose contact"}).status_code == 200
    assert decide(client, 1)["reason"] != "tripped"


def test_bodies_beyond_the_limit_are_cut_off_whether_or_not_they_say_how_long_they_are(advisor):
    with serving(advisor, limits={"body_bytes": 2048}) as client:
        before = advisor.store.head()
        long = json.dumps({"state": "x" * 4000}).encode()

        def pieces():
            for start in range(0, len(long), 500):
                yield long[start : start + 500]

        for content in (long, pieces()):
            answer = client.post("/v1/decisions", content=content, headers=JSON)
            assert answer.status_code == 413 and "2048" in answer.json()["detail"]
        assert client.post("/v1/stop", content=pieces(), headers=JSON).status_code == 413
        assert advisor.store.head() == before
        assert decide(client)["logged"]


def test_keys_that_are_empty_or_too_long_are_refused(client):
    for key in ("", "k" * 401):
        answer = client.post("/v1/decisions", json={"state": 0}, headers={"Idempotency-Key": key})
        assert answer.status_code == 400 and "400 characters" in answer.json()["detail"]


def test_what_the_problems_own_functions_raise_is_a_refusal_and_not_a_failure():
    def actions(state):
        if state == "broken":
            raise ZeroDivisionError("inside the caller's function")
        return PROBLEM.actions(0)

    told = {"horizon": 1, "threshold": PROBLEM.threshold, "noise": PROBLEM.noise, "dimension": PROBLEM.dimension}
    problem = Problem(
        actions=actions, **stated(baseline_cost_error=0.0, baseline_cost=lambda step, state: 0.01, **told)
    )
    with serving(new_advisor(problem=problem)) as client:
        assert decide(client, "fine")["logged"]
        answer = client.post("/v1/decisions", json={"state": "broken"})
        assert answer.status_code == 400 and "ZeroDivisionError" in answer.json()["detail"]


def test_the_switch_works_from_the_next_decision_on_and_stopping_twice_is_fine(client):
    learn(client)
    assert not decide(client)["is_baseline"]
    for _ in range(2):
        told = client.post("/v1/stop", json={"why": "visitors"}).json()
        assert told["stopped"]["why"] == "visitors" and told["stopped"]["by"] == "local"
    stopped = decide(client)
    assert stopped["is_baseline"] and stopped["reason"] == "stopped"
    assert client.post("/v1/resume", json={"why": "gone"}).json()["stopped"] is None
    assert not decide(client)["is_baseline"]


def test_a_stop_is_not_answered_with_the_time_of_an_earlier_one(client):
    client.post("/v1/stop", json={"why": "visitors"})
    first = client.get("/v1/status").json()["stopped"]["time"]
    client.post("/v1/resume", json={"why": "gone"})
    told = client.post("/v1/stop", json={"why": "visitors again"}).json()["stopped"]
    assert told["why"] == "visitors again" and (told["time"] is None or told["time"] > first)
    assert client.get("/v1/status").json()["stopped"]["time"] > first


def test_orders_need_a_reason(client, advisor):
    before = advisor.store.head()
    for path in ("/v1/stop", "/v1/resume", "/v1/alarm/reset"):
        assert client.post(path, json={"why": ""}).status_code == 422
        assert client.post(path, json={"why": "  "}).status_code == 400
    assert client.post("/v1/mode", json={"mode": "live", "why": "  "}).status_code == 400
    assert advisor.store.head() == before


def test_a_promotion_that_is_not_earned_is_refused_with_its_reasons_and_a_demotion_never():
    advisor = new_advisor(mode="shadow", criteria=Criteria(outcomes=10))
    with serving(advisor) as client:
        refused = client.post("/v1/mode", json={"mode": "guarded", "why": "now"})
        assert refused.status_code == 409 and any("10" in line for line in refused.json()["unmet"])
        learn(client, 10)
        assert client.post("/v1/mode", json={"mode": "guarded", "why": "now"}).json()["mode"] == "guarded"
        seq = advisor.store.head().seq
        assert client.post("/v1/mode", json={"mode": "guarded", "why": "again"}).json()["mode"] == "guarded"
        assert advisor.store.head().seq == seq
        assert client.post("/v1/mode", json={"mode": "shadow", "why": "back"}).json()["mode"] == "shadow"
        assert client.post("/v1/mode", json={"mode": "wild", "why": "x"}).status_code == 422


def test_live_mode_without_evidence_of_a_gain_needs_an_override_which_is_logged():
    advisor = new_advisor(mode="shadow", criteria=Criteria(outcomes=0, answered=0.0, costs=0.0))
    with serving(advisor) as client:
        assert client.post("/v1/mode", json={"mode": "guarded", "why": "now"}).json()["mode"] == "guarded"
        refused = client.post("/v1/mode", json={"mode": "live", "why": "now"})
        assert refused.status_code == 409 and "no evidence yet" in refused.json()["unmet"][0]
        status = client.post("/v1/mode", json={"mode": "live", "why": "the season ends", "override": True}).json()
        assert (
            status["mode"] == "live" and status["uplift"]["compared"] == 0 and "reward_range" in status["uplift"]["why"]
        )
        entry = advisor.store.read(0, 100)[-1]
    assert entry.body["criteria"]["uplift"] is None and entry.body["why"] == "the season ends"


def test_readers_see_pages_one_decision_and_columns_that_agree(client):
    made = learn(client, 7)
    page = client.get("/v1/decisions", params={"limit": 4}).json()
    rest = client.get("/v1/decisions", params={"limit": 4, "before": page["next"]}).json()
    assert [row["id"] for row in page["decisions"] + rest["decisions"]] == [each["id"] for each in made[::-1]]
    assert rest["next"] is None
    one = client.get(f"/v1/decisions/{made[3]['id']}").json()
    assert one["certificate"] == made[3]["certificate"] and one["outcome"]["reward"] == 0.5
    series = client.get("/v1/series", params={"points": 3}).json()
    assert sum(series["count"]) == series["total"] == 7 and sum(series["outcomes"]) == 7
    assert sum(series["reward_sum"]) == pytest.approx(3.5)
    status = client.get("/v1/status").json()
    assert status["counts"]["decisions"] == 7 and status["open"] and status["radius"]["origin"] == "theorem"
    assert status["radius"]["value"] > 0.0
    for query in ("limit=0", "limit=201", "before=-1", f"before={2**63}", "kind=x"):
        assert client.get(f"/v1/decisions?{query}").status_code == 422
    assert client.get("/v1/decisions/%00").status_code == 404
    assert client.get(f"/v1/decisions/{'x' * 500}").status_code == 404


def test_a_long_poll_answers_when_something_arrives_and_not_before(client, advisor):
    head = advisor.store.head().seq
    began = time.monotonic()
    assert client.get("/v1/events", params={"after": head, "wait": 0.4}).json() == {"head": head, "kinds": []}
    assert time.monotonic() - began >= 0.4
    threading.Timer(0.3, lambda: advisor.decide(0)).start()
    told = client.get("/v1/events", params={"after": head, "wait": 20}).json()
    assert told == {"head": head + 1, "kinds": ["decision"]} and time.monotonic() - began < 10
    assert client.get("/v1/events", params={"after": 0}).json()["kinds"][0] == "configured"


def test_many_waiting_pages_do_not_keep_a_decision_waiting(client, advisor):
    head = advisor.store.head().seq
    answers = []
    pages = [
        threading.Thread(
            target=lambda: answers.append(client.get("/v1/events", params={"after": head, "wait": 20}).json())
        )
        for _ in range(20)
    ]
    for page in pages:
        page.start()
    time.sleep(0.3)
    decide(client)
    for page in pages:
        page.join(60)
    assert [answer["head"] for answer in answers] == [head + 1] * 20


def test_metrics_can_be_read_by_prometheus_and_count_what_happened(client):
    learn(client, 3)
    client.get("/no-such-page"), client.get("/no-such-page-2")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    decisions = sum(sample.value for sample in families["tether_decisions"].samples if sample.name.endswith("_total"))
    assert decisions == 3
    assert families["tether_outcomes_learned"].samples[0].value == 3
    paths = {sample.labels.get("path") for sample in families["tether_request_duration_seconds"].samples}
    assert paths >= {"/v1/decisions", "/v1/outcomes", "other"} and not any("no-such" in str(path) for path in paths)
    answered = [each for each in families["tether_answers"].samples if each.name.endswith("_total")]
    assert sum(each.value for each in answered) == 3 and {each.labels["mode"] for each in answered} == {"live"}
    assert families["tether_log_size_bytes"].samples[0].value > 1000
    assert families["tether_snapshot_age_entries"].samples[0].value > 6
    synced = {each.name: each.value for each in families["tether_log_sync_duration_seconds"].samples if not each.labels}
    assert synced["tether_log_sync_duration_seconds_count"] >= 6
    modes = {sample.labels["mode"]: sample.value for sample in families["tether_mode"].samples}
    assert modes == {"shadow": 0.0, "guarded": 0.0, "live": 1.0}


def test_every_answer_has_an_id_and_tells_browsers_not_to_guess_or_keep_it(client):
    ids = set()
    for path in ("/v1/status", "/healthz", "/v1/decisions/none", "/metrics", "/openapi.json"):
        answer = client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 5
    page = client.get("/")
    assert (
        page.headers["cache-control"] == "no-cache" and "default-src 'none'" in page.headers["content-security-policy"]
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/static/..%2fapp.py", "/static/app.py", "/static/none.js", "/static/"):
        assert client.get(path).status_code == 404


def test_an_endpoint_that_is_added_is_looked_for_first():
    """Else the constant that benchmarks/live_http.py compares with is the last of all, and takes a tenth longer."""
    app = create_app(ServiceConfig(problem="none:needed"), new_advisor())
    app.add(Endpoint("POST", "/v1/constant", lambda request, asked: None))
    assert [route.path for route in app._router.routes[:3]] == ["/v1/constant", "/v1/decisions", "/v1/outcomes"]


def test_head_answers_as_get_does_but_without_a_body(client):
    whole, head = client.get("/healthz"), client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))


def test_a_method_that_a_path_does_not_have_is_405_and_a_problem_that_names_those_it_has(client):
    answer = client.delete("/v1/status")
    assert answer.status_code == 405 and set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert answer.headers["content-type"] == "application/problem+json" and answer.json()["status"] == 405


def test_a_start_asks_what_becomes_of_outcomes_that_never_come_until_it_is_told(caplog):
    """Neither a silent stop nor a silent assumption: the message names the choices, and what a loss means here."""

    def start(advisor, **guards):
        caplog.clear()
        with serving(advisor, guards=guards):
            return "\n".join(record.getMessage() for record in caplog.records)

    asked = start(new_advisor())
    assert "lost_after is not set: one decision whose outcome never comes stops all learning" in asked
    assert "assumes that chance loses costs" in asked
    assert "lost_after" not in start(new_advisor(), lost_after="never") + start(new_advisor(), lost_after=60.0)
    assert "lost_after" not in start(new_advisor(guards=Guards(lost_after=60.0)))


def test_a_lost_outcome_is_declared_and_the_status_says_what_waits(client):
    first, second = (client.post("/v1/decisions", json={"state": 1}).json()["id"] for _ in range(2))
    status = client.get("/v1/status").json()
    assert (status["counts"]["open"], status["counts"]["waiting"], status["waiting"]["for"]) == (2, 0, first)
    (oldest,) = re.findall(r"^tether_outcomes_waiting_since_timestamp_seconds (.+)", client.get("/metrics").text, re.M)
    assert float(oldest) == status["waiting"]["since"]
    assert client.post("/v1/outcomes", json={"decision_id": second, "reward": 0.1, "cost": 0.2}).status_code == 200
    status = client.get("/v1/status").json()
    assert status["counts"]["waiting"] == 1 and status["waiting"]["for"] == first
    ready = client.get("/readyz")
    assert ready.status_code == 200 and first not in ready.text  # which anyone may read
    assert re.fullmatch(
        r"Learning waits for the outcome of one decision, made \d+ s ago. 1 outcome waits behind it. Report it, or "
        r"declare it lost. /v1/status names it.",
        ready.json()["learning"],
    )
    lost = client.post("/v1/lost", json={"decision_id": first, "why": "the sensor was off"})
    assert (lost.status_code, lost.json()) == (200, {"decision_id": first})
    status = client.get("/v1/status").json()
    assert (status["counts"]["waiting"], status["counts"]["lost"], status["waiting"]) == (0, 1, None)
    assert client.get("/readyz").json() == {"status": "ready"}
    refused = client.post("/v1/outcomes", json={"decision_id": first, "reward": 0.1, "cost": 0.2})
    assert refused.status_code == 409 and "declared lost" in refused.json()["detail"]
    assert client.post("/v1/lost", json={"decision_id": "nobody", "why": "gone"}).status_code == 404


def test_the_names_of_the_problem_reach_the_dashboard_unless_the_configuration_has_others():
    names = Names(constraints=["warmth"], cost_units=["K"], reward_unit="kWh", actions=["heat", "cool"])
    with serving(new_advisor(problem=replace(PROBLEM, names=names))) as client:
        status = client.get("/v1/status").json()
    assert [constraint["name"] for constraint in status["constraints"]] == ["warmth"]
    assert status["units"] == {"reward": "kWh", "cost": ["K"]} and status["actions"] == ["heat", "cool"]
    words = [f"entry {i}" for i in range(PROBLEM.dimension)]
    more = replace(names, features=words, state=lambda state: ("night", "day")[state])
    with serving(new_advisor(problem=replace(PROBLEM, names=more))) as client:
        for state in (1, 2):
            id = client.post("/v1/decisions", json={"state": state}).json()["id"]
        rows = client.get("/v1/decisions").json()["decisions"]
        assert client.get("/v1/status").json()["features"] == words
        assert [row.get("place") for row in rows] == [None, "day"]  # what its function cannot name is shown as it is
        assert "place" not in client.get(f"/v1/decisions/{id}").json()
    with serving(new_advisor(problem=replace(PROBLEM, names=names)), labels={"constraints": ["comfort"]}) as client:
        assert client.get("/v1/status").json()["constraints"][0]["name"] == "comfort"


def test_an_answer_is_the_logged_record_whatever_its_state_says(client):
    """It is cut from the text of the log: names of its fields in a state, an episode or a key must not confuse that."""
    nasty = ',"mode":"live","safe_feature":null,"certificate":{}}'
    advisor = new_advisor(problem=of_any_state())
    for state in (0, {"mode": "live", "safe_feature": 1, "certificate": {"x": nasty}}, nasty, "\ud83d\ude00", "NaN"):
        question = advisor.question(state, episode=nasty, key=f"{nasty}{state!r:.40}")
        batch = advisor.prepare([question])
        (made,) = advisor.commit(batch, advisor.store.append(batch.drafts))
        slow = made.model_copy(update={"text": ""})
        assert json.loads(answer_of(made)) == json.loads(answer_of(slow))
        assert set(json.loads(answer_of(made))) == set(DecisionAnswer.model_fields)


def of_any_state():
    told = {
        "horizon": 1,
        "threshold": 0.5,
        "noise": 0.05,
        "dimension": 2,
        "baseline_cost_error": 0.0,
        "baseline_cost": lambda step, state: 0.15,
    }
    return Problem(
        actions=lambda state: FiniteActions(np.array([[0.5, 0.0], [0.4, 0.1]]), 0), **stated(key=repr, **told)
    )
