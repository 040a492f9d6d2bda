"""`store: true` on chat completions: what was answered can be read, listed, renamed and deleted by its owner."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import OpenAI

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import HELLO, MODEL, Running, running

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
ASK: dict[str, Any] = {"model": MODEL, "messages": HELLO, "seed": 1, "max_tokens": 10}
PATH = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2]}}}},
}


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as started:
        yield started


@pytest.fixture
def anna(live: Running) -> Iterator[OpenAI]:
    with live.openai(key="key-of-anna") as client:
        yield client
        for stored in client.chat.completions.list(limit=100):
            client.chat.completions.delete(stored.id)


@pytest.fixture
def ben(live: Running) -> Iterator[OpenAI]:
    with live.openai(key="key-of-ben") as client:
        yield client


def wire(client: OpenAI, id_: str) -> dict[str, Any]:
    """As it comes, before the client's types."""
    body: dict[str, Any] = json.loads(client.chat.completions.with_raw_response.retrieve(id_).text)
    return body


def test_an_answer_is_stored_as_it_was_given(anna: OpenAI) -> None:
    answer = anna.chat.completions.create(**ASK, n=2, store=True, metadata={"a": "b"}, logprobs=True)
    assert anna.chat.completions.retrieve(answer.id) == answer
    assert [stored.id for stored in anna.chat.completions.list()] == [answer.id]


def test_only_what_asks_for_it_is_stored(anna: OpenAI) -> None:
    for fields in ({}, {"store": False}, {"store": None}):
        answer = anna.chat.completions.create(**ASK, **fields)
        with pytest.raises(openai.NotFoundError):
            anna.chat.completions.retrieve(answer.id)
    assert anna.chat.completions.list().data == []


def test_no_metadata_is_empty_metadata(anna: OpenAI) -> None:
    answer = anna.chat.completions.create(**ASK, store=True)
    assert answer.metadata is None and anna.chat.completions.retrieve(answer.id).metadata == {}


@pytest.mark.parametrize(
    "fields",
    [{}, {"n": 2}, {"logprobs": True}, {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100}],
)
def test_a_streamed_answer_is_stored_folded(anna: OpenAI, fields: dict[str, Any]) -> None:
    whole = anna.chat.completions.create(**{**ASK, **fields})
    with anna.chat.completions.stream(**{**ASK, **fields}, store=True) as events:
        for _ in events:
            pass
        seen = events.current_completion_snapshot
    stored = anna.chat.completions.retrieve(seen.id)
    for choice, other, streamed in zip(stored.choices, whole.choices, seen.choices, strict=True):
        assert choice.message.content == other.message.content and choice.finish_reason == other.finish_reason
        assert choice.logprobs == other.logprobs
        ids = [call.id for call in choice.message.tool_calls or []]
        assert ids == [call.id for call in streamed.message.tool_calls or []]
        assert bool(ids) == ("tools" in fields)
    assert stored.usage and whole.usage and stored.usage.completion_tokens == whole.usage.completion_tokens


def test_the_best_of_many_are_stored(anna: OpenAI) -> None:
    answer = anna.chat.completions.create(**ASK, store=True, extra_body={"best_of": 4})
    assert anna.chat.completions.retrieve(answer.id).choices == answer.choices


def test_metadata_can_be_changed_and_nothing_else(anna: OpenAI, live: Running) -> None:
    answer = anna.chat.completions.create(**ASK, store=True, metadata={"a": "b"})
    before = wire(anna, answer.id)
    assert anna.chat.completions.update(answer.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert wire(anna, answer.id) == {**before, "metadata": {"c": "d"}}
    assert anna.chat.completions.update(answer.id, metadata=None).metadata == {}
    with live.http(headers={"authorization": "Bearer key-of-anna"}) as http:
        for body, param in (
            ({}, "metadata"),
            ({"metadata": {"a": 1}}, "metadata.a"),
            ({"metadata": {}, "model": "x"}, "model"),
            ([], None),
        ):
            response = http.post(f"{PATH}/{answer.id}", json=body)
            assert response.status_code == 400 and response.json()["error"]["param"] == param


def test_deleting_is_final(anna: OpenAI) -> None:
    answer = anna.chat.completions.create(**ASK, store=True)
    deleted = anna.chat.completions.delete(answer.id)
    assert deleted.deleted and deleted.id == answer.id
    for call in (
        lambda: anna.chat.completions.retrieve(answer.id),
        lambda: anna.chat.completions.delete(answer.id),
        lambda: anna.chat.completions.update(answer.id, metadata={}),
        lambda: anna.chat.completions.messages.list(answer.id),
    ):
        with pytest.raises(openai.NotFoundError):
            call()


def test_lists_have_pages_and_filters(anna: OpenAI) -> None:
    made = [
        anna.chat.completions.create(**ASK, store=True, metadata={"number": str(number), "all": "yes"}).id
        for number in range(5)
    ]
    listing = anna.chat.completions.list
    assert [stored.id for stored in listing(limit=2)] == made  # the client follows the pages
    first = listing(limit=2)
    assert [stored.id for stored in first.data] == made[:2] and first.has_more
    last = listing(limit=2, after=made[2])
    assert [stored.id for stored in last.data] == made[3:] and not last.has_more
    assert [stored.id for stored in listing(order="desc", limit=3).data] == made[:1:-1]
    assert [stored.id for stored in listing(metadata={"number": "3", "all": "yes"}).data] == [made[3]]
    assert listing(metadata={"number": "9"}).data == []
    assert len(listing(model=MODEL).data) == len(listing(model="default").data) == 5
    assert listing(model="other").data == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=", "limit"), ("limit=٣", "limit"),
        ("order=up", "order"), ("before=x", "before"), ("limit=1&limit=2", "limit"), ("metadata=x", "metadata"),
        ("&".join(f"metadata[{number}]=x" for number in range(17)), "metadata"),
    ],
)  # fmt: skip
def test_wrong_queries_are_named(live: Running, query: str, param: str) -> None:
    with live.http(headers={"authorization": "Bearer key-of-anna"}) as http:
        response = http.get(f"{PATH}?{query}")
        assert response.status_code == 400 and response.json()["error"]["param"] == param


