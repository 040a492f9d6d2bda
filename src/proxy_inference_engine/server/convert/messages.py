"""Messages of a chat request as interactions, and how their prompt ends."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol, TypedDict

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.interaction import Content, Interaction, Role
from proxy_inference_engine.server.schemas.chat import Message


class Rendering(Protocol):
    """The fields of a body that say how its prompt ends."""

    @property
    def add_generation_prompt(self) -> bool | None: ...

    @property
    def continue_final_message(self) -> bool: ...


def conversation(messages: Sequence[Message]) -> list[Interaction]:
    return [_interaction(message) for message in messages]


def _interaction(message: Message) -> Interaction:
    content = tuple(Content.of(text) for text in message.texts)
    metadata = {} if message.name is None else {"name": message.name}
    return Interaction(Role.parse(message.role), content, MappingProxyType(metadata))


def num_chars(messages: Sequence[Message]) -> int:
    return sum(len(text) for message in messages for text in message.texts)


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
