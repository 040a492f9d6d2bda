"""Conversations and their items through the official client, and what happens when nothing can be stored."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, NotFoundError, OpenAI

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import HELLO, MODEL, Running, running

ADDRESS = "http://127.0.0.1:8000"
KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def test_the_life_of_a_conversation(client: OpenAI) -> None:
    made = client.conversations.create(metadata={"topic": "tea"})
    assert made.id.startswith("conv_") and len(made.id) >= 32
    assert made.metadata == {"topic": "tea"}
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"topic": "coffee"})
    assert changed.metadata == {"topic": "coffee"} and changed.created_at == made.created_at
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    gone = client.conversations.delete(made.id)
    assert gone.deleted and gone.id == made.id
    for call in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
        with pytest.raises(NotFoundError):
            call(made.id)


ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": [{"type": "input_text", "text": "What is the weather?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "shell", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "a b"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sun.", "annotations": []}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]
PREFIXES = ["msg_", "msg_", "rs_", "fc_", "fco_", "ctc_", "ctco_", "msg_", "msg_"]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_every_kind_of_item_comes_back(client: OpenAI, is_at_once: bool) -> None:
    conversation = client.conversations.create(items=ITEMS if is_at_once else [])  # type: ignore[arg-type]  # plain dicts
    if not is_at_once:
        added = client.conversations.items.create(conversation.id, items=ITEMS)  # type: ignore[arg-type]  # the same
        assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id) and not added.has_more
    found = list(client.conversations.items.list(conversation.id, order="asc", limit=4))
    assert [item.type for item in found] == [item.get("type", "message") for item in ITEMS]
    ids = [str(item.id) for item in found]
    assert all(id_.startswith(prefix) for id_, prefix in zip(ids, PREFIXES, strict=True)) and len(set(ids)) == len(ids)
    assert "rs_1" not in ids, "ids are ours"
    for item in found:
        assert client.conversations.items.retrieve(str(item.id), conversation_id=conversation.id) == item


def test_items_are_paged_newest_first(client: OpenAI) -> None:
    names = [str(number) for number in range(7)]
    conversation = client.conversations.create(items=[said("user", name) for name in names])  # type: ignore[misc]  # plain dicts
    assert texts(client.conversations.items.list(conversation.id)) == names[::-1]
    assert texts(client.conversations.items.list(conversation.id, order="asc", limit=2)) == names
    page = client.conversations.items.list(conversation.id, limit=3)
    assert texts(page.data) == names[:3:-1] and page.has_more
    for item in page.data:
        kept = client.conversations.items.delete(str(item.id), conversation_id=conversation.id)
        assert kept.id == conversation.id
    assert texts(page.get_next_page().data) == names[3:0:-1], "a page goes on after what was deleted"
    assert texts(client.conversations.items.list(conversation.id, order="asc")) == names[:4]
    with pytest.raises(NotFoundError):
        client.conversations.items.delete(str(page.data[0].id), conversation_id=conversation.id)


def test_an_empty_conversation_has_an_empty_list(client: OpenAI) -> None:
    conversation = client.conversations.create()
    page = client.conversations.items.list(conversation.id, include=["message.output_text.logprobs"])
    assert page.data == [] and not page.has_more


def test_items_of_hosted_tools_are_skipped_by_name(http: httpx.Client) -> None:
    hosted = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    id_ = http.post("/v1/conversations", json={}).json()["id"]
    response = http.post(f"/v1/conversations/{id_}/items", json={"items": [hosted, said("user", "Hi")]})
    assert response.headers["x-pie-ignored"] == "items[0]:web_search_call"
    assert [item["type"] for item in response.json()["data"]] == ["message"]
    response = http.post(f"/v1/conversations/{id_}/items", json={"items": [hosted]})
    assert response.status_code == 400 and response.json()["error"]["param"] == "items"


SEALED = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA-foreign"}
WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    ("/v1/conversations", {"colour": "red"}, "colour"),
    ("/v1/conversations", {"items": [said("user", "x")] * 21}, "items"),
    ("/v1/conversations", {"items": [{"type": "message", "role": "user"}]}, "items[0].content"),
    ("/v1/conversations", {"items": [said("user", "x"), said("nobody", "x")]}, "items[1].role"),
    ("/v1/conversations", {"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]"),
    ("/v1/conversations", {"items": [SEALED]}, "items[0].encrypted_content"),
    ("/v1/conversations", {"items": [{"type": "what"}]}, "items[0]"),
    ("/v1/conversations", {"metadata": {"a": 1}}, "metadata.a"),
    ("/v1/conversations", {"metadata": {"k" * 65: "v"}}, None),
    ("/v1/conversations", {"metadata": {"k": "v" * 513}}, "metadata.k"),
    ("/v1/conversations", {"metadata": {str(number): "v" for number in range(17)}}, "metadata"),
    ("/v1/conversations/{id}", {}, "metadata"),
    ("/v1/conversations/{id}", {"metadata": {}, "items": []}, "items"),
    ("/v1/conversations/{id}/items", {}, "items"),
    ("/v1/conversations/{id}/items", {"items": []}, "items"),
    ("/v1/conversations/{id}/items?colour=red", {"items": [said("user", "x")]}, "colour"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_what_is_wrong_is_named(http: httpx.Client, path: str, body: dict[str, Any], param: str | None) -> None:
    id_ = http.post("/v1/conversations", json={}).json()["id"]
    response = http.post(path.replace("{id}", id_), json=body)
    assert response.status_code == 400, response.text
    if param is not None:
        assert response.json()["error"]["param"] == param
    assert http.get(f"/v1/conversations/{id_}/items").json()["data"] == []


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("limit=0", 400, "limit"),
        ("limit=101", 400, "limit"),
        ("limit=ten", 400, "limit"),
        ("order=up", 400, "order"),
        ("include=colours", 400, "include"),
        ("include[]=colours", 400, "include"),
        ("colour=red", 400, "colour"),
        ("after=msg_nothing", 404, "after"),
        ("after=", 404, "after"),
        ("after=%00%ff", 404, "after"),
        ("include[]=reasoning.encrypted_content&limit=100&order=asc", 200, None),
    ],
)
def test_a_query_is_checked(http: httpx.Client, query: str, status: int, param: str | None) -> None:
    id_ = http.post("/v1/conversations", json={"items": [said("user", "x")]}).json()["id"]
    response = http.get(f"/v1/conversations/{id_}/items?{query}")
    assert response.status_code == status
    assert response.json().get("error", {}).get("param") == param


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        yield live


def test_another_keys_conversations_do_not_exist(guarded: Running) -> None:
    with (
        guarded.http(headers={"x-api-key": "key-of-anna"}) as anna,
        guarded.http(headers={"x-api-key": "key-of-ben"}) as ben,
    ):
        id_ = anna.post("/v1/conversations", json={"items": [said("user", "secret")]}).json()["id"]
        other = ben.post("/v1/conversations", json={}).json()["id"]
        item = anna.get(f"/v1/conversations/{id_}/items").json()["data"][0]["id"]
        new = {"items": [said("user", "x")]}
        for method, path, body in (
            ("GET", "/v1/conversations/ID", None),
            ("POST", "/v1/conversations/ID", {"metadata": {}}),
            ("DELETE", "/v1/conversations/ID", None),
            ("GET", "/v1/conversations/ID/items", None),
            ("POST", "/v1/conversations/ID/items", new),
            ("GET", "/v1/conversations/ID/items/ITEM", None),
            ("DELETE", "/v1/conversations/ID/items/ITEM", None),
        ):
            foreign = ben.request(method, path.replace("ID", id_).replace("ITEM", item), json=body)
            unknown = ben.request(method, path.replace("ID", "conv_x").replace("ITEM", "msg_x"), json=body)
            assert foreign.status_code == unknown.status_code == 404, (method, path)
            assert foreign.json() == unknown.json()
        assert ben.get(f"/v1/conversations/{other}/items?after={item}").status_code == 404
        assert ben.get(f"/v1/conversations/{other}/items/{item}").status_code == 404
        assert anna.get(f"/v1/conversations/{id_}/items").json()["data"][0]["id"] == item


def test_a_response_continues_a_conversation(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[said("user", "My name is Anna.")])  # type: ignore[list-item]
    answer = client.responses.create(
        model=MODEL, conversation=conversation.id, input="What is my name?", max_output_tokens=16
    )
    assert answer.conversation is not None and answer.conversation.id == conversation.id
    found = list(client.conversations.items.list(conversation.id, order="asc"))
    assert texts(found[:2]) == ["My name is Anna.", "What is my name?"]
    assert [item.id for item in found[2:]] == [item.id for item in answer.output]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Running]:
    """A server whose disk has room for a few small objects."""
    with (
        closing(Store.open(tmp_path / "store.db", limits=StoreLimits(max_pages=40))) as store,
        running(store=store) as live,
    ):
        yield live


def test_a_full_disk_does_not_stop_answers(full: Running) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 3}
    big = {"items": [said("user", "x" * 200_000)]}
    with full.http() as http:
        kept = http.post("/v1/conversations", json={"items": [said("user", "small")]}).json()["id"]
        for _ in range(3):
            response = http.post("/v1/conversations", json=big)
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["type"]) == (503, "storage_full", "server_error")
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert http.get("/health").status_code == 200
        assert len(http.get(f"/v1/conversations/{kept}/items").json()["data"]) == 1
        assert http.delete(f"/v1/conversations/{kept}").status_code == 200
        assert http.post("/v1/conversations", json={}).status_code == 200


def test_an_answer_that_cannot_be_stored_is_an_error_not_a_lie(full: Running) -> None:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": "x" * 3_900}]}
    with full.http() as http:
        for size in (4_000, 1_500, 300):  # until nothing fits any more
            while http.post("/v1/conversations", json={"items": [said("user", "x" * size)]}).status_code == 200:
                pass
        response = http.post("/v1/chat/completions", json={**body, "store": True})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "storage_full")
        text = http.post("/v1/chat/completions", json={**body, "store": True, "stream": True}).text
        assert "storage_full" in text and text.endswith("data: [DONE]\n\n")
        assert http.post("/v1/chat/completions", json={**body, "store": False}).status_code == 200


def test_a_quota_is_said_and_deleting_helps() -> None:
    limits = StoreLimits(max_rows=3)
    with closing(Store.open(None, limits=limits)) as store, running(store=store) as live, live.openai() as client:
        ids = [client.conversations.create().id for _ in range(3)]
        with pytest.raises(APIStatusError) as caught:
            client.conversations.create()
        assert (caught.value.status_code, caught.value.code) == (429, "insufficient_quota")
        client.conversations.delete(ids[0])
        client.conversations.create()


def test_what_is_too_large_is_refused(http: httpx.Client) -> None:
    big = {"items": [said("user", "x" * (2 << 20))]}
    assert http.post("/v1/conversations", json=big).status_code == 413


def test_200_clients_write_at_once(tmp_path: Path) -> None:
    failures: list[object] = []

    def use(http: httpx.Client, number: int) -> None:
        try:
            id_ = http.post("/v1/conversations", json={"items": [said("user", f"{number}")]}).json()["id"]
            items = http.get(f"/v1/conversations/{id_}/items").json()["data"]
            assert items[0]["content"][0]["text"] == f"{number}"
        except Exception as error:
            failures.append(error)

    limits = httpx.Limits(max_connections=200)
    with (
        closing(Store.open(tmp_path / "store.db")) as store,
        running(store=store) as live,
        live.http(limits=limits) as http,
    ):
        threads = [threading.Thread(target=use, args=(http, number)) for number in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures


def test_conversations_outlive_the_server(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        conversation = client.conversations.create(metadata={"a": "b"}, items=[said("user", "Hi")])  # type: ignore[list-item]
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        assert client.conversations.retrieve(conversation.id) == conversation
        assert texts(client.conversations.items.list(conversation.id)) == ["Hi"]


def documented(language: str) -> str:
    page = (Path(__file__).parents[2] / "docs" / "conversations.md").read_text()
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return str(block)


def test_the_python_example_runs(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(documented("python").replace(ADDRESS, server.url), "docs/conversations.md", "exec"), names)
    names["client"].close()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("message msg_") for line in lines) >= 3
    assert lines[-1] == "{'topic': 'names'}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_runs(server: Running) -> None:
    command = ["sh", "-c", documented("sh").replace(ADDRESS, server.url)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["object"] == "conversation"
