"""The bodies of llama.cpp's own routes: /completion, /infill and /embedding.

Most of its words are synonyms of ours (`shared/synonyms.py`); here is what only these routes have.
"""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, PlainValidator

from proxy_inference_engine.server.apis.shared.fields import MAX_INT64, CandidateFields, Natural, RequestSchema
from proxy_inference_engine.server.apis.shared.tools import ResponseFormat

MAX_PROMPTS = 128
MAX_TEXTS = 2048
MAX_FIELDS = 64
MAX_EXTRA = 256

NativePrompt = str | list[int]


def _prompts(value: Any) -> list[NativePrompt]:
    """A text, token ids, or a list of either."""
    if isinstance(value, str) or _is_ids(value):
        return [value]
    if not isinstance(value, list) or not value or not all(isinstance(each, str) or _is_ids(each) for each in value):
        raise ValueError("a string, token ids, or a list of these is expected")
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"at most {MAX_PROMPTS} prompts are allowed")
    return value


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


class NativeFields(CandidateFields):
    max_tokens: Natural = MAX_INT64  # what is left of the context, unless told otherwise
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_special_tokens: bool = True
    parse_special: bool = True
    response_format: ResponseFormat | None = None
    open_objects: bool = False
    response_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] = Field(default_factory=list)


class NativeRequest(NativeFields):
    prompt: Annotated[list[NativePrompt], PlainValidator(_prompts)]


class ExtraFile(RequestSchema):
    filename: str = ""
    text: str


class InfillRequest(NativeFields):
    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[ExtraFile], Field(max_length=MAX_EXTRA)] = Field(default_factory=list)
    prompt: str = ""  # how the gap begins


class NativeEmbeddingRequest(RequestSchema):
    model: str | None = None
    content: Annotated[list[NativePrompt], PlainValidator(_prompts)] = Field(
        validation_alias=AliasChoices("content", "input")
    )
    encoding_format: Literal["float"] | None = None
