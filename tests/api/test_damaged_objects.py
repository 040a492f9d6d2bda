"""What the disk changed behind our back, as clients see it: an error for one object, and a way to be rid of it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from proxy_inference_engine.store import Store
from tests.api.running import HELLO, MODEL, running

CHATS = "/v1/chat/completions"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def http(path: Path) -> Iterator[httpx.Client]:
    with closing(Store.open(path)) as store, running(store=store) as live, live.http() as client:
        yield client


def damage(path: Path, id_: str, column: str, value: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE objects SET {column} = ? WHERE id = ?", (value, id_))


def check_told(answer: httpx.Response) -> None:
    assert answer.status_code == 500 and answer.json()["error"]["code"] == "storage_corrupt"
    assert answer.headers["x-should-retry"] == "false", "it would be damaged the next time too"


def test_a_damaged_chat_is_told_left_out_of_lists_and_deleted(path: Path, http: httpx.Client) -> None:
    """One such row made the whole list a 500."""
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 2, "store": True}
    ids = [http.post(CHATS, json=body).json()["id"] for _ in range(3)]
    damage(path, ids[1], "body", b'{"id": ')
    check_told(http.get(f"{CHATS}/{ids[1]}"))
    check_told(http.post(f"{CHATS}/{ids[1]}", json={"metadata": {}}))
    listed = http.get(CHATS).json()
    assert [each["id"] for each in listed["data"]] == [ids[0], ids[2]] and not listed["has_more"]
    assert http.delete(f"{CHATS}/{ids[1]}").json()["deleted"]
    assert http.get(f"{CHATS}/{ids[1]}").status_code == 404


def test_nothing_builds_on_a_damaged_response(path: Path, http: httpx.Client) -> None:
    body = {"model": MODEL, "input": "x", "max_output_tokens": 16}
    id_ = http.post("/v1/responses", json=body).json()["id"]
    damage(path, id_, "turn", b"[{")
    check_told(http.get(f"/v1/responses/{id_}"))
    check_told(http.post("/v1/responses", json={**body, "previous_response_id": id_}))
    assert http.delete(f"/v1/responses/{id_}").json()["deleted"]
    assert http.post("/v1/responses", json=body).status_code == 200


def test_damaged_events_are_told_and_the_response_is_there(path: Path, http: httpx.Client) -> None:
    body = {"model": MODEL, "input": "x", "max_output_tokens": 16}
    id_ = http.post("/v1/responses", json=body).json()["id"]
    damage(path, id_, "extra", b'{"num_input": 1, "frames": "nothing that was packed"}')
    check_told(http.get(f"/v1/responses/{id_}", params={"stream": "true"}))
    assert http.get(f"/v1/responses/{id_}").json()["id"] == id_
