"""The OpenAPI description, and requests made up from it: nothing in it may bring the service down."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_app import new_advisor, serving, tokens_of_every_kind
from test_service_failures import Moody

from tether.errors import StoreError
from tether.live.log.chain import verify_store

EXAMPLES = {"short": 12, "long": 400}
AS_DESCRIBED = [content_type_conformance, response_schema_conformance, status_code_conformance]
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}


def test_the_description_is_complete_and_names_every_endpoint():
    with serving(new_advisor()) as client:
        told = client.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/v1/decisions", "/v1/decisions/{id}", "/v1/outcomes", "/v1/status", "/v1/series", "/v1/events", "/v1/mode",
        "/v1/lost", "/v1/stop", "/v1/resume", "/v1/alarm/reset", "/metrics", "/healthz", "/readyz",
    }  # fmt: skip
    decide = told["paths"]["/v1/decisions"]["post"]
    assert decide["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/DecisionRequest"
    }
    assert decide["parameters"][0]["name"] == "Idempotency-Key"
    schemas = told["components"]["schemas"]
    assert schemas["DecisionRequest"]["required"] == ["state"]
    assert {"StarActionModel", "OutcomeRequest", "Problem", "DecisionAnswer"} <= set(schemas)


def operations(told):
    return [(path, method, said) for path, methods in told["paths"].items() for method, said in methods.items()]


def test_every_path_but_the_open_ones_needs_a_bearer_token(tmp_path):
    tokens_of_every_kind(tmp_path)
    with serving(new_advisor(), tokens="tokens.json", folder=tmp_path) as client:
        told = client.get("/openapi.json").json()
        ((name, scheme),) = told["components"]["securitySchemes"].items()
        assert scheme["type"] == "http" and scheme["scheme"] == "bearer"
        for path, method, said in operations(told):
            refused = client.request(method, path).status_code == 401
            assert said.get("security") == ([{name: []}] if refused else None), path
    assert {path for path, _, said in operations(told) if "security" not in said} == {"/healthz", "/readyz"}


def test_errors_are_described_as_the_problems_that_they_are():
    with serving(new_advisor()) as client:
        told = client.get("/openapi.json").json()
    for path, method, said in operations(told):
        for status, response in said["responses"].items():
            if status >= "400" and (path, status) not in {("/v1/decisions", "503"), ("/readyz", "503")}:
                assert response["content"] == {"application/problem+json": PROBLEM}, (path, method, status)
    asked = told["paths"]["/v1/decisions"]["post"]["responses"]["503"]["content"]
    assert asked["application/problem+json"] == PROBLEM
    assert asked["application/json"] == {"schema": {"$ref": "#/components/schemas/DecisionAnswer"}}
    assert {"408", "413", "415", "401"} <= set(told["paths"]["/v1/decisions"]["post"]["responses"])


def test_what_is_answered_without_a_log_is_what_is_described():
    store = Moody()
    with serving(new_advisor(store)) as client, serving(new_advisor(store, when_store_fails="refuse")) as strict:
        told = client.get("/openapi.json").json()
        store.error = StoreError("gone")
        for service, method, path, kind in [
            (client, "post", "/v1/decisions", "application/json"),
            (strict, "post", "/v1/decisions", "application/problem+json"),
            (client, "get", "/v1/status", "application/problem+json"),
            (client, "get", "/readyz", "application/json"),
            (client, "get", "/metrics", "text/plain"),
        ]:
            answer = service.request(method, path, **({"json": {"state": 0}} if method == "post" else {}))
            assert answer.headers["content-type"].partition(";")[0] == kind
            described = told["paths"][path][method]["responses"][str(answer.status_code)]["content"][kind]["schema"]
            body = answer.text if kind == "text/plain" else answer.json()
            Draft202012Validator({**described, "components": told["components"]}).validate(body)
            assert "type" in described or "$ref" in described
        store.error = None


def fuzzed(examples):
    """Every operation with so many made-up requests: no 5xx, and answers as they are described."""
    advisor = new_advisor()
    with serving(advisor) as client:
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        asked = 0
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.path == "/v1/events":
                continue  # it waits on purpose

            @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(operation.as_strategy())
            def ask(case):
                nonlocal asked
                asked += 1
                response = case.call()
                assert response.status_code < 500, (case.as_curl_command(), response.text)
                case.validate_response(response, checks=AS_DESCRIBED)
                if case.path == "/v1/decisions" and case.method == "POST" and response.status_code == 200:
                    made = response.json()
                    assert made["logged"] and (made["is_baseline"] or made["certificate"]["limits"][0]["margin"] >= 0.0)

            ask()
        assert advisor._follower.in_flight == 0 and verify_store(advisor.store).fault is None
    return asked


def test_made_up_requests_never_bring_it_down():
    assert fuzzed(EXAMPLES["short"]) > 60


@pytest.mark.slow
def test_many_made_up_requests_never_bring_it_down():
    assert fuzzed(EXAMPLES["long"]) > 2000
