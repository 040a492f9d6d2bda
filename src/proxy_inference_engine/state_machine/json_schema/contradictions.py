"""A schema that no value satisfies, without the keywords that contradict the others.

Only for those who did not ask for strictness: a tool of theirs is worth more than the keyword that spoils it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.state_machine.json_schema.budget import StepBudget
from proxy_inference_engine.state_machine.json_schema.document import WHOLE, rooted
from proxy_inference_engine.state_machine.json_schema.errors import ImpossibleSchema, UnenforceableSchema
from proxy_inference_engine.state_machine.json_schema.grammar import json_grammar
from proxy_inference_engine.state_machine.json_schema.keywords import ASSERTIONS, Address, Schema, at, pointer

_MAX_TRIES = 256  # each rewrites the whole schema
# Who lists the values says most clearly what is meant: that is given up last.
_LISTING = ("enum", "const")


class Reconciled(NamedTuple):
    schema: Schema
    relaxed: tuple[str, ...]  # "path:keyword" of what was taken out


def reconciled(schema: Schema, whole: StepBudget | None = None) -> Reconciled:
    """Raises UnenforceableSchema where a schema is malformed, or contradicts itself in too many ways."""
    search = _Search(StepBudget(whole=whole))
    relaxed: list[str] = []
    while search.is_impossible(schema, ()):
        address = search.culprit(schema, ())
        keyword = search.keyword(schema, address)
        relaxed.append(f"{pointer(address)}:{keyword or '*'}")
        schema = _without(schema, address, keyword)
    return Reconciled(schema, tuple(relaxed))


class _Search:
    def __init__(self, budget: StepBudget) -> None:
        self._num_tries = 0
        self._budget = budget  # for all tries together

    def is_impossible(self, root: Schema, address: Address) -> bool:
        """Whether no value satisfies the part of a document at an address."""
        self._num_tries += 1
        if self._num_tries > _MAX_TRIES:
            raise UnenforceableSchema("", "", "No value satisfies the schema, for too many reasons.")
        whole = root
        if address:
            whole = {"$ref": f"#/$defs/{WHOLE}{pointer(address)}", "$defs": {WHOLE: rooted(root)}}
        try:
            json_grammar(whole, is_strict=False, budget=self._budget)
        except ImpossibleSchema:
            return True
        return False

    def culprit(self, root: Schema, address: Address) -> Address:
        """The innermost part that is impossible by itself and makes all around it so."""
        seen = {address}
        while True:
            below = next(
                (each for each in _needed(root, address) if each not in seen and self.is_impossible(root, each)), None
            )
            if below is None:
                return address
            seen.add(below)
            address = below

    def keyword(self, root: Schema, address: Address) -> str | None:
        """The last one that makes the part possible when it is left out; None: it takes more than one."""
        part = at(root, address)
        names = [name for name in reversed(part) if name in ASSERTIONS] if isinstance(part, dict) else []
        names.sort(key=lambda name: name in _LISTING)
        return next((name for name in names if not self.is_impossible(_without(root, address, name), address)), None)


def _needed(root: Schema, address: Address) -> Iterator[Address]:
    """The parts of a schema without which it has no value."""
    schema = at(root, address)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = tuple(part.replace("~1", "/").replace("~0", "~") for part in reference[2:].split("/"))
        if isinstance(at(root, target), dict):
            yield target
    required = schema.get("required")
    properties = schema.get("properties", {})
    yield from (
        (*address, "properties", name)
        for name in (required if isinstance(required, list) else ())
        if isinstance(properties.get(name), dict)
    )
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((*address, keyword, str(index)) for index, _ in enumerate(schema.get(keyword, ())))
    if schema.get("minItems", 0) >= 1:
        prefix = schema.get("prefixItems", ())
        yield from ((*address, "prefixItems", str(index)) for index, _ in enumerate(prefix))
        if isinstance(schema.get("items"), dict) and not prefix:
            yield (*address, "items")


def _without(value: Any, address: Address, keyword: str | None) -> Any:
    """A copy in which the schema at an address lacks a keyword; None: all of them."""
    if not address:
        if keyword is None:
            return {}
        return {name: each for name, each in value.items() if name != keyword}
    first, *rest = address
    if isinstance(value, list):
        return [
            _without(each, tuple(rest), keyword) if str(index) == first else each for index, each in enumerate(value)
        ]
    return {**value, first: _without(value[first], tuple(rest), keyword)}


def loosened(schema: Any) -> dict[str, Any]:
    """What is left of a schema that is too much for the library: its type and the names at its top."""
    if not isinstance(schema, Mapping):
        return {}
    loose: dict[str, Any] = {key: schema[key] for key in ("type", "required") if key in schema}
    if isinstance(schema.get("properties"), Mapping):
        loose["properties"] = dict.fromkeys(schema["properties"], True)
    return loose
