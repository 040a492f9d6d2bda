"""What request schemas share: strictness, refusals by name, fields of sampling and stopping, the way to validate."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from proxy_inference_engine.errors import InvalidRequest, shorten
from proxy_inference_engine.served.ask import LimitWishes, SamplingWishes
from proxy_inference_engine.server.apis.shared.synonyms import translate
from proxy_inference_engine.server.http.errors import from_validation

MAX_INT64 = 2**63 - 1
MAX_PARTS = 1024  # of one message
MAX_CHOICES = 16
MAX_CANDIDATES = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_BIASES = 1024
MAX_TOKEN_IDS = 1024
MAX_BREAKERS = 64
MAX_VARIABLES = 64
_TOKEN_ID = re.compile(r"[0-9]{1,10}", re.ASCII)

Positive = Annotated[int, Field(ge=1, le=MAX_INT64)]
Natural = Annotated[int, Field(ge=0, le=MAX_INT64)]
Share = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, Field(max_length=512)]

_LATER = "is not supported by this version"
_NEVER = "is not supported by this server"


class RequestSchema(BaseModel):
    """Nothing is converted, nothing is ignored: `"1"` and `true` are no numbers, an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())


class Nullable(RequestSchema):
    """Clients send back what they were given with every field their types have: null equals absent, at any depth."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if field is not None}
        return value


class OpenSchema(RequestSchema):
    """Takes fields it does not know, and keeps them aside, to be named."""

    model_config = ConfigDict(extra="allow")

    def extras(self, path: str) -> Iterator[str]:
        """Unknown fields that were sent with something in them, under the path of what they stand in."""
        for name, value in (self.model_extra or {}).items():
            if value is not None and value not in ([], {}, ""):
                yield path + shorten(name)


SchemaT = TypeVar("SchemaT", bound=RequestSchema)


def validate(schema: type[SchemaT], data: Any) -> SchemaT:
    """Prove a parsed body; null equals absent. Raises InvalidRequest that names the parameter."""
    if not isinstance(data, dict):
        raise InvalidRequest("The body has to be a JSON object.")
    present = {key: value for key, value in data.items() if value is not None}
    try:
        return schema.model_validate(present)
    except ValidationError as error:
        refused = from_validation(error, present)
    if not issubclass(schema, GenerationFields):
        raise refused
    return _validate_translated(schema, present, refused)


def later(*neutral: object) -> BeforeValidator:
    """A field that a later version will honour: only null and neutral values are accepted now."""
    return BeforeValidator(_refuse(_LATER, neutral))


def never(*neutral: object) -> BeforeValidator:
    """A field of the format that has no meaning here: only null and neutral values are accepted."""
    return BeforeValidator(_refuse(_NEVER, neutral))


def _refuse(reason: str, neutral: tuple[object, ...]) -> Callable[[object], None]:
    def check(value: object) -> None:
        # Types are compared too: 0 is not False here.
        if value is None or any(type(value) is type(other) and value == other for other in neutral):
            return
        raise PydanticCustomError("unsupported", reason)

    return check


def unsupported(reason: str = _LATER) -> PydanticCustomError:
    return PydanticCustomError("unsupported", reason)


def text_or(tag: str) -> Discriminator:
    """Tells a list, which has this tag, from a text, whose tag is `<string>`."""
    return Discriminator(lambda value: tag if isinstance(value, list) else "<string>")


# Tells an object from a word that stands for one.
WORD_OR_OBJECT = Discriminator(lambda value: "<object>" if isinstance(value, dict) else "<word>")


def without(kinds: Collection[str], reason: str | None = None) -> BeforeValidator:
    """Refuses parts of types that the API has and no version here reads; `{kind}` in the reason is the type."""

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in kinds:
            raise unsupported() if reason is None else unsupported(reason.format(kind=repr(kind)))
        return value

    return BeforeValidator(check)


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


_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS}
Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_one_or_many),
    WithJsonSchema({"anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]}),
]
Breaker = Annotated[str, Field(min_length=1, max_length=64)]
PenaltyRange = Annotated[float, Field(ge=-2, le=2)]
Variables = Annotated[dict[str, Any], Field(max_length=MAX_VARIABLES)]  # for the chat template
Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=16)]
# Agents describe a whole turn in one value. It is neither kept nor echoed.
ClientMetadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=65_536)]], Field(max_length=64)
]


CacheControl = dict[str, Any] | None
_PINNED_S = {"5m": 300.0, "1h": 3600.0}


def pin_seconds(marks: Iterable[CacheControl]) -> float:
    """How long a prompt with these marks is to be kept in the prefix cache; 0: as long as any other."""
    return max((_PINNED_S.get(str(mark.get("ttl")), _PINNED_S["5m"]) for mark in marks if mark), default=0.0)


class StreamOptions(RequestSchema):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class PromptCacheOptions(RequestSchema):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Label | None = None


class WithoutEffect(RequestSchema):
    """Checked and, where the format does so, echoed. Nothing here changes an answer."""

    user: Label | None = None
    safety_identifier: Label | None = None
    metadata: Metadata | None = None
    client_metadata: ClientMetadata | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


MAX_PRIORITY = 1000  # the tiers are further apart


class GenerationFields(WithoutEffect):
    model: str | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[int, Field(ge=-(2**63), le=MAX_INT64)] | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Natural | None = None
    min_p: Share | None = None
    frequency_penalty: PenaltyRange = 0.0
    presence_penalty: PenaltyRange = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    repetition_window: Natural = 0
    dry_multiplier: Annotated[float, Field(ge=0, le=100)] = 0.0
    dry_base: Annotated[float, Field(ge=1, le=100)] = 1.75
    dry_allowed_length: Natural = 2
    dry_sequence_breakers: Annotated[list[Breaker], Field(max_length=MAX_BREAKERS)] | None = None
    xtc_probability: Share = 0.0
    xtc_threshold: Share = 0.1
    typical_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_n_sigma: Annotated[float, Field(ge=0, le=100)] = 0.0
    dynatemp_range: Annotated[float, Field(ge=0, le=2)] = 0.0
    dynatemp_exponent: Annotated[float, Field(ge=0, le=100)] = 1.0
    mirostat: Annotated[int, Field(ge=0, le=2)] = 0
    mirostat_tau: Annotated[float, Field(ge=0, le=100)] = 5.0
    mirostat_eta: Share = 0.1
    logit_bias: Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_biases)] | None = None

    stop: Stops | None = None
    stop_token_ids: Annotated[list[Natural], Field(max_length=MAX_TOKEN_IDS)] | None = None
    min_tokens: Natural = 0
    ignore_eos: bool = False

    stream: bool = False
    stream_options: StreamOptions | None = None

    _words: frozenset[str] = PrivateAttr(frozenset())
    _ignored: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def placed(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields of a chat where this API has them."""
        return fields

    def note(self, words: frozenset[str], ignored: tuple[str, ...]) -> None:
        self._words, self._ignored = words, ignored

    @property
    def words(self) -> frozenset[str]:
        """The words of other servers in which the body was written."""
        return self._words

    @property
    def ignored(self) -> tuple[str, ...]:
        """The fields of the body that change nothing here, by name."""
        return self._ignored

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


