"""The page over the bundled model: a real conversation, with real probabilities, branches and two settings."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy_inference_engine.models.resolve import resolve
from tests.api.running import Running, running
from tests.model.conftest import make_runner
from tests.page.visiting import DONE, Visitor

pytestmark = pytest.mark.model

QUESTION = "What is the capital of France? Answer briefly."
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(make_runner(resolve(None).path, is_exact=True), max_cache_bytes=64 << 20) as live:
        yield live


def test_a_conversation_with_probabilities_and_another_way_on(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url)
    page = visitor.page
    visitor.button("Settings").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens").fill("24")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    visitor.button("Probabilities").click()
    assert visitor.answered(QUESTION) == ANSWER
    visitor.button("Tokens").click()
    tokens = page.locator(".token")
    assert "".join(tokens.all_inner_texts()).strip() == ANSWER
    tokens.nth(0).focus()
    others = page.get_by_role("button", name="Continue from here with")
    others.nth(1).click()
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE).wait_for()
    said = page.locator(f"{DONE} .tokens").inner_text()
    assert said and not said.startswith("The capital")
    figures = page.locator(".figures").inner_text()
    assert "prompt tokens cached" in figures and not figures.startswith("0 of")
    visitor.answered("And of Italy?", 1)
    page.reload()
    page.locator(DONE).nth(1).wait_for()
    visitor.close()
    server.wait_idle()
