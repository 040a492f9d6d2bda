"""The bodies of POST /v1/messages and /v1/messages/count_tokens, in Anthropic's format.

Its clients add beta fields with every release, so here an unknown field is no error: it is kept aside, to be named.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy_inference_engine.server.apis.messages.notes import CHANGES, NotedBlock, is_noted
from proxy_inference_engine.server.apis.shared.fields import (
    MAX_PARTS,
    CacheControl,
    Natural,
    OpenSchema,
    Positive,
    RequestSchema,
    Share,
    Stops,
    text_or,
    without,
)
from proxy_inference_engine.server.apis.shared.messages import MAX_MESSAGES
from proxy_inference_engine.server.apis.shared.tools import (
    MAX_TOOLS,
    CallId,
    JsonSchemaObject,
    bounded_together,
    by_type,
)
from proxy_inference_engine.server.apis.shared.unknown import OpenBody
from proxy_inference_engine.server.http.wire import dumps

_READABLE = without({"document", "search_result", "container_upload"}, "is of type {kind}, and only text is read there")
_OF_ASSISTANT = frozenset({"tool_use", "thinking", "redacted_thinking"})

ToolUseName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class TextBlock(OpenSchema):
    type: Literal["text"]
    text: str
    cache_control: CacheControl = None


class Base64Source(OpenSchema):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Field(min_length=1)]

    @property
    def address(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class UrlSource(OpenSchema):
    type: Literal["url"]
    url: Annotated[str, Field(min_length=1)]

    @property
    def address(self) -> str:
        return self.url


class ImageBlock(OpenSchema):
    type: Literal["image"]
    source: Annotated[
        Annotated[Base64Source, Tag("<base64>")] | Annotated[UrlSource, Tag("<url>")], by_type("base64", "url")
    ]
    cache_control: CacheControl = None


class ThinkingBlock(OpenSchema):
    """The signature of a text means nothing; without one it may be a thought of ours that was not shown."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(OpenSchema):
    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(OpenSchema):
    type: Literal["tool_use"]
    id: CallId
    name: ToolUseName
    input: dict[str, Any]
    cache_control: CacheControl = None


def _by_kind(*types: str) -> Discriminator:
    """Tells blocks apart as `by_type` does, and has one more kind for those that are only noted."""
    known = by_type(*types)

    def tag(value: object) -> str | None:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in types:
            return f"<{kind}>"
        return "<noted>" if is_noted(kind) else None

    return replace(known, discriminator=tag)


TextBlocks = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[Annotated[TextBlock, _READABLE]], Field(max_length=MAX_PARTS), Tag("<blocks>")],
    text_or("<blocks>"),
]


Results = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[
        list[
            Annotated[
                Annotated[TextBlock, Tag("<text>")]
                | Annotated[ImageBlock, Tag("<image>")]
                | Annotated[NotedBlock, Tag("<noted>")],
                _by_kind("text", "image"),
            ]
        ],
        Field(max_length=MAX_PARTS),
        Tag("<blocks>"),
    ],
    text_or("<blocks>"),
]


class ToolResultBlock(OpenSchema):
    type: Literal["tool_result"]
    tool_use_id: CallId
    content: Results | None = None
    is_error: bool | None = None
    cache_control: CacheControl = None


Block = Annotated[
    Annotated[TextBlock, Tag("<text>")]
    | Annotated[ImageBlock, Tag("<image>")]
    | Annotated[ThinkingBlock, Tag("<thinking>")]
    | Annotated[RedactedThinkingBlock, Tag("<redacted_thinking>")]
    | Annotated[ToolUseBlock, Tag("<tool_use>")]
    | Annotated[ToolResultBlock, Tag("<tool_result>")]
    | Annotated[NotedBlock, Tag("<noted>")],
    _by_kind("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result"),
]
BlockContent = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[Block], Field(max_length=MAX_PARTS, fail_fast=True), Tag("<blocks>")],
    text_or("<blocks>"),
]


