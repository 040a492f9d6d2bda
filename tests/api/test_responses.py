"""POST /v1/responses through the official client: the object, its events, tools, formats, reasoning, refusals."""

import json
import re
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseTextDeltaEvent
from pydantic import BaseModel

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, on_every_runner, running

ASK: dict[str, Any] = {"model": MODEL, "input": "Hello", "max_output_tokens": 600}
EXTRA: dict[str, Any] = {"seed": 1}
CLOSING = {'"': 6}
QUIET = {"260": -100, "262": -100, "263": -100}  # it writes markers wherever it may
# Required by OpenAI's schema and by OpenResponses together.
KEYS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
    "conversation", "prompt", "prompt_cache_retention", "user",
}  # fmt: skip

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
PING: Any = {"type": "function", "name": "ping", "parameters": None, "strict": None}
SHELL: Any = {
    "type": "custom",
    "name": "shell",
    "format": {"type": "grammar", "syntax": "regex", "definition": "ls( -[a-z]{1,3})?"},
}
PATTERNS = {"get_weather": r'\{"city": "(Paris|Rome)"\}', "ping": r"\{\}", "shell": "ls( -[a-z]{1,3})?"}
TOOLS = [WEATHER, PING, SHELL]


def ask(client: OpenAI, **fields: Any) -> Response:
    extra = fields.pop("extra", {})
    answer: Response = client.responses.create(**{**ASK, **fields}, extra_body={**EXTRA, **extra})
    return answer


def frames(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream, with its framing and numbers checked."""
    response = http.post("/v1/responses", json={**ASK, **EXTRA, **fields, "stream": True})
    assert response.status_code == 200, response.text
    return read(response.text)


def read(text: str, first: int = 0) -> list[dict[str, Any]]:
    *parts, done, rest = text.split("\n\n")
    assert done == "data: [DONE]" and rest == ""
    events = []
    for number, part in enumerate(part for part in parts if not part.startswith(":")):
        name, data = part.split("\n")
        event: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event["sequence_number"] == first + number
        events.append(event)
    return events


def timeless(response: Any) -> Any:
    """Without what differs from one response to the next."""
    text = json.dumps(response if isinstance(response, dict) else response.model_dump(mode="json"))
    text = re.sub(r'"(resp|msg|rs|fc|ctc|call)_[0-9a-f]+"', r'"\1"', text)
    plain = json.loads(re.sub(r'"(created_at|completed_at)": [0-9.]+', r'"\1": 0', text))
    plain["usage"].pop("input_tokens_details")
    return plain


def check_order(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The grammar of a stream, with dense indexes; returns the object at the end."""
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:2] == ["created", "in_progress"] and events[0]["response"]["output"] == []
    assert kinds[-1] in ("completed", "incomplete") and not {"completed", "incomplete", "failed"} & set(kinds[:-1])
    text = r"(content_part.added(?: {0}.delta)* {0}.done content_part.done)"
    bodies = "|".join(
        [text.format("output_text"), text.format("reasoning_text")]
        + [f"((?:{name}.delta )*{name}.done)" for name in ("function_call_arguments", "custom_tool_call_input")]
    )
    assert re.fullmatch(rf"(output_item.added ({bodies}) output_item.done ?)*", " ".join(kinds[2:-1])), kinds
    final: dict[str, Any] = events[-1]["response"]
    index = -1
    for event in events[2:-1]:
        if event["type"] == "response.output_item.added":
            index += 1
            item = final["output"][index]
            assert event["item"]["id"] == item["id"] and event["item"]["status"] == "in_progress"
        elif event["type"] == "response.output_item.done":
            assert event["item"] == item
        else:
            assert event["item_id"] == item["id"]
        assert event["output_index"] == index
    assert index == len(final["output"]) - 1 and final["usage"]["total_tokens"] > 0
    return final


