"""A tool's arguments as grammar, in the style its family writes them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy_inference_engine.formats.signature import INPUT
from proxy_inference_engine.formats.syntax import ArgumentStyle, CallSyntax, Parameter
from proxy_inference_engine.formats.tags import is_raw
from proxy_inference_engine.interaction import TextGrammar, Tool, ToolKind
from proxy_inference_engine.state_machine.demand import InvalidDemand
from proxy_inference_engine.state_machine.json_schema import Spacing, UnenforceableSchema, json_grammar
from proxy_inference_engine.state_machine.lark import Lark
from proxy_inference_engine.state_machine.sizes import check_patterns
from proxy_inference_engine.state_machine.texts import check_regex, choice_rule, regex_rule, text_rule

_NONE = {"type": "object", "properties": {}, "additionalProperties": False}
# What the styles of one parameter after the other can honour at the top of a schema, and what says nothing.
_PLAIN_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions"})
_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"})
_WHOLE = "whole"  # a schema among the definitions of a part of it
_ONE_TERMINAL = re.compile(r"\s*start\s*:\s*(/(?:\\.|[^/\\\n])+/[a-z]*)\s*")
_RAW_KEYWORDS = _ANNOTATIONS | {"type", "enum", "const", "pattern", "minLength", "maxLength", "format"}


@dataclass(slots=True)
class ArgumentGrammar:
    """Writes the arguments of one request's tools; `relaxed` gathers what does not bind."""

    lark: Lark
    syntax: CallSyntax
    relaxed: list[str] = field(default_factory=list)

    def write(self, tool: Tool, index: int) -> str:
        """Raises InvalidDemand that names the tool."""
        try:
            return self._write(tool)
        except UnenforceableSchema as error:
            where = f"{error.path or '/'}: {error.keyword}" if error.keyword else error.path or "/"
            raise InvalidDemand(f"the schema of tool {tool.name!r} ({where}): {error.reason}", "tool", index) from None
        except InvalidDemand as error:
            raise InvalidDemand(f"tool {tool.name!r}: {error.message}", "tool", index) from None

    def _write(self, tool: Tool) -> str:
        if tool.kind is ToolKind.CUSTOM and tool.grammar is not None and tool.grammar.syntax == "lark":
            return self._raw_input(tool.grammar)
        return f"{self._listed(tool)} {self.lark.spell(self.syntax.after)}"

    def _listed(self, tool: Tool) -> str:
        schema = _input_schema(tool) if tool.kind is ToolKind.CUSTOM else tool.parameters or _NONE
        if self.syntax.style is ArgumentStyle.JSON:
            return self._json(_as_object(schema), tool)
        json_grammar(_as_object(schema), is_strict=False)  # refuses what is malformed
        values = self._parameters(schema, tool)
        if self.syntax.style is ArgumentStyle.TAGS:
            return self._tags(values, tool)
        return self._python(values, tool)

    def _raw_input(self, grammar: TextGrammar) -> str:
        """Text that a client's Lark grammar binds cannot be escaped on the way: it stands as it is."""
        before, after = "", self.syntax.after
        if self.syntax.style is ArgumentStyle.TAGS:
            tag = _parameter(self.syntax)
            before, after = tag.before_key + INPUT + tag.before_value, tag.after_value + after
        elif self.syntax.style is ArgumentStyle.PYTHON:
            before = f"{INPUT}="
        text = text_rule(self.lark, grammar)
        only = _ONE_TERMINAL.fullmatch(grammar.definition)
        if only is not None and after:
            # Greedy as a grammar of its own, it would swallow what comes after it.
            return f"{self.lark.spell(before)} {self.lark.until(after, only[1])}"
        return f"{self.lark.spell(before)} {text} {self.lark.spell(after)}"

    def _json(self, schema: Mapping[str, Any] | bool, tool: Tool, path: str = "") -> str:
        check_patterns(schema)
        spacing = Spacing(self.syntax.item_separator, self.syntax.key_separator)
        grammar = json_grammar(schema, is_strict=tool.is_strict, spacing=spacing)
        self.relaxed += [f"{tool.name}{path}{each}" for each in grammar.relaxed]
        return self.lark.rule(grammar.lark)

    # One parameter after the other, in the schema's order

    def _parameters(self, schema: Mapping[str, Any], tool: Tool) -> list["_Value"]:
        for keyword in schema:
            if keyword not in _PLAIN_KEYWORDS | _ANNOTATIONS:
                self._relax(tool, f"/:{keyword}", f"this model's calls cannot be bound by {keyword!r} at the top")
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        for name in sorted(required - set(properties)):
            raise InvalidDemand(f"the required parameter {name!r} is not among its properties", "tool")
        shared = {"$defs": {_WHOLE: _rooted(schema)}} if _has_references(schema) else {}
        return [
            _Value(name, each, shared, name in required)
            for name, each in properties.items()
            if each is not False and not (isinstance(each, Mapping) and each.get("enum") == [])
        ]

    def _relax(self, tool: Tool, what: str, reason: str) -> None:
        if tool.is_strict:
            raise InvalidDemand(reason, "tool")
        self.relaxed.append(f"{tool.name}{what}")

    def _tags(self, values: Iterable["_Value"], tool: Tool) -> str:
        tag = _parameter(self.syntax)
        parts = []
        for value in values:
            before = self.lark.spell(tag.before_key + value.name + tag.before_value)
            if is_raw(value.schema):
                body = self._raw(value, tag.after_value, tool)
            else:
                body = f"{self._json(value.whole, tool, f'/{value.name}')} {self.lark.spell(tag.after_value)}"
            rule = self.lark.rule(f"{before} {body}")
            parts.append(rule if value.is_required else f"{rule}?")
        return " ".join(parts) or '""'

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
            least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
            most = "" if most is None else int(most)
            bounds.append(f"/(?s:.{{{least},{most}}})/")
        if listed is None:
            return self.lark.until(after, " & ".join(bounds) or None)
        texts = [text for text in listed if isinstance(text, str)]
        return f"{choice_rule(self.lark, texts, bounds)} {self.lark.spell(after)}"

    def _python(self, values: Iterable["_Value"], tool: Tool) -> str:
        """name=value pairs with commas between those that are there: built from the last to the first."""
        rest, first = '""', '""'  # what may follow a written pair; what may be written when none is yet
        for value in reversed(list(values)):
            pair = self.lark.rule(f"{self.lark.spell(value.name + '=')} {self._python_value(value, tool)}")
            begun, going_on = f"{pair} {rest}", f"{self.lark.spell(', ')} {pair} {rest}"
            first = self.lark.rule(begun if value.is_required else f"{begun} | {first}")
            rest = self.lark.rule(going_on if value.is_required else f"{going_on} | {rest}")
        return first

    def _python_value(self, value: "_Value", tool: Tool) -> str:
        is_simple = isinstance(value.schema, Mapping) and value.schema.keys() <= _ANNOTATIONS | {"type"}
        if is_simple and value.schema.get("type") == "boolean":
            return '("True" | "False")'
        if is_simple and value.schema.get("type") == "null":
            return '"None"'
        return self._json(value.whole, tool, f"/{value.name}")


