"""What the text of a setting means, where it is more than a number or a word: tables, hosts, keys, paths. And folders
that nobody names.

Each parser takes what TOML gives as well as the text that the environment gives, and raises a ValueError that says
what is wrong with it.
"""

import json
import os
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from proxy_inference_engine.config.keys import ApiKey, parse_key, parse_plain_key
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.types import State

MAX_ALIASES = 1000
MAX_HOSTS = 1000
_HOST = re.compile(r"(?P<host>[a-z0-9._-]{1,253}|\[(?P<address>[0-9a-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_COLLECTOR = re.compile(r"https?://[^/\s?#]+(/[^\s?#]*)?")
_Share = Annotated[float, Field(ge=0, le=1)]


class AllowedHost(NamedTuple):
    """A host of a private network that the operator opens."""

    host: str
    port: int | None  # None: any


class SamplingOverride(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """What replaces a request's own value; None: nothing."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: _Share | None = None


class ModelSampling(SamplingOverride, frozen=True):
    """Values for one model, in place of its own."""

    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None

    def given(self) -> dict[str, float]:
        return self.model_dump(exclude_none=True)


class StateSampling(BaseModel, frozen=True, extra="forbid"):
    """Sampling that differs by what a model is writing: the operator's own values for some states of an answer."""

    tool_call: SamplingOverride | None = None
    reasoning: SamplingOverride | None = None
    structured: SamplingOverride | None = None

    def overrides(self) -> dict[State, dict[str, float]]:
        """The values that the operator set, by state."""
        given = self.model_dump(exclude_none=True)
        states: tuple[State, ...] = ("tool_call", "reasoning", "structured")
        return {state: given[state] for state in states if given.get(state)}


def none_if_auto(value: object) -> object:
    return None if value == "auto" else value


def refuse_bool(value: object) -> object:
    """A number that is not true or false: Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def parse_path(value: object) -> object:
    if value == "":
        raise ValueError("should be a path")
    return Path(value).expanduser() if isinstance(value, str) else value


def parse_keys(value: object) -> object:
    """ "name:key,name2:key2", or a list of such pairs."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be name:key, several separated by commas")
    return tuple(part if isinstance(part, ApiKey) else parse_key(str(part)) for part in parts)


def parse_hosts(value: object) -> object:
    """`host` or `host:port`, in a list or with commas between them."""
    parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be hosts, several separated by commas")
    if len(parts) > MAX_HOSTS:
        raise ValueError(f"should have at most {MAX_HOSTS} hosts")
    return tuple(part if isinstance(part, AllowedHost) else _parse_host(str(part).strip()) for part in parts)


def _parse_host(text: str) -> AllowedHost:
    match = _HOST.fullmatch(text.lower())
    port = None if match is None or match["port"] is None else int(match["port"])
    if match is None or port == 0 or (port or 0) > 65535:
        raise ValueError(f"{text[:64]!r} is no host; write host, host:port or [address]:port")
    return AllowedHost(match["address"] or match["host"], port)


def parse_aliases(value: object) -> object:
    """A table of other names under which clients may ask for the model."""
    if value is None:
        return None
    table = _from_json(value)
    if not isinstance(table, dict):
        raise ValueError("should be a table of names")
    if len(table) > MAX_ALIASES:
        raise ValueError(f"should have at most {MAX_ALIASES} names")
    for name, target in table.items():
        if not name.strip() or not isinstance(target, str) or not target:
            raise ValueError(f"{name!r}: should be a name that stands for a model's name")
    return table


def parse_states(value: object) -> object:
    """A table of states, each a table of what replaces a request's own values there."""
    if value is None or isinstance(value, StateSampling):
        return value
    try:
        return StateSampling.model_validate(_from_json(value))
    except ValidationError as error:
        raise ValueError(_reason(error) or "should be a table of states") from None


def parse_sampling(value: object) -> object:
    """A table of sampling values."""
    if value is None or isinstance(value, ModelSampling):
        return value
    try:
        return ModelSampling.model_validate(_from_json(value))
    except ValidationError as error:
        raise ValueError(_reason(error) or "should be a table of numbers") from None


def parse_table(value: object) -> object:
    if value is not None and not isinstance(_from_json(value), dict):
        raise ValueError("should be a table")
    return None if value is None else _from_json(value)


def parse_texts(value: object) -> object:
    """A list of texts, or one."""
    return (value,) if isinstance(value, str) and value else value


def parse_urls(value: object) -> object:
    """URLs in a list, or with commas between them."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part for part in parts):
        raise ValueError("should be URLs, several separated by commas")
    return tuple(parts)


def parse_traces(value: object) -> object:
    """`otlp`, `logfire`, or the address of a collector."""
    if value is None or value in ("otlp", "logfire") or (isinstance(value, str) and _COLLECTOR.fullmatch(value)):
        return value
    raise ValueError("should be otlp, logfire or an address such as http://localhost:4318")


def parse_paths(value: object) -> object:
    """Paths in a list or, as in PATH, with colons between them."""
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("should be paths")
    return tuple(map(parse_path, parts))


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else ""


def _from_json(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("should be a JSON object") from None


def parse_metrics_key(value: object) -> object:
    """The key of `/metrics`: a text without a name."""
    return value if isinstance(value, ApiKey) or value is None else parse_plain_key("metrics", str(value))


def default_cache_dir() -> Path:
    folder = _user_folder("XDG_CACHE_HOME", ".cache")
    if folder is None:
        raise StartupError("this user has no home folder: set --cache-dir")
    return folder


def default_data_dir() -> Path | None:
    return _user_folder("XDG_DATA_HOME", ".local/share")


def _user_folder(variable: str, in_home: str) -> Path | None:
    base = os.environ.get(variable, "")
    try:
        # XDG says to ignore a relative path: https://specifications.freedesktop.org/basedir/latest/
        folder = Path(base) if os.path.isabs(base) else Path.home() / in_home
    except RuntimeError:
        return None
    return folder / "proxy-inference-engine"
