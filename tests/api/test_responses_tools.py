"""Tools of the Responses API beyond a flat list: namespaces, tools that come as items, searches for tools."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.running import MODEL, Running, running
from tests.api.writing import Writer, call

WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
LOOK = {"type": "function", "name": "look_up", "description": "Looks up a word.", "strict": False, "parameters": WORD}
MCP = {"type": "namespace", "name": "mcp__w", "description": "Words.", "tools": [LOOK, {**LOOK, "name": "count"}]}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {**WORD, "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
TEXTS = ("I look it up. " + call("mcp__w__look_up", word="moss"), "A plant.")


class Asking:
    def __init__(self, live: Running, http: httpx.Client, writer: Writer) -> None:
        self._http, self.live, self.writer = http, live, writer

    def __call__(self, **fields: Any) -> dict[str, Any]:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def post(self, **fields: Any) -> httpx.Response:
        return self._http.post("/v1/responses", json={"model": MODEL, "input": "What is moss?", **fields})


def asking(*texts: str) -> Iterator[Asking]:
    with running(writer := Writer(texts)) as live, live.http() as http:
        yield Asking(live, http, writer)
        live.wait_idle()


@pytest.fixture
def ask() -> Iterator[Asking]:
    yield from asking(*TEXTS)


def test_what_is_in_a_namespace_is_called_by_its_name_there(ask: Asking) -> None:
    first = ask(tools=[MCP])
    said, called = first["output"]
    assert (called["name"], called["namespace"]) == ("look_up", "mcp__w")
    assert json.loads(called["arguments"]) == {"word": "moss"}
    assert first["tools"] == [{**MCP, "tools": MCP["tools"]}]
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "a plant"}
    # As Codex sends it: all of it again; and with the id alone.
    again = ask(tools=[MCP], input=[{"role": "user", "content": "What is moss?"}, said, called, result])
    linked = ask(tools=[MCP], input=[result], previous_response_id=first["id"])
    assert [each["output"][0]["content"][0]["text"] for each in (again, linked)] == ["A plant."] * 2
    assert "mcp__w__look_up" in ask.writer.prompts[1]
    assert again["usage"]["input_tokens"] == linked["usage"]["input_tokens"]


def test_its_events_have_both_names(ask: Asking) -> None:
    text = ask.post(tools=[MCP], stream=True).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    items = [event["item"] for event in events if event["type"].startswith("response.output_item")]
    assert {item.get("namespace") for item in items if item["type"] == "function_call"} == {"mcp__w"}
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert done["name"] == "look_up"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "look_up", "namespace": "mcp__w"},
        {"type": "function", "name": "look_up"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "namespace", "name": "mcp__w"}]},
    ],
)
def test_a_choice_may_name_it(ask: Asking, choice: dict[str, Any]) -> None:
    (called,) = [item for item in ask(tools=[MCP], tool_choice=choice, seed=1)["output"]]
    assert called["namespace"] == "mcp__w"


def test_two_namespaces_may_have_one_name(ask: Asking) -> None:
    other = {**MCP, "name": "mcp__v"}
    assert ask(tools=[MCP, other, LOOK])["output"][-1]["namespace"] == "mcp__w"
    several = {"type": "function", "name": "count"}
    refused = ask.post(tools=[MCP, other], tool_choice=several)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "tool_choice"
    twice = ask.post(tools=[MCP, MCP])
    assert twice.json()["error"]["param"] == "tools[1].tools[0].name"


def test_errors_name_the_place(ask: Asking) -> None:
    wrong = {**LOOK, "parameters": {"type": "nothing"}}
    refused = ask.post(tools=[{**MCP, "tools": [LOOK, {**wrong, "name": "b"}]}])
    assert refused.json()["error"]["param"] == "tools[0].tools[1].parameters"
    refused = ask.post(input=[{"type": "additional_tools", "tools": [wrong]}, {"role": "user", "content": "Hi"}])
    assert refused.json()["error"]["param"] == "input[0].tools[0].parameters"


def test_tools_may_come_as_an_item(ask: Asking) -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [MCP]}
    first = ask(input=[more, {"role": "user", "content": "What is moss?"}])
    called = first["output"][-1]
    assert called["namespace"] == "mcp__w"
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "a plant"}
    # They are part of what is built on.
    assert ask(input=[result], previous_response_id=first["id"])["output"][0]["content"][0]["text"] == "A plant."
    assert "mcp__w__count" in ask.writer.prompts[1]


def test_what_others_host_is_named_wherever_it_stands(ask: Asking) -> None:
    hosted = {"type": "web_search"}
    more = {"type": "additional_tools", "role": "developer", "tools": [LOOK, hosted]}
    response = ask.post(tools=[{**MCP, "tools": [LOOK, hosted]}], input=[more, {"role": "user", "content": "Hi"}])
    assert response.headers["x-pie-ignored"] == "tools[0].tools[1]:web_search, input[0].tools[1]:web_search"


def test_a_search_that_a_server_makes_has_nothing_to_find(ask: Asking) -> None:
    """All tools are offered, those that wait to be found too."""
    deferred = {**MCP, "tools": [{**LOOK, "defer_loading": True}]}
    response = ask.post(tools=[deferred, {"type": "tool_search"}])
    assert "x-pie-ignored" not in response.headers
    assert response.json()["output"][-1]["name"] == "look_up"


def test_a_search_that_the_client_makes() -> None:
    texts = (call("tool_search", query="words"), call("mcp__w__look_up", word="moss"), "A plant.")
    for ask in asking(*texts):
        items: list[dict[str, Any]] = [{"role": "user", "content": "What is moss?"}]
        (search,) = ask(tools=[SEARCH], input=items)["output"]
        assert search["type"] == "tool_search_call" and search["execution"] == "client"
        assert search["arguments"] == {"query": "words"} and search["id"].startswith("tsc_")
        found = {"type": "tool_search_output", "call_id": search["call_id"], "execution": "client", "tools": [MCP]}
        items += [search, found]
        (called,) = ask(tools=[SEARCH], input=items)["output"]
        assert (called["name"], called["namespace"]) == ("look_up", "mcp__w")
        items += [called, {"type": "function_call_output", "call_id": called["call_id"], "output": "a plant"}]
        assert ask(tools=[SEARCH], input=items)["output"][0]["content"][0]["text"] == "A plant."
        assert "These tools can be called now: mcp__w__look_up, mcp__w__count" in ask.writer.prompts[1]


def test_the_events_of_a_search() -> None:
    for ask in asking(call("tool_search", query="words")):
        text = ask.post(tools=[SEARCH], stream=True).text
        events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
        kinds = [event["type"] for event in events]
        assert kinds == [
            "response.created", "response.in_progress", "response.output_item.added", "response.output_item.done",
            "response.completed",
        ]  # fmt: skip
        assert events[3]["item"]["arguments"] == {"query": "words"}


def test_searches_of_other_servers_are_passed_over(ask: Asking) -> None:
    items = [
        {"role": "user", "content": "What is moss?"},
        {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {"query": "x"}},
        {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": [MCP]},
    ]
    assert ask(input=items)["output"][-1]["namespace"] == "mcp__w"
    assert "tool_search" not in ask.writer.prompts[0]


def test_what_a_tool_gave_is_never_refused(ask: Asking) -> None:
    """Of what cannot be read the model is told: with a refusal the conversation could not go on."""
    called = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"}
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    parts = [{"type": "input_text", "text": "A plant:"}, file, {"type": "encrypted_content", "encrypted_content": "x"}]
    result = {"type": "function_call_output", "call_id": "c", "output": parts}
    response = ask.post(input=[{"role": "user", "content": "What is moss?"}, called, result])
    assert response.status_code == 200, response.text
    assert response.headers["x-pie-ignored"] == "input.output.input_file, input.output.encrypted_content"
    (prompt,) = ask.writer.prompts
    assert "[input_file: it cannot be read here.]" in prompt and "JVBERi0" not in prompt
    kept = ask(input=[{"role": "user", "content": "And?"}], previous_response_id=response.json()["id"])
    assert kept["status"] == "completed" and ask.writer.prompts[1].count("it cannot be read here.") == 2
    asked = ask.post(input=[{"role": "user", "content": [file]}])
    assert asked.status_code == 400 and asked.json()["error"]["param"] == "input[0].content[0]"


def test_agents_speak_to_each_other(ask: Asking) -> None:
    """As Codex has it: the message of one is an item of the other's."""
    text = "Message Type: MESSAGE\nSender: /root\nPayload:\nWhat is moss?"
    content = [{"type": "input_text", "text": text}, {"type": "encrypted_content", "encrypted_content": "x"}]
    item = {"type": "agent_message", "id": "am_1", "author": "/root", "recipient": "/root/a", "content": content}
    assert ask(tools=[MCP], input=[item])["output"][-1]["name"] == "look_up"
    assert f"<|im_start|>user\n{text}" in ask.writer.prompts[0]


@pytest.mark.parametrize("kind", ["program", "program_output", "configuration_update", "web_search_call"])
def test_items_of_other_servers_are_passed_over(ask: Asking, kind: str) -> None:
    question = {"role": "user", "content": "What is moss?"}
    response = ask.post(input=[{"type": kind, "id": "x_1", "call_id": "c"}, question])
    assert response.status_code == 200 and response.headers["x-pie-ignored"] == f"input[0]:{kind}"
