"""The bodies of POST /v1/messages and /v1/messages/count_tokens, in Anthropic's format.

Its clients add beta fields with every release, so here an unknown field is no error: it is kept aside, to be named.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)

from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.param import shorten
from proxy_inference_engine.server.schemas.base import Natural, Positive, Schema, Share
from proxy_inference_engine.server.schemas.generating import Stops
from proxy_inference_engine.server.schemas.messages import MAX_MESSAGES
from proxy_inference_engine.server.schemas.parts import MAX_PARTS, text_or, without
from proxy_inference_engine.server.schemas.tools import (
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    CallId,
    JsonSchemaObject,
    by_type,
)

_READABLE = without(
    {"document", "search_result", "container_upload"}, "is of type {kind}, and this version reads text and images only"
)
_OF_ASSISTANT = frozenset({"tool_use", "thinking", "redacted_thinking"})

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class Open(Schema):
    """Takes fields it does not know."""

    model_config = ConfigDict(extra="allow")


def _unknown_fields(value: object, path: str = "") -> Iterator[str]:
    """Without the indexes of lists; null equals absent."""
    if isinstance(value, Open):
        yield from (path + shorten(name) for name, extra in (value.model_extra or {}).items() if extra is not None)
        for name in type(value).model_fields:
            yield from _unknown_fields(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _unknown_fields(item, path)


CacheControl = dict[str, Any] | None  # the server caches every prefix anyway


class TextBlock(Open):
    type: Literal["text"]
    text: str
    cache_control: CacheControl = None


class Base64Source(Open):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Field(min_length=1)]

    @property
    def address(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class UrlSource(Open):
    type: Literal["url"]
    url: Annotated[str, Field(min_length=1)]

    @property
    def address(self) -> str:
        return self.url


class ImageBlock(Open):
    type: Literal["image"]
    source: Annotated[
        Annotated[Base64Source, Tag("<base64>")] | Annotated[UrlSource, Tag("<url>")], by_type("base64", "url")
    ]
    cache_control: CacheControl = None


class ThinkingBlock(Open):
    """The signature is another server's business, or ours from earlier: nothing hangs on it."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Open):
    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Open):
    type: Literal["tool_use"]
    id: CallId
    name: Name
    input: dict[str, Any]
    cache_control: CacheControl = None


Texts = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[Annotated[TextBlock, _READABLE]], Field(max_length=MAX_PARTS), Tag("<blocks>")],
    text_or("<blocks>"),
]


Results = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[
        list[
            Annotated[
                Annotated[TextBlock, Tag("<text>")] | Annotated[ImageBlock, Tag("<image>")],
                by_type("text", "image"),
                _READABLE,
            ]
        ],
        Field(max_length=MAX_PARTS),
        Tag("<blocks>"),
    ],
    text_or("<blocks>"),
]


class ToolResultBlock(Open):
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
    | Annotated[ToolResultBlock, Tag("<tool_result>")],
    by_type("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result"),
    _READABLE,
]
Content = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[Block], Field(max_length=MAX_PARTS, fail_fast=True), Tag("<blocks>")],
    text_or("<blocks>"),
]


class Message(Open):
    """Content is checked against the role above it."""

    role: Literal["user", "assistant", "system"]
    content: Content

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
    return kind == "text" or role == "user"


class CustomTool(Open):
    """A tool that the client runs."""

    type: Literal["custom"] | None = None
    name: Name
    description: str | None = None
    input_schema: JsonSchemaObject
    strict: bool | None = None
    cache_control: CacheControl = None

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.input_schema).encode())


class HostedTool(Schema):
    """A tool whose definition, or whose running, is Anthropic's own: there is nothing here to do it."""

    model_config = ConfigDict(extra="ignore")

    type: str


def _tool_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "<hosted>" if isinstance(kind, str) and kind != "custom" else "<custom>"


def _bounded(tools: list[CustomTool | HostedTool]) -> list[CustomTool | HostedTool]:
    # They become one grammar.
    if sum(tool.num_schema_bytes for tool in tools if isinstance(tool, CustomTool)) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schemas of all tools together may have at most {MAX_SCHEMA_BYTES // 1024} KiB")
    return tools


Tool = Annotated[
    Annotated[CustomTool, Tag("<custom>")] | Annotated[HostedTool, Tag("<hosted>")], Discriminator(_tool_kind)
]
Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_bounded)]


class ToolChoice(Open):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = Field(None, validate_default=True)
    disable_parallel_tool_use: bool | None = None

    @field_validator("name")
    @classmethod
    def _is_the_tools(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("type") == "tool":
            raise ValueError("a choice of type 'tool' needs the name of the tool")
        return value


class Thinking(Open):
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


class JsonFormat(Open):
    type: Literal["json_schema"]
    schema_: JsonSchemaObject = Field(alias="schema")


class OutputConfig(Open):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountRequest(Open):
    """What makes the prompt."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    system: Texts | None = None
    tools: Tools = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl = None

    _unknown: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, _context: Any) -> None:
        # Here, because a large body is validated off the event loop.
        self._unknown = tuple(dict.fromkeys(_unknown_fields(self)))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields that nothing here reads, each once."""
        return self._unknown


class MessageRequest(CountRequest):
    max_tokens: Positive
    stop_sequences: Stops | None = None
    temperature: Share | None = None
    top_p: Share | None = None
    top_k: Natural | None = None
    stream: bool = False
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
