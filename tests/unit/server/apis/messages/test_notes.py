"""Blocks that only Anthropic's servers act upon: what the model is told of them, and what the client is."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.server.apis.messages.ask import make_ask, make_tools, make_turns, not_honoured
from proxy_inference_engine.server.apis.messages.schema import MessageRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from tests.unit.served.scripted import ScriptedEngine, served, served_as

HELLO = {"role": "user", "content": "Hello"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
PLAIN = {
    "type": "document",
    "title": "notes.txt",
    "source": {"type": "text", "media_type": "text/plain", "data": "Tea is ready."},
}
FOUND = {"type": "web_search_result", "title": "Tea", "url": "https://tea.example", "encrypted_content": "xyz"}


def body(*messages: dict[str, Any], **fields: Any) -> MessageRequest:
    return validate(MessageRequest, {"model": "m", "max_tokens": 10, "messages": list(messages) or [HELLO], **fields})


def read(*messages: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The texts of the turns, and what is named as ignored."""
    asked = body(*messages)
    return [turn.text for turn in make_turns(asked)], not_honoured(asked, served_as(by_name("chatml"), ()))


def said(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    (PLAIN, "notes.txt\nTea is ready.", []),
    (
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}, "title": "t"},
        "t\na",
        [],
    ),
    (PDF, "[A document, application/pdf: it cannot be read here.]", ["messages.document"]),
    (
        {"type": "document", "title": "a.pdf", "source": {"type": "file", "file_id": "f"}},
        "[A document, file a.pdf: it cannot be read here.]",
        ["messages.document"],
    ),
    (
        {"type": "search_result", "source": "https://a", "title": "A", "content": [{"type": "text", "text": "b"}]},
        "A\nhttps://a\nb",
        [],
    ),
    ({"type": "container_upload", "file_id": "f"}, "[container_upload]", ["messages.container_upload"]),
]


@pytest.mark.parametrize(("block", "text", "ignored"), CASES)
def test_what_a_user_sends_is_read_or_noted(block: dict[str, Any], text: str, ignored: list[str]) -> None:
    assert read(said(block)) == ([text], ignored)


HISTORY: list[tuple[dict[str, Any], str]] = [
    (
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tea"}},
        '[web_search was called: {"query":"tea"}]',
    ),
    ({"type": "web_search_tool_result", "tool_use_id": "s", "content": [FOUND]}, "Tea\nhttps://tea.example"),
    (
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "e", "error_code": "max_uses"}},
        "max_uses",
    ),
    (
        {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "4", "return_code": 0}},
        "4",
    ),
    ({"type": "mcp_tool_use", "id": "s", "name": "w", "server_name": "x", "input": {}}, "[w was called: {}]"),
    (
        {"type": "mcp_tool_result", "tool_use_id": "s", "content": [{"type": "text", "text": "sun"}]},
        "sun",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("block", "text"), HISTORY)
def test_hosted_tools_in_history_are_text(block: dict[str, Any], text: str) -> None:
    texts, ignored = read(HELLO, said(block, {"type": "text", "text": "So."}, role="assistant"), HELLO)
    assert texts == ["Hello", f"{text}\nSo.", "Hello"] and ignored == [f"messages.{block['type']}"]


STATE = {"type": "browser_state", "tabs": [{"tab_id": "1", "title": "Tea", "url": "https://a", "active": True}]}
ADDED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}
REMOVED = {**ADDED, "type": "tool_removal"}
DEFINED = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "c"}}}


