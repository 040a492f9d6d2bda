"""HTTP for downloads: redirects, proxies, the system's certificates, and the bytes of a file from any offset.

Knows no hub and no registry. What a server says of ranges and lengths is compared with what was asked for.
"""

import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.message import Message
from typing import IO
from urllib.parse import urlsplit

import truststore

from proxy_inference_engine import __version__
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile

_TIMEOUT_S = 30.0
_MAX_PAUSE_S = 60.0
_CHUNK_BYTES = 256 << 10
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class ConnectionBroken(Exception):
    """A connection that failed in a way that may pass. The text says how."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = min(retry_after_s, _MAX_PAUSE_S)


class Refused(Exception):
    """An answer that is no success, for whoever asked to make sense of."""

    def __init__(self, status: int, headers: Message, url: str) -> None:
        super().__init__(f"it answers {status}")
        self.status = status
        self.headers = headers
        self.url = url

    @property
    def is_transient(self) -> bool:
        return self.status in _TRANSIENT

    def as_broken(self) -> ConnectionBroken:
        wish = self.headers.get("Retry-After", "")
        return ConnectionBroken(str(self), float(wish) if wish.isascii() and wish.isdigit() else 0.0)


class RangesRefused(Exception):
    """The server sends a file only from its beginning."""


class HttpBody:
    """What a server sends of a file, from `start` on. The tag, where there is one, changes with the file."""

    def __init__(self, start: int, response: http.client.HTTPResponse) -> None:
        self.start = start
        self.tag: str | None = response.headers.get("ETag")
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come. Raises ConnectionBroken."""
        while True:
            try:
                chunk = self._response.read1(_CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise ConnectionBroken(_describe(error)) from None
            if not chunk:
                return
            yield chunk


class Web:
    """One opener for all requests of a download."""

    def __init__(self, pause_s: float = 1.0) -> None:
        self._pause_s = pause_s
        self._opener = _make_opener(_Redirects())
        self._settled = _make_opener()

    def pause(self, num_failures: int, error: ConnectionBroken) -> None:
        """Wait after a failure: longer each time, and as long as the server wishes."""
        time.sleep(max(error.retry_after_s, min(self._pause_s * 2**num_failures, _MAX_PAUSE_S)))

    @contextmanager
    def open(
        self, url: str, authorization: str | None = None, wanted: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is a success; `wanted` is a range. Raises Refused, ConnectionBroken and StartupError."""
        request = _request(url, authorization)
        if wanted is not None:
            request.add_header("Range", wanted)
        with self._opened(self._opener, request) as response:
            yield response

    @contextmanager
    def _opened(
        self, opener: urllib.request.OpenerDirector, request: urllib.request.Request
    ) -> Iterator[http.client.HTTPResponse]:
        try:
            response = opener.open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with closing(error):
                raise Refused(error.code, error.headers, error.url) from None
        except urllib.error.URLError as error:
            raise _unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error) from None
        with closing(response):
            yield response

    def headers(self, url: str, authorization: str | None = None) -> Message:
        """The headers of the first answer, be it a redirect. Raises Refused, ConnectionBroken and StartupError."""
        try:
            with self._opened(self._settled, _request(url, authorization, method="HEAD")) as response:
                return response.headers
        except Refused as refusal:
            if refusal.status // 100 != 3:
                raise
            return refusal.headers

    def read(self, url: str, max_bytes: int, authorization: str | None = None) -> bytes:
        """A short text, of which no more than `max_bytes` are read. Raises what `open` does."""
        found = bytearray()
        with self.open(url, authorization) as response:
            for chunk in HttpBody(0, response).chunks():
                found += chunk
                if len(found) >= max_bytes:
                    return bytes(found)
            if response.length:
                raise ConnectionBroken("the connection ended early")
        return bytes(found)

    @contextmanager
    def open_file(
        self, url: str, file: RemoteFile, start: int, end: int | None, authorization: str | None = None
    ) -> Iterator[HttpBody]:
        """The bytes of a file from `start` on if the server can; with an `end` exactly those, or RangesRefused."""
        wanted = None if not start and end is None else f"bytes={start}-{'' if end is None else end - 1}"
        with self.open(url, authorization, wanted) as response:
            is_part = response.status == http.HTTPStatus.PARTIAL_CONTENT
            if end is not None and not is_part:
                raise RangesRefused
            start = start if is_part else 0
            last = (file.size if end is None else end) - 1
            if is_part and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-{last}/"):
                raise ConnectionBroken("the server sent another range than it was asked for")
            length = response.headers.get("Content-Length")
            if length is not None and length != str(last + 1 - start):
                raise StartupError(f"{file.path!r} has not the {file.size} bytes that it should have")
            yield HttpBody(start, response)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to where files are stored, but never takes what opens one host to another, nor leaves TLS."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("https", "http") or (old.scheme, new.scheme) == ("https", "http"):
            fp.close()
            raise StartupError(f"{old.hostname} sends {old.scheme} on to {new.scheme}, which is not safe")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        authorization = req.get_header("Authorization")
        if request is not None and authorization is not None and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            request.add_unredirected_header("Authorization", authorization)
        return request


def _request(url: str, authorization: str | None, method: str = "GET") -> urllib.request.Request:
    agent = {"User-Agent": f"proxy-inference-engine/{__version__}"}
    request = urllib.request.Request(url, headers=agent, method=method)
    if authorization is not None:
        request.add_unredirected_header("Authorization", authorization)
    return request


def _make_opener(*more: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, through the environment's proxies."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_certificates()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        *more,
    ):
        opener.add_handler(handler)
    return opener


def _certificates() -> ssl.SSLContext:
    """Certificates that the environment names; else the system's own, which not every Python finds by itself."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context()
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _unreachable(reason: object) -> ConnectionBroken | StartupError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return StartupError(
            f"the server's certificate is not trusted ({reason.verify_message}): "
            "SSL_CERT_FILE names a file with those that are"
        )
    return ConnectionBroken(_describe(reason))


def _describe(reason: object) -> str:
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return " ".join(str(text).split())
