"""Attack group D, over the web of `web.py`: what may be asked, where the connection goes, and when it is cut off."""

import asyncio
import gzip
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.images import AllowedHosts, FetchLimits, ImageRefused, exchange
from proxy_inference_engine.images.address import is_public
from proxy_inference_engine.images.fetcher import Endpoint, Fetcher, SystemConnector, SystemResolver
from proxy_inference_engine.images.target import parse_target
from tests.images import plain
from tests.polling import HANG_S, until
from tests.unit.images.certificate import make_certificate
from tests.unit.images.web import PUBLIC, Web, redirect, reply

AN_IMAGE = plain(4, 4)
SHORT = FetchLimits(max_bytes=100_000, connect_seconds=0.3, total_seconds=0.6)
PATIENT = FetchLimits(max_bytes=100_000, connect_seconds=HANG_S, total_seconds=HANG_S)


async def refusal(web: Web, url: str, limits: FetchLimits | None = None) -> ImageRefused:
    with pytest.raises(ImageRefused) as caught:
        await web.fetcher(limits).fetch(url)
    return caught.value


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_image_comes_from_the_address_that_was_checked(scheme: str) -> None:
    async with Web({"/a.png?x=1": reply(AN_IMAGE)}, {"good.example": [PUBLIC]}) as web:
        assert await web.fetcher().fetch(f"{scheme}://Good.Example/a.png?x=1") == AN_IMAGE
    port, name = (80, None) if scheme == "http" else (443, "good.example")
    assert web.connected == [Endpoint(PUBLIC, port, name)] and web.resolved == ["good.example"]
    assert "\r\nHost: good.example\r\n" in web.heads[0] and "\r\nAccept-Encoding: identity\r\n" in web.heads[0]


D1 = """
file:///etc/passwd file://localhost/etc/passwd FILE:///etc/passwd ftp://good.example/a.png gopher://good.example/
jar:x!/a \\\\host\\share /etc/passwd etc/passwd javascript:alert(1) data:text/html,x http: http:// http:///x https://:80/
x
"""
D5 = [
    "http://good.example\\@127.0.0.1/",
    "http://good.example#@127.0.0.1",
    "http://u:p@good.example/",
    "http://u@good.example/",
    "http://good.example%2f@127.0.0.1/",
    "http://good.example:80@127.0.0.1/",
    "http://１２７.0.0.1/",
    "http://bücher.example/",
    "http://good.example/\ta",
    "http://good\n.example/",
    " http://good.example/",
    "http://good.example/\r\nX: y",
    "http://good.example:0/",
    "http://good.example:65536/",
    "http://good.example:8o/",
    "http://[::1/",
    "http://[fe80::1%25eth0]/",
    "http://-bad.example/",
    "http://good..example/",
    "http://good.example./",
    "http://" + "a" * 64 + ".example/",
    "http://good.example/" + "a" * 9000,
]


@pytest.mark.parametrize("url", [*D1.split(), *D5, ""])
async def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    """D1, D5: nothing is even resolved."""
    async with Web(names={"good.example": [PUBLIC], "127.0.0.1": [PUBLIC]}) as web:
        assert (await refusal(web, url)).code == "invalid_image_url"
    assert not web.resolved and not web.connected


PRIVATE = """
127.0.0.1 127.255.255.254 0.0.0.0 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1
100.100.100.200 192.0.0.192 168.63.129.16 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 192.88.99.1 224.0.0.1 240.0.0.1
255.255.255.255 ::1 :: ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe
64:ff9b:1::1 2002:7f00:1:: 2002:c0a8:101::1 2001:0:0:1:: 2001:db8::1 3fff::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1
ff02::1 100::1 5f00::1 4000::1
"""
OPEN = "8.8.8.8 93.184.215.14 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8"


@pytest.mark.parametrize("address", PRIVATE.split())
async def test_addresses_that_are_not_public_are_never_asked(address: str) -> None:
    """D2: written in the URL, or behind a name."""
    host = f"[{address}]" if ":" in address else address
    async with Web(names={"inside.example": [address], "both.example": [PUBLIC, address]}) as web:
        reasons = {str(await refusal(web, f"http://{name}/")) for name in (host, "inside.example", "both.example")}
        refused = await refusal(web, "https://nowhere.example/")
    assert reasons == {str(refused)} and refused.code == "url_not_allowed"
    assert not web.connected


def test_addresses() -> None:
    assert not [address for address in PRIVATE.split() if is_public(address)]
    assert not [address for address in OPEN.split() if not is_public(address)]
    assert not is_public("fe80::1%eth0") and not is_public("2606:4700::1%eth0") and not is_public("nonsense")