@on_every_runner
def test_every_key_is_there(http: httpx.Client) -> None:
    given = {
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "auto",
        "temperature": 0.5,
        "instructions": "Be brief.",
        "tools": [{**WEATHER, "description": None}, PING, SHELL],
        "tool_choice": {"type": "function", "name": "ping"},
        "reasoning": None,
        "text": {"verbosity": "low"},
        "store": False,
    }
    body = http.post("/v1/responses", json={**ASK, **EXTRA, **given}).json()
    assert set(body) >= KEYS
    assert body["id"].startswith("resp_") and body["status"] == "completed" and body["completed_at"]
    assert body["metadata"] == {"a": "b"} and body["user"] == "u" and body["service_tier"] == "default"
    assert body["tools"][0] == {**WEATHER, "description": None} and body["tools"][1] == {**PING, "description": None}
    assert body["tool_choice"] == given["tool_choice"] and body["text"]["format"] == {"type": "text"}
    bare = http.post("/v1/responses", json={"model": MODEL, "input": "x", "max_output_tokens": 1}).json()
    assert set(bare) == set(body) and bare["metadata"] == {} and bare["tools"] == [] and bare["store"] is True


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_output_tokens": 16},
        {"instructions": "Be brief.", "temperature": 0, "max_output_tokens": 100},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 20},
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "shell"}},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"enum": ["yes", "no"]}}}},
    ],
)
def test_streamed_equals_whole(client: OpenAI, http: httpx.Client, fields: dict[str, Any]) -> None:
    whole = ask(client, **fields)
    final = check_order(frames(http, **fields))
    assert timeless(Response.model_validate(final)) == timeless(whole)


def test_the_stream_helper_folds(client: OpenAI) -> None:
    whole = ask(client)
    with client.responses.stream(**ASK, extra_body=EXTRA) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        final = events.get_final_response()
    assert final.output_text == whole.output_text == "".join(deltas) and final.status == "completed"


class Person(BaseModel):
    name: str
    age: int


@on_every_runner
def test_parse_and_its_stream(client: OpenAI, server: Running) -> None:
    options = {**EXTRA, "logit_bias": server.bias(CLOSING)}
    answer = client.responses.parse(**ASK, text_format=Person, extra_body=options)
    assert isinstance(answer.output_parsed, Person)
    with client.responses.stream(**ASK, text_format=Person, extra_body=options) as events:
        events.until_done()
        assert events.get_final_response().output_parsed == answer.output_parsed


@on_every_runner
def test_the_limit_gives_incomplete(client: OpenAI, http: httpx.Client) -> None:
    answer = ask(client, max_output_tokens=5)
    assert answer.status == "incomplete" and answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens" and answer.completed_at is None
    (item,) = answer.output
    assert item.type == "message" and item.status == "incomplete"
    assert frames(http, max_output_tokens=5)[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize(
    ("server", "max_tokens"),
    [*(("fake", limit) for limit in range(1, 40, 3)), *(("mlx", limit) for limit in (1, 4, 13, 25))],
    indirect=["server"],
)
def test_the_limit_inside_a_call(http: httpx.Client, max_tokens: int) -> None:
    fields = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    final = check_order(frames(http, **fields, max_output_tokens=max_tokens))
    assert final["output"]
    if final["status"] == "incomplete":
        assert final["output"][-1]["status"] == "incomplete"
    else:
        assert json.loads(final["output"][0]["arguments"])


@on_every_runner
def test_logprobs(client: OpenAI) -> None:
    for fields, num_top in (({"include": ["message.output_text.logprobs"]}, 0), ({"top_logprobs": 3}, 3)):
        answer = ask(client, max_output_tokens=8, **fields)
        item = answer.output[0]
        assert item.type == "message" and item.content[0].type == "output_text"
        entries = item.content[0].logprobs or []
        assert "".join(entry.token for entry in entries) == answer.output_text
        assert {len(entry.top_logprobs) for entry in entries} == {num_top}
    plain = ask(client, max_output_tokens=8).output[0]
    assert plain.type == "message" and plain.content[0].type == "output_text" and plain.content[0].logprobs == []


def called(answer: Response) -> list[tuple[str, str]]:
    calls = []
    for item in answer.output:
        if item.type == "function_call":
            assert item.id and item.id.startswith("fc_") and item.call_id.startswith("call_")
            calls.append((item.name, item.arguments))
        elif item.type == "custom_tool_call":
            calls.append((item.name, item.input))
    return calls


@on_every_runner
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "ping", "shell"}),
        ({"type": "function", "name": "get_weather"}, {"get_weather"}),
        ({"type": "custom", "name": "shell"}, {"shell"}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]}, {"ping"}),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "web_search"}, {"type": "custom", "name": "shell"}],
            },
            {"shell"},
        ),
        ("none", set()),
    ],
)
def test_tool_choice(client: OpenAI, server: Running, choice: Any, names: set[str]) -> None:
    limit = 600 if names else 40
    closing = {"logit_bias": server.bias(CLOSING)}
    answer = ask(client, tools=TOOLS, tool_choice=choice, max_output_tokens=limit, extra=closing)
    calls = called(answer)
    assert {name for name, _ in calls} <= names and bool(calls) == bool(names)
    assert all(re.fullmatch(PATTERNS[name], arguments) for name, arguments in calls)


