"""axe-core over the views with something in them: answers, branches, calls, plots, a tree, and what the API takes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running import MODEL, Running, running
from tests.api.writing import call
from tests.page.test_chat import TOOLS
from tests.page.test_shell import AXE, SIZES, findings
from tests.page.test_structure import SHORT
from tests.page.visiting import DONE, Script, Visitor


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as live, live.http() as http:
        for end in ("red", "green", "blue"):
            http.post("/v1/completions", json={"model": MODEL, "prompt": f"one beginning, {end}", "max_tokens": 2})
        live.wait_idle()
        yield live


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_views_that_are_full(browser: Any, server: Running, scheme: str) -> None:
    source = (AXE.folder() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    visitor = Visitor(browser, server.url, color_scheme=scheme)
    page = visitor.page
    visitor.go("Structure")
    page.wait_for_selector(".verdict-line")
    page.fill(".editor textarea", json.dumps(SHORT))
    page.click(".ask button")
    page.locator(".proof", has_text="Valid").wait_for()
    found = [*findings(page, source, "an answer")]
    page.fill(".editor textarea", json.dumps({"type": "array", "uniqueItems": True}))
    page.locator(".verdict", has_text="It cannot be enforced").wait_for()
    found += findings(page, source, "a refusal")
    visitor.go("Dashboard")
    page.locator(".block").first.wait_for()
    page.check("#tree-texts")
    page.locator(".tree text", has_text="one beginning").first.wait_for()
    found += findings(page, source, "the dashboard")
    page.goto(f"{server.url}/docs#post-v1-chat-completions")
    page.locator("#post-v1-chat-completions tr").first.wait_for()
    found += findings(page, source, "the docs")
    assert found == []
    visitor.close()


@pytest.fixture(scope="module")
def talker() -> Iterator[Running]:
    texts = {"hello": "Good day.", "weather": call("get_weather", city="Paris"), "sunny": "It is sunny."}
    with running(Script(texts)) as live:
        yield live


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_conversation_and_beside_it(browser: Any, talker: Running, scheme: str) -> None:
    """Branches, a call with its result, an edited question, dialogs, two answers side by side, a phone's menu."""
    source = (AXE.folder() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    visitor = Visitor(browser, talker.url, color_scheme=scheme)
    page = visitor.page
    page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps([{**TOOLS[0], "isOn": True}]))
    visitor.answered("@hello")
    visitor.button("Edit and ask again").click()
    found = [*findings(page, source, "an edit")]
    page.get_by_label("The question, edited").fill("@weather")
    visitor.button("Ask in a new branch").click()
    page.locator(".call textarea").fill("@sunny")
    visitor.button("Send the results and go on").click()
    page.locator(DONE, has_text="It is sunny.").wait_for()
    assert page.get_by_text("2 of 2").count() == 1
    found += findings(page, source, "branches and a call")
    for name in ("Rename, export or delete @hello", "API key", "Keyboard shortcuts (?)"):
        visitor.button(name).click()
        page.locator("dialog").wait_for()
        found += findings(page, source, name)
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")
    visitor.go("Compare")
    visitor.ask("@hello")
    page.locator(DONE).nth(1).wait_for()
    found += findings(page, source, "two answers")
    page.set_viewport_size(SIZES["phone"])
    page.click("#menu")
    page.locator("#side.open").wait_for()
    found += findings(page, source, "the menu")
    assert found == []
    visitor.close()
