"""`Config`: every setting with its default, its range and its description. The defaults live only here.

Flags, `PIE_*` names and the table in docs/configuration.md are derived from these fields.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo

from proxy_inference_engine.config.aliases import parse_aliases
from proxy_inference_engine.config.hosts import AllowedHost, parse_hosts
from proxy_inference_engine.config.keys import ApiKey, join_keys, parse_key
from proxy_inference_engine.config.sizes import parse_size
from proxy_inference_engine.config.states import StateSampling, parse_states
from proxy_inference_engine.errors import StartupError

Group = Literal["server", "model", "engine", "memory", "program"]


class Place(NamedTuple):
    """Where a field stands in `--help` and in the documentation."""

    group: Group
    metavar: str = "N"
    is_flag: bool = True
    is_secret: bool = False


def _auto(value: object) -> object:
    return None if value == "auto" else value


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def _keys(value: object) -> object:
    """ "name:key,name2:key2", or a list of such pairs."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be name:key, several separated by commas")
    return tuple(part if isinstance(part, ApiKey) else parse_key(str(part)) for part in parts)


def _path(value: object) -> object:
    if value == "":
        raise ValueError("should be a path")
    return Path(value).expanduser() if isinstance(value, str) else value


def _default_cache_dir() -> Path:
    folder = _user_folder("XDG_CACHE_HOME", ".cache")
    if folder is None:
        raise StartupError("this user has no home folder: set --cache-dir")
    return folder


def _default_data_dir() -> Path | None:
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, in_home: str) -> Path | None:
    base = os.environ.get(variable, "")
    try:
        # XDG says to ignore a relative path: https://specifications.freedesktop.org/basedir/latest/
        folder = Path(base) if os.path.isabs(base) else Path.home() / in_home
    except RuntimeError:
        return None
    return folder / "proxy-inference-engine"


