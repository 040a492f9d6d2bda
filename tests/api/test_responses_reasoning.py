"""Responses of a model that reasons: its thoughts as items, sealed and sent back, calls, and traffic like Codex's."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running
from tests.api.test_responses import (
    ASK,
    CLOSING,
    EXTRA,
    PING,
    QUIET,
    ask,
    called,
    check_order,
    frames,
    read,
    timeless,
)
from tests.api.writing import MARKERS


@pytest.fixture(scope="module")
def thinking() -> Iterator[Running]:
    with running(FakeRunner(chat_template=by_name("qwen3").template, defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


THINK: dict[str, Any] = {
    "extra": {"reasoning_budget_tokens": 20, "reasoning_min_tokens": 4, "logit_bias": {**QUIET, "260": 100}}
}


def test_reasoning_is_an_item(thinking: Running) -> None:
    with thinking.openai() as client, thinking.http() as http:
        answer = ask(client, **THINK, max_output_tokens=60)
        assert answer.output[0].type == "reasoning" and answer.output[0].summary == []
        assert answer.output[0].content and answer.output[0].content[0].text
        assert answer.output[0].encrypted_content is None
        assert answer.usage is not None and answer.usage.output_tokens_details.reasoning_tokens > 0
        final = check_order(frames(http, **THINK["extra"], max_output_tokens=60))
        assert timeless(Response.model_validate(final)) == timeless(answer)
        off = ask(client, reasoning={"effort": "none"}, extra={"logit_bias": QUIET}, max_output_tokens=60)
        assert {item.type for item in off.output} == {"message"} and off.reasoning and off.reasoning.effort == "none"


def test_sealed_reasoning_comes_back(thinking: Running) -> None:
    include = ["reasoning.encrypted_content"]
    with thinking.openai() as client:
        fields: dict[str, Any] = {**THINK, "tools": [PING], "tool_choice": {"type": "function", "name": "ping"}}
        answer = ask(client, **fields, include=include, store=False, max_output_tokens=200)
        thought, call = answer.output
        assert thought.type == "reasoning" and thought.encrypted_content and call.type == "function_call"
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "pong"}
        user = {"role": "user", "content": "Hello"}

        def count(reasoning: Any) -> int:
            items = [user, *reasoning, call.model_dump(), output]
            return client.responses.input_tokens.count(model=MODEL, input=items, tools=[PING]).input_tokens

        sealed = {"type": "reasoning", "id": thought.id, "summary": [], "encrypted_content": thought.encrypted_content}
        assert count([sealed]) == count([thought.model_dump(exclude={"encrypted_content"})]) > count([])
        changed = thought.encrypted_content[:-30] + "AAAA" + thought.encrypted_content[-26:]
        for broken in ("", "AAAA", "é", changed):
            with pytest.raises(openai.BadRequestError) as caught:
                count([{**sealed, "encrypted_content": broken}])
            assert caught.value.param == "input[1].encrypted_content"


class GetWeather(BaseModel):
    city: str
    days: int


def test_the_stream_helper_folds_calls_and_reasoning(thinking: Running) -> None:
    tool = openai.pydantic_function_tool(GetWeather)["function"]
    fields: dict[str, Any] = {
        **ASK,
        "tools": [{"type": "function", **tool}],
        "tool_choice": {"type": "function", "name": "GetWeather"},
        "extra_body": {**EXTRA, **THINK["extra"], "logit_bias": {**QUIET, "260": 100, **thinking.bias(CLOSING)}},
    }
    with thinking.openai() as client:
        whole = client.responses.create(**fields)
        with client.responses.stream(**fields) as stream:
            snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
            final = stream.get_final_response()
        thought, call = final.output
        assert thought.type == "reasoning" and thought.content and thought.content[0].text
        assert call.type == "function_call" and snapshots[-1] == call.arguments
        assert GetWeather.model_validate_json(call.arguments).model_dump() == call.parsed_arguments
        assert (
            timeless(Response.model_validate(final.model_dump(exclude={"output": {"__all__": {"parsed_arguments"}}})))[
                "output"
            ]
            == timeless(whole)["output"]
        )


def test_max_tool_calls(thinking: Running) -> None:
    """A model that would call for ever."""
    numbered = {**PING, "parameters": {"properties": {"n": {"enum": list(range(100, 1000))}}, "required": ["n"]}}
    fields: dict[str, Any] = {"tools": [numbered], "tool_choice": "required", "reasoning": {"effort": "none"}}
    eager = {"logit_bias": {**QUIET, "262": 100, "10": 100}}  # the marker, and what stands between two calls
    with thinking.openai() as client:
        assert len(called(ask(client, **fields, extra=eager, max_output_tokens=200))) > 3
        num_tokens = []
        for limit in (1, 2, 3):
            answer = ask(client, **fields, extra=eager, max_tool_calls=limit, max_output_tokens=200)
            assert len(set(called(answer))) == limit and answer.status == "completed"
            assert answer.usage is not None
            num_tokens.append(answer.usage.output_tokens)
        first, second, third = num_tokens  # no call is generated and dropped: each costs its own tokens
        assert third - second == second - first > 0 and third < 200
        # The same call again would be no news: the answer ends there.
        alike = ask(client, **{**fields, "tools": [PING]}, extra=eager, max_output_tokens=200)
        assert called(alike) == [("ping", "{}")] and alike.status == "completed"
        assert called(ask(client, tools=[PING], max_tool_calls=0, max_output_tokens=20)) == []
        with pytest.raises(openai.BadRequestError, match="max_tool_calls"):
            ask(client, **fields, max_tool_calls=0)


CODEX: dict[str, Any] = {
    "model": MODEL,
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files"}]},
    ],
    "tools": [
        {
            "type": "function",
            "name": "exec_command",
            "description": "Runs a command.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {"cmd": {"enum": ["ls", "pwd"]}},
                "required": ["cmd"],
                "additionalProperties": False,
            },
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Applies a patch.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin" /[a-z]{1,9}/ "*** End"'},
        },
        {"type": "namespace", "name": "mcp__x", "description": "", "tools": []},
        {"type": "tool_search", "execution": "client", "description": "", "parameters": {}},
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": False},
        {"type": "image_generation", "output_format": "png"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0197-abc",
    "service_tier": "priority",
    "text": {"verbosity": "low"},
    "client_metadata": {"x-codex-installation-id": "abc"},
}


def test_traffic_as_codex_sends_it(thinking: Running) -> None:
    """The call is taken from output_item.done and sent back with the sealed reasoning, nothing stored."""
    bias = {"logit_bias": {**QUIET, "262": 100}, "seed": 6, "reasoning_budget_tokens": 10}
    with thinking.http() as http:
        body = {**CODEX, **bias, "max_output_tokens": 400}
        response = http.post("/v1/responses", json=body, headers={"originator": "codex_cli_rs", "session_id": "x"})
        events = read(response.text)
        final = check_order(events)
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        (call, *_) = [item for item in done if item["type"] in ("function_call", "custom_tool_call")]
        assert call["status"] == "completed" and (call.get("arguments") or call.get("input"))
        assert final["usage"]["input_tokens_details"].keys() == {"cached_tokens", "cache_write_tokens"}
        sent = [{k: v for k, v in item.items() if k not in ("content", "status")} for item in done]
        output = {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "README.md"}
        rest = [
            {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "ok"}
            for item in done
            if item["type"].endswith("_call") and item is not call
        ]
        again = {**CODEX, "input": [*CODEX["input"], *(s for s in sent if s["type"] != "message"), output, *rest]}
        quiet = {"logit_bias": {**QUIET}, "seed": 3, "reasoning_budget_tokens": 5, "max_output_tokens": 30}
        second = check_order(read(http.post("/v1/responses", json={**again, **quiet}).text))
        assert second["usage"]["input_tokens_details"]["cached_tokens"] > 100
        probe = http.post("/v1/responses", json={**CODEX, "input": [], "max_output_tokens": 1, "stream": False})
        assert probe.json()["status"] == "incomplete"
        empty = http.post("/v1/responses", json={"model": MODEL, "input": [], "max_output_tokens": 1})
        assert empty.status_code == 200
