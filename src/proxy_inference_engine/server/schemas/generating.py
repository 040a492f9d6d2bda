"""The fields that the APIs share: sampling, limits, streaming, and those without effect."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from proxy_inference_engine.server.schemas.base import MAX_INT64, Label, Natural, Schema, Share

MAX_CHOICES = 16
MAX_CANDIDATES = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_BIASES = 1024
MAX_TOKEN_IDS = 1024
MAX_BREAKERS = 64
_TOKEN_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _biases(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_BIASES:
        raise ValueError(f"at most {MAX_BIASES} entries are allowed")
    if not all(isinstance(key, int) or _TOKEN_ID.fullmatch(key) for key in value):
        raise ValueError("keys have to be token ids")
    if len({int(key) for key in value}) != len(value):
        raise ValueError("a token id comes twice")
    return {int(key): bias for key, bias in value.items()}


Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_one_or_many),
]
Breaker = Annotated[str, Field(min_length=1, max_length=64)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=16)]
# Agents describe a whole turn in one value. It is neither kept nor echoed.
ClientMetadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=65_536)]], Field(max_length=64)
]


class StreamOptions(Schema):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class PromptCacheOptions(Schema):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Label | None = None


class WithoutEffect(Schema):
    """Checked and, where the format does so, echoed. Nothing here changes an answer."""

    user: Label | None = None
    safety_identifier: Label | None = None
    metadata: Metadata | None = None
    client_metadata: ClientMetadata | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Generating(WithoutEffect):
    model: str
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[int, Field(ge=-(2**63), le=MAX_INT64)] | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Natural | None = None
    min_p: Share | None = None
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    repetition_window: Natural = 0
    dry_multiplier: Annotated[float, Field(ge=0, le=100)] = 0.0
    dry_base: Annotated[float, Field(ge=1, le=100)] = 1.75
    dry_allowed_length: Natural = 2
    dry_sequence_breakers: Annotated[list[Breaker], Field(max_length=MAX_BREAKERS)] | None = None
    xtc_probability: Share = 0.0
    xtc_threshold: Share = 0.1
    logit_bias: Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_biases)] | None = None

    stop: Stops | None = None
    stop_token_ids: Annotated[list[Natural], Field(max_length=MAX_TOKEN_IDS)] | None = None
    min_tokens: Natural = 0
    ignore_eos: bool = False

    stream: bool = False
    stream_options: StreamOptions | None = None

    @field_validator("stream_options")
    @classmethod
    def _only_with_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream", True):
            raise ValueError("only allowed together with stream: true")
        return value

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def _enough_candidates(value: int, info: ValidationInfo) -> int:
    if value < info.data.get("n", 1):
        raise ValueError("it has to be at least n")
    if value > 1 and info.data.get("stream"):
        raise ValueError("which answers are the best is known at the end, so they cannot be streamed")
    return value


class Choosing(Generating):
    """Where more candidates may be generated than are answered."""

    best_of: Annotated[int, Field(ge=1, le=MAX_CANDIDATES), AfterValidator(_enough_candidates)] | None = None

    @property
    def num_candidates(self) -> int | None:
        """How many answers the best ones are chosen from; None where there is nothing to choose."""
        return None if self.best_of == 1 else self.best_of

    @property
    def num_generated(self) -> int:
        return self.num_candidates or self.n
