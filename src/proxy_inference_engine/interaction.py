"""One turn of a conversation, its parts, and the tools a model may call. Every wire format becomes these at the edge,
and the engine sees nothing else: this module knows nothing of any wire format.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from proxy_inference_engine.errors import InvalidRequest


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    @classmethod
    def parse(cls, name: str) -> "Role":
        """Read a role as clients write it: `agent` is the assistant, `function` is a tool."""
        try:
            return _ALIASES.get(name) or cls(name)
        except ValueError:
            known = ", ".join(role.value for role in cls)
            raise InvalidRequest(f"unknown role {name[:64]!r}; use one of {known}", param="role") from None


_CALLS = "tool_calls"
_ALIASES = {"agent": Role.ASSISTANT, "function": Role.TOOL}


class ContentType(StrEnum):
    TEXT = "text"
    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"
    VIDEO = "video"
    ACTION = "action"


@dataclass(frozen=True, slots=True)
class Content:
    """A text part holds `text`; every other part describes itself in `data`."""

    type: ContentType
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, text: str) -> "Content":
        return cls(ContentType.TEXT, text)

    def to_json(self) -> dict[str, Any]:
        if self.type is ContentType.TEXT:
            return {"type": self.type.value, "text": self.text}
        return {"type": self.type.value, "data": dict(self.data)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Content":
        try:
            kind = ContentType(value["type"])
            if kind is ContentType.TEXT:
                return cls(kind, str(value["text"]))
            return cls(kind, data=dict(value["data"]))
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest("a content part has no known type or lacks its value", param="content") from None


def _new_id() -> str:
    return f"int_{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, eq=False)
class Interaction:
    """Equal when the ids are equal. What `metadata` holds (`name`, `tool_calls`, …) reads as an attribute, and what it
    does not hold reads as None."""

    role: Role
    content: tuple[Content, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=_new_id)
    created_at: float = field(default_factory=time.time)  # seconds since 1970

    @classmethod
    def of(cls, role: Role | str, text: str, **metadata: Any) -> "Interaction":
        """A turn of plain text."""
        role = role if isinstance(role, Role) else Role.parse(role)
        return cls(role, (Content.of(text),), metadata)

    @property
    def text(self) -> str:
        """The text parts, one below the other."""
        return "\n".join(part.text for part in self.content if part.type is ContentType.TEXT)

    @property
    def images(self) -> list[Content]:
        """The parts that are images, in order."""
        return [part for part in self.content if part.type is ContentType.IMAGE]

    @property
    def calls(self) -> tuple["ToolCall", ...]:
        """The tool calls that an assistant's turn makes."""
        return tuple(self.metadata.get(_CALLS) or ())

    def __getattr__(self, name: str) -> Any:
        # Called for names that are no fields, and for fields that are not set yet: copying and pickling ask early.
        if name.startswith("_") or name in self.__slots__:
            raise AttributeError(name)
        return self.metadata.get(name)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Interaction) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": self.role.value,
            "content": [part.to_json() for part in self.content],
            "created_at": self.created_at,
            "metadata": {**self.metadata, **({_CALLS: [call.to_json() for call in self.calls]} if self.calls else {})},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Interaction":
        try:
            return cls(
                role=Role.parse(value["role"]),
                content=tuple(Content.from_json(part) for part in value["content"]),
                metadata=_read_metadata(value.get("metadata") or {}),
                id=str(value["id"]),
                created_at=float(value["created_at"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest("not an interaction: a field is missing or of the wrong type") from None


def _read_metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    calls = value.get(_CALLS)
    return {**value, _CALLS: tuple(map(ToolCall.from_json, calls))} if calls else dict(value)


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
    """What a model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None  # JSON Schema of a function's arguments; None: it takes none
    is_strict: bool = False
    kind: ToolKind = ToolKind.FUNCTION
    grammar: TextGrammar | None = None  # what a custom tool's input must look like


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool's call as history has it: `arguments` is JSON text for a function, the input itself for a custom tool."""

    id: str
    name: str
    arguments: str
    kind: ToolKind = ToolKind.FUNCTION

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "arguments": self.arguments, "kind": self.kind.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ToolCall":
        """Raises KeyError, TypeError or ValueError for what is none."""
        return cls(str(value["id"]), str(value["name"]), str(value["arguments"]), ToolKind(value["kind"]))
