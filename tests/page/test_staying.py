"""Whoever reads, edits or is at a button of a conversation stays there while it changes, and asks only once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running import Running, running
from tests.api.writing import call
from tests.page.test_chat import TOOLS
from tests.page.visiting import DONE, WRITING, Script, Visitor

TEXTS = {
    "hello": "Good day to you.",
    "rainy": "It rains.",
    "long": "On and on it goes. " * 200,
    "weather": call("get_weather", city="Paris"),
}
FOCUS = "((at) => [at.id, at.title, at.ariaLabel, at.textContent].find(Boolean))(document.activeElement)"
LOW = {"width": 900, "height": 420}
# Answers whose line stays open after their last event.
OPEN_ENDED = """
const before = window.fetch;
window.fetch = async (...asked) => {
  const answer = await before(...asked);
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
  const { readable, writable } = new TransformStream();
  answer.body.pipeTo(writable, { preventClose: true }).catch(() => {});
  return new Response(readable, answer);
};
"""
SEEN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def script() -> Script:
    return Script(TEXTS)


@pytest.fixture(scope="module")
def server(script: Script) -> Iterator[Running]:
    with running(script) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running, script: Script) -> Iterator[Visitor]:
    script.pause = 0.0
    made = Visitor(browser, server.url, viewport=LOW)
    yield made
    made.close()


def test_the_keyboard_stays_where_it_was(visitor: Visitor) -> None:
    page = visitor.page
    visitor.answered("@hello")
    visitor.button("Answer again").press("Enter")
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE).wait_for()
    assert page.evaluate(FOCUS) == "question"
    visitor.button("The branch before").press("Enter")
    page.get_by_text("1 of 2").wait_for()
    assert page.evaluate(FOCUS) == "The branch before"
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2").wait_for()
    visitor.button("Edit and ask again").press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUS) == "Edit and ask again"
    page.keyboard.press("Enter")
    page.keyboard.type(" @rainy")
    page.keyboard.press("Control+Enter")
    page.locator(DONE, has_text="It rains.").wait_for()
    assert page.evaluate(FOCUS) == "question"


def back_to(page: Any, name: str) -> None:
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if page.evaluate(FOCUS) == name:
            return
    raise AssertionError(f"{name} is not reached")


def test_a_whole_conversation_without_a_mouse(visitor: Visitor) -> None:
    """A call is answered, an answer made again, a branch looked at, another conversation begun, found and deleted."""
    page = visitor.page
    page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps([{**TOOLS[0], "isOn": True}]))
    page.locator("#question:focus").wait_for()
    page.keyboard.type("@weather")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Send the results and go on").wait_for()
    back_to(page, "Result of get_weather")
    page.keyboard.type("@rainy")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(DONE, has_text="It rains.").wait_for()
    page.keyboard.press("Alt+r")
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE, has_text="It rains.").wait_for()
    back_to(page, "The branch before")
    page.keyboard.press("Enter")
    page.get_by_text("1 of 2").wait_for()
    page.keyboard.press("Alt+n")
    page.locator(".welcome").wait_for()
    page.keyboard.type("@hello")
    page.keyboard.press("Enter")
    page.locator(DONE, has_text="Good day to you.").wait_for()
    visitor.lists("@hello", "@weather")
    back_to(page, "search")
    page.keyboard.type("rains")
    visitor.lists("@weather")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(DONE, has_text="It rains.").wait_for()
    back_to(page, "Rename, export or delete @weather")
    page.keyboard.press("Enter")
    page.locator("dialog input:focus").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".welcome").wait_for()
    visitor.lists()


def test_what_is_edited_stays_when_an_answer_ends(visitor: Visitor, script: Script) -> None:
    page = visitor.page
    visitor.answered("@hello")
    script.pause = 0.005
    visitor.ask("@long")
    page.locator(f"{WRITING} .text p").wait_for()
    visitor.button("Edit and ask again").first.click()
    box = page.get_by_label("The question, edited")
    box.fill("@rainy")
    visitor.button("Ask in a new branch").click()
    page.get_by_text("An answer is being written").wait_for()
    script.pause = 0.0
    page.get_by_text("The answer is complete.").wait_for()
    assert box.input_value() == "@rainy"
    visitor.button("Ask in a new branch").click()
    page.locator(DONE, has_text="It rains.").wait_for()


@pytest.mark.parametrize("place", ["start", "end"])
def test_who_has_scrolled_up_is_left_alone(visitor: Visitor, script: Script, place: str) -> None:
    page = visitor.page
    script.pause = 0.005
    visitor.ask("@long")
    page.wait_for_function("() => talk.scrollHeight > 3 * talk.clientHeight")
    if place == "start":
        page.locator("#talk").hover()
        page.mouse.wheel(0, -100_000)
        page.wait_for_function("() => talk.scrollTop === 0")
    script.pause = 0.0
    page.get_by_text("The answer is complete.").wait_for()
    page.evaluate(SEEN)
    rest = page.evaluate("talk.scrollHeight - talk.clientHeight - talk.scrollTop")
    assert rest < 2 if place == "end" else page.evaluate("talk.scrollTop") == 0
    page.keyboard.press("Alt+s")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("talk.scrollHeight - talk.clientHeight - talk.scrollTop") == rest


def test_pressed_twice_it_asks_once(visitor: Visitor) -> None:
    page = visitor.page
    visitor.answered("@hello")
    visitor.button("Answer again").evaluate("each => { each.click(); each.click(); }")
    page.get_by_text("The answer is complete.").wait_for()
    page.locator(DONE).wait_for()
    assert page.get_by_text("2 of 2").count() == 1


def test_an_answer_is_over_with_its_last_event(visitor: Visitor) -> None:
    """What it asks for can be given at once, and stays where it is written."""
    page = visitor.page
    visitor.context.add_init_script(OPEN_ENDED)
    page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps([{**TOOLS[0], "isOn": True}]))
    page.reload()
    visitor.ask("@weather")
    page.locator(".call textarea").fill("@rainy")
    visitor.button("Send the results and go on").click()
    page.locator(DONE, has_text="It rains.").wait_for()
    assert page.locator(".call textarea").input_value() == "@rainy"


def test_on_a_touch_screen_no_keyboard_comes_unasked(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url, viewport={"width": 390, "height": 700}, has_touch=True, is_mobile=True)
    page = visitor.page
    visitor.answered("@hello")
    page.tap("#menu")
    page.locator("#talks .title").tap()
    page.locator("#side.open").wait_for(state="detached")
    assert page.evaluate(FOCUS) != "question"
    visitor.close()
