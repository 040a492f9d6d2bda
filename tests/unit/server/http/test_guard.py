import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy_inference_engine.config.callers import parse_origin
from proxy_inference_engine.errors import Forbidden, InvalidRequest, PieError
from proxy_inference_engine.server.http.access import Visit, attach_visit, visit_of
from proxy_inference_engine.server.http.guard import Guard
from proxy_inference_engine.server.http.origins import Origins
from proxy_inference_engine.server.http.proxies import FORWARDED_HOST

Pairs = list[tuple[str, str]]
HOST = ("host", "localhost:8000")


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "reached"})


class Asked:
    """What became of one request."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.error: PieError | None = None
        self.scope: Scope = {}

    @property
    def has_passed(self) -> bool:
        return self.sent == [{"type": "reached"}]

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        own = self.sent[0].get("headers", []) if self.sent else []
        return {name.decode(): value.decode() for name, value in [*visit_of(self.scope).headers, *own]}


async def call(
    headers: Pairs,
    *,
    method: str = "POST",
    hosts: tuple[str, ...] = ("127.0.0.1",),
    origins: tuple[str, ...] = (),
    has_keys: bool = False,
    forwarded: str | None = None,
) -> Asked:
    asked = Asked()

    async def send(message: Message) -> None:
        asked.sent.append(message)

    async def receive() -> Message:
        raise AssertionError("the guard must not read the body")

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    asked.scope = {"type": "http", "method": method, "path": "/", "headers": raw}
    if forwarded is not None:
        asked.scope[FORWARDED_HOST] = forwarded
    attach_visit(asked.scope, Visit("id"))
    guard = Guard(reached, hosts, Origins([parse_origin(text) for text in origins]), takes_any_host=has_keys)
    try:
        await guard(asked.scope, receive, send)
    except PieError as error:
        asked.error = error
        assert asked.sent == []
    return asked


async def refusal(headers: Pairs, **options: object) -> PieError | None:
    """What the guard raises; None when the request gets through."""
    asked = await call(headers, **options)  # type: ignore[arg-type]
    assert asked.has_passed == (asked.error is None)
    return asked.error


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.9.9.9", "[::1]"]
)
async def test_loopback_hosts_pass(host: str) -> None:
    assert await refusal([("host", host)]) is None


# Names that an attacker on the Internet can have, and what they may be dressed up as.
FOREIGN = [
    "evil.example:8000", "localhost.evil.com", "192.168.1.5:8000", "0.0.0.0:8000", "[::2]", "127.0.0.1.nip.io",
    "local", "internal", "evil.local.example", "evil.internal.com", "evillocal", "evil.local.", "localhost.",
    "evil.example.local.com:80", "xn--local-.com", "pie", "nas",
]  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
async def test_dns_cannot_be_rebound_without_a_key(host: str, method: str) -> None:
    error = await refusal([("host", host)], method=method)
    assert isinstance(error, Forbidden) and error.code == "host_not_allowed"
    # A page that has rebound its name sends that as its origin too, and whatever else a script may add.
    dressed = [
        ("host", host),
        ("origin", f"http://{host}"),
        ("sec-fetch-site", "same-origin"),
        ("x-forwarded-host", "a"),
    ]
    assert isinstance(await refusal(dressed, method=method), Forbidden)
    # Where a proxy is trusted, the name that the connection really carries counts all the same.
    assert isinstance(await refusal(dressed, method=method, forwarded="localhost"), Forbidden)


@pytest.mark.parametrize("host", [*FOREIGN, "host.docker.internal", "nas.local", "pie.tail1234.ts.net:443"])
async def test_with_keys_every_host_will_do(host: str) -> None:
    assert await refusal([("host", host)], has_keys=True) is None


@pytest.mark.parametrize("host", ["host.docker.internal:8000", "nas.local", "NAS.LOCAL:8000", "a.b.internal"])
async def test_names_that_no_public_dns_has_are_for_programs(host: str) -> None:
    assert await refusal([("host", host)]) is None
    assert await refusal([("host", host)], method="GET") is None
    # A neighbour may answer for such a name: a page that comes from there may not write, unless it is listed.
    page = [("host", host), ("origin", f"http://{host}")]
    assert isinstance(await refusal(page), Forbidden)
    assert await refusal(page, hosts=(host.rpartition(":")[0] or host,)) is None
    assert await refusal(page, has_keys=True) is None


async def test_listed_hosts_pass() -> None:
    hosts = ("127.0.0.1", "pie", "box.tail1234.ts.net", "[fd7a::1]", "100.64.0.7")
    for host in ("pie:8000", "BOX.tail1234.ts.net", "[fd7a::1]:8000", "100.64.0.7"):
        assert await refusal([("host", host)], hosts=hosts) is None
    assert isinstance(await refusal([("host", "pie.evil.com")], hosts=hosts), Forbidden)


@pytest.mark.parametrize(
    "hosts",
    [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["localhost/v1/models?"], ["a/?x="], [""],
     ["localhost:x"], ["user@localhost"], ["localhost:8000 "], ["[::1"]],
)  # fmt: skip
@pytest.mark.parametrize("has_keys", [False, True])
async def test_bad_hosts_are_400(hosts: list[str], has_keys: bool) -> None:
    assert isinstance(await refusal([("host", host) for host in hosts], has_keys=has_keys), InvalidRequest)


async def test_the_configured_host_passes() -> None:
    hosts = ("0.0.0.0", "Box.lan")
    assert await refusal([("host", "192.168.1.5:80")], hosts=hosts) is None
    assert await refusal([("host", "box.lan")], hosts=hosts) is None
    assert isinstance(await refusal([("host", "evil.example")], hosts=hosts), Forbidden)


@pytest.mark.parametrize("forwarded", ["evil.example", "localhost/x", ""])
async def test_a_forwarded_host_has_to_be_ours_too(forwarded: str) -> None:
    assert isinstance(await refusal([HOST], forwarded=forwarded), Forbidden | InvalidRequest)


async def test_a_page_that_came_through_a_proxy_is_our_own() -> None:
    page = [("host", "127.0.0.1:8000"), ("origin", "https://pie.example.com")]
    assert isinstance(await refusal(page, has_keys=True), Forbidden)
    assert await refusal(page, has_keys=True, forwarded="pie.example.com") is None
    assert await refusal(page, hosts=("pie.example.com",), forwarded="pie.example.com") is None


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
@pytest.mark.parametrize("has_keys", [False, True])
async def test_foreign_pages_may_not_write(method: str, header: tuple[str, str], passes: bool, has_keys: bool) -> None:
    asked = await call([HOST, header], method=method, has_keys=has_keys)
    assert (asked.error is None) == passes
    assert asked.error is None or asked.error.code == "origin_not_allowed"
    assert asked.headers == {}


LISTED = (
    "https://app.example.com", "http://localhost:*", "app://obsidian.md", "tauri://localhost", "vscode-webview://*",
    "chrome-extension://abcdefghijklmnop", "http://[::1]:3000", "https://known.example:443",
)  # fmt: skip


@pytest.mark.parametrize(
    "origin",
    ["https://app.example.com", "http://localhost", "http://localhost:3000", "app://obsidian.md", "tauri://localhost",
     "vscode-webview://0fbe4e8a-1", "chrome-extension://abcdefghijklmnop", "http://[::1]:3000",
     "https://known.example"],
)  # fmt: skip
async def test_listed_pages_may_write_and_read(origin: str) -> None:
    asked = await call([HOST, ("origin", origin), ("sec-fetch-site", "cross-site")], origins=LISTED)
    assert asked.has_passed
    assert asked.headers["access-control-allow-origin"] == origin and asked.headers["vary"] == "Origin"
    exposed = asked.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "x-pie-relaxed", "x-ratelimit-remaining-tokens", "retry-after"} <= set(exposed)
    assert "access-control-allow-credentials" not in asked.headers


@pytest.mark.parametrize(
    "origin",
    ["http://app.example.com", "https://app.example.com:8443", "https://app.example.com.evil.com",
     "https://evil.com/https://app.example.com", "https://APP.example.com", "http://localhost.evil.com",
     "https://localhost:3000", "app://evil", "tauri://localhost:1", "chrome-extension://other", "null", "", "*",
     "vscode-webview://", "http://localhost:*", "https://app.example.com, https://app.example.com", "h\xe9://x",
     "https://app.example.com\x00", "https://" + "a" * 5000],
)  # fmt: skip
async def test_other_pages_may_not(origin: str) -> None:
    asked = await call([HOST, ("origin", origin)], origins=LISTED)
    assert isinstance(asked.error, Forbidden) and asked.error.code == "origin_not_allowed"
    assert asked.headers == {"vary": "Origin"}
    preflight = [HOST, ("origin", origin), ("access-control-request-method", "POST")]
    asked = await call(preflight, method="OPTIONS", origins=LISTED)
    assert isinstance(asked.error, Forbidden) and asked.headers == {"vary": "Origin"}
    assert (await call([HOST, ("origin", origin)], method="GET", origins=LISTED)).headers == {"vary": "Origin"}


async def test_two_origins_are_none() -> None:
    asked = await call([HOST, ("origin", LISTED[0]), ("origin", "http://evil.com")], origins=LISTED)
    assert isinstance(asked.error, Forbidden) and "access-control-allow-origin" not in asked.headers


@pytest.mark.parametrize("origin", ["https://anything.example", "null", "app://x", "http://localhost:1"])
async def test_every_page_may_call_where_all_need_a_key(origin: str) -> None:
    asked = await call([HOST, ("origin", origin)], origins=("*",), has_keys=True)
    assert asked.has_passed and asked.headers["access-control-allow-origin"] == origin


async def test_a_preflight_is_answered() -> None:
    names = "authorization, content-type, x-stainless-lang"
    headers = [
        HOST, ("origin", LISTED[0]), ("access-control-request-method", "POST"),
        ("access-control-request-headers", names), ("access-control-request-private-network", "true"),
    ]  # fmt: skip
    asked = await call(headers, method="OPTIONS", origins=LISTED)
    assert asked.error is None and asked.sent[0]["status"] == 204 and len(asked.sent) == 2
    assert asked.headers["access-control-allow-origin"] == LISTED[0]
    assert asked.headers["access-control-allow-headers"] == names
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("names", ["x\ny", "x: y", "é", "", "a" * 5000])
async def test_a_preflight_repeats_only_names(names: str) -> None:
    headers = [HOST, ("origin", LISTED[0]), ("access-control-request-method", "POST")]
    headers += [("access-control-request-headers", names)]
    asked = await call(headers, method="OPTIONS", origins=LISTED)
    assert asked.error is None and "access-control-allow-headers" not in asked.headers


async def test_no_origin_opens_a_foreign_host() -> None:
    for method in ("POST", "OPTIONS"):
        headers = [("host", "evil.example"), ("origin", LISTED[0]), ("access-control-request-method", "POST")]
        assert isinstance(await refusal(headers, method=method, origins=LISTED), Forbidden)


async def test_upgrades_are_refused() -> None:
    error = await refusal([("host", "localhost"), ("connection", "upgrade"), ("upgrade", "websocket")], method="GET")
    assert isinstance(error, InvalidRequest)