@pytest.mark.parametrize("port", [22, 8000, 8080, 6379])
async def test_unusual_ports_are_not_asked(port: int) -> None:
    async with Web(names={"good.example": [PUBLIC]}) as web:
        assert (await refusal(web, f"http://good.example:{port}/")).code == "url_not_allowed"
    assert not web.resolved


async def test_localhost_is_not_asked() -> None:
    """With the machine's own resolver, and a server that would answer."""
    async with Web({"/a.png": reply(AN_IMAGE)}) as web:
        for host in ("localhost", "127.0.0.1", "[::1]"):
            with pytest.raises(ImageRefused) as caught:
                await Fetcher(allowed=AllowedHosts([("other", None)])).fetch(f"http://{host}:{web.port}/a.png")
            assert caught.value.code == "url_not_allowed"
    assert not web.heads


async def test_hosts_that_the_operator_allows_are_asked() -> None:
    async with Web({"/a.png": reply(AN_IMAGE)}) as web:
        for allowed in (AllowedHosts([("127.0.0.1", None)]), AllowedHosts([("127.0.0.1", web.port)])):
            assert await Fetcher(allowed=allowed).fetch(f"http://127.0.0.1:{web.port}/a.png") == AN_IMAGE
        fetcher = Fetcher(allowed=AllowedHosts([("127.0.0.1", web.port)]))
        with pytest.raises(ImageRefused):
            await fetcher.fetch("http://127.0.0.1/a.png")


# D3


@pytest.mark.parametrize(
    ("locations", "code"),
    [
        (["http://inside.example/"], "url_not_allowed"),
        (["http://169.254.169.254/latest/"], "url_not_allowed"),
        (["/b", "//inside.example/"], "url_not_allowed"),
        (["file:///etc/passwd"], "invalid_image_url"),
        (["http://u:p@good.example/"], "invalid_image_url"),
        (["http://[bad/"], "invalid_image_url"),
        (["/1", "/2", "/3", "/4"], "invalid_image_url"),
        (["/start"], "invalid_image_url"),
        (["http://good.example:8000/"], "url_not_allowed"),
    ],
)
async def test_redirects_are_checked_at_each_hop(locations: list[str], code: str) -> None:
    paths = ["/start", *(location for location in locations if location.startswith("/"))]
    pages = {path: redirect(location) for path, location in zip(paths, locations, strict=False)}
    async with Web(pages, {"good.example": [PUBLIC], "inside.example": ["10.0.0.1"]}) as web:
        assert (await refusal(web, "http://good.example/start")).code == code
    assert {endpoint.address for endpoint in web.connected} == {PUBLIC} and len(web.connected) <= 4


@pytest.mark.parametrize("status", ["301 A", "302 B", "303 C", "307 D", "308 E"])
async def test_a_few_redirects_are_followed(status: str) -> None:
    pages = {
        "/start": redirect("next?x=1", status),
        "/next?x=1": redirect("http://other.example/y", status),
        "/y": redirect("./z", status),
        "/z": reply(AN_IMAGE),
    }
    async with Web(pages, {"good.example": [PUBLIC], "other.example": ["8.8.8.8"]}) as web:
        assert await web.fetcher().fetch("http://good.example/start") == AN_IMAGE
    assert [endpoint.address for endpoint in web.connected] == [PUBLIC, PUBLIC, "8.8.8.8", "8.8.8.8"]


async def test_a_redirect_does_not_give_up_tls() -> None:
    async with Web({"/": redirect("http://good.example/b")}, {"good.example": [PUBLIC]}) as web:
        assert "https to http" in (await refusal(web, "https://good.example/")).reason
    assert len(web.connected) == 1


async def test_a_name_that_changes_is_asked_once() -> None:
    """D4: the second answer of a rebinding name server would be private; nobody asks for it."""
    async with Web({"/": reply(AN_IMAGE)}) as web:
        answers = [[PUBLIC], ["127.0.0.1"]]

        async def resolve(host: str, port: int) -> list[str]:
            return answers.pop(0)

        fetcher = Fetcher(resolve=resolve, connect=web.connect)
        assert await fetcher.fetch("http://rebind.example/") == AN_IMAGE
        assert web.connected == [Endpoint(PUBLIC, 80, None)] and len(answers) == 1
        with pytest.raises(ImageRefused):
            await fetcher.fetch("http://rebind.example/")
        assert len(web.connected) == 1


# D6


