"""Items that differ, watched beside the grammar: what is written is valid, and always comes to an end."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema
from proxy_inference_engine.state_machine.machine import MachineBuilder, RootConstraint
from proxy_inference_engine.state_machine.matcher import GrammarTooComplex, RootMatcher
from proxy_inference_engine.state_machine.watch import ValueWatch
from tests.unit.state_machine.families import Family
from tests.unit.state_machine.json_schema.cases import INTEGER, STRING, obj
from tests.unit.state_machine.json_schema.work import lines_of
from tests.unit.state_machine.vocabularies import END, PieceTokenizer, constraint_of, verdict

_PIECES = [
    '"a"',
    '"b":',
    '","',
    '",',
    '"],',
    '["',
    '"}',
    '"},',
    '{"',
    'a"',
    'ab"',
    '"ab',
    'a","',
    '","a',
    "1,",
    ",1",
    "1]",
    "11",
]
_PIECES += ['a"}', 'b"},{"', '":"', '":', '},{"', '","b', "ab", "true", "{}", '["a","a"', "],[", '{"a":']
_ALPHABET = frozenset(b'ab1"{}[],:. \n\\tue0nlfs') | {END}
_NUM_WALKS = 12
_MAX_TOKENS = 300


def unique(items: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **keywords}


WORDS = [f"w{index}" for index in range(12)]
UNIQUE: dict[str, Any] = {
    "strings": unique(STRING, minItems=3),
    "short strings": unique({"type": "string", "maxLength": 1}, minItems=2),
    "short strings or one of them": unique(
        {"anyOf": [{"enum": ["a"]}, {"type": "string", "maxLength": 1}]}, minItems=2
    ),
    "short strings or a longer one": unique(
        {"anyOf": [{"enum": ["a1b"]}, {"type": "string", "maxLength": 1}]}, minItems=2
    ),
    "values or patterns": unique(
        {"anyOf": [{"enum": ["a", "1"]}, {"type": "string", "pattern": "^[ab]{1,2}$"}, {"enum": [0, 1]}]}, minItems=6
    ),
    "two patterns": unique(
        {"anyOf": [{"type": "string", "pattern": "^a{1,3}$"}, {"type": "string", "pattern": "^[ab]{1,2}$"}]}, minItems=6
    ),
    "patterns": unique({"type": "string", "pattern": "^[ab]{1,2}$"}, minItems=5),
    "values": unique({"enum": WORDS}, minItems=12),
    "mixed values": unique({"enum": [*WORDS, 1, 11, 111, None, True]}, minItems=17),
    "integers": unique(INTEGER, minItems=4),
    "few integers": unique({"type": "integer", "minimum": -3, "maximum": 12}, minItems=16),
    "any of": unique({"anyOf": [STRING, INTEGER, {"type": "null"}]}, minItems=3),
    "nested": obj({"x": {"type": "array", "items": unique(STRING), "minItems": 2}}, required=["x"]),
    "referred": {"$defs": {"d": obj({"t": unique(STRING), "d": {"$ref": "#/$defs/d"}})}, "$ref": "#/$defs/d"},
    "below a pattern": {"type": "object", "patternProperties": {"^a": unique(STRING)}, "additionalProperties": INTEGER},
    "objects": unique(obj({"a": STRING, "b": {"type": "number"}}, required=["a"]), minItems=3),
    "objects of two parts": unique(
        obj({"a": {"enum": ["1", "11"]}, "b": {"type": "boolean"}, "ab": INTEGER}, required=["a", "b", "ab"]),
        minItems=3,
    ),
    "few objects": unique(
        obj(
            {"a": {"enum": ["1", "11", 1]}, "b": {"enum": [True, None]}},
            required=["a", "b"],
            additionalProperties=False,
        ),
        minItems=6,
    ),
    "objects of short strings": unique(
        obj({"b": {"type": "string", "maxLength": 1}, "a": INTEGER}, required=["b", "a"]), minItems=3
    ),
    "objects or strings": unique({"anyOf": [STRING, obj({"a": INTEGER, "b": STRING}, required=["a"])]}, minItems=3),
    "two objects": unique(
        {
            "anyOf": [
                obj({"t": {"const": 1}, "a": STRING, "b": INTEGER}, required=["t", "a"]),
                obj({"t": {"const": "1"}, "a": STRING}, required=["t", "a"]),
            ]
        },
        minItems=3,
    ),
    "objects in objects": unique(
        obj({"a": unique(obj({"b": INTEGER}, required=["b"])), "b": STRING}, required=["b"]), minItems=2
    ),
    "objects that need nothing": unique(obj({"a": INTEGER, "b": STRING}), minItems=2),
    "emails": unique({"type": "string", "format": "email"}, minItems=2),
    "or anything": {
        "anyOf": [obj({"a": unique(INTEGER, minItems=2)}, required=["a"]), obj({"b": STRING}, required=["b"])]
    },
    "objects or anything": {
        "anyOf": [
            obj({"a": unique(obj({"b": {"enum": [1, "a"]}, "a": STRING}, required=["b", "a"]))}, required=["a"]),
            obj({"b": STRING}, required=["b"], additionalProperties=True),
        ]
    },
    "objects in any order": unique(
        obj({"a": STRING, "b": INTEGER, "ab": {"type": "boolean"}, "ba": {}}, required=["ab", "a"]), minItems=3
    ),
}
# Unnamed properties of which there have to be some: none comes twice, so that they can be counted.
COUNTED: dict[str, Any] = {
    "any names": {"type": "object", "minProperties": 3, "additionalProperties": INTEGER},
    "names of a pattern": {
        "type": "object",
        "patternProperties": {"^[ab]+$": INTEGER},
        "additionalProperties": False,
        "minProperties": 4,
    },
    "beside others": obj({"a": INTEGER}, required=["a"], minProperties=3, patternProperties={"^b": INTEGER}),
}
WALKED = {**UNIQUE, **COUNTED}


def builder_of(tokenizer: PieceTokenizer) -> MachineBuilder:
    return MachineBuilder(Family("plain", False).format, tokenizer)


def demand_of(schema: Any) -> Demand:
    return Demand(output=JsonSchema(schema), can_reason=False)


def walked(
    matcher: RootMatcher, tokenizer: PieceTokenizer, source: random.Random, keys: Sequence[str] = ()
) -> str | None:
    """What a walk that likes to say the same again writes, often one of some keys; None where it comes to no end."""
    ids: list[int] = []
    wished = b""
    while len(ids) < _MAX_TOKENS and not matcher.is_complete:
        mask = matcher.mask()
        assert mask is not None and mask.any(), b"".join(map(tokenizer.token_bytes, ids))
        if mask[END] and source.random() < 0.3:
            break
        allowed = [int(each) for each in mask.nonzero()[0] if each != END and (each > END or each in _ALPHABET)]
        closing = [each for each in allowed if tokenizer.token_bytes(each)[:1] in b'"]}']
        likes = closing if closing and source.random() < (0.4 if len(ids) < 60 else 0.9) else allowed
        if tokenizer.token_bytes(ids[-1] if ids else END)[-1:] == b'"' and keys and source.random() < 0.7:
            wished = json.dumps(source.choice(keys), ensure_ascii=False)[1:].encode()
        wishes = [wished[0]] if wished and mask[wished[0]] else []
        wished = wished[1:] if wishes else b""
        ids.append(source.choice(wishes or likes or [int(each) for each in mask.nonzero()[0]]))
        matcher.accept(ids[-1])
    return b"".join(map(tokenizer.token_bytes, ids)).decode() if len(ids) < _MAX_TOKENS else None


# Objects whose keys are for the watch to keep: those needed, or all there are.
NAMES: dict[str, Any] = dict.fromkeys(("a", "b", "ab", "ba", "aa"), INTEGER)
KEPT: dict[str, Any] = {
    "needed": obj(NAMES, required=["b", "a"]),
    "needed, not named": obj(NAMES, required=["1"], additionalProperties=INTEGER),
    "closed": obj(NAMES, additionalProperties=False),
    "closed and needed": obj(NAMES, required=["aa", "a"], additionalProperties=False),
    "all needed": obj(NAMES, required=list(NAMES), additionalProperties=False),
    "or null": obj(NAMES, required=["b"], type=["object", "null"]),
    "strings": obj(dict.fromkeys(NAMES, STRING), required=list(NAMES), additionalProperties=False),
    "anything": obj(dict.fromkeys(NAMES, True), required=["b", "ab"], additionalProperties=False),
    "inside": {
        "type": "array",
        "items": obj({**NAMES, "b": obj(NAMES, required=["a"], additionalProperties=False)}, required=["b"]),
        "minItems": 2,
    },
    "referred": {
        "$defs": {"d": obj({**NAMES, "b": {"$ref": "#/$defs/d"}}, required=["ab"], additionalProperties=False)},
        "$ref": "#/$defs/d",
    },
    "beside items that differ": obj(
        {**NAMES, "b": unique(STRING, minItems=2)}, required=["b"], additionalProperties=False
    ),
    "quoted": obj(
        dict.fromkeys(('"', "\\", "é", "a/b", "^$"), INTEGER), required=['"', "é"], additionalProperties=False
    ),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("pieces", [[], _PIECES], ids=["bytes", "pieces"])
def test_properties_in_any_order_come_once(pieces: list[str], name: str) -> None:
    schema = KEPT[name]
    tokenizer = PieceTokenizer(pieces=pieces)
    builder = builder_of(tokenizer)
    constraint = constraint_of(builder.build(replace(demand_of(schema), any_order=True)))
    assert isinstance(constraint, RootConstraint) and constraint.guard is not None
    validator = jsonschema.Draft202012Validator(schema)
    keys = [*NAMES, "1"]
    texts = [walked(constraint.start(), tokenizer, random.Random(seed), keys) for seed in range(2 * _NUM_WALKS)]
    whole = [text for text in texts if text is not None]
    assert len(whole) > _NUM_WALKS // 2
    for text in whole:
        assert validator.is_valid(json.loads(text, object_pairs_hook=without_repeats)), text
    builder.close()


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(pairs) == len(dict(pairs)), pairs
    return dict(pairs)


@pytest.mark.parametrize("pieces", [[], _PIECES], ids=["bytes", "pieces"])
@pytest.mark.parametrize("name", WALKED)
def test_walks_are_valid_and_come_to_an_end(name: str, pieces: list[str]) -> None:
    schema = WALKED[name]
    tokenizer = PieceTokenizer(pieces=pieces)
    builder = builder_of(tokenizer)
    constraint = constraint_of(builder.build(demand_of(schema)))
    assert isinstance(constraint, RootConstraint) and constraint.guard is not None
    validator = jsonschema.Draft202012Validator(schema)
    texts = [walked(constraint.start(), tokenizer, random.Random(f"{name}{seed}")) for seed in range(_NUM_WALKS)]
    whole = [text for text in texts if text is not None]
    assert len(whole) > _NUM_WALKS // 2
    for text in whole:
        pairs = json.loads(text, object_pairs_hook=lambda found: (len(found), len(dict(found))))
        assert pairs[0] == pairs[1] if isinstance(pairs, tuple) else True, text
        assert validator.is_valid(json.loads(text)), text
    builder.close()


def _row(*items: Any) -> str:
    return json.dumps(items, separators=(",", ":"))


CASES: list[tuple[str, Any, str, bool]] = [
    ("strings", UNIQUE["strings"], '["a","b","ab"]', True),
    ("strings", UNIQUE["strings"], '["a","b","a"]', False),
    ("strings", UNIQUE["strings"], '["","\\"","\\n"]', True),
    ("strings", UNIQUE["strings"], '["é","è","é"]', False),
    ("integers", UNIQUE["integers"], "[1,11,111,0]", True),
    ("integers", UNIQUE["integers"], "[1,11,1,0]", False),
    ("integers", UNIQUE["integers"], "[0,-0,1,2]", False),
    ("any of", UNIQUE["any of"], '["1",1,null]', True),
    ("any of", UNIQUE["any of"], "[null,1,null]", False),
    ("strings all used", unique({"enum": ["a", "b", 1]}), '["a","b",1]', True),
    ("strings all used", unique({"enum": ["a", "b", 1]}), '["a","b","a"]', False),
    ("numbers all used", unique({"enum": [1, -1, None]}), "[1,-1,1]", False),
    ("nested", UNIQUE["nested"], '{"x":[["a"],["a"]]}', True),
    ("nested", UNIQUE["nested"], '{"x":[["a"],["b","b"]]}', False),
    ("referred", UNIQUE["referred"], '{"t":["a"],"d":{"t":["a"]}}', True),
    ("referred", UNIQUE["referred"], '{"d":{"d":{"t":["a","a"]}}}', False),
    ("below a pattern", UNIQUE["below a pattern"], '{"a1":["a","b"],"b":1}', True),
    ("below a pattern", UNIQUE["below a pattern"], '{"b":1,"ab":["b","b"]}', False),
    ("objects", UNIQUE["objects"], '[{"a":"a"},{"a":"ab","b":1},{"a":"b","b":1}]', True),
    ("objects", UNIQUE["objects"], '[{"a":"a"},{"a":"ab","b":1},{"a":"a"}]', False),
    (
        "two parts",
        UNIQUE["objects of two parts"],
        _row(*({"a": "1", "b": True, "ab": each} for each in (1, 11, 2))),
        True,
    ),
    (
        "few objects",
        UNIQUE["few objects"],
        _row(*({"a": a, "b": b} for a in ("1", "11", 1) for b in (True, None))),
        True,
    ),
    ("few objects", UNIQUE["few objects"], _row(*({"a": a, "b": b} for a in ("1", 1, 1) for b in (True, None))), False),
    ("objects or strings", UNIQUE["objects or strings"], '[{"a":1},"a",{"a":11},"b"]', True),
    ("nothing", unique({"anyOf": [STRING, obj({}, additionalProperties=False)]}), '["a",{},"b"]', True),
    ("nothing", unique({"anyOf": [STRING, obj({}, additionalProperties=False)]}), '["a",{},{}]', False),
    ("objects or strings", UNIQUE["objects or strings"], '[{"a":1},"a",{"a":11},"a"]', False),
    ("objects or strings", UNIQUE["objects or strings"], '["a",{"a":1},{"a":1}]', False),
    (
        "two objects",
        UNIQUE["two objects"],
        _row({"t": 1, "a": "a"}, {"t": "1", "a": "a"}, {"t": 1, "a": "b", "b": 1}),
        True,
    ),
    ("nested", UNIQUE["objects in objects"], _row({"a": [{"b": 1}, {"b": 1}], "b": "a"}, {"b": "b"}), False),
    (
        "nested",
        UNIQUE["objects in objects"],
        _row({"a": [{"b": 1}, {"b": 11}], "b": "a"}, {"a": [{"b": 1}], "b": "b"}),
        True,
    ),
]


@pytest.mark.parametrize("pieces", [[], _PIECES], ids=["bytes", "pieces"])
@pytest.mark.parametrize(("name", "schema", "text", "is_valid"), CASES, ids=lambda each: str(each)[:40])
def test_items_differ(name: str, schema: Any, text: str, is_valid: bool, pieces: list[str]) -> None:
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)) == is_valid, name
    builder = builder_of(PieceTokenizer(pieces=pieces))
    assert (verdict(builder, demand_of(schema), text) in ("ended", "complete")) == is_valid
    builder.close()


@pytest.mark.parametrize(
    "schema",
    [
        unique({"type": "string", "enum": WORDS}, minItems=13),
        {"anyOf": [unique(STRING), {"type": "array", "items": INTEGER}]},
        {"anyOf": [unique({"enum": WORDS}), {"type": "array", "items": {"enum": WORDS}, "minItems": 13}]},
        {"anyOf": [unique({"enum": WORDS}), unique(INTEGER)]},
        unique({"enum": WORDS}, prefixItems=[{"enum": ["w0", "other"]}]),
        unique(obj({"n": {"type": "number"}}, required=["n"])),
        unique(obj({"n": {"enum": WORDS}, "m": {}}, required=["n"])),
        unique(obj({"n": {"enum": WORDS}}, required=["n"], additionalProperties=False), minItems=13),
        unique({"anyOf": [obj({"n": INTEGER}, required=["n"]), obj({"m": INTEGER}, required=["m"])]}),
        unique({"type": "array", "items": INTEGER}),
        unique({"type": "number"}),
        unique({"enum": [*WORDS, 0.5]}),
        {"type": "object", "patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 2},
        {"type": "object", "patternProperties": {"^a.+": False}, "minProperties": 2},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
        {
            "allOf": [
                {"type": "object", "minProperties": 2},
                {"patternProperties": {"^[ab]$": {}}, "additionalProperties": False},
            ]
        },
    ],
    ids=[
        "too few",
        "not told apart",
        "few, not told apart",
        "cases",
        "places",
        "objects of numbers",
        "few objects and more",
        "too few objects",
        "other objects",
        "arrays",
        "numbers",
        "a number",
        "few names",
        "a name with nothing after it",
        "few names beside",
        "no other names beside",
    ],
)
def test_what_could_end_nowhere_is_refused(schema: Any) -> None:
    builder = builder_of(PieceTokenizer())
    with pytest.raises(InvalidDemand):
        builder.build(demand_of(schema))
    builder.close()


def test_without_a_watch_the_grammar_has_to_say_it() -> None:
    """As where an engine elsewhere has the grammar alone."""
    builder = MachineBuilder(Family("plain", False).format, PieceTokenizer(), watches=False)
    with pytest.raises(InvalidDemand):
        builder.build(demand_of(UNIQUE["strings"]))
    with pytest.raises(InvalidDemand):
        builder.build(demand_of(COUNTED["any names"]))
    builder.close()


_NUMBERS = [f"{number}" for number in range(10, 1_000)]
_LETTERS = [f'{chr(97 + number % 26)}{number}"' for number in range(300)]
LONG: dict[str, tuple[Any, list[str], Any]] = {
    "numbers": (unique(INTEGER), _NUMBERS, lambda number: list(range(1_000, 1_000 + number))),
    "strings": (unique(STRING), _LETTERS, lambda number: [f"s{each}" for each in range(number)]),
    "keys": ({"type": "object"}, _LETTERS, lambda number: {f"k{each}": 1 for each in range(number)}),
}


@pytest.mark.parametrize("name", LONG)
def test_what_was_written_long_ago_costs_next_to_nothing(name: str) -> None:
    """Every token that might come was compared with all that had, and everybody waited for that."""
    schema, pieces, written = LONG[name]
    tokenizer = PieceTokenizer(pieces=pieces)
    builder = builder_of(tokenizer)
    constraint = constraint_of(builder.build(demand_of(schema)))

    def num_lines(num_items: int) -> int:
        """Of all masks on the way from one item or key to the next."""
        matcher = constraint.start()
        text = json.dumps(written(num_items), separators=(",", ":"))
        for token_id in tokenizer.encode(f"{text[:-1]},"):
            matcher.accept(token_id)
        num = 0
        for token_id in tokenizer.encode({"numbers": "77,", "strings": '"new",', "keys": '"new":1,'}[name]):
            num += lines_of(matcher.mask, 10_000_000)
            matcher.accept(token_id)
        return num

    assert num_lines(4_000) < 2 * num_lines(500)
    builder.close()


def test_what_a_watch_takes_is_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a grammar's steps are: or one client's items would slow everybody's answers."""
    now = 0.0
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"proxy_inference_engine.state_machine.matcher.{clock}", lambda: now)

    class Slow(ValueWatch):
        def held_ids(self, allowed: Any) -> list[int]:
            nonlocal now
            now += 0.1
            return super().held_ids(allowed)

    tokenizer = PieceTokenizer()
    builder = builder_of(tokenizer)
    constraint = constraint_of(builder.build(demand_of(UNIQUE["strings"])))
    assert isinstance(constraint, RootConstraint) and constraint.guard is not None and constraint.compiled is not None
    watch = Slow(constraint.guard)
    matcher = RootMatcher(constraint.compiled.deep_copy(), None, tokenizer.num_tokens, watch)
    with pytest.raises(GrammarTooComplex, match="too long"):
        for token_id in b'["a","b","c"':
            matcher.mask()
            matcher.accept(token_id)
    builder.close()
