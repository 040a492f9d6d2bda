"""Several models behind one server: loaded when a request names one, watched while they load, moved by an admin."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.types import Message
from websockets.sync.client import connect

from proxy_inference_engine.config import Config
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.server.app import create_app
from proxy_inference_engine.server.http.sse import Patience
from tests.api.pools import SIZE, FakeLoader, PoolServer, pool_server
from tests.api.test_leaving import send_request
from tests.polling import wait_until

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
A, B, C = (PoolEntry(name, Config()) for name in ("a", "b", "c"))
HASTY = Patience(first_ping_s=0.05, next_ping_s=0.05)


@pytest.fixture
def three() -> Iterator[PoolServer]:
    with pool_server(A, B, C) as server:
        yield server


def said(http: httpx.Client, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": HELLO, "max_tokens": 5, "ignore_eos": True, **fields}
    return http.post("/v1/chat/completions", json=body)


def states(http: httpx.Client) -> dict[str, str]:
    return {model["id"]: model["state"] for model in http.get("/admin/models").json()["data"]}


def test_a_request_brings_its_model_and_the_oldest_makes_room(three: PoolServer) -> None:
    with three.live.http() as http:
        assert states(http) == {"a": "unloaded", "b": "unloaded", "c": "unloaded"}
        for name in ("a", "b", "a", "c"):
            assert said(http, name).json()["model"] == name
        assert three.loader.log == ["a loaded", "b loaded", "b unloaded", "c loaded"]
        assert states(http) == {"a": "ready", "b": "unloaded", "c": "ready"}
        assert http.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hello", "max_tokens": 5}),
        ("/v1/responses", {"input": "Hello", "max_output_tokens": 5}),
        ("/v1/responses", {"input": "Hello", "max_output_tokens": 5, "background": True}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 5}),
        ("/v1/messages/count_tokens", {"messages": HELLO}),
        ("/v1/embeddings", {"input": "Hello"}),
        ("/tokenize", {"prompt": "Hello"}),
        ("/apply-template", {"messages": HELLO}),
    ],
)
def test_every_api_brings_it_and_lets_it_go(three: PoolServer, path: str, body: dict[str, Any]) -> None:
    with three.live.http() as http:
        answer = http.post(path, json={"model": "b", **body})
        assert answer.status_code == 200, answer.text
        wait_until(lambda: not three.pool.find("b").num_users)  # in the background it goes on
        for name in ("a", "c"):  # both only fit when nothing holds the first any more
            assert said(http, name).status_code == 200
        assert states(http) == {"a": "ready", "b": "unloaded", "c": "ready"}


def test_many_who_ask_at_once_wait_for_one_load(three: PoolServer) -> None:
    gate = three.loader.gates["a"] = threading.Event()
    with three.live.http() as http, ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(said, http, "a") for _ in range(8)]
        while three.pool.find("a").num_waiting < 8:
            assert http.get("/health").status_code == 200
        assert http.get("/v1/models/a").json()["state"] == "loading"
        gate.set()
        assert all(each.result().status_code == 200 for each in waiting)
    assert three.loader.log == ["a loaded"]


def test_a_stream_is_told_how_far_its_model_is() -> None:
    with pool_server(A, patience=HASTY) as server, server.live.http() as http:
        gate = server.loader.gates["a"] = threading.Event()
        body = {"model": "a", "messages": HELLO, "max_tokens": 5, "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
            lines = response.iter_lines()
            assert "a is being loaded 25%" in next(line for line in lines if "being loaded" in line)
            gate.set()
            rest = [line for line in lines if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]" and json.loads(rest[0][6:])["model"] == "a"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_load_that_fails_while_its_stream_waits_ends_it_with_the_reason(path: str) -> None:
    with pool_server(A, patience=HASTY) as server, server.live.http() as http:
        gate = server.loader.gates["a"] = threading.Event()
        server.loader.broken.add("a")
        asked = {"input": "Hello"} if path == "/v1/responses" else {"messages": HELLO, "max_tokens": 5}
        with http.stream("POST", path, json={"model": "a", "stream": True, **asked}) as response:
            lines = response.iter_lines()
            next(lines)
            gate.set()
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert len(events) == 1 and "it is broken" in events[0]["error"]["message"]
        refused = http.post(path, json={"model": "a", **asked})
        assert refused.status_code == 503 and "it is broken" in refused.text
        assert "retry-after" not in refused.headers, "nobody knows when it will be mended"


def test_a_turn_on_a_socket_waits_for_its_model() -> None:
    with pool_server(A, patience=HASTY) as server, server.live.http() as http:
        gate = server.loader.gates["a"] = threading.Event()
        with connect(server.live.url.replace("http", "ws") + "/v1/responses") as socket:
            socket.send(json.dumps({"type": "response.create", "model": "a", "input": "Hello", "stream": True}))
            while server.pool.find("a").num_waiting == 0 or server.pool.find("a").state != "loading":
                assert http.get("/health").status_code == 200
            with pytest.raises(TimeoutError):
                socket.recv(timeout=5 * HASTY.first_ping_s)  # longer than a stream would be silent
            gate.set()
            assert json.loads(socket.recv(timeout=60))["type"] == "response.created"


def test_a_client_that_leaves_while_it_waits_holds_nothing(three: PoolServer) -> None:
    gate = three.loader.gates["a"] = threading.Event()
    with three.live.http() as http:
        with send_request(three.live, "/v1/chat/completions", {"model": "a", "messages": HELLO}):
            wait_until(lambda: three.pool.find("a").num_waiting == 1)
        wait_until(lambda: three.pool.find("a").num_waiting == 0)
        gate.set()
        assert said(http, "a").status_code == 200 and three.loader.log == ["a loaded"]


async def test_who_goes_in_the_moment_when_the_model_is_there_holds_nothing() -> None:
    """It is held already, and whoever wanted it has not got it yet."""
    pool, body = ModelPool([A], FakeLoader(), max_bytes=SIZE), json.dumps({"model": "a", "messages": HELLO}).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers, "query_string": b""}
    sent = iter([{"type": "http.request", "body": body}])

    async def receive() -> Message:
        return next(sent, None) or await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        raise AssertionError(message)

    request = asyncio.ensure_future(create_app(pool, Config())(scope, receive, send))
    while not pool.find("a").num_users:
        await asyncio.sleep(0)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert request.cancelled() and pool.find("a").num_users == 0
    for model in pool.loaded():
        model.close()


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pool_server(A, room=1, loader=FakeLoader()) as server, server.live.http() as http:
        server.pool._loads.max_bytes = SIZE // 2
        refused = said(http, "a")
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "model_does_not_fit"
        assert "needs 100 MiB" in refused.text and "50 MiB" in refused.text


def test_the_list_tells_state_memory_context_and_last_use(three: PoolServer) -> None:
    with three.live.openai() as client, three.live.http() as http:
        assert [model.id for model in client.models.list()] == ["a", "b", "c"]
        said(http, "b")
        model = http.get("/v1/models/b").json()
        assert (model["state"], model["memory_bytes"], model["context_length"]) == ("ready", SIZE, 8192)
        assert model["last_used_at"] >= model["created"] and http.get("/v1/models/a").json()["last_used_at"] is None


# By hand


def post(http: httpx.Client, model: str, verb: str) -> httpx.Response:
    return http.post(f"/admin/models/{model}/{verb}")


def test_an_admin_loads_pins_and_unloads(three: PoolServer) -> None:
    with three.live.http() as http:
        assert post(http, "a", "load").json()["state"] in ("waiting", "loading")
        while states(http)["a"] != "ready":
            pass
        assert post(http, "a", "pin").json()["is_pinned"]
        for name in ("b", "c", "b"):
            assert said(http, name).status_code == 200
        assert states(http)["a"] == "ready"
        assert not post(http, "a", "unpin").json()["is_pinned"]
        assert post(http, "a", "unload").json()["state"] == "unloaded"
        status = http.get("/admin/models").json()
        assert (status["memory_bytes"], status["max_memory_bytes"]) == (SIZE, 2 * SIZE)
        assert [model["needs_bytes"] for model in status["data"]] == [SIZE] * 3
        assert [model["parts"] is None for model in status["data"]] == [states(http)[name] != "ready" for name in "abc"]
        assert post(http, "nobody", "load").status_code == 404


def test_what_answers_is_not_unloaded(three: PoolServer) -> None:
    three.loader.step_seconds = 0.02  # a minute for all of it
    with three.live.http() as http, three.live.http() as other:
        body = {"model": "a", "messages": HELLO, "max_tokens": 3000, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()  # which is kept: without it httpx closes the connection
            next(lines)
            refused = post(other, "a", "unload")
            assert refused.status_code == 409 and refused.json()["error"]["code"] == "model_in_use"
            assert "is answering a request: cancel" in refused.text
        while states(other)["a"] == "ready":
            post(other, "a", "unload")
        assert three.loader.log == ["a loaded", "a unloaded"]


def test_what_is_waited_for_is_not_unloaded(three: PoolServer) -> None:
    with three.live.http() as http:
        said(http, "a")
        three.pool.find("a").num_waiting = 2  # as when it was just loaded and they have not got it yet
        refused = post(http, "a", "unload")
        assert refused.status_code == 409 and "has 2 requests waiting" in refused.text
        three.pool.find("a").num_waiting = 0
        assert post(http, "a", "unload").json()["state"] == "unloaded"


def test_a_background_response_keeps_its_model(three: PoolServer) -> None:
    three.loader.step_seconds = 0.02
    with three.live.openai() as client, three.live.http() as http:
        asked = client.responses.create(
            model="a", input="Hello", max_output_tokens=3000, background=True, extra_body={"ignore_eos": True}
        )
        assert post(http, "a", "unload").status_code == 409
        client.responses.cancel(asked.id)
        while states(http)["a"] == "ready":
            post(http, "a", "unload")


def test_changes_come_as_events(three: PoolServer) -> None:
    with (
        three.live.http() as http,
        three.live.http() as other,
        http.stream("GET", "/admin/models/events") as response,
    ):
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        first = json.loads(next(lines)[6:])
        assert [model["state"] for model in first["data"]] == ["unloaded"] * 3
        said(other, "c")
        for line in lines:
            if json.loads(line[6:])["data"][2]["state"] == "ready":
                break


def test_metrics_of_a_model_that_has_gone_stay(three: PoolServer) -> None:
    with three.live.http() as http:
        said(http, "a")
        said(http, "b")
        said(http, "c")
        assert states(http)["a"] == "unloaded"
        text = http.get("/metrics").text
        assert 'pie_generated_tokens_total{model="a"} 5.0' in text and 'pie_slots{model="a"} 0.0' in text


# Settings of a model


def test_settings_of_a_model_hold_whatever_a_request_says() -> None:
    forced = PoolEntry("forced", Config.model_validate({"force_sampling": {"temperature": 0}, "stop": ["zz"]}))
    mild = PoolEntry("mild", Config.model_validate({"sampling": {"temperature": 0}}))
    with pool_server(forced, mild) as server, server.live.http() as http:

        def text(model: str, **fields: Any) -> str:
            content: str = said(http, model, max_tokens=30, **fields).json()["choices"][0]["message"]["content"]
            return content

        greedy = text("forced")
        assert all(text("forced", temperature=2, seed=seed) == greedy for seed in range(3))
        assert text("mild") == greedy
        assert any(text("mild", temperature=2, seed=seed) != greedy for seed in range(3))


def test_the_sdk_sees_one_service(three: PoolServer) -> None:
    with three.live.openai() as client:
        assert isinstance(client, OpenAI)
        for name in ("a", "b", "c", "a"):
            chunks = client.chat.completions.create(model=name, messages=HELLO, max_tokens=5, stream=True)
            assert {chunk.model for chunk in chunks} == {name}


# Adapters


def test_an_adapter_is_a_model_of_its_own() -> None:
    entry = PoolEntry("base", Config(adapters={"poet": Path("poet.gguf"), "lawyer": Path("lawyer.gguf")}))
    names = ["base", "base:poet", "base:lawyer"]
    with pool_server(entry) as server, server.live.http() as http, server.live.openai() as client:
        assert [model.id for model in client.models.list()] == names
        assert http.get("/v1/models/base:poet").json()["parent"] == "base"
        answers = [said(http, name, max_tokens=30, temperature=0).json() for name in names]
        assert [answer["model"] for answer in answers] == names
        assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 3
        assert server.loader.log == ["base loaded"], "one set of weights"
        again = [said(http, name, max_tokens=30, temperature=0).json() for name in names]
        assert [each["choices"] for each in again] == [each["choices"] for each in answers]
        assert all(each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in again)
        assert said(http, "base:nobody").status_code == 404


def test_the_log_says_which_model_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    """By the operator's name for it, whatever the client called it."""
    caplog.set_level("INFO")
    entry = PoolEntry("base", Config(adapters={"poet": Path("poet.gguf")}))
    with pool_server(entry, B, aliases={"gpt-*": "base"}) as server, server.live.http() as http:
        for name in ("gpt-4o", "base:poet", "b", "nobody"):
            said(http, name)
        lines = [record.fields for record in caplog.records if hasattr(record, "fields") and "route" in record.fields]
    assert [line["model"] for line in lines] == ["base", "base:poet", "b", None]


