"""The body of POST /v1/completions: raw prompts, as text or as token ids."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator

from proxy_inference_engine.server.apis.shared.fields import CandidateFields, Natural
from proxy_inference_engine.server.apis.shared.tools import ResponseFormat

MAX_PROMPTS = 128
MAX_PROMPT_IDS = 4_000_000

PromptField = str | list[int]


def _prompts(value: Any) -> list[PromptField]:
    """The four ways to write prompts, as one: string, list of strings, token ids, lists of token ids."""
    if isinstance(value, str) or _is_ids(value):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError("a string, a list of strings, token ids or lists of token ids are expected")
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"at most {MAX_PROMPTS} prompts are allowed")
    if not (all(isinstance(item, str) for item in value) or all(_is_ids(item) for item in value)):
        raise ValueError("a list has to hold either strings or non-empty lists of token ids")
    return value


def _is_ids(value: Any) -> bool:
    if not isinstance(value, list) or not value or type(value[0]) is not int:
        return False
    if len(value) > MAX_PROMPT_IDS:
        raise ValueError(f"at most {MAX_PROMPT_IDS} token ids are allowed")
    return all(type(item) is int for item in value)


class CompletionRequest(CandidateFields):
    prompt: Annotated[list[PromptField], PlainValidator(_prompts)]
    max_tokens: Natural = 16
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    suffix: str | None = None
    add_special_tokens: bool = True  # the BOS that the model wants
    parse_special: bool = True  # special tokens that a text spells

    response_format: ResponseFormat | None = None
    open_objects: bool = False
