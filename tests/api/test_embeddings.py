"""Embeddings and rankings over HTTP, with the official client where it has a method for them."""

import base64
import json
import math
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import TEXT_END, FakeRunner
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_errors import check
from tests.polling import wait_until

PATH = "/v1/embeddings"
DIMENSIONS = 32


def embed(http: httpx.Client, input: Any, **fields: Any) -> list[list[float]]:
    answer = http.post(PATH, json={"model": MODEL, "input": input, **fields}).json()
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    return [item["embedding"] for item in answer["data"]]


def test_the_official_client(server: Running, client: OpenAI) -> None:
    """Left alone it asks for base64, which its own types do not allow before it is decoded: no strict validation."""
    answer = client.embeddings.create(model=MODEL, input=["one", "two", "one"], encoding_format="float")
    assert server.openai(is_strict=False).embeddings.create(model=MODEL, input=["one", "two", "one"]) == answer
    assert (answer.object, answer.model) == ("list", MODEL)
    assert [(item.index, item.object, len(item.embedding)) for item in answer.data] == [
        (index, "embedding", DIMENSIONS) for index in range(3)
    ]
    assert answer.data[0].embedding == answer.data[2].embedding != answer.data[1].embedding
    assert all(math.isclose(math.hypot(*item.embedding), 1, rel_tol=1e-6) for item in answer.data)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (9, 9)


def test_the_four_ways_to_write_texts(http: httpx.Client) -> None:
    one, two = embed(http, ["one", "two"])
    assert embed(http, "one") == embed(http, ["one"]) == embed(http, list(b"one")) == [one]
    assert embed(http, [list(b"one"), list(b"two")]) == [one, two]
    assert embed(http, ["two", "one"]) == [two, one]


def test_base64_is_float(http: httpx.Client) -> None:
    for fields in ({}, {"dimensions": 5}):
        floats = embed(http, ["one", "two"], encoding_format="float", **fields)
        answer = http.post(PATH, json={"model": MODEL, "input": ["one", "two"], "encoding_format": "base64", **fields})
        for vector, item in zip(floats, answer.json()["data"], strict=True):
            data = base64.b64decode(item["embedding"], validate=True)
            assert list(struct.unpack(f"<{len(data) // 4}f", data)) == vector


@pytest.mark.parametrize("dimensions", [1, 7, DIMENSIONS])
def test_dimensions_cut_and_normalise(http: httpx.Client, dimensions: int) -> None:
    (whole,), (cut,) = embed(http, "one"), embed(http, "one", dimensions=dimensions)
    length = math.hypot(*whole[:dimensions])
    assert len(cut) == dimensions
    assert all(math.isclose(a, b / length, rel_tol=1e-5) for a, b in zip(cut, whole, strict=False))


def test_a_text_is_never_a_control_token(http: httpx.Client) -> None:
    answer = http.post(PATH, json={"model": MODEL, "input": "<|im_end|>"}).json()
    assert answer["usage"] == {"prompt_tokens": 10, "total_tokens": 10}


def test_texts_get_the_tokens_that_the_model_wants_around_them() -> None:
    with running(FakeRunner(has_bos=True)) as live, live.http() as http:
        assert http.post(PATH, json={"model": MODEL, "input": "one"}).json()["usage"]["prompt_tokens"] == 4
        assert embed(http, "one") == embed(http, [256, *b"one"]) != embed(http, [*b"one"])


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": ""}, "input", "empty"),
        ({"input": []}, "input", "not none"),
        ({"input": [""]}, "input", "empty"),
        ({"input": ["a", "b", ""]}, "input[2]", "empty"),
        ({"input": [[]]}, "input", "non-empty"),
        ({"input": [[1], []]}, "input", "non-empty"),
        ({"input": ["a", 1]}, "input", "either"),
        ({"input": [1, "a"]}, "input", "either"),
        ({"input": [1, 2.5]}, "input", "either"),
        ({"input": [True]}, "input", "either"),
        ({"input": {"text": "a"}}, "input", "expected"),
        ({"input": 5}, "input", "expected"),
        ({"input": [-1]}, "input", "vocabulary"),
        ({"input": [[1], [260]]}, "input[1]", "vocabulary"),
        ({"input": ["a"] * 2049}, "input", "2049 texts are too many, at most 2048"),
        ({"input": [65] * 300_001}, "input", "300001 token ids are too many"),
        ({"input": ["a" * 8000] * 40}, "input", "more than 300000 tokens"),
        ({"dimensions": 0}, "dimensions", ""),
        ({"dimensions": 33}, "dimensions", "33, but this model's embeddings have 32"),
        ({"dimensions": 1.5}, "dimensions", ""),
        ({"encoding_format": "int8"}, "encoding_format", ""),
        ({"user": "x" * 1000}, "user", ""),
        ({"truncate": True}, "truncate", "Unknown"),
    ],
)
def test_refusals_name_the_parameter(http: httpx.Client, fields: dict[str, Any], param: str, message: str) -> None:
    error = check(http.post(PATH, json={"model": MODEL, "input": "a", **fields}))
    assert error["param"] == param and message in error["message"]


