"""Traces: a span per request, in the caller's trace, and without anything secret."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from service_app import new_advisor
from starlette.testclient import TestClient

from tether.errors import StoreError
from tether.live.log.memory import MemoryStore
from tether.service.app import create_app
from tether.service.config import ServiceConfig
from tether.service.traces import Traced, otlp_tracer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Gone(MemoryStore):
    gone = False

    def append(self, drafts):
        if self.gone:
            raise StoreError("gone")
        return super().append(drafts)


def test_each_request_is_a_span_of_the_callers_trace():
    spans, store = InMemorySpanExporter(), Gone()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = Traced(create_app(ServiceConfig(problem="none:needed"), new_advisor(store)), provider.get_tracer("test"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/decisions", json={"state": 0}, headers={"traceparent": PARENT})
        client.get("/v1/decisions/some-id")
        store.gone = True
        client.post("/v1/decisions", json={"state": 1})
        store.gone = False
    decided, unknown, failed = spans.get_finished_spans()
    assert decided.name == "POST /v1/decisions" and decided.kind == SpanKind.SERVER
    assert f"{decided.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{decided.parent.span_id:016x}" == PARENT.split("-")[2]
    assert dict(decided.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/decisions",
        "http.response.status_code": 200,
        "tether.request_id": answer.headers["x-request-id"],
    }
    assert unknown.name == "GET /v1/decisions/{id}" and "some-id" not in unknown.to_json()
    assert unknown.attributes["http.response.status_code"] == 404 and unknown.status.status_code == StatusCode.UNSET
    assert failed.attributes["http.response.status_code"] == 503 and failed.status.status_code == StatusCode.ERROR


def test_the_tracer_names_the_service():
    tracer = otlp_tracer()
    assert tracer.resource.attributes["service.name"] == "tether"
    tracer.span_processor.shutdown()
