"""Tools through the official client: every choice, custom tools, streams, loops, limits, and what is refused."""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from pydantic import BaseModel

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import HELLO, MODEL, RUNNERS, Running, on_every_runner, running
from tests.api.writing import MARKERS

ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 500}
CLOSING = {'"': 6}


def function(name: str, properties: dict[str, Any], **fields: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


def custom(name: str, syntax: str | None = None, definition: str = "") -> dict[str, Any]:
    if syntax is None:
        return {"type": "custom", "custom": {"name": name, "description": "Takes text."}}
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": grammar}}


WEATHER = function("get_weather", {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}})
TIME = function("get_time", {"zone": {"enum": ["UTC", "CET"]}}, description="The time.", strict=True)
PING: dict[str, Any] = {"type": "function", "function": {"name": "ping"}}
SHELL = custom("shell", "regex", "ls( -[a-z]{1,3})?")
MATH = custom("math", "lark", 'start: NUM ("+" NUM)*\nNUM: /[0-9]{1,3}/')
NOTE = custom("note")
PATTERNS = {
    "get_weather": r'\{"city": "(Paris|Rome)", "days": -?\d+\}',
    "get_time": r'\{"zone": "(UTC|CET)"\}',
    "ping": r"\{\}",
    "shell": "ls( -[a-z]{1,3})?",
    "math": r"\d{1,3}(\+\d{1,3})*",
    "note": r"(?s:.*)",
}
TOOLS = [WEATHER, TIME, PING, SHELL, MATH, NOTE]


def named(tool: dict[str, Any]) -> dict[str, Any]:
    kind = tool["type"]
    return {"type": kind, kind: {"name": tool[kind]["name"]}}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(tool) for tool in tools]}}


def ask(client: OpenAI, **fields: Any) -> ChatCompletion:
    extra = fields.pop("extra", None)
    answer: ChatCompletion = client.chat.completions.create(**{**ASK, **fields}, extra_body=extra)
    return answer


Said = tuple[str, str]  # name and arguments of a call


def calls_of(message: ChatCompletionMessage) -> list[Said]:
    return [
        (call.function.name, call.function.arguments)
        if call.type == "function"
        else (call.custom.name, call.custom.input)
        for call in message.tool_calls or ()
    ]


