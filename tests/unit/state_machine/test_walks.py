"""Random walks under the mask of every family: what comes out parses into calls whose arguments are valid."""

import json
import random
import re
from dataclasses import dataclass, field, replace

import jsonschema
import numpy as np
import pytest

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.output.events import CallDelta, CallEnded, CallStarted, ReasoningDelta
from proxy_inference_engine.output.parser import Parser
from proxy_inference_engine.output.pieces import LabelledPiece, VisibleText
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema, ToolChoice
from proxy_inference_engine.types import Matcher
from tests.unit.state_machine.families import FAMILIES, Family
from tests.unit.state_machine.vocabularies import END, OTHER_END, constraint_of

_MAX_TOKENS = 500
_NUM_WALKS = 6

WORDS = "[a-z]+( [a-z]+)*"
PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer", "minimum": -5, "maximum": 500},
        "is_on": {"type": "boolean"},
        "size": {"enum": ["S", "L", 3, None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "where": {"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x"]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "array", "items": {"type": "boolean"}}]},
    },
    "required": ["text", "number"],
    "additionalProperties": False,
}
TOOLS = (
    Tool("get", "", PARAMETERS),
    Tool("get_it"),
    Tool("say", kind=ToolKind.CUSTOM),
    Tool("spell", kind=ToolKind.CUSTOM, grammar=TextGrammar("regex", "[a-z]{2,5}")),
    Tool("list", kind=ToolKind.CUSTOM, grammar=TextGrammar("lark", 'start: WORD (" " WORD)*\nWORD: /[a-z]+/')),
)
RECORD = {
    "type": "object",
    "properties": {"k": {"type": "string", "maxLength": 9}},
    "required": ["k"],
    "additionalProperties": False,
}
AUTO = Demand(tools=TOOLS)
DEMANDS = {
    "auto": AUTO,
    "required": replace(AUTO, tool_choice=ToolChoice("required")),
    "single": replace(AUTO, tool_choice=ToolChoice("required"), is_parallel=False),
    "named": replace(AUTO, tool_choice=ToolChoice("required", frozenset({"get"}))),
    "format": replace(AUTO, output=JsonSchema(RECORD)),
    "budget": replace(AUTO, max_reasoning_tokens=15, min_reasoning_tokens=3),
    "open": replace(AUTO, is_reasoning_open=True, max_reasoning_tokens=20),
    "open_format": Demand(output=JsonSchema(RECORD), is_reasoning_open=True, max_reasoning_tokens=20),
    "silent": replace(AUTO, can_reason=False),
}


@dataclass(slots=True)
class Walk:
    """Types letters at random, and now and then a piece of the family's syntax, as far as the mask lets it."""

    family: Family
    matcher: Matcher
    random: random.Random
    ids: list[int] = field(default_factory=list)

    def go(self) -> bool:
        """Whether the walk came to an end of its own."""
        snippets = _snippets(self.family)
        while len(self.ids) < _MAX_TOKENS and not self.matcher.is_complete:
            forced = self.matcher.forced()
            if forced:
                for token_id in forced:
                    self._accept(token_id)
            elif self.random.random() < 0.25:
                self._type(self.random.choice(snippets))
            elif self._may_end() and self.random.random() < 0.2:
                return True
            else:
                self._accept(self._draw())
        return self.matcher.is_complete

    def _accept(self, token_id: int) -> None:
        self.matcher.accept(token_id)
        self.ids.append(token_id)

    def _may_end(self) -> bool:
        mask = self.matcher.mask()
        return mask is None or bool(mask[END])

    def _type(self, snippet: str) -> None:
        for token_id in self.family.builder.vocabulary.encode(snippet):
            mask = self.matcher.mask()
            if self.matcher.is_complete or (mask is not None and not mask[token_id]):
                return
            self._accept(token_id)

    def _draw(self) -> int:
        mask = self.matcher.mask()
        allowed = np.arange(self.family.tokenizer.num_tokens) if mask is None else np.flatnonzero(mask)
        allowed = allowed[(allowed != END) & (allowed != OTHER_END)]
        assert allowed.size, "nothing is allowed, and the answer is not complete"
        printable = allowed[(allowed >= 32) & (allowed < 127)]
        if printable.size and self.random.random() < 0.9:
            allowed = printable
        return int(self.random.choice(allowed.tolist()))