def test_an_adapter_has_aliases_and_stored_answers_of_its_own() -> None:
    entry = PoolEntry("base", Config(adapters={"poet": Path("poet.gguf")}))
    aliases = {"gpt-4o": "base:poet", "claude-*": "base:poet"}
    with pool_server(entry, aliases=aliases) as server, server.live.http() as http, server.live.openai() as client:
        for name in ("gpt-4o", "claude-9"):
            assert said(http, name).json()["model"] == "base:poet"
        kept = said(http, "gpt-4o", store=True).json()["id"]
        assert [chat.id for chat in client.chat.completions.list(model="base:poet")] == [kept]
        assert [chat.id for chat in client.chat.completions.list(model="claude-1")] == [kept]
        assert not list(client.chat.completions.list(model="base"))


def test_ollama_s_clients_see_the_size_of_what_is_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(996))
    entry, gone = PoolEntry("a", Config(model=str(file))), PoolEntry("gone", Config(model=str(tmp_path / "gone.gguf")))
    with pool_server(entry, gone) as server, server.live.http() as http:
        listed = http.get("/api/tags").json()["models"]
        assert {model["name"]: model["size"] for model in listed} == {"a": 1000, "gone": 0}
        said(http, "a")
        assert http.get("/api/tags").json()["models"][0]["size"] == server.pool.loaded()[0].answerer.info.weight_bytes


def test_what_is_to_be_loaded_at_the_start_is_there_before_anybody_asks() -> None:
    with pool_server(A, PoolEntry("b", Config(), is_preloaded=True)) as server, server.live.http() as http:
        wait_until(lambda: states(http) == {"a": "unloaded", "b": "ready"})
        assert server.loader.log == ["b loaded"]


def test_times_are_measured_by_model(three: PoolServer) -> None:
    with three.live.http() as http:
        for name in ("a", "b", "b"):
            said(http, name)
        text = http.get("/metrics").text
        for model, count in (("a", 1), ("b", 2)):
            assert f'pie_time_to_first_token_seconds_count{{model="{model}"}} {count}.0' in text