@on_every_runner
def test_a_loop_of_tools_by_full_history(client: OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "Weather?"}]
    for choice in ({"type": "function", "name": "get_weather"}, {"type": "custom", "name": "shell"}):
        answer = ask(client, input=items, tools=TOOLS, tool_choice=choice)
        items += answer.output
        for item in answer.output:
            if item.type == "function_call":
                items.append({"type": "function_call_output", "call_id": item.call_id, "output": "sunny"})
            elif item.type == "custom_tool_call":
                output = [{"type": "input_text", "text": "files"}]
                items.append({"type": "custom_tool_call_output", "call_id": item.call_id, "output": output})
    answer = ask(client, input=items, tools=TOOLS, tool_choice="none")
    assert answer.output_text and answer.usage is not None and answer.usage.input_tokens_details.cached_tokens > 100


def test_hosted_tools_are_skipped_and_named(http: httpx.Client) -> None:
    hosted = [
        {"type": "web_search"},
        {"type": "namespace", "name": "mcp", "tools": [{"type": "web_search"}]},
        {"type": "local_shell"},
        {"type": "image_generation", "output_format": "png"},
    ]
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"role": "user", "content": "Hello"},
    ]
    body = {**ASK, "input": items, "tools": [*hosted, PING], "tool_choice": "required"}
    response = http.post("/v1/responses", json=body)
    assert response.headers["x-pie-ignored"] == (
        "tools[0]:web_search, tools[1].tools[0]:web_search, tools[2]:local_shell, tools[3]:image_generation, "
        "input[0]:web_search_call"
    )
    assert [tool["name"] for tool in response.json()["tools"]] == ["mcp", "ping"]
    for choice in ("required", {"type": "web_search"}, {"type": "mcp", "server_label": "x"}):
        refused = http.post("/v1/responses", json={**ASK, "tools": hosted, "tool_choice": choice})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "tool_choice"


