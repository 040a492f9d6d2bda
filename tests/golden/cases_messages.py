"""POST /v1/messages and /v1/messages/count_tokens: what they do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.golden.case import MODEL, Case, Json, assistant, both, each, merged, user
from tests.golden.cases_structured import LATER, TURNS, turns
from tests.golden.tools import LOOSE, PING, SCHEMA, WEATHER, anthropic, function

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
ASK: Json = {"model": MODEL, "messages": [user("Hello")], "max_tokens": 6, "temperature": 0}
BASE = Case("message", PATH, ASK)
TOOLS = [anthropic(WEATHER), anthropic(PING)]
CACHED = {"cache_control": {"type": "ephemeral"}}


def text(said: str, **fields: Any) -> Json:
    return {"type": "text", "text": said, **fields}


def use(id_: str, name: str = "ping", **given: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def result(id_: str, content: Any = ..., **fields: Any) -> Json:
    return merged({"type": "tool_result", "tool_use_id": id_, "content": content}, fields)


TABLE: dict[str, Json] = {
    "a text": {},
    "sampling that is certain": {"top_k": 1, "temperature": 1.0},
    "top_p": {"top_p": 0.01, "temperature": 0.5},
    "stop sequences": {"stop_sequences": ["a", "e", "o"], "max_tokens": 40},
    "no stop sequences": {"stop_sequences": []},
    "metadata": {"metadata": {"user_id": "anna", "more": [1]}, "service_tier": "auto"},
    "unknown fields": {"container": None, "mcp_servers": [], "context_management": {"edits": []}, "a,b %": 1},
    "cached prefixes": {"cache_control": {"type": "ephemeral"}, "system": [text("Be brief.", **CACHED)]},
    "model by alias": {"model": "default"},
    "format": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "max_tokens": 60},
    "format and effort": {
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}},
        "max_tokens": 20,
    },
    "format, cut off": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "max_tokens": 4},
}
CONVERSATIONS: dict[str, Json] = {
    "system": {"system": "Be brief."},
    "system blocks": {"system": [text("Be brief."), text("And kind.")]},
    "no system": {"system": []},
    "an empty system": {"system": ""},
    "billing": {
        "system": [text("x-anthropic-billing-header: a=b; c=1\nBe brief."), text("x-anthropic-billing-header: d")]
    },
    "nothing but billing": {"system": "x-anthropic-billing-header: a=b"},
    "a system message": {"messages": [{"role": "system", "content": "Be brief."}, user("Hi")]},
    "a late system message": {
        "messages": [user("Hi"), {"role": "system", "content": [text("Be brief.")]}, user("So?")]
    },
    "blocks": {"messages": [user([text("Hi ", **CACHED), text("there", citations=None)])]},
    "continued": {"messages": [user("Hi"), assistant("I am")]},
    "continued, spaces and all": {"messages": [user("Hi"), assistant([text("I am ")])]},
    "continued from nothing": {"messages": [user("Hi"), assistant([])]},
    "continued from spaces": {"messages": [user("Hi"), assistant("  ")]},
    "only an assistant": {"messages": [assistant("")]},
    "a call": {"messages": [user("Hi"), assistant([use("t1")]), user([result("t1", "pong")])]},
    "results and text": {
        "messages": [
            user("Hi"),
            assistant([text("I look."), use("t1", "get_weather", city="Rome", days=1), use("t2")]),
            user(
                [text("Here:"), result("t2", [text("po"), text("ng")]), result("t1", "no", is_error=True), result("t1")]
            ),
        ],
        "tools": TOOLS,
    },
    "an error": {"messages": [user("Hi"), assistant([use("t1")]), user([result("t1", is_error=True)])]},
    "unknown fields inside": {
        "messages": [user([text("Hi", citations=[1])]), {**assistant("Ho"), "id": "msg_1"}, user("So?")],
        "tools": [{**TOOLS[1], "eager_input_streaming": True}],
        "thinking": {"type": "disabled", "more": 1},
    },
    "long lists of the ignored": {f"field_{number}_{'x' * 60}": 1 for number in range(40)},
}
CHOICES: dict[str, Json] = {
    "auto": {"tool_choice": {"type": "auto"}, "max_tokens": 4},
    "not said": {"max_tokens": 4},
    "none": {"tool_choice": {"type": "none"}, "max_tokens": 4},
    "any": {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "tool": {"tool_choice": {"type": "tool", "name": "get_weather"}},
    "tool without input": {"tool_choice": {"type": "tool", "name": "ping"}},
    "cut off": {"tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 64},
    "cut off early": {"tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 47},
    "strict": {"tools": [{**TOOLS[0], "strict": True}], "tool_choice": {"type": "tool", "name": "get_weather"}},
    "hosted": {
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, {**TOOLS[1], "type": "custom"}],
        "tool_choice": {"type": "tool", "name": "ping"},
    },
    "relaxed": {
        "tools": [anthropic(function("loose", LOOSE))],
        "tool_choice": {"type": "tool", "name": "loose"},
        "max_tokens": 90,
    },
}


def cases() -> Iterator[Case]:
    yield from each(BASE, TABLE, is_streamed=True)
    yield from each(replace(BASE, name="messages"), CONVERSATIONS)
    bound = replace(BASE, name="tools", body={**ASK, "tools": TOOLS, "max_tokens": 120})
    yield from each(bound, CHOICES, is_streamed=True)
    scripted = Case("scripted", PATH, {**ASK, "max_tokens": 100}, server="scripted")
    said: dict[str, Json] = {name: {"messages": turns(number)} for number, name in enumerate([*TURNS, *LATER])}
    for name, fields in (("silent", {}), ("thinking", {"thinking": {"type": "adaptive"}})):
        base = replace(scripted, name=f"scripted, {name}", body={**scripted.body, **fields, "tools": TOOLS})
        yield from each(base, said, is_streamed=True)
    deep: Json = {"messages": turns(len(said)), "tools": [{"name": "deep", "input_schema": {"type": "object"}}]}
    yield replace(scripted, name="a call that is too deep", body={**scripted.body, **deep, "max_tokens": 700})
    counting = Case("count", COUNT, {"model": MODEL, "messages": [user("Hello")]})
    yield counting
    yield from each(counting, CONVERSATIONS)
    yield from each(replace(counting, name="count tools", body={**counting.body, "tools": TOOLS}), {
        "them": {},
        "with a choice": {"tool_choice": {"type": "any"}},
        "and thoughts": {"thinking": {"type": "adaptive"}},
        "and a format": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    })  # fmt: skip
    version = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "a,b"), ("x-api-key", "none")]
    yield from both(replace(BASE, name="headers of its own clients", headers=version))
