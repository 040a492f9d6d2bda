"""What working on the schemas of tools may cost, in every style of writing: all tools of a request together."""

from typing import Any

import pytest

from proxy_inference_engine.formats.syntax import CallSyntax
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine import machine
from proxy_inference_engine.state_machine.arguments import ArgumentGrammar
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand
from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary, Lark
from tests.unit.formats.derived.corpus import CORPUS
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.json_schema.work import bytes_of, lines_of
from tests.unit.state_machine.vocabularies import PieceTokenizer

_NUM_STEPS = 10_000  # fewer than requests have: what is counted is slow to run
_MAX_LINES = 400 * _NUM_STEPS
_MAX_BYTES = 64 << 20
VOCABULARY = GrammarVocabulary(PieceTokenizer(), [])
_DERIVED = ("elements within elements", "strings between marks", "Python in tokens", "pairs between signs")
SYNTAXES: dict[str, CallSyntax] = {
    **{
        name: syntax
        for name in ("qwen3", "qwen3_coder", "glm45", "gemma3")
        if (syntax := Family(name, True).format.calls)
    },
    **{written.name: written.syntax for written in CORPUS if written.name in _DERIVED},
}
_MANY = [{"type": "array", "items": {"$ref": "#/$defs/a"}} for _ in range(200)]
COSTLY: dict[str, Any] = {
    "refers to itself many times": {
        "$defs": {"a": {"anyOf": [*_MANY, {"type": "string"}]}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    },
    "many that refer to what is large": {
        "$defs": {f"d{n}": {"type": "array", "items": {"type": "integer"}} for n in range(400)},
        "properties": {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(400)},
    },
    "below a long name": {
        "properties": {
            "x" * 60_000: {"type": "object", "properties": {f"p{n}": {"type": "array"} for n in range(2_000)}}
        }
    },
}


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("style", SYNTAXES)
def test_no_style_does_more_than_the_budget_allows(style: str, name: str) -> None:
    tool = Tool("f", parameters={"type": "object", **COSTLY[name]})

    def work() -> None:
        try:
            ArgumentGrammar(Lark(VOCABULARY), SYNTAXES[style], budget=StepBudget(_NUM_STEPS)).write(tool, 0)
        except InvalidDemand as error:
            assert "'f'" in error.message and "too large" in error.message and error.index == 0

    assert bytes_of(lambda: lines_of(work, _MAX_LINES)) < _MAX_BYTES


_FILTERS = [
    {
        "type": "object",
        "properties": {
            "kind": {"const": kind},
            "field": {"type": "string"},
            "value": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
            "of": {"$ref": "#/$defs/Address"},
        },
        "required": ["kind", "field"],
    }
    for kind in ("eq", "lt", "gt", "in", "not")
]
_ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "maxLength": 100},
        "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
        "country": {"enum": [f"{first}{second}" for first in "ABCDEFGH" for second in "ABCDEFGHIJKLMNOPQRSTUVWXY"]},
    },
    "required": ["street"],
}
_PARAMETERS: tuple[dict[str, Any], ...] = (
    {"$ref": "#/$defs/Filter", "description": "Which of them."},
    {"type": "string", "enum": [f"option {n}" for n in range(12)]},
    {"$ref": "#/$defs/Address"},
    {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
    {"type": "array", "items": {"$ref": "#/$defs/Address"}, "maxItems": 50},
    {"type": "object", "properties": {f"k{n}": {"type": ["string", "null"]} for n in range(5)}, "required": ["k0"]},
    {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": 0}, {"type": "null"}]},
)


@pytest.mark.parametrize("style", SYNTAXES)
def test_the_largest_that_anybody_means_fits(style: str) -> None:
    """As many tools as OpenAI takes, with definitions, alternatives and twenty parameters each."""
    properties = {f"parameter_{n}": _PARAMETERS[n % len(_PARAMETERS)] for n in range(20)}
    parameters = {"$defs": {"Filter": {"oneOf": _FILTERS}, "Address": _ADDRESS}, "properties": properties}
    grammar = ArgumentGrammar(Lark(VOCABULARY), SYNTAXES[style])
    for number in range(128):
        grammar.write(Tool(f"tool_{number}", parameters={"type": "object", **parameters}), number)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_coder"])
def test_all_tools_of_a_request_have_one_budget(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred schemas, each of which takes long, took a hundred times as long."""
    monkeypatch.setattr(machine, "MAX_TOGETHER", 8_000)
    builder = MachineBuilder(Family(family, True).format, PieceTokenizer())
    properties = {f"p{number}": {"type": "integer"} for number in range(100)}
    tools = [Tool(f"f{number}", parameters={"type": "object", "properties": properties}) for number in range(40)]
    assert builder.build(Demand(tools=tuple(tools[:2]))).constraint is not None
    with pytest.raises(InvalidDemand, match="too large"):
        builder.build(Demand(tools=tuple(tools)))
    builder.close()