@dataclass(frozen=True, slots=True)
class _Value:
    name: str
    schema: Any
    shared: Mapping[str, Any]  # what its references point into
    is_required: bool

    @property
    def whole(self) -> Mapping[str, Any] | bool:
        """The value's schema as a document of its own."""
        if not isinstance(self.schema, Mapping):
            return bool(self.schema)
        return {**_rooted(self.schema), **self.shared} if self.shared else self.schema


def _has_references(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or any(map(_has_references, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_references, value))


def _rooted(value: Any) -> Any:
    """With references to the document's places as they are once it stands among the definitions of another."""
    if isinstance(value, Mapping):
        return {key: _moved(each) if key == "$ref" else _rooted(each) for key, each in value.items()}
    return [_rooted(each) for each in value] if isinstance(value, list | tuple) else value


def _moved(reference: Any) -> Any:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return reference
    return f"#/$defs/{_WHOLE}{reference[1:]}"


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
    """Without anchors of its own at its ends: the whole input is matched anyway."""
    regex = regex.removeprefix("^")
    return regex[:-1] if regex.endswith("$") and not regex.endswith("\\$") else regex


def _parameter(syntax: CallSyntax) -> Parameter:
    assert syntax.parameter is not None, "the style of tags needs its tags"
    return syntax.parameter