def folded(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    """A stream's choices, joined by hand: `calls`, `content` and `finish_reason` of each, checked on the way."""
    text = http.post("/v1/chat/completions", json={**ASK, **fields, "stream": True}).text
    *frames, done, rest = text.split("\n\n")
    assert done == "data: [DONE]" and rest == ""
    choices: list[dict[str, Any]] = [
        {"calls": [], "content": "", "finish_reason": None} for _ in range(fields.get("n", 1))
    ]
    for frame in frames:
        for part in json.loads(frame.removeprefix("data: "))["choices"]:
            choice = choices[part["index"]]
            assert choice["finish_reason"] is None
            choice["finish_reason"] = part["finish_reason"]
            choice["content"] += part["delta"].get("content") or ""
            for delta in part["delta"].get("tool_calls", ()):
                fold_call(choice["calls"], delta)
    return choices


def fold_call(calls: list[Said], delta: dict[str, Any]) -> None:
    if "id" in delta:
        assert set(delta) == {"index", "id", "type", delta["type"]} and delta["index"] == len(calls)
        spec = delta[delta["type"]]
        assert re.fullmatch(r"call_[0-9a-f]{32}", delta["id"]) and list(spec.values())[1] == ""
        calls.append((spec["name"], ""))
    else:
        (kind,) = set(delta) - {"index"}
        (piece,) = delta[kind].values()
        assert delta["index"] == len(calls) - 1 and piece
        calls[-1] = (calls[-1][0], calls[-1][1] + piece)


def check_calls(calls: list[Said], names: set[str]) -> None:
    assert calls
    for name, arguments in calls:
        assert name in names
        assert re.fullmatch(PATTERNS[name], arguments), arguments


EVERY = {"get_weather", "get_time", "ping", "shell", "math", "note"}
CHOICES: list[tuple[Any, set[str], str]] = [
    ("required", EVERY, "tool_calls"),
    (named(WEATHER), {"get_weather"}, "stop"),
    (named(PING), {"ping"}, "stop"),
    (named(SHELL), {"shell"}, "stop"),
    (named(MATH), {"math"}, "stop"),
    (named(NOTE), {"note"}, "stop"),
    (allowed("required", TIME, SHELL), {"get_time", "shell"}, "tool_calls"),
    (allowed("required", MATH), {"math"}, "tool_calls"),
]


@pytest.mark.parametrize(("server", "seed"), [*(("fake", seed) for seed in range(4)), ("mlx", 0)], indirect=["server"])
@pytest.mark.parametrize(("choice", "names", "reason"), CHOICES)
def test_calls_that_must_come(server: Running, choice: Any, names: set[str], reason: str, seed: int) -> None:
    fields = {"tools": TOOLS, "tool_choice": choice, "logit_bias": server.bias(CLOSING), "seed": seed}
    with server.openai() as client, server.http() as http:
        answer, streamed = ask(client, **fields), folded(http, **fields)
    only = answer.choices[0]
    calls = calls_of(only.message)
    check_calls(calls, names)
    assert only.message.content is None and only.finish_reason == reason
    if reason == "stop":
        assert len(calls) == 1
    assert streamed == [{"calls": calls, "content": "", "finish_reason": reason}]


@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_calls_that_need_not_come(client: OpenAI, http: httpx.Client, choice: Any) -> None:
    fields = {"tools": TOOLS, "tool_choice": choice}
    answer = ask(client, **fields)
    only = answer.choices[0]
    assert only.message.tool_calls is None and only.message.content and only.finish_reason in ("stop", "length")
    assert folded(http, **fields) == [
        {"calls": [], "content": only.message.content, "finish_reason": only.finish_reason}
    ]


def test_an_empty_list_of_tools_is_none(client: OpenAI) -> None:
    plain = ask(client)
    empty = ask(client, tools=[], parallel_tool_calls=False)
    assert empty.choices[0].message.content == plain.choices[0].message.content


def test_one_call_at_a_time(client: OpenAI, server: Running) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "logit_bias": server.bias(CLOSING), "n": 16}
    many = ask(client, **fields)
    one = ask(client, **fields, parallel_tool_calls=False)
    assert {len(calls_of(choice.message)) for choice in one.choices} == {1}
    assert all(choice.finish_reason in ("tool_calls", "length") for choice in many.choices)


@on_every_runner
def test_several_choices_with_tools(client: OpenAI, http: httpx.Client, server: Running) -> None:
    fields = {"tools": [WEATHER, TIME], "tool_choice": "required", "n": 3}
    answer = ask(client, **fields)
    whole: list[dict[str, Any]] = [
        {"calls": calls_of(choice.message), "content": "", "finish_reason": choice.finish_reason}
        for choice in answer.choices
    ]
    assert folded(http, **fields) == whole
    for choice in answer.choices:
        check_calls(calls_of(choice.message), {"get_weather", "get_time"})
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)
    usage = answer.usage
    said = [args for one in whole for _, args in one["calls"]]
    assert usage is not None and usage.completion_tokens > sum(len(server.ids(args)) for args in said)


