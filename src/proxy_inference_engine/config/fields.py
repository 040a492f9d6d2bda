"""`Config`: every setting with its default, its range and its description. The defaults live only here.

Flags, `PIE_*` names and the list in docs/configuration.md are derived from these fields.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from proxy_inference_engine.config.callers import (
    AllowedOrigin,
    Network,
    parse_addresses,
    parse_names,
    parse_networks,
    parse_origins,
    parse_prefix,
)
from proxy_inference_engine.config.keys import parse_key_names
from proxy_inference_engine.config.kinds import (
    Auto,
    FormatName,
    Keys,
    MetricsKey,
    Number,
    SamplingTable,
    Size,
    Text,
    UserPath,
)
from proxy_inference_engine.config.limits import LimitTable, parse_limits
from proxy_inference_engine.config.models import ModelTable, parse_models
from proxy_inference_engine.config.shown import Shown
from proxy_inference_engine.config.values import (
    AllowedHost,
    StateSampling,
    default_cache_dir,
    default_data_dir,
    parse_aliases,
    parse_hosts,
    parse_paths,
    parse_states,
    parse_table,
    parse_texts,
    parse_traces,
    parse_urls,
)


class Config(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Everything an operator may decide. Frozen; None means: chosen from the model or the machine."""

    host: Annotated[Text, Shown("server", "ADDRESS")] = Field(
        default="127.0.0.1", description="Address to listen on. Anything but loopback needs an API key."
    )
    port: Annotated[int, Number, Shown("server")] = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    processes: Annotated[int, Number, Shown("server")] = Field(
        default=1, ge=1, le=64, description="Processes that answer on the port, where vLLM computes every model."
    )
    api_key_file: Annotated[UserPath | None, Shown("server", "FILE")] = Field(
        default=None,
        description="File with one `name:key` a line, `name:key admin` for an admin's. The name is the tenant for "
        "fairness and the cache. Read again when it changes.",
    )
    api_keys: Annotated[Keys, Shown("server", is_flag=False, is_secret=True)] = Field(
        default=(), description="The same as `name:key,name2:key2`, added to those of the file.", validate_default=False
    )
    metrics_key: Annotated[MetricsKey, Shown("server", is_flag=False, is_secret=True)] = Field(
        default=None,
        description="The key that `/metrics` wants; an admin's key opens it too. Unset: none is needed where there are "
        "no API keys.",
    )
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(parse_names), Shown("server", "HOSTS", is_flag=False)] = (
        Field(
            default=(),
            description="Names, beside loopback, `*.local` and `*.internal`, by which a server without API keys may be "
            "called, several between commas. With API keys every name will do.",
        )
    )
    allowed_origins: Annotated[
        tuple[AllowedOrigin, ...], BeforeValidator(parse_origins), Shown("server", "ORIGINS", is_flag=False)
    ] = Field(
        default=(),
        description="Pages that may call from a browser, several between commas: `https://app.example.com`, "
        "`http://localhost:*` (any port), `tauri://localhost`, `vscode-webview://*`; with API keys also `*`.",
    )
    mcp_servers: Annotated[
        tuple[str, ...], BeforeValidator(parse_addresses), Shown("server", "ADDRESSES", is_flag=False)
    ] = Field(
        default=(),
        description="MCP servers that the page at `/` may call from the browser, several between commas: "
        "`http://localhost:3000/mcp`. Without one it calls nobody but this server.",
    )
    root_path: Annotated[str, BeforeValidator(parse_prefix), Shown("server", "PATH", is_flag=False)] = Field(
        default="", description="The path that a proxy puts before ours, such as `/pie`, if it does not take it away."
    )
    trusted_proxies: Annotated[
        tuple[Network, ...], BeforeValidator(parse_networks), Shown("server", "ADDRESSES", is_flag=False)
    ] = Field(
        default=(),
        description="Addresses or networks of proxies whose `X-Forwarded-For`, `-Host` and `-Proto` are believed, "
        "several between commas.",
    )
    limits: Annotated[LimitTable | None, BeforeValidator(parse_limits), Shown("server", "JSON", is_flag=False)] = Field(
        default=None,
        description="`requests_per_minute`, `tokens_per_minute`, `requests_per_day` and `tokens_per_day` of each key: "
        "a table, with tables of its own for keys that differ; or JSON in the environment.",
    )
    priority_keys: Annotated[
        tuple[str, ...], BeforeValidator(parse_key_names), Shown("server", "NAMES", is_flag=False)
    ] = Field(
        default=(),
        description="Names of keys that may go before others, with `service_tier: priority` or a negative `priority`, "
        "beside admins; several between commas. Without API keys everybody may.",
    )
    drain_seconds: Annotated[float, Number, Shown("server", is_flag=False)] = Field(
        default=30.0, ge=0, le=3600, description="After SIGTERM, running answers get this long to finish."
    )

    fetch_images: Annotated[bool, Shown("server", is_flag=False)] = Field(
        default=True,
        description="Whether images are fetched from http and https URLs; if not, only data URLs count.",
    )
    fetch_allow: Annotated[
        tuple[AllowedHost, ...], BeforeValidator(parse_hosts), Shown("server", "HOSTS", is_flag=False)
    ] = Field(
        default=(),
        description="Private hosts that images may be fetched from: `host` or `host:port`, several between commas.",
    )
    image_timeout_seconds: Annotated[float, Number, Shown("server", is_flag=False)] = Field(
        default=10.0, gt=0, le=600, description="An image that takes longer to fetch is refused."
    )
    max_images: Annotated[int, Number, Shown("server", is_flag=False)] = Field(
        default=16,
        ge=1,
        le=1024,
        description="Images since the model's last answer; with those of earlier turns eight times as many.",
    )
    max_image_bytes: Annotated[Size, Shown("server", is_flag=False)] = Field(
        default=10 * 1024 * 1024, ge=1, le=1 << 30, description="Size of one image's file."
    )
    max_image_pixels: Annotated[int, Number, Shown("server", is_flag=False)] = Field(
        default=40_000_000,
        ge=1,
        le=80_000_000,
        description="Width times height of one image; those of a request together may have twice as many.",
    )

    model: Annotated[Text | None, Shown("model", "FILE")] = Field(
        default=None,
        description="Path of a GGUF file (of a split one any part) or of a folder with safetensors, or `owner/model` "
        "on Hugging Face, downloaded unless it is in the cache; unset: the bundled model.",
    )
    offline: Annotated[bool, Shown("model")] = Field(
        default=False, description="Never download: a model has to be a file or in the Hugging Face cache."
    )
    mmproj: Annotated[Text | None, Shown("model", "FILE", is_flag=False)] = Field(
        default=None,
        description="What encodes images for a GGUF model: an mmproj file, or `none`; unset: `mmproj*.gguf` beside it.",
    )
    draft_model: Annotated[Text | None, Shown("model", "FILE")] = Field(
        default=None,
        description="A smaller model of the same vocabulary, named like `model`, that guesses ahead; llama.cpp only. "
        "Answers stay the same; it rests where it is measured not to pay.",
    )
    engine: Annotated[Literal["auto", "llama.cpp", "mlx", "vllm"], Shown("model")] = Field(
        default="auto",
        description="What computes: llama.cpp runs GGUF files, MLX folders with safetensors; `auto` goes by the model. "
        "`vllm` is elsewhere, at `url`, and only the model's words are read here.",
    )
    url: Annotated[tuple[Text, ...], BeforeValidator(parse_urls), Shown("model", "URLS")] = Field(
        default=(),
        max_length=256,
        description="Where vLLM computes the model, such as `http://10.0.0.5:8000`; several between commas share the "
        "work.",
    )
    far_model: Annotated[Text | None, Shown("model", "NAME", is_flag=False)] = Field(
        default=None, description="What vLLM calls the model; unset: the first that it lists."
    )
    far_key: Annotated[Text | None, Shown("model", is_flag=False, is_secret=True)] = Field(
        default=None, description="The key that vLLM wants, as it was started with `--api-key`."
    )
    far_timeout_seconds: Annotated[float, Number, Shown("model", is_flag=False)] = Field(
        default=300.0,
        gt=0,
        le=86_400,
        description="A stream of vLLM's that brings nothing for so long has failed. One whose engine does not answer "
        "any more fails after seconds.",
    )
    llama_library: Annotated[UserPath | None, Shown("model", "FILE", is_flag=False)] = Field(
        default=None,
        description="A llama.cpp library (libllama.so) of your own; unset: the one that `pie optimize` compiled, else "
        "the prebuilt one. One of another version is not used.",
    )
    context: Annotated[int | None, Auto, Number, Shown("model")] = Field(
        default=None,
        ge=16,
        le=1 << 24,
        description="Most tokens of one prompt and answer together; unset: what the model has.",
    )
    format: Annotated[FormatName | None, Auto, Shown("model", "NAME")] = Field(
        default=None, description="How conversations are written for the model; unset: found from its chat template."
    )
    chat_template: Annotated[str | None, Shown("model", "FILE", is_flag=False)] = Field(
        default=None,
        description="A chat template instead of the model's own: a file, or the name of a family (as in `format`).",
    )
    convert_weights: Annotated[Literal["auto", "never"], Shown("model", is_flag=False)] = Field(
        default="auto",
        description="Whether weights may be converted, once, to a layout that is faster on this processor.",
    )
    aliases: Annotated[dict[str, str] | None, BeforeValidator(parse_aliases), Shown("model", "JSON", is_flag=False)] = (
        Field(
            default=None,
            description="Other names for the model: a table from names, or patterns such as `gpt-*`, to its id or to "
            "`default`; or JSON in the environment.",
        )
    )
    gpu_layers: Annotated[int, Number, Shown("model")] = Field(
        default=-1, ge=-1, le=100_000, description="Layers on the GPU, where llama.cpp was built with one; -1: all."
    )
    sampling: Annotated[SamplingTable, Shown("model", "JSON", is_flag=False)] = Field(
        default=None,
        description="`temperature`, `top_p`, `top_k`, `min_p` and `repetition_penalty` where a request is silent, in "
        "place of the model's own: a table, or JSON in the environment.",
    )
    force_sampling: Annotated[SamplingTable, Shown("model", "JSON", is_flag=False)] = Field(
        default=None, description="The same, in place of what requests say."
    )
    stop: Annotated[tuple[Text, ...], BeforeValidator(parse_texts), Shown("model", "TEXTS", is_flag=False)] = Field(
        default=(), max_length=16, description="Texts that end every answer of the model, beside those of a request."
    )
    reasoning: Annotated[Literal["on", "off"] | None, Auto, Shown("model", is_flag=False)] = Field(
        default=None, description="Whether the model reasons before it answers, whatever requests say; unset: they say."
    )
    template_variables: Annotated[
        dict[str, object] | None, BeforeValidator(parse_table), Shown("model", "JSON", is_flag=False)
    ] = Field(
        default=None,
        description="Variables for the chat template where a request does not set them: a table, or JSON.",
    )

    adapters: Annotated[
        dict[Text, UserPath] | None, BeforeValidator(parse_table), Shown("model", "JSON", is_flag=False)
    ] = Field(
        default=None,
        max_length=64,
        description="LoRA adapters by name: a table of GGUF files or, for MLX, of folders as PEFT and mlx-lm write "
        "them. Each is a model of its own, `model:name`.",
    )

    models: Annotated[
        dict[str, ModelTable] | None, BeforeValidator(parse_models), Shown("pool", "TABLES", is_flag=False)
    ] = Field(
        default=None,
        description="Further models, loaded when a request names one: `[models.NAME]` in the TOML file, with any "
        "setting of a model, and `aliases`, `preload` and `pin`.",
    )
    model_folders: Annotated[
        tuple[UserPath, ...], BeforeValidator(parse_paths), Shown("pool", "FOLDERS", is_flag=False)
    ] = Field(default=(), description="Folders whose GGUF files and folders of safetensors are served by name.")
    hub: Annotated[bool, Shown("pool", is_flag=False)] = Field(
        default=False, description="Whether every model in the Hugging Face cache is served, by its name there."
    )
    memory: Annotated[Size | None, Auto, Shown("pool", "SIZE", is_flag=False)] = Field(
        default=None,
        ge=1,
        description="Memory for all models together, such as 24GiB; unset: four fifths of what is free at the start.",
    )
    idle_minutes: Annotated[float | None, Auto, Number, Shown("pool", is_flag=False)] = Field(
        default=None, gt=0, le=1e6, description="A model that nobody used for so long is unloaded; unset: none is."
    )

    slots: Annotated[int, Number, Shown("engine")] = Field(
        default=16, ge=1, le=1024, description="Sequences computed at the same time; on a GPU with MLX 64 unless set."
    )
    threads: Annotated[int | None, Auto, Number, Shown("engine")] = Field(
        default=None,
        ge=1,
        le=1024,
        description="Most threads that compute; unset: the physical cores. Fewer do while others want the cores.",
    )
    exact: Annotated[bool, Shown("engine")] = Field(
        default=False, description="The same answer to the bit alone, in a batch and from the cache; a little slower."
    )
    step_target_ms: Annotated[float, Number, Shown("engine", is_flag=False)] = Field(
        default=200.0,
        gt=0,
        le=60_000,
        description="Longest step in milliseconds while answers stream: sizes prefill chunks.",
    )
    draft_tokens: Annotated[int, Number, Shown("engine", is_flag=False)] = Field(
        default=8, ge=1, le=64, description="Most tokens that the draft model guesses at a time."
    )
    max_waiting: Annotated[int, Number, Shown("engine", is_flag=False)] = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Answers that may wait beside those the slots take; one more is refused with 429.",
    )
    max_waiting_per_key: Annotated[int, Number, Shown("engine", is_flag=False)] = Field(
        default=64, ge=1, le=1_000_000, description="Answers of one key that may wait."
    )
    max_waiting_tokens: Annotated[int, Number, Shown("engine", is_flag=False)] = Field(
        default=2_000_000, ge=1, le=1 << 40, description="Prompt tokens that may wait, all requests together."
    )
    queue_timeout_seconds: Annotated[float | None, Auto, Number, Shown("engine", is_flag=False)] = Field(
        default=600.0,
        gt=0,
        le=86_400,
        description="A request that waited so long without its turn is refused with 503; `auto`: it may wait for ever.",
    )
    state_sampling: Annotated[
        StateSampling | None, BeforeValidator(parse_states), Shown("engine", "JSON", is_flag=False)
    ] = Field(
        default=None,
        description="`temperature`, `top_p`, `top_k` and `min_p` for the states `tool_call`, `reasoning` and "
        "`structured`, in place of the request's: a table of tables, or JSON in the environment.",
    )

    json_spacing: Annotated[Literal["compact", "spaced"] | None, Auto, Shown("engine", is_flag=False)] = Field(
        default=None,
        description="Structured JSON is one line: `spaced` has a space after each comma and colon, `compact` none; "
        "unset: compact, unless the model's profile says that it writes better with spaces, as the bundled one does.",
    )

    kv_memory: Annotated[Size | None, Auto, Shown("memory", "SIZE")] = Field(
        default=None,
        ge=1,
        description="Memory for the KV of running sequences, such as 2GiB; unset: from what is free.",
    )
    cache_memory: Annotated[Size | None, Auto, Shown("memory", "SIZE")] = Field(
        default=None, description="Memory for the prefix cache, such as 512MB; 0: no cache; unset: from what is free."
    )

    disk_cache: Annotated[Size, Shown("memory", "SIZE")] = Field(
        default=0,
        description="Room on disk, such as 10GiB, for prefixes that leave the cache's memory; they survive a restart. "
        "0: none.",
    )

    server: Annotated[Text | None, Auto, Shown("client", "URL")] = Field(
        default=None,
        description="The running server that commands talk to, such as `http://127.0.0.1:8000`; unset: the one at "
        "`host` and `port`, where there is one; `none`: none, a model is loaded by the command itself.",
    )
    client_key: Annotated[Text | None, Shown("client", "KEY", is_flag=False, is_secret=True)] = Field(
        default=None,
        description="The API key that commands send to a running server; unset: one of `api_keys` that is written out, "
        "an admin's if there is one.",
    )

    cache_dir: Annotated[UserPath, Shown("program", "FOLDER")] = Field(
        default_factory=default_cache_dir, description="Folder for converted weights and the disk cache."
    )
    data_dir: Annotated[UserPath | None, Shown("program", "FOLDER", is_flag=False)] = Field(
        default_factory=default_data_dir,
        description="Folder for what is stored: responses, completions, files, batches.",
    )
    store_url: Annotated[Text | None, Shown("program", is_flag=False, is_secret=True)] = Field(
        default=None,
        description="A PostgreSQL database for what is stored, which many servers may share: "
        "`postgresql://user@host/name`. Unset: a file in `data_dir`.",
    )
    store_connections: Annotated[int, Number, Shown("program", is_flag=False)] = Field(
        default=5, ge=2, le=100, description="Connections of one server to that database: one writes, the others read."
    )
    store_ttl_days: Annotated[float, Number, Shown("program", is_flag=False)] = Field(
        default=30.0, gt=0, le=36_500, description="What is stored is removed this long after it was last written."
    )
    store_max_rows: Annotated[int, Number, Shown("program", is_flag=False)] = Field(
        default=10_000,
        ge=1,
        le=1 << 40,
        description="Objects and conversation items that one key may keep; one more is answered with 429.",
    )
    max_file_bytes: Annotated[Size, Shown("program", is_flag=False)] = Field(
        default=200 * 1024 * 1024, ge=1, le=1 << 40, description="Size of one uploaded file."
    )
    max_file_bytes_per_key: Annotated[Size, Shown("program", is_flag=False)] = Field(
        default=1 << 30, ge=1, le=1 << 50, description="Size of all files of one key, and of what its batches write."
    )
    max_file_bytes_in_all: Annotated[Size, Shown("program", is_flag=False)] = Field(
        default=10 << 30, ge=1, le=1 << 50, description="Size of all files together."
    )
    batch_max_lines: Annotated[int, Number, Shown("program", is_flag=False)] = Field(
        default=50_000, ge=1, le=10_000_000, description="Requests in one batch."
    )
    traces: Annotated[str | None, BeforeValidator(parse_traces), Shown("program", "WHERE", is_flag=False)] = Field(
        default=None,
        description="Where OpenTelemetry spans of requests go: the address of a collector (`http://localhost:4318`), "
        "`otlp` (as the OTEL_* variables say), or `logfire`. Needs the extra `otel`, or logfire.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Shown("program")] = Field(
        default="info", description="Least severity that is logged."
    )
