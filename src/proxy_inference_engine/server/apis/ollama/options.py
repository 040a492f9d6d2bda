"""`options`: how Ollama calls what is wished of sampling and length. What is not honoured is named, unless it asks for
nothing.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from proxy_inference_engine.served.ask import LimitWishes, SamplingWishes
from proxy_inference_engine.server.apis.shared.fields import MAX_INT64, OpenSchema, Share, Stops

_WINDOW = 64  # how many of the last tokens are penalised where nothing is said
_RANDOM = -1  # as a seed
# Options that change nothing here when they have these values.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "tfs_z": (1,),
    "num_gpu": (-1,),
    "num_thread": (0,),
    "numa": (False,),
    "low_vram": (False,),
    "logits_all": (False,),
    "vocab_only": (False,),
    "embedding_only": (False,),
    "use_mlock": (False,),
}


def _integral(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _without_empty(value: object) -> object:
    return [text for text in value if text != ""] if isinstance(value, list) else value or []


Integer = Annotated[int, Field(ge=-(2**63), le=MAX_INT64), BeforeValidator(_integral)]
AnyPenalty = Annotated[float, Field(ge=-100, le=100)]


class OllamaOptions(OpenSchema):
    num_predict: Integer | None = None
    num_ctx: Integer | None = None
    seed: Integer | None = None
    stop: Annotated[Stops, BeforeValidator(_without_empty)] | None = None

    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Integer | None = None
    top_p: Annotated[float, Field(ge=0)] | None = None
    min_p: Share | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    repeat_last_n: Integer | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    mirostat: Literal[0, 1, 2] = 0
    mirostat_tau: Annotated[float, Field(ge=0, le=100)] = 5.0
    mirostat_eta: Annotated[float, Field(ge=0, le=1)] = 0.1
    presence_penalty: AnyPenalty | None = None
    frequency_penalty: AnyPenalty | None = None

    @model_validator(mode="before")
    @classmethod
    def _that_ask_for_something(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None and each not in _NEUTRAL.get(name, ())}

    def sampling(self) -> SamplingWishes:
        window = _WINDOW if self.repeat_last_n is None else self.repeat_last_n
        return SamplingWishes(
            seed=None if self.seed == _RANDOM else self.seed,
            temperature=self.temperature,
            top_k=None if self.top_k is None else max(0, self.top_k),
            top_p=None if self.top_p is None else min(1.0, self.top_p),
            min_p=self.min_p,
            typical_p=1.0 if self.typical_p is None else self.typical_p,
            mirostat=self.mirostat,
            mirostat_tau=self.mirostat_tau,
            mirostat_eta=self.mirostat_eta,
            repetition_penalty=self.repeat_penalty if window else 1.0,
            repetition_window=max(0, window),  # below zero: all
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
        )

    def limits(self) -> LimitWishes:
        limit = self.num_predict
        return LimitWishes(None if limit is None or limit < 0 else limit, stop=self.stop or ())