def test_the_messages_are_what_was_answered(live: Running, anna: OpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]  # fmt: skip
    answer = anna.chat.completions.create(**{**ASK, "messages": messages}, store=True)
    # The client's type allows the assistant's role only.
    with live.openai(is_strict=False, key="key-of-anna") as client:
        stored = list(client.chat.completions.messages.list(answer.id, limit=3))
        assert [message.id for message in stored] == [f"{answer.id}-{index}" for index in range(4)]
        assert [message.role for message in stored] == ["system", "user", "assistant", "tool"]
        assert [message.content for message in stored] == ["Be brief.", None, None, "3"]
        assert stored[1].content_parts is not None and len(stored[1].content_parts) == 2
        assert stored[2].tool_calls is not None and stored[2].tool_calls[0].id == "c"
        page = client.chat.completions.messages.list(answer.id, order="desc", after=f"{answer.id}-2")
        assert [message.id for message in page.data] == [f"{answer.id}-1", f"{answer.id}-0"]
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.messages.list(answer.id, after="other")


def test_another_key_sees_nothing(anna: OpenAI, ben: OpenAI) -> None:
    hers = anna.chat.completions.create(**ASK, store=True)
    his = ben.chat.completions.create(**ASK, store=True)
    attempts = (
        lambda id_: ben.chat.completions.retrieve(id_),
        lambda id_: ben.chat.completions.update(id_, metadata={"a": "b"}),
        lambda id_: ben.chat.completions.delete(id_),
        lambda id_: ben.chat.completions.messages.list(id_),
        lambda id_: ben.chat.completions.list(after=id_),
    )
    for attempt in attempts:
        errors = []
        for id_ in (hers.id, "chatcmpl-" + "0" * 32):
            with pytest.raises(openai.NotFoundError) as caught:
                attempt(id_)
            errors.append((caught.value.type, caught.value.code, caught.value.param))
        assert errors[0] == errors[1]
    assert [stored.id for stored in ben.chat.completions.list()] == [his.id]
    assert anna.chat.completions.retrieve(hers.id).metadata == {}
    ben.chat.completions.delete(his.id)


def test_what_cannot_be_stored_is_not_answered_as_if_it_were() -> None:
    """The end of an answer is told when the answer is kept; without room for it, the error is."""
    with running() as full, full.http() as http, closing(Store.open(None, limits=StoreLimits(max_rows=1))) as store:
        state = full.server.config.app.state  # type: ignore[union-attr]  # it is the app itself
        state.server = replace(state.server, store=store)
        kept = http.post(PATH, json={**ASK, "store": True}).json()["id"]
        whole = http.post(PATH, json={**ASK, "store": True})
        assert whole.status_code == 429 and whole.json()["error"]["code"] == "insufficient_quota"
        stream = http.post(PATH, json={**ASK, "store": True, "stream": True}).text
        assert stream.endswith("data: [DONE]\n\n") and "insufficient_quota" in stream
        assert '"finish_reason":"' not in stream
        assert http.post(PATH, json=ASK).status_code == 200
        assert [stored["id"] for stored in http.get(PATH).json()["data"]] == [kept]


def test_an_abandoned_stream_is_not_stored(live: Running) -> None:
    with live.http(headers={"authorization": "Bearer key-of-ben"}) as http:
        body = {**ASK, "store": True, "stream": True, "max_tokens": 8000, "ignore_eos": True}
        with http.stream("POST", PATH, json=body) as response:
            next(response.iter_lines())
        live.wait_idle()
        assert http.get(PATH).json()["data"] == []


def test_an_empty_list(live: Running) -> None:
    with live.http(headers={"authorization": "Bearer key-of-ben"}) as http:
        expected: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
        assert http.get(PATH, params={"metadata[x]": "y"}).json() == expected
