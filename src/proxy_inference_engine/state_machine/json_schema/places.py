"""Where the schemas of a document stand, and that each is well-formed by itself. Knows nothing of references."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.errors import UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.keywords import LISTS, MAPS, SHAPES, SINGLE, Schema
from proxy_inference_engine.state_machine.json_schema.regexes import MalformedRegex, RegexError, read

MAX_DEPTH = 48

Address = tuple[str, ...]


class SchemaPlace(NamedTuple):
    """A schema of a document, and where in it the schema stands."""

    schema: Schema
    address: Address


def pointer(address: Address) -> str:
    """An address as a JSON pointer."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in address)


def children(schema: Mapping[str, Any]) -> Iterator[tuple[Address, Schema]]:
    """Every subschema that stands at a place where the specification puts one."""
    for keyword, value in schema.items():
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            yield from (((keyword, str(index)), one) for index, one in enumerate(value))
        elif isinstance(value, dict) and (keyword in MAPS or keyword == "dependencies"):
            yield from (((keyword, name), one) for name, one in value.items())
        elif keyword in SINGLE or keyword == "items":
            yield (keyword,), value


def mapped(schema: Mapping[str, Any], change: Callable[[Address, Schema], Schema]) -> dict[str, Any]:
    """A copy of a schema with every subschema changed."""
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
            result[keyword] = [change((keyword, str(index)), one) for index, one in enumerate(value)]
        elif isinstance(value, dict) and (keyword in MAPS or keyword == "dependencies"):
            result[keyword] = {name: change((keyword, name), one) for name, one in value.items()}
        else:
            result[keyword] = change((keyword,), value) if keyword in SINGLE or keyword == "items" else value
    return result


def check_shape(schema: Mapping[str, Any], address: Address, budget: StepBudget) -> None:
    """Refuse keywords whose values are malformed, and options that are not the client's to set."""
    for keyword, value in schema.items():
        rule = SHAPES.get(keyword)
        if rule is not None and not rule[0](value):
            raise UnenforceableSchema(pointer((*address, keyword)), keyword, f"It must be {rule[1]}.")
    if "x-guidance" in schema:
        raise UnenforceableSchema(pointer((*address, "x-guidance")), "x-guidance", "This keyword is reserved.")
    for pattern in (*schema.get("patternProperties", ()), *((schema["pattern"],) if "pattern" in schema else ())):
        _check_pattern(pattern, address, budget)


def _check_pattern(pattern: str, address: Address, budget: StepBudget) -> None:
    budget.think(len(pattern))
    try:
        read(pattern)
    except MalformedRegex as error:
        raise UnenforceableSchema(pointer(address), "pattern", f"{pattern!r} is no pattern: {error}.") from None
    except RegexError:
        return


def places(schema: Schema, budget: StepBudget, start: Address = ()) -> Iterator[SchemaPlace]:
    """Every schema of a document, each well-formed by itself; refuses what is nested too deeply."""
    stack = [SchemaPlace(schema, start)]
    while stack:
        place = stack.pop()
        if not isinstance(place.schema, dict):
            continue
        budget.spend()
        if len(place.address) > 2 * MAX_DEPTH:
            raise UnenforceableSchema(pointer(place.address[:8]), "", "The schema is nested too deeply.")
        check_shape(place.schema, place.address, budget)
        yield place
        stack += [SchemaPlace(one, (*place.address, *below)) for below, one in children(place.schema)]
