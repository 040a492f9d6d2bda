"""Small random schemas and values over the same few names and constants, so that they often concern each other."""

import random
from collections.abc import Callable
from typing import Any

NAMES = ["a", "b", "c", "ab", "x1"]
SCALARS = [None, True, False, 0, 1, 2, 3, 5, 10, -1, 1.5, "", "a", "b", "ab", "abc", "x1", "A", "foo"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
PATTERNS = ["^a", "b$", "^[a-z]+$", "a", "^ab?$", "x[0-9]", "^(?!a)", "^.*$", ".*", "^[^a]*$"]
# Not 2019-09: the validator takes the keywords of a schema in additionalProperties for names of properties there.
DRAFTS = [None, None, None, "http://json-schema.org/draft-07/schema#"]
NAME_SCHEMAS = [{"pattern": "^a"}, {"enum": ["a", "b"]}, {"maxLength": 1}, {"not": {"const": "a"}}, False]


def random_value(source: random.Random, depth: int = 0) -> Any:
    kind = source.random()
    if depth > 1 or kind < 0.45:
        return source.choice(SCALARS)
    if kind < 0.7:
        return [random_value(source, depth + 1) for _ in range(source.randint(0, 3))]
    return {name: random_value(source, depth + 1) for name in NAMES if source.random() < 0.35}


def mutated(value: Any, source: random.Random) -> Any:
    """A value with one change somewhere in it."""
    if isinstance(value, list) and value and source.random() < 0.8:
        index = source.randrange(len(value))
        kept = [mutated(value[index], source)] if source.random() < 0.6 else [value[index]] * source.choice([0, 2])
        return [*value[:index], *kept, *value[index + 1 :]]
    if isinstance(value, dict) and value and source.random() < 0.8:
        name = source.choice(list(value))
        if source.random() < 0.3:
            return {other: one for other, one in value.items() if other != name}
        return {**value, name: mutated(value[name], source)}
    if isinstance(value, dict):
        return {**value, source.choice(NAMES): random_value(source, 1)}
    return random_value(source, 1)


class SchemaSource:
    """Makes schemas of every keyword but `format`, at random. One document each."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self._has_definitions = False
        choice, size = self.random.choice, self.random.randint
        self._keywords: dict[str, Callable[[int], Any]] = {
            "const": lambda depth: random_value(self.random, 1),
            "enum": lambda depth: [random_value(self.random, 1) for _ in range(size(1, 4))],
            "minimum": lambda depth: choice([0, 1, 2, 1.5]),
            "maximum": lambda depth: choice([1, 2, 5, 2.5]),
            "exclusiveMinimum": lambda depth: choice([-1, 0, 1, 0.5]),
            "exclusiveMaximum": lambda depth: choice([2, 3, 10, 1.5]),
            "multipleOf": lambda depth: choice([1, 2, 5, 0.5]),
            "minLength": lambda depth: size(0, 2),
            "maxLength": lambda depth: size(0, 3),
            "pattern": lambda depth: choice(PATTERNS),
            "properties": lambda depth: {name: self.schema(depth) for name in NAMES if self.random.random() < 0.4},
            "required": lambda depth: self.random.sample(NAMES, size(1, 2)),
            "additionalProperties": self.schema,
            "patternProperties": lambda depth: {
                one: self.schema(depth) for one in self.random.sample(PATTERNS, size(1, 2))
            },
            "items": self.schema,
            "prefixItems": lambda depth: [self.schema(depth) for _ in range(size(1, 2))],
            "minItems": lambda depth: size(0, 2),
            "maxItems": lambda depth: size(0, 2),
            "allOf": lambda depth: [self.schema(depth) for _ in range(size(1, 3))],
            "anyOf": lambda depth: [self.schema(depth) for _ in range(size(1, 3))],
            "oneOf": lambda depth: [self.schema(depth) for _ in range(size(1, 3))],
            "not": self.schema,
            "if": self.schema,
            "then": self.schema,
            "else": self.schema,
            "minProperties": lambda depth: size(0, 2),
            "maxProperties": lambda depth: size(0, 2),
            "dependentRequired": lambda depth: {choice(NAMES): [choice(NAMES)]},
            "dependentSchemas": lambda depth: {choice(NAMES): self.schema(depth)},
            "propertyNames": lambda depth: choice(NAME_SCHEMAS),
            "contains": self.schema,
            "minContains": lambda depth: size(0, 2),
            "maxContains": lambda depth: size(1, 2),
            "uniqueItems": lambda depth: True,
            "unevaluatedProperties": self.schema,
            "unevaluatedItems": self.schema,
        }

    def document(self) -> Any:
        """A schema with definitions that it refers to here and there, of some draft."""
        self._has_definitions = False
        definitions = {name: self.schema(2) for name in NAMES[:2]}
        self._has_definitions = True
        schema = self.schema()
        if not isinstance(schema, dict):
            return schema
        draft = self.random.choice(DRAFTS)
        return {**({"$schema": draft} if draft else {}), **schema, "$defs": definitions}

    def schema(self, depth: int = 0) -> Any:
        """A schema of a few keywords, now and then with a type."""
        chance = self.random.random()
        if depth > 3 or chance < 0.06:
            return chance > 0.03 or {"type": self.random.choice(TYPES)}
        if chance > 0.97:
            return self.different_objects(depth)
        names = self.random.sample(list(self._keywords), self.random.choice([1, 1, 1, 2, 2, 3]))
        schema = {name: self._keywords[name](depth + 1) for name in names}
        if self._has_definitions and self.random.random() < 0.1:
            schema["$ref"] = "#/$defs/" + self.random.choice(NAMES[:2])
        if self.random.random() < 0.55:
            schema["type"] = self.random.choice(TYPES) if self.random.random() < 0.8 else self.random.sample(TYPES, 2)
        return schema

    def different_objects(self, depth: int) -> Any:
        """An array of objects that differ, most often by something that each of them has."""
        kinds = [
            {"type": "string"},
            {"type": "integer"},
            {"enum": ["a", "b", 1]},
            {"type": "boolean"},
            {"maxLength": 1},
        ]
        properties = {name: self.random.choice(kinds) for name in NAMES if self.random.random() < 0.5}
        required = [name for name in properties if self.random.random() < 0.6]
        item: Any = {"type": "object", "properties": properties, "required": required}
        if self.random.random() < 0.4:
            item["additionalProperties"] = self.random.choice([False, self.schema(depth + 1)])
        if self.random.random() < 0.3:
            item = {"anyOf": [item, {**item, "properties": {**properties, "a": self.random.choice(kinds)}}]}
        elif self.random.random() < 0.2:
            item = {"anyOf": [item, self.random.choice(kinds)]}
        array = {"type": "array", "items": item, "uniqueItems": True, "minItems": self.random.randint(0, 3)}
        return array if self.random.random() < 0.7 else {"anyOf": [array, self.schema(depth + 1)]}
