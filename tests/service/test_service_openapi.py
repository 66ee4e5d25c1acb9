"""The OpenAPI description, and requests made up from it: nothing in it may bring the service down."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from service_app import new_advisor, serving

from tether.live.chain import verify_store

EXAMPLES = {"short": 12, "long": 400}


def test_the_description_is_complete_and_names_every_endpoint():
    with serving(new_advisor()) as client:
        told = client.get("/openapi.json").json()
    assert set(told["paths"]) == {
        "/v1/decisions", "/v1/decisions/{id}", "/v1/outcomes", "/v1/status", "/v1/series", "/v1/events", "/v1/mode",
        "/v1/stop", "/v1/resume", "/v1/alarm/reset", "/metrics", "/healthz", "/readyz",
    }  # fmt: skip
    decide = told["paths"]["/v1/decisions"]["post"]
    assert decide["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/DecisionRequest"
    }
    assert decide["parameters"][0]["name"] == "Idempotency-Key"
    schemas = told["components"]["schemas"]
    assert schemas["DecisionRequest"]["required"] == ["state"]
    assert {"StarActionModel", "OutcomeRequest", "Problem", "DecisionAnswer"} <= set(schemas)


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
                if case.path == "/v1/decisions" and case.method == "POST" and response.status_code == 200:
                    made = response.json()
                    assert made["logged"] and (made["is_baseline"] or made["certificate"]["limits"][0]["margin"] >= 0.0)

            ask()
        assert advisor._in_flight == 0 and verify_store(advisor.store).fault is None
    return asked


def test_made_up_requests_never_bring_it_down():
    assert fuzzed(EXAMPLES["short"]) > 60


@pytest.mark.slow
def test_many_made_up_requests_never_bring_it_down():
    assert fuzzed(EXAMPLES["long"]) > 2000
