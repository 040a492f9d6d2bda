import re
from typing import Any

import pytest

from proxy_inference_engine.prompt.user_text import Chat, Marks, TemplateMessage, strings, unmarked

MESSAGES: list[TemplateMessage] = [
    {"role": "user", "content": " hi ", "name": "bob"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"arguments": {"a": "b", "n": 1}}}],
    },
    {"role": "user", "content": "last\n"},
]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds",
            "parameters": {
                "type": "object",
                "properties": {
                    "type": {"type": ["string", "null"], "think": "x"},
                    "id": {"type": "odd", "enum": ["e"]},
                },
                "required": ["id"],
                "default": {"name": "n"},
            },
        },
    }
]
CHAT = Chat(MESSAGES, TOOLS)


def rendered(chat: Chat) -> str:
    return "".join(f"<{each['role']}>{each['content']}" for each in chat.messages)


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_marked_text_reads_back_with_its_contents(is_trimmed: bool) -> None:
    marks = Marks(CHAT)
    layout = marks.read(rendered(marks.wrap(CHAT, is_trimmed=is_trimmed)) + "tail")
    assert layout is not None and layout.text == rendered(CHAT) + "tail"
    contents = [layout.text[span.start : span.end] for span in layout.contents]
    assert contents == (["hi", "last"] if is_trimmed else [" hi ", "last\n"])
    assert layout.final_end == layout.contents[-1].end
    assert layout.tail == ("\ntail" if is_trimmed else "tail")


def test_every_string_is_marked_but_structure_and_blanks() -> None:
    first, second, _ = Marks(CHAT).wrap(CHAT, is_trimmed=False).messages
    assert first["role"] == "user" and "bob" in first["name"] and first["name"] != "bob"
    assert second["content"] == ""
    call: dict[str, Any] = second["tool_calls"][0]
    assert call["type"] == "function" and call["id"] == "call_1"
    (key, value), number = list(call["function"]["arguments"].items())
    assert (key, value) != ("a", "b") and "a" in key and "b" in value and number[1] == 1


def test_of_a_tool_only_what_templates_look_for_stays() -> None:
    tools = Marks(CHAT).wrap(CHAT, is_trimmed=False).tools
    assert tools is not None
    function: dict[str, Any] = tools[0]["function"]
    assert tools[0]["type"] == "function" and set(function) == {"name", "description", "parameters"}
    assert function["name"] != "find" and function["description"] != "Finds"
    schema: dict[str, Any] = function["parameters"]
    assert list(schema) == ["type", "properties", "required", "default"] and schema["type"] == "object"
    (type_name, type_schema), (id_name, id_schema) = schema["properties"].items()
    assert type_name != "type" and id_name != "id"
    assert type_schema["type"] == ["string", "null"] and "think" not in type_schema
    assert id_schema["type"] != "odd" and id_schema["enum"] != ["e"]
    assert "name" not in schema["default"]


def test_equal_texts_stay_equal_except_the_last_content() -> None:
    chat = Chat([{"role": "user", "content": "id", "name": "id"}], TOOLS)
    marked = Marks(chat).wrap(chat, is_trimmed=False)
    assert marked.tools is not None
    schema: dict[str, Any] = marked.tools[0]["function"]["parameters"]
    assert schema["required"] == [list(schema["properties"])[1]] == [marked.messages[0]["name"]]
    assert marked.messages[0]["content"] != marked.messages[0]["name"]


def test_covered_texts_show_nothing_that_was_written() -> None:
    covered = Marks(CHAT).cover(CHAT)
    values = [list(each.values()) for each in covered.messages]
    written = {"hi", "bob", "last\n", "a", "b", "find", "Finds", "think", "x", "odd", "e", "n"}
    assert not written & {*strings(values), *strings(covered.tools)}
    assert covered.messages[1]["content"] == ""


def test_the_tail_of_a_covered_text_is_the_template_s() -> None:
    marks = Marks(CHAT)
    assert marks.tail_of_covered(rendered(marks.cover(CHAT)) + "<think>") == "<think>"
    assert marks.tail_of_covered("no mark") == "no mark"


@pytest.mark.parametrize("drop", [0, 1, 2, 3])
def test_a_torn_pair_is_noticed(drop: int) -> None:
    marks = Marks(CHAT)
    text = rendered(marks.wrap(CHAT, is_trimmed=False))
    found = list(re.finditer(r"~\d{32,}~", text))
    torn = text[: found[drop].start()] + text[found[drop].end() :]
    assert marks.read(torn) is None


def test_marks_differ_each_time() -> None:
    assert len({Marks(CHAT).cover(CHAT).messages[0]["content"] for _ in range(100)}) == 100


def test_input_is_left_alone() -> None:
    before = repr(CHAT)
    Marks(CHAT).wrap(CHAT, is_trimmed=True)
    assert repr(CHAT) == before


def test_what_stays_unmarked_is_known() -> None:
    marked = Marks(CHAT).wrap(CHAT, is_trimmed=False)
    assert list(unmarked(marked)) == list(unmarked(CHAT))
    assert {"call_1", "function", "user", "properties", "null"} < set(unmarked(CHAT))
    assert not {"hi", " hi ", "bob", "a", "b", "find", "think", "odd"} & set(unmarked(CHAT))
