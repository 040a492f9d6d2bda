"""The body of POST /v1/chat/completions: what the client wrote, proved in shape only."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from proxy_inference_engine.server.schemas.base import Positive, Schema, later, never, unsupported
from proxy_inference_engine.server.schemas.generating import BestOf, Generating

MAX_MESSAGES = 4096
MAX_PARTS = 1024
_LATER_PARTS = frozenset({"image_url", "input_audio", "file", "image", "video_url", "audio_url"})


class TextPart(Schema):
    type: Literal["text"]
    text: str


class RefusalPart(Schema):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def _no_media(value: object) -> object:
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] in _LATER_PARTS:
        raise unsupported()
    return value


def _part_kind(value: object) -> str:
    return "<refusal>" if isinstance(value, dict) and value.get("type") == "refusal" else "<text>"


Part = Annotated[
    Annotated[TextPart, Tag("<text>")] | Annotated[RefusalPart, Tag("<refusal>")],
    Discriminator(_part_kind),
    BeforeValidator(_no_media),
]


def _content_kind(value: object) -> str:
    return "<parts>" if isinstance(value, list) else "<string>"


Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS), Tag("<parts>")],
    Discriminator(_content_kind),
]


def _no_tool_roles(value: object) -> object:
    if value in ("tool", "function"):
        raise unsupported()
    return value


class Message(Schema):
    """One message. What only an assistant may carry is accepted on the others when it is null."""

    role: Annotated[Literal["system", "developer", "user", "assistant", "agent"], BeforeValidator(_no_tool_roles)]
    refusal: str | None = None
    content: Content | None = Field(None, validate_default=True)
    name: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    annotations: Annotated[None, never([])] = None
    audio: Annotated[None, never()] = None
    function_call: Annotated[None, never()] = None
    tool_calls: Annotated[None, later([])] = None
    tool_call_id: Annotated[None, later()] = None
    reasoning: Annotated[None, later("")] = None
    reasoning_content: Annotated[None, later("")] = None

    @field_validator("content")
    @classmethod
    def _is_there(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.data.get("refusal") is None:
            raise ValueError("a message needs content: text or a list of parts")
        return value

    @property
    def texts(self) -> list[str]:
        if self.content is None:
            return [self.refusal or ""]
        return [self.content] if isinstance(self.content, str) else [part.text for part in self.content]


def no_batch(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], list):
        raise unsupported("as a list of conversations is not supported by this version")
    return value


class ChatRequest(Generating):
    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), BeforeValidator(no_batch)
    ]
    max_completion_tokens: Positive | None = None
    max_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    best_of: BestOf = None
    chat_template_kwargs: Annotated[None, later({})] = None
    enable_thinking: Annotated[None, later()] = None
    parallel_tool_calls: Annotated[None, later(True, False)] = None
    prediction: Annotated[None, later()] = None
    reasoning_budget_tokens: Annotated[None, later()] = None
    reasoning_effort: Annotated[None, later()] = None
    reasoning_min_tokens: Annotated[None, later()] = None
    response_format: Annotated[None, later({"type": "text"})] = None
    store: Annotated[None, later(False)] = None
    tool_choice: Annotated[None, later("none", "auto")] = None
    tools: Annotated[None, later([])] = None

    audio: Annotated[None, never()] = None
    function_call: Annotated[None, never("none", "auto")] = None
    functions: Annotated[None, never([])] = None
    modalities: Annotated[None, never(["text"])] = None
    moderation: Annotated[None, never()] = None
    web_search_options: Annotated[None, never()] = None
