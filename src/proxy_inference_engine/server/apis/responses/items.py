"""Items of the Responses API, as clients send them and as this server stores them: messages, calls, results, reasoning.

Proves their shape only; what they mean to the model is said in `turns.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, assert_never

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)

from proxy_inference_engine.server.apis.responses.notes import HOSTED_ITEMS, MEDIA, as_message, with_notes
from proxy_inference_engine.server.apis.responses.tools import FlatTools
from proxy_inference_engine.server.apis.shared.fields import MAX_PARTS, Nullable, OpenSchema, never, text_or, without
from proxy_inference_engine.server.apis.shared.tools import CallId, ToolName, by_type
from proxy_inference_engine.server.http.wire import dumps

MAX_ITEMS = 4096
MAX_SEALED_CHARS = 8 * 1024 * 1024

ItemId = Annotated[str, Field(min_length=1, max_length=128)]
Status = Literal["in_progress", "completed", "incomplete"]


class SentBack(Nullable, OpenSchema):
    """What clients have got from some server: fields that they added to it are dropped, and named."""

    model_config = ConfigDict(extra="allow")
    _unknown: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, _context: Any) -> None:
        if self.model_extra:
            self._unknown = tuple(self.extras(""))
            self.model_extra.clear()

    @property
    def unknown(self) -> tuple[str, ...]:
        return self._unknown


class InputText(SentBack):
    type: Literal["input_text", "text"]
    text: str


class OutputText(SentBack):
    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] | None = None


class Refusal(SentBack):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class InputImage(SentBack):
    type: Literal["input_image"]
    file_id: Annotated[None, never()] = None
    image_url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high", "original"] | None = None


ItemPart = Annotated[
    Annotated[InputText, Tag("<input_text>")]
    | Annotated[InputText, Tag("<text>")]
    | Annotated[OutputText, Tag("<output_text>")]
    | Annotated[Refusal, Tag("<refusal>")]
    | Annotated[InputImage, Tag("<input_image>")],
    by_type("input_text", "text", "output_text", "refusal", "input_image"),
    without(MEDIA),
]


ItemContent = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[ItemPart], Field(max_length=MAX_PARTS), Tag("<parts>")],
    text_or("<parts>"),
]


def parts_of(content: str | list[Any]) -> list[str | InputImage]:
    """Texts and images in their order."""
    if isinstance(content, str):
        return [content]
    return [part if isinstance(part, InputImage) else part.text for part in content]


def texts_of(content: str | list[Any]) -> list[str]:
    return [part for part in parts_of(content) if isinstance(part, str)]


class StoredItem(SentBack):
    """What an item has once a server has seen it."""

    id: ItemId | None = None
    status: Status | None = None


class MessageItem(StoredItem):
    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: ItemContent
    phase: Literal["commentary", "final_answer"] | None = None

    @field_validator("content")
    @classmethod
    def _is_shown_by_the_user(cls, value: Any, info: ValidationInfo) -> Any:
        parts = value if isinstance(value, list) else ()  # a text is long
        if info.data.get("role", "user") != "user" and any(isinstance(part, InputImage) for part in parts):
            raise ValueError("only a message of the user may have images")
        return value


class FunctionCallItem(StoredItem):
    type: Literal["function_call"]
    call_id: CallId
    name: ToolName
    arguments: str
    namespace: str | None = None

    @property
    def input(self) -> str:
        return self.arguments


class CustomCallItem(StoredItem):
    type: Literal["custom_tool_call"]
    call_id: CallId
    name: ToolName
    input: str
    namespace: str | None = None


class OutputItem(StoredItem):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    name: str | None = None
    output: Annotated[ItemContent, BeforeValidator(with_notes)]


class AdditionalToolsItem(StoredItem):
    """Tools that may be called from here on, beside those of the body."""

    type: Literal["additional_tools"]
    role: Literal["developer", "system"] | None = None
    tools: FlatTools


class ToolSearchItem(StoredItem):
    """A search for tools: the client's own where there is an id, else one that some server made for itself."""

    type: Literal["tool_search_call"]
    call_id: CallId | None = None
    execution: Literal["client", "server"] | None = None
    arguments: Any = None

    @property
    def input(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else dumps(self.arguments or {})


class FoundToolsItem(StoredItem):
    """What a search for tools gave: they may be called from here on."""

    type: Literal["tool_search_output"]
    call_id: CallId | None = None
    execution: Literal["client", "server"] | None = None
    tools: FlatTools


class SummaryText(SentBack):
    type: Literal["summary_text"]
    text: str


class ReasoningText(SentBack):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(StoredItem):
    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], Field(max_length=MAX_PARTS)] = Field(default_factory=list)
    content: Annotated[list[ReasoningText], Field(max_length=MAX_PARTS)] | None = None
    encrypted_content: Annotated[str, Field(max_length=MAX_SEALED_CHARS)] | None = None


