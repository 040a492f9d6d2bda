"""The description of the API as a page: read, searched and opened, offline and by the keyboard."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running import Running, running
from tests.page.visiting import Visitor


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running) -> Iterator[Visitor]:
    made = Visitor(browser, server.url)
    made.page.goto(f"{server.url}/docs")
    made.page.wait_for_selector(".operation")
    yield made
    made.close()


def test_every_route_is_there(visitor: Visitor) -> None:
    assert len(visitor.page.locator(".operation").all()) > 70
    assert visitor.page.locator("#routes a").count() == visitor.page.locator(".operation").count()


def test_fields_have_meanings_and_refusals(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#routes a", has_text="/v1/chat/completions").first.click()
    chat = page.locator("#post-v1-chat-completions")
    row = chat.locator("tr", has_text="temperature").first
    row.wait_for()
    assert "0 always takes the likeliest" in row.inner_text() and "a number from 0 to 2" in row.inner_text()
    chat.locator("summary", has_text="ChatMessage").first.click()
    chat.locator("tr", has_text="reasoning_content").first.wait_for()


def test_the_search_finds_routes_by_their_fields(visitor: Visitor) -> None:
    visitor.page.keyboard.press("/")
    visitor.page.keyboard.type("forced_tokens")
    visitor.page.locator("#status", has_text="routes").wait_for()
    paths = visitor.page.locator("#routes a").all_inner_texts()
    assert any("/v1/responses" in path for path in paths) and not any("/v1/embeddings" in path for path in paths)
    first = visitor.page.locator("#post-v1-chat-completions tbody tr").first
    assert first.inner_text().startswith("forced_tokens") and first.is_visible()
    visitor.page.fill("#filter", "<img src=x onerror=alert(1)>")
    visitor.page.get_by_text("Nothing has these words.").wait_for()


def test_a_phone_has_a_menu(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url, viewport={"width": 390, "height": 800})
    visitor.page.goto(f"{server.url}/docs")
    visitor.page.wait_for_selector(".operation")
    for close, key in ((visitor.page.click, "#scrim"), (visitor.page.keyboard.press, "Escape")):
        visitor.page.click("#menu")
        visitor.page.locator("#side.open").wait_for()
        close(key)
        visitor.page.locator("#side").wait_for(state="hidden")
    visitor.page.click("#menu")
    visitor.page.locator("#routes a").first.click()
    visitor.page.locator("#side").wait_for(state="hidden")
    assert visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.close()
