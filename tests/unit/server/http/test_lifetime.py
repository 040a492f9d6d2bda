"""A connection is dropped when nothing leaves it for a while, however slowly its client reads."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from proxy_inference_engine.server.http import lifetime
from proxy_inference_engine.server.http.lifetime import CountedTransport, Drain, StallWatch, drop_unread, supervise


class Timers:
    """An event loop's clock, which a test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        entry = (self.now + delay, callback)
        self.waiting.append(entry)

        class Handle:
            def cancel(_self) -> None:
                if entry in self.waiting:
                    self.waiting.remove(entry)

        return Handle()  # type: ignore[return-value]  # it is only cancelled

    def turn(self, seconds: float) -> None:
        end = self.now + seconds
        while self.waiting and min(self.waiting)[0] <= end:
            entry = min(self.waiting, key=lambda each: each[0])
            self.waiting.remove(entry)
            self.now = entry[0]
            entry[1]()
        self.now = end


class Socket(asyncio.Transport):
    """A transport whose client reads when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:  # type: ignore[override]  # only bytes are written here
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True
        self.unsent = 0


def made(timers: Timers | None = None) -> tuple[Socket, CountedTransport, StallWatch, Timers]:
    socket, timers = Socket(), timers or Timers()
    counted = CountedTransport(socket)
    return socket, counted, StallWatch(counted, timers, 60.0), timers


@pytest.mark.parametrize("num_turns", range(12))
async def test_what_nobody_gets_is_undone(num_turns: int) -> None:
    """A caller that is cancelled so many turns of the event loop after the work was done, or before that.

    A model that had just been loaded for it stayed in use for ever.
    """
    held, loop, go_on = set[str](), asyncio.get_running_loop(), asyncio.Event()

    def cancel(turns: int) -> None:
        if turns:
            loop.call_soon(cancel, turns - 1)
        else:
            caller.cancel()

    async def work() -> str:
        await go_on.wait()
        held.add("it")
        return "it"

    caller = asyncio.ensure_future(supervise(work(), never, Drain(), undo=held.remove))
    await asyncio.sleep(0)
    loop.call_soon(cancel, num_turns)
    loop.call_soon(go_on.set)
    (got,) = await asyncio.gather(caller, return_exceptions=True)
    assert held == ({"it"} if got == "it" else set())


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_who_reads_nothing_is_dropped() -> None:
    """An unread answer that did not stream was held for ever."""
    socket, counted, watch, timers = made()
    counted.write(b"x" * 1_000_000)
    watch.begin()
    timers.turn(59)
    assert not socket.is_aborted
    timers.turn(20)
    assert socket.is_aborted and not timers.waiting


def test_who_reads_slowly_is_not() -> None:
    socket, counted, watch, timers = made()
    counted.write(b"x" * 1000)
    watch.begin()
    while socket.unsent:
        timers.turn(50)
        socket.unsent -= 1
    timers.turn(1000)
    assert not socket.is_aborted and not timers.waiting


def test_what_is_written_meanwhile_does_not_hide_that_something_left() -> None:
    socket, counted, watch, timers = made()
    counted.write(b"x" * 1000)
    watch.begin()
    for _ in range(20):
        timers.turn(30)
        socket.unsent -= 10
        counted.write(b"x" * 20)
    assert not socket.is_aborted


def test_what_is_written_meanwhile_does_not_hide_that_nothing_left() -> None:
    socket, counted, watch, timers = made()
    counted.write(b"x" * 1000)
    for _ in range(4):
        watch.begin()
        timers.turn(25)
        counted.write(b"x")
    assert socket.is_aborted


def test_nothing_is_watched_where_nothing_waits() -> None:
    socket, counted, watch, timers = made()
    watch.begin()
    assert not timers.waiting
    counted.write(b"x")
    watch.begin()
    socket.unsent = 0
    timers.turn(30)
    assert not timers.waiting
    counted.write(b"x")
    watch.begin()
    watch.end()
    assert not timers.waiting


def test_where_too_much_is_unread_who_read_nothing_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "MAX_UNSENT_BYTES", 1100)
    timers = Timers()
    clients = [made(timers) for _ in range(4)]
    for number, (_, counted, watch, _) in enumerate(clients):
        counted.write(b"x" * 300)
        watch.begin()
        if number < 3:
            timers.turn(10)
    clients[0][0].unsent -= 100  # it reads slowly
    drop_unread(watch for _, _, watch, _ in clients)
    assert not any(socket.is_aborted for socket, *_ in clients), "so much there may be"
    clients[0][1].write(b"x" * 500)
    drop_unread(watch for _, _, watch, _ in clients)
    assert [socket.is_aborted for socket, *_ in clients] == [False, True, True, False]
