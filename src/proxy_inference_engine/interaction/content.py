"""One part of what was said. Knows nothing of any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proxy_inference_engine.errors import InvalidRequest


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
