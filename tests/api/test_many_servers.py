"""Several servers on one store, a file or PostgreSQL: what one of them makes is everybody's, wherever they ask."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.server.process import open_sealer
from proxy_inference_engine.store import Store, StoreLimits
from scripts.postgres import Cluster
from tests.api.running import HELLO, MODEL, Running, running
from tests.api.test_responses import ASK, ask, read
from tests.polling import HANG_S, wait_until
from tests.soak.server_kills import start_server

KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"), ApiKey("root", "key-of-root", is_admin=True))
LONG: dict[str, Any] = {**ASK, "max_output_tokens": 400, "background": True, "seed": 1, "ignore_eos": True}


@pytest.fixture(params=["file", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "store.db" if request.param == "file" else str(request.getfixturevalue("postgres_url"))


@contextmanager
def two(
    where: Path | str, config: Config | None = None, gate: threading.Event | None = None
) -> Iterator[list[Running]]:
    """`gate`: they compute when it is open."""

    def step_seconds(_: object) -> float:
        assert gate is None or gate.wait(HANG_S)
        return 0.004

    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            store = stack.enter_context(closing(Store.open(where)))
            runner = FakeRunner(step_seconds=step_seconds)
            servers.append(stack.enter_context(running(runner, config, store=store)))
        yield servers


def status(http: httpx.Client, id_: str) -> str:
    return str(http.get(f"/v1/responses/{id_}").json()["status"])


def beginning(http: httpx.Client, num_events: int, **fields: Any) -> list[dict[str, Any]]:
    """The first events, about as many, of a response whose client then leaves."""
    seen = ""
    with http.stream("POST", "/v1/responses", json={**LONG, **fields, "stream": True}) as stream:
        for text in stream.iter_text():
            seen += text
            if seen.count("\n\n") > num_events:
                break
    return read(seen[: seen.rindex("\n\n") + 2] + "data: [DONE]\n\n", first=0)


def test_a_stream_is_resumed_at_the_other_server_from_any_event(where: Path | str) -> None:
    gate = threading.Event()
    with two(where, gate=gate) as (one, other), one.http() as here, other.http() as there:
        id_ = here.post("/v1/responses", json=LONG).json()["id"]
        assert status(here, id_) == status(there, id_) == "queued"
        query = {"stream": "true"}
        with there.stream("GET", f"/v1/responses/{id_}", params=query) as stream:
            gate.set()
            elsewhere = stream.read().decode()
        wait_until(lambda: status(there, id_) == "incomplete")
        whole = here.get(f"/v1/responses/{id_}", params=query).text
        assert elsewhere == whole
        events = read(whole, first=0)
        assert events[-1]["type"] == "response.incomplete" and len(events) > 100
        for after in (0, 1, 57, len(events) - 2):
            rest = there.get(f"/v1/responses/{id_}", params={**query, "starting_after": str(after)}).text
            assert read(rest, first=after + 1) == events[after + 1 :]


def test_a_running_stream_is_resumed_at_the_other_server(where: Path | str) -> None:
    """A client that lost its connection goes on with the next number, where the balancer sends it."""
    with two(where) as (one, other), one.http() as here, other.http() as there:
        begun = beginning(here, 20)
        id_ = begun[0]["response"]["id"]
        rest = there.get(f"/v1/responses/{id_}", params={"stream": "true", "starting_after": str(len(begun) - 1)}).text
        events = [*begun, *read(rest, first=len(begun))]
        assert events[-1]["type"] == "response.incomplete"
        assert events == read(here.get(f"/v1/responses/{id_}", params={"stream": "true"}).text, first=0)


def test_it_is_cancelled_at_the_other_server(where: Path | str) -> None:
    with two(where) as (one, other), one.http() as here, other.http() as there:
        id_ = here.post("/v1/responses", json={**LONG, "max_output_tokens": 4000}).json()["id"]
        with there.stream("GET", f"/v1/responses/{id_}", params={"stream": "true"}) as stream:
            for text in stream.iter_text():
                if "delta" in text:
                    break
        assert status(here, id_) == status(there, id_) == "in_progress"
        cancelled = there.post(f"/v1/responses/{id_}/cancel").json()
        assert cancelled["status"] == "cancelled" and cancelled["output"]
        assert here.get(f"/v1/responses/{id_}").json() == cancelled
        one.wait_idle()
        assert there.post(f"/v1/responses/{id_}/cancel").json() == cancelled


def test_it_is_deleted_at_the_other_server(where: Path | str) -> None:
    with two(where) as (one, other), one.http() as here, other.http() as there:
        id_ = here.post("/v1/responses", json={**LONG, "max_output_tokens": 4000}).json()["id"]
        assert there.delete(f"/v1/responses/{id_}").status_code == 200
        one.wait_idle()
        assert {http.get(f"/v1/responses/{id_}").status_code for http in (here, there)} == {404}


def test_a_conversation_goes_from_server_to_server(where: Path | str) -> None:
    with two(where) as (one, other), one.openai() as here, other.openai() as there:
        first = ask(here, max_output_tokens=20)
        second = ask(there, input="More", max_output_tokens=20, previous_response_id=first.id)
        counted = here.responses.input_tokens.count(model=MODEL, input="Go on", previous_response_id=second.id)
        assert second.usage is not None and counted.input_tokens > second.usage.total_tokens
        conversation = here.conversations.create(items=[{"role": "user", "content": "Hello"}])
        ask(there, max_output_tokens=5, conversation=conversation.id)
        assert len(here.conversations.items.list(conversation.id).data) == 3
        chat = here.chat.completions.create(model=MODEL, messages=HELLO, store=True, max_tokens=5)  # type: ignore[arg-type]
        assert there.chat.completions.retrieve(chat.id).id == chat.id
        here.chat.completions.delete(chat.id)
        with pytest.raises(openai.NotFoundError):
            there.chat.completions.retrieve(chat.id)


def test_keys_hold_and_usage_adds_up_across_servers(where: Path | str) -> None:
    config = Config(api_keys=KEYS, drain_seconds=0.2)
    with two(where, config) as (one, other):
        anna, ben = one.openai(key="key-of-anna"), other.openai(key="key-of-ben")
        made = ask(anna, max_output_tokens=5)
        with pytest.raises(openai.NotFoundError):
            ben.responses.retrieve(made.id)
        assert other.openai(key="key-of-anna").responses.retrieve(made.id) == made
        ask(other.openai(key="key-of-anna"), max_output_tokens=5)
        root = {"authorization": "Bearer key-of-root"}
        for live in (one, other):
            with live.http(headers=root) as http:
                http.get("/admin/usage").raise_for_status()  # what is new there is stored
        with one.http(headers=root) as http:
            assert "anna" in http.get("/admin/usage").text
        with closing(Store.open(where)) as store:
            usage = asyncio.run(store.usage())
        assert usage["anna"].num_tokens == 10


def test_rows_of_a_key_are_counted_across_servers(where: Path | str) -> None:
    limits = StoreLimits(max_rows=5)
    with ExitStack() as stack:
        clients = []
        for _ in range(2):
            store = stack.enter_context(closing(Store.open(where, limits=limits)))
            clients.append(stack.enter_context(running(store=store)).openai())
        for number in range(5):
            ask(clients[number % 2], max_output_tokens=2)
        for client in clients:
            with pytest.raises(openai.RateLimitError):
                ask(client, max_output_tokens=2)


def part_of(stream: httpx.Response, num_events: int) -> str:
    """The first so many, and what came with them that is whole."""
    seen = ""
    for text in stream.iter_text():
        seen += text
        if seen.count("\n\n") >= num_events:
            break
    return seen[: seen.rindex("\n\n") + 2]


def test_the_stream_of_a_killed_server_ends_at_the_other_with_what_it_said(postgres_url: str, tmp_path: Path) -> None:
    with closing(Store.open(postgres_url, limits=StoreLimits(run_seconds=5.0))) as store, running(store=store) as live:
        process, url = start_server(str(tmp_path), postgres_url, num_fast=300)
        fields = {**LONG, "max_output_tokens": 4000, "stream": True}
        with live.http() as there:
            try:
                with httpx.Client(base_url=url, timeout=HANG_S) as here:
                    with here.stream("POST", "/v1/responses", json=fields) as stream:
                        begun = read(part_of(stream, 200) + "data: [DONE]\n\n", first=0)
                    id_ = begun[0]["response"]["id"]
                    query = {"stream": "true", "starting_after": "57"}
                    with there.stream("GET", f"/v1/responses/{id_}", params=query) as stream:
                        part_of(stream, 60)  # so much has been told by now
            finally:
                process.kill()
                process.communicate()
            for after in (57, len(begun) - 1):
                query = {"stream": "true", "starting_after": str(after)}
                rest = read(there.get(f"/v1/responses/{id_}", params=query).text, first=after + 1)
                assert [event["type"] for event in rest[-2:]] == ["error", "response.failed"]
                assert all(mine == its for mine, its in zip(begun[after + 1 :], rest[:-2], strict=False))
                assert after > 57 or len(rest) > 50, "what was said was stored as it was said"
            assert status(there, id_) == "failed"


def test_what_one_server_seals_another_opens(postgres_url: str) -> None:
    config = Config(store_url=postgres_url)
    with closing(Store.open(postgres_url)) as one, closing(Store.open(postgres_url)) as other:
        sealed = open_sealer(config, one).of("anna").seal("reasoning", ["thought"])
        assert open_sealer(config, other).of("anna").open("reasoning", sealed) == ["thought"]


def test_a_database_that_goes_away_and_comes_back(postgres: Cluster, postgres_url: str) -> None:
    """What needs the store is 503 meanwhile; everything else goes on; nobody has to start anything again."""
    with closing(Store.open(postgres_url)) as store, running(store=store) as live, live.http() as http:
        kept = http.post("/v1/responses", json={**ASK, "max_output_tokens": 5}).json()
        chat = {"model": MODEL, "messages": HELLO, "max_tokens": 5}
        postgres.stop()
        try:
            for _ in range(2):
                for answer in (
                    http.get(f"/v1/responses/{kept['id']}"),
                    http.post("/v1/responses", json={**ASK, "max_output_tokens": 5}),
                    http.post("/v1/chat/completions", json={**chat, "store": True}),
                    http.post("/v1/conversations", json={}),
                ):
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["error"]["code"] == "storage_unavailable"
                assert http.post("/v1/chat/completions", json=chat).status_code == 200
                assert http.post("/v1/responses", json={**ASK, "store": False}).status_code == 200
                assert http.get("/ready").status_code == 200
        finally:
            postgres.start()
        assert http.get(f"/v1/responses/{kept['id']}").json() == kept
        made = http.post("/v1/responses", json={**ASK, "max_output_tokens": 5}).json()
        assert http.get(f"/v1/responses/{made['id']}").json() == made


def test_an_end_that_could_not_be_stored_has_failed_for_all(postgres: Cluster, postgres_url: str) -> None:
    gate = threading.Event()
    with two(postgres_url, gate=gate) as (one, other), one.http() as here, other.http() as there:
        id_ = here.post("/v1/responses", json={**LONG, "max_output_tokens": 20}).json()["id"]
        postgres.stop()
        gate.set()
        try:
            wait_until(lambda: status(here, id_) not in ("queued", "in_progress"))
            assert status(here, id_) == "failed"
        finally:
            postgres.start()
        wait_until(lambda: status(there, id_) == "failed")


def test_a_server_that_was_cut_off_too_long_does_not_undo_what_others_said(postgres_url: str) -> None:
    with two(postgres_url) as (one, other), one.http() as here, other.http() as there:
        id_ = here.post("/v1/responses", json={**LONG, "max_output_tokens": 4000}).json()["id"]
        with closing(Store.open(postgres_url)) as store:
            asyncio.run(store.give_up("local", id_))
        assert status(there, id_) == "failed"
        one.wait_idle()
        wait_until(lambda: status(here, id_) == status(there, id_) == "failed")
