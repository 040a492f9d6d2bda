"""Models, tokens, templates, health, metrics."""

import re
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, running
from tests.polling import wait_until


def test_models_are_listed(client: OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL]
    extra = models[0].model_extra or {}
    assert (extra["context_length"], extra["state"], extra["type"]) == (8192, "ready", "model")
    assert client.models.retrieve(MODEL) == models[0]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/other")


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "Hi"}, [72, 105]),
        ({"prompt": ""}, []),
        ({"prompt": "a<|im_end|>", "model": MODEL}, [97, 258]),
        ({"prompt": "<|im_end|>", "parse_special": False}, list(b"<|im_end|>")),
        ({"messages": HELLO, "add_generation_prompt": False}, [257, *b"user\nHello", 258, 10]),
    ],
)
def test_tokenize(http: httpx.Client, body: dict[str, Any], tokens: list[int]) -> None:
    answer = http.post("/tokenize", json=body).json()
    assert answer == {"count": len(tokens), "max_model_len": 8192, "tokens": tokens}


def test_tokens_have_names_when_asked(http: httpx.Client) -> None:
    answer = http.post("/tokenize", json={"prompt": "aé", "return_token_strs": True}).json()
    assert answer["token_strs"] == ["a", "\ufffd", "\ufffd"]


def test_special_tokens_are_a_choice() -> None:
    with running(FakeRunner(has_bos=True)) as live, live.http() as http:
        assert http.post("/tokenize", json={"prompt": "a"}).json()["tokens"] == [256, 97]
        assert http.post("/tokenize", json={"prompt": "a", "add_special_tokens": False}).json()["tokens"] == [97]
        for name in ("add_special_tokens", "parse_special"):
            body = {"messages": HELLO, name: True}
            assert http.post("/tokenize", json=body).json()["error"]["param"] == name


def test_detokenize_is_the_inverse(http: httpx.Client) -> None:
    text = "Grüße, 世界 \U0001f600"
    tokens = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": text, "content": text}
    assert http.post("/detokenize", json={"tokens": []}).json()["prompt"] == ""
    assert http.post("/detokenize", json={"tokens": [260]}).json()["error"]["param"] == "tokens"


def test_apply_template(http: httpx.Client) -> None:
    prompt = http.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
    assert prompt == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("has_bos", [False, True])
def test_a_rendered_chat_is_the_same_prompt_as_text(has_bos: bool) -> None:
    """Other servers read special tokens in raw prompts, and their users render chats themselves."""
    with running(FakeRunner(has_bos=has_bos)) as live, live.http() as http:
        prompt = http.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
        ids = http.post("/tokenize", json={"messages": HELLO}).json()["tokens"]
        assert http.post("/tokenize", json={"prompt": prompt}).json()["tokens"] == ids
        options = {"model": MODEL, "seed": 1, "max_tokens": 20}
        chat = http.post("/v1/chat/completions", json={**options, "messages": HELLO}).json()
        raw = http.post("/v1/completions", json={**options, "prompt": prompt}).json()
        assert raw["choices"][0]["text"] == chat["choices"][0]["message"]["content"]
        assert raw["usage"]["prompt_tokens"] == chat["usage"]["prompt_tokens"] == len(ids)


def test_long_texts_take_the_same_way(http: httpx.Client) -> None:
    text = "word " * 100_000
    assert http.post("/tokenize", json={"prompt": text}).json()["count"] == 500_000
    prompt = http.post("/apply-template", json={"messages": [{"role": "user", "content": text}]}).json()["prompt"]
    assert text in prompt


def test_health_and_readiness(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ready"}


def test_a_stuck_engine_is_not_ready() -> None:
    with running() as live, live.http() as http:
        live.worker.drain()
        response = http.get("/ready")
        assert response.status_code == 503 and response.json()["error"]["code"] == "engine_unavailable"
        assert http.get("/health").status_code == 200


def series(http: httpx.Client) -> dict[str, float]:
    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = (line for line in response.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def series_with(http: httpx.Client, *names: str) -> dict[str, float]:
    """A request is counted when its last byte is sent, which its client may see first."""
    wait_until(lambda: series(http).keys() >= set(names))
    return series(http)


def test_metrics_count() -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.01)) as live, live.http() as http:
        before = series(http)
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 10, "ignore_eos": True, "seed": 1}
        http.post("/v1/completions", json={**body, "stream": True})
        http.post("/v1/completions", json={**body, "n": 0})
        counted = [f'pie_http_requests_total{{route="/v1/completions",status="{status}"}}' for status in (200, 400)]
        after = series_with(http, *counted)
    assert after['pie_generated_tokens_total{model="fake"}'] - before['pie_generated_tokens_total{model="fake"}'] == 10
    assert after['pie_prompt_tokens_total{model="fake"}'] >= 4 and after['pie_slots{model="fake"}'] == 17
    assert after['pie_time_to_first_token_seconds_count{model="fake"}'] == 1
    assert after['pie_inter_token_seconds_count{model="fake"}'] >= 1
    assert [after[name] for name in counted] == [1, 1]


def test_clients_cannot_make_series() -> None:
    with running() as live, live.http() as http:
        http.get("/x")
        http.get(f"/v1/models/{MODEL}")
        http.get("/v1/models/other")
        before = set(series(http)) | set(series(http))
        for number in range(50):
            http.get(f"/path-{number}")
            http.get(f"/v1/models/model-{number}")
            http.request("PROPFIND", f"/{number}", headers={"x-request-id": str(number)})
        names = set(series(http))
    assert names <= before
    assert not re.search(r"path-|model-|PROPFIND", "".join(names))
