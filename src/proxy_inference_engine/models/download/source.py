"""Where a file's bytes come from, as those see it who write them to the disk."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.web import ConnectionBroken


class Body(Protocol):
    """Bytes of a file, from `start` on. The tag, where there is one, changes with the file."""

    start: int
    tag: str | None

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come. Raises ConnectionBroken."""
        ...


class FileSource(Protocol):
    def comes_in_pieces(self, file: RemoteFile) -> bool:
        """Whether a large file comes faster over several connections; not where the source has several by itself."""
        ...

    def open(self, file: RemoteFile, start: int, end: int | None = None) -> AbstractContextManager[Body]:
        """Bytes from `start` on, or from the beginning where the server has no ranges; with an `end` exactly those.

        Raises ConnectionBroken, RangesRefused and StartupError.
        """
        ...

    def pause(self, num_failures: int, error: ConnectionBroken) -> None:
        """Wait before the next try."""
        ...
