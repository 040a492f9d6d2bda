"""How far a download of several files is, for whoever watches it."""

from proxy_inference_engine.models.watcher import Watcher


class DownloadProgress:
    """Sums up for the watcher. Nothing is shown before it is known how much there is to come."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._num_bytes = 0
        self._total_bytes: int | None = None

    def begin(self, num_present: int, total_bytes: int) -> None:
        self._num_bytes, self._total_bytes = num_present, total_bytes
        self.advance(0)

    def advance(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._total_bytes is not None:
            # Another program may have filled a file between two looks at it.
            self._watcher.show(min(self._num_bytes, self._total_bytes), self._total_bytes)