class ReferenceItem(Nullable):
    type: Literal["item_reference"] | None = None
    id: ItemId


class CompactionItem(StoredItem):
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
    "additional_tools": "<additional_tools>",
    "tool_search_call": "<tool_search_call>",
    "tool_search_output": "<tool_search_output>",
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


ItemField = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[FunctionCallItem, Tag("<function_call>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[OutputItem, Tag("<output>")]
    | Annotated[AdditionalToolsItem, Tag("<additional_tools>")]
    | Annotated[ToolSearchItem, Tag("<tool_search_call>")]
    | Annotated[FoundToolsItem, Tag("<tool_search_output>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")]
    | Annotated[ReferenceItem, Tag("<item_reference>")]
    | Annotated[CompactionItem, Tag("<compaction>")]
    | Annotated[HostedItem, Tag("<hosted>")],
    Discriminator(
        _kind,
        custom_error_type="unknown_type",
        custom_error_message=f"an object whose type is one of {', '.join(map(repr, _KINDS))} is expected",
    ),
    BeforeValidator(as_message),
]
AnyItem = (
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | OutputItem
    | AdditionalToolsItem
    | ToolSearchItem
    | FoundToolsItem
    | ReasoningItem
    | ReferenceItem
    | CompactionItem
    | HostedItem
)
ItemList = Annotated[list[ItemField], Field(max_length=MAX_ITEMS, fail_fast=True)]


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
    "additional_tools": "adt",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "reasoning": "rs",
    "compaction": "cmp",
    "compaction_summary": "cmp",
}
_FIRST = 0x8000  # items of an answer are numbered from 0


def input_items(items: Iterable[AnyItem], response_id: str) -> list[dict[str, Any]]:
    """What hosted tools left behind is not kept. An id that two items have stays with the first."""
    kept: list[dict[str, Any]] = []
    seen: set[str] = set()
    for item in items:
        if isinstance(item, HostedItem | ReferenceItem):
            continue
        wire = _wire(item)
        if wire.get("id") is None or wire["id"] in seen:
            place = f"{response_id.removeprefix('resp_')}{_FIRST + len(kept):04x}"
            wire["id"] = f"{_PREFIXES[wire['type']]}_{place}"
        seen.add(wire["id"])
        kept.append(wire)
    return kept


def unknown_in(items: Iterable[AnyItem], place: str = "input") -> Iterator[str]:
    """The fields of items and of their parts that nothing here reads."""
    for item in items:
        if not isinstance(item, SentBack):
            continue
        yield from (f"{place}.{name}" for name in item.unknown)
        for field in ("content", "output", "summary"):
            parts = getattr(item, field, None)
            for part in parts if isinstance(parts, list) else ():
                yield from (f"{place}.{field}.{name}" for name in part.unknown)


def num_chars(item: AnyItem) -> int:
    """How much text the model, or whoever opens what is sealed, has to go through."""
    match item:
        case MessageItem(content=content) | OutputItem(output=content):
            return sum(map(len, texts_of(content)))
        case FunctionCallItem() | CustomCallItem() | ToolSearchItem():
            return len(item.input)
        case AdditionalToolsItem(tools=tools) | FoundToolsItem(tools=tools):
            return sum(tool.num_schema_bytes for tool in tools)
        case ReasoningItem():
            return len(item.encrypted_content or "") + sum(len(part.text) for part in item.content or ())
        case CompactionItem():
            return len(item.encrypted_content)
        case HostedItem() | ReferenceItem():
            return 0
        case _:
            assert_never(item)


def least_bytes(item: AnyItem) -> int:
    """The least number of bytes that an item takes in the store, found without writing it out."""
    match item:
        case MessageItem(content=content) | OutputItem(output=content):
            return sum(len(part if isinstance(part, str) else part.image_url) for part in parts_of(content))
        case _:
            return num_chars(item)


def _wire(item: Any) -> dict[str, Any]:
    wire: dict[str, Any] = {**item.model_dump(exclude_none=True), "status": item.status or "completed"}
    match item:
        case MessageItem():
            wire["content"] = _parts(wire["content"], is_ours=item.role == "assistant")
        case OutputItem() if not isinstance(item.output, str):
            wire["output"] = _parts(wire["output"], is_ours=False)
        case ReasoningItem(content=content) if content is not None:
            wire["content"] = [{"type": "reasoning_text", "text": part.text} for part in content]
    return wire


def _parts(content: str | Sequence[dict[str, Any]], *, is_ours: bool) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_part(part, is_ours) for part in parts]


def _part(part: dict[str, Any], is_ours: bool) -> dict[str, Any]:
    if part["type"] == "input_image":
        return part
    if part["type"] == "refusal":
        return part if is_ours else {"type": "input_text", "text": part["refusal"]}
    if not is_ours:
        return {"type": "input_text", "text": part["text"]}
    return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