def test_what_no_grammar_binds_is_named(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": True, "uniqueItems": True}}}
    format_ = {"type": "json_schema", "name": "n", "schema": schema}
    lenient = http.post("/v1/responses", json={**ASK, "text": {"format": {**format_, "strict": False}}})
    assert lenient.status_code == 200 and "uniqueItems" in lenient.headers["x-pie-relaxed"]
    strict = http.post("/v1/responses", json={**ASK, "text": {"format": {**format_, "strict": True}}})
    assert strict.json()["error"]["param"] == "text.format.schema"


def test_effort_is_skipped_by_a_model_that_does_not_reason(http: httpx.Client) -> None:
    body = {**ASK, "reasoning": {"effort": "medium", "summary": "auto"}, "max_output_tokens": 5}
    response = http.post("/v1/responses", json=body)
    assert response.status_code == 200 and response.headers["x-pie-ignored"] == "reasoning.effort"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"n": 2}, "n"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "message", "role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "nonsense"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"truncation": "middle"}, "truncation"),
        ({"include": ["nonsense"]}, "include[0]"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"background": True, "store": False}, "background"),
        ({"tools": [PING, PING]}, "tools[1].name"),
        (
            {"tools": [{**SHELL, "format": {"type": "grammar", "syntax": "regex", "definition": "("}}]},
            "tools[0].format",
        ),
        ({"tools": [{"type": "web_search"}, {**WEATHER, "parameters": {"type": 3}}]}, "tools[1].parameters"),
        ({"tools": [PING], "tool_choice": {"type": "function", "name": "pong"}}, "tool_choice"),
        ({"previous_response_id": "resp_x", "conversation": "conv_x"}, "previous_response_id"),
        ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
        ({"instructions": "x" * 9000}, "input"),
    ],
)
def test_what_is_refused(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    response = http.post("/v1/responses", json={**ASK, **fields})
    assert response.status_code == 400 and response.json()["error"]["param"] == param, response.text


def test_an_unknown_model(http: httpx.Client) -> None:
    response = http.post("/v1/responses", json={**ASK, "model": "gpt-9"})
    assert response.status_code == 404 and response.json()["error"]["code"] == "model_not_found"


def test_a_failure_is_told_twice() -> None:
    """As an error event, which makes clients raise at once, and as the failed object; nothing looks complete."""
    with running(FakeRunner(poison_id=ord("~"))) as live, live.http() as http, live.openai() as client:
        text = http.post("/v1/responses", json={**ASK, "input": "~", "stream": True}).text
        *_, error, failed = read(text)
        assert error["type"] == "error" and set(error["error"]) == {"type", "code", "message", "param"}
        assert failed["type"] == "response.failed" and failed["response"]["error"]["code"] == "server_error"
        assert failed["response"]["usage"] is not None and failed["response"]["status"] == "failed"
        with pytest.raises(openai.APIError):
            list(client.responses.create(model=MODEL, input="~", stream=True))
        with pytest.raises(openai.InternalServerError):
            client.responses.create(model=MODEL, input="~")
        assert ask(client, max_output_tokens=20).status == "incomplete"


@on_every_runner
def test_deltas_are_typed(client: OpenAI) -> None:
    events = list(client.responses.create(**{**ASK, "max_output_tokens": 40}, stream=True))
    deltas = [event for event in events if isinstance(event, ResponseTextDeltaEvent)]
    assert deltas and all(event.logprobs == [] for event in deltas)


def test_the_stream_helper_resumes(client: OpenAI) -> None:
    whole = ask(client)
    with client.responses.stream(response_id=whole.id, starting_after=5) as stream:
        numbers = [event.sequence_number for event in stream]
        assert numbers[0] == 6 and stream.get_final_response().output_text == whole.output_text


@on_every_runner
def test_an_answer_goes_on_with_the_last_message(client: OpenAI, http: httpx.Client) -> None:
    """What comes is the rest of it alone, as in chat, whose prompt is the same."""
    turns: Any = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good"}]
    fields = {"max_tokens": 12, "continue_final_message": True, **EXTRA}
    chat = http.post("/v1/chat/completions", json={"model": MODEL, "messages": turns, **fields}).json()
    extra = {"continue_final_message": True}
    answer = ask(client, input=turns, max_output_tokens=12, extra=extra)
    assert answer.output_text == chat["choices"][0]["message"]["content"]
    assert answer.usage is not None and answer.usage.input_tokens == chat["usage"]["prompt_tokens"]
    counted = http.post("/v1/responses/input_tokens", json={"model": MODEL, "input": turns, **extra}).json()
    assert counted["input_tokens"] == answer.usage.input_tokens


@pytest.mark.parametrize(
    "turns",
    [
        "Hello",
        [{"role": "assistant", "content": "Good"}, {"role": "user", "content": "Hello"}],
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": " "}],
        [{"type": "function_call", "call_id": "1", "name": "ping", "arguments": "{}"}],
    ],
)
def test_only_a_text_of_the_assistant_can_be_gone_on_with(http: httpx.Client, turns: Any) -> None:
    refused = http.post("/v1/responses", json={"model": MODEL, "input": turns, "continue_final_message": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "continue_final_message"
