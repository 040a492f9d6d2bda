"""Prose is wrapped and nothing else; what a reader sees stays the same."""

import pytest

from scripts.wrap_markdown import wrap

LONG = "seven words that go on and on, " * 6


@pytest.mark.parametrize(
    "text",
    [
        f"# {LONG}\n",
        f"| {LONG} | {LONG} |\n|---|---|\n",
        f"```\n{LONG}\n\n- {LONG}\n```\n",
        f"<!-- {LONG} -->\n",
        f"![{LONG}](picture.svg)\n",
        "Short lines\nstay where\nthey are.\n\n- so do\n  items\n",
    ],
)
def test_what_stays(text: str) -> None:
    assert wrap(text) == text


def test_paragraphs_and_items() -> None:
    text = "## Head\none two three four\nfive six\n- seven eight nine ten\n  eleven\n"
    text += "  1. twelve thirteen fourteen\n\nend\n"
    assert wrap(text, 14) == (
        "## Head\none two three\nfour five six\n- seven eight\n  nine ten\n  eleven\n"
        "  1. twelve\n     thirteen\n     fourteen\n\nend\n"
    )


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert wrap("see https://example.org/a-long-path now\n", 12) == "see\nhttps://example.org/a-long-path\nnow\n"


def test_code_is_not_broken() -> None:
    assert wrap("one two `three four` five\n", 12) == "one two\n`three four`\nfive\n"


def test_no_line_begins_a_list_by_accident() -> None:
    assert wrap("one two - three 4. four # five\n", 8) == "one\ntwo -\nthree 4.\nfour #\nfive\n"


def test_twice_is_once() -> None:
    once = wrap(f"- {LONG}\n\n{LONG}\n")
    assert wrap(once) == once and max(map(len, once.splitlines())) <= 120
