"""Conversations and their items: made, read, changed, deleted, and everything that is refused."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.golden.case import Case, Json, get, short, user
from tests.golden.cases_responses import INPUTS, call, result

PATH = "/v1/conversations"
ID, ITEM = r"conv_[0-9a-f]{32}", r"msg_[0-9a-f]{36}"
ONE = f"{PATH}/<<one>>"
ITEMS = f"{ONE}/items"
NEW = Case("", PATH, {})

BAD_ITEMS: list[Any] = [
    1,
    {},
    {"role": "user"},
    {"role": "tool", "content": "a"},
    {"type": "message", "role": "user", "content": 1},
    {"type": "message", "role": "user", "content": [{"type": "strange"}]},
    {"type": "strange"},
    {"type": 1},
    {**user("a"), "more": 1},
    {"type": "item_reference", "id": "msg_1"},
    {"id": "msg_1"},
    {"type": "reasoning", "summary": [], "encrypted_content": "nonsense"},
    {"type": "compaction", "encrypted_content": "nonsense"},
    {"type": "compaction"},
    {"type": "function_call", "call_id": "c", "name": "f"},
    {"type": "function_call_output", "call_id": "", "output": "a"},
    user([{"type": "input_file", "file_id": "a"}]),
]
BAD_QUERIES = (
    "order=up",
    "limit=0",
    "limit=1000",
    "include=nothing",
    "other=1",
    "model=fake",
    "after=nothing",
    "after=",
)
BAD_BODIES: list[Any] = [
    {"items": "a"}, {"items": [user("a")] * 21}, {"metadata": {"a": 1}}, {"more": 1}, [], {"metadata": []},
]  # fmt: skip
BAD_ADDITIONS: list[Any] = [{}, {"items": []}, {"items": [user("a")] * 21}, {"items": [BAD_ITEMS[9]]}, {"metadata": {}}]
BAD_UPDATES: list[Any] = [{}, {"metadata": []}, {"metadata": {"a": 1}}, {"items": []}, []]


def cases() -> Iterator[Case]:
    yield replace(NEW, name="make an empty one")
    first: Json = {"items": [user("Hi"), {"role": "assistant", "content": "Ho"}], "metadata": {"topic": "tea"}}
    yield replace(NEW, name="make one", body=first, keep={"one": ID})
    for name, items in INPUTS.items():
        yield replace(NEW, name=f"make one with {name}", body={"items": items})
    yield get(ONE, "get")
    yield from _items()
    yield from _refused()
    yield from _changed()


def _items() -> Iterator[Case]:
    add = Case("", ITEMS, {"items": [user("More"), call("c1", id="mine"), result("c1")]})
    yield replace(add, name="add items", keep={"item": ITEM})
    yield replace(
        add, name="add with include", path=f"{ITEMS}?include=web_search_call.results", body={"items": [user("")]}
    )
    hosted: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    yield replace(add, name="add hosted items too", body={"items": [user("Last"), hosted]})
    yield replace(add, name="add hosted items only", body={"items": [hosted]})
    for query in ("", "order=asc", "limit=2", "limit=2&order=asc", "after=<<item>>", "after=<<item>>&order=asc",
                  "include=reasoning.encrypted_content", "include[]=message.output_text.logprobs&limit=1"):  # fmt: skip
        yield get(f"{ITEMS}?{query}", f"list with {query}")
    for query in BAD_QUERIES:
        yield get(f"{ITEMS}?{query}", f"list refuses {query}")
    yield get(f"{ITEMS}/<<item>>", "get an item")
    yield get(f"{ITEMS}/<<item>>?include=web_search_call.results", "get an item with include")
    yield get(f"{ITEMS}/<<item>>?include=nothing", "get an item refuses an include")
    yield get(f"{ITEMS}/<<item>>?limit=1", "get an item refuses a limit")
    yield get(f"{ITEMS}/msg_none", "get no item")
    yield Case("delete an item", f"{ITEMS}/<<item>>", method="DELETE")
    yield Case("delete it again", f"{ITEMS}/<<item>>", method="DELETE")
    yield get(f"{ITEMS}/<<item>>", "get a deleted item")
    yield get(f"{ITEMS}?after=<<item>>&order=asc", "list after a deleted item")


def _refused() -> Iterator[Case]:
    for item in BAD_ITEMS:
        yield replace(NEW, name=f"a new one refuses {short(item)}", body={"items": [user("a"), item]})
    for body in BAD_BODIES:
        yield replace(NEW, name=f"a new one refuses {short(body)}", body=body)
    add = Case("", ITEMS, {"items": []})
    for body in BAD_ADDITIONS:
        yield replace(add, name=f"adding refuses {short(body)}", body=body)
    yield replace(add, name="adding refuses a query", path=f"{ITEMS}?limit=1", body={"items": [user("a")]})
    yield replace(add, name="adding refuses an include", path=f"{ITEMS}?include=x", body={"items": [user("a")]})
    none = f"{PATH}/conv_none"
    yield get(none, "get none")
    yield get(f"{none}/items", "list the items of none")
    yield get(f"{none}/items/msg_none", "get an item of none")
    yield replace(add, name="add to none", path=f"{none}/items", body={"items": [user("a")]})
    yield Case("update none", none, {"metadata": {}})
    yield Case("delete none", none, method="DELETE")
    yield Case("delete an item of none", f"{none}/items/msg_none", method="DELETE")


def _changed() -> Iterator[Case]:
    update = Case("update", ONE, {"metadata": {"topic": "milk"}})
    yield update
    for body in BAD_UPDATES:
        yield replace(update, name=f"update refuses {short(body)}", body=body)
    yield replace(update, name="update to nothing", body={"metadata": None})
    yield get(ONE, "get what was updated")
    yield Case("delete", ONE, method="DELETE")
    yield Case("delete again", ONE, method="DELETE")
    yield get(ONE, "get what was deleted")
    yield get(ITEMS, "list what was deleted")
