"""Stored chat completions from their beginning to their end, streamed and not, and of several keys."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.golden.case import MODEL, Case, Json, assistant, both, get, user
from tests.golden.tools import PING, called, named

PATH = "/v1/chat/completions"
ASK: Json = {"model": MODEL, "messages": [user("Hello")], "seed": 1, "max_tokens": 4, "store": True}
ID = r"chatcmpl-[0-9a-f]{32}"
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "name": "anna", "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]},
    assistant(tool_calls=called(("c1", "ping", "{}")), reasoning_content="Hm."),
    {"role": "tool", "tool_call_id": "c1", "content": "pong"},
]
ONE, TWO, THREE = (f"{PATH}/<<{name}>>" for name in ("one", "two", "three"))
QUERIES = (
    "", "limit=2", "order=desc", "order=desc&limit=1", "after=<<one>>", "after=<<one>>&order=desc", "after=<<three>>",
    "model=fake", "model=default", "model=other", "metadata[topic]=tea", "metadata[topic]=tea&metadata[n]=1",
    "metadata[topic]=coffee",
)  # fmt: skip
BAD_QUERIES = (
    "limit=0", "limit=101", "limit=ten", "limit=1&limit=2", "limit=", "order=up", "other=1", "metadata=1",
    "metadata[]=1", "after=nothing", "metadata[a]=1&metadata[a]=2", "limit=%d9%a1", "o%0Ather=1",
    "&".join(f"metadata[{number}]=a" for number in range(17)),
)  # fmt: skip
BAD_UPDATES: list[Any] = [
    {}, [], None, {"metadata": 1}, {"metadata": {"a": 1}}, {"metadata": {}, "more": 1}, {"metadata": {"a": "b" * 513}},
]  # fmt: skip


def cases() -> Iterator[Case]:
    yield get(PATH, "an empty list")
    yield Case("store", PATH, {**ASK, "metadata": {"topic": "tea", "n": "1"}}, keep={"one": ID})
    yield Case("store a stream", PATH, {**ASK, "stream": True, "metadata": {"topic": "tea"}}, keep={"two": ID})
    tools: Json = {"tools": [PING], "tool_choice": named(PING), "n": 2, "logprobs": True, "max_tokens": 60}
    yield Case("store a talk", PATH, {**ASK, **tools, "messages": TALK}, keep={"three": ID})
    yield from _reading()
    yield from _changing()
    yield from _keys()


def _reading() -> Iterator[Case]:
    for name, path in (("the first", ONE), ("the second", TWO), ("the third", THREE)):
        yield get(path, f"get {name}")
        yield get(f"{path}/messages", f"messages of {name}")
    for query in QUERIES:
        yield get(f"{PATH}?{query}", f"list with {query}")
    for query in ("limit=2", "order=desc", "after=<<three>>-1", "after=<<three>>-1&limit=1&order=desc", "after=none"):
        yield get(f"{THREE}/messages?{query}", f"messages with {query}")
    for query in BAD_QUERIES:
        yield get(f"{PATH}?{query}", f"list refuses {query}")
    for query in ("limit=0", "order=up", "model=fake", "metadata[a]=b"):
        yield get(f"{THREE}/messages?{query}", f"messages refuse {query}")
    for path in (f"{PATH}/chatcmpl-none", f"{PATH}/chatcmpl-none/messages"):
        yield get(path)


def _changing() -> Iterator[Case]:
    update = Case("update", ONE, {"metadata": {"topic": "milk"}})
    yield update
    for body in BAD_UPDATES:
        yield replace(update, name=f"update refuses {body}", body=b"null" if body is None else body)
    yield get(ONE, "get what was updated")
    yield replace(update, name="update to nothing", body={"metadata": None})
    yield replace(update, name="update nobody", path=f"{PATH}/chatcmpl-none")
    delete = Case("delete", ONE, method="DELETE")
    yield delete
    yield replace(delete, name="delete again")
    yield get(ONE, "get what was deleted")
    yield get(f"{ONE}/messages", "messages of what was deleted")
    yield replace(update, name="update what was deleted")
    yield get(f"{PATH}?after=<<one>>", "list after what was deleted")


def _keys() -> Iterator[Case]:
    anna, ben = [("authorization", "Bearer key-of-anna")], [("x-api-key", "key-of-ben")]
    own = Case("", PATH, ASK, server="keyed", headers=anna)
    yield replace(own, name="anna stores", keep={"own": ID})
    path = f"{PATH}/<<own>>"
    for who, headers in (("ben", ben), ("anna", anna)):
        other = replace(own, headers=headers, body=None)
        yield replace(other, name=f"{who} lists", method="GET")
        yield replace(other, name=f"{who} reads", method="GET", path=path)
        yield replace(other, name=f"{who} updates", path=path, body={"metadata": {"a": "b"}})
        yield replace(other, name=f"{who} deletes", method="DELETE", path=path)
    yield from both(replace(own, name="a model by alias", body={**ASK, "model": "gpt-9", "store": False}))
