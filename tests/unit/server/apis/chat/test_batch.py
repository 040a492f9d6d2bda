"""A body with several conversations taken apart: who gets which value, and how a wrong one is named."""

from typing import Any

import pytest

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.server.apis.chat.ask import Conversation
from proxy_inference_engine.server.apis.chat.batch import MAX_CONVERSATIONS, RawBatch, own_fields, validate_batch
from proxy_inference_engine.server.apis.chat.route import _validate as validate_chat
from proxy_inference_engine.server.apis.chat.schema import ChatRequest

A: list[Any] = [{"role": "user", "content": "a"}]
B: list[Any] = [{"role": "system", "content": "s"}, {"role": "user", "content": "b"}]
TWO: dict[str, Any] = {"model": "m", "messages": [A, B]}
F = {"type": "function", "function": {"name": "f"}}
G = {"type": "function", "function": {"name": "g"}}
JSON, TEXT = {"type": "json_object"}, {"type": "text"}


def bodies(data: dict[str, Any]) -> list[ChatRequest]:
    return [conversation.body for conversation in validate_batch(RawBatch(data))]


def test_one_conversation_is_proved_at_once() -> None:
    read = validate_chat({"model": "m", "messages": A})
    assert isinstance(read, ChatRequest) and read.messages[0].texts == ["a"]
    assert Conversation(read).name_param("messages[0]") == "messages[0]"


@pytest.mark.parametrize("body", [None, [], "x", {}, {"model": "m"}, {"model": "m", "messages": [{}, A]}])
def test_what_is_no_batch_is_refused_as_ever(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        validate_chat(body)


def test_conversations_keep_their_order() -> None:
    assert isinstance(validate_chat(TWO), RawBatch)
    assert [[message.texts for message in body.messages] for body in bodies(TWO)] == [[["a"]], [["s"], ["b"]]]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("temperature", 0.5, [0.5, 0.5]),
        ("temperature", [0.5], [0.5, 0.5]),
        ("temperature", [0.5, 1], [0.5, 1]),
        ("temperature", [None, 1], [None, 1]),
        ("seed", [3, 4], [3, 4]),
        ("max_tokens", [3, 4], [3, 4]),
        ("logit_bias", [{"1": 2}, {}], [{1: 2.0}, {}]),
        ("ignore_eos", [True, False], [True, False]),
        ("stop", "x", [["x"], ["x"]]),
        ("stop", ["x", "y"], [["x", "y"], ["x", "y"]]),
        ("stop", [["x", "y"]], [["x", "y"], ["x", "y"]]),
        ("stop", [["x"], "y"], [["x"], ["y"]]),
        ("stop", [["x"], None], [["x"], None]),
        ("stop_token_ids", [1, 2], [[1, 2], [1, 2]]),
        ("stop_token_ids", [[1], [2]], [[1], [2]]),
        ("dry_sequence_breakers", [["a"], ["b"]], [["a"], ["b"]]),
        ("reasoning_effort", ["none", "low"], ["none", "low"]),
        ("chat_template_kwargs", [{"a": 1}, {}], [{"a": 1}, {}]),
        ("continue_final_message", [False, True], [False, True]),
        ("n", 3, [3, 3]),
    ],
)
def test_values_are_shared_or_ones_own(field: str, value: Any, expected: list[Any]) -> None:
    assert [getattr(body, field) for body in bodies({**TWO, field: value})] == expected


def test_tools_and_formats_may_differ() -> None:
    first, second = bodies({**TWO, "tools": [[F, G], []], "tool_choice": ["required", "auto"]})
    assert (len(first.tools), first.tool_choice, len(second.tools), second.tool_choice) == (2, "required", 0, "auto")
    shared = bodies({**TWO, "tools": [F, G], "response_format": [JSON, TEXT]})
    assert [len(body.tools) for body in shared] == [2, 2]
    assert [body.response_format.type for body in shared if body.response_format] == ["json_object", "text"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": [1, 1, 1]}, "temperature"),
        ({"temperature": []}, "temperature"),
        ({"stop": [["a"], ["b"], ["c"]]}, "stop"),
        ({"tools": [[F], [F], [F]]}, "tools"),
        ({"temperature": [1, 3]}, "temperature[1]"),
        ({"temperature": [3]}, "temperature[0]"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": [0.5, "x"]}, "top_p[1]"),
        ({"logit_bias": [{}, {"x": 1}]}, "logit_bias[1]"),
        ({"stop": [["a"], [1]]}, "stop[1][0]"),
        ({"tools": [[F], [F, {"type": "function", "function": {}}]]}, "tools[1][1].function.name"),
        ({"tools": [[F], F]}, "tools[1]"),
        ({"response_format": [JSON, {"type": "xml"}]}, "response_format[1]"),
        ({"messages": [A, []]}, "messages[1]"),
        ({"messages": [A, {"role": "user"}]}, "messages[1]"),
        ({"messages": [A, None]}, "messages[1]"),
        ({"messages": [A, [{"role": "user"}]]}, "messages[1][0].content"),
        ({"messages": [A] * (MAX_CONVERSATIONS + 1)}, "messages"),
        ({"n": [1, 2]}, "n"),
        ({"stream": [True, False]}, "stream"),
        ({"model": ["m", "m"]}, "model"),
        ({"best_of": [2, 2]}, "best_of"),
        ({"metadata": [{}, {}]}, "metadata"),
        ({"foo": [1, 2]}, "foo"),
        ({"store": True}, "store"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        bodies({**TWO, **fields})
    assert caught.value.param == param
    assert f"'{param}'" in caught.value.message and len(caught.value.message) < 300


def test_a_batch_of_one_may_be_stored() -> None:
    assert [body.store for body in bodies({"model": "m", "messages": [A], "store": True})] == [True]


def test_later_errors_are_named_too() -> None:
    second = validate_batch(RawBatch({**TWO, "seed": [1]}))[1]
    for param, expected in (("messages", "messages[1]"), ("seed", "seed[0]"), ("tools", "tools"), (None, None)):
        error = ContextLengthExceeded("too long", param=param)
        error.rename(second.name_param)
        assert error.param == expected


def test_the_largest_batch_is_taken() -> None:
    assert len(bodies({"model": "m", "messages": [A] * MAX_CONVERSATIONS})) == MAX_CONVERSATIONS


class Grown(ChatRequest):
    """Chat with fields that it does not have yet."""

    mood: str = "calm"
    moods: list[str] | None = None


def test_a_new_field_of_chat_may_have_one_value_a_conversation() -> None:
    """Nobody has to remember to list it here; what belongs to the whole body is listed, and nothing else is."""
    assert own_fields(Grown) == own_fields(ChatRequest) | {"mood": False, "moods": True}
    shared = ChatRequest.model_fields.keys() - own_fields(ChatRequest).keys()
    assert {"model", "n", "best_of", "stream", "store"} <= shared
    assert {"messages", "tools", "temperature", "seed", "response_format"} <= own_fields(ChatRequest).keys()
