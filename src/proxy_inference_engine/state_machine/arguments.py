"""A tool's arguments as grammar, in the style its family writes them."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from proxy_inference_engine.formats.signature import INPUT, is_raw
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.definitions import SharedDefinitions
from proxy_inference_engine.state_machine.demand import InvalidDemand
from proxy_inference_engine.state_machine.json_schema import (
    ImpossibleSchema,
    Spacing,
    UnenforceableSchema,
    closed_grammar,
    json_grammar,
    reconciled,
)
from proxy_inference_engine.state_machine.json_schema.budget import (
    CHARS_PER_STEP,
    MAX_TOGETHER,
    OutOfSteps,
    StepBudget,
)
from proxy_inference_engine.state_machine.json_schema.document import rooted
from proxy_inference_engine.state_machine.json_schema.grammar import JsonGrammar
from proxy_inference_engine.state_machine.json_schema.keywords import lengths
from proxy_inference_engine.state_machine.json_schema.rewriter import TOO_MUCH
from proxy_inference_engine.state_machine.keys import JSON_KEYS, KeySpelling, Leads, marked_keys
from proxy_inference_engine.state_machine.shapes import Shape
from proxy_inference_engine.state_machine.sizes import check_patterns
from proxy_inference_engine.state_machine.texts import check_regex, choice_rule, regex_rule, text_rule
from proxy_inference_engine.state_machine.vocabulary import Lark

_NONE = {"type": "object", "properties": {}, "additionalProperties": False}
# What the styles of one parameter after the other can honour at the top of a schema, and what says nothing.
_PLAIN_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions"})
_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"})
_SCALARS = frozenset({"integer", "number", "boolean", "null"})
_COMMA = ","
_SINGLE_QUOTED = r"""/'([^'\\\x00-\x1f]|\\['"\\bfnrt])*'/"""
_NUMBER = r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?/"
_KEY = "/[A-Za-z_][A-Za-z0-9_.-]*/"
_MAX_ANY_DEPTH = 3
_REFERENCE = "/$ref"
_MAX_REFERENCES = 3  # one within the other: a schema may refer to itself, several times
_ONE_TERMINAL = re.compile(r"\s*start\s*:\s*(/(?:\\.|[^/\\\n])+/[a-z]*)\s*")
_RAW_KEYWORDS = _ANNOTATIONS | {"type", "enum", "const", "pattern", "minLength", "maxLength", "format"}


@dataclass(slots=True)
class ArgumentGrammar:
    """Writes the arguments of one request's tools; `relaxed` gathers what does not bind, `leads` what stands before
    values with keys that no schema names."""

    lark: Lark
    syntax: CallSyntax
    relaxed: list[str] = field(default_factory=list)
    closes_objects: bool = False
    is_watched: bool = False
    leads: Leads = field(default_factory=dict)
    budget: StepBudget = field(default_factory=partial(StepBudget, MAX_TOGETHER))  # of all schemas of the request
    _written: dict[tuple[bytes, bool], JsonGrammar] = field(default_factory=dict)

    def write(self, tool: Tool, index: int) -> str:
        """A tool's arguments and the text after them, as part of a rule. Raises InvalidDemand that names the tool."""
        try:
            if tool.kind is ToolKind.CUSTOM and tool.grammar is not None and tool.grammar.syntax == "lark":
                return self._raw_input(tool.grammar)
            return f"{self._listed(tool)} {self.lark.spell(self.syntax.after)}"
        except UnenforceableSchema as error:
            where = f"{error.path or '/'}: {error.keyword}" if error.keyword else error.path or "/"
            raise InvalidDemand(f"the schema of tool {tool.name!r} ({where}): {error.reason}", "tool", index) from None
        except InvalidDemand as error:
            raise InvalidDemand(f"tool {tool.name!r}: {error.message}", "tool", index) from None
        except OutOfSteps:
            raise InvalidDemand(f"the schema of tool {tool.name!r}: {TOO_MUCH}", "tool", index) from None

    def _listed(self, tool: Tool) -> str:
        """The rule for a tool's arguments. What contradicts itself is left out, unless the tool is strict."""
        schema = _input_schema(tool) if tool.kind is ToolKind.CUSTOM else tool.parameters or _NONE
        schema = _as_object(schema)
        try:
            return self._styled(schema, tool)
        except ImpossibleSchema:
            if tool.is_strict:
                raise
        possible = reconciled(schema, self.budget)
        self.relaxed += [f"{tool.name}{each}" for each in possible.relaxed]
        return self._styled(_as_object(possible.schema), tool)

    def _styled(self, schema: Mapping[str, Any], tool: Tool) -> str:
        if self.syntax.style is ArgumentStyle.JSON:
            return self._json(schema, tool, self._call_lead(tool))
        json_grammar(schema, is_strict=False, budget=self.budget)  # refuses what is malformed
        values = self._parameters(schema, tool)
        match self.syntax.style:
            case ArgumentStyle.TAGS:
                return self._row(
                    [(each, self._element(each, tool)) for each in values], _parameter(self.syntax).separator
                )
            case ArgumentStyle.MARKED:
                return self._row([(each, self._marked_pair(each, tool)) for each in values], _COMMA)
            case _:
                return self._row([(each, self._python_pair(each, tool)) for each in values], ", ")

    def _raw_input(self, grammar: TextGrammar) -> str:
        """Text that a client's Lark grammar binds cannot be escaped on the way: it stands as it is."""
        before, after = "", self.syntax.after
        if self.syntax.style is ArgumentStyle.TAGS:
            tag = _parameter(self.syntax)
            opening, closing = tag.around(is_text=True, key=INPUT)
            before, after = tag.before_key + INPUT + opening, closing + after
        elif self.syntax.style is ArgumentStyle.MARKED:
            tag = _parameter(self.syntax)
            before, after = f"{tag.before_key}{INPUT}{tag.before_value}{tag.before_text}", f"{tag.after_text}{after}"
        elif self.syntax.style is ArgumentStyle.PYTHON:
            before = f"{INPUT}="
        text = text_rule(self.lark, grammar)
        only = _ONE_TERMINAL.fullmatch(grammar.definition)
        if only is not None and after:
            # Greedy as a grammar of its own, it would swallow what comes after it.
            return f"{self.lark.spell(before)} {self.lark.until(after, only[1])}"
        return f"{self.lark.spell(before)} {text} {self.lark.spell(after)}"

    def _json(self, schema: Mapping[str, Any] | bool, tool: Tool, lead: str, path: str = "") -> str:
        check_patterns(schema)
        spacing = Spacing(self.syntax.item_separator, self.syntax.key_separator)
        write = closed_grammar if self.closes_objects else json_grammar
        # A lead of one parameter after the other may stand before values of other schemas, too.
        is_watched = self.is_watched and self.syntax.style is ArgumentStyle.JSON
        write = partial(write, is_strict=tool.is_strict, spacing=spacing, budget=self.budget, is_watched=is_watched)
        grammar = write(schema) if self.syntax.style is ArgumentStyle.JSON else self._known(schema, tool, write)
        self.relaxed += [f"{tool.name}{path}{each}" for each in grammar.relaxed]
        if grammar.shape is not None or grammar.admits_other_keys:
            self._watch(JSON_KEYS, lead, grammar.shape)
        return self.lark.rule(grammar.lark)

    def _known(self, schema: Any, tool: Tool, write: Callable[[Any], JsonGrammar]) -> JsonGrammar:
        """Tools of one server have many parameters that are alike, with what they refer to: one of each is written."""
        text = json.dumps(schema).encode()
        self.budget.spend(1 + len(text) // CHARS_PER_STEP)
        key = (hashlib.sha256(text).digest(), tool.is_strict)
        if key not in self._written:
            self._written[key] = write(schema)
        return self._written[key]

    def _call_lead(self, tool: Tool) -> str:
        """What stands before all of a tool's arguments."""
        return self.syntax.before_name + tool.name + self.syntax.between

    def _watch(self, spelling: KeySpelling, lead: str, shape: Shape | None = None) -> None:
        self.leads.setdefault(spelling, {})[lead] = shape

    # One parameter after the other, in the schema's order

    def _parameters(self, schema: Mapping[str, Any], tool: Tool) -> list["_Value"]:
        for keyword in schema:
            if keyword not in _PLAIN_KEYWORDS | _ANNOTATIONS:
                self._relax(tool, f"/:{keyword}", f"this model's calls cannot be bound by {keyword!r} at the top")
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        for name in sorted(required - set(properties)):
            self._relax(tool, "/:required", f"the required parameter {name!r} is not among its properties")
        shared = SharedDefinitions(schema, self.budget)
        return [
            _Value(name, each, shared.of(each), name in required)
            for name, each in properties.items()
            if each is not False and not (isinstance(each, Mapping) and each.get("enum") == [])
        ]

    def _relax(self, tool: Tool, what: str, reason: str) -> None:
        if tool.is_strict:
            raise InvalidDemand(reason, "tool")
        self.relaxed.append(f"{tool.name}{what}")

    def _row(self, pairs: Sequence[tuple["_Value", str]], separator: str) -> str:
        """Parameters with what stands between those that are there: built from the last to the first."""
        if not separator:
            return " ".join(pair if value.is_required else f"{pair}?" for value, pair in pairs) or '""'
        rest, first = '""', '""'  # what may follow a written pair; what may be written when none is yet
        for value, pair in reversed(pairs):
            begun, going_on = f"{pair} {rest}", f"{self.lark.spell(separator)} {pair} {rest}"
            first = self.lark.rule(begun if value.is_required else f"{begun} | {first}")
            rest = self.lark.rule(going_on if value.is_required else f"{going_on} | {rest}")
        return first

    def _element(self, value: "_Value", tool: Tool) -> str:
        tag = _parameter(self.syntax)
        opening, closing = tag.around(is_text=is_raw(value.schema), key=value.key)
        before = tag.before_key + value.key + opening
        return self.lark.rule(f"{self.lark.spell(before)} {self._inside(value, (before, closing), tool)}")

    def _inside(self, value: "_Value", around: tuple[str, str], tool: Tool) -> str:
        """A value up to the text that ends its element, and that text."""
        before, closing = around
        self._spend(value)
        if is_raw(value.schema):
            return self._raw(value, closing, tool)
        if isinstance(value.schema, Mapping) and _parameter(self.syntax).item:
            bound, parts = _alternatives(value.schema, tool)
            if parts and value.name.count(_REFERENCE) <= _MAX_REFERENCES:
                self._relax_beside(value, tool, _ANNOTATIONS | bound)
                bodies = (self._inside(value.part(*part), around, tool) for part in parts)
                return f"({' | '.join(map(self.lark.rule, bodies))})"
        body = self._elements(value, tool) or self._json(value.whole, tool, before, f"/{value.name}")
        return f"{body} {self.lark.spell(closing)}"

    def _elements(self, value: "_Value", tool: Tool) -> str | None:
        """An array or an object as elements within an element; None where it is JSON."""
        schema, tag = value.schema, _parameter(self.syntax)
        if not tag.item or not isinstance(schema, Mapping):
            return None
        if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
            self._relax_beside(value, tool, _ANNOTATIONS | {"type", "items"})
            return f"{self._element(value.part(tag.item, schema['items']), tool)}*"
        if schema.get("type") == "object" and schema.get("properties"):
            self._relax_beside(value, tool, _ANNOTATIONS | _PLAIN_KEYWORDS)
            required = schema.get("required") or ()
            members = [value.part(key, each, key in required) for key, each in schema["properties"].items()]
            return self._row([(part, self._element(part, tool)) for part in members], tag.separator)
        return None

    def _raw(self, value: "_Value", after: str, tool: Tool) -> str:
        """A string without quotes, up to the text that ends it, and that text."""
        schema: Mapping[str, Any] = value.schema
        listed = [schema["const"]] if "const" in schema else schema.get("enum")
        for keyword in schema:
            if keyword not in _RAW_KEYWORDS or keyword == "format":
                self._relax(tool, f"/{value.name}:{keyword}", f"{keyword!r} cannot bind a string in this model's calls")
        bounds = []
        if "pattern" in schema:
            check_patterns(schema)
            bounds.append(regex_rule(schema["pattern"], is_anchored=False))
        if "minLength" in schema or "maxLength" in schema:
            least, most = lengths(schema)
            bounds.append(f"/(?s:.{{{least},{'' if most is None else most}}})/")
        if listed is None:
            return self.lark.until(after, " & ".join(bounds) or None)
        texts = [text for text in listed if isinstance(text, str)]
        return f"{choice_rule(self.lark, texts, bounds)} {self.lark.spell(after)}"

    def _marked_pair(self, value: "_Value", tool: Tool) -> str:
        tag = _parameter(self.syntax)
        before = self.lark.spell(tag.before_key + value.key + tag.before_value)
        return self.lark.rule(f"{before} {self._marked(value, tool)}")

    def _marked(self, value: "_Value", tool: Tool) -> str:
        """A value whose strings stand between marks, at any depth."""
        schema, mark = value.schema, _parameter(self.syntax).before_text or ""
        self._spend(value)
        if is_raw(schema):
            return f"{self.lark.spell(mark)} {self._raw(value, mark, tool)}"
        if not isinstance(schema, Mapping) or value.name.count(_REFERENCE) > _MAX_REFERENCES:
            return self._any_marked(mark, tool)
        bound, parts = _alternatives(schema, tool)
        if parts:
            self._relax_beside(value, tool, _ANNOTATIONS | bound)
            return f"({' | '.join(self.lark.rule(self._marked(value.part(*part), tool)) for part in parts)})"
        kind = schema.get("type")
        if kind in _SCALARS or "const" in schema or "enum" in schema:
            return self._json(value.whole, tool, value.key + _parameter(self.syntax).before_value, f"/{value.name}")
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            self._relax_beside(value, tool, _ANNOTATIONS | {"type", "items"})
            item = self.lark.rule(self._marked(value.part("items", schema["items"]), tool))
            return f'"[" ({item} ("," {item})*)? "]"'
        if kind == "object" and schema.get("properties"):
            self._relax_beside(value, tool, _ANNOTATIONS | _PLAIN_KEYWORDS)
            required = schema.get("required") or ()
            members = [value.part(key, each, key in required) for key, each in schema["properties"].items()]
            return f'"{{" {self._row([(part, self._marked_pair(part, tool)) for part in members], _COMMA)} "}}"'
        self._relax_beside(value, tool, _ANNOTATIONS | {"type"} if kind in ("array", "object") else _ANNOTATIONS)
        return self._any_marked(mark, tool)

    def _spend(self, value: "_Value") -> None:
        """A schema that refers to itself several times has very many parts."""
        self.budget.spend(1 + len(value.name) // CHARS_PER_STEP)

    def _relax_beside(self, value: "_Value", tool: Tool, bound: frozenset[str] | set[str]) -> None:
        for keyword in value.schema if isinstance(value.schema, Mapping) else ():
            if keyword not in bound:
                self._relax(tool, f"/{value.name}:{keyword}", f"{keyword!r} cannot bind in this model's calls")

    def _any_marked(self, mark: str, tool: Tool) -> str:
        """Any value, nested as deeply as arguments are in practice."""
        self._watch(marked_keys(mark), self._call_lead(tool))
        text = f"{self.lark.spell(mark)} {self.lark.until(mark)}"
        scalar = self.lark.rule(f'{text} | "true" | "false" | "null" | {_NUMBER}')
        found = scalar
        for _ in range(_MAX_ANY_DEPTH):
            pair = self.lark.rule(f'{_KEY} ":" {found}')
            items = f'"[" ({found} ("," {found})*)? "]"'
            found = self.lark.rule(f'{scalar} | {items} | "{{" ({pair} ("," {pair})*)? "}}"')
        return found

    def _python_pair(self, value: "_Value", tool: Tool) -> str:
        return self.lark.rule(f"{self.lark.spell(value.name + '=')} {self._python_value(value, tool)}")

    def _python_value(self, value: "_Value", tool: Tool) -> str:
        is_simple = isinstance(value.schema, Mapping) and value.schema.keys() <= _ANNOTATIONS | {"type"}
        if is_simple and value.schema.get("type") == "boolean":
            return '("True" | "False")'
        if is_simple and value.schema.get("type") == "null":
            return '"None"'
        written = self._json(value.whole, tool, f"{value.name}=", f"/{value.name}")
        if is_simple and value.schema.get("type") == "string" and self.syntax.quote == "'":
            return f"({self.lark.terminal(_SINGLE_QUOTED)} | {written})"
        return written


@dataclass(frozen=True, slots=True)
class _Value:
    """One parameter of a tool."""

    name: str
    schema: Any
    shared: Mapping[str, Any]  # what its references point into
    is_required: bool

    path: str = ""  # of what it is a part of

    @property
    def key(self) -> str:
        return self.name.removeprefix(self.path)

    def part(self, key: str, schema: Any, is_required: bool = True) -> "_Value":
        return _Value(f"{self.name}/{key}", schema, self.shared, is_required, f"{self.name}/")

    @property
    def whole(self) -> Mapping[str, Any] | bool:
        """The value's schema as a document of its own."""
        if not isinstance(self.schema, Mapping):
            return bool(self.schema)
        return {**rooted(self.schema), **self.shared} if self.shared else self.schema


def _alternatives(schema: Mapping[str, Any], tool: Tool) -> tuple[set[str], list[tuple[str, Any]]]:
    """What a value may be one of, named for reports, and the keywords that say so; nothing where it is one thing."""
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            return {keyword}, [(f"{keyword}/{index}", each) for index, each in enumerate(schema[keyword])]
    if isinstance(schema.get("$ref"), str):
        return {"$ref", "$defs"}, [("$ref", _at(tool.parameters or {}, schema["$ref"]))]
    kinds, values = schema.get("type"), schema.get("enum")
    if isinstance(kinds, list):
        return set(schema), [("type", {**schema, "type": kind}) for kind in kinds]
    if isinstance(values, list) and any(isinstance(each, str) for each in values):
        texts = [each for each in values if isinstance(each, str)]
        return {"type", "enum"}, [("enum", {"enum": texts}), ("enum", {"enum": [e for e in values if e not in texts]})]
    return set(), []


def _at(document: Any, reference: str) -> Any:
    """What a reference into a document leads to; anything where it leads nowhere."""
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        document = document.get(key, True) if isinstance(document, Mapping) else True
    return document


def _as_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments are an object, also where the schema does not say so."""
    return schema if "type" in schema else {"type": "object", **schema}


def _input_schema(tool: Tool) -> Mapping[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if tool.grammar is not None:
        check_regex(tool.grammar.definition)
        text["pattern"] = f"^(?:{_bare(tool.grammar.definition)})$"
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def _bare(regex: str) -> str:
    """A regex without anchors at its ends: the whole input is matched anyway."""
    regex = regex.removeprefix("^")
    return regex[:-1] if regex.endswith("$") and not regex.endswith("\\$") else regex


def _parameter(syntax: CallSyntax) -> Parameter:
    assert syntax.parameter is not None, "the style of tags needs its tags"
    return syntax.parameter