async def endless(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
    while True:
        writer.write(bytes(65536))
        await writer.drain()


async def chunked(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"8000\r\n" + bytes(0x8000) + b"\r\n")
        await writer.drain()


async def dripping(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def silent(_path: str, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def many_headers(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: " + b"y" * 1000 + b"\r\n")
        await writer.drain()


D6 = {
    "/endless": (endless, "more than 100000 bytes"),
    "/chunked": (chunked, "more than 100000 bytes"),
    "/declared": (b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "more than 100000 bytes"),
    "/absurd": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "could not be fetched"),
    "/cut": (reply(AN_IMAGE).replace(b"Length: ", b"Length: 9"), "not valid"),
    "/more": (reply(AN_IMAGE).replace(b"Content-Length: ", b"Content-Length: -"), "not valid"),
    "/dripping": (dripping, "takes too long"),
    "/silent": (silent, "takes too long"),
    "/headers": (many_headers, "not valid"),
    "/gzip": (reply(gzip.compress(bytes(10_000_000)), "200 OK", "Content-Encoding: gzip"), "compressed"),
    "/html": (reply(b"<html>", media="text/html; charset=utf-8"), "no image"),
    "/error": (reply(AN_IMAGE, "500 Oops"), "answered with an error"),
    "/missing": (reply(b"", "404 Not Found"), "answered with an error"),
    "/lost": (reply(b"", "302 Found"), "answered with an error"),
    "/upgrade": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nxx",
        "not valid",
    ),
    "/ssh": (b"SSH-2.0-OpenSSH_9.6\r\n", "not valid"),
    "/nothing": (b"", "not valid"),
}


@pytest.mark.parametrize("path", D6)
async def test_servers_that_misbehave_are_cut_off(path: str) -> None:
    page, reason = D6[path]
    async with Web({path: page}, {"good.example": [PUBLIC]}) as web:  # type: ignore[dict-item]
        limits = SHORT if reason == "takes too long" else PATIENT
        refused = await refusal(web, f"http://good.example{path}", limits)
    assert reason in refused.reason


async def test_an_answer_that_comes_too_slowly_is_not_waited_for() -> None:
    async with Web({"/": dripping}, {"good.example": [PUBLIC]}) as web:
        refused = await refusal(web, "http://good.example/", PATIENT)
    assert "too slowly" in refused.reason


@pytest.mark.parametrize(
    "page",
    [
        reply(AN_IMAGE, media="IMAGE/PNG; x=y"),
        reply(AN_IMAGE, media="application/octet-stream"),
        b"HTTP/1.0 200 OK\r\n\r\n" + AN_IMAGE,
        b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + reply(AN_IMAGE),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-A: b\r\n\r\n"
        % (len(AN_IMAGE), AN_IMAGE),
    ],
)
async def test_answers_of_every_shape_are_read(page: bytes) -> None:
    async with Web({"/": page}, {"good.example": [PUBLIC]}) as web:
        assert await web.fetcher().fetch("http://good.example/") == AN_IMAGE


async def test_a_storm_to_one_host_is_held_back() -> None:
    """D10."""

    may_answer = asyncio.Event()

    async def slow(_path: str, writer: asyncio.StreamWriter) -> None:
        await may_answer.wait()
        writer.write(reply(AN_IMAGE))

    async with Web({"/": slow}, {"good.example": [PUBLIC]}) as web:
        fetcher = web.fetcher(PATIENT)
        fetching = asyncio.gather(*(fetcher.fetch("http://good.example/") for _ in range(40)))
        await until(lambda: web.num_open == 4)
        may_answer.set()
        assert await fetching == [AN_IMAGE] * 40 and web.max_open == 4


async def test_who_stops_waiting_leaves_nothing_open() -> None:
    async with Web({"/": silent}, {"good.example": [PUBLIC]}) as web:
        fetcher = web.fetcher()
        tasks = [asyncio.ensure_future(fetcher.fetch("http://good.example/")) for _ in range(6)]
        await until(lambda: len(web.heads) >= 4)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*tasks, return_exceptions=True)
        )
        web.pages["/"] = reply(AN_IMAGE)
        assert await asyncio.gather(*(fetcher.fetch("http://good.example/") for _ in range(4))) == [AN_IMAGE] * 4


async def test_the_next_address_is_tried() -> None:
    async with Web({"/": reply(AN_IMAGE)}, {"good.example": ["8.8.4.4", PUBLIC]}) as web:

        async def connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            if endpoint.address == "8.8.4.4":
                raise ConnectionRefusedError
            return await web.connect(endpoint)

        assert await Fetcher(resolve=web.resolve, connect=connect).fetch("http://good.example/") == AN_IMAGE


