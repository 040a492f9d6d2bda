"""Requests as spans of OpenTelemetry: real ones of its SDK, in memory and over OTLP to a collector of our own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    http_attributes,
    user_attributes,
)
from opentelemetry.trace import SpanKind, StatusCode
from websockets.sync.client import connect

from proxy_inference_engine.cli.traces import open_tracing, tracing_of
from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.spans import OtelTracing
from tests.api.clients import LOGFIRE, run
from tests.api.pools import FakeLoader, pool_server
from tests.api.running import HELLO, MODEL, Running, running
from tests.polling import HANG_S, wait_until

CHAT: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "ignore_eos": True}
CANARY = "canary in a coal mine"
NAMES = {
    value
    for module in (gen_ai_attributes, http_attributes, error_attributes, user_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}


class Spans:
    """What the SDK has exported, by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OtelTracing(provider, provider.shutdown)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def names(self) -> list[str]:
        return sorted(span.name for span in self.all)

    def one(self, name: str) -> ReadableSpan:
        wait_until(lambda: name in self.names())
        (found,) = (span for span in self.all if span.name == name)
        return found

    def below(self, parent: ReadableSpan) -> list[str]:
        """The children of a span, in the order of their beginnings."""
        context = parent.get_span_context()
        assert context is not None
        children = [span for span in self.all if span.parent is not None and span.parent.span_id == context.span_id]
        return [span.name for span in sorted(children, key=lambda span: (span.start_time or 0, span.end_time or 0))]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def live(spans: Spans) -> Iterator[Running]:
    with running(tracing=spans.tracing) as live:
        yield live


def values(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_chat_is_a_request_an_answer_and_its_parts(live: Running, spans: Spans, is_stream: bool) -> None:
    with live.http() as http:
        body = {**CHAT, "temperature": 0.5, "top_p": 0.75, "stream": is_stream}
        text = http.post("/v1/chat/completions", json=body).text
    request, answer = spans.one("POST /v1/chat/completions"), spans.one(f"chat {MODEL}")
    assert spans.below(request) == [f"chat {MODEL}"]
    assert spans.below(answer) == ["prepare", "queue", "prefill", "steps"]
    assert (request.kind, request.parent) == (SpanKind.SERVER, None)
    assert values(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "user.id": "local",
    }
    said = values(answer)
    assert 0 <= said.pop("gen_ai.response.time_to_first_chunk") < HANG_S
    assert said.pop("gen_ai.response.id") in text
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "proxy_inference_engine",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.75,
        "gen_ai.request.top_k": 0,
        "gen_ai.request.max_tokens": 5,
        "gen_ai.usage.input_tokens": live.stats.total_prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "gen_ai.response.finish_reasons": ("length",),
    }
    assert values(spans.one("steps")) == {"pie.choice": 0, "pie.tokens": 5}


def test_parts_follow_each_other_and_lie_within_their_request(live: Running, spans: Spans) -> None:
    with live.http() as http:
        http.post("/v1/chat/completions", json=CHAT)
    request = spans.one("POST /v1/chat/completions")
    parts = [spans.one(name) for name in ("prepare", "queue", "prefill", "steps")]
    moments = [moment for part in parts for moment in (part.start_time, part.end_time)]
    assert all(moment is not None for moment in moments)
    assert moments == sorted(moments, key=lambda moment: moment or 0)
    assert (request.start_time or 0) <= (moments[0] or 0)


