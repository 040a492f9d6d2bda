"""One rule says which values stand raw between tags."""

from typing import Any

import pytest

from proxy_inference_engine.formats.signature import is_raw, parameter_schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, True),
        ({"type": ["string"]}, True),
        ({"type": "string", "enum": ["a", 1]}, True),
        ({"enum": ["a", "b"]}, True),
        ({"type": ["string", "null"], "enum": ["a"]}, True),
        ({"const": "a"}, True),
        ({"type": ["string", "null"]}, False),
        ({"type": "integer"}, False),
        ({"enum": ["a", 1]}, False),
        ({"enum": []}, False),
        ({"const": 1}, False),
        ({"anyOf": [{"type": "string"}]}, False),
        ({"$ref": "#/$defs/text"}, False),
        ({}, False),
        (True, False),
        (False, False),
        (None, False),
    ],
)
def test_is_raw(schema: Any, expected: bool) -> None:
    assert is_raw(schema) is expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"properties": {"a": {"type": "string"}}}, {"type": "string"}),
        ({"properties": {"b": {}}, "additionalProperties": {"type": "string"}}, {"type": "string"}),
        ({"properties": {"a": True}, "additionalProperties": False}, True),
        ({"properties": {"b": {}}}, None),
        ({}, None),
        (None, None),
        (True, None),
    ],
)
def test_parameter_schema(parameters: Any, expected: Any) -> None:
    assert parameter_schema(parameters, "a") == expected
