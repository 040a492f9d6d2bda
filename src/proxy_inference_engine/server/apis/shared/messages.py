"""Messages as chat and the tokenizer's routes have them: who may carry what, and the turns that they become."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, TypedDict

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from proxy_inference_engine.errors import PARAM, InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, ToolCall, ToolKind
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.server.apis.shared.fields import (
    MAX_PARTS,
    CacheControl,
    OpenSchema,
    never,
    text_or,
    unsupported,
    without,
)
from proxy_inference_engine.server.apis.shared.tools import CalledFunction, CallId, Calls, CustomCall, FunctionCall

MAX_MESSAGES = 4096
_LATER_PARTS = frozenset({"input_audio", "file", "image", "video_url", "audio_url"})
_ASSISTANT = frozenset({"assistant", "agent"})
_ANSWERING = _ASSISTANT | {"tool", "function"}
_SHOWING = frozenset({"user", "tool", "function"})


class TextPart(OpenSchema):
    type: Literal["text"]
    text: str
    cache_control: CacheControl = None


class RefusalPart(OpenSchema):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class ImageUrl(OpenSchema):
    url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(OpenSchema):
    type: Literal["image_url"]
    image_url: ImageUrl
    cache_control: CacheControl = None


def _part_kind(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return f"<{kind}>" if kind in ("refusal", "image_url") else "<text>"


MessagePart = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[ImagePart, Tag("<image_url>")],
    Discriminator(_part_kind),
    without(_LATER_PARTS),
]


MessageContent = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[MessagePart], Field(min_length=1, max_length=MAX_PARTS), Tag("<parts>")],
    text_or("<parts>"),
]


class ChatMessage(OpenSchema):
    """What only one role may carry is accepted on the others when it is null or empty. Clients and proxies send back
    more than they were given: what nobody reads is dropped and named.

    A field is checked against those above it: `role` comes first, `content` last.
    """

    role: Literal["system", "developer", "user", "assistant", "agent", "tool", "function"]
    name: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(None, validate_default=True)
    refusal: str | None = None
    tool_calls: Calls | None = None
    tool_call_id: CallId | None = Field(None, validate_default=True)
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: CalledFunction | None = None
    cache_control: CacheControl = None
    content: MessageContent | None = Field(None, validate_default=True)

    audio: Annotated[None, never()] = None

    @field_validator("tool_calls", "reasoning_content", "reasoning", "function_call")
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

    @field_validator("content", mode="before")
    @classmethod
    def _may_be_no_parts(cls, value: Any, info: ValidationInfo) -> Any:
        """An answer of calls alone, and what a tool gave back that returns nothing, as clients build them of parts."""
        return "" if value == [] and info.data.get("role") in _ANSWERING else value

    @field_validator("content")
    @classmethod
    def _is_there(cls, value: Any, info: ValidationInfo) -> Any:
        """The assistant may have said nothing."""
        if value is None and info.data.get("role", "assistant") not in _ASSISTANT and info.data.get("refusal") is None:
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


def unknown_in(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """What history carries and nobody reads, by name."""
    for message in messages:
        yield from message.extras("messages.")
        for part in message.content if isinstance(message.content, list) else ():
            yield from part.extras("messages.content.")
            if isinstance(part, ImagePart):
                yield from part.image_url.extras("messages.content.image_url.")
        for call in message.tool_calls or ():
            yield from call.extras("messages.tool_calls.")
            if isinstance(call, FunctionCall):
                yield from call.function.extras("messages.tool_calls.function.")
            else:
                yield from call.custom.extras("messages.tool_calls.custom.")
        if message.function_call is not None:
            yield from message.function_call.extras("messages.function_call.")


def marks_cache(messages: Sequence[ChatMessage]) -> Iterator[CacheControl]:
    """What messages and their parts say about keeping their prefix."""
    for message in messages:
        yield message.cache_control
        for part in message.content if isinstance(message.content, list) else ():
            if not isinstance(part, RefusalPart):
                yield part.cache_control


def _no_batch(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], list):
        raise unsupported("as a list of conversations is not supported by this version")
    return value


Messages = Annotated[
    list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), BeforeValidator(_no_batch)
]


class PromptFields(Protocol):
    """The fields of a body that say how its prompt ends."""

    @property
    def add_generation_prompt(self) -> bool | None: ...

    @property
    def continue_final_message(self) -> bool: ...


def make_turns(messages: Sequence[ChatMessage]) -> list[Interaction]:
    """The turns; a tool's result has the id of the call it answers, and the name of what was called."""
    open_calls: dict[str, str] = {}  # id of every call so far that waits for its result → name
    known: dict[str, str] = {}
    turns = []
    for index, message in enumerate(messages):
        calls = tuple(map(_call, message.tool_calls or ()))
        if message.function_call is not None:
            calls = (*calls, _oldest_call(message.function_call, index))
        answered = _answered(message, index, known, open_calls)
        turns.append(_interaction(message, index, calls, answered))
        fresh = {call.id: call.name for call in calls}
        known |= fresh
        open_calls |= fresh
    return turns