@on_every_runner
def test_a_loop_of_three_turns(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Use the tools."}, *HELLO]
    for tool, result in ((WEATHER, "sunny"), (MATH, "42")):
        answer = ask(client, messages=messages, tools=TOOLS, tool_choice=named(tool))
        message = answer.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert len(messages) == 6
    answer = ask(client, messages=messages, tools=TOOLS, tool_choice="none")
    assert answer.choices[0].message.content and answer.choices[0].message.tool_calls is None
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert (answer.usage.prompt_tokens_details.cached_tokens or 0) > 100


class BookTable(BaseModel):
    guests: int
    place: Literal["inside", "outside"]


BOOKING = openai.pydantic_function_tool(BookTable)


@on_every_runner
def test_parse_reads_arguments(client: OpenAI) -> None:
    answer = client.chat.completions.parse(**ASK, tools=[BOOKING], tool_choice="required", parallel_tool_calls=False)
    calls = answer.choices[0].message.tool_calls or []
    assert [type(call.function.parsed_arguments) for call in calls] == [BookTable]


@on_every_runner
def test_the_stream_helper_folds_calls(client: OpenAI) -> None:
    fields: dict[str, Any] = {"tools": [BOOKING], "tool_choice": "required"}
    whole = client.chat.completions.parse(**ASK, **fields)
    with client.chat.completions.stream(**ASK, **fields) as events:
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        final = events.get_final_completion()
    calls = whole.choices[0].message.tool_calls or []
    assert [event.parsed_arguments for event in done] == [call.function.parsed_arguments for call in calls]
    message = final.choices[0].message
    assert [call.function.arguments for call in message.tool_calls or ()] == [call.function.arguments for call in calls]
    assert final.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("server", "tool"),
    [("fake", WEATHER), ("fake", SHELL), ("fake", MATH), ("mlx", SHELL)],
    indirect=["server"],
)
def test_the_limit_inside_a_call_is_told(client: OpenAI, http: httpx.Client, tool: dict[str, Any]) -> None:
    fields = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    whole = ask(client, **fields)
    ((name, arguments),) = calls_of(whole.choices[0].message)
    assert whole.usage is not None
    for max_tokens in range(1, whole.usage.completion_tokens + 2):
        cut = ask(client, **fields, max_tokens=max_tokens)
        choice = cut.choices[0]
        is_cut = max_tokens < whole.usage.completion_tokens
        assert choice.finish_reason == ("length" if is_cut else "tool_calls"), max_tokens
        calls = calls_of(choice.message)
        assert "<tool_call>".startswith(choice.message.content or "") and not (calls and choice.message.content)
        assert all(said == name and arguments.startswith(begun) for said, begun in calls)
        (streamed,) = folded(http, max_tokens=max_tokens, **fields)
        content = choice.message.content or ""
        assert streamed == {"calls": calls, "content": content, "finish_reason": choice.finish_reason}


@on_every_runner
def test_calls_or_the_format(client: OpenAI) -> None:
    format = {"type": "choice", "choices": ["yes", "no"]}
    answer = ask(client, tools=[WEATHER], n=16, extra={"response_format": format})
    for choice in answer.choices:
        if choice.message.tool_calls:
            check_calls(calls_of(choice.message), {"get_weather"})
        else:
            assert choice.message.content in ("yes", "no") and choice.finish_reason == "stop"
    without = ask(client, tools=[WEATHER], tool_choice="none", n=4, extra={"response_format": format})
    assert {choice.message.content for choice in without.choices} <= {"yes", "no"}


