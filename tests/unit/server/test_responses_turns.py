"""Items to turns: what belongs together is one turn, what is cut off is whole, what is foreign is refused."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Interaction
from proxy_inference_engine.server.convert.responses_items import input_items
from proxy_inference_engine.server.convert.responses_turns import (
    Conversation,
    stored_item,
    whole_turns,
    without_oldest,
)
from proxy_inference_engine.server.routes.compaction import divided
from proxy_inference_engine.server.schemas.items import AnyItem, Items
from proxy_inference_engine.server.sealing import Sealer

SEALER = Sealer()
_items: TypeAdapter[list[AnyItem]] = TypeAdapter(Items)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(id_: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"}


def result(id_: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": f"of {id_}"}


def turns_of(items: list[dict[str, Any]], num_earlier: int = 0, sealer: Sealer = SEALER) -> list[Interaction]:
    conversation = Conversation(sealer, num_earlier)
    for item in _items.validate_python(items):
        conversation.add(item)
    return conversation.finish()


def written(turn: Interaction) -> str:
    """Role, text, and in brackets what was thought and called."""
    thoughts = turn.metadata.get("reasoning_content")
    calls = [one.id for one in turn.metadata.get("tool_calls", ())]
    parts = [turn.role.value, turn.text, f"({thoughts})" if thoughts else "", f"[{','.join(calls)}]" if calls else ""]
    return " ".join(part for part in parts if part)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        ([user("a")], ["user a"]),
        ([{"role": "developer", "content": "d"}, user("a")], ["developer d", "user a"]),
        ([user("a"), said("b"), user("c")], ["user a", "assistant b", "user c"]),
        ([user("a"), thought("t"), said("b")], ["user a", "assistant b (t)"]),
        ([user("a"), thought("t"), said("b"), call("1"), result("1")], ["user a", "assistant b (t) [1]", "tool of 1"]),
        ([call("1"), call("2"), result("2"), result("1")], ["assistant [1,2]", "tool of 2", "tool of 1"]),
        (
            [call("1"), result("1"), call("2"), result("2")],
            ["assistant [1]", "tool of 1", "assistant [2]", "tool of 2"],
        ),
        ([said("a"), said("b")], ["assistant a", "assistant b"]),
        ([call("1"), said("b")], ["assistant [1]", "assistant b"]),
        ([said("a"), thought("t"), said("b")], ["assistant a", "assistant b (t)"]),
        ([thought("t"), thought("u"), said("b")], ["assistant b (t\n\nu)"]),
        ([thought("t"), user("a")], ["assistant (t)", "user a"]),
        ([{"type": "reasoning", "summary": []}, user("a")], ["user a"]),
        ([{"type": "web_search_call", "id": "ws", "status": "completed"}, user("a")], ["user a"]),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}], ["assistant no"]),
        (
            [{"type": "custom_tool_call", "call_id": "1", "name": "c", "input": "x", "id": None, "status": None}],
            ["assistant [1]"],
        ),
    ],
)
def test_turns(items: list[dict[str, Any]], expected: list[str]) -> None:
    assert [written(turn) for turn in turns_of(items)] == expected


def test_a_result_has_the_name_of_what_was_called() -> None:
    turn = turns_of([call("1"), result("1")])[1]
    assert turn.metadata["name"] == "f" and turn.metadata["tool_call_id"] == "1"


@pytest.mark.parametrize("num_earlier", [0, 1])
@pytest.mark.parametrize(
    ("item", "param"),
    [
        (result("x"), "call_id"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, "encrypted_content"),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": Sealer().seal("reasoning", "t")},
            "encrypted_content",
        ),
        ({"type": "compaction", "encrypted_content": SEALER.seal("reasoning", "t")}, "encrypted_content"),
    ],
)
def test_what_is_refused_is_named(item: dict[str, Any], param: str, num_earlier: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        turns_of([user("a"), item], num_earlier)
    assert caught.value.param == f"input[{1 - num_earlier}].{param}"


def test_sealed_reasoning_is_the_reasoning() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": SEALER.seal("reasoning", "t")}
    assert [written(turn) for turn in turns_of([sealed, said("b")])] == ["assistant b (t)"]


LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    *[user("one"), call("1"), result("1"), said("first")],
    {"role": "developer", "content": "d"},
    *[user("two"), call("2"), user("two more"), result("2"), said("second")],
    user("three"),
]


def test_whole_turns_keep_calls_with_their_results() -> None:
    groups = [[written(turn) for turn in group] for group in whole_turns(turns_of(LONG))]
    assert groups == [
        ["user one", "assistant [1]", "tool of 1", "assistant first"],
        ["user two", "assistant [2]", "user two more", "tool of 2", "assistant second"],
        ["user three"],
    ]


def test_a_call_that_nobody_answers_holds_nothing_together() -> None:
    assert len(whole_turns(turns_of([user("a"), call("1"), user("b"), user("c")]))) == 3


def test_instructions_stay_when_turns_go() -> None:
    turns = turns_of(LONG)
    assert [written(turn) for turn in without_oldest(turns, 2)] == ["system s", "developer d", "user three"]
    assert without_oldest(turns, 0) == turns


@pytest.mark.parametrize(
    ("items", "num_kept"),
    [
        ([user("a")], 0),
        ([user("a" * 900), said("b"), user("c")], 1),
        ([user("a" * 900), said("b"), user("c"), call("1"), result("1")], 3),
        ([user("a"), said("b"), user("c" * 900)], 0),
        ([user("a" * 900), call("1"), user("c"), result("1")], 0),
    ],
)
def test_the_last_turn_is_kept_when_it_is_short(items: list[dict[str, Any]], num_kept: int) -> None:
    parts = divided(_items.validate_python(items))
    assert len(parts.kept) == num_kept and len(parts.older) + len(parts.kept) == len(items)


@pytest.mark.parametrize(("num_bytes", "num_kept"), [(100_000, 2), (1 << 20, 0)])
def test_a_last_turn_with_large_images_is_summarised(num_bytes: int, num_kept: int) -> None:
    """Sealed it would be more than the next request may bring, or the store takes."""
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * num_bytes}
    last = {"role": "user", "content": [{"type": "input_text", "text": "Look"}, image]}
    parts = divided(_items.validate_python([user("a" * 100), said("b"), last, said("c")]))
    assert len(parts.kept) == num_kept


def test_a_compacted_conversation_goes_on() -> None:
    kept = input_items(_items.validate_python([user("last"), call("1")]), "resp_" + "0" * 32)
    sealed = SEALER.seal("compaction", {"summary": "much", "items": kept})
    turns = turns_of([{"type": "compaction", "encrypted_content": sealed}, result("1")])
    assert [turn.role.value for turn in turns] == ["user", "user", "assistant", "tool"]
    assert turns[0].text.endswith("much") and turns[1].text == "last"


def test_kept_items_are_complete_and_read_again() -> None:
    given = [
        user("a"),
        {"role": "user", "content": [{"type": "input_text", "text": "b"}], "id": "msg_mine"},
        {"role": "user", "content": "c", "id": "msg_mine"},
        {"role": "assistant", "content": "d"},
        thought("t"),
        call("1"),
        result("1"),
        {"type": "web_search_call", "id": "ws"},
    ]
    items = _items.validate_python(given)
    kept = input_items(items, "resp_" + "a" * 32)
    assert [item["id"] for item in kept] == [
        f"msg_{'a' * 32}8000",
        "msg_mine",
        f"msg_{'a' * 32}8002",
        f"msg_{'a' * 32}8003",
        "rs_1",
        f"fc_{'a' * 32}8005",
        f"fco_{'a' * 32}8006",
    ]
    assert all(item["status"] == "completed" for item in kept)
    assert kept[3]["content"] == [{"type": "output_text", "text": "d", "annotations": [], "logprobs": []}]
    conversation = Conversation(SEALER)
    for item in map(stored_item, kept):
        conversation.add(item)
    assert list(map(written, conversation.finish())) == list(map(written, turns_of(given)))