def test_every_name_is_of_the_conventions(live: Running, spans: Spans) -> None:
    with live.http() as http:
        http.post("/v1/chat/completions", json={**CHAT, "n": 3})
        http.post("/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 3})
        http.post("/v1/embeddings", json={"model": MODEL, "input": "x"})
        http.post("/v1/chat/completions", json={**CHAT, "temperature": "hot"})
        http.get("/nowhere")
    assert f"text_completion {MODEL}" in spans.names()
    assert values(spans.one(f"embeddings {MODEL}"))["gen_ai.usage.input_tokens"] == 1
    assert values(spans.one(f"chat {MODEL}"))["gen_ai.request.choice.count"] == 3
    assert spans.names().count("queue") == 4
    used = {name for span in spans.all for name in values(span) if not name.startswith("pie.")}
    assert used <= NAMES, used - NAMES


def test_nothing_of_what_was_said_is_in_a_span(live: Running, spans: Spans) -> None:
    with live.http() as http:
        body = {**CHAT, "messages": [{"role": "user", "content": CANARY}], "stop": [CANARY], "user": CANARY}
        http.post("/v1/chat/completions", json=body)
        http.post("/v1/responses", json={"model": MODEL, "input": CANARY, "max_output_tokens": 3})
        http.get(f"/v1/models/{CANARY}?q={CANARY}", headers={"x-request-id": CANARY})
    wait_until(lambda: len(spans.names()) >= 12)
    assert not any(CANARY in span.to_json() for span in spans.all)


@pytest.mark.parametrize("is_background", [True, False])
def test_a_response_is_stored_below_its_request(live: Running, spans: Spans, is_background: bool) -> None:
    with live.openai() as client:
        client.responses.create(model=MODEL, input="Hello", max_output_tokens=3, background=is_background)
    answer = spans.one(f"chat {MODEL}")
    wait_until(lambda: "store" in spans.names())
    stored = [span for span in spans.all if span.name == "store"]
    request = spans.one("POST /v1/responses")
    assert answer.parent and stored[-1].parent
    assert {answer.parent.span_id, stored[-1].parent.span_id} == {request.get_span_context().span_id}  # type: ignore[union-attr]


def test_a_stored_chat_too(live: Running, spans: Spans) -> None:
    with live.http() as http:
        http.post("/v1/chat/completions", json={**CHAT, "store": True})
    request = spans.one("POST /v1/chat/completions")
    assert spans.below(request) == [f"chat {MODEL}", "store"]


def test_the_client_s_trace_goes_on(live: Running, spans: Spans) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with live.http() as http:
        http.get("/v1/models", headers={"traceparent": f"00-{trace}-{parent}-01"})
        span = spans.one("GET /v1/models")
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (trace, parent)
        for broken in ("", "x", f"00-{trace}", f"00-{'0' * 32}-{parent}-01", "00-" + "f" * 5000, "\xff"):
            headers = [(b"traceparent", broken.encode("latin-1"))]
            assert http.get("/health", headers=headers).status_code == 200
    assert all(span.parent is None for span in spans.all if span.name == "GET /health")


def test_what_goes_wrong_is_named(spans: Spans) -> None:
    with running(FakeRunner(poison_id=ord("~")), tracing=spans.tracing) as live, live.http() as http:
        http.post("/v1/chat/completions", json={**CHAT, "n": 0})
        http.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": "~"}]})
    wait_until(lambda: spans.names().count("POST /v1/chat/completions") == 2)
    refused, failed = (span for span in spans.all if span.name.startswith("POST"))
    assert values(refused)["http.response.status_code"] == 400 and refused.status.status_code is StatusCode.UNSET
    assert values(failed)["error.type"] and failed.status.status_code is StatusCode.ERROR
    assert values(spans.one(f"chat {MODEL}"))["error.type"] == "incomplete"


def test_a_key_is_named_and_a_load_is_seen(spans: Spans) -> None:
    config = Config(api_keys=(ApiKey("anna", "key-of-anna"),), drain_seconds=0.2)
    loader = FakeLoader()
    with pool_server(PoolEntry("a", Config()), loader=loader, config=config, tracing=spans.tracing) as server:
        with server.live.http(headers={"x-api-key": "key-of-anna"}) as http:
            for _ in range(2):
                http.post("/v1/chat/completions", json={**CHAT, "model": "a"})
        wait_until(lambda: spans.names().count("POST /v1/chat/completions") == 2)
    first, second = (span for span in spans.all if span.name.startswith("POST"))
    assert spans.below(first) == ["load", "chat a"] and spans.below(second) == ["chat a"]
    assert values(first)["user.id"] == "anna"


def test_turns_on_a_socket_lie_below_it(live: Running, spans: Spans) -> None:
    with connect(live.url.replace("http", "ws") + "/v1/responses") as socket:
        for _ in range(2):
            socket.send(json.dumps({"type": "response.create", "model": MODEL, "input": "x", "max_output_tokens": 3}))
            while json.loads(socket.recv(timeout=HANG_S))["type"] != "response.incomplete":
                pass
    wait_until(lambda: spans.names().count("SOCKET /v1/responses") == 3)
    turns = [span for span in spans.all if span.name.startswith("SOCKET")]
    (around,) = (span for span in turns if span.parent is None)
    assert spans.below(around) == ["SOCKET /v1/responses"] * 2
    assert all(f"chat {MODEL}" in spans.below(turn) for turn in turns if turn is not around)


# Over the wire


class Collector:
    """As much of a collector as OTLP over HTTP needs."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.add(self.path)
                collector.received.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def names(self) -> set[str]:
        scopes = [scope for each in self.received for span in each.resource_spans for scope in span.scope_spans]
        return {span.name for scope in scopes for span in scope.spans}

    def services(self) -> set[str]:
        spans = [span for each in self.received for span in each.resource_spans]
        return {
            value.value.string_value
            for span in spans
            for value in span.resource.attributes
            if value.key == "service.name"
        }


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


@pytest.mark.parametrize("way", ["address", "path", "variable"])
def test_spans_reach_a_collector(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        traces = {"address": collector.url, "path": f"{collector.url}/v1/traces", "variable": "otlp"}[way]
        if way == "variable":
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        with tracing_of(Config(traces=traces)) as tracing, running(tracing=tracing) as live, live.http() as http:
            assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert collector.paths == {"/v1/traces"}
        assert {"POST /v1/chat/completions", f"chat {MODEL}", "queue", "prefill", "steps"} <= collector.names()
        assert collector.services() == {"mine" if way == "variable" else "proxy-inference-engine"}


def test_a_collector_that_is_not_there_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    nowhere = Config(traces="http://127.0.0.1:9")
    with tracing_of(nowhere) as tracing, running(tracing=tracing) as live, live.http() as http:
        assert http.post("/v1/chat/completions", json=CHAT).status_code == 200


IN_LOGFIRE = """
import logfire
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from proxy_inference_engine.cli.traces import tracing_of
from proxy_inference_engine.config import Config
from tests.api.running import HELLO, running

exporter = InMemorySpanExporter()
with tracing_of(Config(traces="logfire")) as tracing:
    logfire.DEFAULT_LOGFIRE_INSTANCE.config.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    with running(tracing=tracing) as live, live.http() as http:
        http.post("/v1/chat/completions", json={"model": "fake", "messages": HELLO, "max_tokens": 5})
print(sorted({span.name for span in exporter.get_finished_spans()}))
"""


def test_logfire_gets_them_where_it_is_installed(tmp_path: Path) -> None:
    """The package itself, without a token: it keeps what it gets to itself. Pydantic imports it wherever it is
    installed, so it is not installed where the other tests are.
    """
    root, folder = Path(__file__).parents[2], LOGFIRE.folder()
    path = os.pathsep.join(map(str, (root / "src", root, folder)))
    printed = run([sys.executable, "-c", IN_LOGFIRE], tmp_path, tmp_path, {"PYTHONPATH": path})
    assert "'POST /v1/chat/completions'" in printed and f"'chat {MODEL}'" in printed


def test_what_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "logfire"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StartupError, match=r"proxy-inference-engine\[otel\]"):
        open_tracing(Config(traces="otlp"))
    with pytest.raises(StartupError, match="pip install 'logfire'"):
        open_tracing(Config(traces="logfire"))


@pytest.mark.parametrize("traces", ["", "ftp://x", "jaeger", "http://", "http://a b", 5])
def test_what_is_no_place_for_spans_is_refused(traces: object) -> None:
    with pytest.raises(ValueError, match="should be otlp, logfire or an address"):
        Config.model_validate({"traces": traces})


def test_nothing_of_it_is_imported_where_it_is_not_wanted() -> None:
    program = (
        "import sys, proxy_inference_engine.cli.main, proxy_inference_engine.cli.serve, "
        "proxy_inference_engine.server.process, proxy_inference_engine.pool.loader\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'logfire')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