class CandidateFields(GenerationFields):
    """Where more candidates may be generated than are answered."""

    best_of: Annotated[int, Field(ge=1, le=MAX_CANDIDATES), AfterValidator(_enough_candidates)] | None = None
    banned_strings: Annotated[list[Breaker], Field(max_length=MAX_BREAKERS)] = Field(default_factory=list)
    timings_per_token: bool = False
    return_progress: bool = False

    @property
    def num_candidates(self) -> int | None:
        """How many answers the best ones are chosen from; None where there is nothing to choose."""
        return None if self.best_of == 1 else self.best_of

    @property
    def num_generated(self) -> int:
        return self.num_candidates or self.n

    def num_top_logprobs(self, shown: int | None) -> int | None:
        """Candidates are chosen by their log-probabilities, whether the client wants to see them or not."""
        return 0 if shown is None and self.num_candidates is not None else shown


def _validate_translated(schema: type[SchemaT], present: dict[str, Any], refused: InvalidRequest) -> SchemaT:
    """Once more, in our own words, where the client has those of another server."""
    assert issubclass(schema, GenerationFields)
    translated = translate(present, schema.model_fields.keys(), schema.placed)
    if translated is None:
        raise refused
    try:
        body = schema.model_validate(translated.body)
    except ValidationError as error:
        refused = from_validation(error, translated.body)
        refused.rename(translated.client_name)
        raise refused from None
    body.note(translated.words, translated.ignored)
    return body


_SAMPLING = tuple(each.name for each in dataclasses.fields(SamplingWishes))


def sampling_wishes(body: GenerationFields) -> SamplingWishes:
    return SamplingWishes(**{name: getattr(body, name) for name in _SAMPLING})


def limit_wishes(body: GenerationFields, max_tokens: int | None) -> LimitWishes:
    return LimitWishes(max_tokens, body.min_tokens, body.stop or (), body.stop_token_ids or (), body.ignore_eos)
