"""Messages of a chat request as interactions, and how their prompt ends."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol, TypedDict

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role, ToolCall, ToolKind
from proxy_inference_engine.server.convert.image_content import image_content
from proxy_inference_engine.server.schemas.messages import Message
from proxy_inference_engine.server.schemas.tools import CustomCall, FunctionCall


class Rendering(Protocol):
    """The fields of a body that say how its prompt ends."""

    @property
    def add_generation_prompt(self) -> bool | None: ...

    @property
    def continue_final_message(self) -> bool: ...


def conversation(messages: Sequence[Message]) -> list[Interaction]:
    """The turns; a tool's result has the id of the call it answers, and the name of what was called."""
    open_calls: dict[str, str] = {}  # id of every call so far that waits for its result → name
    known: dict[str, str] = {}
    turns = []
    for index, message in enumerate(messages):
        calls = tuple(map(_call, message.tool_calls or ()))
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


def _answered(message: Message, index: int, known: dict[str, str], open_calls: dict[str, str]) -> dict[str, str]:
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


def _interaction(message: Message, index: int, calls: tuple[ToolCall, ...], answered: dict[str, str]) -> Interaction:
    content = tuple(
        Content.of(part)
        if isinstance(part, str)
        else image_content(part.image_url.url, part.image_url.detail, f"messages[{index}].content[{place}]")
        for place, part in enumerate(message.parts)
    )
    fields = {"name": message.name, "tool_calls": calls, "reasoning_content": message.thoughts, **answered}
    metadata = {name: value for name, value in fields.items() if value}
    return Interaction(Role.parse(message.role), content, MappingProxyType(metadata))


def num_chars(messages: Sequence[Message]) -> int:
    return sum(map(_num_chars, messages))


def _num_chars(message: Message) -> int:
    calls = map(_call, message.tool_calls or ())
    return sum(map(len, message.texts)) + len(message.thoughts) + sum(len(call.arguments) for call in calls)


class PromptEnd(TypedDict):
    """How a prompt ends, as the renderer wants to know it."""

    add_generation_prompt: bool
    continue_final: bool


def prompt_end(interactions: Sequence[Interaction], body: Rendering) -> PromptEnd:
    continues = body.continue_final_message
    if continues and body.add_generation_prompt:
        raise InvalidRequest(
            "'add_generation_prompt' and 'continue_final_message' exclude each other.", param="add_generation_prompt"
        )
    if continues and interactions[-1].role is not Role.ASSISTANT:
        raise InvalidRequest(
            "'continue_final_message' needs a last message from the assistant.", param="continue_final_message"
        )
    adds = body.add_generation_prompt is not False and not continues
    return PromptEnd(add_generation_prompt=adds, continue_final=continues)
