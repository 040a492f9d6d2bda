"""What an attack tried: each was a hang, a server without memory or a slow neighbour, and is refused for a reason."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.compilation import GrammarLimits
from proxy_inference_engine.state_machine.compiler import Compiler
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema, ToolChoice
from proxy_inference_engine.state_machine.machine import MachineBuilder
from tests.polling import HANG_S, wait_until
from tests.unit.state_machine.json_schema.odd_schemas import schemas
from tests.unit.state_machine.json_schema.work import lines_of
from tests.unit.state_machine.vocabularies import PieceTokenizer

SMALL: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.fixture(scope="module")
def builder() -> Iterator[MachineBuilder]:
    made = MachineBuilder(by_name("chatml"), PieceTokenizer(), limits=GrammarLimits(max_seconds=0.5))
    yield made
    made.close()


def demands(schema: dict[str, Any], *, is_strict: bool = True) -> list[Demand]:
    """As a format, and as what a tool takes."""
    tool = Tool("f", parameters={"type": "object", "properties": {"a": schema}}, is_strict=is_strict)
    return [Demand(output=JsonSchema(schema, is_strict)), Demand(tools=(tool,))]


def integers(*divisors: int) -> dict[str, Any]:
    properties = {f"p{number}": {"type": "integer", "multipleOf": each} for number, each in enumerate(divisors)}
    return {"type": "object", "properties": properties, "required": list(properties)}


BY_NAME: list[tuple[dict[str, Any], str]] = [
    ({"type": "array", "contains": {}, "minContains": 300_000_000}, "contains"),
    ({"type": "array", "contains": {}, "minContains": 1e300}, "contains"),
    ({"type": "integer", "multipleOf": 2_147_483_648}, "multipleOf"),
    ({"type": "integer", "multipleOf": 16_777_213}, "multipleOf"),
]


@pytest.mark.parametrize(("schema", "keyword"), BY_NAME, ids=str)
def test_a_number_that_is_too_large_is_refused_by_name(
    builder: MachineBuilder, schema: dict[str, Any], keyword: str
) -> None:
    for demand, path in zip(demands(schema), ("", "/properties/a"), strict=True):
        with pytest.raises(InvalidDemand) as caught:
            builder.build(demand)
        assert f"({path}/{keyword}: {keyword})" in caught.value.message


@pytest.mark.parametrize(("schema", "keyword"), BY_NAME, ids=str)
def test_or_left_out_where_the_client_allows_that(
    builder: MachineBuilder, schema: dict[str, Any], keyword: str
) -> None:
    for demand, path in zip(demands(schema, is_strict=False), ("", "f/properties/a"), strict=True):
        assert builder.build(demand).relaxed == (f"{path}:{keyword}",)


def test_a_bound_far_beyond_anything_is_one(builder: MachineBuilder) -> None:
    """The loop ran to the number, and the client's leaving did not stop it."""
    for demand in demands({"type": "array", "contains": {}, "maxContains": 1_000_000_000_000}):
        assert builder.build(demand).relaxed == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 2**53 - 1},
        {"type": "string", "maxLength": 1e300, "pattern": "^a"},
        {"type": "string", "minLength": 2**63 - 1},
        {"not": {"type": "string", "maxLength": 2**53 - 1}},
        {"type": "object", "propertyNames": {"maxLength": 2**53 - 1}},
        {"type": "object", "propertyNames": {"minLength": 2**32}},
    ],
    ids=str,
)
@pytest.mark.parametrize("family", ["chatml", "qwen3_coder"])
def test_a_length_that_no_answer_has_takes_nothing_else_with_it(family: str, schema: dict[str, Any]) -> None:
    """The library counts to 2**32: a longer one was refused without its name, or the whole schema was left out."""
    builder = MachineBuilder(by_name(family), PieceTokenizer())
    for demand in (*demands(schema), *demands(schema, is_strict=False)):
        assert builder.build(demand).relaxed == ()
    builder.close()


DIGITS = "9" * 5_000  # more than Python reads as a number
POINTED: list[dict[str, Any]] = [
    {"anyOf": [{"type": "string"}, {"$ref": f"#/anyOf/{DIGITS}"}]},
    {"anyOf": [{"type": "string"}, {"$dynamicRef": f"#/anyOf/{DIGITS}"}]},
    {"required": ["a"], "properties": {"a": False}, "anyOf": [{"$ref": f"#/anyOf/{DIGITS}"}]},
]


