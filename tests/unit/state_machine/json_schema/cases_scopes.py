"""References whose meaning depends on the way to them."""

from typing import Any

from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, Case, obj
from tests.unit.state_machine.json_schema.cases_evaluation import DRAFT_2019
from tests.unit.state_machine.json_schema.cases_plain import DRAFT_7

LIST = {
    "$id": "list",
    "type": "array",
    "items": {"$dynamicRef": "#item"},
    "$defs": {"item": {"$dynamicAnchor": "item"}},
}
TREE: dict[str, Any] = {
    "$id": "tree",
    "$dynamicAnchor": "node",
    **obj({"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}),
}
PLAIN_TREE: dict[str, Any] = {
    "$id": "tree",
    "$recursiveAnchor": True,
    **obj({"data": True, "children": {"type": "array", "items": {"$recursiveRef": "#"}}}),
}


def list_of(item: Any) -> dict[str, Any]:
    """A list that says what its items are, by an anchor that the list itself has as well."""
    return {"$ref": "list", "$defs": {"mine": {"$dynamicAnchor": "item", **item}, "list": LIST}}


SCOPES = [
    Case({"$id": "https://example.com/a", **list_of(STRING)}, [["a"], []], [[1], "a"]),
    Case({"$id": "https://example.com/a", **LIST}, [["a", 1]], ["a"]),
    Case(
        {"$ref": "urn:x:y", "$defs": {"foo": {"$id": "urn:x:y", "$ref": "#/$defs/bar", "$defs": {"bar": STRING}}}},
        ["a"],
        [1],
    ),
    Case(
        {
            "$id": "https://example.com/two",
            "prefixItems": [{"$ref": "texts"}, {"$ref": "numbers"}],
            "items": False,
            "$defs": {
                "texts": {"$id": "texts", **list_of(STRING)},
                "numbers": {
                    "$id": "numbers",
                    **list_of(INTEGER),
                    "$defs": {"mine": {"$dynamicAnchor": "item", **INTEGER}},
                },
            },
        },
        [[["a"], [1]], [[], []]],
        [[[1]], [["a"], ["a"]]],
    ),
    Case(
        {
            "$id": "https://example.com/strict",
            "$dynamicAnchor": "node",
            "$ref": "tree",
            "unevaluatedProperties": False,
            "$defs": {"tree": TREE},
        },
        [{"data": 1}, {"children": [{"data": 1, "children": []}]}],
        [{"daat": 1}, {"children": [{"daat": 1}]}, {"children": [{"children": [{"x": 1}]}]}],
    ),
    Case({"$id": "https://example.com/tree", **TREE}, [{"children": [{"daat": 1}]}], [{"children": [1]}]),
    Case(
        {
            "$schema": DRAFT_2019,
            "$id": "https://example.com/strict",
            "$recursiveAnchor": True,
            "$ref": "tree",
            "unevaluatedProperties": False,
            "$defs": {"tree": PLAIN_TREE},
        },
        [{"data": 1}, {"children": [{"data": 1, "children": []}]}],
        [{"daat": 1}, {"children": [{"daat": 1}]}, {"children": [{"children": [{"x": 1}]}]}],
    ),
    Case(
        {
            "$schema": DRAFT_2019,
            "$id": "https://example.com/loose",
            "$ref": "tree",
            "minProperties": 1,
            "$defs": {"tree": PLAIN_TREE},
        },
        [{"data": 1}, {"children": [{"daat": 1}]}],
        [{}, {"children": [1]}],
    ),
    # A plain fragment is no anchor, whatever stands there; a reference may name an anchor too.
    Case(
        {
            "$id": "https://example.com/plain",
            "type": "array",
            "items": {"$dynamicRef": "#/$defs/text"},
            "contains": {"$ref": "#word"},
            "$defs": {"text": {"$dynamicAnchor": "word", **STRING}},
        },
        [["a"]],
        [[1], []],
    ),
    # Beside a reference an identifier of the older drafts is none.
    Case(
        {
            "$schema": DRAFT_7,
            "$id": "http://example.com/base/",
            "definitions": {
                "there": {"$id": "http://example.com/there.json", **STRING},
                "here": {"$id": "there.json", **INTEGER},
            },
            "allOf": [{"$id": "http://example.com/", "$ref": "there.json"}],
        },
        [1],
        ["a"],
    ),
]
