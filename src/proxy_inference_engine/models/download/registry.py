"""The package registry: where one file of a package lies. https://packaging.python.org/specifications/simple-repository-api/"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.package_index import PUBLIC, find_index
from proxy_inference_engine.models.download.source import Body
from proxy_inference_engine.models.download.web import ConnectionBroken, Refused, Web

_MAX_PAGE_BYTES = 4 << 20
_NUM_TRIES = 3


class Registry:
    """A `FileSource` of files of one package, whose digests the caller knows."""

    def __init__(self, index: str = PUBLIC, pause_s: float = 1.0) -> None:
        self.index, self._authorization = _without_credentials(index.rstrip("/"))
        if urlsplit(self.index).scheme not in ("http", "https") or not urlsplit(self.index).hostname:
            raise StartupError(f"the package index {self.index!r} should be an address such as {PUBLIC}")
        self._web = Web(pause_s)
        self._addresses: dict[str, str] = {}

    @classmethod
    def from_environment(cls) -> "Registry":
        return cls(find_index())

    def find(self, package: str, file: RemoteFile) -> None:
        """Look up where a file lies. Raises StartupError."""
        page = f"{self.index}/{package}/"
        links = _Links()
        links.feed(self._read(page).decode(errors="replace"))
        for link in links.found:
            address = urldefrag(urljoin(page, link)).url
            if urlsplit(address).path.rpartition("/")[2] == file.path:
                self._addresses[file.path] = address
                return
        raise StartupError(f"{page} has no {file.path}")

    def _read(self, page: str) -> bytes:
        for number in range(_NUM_TRIES):
            try:
                return self._web.read(page, _MAX_PAGE_BYTES, self._authorization)
            except Refused as refusal:
                if not refusal.is_transient:
                    raise StartupError(f"{page} cannot be read: {refusal}") from None
                failure = refusal.as_broken()
            except ConnectionBroken as error:
                failure = error
            if number + 1 < _NUM_TRIES:
                self._web.pause(number, failure)
        raise StartupError(f"{page} cannot be read: {failure} (is there a network?)")

    def comes_in_pieces(self, file: RemoteFile) -> bool:
        return True

    @contextmanager
    def open(self, file: RemoteFile, start: int, end: int | None = None) -> Iterator[Body]:
        address, authorization = _without_credentials(self._addresses[file.path])
        if authorization is None and _origin(address) == _origin(self.index):
            authorization = self._authorization  # which no other host is shown
        try:
            with self._web.open_file(address, file, start, end, authorization) as body:
                yield body
        except Refused as refusal:
            if refusal.is_transient:
                raise refusal.as_broken() from None
            raise StartupError(f"{refusal.url} cannot be read: {refusal}") from None

    def pause(self, num_failures: int, error: ConnectionBroken) -> None:
        self._web.pause(num_failures, error)


def _without_credentials(url: str) -> tuple[str, str | None]:
    """The address, which may be shown, and the header for the name and the password in it."""
    parts = urlsplit(url)
    credentials, _, host = parts.netloc.rpartition("@")
    name, _, password = credentials.partition(":")
    said = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {said}" if credentials else None


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]