def _call(call: FunctionCall | CustomCall) -> ToolCall:
    if isinstance(call, CustomCall):
        return ToolCall(call.id, call.custom.name, call.custom.input, ToolKind.CUSTOM)
    return ToolCall(call.id, call.function.name, call.function.arguments)


def _oldest_call(call: CalledFunction, index: int) -> ToolCall:
    """The first form of calls had no ids: a `function` message answers by the name."""
    return ToolCall(f"call_{index}", call.name, call.arguments)


def _answered(message: ChatMessage, index: int, known: dict[str, str], open_calls: dict[str, str]) -> dict[str, str]:
    """What a result says of its call; a `function` message has only the name, so it answers the oldest such call."""
    match message.role:
        case "tool":
            call_id = message.tool_call_id
            if call_id not in known:
                raise InvalidRequest(
                    "'tool_call_id' has to be the id of a call in an earlier message.",
                    param=f"messages[{index}].tool_call_id",
                )
        case "function":
            call_id = next((id_ for id_, name in open_calls.items() if name == message.name), None)
            if call_id is None:
                raise InvalidRequest(
                    "'name' has to be that of a call in an earlier message that has no result yet.",
                    param=f"messages[{index}].name",
                )
        case _:
            return {}
    open_calls.pop(call_id, None)
    return {"tool_call_id": call_id, "name": known[call_id]}


def _interaction(
    message: ChatMessage, index: int, calls: tuple[ToolCall, ...], answered: dict[str, str]
) -> Interaction:
    content = tuple(
        Content.of(part)
        if isinstance(part, str)
        else image_content(part.image_url.url, part.image_url.detail, f"messages[{index}].content[{place}]")
        for place, part in enumerate(message.parts)
    )
    fields = {"name": message.name, "tool_calls": calls, "reasoning_content": message.thoughts, **answered}
    metadata = {name: value for name, value in fields.items() if value}
    return Interaction(Role.parse(message.role), content, MappingProxyType(metadata))


class PromptEnd(TypedDict):
    """How a prompt ends, as the renderer wants to know it."""

    add_generation_prompt: bool
    continue_final: bool


def prompt_end(interactions: Sequence[Interaction], body: PromptFields) -> PromptEnd:
    continues = body.continue_final_message
    if continues and body.add_generation_prompt:
        raise InvalidRequest(f"{PARAM} and 'continue_final_message' exclude each other.", param="add_generation_prompt")
    if continues and interactions[-1].role is not Role.ASSISTANT:
        raise InvalidRequest(f"{PARAM} needs a last message from the assistant.", param="continue_final_message")
    adds = body.add_generation_prompt is not False and not continues
    return PromptEnd(add_generation_prompt=adds, continue_final=continues)
