"""Two models behind one server: each under its own name, at the same time, with one list, one store and one count."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import httpx
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from tests.api.running import Listening, listening, running
from tests.polling import HANG_S
from tests.unit.engine.threads import Gate

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
ALPHA, BETA = "org/alpha", "beta"
ALIASES = {"gpt-4o": BETA, "claude-*": ALPHA, "o3": "default"}
CONFIG = Config(aliases=ALIASES, drain_seconds=0.2)
SHORT = "{% for message in messages %}{{ message['content'] }}|{% endfor %}"


def alpha() -> FakeRunner:
    return FakeRunner(lanes=[Lane(3, 1024)])


def beta() -> FakeRunner:
    """Another template, one token more, and less context: whatever it answers differs."""
    return FakeRunner(lanes=[Lane(2, 512)], chat_template=SHORT, defined_tokens=("<|more|>",))


@dataclass(frozen=True)
class Pair:
    live: Listening
    workers: tuple[Worker, Worker]

    def http(self) -> httpx.Client:
        return self.live.http()

    def openai(self) -> OpenAI:
        return self.live.openai()


def start(stack: ExitStack, *runners: FakeRunner) -> Pair:
    workers = [Worker(StepEngine(runner, max_cache_bytes=1 << 20)) for runner in runners]
    for worker in workers:
        worker.start()
        stack.callback(worker.stop)
    models = [ServedModel.of(worker, CONFIG, name=name) for worker, name in zip(workers, (ALPHA, BETA), strict=True)]
    return Pair(stack.enter_context(listening(models, CONFIG)), (workers[0], workers[1]))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield start(stack, alpha(), beta())


@pytest.fixture
def http(pair: Pair) -> Iterator[httpx.Client]:
    with pair.http() as client:
        yield client


@pytest.fixture
def client(pair: Pair) -> Iterator[OpenAI]:
    with pair.openai() as client:
        yield client


def said(http: httpx.Client, model: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": HELLO, "max_tokens": 20, "temperature": 0, **fields}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


# Names


def test_each_answers_under_its_own_name_with_its_own_tokens(pair: Pair, http: httpx.Client) -> None:
    answers = {}
    for name, runner, worker in zip((ALPHA, BETA), (alpha(), beta()), pair.workers, strict=True):
        before = worker.stats().total_generated_tokens
        answer = said(http, name)
        assert answer["model"] == name
        assert worker.stats().total_generated_tokens == before + answer["usage"]["completion_tokens"]
        with running(runner) as alone, alone.http() as other:
            assert text_of(said(other, "default")) == text_of(answer), "as if it were alone"
        answers[name] = text_of(answer)
    assert answers[ALPHA] != answers[BETA]


def test_both_are_listed_with_their_aliases(client: OpenAI) -> None:
    models = {model.id: model.model_extra or {} for model in client.models.list()}
    assert list(models) == [ALPHA, BETA, "gpt-4o", "o3"]
    assert [models[name]["context_length"] for name in models] == [1024, 512, 512, 1024]
    assert (models["gpt-4o"]["alias_of"], models["o3"]["alias_of"]) == (BETA, ALPHA)
    assert client.models.retrieve(ALPHA).id == ALPHA and client.models.retrieve(BETA).id == BETA
    assert (client.models.retrieve("claude-3").model_extra or {})["alias_of"] == ALPHA


@pytest.mark.parametrize(
    ("name", "model"), [("gpt-4o", BETA), ("claude-opus", ALPHA), ("o3", ALPHA), ("default", ALPHA)]
)
def test_an_alias_is_one_model_s_and_the_first_is_the_default(http: httpx.Client, name: str, model: str) -> None:
    answer = said(http, name)
    assert answer["model"] == model and text_of(answer) == text_of(said(http, model))


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/responses/input_tokens": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 5},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/embeddings": {"input": "Hello"},
    "/tokenize": {"prompt": "Hello"},
    "/apply-template": {"messages": HELLO},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_name_that_neither_has_is_not_found(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={"model": "alpha", **BODIES[path]})
    assert answer.status_code == 404 and "'alpha' does not exist" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
def test_every_api_finds_both(http: httpx.Client, path: str) -> None:
    for name in (ALPHA, BETA, "gpt-4o"):
        answer = http.post(path, json={"model": name, **BODIES[path]})
        assert answer.status_code == 200, answer.text


def test_tokens_are_those_of_the_model(http: httpx.Client) -> None:
    chat = {"messages": HELLO}
    texts = {
        name: http.post("/apply-template", json={"model": name, **chat}).json()["prompt"] for name in (ALPHA, BETA)
    }
    assert texts == {ALPHA: "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", BETA: "Hello|"}
    unnamed = http.post("/tokenize", json={"prompt": "x"})
    assert unnamed.status_code == 400 and unnamed.json()["error"]["code"] == "missing_parameter"
    assert http.post("/tokenize", json={"model": ALPHA, "prompt": "x"}).json()["max_model_len"] == 1024
    assert http.post("/tokenize", json={"model": BETA, "prompt": "x"}).json()["max_model_len"] == 512
    last = {"tokens": [260]}
    assert http.post("/detokenize", json={"model": BETA, **last}).json()["prompt"] == "<|more|>"
    assert http.post("/detokenize", json={"model": ALPHA, **last}).status_code == 400


def test_what_is_too_long_for_one_may_fit_the_other(http: httpx.Client) -> None:
    long = {"prompt": "x" * 600, "max_tokens": 1}
    assert http.post("/v1/completions", json={"model": ALPHA, **long}).status_code == 200
    refused = http.post("/v1/completions", json={"model": BETA, **long})
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"


# At the same time


def test_one_answers_while_the_other_computes() -> None:
    """The first is held inside a forward pass until the second has answered."""
    gate = Gate()
    with ExitStack() as stack:
        pair = start(stack, gate.runner(), beta())
        http = stack.enter_context(pair.http())
        body = {"model": ALPHA, "messages": HELLO, "max_tokens": 3, "stream": True}
        held = stack.enter_context(http.stream("POST", "/v1/chat/completions", json=body))
        assert gate.is_entered.wait(HANG_S)
        assert said(http, BETA)["model"] == BETA
        assert [worker.stats().num_running for worker in pair.workers] == [1, 0]
        assert http.get("/ready").status_code == 200
        gate.open()
        assert "".join(held.iter_text()).endswith("data: [DONE]\n\n")


def test_two_streams_do_not_mix(pair: Pair) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(pair.openai())) for _ in range(2)]
        streams = [
            client.chat.completions.create(model=name, messages=HELLO, max_tokens=40, temperature=0, stream=True)
            for client, name in zip(clients, (ALPHA, BETA), strict=True)
        ]
        texts = {ALPHA: "", BETA: ""}
        for chunks in zip_longest(*streams):  # one of each by turns
            for chunk in chunks:
                if chunk is not None:
                    texts[chunk.model] += chunk.choices[0].delta.content or ""
        http = stack.enter_context(pair.http())
        assert texts == {name: text_of(said(http, name, max_tokens=40)) for name in (ALPHA, BETA)}


# What they share


def metric(http: httpx.Client, name: str) -> dict[str, float]:
    found = re.findall(rf'^{name}\{{model="(.*)"\}} (\S+)$', http.get("/metrics").text, re.MULTILINE)
    return {model: float(number) for model, number in found}


def test_metrics_are_told_by_model(pair: Pair, http: httpx.Client) -> None:
    said(http, ALPHA)
    said(http, BETA)
    assert metric(http, "pie_slots") == {ALPHA: 3, BETA: 2}
    for name, field in (
        ("pie_generated_tokens_total", "total_generated_tokens"),
        ("pie_prompt_tokens_total", "total_prompt_tokens"),
        ("pie_cached_bytes_limit", "max_cached_bytes"),
    ):
        each = [getattr(worker.stats(), field) for worker in pair.workers]
        assert list(metric(http, name).values()) == each and all(each)


def test_stored_chats_are_found_by_model(client: OpenAI, http: httpx.Client) -> None:
    ids = {name: said(http, name, store=True)["id"] for name in (ALPHA, BETA)}
    assert [chat.id for chat in client.chat.completions.list()] == [ids[ALPHA], ids[BETA]]
    for name in (ALPHA, BETA):
        assert [chat.id for chat in client.chat.completions.list(model=name)] == [ids[name]]
    assert [chat.id for chat in client.chat.completions.list(model="gpt-4o")] == [ids[BETA]]
    assert [chat.id for chat in client.chat.completions.list(model="default")] == [ids[ALPHA]]
    assert [chat.id for chat in client.chat.completions.list(model="nobody")] == []


def test_a_conversation_goes_on_with_the_other(client: OpenAI) -> None:
    first = client.responses.create(model=ALPHA, input="Hello", max_output_tokens=20)
    second = client.responses.create(model=BETA, input="And?", previous_response_id=first.id, max_output_tokens=20)
    assert (first.model, second.model) == (ALPHA, BETA)
    assert second.usage is not None
    assert second.usage.input_tokens == len(f"Hello|{first.output_text}|And?|".encode())
