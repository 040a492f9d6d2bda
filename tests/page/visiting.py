"""Who looks at the page: a tab of a real browser that notes whatever must never happen, and a model with a script."""

import re
from collections.abc import Mapping
from typing import Any

from tests.api.writing import Writer

DONE = ".turn.assistant:not(.writing)"
WRITING = ".turn.assistant.writing"
WAIT_MS = 30_000
_NAME = re.compile(r"@(\w+)")
# What a page could not do without breaking its policy is noted by the page itself.
_NOTES = """
window.noted = [];
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
  window.noted.push(`${violatedDirective} ${blockedURI}`);
});
"""


class Script(Writer):
    """Writes the text whose name came last in the prompt: `@tour` asks for the one that is called tour."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__(list(texts.values()))
        self._names = list(texts)
        self.pause = 0.0
        self._step_seconds = lambda _: self.pause

    def _turn(self, slot: int, ids: list[int], start: int) -> int:
        prompt = b"".join(map(self.tokenizer.token_bytes, ids[:start])).decode()
        wanted = [name for name in _NAME.findall(prompt) if name in self._names]
        return self._names.index(wanted[-1]) if wanted else len(self._names)


class Visitor:
    """A tab. `close` fails if a script failed, a dialog opened, somebody else was asked, or the policy was broken."""

    def __init__(self, browser: Any, url: str, *, allowed: tuple[str, ...] = (), **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**options)
        self.context.add_init_script(_NOTES)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.context.on("request", lambda request: self._note(request.url, (url, "data:", "blob:", *allowed)))
        self.page.goto(url)

    def _dismiss(self, dialog: Any) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def _note(self, asked: str, allowed: tuple[str, ...]) -> None:
        if not asked.startswith(allowed):
            self.wrong.append(asked)

    def ask(self, text: str) -> None:
        self.page.fill("#question", text)
        self.page.keyboard.press("Enter")

    def answered(self, text: str, nth: int = 0) -> str:
        """Asks, and gives the text of the answer, the nth of the conversation."""
        self.ask(text)
        answer = self.page.locator(DONE).nth(nth)
        answer.wait_for()
        return str(answer.locator(".text").inner_text())

    def go(self, view: str) -> None:
        """Until it is there: what is typed before goes into the one that leaves."""
        self.page.locator("#views").get_by_text(view, exact=True).click()
        self.page.locator(f".view-{view.lower()}").wait_for(state="attached")

    def search_hub(self, words: str) -> None:
        """In the box of the models' view: the chat's has one too, and may still be about to leave."""
        box = self.page.get_by_label("Search Hugging Face")
        box.fill(words)
        box.press("Enter")

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def lists(self, *titles: str) -> None:
        """Waits until the side bar has exactly these conversations."""
        have = "[...document.querySelectorAll('#talks .title')].map((each) => each.textContent).join('|')"
        self.page.wait_for_function(f"wanted => {have} === wanted", arg="|".join(titles))

    def close(self) -> None:
        wrong = self.wrong + self.page.evaluate("[...window.noted, ...(window.pwned ? [`pwned ${window.pwned}`] : [])]")
        self.context.close()
        assert not wrong, wrong
