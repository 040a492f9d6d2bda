"""Formats tried before they are used: can they be enforced, why not and where, and what do they let through?"""

from typing import Any

import httpx
import pytest

from proxy_inference_engine.server.apis.schemas.schema import MAX_INSTANCE_CHARS
from proxy_inference_engine.state_machine.schema_report import _ADVICE
from tests.api.running import MODEL

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


def schema_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, **more}}


def check(http: httpx.Client, response_format: Any, *instances: Any, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "response_format": response_format, "instances": list(instances), **more}
    answer = http.post("/v1/schemas/check", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["object"] == "format.check" and found["model"] == MODEL
    return found


def test_a_schema_that_can_be_enforced(http: httpx.Client) -> None:
    found = check(http, schema_format(PERSON), {"name": "Anna", "age": 5}, {"name": "Anna", "age": -5})
    assert found["is_enforceable"] and found["problem"] is None and found["relaxed"] == []
    assert found["compile_ms"] >= 0 and found["grammar_chars"] > 0 and found["mask_us"]["max"] > 0
    good, bad = found["instances"]
    assert good["is_accepted"] and good["text"] == '{"name":"Anna","age":5}'
    assert 0 < good["forced_tokens"] < good["tokens"]
    assert not bad["is_accepted"] and bad["text"][: bad["accepted_chars"]] == '{"name":"Anna","age":'


def test_a_schema_that_cannot_says_where_and_what_to_write(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    found = check(http, schema_format(schema))
    assert not found["is_enforceable"] and found["instances"] == []
    problem = found["problem"]
    assert problem["path"] == "/properties/tags/uniqueItems" and problem["keyword"] == "uniqueItems"
    assert "items differ" in problem["reason"] and problem["advice"] == _ADVICE["uniqueItems"]
    assert found["relaxed"] == ["/properties/tags/uniqueItems:uniqueItems"] or found["relaxed"]
    lenient = check(http, schema_format(schema, strict=False))
    assert lenient["is_enforceable"] and lenient["relaxed"] == found["relaxed"]
    wrong = check(http, schema_format({"type": "x"}))
    assert wrong["problem"]["path"] == "/type" and wrong["problem"]["advice"] is None  # leaving out would not help


# Patterns of which the library cannot tell whether any text has them all.
HARD = [{"pattern": "^([a-z][0-9])+$"}, {"pattern": "((c1d3g3).{4,8}){6,6}"}, {"pattern": "(t|8){10,10}$"}]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "string", "minLength": 100, "allOf": HARD}, ""),
        ({"minLength": 100, "allOf": HARD, "pattern": "c1d"}, "/pattern"),
    ],
)
def test_what_the_library_does_not_compile_is_found_too(http: httpx.Client, schema: Any, path: str) -> None:
    whole = {"type": "object", "properties": {"a": PERSON, "b": {"type": "array", "items": {"$ref": "#/$defs/c"}}}}
    whole["$defs"] = {"c": {**PERSON, "properties": {"x": {"type": "null"}, "d": schema}}}
    problem = check(http, schema_format(whole))["problem"]
    assert problem["path"] == "/$defs/c/properties/d" + path
    assert problem["keyword"] == "pattern" and problem["advice"] == _ADVICE["pattern"]
    assert "regex" in problem["reason"]


def test_what_it_says_is_what_chat_does(http: httpx.Client) -> None:
    for schema in (PERSON, {"type": "array", "uniqueItems": True}, {"$ref": "#/nowhere"}, {"type": "x"}):
        wanted = schema_format(schema)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        answer = http.post("/v1/chat/completions", json={**body, "response_format": wanted})
        assert (answer.status_code == 200) == check(http, wanted)["is_enforceable"]


def test_objects_are_closed_unless_they_are_to_be_open(http: httpx.Client) -> None:
    extra = {"name": "A", "age": 1, "x": 2}
    assert not check(http, schema_format(PERSON), extra)["instances"][0]["is_accepted"]
    assert check(http, schema_format(PERSON), extra, open_objects=True)["instances"][0]["is_accepted"]


def test_regexes_grammars_and_choices(http: httpx.Client) -> None:
    regex = {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}"}
    assert [each["is_accepted"] for each in check(http, regex, "123", "12x")["instances"]] == [True, False]
    lark = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" | "b"'}
    assert [each["is_accepted"] for each in check(http, lark, "a", "c")["instances"]] == [True, False]
    choice = {"type": "choice", "choices": ["yes", "no"]}
    assert [each["is_accepted"] for each in check(http, choice, "no", "maybe")["instances"]] == [True, False]
    assert check(http, {"type": "text"}, "anything")["instances"][0]["is_accepted"]
    assert check(http, {"type": "json_object"}, {"a": 1})["instances"][0]["is_accepted"]


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [("regex", "("), ("lark", "start: nowhere"), ("regex", "(a{1,999}){1,999}"), ("lark", "nonsense")],
)
def test_grammars_that_cannot_be_compiled_say_why(http: httpx.Client, syntax: str, definition: str) -> None:
    found = check(http, {"type": "grammar", "syntax": syntax, "definition": definition})
    assert not found["is_enforceable"] and found["problem"]["reason"] and found["problem"]["path"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "text"}, "instances": [5]}, "instances[0]"),
        ({"response_format": {"type": "json_object"}, "instances": ["x" * MAX_INSTANCE_CHARS]}, "instances[0]"),
        ({"response_format": {"type": "text"}, "instances": ["a"] * 9}, "instances"),
        ({"response_format": {"type": "text"}, "open_objects": 1}, "open_objects"),
        ({"response_format": {"type": "text"}, "more": 1}, "more"),
    ],
)
def test_refusals_name_the_parameter(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    answer = http.post("/v1/schemas/check", json={"model": MODEL, **body})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_large_and_many_bodies_are_refused(http: httpx.Client) -> None:
    large = {"description": "x" * 300_000}
    for wanted, param in (
        (schema_format(large), "response_format.json_schema.schema"),
        ({"type": "grammar", "syntax": "lark", "definition": "x" * 300_000}, "response_format.definition"),
        ({"type": "choice", "choices": ["a"] * 5000}, "response_format.choices"),
    ):
        answer = http.post("/v1/schemas/check", json={"model": MODEL, "response_format": wanted})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    broken = http.post("/v1/schemas/check", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400 and broken.json()["error"]["code"] == "invalid_json"


def test_a_model_that_is_not_served(http: httpx.Client) -> None:
    answer = http.post("/v1/schemas/check", json={"model": "x", "response_format": {"type": "text"}})
    assert answer.status_code == 404


def test_deep_and_hostile_schemas_end(http: httpx.Client) -> None:
    deep: Any = {"type": "string"}
    for _ in range(25):
        deep = {"type": "object", "properties": {"<img src=x onerror=alert(1)>": deep}}
    hostile = {"type": "string", "pattern": "(a+)+(?=b)" * 50}
    for schema in (deep, hostile, {"enum": [2**63 - 1]}, {"multipleOf": 1e-300}, {"minItems": 2**62, "type": "array"}):
        found = check(http, schema_format(schema))
        assert found["is_enforceable"] or found["problem"]["reason"]
