"""Large files by hf-xet, where that package is installed: Hugging Face's own way, which asks many servers at once.

https://huggingface.co/docs/hub/xet. It sends bytes in their order from any offset, so they are kept and checked like
those of plain HTTP, which everything goes on with after its first failure.
"""

import contextlib
import importlib.util
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from queue import Full, Queue
from typing import Any

from proxy_inference_engine.models.download.web import ConnectionBroken

_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_WAITING = 16  # chunks between the library and the disk
_TRUE = ("1", "on", "yes", "true")


def has_xet() -> bool:
    """Whether it is installed and wanted. It is not imported for that."""
    is_off = os.environ.get("HF_HUB_DISABLE_XET", "").lower() in _TRUE
    return not is_off and importlib.util.find_spec("hf_xet") is not None


def is_xet_hash(text: str | None) -> bool:
    return text is not None and _HASH.fullmatch(text) is not None


class XetBody:
    """What comes of a file by hf-xet, from `start` on. A `Body` without a tag: the name of the bytes is their hash.

    The library waits in Rust, where Ctrl-C does not reach; so a thread waits for it.
    """

    def __init__(self, start: int, begin: Callable[[], Any]) -> None:
        self.start = start
        self.tag: str | None = None
        self._begin = begin  # the iterator over the bytes that are still to come
        self._came: Queue[bytes | Exception | None] = Queue(_MAX_WAITING)
        self._is_over = threading.Event()

    def chunks(self) -> Iterator[bytes]:
        """Raises ConnectionBroken."""
        threading.Thread(target=self._pump, name="download", daemon=True).start()
        while (item := self._came.get()) is not None:
            if isinstance(item, Exception):
                raise ConnectionBroken(f"hf-xet: {' '.join(str(item).split())}")
            yield item

    def close(self) -> None:
        self._is_over.set()

    def _pump(self) -> None:
        try:
            stream = self._begin()
            for chunk in stream:
                if not self._hand_over(bytes(chunk)):
                    stream.cancel()
                    return
            self._hand_over(None)
        except Exception as error:  # the library has errors of its own, and those of Rust
            self._hand_over(error)

    def _hand_over(self, item: bytes | Exception | None) -> bool:
        """False where nobody reads any more."""
        while not self._is_over.is_set():
            with contextlib.suppress(Full):
                self._came.put(item, timeout=1.0)
                return True
        return False


class Xet:
    """One repository at one commit. The token goes to the hub's own address alone, for one that opens the storage."""

    def __init__(self, token_url: str, token: str | None) -> None:
        import hf_xet

        self._library = hf_xet
        self._token_url = token_url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session = hf_xet.XetSession()

    @contextmanager
    def open(self, xet_hash: str, size: int, start: int) -> Iterator[XetBody]:
        def begin() -> Any:
            group = self._session.new_download_stream_group(
                token_refresh_url=self._token_url, token_refresh_headers=self._headers
            )
            return group.download_stream(self._library.XetFileInfo(xet_hash, size), start, size)

        with closing(XetBody(start, begin)) as body:
            yield body
