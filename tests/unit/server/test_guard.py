import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy_inference_engine.errors import Forbidden, InvalidRequest, PieError
from proxy_inference_engine.server.guard import Guard


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "reached"})


async def ask(
    headers: list[tuple[str, str]], *, method: str = "POST", hosts: tuple[str, ...] = ("127.0.0.1",)
) -> PieError | None:
    """What the guard raises; None when the request gets through."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the guard must not read the body")

    raw = [(name.encode(), value.encode()) for name, value in headers]
    try:
        await Guard(reached, hosts)({"type": "http", "method": method, "path": "/", "headers": raw}, receive, send)
    except PieError as error:
        return error
    assert sent == [{"type": "reached"}]
    return None


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.9.9.9", "[::1]"]
)
async def test_loopback_hosts_pass(host: str) -> None:
    assert await ask([("host", host)]) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example:8000", "localhost.evil.com", "192.168.1.5:8000", "0.0.0.0:8000", "[::2]", "127.0.0.1.nip.io"],
)
async def test_foreign_hosts_are_forbidden(host: str) -> None:
    error = await ask([("host", host)], method="GET")
    assert isinstance(error, Forbidden)
    assert error.code == "host_not_allowed"


@pytest.mark.parametrize(
    "hosts",
    [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["localhost/v1/models?"], ["a/?x="], [""],
     ["localhost:x"], ["user@localhost"], ["localhost:8000 "], ["[::1"]],
)  # fmt: skip
async def test_bad_hosts_are_400(hosts: list[str]) -> None:
    assert isinstance(await ask([("host", host) for host in hosts]), InvalidRequest)


async def test_the_configured_host_passes() -> None:
    hosts = ("0.0.0.0", "Box.lan")
    assert await ask([("host", "192.168.1.5:80")], hosts=hosts) is None
    assert await ask([("host", "box.lan")], hosts=hosts) is None
    assert isinstance(await ask([("host", "evil.example")], hosts=hosts), Forbidden)


@pytest.mark.parametrize(
    ("method", "header", "passes"),
    [
        ("POST", ("origin", "http://localhost:8000"), True),
        ("POST", ("origin", "http://evil.com"), False),
        ("POST", ("origin", "http://localhost.evil.com"), False),
        ("POST", ("origin", "http://localhost:8001"), False),
        ("POST", ("origin", "null"), False),
        ("POST", ("origin", ""), False),
        ("POST", ("origin", "file://localhost:8000"), False),
        ("DELETE", ("sec-fetch-site", "cross-site"), False),
        ("POST", ("sec-fetch-site", "cross-site"), False),
        ("POST", ("sec-fetch-site", "same-origin"), True),
        ("POST", ("sec-fetch-site", "none"), True),
        ("GET", ("origin", "http://evil.com"), True),
        ("GET", ("sec-fetch-site", "cross-site"), True),
    ],
)
async def test_foreign_pages_may_not_write(method: str, header: tuple[str, str], passes: bool) -> None:
    error = await ask([("host", "localhost:8000"), header], method=method)
    assert (error is None) == passes
    assert error is None or error.code == "origin_not_allowed"


async def test_upgrades_are_refused() -> None:
    error = await ask([("host", "localhost"), ("connection", "upgrade"), ("upgrade", "websocket")], method="GET")
    assert isinstance(error, InvalidRequest)
