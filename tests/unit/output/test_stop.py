"""The stop filter against a search of the whole text."""

import itertools
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy_inference_engine.output.stop import Filtered, StopFilter


def run(stops: Sequence[str], chunks: Sequence[str]) -> Filtered:
    """What the filter lets through in all, and where it stopped."""
    stop_filter = StopFilter(stops)
    shown = ""
    for chunk in chunks:
        text, stop_str = stop_filter.feed(chunk)
        shown += text
        if stop_str is not None:
            return Filtered(shown, stop_str)
    text, stop_str = stop_filter.finish()
    return Filtered(shown + text, stop_str)


def search(stops: Sequence[str], text: str) -> Filtered:
    """The oracle: leftmost, then shortest."""
    found = min(((text.find(stop), len(stop), stop) for stop in stops if stop in text), default=None)
    return Filtered(text, None) if found is None else Filtered(text[: found[0]], found[2])


def all_cuts(text: str) -> list[list[str]]:
    """Every way to divide the text."""
    cuts = []
    for flags in itertools.product([False, True], repeat=max(len(text) - 1, 0)):
        edges = [0, *(index for index, flag in enumerate(flags, 1) if flag), len(text)]
        cuts.append([text[start:end] for start, end in itertools.pairwise(edges)])
    return cuts


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stop_str"),
    [
        pytest.param(["own fox"], "brown fox!", "br", "own fox", id="across chunks, text after it"),
        pytest.param(["own fox"], "brown fog", "brown fog", None, id="a beginning is released"),
        pytest.param(["own fox"], "brown fo", "brown fo", None, id="released at the end"),
        pytest.param(["stop"], "stop", "", "stop", id="the whole output"),
        pytest.param(["aab"], "aaaab", "aa", "aab", id="overlaps itself"),
        pytest.param(["abab"], "abacabab", "abac", "abab", id="falls back to a border"),
        pytest.param(["aabaaac"], "aabaaabaaac", "aaba", "aabaaac", id="falls back to a border of a border"),
        pytest.param(["ab", "abc"], "xabc", "x", "ab", id="equal start: completes first"),
        pytest.param(["abc", "bc"], "xabc", "x", "abc", id="equal end: leftmost"),
        pytest.param(["abcd", "bc"], "abcd", "", "abcd", id="leftmost though it completes later"),
        pytest.param(["abcd", "bc"], "abcx", "a", "bc", id="the rival fails"),
        pytest.param(["abcd", "bc"], "abc", "a", "bc", id="the rival is cut off by the end"),
        pytest.param(["abcde", "bcdx", "c"], "abcdx", "a", "bcdx", id="a second rival takes over"),
        pytest.param(["abcde", "bcdx", "c"], "abcdy", "ab", "c", id="all rivals fail"),
        pytest.param(["aaab", "ac"], "aaaac", "aaa", "ac", id="the beginning of a rival is released"),
        pytest.param(["\n\n"], "a\nb\n\nc", "a\nb", "\n\n", id="newlines"),
        pytest.param(["。終"], "はい。終り", "はい", "。終", id="CJK"),
        pytest.param(["👧"], "👩‍👧‍👦", "👩‍", "👧", id="inside a ZWJ sequence"),
        pytest.param(["x", "x"], "axb", "a", "x", id="twice the same"),
    ],
)
def test_every_cut_of_a_known_text(stops: list[str], text: str, shown: str, stop_str: str | None) -> None:
    assert search(stops, text) == (shown, stop_str)
    for chunks in all_cuts(text):
        assert run(stops, chunks) == (shown, stop_str), chunks


@settings(deadline=None, max_examples=400)
@given(
    st.lists(st.text(alphabet="abc", min_size=1, max_size=6), min_size=1, max_size=5),
    st.lists(st.text(alphabet="abc", max_size=5), max_size=12),
)
@example(["aabaaa", "abaab"], ["aabaab", "aaa"])
def test_any_cut_equals_a_search_of_the_whole(stops: list[str], chunks: list[str]) -> None:
    assert run(stops, chunks) == search(stops, "".join(chunks))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.text(alphabet="abc", max_size=20),
)
def test_holds_back_no_more_than_it_must(stops: list[str], text: str) -> None:
    stop_filter = StopFilter(stops)
    shown = ""
    for end, char in enumerate(text, 1):
        released, stop_str = stop_filter.feed(char)
        if stop_str is not None or stop_filter.candidate is not None:
            return
        shown += released
        ends = [text[start:end] for start in range(end + 1)]
        longest = next(tail for tail in ends if any(stop.startswith(tail) and stop != tail for stop in stops))
        assert shown + longest == text[:end]


def test_work_is_linear() -> None:
    """100,000 characters that always nearly match 16 strings of the greatest length allowed."""
    stops = ["a" * (1008 + index) + "b" for index in range(16)]
    stop_filter = StopFilter(stops)
    started = time.process_time()
    shown = sum(len(stop_filter.feed("aaaa").text) for _ in range(25_000))
    assert time.process_time() - started < 30
    assert shown == 100_000 - 1023
