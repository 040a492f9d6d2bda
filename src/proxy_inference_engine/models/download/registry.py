"""The package registry: where one file of a package lies. https://packaging.python.org/specifications/simple-repository-api/"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.source import Body
from proxy_inference_engine.models.download.web import ConnectionBroken, Refused, Web

_PUBLIC = "https://pypi.org/simple"
_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_MAX_PAGE_BYTES = 4 << 20
_NUM_TRIES = 3


class Registry:
    """A `FileSource` of files of one package, whose digests the caller knows."""

    def __init__(self, index: str = _PUBLIC, pause_s: float = 1.0) -> None:
        self.index = index.rstrip("/")
        if urlsplit(index).scheme not in ("http", "https") or not urlsplit(index).hostname:
            raise StartupError(f"the package index {index!r} should be an address such as {_PUBLIC}")
        self._web = Web(pause_s)
        self._addresses: dict[str, str] = {}

    @classmethod
    def from_environment(cls) -> "Registry":
        """The index that pip or uv would ask, as far as their variables say."""
        return cls(next((value for name in _VARIABLES if (value := os.environ.get(name, "").strip())), _PUBLIC))

    def find(self, package: str, file: RemoteFile) -> None:
        """Look up where a file lies. Raises StartupError."""
        page = f"{self.index}/{package}/"
        for number in range(_NUM_TRIES):
            try:
                links = _Links()
                links.feed(self._web.read(page, _MAX_PAGE_BYTES).decode(errors="replace"))
                break
            except (Refused, ConnectionBroken) as error:
                broken = error.as_broken() if isinstance(error, Refused) else error
                is_last = number + 1 == _NUM_TRIES or (isinstance(error, Refused) and not error.is_transient)
                if is_last:
                    raise StartupError(f"{page} cannot be read: {error} (is there a network?)") from None
                self._web.pause(number, broken)
        for link in links.found:
            address = urldefrag(urljoin(page, link)).url
            if urlsplit(address).path.rpartition("/")[2] == file.path:
                self._addresses[file.path] = address
                return
        raise StartupError(f"{page} has no {file.path}")

    def comes_in_pieces(self, file: RemoteFile) -> bool:
        return True

    @contextmanager
    def open(self, file: RemoteFile, start: int, end: int | None = None) -> Iterator[Body]:
        try:
            with self._web.open_file(self._addresses[file.path], file, start, end) as body:
                yield body
        except Refused as refusal:
            if refusal.is_transient:
                raise refusal.as_broken() from None
            raise StartupError(f"{refusal.url} cannot be read: {refusal}") from None

    def pause(self, num_failures: int, error: ConnectionBroken) -> None:
        self._web.pause(num_failures, error)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]