@pytest.fixture(scope="module", params=RUNNERS)
def marking(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A model whose vocabulary has the markers: with a bias it calls of its own accord."""
    if request.param == "mlx":
        yield request.getfixturevalue("servers")["mlx"]
        return
    with running(FakeRunner(defined_tokens=MARKERS)) as live:
        yield live
        live.wait_idle()


def calling(live: Running, weight: int) -> dict[str, int]:
    return {str(live.worker.tokenizer.specials["<tool_call>"]): weight}


def test_a_model_may_call_of_its_own_accord(marking: Running) -> None:
    eager = {"logit_bias": calling(marking, 100), "parallel_tool_calls": False}
    with marking.openai() as client, marking.http() as http:
        for choice in ("auto", allowed("auto", WEATHER), None):
            fields = {**eager, "tools": [WEATHER, TIME], "tool_choice": choice}
            answer = ask(client, **fields)
            only = answer.choices[0]
            calls = calls_of(only.message)
            check_calls(calls, {"get_weather"} if isinstance(choice, dict) else {"get_weather", "get_time"})
            assert only.finish_reason == "tool_calls" and only.message.content is None and len(calls) == 1
            assert folded(http, **fields) == [{"calls": calls, "content": "", "finish_reason": "tool_calls"}]


def test_text_may_come_before_calls(marking: Running) -> None:
    # A little bias: some choices say something first.
    fields = {"tools": [TIME], "logit_bias": calling(marking, 3), "n": 16, "parallel_tool_calls": False}
    with marking.openai() as client, marking.http() as http:
        answer = ask(client, **fields)
        both = [choice for choice in answer.choices if choice.message.content and choice.message.tool_calls]
        assert both
        for choice in both:
            check_calls(calls_of(choice.message), {"get_time"})
            assert choice.finish_reason == "tool_calls" and "tool_call" not in (choice.message.content or "")
        assert [one["content"] or None for one in folded(http, **fields)] == [
            choice.message.content or None for choice in answer.choices
        ]


def test_without_tools_a_call_is_text(marking: Running) -> None:
    with marking.openai() as client:
        answer = ask(client, max_tokens=3, logit_bias=calling(marking, 100))
    assert answer.choices[0].message.tool_calls is None and answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_does_not_bind_is_listed(http: httpx.Client, is_stream: bool) -> None:
    unique = {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "minItems": 2}
    body = {**ASK, "stream": is_stream, "tool_choice": "required", "logit_bias": {"34": 6, "93": 6}}
    loose = http.post("/v1/chat/completions", json={**body, "tools": [PING, function("f", {"a": unique})]})
    assert loose.status_code == 200 and loose.headers["x-pie-relaxed"].endswith(":uniqueItems")
    strict = http.post(
        "/v1/chat/completions", json={**body, "tools": [PING, function("f", {"a": unique}, strict=True)]}
    )
    assert strict.status_code == 400
    error = strict.json()["error"]
    assert error["param"] == "tools[1].function.parameters" and "uniqueItems" in error["message"]
    bound = http.post("/v1/chat/completions", json={**body, "tools": [PING]})
    assert bound.status_code == 200 and "x-pie-relaxed" not in bound.headers


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": [PING] * 2}, "tools[1].function.name"),
    ({"tools": [PING] * 10_000}, "tools"),
    ({"tools": [function('a"b', {})]}, "tools[0].function.name"),
    ({"tools": [function("n" * 1_000_000, {})]}, "tools[0].function.name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": named(PING)}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": named(PING)}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": allowed("auto", WEATHER, PING)}, "tool_choice"),
    ({"tools": [WEATHER, function("f", {"a": {"type": "foo"}})]}, "tools[1].function.parameters"),
    ({"tools": [function("f", {"a": {"$ref": "file:///x"}})]}, "tools[0].function.parameters"),
    ({"tools": [function("f", {"a": {"x-guidance": {}}})]}, "tools[0].function.parameters"),
    ({"tools": [custom("c", "regex", "(")]}, "tools[0].custom.format"),
    ({"tools": [PING, custom("c", "lark", "start: nothing")]}, "tools[1].custom.format"),
    ({"messages": [*HELLO, {"role": "tool", "tool_call_id": "x", "content": "y"}]}, "messages[1].tool_call_id"),
]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_what_is_wrong_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], param: str, is_stream: bool
) -> None:
    response = http.post("/v1/chat/completions", json={**ASK, "stream": is_stream, **fields})
    assert response.status_code == 400, response.text[:300]
    error = response.json()["error"]
    assert error["param"] == param and len(error["message"]) < 400


@on_every_runner
def test_after_all_this_the_server_calls(client: OpenAI) -> None:
    answer = ask(client, tools=[PING], tool_choice=named(PING))
    assert calls_of(answer.choices[0].message) == [("ping", "{}")]


@on_every_runner
def test_the_prompt_of_tools_can_be_seen(client: OpenAI, http: httpx.Client) -> None:
    body = {"messages": HELLO, "tools": [WEATHER, SHELL]}
    prompt = http.post("/apply-template", json=body).json()["prompt"]
    assert "get_weather" in prompt and "shell" in prompt and "Hello" in prompt
    answer = ask(client, max_tokens=1, tools=[WEATHER, SHELL])
    assert answer.usage and answer.usage.prompt_tokens == http.post("/tokenize", json=body).json()["count"]
    for field in ({"tools": [PING]}, {"chat_template_kwargs": {"x": 1}}):
        refused = http.post("/tokenize", json={"prompt": "x", **field})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == next(iter(field))
    unread = http.post("/apply-template", json={"messages": HELLO, "chat_template_kwargs": {"x": 1}})
    assert unread.status_code == 200 and unread.headers["x-pie-ignored"] == "chat_template_kwargs.x"


# What a schema does not say, and what it says twice

UNSAID: dict[str, Any] = {  # whether other parameters may come
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "when": {"type": "object", "properties": {"day": {"enum": [1, 2]}}, "required": ["day"]},
    },
    "required": ["city", "when"],
}


def unsaid(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "plan", "parameters": {**UNSAID, **fields}}}


@on_every_runner
def test_arguments_have_no_parameters_that_nobody_declared(client: OpenAI, server: Running) -> None:
    """Weak models wander off into keys of their own, up to the limit."""
    wandering = {"logit_bias": server.bias({",": 100, '"': 5})}
    options: dict[str, Any] = {"tools": [unsaid()], "tool_choice": named(unsaid()), "extra": wandering}
    for seed in range(5):
        answer = ask(client, **options, seed=seed).choices[0]
        ((_, arguments),) = calls_of(answer.message)
        assert re.fullmatch(r'\{"city": "(Paris|Rome)", "when": \{"day": [12]\}\}', arguments)


@pytest.mark.parametrize("fields", [{"additionalProperties": True}, {}], ids=["tool", "request"])
def test_who_wants_other_parameters_says_so(client: OpenAI, server: Running, fields: dict[str, Any]) -> None:
    wandering = {"logit_bias": server.bias({",": 100}), "open_objects": not fields}
    tool = unsaid(**fields)
    answer = ask(client, tools=[tool], tool_choice=named(tool), max_tokens=200, extra=wandering).choices[0]
    assert answer.finish_reason == "length", "it wanders to the limit"


def test_a_tool_that_contradicts_itself_loses_one_keyword(client: OpenAI) -> None:
    """It used to refuse the whole request, with all other tools."""
    tool = function("pick", {"id": {"type": "integer", "enum": ["1", "2"]}, "n": {"type": "integer"}})
    options: dict[str, Any] = {"tools": [tool, PING], "tool_choice": named(tool)}
    raw = client.chat.completions.with_raw_response.create(**ASK, **options)
    assert raw.headers["x-pie-relaxed"] == "pick/properties/id:type"
    ((_, arguments),) = calls_of(raw.parse().choices[0].message)
    assert json.loads(arguments)["id"] in ("1", "2")
    tool["function"]["strict"] = True
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ASK, **options)
    assert caught.value.param == "tools[0].function.parameters"


def test_an_answer_ends_before_a_call_that_it_has_made(http: httpx.Client, server: Running) -> None:
    eager = {"logit_bias": server.bias({"\n": 100})}  # what stands between two calls
    options = {**ASK, **eager, "tools": [PING], "tool_choice": "required"}
    answer = http.post("/v1/chat/completions", json=options).json()
    message, end = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
    assert len(message["tool_calls"]) == 1 and end == "tool_calls"
    assert answer["usage"]["completion_tokens"] < 200
    (streamed,) = folded(http, **eager, tools=[PING], tool_choice="required")
    assert streamed["calls"] == [("ping", "{}")] and streamed["finish_reason"] == "tool_calls"
