"""Texts that are long: refused before they are cut into tokens, or cut where nobody waits for it."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from proxy_inference_engine.runners.fake import ByteTokenizer, FakeRunner
from tests.api.running import MODEL, running

LONG = "A long text. " * 20_000
USER = [{"role": "user", "content": "x"}]
TOOL = {"name": "f", "description": LONG}


class Noting(ByteTokenizer):
    """Notes the threads that long texts are cut in."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []

    def encode(self, text: str) -> list[int]:
        if len(text) >= len(LONG):
            self.threads.append(threading.current_thread().name)
        return super().encode(text)


@pytest.fixture(scope="module")
def tokenizer() -> Noting:
    return Noting()


@pytest.fixture(scope="module")
def http(tokenizer: Noting) -> Iterator[httpx.Client]:
    runner = FakeRunner()
    runner.tokenizer = tokenizer
    with running(runner) as live, live.http() as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": LONG}),
        (
            "/tokenize",
            {"messages": USER, "tools": [{"type": "function", "function": TOOL}]},
        ),
        (
            "/v1/responses/input_tokens",
            {"input": "x", "tools": [{"type": "function", **TOOL}]},
        ),
        ("/v1/responses/input_tokens", {"input": "x", "instructions": LONG}),
        ("/v1/messages/count_tokens", {"messages": USER, "system": LONG}),
    ],
)
def test_the_event_loop_cuts_no_long_text(http: httpx.Client, tokenizer: Noting, path: str, body: object) -> None:
    tokenizer.threads.clear()
    assert isinstance(body, dict)
    assert http.post(path, json={"model": MODEL, **body}).status_code == 200
    assert tokenizer.threads and all(name.startswith("off-loop_") for name in tokenizer.threads)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG * 10}]}, "messages"),
        ("/v1/completions", {"prompt": LONG * 10}, "prompt"),
        ("/v1/responses", {"input": LONG * 10, "store": False}, "input"),
        ("/v1/messages", {"messages": [{"role": "user", "content": LONG * 10}], "max_tokens": 5}, None),
        ("/v1/responses/compact", {"input": "x", "instructions": LONG * 10}, "input"),
    ],
)
def test_what_can_never_fit_is_not_cut_at_all(
    http: httpx.Client, tokenizer: Noting, path: str, body: object, param: str | None
) -> None:
    tokenizer.threads.clear()
    assert isinstance(body, dict)
    answer = http.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 400 and "more than" in answer.json()["error"]["message"]
    assert answer.json()["error"].get("param") == param
    assert tokenizer.threads == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": LONG * 10}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": LONG * 10}]}, "messages"),
        ("/v1/responses/input_tokens", {"input": LONG * 10}, "input"),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": LONG * 10}]}, None),
        ("/v1/embeddings", {"input": LONG * 10}, "input"),
        ("/v1/embeddings", {"input": ["x", LONG * 10]}, "input[1]"),
    ],
)
def test_what_is_only_counted_or_embedded_has_a_limit_too(
    http: httpx.Client, tokenizer: Noting, path: str, body: dict[str, object], param: str | None
) -> None:
    """/tokenize of 31 MB took 26 seconds of processor time and 2.9 GB; embeddings were cut before they were refused."""
    tokenizer.threads.clear()
    answer = http.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 400 and "characters" in answer.json()["error"]["message"]
    assert answer.json()["error"].get("param") == param
    assert tokenizer.threads == []


def test_a_long_guess_is_cut_before_it_is_cut_into_tokens(http: httpx.Client, tokenizer: Noting) -> None:
    tokenizer.threads.clear()
    body = {"model": MODEL, "messages": USER, "prediction": {"type": "content", "content": LONG * 10}, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert tokenizer.threads == []


def test_shortening_renders_nothing_that_is_hopeless(http: httpx.Client, tokenizer: Noting) -> None:
    tokenizer.threads.clear()
    turns = [{"role": role, "content": LONG} for _ in range(5) for role in ("user", "assistant")]
    body = {"model": MODEL, "input": [*turns, *USER], "truncation": "auto", "store": False, "max_output_tokens": 16}
    assert http.post("/v1/responses", json=body).status_code == 200
    assert tokenizer.threads == []
