"""Where spans of requests go, as `traces` says. What that needs is imported here, and only where it is set."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proxy_inference_engine import __version__
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

if TYPE_CHECKING:
    from proxy_inference_engine.server.tracing import Tracing

SERVICE = "proxy-inference-engine"
_PATH = "/v1/traces"


@contextmanager
def tracing_of(config: Config) -> "Iterator[Tracing | None]":
    """None: nobody wants to know. What was not sent yet is sent in the end. Raises StartupError."""
    tracing = open_tracing(config)
    try:
        yield tracing
    finally:
        if tracing is not None:
            tracing.close()


def open_tracing(config: Config) -> "Tracing | None":
    """Raises StartupError where what it needs is not installed."""
    if config.traces is None:
        return None
    try:
        if config.traces == "logfire":
            return _to_logfire()
        return _to_collector(None if config.traces == "otlp" else config.traces)
    except ImportError as error:
        extra = "logfire" if config.traces == "logfire" else "proxy-inference-engine[otel]"
        raise StartupError(f"traces = {config.traces!r} needs more ({error}): pip install '{extra}'") from None


def _to_collector(endpoint: str | None) -> "Tracing":
    """Over OTLP, in batches and from a thread of its own; None: where the OTEL_* variables say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from proxy_inference_engine.server.spans import OtelTracing

    # As OTEL_EXPORTER_OTLP_ENDPOINT is read: the path of spans is added.
    address = None if endpoint is None else endpoint.rstrip("/").removesuffix(_PATH) + _PATH
    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE
    provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return OtelTracing(provider, provider.shutdown)


def _to_logfire() -> "Tracing":
    """Send traces to Logfire, with the token in LOGFIRE_TOKEN or in what `logfire projects use` left in this folder."""
    import logfire
    from opentelemetry.trace import get_tracer_provider

    from proxy_inference_engine.server.spans import OtelTracing

    configured = logfire.configure(
        send_to_logfire="if-token-present",
        service_name=os.environ.get("LOGFIRE_SERVICE_NAME") or SERVICE,
        service_version=__version__,
        console=False,  # the log has a line for each request already
        metrics=False,
        inspect_arguments=False,
    )
    return OtelTracing(get_tracer_provider(), configured.shutdown)
