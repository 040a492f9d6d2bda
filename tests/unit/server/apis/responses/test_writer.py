"""The events of a response, from events that a test wrote down: order, items that reopen, limits, failure, cancel."""

from typing import Any

import pytest

from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.output.events import (
    CallDelta,
    CallEnded,
    CallStarted,
    Ended,
    Event,
    PromptRead,
    ReasoningDelta,
    TextDelta,
)
from proxy_inference_engine.served.stream import Counts
from proxy_inference_engine.server.apis.responses.object import ResponseHead
from proxy_inference_engine.server.apis.responses.offer import CallName
from proxy_inference_engine.server.apis.responses.schema import ResponseRequest
from proxy_inference_engine.server.apis.responses.writer import ResponseShape, ResponseWriter
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from tests.unit.served.scripted import TIMINGS, counted, make_counts

READ = PromptRead(3, None)
STOP, LENGTH = Ended("stop", None, 7, TIMINGS), Ended("length", None, 7, TIMINGS)
ID = "resp_" + "0" * 32


def make(counts: Counts | None = None, **shape: Any) -> ResponseWriter:
    body = validate(ResponseRequest, {"model": "m", "input": "x"})
    head = ResponseHead(ID, 1, "m", body, Profile())
    return ResponseWriter(head, counts or make_counts(10), ResponseShape(**shape))


def a_call(index: int, name: str = "f", arguments: str = "{}") -> list[Event]:
    return [CallStarted(index, name), CallDelta(index, arguments), CallEnded(index)]


def played(events: list[Event], **shape: Any) -> list[dict[str, Any]]:
    counts = make_counts(10)
    made = make(counts, **shape)
    wire = made.start()
    for event in events:
        wire += made.feed(counted(counts, [(0, event)]))
    return wire + made.finish()


def output(wire: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Type, content and status of every item at the end."""
    fields = {"message": "content", "reasoning": "content", "function_call": "arguments", "custom_tool_call": "input"}
    items = []
    for item in wire[-1]["response"]["output"]:
        content = item[fields[item["type"]]]
        items.append((item["type"], content if isinstance(content, str) else content[0]["text"], item["status"]))
    return items


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([TextDelta("a"), TextDelta("b"), STOP], [("message", "ab", "completed")]),
        ([STOP], [("message", "", "completed")]),
        ([LENGTH], [("message", "", "incomplete")]),
        ([TextDelta("a"), LENGTH], [("message", "a", "incomplete")]),
        (
            [ReasoningDelta("t"), TextDelta("a"), ReasoningDelta("u"), TextDelta("b"), STOP],
            [
                ("reasoning", "t", "completed"),
                ("message", "a", "completed"),
                ("reasoning", "u", "completed"),
                ("message", "b", "completed"),
            ],
        ),
        (
            [TextDelta("a"), *a_call(0), *a_call(1, "c", "x"), STOP],
            [
                ("message", "a", "completed"),
                ("function_call", "{}", "completed"),
                ("custom_tool_call", "x", "completed"),
            ],
        ),
        ([CallStarted(0, "f"), CallDelta(0, '{"a'), LENGTH], [("function_call", '{"a', "incomplete")]),
        ([*a_call(0), LENGTH], [("function_call", "{}", "completed")]),
    ],
)
def test_items(events: list[Event], expected: list[tuple[str, str, str]]) -> None:
    wire = played([READ, *events], names={"c": CallName("custom", "c")})
    assert output(wire) == expected
    is_cut = events[-1] is LENGTH
    assert wire[-1]["type"] == ("response.incomplete" if is_cut else "response.completed")
    assert wire[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 3
    added = [event for event in wire if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == list(range(len(expected)))
    assert all(event["item"]["status"] == "in_progress" for event in added)
    assert all(not event["item"].get("content") and not event["item"].get("arguments") for event in added)
    ids = [item["id"] for item in wire[-1]["response"]["output"]]
    assert len(set(ids)) == len(ids)


def test_sealed_reasoning_is_in_the_item_only_when_it_is_done() -> None:
    sealer = Sealer()
    wire = played([ReasoningDelta("t"), STOP], sealer=sealer)
    added, done = (
        next(event["item"] for event in wire if event["type"] == f"response.output_item.{end}")
        for end in ("added", "done")
    )
    assert "encrypted_content" not in added and sealer.open("reasoning", done["encrypted_content"]) == "t"


def test_failure_shows_what_was_said() -> None:
    made = make()
    made.start()
    made.feed([(0, TextDelta("a"))])
    error, failed = made.fail(EngineFailure("broken"))
    assert error["error"] == {"message": "broken", "type": "server_error", "param": None, "code": "engine_failure"}
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "broken"}
    assert output([failed]) == [("message", "a", "incomplete")] and failed["response"]["usage"]["output_tokens"] == 0


def test_the_background_is_queued_until_something_comes() -> None:
    made = make(is_background=True)
    assert [event["type"] for event in made.start()] == ["response.created", "response.queued"]
    assert made.snapshot()["status"] == "queued"
    (begun,) = made.feed([(0, READ)])
    assert begun["type"] == "response.in_progress" and begun["response"]["status"] == "in_progress"
    made.feed([(0, event) for event in [*a_call(0), TextDelta("a")]])
    assert [item["type"] for item in made.snapshot()["output"]] == ["function_call"]
    (cancelled,) = made.cancel()
    # Whoever polls sees the end when it is stored, not before.
    assert cancelled["response"]["status"] == "cancelled" and made.snapshot()["status"] == "in_progress"
