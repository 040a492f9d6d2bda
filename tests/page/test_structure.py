"""The structure view: a format checked as it is typed, an answer that fills in, forced tokens apart, a proof."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import Running, running
from tests.page.visiting import Visitor

HOSTILE = "<img src=x onerror=window.pwned=1>"
SHORT = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "on": {"type": "boolean"}}, "required": ["colour", "on"]}  # fmt: skip # noqa: E501


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(FakeRunner(end_bias=-2)) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running) -> Iterator[Visitor]:
    made = Visitor(browser, server.url)
    made.go("Structure")
    made.page.wait_for_selector(".verdict-line")
    yield made
    made.close()


def write(visitor: Visitor, text: str) -> None:
    visitor.page.fill(".editor textarea", text)


def verdict(visitor: Visitor, words: str) -> None:
    visitor.page.locator(".verdict", has_text=words).wait_for()


def test_a_schema_is_checked_as_one_types(visitor: Visitor) -> None:
    verdict(visitor, "It can be enforced.")
    write(visitor, '{"type": "object", ')
    verdict(visitor, "This is no JSON yet.")
    write(visitor, json.dumps({"properties": {"tags": {"type": "array", "uniqueItems": True}}}, indent=1))
    verdict(visitor, "It cannot be enforced")
    verdict(visitor, "/properties/tags/uniqueItems")
    verdict(visitor, "With strict off it is taken, without:")
    place = visitor.page.locator(".verdict .place")
    assert place.inner_text() == "/properties/tags/uniqueItems"
    place.click()
    selected = "(field) => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert visitor.page.eval_on_selector(".editor textarea", selected) == '"uniqueItems"'
    visitor.page.uncheck("#strict")
    verdict(visitor, "It can be enforced.")
    verdict(visitor, "Not enforced:")


def test_an_answer_fills_in_and_what_was_forced_is_told_apart(visitor: Visitor) -> None:
    write(visitor, json.dumps(SHORT))
    verdict(visitor, "It can be enforced.")
    visitor.page.keyboard.press("Control+Enter")
    visitor.page.locator(".proof", has_text="Valid, checked in this page.").wait_for()
    text = visitor.page.locator(".tokens").inner_text()
    answer = json.loads(text)
    forced = visitor.page.locator(".tokens .forced").all_inner_texts()
    chosen = visitor.page.locator(".tokens .chosen").all_inner_texts()
    assert forced and chosen and "".join(forced).startswith('{"colour":"')
    assert len(forced) + len(chosen) == len(visitor.page.locator(".tokens span").all())
    rows = visitor.page.locator(".field.done").all_inner_texts()
    assert [row.split("\n")[0] for row in rows] == ["colour", "on"] and answer["colour"] in rows[0]
    assert f"{len(forced)} of them forced" in visitor.page.locator(".counts").inner_text()


@pytest.mark.parametrize("kind", ["JSON Schema", "Regex", "Lark grammar"])
def test_every_example_is_what_it_says(visitor: Visitor, kind: str) -> None:
    page = visitor.page
    page.get_by_role("tab", name=kind).click()
    examples = page.get_by_label("Examples")
    for title in examples.locator("option").all_inner_texts()[1:]:
        write(visitor, "")
        page.locator(".verdict-line.bad").wait_for()
        examples.select_option(label=title)
        verdict(visitor, "It cannot be enforced" if "cannot" in title else "It can be enforced.")
        assert page.input_value(".editor textarea") and page.input_value("#structure-question")


def test_an_answer_goes_when_another_format_is_chosen(visitor: Visitor) -> None:
    """It would stand there as if it matched that one."""
    write(visitor, json.dumps(SHORT))
    verdict(visitor, "It can be enforced.")
    visitor.page.keyboard.press("Control+Enter")
    visitor.page.locator(".proof .chip").wait_for()
    visitor.page.get_by_role("tab", name="Regex").click()
    verdict(visitor, "It can be enforced.")
    assert visitor.page.locator(".answer .tokens").inner_text() == ""
    assert visitor.page.locator(".proof .chip, .field").count() == 0


def test_on_a_phone_the_answer_comes_into_view(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url, viewport={"width": 390, "height": 700})
    page = visitor.page
    page.evaluate("location.hash = '#/structure'")
    verdict(visitor, "It can be enforced.")
    write(visitor, json.dumps(SHORT))
    verdict(visitor, "It can be enforced.")
    is_seen = "() => document.querySelector('.answer').getBoundingClientRect().top < innerHeight - 250"
    assert not page.evaluate(is_seen)
    page.click(".ask button")
    page.wait_for_function(is_seen)
    page.locator(".proof", has_text="Valid").wait_for()
    visitor.close()


@pytest.mark.parametrize(("kind", "proof"), [("Regex", "It matches."), ("Lark grammar", "It matches.")])
def test_regexes_and_grammars_have_tabs(visitor: Visitor, kind: str, proof: str) -> None:
    visitor.page.get_by_role("tab", name=kind).click()
    write(visitor, "[0-9]{3}(red|green)" if kind == "Regex" else 'start: /[0-9]/ ("red" | "green")')
    verdict(visitor, "It can be enforced.")
    visitor.page.click(".ask button")
    visitor.page.locator(".proof", has_text=proof).wait_for()
    assert visitor.page.locator(".tokens span").count()
    write(visitor, "(" if kind == "Regex" else "start: nowhere")
    verdict(visitor, "It cannot be enforced")


def test_the_keyboard_alone_will_do(visitor: Visitor) -> None:
    visitor.page.locator("[role=tab][aria-selected=true]").focus()
    visitor.page.keyboard.press("ArrowRight")
    assert visitor.page.locator("[role=tab][aria-selected=true]").inner_text() == "Regex"
    verdict(visitor, "It can be enforced.")
    visitor.page.keyboard.press("ArrowLeft")
    assert visitor.page.evaluate("document.activeElement.textContent") == "JSON Schema"
    for _ in range(3):  # strict, the examples, the editor
        visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.id") != "", "the editor is no trap"


def test_what_was_written_is_there_after_a_reload(visitor: Visitor) -> None:
    write(visitor, json.dumps(SHORT))
    verdict(visitor, "It can be enforced.")
    visitor.page.reload()
    visitor.page.wait_for_selector(".verdict-line")
    assert visitor.page.input_value(".editor textarea") == json.dumps(SHORT)


def test_a_browser_that_keeps_nothing_checks_and_answers_all_the_same(visitor: Visitor) -> None:
    full = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"
    visitor.context.add_init_script(full)
    visitor.page.reload()
    verdict(visitor, "It can be enforced.")
    write(visitor, json.dumps({"properties": {"a": {"type": "array", "uniqueItems": True}}}))
    verdict(visitor, "/properties/a/uniqueItems")


def test_hostile_names_and_titles_stay_text(visitor: Visitor) -> None:
    schema = {"title": HOSTILE, "type": "object", "properties": {HOSTILE: {"enum": [HOSTILE], "title": HOSTILE}}, "required": [HOSTILE]}  # fmt: skip # noqa: E501
    write(visitor, json.dumps(schema))
    verdict(visitor, "It can be enforced.")
    visitor.page.click(".ask button")
    visitor.page.locator(".proof", has_text="Valid").wait_for()
    assert HOSTILE in visitor.page.locator(".field").inner_text()
    write(visitor, json.dumps({"properties": {HOSTILE: {"type": "array", "uniqueItems": True}}}))
    verdict(visitor, HOSTILE.replace("/", "~1"))
    assert not visitor.page.locator(".panel img, .panel script, .panel iframe").count()


def test_stopping_an_answer(browser: Any) -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.02)) as live:
        visitor = Visitor(browser, live.url)
        visitor.go("Structure")
        visitor.page.wait_for_selector(".verdict-line")
        write(visitor, json.dumps({"type": "string"}))
        verdict(visitor, "It can be enforced.")
        visitor.page.click(".ask button")
        visitor.page.locator(".tokens span").nth(5).wait_for()
        visitor.page.keyboard.press("Escape")
        visitor.page.locator(".proof", has_text="Stopped.").wait_for()
        live.wait_idle()
        visitor.close()


def test_an_answer_that_breaks_off_is_no_riddle(browser: Any) -> None:
    with running(FakeRunner(step_seconds=lambda _: 0.02)) as live:
        visitor = Visitor(browser, live.url)
        visitor.go("Structure")
        visitor.page.wait_for_selector(".verdict-line")
        write(visitor, json.dumps({"type": "string"}))
        verdict(visitor, "It can be enforced.")
        visitor.page.click(".ask button")
        visitor.page.locator(".tokens span").nth(5).wait_for()
        for connection in list(live.server.server_state.connections):
            connection.loop.call_soon_threadsafe(connection.transport.abort)
        visitor.page.locator("#status", has_text="The connection broke off.").wait_for()
        visitor.page.locator(".ask button", has_text="Answer").wait_for()
        visitor.close()
