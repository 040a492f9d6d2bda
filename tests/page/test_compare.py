"""One question to two: models side by side, each with its own answer, and one with two settings."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.served.model import ServedModel
from tests.api.pools import pool_server
from tests.api.running import listening
from tests.page.visiting import DONE, WRITING, Script, Visitor
from tests.polling import wait_until

CONFIG = Config(drain_seconds=0.2)
SAID = {"ada": "I am Ada, and I count.", "bob": "Bob here: I build."}
ENDLESS = "on and on " * 300


class Pair:
    """Two models behind one server."""

    def __init__(self, stack: ExitStack) -> None:
        self.scripts = {name: Script({"who": text, "long": f"{name}: {ENDLESS}"}) for name, text in SAID.items()}
        self.workers = {
            name: Worker(StepEngine(script, max_cache_bytes=1 << 20)) for name, script in self.scripts.items()
        }
        for worker in self.workers.values():
            worker.start()
            stack.callback(worker.stop)
        models = [ServedModel.of(worker, CONFIG, name=name) for name, worker in self.workers.items()]
        self.url = stack.enter_context(listening(models, CONFIG)).url

    def num_running(self) -> int:
        return sum(worker.stats().num_running + worker.stats().num_waiting for worker in self.workers.values())


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


@pytest.fixture
def visitor(browser: Any, pair: Pair) -> Iterator[Visitor]:
    made = Visitor(browser, pair.url)
    made.go("Compare")
    made.page.locator(".side-of-two option").nth(3).wait_for(state="attached")
    yield made
    made.close()


@pytest.fixture
def cold(browser: Any) -> Iterator[Visitor]:
    """Two models that are loaded when they are asked."""
    with pool_server(PoolEntry("first", CONFIG), PoolEntry("second", CONFIG)) as server:
        made = Visitor(browser, server.live.url, viewport={"width": 800, "height": 900})
        made.go("Compare")
        made.page.locator(".side-of-two option").nth(3).wait_for(state="attached")
        yield made
        made.close()


def side(visitor: Visitor, name: str) -> Any:
    return visitor.page.get_by_role("region", name=f"The {name} answer")


def picker(visitor: Visitor, name: str) -> Any:
    return visitor.page.locator(f"[aria-label='The {name} side'] .model-picker")


def answers(visitor: Visitor) -> list[str]:
    for name in ("left", "right"):
        side(visitor, name).locator(DONE).wait_for()
    return [str(side(visitor, name).locator(".text").inner_text()) for name in ("left", "right")]


def test_two_models_answer_side_by_side(visitor: Visitor) -> None:
    """The second is on the right unless somebody chooses another, and who answered stands under each answer."""
    assert [picker(visitor, name).input_value() for name in ("left", "right")] == ["ada", "bob"]
    visitor.ask("@who")
    assert answers(visitor) == [SAID["ada"], SAID["bob"]]
    figures = visitor.page.locator(".compared .figures").all_inner_texts()
    assert "ada" in figures[0] and "bob" in figures[1]
    ink = visitor.page.evaluate("getComputedStyle(document.body).color")
    assert all(each.evaluate("e => getComputedStyle(e).color") == ink for each in visitor.page.locator(".text").all())
    for name, model in (("left", "bob"), ("right", "ada")):
        picker(visitor, name).select_option(model)
    visitor.ask("@who")
    side(visitor, "left").get_by_text(SAID["bob"]).wait_for()
    assert answers(visitor) == [SAID["bob"], SAID["ada"]]
    visitor.page.reload()
    visitor.page.locator(".side-of-two option").nth(3).wait_for(state="attached")
    assert [picker(visitor, name).input_value() for name in ("left", "right")] == ["bob", "ada"], "it is remembered"


@pytest.mark.parametrize("way", ["button", "Escape"])
def test_both_write_at_once_and_both_are_stopped(visitor: Visitor, pair: Pair, way: str) -> None:
    for script in pair.scripts.values():
        script.pause = 0.01
    visitor.ask("@long")
    for name in ("left", "right"):
        side(visitor, name).locator(WRITING).get_by_text("on and on").wait_for()
    visitor.page.keyboard.press("Enter")
    assert visitor.page.locator(WRITING).count() == 2, "Enter asks, and ends nothing"
    visitor.button("Stop both").click() if way == "button" else visitor.page.keyboard.press(way)
    ada, bob = answers(visitor)
    assert ada.startswith("ada: on") and bob.startswith("bob: on")
    assert max(len(ada), len(bob)) < len(ENDLESS)
    wait_until(lambda: not pair.num_running())
    visitor.button("Ask both").wait_for()


def test_two_settings_answer_side_by_side(visitor: Visitor) -> None:
    picker(visitor, "right").select_option("ada")
    visitor.page.get_by_role("button", name="Settings of the right side").click()
    visitor.page.get_by_label("Most tokens").fill("9")
    visitor.page.keyboard.press("Tab")
    visitor.page.keyboard.press("Escape")
    visitor.ask("@who")
    left, right = answers(visitor)
    assert left == SAID["ada"] and right and left.startswith(right)
    figures = visitor.page.locator(".compared .figures").all_inner_texts()
    assert "cut at the limit" not in figures[0] and "cut at the limit" in figures[1]


def test_what_was_loaded_for_a_question_is_shown_as_loaded(cold: Visitor) -> None:
    chosen = cold.page.locator(".side-of-two .model-picker option:checked")
    assert chosen.all_inner_texts() == ["first · unloaded", "second · unloaded"]
    cold.ask("Hello")
    for name, model in (("left", "first"), ("right", "second")):
        side(cold, name).locator(DONE).wait_for()
        cold.page.locator(f"[aria-label='The {name} side'] option:checked", has_text=re.compile(f"^{model}$")).wait_for(
            state="attached"
        )
    assert not cold.page.get_by_text("loaded when it is asked").count()


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_long_settings_and_questions_have_their_place(cold: Visitor, width: int) -> None:
    """Nothing is wider than its side, models that are not loaded stand above what loads them, and the question's box
    grows with it."""
    page = cold.page
    page.set_viewport_size({"width": width, "height": 900})
    cold.page.get_by_role("button", name="Settings of the right side").click()
    page.get_by_label("System prompt").fill("You are a pirate, and never say a word too much. " * 3)
    page.keyboard.press("Escape")
    for each in page.locator(".side-of-two").all():
        outer, select, tune, load = (
            found.bounding_box() for found in (each, *map(each.locator, ("select", "header > button", ".load")))
        )
        for inner in (select, tune, load):
            assert outer["x"] <= inner["x"] and inner["x"] + inner["width"] <= outer["x"] + outer["width"]
        assert select["x"] + select["width"] <= tune["x"] and tune["y"] < select["y"] + select["height"]
        assert load["y"] >= max(select["y"] + select["height"], tune["y"] + tune["height"])
    box = page.locator("#question")
    before = box.bounding_box()["height"]
    box.fill("Which of these do you like most? " * 12)
    assert box.bounding_box()["height"] > before
    assert box.evaluate("box => box.scrollHeight <= box.clientHeight")
    cold.go("Models") if width > 360 else page.goto(f"{cold.url}/#/models")
    page.locator(".model").first.wait_for()
    cold.go("Compare") if width > 360 else page.goto(f"{cold.url}/#/compare")
    page.locator("#ask").wait_for()
    page.wait_for_function("() => document.querySelector('#question').clientHeight > 60")
    assert box.input_value().startswith("Which of these"), "what was being asked is still there"
