"""Several conversations in one chat body: `messages` as a list of lists, other fields shared or one a conversation.

Takes such a body apart into one body a conversation. What is in them is the schema's to check.
"""

from collections.abc import Mapping
from functools import partial
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from proxy_inference_engine.errors import ClientError, InvalidRequest
from proxy_inference_engine.server.apis.chat.ask import Conversation
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.shared.fields import WithoutEffect, validate

MAX_CONVERSATIONS = 128

# What belongs to the whole body. Every other field may have one value for each conversation.
_SHARED = frozenset(
    {"model", "service_tier", "priority", "n", "best_of", "stream", "stream_options"}
    | {"logprobs", "top_logprobs", "forced_tokens", "store"}
    | {"audio", "function_call", "functions", "modalities", "moderation", "web_search_options"}
    | WithoutEffect.model_fields.keys()
)


def _is_list(annotation: Any) -> bool:
    """Whether a field takes a list by itself."""
    origin = get_origin(annotation)
    if origin in (Annotated, Union, UnionType):
        return any(map(_is_list, get_args(annotation)))
    return origin is list


def own_fields(schema: type[ChatRequest]) -> dict[str, bool]:
    """The fields that a conversation may have for itself, and whether each is a list anyway."""
    fields = schema.model_fields.items()
    return {name: _is_list(field.annotation) for name, field in fields if name not in _SHARED}


_OWN = own_fields(ChatRequest)


class RawBatch(NamedTuple):
    """A body with several conversations, of which nothing is checked yet."""

    data: dict[str, Any]


def validate_batch(batch: RawBatch) -> list[Conversation]:
    """Every conversation, in order. Raises InvalidRequest that names the parameter and the conversation."""
    num_conversations = len(batch.data["messages"])
    if num_conversations > MAX_CONVERSATIONS:
        message = f"Invalid value for 'messages': at most {MAX_CONVERSATIONS} conversations are allowed."
        raise InvalidRequest(message, param="messages")
    own = {name: value for name, value in batch.data.items() if _is_own(name, value)}
    for name, values in own.items():
        if len(values) not in (1, num_conversations):
            raise InvalidRequest(
                f"{name!r} has {len(values)} values for {num_conversations} conversations: give one for each, or one.",
                param=name,
            )
    return [_conversation(batch.data, own, index) for index in range(num_conversations)]


def _is_own(name: str, value: object) -> bool:
    """Whether a field has its values by conversation: a list of what is no list, or a list with lists in it."""
    if name not in _OWN or not isinstance(value, list):
        return False
    return not _OWN[name] or any(isinstance(item, list) for item in value)


def _conversation(data: dict[str, Any], own: Mapping[str, list[Any]], index: int) -> Conversation:
    places = {name: index if len(values) > 1 else 0 for name, values in own.items()}
    name_param = partial(_placed, places)
    try:
        body = validate(ChatRequest, {**data, **{name: own[name][place] for name, place in places.items()}})
    except ClientError as error:
        error.rename(name_param)
        raise
    if body.store and len(data["messages"]) > 1:
        raise InvalidRequest("'store' needs a body with a single conversation.", param="store")
    return Conversation(body, name_param)


def _placed(places: Mapping[str, int], param: str) -> str:
    """A parameter of one conversation as the client wrote it. `places`: which value of a field the conversation has."""
    name = next((name for name in places if param == name or param.startswith((f"{name}.", f"{name}["))), None)
    return param if name is None else f"{name}[{places[name]}]{param[len(name) :]}"
