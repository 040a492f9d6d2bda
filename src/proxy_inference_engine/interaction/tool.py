"""What a model may call, and how it did. Knows nothing of any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


class ToolKind(StrEnum):
    FUNCTION = "function"  # takes a JSON object
    CUSTOM = "custom"  # takes text


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """A client's own grammar for free text."""

    syntax: Literal["lark", "regex"]
    definition: str


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None  # JSON Schema of a function's arguments; None: it takes none
    is_strict: bool = False
    kind: ToolKind = ToolKind.FUNCTION
    grammar: TextGrammar | None = None  # what a custom tool's input must look like


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as history carries it: `arguments` is JSON text for a function, the input itself for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: ToolKind = ToolKind.FUNCTION
