"""What Codex 0.166 and Claude Code 2.1.197 send, in short: tested also where they cannot be installed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import Config
from tests.api.running import Running, running
from tests.api.writing import Writer, call

THOUGHT = "<think>\nFirst a look.\n</think>\n\n"
TEXTS = (THOUGHT + "I will look.\n" + call("look", path="a.txt"), "It is empty.", "More.")
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
    with running(writer, Config(drain_seconds=0.2, aliases={"claude-*": "default", "gpt-*": "default"})) as server:
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
    assert response.headers["x-pie-ignored"] == "tools[1]:namespace, tools[2]:web_search"
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
