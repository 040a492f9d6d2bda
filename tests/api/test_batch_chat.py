"""Several conversations in one request are answered as each would be alone, in order."""

import json
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.api.running import HELLO, MODEL, on_every_runner

TALKS: list[list[dict[str, Any]]] = [
    HELLO,
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And you?"}],
    [{"role": "user", "content": "A third one"}],
]
ASK: dict[str, Any] = {"model": MODEL, "seed": 3, "max_tokens": 15}
PATH = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}},
}
GREETING = {"type": "choice", "choices": ["hello", "hi"]}


def post(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = http.post(PATH, json={**ASK, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def streamed(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    body = {**ASK, **fields, "stream": True, "stream_options": {"include_usage": True}}
    frames = http.post(PATH, json=body).text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def without_ids(choice: dict[str, Any]) -> dict[str, Any]:
    message = dict(choice["message"])
    if "tool_calls" in message:
        message["tool_calls"] = [{**call, "id": ""} for call in message["tool_calls"]]
    return {**choice, "index": 0, "message": message}


BATCHES: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({}, [{}, {}, {}]),
    ({"n": 2}, [{"n": 2}, {"n": 2}, {"n": 2}]),
    ({"n": 2, "best_of": 3}, [{"n": 2, "best_of": 3}] * 3),
    ({"logprobs": True, "top_logprobs": 1}, [{"logprobs": True, "top_logprobs": 1}] * 3),
    ({"temperature": [0, 1, 0.5]}, [{"temperature": 0}, {"temperature": 1}, {"temperature": 0.5}]),
    ({"seed": [1, None, 3], "temperature": 0}, [{"seed": 1, "temperature": 0}, {"temperature": 0}, {"temperature": 0}]),
    ({"max_tokens": [2, 4, 6], "ignore_eos": True}, [{"max_tokens": num, "ignore_eos": True} for num in (2, 4, 6)]),
    ({"min_tokens": [15, 0, 9]}, [{"min_tokens": 15}, {}, {"min_tokens": 9}]),
    (
        {"stop": [["a", "e"], "i", None], "ignore_eos": [True]},
        [{"stop": ["a", "e"], "ignore_eos": True}, {"stop": "i", "ignore_eos": True}, {"ignore_eos": True}],
    ),
    ({"response_format": [GREETING, None, {"type": "text"}]}, [{"response_format": GREETING}, {}, {}]),
    (
        {"tools": [[TOOL], [], [TOOL]], "tool_choice": ["required", "auto", "none"], "max_tokens": 100},
        [
            {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100},
            {"max_tokens": 100},
            {"tools": [TOOL], "tool_choice": "none", "max_tokens": 100},
        ],
    ),
]


@on_every_runner
@pytest.mark.parametrize(("fields", "own"), BATCHES)
def test_each_is_answered_as_alone(http: httpx.Client, fields: dict[str, Any], own: list[dict[str, Any]]) -> None:
    answer = post(http, messages=TALKS, **fields)
    alone = [post(http, messages=talk, **each) for talk, each in zip(TALKS, own, strict=True)]
    expected = [choice for each in alone for choice in each["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))
    assert list(map(without_ids, answer["choices"])) == list(map(without_ids, expected))
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert answer["usage"][name] == sum(each["usage"][name] for each in alone)


@on_every_runner
@pytest.mark.parametrize("fields", [fields for fields, _ in BATCHES if "best_of" not in fields])
def test_streamed_equals_whole(http: httpx.Client, fields: dict[str, Any]) -> None:
    answer, chunks = post(http, messages=TALKS, **fields), streamed(http, messages=TALKS, **fields)
    num_choices = len(answer["choices"])
    roles = [part for chunk in chunks for part in chunk["choices"] if "role" in part["delta"]]
    assert [choice["index"] for choice in roles] == list(range(num_choices))
    assert all(choice["delta"]["role"] == "assistant" for choice in roles)
    for choice in answer["choices"]:
        own = [part for chunk in chunks for part in chunk["choices"] if part["index"] == choice["index"]]
        text = "".join(part["delta"].get("content") or "" for part in own)
        assert text == (choice["message"]["content"] or "")
        assert "role" in own[0]["delta"] and any("content" in part["delta"] for part in own)
        has_content = any(part["delta"].get("content") is not None for part in own)
        assert has_content == (choice["message"]["content"] is not None)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        calls = [call for part in own for call in part["delta"].get("tool_calls", [])]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert arguments == "".join(call["function"]["arguments"] for call in choice["message"].get("tool_calls", []))
    assert chunks[-1]["usage"]["total_tokens"] == answer["usage"]["total_tokens"]


def test_the_official_client_reads_it(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=[], seed=3, extra_body={"messages": TALKS}, n=2)
    assert [choice.index for choice in answer.choices] == list(range(6))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": [1, 1]}, "temperature", None),
        ({"temperature": [1, 1, 3]}, "temperature[2]", None),
        ({"messages": [HELLO, [{"role": "user", "content": "x" * 9000}]]}, "messages[1]", "context_length_exceeded"),
        ({"min_tokens": [1, 2, 99]}, "min_tokens[2]", None),
        ({"tools": [[], [TOOL, TOOL], []]}, "tools[1][1].function.name", None),
        ({"tool_choice": ["auto", "auto", "required"]}, "tool_choice[2]", None),
        ({"logit_bias": [{}, {"260": 1}, {}]}, "logit_bias[1]", None),
        ({"continue_final_message": [False, False, True]}, "continue_final_message[2]", None),
        ({"response_format": [{"type": "grammar", "syntax": "regex", "definition": "("}]}, None, None),
        ({"store": True}, "store", None),
        ({"messages": [HELLO] * 129}, "messages", None),
    ],
)
def test_a_wrong_one_is_named_and_nothing_runs(
    http: httpx.Client, fields: dict[str, Any], param: str | None, code: str | None
) -> None:
    response = http.post(PATH, json={**ASK, "messages": TALKS, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param or "response_format[0].definition", code)


def test_one_conversation_takes_no_lists(http: httpx.Client) -> None:
    response = http.post(PATH, json={**ASK, "messages": HELLO, "temperature": [1]})
    assert response.status_code == 400 and response.json()["error"]["param"] == "temperature"


def test_what_was_relaxed_is_told_once(http: httpx.Client) -> None:
    schema = {"type": "array", "items": {"type": "number"}, "uniqueItems": True}
    loose = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": False}}
    alone = http.post(PATH, json={**ASK, "messages": HELLO, "response_format": loose})
    together = http.post(PATH, json={**ASK, "messages": TALKS, "response_format": [loose, loose, None]})
    assert alone.headers["x-pie-relaxed"] == together.headers["x-pie-relaxed"]


def test_calls_have_ids_of_their_own(http: httpx.Client) -> None:
    answer = post(http, messages=TALKS, tools=[TOOL], tool_choice="required", n=2, max_tokens=100)
    ids = [call["id"] for choice in answer["choices"] for call in choice["message"].get("tool_calls", [])]
    assert len(ids) >= 6 and len(set(ids)) == len(ids)
