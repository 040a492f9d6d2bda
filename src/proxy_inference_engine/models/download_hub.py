"""The Hugging Face hub over HTTP: the files of a repository at a revision, and their bytes from any offset.

Knows addresses, tokens, redirects and proxies; writes nothing to the disk. What the hub answers is not trusted.
https://huggingface.co/docs/hub/api
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
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

from proxy_inference_engine import __version__
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download_listing import MAX_LISTING_BYTES, Listing, RemoteFile, parse_listing
from proxy_inference_engine.models.hub import HubName

_PUBLIC = "https://huggingface.co"
_TIMEOUT_S = 30.0
_MAX_PAUSE_S = 60.0
_CHUNK_BYTES = 256 << 10
_NUM_LISTING_TRIES = 3
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class Broken(Exception):
    """A connection that failed in a way that may pass. The text says how."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = min(retry_after_s, _MAX_PAUSE_S)


class Hub:
    """One server, asked by one user."""

    def __init__(self, endpoint: str = _PUBLIC, token: str | None = None, pause_s: float = 1.0) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._pause_s = pause_s
        if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname:
            raise StartupError(f"HF_ENDPOINT {endpoint!r} should be an address such as {_PUBLIC}")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise StartupError("HF_TOKEN has characters that no token has")
        self._token = token
        self._opener = _make_opener()

    @classmethod
    def from_environment(cls) -> "Hub":
        """As Hugging Face's own tools: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
        return cls(os.environ.get("HF_ENDPOINT", "").strip() or _PUBLIC, _find_token())

    def list_files(self, name: HubName) -> Listing:
        """Raises StartupError."""
        url = f"{self.endpoint}/api/models/{name.repository}/revision/{quote(name.revision, safe='')}?blobs=true"
        for number in range(_NUM_LISTING_TRIES):
            try:
                with self._open(url, name) as response:
                    return parse_listing(_read(response, MAX_LISTING_BYTES + 1))
            except Broken as error:
                failure = error
                if number + 1 < _NUM_LISTING_TRIES:
                    self.pause(number, error)
            except ValueError as error:
                raise StartupError(f"{self.endpoint} answered with no list of files: {error}") from None
        raise StartupError(
            f"model {name.repository!r} is not in the Hugging Face cache, "
            f"and {self.endpoint} cannot be asked: {failure} (is there a network?)"
        )

    @contextmanager
    def open(self, name: HubName, commit: str, file: RemoteFile, offset: int) -> Iterator["Body"]:
        """The bytes of a file, from `offset` on if the server can. Raises Broken and StartupError."""
        url = f"{self.endpoint}/{name.repository}/resolve/{commit}/{quote(file.path)}"
        with self._open(url, name, offset) as response:
            start = offset if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise Broken("the server sent another range than it was asked for")
            length = response.headers.get("Content-Length")
            if length is not None and length != str(file.size - start):
                raise StartupError(
                    f"{file.path!r} of {name.repository!r} has not the {file.size} bytes that the hub says"
                )
            yield Body(start, response)

    def pause(self, num_failures: int, error: Broken) -> None:
        """Longer after each failure, and as long as the server wishes."""
        time.sleep(max(error.retry_after_s, min(self._pause_s * 2**num_failures, _MAX_PAUSE_S)))

    @contextmanager
    def _open(self, url: str, name: HubName, offset: int = 0) -> Iterator[http.client.HTTPResponse]:
        request = urllib.request.Request(url, headers={"User-Agent": f"proxy-inference-engine/{__version__}"})
        if offset:
            request.add_header("Range", f"bytes={offset}-")
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            response = self._opener.open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with closing(error):
                raise self._refusal(error, name) from None
        except urllib.error.URLError as error:
            raise _unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error) from None
        with closing(response):
            yield response

    def _refusal(self, error: urllib.error.HTTPError, name: HubName) -> Broken | StartupError:
        """What an answer that is no success means; one line that says what to do."""
        model, code = f"model {name.repository!r}", error.headers.get("X-Error-Code")
        has_token = self._token is not None
        # Where files are stored, a refusal is about an address that was signed for a while: a new one may do.
        is_hub = code is not None or urlsplit(error.url).netloc == urlsplit(self.endpoint).netloc
        if error.code in _TRANSIENT or not is_hub:
            wish = error.headers.get("Retry-After", "")
            return Broken(f"it answers {error.code}", float(wish) if wish.isascii() and wish.isdigit() else 0.0)
        if code == "RevisionNotFound":
            return StartupError(f"{model} has no revision {name.revision!r} on {self.endpoint}")
        if code == "GatedRepo" or error.code == http.HTTPStatus.FORBIDDEN:
            then = "your token (HF_TOKEN) has no access yet" if has_token else "then set HF_TOKEN to a token of yours"
            return StartupError(f"{model} is gated: accept its terms at {self.endpoint}/{name.repository}; {then}")
        if error.code == http.HTTPStatus.UNAUTHORIZED and has_token and code != "RepoNotFound":
            return StartupError(f"{self.endpoint} does not take your token (HF_TOKEN): set another, or none")
        if code == "RepoNotFound" or error.code == http.HTTPStatus.UNAUTHORIZED:
            hint = "" if has_token else "; if it is private, set HF_TOKEN to a token of yours"
            return StartupError(f"{model}: no such file or folder, and {self.endpoint} has no such model{hint}")
        return StartupError(f"{model}: {self.endpoint} answers {error.code} {code or ''}".rstrip())


class Body:
    """What a server sends of a file, from `start` on."""

    def __init__(self, start: int, response: http.client.HTTPResponse) -> None:
        self.start = start
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        """Raises Broken."""
        while True:
            try:
                chunk = self._response.read1(_CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise Broken(_describe(error)) from None
            if not chunk:
                return
            yield chunk


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to where files are stored, but never takes the token to another host, nor leaves TLS."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("https", "http") or (old.scheme, new.scheme) == ("https", "http"):
            fp.close()
            raise StartupError(f"the hub sends {old.scheme} on to {new.scheme}, which is not safe")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        token = req.get_header("Authorization")
        if request is not None and token is not None and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            request.add_unredirected_header("Authorization", token)
        return request


def _make_opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, through the environment's proxies."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _find_token() -> str | None:
    """HF_TOKEN, or what `hf auth login` has left."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
        path = os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")
        try:
            token = Path(os.path.expandvars(path)).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError, RuntimeError):
            token = ""
    return token or None


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    found = bytearray()
    for chunk in Body(0, response).chunks():
        found += chunk
        if len(found) >= max_bytes:
            return bytes(found)
    if response.length:
        raise Broken("the connection ended early")
    return bytes(found)


def _unreachable(reason: object) -> Broken | StartupError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return StartupError(
            f"the hub's certificate is not trusted ({reason.verify_message}): "
            "SSL_CERT_FILE names a file with those that are"
        )
    return Broken(_describe(reason))


def _describe(reason: object) -> str:
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return " ".join(str(text).split())
