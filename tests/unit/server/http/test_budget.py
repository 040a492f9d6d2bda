"""Bodies that come in are held within a budget, of which nobody gets it all."""

from contextlib import suppress
from typing import Any

import pytest
from starlette.types import Message, Scope

from proxy_inference_engine.errors import Busy, PieError, QueueFull
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.http import body
from proxy_inference_engine.server.http.access import Visit, attach_visit
from proxy_inference_engine.server.http.body import Bodies, BodyBudget, BodyShare, read_json
from proxy_inference_engine.server.http.errors import error_headers


def takes(held: BodyBudget, holder: str, num_bytes: int) -> int:
    """How many times it may take so much."""
    for number in range(100):
        try:
            held.take(holder, num_bytes)
        except PieError:
            return number
    return 100


def test_one_holder_gets_half_and_leaves_the_rest() -> None:
    held = BodyBudget(100)
    assert takes(held, "greedy", 10) == 5
    with pytest.raises(QueueFull) as caught:
        held.take("greedy", 10)
    assert (b"retry-after", b"1") in error_headers(caught.value)
    held.take("modest", 40)


def test_more_holders_get_less_each_and_leave_something() -> None:
    held = BodyBudget(100)
    for name in "abc" * 100:
        with suppress(QueueFull):
            held.take(name, 1)
    assert [takes(held, name, 1) for name in "abc"] == [0, 0, 0]
    held.take("newcomer", 20)


def test_what_the_others_left_may_not_be_enough() -> None:
    held = BodyBudget(100)
    held.take("a", 50)
    held.take("b", 25)
    with pytest.raises(Busy) as caught:
        held.take("c", 30)
    assert caught.value.status == 503 and (b"retry-after", b"1") in error_headers(caught.value)
    held.give("a", 50)
    held.take("c", 30)


def test_a_share_counts_what_it_grows_by_and_gives_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "FREE_BYTES", 10)
    held = BodyBudget(100)
    share = BodyShare(held, "a", Threads(1))
    for size in (5, 10, 30, 20, 50):  # what is small is free, and what was taken is not taken again
        share.grow_to(size)
    with pytest.raises(QueueFull):
        share.grow_to(80)
    BodyShare(held, "b", Threads(1)).grow_to(50)
    share.release()
    share.release()
    BodyShare(held, "c", Threads(1)).grow_to(49)


def scope(tenant: str, **headers: str) -> Scope:
    made: dict[str, Any] = {
        "type": "http",
        "client": ("192.0.2.1", 1),
        "headers": [(b"content-type", b"application/json")]
        + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    attach_visit(made, Visit("id", tenant=tenant))
    return made


async def ask(held: BodyBudget, asked: Scope, *chunks: bytes) -> Any:
    """What a route reads behind the middleware."""
    left = list(chunks)
    read: list[Any] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Message) -> None: ...

    async def route(inner: Scope, receive: Any, _send: Any) -> None:
        read.append(await read_json(inner, receive, lambda value: value))

    await Bodies(route, held, Threads(1))(asked, receive, send)
    return read[0]


LONG = b'"' + b"x" * 98 + b'"'


async def test_bodies_are_counted_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "FREE_BYTES", 10)
    held = BodyBudget(250)
    held.take("anna", 30)
    assert await ask(held, scope("anna", content_length="100"), LONG) == "x" * 98
    with pytest.raises(QueueFull):
        await ask(held, scope("anna", content_length="200"))  # before anything is read
    with pytest.raises(QueueFull):
        await ask(held, scope("anna"), b"[" + b" " * 120, b" " * 120, b"]")  # no length: as it comes
    assert await ask(held, scope("ben", content_length="200"), b'"' + b"x" * 198 + b'"')
    held.take("anna", 80)  # all was given back


async def test_without_keys_an_address_is_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "FREE_BYTES", 10)
    held = BodyBudget(150)
    held.take("address 192.0.2.1", 60)
    with pytest.raises(QueueFull):
        await ask(held, scope("local", content_length="100"), LONG)
    assert await ask(held, scope("local", content_length="9"), b'"1234567"')
