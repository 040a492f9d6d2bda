"""What settings are: texts, numbers, sizes, paths, keys, each with the way it is read."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from proxy_inference_engine.config.keys import ApiKey, join_keys
from proxy_inference_engine.config.sizes import parse_size
from proxy_inference_engine.config.values import (
    ModelSampling,
    none_if_auto,
    parse_keys,
    parse_metrics_key,
    parse_path,
    parse_sampling,
    refuse_bool,
)

# The families of `formats/`; a test compares.
FormatName = Literal[
    "chatml",
    "qwen3",
    "qwen3_coder",
    "lfm2",
    "gemma3",
    "granite3",
    "phi4_mini",
    "llama3",
    "mistral",
    "mistral_args",
    "deepseek_r1",
    "glm45",
    "harmony",
    "plain",
]
Text = Annotated[str, Field(min_length=1)]
Auto = BeforeValidator(none_if_auto)
Number = BeforeValidator(refuse_bool)
Size = Annotated[int, BeforeValidator(parse_size)]
UserPath = Annotated[Path, BeforeValidator(parse_path)]
Keys = Annotated[tuple[ApiKey, ...], BeforeValidator(parse_keys), AfterValidator(join_keys)]
SamplingTable = Annotated[ModelSampling | None, BeforeValidator(parse_sampling)]
MetricsKey = Annotated[ApiKey | None, BeforeValidator(parse_metrics_key)]