class InputMessage(OpenSchema):
    """Content is checked against the role above it."""

    role: Literal["user", "assistant", "system"]
    content: BlockContent

    @field_validator("content")
    @classmethod
    def _fits_the_role(cls, value: str | list[Block], info: ValidationInfo) -> str | list[Block]:
        role = info.data.get("role", "assistant")
        if value == [] and role != "assistant":
            raise ValueError("a message needs content: text or a list of blocks")
        for block in value if isinstance(value, list) else ():
            if not _may_say(role, block.type):
                raise ValueError(f"a message of role {role!r} may not have blocks of type {block.type!r}")
        return value

    @property
    def blocks(self) -> list[Block]:
        return [TextBlock(type="text", text=self.content)] if isinstance(self.content, str) else self.content


def _may_say(role: str, kind: str) -> bool:
    if kind in _OF_ASSISTANT:
        return role == "assistant"
    if role == "system":
        return kind == "text" or kind in CHANGES
    return kind == "text" or role == "user" or is_noted(kind)


class ClientTool(OpenSchema):
    """A tool that the client runs."""

    type: Literal["custom"] | None = None
    name: ToolUseName
    description: str | None = None
    input_schema: JsonSchemaObject
    strict: bool | None = None
    defer_loading: bool | None = None  # not shown before a result refers to it
    cache_control: CacheControl = None

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.input_schema).encode())


class ServerTool(RequestSchema):
    """A tool whose definition, or whose running, is Anthropic's own: there is nothing here to do it."""

    model_config = ConfigDict(extra="ignore")

    type: str
    num_schema_bytes: ClassVar[int] = 0  # no grammar has it


def _tool_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "<hosted>" if isinstance(kind, str) and kind != "custom" else "<custom>"


MessageTool = Annotated[
    Annotated[ClientTool, Tag("<custom>")] | Annotated[ServerTool, Tag("<hosted>")], Discriminator(_tool_kind)
]
MessageTools = Annotated[
    list[MessageTool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(bounded_together)
]


class MessageToolChoice(OpenSchema):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolUseName | None = Field(None, validate_default=True)
    disable_parallel_tool_use: bool | None = None

    @field_validator("name")
    @classmethod
    def _is_the_tools(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("type") == "tool":
            raise ValueError("a choice of type 'tool' needs the name of the tool")
        return value


class ThinkingOptions(OpenSchema):
    """Between tools: it is off, and what the model says between its calls is text as ever."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Positive | None = Field(None, validate_default=True)
    display: Literal["summarized", "omitted"] | None = None

    @field_validator("budget_tokens")
    @classmethod
    def _is_given(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is None and info.data.get("type") == "enabled":
            raise ValueError("thinking of type 'enabled' needs a budget")
        return value


class JsonFormat(OpenSchema):
    type: Literal["json_schema"]
    schema_: JsonSchemaObject = Field(alias="schema")


class OutputConfig(OpenSchema):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountRequest(OpenBody):
    """What makes the prompt."""

    model: str | None = None
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    system: TextBlocks | None = None
    tools: MessageTools = Field(default_factory=list)
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl = None
    open_objects: bool = False
    thread: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_earlier_words(cls, data: Any) -> Any:
        """SDKs said `output_format` before there was an `output_config`."""
        if not isinstance(data, dict) or not isinstance(data.get("output_format"), dict):
            return data
        config = data.get("output_config") or {}
        if not isinstance(config, dict) or config.get("format") is not None:
            return data
        others = {name: value for name, value in data.items() if name != "output_format"}
        return {**others, "output_config": {**config, "format": data["output_format"]}}


class MessageRequest(CountRequest):
    max_tokens: Natural  # 0: only the prompt is computed, to be found later
    prewarm: bool = False
    stop_sequences: Stops | None = None
    temperature: Share | None = None
    top_p: Share | None = None
    top_k: Natural | None = None
    stream: bool = False
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    @property
    def is_prewarming(self) -> bool:
        """Whether only the prompt is to be computed."""
        return self.prewarm or self.max_tokens == 0
