"""What the dashboard draws: figures as JSON, and the tree of prefixes, which shows nobody another's words."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.stats import METRICS
from proxy_inference_engine.pool.entry import PoolEntry
from tests.api.pools import pool_server
from tests.api.running import MODEL, Running, running

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("root", "key-of-root", is_admin=True))
ANNA, ROOT = {"x-api-key": "key-of-anna"}, {"x-api-key": "key-of-root"}
SECRET = "canary in a coal mine "


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with running(config=Config(api_keys=KEYS, drain_seconds=0.2)) as live:
        yield live


def ask(http: httpx.Client, prompt: str, headers: dict[str, str] | None = None) -> None:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0}
    assert http.post("/v1/completions", json=body, headers=headers).status_code == 200


def test_stats_are_the_table_of_metrics(http: httpx.Client) -> None:
    ask(http, "a prompt")
    found = http.get("/admin/stats").json()
    assert found["object"] == "stats" and found["time"] > 0
    assert set(found["models"][MODEL]) == {metric.field for metric in METRICS}
    assert found["models"][MODEL]["total_generated_tokens"] > 0 and found["models"][MODEL]["max_kv_tokens"] > 0
    first = found["latencies"]["first_token"]
    assert first["num_observed"] > 0 and first["sum_s"] >= 0
    counts = [count for _, count in first["buckets"]]
    assert counts == sorted(counts) and counts[-1] <= first["num_observed"]
    ask(http, "another prompt")
    assert http.get("/admin/stats").json()["models"][MODEL]["total_steps"] > found["models"][MODEL]["total_steps"]


def test_the_tree_shows_what_is_shared() -> None:
    with running() as live, live.http() as http:
        for end in ("red", "green", "red again"):
            ask(http, "one long beginning of a text that ends " + end)
        live.wait_idle()
        found = http.get("/admin/cache", params={"texts": "true"}).json()
    assert found["object"] == "cache" and found["tokens"] > 0 and 0 < found["bytes"] <= found["max_bytes"]
    nodes = found["nodes"]
    assert len(nodes) == found["num_nodes"]
    root = next(node for node in nodes if node["parent"] is None)
    assert root["text"].startswith("one long beginning") and root["hits"] == 2 and root["texts"] >= 2
    for node in nodes:
        if node["parent"] is not None:
            parent = nodes[node["parent"]]
            assert node["start"] == parent["start"] + parent["tokens"] and parent["texts"] >= node["texts"]


def test_the_tree_is_bounded() -> None:
    with running() as live, live.http() as http:
        for number in range(6):
            ask(http, f"{number} is how this text begins")
        live.wait_idle()
        found = http.get("/admin/cache?nodes=2").json()
        assert len(found["nodes"]) == 2 < found["num_nodes"]


def test_nobody_reads_what_another_key_wrote(keyed: Running) -> None:
    with keyed.http() as http:
        ask(http, SECRET + "of anna", ANNA)
        ask(http, "of root", ROOT)
        keyed.wait_idle()
        plain = http.get("/admin/cache", headers=ROOT)
        asked = http.get("/admin/cache?texts=true", headers=ROOT)
    assert all(node["text"] is None for node in plain.json()["nodes"])
    assert "canary" not in plain.text + asked.text
    texts = {node["key"]: node["text"] for node in asked.json()["nodes"]}
    assert texts["anna"] is None and texts["root"].startswith("of root")


@pytest.mark.parametrize(
    ("query", "param"),
    [("nodes=0", "nodes"), ("nodes=1001", "nodes"), ("nodes=99999999999999999999", "nodes"), ("nodes=-1", "nodes"),
     ("nodes=x", "nodes"), ("texts=1", "texts"), ("more=1", "more"), ("nodes=%D9%A1", "nodes")],
)  # fmt: skip
def test_queries_are_refused_by_name(http: httpx.Client, query: str, param: str) -> None:
    answer = http.get(f"/admin/cache?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_models_that_are_not_there_or_not_loaded(http: httpx.Client) -> None:
    assert http.get("/admin/cache?model=nothing").status_code == 404
    with pool_server(PoolEntry("a", Config()), PoolEntry("b", Config())) as server, server.live.http() as pooled:
        answer = pooled.get("/admin/cache?model=b")
        assert answer.status_code == 404 and "not loaded" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/admin/stats", "/admin/cache", "/admin/pulls", "/admin/fit?model=a/b"])
def test_only_an_admin_looks(keyed: Running, path: str) -> None:
    with keyed.http() as http:
        statuses: list[Any] = [http.get(path, headers=headers).status_code for headers in ({}, ANNA)]
    assert statuses == [401, 403]
