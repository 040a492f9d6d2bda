"""Grammars that take long to compile: whoever waits for a stream is told, and nobody else is held up."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.http.sse import Patience
from tests.api.running import HELLO, MODEL, listening

CHAT = "/v1/chat/completions"
HASTY = Patience(first_ping_s=0.02, next_ping_s=0.02)


def body(pattern: str | None, **keywords: Any) -> dict[str, Any]:
    """A stream of a string; a request without a format where there is no pattern."""
    asked = {"model": MODEL, "messages": HELLO, "max_tokens": 8}
    if pattern is None:
        return asked
    schema = {"type": "string", "pattern": pattern, **keywords}
    format_ = {"type": "json_schema", "json_schema": {"name": "f", "strict": True, "schema": schema}}
    return {**asked, "stream": True, "response_format": format_}


@contextmanager
def serving() -> Iterator[tuple[httpx.Client, ServedModel]]:
    worker = Worker(StepEngine(FakeRunner(lanes=(Lane(2, 512),)), max_cache_bytes=0))
    worker.start()
    config = Config(drain_seconds=0.2)
    model = ServedModel.of(worker, config)
    try:
        with listening([model], config, patience=HASTY) as live, httpx.Client(base_url=live.url, timeout=60) as http:
            yield http, model
    finally:
        worker.stop()
        model.machines.close()


def comments_until_free(http: httpx.Client, model: ServedModel, asked: dict[str, Any]) -> tuple[str, list[str]]:
    """The first comment while two others' grammars are being compiled, and what comes once that is done."""
    with ExitStack() as elsewhere:
        for name in ("somebody else", "another"):
            elsewhere.enter_context(model.machines._compiler.turns.turn(name))
        with http.stream("POST", CHAT, json=asked) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            first = next(lines)
            assert http.post(CHAT, json=body(None)).is_success, "who asks for no grammar does not wait"
            elsewhere.close()
            return first, list(lines)


def test_a_stream_that_waits_for_its_grammar_is_told() -> None:
    with serving() as (http, model):
        first, rest = comments_until_free(http, model, body("^[ab]{3}$"))
    assert first.startswith(": compiling the grammar, ")
    assert "data: [DONE]" in rest and not any("error" in line for line in rest)


def test_one_that_is_refused_then_ends_with_the_reason() -> None:
    """The head of the stream has gone out, so it is an event in it."""
    with serving() as (http, model):
        first, rest = comments_until_free(http, model, body("^[ab]{3}$", minLength=5))
    assert first.startswith(": compiling the grammar, ")
    assert any('"invalid_request_error"' in line for line in rest)
