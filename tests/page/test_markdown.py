"""What the page makes of texts: Markdown, formulas and code become elements, a request becomes programs."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy_inference_engine.server.page.content import VERSION
from tests.api.running import running

A = '<a href="{0}" rel="noopener noreferrer" target="_blank" title="{0}">{1}</a>'
MARKDOWN = {
    "plain": ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
    "emphasis": ("*a* **b** ***c***", "<p><em>a</em> <strong>b</strong> <strong><em>c</em></strong></p>"),
    "more of it": ("_d_ __e__ ~~f~~", "<p><em>d</em> <strong>e</strong> <del>f</del></p>"),
    "no emphasis": ("2 * 3 * 4, snake_case_name, a*", "<p>2 * 3 * 4, snake_case_name, a*</p>"),
    "nested": ("**a *b* `c*`**", "<p><strong>a <em>b</em> <code>c*</code></strong></p>"),
    "code": ("``a ` b`` `<b>`", "<p><code>a ` b</code> <code>&lt;b&gt;</code></p>"),
    "escapes": (r"\*a\* \_b\_ \\", r"<p>*a* _b_ \</p>"),
    "headings": ("# A\n## B ##\n###### C\n#no", "<h3>A</h3><h4>B</h4><h6>C</h6><p>#no</p>"),
    "rules": ("---\n***\n- - -", "<hr><hr><hr>"),
    "a list": ("- a\n- b\n\n- c", "<ul><li>a</li><li>b</li><li>c</li></ul>"),
    "numbers": ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    "lists in lists": (
        "1. a\n   - b\n   - c\n2. d",
        "<ol><li><p>a</p><ul><li>b</li><li>c</li></ul></li><li>d</li></ol>",
    ),
    "code in a list": (
        "- a\n\n  ```\n  x\n  ```\n- b",
        '<ul><li><p>a</p><pre tabindex="0"><code>x</code></pre></li><li>b</li></ul>',
    ),
    "a lazy line": ("- a\nb\n\nc", "<ul><li>a\nb</li></ul><p>c</p>"),
    "a quote": ("> a\n> - b\n\nc", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote><p>c</p>"),
    "a fence": ("```\na\n\n# b\n```\nc", '<pre tabindex="0"><code>a\n\n# b</code></pre><p>c</p>'),
    "an open fence": ("~~~text\na", '<pre tabindex="0" data-language="text"><code>a</code></pre>'),
    "a link": ("[a](https://x.y/z_(1))", f"<p>{A.format('https://x.y/z_(1)', 'a')}</p>"),
    "an address": ("<https://x.y>", f"<p>{A.format('https://x.y', 'https://x.y')}</p>"),
    "a bare link": ("See https://x.y/a_b_c.", f"<p>See {A.format('https://x.y/a_b_c', 'https://x.y/a_b_c')}.</p>"),
    "no link": ("[a](javascript:x) [b] (c)", "<p>a (javascript:x) [b] (c)</p>"),
    "a picture": ("![cat](https://x.y/c.png)", f"<p>{A.format('https://x.y/c.png', 'picture: cat')}</p>"),
    "markup": ("<b>a</b> &amp; <!-- c -->", "<p>&lt;b&gt;a&lt;/b&gt; &amp;amp; &lt;!-- c --&gt;</p>"),
    "prices": ("It costs $5 and $10.", "<p>It costs $5 and $10.</p>"),
    "a table": (
        "| a | b |\n|:-:|--:|\n| 1 | x \\| y |\n\nc",
        '<div class="wide" tabindex="0"><table><thead><tr><th class="center">a</th><th class="right">b</th></tr>'
        '</thead><tbody><tr><td class="center">1</td><td class="right">x | y</td></tr></tbody></table></div><p>c</p>',
    ),
}  # fmt: skip
FORMULAS = {
    "x^2_i": "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>",
    r"\frac{a}{b}": "<mfrac><mi>a</mi><mi>b</mi></mfrac>",
    r"\frac12 x^10": "<mrow><mfrac><mn>1</mn><mn>2</mn></mfrac><msup><mi>x</mi><mn>1</mn></msup><mn>0</mn></mrow>",
    r"\sqrt[3]{x}": "<mroot><mi>x</mi><mn>3</mn></mroot>",
    r"\alpha \leq \beta": "<mrow><mi>α</mi><mo>≤</mo><mi>β</mi></mrow>",
    r"\mathbb{R}": "<mi>ℝ</mi>",
    r"\text{a b}": "<mtext>a&nbsp;b</mtext>",
    r"f'": "<msup><mi>f</mi><mo>′</mo></msup>",
    r"\left( x \right.": '<mrow><mo fence="true" stretchy="true">(</mo><mi>x</mi></mrow>',
    r"\begin{matrix}1&2\\3&4\end{matrix}": (
        "<mrow><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
        "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable></mrow>"
    ),
    r"\unknown": None,
    r"\href{javascript:alert(1)}{x}": None,
    r"\frac{a}": None,
    r"{a": None,
    r"a}": None,
    r"x^1^2": None,
    r"\begin{evil}\end{evil}": None,
    "{" * 100 + "}" * 100: None,
}  # fmt: skip
CODE = {
    ("python", "if x: # y"): [("keyword", "if"), ("comment", "# y")],
    ("py", 's = """a\nb"""'): [("string", '"""a\nb"""')],
    ("js", "const a = `b` // c"): [("keyword", "const"), ("string", "`b`"), ("comment", "// c")],
    ("json", '{"a": "b", "c": 1.5e3}'): [("name", '"a"'), ("string", '"b"'), ("name", '"c"'), ("number", "1.5e3")],
    ("sql", "SELECT a FROM b -- c"): [("keyword", "SELECT"), ("keyword", "FROM"), ("comment", "-- c")],
    ("html", "<p class='x'>a</p>"): [("keyword", "p"), ("name", "class"), ("string", "'x'"), ("keyword", "p")],
    ("diff", "+a\n-b\n c"): [("string", "+a\n"), ("comment", "-b\n")],
    ("constructor", "if"): [],
    ("", "if"): [],
}


MODULES = f"/page/{VERSION}"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    with running() as live:
        context = browser.new_context()
        made = context.new_page()
        made.goto(live.url)
        yield made
        context.close()


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown(page: Any, name: str) -> None:
    written, drawn = MARKDOWN[name]
    script = """async ([folder, text]) => {
      const { paint } = await import(`${folder}/markdown.js`);
      const made = document.createElement("div");
      paint(made, text);
      const grown = document.createElement("div");
      for (let end = 1; end <= text.length; end += 1) paint(grown, text.slice(0, end));
      return [made.innerHTML, grown.innerHTML];
    }"""
    at_once, grown = page.evaluate(script, [MODULES, written])
    assert at_once == drawn
    assert grown == drawn  # a text that came letter by letter looks the same


def test_formulas(page: Any) -> None:
    script = """async ([folder, all]) => {
      const { formula } = await import(`${folder}/math.js`);
      return all.map((tex) => formula(tex, false)).map((each) => (each.localName === "math" ? each.innerHTML : null));
    }"""
    assert dict(zip(FORMULAS, page.evaluate(script, [MODULES, list(FORMULAS)]), strict=True)) == FORMULAS


def test_code(page: Any) -> None:
    script = """async ([folder, all]) => {
      const { highlight } = await import(`${folder}/highlight.js`);
      return all.map(([language, code]) => {
        const parts = highlight(code, language);
        const whole = parts.map((part) => part.textContent ?? part).join("");
        return [whole, parts.filter((part) => part.className).map((part) => [part.className, part.textContent])];
      });
    }"""
    for (language, code), (whole, marked) in zip(
        CODE, page.evaluate(script, [MODULES, [list(each) for each in CODE]]), strict=True
    ):
        assert whole == code
        assert [(kind.removeprefix("code-"), text) for kind, text in marked] == CODE[language, code]


def test_a_call_that_was_cut_off_is_shown_as_code_too(page: Any) -> None:
    script = """async ([folder, call]) => {
      const { samples } = await import(`${folder}/samples.js`);
      const input = [{ role: "user", content: "Rain?" }, call, { ...call, type: "function_call_output", output: "no" }];
      return samples({ model: "m", input }, false, "http://here/").map((sample) => sample.text);
    }"""
    cut = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city": "Par'}
    curl, openai, anthropic, javascript = page.evaluate(script, [MODULES, cut])
    assert all("Par" in text for text in (curl, openai, javascript))
    assert '"name": "look", "input": {}' in anthropic
