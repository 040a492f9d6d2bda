"""Keys that come again in an object of arguments are left out with their values, however the text is cut."""

import json
import random
from typing import Any

import pytest

from proxy_inference_engine.output.calls.strings import UniqueKeys

BEHIND = "} and more"


def passed(text: str, cuts: list[int]) -> tuple[str, str]:
    """What is shown of an object, and what is left of the text behind it."""
    keys, shown, at = UniqueKeys(), "", 0
    for cut in [*cuts, len(text)]:
        piece, end = keys.feed(text[at:cut])
        shown += piece
        if end is not None:
            return shown, text[at + end :]
        at = cut
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 2}'),
        ("{}", "{}"),
        ("{ }", "{ }"),
        ('{"a": 1, "a": 2}', '{"a": 1}'),
        ('{"a": 1, "a": 2, "b": 3}', '{"a": 1, "b": 3}'),
        ('{"a": {"b": 1, "b": 2}, "c": {"b": 3}}', '{"a": {"b": 1}, "c": {"b": 3}}'),
        ('{"a": 1, "a": {"x": [1, {"y": "}"}]}, "b": [1, 2]}', '{"a": 1, "b": [1, 2]}'),
        ('{"a": [{"b": 1}, {"b": 2}], "a": []}', '{"a": [{"b": 1}, {"b": 2}]}'),
        ('{"a\\"": "x,{", "b": "\\\\", "a\\"": 3 }', '{"a\\"": "x,{", "b": "\\\\"}'),
    ],
)
def test_a_key_comes_once(text: str, expected: str) -> None:
    for cut in range(len(text) + 1):
        shown, rest = passed(text + BEHIND, [cut])
        assert (shown, rest) == (expected, BEHIND)
    assert passed(text + BEHIND, list(range(1, len(text)))) == (expected, BEHIND)


def test_what_is_left_is_what_readers_of_json_see_first() -> None:
    """Over random objects: every key once, with its first value; objects without repeats stay as they are."""
    chance = random.Random(1)

    def make(depth: int) -> str:
        kind = chance.randrange(5 if depth else 3)
        if kind == 3:
            return "[" + ", ".join(make(depth - 1) for _ in range(chance.randrange(3))) + "]"
        if kind == 4:
            return make_object(depth)
        return chance.choice(["1", "true", '"a"', '"b, {\\"c\\": "', '"\\\\"', "null"])

    def make_object(depth: int) -> str:
        members = (f'"{chance.choice("abc")}": {make(depth - 1)}' for _ in range(chance.randrange(4)))
        return "{" + chance.choice([", ", ","]).join(members) + "}"

    def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(reversed(pairs))

    for _ in range(500):
        text = make_object(3)
        cuts = sorted(chance.randrange(len(text) + 1) for _ in range(4))
        shown, rest = passed(text + BEHIND, cuts)
        repeats: list[int] = []

        def count(pairs: list[tuple[str, Any]], repeats: list[int] = repeats) -> dict[str, Any]:
            repeats.append(len(pairs) - len(dict(pairs)))
            return dict(pairs)

        value = json.loads(shown, object_pairs_hook=count)
        assert rest == BEHIND and not any(repeats)
        assert value == json.loads(text, object_pairs_hook=first_wins)
