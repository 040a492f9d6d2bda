"""Stored responses and the disk: they outlive the server, a crash is told, a full disk stops only what is stored."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import Store, StoreLimits, chains
from tests.api.running import MODEL, running
from tests.api.test_responses import ASK, ask, frames, read
from tests.polling import HANG_S, wait_until


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        first = ask(client, max_output_tokens=30)
        whole = ask(client, input="More", previous_response_id=first.id, store=False)
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        assert client.responses.retrieve(first.id) == first
        events = list(client.responses.retrieve(first.id, stream=True))
        assert events[-1].type == "response.incomplete" and events[-1].response == first
        assert ask(client, input="More", previous_response_id=first.id).output_text == whole.output_text


@pytest.mark.parametrize("way", ["previous_response_id", "conversation"])
def test_a_long_conversation_does_not_outgrow_the_store(way: str) -> None:
    """Each response is stored by itself, and what is deleted stays for those that build on it."""
    limits = StoreLimits(max_bytes=6000)
    with (
        closing(Store.open(None, limits=limits)) as store,
        running(FakeRunner(lanes=(Lane(1, 8192),)), store=store) as live,
        live.openai() as client,
    ):
        link: dict[str, Any] = {"conversation": client.conversations.create().id} if way == "conversation" else {}
        whole: list[Any] = []
        before = None
        for number in range(12):
            asked = {"role": "user", "content": f"{number}" * 300}
            answer = ask(client, input=[asked], max_output_tokens=4, **link)
            whole += [asked, *(item.model_dump() for item in answer.output)]
            assert len(client.responses.input_items.list(answer.id).data) == 1
            if way != "conversation":
                link = {way: answer.id}
                if before is not None:
                    client.responses.delete(before)
                before = answer.id
        last: Any = {"role": "user", "content": "Go on"}
        counted = client.responses.input_tokens.count(model=MODEL, input=[last], **link).input_tokens
        assert counted == client.responses.input_tokens.count(model=MODEL, input=[*whole, last]).input_tokens > 3000
        # From the last response of a conversation on, by its id.
        branch = client.responses.input_tokens.count(model=MODEL, input=[last], previous_response_id=answer.id)
        assert branch.input_tokens == counted


def test_what_is_deleted_while_it_is_answered_is_not_lost() -> None:
    """A client that tidies up behind itself while the next answer still comes."""
    with running(FakeRunner(step_seconds=lambda _: 0.005)) as live, live.openai() as client:
        first = ask(client, input="One", max_output_tokens=4)
        more: dict[str, Any] = {"input": "Two", "max_output_tokens": 16, "stream": True}
        endless = {"seed": 1, "ignore_eos": True}  # by itself the model may end before the limit
        events = iter(client.responses.create(**{**ASK, **more}, previous_response_id=first.id, extra_body=endless))
        assert next(events).type == "response.created"
        client.responses.delete(first.id)
        *_, event = events
        assert event.type == "response.incomplete"
        second = event.response
        assert [item.to_dict()["content"] for item in client.responses.input_items.list(second.id).data] == [
            [{"type": "input_text", "text": "Two"}]
        ]
        assert second.usage is not None
        third = ask(client, input="Three", previous_response_id=second.id)
        assert third.usage is not None and third.usage.input_tokens > second.usage.input_tokens + 16


def test_what_a_history_cannot_be_read_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as live, live.openai() as client:
        conversation = client.conversations.create().id
        answer = ask(client, max_output_tokens=4, conversation=conversation)
        monkeypatch.setattr(chains, "MAX_BYTES", 10)
        for link in ({"previous_response_id": answer.id}, {"conversation": conversation}):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(client, **link)
            assert (caught.value.code, caught.value.param) == ("context_length_exceeded", next(iter(link)))
        monkeypatch.undo()
        client.conversations.delete(conversation)
        with pytest.raises(openai.NotFoundError) as gone:
            ask(client, previous_response_id=answer.id)
        assert gone.value.code == "previous_response_not_found"
        assert client.responses.retrieve(answer.id) == answer


# A server that dies while a response waits in the background: nothing is computed, however late it dies.
CRASH = """
import os, sys, threading
from pathlib import Path
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.store import Store
from tests.api.running import running
from tests.api.test_responses import ask
runner = FakeRunner(step_seconds=lambda _: 1.0, sleep=lambda _: threading.Event().wait())
with running(runner, store=Store.open(Path(sys.argv[1]))) as live:
    print(ask(live.openai(), background=True, max_output_tokens=4000, extra={"ignore_eos": True}).id, flush=True)
    os._exit(9)
