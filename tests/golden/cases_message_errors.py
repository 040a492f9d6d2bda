"""POST /v1/messages and …/count_tokens: what they refuse, in Anthropic's shape."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.golden.case import MODEL, Case, Json, assistant, refused, user
from tests.golden.cases_http import BODIES
from tests.golden.cases_messages import COUNT, PATH, TOOLS, result, text, use
from tests.golden.tools import IMPOSSIBLE, LARGE, LOOSE, RESERVED

ASK: Json = {"model": MODEL, "messages": [user("Hello")], "max_tokens": 4, "temperature": 0}
BASE = Case("message", PATH, ASK)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
PING = TOOLS[1]

FIELDS: list[Json] = [
    {"model": ...},
    {"model": "gpt-4"},
    {"model": 1},
    {"messages": ...},
    {"messages": []},
    {"messages": "Hello"},
    {"messages": [user("a")] * 4097},
    {"max_tokens": ...},
    {"max_tokens": None},
    {"max_tokens": 0},
    {"max_tokens": "5"},
    {"temperature": 1.5},
    {"temperature": "0"},
    {"top_p": 2},
    {"top_k": -1},
    {"top_k": 1.5},
    {"stop_sequences": [""]},
    {"stop_sequences": ["a"] * 17},
    {"stop_sequences": 1},
    {"stream": 1},
    {"metadata": "a"},
    {"service_tier": "flex"},
    {"cache_control": 1},
    {"system": 1},
    {"system": [1]},
    {"system": [IMAGE]},
    {"system": [{"type": "document"}]},
    {"system": [text("a")] * 1025},
    {"thinking": {"type": "enabled"}},
    {"thinking": {"type": "enabled", "budget_tokens": 0}},
    {"thinking": {"type": "on"}},
    {"thinking": {}},
    {"thinking": "on"},
    {"thinking": {"type": "adaptive", "display": "none"}},
    {"output_config": {"effort": "none"}},
    {"output_config": {"format": {"type": "text"}}},
    {"output_config": {"format": {"type": "json_schema"}}},
    {"output_config": {"format": {"type": "json_schema", "schema": IMPOSSIBLE}}},
    {"output_config": {"format": {"type": "json_schema", "schema": LOOSE}}},
    {"output_config": {"format": {"type": "json_schema", "schema": RESERVED}}},
    {"output_config": {"format": {"type": "json_schema", "schema": LARGE}}},
    {"output_config": []},
    {"messages": [user("a" * 9000)]},
    {"messages": [user("ab" * 600_000)]},
]
TOOL_FIELDS: list[Json] = [
    {"tools": {}},
    {"tools": [1]},
    {"tools": [{}]},
    {"tools": [{"name": "a"}]},
    {"tools": [{"name": "a b", "input_schema": {}}]},
    {"tools": [{"name": "a" * 129, "input_schema": {}}]},
    {"tools": [{"name": "a", "input_schema": []}]},
    {"tools": [{"name": "a", "input_schema": {}, "strict": "yes"}]},
    {"tools": [{"name": "a", "input_schema": LARGE}]},
    {"tools": [{"name": f"f{number}", "input_schema": {"description": "x" * 140_000}} for number in range(2)]},
    {"tools": [{"name": f"f{number}", "input_schema": {}} for number in range(129)]},
    {"tools": [PING, {"type": "bash_20250124", "name": "bash"}, PING]},
    {"tools": [{"type": "bash_20250124"}, PING, {"name": "a", "input_schema": IMPOSSIBLE}]},
    {"tools": [{"name": "a", "input_schema": LOOSE, "strict": True}]},
    {"tools": [{"name": "a", "input_schema": RESERVED}]},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "tool", "name": "ping"}},
    {"tools": [{"type": "bash_20250124"}], "tool_choice": {"type": "any"}},
    {"tools": [PING], "tool_choice": {"type": "tool"}},
    {"tools": [PING], "tool_choice": {"type": "tool", "name": "other"}},
    {"tools": [PING], "tool_choice": {"type": "tool", "name": "a b"}},
    {"tools": [PING], "tool_choice": {"type": "must"}},
    {"tools": [PING], "tool_choice": "any"},
    {"tools": [PING], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
]
MESSAGES: list[list[Any]] = [
    [1],
    [{}],
    [{"role": "user"}],
    [{"role": "tool", "content": "a"}],
    [user(None)],
    [user(1)],
    [user([])],
    [{"role": "system", "content": []}],
    [user(["a"])],
    [user([{}])],
    [user([{"type": "text"}])],
    [user([{"type": "strange"}])],
    [user([text("a")] * 1025)],
    [user([{"type": "document", "source": {}}])],
    [user([text("a"), {"type": "search_result"}])],
    [user([{"type": "container_upload", "file_id": "a"}])],
    [user([{"type": "image"}])],
    [user([{"type": "image", "source": {"type": "file", "file_id": "a"}}])],
    [user([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA=="}}])],
    [user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}])],
    [user([{"type": "image", "source": {"type": "url", "url": ""}}])],
    [user([IMAGE])],
    [user("a"), assistant([IMAGE])],
    [{"role": "system", "content": [IMAGE]}, user("a")],
    [user([use("t1")])],
    [user([{"type": "thinking", "thinking": "a"}])],
    [user("a"), assistant([{"type": "thinking"}])],
    [user("a"), assistant([{"type": "redacted_thinking"}])],
    [user("a"), assistant([{"type": "tool_use", "id": "", "name": "a", "input": {}}])],
    [user("a"), assistant([{"type": "tool_use", "id": "t1", "name": "a", "input": "{}"}])],
    [user("a"), assistant([{"type": "tool_use", "id": "t1", "name": "a b", "input": {}}])],
    [user("a"), assistant([result("t1", "a")])],
    [user("a"), assistant([use("t1")])],
    [user([result("t1", "a")])],
    [user("a"), assistant([use("t1")]), user([text("b"), result("t2", "a")])],
    [user("a"), assistant([use("t1")]), user([{"type": "tool_result", "content": "a"}])],
    [user("a"), assistant([use("t1")]), user([result("t1", 1)])],
    [user("a"), assistant([use("t1")]), user([result("t1", [{"type": "document"}])])],
    [user("a"), assistant([use("t1")]), user([result("t1", [use("t2")])])],
    [user("a"), assistant([use("t1")]), user([result("t1", "a", is_error="no")])],
]
COUNTED: list[Json] = [
    {"model": ...},
    {"model": "gpt-4"},
    {"messages": []},
    {"messages": [user([result("t1", "a")])]},
    {"messages": [user("a"), assistant([use("t1")])]},
    {"messages": [user([IMAGE])]},
    {"tool_choice": {"type": "any"}},
    {"tools": [PING, PING]},
    {"thinking": {"type": "enabled"}},
    {"messages": [user([{"type": "document"}])]},
]


def cases() -> Iterator[Case]:
    yield from refused(BASE, FIELDS)
    yield from refused(BASE, TOOL_FIELDS)
    yield from refused(BASE, [{"messages": messages} for messages in MESSAGES])
    counting = Case("count", COUNT, {"model": MODEL, "messages": [user("Hello")]})
    yield from refused(counting, COUNTED)
    for path, name in ((PATH, "message"), (COUNT, "count")):
        for what, body in BODIES.items():
            yield Case(f"{name} refuses {what}", path, body)
        yield Case(f"{name} refuses text", path, b"{}", headers=[("content-type", "text/plain")])
        yield Case(f"{name} refuses a foreign host", path, b"{}", headers=[("host", "example.com")])
        yield Case(f"{name} refuses a foreign page", path, b"{}", headers=[("origin", "http://example.com")])
        yield Case(f"{name} refuses a large body", path, b"{}", headers=[("content-length", "99999999")])
        for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
            yield Case(f"{method} {path}", path, method=method)
        yield Case(f"{name} without a key", path, ASK, server="keyed")
        yield Case(f"{name} with a wrong key", path, ASK, server="keyed", headers=[("x-api-key", "wrong")])
    yield Case("message with a key and an alias", PATH, {**ASK, "model": "claude-x"}, server="keyed",
               headers=[("x-api-key", "key-of-anna")])  # fmt: skip
    yield replace(BASE, name="a path below", path=f"{PATH}/other")
    yield replace(BASE, name="batches", path=f"{PATH}/batches")
