"""Arguments whose strings stand between marks: bound at any depth, with unions and references."""

from typing import Any

import pytest

from proxy_inference_engine.formats import by_name
from proxy_inference_engine.formats.base import Format
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.demand import Demand, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.unit.state_machine.vocabularies import PieceTokenizer, verdict

MARKED = CallSyntax(
    opening="<call>",
    before_name="<call>",
    between="{",
    after="}</call>",
    separator="",
    style=ArgumentStyle.MARKED,
    parameter=Parameter("", ":", "", ",", before_text="<q>", after_text="<q>"),
)
FORMAT = Format(name="marked", template=by_name("plain").template, calls=MARKED)


@pytest.fixture(scope="module")
def builder() -> Any:
    made = MachineBuilder(FORMAT, PieceTokenizer(specials=["<q>"]))
    yield made
    made.close()


def judge(builder: MachineBuilder, schema: Any, value: str, *, is_strict: bool = True) -> str:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    if isinstance(schema, dict):
        parameters["$defs"] = {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}
    tool = Tool("f", parameters=parameters, is_strict=is_strict)
    demand = Demand(tools=(tool,), tool_choice=ToolChoice("required"), is_parallel=False)
    return verdict(builder, demand, f"<call>f{{x:{value}}}</call>")


TEXT, COUNT = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (TEXT, ["<q>a, b}<q>", "<q><q>"], ["a", '"a"', "1"]),
        (COUNT, ["3", "-1"], ["<q>3<q>", "3.5", "true"]),
        ({"type": "boolean"}, ["true"], ["True", "<q>true<q>"]),
        ({"enum": ["a", "b"]}, ["<q>b<q>"], ["<q>c<q>", "b"]),
        ({"enum": ["a", 1, None]}, ["<q>a<q>", "1", "null"], ["<q>1<q>", "2"]),
        ({"type": ["string", "null"]}, ["<q>a<q>", "null"], ["1"]),
        ({"anyOf": [TEXT, {"type": "array", "items": COUNT}]}, ["<q>a<q>", "[1,2]", "[]"], ["[<q>a<q>]", "1"]),
        ({"type": "array", "items": TEXT}, ["[<q>a<q>,<q>b<q>]", "[]"], ["[a]", "[1]", "<q>a<q>"]),
        (
            {"type": "object", "properties": {"a": TEXT, "b": COUNT}, "required": ["b"]},
            ["{a:<q>x<q>,b:1}", "{b:1}"],
            ["{}", "{a:<q>x<q>}", "{b:<q>1<q>}", "{c:1}"],
        ),
        ({"$ref": "#/$defs/node"}, ["{}", "{next:{next:{}}}"], ["{other:1}", "1"]),
        ({"type": "string", "pattern": "^[ab]+$"}, ["<q>abba<q>"], ["<q>c<q>"]),
    ],
)
def test_a_value_is_bound(builder: MachineBuilder, schema: Any, good: list[str], bad: list[str]) -> None:
    assert {judge(builder, schema, value) for value in good} <= {"ended", "complete"}
    assert {judge(builder, schema, value) for value in bad} == {"refused"}


def test_what_cannot_bind_is_any_value(builder: MachineBuilder) -> None:
    for value in ("<q>a<q>", "1.5", "null", "[1,[<q>b<q>]]", "{a:{b:<q>c<q>}}"):
        assert judge(builder, True, value) in ("ended", "complete")
        assert judge(builder, {"not": {"type": "null"}}, value, is_strict=False) in ("ended", "complete")
    assert judge(builder, True, "bare") == "refused"
