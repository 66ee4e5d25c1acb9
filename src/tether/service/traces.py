"""OpenTelemetry: a span per request, which continues the caller's trace. Needs the extra `traces`."""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tether import __version__
from tether.errors import MissingExtra

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, StatusCode, Tracer
except ImportError as missing:
    raise MissingExtra(f'traces need {missing.name}: pip install "tether-rl[traces]".') from missing

FAILED = 500
"""The least status that is the service's failure, not the caller's."""


def otlp_tracer() -> Tracer:
    """A tracer that sends spans where the standard variables say: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, …"""
    provider = TracerProvider(resource=Resource.create({"service.name": "tether", "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("tether", __version__)


class Traced:
    """An ASGI application with a span around each request. Spans hold neither tokens nor states, queries or ids."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the start and end of the service."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(scope["method"], extract(carried), SpanKind.SERVER) as span:

            async def reply(message: Message) -> None:
                if message["type"] == "http.response.start":
                    seen = {name: value for name, value in message["headers"] if name == b"x-request-id"}
                    span.set_attribute("http.response.status_code", message["status"])
                    span.set_attribute("tether.request_id", seen.get(b"x-request-id", b"").decode())
                    if message["status"] >= FAILED:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, reply)
            route: Any = scope.get("template", "other")
            span.update_name(f"{scope['method']} {route}")
            span.set_attributes({"http.request.method": scope["method"], "http.route": route})
