"""Divisors as the library holds them: in 32 bits, and what does not fit goes unnoticed there."""

from typing import Any

import pytest

from proxy_inference_engine.state_machine.json_schema import UnenforceableSchema, json_grammar
from proxy_inference_engine.state_machine.json_schema.result import Divisor, divisor_of
from tests.unit.state_machine.json_schema.acceptance import accepts, byte_tokenizer, compiled


@pytest.mark.parametrize(
    ("number", "digits", "num_decimals"),
    [(1, 1, 0), (10, 10, 0), (0.5, 5, 1), (0.01, 1, 2), (2.50, 25, 1), (1e3, 1000, 0), (1e-7, 1, 7), (12.0, 12, 0)],
)
def test_digits_and_decimals(number: float, digits: int, num_decimals: int) -> None:
    assert divisor_of(number) == Divisor(digits, num_decimals)
    assert divisor_of(number).is_held


@pytest.mark.parametrize("number", [10**6 + 1, 2**31, 1e300, 10**400, 1e-10, 5e-324, 0.1234567])
def test_what_is_not_held(number: float) -> None:
    assert not divisor_of(number).is_held


def together(*divisors: float) -> dict[str, Any]:
    return {"allOf": [{"type": "number", "multipleOf": divisor} for divisor in divisors]}


TOO_LARGE: list[dict[str, Any]] = [
    together(99_991, 85_915),
    together(65_536, 131_072),
    together(1_000, 1_001, 1_003),
    together(0.0001, 999_983),
    {
        "allOf": [{"$ref": "#/$defs/a"}, {"anyOf": [{"type": "null"}, {"multipleOf": 99_989}]}],
        "$defs": {"a": together(99_991)},
    },
]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("schema", TOO_LARGE, ids=str)
def test_divisors_whose_product_is_too_large_are_refused(schema: Any, is_strict: bool) -> None:
    """The library takes 792,173 for a multiple of 99,991 and 85,915: what is left of their product in 32 bits."""
    with pytest.raises(UnenforceableSchema) as refusal:
        json_grammar(schema, is_strict=is_strict)
    assert refusal.value.keyword == "multipleOf"


def test_common_multiples() -> None:
    tokenizer = byte_tokenizer()
    matcher, error = compiled(json_grammar({"properties": {"a": together(6, 15)}}), tokenizer)
    assert matcher is not None, error
    taken = [number for number in range(130) if accepts(matcher, tokenizer, f'{{"a":{number}}}')]
    assert taken == [0, 30, 60, 90, 120]


def test_divisors_of_different_values_do_not_meet() -> None:
    properties = {name: {"type": "integer", "multipleOf": divisor} for name, divisor in (("a", 99_991), ("b", 85_915))}
    assert json_grammar({"allOf": [{"properties": properties}, {"required": ["a"]}]}).relaxed == ()
