"""Calls read from text that no grammar held to a syntax: JSON, tags, keyword, positional and shell-like calls.

Takes a whole text and gives its calls only if all of it can be read as calls of known tools with an object of
arguments; otherwise it was text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from proxy_inference_engine.formats.signature import INPUT, is_raw, parameter_schema
from proxy_inference_engine.formats.stubs import required_first
from proxy_inference_engine.formats.syntax import WORD, CallSyntax, Parameter
from proxy_inference_engine.interaction import Tool, ToolKind
from proxy_inference_engine.output.calls.literals import Literals, Unreadable, write_object

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_DASHES = re.compile(r"--?(?=[A-Za-z_])")
_BARE = re.compile(r"""[^\s"']+""")
_NAME_KEYS = ("name", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "input", "args")


class ReadCall(NamedTuple):
    tool: Tool
    arguments: str


def read_calls(text: str, syntax: CallSyntax, tools: Mapping[str, Tool]) -> list[ReadCall]:
    """The calls a text consists of; none if it is anything else."""
    try:
        return list(_Reader(text, syntax, tools).calls())
    except Unreadable:
        return []


def read_call_arguments(text: str, tool: Tool) -> str | None:
    """The arguments of a call whose tool is known already; None if the text is something else."""
    try:
        literals = Literals(text)
        value = literals.value()
        literals.skip_space()
        return _as_arguments(value, tool) if literals.is_at_end else None
    except Unreadable:
        return None


class _Reader:
    def __init__(self, text: str, syntax: CallSyntax, tools: Mapping[str, Tool]) -> None:
        self._literals = Literals(text)
        self._parameter = syntax.parameter
        self._tools = tools
        self._frame = sorted(_frame(syntax), key=len, reverse=True)

    def calls(self) -> Iterator[ReadCall]:
        self._skip_frame()
        while not self._literals.is_at_end:
            if self._literals.next_char == "{":
                yield self._from_members(self._literals.members())
            elif self._literals.next_char == "[":
                for item in self._literals.items():
                    yield self._from_members(_members(item))
            else:
                yield self._named()
            self._skip_frame()

    def _skip_frame(self) -> None:
        """Read over white space and the texts that stand around calls."""
        literals = self._literals
        while any(literals.accept(text) for text in self._frame):
            pass

    def _from_members(self, members: Mapping[str, str]) -> ReadCall:
        if "name" not in members and members.get("function", "").startswith("{"):
            members = _members(members["function"])
        if len(members) == 1 and (named := next(iter(members))) in self._tools:
            return ReadCall(self._tools[named], _as_arguments(members[named], self._tools[named]))
        tool = self._tools.get(_string(next((members[key] for key in _NAME_KEYS if key in members), "null")))
        if tool is None:
            raise Unreadable
        value = next((members[key] for key in _ARGUMENT_KEYS if key in members), "{}")
        return ReadCall(tool, _as_arguments(value, tool))

    def _named(self) -> ReadCall:
        """A name, then its arguments in any style."""
        literals = self._literals
        tool = self._tools.get(literals.match(_NAME))
        if tool is None:
            raise Unreadable
        if literals.accept("("):
            return ReadCall(tool, _arguments_of(self._in_brackets(tool), tool))
        self._skip_frame()
        if literals.next_char == "{":
            return ReadCall(tool, _as_arguments(literals.value(), tool))
        if self._parameter is not None and literals.text.startswith(self._parameter.before_key.strip(), literals.at):
            return ReadCall(tool, _arguments_of(self._in_tags(tool, self._parameter), tool))
        return ReadCall(tool, _arguments_of(self._as_words(tool), tool))

    def _in_brackets(self, tool: Tool) -> dict[str, str]:
        literals = self._literals
        found: dict[str, str] = {}
        num_positional = 0
        while not literals.accept(")"):
            if found and not literals.accept(","):
                raise Unreadable
            literals.skip_space()
            start, key = literals.at, literals.match(_KEY)
            if not key or not literals.accept("="):
                if num_positional < len(found):
                    raise Unreadable
                literals.at = start
                key = _property_at(tool, num_positional)
                num_positional += 1
            if key in found:
                raise Unreadable
            found[key] = literals.value()
        return found

    def _in_tags(self, tool: Tool, parameter: Parameter) -> dict[str, str]:
        literals = self._literals
        found: dict[str, str] = {}
        while literals.accept(parameter.before_key.strip()):
            key_end, *value_starts = parameter.before_value.split()
            key = self._up_to(key_end).strip()
            if not all(literals.accept(text) for text in value_starts):
                raise Unreadable
            # One line break on either side belongs to the tags.
            _, after = parameter.around(is_text=False, key=key)
            text = self._up_to(after.strip()).removeprefix("\n").removesuffix("\n")
            found.setdefault(key, _from_word(text, tool, key))
        return found

    def _up_to(self, text: str) -> str:
        literals = self._literals
        end = literals.text.find(text, literals.at)
        if end < 0:
            raise Unreadable
        start, literals.at = literals.at, end + len(text)
        return literals.text[start:end]

    def _as_words(self, tool: Tool) -> dict[str, str]:
        """Shell-like: --key value, --key=value, key=value, --flag, and bare words that fill what is required."""
        literals = self._literals
        found: dict[str, str] = {}
        num_bare = 0
        self._skip_frame()
        while not literals.is_at_end:
            start = literals.at
            dashes, key = literals.match(_DASHES), literals.match(_KEY)
            has_sign = bool(key) and literals.next_char == "="
            if not dashes and not has_sign:
                literals.at = start
                key = _property_at(tool, num_bare)
                num_bare += 1
                if num_bare > max(1, _num_required(tool)):  # more looks like a sentence
                    raise Unreadable
            if key in found or not key:
                raise Unreadable
            literals.at += has_sign
            found[key] = self._word(tool, key, has_sign or not dashes)
            self._skip_frame()
        return found

    def _word(self, tool: Tool, key: str, has_sign: bool) -> str:
        literals = self._literals
        if not has_sign:
            self._skip_frame()
            if literals.is_at_end or literals.text.startswith("--", literals.at):
                return "true"
        if literals.next_char in {'"', "'"}:
            return json.dumps(literals.string(), ensure_ascii=False)
        text = literals.match(_BARE)
        if not text:
            raise Unreadable
        return _from_word(text, tool, key)


