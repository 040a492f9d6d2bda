"""Around the views: routes, the key, themes, widths, the keyboard, weight, and what axe-core finds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.server.page.content import PAGE, VERSION
from tests.api.clients import Client
from tests.api.running import Running, running
from tests.page.visiting import DONE, Script, Visitor

AXE = Client("axe", "npm", ("axe-core@4.14.0",))
SIZES = {
    "phone": {"width": 360, "height": 700},
    "tablet": {"width": 800, "height": 900},
    "wide": {"width": 1600, "height": 900},
}
SECRETS = """() => new Promise((done) => {
  const text = (data) => new TextDecoder("latin1").decode(data);
  const told = (each) => [each.extractable, JSON.stringify(each), text(each.data)].join(" ");
  indexedDB.open("pie").onsuccess = ({ target: { result: base } }) => {
    const asked = base.transaction("secrets").objectStore("secrets").getAll();
    asked.onsuccess = () => done(asked.result.map(told));
  };
})"""
TOOLS = [{"name": "f", "description": "Does something.", "parameters": {"type": "object"}, "isOn": True}]
MAX_BYTES = 500_000
TEXT = (
    "# Title\n\nSome *text* with `code`.\n\n```python\nprint('x')  # y\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$x^2$"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(Script({"tour": f"<think>\nHm.\n</think>\n\n{TEXT}"})) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running) -> Iterator[Visitor]:
    made = Visitor(browser, server.url)
    yield made
    made.close()


def views(page: Any) -> list[str]:
    page.locator("#views a").first.wait_for(state="attached")
    return [link.get_attribute("href") for link in page.locator("#views a").all()]


def open_view(page: Any, view: str) -> None:
    page.evaluate("view => (location.hash = view)", view)
    page.locator(f".view-{view.removeprefix('#/')} > *").first.wait_for()


def wait_for_modules(page: Any) -> None:
    """Also for those of views that nobody has opened."""
    have = "performance.getEntriesByType('resource').map((each) => each.name.split('/').at(-1))"
    names = [name for name in PAGE if name.endswith(".js") and name not in ("docs.js", "theme.js")]
    page.wait_for_function(f"names => {have}.filter((each) => names.includes(each)).length >= names.length", arg=names)


def test_it_asks_for_a_key_once_and_keeps_it_unreadable(browser: Any) -> None:
    config = Config(api_keys=(ApiKey("anna", "sesame-open-please"),), drain_seconds=0.2)
    with running(Script({"hi": "Hello."}), config=config) as live:
        visitor = Visitor(browser, live.url)
        page = visitor.page
        page.get_by_role("dialog").get_by_text("This server wants an API key.").wait_for()
        page.locator("dialog #key").fill("wrong")
        with page.expect_response(lambda response: response.status == 401):
            page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_text("The server does not know this key.").wait_for()
        page.locator("dialog #key").fill("sesame-open-please")
        page.keyboard.press("Enter")
        page.locator(".model-picker option").wait_for(state="attached")
        assert visitor.answered("@hi") == "Hello."
        page.reload()
        assert visitor.answered("@hi", 1) == "Hello."
        assert page.locator("dialog").count() == 0
        page.click("#code")
        for tab in page.get_by_role("tab").all():
            tab.click()
            code = page.locator(".sample").inner_text()
            assert "YOUR_KEY" in code and "sesame" not in code
        page.keyboard.press("Escape")
        kept = page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href")
        assert "sesame" not in kept
        secrets = page.evaluate(SECRETS)
        assert any(each.startswith("false ") for each in secrets), "a key that the browser does not hand out"
        assert len(secrets) == 2 and not any("sesame" in each for each in secrets)
        visitor.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_view_needs_sideways_scrolling(browser: Any, server: Running, size: str, scheme: str) -> None:
    visitor = Visitor(browser, server.url, viewport=SIZES[size], color_scheme=scheme)
    page = visitor.page
    visitor.answered("@tour")
    hint = page.evaluate("getComputedStyle(document.querySelector('#question'), '::placeholder').color")
    assert hint == {"light": "rgb(105, 97, 87)", "dark": "rgb(170, 161, 149)"}[scheme], "it can be read"
    for view in views(page):
        open_view(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], view
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(250, 248, 244)", "dark": "rgb(25, 24, 22)"}[scheme]
    if size == "phone":
        page.click("#menu")
        page.locator("#side.open").wait_for()
        page.keyboard.press("Escape")
        page.locator("#side.open").wait_for(state="detached")
    visitor.close()


def test_on_a_phone_a_tap_beside_the_menu_closes_it_and_presses_nothing(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url, viewport=SIZES["phone"])
    page = visitor.page
    page.fill("#question", "@tour")
    page.click("#menu")
    page.locator("#side.open").wait_for()
    send = page.locator("#send").bounding_box()
    page.mouse.click(send["x"] + send["width"] - 8, send["y"] + send["height"] / 2)
    page.locator("#side.open").wait_for(state="detached")
    assert page.locator("#question").input_value() == "@tour" and not page.locator(".turn").count()
    page.click("#menu")
    visitor.button("Close the menu").press("Enter")
    page.locator("#side.open").wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "menu"
    visitor.close()


def test_a_view_that_was_left_before_it_came_leaves_nothing_behind(browser: Any, server: Running) -> None:
    """The chat waits for the browser's store; whoever goes on meanwhile has no list of conversations beside models."""
    late = """
        const all = IDBObjectStore.prototype.getAll;
        IDBObjectStore.prototype.getAll = function () {
          const asked = all.call(this), told = {};
          asked.onsuccess = () => (window.release = () => { told.result = asked.result; told.onsuccess(); });
          return told;
        };
    """
    visitor = Visitor(browser, "about:blank")
    visitor.url = server.url
    visitor.context.add_init_script(late)
    visitor.page.goto(server.url)
    visitor.page.wait_for_function("() => window.release")
    visitor.go("Models")
    visitor.page.locator(".model").first.wait_for()
    visitor.page.evaluate("() => { release(); return new Promise((done) => setTimeout(done)); }")
    assert visitor.page.locator("#side-view").inner_text() == ""
    visitor.context.close()


