"""Limits by key, through the official clients: who has used up theirs is told when to come back, others go on."""

from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

from proxy_inference_engine.config import ApiKey, Config
from tests.api.running import HELLO, MODEL, Running, running

KEYS = tuple(ApiKey(name, f"key-of-{name}") for name in ("few", "tokens", "daily", "free", "root"))
# So small a rate that nothing comes back while a slow machine runs a test.
LIMITS = {
    "few": {"requests_per_day": 3},
    "tokens": {"tokens_per_day": 100},
    "daily": {"requests_per_day": 1000, "tokens_per_day": 1_000_000},
}
ASK = {"model": MODEL, "messages": HELLO, "max_tokens": 3}
OPENAI = [f"x-ratelimit-{name}-{unit}" for unit in ("requests", "tokens") for name in ("limit", "remaining", "reset")]


@pytest.fixture
def limited() -> Iterator[Running]:
    config = Config(api_keys=KEYS, limits=LIMITS, drain_seconds=0.2)  # type: ignore[arg-type]  # parsed
    with running(config=config) as live:
        yield live


def key(name: str) -> dict[str, str]:
    return {"x-api-key": f"key-of-{name}"}


def test_requests_run_out(limited: Running) -> None:
    with limited.http(headers=key("few")) as http:
        left = []
        for path, body in (
            ("/v1/chat/completions", ASK),
            ("/tokenize", {"prompt": "x"}),
            ("/v1/completions", {"model": MODEL}),
        ):
            answer = http.post(path, json=body)
            left.append(answer.headers["x-ratelimit-remaining-requests"])
        assert left == ["2", "1", "0"], "a bad request is one too"
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/nothing"):
            refused = http.post(path, content=b"not even JSON")
            assert refused.status_code == 429
            error = refused.json()["error"]
            assert error["type"] == "rate_limit_error" and error["code"] == "rate_limit_exceeded"
            assert refused.headers["retry-after"] == "60" and refused.headers["x-should-retry"] == "false"
            assert refused.headers["x-ratelimit-limit-requests"] == "3"
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            assert refused.headers["x-ratelimit-reset-requests"].startswith("2")
            assert "x-ratelimit-limit-tokens" not in refused.headers
        # Looking, stopping and deleting are free.
        assert http.get("/v1/models").status_code == 200
        assert http.post("/v1/responses/x/cancel").status_code == 404
        assert http.post("/admin/stop").status_code == 403, "no admin's key, but not 429"
        assert http.delete("/v1/responses/x").status_code == 404
        assert http.get("/v1/models").headers.keys().isdisjoint(OPENAI)
    with limited.http(headers=key("free")) as http:
        free = http.post("/v1/chat/completions", json=ASK)
        assert free.status_code == 200 and free.headers.keys().isdisjoint(OPENAI)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_run_out(limited: Running, stream: bool) -> None:
    body = {"model": MODEL, "prompt": "x" * 90, "max_tokens": 30, "ignore_eos": True, "stream": stream}
    with limited.http(headers=key("tokens")) as http:
        first = http.post("/v1/completions", json=body)
        assert first.status_code == 200, "what is left was enough to begin"
        # The prompt is charged before the answer begins. The rest follows when it has ended.
        assert first.headers["x-ratelimit-remaining-tokens"] == ("10" if stream else "0")
        refused = http.post("/v1/completions", json=body)
        assert refused.status_code == 429 and "tokens" in refused.json()["error"]["message"]
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    with limited.http(headers=key("free")) as http:
        assert http.post("/v1/completions", json=body).status_code == 200


def test_the_tokens_of_embeddings_and_of_the_background_count(limited: Running) -> None:
    with limited.http(headers=key("tokens")) as http:
        assert http.post("/v1/embeddings", json={"model": MODEL, "input": "x" * 120}).status_code == 200
        assert http.post("/v1/embeddings", json={"model": MODEL, "input": "x"}).status_code == 429


def test_headers_that_openai_s_client_reads(limited: Running) -> None:
    with limited.openai(key="key-of-daily") as client:
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)  # type: ignore[arg-type]
        assert {name: raw.headers[name] for name in OPENAI if "reset" not in name and "tokens" not in name} == {
            "x-ratelimit-limit-requests": "1000",
            "x-ratelimit-remaining-requests": "999",
        }
        assert raw.headers["x-ratelimit-limit-tokens"] == "1000000"
        assert raw.headers.keys() >= set(OPENAI)
    with limited.openai(key="key-of-few") as client:
        for _ in range(3):
            client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)  # type: ignore[arg-type]
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=1)  # type: ignore[arg-type]
        assert caught.value.code == "rate_limit_exceeded"


def test_anthropic_s_client_has_its_own(limited: Running) -> None:
    client = anthropic.Anthropic(base_url=limited.url, api_key="key-of-few", max_retries=0)
    with client:
        for left in ("2", "1", "0"):
            raw = client.messages.with_raw_response.create(model=MODEL, max_tokens=1, messages=HELLO)  # type: ignore[arg-type]
            assert raw.headers["anthropic-ratelimit-requests-remaining"] == left
            assert raw.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
            assert raw.headers.keys().isdisjoint(OPENAI)
        with pytest.raises(anthropic.RateLimitError) as caught:
            client.messages.create(model=MODEL, max_tokens=1, messages=HELLO)  # type: ignore[arg-type]
    error = caught.value
    assert error.body["error"]["type"] == "rate_limit_error" and error.response.headers["retry-after"]  # type: ignore[index]
    assert error.response.headers["anthropic-ratelimit-requests-limit"] == "3"


def test_without_keys_everybody_shares_one_limit() -> None:
    config = Config(limits={"requests_per_day": 1}, drain_seconds=0.2)  # type: ignore[arg-type]  # parsed
    with running(config=config) as live, live.http() as http:
        statuses = [http.post("/tokenize", json={"prompt": "x"}).status_code for _ in range(2)]
        assert statuses == [200, 429]
        assert [http.post("/admin/keys/reload").status_code for _ in range(2)] == [400, 400], "an admin has no limit"


def test_a_plain_request_knows_nothing_of_limits(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json=ASK)
    assert answer.status_code == 200 and answer.headers.keys().isdisjoint(OPENAI) and "vary" not in answer.headers
