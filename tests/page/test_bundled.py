"""The page over real weights: the bundled model in every view, and a second, tiny one that is pulled and loaded."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.resolve import BUNDLED_WORD, resolve
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.pool.pool import ModelPool
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader
from tests import hub as hubs
from tests.api.running import Listening, Running, listening, running
from tests.model.conftest import make_runner
from tests.model.gguf_files import write_llama
from tests.page.test_chat import PNG, TOOLS
from tests.page.test_models_view import card
from tests.page.test_structure import SHORT, verdict, write
from tests.page.visiting import DONE, WRITING, Visitor

pytestmark = pytest.mark.model

QUESTION = "What is the capital of France? Answer briefly."
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(make_runner(resolve(None).path, is_exact=True), max_cache_bytes=64 << 20) as live:
        yield live


@contextmanager
def paced(server: Running, seconds: float) -> Iterator[None]:
    """What it computes is the same, a little later: a reload takes its time on a busy machine."""
    runner: Any = server.runner
    forward = runner.forward

    def slower(rows: Any) -> Any:
        time.sleep(seconds)
        return forward(rows)

    runner.forward = slower
    try:
        yield
    finally:
        runner.forward = forward


def settle(visitor: Visitor, max_tokens: int, **choices: str) -> None:
    """No chance, and no more tokens than that."""
    visitor.page.locator("#question").wait_for()
    visitor.page.keyboard.press("Alt+s")
    visitor.page.get_by_label("Temperature").fill("0")
    visitor.page.get_by_label("Most tokens").fill(str(max_tokens))
    for label, value in choices.items():
        visitor.page.get_by_label(label.replace("_", " ")).select_option(value)
    visitor.page.keyboard.press("Tab")
    visitor.page.keyboard.press("Escape")


def test_a_conversation_with_probabilities_and_another_way_on(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url)
    page = visitor.page
    settle(visitor, 24)
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


def test_a_reload_in_the_middle_then_stop_and_a_branch(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url)
    page = visitor.page
    settle(visitor, 200)
    with paced(server, 0.2):
        visitor.ask("Count from 1 to 500.")
        page.locator(f"{WRITING} .text > *").first.wait_for()
        page.reload()
        page.locator(f"{WRITING} .text > *").first.wait_for()
        before = len(page.locator(WRITING).inner_text())
        page.wait_for_function("n => document.querySelector('.turn.assistant').innerText.length > n", arg=before)
        visitor.button("Stop").click()
        page.locator(DONE).wait_for()
        server.wait_idle()
    assert "stopped" in page.locator(".figures").inner_text()
    visitor.button("Edit and ask again").click()
    page.get_by_label("The question, edited").fill(QUESTION)
    visitor.button("Ask in a new branch").click()
    page.locator(DONE, has_text=ANSWER).wait_for()
    assert page.get_by_text("2 of 2").count() == 1
    visitor.close()


def test_a_tool_card_a_refused_picture_and_the_dashboard(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url)
    page = visitor.page
    page.evaluate("tools => localStorage.setItem('pie.tools', tools)", json.dumps([{**TOOLS[0], "isOn": True}]))
    settle(visitor, 48, Tools_are_called="required")
    visitor.ask("How is the weather in Paris?")
    called = page.get_by_role("region", name="Call of get_weather")
    assert isinstance(json.loads(called.locator("pre").inner_text()), dict)
    settle(visitor, 24, Tools_are_called="none")
    called.get_by_role("textbox").fill("sunny, 24 degrees")
    visitor.button("Send the results and go on").click()
    page.locator(f"{DONE} .text > *").first.wait_for()
    page.keyboard.press("Alt+n")
    page.locator(".welcome").wait_for()
    page.set_input_files("#picture", {"name": "dot.png", "mimeType": "image/png", "buffer": PNG})
    visitor.ask("What is this?")
    assert page.locator(f"{DONE} .error").inner_text() == "This model takes no images."
    visitor.go("Dashboard")
    page.wait_for_function("() => document.querySelector('.plot .line')?.getAttribute('d')?.includes('L')")
    page.locator(".tree-place .block").first.wait_for()
    visitor.close()


def test_a_schema_answer(browser: Any, server: Running) -> None:
    visitor = Visitor(browser, server.url)
    visitor.go("Structure")
    visitor.page.wait_for_selector(".verdict-line")
    write(visitor, json.dumps(SHORT))
    verdict(visitor, "It can be enforced.")
    visitor.page.keyboard.press("Control+Enter")
    visitor.page.locator(".proof", has_text="Valid, checked in this page.").wait_for()
    assert set(json.loads(visitor.page.locator(".tokens").inner_text())) == {"colour", "on"}
    assert visitor.page.locator(".tokens .forced").count() and visitor.page.locator(".tokens .chosen").count()
    visitor.close()


@pytest.fixture
def pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """The bundled model in a pool, and a hub that has a tiny one."""
    hubs.own_cache(tmp_path, monkeypatch)
    config = Config(context=512, slots=2, cache_memory=8 << 20, convert_weights="never", drain_seconds=0.2)
    pool = ModelPool(
        [PoolEntry(BUNDLED_WORD, config)], EngineLoader(2 << 30, Threads(), image_loader), max_bytes=2 << 30
    )
    with hubs.serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        tiny = write_llama(tmp_path / "tiny.gguf", facts={"general.sampling.temp": 0.0})
        hub.repositories["owner/tiny"] = {"tiny-F32.gguf": tiny.read_bytes()}
        try:
            with listening(pool, config) as live:
                yield live
        finally:
            for model in pool.loaded():
                model.close()


def test_a_second_model_is_pulled_loaded_and_asked(browser: Any, pooled: Listening) -> None:
    visitor = Visitor(browser, pooled.url)
    page = visitor.page
    settle(visitor, 24)
    assert visitor.answered(QUESTION) == ANSWER
    visitor.go("Models")
    visitor.search_hub("owner/tiny")
    page.get_by_role("button", name="Pull owner/tiny:tiny-F32").click()
    page.locator(".pull", has_text="It is here, and can be loaded above.").wait_for()
    pulled = card(visitor, "owner/tiny:tiny-F32")
    pulled.get_by_role("button", name="Load").click()
    pulled.locator(".chip", has_text="ready").wait_for()
    visitor.go("Compare")
    page.locator(".side-of-two option").nth(3).wait_for(state="attached")
    visitor.ask(QUESTION)
    left, right = (page.get_by_role("region", name=f"The {name} answer") for name in ("left", "right"))
    left.locator(DONE, has_text="Paris").wait_for()
    right.locator(DONE).wait_for()
    assert "owner/tiny:tiny-F32" in right.locator(".figures").inner_text()
    visitor.close()
