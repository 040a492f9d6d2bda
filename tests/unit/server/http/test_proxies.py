"""What a proxy says is believed if it is trusted, and of nobody else."""

from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy_inference_engine.server.http.proxies import FORWARDED_FOR, FORWARDED_HOST, Proxied, TrustedProxies

OURS = TrustedProxies((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
SAID = {"x-forwarded-for": "203.0.113.5", "x-forwarded-host": "pie.example.com", "x-forwarded-proto": "https"}


async def seen(headers: dict[str, str], client: str = "10.0.0.2", path: str = "/v1/models", prefix: str = "") -> Scope:
    """The scope that reaches the app."""
    reached: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope)

    async def never(*_: Any) -> Message:
        raise AssertionError("nothing is read or sent")

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "raw_path": path.encode(), "scheme": "http", "headers": raw}
    await Proxied(app, OURS, prefix)({**scope, "client": (client, 5)}, never, never)  # type: ignore[arg-type]  # never called
    return reached[0]


async def test_a_trusted_proxy_is_believed() -> None:
    scope = await seen(SAID)
    assert scope["client"] == ("203.0.113.5", 5) and scope[FORWARDED_FOR] == "203.0.113.5"
    assert scope[FORWARDED_HOST] == "pie.example.com" and scope["scheme"] == "https"


@pytest.mark.parametrize("client", ["192.0.2.1", "127.0.0.1", "::1", "fe80::1", "", "nonsense"])
async def test_nobody_else_is(client: str) -> None:
    scope = await seen(SAID, client=client)
    assert scope["client"] == (client, 5) and scope["scheme"] == "http"
    assert FORWARDED_FOR not in scope and FORWARDED_HOST not in scope


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("203.0.113.5", "203.0.113.5"),
        ("198.51.100.9, 203.0.113.5, 10.0.0.7", "203.0.113.5"),
        ("127.0.0.1, 203.0.113.5", "203.0.113.5"),
        ("10.0.0.9, 10.0.0.8", "10.0.0.9"),
        ("evil, 203.0.113.5, 10.0.0.8", "203.0.113.5"),
        ("203.0.113.5, evil, 10.0.0.8", "10.0.0.8"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("evil", None),
        ("", None),
        (",".join(["10.0.0.1"] * 5000), "10.0.0.1"),
    ],
)
async def test_the_client_is_the_last_that_is_no_proxy(line: str, address: str | None) -> None:
    assert (await seen({"x-forwarded-for": line})).get(FORWARDED_FOR) == address


async def test_the_nearest_proxy_names_the_host() -> None:
    assert (await seen({"x-forwarded-host": "evil, pie.example.com"}))[FORWARDED_HOST] == "pie.example.com"
    assert (await seen({"x-forwarded-proto": "javascript"}))["scheme"] == "http"


async def test_a_mapped_address_is_the_same() -> None:
    assert FORWARDED_HOST in await seen(SAID, client="::ffff:10.0.0.2")
    assert FORWARDED_HOST not in await seen(SAID, client="::ffff:192.0.2.1")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/pie/v1/models", "/v1/models"),
        ("/pie", "/"),
        ("/pie/", "/"),
        ("/v1/models", "/v1/models"),
        ("/piecemeal/x", "/piecemeal/x"),
        ("/pie/pie/health", "/pie/health"),
        ("/PIE/health", "/PIE/health"),
        ("//pie/health", "//pie/health"),
    ],
)
async def test_the_prefix_is_taken_away_once(path: str, shown: str) -> None:
    scope = await seen({}, client="192.0.2.1", path=path, prefix="/pie")
    assert scope["path"] == shown and scope["raw_path"] == shown.encode()
