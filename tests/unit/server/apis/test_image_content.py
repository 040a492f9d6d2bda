"""Image parts of every wire format become the same contents, in order, and know their place in the body."""

from typing import Any

from proxy_inference_engine.interaction import ContentType, Interaction
from proxy_inference_engine.served.ask import ChatPrompt
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.messages.ask import make_turns as message_turns
from proxy_inference_engine.server.apis.messages.schema import CountRequest
from proxy_inference_engine.server.apis.responses.items import input_items
from proxy_inference_engine.server.apis.responses.turns import ItemTurns, stored_item
from proxy_inference_engine.server.apis.shared.fields import validate
from proxy_inference_engine.server.apis.shared.messages import make_turns as chat_turns
from proxy_inference_engine.server.apis.shared.sealer import Sealer

URL = "https://a.example/a.png"
Shown = list[list[str | tuple[str, str | None, str]]]


def shown(turns: list[Interaction]) -> Shown:
    return [
        [
            part.text if part.type is ContentType.TEXT else (part.data["url"], part.data["detail"], part.data["param"])
            for part in turn.content
        ]
        for turn in turns
    ]


def test_chat() -> None:
    image = {"type": "image_url", "image_url": {"url": URL, "detail": "high"}}
    plain = {"type": "image_url", "image_url": {"url": "data:x"}}
    said = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [image, {"type": "text", "text": "b"}, plain]},
    ]
    body = validate(ChatRequest, {"model": "m", "messages": said})
    turns = chat_turns(body.messages)
    assert shown(turns) == [
        ["a"],
        [(URL, "high", "messages[1].content[0]"), "b", ("data:x", None, "messages[1].content[2]")],
    ]
    assert ChatPrompt(turns).num_chars == 2 and ChatPrompt(turns).has_images


ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_image", "image_url": "data:x", "detail": "low", "file_id": None}],
    },
]


def test_responses_and_what_was_stored() -> None:
    sealer = Sealer()
    own = [stored_item(item) for item in ITEMS]
    kept = input_items(own, "resp_" + "0" * 32)
    assert kept[0]["content"] == ITEMS[0]["content"]
    assert kept[2]["output"] == [{"type": "input_image", "image_url": "data:x", "detail": "low"}]
    made = ItemTurns(sealer, len(kept))
    for item in [*map(stored_item, kept), *own]:
        made.add(item)
    turns = shown(made.finish())
    assert turns[0] == ["a", (URL, None, "input")] and turns[2] == [("data:x", "low", "input")]
    assert turns[3] == ["a", (URL, None, "input[0].content[1]")]
    assert turns[5] == [("data:x", "low", "input[2].output[0]")]


def test_what_a_compaction_kept_has_no_place_in_the_body() -> None:
    sealer = Sealer()
    kept = input_items([stored_item(ITEMS[0])], "resp_" + "0" * 32)
    sealed = sealer.seal("compaction", {"summary": "s", "items": kept})
    made = ItemTurns(sealer)
    for item in ({"type": "compaction", "encrypted_content": sealed}, ITEMS[0]):
        made.add(stored_item(item))
    _, first, second = shown(made.finish())
    assert first[1] == (URL, None, "input") and second[1] == (URL, None, "input[1].content[1]")


def test_messages() -> None:
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    linked = {"type": "image", "source": {"type": "url", "url": URL}, "cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "is_error": True,
        "content": [{"type": "text", "text": "r"}, png],
    }
    said = [
        {"role": "user", "content": [png, {"type": "text", "text": "a"}, linked]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "text", "text": "b"}, linked, result]},
    ]
    body = validate(CountRequest, {"model": "m", "messages": said})
    data = "data:image/png;base64,AAAA"
    assert shown(message_turns(body)) == [
        [(data, None, "messages[0].content[0]"), "a", (URL, None, "messages[0].content[2]")],
        [],
        ["Error:", "r", (data, None, "messages[2].content[2].content[1]")],
        ["b", (URL, None, "messages[2].content[1]")],
    ]
    assert body.unknown == ()
