"""Every kind of event that a response has here parses with the strict client, and together they are all there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import ResponseFailedEvent

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running
from tests.api.writing import Writer, call

TEXT = "<think>\nFirst a look.\n</think>\n\nI will look.\n"
PING: Any = {"type": "function", "name": "ping", "parameters": {"type": "object", "properties": {}}, "strict": False}
SHELL: Any = {"type": "custom", "name": "shell", "format": {"type": "text"}}
LOGPROBS: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "function": (TEXT + call("ping"), {"tools": [PING]}),
    "custom": (TEXT + call("shell", input="ls"), {"tools": [SHELL]}),
    "limit": (TEXT, {"max_output_tokens": 30, **LOGPROBS}),
    "background": (TEXT, {"background": True, "include": ["reasoning.encrypted_content"]}),
}
AROUND = {"created", "in_progress", "output_item.added", "output_item.done"}
REASONING = {"content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"}
MESSAGE = {"content_part.added", "output_text.delta", "output_text.done", "content_part.done"}
KINDS: dict[str, set[str]] = {
    "function": {"function_call_arguments.delta", "function_call_arguments.done", "completed"},
    "custom": {"custom_tool_call_input.delta", "custom_tool_call_input.done", "completed"},
    "limit": {"incomplete"},
    "background": {"queued", "completed"},
}


@pytest.fixture(params=ASKED)
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[Running, str]]:
    name = str(request.param)
    with running(Writer([ASKED[name][0]])) as live:
        yield live, name


def test_every_event_parses(asked: tuple[Running, str]) -> None:
    live, name = asked
    fields: dict[str, Any] = {"model": MODEL, "input": "Hello", **ASKED[name][1]}
    with live.openai() as client:
        # The strict client raises for a key that is missing, of the wrong type, or of an event that it does not know.
        events = list(client.responses.create(**fields, stream=True))
        kinds = {event.type.removeprefix("response.") for event in events}
        assert kinds == AROUND | REASONING | MESSAGE | KINDS[name]
        again = list(client.responses.retrieve(events[0].response.id, stream=True))
        assert again == events


def test_the_failed_object_parses() -> None:
    """The client raises at the `error` before it, so it is read without it."""
    with running(FakeRunner(poison_id=ord("~"))) as live, live.http() as http:
        text = http.post("/v1/responses", json={"model": MODEL, "input": "~", "stream": True}).text
    *_, error, failed, done, _ = text.split("\n\n")
    assert error.startswith("event: error\n") and done == "data: [DONE]"
    event = ResponseFailedEvent.model_validate_json(failed.partition("\ndata: ")[2])
    assert event.response.status == "failed" and event.response.error is not None
    assert event.response.error.code == "server_error" and event.response.usage is not None
