"""Who may do what: every endpoint with every kind of token. A refusal says nothing and changes nothing."""

import json
import logging

import pytest
from service_app import new_advisor, serving, tokens_of_every_kind

from tether.service.auth import add_token

WHY = {"why": "a test"}
ENDPOINTS = {
    ("POST", "/v1/decisions"): ("decide", {"state": 0}),
    ("POST", "/v1/outcomes"): ("record", {"decision_id": "none", "reward": 0.0, "cost": None}),
    ("GET", "/v1/status"): ("read", None),
    ("GET", "/v1/decisions"): ("read", None),
    ("GET", "/v1/decisions/none"): ("read", None),
    ("GET", "/v1/series"): ("read", None),
    ("GET", "/v1/events"): ("read", None),
    ("GET", "/metrics"): ("read", None),
    ("GET", "/v1/no-such-page"): ("read", None),
    ("POST", "/v1/mode"): ("admin", {"mode": "shadow", **WHY}),
    ("POST", "/v1/stop"): ("admin", WHY),
    ("POST", "/v1/resume"): ("admin", WHY),
    ("POST", "/v1/alarm/reset"): ("admin", WHY),
}
ANSWERS = {"/v1/outcomes": 404, "/v1/decisions/none": 404, "/v1/no-such-page": 404}
OPEN = ("/", "/healthz", "/readyz", "/openapi.json", "/static/dashboard.css")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    headers, advisor = tokens_of_every_kind(folder), new_advisor()
    with serving(advisor, tokens="tokens.json", folder=folder) as client:
        yield client, headers, advisor.store


def ask(client, header, method, path, body):
    return client.request(method, path, json=body, headers={} if header is None else {"Authorization": header})


@pytest.mark.parametrize("kind", ["decide", "record", "read", "admin"])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=" ".join)
def test_a_token_opens_the_endpoints_of_its_role_and_no_other(guarded, endpoint, kind):
    client, headers, store = guarded
    role, body = ENDPOINTS[endpoint]
    before = store.head()
    answer = ask(client, headers[kind], *endpoint, body)
    if kind == role:
        assert answer.status_code == ANSWERS.get(endpoint[1], 200), answer.text
    else:
        assert answer.status_code == 403 and answer.headers["content-type"] == "application/problem+json"
        assert role in answer.json()["detail"] and store.head() == before


@pytest.mark.parametrize("kind", ["none", "garbage", "empty", "almost", "no scheme", "wrong scheme", "expired"])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=" ".join)
def test_without_a_valid_token_every_endpoint_says_the_same_nothing(guarded, endpoint, kind):
    client, headers, store = guarded
    before = store.head()
    answer = ask(client, headers[kind], *endpoint, ENDPOINTS[endpoint][1])
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert {name: value for name, value in answer.json().items() if name != "request_id"} == {
        "type": "about:blank",
        "title": "unauthorized",
        "status": 401,
        "detail": "this needs a valid token: Authorization: Bearer <token>.",
    }
    assert store.head() == before


def test_a_refused_caller_does_not_even_learn_whether_its_body_is_valid(guarded):
    client, headers, store = guarded
    before = store.head()
    for body in (b"{", b"x" * 300_000):
        answer = client.post("/v1/decisions", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 401
        answer = client.post(
            "/v1/decisions",
            content=body,
            headers={"Content-Type": "application/json", "Authorization": headers["read"]},
        )
        assert answer.status_code == 403
    assert store.head() == before


@pytest.mark.parametrize("path", OPEN)
def test_pages_and_health_are_open_and_hold_no_data(guarded, path):
    client, _, store = guarded
    answer = client.get(path)
    assert answer.status_code == 200
    assert store.identity() not in answer.text and store.head().hash not in answer.text


def test_the_log_of_the_service_names_callers_and_holds_no_token_and_no_state(guarded, caplog):
    client, headers, _ = guarded
    caplog.set_level(logging.INFO)
    for header in headers.values():
        ask(client, header, "POST", "/v1/decisions", {"state": "a-secret-state"})
        ask(client, header, "GET", "/v1/decisions/a-secret-id?secret=query", None)
    text = "\n".join(line.getMessage() for line in caplog.records if line.name.startswith("tether"))
    assert '"caller": "decide"' in text and '"status": 401' in text and '"path": "/v1/decisions/{id}"' in text
    assert "secret" not in text
    for header in filter(None, headers.values()):
        secret = header.split(" ")[-1]
        assert secret == "Bearer" or secret not in text


def test_without_tokens_only_this_machines_own_names_are_answered():
    advisor = new_advisor()
    with serving(advisor) as client:
        before = advisor.store.head()
        port = client.base_url.port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
            assert client.get("/v1/status", headers={"Host": host}).status_code == 200, host
        for host in (f"evil.example:{port}", "10.0.0.1", "", "localhost.evil.example"):
            refused = client.post("/v1/stop", json=WHY, headers={"Host": host})
            assert refused.status_code in (400, 403), host
        assert advisor.store.head() == before


def test_a_form_or_plain_text_from_another_site_is_not_taken():
    advisor = new_advisor()
    with serving(advisor) as client:
        before = advisor.store.head()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = client.post("/v1/stop", content=b'{"why": "x"}', headers={"Content-Type": kind})
            assert answer.status_code == 415, kind
        assert client.options("/v1/stop", headers={"Origin": "http://evil.example"}).status_code == 405
        assert advisor.store.head() == before
        kind = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert client.post("/v1/stop", content=b'{"why": "x"}', headers=kind).status_code == 200


def test_an_idempotency_key_belongs_to_its_token(tmp_path):
    tokens = {name: add_token(tmp_path / "tokens.json", name, ("decide",), None) for name in ("one", "two")}
    with serving(new_advisor(), tokens="tokens.json", folder=tmp_path) as client:

        def asked(name, state):
            headers = {"Authorization": f"Bearer {tokens[name]}", "Idempotency-Key": "k"}
            return client.post("/v1/decisions", json={"state": state}, headers=headers)

        first, other = asked("one", 0), asked("two", 1)
        assert (first.status_code, other.status_code) == (200, 200) and first.json()["id"] != other.json()["id"]
        assert asked("one", 0).json()["id"] == first.json()["id"]


def test_a_refused_token_is_logged_with_the_clients_address(tmp_path, caplog):
    add_token(tmp_path / "tokens.json", "one", ("read",), None)
    lines = caplog.at_level(logging.INFO, "tether.service.access")
    with lines, serving(new_advisor(), tokens="tokens.json", folder=tmp_path) as client:
        assert client.get("/v1/status", headers={"Authorization": "Bearer tether_guess"}).status_code == 401
        assert client.get("/healthz").status_code == 200
    refused, open_to_all = (
        json.loads(record.getMessage()) for record in caplog.records if "path" in record.getMessage()
    )
    assert refused["address"] == "127.0.0.1" and "address" not in open_to_all and "guess" not in str(refused)
