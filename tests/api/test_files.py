"""Files: what is uploaded comes back byte by byte; what is too much, too slow or no form leaves nothing."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import BadRequestError, OpenAI

from proxy_inference_engine.server.http import multipart
from proxy_inference_engine.store import FileLimits, Store, StoreLimits
from tests.api.running import HELLO, MODEL, Running, running
from tests.polling import HANG_S, wait_until

BOUNDARY = "xyz"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def part(name: str, value: bytes, file_name: str | None = None, extra: str = "") -> bytes:
    named = "" if file_name is None else f'; filename="{file_name}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{extra}\r\n'
    return head.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


PURPOSE = part("purpose", b"batch")
FILE = part("file", b"{}\n", "in.jsonl")


def send(http: httpx.Client, *parts: bytes) -> httpx.Response:
    return http.post("/v1/files", content=form(*parts), headers=FORM)


def test_bytes_come_back_as_they_were(client: OpenAI) -> None:
    data = bytes(range(256)) * 20_000 + b"\r\n--" + BOUNDARY.encode()
    file = client.files.create(file=("data.bin", data), purpose="user_data")
    assert file.bytes == len(data) and file.status == "processed" and file.filename == "data.bin"
    assert client.files.content(file.id).read() == data
    assert client.files.retrieve(file.id) == file
    assert client.files.delete(file.id).deleted


def test_an_empty_file_is_a_file(client: OpenAI) -> None:
    file = client.files.create(file=("empty", b""), purpose="user_data")
    assert file.bytes == 0 and client.files.content(file.id).read() == b""


def test_files_expire_when_they_are_told_to(client: OpenAI) -> None:
    file = client.files.create(
        file=("a", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(BadRequestError, match="seconds"):
        client.files.create(file=("a", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 1})


def test_lists_come_in_pages_and_by_purpose() -> None:
    with running() as live, live.openai() as client:
        ids = [
            client.files.create(file=("a", b"x"), purpose=purpose).id
            for purpose in ("batch", "user_data", "batch", "user_data", "batch")
        ]
        assert [file.id for file in client.files.list()] == ids[::-1]
        assert [file.id for file in client.files.list(order="asc", limit=2)] == ids, "the client turns the pages"
        assert [file.id for file in client.files.list(purpose="user_data", limit=1)] == [ids[3], ids[1]]
        assert client.files.list(after=ids[3]).data[0].id == ids[2]


@pytest.mark.parametrize(("query", "param"), [("limit=0", "limit"), ("purpose=x", "purpose"), ("a=b", "a")])
def test_wrong_queries(http: httpx.Client, query: str, param: str) -> None:
    answer = http.get(f"/v1/files?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


MANY_HEADERS = "".join(f"x-{number}: y\r\n" for number in range(100))
REFUSED: dict[str, tuple[bytes, int, str | None]] = {
    "no file": (form(PURPOSE), 400, "file"),
    "no purpose": (form(FILE), 400, "purpose"),
    "another purpose": (form(part("purpose", b"fine-tune"), FILE), 400, "purpose"),
    "two files": (form(PURPOSE, FILE, FILE), 400, "file"),
    "two purposes": (form(PURPOSE, PURPOSE, FILE), 400, "purpose"),
    "another field": (form(PURPOSE, FILE, part("more", b"1")), 400, "more"),
    "a long field": (form(part("purpose", b"x" * 5000), FILE), 400, "purpose"),
    "a purpose that is no text": (form(part("purpose", b"\xff"), FILE), 400, "purpose"),
    "many parts": (form(*[part("file", b"x", "a")] * 1, *[part(f"p{n}", b"") for n in range(30)]), 400, "p0"),
    "a part without a name": (f"--{BOUNDARY}\r\nContent-Type: text/plain\r\n\r\nx\r\n".encode() + form(), 400, None),
    "many headers": (form(part("file", b"x", "a", MANY_HEADERS)), 400, None),
    "a long header": (form(part("file", b"x", "a", "x-long: " + "y" * 10_000 + "\r\n")), 400, None),
    "no end": (PURPOSE + FILE, 400, None),
    "no form": (b"purpose=batch&file=x", 400, None),
    "nothing": (b"", 400, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_good_form_is_refused(http: httpx.Client, case: str) -> None:
    body, status, param = REFUSED[case]
    answer = http.post("/v1/files", content=body, headers=FORM)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data"}, 400),
        ({"content-type": f"multipart/form-data; boundary={'x' * 100}"}, 400),
        ({**FORM, "content-encoding": "gzip"}, 415),
        ({**FORM, "origin": "http://evil.example"}, 403),
        ({**FORM, "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_wrong_heads(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    assert http.post("/v1/files", content=form(PURPOSE, FILE), headers=headers).status_code == status


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\\\..\\\\boot.ini", "boot.ini"),
        ("/", "file"),
        ("..", ".."),
        ("a\tb", "ab"),
        ("x" * 1000, "x" * 255),
        ("grüße.jsonl", "grüße.jsonl"),
    ],
)
def test_the_name_of_a_file_is_a_label_and_never_a_path(http: httpx.Client, sent: str, shown: str) -> None:
    answer = send(http, PURPOSE, part("file", b"{}", sent))
    assert answer.status_code == 200 and answer.json()["filename"] == shown
    content = http.get(f"/v1/files/{answer.json()['id']}/content")
    assert content.content == b"{}" and "\n" not in content.headers["content-disposition"]


@pytest.mark.parametrize("id_", ["..", "%2e%2e", "%2e%2e%2fstore.db", "file-..", "local", "a" * 2000])
def test_an_id_is_never_a_path(http: httpx.Client, id_: str) -> None:
    for path in (f"/v1/files/{id_}", f"/v1/files/{id_}/content"):
        request = http.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert http.send(request).status_code == 404


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """2,000 bytes a file, 5,000 in all."""
    limits = StoreLimits(files=FileLimits(of_one=2000, of_owner=4500, of_all=5000))
    store = Store.open(tmp_path / "store.db", limits=limits)
    with running(store=store) as live:
        yield live, tmp_path / "files"
    store.close()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_that_is_too_large_is_refused_before_it_is_read(bounded: tuple[Running, Path]) -> None:
    live, folder = bounded
    with socket.create_connection(live.address, timeout=HANG_S) as sock:
        head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10 * 2**30}\r\n"
        sock.sendall(f"{head}Content-Type: {FORM['content-type']}\r\n\r\n".encode())
        assert b" 413 " in sock.recv(4096).split(b"\r\n")[0]
    assert not files_in(folder)


def test_a_file_without_a_length_is_cut_off_at_the_limit(
    bounded: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, folder = bounded
    monkeypatch.setattr(multipart, "PIECE_BYTES", 500)
    num_sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal num_sent
        yield PURPOSE + part("file", b"", "a")[:-2]
        while num_sent < 50_000_000:
            num_sent += 10_000
            yield b"x" * 10_000

    with live.http() as http:
        try:
            answer = http.post("/v1/files", content=endless(), headers=FORM)
            assert answer.status_code == 413 and answer.json()["error"]["code"] == "request_too_large"
        except httpx.TransportError:  # the server closed while it was still being sent to
            pass
    assert num_sent < 50_000_000
    wait_until(lambda: not files_in(folder))


def test_files_of_a_key_are_bounded_together(bounded: tuple[Running, Path]) -> None:
    live, folder = bounded
    with live.http() as http:
        kept = [send(http, PURPOSE, part("file", b"x" * 1900, "a")) for _ in range(3)]
        assert [answer.status_code for answer in kept] == [200, 200, 429]
        assert kept[2].json()["error"]["code"] == "insufficient_quota" and "retry-after" not in kept[2].headers
        assert len(files_in(folder)) == 2
        http.delete(f"/v1/files/{kept[0].json()['id']}")
        assert send(http, PURPOSE, part("file", b"x" * 1900, "a")).status_code == 200


def test_a_file_that_others_have_left_no_room_for_meanwhile_is_refused(bounded: tuple[Running, Path]) -> None:
    live, folder = bounded
    with live.http() as http:

        def slow() -> Iterator[bytes]:
            whole = form(PURPOSE, part("file", b"x" * 1900, "a"))
            yield whole[:-1950]
            wait_until(lambda: len(files_in(folder)) == 1)
            with live.http() as other:
                assert [send(other, PURPOSE, part("file", b"y" * 1900, "b")).status_code for _ in range(2)] == [200] * 2
            yield whole[-1950:]

        answer = http.post("/v1/files", content=slow(), headers=FORM)
        assert answer.status_code == 429 and answer.json()["error"]["code"] == "insufficient_quota"
        assert len(files_in(folder)) == 2


def test_a_client_that_leaves_leaves_nothing(bounded: tuple[Running, Path]) -> None:
    live, folder = bounded
    with socket.create_connection(live.address, timeout=HANG_S) as sock:
        head = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1500\r\n"
        sock.sendall(f"{head}Content-Type: {FORM['content-type']}\r\n\r\n".encode() + PURPOSE)
        wait_until(lambda: files_in(folder))
    wait_until(lambda: not files_in(folder))


def test_a_slow_upload_is_given_up(bounded: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    live, folder = bounded
    monkeypatch.setattr(multipart, "RECEIVE_SECONDS", 0.05)
    with socket.create_connection(live.address, timeout=HANG_S) as sock:
        head = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1500\r\n"
        sock.sendall(f"{head}Content-Type: {FORM['content-type']}\r\n\r\n".encode() + PURPOSE)
        assert b" 408 " in sock.recv(4096).split(b"\r\n")[0]
    wait_until(lambda: not files_in(folder))


def test_the_server_answers_after_all_that(server: Running, client: OpenAI) -> None:
    assert client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2).choices  # type: ignore[arg-type]
    server.wait_idle()
