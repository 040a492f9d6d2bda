"""All images of a request: in order, each once, within limits, and not on the event loop."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.images import ImageLimits, ImageLoader, ImageRefused
from proxy_inference_engine.images import budget as budget_module
from proxy_inference_engine.images.budget import PixelBudget
from proxy_inference_engine.types import Image
from tests.images import blue, data_url, plain, png, red
from tests.polling import HANG_S, until
from tests.unit.images.web import PUBLIC, Web, reply

NAMES = {"good.example": [PUBLIC]}


async def refusal(loader: ImageLoader, urls: Sequence[str]) -> ImageRefused:
    with pytest.raises(ImageRefused) as caught:
        await loader.load(urls)
    return caught.value


async def test_images_come_in_order_and_equal_urls_are_loaded_once() -> None:
    async with Web({"/a": reply(plain(7, 5))}, NAMES) as web:
        loader = ImageLoader(ImageLimits(), web.fetcher())
        images = await loader.load([red(3, 2), "http://good.example/a", blue(4, 4), "http://good.example/a", red(3, 2)])
    assert [image.pixels.shape for image in images] == [(2, 3, 3), (5, 7, 3), (4, 4, 3), (5, 7, 3), (2, 3, 3)]
    assert images[1] is images[3] and images[0] is images[4] and len(web.connected) == 1
    assert await loader.load([]) == []


async def test_the_first_that_is_refused_is_named() -> None:
    async with Web({"/a": reply(plain(7, 5))}, NAMES) as web:
        loader = ImageLoader(ImageLimits(), web.fetcher())
        for index, url in enumerate(["data:x", "http://10.0.0.1/", "http://good.example/none", data_url(b"nothing")]):
            urls = [red(), "http://good.example/a"][:index] + [red()] * max(index - 2, 0)
            assert (await refusal(loader, [*urls, url, "file:///x"])).index == index


async def test_without_a_fetcher_only_data_urls_are_read() -> None:
    loader = ImageLoader(ImageLimits(), None)
    assert (await refusal(loader, [red(), "https://good.example/a"])).code == "url_not_allowed"


LIMITS: list[tuple[ImageLimits, list[str], str, int]] = [
    (ImageLimits(max_images=2), [red(), red(), red()], "at most 2 images", 2),
    (ImageLimits(max_images=16), ["http://good.example/a"] * 10_000, "at most 16 images", 16),
    (ImageLimits(max_bytes=60), [red()], "more than 60 bytes", 0),
    (ImageLimits(max_bytes=100), [red(size) for size in range(1, 9)], "together have more than 400 bytes", -1),
    (ImageLimits(max_pixels=100), [red(10, 10), red(10, 11)], "110 pixels, and at most 100", 1),
    (ImageLimits(max_pixels=100), [red(10, 10), blue(10, 10), red(1, 1)], "together have more than 200 pixels", -1),
    (ImageLimits(), [data_url(png(65535, 65535, b""))], "4294836225 pixels", 0),
    (ImageLimits(), [data_url(png(0, 5, b""))], "the image", 0),
]


@pytest.mark.parametrize(("limits", "urls", "reason", "index"), LIMITS, ids=range(len(LIMITS)))
async def test_limits(limits: ImageLimits, urls: list[str], reason: str, index: int) -> None:
    """D10 among them: by count, before any is fetched."""
    async with Web(names=NAMES) as web:
        refused = await refusal(ImageLoader(limits, web.fetcher()), urls)
    assert reason in refused.reason and (refused.index == index or index < 0)
    assert not web.connected


@pytest.mark.parametrize(
    ("are_new", "reason", "index"),
    [
        ([False] * 14 + [True] * 2, None, 0),
        ([True, False, True, False, True], "at most 2 images", 4),
        ([False] * 15 + [True] * 2, "at most 16 images with those", 16),
        ([False] * 17, "at most 16 images with those", 16),
    ],
)
async def test_images_of_earlier_turns_have_a_limit_of_their_own(
    are_new: list[bool], reason: str | None, index: int
) -> None:
    loader = ImageLoader(ImageLimits(max_images=2), None)
    urls = [red()] * len(are_new)
    if reason is None:
        assert len(await loader.load(urls, are_new)) == len(urls) == loader.max_loaded
        return
    with pytest.raises(ImageRefused) as caught:
        await loader.load(urls, are_new)
    assert (caught.value.code, caught.value.index) == ("too_many_images", index) and reason in caught.value.reason


async def test_the_event_loop_goes_on_while_a_large_image_is_decoded() -> None:
    """The thread decodes when the loop says so, which it could not if it waited for it."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    class Held(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]  # as the library's
            def work() -> object:
                has_begun.set()
                assert may_go_on.wait(HANG_S)
                return fn(*args, **kwargs)

            return super().submit(work)

    with Held(1) as pool:
        loader = ImageLoader(ImageLimits(), None, decoders=pool)
        loading = asyncio.ensure_future(loader.load([data_url(plain(2000, 2000))]))
        await until(has_begun.is_set)
        may_go_on.set()
        [image] = await loading
    assert image.pixels.shape == (2000, 2000, 3)


