"""Items to turns: what belongs together is one turn, what is sealed is read, what is foreign is refused."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.responses.items import input_items
from proxy_inference_engine.server.apis.shared.sealer import Sealer
from tests.unit.served.turns import written
from tests.unit.server.apis.responses.items import SEALER, call, proved, result, said, thought, turns_of, user


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


def test_a_compacted_conversation_goes_on() -> None:
    kept = input_items(proved([user("last"), call("1")]), "resp_" + "0" * 32)
    sealed = SEALER.seal("compaction", {"summary": "much", "items": kept})
    turns = turns_of([{"type": "compaction", "encrypted_content": sealed}, result("1")])
    assert [turn.role.value for turn in turns] == ["user", "user", "assistant", "tool"]
    assert turns[0].text.endswith("much") and turns[1].text == "last"
