"""The bodies of /api/chat, /api/generate, /api/embed and /api/embeddings, in Ollama's format."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PlainValidator, Tag

from proxy_inference_engine.server.apis.ollama.options import OllamaOptions
from proxy_inference_engine.server.apis.shared.embedding import MAX_TEXTS
from proxy_inference_engine.server.apis.shared.fields import MAX_PARTS, WORD_OR_OBJECT, OpenSchema, Positive, never
from proxy_inference_engine.server.apis.shared.messages import MAX_MESSAGES
from proxy_inference_engine.server.apis.shared.tools import (
    MAX_CALLS,
    MAX_TOOLS,
    CallId,
    JsonSchemaObject,
    bounded_together,
)
from proxy_inference_engine.server.apis.shared.unknown import OpenBody
from proxy_inference_engine.server.http.wire import dumps

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"([+-]?)((?:\d{1,12}(?:\.\d{0,9})?(?:ns|us|µs|ms|s|m|h)?)+)", re.ASCII)
_PIECE = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h|)", re.ASCII)


def _seconds(value: object) -> float:
    """How long a model is to stay: seconds, or a text such as `5m` or `1h30m`. Below zero: for ever."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("seconds, or a duration such as '5m', are expected")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(found[2]))
    return -total if found[1] == "-" else total


KeepAlive = Annotated[float, PlainValidator(_seconds)]


OllamaFormat = Annotated[
    Annotated[Literal["", "json"], Tag("<word>")] | Annotated[JsonSchemaObject, Tag("<object>")],
    WORD_OR_OBJECT,
]


def _is_bool(value: object) -> str:
    return "<bool>" if isinstance(value, bool) else "<word>"


Think = Annotated[
    Annotated[bool, Tag("<bool>")] | Annotated[Literal["low", "medium", "high", "max"], Tag("<word>")],
    Discriminator(_is_bool),
]
Base64Image = Annotated[str, Field(min_length=1)]
Images = Annotated[list[Base64Image], Field(max_length=MAX_PARTS, fail_fast=True)]
OllamaToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]


class OllamaFunction(OpenSchema):
    name: OllamaToolName
    description: str | None = None
    parameters: JsonSchemaObject | None = None


class OllamaTool(OpenSchema):
    type: Literal["function"] | None = None
    function: OllamaFunction

    @property
    def num_schema_bytes(self) -> int:
        return len(dumps(self.function.parameters).encode())


class OllamaCalled(OpenSchema):
    index: int | None = None
    name: OllamaToolName
    arguments: Annotated[Annotated[dict[str, Any], Tag("<object>")] | Annotated[str, Tag("<word>")], WORD_OR_OBJECT] = (
        Field(default_factory=dict)
    )

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else dumps(self.arguments)


class OllamaCall(OpenSchema):
    id: CallId | None = None
    type: Literal["function"] | None = None
    function: OllamaCalled


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class OllamaMessage(OpenSchema):
    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_lower)]
    content: str | None = None
    thinking: str | None = None
    images: Images | None = None
    tool_calls: Annotated[list[OllamaCall], Field(max_length=MAX_CALLS, fail_fast=True)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    name: str | None = None  # an older word for the name of the tool

    @property
    def tool(self) -> str:
        return self.tool_name or self.name or ""


class OllamaFields(OpenBody):
    model: str | None = None
    stream: bool = True
    format: OllamaFormat | None = None
    options: OllamaOptions = Field(default_factory=OllamaOptions)
    keep_alive: KeepAlive | None = None
    think: Think | None = None
    truncate: bool = True
    shift: bool | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    debug_render_only: Annotated[None, never(False)] = Field(None, alias="_debug_render_only")

    @property
    def says_nothing(self) -> bool:
        """Whether the body has no prompt: it only asks for the model to be there, or to go."""
        return True

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    # What is said about reasoning, in the words that all APIs share.

    @property
    def enable_thinking(self) -> bool | None:
        return self.think if isinstance(self.think, bool) else None

    @property
    def reasoning_effort(self) -> str | None:
        return self.think if isinstance(self.think, str) else None

    @property
    def reasoning_budget_tokens(self) -> int | None:
        return None

    @property
    def reasoning_min_tokens(self) -> int | None:
        return None

    @property
    def chat_template_kwargs(self) -> Mapping[str, Any]:
        return {}


class OllamaChat(OllamaFields):
    messages: Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] = Field(
        default_factory=list
    )
    tools: Annotated[
        list[OllamaTool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(bounded_together)
    ] = Field(default_factory=list)

    @property
    def says_nothing(self) -> bool:
        return not self.messages


class OllamaGenerate(OllamaFields):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    images: Images = Field(default_factory=list)

    template: Annotated[None, never("")] = None
    context: Annotated[None, never([])] = None
    width: Annotated[None, never(0)] = None
    height: Annotated[None, never(0)] = None
    steps: Annotated[None, never(0)] = None

    @property
    def says_nothing(self) -> bool:
        return not self.prompt


def _texts(value: object) -> list[str]:
    """One text or several; an empty one by itself is none."""
    if isinstance(value, str):
        return [value] if value else []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("a string or a list of strings is expected")
    if len(value) > MAX_TEXTS:
        raise ValueError(f"{len(value)} texts are too many, at most {MAX_TEXTS} are allowed")
    return value


class _Embedding(OpenBody):
    model: str | None = None
    options: OllamaOptions = Field(default_factory=OllamaOptions)
    keep_alive: KeepAlive | None = None


class OllamaEmbed(_Embedding):
    input: Annotated[list[str], PlainValidator(_texts)]
    truncate: bool = True
    dimensions: Positive | None = None


class OllamaEmbeddings(_Embedding):
    """The older way: one text."""

    prompt: str = ""
