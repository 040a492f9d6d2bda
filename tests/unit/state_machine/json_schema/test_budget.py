"""Whatever numbers a schema holds, working on it ends soon: no loop and no list is as long as a client's number."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from proxy_inference_engine.state_machine.json_schema.budget import OutOfSteps, StepBudget
from proxy_inference_engine.state_machine.json_schema.closed_objects import closed
from tests.unit.state_machine.json_schema.odd_schemas import schemas
from tests.unit.state_machine.json_schema.work import bytes_of, lines_of

_NUM_STEPS = 10_000  # a smaller budget than schemas have: what is counted is slow to run
_MAX_LINES = 400 * _NUM_STEPS  # a step is some lines of Python; a loop up to a client's number has far more
_MAX_BYTES = 64 << 20


def test_a_budget_ends() -> None:
    budget = StepBudget(10)
    budget.spend(10)
    with pytest.raises(OutOfSteps):
        budget.spend()
    assert budget.num_spent == 11


def test_parts_add_up_to_steps() -> None:
    budget = StepBudget()
    for _ in range(16):
        budget.think(1)
    assert budget.num_spent == 2


def test_what_a_part_spends_its_whole_spends_too() -> None:
    whole = StepBudget(10)
    StepBudget(8, whole).spend(8)
    with pytest.raises(OutOfSteps):
        StepBudget(8, whole).spend(8)


def attempt(schema: Any, *, is_strict: bool, is_watched: bool = False) -> UnenforceableSchema | None:
    budget = StepBudget(_NUM_STEPS)
    try:
        _ = json_grammar(schema, is_strict=is_strict, budget=budget, any_order=True, is_watched=is_watched).lark
    except UnenforceableSchema as refusal:
        return refusal
    return None


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


NUMBERS_TOO_LARGE: list[tuple[dict[str, Any], str, str]] = [
    (array(contains={}, minContains=300_000_000), "/contains", "contains"),
    (array(contains={}, minContains=2_147_483_648), "/contains", "contains"),
    (array(contains={}, minContains=1e300), "/contains", "contains"),
    (array(contains={}, minContains=10**400), "/contains", "contains"),
    (array(contains={}, minContains=9, maxItems=10**12), "/contains", "contains"),
    ({"properties": {"a": array(contains={}, minContains=2**63)}}, "/properties/a/contains", "contains"),
    ({"type": "integer", "multipleOf": 2_147_483_648}, "/multipleOf", "multipleOf"),
    ({"type": "integer", "multipleOf": 16_777_213}, "/multipleOf", "multipleOf"),
    ({"items": {"type": "number", "multipleOf": 1e300}}, "/items/multipleOf", "multipleOf"),
    ({"items": {"type": "number", "multipleOf": 5e-324}}, "/items/multipleOf", "multipleOf"),
    ({"type": "integer", "minimum": 10**400}, "/minimum", "minimum"),
    ({"type": "object", "minProperties": 1e300}, "/minProperties", "minProperties"),
]


@pytest.mark.parametrize(("schema", "path", "keyword"), NUMBERS_TOO_LARGE, ids=str)
def test_a_number_that_is_too_large_is_refused_by_name(schema: Any, path: str, keyword: str) -> None:
    assert bytes_of(lambda: lines_of(lambda: attempt(schema, is_strict=True), _MAX_LINES)) < _MAX_BYTES
    refusal = attempt(schema, is_strict=True)
    assert refusal is not None
    assert (refusal.path, refusal.keyword) == (path, keyword)
    assert refusal.reason.endswith(".")


ENFORCED = [
    array(contains={}, maxContains=1_000_000_000_000),
    array(contains={"type": "string"}, minContains=0, maxContains=1e300),
    array(contains={"type": "string"}, maxContains=10**400, maxItems=2**63),
    array(items={"enum": [1, 2]}, uniqueItems=True, maxItems=1e300),
    array(maxItems=2**63, minItems=0.0),
    {"type": "object", "maxProperties": 1e300},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": False, "maxProperties": 10**30},
    {"type": "number", "minimum": -(10**400), "maximum": 10**400},
]


@pytest.mark.parametrize("schema", ENFORCED, ids=str)
def test_a_bound_that_says_nothing_is_taken(schema: Any) -> None:
    assert json_grammar(schema).relaxed == ()


COSTLY: list[Any] = [
    {"enum": ["ab" * 80 + str(number) for number in range(4_000)], "pattern": "((((a?)?)?)?){1,60}"},
    {"not": {"prefixItems": [{"type": "string"}] * 8_000}},
    {"properties": {f"a{number}": {} for number in range(4_000)}, "minProperties": 2_000, "type": "object"},
    {"allOf": [{"minProperties": number} for number in range(3_000)]},
    {"allOf": [{"properties": {f"a{number}": {"const": number}}} for number in range(3_000)]},
    {"allOf": [{"if": {"properties": {f"a{number}": {"enum": []}}}, "then": {}} for number in range(3_000)]},
    {"enum": list(range(5_000)), "not": {"const": list(range(5_000))}},
    {"enum": [list(range(300)), list(range(299))], "not": {"enum": [list(range(300))] * 200}},
    {"patternProperties": {f"^(a|b)*a(a|b){{{number % 9}}}{number}$": {} for number in range(400)}},
    {"type": "string", "not": {"enum": [f"{number}" * 200 for number in range(900)]}},
    {"$defs": {"a": {"const": "x" * 5_000}}, "prefixItems": [{"$ref": "#/$defs/a", "minLength": 1}] * 5_000},
    {
        "$defs": {"a": {"type": "object", "required": [f"n{number}" for number in range(5_000)]}},
        "prefixItems": [{"$ref": "#/$defs/a", "minProperties": 1}] * 5_000,
    },
    {"$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}, "minItems": 1} for n in range(900)} | {"d900": {}}},
    {
        "required": [f"a{n}" for n in range(9_000)],
        "properties": {f"a{n}": {} for n in range(9_000)},
        "maxProperties": 1,
    },
    {"patternProperties": {"((((a?)?)?)?){1,60}": {}}, "properties": {"ab" * 50 + str(n): {} for n in range(3_000)}},
    {"anyOf": [{"properties": {f"a{n}": {}}} for n in range(3_000)], "unevaluatedProperties": False},
    {
        "properties": {f"a{n}": {} for n in range(5_000)},
        "allOf": [{"anyOf": [{"properties": {f"b{n}": {}}}, {"properties": {f"c{n}": {}}}]} for n in range(300)],
        "unevaluatedProperties": False,
    },
    {"allOf": [{"contains": {"const": n}} for n in range(2_000)], "unevaluatedItems": False},
    {"if": {"$ref": "#"}, "unevaluatedProperties": False},
    {
        "$id": "http://example.com/",
        "properties": {f"p{n}": {"$dynamicRef": f"r{n}#a"} for n in range(300)},
        "$defs": {
            f"d{n}": {
                "$id": f"r{n}",
                "$dynamicAnchor": "a",
                "items": {"$dynamicRef": f"r{(n + 1) % 300}#a"},
                "$defs": {f"e{m}": {"$dynamicAnchor": f"x{m}"} for m in range(10)},
            }
            for n in range(300)
        },
    },
    {
        "$id": "http://example.com/",
        "$ref": "r0",
        "$defs": {
            f"d{n}": {
                "$id": f"r{n}",
                "$dynamicAnchor": f"x{n}",
                "properties": {f"p{m}": {"$ref": f"r{m}"} for m in range(12)},
                "items": {"$dynamicRef": f"#x{n}"},
            }
            for n in range(12)
        },
    },
    {"allOf": [{"patternProperties": {f"{n}": {}, f"^a{n}": {}}} for n in range(200)]},
    {
        "type": "object",
        "properties": {f"a{n}": {} for n in range(9_000)},
        "required": [f"a{n}" for n in range(8_999, 0, -1)],
    },
    [{"type": "string"}] * 3,
    {"description": "x" * (1 << 20)},
    {
        "type": "object",
        "allOf": [{"anyOf": [{"required": [f"{letter}{n}"]} for n in range(3_000)]} for letter in "ab"],
    },
    {
        "type": "object",
        "allOf": [{"anyOf": [{"required": [f"{letter}{n}"]} for n in range(60)]} for letter in "abcd"],
    },
    {
        "type": "object",
        "properties": {f"a{n}": {} for n in range(1_000)},
        "required": [f"a{n}" for n in range(1_000)],
        "anyOf": [{"minProperties": 1_000 + n, "maxProperties": 3_000 + n} for n in range(2_000)],
    },
    {"$id": "http://a/" + "b/" * 100_000, "$defs": {f"d{n}": {"$id": f"x{n}"} for n in range(2_000)}},
    {
        "$id": "http://a/" + "b/" * 100_000,
        "$defs": {"d": {"$id": "d"}},
        "properties": {f"p{n}": {"$ref": f"x{n}"} for n in range(2_000)},
    },
    {"properties": {"x" * 400_000: {"$id": "u", "items": [{"$anchor": f"a{n}"} for n in range(3_000)]}}},
    {"properties": {"x" * 400_000: {"properties": {f"p{n}": {"uniqueItems": True} for n in range(3_000)}}}},
]


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("schema", COSTLY, ids=[str(index) for index in range(len(COSTLY))])
def test_costly_schemas_end_within_the_budget(schema: Any, is_watched: bool) -> None:
    assert lines_of(lambda: attempt(schema, is_strict=True, is_watched=is_watched), _MAX_LINES) <= _MAX_LINES
    assert bytes_of(lambda: attempt(schema, is_strict=False, is_watched=is_watched)) < _MAX_BYTES


def test_closing_what_stands_below_a_long_name_is_within_the_budget() -> None:
    """A pointer was kept for each of 60,000 schemas, half a million characters each."""

    def work() -> None:
        with pytest.raises(OutOfSteps):
            closed({"properties": {"x" * 400_000: {"properties": {f"p{n}": {} for n in range(20_000)}}}})

    assert bytes_of(lambda: lines_of(work, _MAX_LINES)) < _MAX_BYTES


def test_a_schema_that_is_too_much_is_refused_where_it_is() -> None:
    """The first thing that a client wants to know is which part of its schema that was."""
    inner = {"oneOf": [{"properties": {f"a{number}": {"type": "string"}}} for number in range(600)]}
    refusal = attempt({"properties": {"deep": {"items": inner}}}, is_strict=True)
    assert refusal is not None
    assert (refusal.path, refusal.keyword) == ("/properties/deep/items", "oneOf")
    assert "too many" in refusal.reason


# Any schema with any numbers


@settings(max_examples=150, deadline=None)
@given(schema=schemas(), is_strict=st.booleans(), is_watched=st.booleans())
def test_any_numbers_anywhere(schema: Any, is_strict: bool, is_watched: bool) -> None:
    def work() -> None:
        attempt(schema, is_strict=is_strict, is_watched=is_watched)

    assert bytes_of(lambda: lines_of(work, _MAX_LINES)) < _MAX_BYTES