@pytest.mark.parametrize("error", [ConnectionRefusedError, ssl.SSLCertVerificationError, ValueError, TimeoutError])
async def test_a_host_that_cannot_be_reached_tells_nothing(error: type[Exception]) -> None:
    """D14: whatever went wrong, the words are the same."""

    async def connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise error("secret")

    async with Web(names={"good.example": [PUBLIC]}) as web:
        with pytest.raises(ImageRefused) as caught:
            await Fetcher(resolve=web.resolve, connect=connect).fetch("https://good.example/")
    assert caught.value.reason == "it could not be fetched: its host does not answer"


async def test_tls_wants_a_certificate_of_the_host(tmp_path: Path) -> None:
    """Trusted and of this name, or no byte of the request is sent."""
    certificate = make_certificate(tmp_path, "good.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply(AN_IMAGE))
        await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    allowed = AllowedHosts([("good.example", port), ("bad.example", port)])

    async def resolve(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    def fetcher(connector: SystemConnector) -> Fetcher:
        return Fetcher(allowed=allowed, resolve=resolve, connect=connector)

    trusting = SystemConnector(ssl.create_default_context(cafile=certificate))
    assert await fetcher(trusting).fetch(f"https://good.example:{port}/") == AN_IMAGE
    for connector, host in ((trusting, "bad.example"), (SystemConnector(), "good.example")):
        with pytest.raises(ImageRefused, match="does not answer"):
            await fetcher(connector).fetch(f"https://{host}:{port}/")
    assert len(asked) == 1
    server.close()


async def test_the_machine_s_own_resolver() -> None:
    assert await SystemResolver()("127.0.0.1", 80) == ["127.0.0.1"]
    with pytest.raises(OSError):
        await SystemResolver()("no-such-name.invalid", 80)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://A.example", "a.example", "/"),
        ("https://a.example:443/x%20y?z=[1]", "a.example", "/x%20y?z=[1]"),
        ("https://a.example:80/", "a.example:80", "/"),
        ("http://a.example?x", "a.example", "/?x"),
        ("http://[2606:4700:0::1]:443/", "[2606:4700::1]:443", "/"),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
    ],
)
def test_targets(url: str, authority: str, path: str) -> None:
    target = parse_target(url)
    assert (target.authority, target.path) == (authority, path)


def test_allowed_hosts() -> None:
    allowed = AllowedHosts([("Images.lan", None), ("10.0.0.7", 8080), ("fd00:0::7", 80)])
    yes = ["http://images.LAN/", "https://images.lan:9/", "http://10.0.0.7:8080/", "http://[fd00::0:7]/"]
    no = ["http://x.images.lan/", "http://10.0.0.7/", "http://[fd00::7]:81/", "http://10.0.0.8:8080/"]
    assert [allowed.has(parse_target(url)) for url in yes + no] == [True] * 4 + [False] * 4


async def test_an_answer_is_let_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is refused, whose error somebody holds, and without waiting for the collector."""
    bodies: list[bytearray] = []

    class Watched(exchange._Answer):
        def __post_init__(self) -> None:
            super().__post_init__()
            bodies.append(self.body)

    monkeypatch.setattr(exchange, "_Answer", Watched)
    large = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(150_000)
    async with Web({"/good": reply(AN_IMAGE), "/large": large}, {"good.example": [PUBLIC]}) as web:
        assert await web.fetcher(PATIENT).fetch("http://good.example/good") == AN_IMAGE
        refused = await refusal(web, "http://good.example/large", PATIENT)
    assert refused.__traceback__ is not None and [len(body) for body in bodies] == [0, 0]


ENDING = """
import asyncio, socket, sys, time
from proxy_inference_engine.images.fetcher import Fetcher, FetchLimits, ImageRefused
asked = []
socket.getaddrinfo = lambda *words, **more: (asked.append(words), time.sleep(600))
async def main():
    fetcher = Fetcher(FetchLimits(total_seconds=0.2))
    fetches = [fetcher.fetch(f"http://{number}.example/") for number in range(9)]
    outcomes = await asyncio.gather(*fetches, return_exceptions=True)
    assert all(isinstance(each, ImageRefused) for each in outcomes), outcomes
    while len(asked) < 4:  # threads that have begun may not have come as far as that
        await asyncio.sleep(0.01)
    print(len(asked))
asyncio.run(main())
"""


def test_a_name_server_that_does_not_answer_does_not_hold_up_the_end() -> None:
    """And few threads wait for it."""
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "4"), ended.stderr
