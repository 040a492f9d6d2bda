"""What may be compiled at once: all that the machine writes by itself and plain schemas; nothing that is unknown."""

import json
from time import thread_time
from typing import Any

import pytest

from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.compilation import GrammarLimits, compile_grammar
from proxy_inference_engine.state_machine.compiler import is_harmless
from proxy_inference_engine.state_machine.demand import Demand, JsonObject, JsonSchema, ListedText, ToolChoice
from proxy_inference_engine.state_machine.json_schema import json_grammar
from proxy_inference_engine.state_machine.machine import RootConstraint
from tests.unit.state_machine.families import NAMES, Family

_HANG_S = 20.0


def text_of(family: Family, demand: Demand) -> str:
    constraint = family.builder.build(demand).constraint
    assert isinstance(constraint, RootConstraint) and constraint.grammar is not None
    return constraint.grammar


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b\n", 'c"']}, "maxItems": 5},
        "kind": {"anyOf": [{"type": "null"}, {"const": "x"}]},
        "when": {"type": "string", "format": "date-time"},
        "price": {"type": "number", "multipleOf": 0.01},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"in": {"$ref": "#/$defs/place"}}}},
}
TOOLS = (Tool("weather", parameters=PERSON), Tool("note", parameters={}), Tool("free", kind=ToolKind.CUSTOM))


@pytest.mark.parametrize("has_tokens", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_plain_schemas_and_choices_are_harmless_in_every_family(name: str, has_tokens: bool) -> None:
    family = Family(name, has_tokens)
    for demand in (
        Demand(output=JsonSchema(PERSON)),
        Demand(output=JsonObject()),
        Demand(output=ListedText(("yes", "no", "<tool_call>", "/x{9}/", "a\nb"))),
        Demand(tools=TOOLS[:2]),
        Demand(tools=TOOLS[:2], tool_choice=ToolChoice("required"), max_calls=3),
        Demand(tools=TOOLS[:2], output=JsonSchema(PERSON), is_reasoning_open=family.can_think),
        Demand(tools=TOOLS[2:]),
    ):
        assert is_harmless(text_of(family, demand)), demand


@pytest.mark.parametrize(
    "demand",
    [
        Demand(output=TextGrammar("regex", "a+")),
        Demand(output=TextGrammar("regex", "abc")),
        Demand(output=TextGrammar("lark", 'start: "a"')),
        Demand(output=JsonSchema({"type": "string", "pattern": "a"})),
        Demand(output=JsonSchema({"type": "object", "patternProperties": {"^a+$": {}}})),
        Demand(output=JsonSchema({"type": "integer", "multipleOf": 997})),
    ],
    ids=str,
)
def test_a_clients_own_regexes_and_grammars_are_not(demand: Demand) -> None:
    assert not is_harmless(text_of(Family("chatml", has_tokens=True), demand))


def schema_text(schema: Any) -> str:
    return "start: r0\nr0: " + json_grammar(schema).lark


def wide(num: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(num)}, **more}


NOT_HARMLESS: list[dict[str, Any]] = [
    {"type": "integer", "multipleOf": 211},
    {"properties": {f"p{number}": {"type": "integer", "multipleOf": number} for number in range(2, 20)}},
    {"type": "string", "maxLength": 1_000_000},
    {"type": "array", "minItems": 1_000_000},
    {"type": "string", "format": "email", "maxLength": 10},
    {"type": "string", "format": "uuid", "pattern": "(a{1,100}){1,100}"},
    wide(500),
    {"anyOf": [wide(10, required=[f"p{number}"]) for number in range(10)] + [wide(110), wide(109), wide(108)]},
    {"anyOf": [{"type": "string", "maxLength": number} for number in range(60)]},
    {"allOf": [{"anyOf": [wide(number + seed) for number in range(1, 8)]} for seed in (0, 10)]},
    {"properties": {f"p{n}": {"type": "integer", "minimum": 10**17 + n, "maximum": 10**18} for n in range(60)}},
    {"properties": {f"p{number}": {"type": "string", "format": "uri"} for number in range(80)}},
    {"enum": [f"{number:09}" for number in range(9_000)]},
    {"type": "object", "maxProperties": 5},
]


@pytest.mark.parametrize("schema", NOT_HARMLESS, ids=lambda schema: str(schema)[:60])
def test_what_may_be_much_is_not(schema: dict[str, Any]) -> None:
    assert not is_harmless(schema_text(schema))


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "{",
        "{}",
        '{"grammars": []}',
        json.dumps({"grammars": [{"name": "main", "lark_grammar": "start: @g0"}, {"name": "g0", "lark_grammar": ""}]}),
        json.dumps({"grammars": [{"name": "main", "lark_grammar": '%llguidance {"no_forcing": true}\nstart: "a"'}]}),
        "start: /a+/",
        "start: /[a]/",
        "start: /a{9}/",
        "start: /a|b/",
        r"start: /\w/",
        "start: /a/i",
        'start: "a"{500}',
        'start: "a"+',
        "start: (x)\nx: /a/",
        'start: "a" // comment',
        "start: %regex {}",
        "start: @g0",
        "start: T\nT: /(?s:.*)/ & ~/(a*)*/",
        "start: %json {",
        "start: %json []",
        'start: %json {"type": "string"} "x"',
        'start: %json {"if": {}}',
        'start[max_tokens=5]: "a"',
    ],
)
def test_what_it_does_not_know_is_not(grammar: str) -> None:
    assert not is_harmless(grammar)


LARGEST: list[dict[str, Any]] = [
    {"type": "object", "properties": {f"o{number}": wide(110) for number in range(12)}},
    {"anyOf": [wide(7, required=[f"p{number % 7}"]) for number in range(32)]},
    {"enum": [f"w{number:05}" for number in range(5_000)]},
    {"properties": {f"p{n}": {"type": "integer", "minimum": 10**17 + n, "maximum": 10**18} for n in range(36)}},
    {"properties": {f"p{number}": {"type": "string", "format": "date"} for number in range(60)}},
    {"properties": {f"p{number}": {"type": "string", "format": "uri"} for number in range(28)}},
    {"anyOf": [{"type": "string", "minLength": number * 7, "maxLength": 99_000 + number} for number in range(32)]},
    {"anyOf": [{"type": "integer", "multipleOf": divisor} for divisor in (19, 23, 31, 47)]},
    {
        "type": "array",
        "items": {"type": "array", "items": {"type": "string", "maxLength": 100_000}, "maxItems": 100_000},
    },
    {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": wide(3, properties={"x": {"$ref": f"#/$defs/d{n + 1}"}}) for n in range(190)} | {"d190": {}},
    },
]


@pytest.mark.parametrize("schema", LARGEST, ids=lambda schema: str(schema)[:60])
def test_the_largest_that_are_harmless_are(schema: dict[str, Any]) -> None:
    grammar = schema_text(schema)
    assert is_harmless(grammar)
    began = thread_time()
    compile_grammar(Family("chatml", has_tokens=True).builder.vocabulary.ll, grammar, GrammarLimits())
    assert thread_time() - began < _HANG_S
