"""SharedDefinitions: a parameter brings along the definitions that it needs, and all where that is not plain."""

from typing import Any

import pytest

from proxy_inference_engine.state_machine.definitions import SharedDefinitions
from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "a": {"type": "array", "items": {"$ref": "#/$defs/b"}},
        "b": {"anyOf": [{"$ref": "#/definitions/c"}, {"$ref": "#/$defs/a"}]},
        "d": {"type": "integer"},
        "e": {"$ref": "#/properties/x"},
    },
    "definitions": {"c": {"type": "string"}},
    "properties": {"x": {"type": "null"}, "id": {"type": "string"}},
}


def kept(value: Any, schema: Any = _SCHEMA) -> set[str] | str:
    """The names, or "all"."""
    shared = SharedDefinitions(schema, StepBudget()).of(value)
    if not shared:
        return set()
    whole = shared["$defs"]["whole"]
    if "properties" in whole:
        return "all"
    return {name for keyword in whole for name in whole[keyword]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "string"}, set()),
        (True, set()),
        ({"$ref": "#/definitions/c"}, {"c"}),
        ({"items": [{"$ref": "#/$defs/b"}]}, {"a", "b", "c"}),
        ({"properties": {"id": {"$ref": "#/$defs/d"}}}, {"d"}),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "#/$defs/e"}, "all"),
        ({"$ref": "#"}, "all"),
        ({"$ref": "#/$defs/a~1b"}, "all"),
        ({"$id": "x", "$ref": "y"}, "all"),
    ],
)
def test_what_a_parameter_needs_is_kept(value: Any, expected: set[str] | str) -> None:
    assert kept(value) == expected


def test_where_the_schema_has_a_name_everything_is_kept() -> None:
    assert kept({"$ref": "#/definitions/c"}, {"$id": "http://x/", **_SCHEMA}) == "all"


def test_references_lead_where_they_led() -> None:
    shared = SharedDefinitions(_SCHEMA, StepBudget()).of({"$ref": "#/$defs/a"})
    assert shared["$defs"]["whole"]["$defs"]["a"] == {"type": "array", "items": {"$ref": "#/$defs/whole/$defs/b"}}


def test_following_them_is_counted() -> None:
    """Many parameters that each lead to many definitions."""
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1000)}
    shared = SharedDefinitions({"$defs": chain}, StepBudget(10_000))
    with pytest.raises(OutOfSteps):
        for _ in range(11):
            shared.of({"$ref": "#/$defs/d0"})
