"""The files of one repository at one commit, as a source: by plain HTTP, large ones by hf-xet where that is there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proxy_inference_engine.models.download import parallel
from proxy_inference_engine.models.download.hub import Hub
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.source import Body
from proxy_inference_engine.models.download.web import ConnectionBroken
from proxy_inference_engine.models.download.xet import Xet, has_xet
from proxy_inference_engine.models.hub import HubName


class HubFiles:
    """A `FileSource`."""

    def __init__(self, hub: Hub, name: HubName, commit: str, say: Callable[[str], None]) -> None:
        self._hub, self._name, self._commit = hub, name, commit
        self._say = say
        self._wants_xet = has_xet()
        self._xet: Xet | None = None
        self._hashes: dict[str, str | None] = {}

    def comes_in_pieces(self, file: RemoteFile) -> bool:
        return self._xet_hash(file) is None

    @contextmanager
    def open(self, file: RemoteFile, start: int, end: int | None = None) -> Iterator[Body]:
        xet_hash = self._xet_hash(file) if end is None else None
        if xet_hash is None:
            with self._hub.open(self._name, self._commit, file, start, end) as body:
                yield body
            return
        try:
            if self._xet is None:
                self._xet = Xet(self._hub.xet_address(self._name, self._commit), self._hub.token)
            with self._xet.open(xet_hash, file.size, start) as body:
                yield body
        except ConnectionBroken as error:
            self._wants_xet = False
            self._say(f"going on without hf-xet ({error})")
            raise

    def pause(self, num_failures: int, error: ConnectionBroken) -> None:
        self._hub.pause(num_failures, error)

    def _xet_hash(self, file: RemoteFile) -> str | None:
        """None where hf-xet is not to be used; asked for once a file."""
        if not self._wants_xet or not file.is_lfs or file.size < parallel.large_bytes():
            return None
        if file.digest not in self._hashes:
            self._hashes[file.digest] = self._hub.xet_hash(self._name, self._commit, file)
        return self._hashes[file.digest]
