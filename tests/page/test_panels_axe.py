"""axe-core over the views with something in them: an answer, plots, a tree, and the description of the API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running import MODEL, Running, running
from tests.page.test_shell import AXE, findings
from tests.page.test_structure import SHORT
from tests.page.visiting import Visitor


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
