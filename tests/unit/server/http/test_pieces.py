"""JSON in pieces is the same JSON, and while it is written the event loop has its turns."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Scope

from proxy_inference_engine.server.http.access import Visit, attach_visit, visit_of
from proxy_inference_engine.server.http.lifetime import Drain
from proxy_inference_engine.server.http.pieces import LongJson
from proxy_inference_engine.server.http.sse import ABORT
from proxy_inference_engine.server.http.wire import JsonItems, dumps, gathered, pieces

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def long_list(items: list[Any]) -> JsonItems:
    return JsonItems(len(items), items.__getitem__, at_once=3)


@given(st.lists(VALUES), VALUES)
def test_pieces_are_what_is_written_at_once(items: list[Any], other: Any) -> None:
    value = {"a": long_list(items), "b": [other, long_list(items), {"c": other}], "d": []}
    plain = {"a": items, "b": [other, items, {"c": other}], "d": []}
    assert "".join(pieces(value)) == dumps(plain) == dumps(value)


@pytest.mark.parametrize("text", ["x" * 200_000, 'ü"\\\n\u2028' * 30_000, "😀" * 70_000])
def test_a_long_text_is_cut_and_stays_the_same(text: str) -> None:
    written = list(pieces({"prompt": text}))
    assert "".join(written) == dumps({"prompt": text})
    assert max(map(len, written)) < 500_000 and len(written) > 4


def test_a_long_list_is_as_a_list() -> None:
    made = long_list([1, 2, 3, 4])
    assert made == [1, 2, 3, 4] and made != [1, 2, 3] and made == long_list([1, 2, 3, 4])
    assert (made[0], made[-1], made[1:3], len(made), list(made)) == (1, 4, [2, 3], 4, [1, 2, 3, 4])
    with pytest.raises(IndexError):
        made[4]
    with pytest.raises(TypeError):
        dumps({"a": object()})


@given(st.lists(st.text()), st.integers(1, 50))
def test_gathered_pieces_are_the_same_text(parts: list[str], size: int) -> None:
    found = list(gathered(parts, size))
    assert "".join(found) == "".join(parts)
    assert all(len(piece) >= size for piece in found[:-1])


class Client:
    """Reads when told to, and counts the turns of the loop that others have had between two writes."""

    def __init__(self, value: Any, drain: Drain | None = None) -> None:
        self.bodies: list[bytes] = []
        self.has_ended = False
        self.can_read = asyncio.Event()
        self.can_read.set()
        self.gone = asyncio.Event()
        self.num_threads = 0
        self.headers: dict[bytes, bytes] = {}
        self.scope: Scope = {"type": "http", "extensions": {ABORT: {"call": self.gone.set}}}
        attach_visit(self.scope, Visit("id"))
        self._response = LongJson(value, drain or Drain(), self._off_loop, {"x-test": "1"})

    async def _off_loop(self, work: Callable[[], str | None], _num_chars: int) -> str | None:
        self.num_threads += 1
        return await asyncio.to_thread(work)

    async def run(self) -> None:
        await self._response(self.scope, self._receive, self._send)

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.can_read.wait()
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
            return
        self.bodies.append(message["body"])
        self.has_ended = not message.get("more_body", False)


LONG = {"data": JsonItems(30_000, lambda number: {"number": number, "text": "x" * 50})}


async def test_it_is_written_piece_by_piece_off_the_loop() -> None:
    """A body of 148 MiB was made on the event loop: nobody else was answered for ten seconds."""
    client = Client(LONG)
    await client.run()
    assert json.loads(b"".join(client.bodies)) == json.loads(dumps(LONG))
    assert client.has_ended and b"content-length" not in client.headers and client.headers[b"x-test"] == b"1"
    assert len(client.bodies) > 10 and max(map(len, client.bodies)) < 256 * 1024
    assert client.num_threads == len(client.bodies)


async def test_no_more_is_made_than_is_read() -> None:
    client = Client(LONG)
    client.can_read.clear()
    running = asyncio.ensure_future(client.run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert client.num_threads == 0
    client.can_read.set()
    await running
    assert client.has_ended


async def test_who_leaves_is_let_go() -> None:
    client = Client(LONG)
    client.can_read.clear()
    client.gone.set()
    client.can_read.set()
    await client.run()
    assert visit_of(client.scope).status == 499 and not client.has_ended


async def test_the_end_of_the_server_never_looks_like_the_end_of_the_answer() -> None:
    drain = Drain()
    client = Client(LONG, drain)
    drain.end()
    await client.run()
    assert client.gone.is_set() and not client.has_ended
    assert visit_of(client.scope).error_code == "shutting_down"


async def test_neither_does_a_mistake_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    client = Client({"data": JsonItems(2, lambda number: 1 // number)})
    await client.run()
    assert client.gone.is_set() and not client.has_ended
    assert "unexpected error" in caplog.text
