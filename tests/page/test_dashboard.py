"""The dashboard: plots that move, requests that can be cancelled, and the tree of prefixes with what is shared."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, running
from tests.page.visiting import Visitor

# Each with the name of its plot. All but the answers that wait: in this server nobody has to.
FIGURES = [
    *("Throughput: generated /s", "Throughput: read /s", "First token: mean", "First token: p95"),
    *("Between tokens: mean", "Between tokens: p95", "Queue: running", "Batch size: tokens a step"),
    *("KV in use: tokens", "Prefix cache: held", "Cache hits: of prompt tokens"),
]
# Whether each of them has been above zero by now.
MOVED = """(wanted) => {
  window.moved ??= new Set();
  for (const value of document.querySelectorAll(".plot .value")) {
    const [number, name] = value.children;
    const title = value.closest(".plot").querySelector("h3").textContent;
    if (parseFloat(number.textContent) > 0) moved.add(`${title}: ${name.textContent}`);
  }
  return wanted.every((each) => moved.has(each));
}"""
EVIL = "<img src=x onerror=window.pwned=1>"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(FakeRunner(step_seconds=lambda _: 0.01, end_bias=-100)) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running) -> Iterator[Visitor]:
    made = Visitor(browser, server.url)
    made.go("Dashboard")
    made.page.wait_for_selector(".plot")
    yield made
    made.close()


def complete(server: Running, prompt: str, max_tokens: int = 4) -> int:
    with server.http() as http:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens}
        try:
            return http.post("/v1/completions", json=body).status_code
        except httpx.HTTPError:
            return 0


def test_the_plots_move(visitor: Visitor, server: Running) -> None:
    page = visitor.page
    page.wait_for_function("() => document.querySelector('.plot .line').getAttribute('d')")
    complete(server, "a prompt", 60)
    generated = "parseFloat(document.querySelector('.plot .value b').textContent) > 0"
    page.wait_for_function(
        f"() => {generated} || document.querySelector('.plot .line').getAttribute('d').includes('L')"
    )
    drawn = page.locator(".plot .line").first.get_attribute("d")
    page.wait_for_function("old => document.querySelector('.plot .line').getAttribute('d') !== old", arg=drawn)
    assert len(page.locator(".plot").all()) == 8
    label = page.locator(".plot svg[role=img]").first.get_attribute("aria-label")
    assert label is not None and label.startswith("Throughput: generated /s")


def test_every_plot_shows_what_happens(visitor: Visitor, server: Running) -> None:
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            complete(server, "a prompt that comes again and again", 30)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        visitor.page.wait_for_function(MOVED, arg=FIGURES)
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_a_running_request_is_listed_and_cancelled(visitor: Visitor, server: Running, width: int) -> None:
    visitor.page.set_viewport_size({"width": width, "height": 800})
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(complete(server, "for ever", 4000)))
    thread.start()
    row = visitor.page.locator(".requests tbody tr", has_text="/v1/completions")
    row.wait_for()
    button = row.get_by_role("button")
    box = button.bounding_box()
    assert box["x"] + box["width"] <= width, "it is seen without scrolling sideways"
    button.click()
    visitor.page.get_by_text("Nothing runs.").wait_for()
    thread.join()
    server.wait_idle()
    assert statuses != [200]


def test_the_tree_draws_what_is_shared(visitor: Visitor, server: Running) -> None:
    for end in ("red", "green", f"{EVIL}"):
        complete(server, f"{EVIL} is how all of these texts begin, and this one ends with {end}")
    server.wait_idle()
    page = visitor.page
    labels = "[...document.querySelectorAll('.block')].map((each) => each.getAttribute('aria-label'))"
    page.wait_for_function(f"() => {labels}.some((label) => /shared by 3/.test(label))")
    page.check("#tree-texts")
    page.locator(".tree text", has_text="<img").first.wait_for()
    page.locator(".block").first.focus()
    assert "tokens from place" in page.locator(".tree-told").inner_text()
    assert not page.locator(".panel img").count()


def test_going_elsewhere_ends_the_looking_and_coming_back_keeps_what_was_seen(visitor: Visitor) -> None:
    page = visitor.page
    page.wait_for_function("() => (document.querySelector('.plot .line').getAttribute('d') ?? '').includes('L')")
    visitor.go("Chat")
    page.wait_for_selector("#question")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert not [url for url in asked if "/admin/stats" in url or "/admin/cache" in url]
    visitor.go("Dashboard")
    assert "L" in (page.locator(".plot .line").first.get_attribute("d") or "")