# The families of `formats/`; a test compares.
FormatName = Literal[
    "chatml",
    "qwen3",
    "qwen3_coder",
    "gemma3",
    "llama3",
    "mistral",
    "mistral_args",
    "deepseek_r1",
    "glm45",
    "harmony",
    "plain",
]
Text = Annotated[str, Field(min_length=1)]
Auto = BeforeValidator(_auto)
Number = BeforeValidator(_no_bool)
Size = Annotated[int, BeforeValidator(parse_size)]
UserPath = Annotated[Path, BeforeValidator(_path)]
Keys = Annotated[tuple[ApiKey, ...], BeforeValidator(_keys), AfterValidator(join_keys)]


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Everything an operator may decide. Frozen; None means: chosen from the model or the machine."""

    host: Annotated[Text, Place("server", "ADDRESS")] = Field(
        default="127.0.0.1", description="Address to listen on. Anything but loopback needs an API key."
    )
    port: Annotated[int, Number, Place("server")] = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    api_key_file: Annotated[UserPath | None, Place("server", "FILE")] = Field(
        default=None, description="File with one `name:key` a line. The name is the tenant for fairness and the cache."
    )
    api_keys: Annotated[Keys, Place("server", is_flag=False, is_secret=True)] = Field(
        default=(), description="The same as `name:key,name2:key2`, added to those of the file.", validate_default=False
    )
    drain_seconds: Annotated[float, Number, Place("server", is_flag=False)] = Field(
        default=30.0, ge=0, le=3600, description="After SIGTERM, running answers get this long to finish."
    )

    fetch_images: Annotated[bool, Place("server", is_flag=False)] = Field(
        default=True,
        description="Whether images are fetched from http and https URLs; if not, only data URLs count.",
    )
    fetch_allow: Annotated[
        tuple[AllowedHost, ...], BeforeValidator(parse_hosts), Place("server", "HOSTS", is_flag=False)
    ] = Field(
        default=(),
        description="Private hosts that images may be fetched from: `host` or `host:port`, several between commas.",
    )
    image_timeout_seconds: Annotated[float, Number, Place("server", is_flag=False)] = Field(
        default=10.0, gt=0, le=600, description="An image that takes longer to fetch is refused."
    )
    max_images: Annotated[int, Number, Place("server", is_flag=False)] = Field(
        default=16,
        ge=1,
        le=1024,
        description="Images since the model's last answer; with those of earlier turns eight times as many.",
    )
    max_image_bytes: Annotated[Size, Place("server", is_flag=False)] = Field(
        default=10 * 1024 * 1024, ge=1, le=1 << 30, description="Size of one image's file."
    )
    max_image_pixels: Annotated[int, Number, Place("server", is_flag=False)] = Field(
        default=40_000_000,
        ge=1,
        le=80_000_000,
        description="Width times height of one image; those of a request together may have twice as many.",
    )

    model: Annotated[Text | None, Place("model", "FILE")] = Field(
        default=None,
        description="Path of a GGUF file (of a split one any part) or of a folder with safetensors, or `owner/model` "
        "on Hugging Face, downloaded unless it is in the cache; unset: the bundled model.",
    )
    offline: Annotated[bool, Place("model")] = Field(
        default=False, description="Never download: a model has to be a file or in the Hugging Face cache."
    )
    mmproj: Annotated[Text | None, Place("model", "FILE", is_flag=False)] = Field(
        default=None,
        description="The eyes of a GGUF model: path of an mmproj file, or `none`; unset: `mmproj*.gguf` beside it.",
    )
    draft_model: Annotated[Text | None, Place("model", "FILE")] = Field(
        default=None,
        description="A smaller model of the same vocabulary, named like `model`, that guesses ahead; llama.cpp only. "
        "Answers stay the same; it rests where it is measured not to pay.",
    )
    engine: Annotated[Literal["auto", "llama.cpp", "mlx"], Place("model")] = Field(
        default="auto",
        description="What computes: llama.cpp runs GGUF files, MLX safetensors and GGUF files that it can convert; "
        "`auto` goes by the model, and takes MLX for both on Apple silicon.",
    )
    context: Annotated[int | None, Auto, Number, Place("model")] = Field(
        default=None,
        ge=16,
        le=1 << 24,
        description="Most tokens of one prompt and answer together; unset: what the model has.",
    )
    format: Annotated[FormatName | None, Auto, Place("model", "NAME")] = Field(
        default=None, description="How conversations are written for the model; unset: found from its chat template."
    )
    convert_weights: Annotated[Literal["auto", "never"], Place("model", is_flag=False)] = Field(
        default="auto",
        description="Whether weights may be converted, once, to a layout that is faster on this processor.",
    )
    aliases: Annotated[dict[str, str] | None, BeforeValidator(parse_aliases), Place("model", "JSON", is_flag=False)] = (
        Field(
            default=None,
            description="Other names for the model: a table from names, or patterns such as `gpt-*`, to its id or to "
            "`default`; or JSON in the environment.",
        )
    )
    gpu_layers: Annotated[int, Number, Place("model")] = Field(
        default=-1, ge=-1, le=100_000, description="Layers on the GPU, where llama.cpp was built with one; -1: all."
    )

    slots: Annotated[int, Number, Place("engine")] = Field(
        default=16, ge=1, le=1024, description="Sequences computed at the same time; on a GPU with MLX 64 unless set."
    )
    threads: Annotated[int | None, Auto, Number, Place("engine")] = Field(
        default=None, ge=1, le=1024, description="Threads that compute; unset: the physical cores there are."
    )
    exact: Annotated[bool, Place("engine")] = Field(
        default=False, description="The same answer to the bit alone, in a batch and from the cache; a little slower."
    )
    step_target_ms: Annotated[float, Number, Place("engine", is_flag=False)] = Field(
        default=200.0,
        gt=0,
        le=60_000,
        description="Longest step in milliseconds while answers stream: sizes prefill chunks.",
    )
    draft_tokens: Annotated[int, Number, Place("engine", is_flag=False)] = Field(
        default=8, ge=1, le=64, description="Most tokens that the draft model guesses at a time."
    )
    max_waiting: Annotated[int, Number, Place("engine", is_flag=False)] = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Answers that may wait beside those the slots take; one more is refused with 429.",
    )
    max_waiting_per_key: Annotated[int, Number, Place("engine", is_flag=False)] = Field(
        default=64, ge=1, le=1_000_000, description="Answers of one key that may wait."
    )
    max_waiting_tokens: Annotated[int, Number, Place("engine", is_flag=False)] = Field(
        default=2_000_000, ge=1, le=1 << 40, description="Prompt tokens that may wait, all requests together."
    )
    state_sampling: Annotated[
        StateSampling | None, BeforeValidator(parse_states), Place("engine", "JSON", is_flag=False)
    ] = Field(
        default=None,
        description="`temperature`, `top_p`, `top_k` and `min_p` for the states `tool_call`, `reasoning` and "
        "`structured`, in place of the request's: a table of tables, or JSON in the environment.",
    )

    json_spacing: Annotated[Literal["compact", "spaced"] | None, Auto, Place("engine", is_flag=False)] = Field(
        default=None,
        description="Structured JSON is one line: `spaced` has a space after each comma and colon, `compact` none; "
        "unset: compact, unless the model's profile says that it writes better with spaces, as the bundled one does.",
    )

    kv_memory: Annotated[Size | None, Auto, Place("memory", "SIZE")] = Field(
        default=None,
        ge=1,
        description="Memory for the KV of running sequences, such as 2GiB; unset: from what is free.",
    )
    cache_memory: Annotated[Size | None, Auto, Place("memory", "SIZE")] = Field(
        default=None, description="Memory for the prefix cache, such as 512MB; 0: no cache; unset: from what is free."
    )

    disk_cache: Annotated[Size, Place("memory", "SIZE")] = Field(
        default=0,
        description="Room on disk, such as 10GiB, for prefixes that leave the cache's memory; they survive a restart. "
        "0: none.",
    )

    cache_dir: Annotated[UserPath, Place("program", "FOLDER")] = Field(
        default_factory=_default_cache_dir, description="Folder for converted weights and the disk cache."
    )
    data_dir: Annotated[UserPath | None, Place("program", "FOLDER", is_flag=False)] = Field(
        default_factory=_default_data_dir, description="Folder for stored responses, conversations and completions."
    )
    store_ttl_days: Annotated[float, Number, Place("program", is_flag=False)] = Field(
        default=30.0, gt=0, le=36_500, description="What is stored is removed this long after it was last written."
    )
    store_max_rows: Annotated[int, Number, Place("program", is_flag=False)] = Field(
        default=10_000,
        ge=1,
        le=1 << 40,
        description="Objects and conversation items that one key may keep; one more is answered with 429.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Place("program")] = Field(
        default="info", description="Least severity that is logged."
    )


def place(field: FieldInfo) -> Place:
    return next(item for item in field.metadata if isinstance(item, Place))
