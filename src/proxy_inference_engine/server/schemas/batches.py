"""Several conversations in one chat body: `messages` as a list of lists, other fields shared or one a conversation.

Takes such a body apart into one body a conversation. What is in them is the schema's to prove.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from proxy_inference_engine.errors import ClientError, InvalidRequest
from proxy_inference_engine.server.schemas.base import validate
from proxy_inference_engine.server.schemas.chat import ChatRequest

MAX_CONVERSATIONS = 128

# A list of these can only mean one a conversation.
_SINGLE = frozenset(
    {"add_generation_prompt", "chat_template_kwargs", "continue_final_message", "dry_allowed_length", "dry_base"}
    | {"dry_multiplier", "enable_thinking", "frequency_penalty", "ignore_eos", "logit_bias", "max_completion_tokens"}
    | {"max_tokens", "messages", "min_p", "min_tokens", "parallel_tool_calls", "prediction", "presence_penalty"}
    | {"reasoning_budget_tokens", "reasoning_effort", "reasoning_min_tokens", "repetition_penalty"}
    | {"repetition_window", "response_format", "seed", "temperature", "tool_choice", "top_k", "top_p"}
    | {"xtc_probability", "xtc_threshold"}
)
# These are lists themselves: one a conversation when there are lists in them.
_LISTS = frozenset({"dry_sequence_breakers", "stop", "stop_token_ids", "tools"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation's body. `places`: a field that had a list of values → which of them this conversation has."""

    body: ChatRequest
    places: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors raised inside name their parameter as the client wrote it."""
        with _named(self.places):
            yield

    def param(self, name: str) -> str:
        """A parameter of this conversation as the client wrote it."""
        return _placed(name, self.places)


class RawBatch(NamedTuple):
    """A body with several conversations, of which nothing is proved yet."""

    data: dict[str, Any]


def validate_chat(data: Any) -> Conversation | RawBatch:
    """A body with one conversation, proved. A batch is left as it is: it costs as much as many bodies."""
    messages = data.get("messages") if isinstance(data, dict) else None
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        return RawBatch(data)
    return Conversation(validate(ChatRequest, data))


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
    """Whether a field has its values by conversation."""
    if not isinstance(value, list):
        return False
    return name in _SINGLE or (name in _LISTS and any(isinstance(item, list) for item in value))


def _conversation(data: dict[str, Any], own: Mapping[str, list[Any]], index: int) -> Conversation:
    places = {name: index if len(values) > 1 else 0 for name, values in own.items()}
    with _named(places):
        body = validate(ChatRequest, {**data, **{name: own[name][place] for name, place in places.items()}})
        if body.store and len(data["messages"]) > 1:
            raise InvalidRequest("'store' needs a body with a single conversation.", param="store")
    return Conversation(body, places)


@contextmanager
def _named(places: Mapping[str, int]) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        param = error.param or ""
        placed = _placed(param, places)
        if placed != param:
            error.param = placed
            error.message = error.message.replace(f"'{param}'", f"'{placed}'")
        raise


def _placed(param: str, places: Mapping[str, int]) -> str:
    name = next((name for name in places if param == name or param.startswith((f"{name}.", f"{name}["))), None)
    return param if name is None else f"{name}[{places[name]}]{param[len(name) :]}"
