"""What Codex 0.169 and Claude Code 2.1.328 send, in short: tested also where they cannot be installed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from proxy_inference_engine.config import Config
from tests.api.running import Running, running
from tests.api.writing import Writer, call
from tests.polling import HANG_S

THOUGHT = "<think>\nFirst a look.\n</think>\n\n"
TEXTS = (THOUGHT + "I will look.\n" + call("look", path="a.txt"), "It is empty.", "More.")
GPT = Config(drain_seconds=0.2, aliases={"claude-*": "default", "gpt-*": "default"})
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.fixture
def writer() -> Writer:
    return Writer(TEXTS)


@pytest.fixture
def live(writer: Writer) -> Iterator[Running]:
    with running(writer, GPT) as server:
        yield server
        server.wait_idle()


@pytest.fixture
def http(live: Running) -> Iterator[httpx.Client]:
    with live.http() as client:
        yield client


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def message(role: str, text: str, name: str) -> dict[str, Any]:
    return {"type": "message", "id": f"msg_{name}", "role": role, "content": [{"type": "input_text", "text": text}]}


# What it says of itself is one long value, beside the header that repeats it.
TURN = json.dumps({"session_id": "0" * 36, "workspaces": {"/home/anna/" + "x" * 3000: {"has_changes": False}}})
CODEX: dict[str, Any] = {
    "model": "gpt-5.3-codex",
    "tools": [
        {"type": "function", "name": "look", "description": "Looks.", "strict": False, "parameters": PARAMETERS},
        {
            "type": "namespace",
            "name": "multi_agent_v1",
            "description": "Agents.",
            "tools": [
                {"type": "function", "name": "spawn", "description": "", "strict": False, "parameters": PARAMETERS}
            ],
        },
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0" * 36,
    "client_metadata": {"x-codex-turn-metadata": TURN, "x-codex-window-id": "0" * 36 + ":0"},
}
ASKED = [
    message("developer", "You are a coding agent.", "1"),
    message("developer", "<skills_instructions>", "2"),
    message("user", "<environment_context>", "3"),
    message("user", "What does the file hold?", "4"),
]


def test_codex_loops_and_compacts(http: httpx.Client, writer: Writer) -> None:
    headers = {"originator": "codex_exec", "x-codex-turn-metadata": TURN, "accept": "text/event-stream"}
    response = http.post("/v1/responses", json={**CODEX, "input": ASKED}, headers=headers)
    assert response.headers["x-pie-ignored"] == "tools[2]:web_search"
    items = [event["item"] for event in events(response) if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]

    # It sends items back as they came, the reasoning both open and sealed.
    output = {"type": "function_call_output", "id": "fco_1", "call_id": items[2]["call_id"], "output": "Exit code 0"}
    history = [*ASKED, *items, output]
    last = events(http.post("/v1/responses", json={**CODEX, "input": history}))[-1]["response"]
    (said,) = last["output"]
    assert said["content"][0]["text"] == "It is empty."
    assert writer.prompts[1].startswith(writer.prompts[0]) and writer.prompts[1].count("First a look.") == 1
    assert last["usage"]["input_tokens_details"]["cached_tokens"] > len(writer.prompts[0])

    # A conversation that got long is summed up by the same model, without tools.
    history += [said, message("user", "Sum up.", "5")]
    body = {**CODEX, "tools": [], "parallel_tool_calls": False, "input": history}
    (said,) = events(http.post("/v1/responses", json=body))[-1]["response"]["output"]
    assert said["content"][0]["text"] == "More."


def test_codex_is_told_more_on_the_way(http: httpx.Client, writer: Writer) -> None:
    """Permissions that change, for example: a developer's message between those of the user."""
    between = [message("developer", "The network is off now.", "5"), message("user", "Go on.", "6")]
    response = http.post("/v1/responses", json={**CODEX, "input": [*ASKED, *between]})
    assert events(response)[-1]["type"] == "response.completed"
    (prompt,) = writer.prompts
    told = ("You are a coding agent.", "<skills_instructions>", "<environment_context>", "The network is off now.")
    assert all(prompt.count(text) == 1 for text in told) and prompt.index("hold?") < prompt.index("Go on.")


WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
MCP = {
    "type": "namespace",
    "name": "mcp__w",
    "description": "",
    "tools": [{"type": "function", "name": "look_up", "description": "Looks.", "strict": False, "parameters": WORD}],
}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "# Tool discovery",
    "parameters": {
        "type": "object",
        "properties": {"limit": {"type": "number"}, "query": {"type": "string"}},
        "required": ["query"],
        "additionalProperties": False,
    },
}
# The grammar of the one tool that its newest models have for everything.
SOURCE = r"""
start: pragma_source | plain_source
pragma_source: PRAGMA_LINE NEWLINE SOURCE
plain_source: SOURCE

PRAGMA_LINE: /[ \t]*\/\/ @exec:[^\r\n]*/
NEWLINE: /\r?\n/
SOURCE: /[\s\S]+/
"""
EXEC = {
    "type": "custom",
    "name": "exec",
    "description": "Run JavaScript code.",
    "format": {"type": "grammar", "syntax": "lark", "definition": SOURCE},
}
FUNCTIONS = {"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}


@contextmanager
def codex_socket(live: Running) -> Iterator[Callable[..., dict[str, Any]]]:
    """Over the WebSocket, as it talks to a provider with `supports_websockets`; each turn builds on the one before."""
    url = live.url.replace("http", "ws") + "/v1/responses"
    headers = {"openai-beta": "responses_websockets=2026-02-06", "x-codex-turn-metadata": TURN}
    previous: dict[str, Any] = {}
    with connect(url, additional_headers=headers, max_size=None) as line:

        def ask(**fields: Any) -> dict[str, Any]:
            line.send(json.dumps({"type": "response.create", **CODEX, **previous, **fields}))
            while (event := json.loads(line.recv(timeout=HANG_S)))["type"] not in ("response.completed", "error"):
                pass
            assert event["type"] == "response.completed", event
            previous["previous_response_id"] = event["response"]["id"]
            answer: dict[str, Any] = event["response"]
            return answer

        yield ask


def test_codex_with_mcp_over_a_socket() -> None:
    """First it makes the prompt ready; then it sends what is new only."""
    texts = ("I look it up. " + call("mcp__w__look_up", word="moss"), "A plant.")
    with running(writer := Writer(texts), GPT) as live, codex_socket(live) as ask:
        warm = ask(tools=[MCP], input=ASKED[:1], generate=False)
        assert warm["output"] == [] and warm["usage"]["output_tokens"] == 0
        first = ask(tools=[MCP], input=ASKED[1:])
        assert first["usage"]["input_tokens_details"]["cached_tokens"] > 0
        called = first["output"][-1]
        assert (called["name"], called["namespace"]) == ("look_up", "mcp__w")
        output = [{"type": "input_text", "text": "Wall time: 0.1 seconds"}, {"type": "input_text", "text": "a plant"}]
        result = {"type": "function_call_output", "id": "fco_1", "call_id": called["call_id"], "output": output}
        assert ask(tools=[MCP], input=[result])["output"][0]["content"][0]["text"] == "A plant."
        assert writer.prompts[2].startswith(writer.prompts[1])
        live.wait_idle()


def test_codex_finds_tools_by_searching() -> None:
    texts = (call("tool_search", query="look up"), call("mcp__w__look_up", word="moss"), "A plant.")
    with running(Writer(texts), GPT) as live, codex_socket(live) as ask:
        (search,) = ask(tools=[SEARCH], input=ASKED)["output"]
        found = {"type": "tool_search_output", "call_id": search["call_id"], "status": "completed", "tools": [MCP]}
        (called,) = ask(tools=[SEARCH], input=[{**found, "execution": "client"}])["output"]
        assert called["namespace"] == "mcp__w"
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "a plant"}
        assert ask(tools=[SEARCH], input=[result])["output"][0]["content"][0]["text"] == "A plant."
        live.wait_idle()


def test_codex_brings_its_tools_as_an_item() -> None:
    """Its newest models begin with nothing at all, and then with an item that has the tools."""
    code = "text(await tools.mcp__w__look_up({word: 'moss'}))"
    with running(Writer((call("functions__exec", input=code), "A plant.")), GPT) as live, codex_socket(live) as ask:
        body = {"tools": [], "parallel_tool_calls": False, "reasoning": {"effort": "low", "context": "all_turns"}}
        assert ask(**body, input=[], generate=False)["output"] == []
        item = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [FUNCTIONS]}
        (called,) = ask(**body, input=[item, *ASKED], text={"verbosity": "low"})["output"]
        assert (called["type"], called["name"], called["namespace"]) == ("custom_tool_call", "exec", "functions")
        assert called["input"] == code
        result = {"type": "custom_tool_call_output", "call_id": called["call_id"], "output": "a plant"}
        assert ask(**body, input=[result])["output"][0]["content"][0]["text"] == "A plant."
        live.wait_idle()


CLAUDE: dict[str, Any] = {
    "max_tokens": 32000,
    "stream": True,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cc_entrypoint=sdk-cli;"}],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": json.dumps({"device_id": "0" * 64, "account_uuid": "", "session_id": "0" * 36})},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What does the file hold?"}]},
        {"role": "system", "content": "The agents there are: none."},
    ],
}


@pytest.mark.parametrize("name", ["default", "fake", "claude-sonnet-5"])
def test_claude_code_is_answered_by_the_model_it_asked_for(http: httpx.Client, name: str) -> None:
    """It throws away the thinking of a model with another name, and the loop goes on without it."""
    tool = {"name": "look", "description": "Looks.", "input_schema": PARAMETERS}
    body = {**CLAUDE, "model": name, "tools": [tool]}
    found = events(http.post("/v1/messages?beta=true", json=body))
    assert found[0]["message"]["model"] == name
    assert http.post("/v1/messages", json={**body, "stream": False}).json()["model"] == name


