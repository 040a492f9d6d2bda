"""Python functions as tools: what a model is told of them, and how they are called."""

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from proxy_inference_engine.python.functions import FunctionTool, as_text, read_docstring


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


class Place(BaseModel):
    city: str


def weather(
    where: Place, day: datetime.date, unit: Unit = Unit.CELSIUS, schema: Literal["short", "long"] = "short"
) -> str:
    """Tell the weather of a day.

    Of the past too.

    Args:
        where: a place, such as: Rome
        day (date): which day,
            in this century
        unit: of the temperature

    Returns:
        a sentence
    """
    return f"{where.city} {day.year} {unit.name} {schema}"


def test_the_schema_is_the_signature() -> None:
    tool = FunctionTool.of(weather)
    spec = tool.spec["function"]
    assert (spec["name"], spec["description"]) == ("weather", "Tell the weather of a day.\n\nOf the past too.")
    parameters = spec["parameters"]
    assert list(parameters["properties"]) == ["where", "day", "unit", "schema"]
    assert parameters["required"] == ["where", "day"] and parameters["additionalProperties"] is False
    assert parameters["properties"]["day"] == {
        "description": "which day, in this century",
        "format": "date",
        "type": "string",
    }
    assert parameters["properties"]["schema"]["enum"] == ["short", "long"]
    assert parameters["properties"]["where"]["description"] == "a place, such as: Rome"
    assert "title" not in parameters


def test_arguments_come_as_the_types_say() -> None:
    tool = FunctionTool.of(weather)
    assert tool.call('{"where": {"city": "Rome"}, "day": "2024-05-06"}') == "Rome 2024 CELSIUS short"
    assert tool.call('{"where": {"city": "Rome"}, "day": "2024-05-06", "unit": "k"}') == "Rome 2024 KELVIN short"
    with pytest.raises(ValueError, match="weather"):
        tool.call('{"where": {"city": "Rome"}}')


def test_methods_and_functions_without_parameters() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def increase(self, by: Annotated[int, Field(description="how much", ge=1)]) -> int:
            """Count on."""
            self.count += by
            return self.count

    counter = Counter()
    tool = FunctionTool.of(counter.increase)
    assert tool.spec["function"]["parameters"]["properties"]["by"] == {
        "description": "how much",
        "minimum": 1,
        "type": "integer",
    }
    assert (tool.call('{"by": 2}'), counter.count) == (2, 2)

    def now() -> str:
        return "noon"

    assert FunctionTool.of(now).call("") == "noon"


def untyped(a) -> str:  # type: ignore[no-untyped-def]  # that is the point
    return str(a)


def variadic(*rest: int) -> int:
    return len(rest)


@pytest.mark.parametrize("function", [untyped, variadic, 5])
def test_what_cannot_be_a_tool(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        FunctionTool.of(function)


@dataclass
class Reading:
    value: float


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        (Place(city="Rome"), '{"city":"Rome"}'),
        ([1, None], "[1,null]"),
        (Reading(1.5), '{"value":1.5}'),
        (None, "null"),
    ],
)
def test_results_as_text(result: object, text: str) -> None:
    assert as_text(result) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("", {})),
        ("One line.", ("One line.", {})),
        ("Do it.\n\n:param a: first\n:param int b: second\n:returns: all", ("Do it.", {"a": "first", "b": "second"})),
        (
            "Do it.\n\nArgs:\n  a: see http://x: y\n  *rest: more\n",
            ("Do it.", {"a": "see http://x: y", "rest": "more"}),
        ),
        ("Note: this stays.\nArguments:\n  a: b", ("Note: this stays.", {"a": "b"})),
    ],
)
def test_docstrings(text: str, expected: tuple[str, dict[str, str]]) -> None:
    assert read_docstring(text) == expected