def test_a_text_that_is_too_long(client: OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input="x" * 8192, encoding_format="float")
    assert answer.usage.total_tokens == 8192
    with pytest.raises(openai.BadRequestError) as info:
        client.embeddings.create(model=MODEL, input=["short", "x" * 8193])
    assert (info.value.code, info.value.param) == ("context_length_exceeded", "input[1]")
    assert "at most 8192 tokens" in info.value.message and "has 8193 tokens" in info.value.message


@pytest.mark.parametrize("path", [PATH, "/v1/rerank"])
def test_other_models_do_not_exist(http: httpx.Client, path: str) -> None:
    body = {"model": "../x", "input": "a"} if path == PATH else {"model": "../x", "query": "a", "documents": ["b"]}
    assert check(http.post(path, json=body), 404)["code"] == "model_not_found"


def test_a_failure_is_one_request_s() -> None:
    with running(FakeRunner(poison_id=ord("!"))) as live, live.http() as http:
        assert (
            check(http.post(PATH, json={"model": MODEL, "input": ["a", "b!"]}), 500)["code"] == "model_output_invalid"
        )
        assert len(embed(http, "a")) == 1
        assert http.get("/health").status_code == 200


# Together


def test_many_clients_beside_chats(server: Running) -> None:
    """Each gets its own vectors, and each chat what it gets alone."""
    texts = [[f"{number}/{part}" * (part + 1) for part in range(4)] for number in range(48)]
    chat = {"model": MODEL, "messages": HELLO, "max_tokens": 30, "seed": 3, "ignore_eos": True}
    with server.http() as http:
        alone = [[embed(http, text)[0] for text in group] for group in texts]
        answer = http.post("/v1/chat/completions", json=chat).json()["choices"]
        with ThreadPoolExecutor(16) as pool:
            chats = [pool.submit(http.post, "/v1/chat/completions", json=chat) for _ in range(8)]
            found = list(pool.map(lambda group: embed(http, group), texts))
        assert found == alone
        assert all(future.result().json()["choices"] == answer for future in chats)
    server.wait_idle()
    assert server.stats.num_embedding == 0


@pytest.fixture(scope="module")
def slow() -> Iterator[Running]:
    with running(FakeRunner(step_seconds=lambda num_tokens: num_tokens * 1e-4)) as live:
        yield live


def send(server: Running, body: dict[str, Any]) -> socket.socket:
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock = socket.create_connection(server.address)
    sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sock


def wait_embedding(server: Running, num_jobs: int) -> None:
    wait_until(lambda: server.stats.num_embedding == num_jobs)


@pytest.mark.parametrize("resets", [True, False])
def test_a_client_that_leaves_stops_the_work(slow: Running, resets: bool) -> None:
    before = slow.stats.total_embedded_tokens
    socks = [send(slow, {"model": MODEL, "input": ["x" * 5000] * 50}) for _ in range(3)]
    wait_embedding(slow, 3)
    for sock in socks:
        if resets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    wait_embedding(slow, 0)
    assert slow.stats.total_embedded_tokens - before < 700_000
    assert not slow.worker._embeddings.has_work and not slow.worker._awaited


def test_a_chat_is_answered_while_a_long_job_is_computed(slow: Running) -> None:
    with slow.http() as http, send(slow, {"model": MODEL, "input": ["x" * 5000] * 50}):
        wait_embedding(slow, 1)
        body = {"model": MODEL, "messages": HELLO, "max_tokens": 5, "ignore_eos": True}
        assert http.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"] == 5
        assert slow.stats.num_embedding == 1
    wait_embedding(slow, 0)