def test_a_view_that_comes_late_takes_nobodys_place(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, "about:blank")
    visitor.url = server.url
    held: list[Any] = []
    visitor.page.route("**/models.js", lambda route: held.append(route))
    with visitor.page.expect_request("**/models.js"):
        visitor.page.goto(f"{server.url}/#/models")
    visitor.go("Tools")
    visitor.page.locator("#tool-json").wait_for()
    with visitor.page.expect_response("**/models.js") as answer:
        held[0].continue_()
    answer.value.finished()
    wait_for_modules(visitor.page)
    assert visitor.page.locator("#tool-json").count() == 1
    visitor.context.close()


def test_a_chosen_theme_stays(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#question").wait_for()
    for _ in range(2):
        page.keyboard.press("Alt+t")
    page.reload()
    page.locator("#question").wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_everything_is_reached_with_the_keyboard(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#question:focus").wait_for()
    page.keyboard.type("@tour")
    page.keyboard.press("Enter")
    page.locator(DONE).wait_for()
    page.locator("#talk").focus()
    page.keyboard.press("?")
    page.locator("dialog kbd").first.wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+s")
    page.get_by_label("System prompt").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA", "where one would type"
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.locator("#search:focus").wait_for()
    page.keyboard.press("Alt+2")
    page.locator(".sides").wait_for()
    page.keyboard.press("Alt+1")
    page.locator(DONE).wait_for()
    for _ in range(60):  # Tab alone comes to every control: the last of the answer's here
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.title") == "Answer again":
            break
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2").wait_for()


def test_a_route_that_is_no_view_shows_the_chat(visitor: Visitor) -> None:
    visitor.page.evaluate("location.hash = '#/<img src=x onerror=alert(1)>'")
    visitor.page.locator(".view-chat").wait_for()


def test_views_open_when_the_server_has_ended_and_say_so(browser: Any) -> None:
    with running() as live:
        visitor = Visitor(browser, live.url)
        page = visitor.page
        wait_for_modules(page)
        visitor.go("Dashboard")
        page.locator(".live").wait_for()
    page.locator(".live").wait_for(state="hidden")
    page.locator("#status.error", has_text="The server cannot be reached.").wait_for()
    parts = {"Compare": ".sides", "Structure": ".editor", "Tools": "#tool-json", "Models": ".hub", "Chat": "#question"}
    for view, part in parts.items():
        visitor.go(view)
        page.locator(part).wait_for()
        page.locator("#status.error", has_text="The server cannot be reached.").wait_for()
    visitor.close()


def test_the_page_is_light(visitor: Visitor) -> None:
    """Beside what it holds: what a visit to every view loads."""
    page = visitor.page
    for view in views(page):
        open_view(page, view)
    loaded = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    assert len(loaded) > 10 and all(name.startswith(visitor.url) for name in loaded)
    assert sum(len(file.data) for file in PAGE.values()) < MAX_BYTES


def test_a_second_visit_loads_no_file_again(visitor: Visitor) -> None:
    """And in no visit does the first paint wait for one."""
    page = visitor.page
    wait_for_modules(page)
    page.goto("about:blank")
    page.goto(visitor.url)
    page.locator("#question").wait_for()
    files = page.evaluate(
        "performance.getEntriesByType('resource').map("
        "(each) => [each.name, each.transferSize, each.renderBlockingStatus])"
    )
    of_page = [each for each in files if f"/page/{VERSION}/" in each[0]]
    assert len(of_page) > 10 and [each for each in of_page if each[1]] == []
    assert {blocking for _, _, blocking in files} == {"non-blocking"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, server: Running, scheme: str) -> None:
    source = (AXE.folder() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    visitor = Visitor(browser, server.url, color_scheme=scheme)
    page = visitor.page
    page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps(TOOLS))
    visitor.button("Probabilities").click()
    visitor.answered("@tour")
    found = [*findings(page, source, "chat")]
    visitor.button("Tokens").click()
    page.locator(".token").first.hover()
    found += findings(page, source, "tokens")
    for keys in ("Alt+s", "Alt+c"):
        page.keyboard.press(keys)
        page.locator("dialog").wait_for()
        found += findings(page, source, keys)
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")
    for view in views(page)[1:]:
        open_view(page, view)
        found += findings(page, source, view)
    assert found == []
    visitor.close()


def findings(page: Any, source: str, where: str) -> Iterator[str]:
    page.evaluate(source)  # the page's policy would not let it in as a script
    result = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    for each in result["violations"]:
        if each["impact"] in ("serious", "critical"):
            yield f"{where}: {each['id']}: {json.dumps([node['html'][:150] for node in each['nodes']][:3])}"


def test_it_works_under_a_path(browser: Any) -> None:
    with running(Script({"hi": "Hello."}), config=Config(root_path="/pie", drain_seconds=0.2)) as live:
        visitor = Visitor(browser, f"{live.url}/pie/")  # which also fails if anything is asked for outside of it
        assert visitor.answered("@hi") == "Hello."
        visitor.page.click("#code")
        assert f"{live.url}/pie/v1/responses" in visitor.page.locator(".sample").inner_text()
        visitor.close()
