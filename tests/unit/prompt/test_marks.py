from typing import Any

import pytest

from proxy_inference_engine.prompt.marks import Marks, Message, strings, unmarked

MESSAGES: list[Message] = [
    {"role": "user", "content": " hi ", "name": "bob"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"arguments": {"a": "b", "n": 1}}}],
    },
    {"role": "user", "content": "last\n"},
]


def rendered(messages: list[Message]) -> str:
    return "".join(f"<{each['role']}>{each['content']}" for each in messages)


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_marked_text_reads_back_with_its_contents(is_trimmed: bool) -> None:
    marks = Marks(MESSAGES)
    layout = marks.read(rendered(marks.wrap(MESSAGES, is_trimmed=is_trimmed)))
    assert layout is not None and layout.text == rendered(MESSAGES)
    contents = [layout.text[span.start : span.end] for span in layout.contents]
    assert contents == (["hi", "last"] if is_trimmed else [" hi ", "last\n"])
    assert layout.final_end == layout.contents[-1].end


def test_every_string_is_marked_but_structure_and_blanks() -> None:
    first, second, _ = Marks(MESSAGES).wrap(MESSAGES, is_trimmed=False)
    assert first["role"] == "user" and "bob" in first["name"] and first["name"] != "bob"
    assert second["content"] == ""
    call: dict[str, Any] = second["tool_calls"][0]
    assert call["type"] == "function" and call["id"] == "call_1" and call["function"]["arguments"]["a"] not in ("b", "")


def test_covered_messages_show_nothing_that_was_written() -> None:
    covered = Marks(MESSAGES).cover(MESSAGES)
    assert not {"hi", "bob", "last\n", "b"} & set(strings([list(each.values()) for each in covered]))
    assert covered[1]["content"] == ""


@pytest.mark.parametrize("drop", [0, 1, 2, 3])
def test_a_torn_pair_is_noticed(drop: int) -> None:
    marks = Marks(MESSAGES)
    text = rendered(marks.wrap(MESSAGES, is_trimmed=False))
    found = list(marks._pattern.finditer(text))
    torn = text[: found[drop].start()] + text[found[drop].end() :]
    assert marks.read(torn) is None


def test_marks_differ_each_time() -> None:
    assert len({Marks(MESSAGES).cover(MESSAGES)[0]["content"] for _ in range(100)}) == 100


def test_input_is_left_alone() -> None:
    Marks(MESSAGES).wrap(MESSAGES, is_trimmed=True)
    assert MESSAGES[0] == {"role": "user", "content": " hi ", "name": "bob"}


def test_what_stays_unmarked_is_known() -> None:
    marked = Marks(MESSAGES).wrap(MESSAGES, is_trimmed=False)
    assert list(unmarked(marked)) == list(unmarked(MESSAGES))
    assert {"call_1", "function", "a", "user"} < set(unmarked(MESSAGES))
    assert not {"hi", " hi ", "bob", "b"} & set(unmarked(MESSAGES))
