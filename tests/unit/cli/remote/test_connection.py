"""What a command makes of whatever answers at a server's address: ours, another's, or one that breaks off."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from proxy_inference_engine.cli.remote.connection import ServerConnection, ServerRefusal, Unreachable
from proxy_inference_engine.cli.remote.running_server import find_server, need_server
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

CHUNK = b'data: {"choices": []}\n\n'


@contextmanager
def answering(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """A server with these answers, by path; what it knows nothing of is 404. It ends each connection."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b"{}"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def models(owner: str) -> bytes:
    model = {"id": "a", "owned_by": owner, "state": "ready", "context_length": 64, "memory_bytes": None}
    return json.dumps({"data": [model]}).encode()


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/health": (200, b"fine")},
        {"/health": (200, b"{}"), "/v1/models": (200, models("somebody"))},
        {"/health": (200, b"{}"), "/v1/models": (200, b"[]")},
        {"/health": (500, b"oh")},
    ],
)
def test_another_server_is_not_ours(answers: dict[str, tuple[int, bytes]]) -> None:
    """At our port it is passed over; where it was named, that is an error."""
    with answering(answers) as url:
        port = int(url.rpartition(":")[2])
        assert find_server(Config(port=port)) is None
        with pytest.raises((Unreachable, ServerRefusal)):
            find_server(Config(server=url))
        with pytest.raises(StartupError, match="pie serve"):
            need_server(Config(port=port))


def test_ours_is_found_by_its_address_with_or_without_v1() -> None:
    answers = {"/health": (200, b"{}"), "/v1/models": (200, models("proxy-inference-engine"))}
    with answering(answers) as url:
        for address in (url, f"{url}/v1", f"{url}/", url.removeprefix("http://")):
            found = find_server(Config(server=address))
            assert found is not None and (found.url, found.names) == (url, ["a"])
    assert find_server(Config(server="none")) is None


@pytest.mark.parametrize(
    ("status", "key", "said"),
    [
        (401, None, "wants an API key: set PIE_CLIENT_KEY"),
        (401, "sk-old", "does not know this API key: set PIE_CLIENT_KEY"),
        (403, "sk-old", "refuses: This Host is not served here."),
    ],
)
def test_a_key_that_is_missing_or_wrong_is_said_so(status: int, key: str | None, said: str) -> None:
    refused = (status, b'{"error": {"message": "This Host is not served here.", "code": "invalid_api_key"}}')
    with (
        answering({"/health": (200, b"{}"), "/v1/models": refused}) as url,
        pytest.raises(StartupError, match=said),
    ):
        find_server(Config(server=url, client_key=key))


def test_streams_that_end_well_and_badly() -> None:
    answers = {
        "/good": (200, b": ping\n\n" + CHUNK + b"data: [DONE]\n\n"),
        "/cut": (200, CHUNK),
        "/broken": (200, CHUNK + b'data: {"error": {"message": "It broke.", "code": "engine_failure"}}\n\n'),
        "/refused": (400, b'{"error": {"message": "Too hot.", "code": "x"}}'),
        "/odd": (502, b"<html>"),
    }
    with answering(answers) as url:
        connection = ServerConnection(url)
        assert list(connection.events("/good", {})) == [{"ignored": ()}, {"choices": []}]
        with pytest.raises(Unreachable, match="in the middle"):
            list(connection.events("/cut", {}))
        for path, words in (("/broken", "It broke."), ("/refused", "Too hot."), ("/odd", "502")):
            with pytest.raises(ServerRefusal, match=words):
                list(connection.events(path, {}))
    with pytest.raises(Unreachable, match="does not answer"):
        connection.get("/good")


@pytest.mark.parametrize(
    "url",
    ["", "ftp://here", "http://", "a b", "http://a b/v1", "here:99999", "here:x", "here:0", "http://[::1", "a\nb"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(StartupError, match="no address"):
        ServerConnection(url)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "\x00"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(StartupError, match="no API key"):
        ServerConnection("http://127.0.0.1:9", key)