@pytest.mark.parametrize("schema", POINTED, ids=lambda schema: str(schema)[:60])
def test_a_reference_to_an_item_without_end_leads_nowhere(builder: MachineBuilder, schema: dict[str, Any]) -> None:
    for demand in demands(schema):
        with pytest.raises(InvalidDemand, match="reference"):
            builder.build(demand)


def test_a_refusal_does_not_repeat_all_of_a_long_name(builder: MachineBuilder) -> None:
    name = "x" * 100_000
    for schema in ({"properties": {name: {"type": 5}}}, {"allOf": [{"$ref": f"#/{name}"}]}):
        for demand in demands(schema):
            with pytest.raises(InvalidDemand) as caught:
                builder.build(demand)
            assert len(caught.value.message) < 2_000


HOPELESS: list[dict[str, Any]] = [
    {"type": "integer", "multipleOf": 999_983},
    integers(*range(10_001, 10_301)),
    integers(*range(10_001, 15_001)),
    {"type": "object", "properties": {f"p{number}": {} for number in range(18_000)}},
]


@pytest.mark.parametrize("schema", HOPELESS, ids=lambda schema: str(schema)[:60])
def test_what_takes_too_long_or_too_much_is_refused_and_blocks_nothing(
    builder: MachineBuilder, schema: dict[str, Any]
) -> None:
    for demand in demands(schema):
        with pytest.raises(InvalidDemand) as caught:
            builder.build(demand, "a")
        assert len(caught.value.message) < 600
        assert builder.build(Demand(output=JsonSchema(SMALL)), "b").constraint is not None
    pattern = {"type": "string", "pattern": "^a{3}$"}
    assert builder.build(Demand(output=JsonSchema(pattern)), "b").constraint is not None


def held(compiler: Compiler) -> None:
    """From now on the sandbox's process does nothing: what is tried there is tried until somebody ends it."""
    compiler.compile("start: /a{3}/")
    assert compiler.sandbox.pid is not None
    os.kill(compiler.sandbox.pid, signal.SIGSTOP)


def test_a_neighbour_gets_its_schema_while_a_hopeless_one_is_tried() -> None:
    builder = MachineBuilder(by_name("chatml"), PieceTokenizer(), limits=GrammarLimits(max_seconds=HANG_S))
    ends: list[Exception] = []

    def work() -> None:
        try:
            builder.build(Demand(output=JsonSchema(integers(*range(10_001, 15_001)))), "a")
        except (InvalidDemand, Unavailable) as error:
            ends.append(error)

    held(builder._compiler)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: builder._compiler.turns.is_taken)
    for schema in (SMALL, {"type": "string", "pattern": "^b{7}$"}):  # the second is not plainly harmless
        assert builder.build(Demand(output=JsonSchema(schema)), "b").constraint is not None
    assert thread.is_alive()
    builder.close()
    thread.join(HANG_S)
    assert ends


_SOURCE = random.Random(7)
PIECES = {"".join(_SOURCE.choices("abcdefghijklmnopqrstuvwxyz ", k=_SOURCE.randint(2, 12))) for _ in range(20_000)}


def test_a_grammar_that_slows_everybody_down_is_refused() -> None:
    builder = MachineBuilder(by_name("chatml"), PieceTokenizer(pieces=sorted(PIECES)))
    grammar = TextGrammar("lark", "start: ((/[a-z ]/)?){5000}")
    tool = Tool("f", kind=ToolKind.CUSTOM, grammar=grammar)
    for demand in (Demand(output=grammar), Demand(tools=(tool,), tool_choice=ToolChoice("required"))):
        with pytest.raises(InvalidDemand):
            builder.build(demand)
    builder.close()


@settings(max_examples=60, deadline=None)
@given(schema=schemas(), is_strict=st.booleans(), closes=st.booleans())
def test_any_numbers_anywhere_end_in_a_machine_or_a_refusal(
    builder: MachineBuilder, schema: Any, is_strict: bool, closes: bool
) -> None:
    def work() -> None:
        try:
            builder.build(Demand(output=JsonSchema(schema, is_strict), closes_objects=closes))
        except InvalidDemand as error:
            assert error.message

    assert lines_of(work, 4_000_000) > 0
