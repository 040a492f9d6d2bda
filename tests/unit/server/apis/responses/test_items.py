"""Items as they are kept: complete, with an id each, and read again."""

from proxy_inference_engine.server.apis.responses.items import input_items
from proxy_inference_engine.server.apis.responses.turns import ItemTurns, stored_item
from tests.unit.served.turns import written
from tests.unit.server.apis.responses.items import SEALER, call, proved, result, thought, turns_of, user


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
    kept = input_items(proved(given), "resp_" + "a" * 32)
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
    turns = ItemTurns(SEALER)
    for item in map(stored_item, kept):
        turns.add(item)
    assert list(map(written, turns.finish())) == list(map(written, turns_of(given)))
