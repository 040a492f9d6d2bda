"""What every route does with fields that have no effect here, that are refused, and that nobody knows."""

import json
import re
from typing import Any

import httpx
import pytest

from tests.api.running import MODEL

HELLO = [{"role": "user", "content": "Hello"}]
# The routes that generate, each with a body that always gives the same answer.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": HELLO, "max_tokens": 8, "seed": 1},
    "/v1/completions": {"model": MODEL, "prompt": "Hello", "max_tokens": 8, "seed": 1},
    "/v1/responses": {"model": MODEL, "input": "Hello", "max_output_tokens": 8, "seed": 1},
}
MESSAGES: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 8, "temperature": 0}

# Field, a value, a value that is wrong.
WITHOUT_EFFECT: list[tuple[str, Any, Any]] = [
    ("user", "anna", 5),
    ("safety_identifier", "anna", "x" * 513),
    ("metadata", {"topic": "tea"}, {"topic": 5}),
    ("client_metadata", {"x-client": "1"}, ["x"]),
    ("service_tier", "flex", "slow"),  # alone, nobody goes before or behind anybody
    ("prompt_cache_key", "k", {}),
    ("prompt_cache_retention", "24h", "forever"),
    ("prompt_cache_options", {"mode": "implicit", "ttl": "30m"}, {"mode": "x"}),
]
# Field, a value that asks for nothing, a value that asks for something.
REFUSED: list[tuple[str, Any, Any]] = [
    ("audio", None, {"voice": "alloy", "format": "wav"}),
    ("modalities", ["text"], ["text", "audio"]),
    ("web_search_options", None, {}),
    ("moderation", None, {"model": "omni-moderation-latest"}),
    ("function_call", "none", {"name": "f"}),
]


def text_of(body: dict[str, Any]) -> str:
    """What was generated, without ids and times."""
    said = body.get("output") or body.get("content") or body["choices"]
    return re.sub(r'"(id|signature)": "[^"]*"', "", json.dumps(said))


def refusal(response: httpx.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    return response.status_code, error["param"], error["code"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("field", "value", "wrong"), WITHOUT_EFFECT, ids=[row[0] for row in WITHOUT_EFFECT])
def test_fields_without_effect(http: httpx.Client, path: str, field: str, value: Any, wrong: Any) -> None:
    plain = http.post(path, json=BODIES[path])
    given = http.post(path, json={**BODIES[path], field: value})
    assert given.status_code == 200 and text_of(given.json()) == text_of(plain.json())
    assert "x-pie-ignored" not in given.headers
    if path == "/v1/responses" and field not in ("client_metadata", "prompt_cache_options"):
        assert given.json()[field] == value
    if path == "/v1/chat/completions" and field in ("metadata", "service_tier"):
        assert given.json()[field] == value
    status, param, _ = refusal(http.post(path, json={**BODIES[path], field: wrong}))
    assert status == 400 and param.split(".")[0] == field


@pytest.mark.parametrize(
    ("path", "fields", "wrong", "param"),
    [
        ("/v1/chat/completions", {"verbosity": "high"}, {"verbosity": "loud"}, "verbosity"),
        ("/v1/responses", {"text": {"verbosity": "high"}}, {"text": {"verbosity": "loud"}}, "text.verbosity"),
    ],
)
def test_verbosity(http: httpx.Client, path: str, fields: dict[str, Any], wrong: dict[str, Any], param: str) -> None:
    given = http.post(path, json={**BODIES[path], **fields}).json()
    assert text_of(given) == text_of(http.post(path, json=BODIES[path]).json())
    assert refusal(http.post(path, json={**BODIES[path], **wrong}))[:2] == (400, param)


@pytest.mark.parametrize("path", BODIES)
def test_nothing_is_obfuscated(http: httpx.Client, path: str) -> None:
    for is_asked in (True, False):
        options = {"stream": True, "stream_options": {"include_obfuscation": is_asked}}
        response = http.post(path, json={**BODIES[path], **options})
        assert response.status_code == 200 and "obfuscation" not in response.text
        assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(("field", "neutral", "value"), REFUSED, ids=[row[0] for row in REFUSED])
def test_fields_that_are_refused(http: httpx.Client, field: str, neutral: Any, value: Any) -> None:
    path = "/v1/chat/completions"
    assert http.post(path, json={**BODIES[path], field: neutral}).status_code == 200
    assert http.post(path, json={**BODIES[path], field: None}).status_code == 200
    refused = refusal(http.post(path, json={**BODIES[path], field: value}))
    assert refused == (400, field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("moderation", {"model": "omni-moderation-latest"}),
        ("prompt", {"id": "pmpt_1"}),
        ("context_management", [{"type": "compaction", "compact_threshold": 100}]),
    ],
)
def test_fields_that_responses_refuse(http: httpx.Client, field: str, value: Any) -> None:
    body = BODIES["/v1/responses"]
    assert http.post("/v1/responses", json={**body, field: None}).status_code == 200
    refused = refusal(http.post("/v1/responses", json={**body, field: value}))
    assert refused == (400, field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *BODIES.items(),
        ("/v1/responses/input_tokens", {"model": MODEL, "input": "Hello"}),
        ("/v1/responses/compact", {"model": MODEL, "input": "Hello"}),
        ("/v1/conversations", {}),
        ("/v1/embeddings", {"model": MODEL, "input": "Hello"}),
        ("/v1/rerank", {"model": MODEL, "query": "x", "documents": ["y"]}),
        ("/tokenize", {"prompt": "x"}),
    ],
)
def test_unknown_fields(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert refusal(http.post(path, json={**body, "tempratur": 1})) == (400, "tempratur", "unknown_parameter")


def test_messages_drop_what_they_do_not_know_and_say_so(http: httpx.Client) -> None:
    """Its clients add beta fields with every release."""
    plain = http.post("/v1/messages", json=MESSAGES)
    body = {**MESSAGES, "speed": "fast", "mcp_servers": [{"type": "url"}], "metadata": {"user_id": "x"}}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        given = http.post(path, json=body)
        assert given.status_code == 200
        assert {"speed", "mcp_servers"} <= set(given.headers["x-pie-ignored"].split(", "))
    assert text_of(http.post("/v1/messages", json=body).json()) == text_of(plain.json())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/moderations"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/audio/transcriptions"),
        ("DELETE", f"/v1/models/{MODEL}"),
    ],
)
def test_what_is_out_of_scope_is_not_there(http: httpx.Client, method: str, path: str) -> None:
    response = http.request(method, path, json={})
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
