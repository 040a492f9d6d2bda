"""What a program may say of an answer: the fields of `POST /v1/chat/completions` that mean something in a program.

They are checked by that API's own schema, so a value that it refuses is refused here, by name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from proxy_inference_engine.errors import InvalidRequest, nearest, shorten
from proxy_inference_engine.python.functions import ToolLike

TurnLike = Mapping[str, Any]  # as chat completions has it: role, content, perhaps tool_calls
TurnsLike = str | Sequence[TurnLike]  # a text is one message of the user's
Texts = list[str] | tuple[str, ...]  # and no string, which would be a sequence of strings too


class ChatOptions(TypedDict, total=False):
    """The first two are a program's own; docs/api.md has what each of the others means."""

    tools: Sequence[ToolLike]  # functions are called, and what they return is answered too
    max_rounds: int  # how often functions are called one after the other, at most
    max_tokens: int
    max_completion_tokens: int
    min_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    seed: int
    priority: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    repetition_window: int
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Sequence[str]
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    top_n_sigma: float
    dynatemp_range: float
    dynatemp_exponent: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    logit_bias: Mapping[int, float]
    banned_strings: Sequence[str]
    logprobs: bool
    top_logprobs: int
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    open_objects: bool
    enable_thinking: bool
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    reasoning_budget_tokens: int
    reasoning_min_tokens: int
    chat_template_kwargs: Mapping[str, Any]
    prediction: Mapping[str, Any]
    response_prefix: str
    add_generation_prompt: bool
    continue_final_message: bool


def as_messages(messages: TurnsLike) -> list[dict[str, Any]]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [dict(message) for message in messages]


def check_names(options: Mapping[str, Any]) -> None:
    """Raises InvalidRequest: what only makes sense over HTTP is refused, as what nobody knows is."""
    for name in options:
        if name not in ChatOptions.__annotations__:
            meant = nearest(name, ChatOptions.__annotations__)
            raise InvalidRequest(f"{shorten(name)!r} is no option of a chat{meant or '.'}", param=shorten(name))


def plain(value: Any) -> Any:
    """Tuples as lists and mappings as dicts, as they would come out of JSON: the schema takes nothing else."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(each) for each in value]
    return value