def test_claude_code_does_not_look_at_thoughts(http: httpx.Client, writer: Writer) -> None:
    """It leaves them out, and sends back a signature: the model has to see what it thought all the same."""
    tool = {"name": "look", "description": "Looks.", "input_schema": PARAMETERS}
    body = {**CLAUDE, "model": "default", "tools": [tool], "stream": False}
    body["thinking"] = {"type": "adaptive", "display": "omitted"}
    answer = http.post("/v1/messages", json=body).json()["content"]
    assert answer[0]["type"] == "thinking" and answer[0]["thinking"] == "" and "look" not in answer[0]["signature"]
    result = {"type": "tool_result", "tool_use_id": answer[-1]["id"], "content": "nothing"}
    messages = [*CLAUDE["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": [result]}]
    assert http.post("/v1/messages", json={**body, "messages": messages}).status_code == 200
    assert "<think>\nFirst a look.\n</think>" in writer.prompts[-1]
    foreign = [{**answer[0], "signature": "EqQBCgIYAhIM"}, *answer[1:]]
    messages[-2] = {"role": "assistant", "content": foreign}
    assert http.post("/v1/messages", json={**body, "messages": messages}).status_code == 200


def test_claude_code_searches_the_web_in_a_request_of_its_own(http: httpx.Client) -> None:
    """The only tool is one that is not here: the model answers without it."""
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    body = {**CLAUDE, "model": "default", "tools": [search], "tool_choice": {"type": "auto"}, "max_tokens": 20}
    response = http.post("/v1/messages?beta=true", json=body)
    assert events(response)[-1]["type"] == "message_stop"
    assert "tools.web_search_20250305" in response.headers["x-pie-ignored"]


def test_claude_code_can_leave_an_image_out(http: httpx.Client) -> None:
    """It removes the image and asks again only when it reads these words; else every later request fails.

    One that a tool gave costs nothing: the model is told of it.
    """
    pixel = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [pixel]}
    messages = [
        {"role": "user", "content": "What does the file show?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a"}}],
        },
        {"role": "user", "content": [result]},
    ]
    response = http.post("/v1/messages?beta=true", json={**CLAUDE, "model": "default", "messages": messages})
    assert events(response)[-1]["type"] == "message_stop"
    assert "messages[2].content[0].content[0]:image" in response.headers["x-pie-ignored"]
    messages[0] = {"role": "user", "content": [pixel]}
    response = http.post("/v1/messages?beta=true", json={**CLAUDE, "model": "default", "messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("Could not process image: ")


def claude_loop(texts: tuple[str, ...], *turns: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[str]]:
    """The blocks of the last answer, and the prompts. A turn: the tools that are sent, and what follows their call."""
    messages: list[Any] = list(CLAUDE["messages"])
    with running(writer := Writer(texts), GPT) as live, live.http() as http:
        blocks: list[Any] = []
        for tools, said in turns:
            if blocks:
                call_id = blocks[-1]["id"]
                results = [{**block, "tool_use_id": call_id} if "tool_use_id" in block else block for block in said]
                messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
            body = {**CLAUDE, "model": "default", "stream": False, "messages": messages, "tools": tools}
            response = http.post("/v1/messages?beta=true", json=body)
            assert response.status_code == 200, response.text
            blocks = response.json()["content"]
        live.wait_idle()
    return blocks, writer.prompts


@pytest.mark.parametrize("is_inside", [True, False])
def test_claude_code_reads_a_pdf(is_inside: bool) -> None:
    """The file is in the result that tells of it; before 2.1.327 it stood beside."""
    read = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJSVFT0YK"}
    text = "PDF file read: a.pdf (315 bytes)"
    mark = {"cache_control": {"type": "ephemeral"}}
    document = {"type": "document", "source": source}
    inside = [{"type": "tool_result", "tool_use_id": "", "content": [{"type": "text", "text": text}, document], **mark}]
    beside = [{"type": "tool_result", "tool_use_id": "", "content": text}, {**document, **mark}]
    said = inside if is_inside else beside
    (answer,), prompts = claude_loop((call("Read"), "It is empty."), ([read], []), ([read], said))
    assert answer["text"] == "It is empty." and "PDF file read" in prompts[1] and source["data"] not in prompts[1]
    assert prompts[1].count("it cannot be read here.") == 1


def test_claude_code_searches_for_tools() -> None:
    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    search = {"name": "ToolSearch", "description": "Loads tools.", "input_schema": query}
    word = {"name": "mcp__w__look_up", "description": "Looks.", "input_schema": WORD, "defer_loading": True}
    found = [
        {
            "type": "tool_result",
            "tool_use_id": "",
            "content": [{"type": "tool_reference", "tool_name": "mcp__w__look_up"}],
        },
        {"type": "text", "text": "Tool loaded."},
    ]
    looked = [{"type": "tool_result", "tool_use_id": "", "content": "a plant"}]
    texts = (call("ToolSearch", query="select:mcp__w__look_up"), call("mcp__w__look_up", word="moss"), "A plant.")
    (answer,), _ = claude_loop(texts, ([search], []), ([search, word], found), ([search, word], looked))
    assert answer["text"] == "A plant."
