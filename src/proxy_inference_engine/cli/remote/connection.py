"""HTTP to a running server: JSON in, JSON or a stream of events out. Knows no endpoint, and goes through no proxy."""

import contextlib
import http.client
import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from proxy_inference_engine import __version__
from proxy_inference_engine.errors import PieError, StartupError

_TIMEOUT_S = 30.0
_DATA, _DONE = b"data:", "[DONE]"
_IGNORED_HEADER = "X-PIE-Ignored"


class ServerRefusal(PieError):
    """The server answered with an error: its own words."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status


class Unreachable(StartupError):
    """Nobody answers at the address, or stops in the middle."""


class ServerConnection:
    """A server's address and the key for it. Each call opens a connection of its own, so any thread may call."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Raises StartupError for what is no address, and for a key that no header can hold."""
        parts = _parts(url)
        if parts is None:
            raise StartupError(f"server: {url!r} is no address; http://127.0.0.1:8000 is one")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise StartupError("client_key: there are signs in it that no API key has")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self.key = key
        self._parts = urlsplit(self.url)

    def get(self, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
        """Raises ServerRefusal and Unreachable."""
        with self._asked("GET", path, None, timeout_s) as response:
            return _read(response)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises ServerRefusal and Unreachable."""
        with self._asked("POST", path, body, _TIMEOUT_S) as response:
            return _read(response)

    def events(self, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The objects of an event stream; the first has what the headers say was ignored, under `ignored`.

        Closing the generator closes the connection. Raises ServerRefusal and Unreachable.
        """
        with self._asked("POST", path, body, None) as response:
            yield {"ignored": tuple(filter(None, response.headers.get(_IGNORED_HEADER, "").split(", ")))}
            for text in _datas(response):
                if text == _DONE:
                    return
                found = json.loads(text)
                if isinstance(found.get("error"), dict):
                    raise _refusal(500, found)
                yield found
            raise Unreachable(f"{self.url} ended the answer in the middle")

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        make = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        assert self._parts.hostname is not None
        connection = make(self._parts.hostname, self._parts.port, timeout=timeout_s)
        with contextlib.closing(connection):
            try:
                text = None if body is None else json.dumps(body).encode()
                connection.request(method, self._parts.path + path, text, self._headers(text is not None))
                response = connection.getresponse()
                if response.status >= 400:
                    raise _refusal(response.status, _json_or_none(response.read()))
                yield response
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{self.url} does not answer: {_reason(error)}") from None

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"User-Agent": f"pie/{__version__}"}
        if has_body:
            headers["Content-Type"] = "application/json"
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers


def _parts(url: str) -> SplitResult | None:
    """None where it is no address that HTTP could be spoken with."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        return None
    return parts if is_address and url.isprintable() and " " not in url else None


def _datas(response: http.client.HTTPResponse) -> Iterator[str]:
    """The data of each event, as it comes; pings and names are left out."""
    while line := response.readline():
        if line.startswith(_DATA):
            yield line.removeprefix(_DATA).strip().decode()


def _read(response: http.client.HTTPResponse) -> Any:
    found = _json_or_none(response.read())
    if found is None:
        raise Unreachable("what answers there is no server of ours: it sent no JSON")
    return found


def _json_or_none(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _refusal(status: int, body: Any) -> ServerRefusal:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return ServerRefusal(status, f"the server answers {status}")
    return ServerRefusal(status, error["message"], error.get("code"))


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
