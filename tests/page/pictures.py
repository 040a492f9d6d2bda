"""`python -m tests.page.pictures`: takes the pictures in docs/pictures anew; `… FOLDER` puts them elsewhere.

The bundled model answers, but for the conversation with code and formulas: that one is written down here. Look at each
picture before it is committed.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.models.resolve import BUNDLED_WORD, resolve
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server.app import image_loader
from tests import hub as hubs
from tests.api.running import Running, listening, running
from tests.model.conftest import make_runner
from tests.page.conftest import chromium
from tests.page.test_bundled import QUESTION, settle
from tests.page.test_chat import TOOLS
from tests.page.visiting import Script, Visitor
from tests.unit.models.test_fit import gguf

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDE, MIDDLE, PHONE = ({"width": width, "height": height} for width, height in ((1200, 840), (1120, 700), (390, 780)))
TOUR = r"""<think>
A definition, a small example, and why it ends.
</think>

## Recursion, briefly

A function that calls *itself* on a **smaller** problem. See [the page](https://en.wikipedia.org/wiki/Recursion).

```python
def factorial(n: int) -> int:
    return 1 if n <= 1 else n * factorial(n - 1)  # one step
```

The sum of the first $n$ numbers is $\frac{n(n+1)}{2}$, and

$$\int_{-\infty}^{\infty} e^{-x^2}\,dx = \sqrt{\pi}, \qquad \sum_{k=1}^{n} k^2 = \frac{n(n+1)(2n+1)}{6}$$
"""
QUESTIONS = ("Write about the sea.", "Write about the moon.", "Write about a river.")
NUM_POINTS = 40  # of the dashboard's plots

Shot = Callable[[Visitor, str], None]


class Tour(Script):
    """Writes it whatever is asked, as fast as a small model would."""

    def __init__(self) -> None:
        super().__init__({"tour": TOUR})
        self.pause = 0.01

    def _turn(self, slot: int, ids: list[int], start: int) -> int:
        return 0


def take_chat(browser: Any, shot: Shot) -> None:
    config, worker = Config(drain_seconds=0.2), Worker(StepEngine(Tour(), max_cache_bytes=1 << 20))
    worker.start()
    with listening([ServedModel.of(worker, config, name="example-model")], config) as live:
        for name, size, scheme in (("page-chat", MIDDLE, "light"), ("page-phone", PHONE, "dark")):
            visitor = Visitor(browser, live.url, viewport=size, color_scheme=scheme)
            visitor.answered("Explain recursion, with a small Python example.")
            shot(visitor, name)
    worker.stop()


def take_tokens(browser: Any, server: Running, shot: Shot) -> None:
    visitor = Visitor(browser, server.url, viewport=MIDDLE)
    settle(visitor, 60)
    visitor.button("Probabilities").click()
    visitor.answered(QUESTION)
    visitor.answered("And what is it famous for?", 1)
    visitor.button("Tokens").nth(1).click()
    visitor.page.locator(".token").nth(8).hover()
    visitor.page.locator(".alternatives").wait_for()
    shot(visitor, "page-tokens")


def take_tools(browser: Any, server: Running, shot: Shot) -> None:
    visitor = Visitor(browser, server.url, viewport=MIDDLE, color_scheme="dark")
    visitor.page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps([{**TOOLS[0], "isOn": True}]))
    settle(visitor, 64, Tools_are_called="required")
    visitor.ask("How is the weather in Paris?")
    visitor.page.get_by_role("region", name="Call of get_weather").get_by_role("textbox").fill("sunny, 21 °C")
    shot(visitor, "page-tools")


def take_structure(browser: Any, server: Running, shot: Shot) -> None:
    visitor = Visitor(browser, server.url, viewport=WIDE)
    visitor.go("Structure")
    visitor.page.locator(".verdict-line.good").wait_for()
    visitor.page.locator(".ask button").click()
    visitor.page.locator(".proof .chip").wait_for()
    shot(visitor, "page-structure")


def take_dashboard(browser: Any, server: Running, shot: Shot) -> None:
    visitor = Visitor(browser, server.url, viewport=WIDE)
    visitor.go("Dashboard")
    is_over = threading.Event()

    def ask(question: str) -> None:
        """One answer after the other, until the picture is taken."""
        with server.http() as http:
            while not is_over.is_set():
                body = {"model": "default", "messages": [{"role": "user", "content": question}], "max_tokens": 24}
                http.post("/v1/chat/completions", json=body)

    threads = [threading.Thread(target=ask, args=(question,)) for question in QUESTIONS]
    for thread in threads:
        thread.start()
    try:
        enough = "n => document.querySelector('.plot .line')?.getAttribute('d')?.split('L').length > n"
        visitor.page.wait_for_function(enough, arg=NUM_POINTS, timeout=10 * 1000 * NUM_POINTS)
        visitor.page.locator(".requests tbody tr").nth(1).wait_for()
        shot(visitor, "page-dashboard")
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def pooled(folder: Path) -> Iterator[tuple[str, hubs.Hub]]:
    """The bundled model in a pool, and a hub with two more: the address, and the hub."""
    config = Config(context=4096, slots=4, convert_weights="never", drain_seconds=0.2)
    pool = ModelPool(
        [PoolEntry(BUNDLED_WORD, config)], EngineLoader(4 << 30, Threads(), image_loader), max_bytes=4 << 30
    )
    os.environ["HF_HOME"] = str(folder)
    with hubs.serving() as hub:
        os.environ["HF_ENDPOINT"] = hub.endpoint
        hub.repositories["example/tiny-GGUF"] = {"tiny-Q4_K_M.gguf": gguf(24 << 20), "tiny-Q8_0.gguf": gguf(48 << 20)}
        hub.repositories["example/small-GGUF"] = {"small-Q8_0.gguf": gguf(64 << 20)}
        try:
            with listening(pool, config) as live:
                yield live.url, hub
        finally:
            for model in pool.loaded():
                model.close()


def take_models(browser: Any, shot: Shot) -> None:
    with tempfile.TemporaryDirectory() as folder, pooled(Path(folder)) as (url, hub):
        httpx.post(f"{url}/admin/models/{BUNDLED_WORD}/load", timeout=60).raise_for_status()
        visitor = Visitor(browser, url, viewport=WIDE)
        page = visitor.page
        visitor.go("Models")
        visitor.search_hub("example")
        page.locator(".result summary", has_text="tiny").click()
        page.get_by_role("button", name="Does it fit? example/tiny-GGUF:tiny-Q4_K_M").click()
        page.locator(".fit-line", has_text="It fits").wait_for()
        hub.stalls = [20 << 20]
        page.get_by_role("button", name="Pull example/tiny-GGUF:tiny-Q8_0").click()
        page.wait_for_function("() => document.querySelector('.pull progress')?.value > 0.3")
        page.locator(".model .chip", has_text="ready").wait_for()
        where = "each => (each.textContent = each.textContent.replace(/^.*(?=.site-packages)/, '~/.venv'))"
        page.locator(".facts dd").last.evaluate(where)
        shot(visitor, "page-models")
        hub.release.set()


def save(visitor: Visitor, path: Path) -> None:
    """Of every dot its true colour, in as few bytes as that takes."""
    Image.open(BytesIO(visitor.page.screenshot(animations="disabled"))).convert("RGB").save(path, optimize=True)
    visitor.close()
    print(path.name, f"{path.stat().st_size / 1024:.0f} KB", flush=True)


def main(folder: Path) -> None:
    def shot(visitor: Visitor, name: str) -> None:
        save(visitor, folder / f"{name}.png")

    with chromium() as browser:
        take_chat(browser, shot)
        with running(make_runner(resolve(None).path, is_exact=True), max_cache_bytes=64 << 20) as server:
            for take in (take_tokens, take_tools, take_structure, take_dashboard):
                take(browser, server, shot)
        take_models(browser, shot)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