def test_a_full_queue_is_429() -> None:
    runner = FakeRunner(step_seconds=lambda num_tokens: num_tokens * 1e-3)
    with running(runner, admission=Admission(max_waiting=1)) as live, live.http() as http:
        with send(live, {"model": MODEL, "input": ["x" * 1000] * 50}):
            wait_embedding(live, 1)
            response = http.post(PATH, json={"model": MODEL, "input": "a"})
            assert check(response, 429)["code"] == "queue_full" and int(response.headers["retry-after"]) >= 1
        wait_embedding(live, 0)


def test_a_model_that_only_embeds(http: httpx.Client) -> None:
    with running(FakeRunner(can_generate=False)) as live, live.http() as only:
        assert embed(only, "one") == embed(http, "one")
        for path, fields in (("/v1/chat/completions", {"messages": HELLO}), ("/v1/completions", {"prompt": "a"})):
            error = check(only.post(path, json={"model": MODEL, **fields}))
            assert error["param"] == "model" and "does not generate" in error["message"]


# Ranking


@pytest.fixture(scope="module")
def ranker() -> Iterator[Running]:
    with running(FakeRunner(pooling="rank", lanes=(Lane(4, 1024),))) as live:
        yield live


DOCUMENTS = ["alpha", "beta", "gamma", "delta", "beta"]


def rank(server: Running, **fields: Any) -> httpx.Response:
    with server.http() as http:
        return http.post("/v1/rerank", json={"model": MODEL, "query": "which", "documents": DOCUMENTS, **fields})


def test_documents_are_ordered(ranker: Running) -> None:
    answer = rank(ranker).json()
    results = answer["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert sorted(result["index"] for result in results) == [0, 1, 2, 3, 4]
    assert all(result["document"] == {"text": DOCUMENTS[result["index"]]} for result in results)
    places = [result["index"] for result in results if result["document"]["text"] == "beta"]
    assert places == [1, 4]
    num_tokens = sum(len("which") + 1 + len(document) for document in DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert (answer["object"], answer["model"]) == ("list", MODEL)


def test_top_n_and_documents_are_choices(ranker: Running) -> None:
    whole = rank(ranker).json()["results"]
    assert rank(ranker, top_n=2).json()["results"] == whole[:2]
    assert rank(ranker, top_n=99).json()["results"] == whole
    bare = rank(ranker, return_documents=False).json()["results"]
    assert [set(result) for result in bare] == [{"index", "relevance_score"}] * 5
    assert rank(ranker, documents=[{"text": text} for text in DOCUMENTS]).json()["results"] == whole


def test_a_document_s_score_is_its_own(ranker: Running) -> None:
    scores = {result["index"]: result["relevance_score"] for result in rank(ranker).json()["results"]}
    for index, document in enumerate(DOCUMENTS):
        assert rank(ranker, documents=[document]).json()["results"][0]["relevance_score"] == scores[index]
    assert TEXT_END == 259  # stands between query and document, so that moving letters over makes another pair
    assert rank(ranker, query="whic", documents=["halpha"]).json()["results"][0]["relevance_score"] != scores[0]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"query": ""}, "query", ""),
        ({"query": 5}, "query", ""),
        ({"query": "x" * 2000}, "query", "at most 1024 tokens, but 'query' has 2000"),
        ({"documents": []}, "documents", ""),
        ({"documents": [5]}, "documents[0]", ""),
        ({"documents": [{"body": "x"}]}, "documents[0]", ""),
        ({"documents": ["a"] * 2049}, "documents", ""),
        ({"documents": ["a", "x" * 1024]}, "documents[1]", "has 1030 tokens"),
        ({"documents": ["x" * 1000] * 500}, "documents", "more than 300000"),
        ({"top_n": 0}, "top_n", ""),
        ({"max_chunks_per_doc": 3}, "max_chunks_per_doc", "Unknown"),
    ],
)
def test_ranking_refusals(ranker: Running, fields: dict[str, Any], param: str, message: str) -> None:
    error = check(rank(ranker, **fields))
    assert error["param"].startswith(param) and message in error["message"]


def test_each_model_has_its_use(ranker: Running, http: httpx.Client) -> None:
    body = {"model": MODEL, "query": "which", "documents": DOCUMENTS}
    error = check(http.post("/v1/rerank", json=body))
    assert error["param"] == "model" and "does not rank" in error["message"]
    with ranker.http() as other:
        error = check(other.post(PATH, json={"model": MODEL, "input": "a"}))
    assert error["param"] == "model" and "/v1/rerank" in error["message"]
