"""`[models.NAME]`: what the operator says of one model of several. Any setting of a model may stand there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy_inference_engine.config.fields import Config

MAX_MODELS = 1000
_SWITCHES = ("pin", "preload")
# What belongs to the server, or to all models together; and what of that each of them is loaded with.
_SHARED = frozenset({"aliases", "models", "model_folders", "hub", "memory", "offline", "llama_library", "disk_cache"})
_LOADED_WITH = frozenset({"offline", "llama_library", "disk_cache"})


@dataclass(frozen=True, slots=True)
class ModelTable:
    """One model: its own settings over those of the file, and what only a model among others has."""

    settings: Mapping[str, object] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    pin: bool = False
    preload: bool = False

    def config(self, base: "Config") -> "Config":
        """Raises pydantic's ValidationError."""
        given = {name: getattr(base, name) for name in base.model_fields_set if name not in _SHARED - _LOADED_WITH}
        return type(base)(**{**given, **self.settings})


def is_of_model(name: str, group: str) -> bool:
    """Whether a setting may differ from model to model."""
    return name == "idle_minutes" or (group in ("model", "engine", "memory") and name not in _SHARED)


def parse_models(value: object) -> object:
    """A table of tables. Raises ValueError; the values of settings are checked later, with their names."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_MODELS:
        raise ValueError(f"should be tables such as [models.NAME], at most {MAX_MODELS}")
    return {_checked_name(name): _table(name, table) for name, table in value.items()}


def _checked_name(name: str) -> str:
    if not name.strip() or not name.isprintable() or len(name) > 256 or name == "default" or set(name) & set("*?["):
        raise ValueError(f"{name[:64]!r} is no name for a model")
    return name


def _table(name: str, table: object) -> ModelTable:
    if isinstance(table, ModelTable):
        return table
    if not isinstance(table, dict):
        raise ValueError(f"{name}: should be a table")
    settings = dict(table)
    switches = {each: settings.pop(each, False) for each in _SWITCHES}
    for each, given in switches.items():
        if not isinstance(given, bool):
            raise ValueError(f"{name}.{each}: should be true or false")
    aliases = settings.pop("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
        raise ValueError(f"{name}.aliases: should be a list of names")
    return ModelTable(settings, tuple(aliases), **switches)
