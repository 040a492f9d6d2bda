"""Input files of any kind: bounded in memory, and what is wrong with them by line."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_inference_engine.server.apis.batches import lines
from proxy_inference_engine.server.apis.batches.lines import (
    MAX_PROBLEMS,
    LineChecker,
    LineProblem,
    RawLine,
    raw_lines,
    read_line,
)

CHAT = "/v1/chat/completions"


def line(number: int) -> bytes:
    return json.dumps({"custom_id": f"l{number}", "method": "POST", "url": CHAT, "body": {}}).encode() + b"\n"


def checked(path: Path, max_lines: int = 50_000) -> LineChecker:
    checker = LineChecker(CHAT, max_lines)
    for chunk in raw_lines(path):
        if not checker.check(chunk):
            break
    return checker


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.write(line(1))
        file.truncate(1 << 30)  # a gigabyte of zeros, which takes no room
    monkeypatch.setattr(lines, "MAX_BODY_BYTES", 1 << 20)
    tracemalloc.start()
    with pytest.raises(LineProblem) as caught:
        list(raw_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.wire["line"] == 2 and caught.value.wire["code"] == "line_too_long"
    assert peak < 8 << 20


def test_more_lines_than_allowed_are_not_read_on(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"".join(map(line, range(5000))))
    checker = checked(path, max_lines=100)
    assert checker.num_lines == 101
    assert [(each["code"], each["line"]) for each in checker.problems] == [("too_many_lines", 101)]


def test_no_more_problems_are_told_than_anybody_reads(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"{}\n" * 1_000_000)
    checker = checked(path)
    assert len(checker.problems) == MAX_PROBLEMS == checker.num_lines


def test_all_lines_come_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"".join(map(line, range(1000))))
    numbers = [raw.number for chunk in raw_lines(path) for raw in chunk]
    assert numbers == list(range(1, 1001)) and not checked(path).problems


@given(st.binary(max_size=200))
def test_whatever_a_line_is_it_is_read_or_refused_by_number(data: bytes) -> None:
    try:
        read_line(RawLine(7, data), CHAT)
    except LineProblem as problem:
        assert problem.wire["line"] == 7 and problem.wire["code"]


def test_nesting_and_numbers_are_bounded_as_in_a_body() -> None:
    for value in ("[" * 100 + "]" * 100, "1" * 5000, "NaN", '"\\ud800"'):
        text = f'{{"custom_id": "a", "method": "POST", "url": "{CHAT}", "body": {{"x": {value}}}}}'
        with pytest.raises(LineProblem) as caught:
            read_line(RawLine(1, text.encode()), CHAT)
        assert caught.value.wire["code"] == "invalid_json_line"


def test_a_line_that_speaks_of_bodies_is_quoted_as_it_is() -> None:
    with pytest.raises(LineProblem) as caught:
        read_line(RawLine(1, b'{"The body": 1, "The body": 2}'), CHAT)
    assert caught.value.wire["message"] == "The line has the same key twice."
    assert caught.value.wire["param"] == "The body"
