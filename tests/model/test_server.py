"""The whole way on real weights: a real server, the real `openai` client with strict validation, exact mode."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from proxy_inference_engine.runners.base import Row
from tests.api.running import Running, running
from tests.model.conftest import make_runner
from tests.polling import HANG_S

pytestmark = pytest.mark.model

_QUESTION = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]


@pytest.fixture(scope="module")
def server(weights: Path) -> Iterator[Running]:
    with running(make_runner(weights, is_exact=True), max_cache_bytes=200 << 20) as server:
        yield server


@pytest.fixture
def client(server: Running) -> OpenAI:
    return server.openai()


def _ask(client: OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="bundled", messages=_QUESTION, **fields)  # type: ignore[arg-type]


def test_it_answers(client: OpenAI) -> None:
    answer = _ask(client, temperature=0)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 8


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "max_tokens": 24},
        {"temperature": 1, "seed": 5, "max_tokens": 24, "logprobs": True, "top_logprobs": 2},
        {"temperature": 1, "seed": 5, "max_tokens": 16, "n": 3, "stop": ["a"]},
    ],
)
def test_streamed_equals_whole(client: OpenAI, fields: dict[str, Any]) -> None:
    _ask(client, max_tokens=1)  # both find the same prefix in the cache
    whole = _ask(client, **fields)
    chunks = list(_ask(client, **fields, stream=True, stream_options={"include_usage": True}))
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in parts) == choice.message.content
        assert [part.finish_reason for part in parts if part.finish_reason] == [choice.finish_reason]
        logprobs = [entry for part in parts if part.logprobs for entry in part.logprobs.content or []]
        assert logprobs == (choice.logprobs.content if choice.logprobs else [])
    assert chunks[-1].usage == whole.usage


def test_sixty_four_clients_get_what_one_gets(server: Running, client: OpenAI) -> None:
    """Sixteen different requests, four times each, all at once, over five slots."""
    wishes = [{"temperature": 1, "seed": seed, "max_tokens": 6 + seed} for seed in range(16)]
    alone = [_ask(client, **wish).choices[0].message.content for wish in wishes]
    with ThreadPoolExecutor(64) as pool:
        futures = [pool.submit(_ask, server.openai(), **wish) for wish in wishes * 4]
    assert [future.result().choices[0].message.content for future in futures] == alone * 4
    server.wait_idle()
    server.worker._engine.check()


def test_the_second_turn_finds_the_first(client: OpenAI) -> None:
    first = _ask(client, temperature=0)
    turns = [*_QUESTION, {"role": "assistant", "content": first.choices[0].message.content}]
    turns.append({"role": "user", "content": "And of Italy? Answer briefly."})
    second = client.chat.completions.create(model="bundled", messages=turns, temperature=0)  # type: ignore[arg-type]
    assert second.usage is not None and second.usage.prompt_tokens_details is not None
    history = first.usage.total_tokens - 1  # the end token was sampled, never computed
    assert second.usage.prompt_tokens_details.cached_tokens == history


def test_loglikelihood_over_http(server: Running) -> None:
    """The path of lm-evaluation-harness: echo with logprobs, nothing generated."""
    text = "The quick brown fox jumps over the lazy dog, and the dog does not mind."
    answer = server.openai(is_strict=False).completions.create(
        model="bundled", prompt=text, max_tokens=0, echo=True, logprobs=1
    )
    got = answer.choices[0].logprobs
    assert answer.choices[0].text == text and got is not None and got.token_logprobs is not None
    ids = np.array(server.runner.tokenizer.encode(text), np.int32)
    server.wait_idle()
    logits = server.runner.forward([Row(0, 0, ids, len(ids))])[0].astype(np.float64)[:-1]
    server.runner.release(0)
    logits -= logits.max(axis=1, keepdims=True)
    direct = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))[np.arange(len(ids) - 1), ids[1:]]
    assert got.token_logprobs[0] is None
    assert np.abs(np.array(got.token_logprobs[1:]) - direct).max() < 0.01


def test_rolling_loglikelihood_is_the_same_of_text_and_ids(server: Running) -> None:
    """As lm-evaluation-harness 0.4.13 asks, which puts the end token before a text: by its name, or by its id."""
    text = "Water boils at one hundred degrees at sea level."
    tokenizer = server.runner.tokenizer
    ids = [tokenizer.specials["<|endoftext|>"], *tokenizer.encode(text)]
    asked = {"model": "bundled", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    with httpx.Client(base_url=server.url, timeout=HANG_S) as http:
        bodies = [{**asked, "prompt": prompt} for prompt in (f"<|endoftext|>{text}", ids)]
        answers = [http.post("/v1/completions", json=body).json() for body in bodies]
    texts, numbers = (each["choices"][0]["logprobs"]["token_logprobs"] for each in answers)
    assert len(texts) == len(numbers) == len(ids) + 1 and texts[0] is numbers[0] is None
    assert np.abs(np.array(texts[1:]) - np.array(numbers[1:])).max() < 0.01


def test_leaving_clients_leave_nothing(server: Running) -> None:
    """Half of sixteen streams are closed after their first words; slots and threads are as before."""
    threads_before = threading.active_count()

    def leave(number: int) -> None:
        stream = _ask(server.openai(), max_tokens=200, stream=True, extra_body={"ignore_eos": True})
        for count, _ in enumerate(stream):
            if number % 2 and count == 3:
                stream.close()
                return
            if count == 12:
                stream.close()
                return

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(leave, range(16)))
    server.wait_idle()
    server.worker._engine.check()
    assert server.worker._engine.scheduler.slots.num_held == 0
    assert threading.active_count() <= threads_before + 1
