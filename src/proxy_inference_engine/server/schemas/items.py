"""Items of the Responses API, as clients send them and as this server stores them: messages, calls, results, reasoning.

Proves their shape only; what they mean to the model is said in `convert/responses_turns.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy_inference_engine.server.schemas.base import Schema, never
from proxy_inference_engine.server.schemas.parts import MAX_PARTS, text_or, without
from proxy_inference_engine.server.schemas.tools import CallId, Name, by_type

MAX_ITEMS = 4096
MAX_SEALED_CHARS = 8 * 1024 * 1024
_MEDIA = frozenset({"input_file", "input_audio", "computer_screenshot"})
# What hosted tools leave in a history; the model here never made them and cannot read them.
_HOSTED = (
    "web_search file_search computer code_interpreter image_generation local_shell shell apply_patch mcp tool_search"
)
HOSTED_ITEMS = frozenset(
    {"tool_search_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}
    | {f"{name}_call" for name in _HOSTED.split()}
    | {f"{name}_call_output" for name in _HOSTED.split()}
)

ItemId = Annotated[str, Field(min_length=1, max_length=128)]
Status = Literal["in_progress", "completed", "incomplete"]


class Nullable(Schema):
    """Clients send back what they were given with every field their types have: null equals absent, at any depth."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if field is not None}
        return value


class InputText(Nullable):
    type: Literal["input_text", "text"]
    text: str


class OutputText(Nullable):
    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] | None = None


class Refusal(Nullable):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class InputImage(Nullable):
    type: Literal["input_image"]
    file_id: Annotated[None, never()] = None
    image_url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high", "original"] | None = None


Part = Annotated[
    Annotated[InputText, Tag("<input_text>")]
    | Annotated[InputText, Tag("<text>")]
    | Annotated[OutputText, Tag("<output_text>")]
    | Annotated[Refusal, Tag("<refusal>")]
    | Annotated[InputImage, Tag("<input_image>")],
    by_type("input_text", "text", "output_text", "refusal", "input_image"),
    without(_MEDIA),
]


Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[Part], Field(max_length=MAX_PARTS), Tag("<parts>")],
    text_or("<parts>"),
]


def parts_of(content: str | list[Any]) -> list[str | InputImage]:
    """Texts and images in their order."""
    if isinstance(content, str):
        return [content]
    return [part if isinstance(part, InputImage) else part.text for part in content]


def texts_of(content: str | list[Any]) -> list[str]:
    return [part for part in parts_of(content) if isinstance(part, str)]


class Stored(Nullable):
    """What an item has once a server has seen it."""

    id: ItemId | None = None
    status: Status | None = None


class MessageItem(Stored):
    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: Content
    phase: Literal["commentary", "final_answer"] | None = None

    @field_validator("content")
    @classmethod
    def _is_shown_by_the_user(cls, value: Any, info: ValidationInfo) -> Any:
        parts = value if isinstance(value, list) else ()  # a text is long
        if info.data.get("role", "user") != "user" and any(isinstance(part, InputImage) for part in parts):
            raise ValueError("only a message of the user may have images")
        return value


class FunctionCallItem(Stored):
    type: Literal["function_call"]
    call_id: CallId
    name: Name
    arguments: str
    namespace: str | None = None

    @property
    def input(self) -> str:
        return self.arguments


class CustomCallItem(Stored):
    type: Literal["custom_tool_call"]
    call_id: CallId
    name: Name
    input: str
    namespace: str | None = None


class OutputItem(Stored):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    name: str | None = None
    output: Content


class SummaryText(Nullable):
    type: Literal["summary_text"]
    text: str


class ReasoningText(Nullable):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(Stored):
    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    content: Annotated[list[ReasoningText], Field(max_length=MAX_PARTS)] | None = None
    encrypted_content: Annotated[str, Field(max_length=MAX_SEALED_CHARS)] | None = None


class ReferenceItem(Nullable):
    type: Literal["item_reference"] | None = None
    id: ItemId


class CompactionItem(Stored):
    type: Literal["compaction", "compaction_summary"]
    encrypted_content: Annotated[str, Field(max_length=MAX_SEALED_CHARS)]


class HostedItem(Nullable):
    """Skipped, and named in a header."""

    model_config = ConfigDict(extra="allow")
    type: str


_KINDS = {
    "message": "<message>",
    "function_call": "<function_call>",
    "custom_tool_call": "<custom_tool_call>",
    "function_call_output": "<output>",
    "custom_tool_call_output": "<output>",
    "reasoning": "<reasoning>",
    "item_reference": "<item_reference>",
    "compaction": "<compaction>",
    "compaction_summary": "<compaction>",
}


def _kind(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if kind is None:
        return "<item_reference>" if "id" in value and "role" not in value else "<message>"
    if not isinstance(kind, str):
        return None
    return "<hosted>" if kind in HOSTED_ITEMS else _KINDS.get(kind)


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[FunctionCallItem, Tag("<function_call>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[OutputItem, Tag("<output>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")]
    | Annotated[ReferenceItem, Tag("<item_reference>")]
    | Annotated[CompactionItem, Tag("<compaction>")]
    | Annotated[HostedItem, Tag("<hosted>")],
    Discriminator(
        _kind,
        custom_error_type="unknown_type",
        custom_error_message=f"an object whose type is one of {', '.join(map(repr, _KINDS))} is expected",
    ),
]
AnyItem = (
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | OutputItem
    | ReasoningItem
    | ReferenceItem
    | CompactionItem
    | HostedItem
)
Items = Annotated[list[Item], Field(max_length=MAX_ITEMS, fail_fast=True)]
