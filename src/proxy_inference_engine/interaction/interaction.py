"""One turn of a conversation. Every wire format becomes these at the edge; the engine sees nothing else."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction.content import Content, ContentType
from proxy_inference_engine.interaction.role import Role


def _new_id() -> str:
    return f"int_{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, eq=False)
class Interaction:
    """Equal when the ids are equal. What `metadata` holds (`name`, `tool_calls`, …) reads as an attribute."""

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

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are no fields. Copying and pickling ask before `metadata` is set.
        if not name.startswith("_") and name != "metadata" and name in self.metadata:
            return self.metadata[name]
        raise AttributeError(name)

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
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Interaction":
        try:
            return cls(
                role=Role.parse(value["role"]),
                content=tuple(Content.from_json(part) for part in value["content"]),
                metadata=dict(value.get("metadata") or {}),
                id=str(value["id"]),
                created_at=float(value["created_at"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest("not an interaction: a field is missing or of the wrong type") from None