@pytest.mark.parametrize(
    ("block", "ignored"),
    [
        ({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, []),
        ({"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []}, ["messages.mcp_tool_listing"]),
        (DEFINED, ["messages.tool_addition"]),
    ],
)
def test_what_servers_say_to_each_other_is_no_text(block: dict[str, Any], ignored: list[str]) -> None:
    text = {"type": "text", "text": "So."}
    assert read(HELLO, said(block, text, role="assistant"), HELLO) == (["Hello", "So.", "Hello"], ignored)
    assert read(HELLO, said(block)) == (["Hello"], ignored)


def test_they_alone_are_no_question() -> None:
    for role in ("user", "system"):
        with pytest.raises(InvalidRequest) as caught:
            make_turns(body(said(DEFINED, role=role)))
        assert caught.value.param == "messages"


def test_the_state_of_a_browser_is_read() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [STATE]}
    texts, ignored = read(HELLO, said(USE, role="assistant"), said(result))
    assert texts[-1] == "Tea\nhttps://a" and ignored == ["messages.tool_result.browser_state"]


def test_tools_come_and_go_on_the_way() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [{"name": "a", "input_schema": schema}, {"name": "b", "input_schema": schema, "defer_loading": True}]
    later = said(ADDED, role="system")
    for changes, names in (([], "a"), ([later], "ab"), ([later, said(REMOVED)], "a"), ([said(DEFINED)], "a")):
        assert "".join(tool.name for tool in make_tools(body(HELLO, *changes, tools=tools))) == names
    told = "<system-reminder>\n[The tool b can be used now.]\n</system-reminder>"
    assert read(HELLO, later) == (["Hello", told], [])
    assert read(HELLO, said(DEFINED, role="system")) == (["Hello"], ["messages.tool_addition"])
    assert read(HELLO, said(REMOVED)) == (["Hello", "[The tool b cannot be used any more.]"], [])


def test_a_compaction_is_what_was_said_before() -> None:
    block = {"type": "compaction", "content": "They spoke of tea."}
    assert read(HELLO, said(block, role="assistant"), HELLO) == (["Hello", "They spoke of tea.", "Hello"], [])


def test_results_of_tools_may_have_documents() -> None:
    """Claude Code sends a PDF that was read so; a refusal would end the session for good."""
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [PLAIN, PDF]}
    texts, ignored = read(HELLO, said(USE, role="assistant"), said(result))
    assert texts[-1] == "notes.txt\nTea is ready.\n[A document, application/pdf: it cannot be read here.]"
    assert ignored == ["messages.tool_result.document"]


def test_tools_that_are_deferred_are_shown_once_they_are_found() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [
        {"name": "search", "input_schema": schema},
        *({"name": name, "input_schema": schema, "defer_loading": True} for name in ("a", "b")),
    ]
    assert [tool.name for tool in make_tools(body(HELLO, tools=tools))] == ["search"]
    searched = {**USE, "name": "search"}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "tool_reference", "tool_name": "b"}],
    }
    history = (HELLO, said(searched, role="assistant"), said(result))
    asked = body(*history, tools=tools)
    assert [tool.name for tool in make_tools(asked)] == ["search", "b"]
    assert read(*history) == (["Hello", "", "[The tool b can be used now.]"], [])
    called = said({**USE, "name": "a"}, role="assistant")
    answer = said({"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"})
    assert [tool.name for tool in make_tools(body(HELLO, called, answer, tools=tools))] == ["search", "a"]


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_threads_are_refused_in_the_words_that_clients_know(thread: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_ask(body(HELLO, thread=thread), served(ScriptedEngine()), "local")
    assert caught.value.details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 0),
        ({"cache_control": {"type": "ephemeral"}}, 300),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, 3600),
        ({"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}, 300),
        ({"tools": [{"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}, 3600),
        ({"prewarm": True}, 300),
        ({"max_tokens": 0}, 300),
    ],
)
def test_what_is_marked_is_kept(fields: dict[str, Any], seconds: float) -> None:
    ask = make_ask(body(HELLO, **fields), served(ScriptedEngine()), "local")
    assert ask.pin_seconds == seconds
    is_prewarming = "prewarm" in fields or "max_tokens" in fields
    assert ask.limits.max_tokens == (0 if is_prewarming else 10)