"""


def test_a_crash_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    root = Path(__file__).parents[2]
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(path)], capture_output=True, text=True, timeout=60, cwd=root, check=False
    )
    assert died.returncode == 9, died.stderr
    with closing(Store.open(path)) as store, running(store=store) as live, live.openai() as client:
        response = client.responses.retrieve(died.stdout.strip())
        assert response.status == "failed" and response.error is not None and response.error.code == "server_error"
        with pytest.raises(openai.BadRequestError):
            client.responses.cancel(response.id)
        assert ask(client, max_output_tokens=5, previous_response_id=response.id).status == "incomplete"
        with live.http() as http:
            shown = http.get(f"/v1/responses/{response.id}").json()
            for after in (-1, 0, 1, 2, 57):  # the last number that a client has seen
                query = {"stream": "true"} | ({"starting_after": str(after)} if after >= 0 else {})
                events = read(http.get(f"/v1/responses/{response.id}", params=query).text, first=after + 1)
                begun = ["response.created", "response.queued"][after + 1 :]
                assert [event["type"] for event in events] == [*begun, "error", "response.failed"]
                assert events[-1]["response"] == shown
        with pytest.raises(openai.APIError, match="stopped before"):
            list(client.responses.retrieve(response.id, stream=True))


def test_a_full_disk_stops_only_what_is_stored(tmp_path: Path) -> None:
    limits = StoreLimits(max_pages=14)
    with (
        closing(Store.open(tmp_path / "store.db", limits=limits)) as store,
        running(store=store) as live,
        live.openai() as client,
        live.http() as http,
    ):
        answered = []
        with pytest.raises(openai.InternalServerError) as caught:
            for _ in range(100):
                answered.append(ask(client, max_output_tokens=30))
        assert caught.value.status_code == 503 and caught.value.code == "storage_full"
        *_, error, failed = frames(http, max_output_tokens=30)
        assert error["error"]["code"] == "storage_full" and failed["response"]["error"]["code"] == "server_error"
        assert ask(client, max_output_tokens=30, store=False).output_text
        assert all(client.responses.retrieve(each.id) == each for each in answered)
        for each in answered:
            client.responses.delete(each.id)
        again = ask(client, max_output_tokens=5)
        assert client.responses.retrieve(again.id) == again


def test_an_end_that_does_not_fit_is_still_polled(tmp_path: Path) -> None:
    """The beginning was stored, the answer is too large for its place: whoever polls learns that."""
    limits = StoreLimits(max_bytes=3000)
    with (
        closing(Store.open(tmp_path / "store.db", limits=limits)) as store,
        running(FakeRunner(), store=store) as live,
        live.openai() as client,
    ):
        begun = client.responses.create(**ASK, background=True, extra_body={"seed": 1, "ignore_eos": True})
        wait_until(lambda: client.responses.retrieve(begun.id).status not in ("queued", "in_progress"))
        response = client.responses.retrieve(begun.id)
        assert response.status == "failed" and response.error is not None
        with pytest.raises(openai.APIStatusError) as caught:
            client.responses.create(**ASK, extra_body={"seed": 1, "ignore_eos": True})
        assert caught.value.status_code == 413


# The server as the command starts it: the address on the first line, the end by a signal.
SERVE = """
import socket, sys
from pathlib import Path
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.process import open_sealer, open_store, serve
config = Config(data_dir=Path(sys.argv[1]), drain_seconds=0.3)
worker = Worker(StepEngine(FakeRunner(step_seconds=lambda _: 0.002), max_cache_bytes=1 << 20))
worker.start()
store = open_store(config)
with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    print("http://{}:{}/v1".format(*sock.getsockname()), flush=True)
    code = serve([ServedModel.of(worker, config)], config, sock, store=store, sealer=open_sealer(config, store))
store.close()
worker.stop()
sys.exit(code)
"""


@contextmanager
def served(folder: Path) -> Iterator[openai.OpenAI]:
    command = [sys.executable, "-c", SERVE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        with openai.OpenAI(base_url=process.stdout.readline().strip(), api_key="none", max_retries=0) as client:
            try:
                yield client
            finally:
                process.terminate()
                assert process.wait(HANG_S) == 0


def test_what_was_sealed_and_begun_outlives_the_server(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        compacted = client.responses.compact(model="default", input="Hello")
        begun = client.responses.create(model="default", input="x", background=True, extra_body={"ignore_eos": True})
        with client.responses.retrieve(begun.id, stream=True) as events:
            next(event for event in events if event.type == "response.output_text.delta")
    with served(tmp_path) as client:
        (item,) = compacted.output
        assert item.type == "compaction"
        items: list[Any] = [item.model_dump(), {"role": "user", "content": "Go on"}]
        endless: Any = {"ignore_eos": True}
        answer = client.responses.create(model="default", input=items, max_output_tokens=5, extra_body=endless)
        assert answer.status == "incomplete"
        ended = client.responses.retrieve(begun.id)
        assert ended.status == "failed" and ended.error is not None and "shutting down" in ended.error.message
        assert ended.output and client.responses.retrieve(begun.id, stream=True)
