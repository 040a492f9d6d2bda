"""The stream's life: one write a step, pings, and an end for every way it can go wrong."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from proxy_inference_engine.engine.base import Item
from proxy_inference_engine.errors import EngineFailure
from proxy_inference_engine.output.events import TextDelta
from proxy_inference_engine.served.stream import Step
from proxy_inference_engine.server.http import sse
from proxy_inference_engine.server.http.access import Visit, attach_visit
from proxy_inference_engine.server.http.errors import COMMON
from proxy_inference_engine.server.http.lifetime import Drain
from proxy_inference_engine.server.http.sse import ABORT, EventStream, Patience, Writer
from proxy_inference_engine.types import Failed, Prefilled
from tests.unit.served.scripted import Script, stream_of, text_items, whole
from tests.virtual_time import in_virtual_time

QUICK = Patience(first_ping_s=0.02, next_ping_s=0.06, stall_s=0.2)


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's is the event loop's, which does not wait."""
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(sse, "time", clock)


class TextFrames:
    def feed(self, step: Step) -> str:
        return "".join(f"data: {event.text}\n\n" for _, event in step if isinstance(event, TextDelta))

    def finish(self) -> str:
        return "data: last\n\n"


class Client:
    """The other end of one ASGI call."""

    def __init__(self, script: Script, patience: Patience = QUICK, writer: Writer[Step] | None = None) -> None:
        self.drain = Drain()
        self.visit = Visit("id")
        self.messages: list[Message] = []
        self.gone = asyncio.Event()
        self.can_read = asyncio.Event()
        self.can_read.set()
        self.engine, stream = stream_of(script)
        writer = writer or TextFrames()
        self._stream = EventStream(stream.steps(), writer, COMMON, self.drain, patience, stream.cancel, {"x-more": "a"})

    async def run(self) -> None:
        scope: dict[str, Any] = {"type": "http", "extensions": {ABORT: {"call": self.gone.set}}}
        attach_visit(scope, self.visit)
        async with asyncio.timeout(5):
            await self._stream(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.can_read.wait()
        self.messages.append(message)

    @property
    def writes(self) -> list[str]:
        return [message["body"].decode() for message in self.messages[1:]]

    @property
    def has_ended(self) -> bool:
        return self.messages[-1].get("more_body") is False

    @property
    def was_cancelled(self) -> bool:
        return self.engine.was_cancelled


@in_virtual_time
async def test_one_write_a_step_and_done_with_the_last() -> None:
    client = Client([[Item(0, Prefilled(0))], text_items("ab"), text_items("c"), whole("")[1:]])
    await client.run()
    assert client.writes == ["data: a\n\ndata: b\n\n", "data: c\n\n", "data: last\n\ndata: [DONE]\n\n"]
    assert client.has_ended
    headers = dict(client.messages[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no" and headers[b"x-more"] == b"a"


@in_virtual_time
async def test_pings_after_silence_then_less_often() -> None:
    client = Client([0.45, whole("a")], Patience(first_ping_s=0.02, next_ping_s=0.12, stall_s=5))
    await client.run()
    pings = client.writes.count(": ping\n\n")
    assert client.writes[:pings] == [": ping\n\n"] * pings
    assert pings == 4  # 0.02, 0.14, 0.26, 0.38 s
    assert client.writes[-1].endswith("[DONE]\n\n")


def test_clients_hear_after_two_seconds_and_then_every_ten() -> None:
    assert (Patience().first_ping_s, Patience().next_ping_s) == (2.0, 10.0)


@in_virtual_time
async def test_no_ping_while_text_flows() -> None:
    steps: list[Any] = [[Item(0, Prefilled(0))]]
    for _ in range(60):
        steps += [0.01, text_items("a")]
    client = Client([*steps, whole("")[1:]], Patience(first_ping_s=0.3, next_ping_s=0.3, stall_s=5))
    await client.run()
    assert ": ping\n\n" not in client.writes


@in_virtual_time
async def test_a_failure_halfway_is_an_error_event() -> None:
    client = Client([[Item(0, Prefilled(0)), *text_items("a")], [Item(0, Failed(EngineFailure("it broke")))]])
    await client.run()
    event, done, rest = client.writes[-1].split("\n\n")
    error = json.loads(event.removeprefix("data: "))["error"]
    assert error == {"message": "it broke", "type": "server_error", "param": None, "code": "engine_failure"}
    assert (done, rest) == ("data: [DONE]", "")
    assert client.has_ended and client.was_cancelled
    assert client.visit.error_code == "engine_failure"


@in_virtual_time
async def test_an_unexpected_error_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(TextFrames):
        """A wire format with a bug."""

        def feed(self, step: Step) -> str:
            raise RuntimeError("secret detail")

    client = Client([whole("a")], writer=Faulty())
    await client.run()
    assert "internal error" in client.writes[-1] and "secret" not in client.writes[-1]
    assert "secret detail" in caplog.text


@in_virtual_time
async def test_client_gone_cancels() -> None:
    client = Client([[Item(0, Prefilled(0)), *text_items("a")], 10.0])
    asyncio.get_running_loop().call_later(0.03, client.gone.set)
    await client.run()
    assert client.was_cancelled
    assert client.visit.status == 499
    assert not client.has_ended


@pytest.mark.parametrize("stalls_at", ["text", "ping", "end"])
@in_virtual_time
async def test_a_client_that_does_not_read_is_dropped(stalls_at: str) -> None:
    script: dict[str, Script] = {
        "text": [0.01, [Item(0, Prefilled(0)), *text_items("a")], 10.0],
        "ping": [10.0],
        "end": [[Item(0, Prefilled(0))], 0.01, whole("a")[1:]],
    }
    client = Client(script[stalls_at])
    asyncio.get_running_loop().call_later(0.005, client.can_read.clear)
    await client.run()
    assert client.was_cancelled
    assert client.gone.is_set()
    assert client.visit.status == 499


@in_virtual_time
async def test_the_end_of_the_server_is_an_error_event() -> None:
    client = Client([[Item(0, Prefilled(0)), *text_items("a")], 10.0])
    asyncio.get_running_loop().call_later(0.03, client.drain.end)
    await client.run()
    assert '"code":"shutting_down"' in client.writes[-1]
    assert client.writes[-1].endswith("data: [DONE]\n\n")
    assert client.was_cancelled and client.has_ended


@in_virtual_time
async def test_leaves_no_tasks_behind() -> None:
    before = asyncio.all_tasks()
    scripts: list[Script] = [[whole("a")], [0.05, whole("a")], [[Item(0, Failed(EngineFailure("x")))]]]
    for script in scripts:
        await Client(script).run()
    assert asyncio.all_tasks() == before
