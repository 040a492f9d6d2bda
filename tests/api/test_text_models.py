"""Images that agents send to a model that takes no images: the result of a tool says so, and the turn goes on."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy_inference_engine.served.images import NOTE
from tests.api.running import MODEL, Running
from tests.api.test_images import block, chat_body, messages_body, num_prompt_tokens, responses_body, said
from tests.images import red

Json = dict[str, Any]
CALL = {"type": "function", "id": "call_1", "function": {"name": "look", "arguments": "{}"}}


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


def chat(*parts: str) -> Json:
    body = chat_body("Look")
    result = chat_body(*parts)["messages"][0]["content"]
    body["messages"] += [
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    return body


def responses(*parts: str) -> Json:
    body = responses_body("Look")
    result = responses_body(*parts)["input"][0]["content"]
    body["input"] += [
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": result},
    ]
    return body


def messages(*parts: str) -> Json:
    body = messages_body("Look")
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [block(part) for part in parts]}
    body["messages"] += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    return body


APIS = {
    "/v1/chat/completions": (chat, "messages[2].content[1]:image"),
    "/v1/responses": (responses, "input[2].output[1]:image"),
    "/v1/messages": (messages, "messages[2].content[0].content[1]:image"),
}


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("image", [red(), "https://example.com/a.png", "data:image/png;base64,!"], ids=range(3))
def test_a_result_says_that_there_was_an_image(http: httpx.Client, path: str, image: str) -> None:
    """Codex's `view_image` and Claude Code's `Read` of an image; nothing is fetched or decoded."""
    body, name = APIS[path]
    answer = http.post(path, json=body("see", image))
    assert answer.status_code == 200 and answer.headers["x-pie-ignored"] == name
    written = http.post(path, json=body("see", NOTE))
    assert "x-pie-ignored" not in written.headers
    assert num_prompt_tokens(answer.json()) == num_prompt_tokens(written.json())
    assert said(path, answer.json()) == said(path, written.json())


def test_an_image_of_the_user_is_refused_all_the_same(http: httpx.Client) -> None:
    body = messages("see", red())
    body["messages"][2]["content"].append(block(red()))
    answer = http.post("/v1/messages", json=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message == "Could not process image: Invalid value for 'messages[2].content[1]': this model takes no images."


def test_what_counts_and_renders_says_the_same(http: httpx.Client) -> None:
    for path, body, name in (
        ("/v1/messages/count_tokens", messages("see", red()), "messages[2].content[0].content[1]:image"),
        ("/v1/responses/input_tokens", responses("see", red()), "input[2].output[1]:image"),
        ("/tokenize", {"messages": chat("see", red())["messages"]}, "messages[2].content[1]:image"),
        ("/apply-template", {"messages": chat("see", red())["messages"]}, "messages[2].content[1]:image"),
    ):
        for field in ("max_tokens", "max_output_tokens", "temperature"):
            body.pop(field, None)
        answer = http.post(path, json=body)
        assert answer.status_code == 200 and answer.headers["x-pie-ignored"] == name, answer.text
        assert path != "/apply-template" or NOTE in answer.json()["prompt"]


def test_stored_results_are_told_of_too_and_named_once(http: httpx.Client) -> None:
    first = http.post("/v1/responses", json=responses(red(), red(), "see")).json()
    stored = http.get(f"/v1/responses/{first['id']}/input_items?order=asc").json()["data"]
    assert stored[2]["output"][0]["image_url"] == red()  # kept as it was sent, for a model that takes images
    more = {"model": MODEL, "input": "And?", "previous_response_id": first["id"], "max_output_tokens": 20}
    answer = http.post("/v1/responses", json=more)
    assert answer.status_code == 200 and answer.headers["x-pie-ignored"] == "input:image"


def test_a_batch_names_the_conversation(http: httpx.Client) -> None:
    body = {**chat_body(), "messages": [chat("a")["messages"], chat("a", red())["messages"]]}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.headers["x-pie-ignored"] == "messages[1][2].content[1]:image"
