"""All images of one request: fetched on the event loop, decoded in threads of their own, within limits.

Knows no wire format: an image that is refused is named by its index.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from proxy_inference_engine.images.budget import PixelBudget
from proxy_inference_engine.images.data_url import is_data_url, read_data_url
from proxy_inference_engine.images.decoder import decode
from proxy_inference_engine.images.refusal import ImageRefused
from proxy_inference_engine.types import Image

_NUM_DECODERS = 2
_MORE_IMAGES = 8  # with those of earlier turns a request may have so many times what its new ones may
_MORE_BYTES = 4  # all images of a request together may have so many times what one may
_MORE_PIXELS = 2
_HELD_PIXELS = 8  # the images of all requests together may have so many times what one may


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What the images of one request may come to."""

    max_images: int = 16  # that the model has not answered yet
    max_bytes: int = 10 * 1024 * 1024  # of one image, as a file
    max_pixels: int = 40_000_000  # of one image


class Fetches(Protocol):
    """Brings the bytes at a URL, as `fetcher.Fetcher` does."""

    async def fetch(self, url: str) -> bytes: ...


class ImageLoader:
    """`fetcher` None: only images inside their URL are taken."""

    def __init__(self, limits: ImageLimits, fetcher: Fetches | None, *, decoders: Executor | None = None) -> None:
        self._limits = limits
        self._fetcher = fetcher
        self._budget = PixelBudget(_HELD_PIXELS * limits.max_pixels)
        self._decoders = decoders or ThreadPoolExecutor(_NUM_DECODERS, thread_name_prefix="images")

    @property
    def max_loaded(self) -> int:
        """How many images one request may have, those of earlier turns included."""
        return _MORE_IMAGES * self._limits.max_images

    async def load(self, urls: Sequence[str], are_new: Sequence[bool] | None = None) -> list[Image]:
        """One image a URL, in their order; equal URLs are loaded once. Cancel the call to stop the work.

        `are_new`: which of them are no part of earlier turns; None: all. Raises ImageRefused for the first that is
        not taken, and QueueFull.
        """
        self._check_number([True] * len(urls) if are_new is None else are_new)
        tally = _Tally(self._limits)
        tasks = {url: asyncio.ensure_future(self._load(url, tally)) for url in dict.fromkeys(urls)}
        try:
            return [await _numbered(tasks[url], index) for index, url in enumerate(urls)]
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _check_number(self, are_new: Sequence[bool]) -> None:
        new = [index for index, is_new in enumerate(are_new) if is_new]
        everything = range(len(are_new))
        for indexes, most, which in (
            (new, self._limits.max_images, "images"),
            (everything, self.max_loaded, "images with those of its earlier turns"),
        ):
            if len(indexes) > most:
                refused = ImageRefused(f"a request may have at most {most} {which}", "too_many_images")
                refused.index = indexes[most]
                raise refused

    async def _load(self, url: str, tally: "_Tally") -> Image:
        if is_data_url(url):
            return await self._decode(lambda: tally.weighed(read_data_url(url, self._limits.max_bytes)), tally)
        if self._fetcher is None:
            raise ImageRefused("this server fetches no images: send it as a data URL", "url_not_allowed")
        data = await self._fetcher.fetch(url)
        try:
            tally.add_bytes(len(data))
        except ImageRefused:
            del data  # or the traceback would hold it until the others are there
            raise
        return await self._decode(lambda: data, tally)

    async def _decode(self, read: Callable[[], bytes], tally: "_Tally") -> Image:
        def work() -> Image:
            data = read()
            with self._budget.working() as reserved:

                def on_size(width: int, height: int) -> None:
                    tally.add_image(width, height)
                    reserved.add(width * height)

                return reserved.hand_over(decode(data, on_size))

        return await asyncio.get_running_loop().run_in_executor(self._decoders, work)


async def _numbered(loading: "asyncio.Future[Image]", index: int) -> Image:
    try:
        return await loading
    except ImageRefused as refused:
        refused.index = index
        raise


class _Tally:
    """What the images of one request come to, counted as soon as they are there, and before they are decoded."""

    def __init__(self, limits: ImageLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._num_bytes = self._num_pixels = 0

    def weighed(self, data: bytes) -> bytes:
        self.add_bytes(len(data))
        return data

    def add_bytes(self, num_bytes: int) -> None:
        most = _MORE_BYTES * self._limits.max_bytes
        with self._lock:
            self._num_bytes += num_bytes
            if self._num_bytes > most:
                raise ImageRefused(f"all images together have more than {most} bytes")

    def add_image(self, width: int, height: int) -> None:
        num_pixels, most = width * height, self._limits.max_pixels
        if num_pixels == 0:
            raise ImageRefused("the image has no pixels")
        if num_pixels > most:
            raise ImageRefused(f"the image has {num_pixels} pixels, and at most {most} are taken")
        with self._lock:
            self._num_pixels += num_pixels
            if self._num_pixels > _MORE_PIXELS * most:
                raise ImageRefused(f"all images together have more than {_MORE_PIXELS * most} pixels")
