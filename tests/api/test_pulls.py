"""Models that are not here yet: searched for, judged, pulled with progress, cancelled, and loaded through the pool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from tests import hub as hubs
from tests.api.pools import SIZE, PoolServer, pool_server
from tests.api.running import HELLO, Running
from tests.hub import Hub
from tests.polling import wait_until
from tests.unit.models.test_fit import gguf

NAME = "owner/tiny"
FILE = "tiny-Q8_0.gguf"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hubs.own_cache(tmp_path, monkeypatch)
    with hubs.serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.repositories[NAME] = {"README.md": b"hello", FILE: gguf()}
        yield hub


@pytest.fixture
def server(hub: Hub) -> Iterator[PoolServer]:
    with pool_server(PoolEntry("first", Config()), config=Config(drain_seconds=0.2)) as live:
        yield live


@pytest.fixture(scope="module")
def shared() -> Iterator[PoolServer]:
    """For what is refused: it asks whichever hub the environment names at the time."""
    with pool_server(PoolEntry("first", Config()), config=Config(drain_seconds=0.2)) as live:
        yield live


@pytest.fixture
def refusing(shared: PoolServer, hub: Hub) -> Iterator[httpx.Client]:
    with shared.live.http() as plain:
        yield plain


@pytest.fixture
def http(server: PoolServer) -> Iterator[httpx.Client]:
    with server.live.http() as plain:
        yield plain


def pull(http: httpx.Client, name: str = NAME) -> dict[str, Any]:
    answer = http.post("/admin/pulls", json={"model": name})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ended(http: httpx.Client, id_: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        return next(each for each in http.get("/admin/pulls").json()["data"] if each["id"] == id_)

    wait_until(lambda: look()["state"] not in ("downloading", "cancelling"))
    return look()


def test_a_search_finds_what_the_hub_has(refusing: httpx.Client, hub: Hub) -> None:
    hub.repositories["other/large"] = {}
    data = refusing.get("/admin/hub/search", params={"q": "TINY"}).json()["data"]
    assert data == [
        {"model": NAME, "downloads": 5, "likes": 1, "is_gated": False, "has_gguf": True, "has_safetensors": False}
    ]


def test_the_files_of_a_repository_are_what_can_be_pulled(refusing: httpx.Client, hub: Hub) -> None:
    hub.repositories[NAME] |= {"tiny-Q4_0-00001-of-00002.gguf": b"12", "tiny-Q4_0-00002-of-00002.gguf": b"345"}
    hub.repositories[NAME] |= {"model.safetensors": b"1234", "mmproj-f16.gguf": b"1"}
    assert refusing.get("/admin/hub/files", params={"model": NAME}).json()["data"] == [
        {"model": f"{NAME}:tiny-Q4_0", "kind": "gguf", "bytes": 5},
        {"model": f"{NAME}:tiny-Q8_0", "kind": "gguf", "bytes": len(gguf())},
        {"model": NAME, "kind": "safetensors", "bytes": 4},
    ]


def test_what_fits_is_said_before_a_byte_of_weights_comes(refusing: httpx.Client, hub: Hub) -> None:
    found = refusing.get("/admin/fit", params={"model": NAME}).json()
    assert found["object"] == "fit" and found["weights"] == len(gguf()) == found["download"]
    assert found["room"] == 2 * SIZE and found["fits"] and found["context"] and found["slots"] and found["why"]
    assert all(each.range for each in hub.asked if "/stored/" in each.path)


def test_a_pull_ends_in_the_pool_and_the_model_answers(http: httpx.Client, server: PoolServer) -> None:
    id_ = pull(http)["id"]
    done = ended(http, id_)
    assert done["state"] == "done" and done["is_served"] and done["error"] is None
    assert done["bytes"] == done["total_bytes"] >= len(gguf())
    assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["first", NAME]
    listed = http.get("/admin/models").json()["data"][1]
    assert listed["state"] == "unloaded" and listed["path"].endswith(FILE)
    assert http.post(f"/admin/models/{NAME}/load").status_code == 200
    answer = http.post("/v1/chat/completions", json={"model": NAME, "messages": HELLO, "max_tokens": 2})
    assert answer.status_code == 200 and answer.json()["model"] == NAME
    assert pull(http)["id"] != id_, "what changed on the hub can be fetched again"
    assert http.get("/admin/fit", params={"model": NAME}).json()["download"] == 0


def test_progress_comes_as_events(http: httpx.Client, hub: Hub) -> None:
    hub.stalls = [1000]
    with http.stream("GET", "/admin/pulls/events") as events:
        lines = events.iter_lines()
        assert json.loads(next(lines)[6:]) == {"object": "list", "data": []}
        pull(http)
        seen = []
        for line in lines:
            if line.startswith("data: "):
                seen.append(json.loads(line[6:])["data"][0])
                if seen[-1]["bytes"] >= 1000:
                    hub.release.set()
                if seen[-1]["state"] != "downloading":
                    break
    assert seen[-1]["state"] == "done" and any(0 < each["bytes"] < each["total_bytes"] for each in seen)


def test_a_pull_can_be_cancelled_and_goes_on_later(http: httpx.Client, hub: Hub) -> None:
    hub.stalls = [1 << 20]
    begun = pull(http)
    assert pull(http)["id"] == begun["id"], "the same name is downloaded once"
    wait_until(lambda: http.get("/admin/pulls").json()["data"][0]["bytes"] > 0)
    assert http.post(f"/admin/pulls/{begun['id']}/cancel").json()["state"] == "cancelling"
    hub.release.set()
    assert ended(http, begun["id"])["state"] in ("cancelled", "failed")
    assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["first"]
    assert ended(http, pull(http)["id"])["state"] == "done"
    assert http.post(f"/admin/pulls/{begun['id']}/cancel").status_code == 200, "cancelling again is harmless"


def test_a_failed_pull_says_why_and_serves_nothing(http: httpx.Client, hub: Hub) -> None:
    failed = ended(http, pull(http, "owner/nothing")["id"])
    assert failed["state"] == "failed" and "has no such model" in failed["error"] and not failed["is_served"]
    hub.served[FILE] = b"GGUF" + bytes(len(gguf()) - 4)
    damaged = ended(http, pull(http)["id"])
    assert damaged["state"] == "failed" and "digest" in damaged["error"]


@pytest.mark.parametrize(
    "name",
    ["", "tiny", "../../etc/passwd", "/etc/passwd", "a/b/c", "owner/tiny.gguf", "owner/..", "tests/api", "x" * 300,
     "owner/tiny\n", "owner/<img src=x onerror=alert(1)>", "http://evil.example/x", "owner/tiny@../../x"],
)  # fmt: skip
def test_a_name_never_becomes_a_path(refusing: httpx.Client, hub: Hub, name: str) -> None:
    for answer in (
        refusing.post("/admin/pulls", json={"model": name}),
        refusing.get("/admin/fit", params={"model": name}),
        refusing.get("/admin/hub/files", params={"model": name}),
    ):
        # Of white space around a query nothing is left.
        assert answer.status_code == 400 or (name.strip() != name and answer.request.method == "GET"), answer.text
        assert answer.status_code != 400 or answer.json()["error"]["param"] == "model"
    assert not [each for each in hub.asked if "passwd" in each.path]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/admin/hub/search", "q"),
        ("/admin/hub/search?q=a&x=1", "x"),
        (f"/admin/hub/search?q={'a' * 201}", "q"),
        ("/admin/hub/files", "model"),
        ("/admin/fit", "model"),
        ("/admin/fit?model=a/b&model_=x", "model_"),
    ],
)
def test_queries_are_refused_by_name(refusing: httpx.Client, path: str, param: str) -> None:
    answer = refusing.get(path)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


@pytest.mark.parametrize("body", [{}, {"model": 5}, {"model": NAME, "x": 1}, [], {"model": None}])
def test_bodies_of_pulls_are_refused_by_name(refusing: httpx.Client, body: Any) -> None:
    assert refusing.post("/admin/pulls", json=body).status_code == 400


@pytest.mark.parametrize("listing", [b"", b"{", b"[1]", b'{"a": 1}', b'[{"id": 5}]', b"[" * 100_000, {"x": 1}])
def test_a_hub_that_answers_nonsense_is_named(refusing: httpx.Client, hub: Hub, listing: Any) -> None:
    hub.listing = listing
    for path in ("/admin/hub/search?q=a", f"/admin/hub/files?model={NAME}", f"/admin/fit?model={NAME}"):
        answer = refusing.get(path)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "hub_refused", answer.text


def test_hostile_words_of_the_hub_stay_words(refusing: httpx.Client, hub: Hub) -> None:
    hub.listing = [{"id": "a/b", "downloads": -5, "likes": True, "tags": None}, {"id": "<script>/x"}, {"id": "a/../b"}]
    data = refusing.get("/admin/hub/search?q=a").json()["data"]
    assert [each["model"] for each in data] == ["a/b"] and data[0]["downloads"] == data[0]["likes"] == 0


def test_an_unknown_pull(refusing: httpx.Client) -> None:
    assert refusing.post("/admin/pulls/pull_nothing/cancel").status_code == 404


def test_offline_forbids_it(hub: Hub) -> None:
    config = Config(drain_seconds=0.2, offline=True)
    with pool_server(PoolEntry("first", Config()), config=config) as live, live.live.http() as http:
        for answer in (http.post("/admin/pulls", json={"model": NAME}), http.get("/admin/hub/search?q=a")):
            assert answer.status_code == 400 and "--offline" in answer.json()["error"]["message"]
    assert not hub.asked


def test_models_that_were_loaded_elsewhere_are_not_joined(servers: Any, hub: Hub) -> None:
    """A pool that cannot load says so: the file is there, and nothing is served under its name."""
    live: Running = servers["fake"]
    with live.http() as http:
        done = ended(http, pull(http)["id"])
        assert done["state"] == "done" and not done["is_served"]
        assert NAME not in http.get("/v1/models").text
