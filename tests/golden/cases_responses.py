"""POST /v1/responses and the paths beside it: what they do in one request."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.golden.case import MODEL, Case, Json, assistant, each, user
from tests.golden.cases_structured import LATER, TURNS, turns
from tests.golden.tools import LOOSE, MATH, NOTE, PING, SCHEMA, SHELL, TIME, WEATHER, custom, flat, function

PATH = "/v1/responses"
ASK: Json = {"model": MODEL, "input": "Hello", "seed": 1, "max_output_tokens": 6, "store": False}
BASE = Case("response", PATH, ASK)
TOOLS = [flat(tool) for tool in (WEATHER, TIME, PING, SHELL, MATH, NOTE)]
HOSTED: list[Json] = [{"type": "web_search"}, {"type": "namespace", "name": "a", "tools": []}]
CLOSING = {"34": 8}


def schema(value: Json, **fields: Any) -> Json:
    return {"format": {"type": "json_schema", "name": "answer", "schema": value, **fields}}


def call(id_: str, name: str = "ping", arguments: str = "{}", **fields: Any) -> Json:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments, **fields}


def result(id_: str, output: Any = "pong", **fields: Any) -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": output, **fields}


TABLE: dict[str, Json] = {
    "a text": {},
    "greedy": {"temperature": 0},
    "instructions": {"instructions": "Be brief."},
    "no input": {"input": ..., "max_output_tokens": 2},
    "empty input": {"input": [], "max_output_tokens": 2},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": -0.5, "top_k": 20},
    "stop": {"stop": ["a", "e", "o"], "max_output_tokens": 40},
    "an end of its own": {"logit_bias": {"258": 100}},
    "stop ids and min_tokens": {"stop_token_ids": [32, 101], "min_tokens": 2, "max_output_tokens": 30},
    "top_logprobs": {"top_logprobs": 2, "max_output_tokens": 2},
    "logprobs by include": {"include": ["message.output_text.logprobs"], "max_output_tokens": 2},
    "includes of others": {"include": ["web_search_call.results", "message.input_image.image_url"]},
    "everything that is echoed": {
        "instructions": "Be brief.",
        "metadata": {"topic": "tea"},
        "user": "anna",
        "safety_identifier": "a1",
        "prompt_cache_key": "key",
        "prompt_cache_retention": "in-memory",
        "service_tier": "flex",
        "truncation": "auto",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "auto"},
        "tools": [*TOOLS, *HOSTED],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]},
    },
    "nulls at any depth": {
        "text": {"format": None, "verbosity": None},
        "reasoning": {"effort": None},
        "tools": [{"type": "function", "name": "ping", "description": None, "parameters": None, "strict": None}],
        "conversation": None,
        "previous_response_id": None,
        "n": 1,
    },
    "fields without effect": {
        "client_metadata": {"a": "b"},
        "prompt_cache_options": {"mode": "explicit"},
        "verbosity": None,
        "context_management": [],
    },
    "model by alias": {"model": "default"},
}
FORMATS: dict[str, Json] = {
    "text": {"text": {"format": {"type": "text"}}},
    "json_object": {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 30},
    "json_schema": {"text": schema(SCHEMA, description="A place."), "max_output_tokens": 60, "logit_bias": CLOSING},
    "json_schema, relaxed": {"text": schema(LOOSE, strict=False), "max_output_tokens": 60},
    "json_schema, cut off": {"text": schema(SCHEMA), "max_output_tokens": 4},
}
CHOICES: dict[str, Json] = {
    "auto": {"tool_choice": "auto", "max_output_tokens": 3},
    "none": {"tool_choice": "none", "max_output_tokens": 3},
    "required": {"tool_choice": "required", "tools": TOOLS[:3], "max_tool_calls": 2},
    "required, one": {"tool_choice": "required", "parallel_tool_calls": False},
    "function": {"tool_choice": {"type": "function", "name": "get_weather"}},
    "cut off": {"tool_choice": {"type": "function", "name": "get_weather"}, "max_output_tokens": 40},
    "regex": {"tool_choice": {"type": "custom", "name": "shell"}},
    "lark": {"tool_choice": {"type": "custom", "name": "math"}},
    "free text": {"tool_choice": {"type": "custom", "name": "note"}, "max_output_tokens": 70},
    "no calls": {"max_tool_calls": 0, "max_output_tokens": 3},
    "allowed": {
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "ping"}, {"type": "web_search"}],
        },
        "max_tool_calls": 1,
    },
    "hosted tools": {"tools": [*HOSTED, flat(PING)], "tool_choice": {"type": "function", "name": "ping"}},
    "hosted tools only": {"tools": HOSTED, "max_output_tokens": 3},
    "deferred": {
        "tools": [{**flat(PING), "defer_loading": True, "allowed_callers": ["direct"], "output_schema": {}}],
        "tool_choice": "required",
        "max_tool_calls": 1,
    },
    "relaxed": {"tools": [flat(function("loose", LOOSE))], "tool_choice": "required", "max_tool_calls": 1},
}
INPUTS: dict[str, list[Any]] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "id": "msg_1"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Ho", "annotations": []}], "phase": None},
        {"role": "developer", "content": "Go on."},
        {"role": "user", "content": [{"type": "text", "text": "Hey"}], "status": "completed"},
    ],
    "a refusal": [user("Hi"), assistant([{"type": "refusal", "refusal": "No."}]), user("Why?")],
    "calls": [
        user("Hi"),
        call("c1", id="fc_1", status="completed", namespace="a"),
        call("c2", "get_weather", '{"city": "Rome"}'),
        result("c2", "sunny"),
        result("c1", [{"type": "input_text", "text": "po"}, {"type": "input_text", "text": "ng"}], name="ping"),
    ],
    "custom calls": [
        user("Hi"),
        {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "file"},
    ],
    "reasoning": [
        user("Hi"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "id": "rs_1"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "summary": []},
        assistant("Ho"),
        user("Hey"),
    ],
    "two answers": [user("Hi"), assistant("Ho"), assistant("Ha"), user("Hey")],
    "thoughts between calls": [
        user("Hi"),
        call("c1"),
        {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "Hm."}]},
        call("c2"),
        result("c1"),
        result("c2"),
    ],
    "hosted items": [
        user("Hi"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "mcp_list_tools", "tools": []},
        user("Hey"),
    ],
}


def _scripted() -> Iterator[Case]:
    tools = [flat(tool) for tool in (WEATHER, PING, custom("shell"))]
    base = Case(
        "scripted", PATH, {**ASK, "temperature": 0, "max_output_tokens": 100, "tools": tools}, server="scripted"
    )
    inputs = {name: {"input": turns(number)} for number, name in enumerate([*TURNS, *LATER])}
    yield from each(base, inputs, is_streamed=True)


def cases() -> Iterator[Case]:
    yield from each(BASE, TABLE, is_streamed=True)
    yield from each(replace(BASE, name="format"), FORMATS, is_streamed=True)
    bound = {**ASK, "tools": TOOLS, "max_output_tokens": 120, "logit_bias": CLOSING}
    yield from each(replace(BASE, name="tools", body=bound), CHOICES, is_streamed=True)
    yield from each(replace(BASE, name="input"), {name: {"input": items} for name, items in INPUTS.items()})
    counting = Case("count", f"{PATH}/input_tokens", {"model": MODEL, "input": "Hello"})
    yield from each(counting, {name: {"input": items} for name, items in INPUTS.items()})
    yield from each(
        counting,
        {
            "a text": {},
            "nothing": {"model": ..., "input": ...},
            "tools": {"tools": [*TOOLS, *HOSTED], "instructions": "Be brief.", "reasoning": {"effort": "low"}},
            "too long": {"input": "a" * 9000},
        },
    )
    yield replace(BASE, name="a stream with options", body={**ASK, "stream": True, "stream_options": {}})
    yield from _scripted()
