"""Several keywords that say which properties there are, or that an alternative is anything but something."""

from collections.abc import Callable
from itertools import product
from typing import Any

from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj

NAMES = "abcdefgh"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def needs(*names: str) -> dict[str, Any]:
    return {"required": list(names)}


def one_of(names: str) -> list[dict[str, Any]]:
    return [needs(name) for name in names]


def objects(fits: Callable[[dict[str, int]], bool], names: str = NAMES) -> list[dict[str, int]]:
    """Of all objects with some of the names, those that are valid."""
    every = (
        {name: 1 for name, is_there in zip(names, choice, strict=True) if is_there}
        for choice in product((True, False), repeat=len(names))
    )
    return [one for one in every if fits(one)]


def is_valid(one: dict[str, int]) -> bool:
    """One of a and b, none of c and d, and not a with e."""
    return len(one.keys() & set("abcd")) == 1 and bool(one.keys() & set("ab")) and not {"a", "e"} <= one.keys()


PROPERTIES = {name: INTEGER for name in NAMES}
TYPED = {"path": STRING, "channel": STRING, "profile": {"enum": ["s", "m"]}, "parts": {"type": "array"}}
NO_NAMES = [{"propertyNames": {"not": {"enum": names}}} for names in (["1", "3"], ["2", "7"], ["2", "3", "x"])]
MODES = {"mode": {"enum": ["x", "y"]}, **{name: INTEGER for name in "abcd"}}

PRESENCE = [
    # One by one these were 4 * 4 * 4 * 2 * 2 alternatives.
    Case(
        obj(
            PROPERTIES,
            allOf=[{"anyOf": one_of("abcd")}, {"anyOf": one_of("efgh")}, {"oneOf": one_of("aceg")}],
            dependentRequired={"a": ["b"], "e": ["f"]},
            additionalProperties=False,
        ),
        [{"a": 1, "b": 1, "h": 1}, {"d": 1, "e": 1, "f": 1}, {"c": 1, "d": 1, "h": 1}],
        [{}, {"a": 1, "b": 1}, {"a": 1, "h": 1}, {"a": 1, "b": 1, "c": 1, "h": 1}, {"d": 1, "e": 1}, {"d": 1, "h": 1}],
    ),
    Case(
        obj(PROPERTIES, **{"oneOf": one_of("abcd"), "anyOf": one_of("ab"), "not": needs("a", "e")}),
        objects(is_valid),
        objects(lambda one: not is_valid(one)),
    ),
    Case(
        obj(
            TYPED,
            minProperties=1,
            oneOf=[{"not": obj({"path": STRING}, required=["path"])}, needs("path")],
            **{
                "$schema": DRAFT_7,
                "dependencies": {
                    "path": {"not": obj({"channel": STRING}, required=["channel"])},
                    "channel": {"not": obj({"path": STRING}, required=["path"])},
                    "profile": {"anyOf": [obj({name: TYPED[name]}, required=[name]) for name in ("channel", "parts")]},
                },
            },
        ),
        [{"path": "x"}, {"channel": "x", "profile": "s"}, {"profile": "s", "parts": []}, {"z": 1}],
        [{}, {"path": "x", "channel": "x"}, {"profile": "s"}, {"path": "x", "profile": "s"}, {"path": 1}],
    ),
    Case(
        {
            "type": "object",
            "patternProperties": {"^[0-9]$": {"type": "array"}},
            "additionalProperties": False,
            "maxProperties": 3,
            "not": {"anyOf": NO_NAMES},
        },
        [{"1": [], "2": []}, {"3": [], "7": []}, {"3": [], "2": [], "9": []}],
        [{}, {"1": []}, {"1": [], "7": []}, {"2": [], "9": []}, {"3": [], "2": [], "8": [], "9": []}],
    ),
    # What an option says of properties that can be nothing else anyway.
    Case(
        obj(MODES, **{
            "if": {"properties": {"mode": {"const": "x"}}},
            "then": {"oneOf": one_of("abcd"), "anyOf": one_of("ab")},
            "else": {"if": {"anyOf": one_of("abcd")}, "then": {"oneOf": one_of("abcd")}, "else": needs("z")},
        }),
        [{"a": 1}, {"mode": "x", "b": 1}, {"mode": "y", "c": 1}, {"mode": "y", "z": 1}],
        [{}, {"c": 1}, {"a": 1, "b": 1}, {"mode": "y"}, {"mode": "y", "c": 1, "d": 1}, {"mode": "x", "z": 1}],
    ),
]  # fmt: skip

# Bounds on properties that stand in another part than these.
COUNTED = [
    Case({"allOf": [{"properties": {"a": {}, "b": {}}}, {"minProperties": 1}]}, [1, {"a": 1}, {"z": 1}], [{}]),
    Case({"allOf": [obj({"a": {}, "b": {}}), {"maxProperties": 1}]}, [{}, {"a": 1}, {"z": 1}], [1, {"a": 1, "b": 1}]),
    Case(
        {"allOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"type": "object", "minProperties": 1}]},
        [{"a": 1}],
        [1, {}, {"b": 1}],
    ),
    Case(
        obj({"a": INTEGER, "b": {}}, anyOf=[{"maxProperties": 1}, {"required": ["b", "c"]}]),
        [{}, {"a": 1}, {"z": 1}, {"b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}],
        [{"a": "x"}, {"a": 1, "b": 1}, {"a": 1, "c": 1}],
    ),
    Case(
        {
            "properties": {"b": INTEGER},
            "if": {"minProperties": 1},
            "then": {"required": ["b"]},
            "else": {"type": "object"},
        },
        [{}, 1, {"b": 1}, {"b": 1, "c": 1}],
        [{"a": 1}, {"b": "x"}, {"b": "x", "c": 1}],
    ),
]  # fmt: skip

# An alternative that is anything but something goes where that cannot be said, as long as others are left.
LEFT_OUT = [
    Case({"anyOf": [{"type": "integer", "not": {"multipleOf": 3}}, STRING]}, ["a"], [3, None]),
    Case(
        {"anyOf": [{"allOf": [{"not": {"multipleOf": 5}}, {"not": {"multipleOf": 3}}]}, {"multipleOf": 8}]},
        [8, 24],
        [15, 3],
    ),
]  # fmt: skip
