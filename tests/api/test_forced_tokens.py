"""Tokens that the grammar forced, told apart from those that the model chose, where a client asks."""

import json
from typing import Any

import httpx
import pytest

from tests.api.running import MODEL

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}}, "required": ["name"]}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello"}],
    "seed": 1,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
}
RESPONSE: dict[str, Any] = {
    "model": MODEL,
    "input": "Hello",
    "seed": 1,
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
}
ASKED = {"logprobs": True, "forced_tokens": True}
INCLUDED = {"include": ["message.output_text.logprobs"], "forced_tokens": True}


def marked(entries: list[dict[str, Any]]) -> str:
    """The text with what was forced in brackets."""
    text = ""
    for entry in entries:
        token = bytes(entry["bytes"]).decode()
        text += f"[{token}]" if entry["forced"] else token
    return text.replace("][", "")


def test_forced_tokens_are_marked(http: httpx.Client) -> None:
    choice = http.post("/v1/chat/completions", json={**CHAT, **ASKED}).json()["choices"][0]
    found = marked(choice["logprobs"]["content"])
    assert found.startswith('[{"name":"]') and found.replace("[", "").replace("]", "") == choice["message"]["content"]
    assert "]" in found and not found.endswith("]]")


def test_a_stream_marks_the_same(http: httpx.Client) -> None:
    whole = http.post("/v1/chat/completions", json={**CHAT, **ASKED}).json()["choices"][0]["logprobs"]["content"]
    text = http.post("/v1/chat/completions", json={**CHAT, **ASKED, "stream": True}).text
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [frame["choices"][0]["logprobs"] for frame in frames if frame["choices"]]
    assert [entry for delta in deltas if delta is not None for entry in delta["content"]] == whole


def test_responses_mark_the_same(http: httpx.Client) -> None:
    body = http.post("/v1/responses", json={**RESPONSE, **INCLUDED}).json()
    part = body["output"][0]["content"][0]
    assert marked(part["logprobs"]).startswith('[{"name":"]')
    again = http.get(f"/v1/responses/{body['id']}").json()["output"][0]["content"][0]
    assert again["logprobs"] == part["logprobs"]


def test_the_answer_is_the_same_and_nothing_is_marked_unasked(http: httpx.Client) -> None:
    plain, scored, asked = (
        http.post("/v1/chat/completions", json={**CHAT, **more}).json()["choices"][0]
        for more in ({}, {"logprobs": True}, ASKED)
    )
    assert plain["message"] == scored["message"] == asked["message"]
    assert all("forced" not in entry for entry in scored["logprobs"]["content"])


def test_without_a_grammar_nothing_is_forced(http: httpx.Client) -> None:
    body = {**CHAT, **ASKED, "max_tokens": 4}
    del body["response_format"]
    entries = http.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]["content"]
    assert [entry["forced"] for entry in entries] == [False] * len(entries)


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)])
def test_marks_need_entries_to_stand_on(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    refused = http.post(path, json={**body, "forced_tokens": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "forced_tokens"
    wrong = http.post(path, json={**body, "forced_tokens": 1})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "forced_tokens"
