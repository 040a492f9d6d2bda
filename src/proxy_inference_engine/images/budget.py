"""How many pixels may be in memory at once, of all requests together: those that are decoded and not yet let go."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.types import Image


class PixelBudget:
    """Safe to use from several threads."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._num_pixels = 0
        # Pixels may be given back by the garbage collector, which may begin in the middle of the counting.
        self._lock = RLock()

    @property
    def num_pixels(self) -> int:
        return self._num_pixels

    @contextmanager
    def working(self) -> Iterator["Reservation"]:
        """A reservation for as long as the context lasts: what is then not handed to an image is given back."""
        reserved = Reservation(self)
        try:
            yield reserved
        finally:
            self.give_back(reserved.num_pixels)

    def take(self, num_pixels: int) -> None:
        """Raises QueueFull."""
        with self._lock:
            if self._num_pixels + num_pixels > self._max_pixels:
                raise QueueFull("Too many images are being worked on; try again later.", retry_after_s=5)
            self._num_pixels += num_pixels

    def give_back(self, num_pixels: int) -> None:
        with self._lock:
            self._num_pixels -= num_pixels


class Reservation:
    """Pixels that one request has of the budget and that no image holds yet."""

    def __init__(self, budget: PixelBudget) -> None:
        self._budget = budget
        self.num_pixels = 0

    def add(self, num_pixels: int) -> None:
        """Raises QueueFull."""
        self._budget.take(num_pixels)
        self.num_pixels += num_pixels

    def hand_over(self, image: Image) -> Image:
        """Give the reserved pixels to an image: from now on they count for as long as somebody holds it."""
        weakref.finalize(image.pixels, self._budget.give_back, self.num_pixels).atexit = False
        self.num_pixels = 0
        return image