async def test_who_stops_waiting_stops_the_fetches() -> None:
    async def silent(_path: str, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with Web({"/a": silent}, NAMES) as web:
        loading = asyncio.ensure_future(ImageLoader(ImageLimits(), web.fetcher()).load(["http://good.example/a"]))
        await until(lambda: web.heads)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert len(asyncio.all_tasks()) <= 2  # this one, and the server's


async def test_few_threads_decode() -> None:
    names: set[str] = set()

    class Watched(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]  # as the library's
            def work() -> object:
                names.add(threading.current_thread().name)
                return fn(*args, **kwargs)

            return super().submit(work)

    with Watched(2, thread_name_prefix="few") as pool:
        await ImageLoader(ImageLimits(), None, decoders=pool).load([red(size) for size in range(1, 17)])
    assert names <= {"few_0", "few_1"}


async def test_pixels_of_all_requests_are_bounded_until_they_are_let_go() -> None:
    loader = ImageLoader(ImageLimits(max_pixels=100), None)
    held = [await loader.load([red(10, 10), blue(10, 10)]) for _ in range(4)]
    with pytest.raises(QueueFull) as caught:
        await loader.load([red(1, 1)])
    assert caught.value.status == 429
    await refusal(loader, [red(10, 11)])  # takes nothing with it
    held.pop()
    gc.collect()
    assert await num_loaded(loader, [red(10, 10), blue(10, 10)]) == 2
    await refusal(loader, [data_url(plain(9, 9)[:-30])])
    assert await num_loaded(loader, [red(10, 10), blue(10, 10)]) == 2


async def num_loaded(loader: ImageLoader, urls: Sequence[str]) -> int:
    """The thread that decoded the last image may hold it a moment longer than we do."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                return len(await loader.load(urls))
            except QueueFull:
                await asyncio.sleep(0.01)


async def test_what_was_fetched_in_vain_is_not_held() -> None:
    """While a slow image is waited for, and none is decoded: four may be held, whatever is behind the others."""

    class Data(bytearray):
        """Can be watched."""

    fetched: list[weakref.ref[Data]] = []

    class Slow:
        async def fetch(self, _url: str) -> bytes:
            data = Data(plain(4, 4))
            fetched.append(weakref.ref(data))
            return data  # type: ignore[return-value]  # as good as bytes

    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(go_on.wait)
        loader = ImageLoader(ImageLimits(max_bytes=len(plain(4, 4))), Slow(), decoders=pool)
        loading = asyncio.ensure_future(loader.load([f"http://good.example/{number}" for number in range(16)]))
        await until(lambda: len(fetched) == 16)
        num_held = sum(data() is not None for data in fetched)
        go_on.set()
        with pytest.raises(ImageRefused) as caught:
            await loading
    assert (len(fetched), num_held, caught.value.index) == (16, 4, 4)


def test_pixels_may_be_given_back_in_the_middle_of_the_counting() -> None:
    """A cycle that holds an image is found by the collector, which may begin at any allocation."""
    budget = PixelBudget(100)

    def count() -> None:
        with budget.working() as reserved:
            reserved.add(100)
            image = reserved.hand_over(Image(bytes(32), np.zeros((10, 10, 3), np.uint8)))
        cycle: list[object] = [image]
        cycle.append(cycle)
        del image, cycle
        with suppress(QueueFull):
            budget.take(1)

    class Collected(QueueFull):
        def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
            gc.collect()
            super().__init__(message, retry_after_s=retry_after_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "QueueFull", Collected)
        counting = threading.Thread(target=count, daemon=True)
        counting.start()
        counting.join(HANG_S)
        assert not counting.is_alive() and budget.num_pixels == 0
