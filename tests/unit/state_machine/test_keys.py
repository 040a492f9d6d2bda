"""Keys that no schema names: none comes twice in one object, in any style of writing."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proxy_inference_engine.formats.syntax import ArgumentStyle
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.state_machine.demand import Demand, JsonObject, JsonSchema, ToolChoice
from proxy_inference_engine.state_machine.json_schema import json_grammar
from proxy_inference_engine.state_machine.machine import MachineBuilder, RootConstraint
from proxy_inference_engine.state_machine.matcher import RootMatcher
from tests.unit.formats.derived.corpus import CORPUS, Written
from tests.unit.state_machine.families import FAMILIES, Family
from tests.unit.state_machine.vocabularies import END, PieceTokenizer, constraint_of, verdict

_NUM_WALKS = 8
_MAX_TOKENS, _LONG = 400, 60
_PIECES = ['"a"', '"b":', ',"a":', ', "a": ', '", "a": ', 'a":', "a:", ",a:", "{a:", '{"a":', "ab", ": 1", '\\"']
_CLOSING = frozenset(b'}]">)</')
_ALPHABET = frozenset(b'ab1"{}[],: \n<>/()=q_') | _CLOSING
ANY = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": True}
OPEN = {"type": "object", "properties": {"x": ANY}, "required": ["x"], "additionalProperties": False}
CALL = Demand(
    tools=(Tool("f", parameters=OPEN),), tool_choice=ToolChoice("required"), is_parallel=False, can_reason=False
)

# Where nested values are no JSON, only what no schema describes is anything.
LOOSE = {**OPEN, "properties": {"x": {"type": "object"}, "y": True}}
LOOSE_CALL = replace(CALL, tools=(Tool("f", parameters=LOOSE),))


def walked(matcher: RootMatcher, tokenizer: PieceTokenizer, seed: str) -> str | None:
    """What a walk that likes short keys writes; None where it comes to no end."""
    choice, ids = random.Random(seed), list[int]()
    while len(ids) < _MAX_TOKENS and not matcher.is_complete:
        mask = matcher.mask()
        assert mask is not None
        allowed = [int(each) for each in mask.nonzero()[0] if each >= END or each in _ALPHABET]
        if END in allowed:
            break
        assert mask.any()
        closing = [each for each in allowed if each in _CLOSING]
        short = closing if closing and len(ids) > _LONG and choice.random() < 0.8 else allowed
        ids.append(choice.choice(short or mask.nonzero()[0].tolist()))
        matcher.accept(ids[-1])
    is_whole = matcher.is_complete or len(ids) < _MAX_TOKENS
    return b"".join(map(tokenizer.token_bytes, ids)).decode() if is_whole else None


def num_repeated(text: str) -> int:
    """Repeated keys of all the JSON in a text, read by another reader than ours."""
    repeated, at = 0, 0

    def count(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated += sum(times - 1 for times in Counter(key for key, _ in pairs).values())

    decoder = json.JSONDecoder(object_pairs_hook=count)
    while (at := text.find("{", at)) >= 0:
        try:
            _, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:  # a bracket of the call's own
            at += 1
    return repeated


def unmarked(text: str, mark: str) -> str:
    """Bare keys and marked strings as JSON."""
    parts = text.split(mark)
    parts[::2] = [re.sub(r"([{,])([A-Za-z_][\w.-]*):", r'\1"\2":', part) for part in parts[::2]]
    return "".join(json.dumps(part) if index % 2 else part for index, part in enumerate(parts))


def check(builder: MachineBuilder, demand: Demand, tokenizer: PieceTokenizer, name: str, mark: str = "") -> None:
    constraint = constraint_of(builder.build(demand))
    assert isinstance(constraint, RootConstraint) and constraint.compiled is not None
    bare, watched = Counter[str](), Counter[str]()
    for seed in range(_NUM_WALKS):
        grammar_alone = RootMatcher(constraint.compiled.deep_copy(), None, tokenizer.num_tokens)
        for counts, matcher in ((bare, grammar_alone), (watched, constraint.start())):
            text = walked(matcher, tokenizer, f"{name}{seed}")
            if text is not None:
                counts["whole"] += 1
                counts["repeated"] += num_repeated(unmarked(text, mark) if mark else text)
    assert bare["whole"] and bare["repeated"], "the walks repeat no key by themselves"
    assert watched["whole"] and watched["repeated"] == 0


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_arguments_of_every_family_have_each_key_once(family: Family) -> None:
    specials = sorted(family.format.tokens) if family.has_tokens else []
    tokenizer = PieceTokenizer(pieces=_PIECES, specials=specials)
    builder = MachineBuilder(family.format, tokenizer)
    check(builder, CALL, tokenizer, str(family))
    builder.close()


@pytest.mark.parametrize("written", CORPUS, ids=str)
def test_arguments_of_every_derived_syntax_have_each_key_once(written: Written) -> None:
    tokenizer = PieceTokenizer(pieces=_PIECES, specials=sorted(written.format.tokens))
    builder = MachineBuilder(written.format, tokenizer)
    mark = "<|q|>" if written.style is ArgumentStyle.MARKED else ""
    check(builder, LOOSE_CALL, tokenizer, str(written), mark)
    builder.close()


@pytest.mark.parametrize(
    "output",
    [JsonObject(), JsonSchema({"type": "object", "additionalProperties": {"type": "object"}}), JsonSchema(ANY)],
    ids=["object", "nested", "named"],
)
@pytest.mark.parametrize("name", ["qwen3", "harmony", "plain"])
def test_open_structures_have_each_key_once(name: str, output: JsonObject | JsonSchema) -> None:
    family = Family(name, has_tokens=True)
    tokenizer = PieceTokenizer(pieces=_PIECES, specials=sorted(family.format.tokens))
    builder = MachineBuilder(family.format, tokenizer)
    check(builder, Demand(output=output, can_reason=False), tokenizer, f"{name}{output}")
    builder.close()


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ('{"a":1,"b":2}', True),
        ('{"a":1,"a":2}', False),
        ('{"a":1,"ab":2}', True),
        ('{"ab":1,"a":2}', True),
        ('{"a":{"a":{"a":1}},"b":{"a":1}}', True),
        ('{"a":{"b":1,"b":1}}', False),
        ('{"b":[{"a":1},{"a":1}],"a":[]}', True),
        ('{"b":{"a":1},"b":2}', False),
        ('{"a":"\\",\\"a\\":","b":"a"}', True),
        ('{"a\\"":1,"a":2}', True),
        ('{"a\\"":1,"a\\"":2}', False),
        ('{"é":1,"è":2}', True),
        ('{"é":1,"é":2}', False),
        ('{"":1,"":2}', False),
    ],
)
@pytest.mark.parametrize("pieces", [[], _PIECES], ids=["bytes", "pieces"])
def test_a_key_comes_once_in_its_object(text: str, is_allowed: bool, pieces: list[str]) -> None:
    builder = MachineBuilder(Family("plain", False).format, PieceTokenizer(pieces=pieces))
    found = verdict(builder, Demand(output=JsonObject(), can_reason=False), text)
    assert (found != "refused") == is_allowed
    builder.close()


def test_keys_are_watched_after_the_reasoning_not_in_it() -> None:
    family = Family("qwen3", has_tokens=True)
    demand = Demand(output=JsonObject(), is_reasoning_open=True)
    thought, gap = '{"a":1,"a":1}, f', "</think>\n\n"
    assert verdict(family.builder, demand, f'{thought}{gap}{{"a":1,"b":2}}') == "complete"
    assert verdict(family.builder, demand, f'{thought}{gap}{{"a":1,"a":2}}') == "refused"


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        (True, True),
        ({"type": "object"}, True),
        ({"type": "array"}, True),
        ({"type": "array", "items": {"type": "string"}}, False),
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": True}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"enum": [{"b": 1}]}}, "additionalProperties": False}, False),
        ({"type": "object", "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, True),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "number"}}}, False),
    ],
)
def test_what_leaves_keys_unnamed(schema: Any, is_open: bool) -> None:
    assert json_grammar(schema).admits_other_keys == is_open


def test_where_every_name_is_taken_one_comes_again() -> None:
    """A pattern with one name, which the schema lets come again: nothing else is left."""
    builder = MachineBuilder(Family("plain", False).format, PieceTokenizer())
    schema = {"type": "object", "patternProperties": {"^a$": {"type": "null"}}, "additionalProperties": False}
    demand = Demand(output=JsonSchema(schema), can_reason=False)
    assert verdict(builder, demand, '{"a":null}') == "complete"
    assert verdict(builder, demand, '{"a":null,"a":null}') == "complete"
    builder.close()
