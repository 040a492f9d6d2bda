"""The chat, in a real browser over a real server whose model writes what a test wrote down."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from tests.api.clients import TYPESCRIPT
from tests.api.running import Running, running
from tests.api.writing import call
from tests.page.visiting import DONE, WRITING, Script, Visitor
from tests.polling import HANG_S

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOUR = (
    "<think>\nA short **tour**.\n</think>\n\n## Sums\n\nThe *first* $n$ numbers: $\\frac{n(n+1)}{2}$.\n\n"
    "```python\ndef f(n):\n    return n  # done\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- one\n  - two\n\n"
    "$$\\sum_{k=1}^n k$$ and $\\frac{1}{$"
)
TEXTS = {
    "tour": TOUR,
    "hello": "Good day to you.",
    "long": "On and on it goes. " * 200,
    "weather": call("get_weather", city="Paris"),
    "table": "| model | " + " | ".join(["milliseconds"] * 9) + " |\n|" + "---|" * 10 + "\n| a | " + "12,345 |" * 9,
    "sunny": "It is **sunny**.",
    "rainy": "It rains.",
}
TOOLS = [{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]


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
    made = Visitor(browser, server.url)
    yield made
    made.close()


def test_an_answer_is_rendered_with_its_thoughts_and_figures(visitor: Visitor) -> None:
    visitor.answered("@tour")
    answer = visitor.page.locator(DONE)
    assert answer.locator("summary").inner_text().startswith("Thought for ")
    assert not answer.locator("details").evaluate("each => each.open")
    answer.locator("summary").click()
    assert answer.locator("details strong").inner_text() == "tour"
    assert answer.locator("h4").inner_text() == "Sums" and answer.locator(".text em").inner_text() == "first"
    assert answer.locator("math").count() == 3 and answer.locator("mfrac").count() == 1
    assert answer.locator("code.tex").inner_text() == "$\\frac{1}{$"
    assert answer.locator(".code-keyword").all_inner_texts() == ["def", "return"]
    assert answer.locator("td.right").inner_text() == "2" and answer.locator("li li").inner_text() == "two"
    figures = answer.locator(".figures").inner_text()
    assert "tokens/s" in figures and "first after" in figures and "prompt tokens cached" in figures


def test_again_edit_and_branches(visitor: Visitor) -> None:
    page = visitor.page
    assert visitor.answered("@hello") == "Good day to you."
    visitor.button("Answer again").click()
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE).wait_for()
    visitor.button("Edit and ask again").click()
    page.get_by_label("The question, edited").fill("@rainy")
    visitor.button("Ask in a new branch").click()
    page.locator(DONE, has_text="It rains.").wait_for()
    visitor.button("The branch before").click()
    page.locator(DONE, has_text="Good day").wait_for()
    assert page.get_by_text("2 of 2").count() == 1 and page.get_by_text("1 of 2").count() == 1
    page.reload()
    page.locator(DONE, has_text="Good day").wait_for()


def test_an_answer_goes_on_after_a_reload_and_stop_reaches_the_server(
    visitor: Visitor, script: Script, server: Running
) -> None:
    page, script.pause = visitor.page, 0.005
    visitor.ask("@long")
    page.locator(f"{WRITING} .text p").wait_for()
    page.reload()
    page.locator(f"{WRITING} .text p").wait_for()
    before = len(page.locator(WRITING).inner_text())
    page.wait_for_function("n => document.querySelector('.turn.assistant').innerText.length > n", arg=before)
    visitor.button("Stop").click()
    page.locator(DONE).wait_for()
    assert "stopped" in page.locator(".figures").inner_text()
    said = page.locator(f"{DONE} .text").inner_text()
    assert said and TEXTS["long"].startswith(said)
    server.wait_idle()


def test_escape_stops_an_answer_and_a_key_asks_again(visitor: Visitor, script: Script, server: Running) -> None:
    page, script.pause = visitor.page, 0.005
    visitor.ask("@long")
    page.locator(f"{WRITING} .text p").wait_for()
    page.keyboard.press("Escape")
    page.locator(DONE).wait_for()
    figures = page.locator(".figures").inner_text()
    assert "stopped" in figures and not figures.startswith("0 tokens")
    page.locator("#status", has_text="The answer was stopped.").wait_for()
    server.wait_idle()
    script.pause = 0.0
    page.keyboard.press("Alt+r")
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE).wait_for()


def test_questions_answers_and_code_are_copied(visitor: Visitor) -> None:
    page = visitor.page
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.answered("@tour")
    code = "def f(n):\n    return n  # done"
    for name, wanted in (("Copy the question", "@tour"), ("Copy the answer", "## Sums"), ("Copy", code)):
        page.evaluate("navigator.clipboard.writeText('')")
        visitor.button(name).click()
        page.wait_for_function(
            "async wanted => (await navigator.clipboard.readText()).trim().startsWith(wanted)", arg=wanted
        )
    assert page.locator("#status").inner_text() == "Copied."


def test_an_answer_goes_on_while_another_conversation_is_open(visitor: Visitor, script: Script) -> None:
    page, script.pause = visitor.page, 0.001
    visitor.ask("@long")
    page.locator(f"{WRITING} .text p").wait_for()
    page.keyboard.press("Alt+n")
    page.locator(".welcome").wait_for()
    script.pause = 0.0
    visitor.answered("@hello")
    page.locator("#talks .title", has_text="@long").click()
    page.locator(DONE).wait_for()
    assert page.locator(f"{DONE} .text").inner_text().strip() == TEXTS["long"].strip()


def test_a_call_is_a_card_whose_result_goes_back(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("Tools")
    page.fill("#tool-json", json.dumps(TOOLS))
    visitor.button("Add").click()
    page.locator(".tool-list li").wait_for()
    visitor.go("Chat")
    visitor.ask("@weather")
    card = page.get_by_role("region", name="Call of get_weather")
    assert json.loads(card.locator("pre").inner_text()) == {"city": "Paris"}
    card.get_by_role("textbox").fill("@sunny")
    visitor.button("Send the results and go on").click()
    page.locator(f"{DONE} .text strong", has_text="sunny").wait_for()
    card.get_by_role("textbox").fill("@rainy")
    visitor.button("Send other results in a new branch").click()
    page.locator(DONE, has_text="It rains.").wait_for()
    assert page.get_by_role("textbox", name="Result of get_weather").input_value() == "@rainy"
    visitor.button("The branch before").click()
    page.locator(DONE, has_text="It is sunny").wait_for()


def test_probabilities_and_going_on_from_a_token(visitor: Visitor) -> None:
    page = visitor.page
    visitor.button("Probabilities").click()
    visitor.answered("@hello")
    visitor.button("Tokens").press("Enter")
    page.locator("button:focus", has_text="Tokens").wait_for()
    page.locator(".token").nth(1).hover()
    rows = page.locator(".alternatives li")
    assert rows.count() == 5 and "chosen" in rows.first.get_attribute("class")
    page.mouse.move(0, 0)
    rows.first.wait_for(state="hidden")
    page.locator(".token").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    rows.first.wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # with the one that was chosen, so the same comes again
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE).wait_for()
    assert page.locator(DONE).locator(".tokens").inner_text() == "Good day to you."
    visitor.button("Tokens").click()
    assert page.locator(f"{DONE} .text").inner_text() == "Good day to you."


def test_on_a_phone_what_else_could_have_come_has_room(visitor: Visitor) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 360, "height": 700})
    visitor.button("Probabilities").click()
    visitor.answered("@hello")
    visitor.button("Tokens").click()
    for token in page.locator(".token").all()[:4]:
        token.click()
        outer = page.locator(".alternatives").bounding_box()
        assert outer["x"] >= 0 and outer["x"] + outer["width"] <= 360
        for each in page.locator(".alternatives li > *").all():
            inner = each.bounding_box()
            assert each.evaluate("each => each.scrollWidth <= each.offsetWidth"), each.inner_text()
            assert inner["width"] > 0 and inner["x"] + inner["width"] <= outer["x"] + outer["width"]


def test_words_of_a_table_stay_whole_and_it_is_scrolled(visitor: Visitor) -> None:
    page = visitor.page
    page.set_viewport_size({"width": 360, "height": 700})
    visitor.answered("@table")
    assert page.locator("th", has_text="milliseconds").first.bounding_box()["height"] < 50  # one line
    assert page.locator(".wide").evaluate("each => each.scrollWidth > each.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_question_is_folded_until_it_is_wanted(visitor: Visitor) -> None:
    page = visitor.page
    visitor.answered("A word of many. " * 300 + "@hello")
    text = page.locator(".bubble .text")
    folded = text.bounding_box()["height"]
    visitor.button("Show all of it").click()
    assert text.bounding_box()["height"] > 2 * folded
    visitor.button("Show less").click()
    assert text.bounding_box()["height"] == folded
    visitor.page.keyboard.press("Alt+n")
    page.locator(".welcome").wait_for()
    visitor.answered("@hello")
    assert page.get_by_role("button", name="Show all of it").count() == 0


def test_a_picture_for_a_model_that_takes_none_is_refused_plainly(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    path = tmp_path / "dot.png"
    path.write_bytes(PNG)
    page.set_input_files("#picture", str(path))
    page.get_by_alt_text("dot.png").wait_for()
    visitor.ask("What is this?")
    page.locator(f"{DONE} .error").wait_for()
    assert page.locator(f"{DONE} .error").inner_text() == "This model takes no images."
    assert page.locator(".bubble img").evaluate("each => each.naturalWidth") == 1
    assert visitor.answered("@hello", 1) == "Good day to you."  # what was refused is not sent again
    page.set_input_files("#picture", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"})
    page.get_by_text("a.txt is not a PNG").wait_for()


def test_a_picture_that_is_still_being_read_goes_with_its_question(visitor: Visitor) -> None:
    page = visitor.page
    page.evaluate(
        """() => {
          const read = FileReader.prototype.readAsDataURL;
          FileReader.prototype.readAsDataURL = function (file) { window.goOn = () => read.call(this, file); };
        }"""
    )
    page.set_input_files("#picture", {"name": "dot.png", "mimeType": "image/png", "buffer": PNG})
    page.wait_for_function("() => window.goOn")
    visitor.ask("What is this?")
    page.evaluate("() => window.goOn()")
    page.locator(f"{DONE} .error", has_text="This model takes no images.").wait_for()
    assert page.locator("#question").input_value() == ""


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_pictures_are_pasted_and_dropped(visitor: Visitor, way: str) -> None:
    page = visitor.page
    page.locator("#question").wait_for()
    page.evaluate(
        """([way, data]) => {
          const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], "dot.png", { type: "image/png" }));
          const options = { bubbles: true, cancelable: true };
          document.getElementById("question").dispatchEvent(way === "paste"
            ? new ClipboardEvent("paste", { ...options, clipboardData: transfer })
            : new DragEvent("drop", { ...options, dataTransfer: transfer }));
        }""",
        [way, base64.b64encode(PNG).decode()],
    )
    page.get_by_alt_text("dot.png").wait_for()
    visitor.button("Remove dot.png").click()
    assert page.get_by_alt_text("dot.png").count() == 0


def test_conversations_are_searched_renamed_exported_deleted_and_imported(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    for name in ("@hello", "@rainy"):
        page.keyboard.press("Alt+n")
        page.locator(".welcome").wait_for()
        visitor.answered(name)
    visitor.lists("@rainy", "@hello")
    page.fill("#search", "good day")
    visitor.lists("@hello")
    page.fill("#search", "good night")
    page.locator("#side").get_by_text("Nothing was found.").wait_for()
    page.fill("#search", "good day")
    visitor.lists("@hello")
    visitor.button("Rename, export or delete @hello").click()
    page.get_by_label("Name of the conversation").fill("Greetings")
    visitor.button("Rename").click()
    visitor.lists("Greetings")
    page.fill("#search", "")
    with page.expect_download() as download:
        page.click("#export")
    path = tmp_path / "conversations.json"
    download.value.save_as(path)
    for name in ("Greetings", "@rainy"):
        visitor.button(f"Rename, export or delete {name}").click()
        with page.expect_response(lambda answer: answer.request.method == "DELETE") as stored:
            visitor.button("Delete").click()
        assert stored.value.ok and "/v1/responses/" in stored.value.url
    visitor.lists()
    page.locator(".welcome").wait_for()
    page.set_input_files("#import", str(path))
    page.get_by_text("2 conversations imported.").wait_for()
    page.reload()
    page.locator("#talks .title", has_text="Greetings").click()
    page.locator(DONE, has_text="Good day").wait_for()


def said_by(program: list[str], folder: Path | None = None) -> str:
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=True).stdout


def test_settings_and_code_say_what_is_sent(visitor: Visitor) -> None:
    page = visitor.page
    visitor.button("Settings").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("min_p").fill("0.1")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    visitor.button("Settings (3)").wait_for()
    page.fill("#question", "Say 'hi'. @hello")
    page.click("#code")
    samples = {}
    for tab in page.get_by_role("tab").all():
        tab.click()
        samples[tab.inner_text()] = page.locator(".sample").inner_text()
    assert "const response = await client.responses.create({" in samples.pop("JavaScript")
    for name, text in samples.items():  # as they stand
        program = ["bash", "-c", text] if name == "curl" else [sys.executable, "-c", text]
        assert "Good day to you." in said_by(program), name
    page.keyboard.press("Escape")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.locator("#question").press("Enter")
    body = sent.value.post_data_json
    assert (body["instructions"], body["temperature"], body["min_p"]) == ("Be brief.", 0.5, 0.1)
    page.locator(DONE).wait_for()


def test_the_code_for_javascript_runs_as_it_stands(visitor: Visitor) -> None:
    folder = TYPESCRIPT.folder()
    visitor.page.fill("#question", "@hello")
    visitor.page.click("#code")
    visitor.page.get_by_role("tab", name="JavaScript").click()
    text = visitor.page.locator(".sample").inner_text()
    assert "Good day to you." in said_by(["node", "--input-type=module", "-e", text], folder)


def test_an_answer_that_was_cut_goes_on(visitor: Visitor) -> None:
    page = visitor.page
    visitor.button("Settings").click()
    page.get_by_label("Most tokens").fill("8")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    assert visitor.answered("@hello") == "Good day"
    assert "cut at the limit" in page.locator(".figures").inner_text()
    visitor.button("Continue").click()
    page.get_by_text("2 of 2").wait_for()
    page.locator(DONE, has_text="Good day to you.").wait_for()


def test_a_line_that_breaks_is_taken_up_again(visitor: Visitor, script: Script, server: Running) -> None:
    page, script.pause = visitor.page, 0.002
    visitor.ask("@long")
    page.locator(f"{WRITING} .text p").wait_for()
    with page.expect_request(lambda request: "starting_after=" in request.url):
        for connection in list(server.server.server_state.connections):
            connection.loop.call_soon_threadsafe(connection.transport.abort)
    script.pause = 0.0
    page.locator(DONE).wait_for()
    assert page.locator(f"{DONE} .text").inner_text().strip() == TEXTS["long"].strip()


def test_a_model_that_takes_pictures_is_shown_one_that_is_exported_and_imported_too(
    browser: Any, tmp_path: Path
) -> None:
    runner = FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())
    with running(runner) as live:
        visitor = Visitor(browser, live.url)
        page = visitor.page
        page.set_input_files("#picture", {"name": "dot.png", "mimeType": "image/png", "buffer": PNG})
        page.get_by_alt_text("dot.png").wait_for()
        visitor.answered("What is this?")
        assert page.locator(f"{DONE} .error").is_hidden() and page.locator(".figures").inner_text()
        page.click("#code")
        assert '"data:image/png;base64,..."' in page.locator(".sample").inner_text(), "where one belongs"
        page.keyboard.press("Escape")
        with page.expect_download() as download:
            page.click("#export")
        path = tmp_path / "conversations.json"
        download.value.save_as(path)
        visitor.button("Rename, export or delete What is this?").click()
        visitor.button("Delete").click()
        page.locator(".welcome").wait_for()
        page.set_input_files("#import", str(path))
        page.locator("#talks .title", has_text="What is this?").click()
        page.wait_for_function("() => document.querySelector('.bubble img')?.naturalWidth === 1")
        visitor.close()


def test_two_tabs_show_the_same_conversations(visitor: Visitor) -> None:
    page = visitor.page
    visitor.answered("@hello")
    other = visitor.context.new_page()
    other.goto(visitor.url)
    other.locator(DONE, has_text="Good day").wait_for()
    visitor.answered("@rainy", 1)
    other.locator(DONE, has_text="It rains.").wait_for()
    other.fill("#question", "@sunny")
    other.keyboard.press("Enter")
    page.locator(DONE, has_text="It is sunny.").wait_for()
    visitor.button("Rename, export or delete @hello").click()
    visitor.button("Delete").click()
    other.locator(".welcome").wait_for()