def _snippets(family: Family) -> list[str]:
    snippets = ['"', "}", "\n", '", ', "]", ")", "</think>", "é", "😀"]
    syntax = family.format.calls
    if syntax is not None:
        snippets += [syntax.opening, syntax.after, syntax.separator + syntax.before_name]
    if syntax is not None and syntax.parameter is not None:
        snippets += [syntax.parameter.after_value] * 4
    if family.format.channels is not None:
        snippets += [family.text(""), family.format.channels.end]
    return snippets


@dataclass(slots=True)
class Said:
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    num_ended: int = 0

    def add(self, pieces: list[LabelledPiece]) -> None:
        for piece in pieces:
            match piece:
                case VisibleText(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case CallStarted(index, name):
                    assert index == len(self.calls)
                    self.calls.append((name, ""))
                case CallDelta(index, arguments):
                    assert index == len(self.calls) - 1
                    self.calls[index] = (self.calls[index][0], self.calls[index][1] + arguments)
                case CallEnded(index):
                    assert index == self.num_ended
                    self.num_ended += 1


def _parse(family: Family, labels: Labels, ids: list[int], *, is_cut: bool) -> Said:
    parser, said, pending = Parser(labels), Said(), b""
    for token_id in ids:
        if token_id in labels.tokens:
            said.add(parser.feed(pending.decode()))
            said.add(parser.mark(labels.tokens[token_id]))
            pending = b""
        else:
            pending += family.tokenizer.token_bytes(token_id)
    said.add(parser.feed(pending.decode(errors="ignore" if is_cut else "strict")))
    said.add(parser.finish(is_cut=is_cut))
    return said


def _check_call(name: str, arguments: str) -> None:
    match name:
        case "get":
            jsonschema.validate(json.loads(arguments), PARAMETERS)
        case "get_it":
            assert json.loads(arguments) == {}
        case "spell":
            assert re.fullmatch("[a-z]{2,5}", arguments)
        case "list":
            assert re.fullmatch(WORDS, arguments)
        case _:
            assert name == "say"


def _check(name: str, said: Said) -> None:
    assert said.num_ended == len(said.calls)
    for call in said.calls:
        _check_call(*call)
    if name in ("required", "single", "named"):
        assert said.calls and not said.text.strip()
    if name == "single":
        assert len(said.calls) == 1
    if name == "named":
        assert {called for called, _ in said.calls} == {"get"}
    if name in ("format", "open_format") and not said.calls:
        jsonschema.validate(json.loads(said.text), RECORD)
    if name == "silent":
        assert not said.reasoning


@pytest.mark.parametrize("name", DEMANDS)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_walks(family: Family, name: str) -> None:
    demand = DEMANDS[name]
    if demand.is_reasoning_open and family.format.thinking is None:
        demand = replace(demand, is_reasoning_open=False)
    machine = family.builder.build(demand)
    num_ended = 0
    for seed in range(_NUM_WALKS):
        walk = Walk(family, constraint_of(machine).start(), random.Random(f"{family}{name}{seed}"))
        is_whole = walk.go()
        said = _parse(family, machine.labels, walk.ids, is_cut=not is_whole)
        num_ended += is_whole
        raw = b"".join(map(family.tokenizer.token_bytes, walk.ids))
        try:
            if is_whole:
                _check(name, said)
        except Exception as error:
            raise AssertionError(f"{error}: {said}, raw {raw!r}") from error
    assert num_ended > 0, "no walk came to its end"
