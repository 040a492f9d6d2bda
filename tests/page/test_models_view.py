"""The models view: what is served, loading and unloading by hand, and a model searched, judged, pulled and loaded."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.pool.entry import PoolEntry
from tests import hub as hubs
from tests.api.pools import SIZE, FakeLoader, PoolServer, pool_server
from tests.hub import Hub
from tests.page.test_shell import AXE, findings
from tests.page.visiting import Visitor
from tests.unit.models.test_fit import gguf

NAME = "owner/tiny"
EVIL = "<img src=x onerror=window.pwned=1>"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hubs.own_cache(tmp_path, monkeypatch)
    with hubs.serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.repositories[NAME] = {"tiny-Q8_0.gguf": gguf()}
        yield hub


@pytest.fixture
def server(hub: Hub) -> Iterator[PoolServer]:
    loader = FakeLoader(broken={"broken"})
    entries = [PoolEntry(name, Config()) for name in ("first", "second", "broken", EVIL)]
    with pool_server(*entries, loader=loader) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: PoolServer) -> Iterator[Visitor]:
    made = Visitor(browser, server.live.url)
    made.go("Models")
    made.page.wait_for_selector(".model")
    yield made
    made.close()


def card(visitor: Visitor, name: str) -> Any:
    return visitor.page.locator(".model", has=visitor.page.get_by_role("heading", name=name, exact=True))


def test_load_pin_and_unload(visitor: Visitor) -> None:
    first = card(visitor, "first")
    first.get_by_role("button", name="Load").click()
    first.locator(".chip", has_text="ready").wait_for()
    first.locator(".facts", has_text=re.compile("memory\\s*100 MiB: .* KV, 1 MiB prefixes")).wait_for()
    assert "100 MiB of 200 MiB" in visitor.page.locator(".memory").inner_text()
    first.get_by_role("button", name="Pin").click()
    first.get_by_role("button", name="Pinned").wait_for()
    first.get_by_role("button", name="Unload").click()
    first.locator(".chip", has_text="unloaded").wait_for()


def test_what_is_not_loaded_says_what_it_needs(visitor: Visitor, server: PoolServer) -> None:
    """Also on a phone, where the words beside the heading go, the room that is left stays."""
    card(visitor, "first").locator(".facts", has_text=re.compile(r"needs\s*100 MiB(?!,)")).wait_for()
    server.pool._loads.max_bytes = SIZE // 2
    card(visitor, "first").locator(".facts", has_text="100 MiB, more than all may have").wait_for()
    visitor.page.set_viewport_size({"width": 360, "height": 740})
    assert visitor.page.locator(".memory").get_by_text("0 B of 50 MiB").is_visible()
    assert not visitor.page.get_by_text("where it lies").is_visible()


@pytest.mark.parametrize("view", ["chat", "structure", "compare"])
def test_a_long_name_pushes_nothing_out_of_a_phone(browser: Any, view: str) -> None:
    names = ("short", "owner/a-model-with-a-name-that-goes-on-and-on-GGUF:Q4_K_M")
    with pool_server(*(PoolEntry(name, Config()) for name in names)) as live:
        visitor = Visitor(browser, live.live.url, viewport={"width": 360, "height": 740})
        visitor.page.goto(f"{live.live.url}/#/{view}")
        for name in names:
            visitor.page.locator(".model-picker").first.select_option(name)
            assert visitor.page.locator(".picker").first.evaluate("each => each.getBoundingClientRect().right") <= 360
            assert visitor.page.locator(".view").evaluate("each => each.scrollWidth") <= 360
            assert visitor.page.locator(".view > *").first.evaluate("each => each.scrollWidth <= each.clientWidth")
        visitor.close()


def test_a_load_that_fails_says_why(visitor: Visitor) -> None:
    broken = card(visitor, "broken")
    broken.get_by_role("button", name="Load").click()
    broken.locator(".error", has_text="it is broken").wait_for()


def test_a_model_is_searched_judged_pulled_and_loaded(visitor: Visitor, hub: Hub) -> None:
    page = visitor.page
    visitor.search_hub("tiny")
    page.locator(".result summary").click()
    page.get_by_role("button", name=f"Does it fit? {NAME}:tiny-Q8_0").click()
    page.locator(".fit-line", has_text="It fits").wait_for()
    assert all(each.range for each in hub.asked if "/stored/" in each.path), "weights came"
    hub.stalls = [1 << 20]
    page.get_by_role("button", name=f"Pull {NAME}:tiny-Q8_0").click()
    page.locator(".pull", has_text="downloading").wait_for()
    page.wait_for_function("() => document.querySelector('.pull progress').value > 0")
    hub.release.set()
    page.locator(".pull", has_text="It is here, and can be loaded above.").wait_for()
    pulled = card(visitor, f"{NAME}:tiny-Q8_0")
    pulled.get_by_role("button", name="Load").click()
    pulled.locator(".chip", has_text="ready").wait_for()
    visitor.page.locator(".facts", has_text="tiny-Q8_0.gguf").wait_for()


def test_axe_finds_nothing_serious_while_one_comes(visitor: Visitor, hub: Hub) -> None:
    source = (AXE.folder() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    page = visitor.page
    visitor.search_hub(NAME)
    page.get_by_role("button", name=f"Does it fit? {NAME}:tiny-Q8_0").click()
    page.locator(".fit-line", has_text="It fits").wait_for()
    hub.stalls = [1 << 20]
    page.get_by_role("button", name=f"Pull {NAME}:tiny-Q8_0").click()
    page.wait_for_function("() => document.querySelector('.pull progress')?.value > 0")
    card(visitor, "broken").get_by_role("button", name="Load").click()
    card(visitor, "broken").locator(".error", has_text="it is broken").wait_for()
    card(visitor, "first").get_by_role("button", name="Load").click()
    card(visitor, "first").locator(".chip", has_text="ready").wait_for()
    found: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += findings(page, source, scheme)
    hub.release.set()
    assert found == []


def test_an_earlier_search_that_answers_later_is_not_shown(visitor: Visitor, hub: Hub) -> None:
    page = visitor.page
    held: list[Any] = []
    page.route("**/admin/hub/search?q=nothing", lambda route: held.append(route))
    with page.expect_request("**/admin/hub/search?q=nothing"):
        visitor.search_hub("nothing")
    visitor.search_hub("tiny")
    page.locator(".result", has_text=NAME).wait_for()
    with page.expect_response("**/admin/hub/search?q=nothing") as answer:
        held[0].continue_()
    answer.value.finished()
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # whoever waited for it has had it
    assert page.locator(".result", has_text=NAME).count() == 1


def test_tabs_that_nobody_sees_keep_no_connection(visitor: Visitor, server: PoolServer) -> None:
    """A browser has six to a server: three tabs that follow two streams each would leave none for a search."""
    hide = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }});"
    turn = hide + "document.dispatchEvent(new Event('visibilitychange'));"
    for _ in range(3):
        tab = visitor.context.new_page()
        tab.goto(f"{server.live.url}/#/models")
        tab.locator(".model").first.wait_for()
        tab.evaluate(turn.format("true"))
    visitor.search_hub("tiny")
    visitor.page.locator(".result", has_text=NAME).wait_for()
    card(visitor, "first").get_by_role("button", name="Load").click()
    card(visitor, "first").locator(".chip", has_text="ready").wait_for()
    tab.evaluate(turn.format("false"))
    tab.locator(".model .chip", has_text="ready").wait_for()


def test_a_pull_is_cancelled(visitor: Visitor, hub: Hub) -> None:
    hub.stalls = [1 << 20]
    visitor.search_hub(NAME)
    visitor.page.get_by_role("button", name=f"Pull {NAME}:tiny-Q8_0").click()
    visitor.page.locator(".pull").get_by_role("button", name="Cancel").click()
    hub.release.set()
    visitor.page.locator(".pull .chip", has_text="cancelled").wait_for()


def test_what_does_not_fit_says_why(visitor: Visitor, hub: Hub) -> None:
    hub.repositories[NAME] = {"tiny-Q8_0.gguf": gguf(64 << 20)}
    visitor.search_hub(NAME)
    visitor.page.get_by_role("button", name=f"Does it fit? {NAME}:tiny-Q8_0").click()
    visitor.page.locator(".fit-line", has_text="fit").wait_for()


def test_hostile_names_stay_text(visitor: Visitor, hub: Hub) -> None:
    assert card(visitor, EVIL).count() == 1
    hub.listing = [{"id": "a/b", "tags": [EVIL], "downloads": EVIL}]
    visitor.search_hub(EVIL)
    visitor.page.locator(".result", has_text="a/b").wait_for()
    hub.listing = {"sha": "0" * 40, "siblings": [{"rfilename": f"{EVIL}.gguf", "size": 5, "blobId": "0" * 40}]}
    visitor.page.locator(".result summary").click()
    visitor.page.locator(".variants", has_text=EVIL).or_(visitor.page.locator(".variants .error")).first.wait_for()
    assert not visitor.page.locator(".panel img, .panel script").count()


def test_without_an_admins_key_it_says_so(browser: Any, hub: Hub) -> None:
    keys = (ApiKey("anna", "key-of-anna"), ApiKey("root", "key-of-root", is_admin=True))
    with pool_server(PoolEntry("first", Config()), config=Config(api_keys=keys, drain_seconds=0.2)) as live:
        visitor = Visitor(browser, live.live.url)
        visitor.page.evaluate("localStorage.setItem('pie.key', 'key-of-anna')")
        visitor.page.wait_for_selector("dialog[open] input")
        visitor.page.fill("dialog[open] input", "key-of-anna")
        visitor.page.keyboard.press("Enter")
        visitor.page.wait_for_selector("dialog", state="detached")
        for view in ("models", "dashboard"):
            visitor.page.goto(f"{live.live.url}/#/{view}")
            visitor.page.locator(".needs-key").wait_for()
        visitor.close()
