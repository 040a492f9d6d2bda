"""One message of a conversation, as clients write it: who may carry what is checked here, what it means is not."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from proxy_inference_engine.server.schemas.base import Schema, never, unsupported
from proxy_inference_engine.server.schemas.parts import MAX_PARTS, text_or, without
from proxy_inference_engine.server.schemas.tools import CallId, Calls

MAX_MESSAGES = 4096
_LATER_PARTS = frozenset({"input_audio", "file", "image", "video_url", "audio_url"})
_ASSISTANT = frozenset({"assistant", "agent"})
_SHOWING = frozenset({"user", "tool", "function"})


class TextPart(Schema):
    type: Literal["text"]
    text: str


class RefusalPart(Schema):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class ImageUrl(Schema):
    url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Schema):
    type: Literal["image_url"]
    image_url: ImageUrl


def _part_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return f"<{kind}>" if kind in ("refusal", "image_url") else "<text>"


Part = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[ImagePart, Tag("<image_url>")],
    Discriminator(_part_kind),
    without(_LATER_PARTS),
]


Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS), Tag("<parts>")],
    text_or("<parts>"),
]


class Message(Schema):
    """What only one role may carry is accepted on the others when it is null or empty.

    A field is checked against those above it: `role` comes first, `content` last.
    """

    role: Literal["system", "developer", "user", "assistant", "agent", "tool", "function"]
    name: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(None, validate_default=True)
    refusal: str | None = None
    tool_calls: Calls | None = None
    tool_call_id: CallId | None = Field(None, validate_default=True)
    reasoning_content: str | None = None
    reasoning: str | None = None
    content: Content | None = Field(None, validate_default=True)

    annotations: Annotated[None, never([])] = None
    audio: Annotated[None, never()] = None
    function_call: Annotated[None, never()] = None

    @field_validator("tool_calls", "reasoning_content", "reasoning")
    @classmethod
    def _is_the_assistants(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("role", "assistant") not in _ASSISTANT:
            raise ValueError("only an assistant message may have it")
        return value

    @field_validator("reasoning")
    @classmethod
    def _is_one_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        other = info.data.get("reasoning_content")
        if value and other and value != other:
            raise ValueError("it differs from reasoning_content, which is the same field")
        return value

    @field_validator("tool_call_id")
    @classmethod
    def _is_the_results(cls, value: str | None, info: ValidationInfo) -> str | None:
        role = info.data.get("role")
        if role == "tool" and value is None:
            raise ValueError("a tool message needs the id of the call it answers")
        if role not in ("tool", None) and value is not None:
            raise ValueError("only a tool message may have it")
        return value

    @field_validator("name")
    @classmethod
    def _names_the_function(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("role") == "function":
            raise ValueError("a function message needs the name of the function")
        return value

    @field_validator("content")
    @classmethod
    def _is_there(cls, value: Any, info: ValidationInfo) -> Any:
        instead = ("tool_calls", "reasoning_content", "reasoning")
        if value is None and info.data.get("refusal") is None and not any(info.data.get(name) for name in instead):
            raise ValueError("a message needs content: text or a list of parts")
        return value

    @field_validator("content")
    @classmethod
    def _is_shown_to_the_model(cls, value: Any, info: ValidationInfo) -> Any:
        parts = value if isinstance(value, list) else []
        if any(isinstance(part, ImagePart) for part in parts) and info.data.get("role", "user") not in _SHOWING:
            raise ValueError("only a message of the user or of a tool may have images")
        return value

    @property
    def parts(self) -> list[str | ImagePart]:
        """Texts and images in their order."""
        if self.content is None:
            return [] if self.refusal is None else [self.refusal]
        if isinstance(self.content, str):
            return [self.content]
        return [part if isinstance(part, ImagePart) else part.text for part in self.content]

    @property
    def texts(self) -> list[str]:
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def thoughts(self) -> str:
        return self.reasoning_content or self.reasoning or ""


def _no_batch(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], list):
        raise unsupported("as a list of conversations is not supported by this version")
    return value


Messages = Annotated[
    list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), BeforeValidator(_no_batch)
]