def _frame(syntax: CallSyntax) -> set[str]:
    """The texts around names and arguments that tell nothing: whole, and line by line."""
    texts = [syntax.optional_begin, syntax.opening, syntax.begin, syntax.end, syntax.separator]
    texts += [syntax.begin + syntax.before_name, syntax.before_name, syntax.between, syntax.after]
    texts = [part for text in texts for part in text.split(WORD)]
    pieces = {piece.strip() for text in texts for piece in (text, *text.split("\n"))}
    pieces |= {piece.lstrip("})]") for piece in pieces}
    pieces = {piece for piece in pieces if piece and not set(piece) <= set("(){}[]") and '"' not in piece}
    # A list of calls may be written with brackets of its own.
    return pieces | {syntax.end} if syntax.end and syntax.begin.endswith("[") else pieces


def _members(text: str) -> dict[str, str]:
    return Literals(text).members()


def _string(text: str) -> str:
    return Literals(text).string() if text.startswith('"') else ""


def _as_arguments(value: str, tool: Tool) -> str:
    """A value as arguments: an object, or a string that holds one, or the input of a custom tool."""
    if value.startswith("{"):
        return _arguments_of(_members(value), tool)
    if value == "null":
        return _arguments_of({}, tool)
    if not value.startswith('"'):
        raise Unreadable
    text = _string(value)
    if tool.kind is ToolKind.CUSTOM:
        return text
    literals = Literals(text)
    members = literals.members()
    literals.skip_space()
    if not literals.is_at_end:
        raise Unreadable
    return write_object(members)


def _arguments_of(members: dict[str, str], tool: Tool) -> str:
    if tool.kind is ToolKind.FUNCTION:
        return write_object(members)
    if set(members) != {INPUT} or not members[INPUT].startswith('"'):
        raise Unreadable
    return _string(members[INPUT])


def _property_at(tool: Tool, index: int) -> str:
    names = [INPUT] if tool.kind is ToolKind.CUSTOM else required_first(tool)
    if index >= len(names):
        raise Unreadable
    return names[index]


def _num_required(tool: Tool) -> int:
    required = (tool.parameters or {}).get("required")
    return len(required) if isinstance(required, list | tuple) else 0


def _from_word(text: str, tool: Tool, key: str) -> str:
    """A value without quotes: a string where the schema allows nothing else, otherwise what it looks like."""
    if tool.kind is ToolKind.FUNCTION and not is_raw(parameter_schema(tool.parameters, key)):
        literals = Literals(text)
        try:
            value = literals.value()
            literals.skip_space()
            if literals.is_at_end:
                return value
        except Unreadable:
            pass
    return json.dumps(text, ensure_ascii=False)
