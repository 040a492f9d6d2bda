"""The models that the operator lists: each with its name and the configuration it is loaded with. Nothing is loaded."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.models import is_of_model
from proxy_inference_engine.config.shown import place
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.models.load import is_far
from proxy_inference_engine.models.resolve import models_among, resolve, resolve_words
from proxy_inference_engine.runners.checkpoint import CONFIG

_log = logging.getLogger(__name__)
_LOADED = tuple(
    name
    for name, field in Config.model_fields.items()
    if name != "idle_minutes" and is_of_model(name, place(field).group)
)


@dataclass(frozen=True, slots=True)
class PoolEntry:
    id: str  # the name that clients use
    config: Config  # of this model alone
    is_pinned: bool = False  # never unloaded to make room, nor for being idle
    is_preloaded: bool = False  # loaded when the server starts
    idle_seconds: float | None = None  # unloaded when nobody used it for so long; None: never for that

    def loads_like(self, other: "PoolEntry") -> bool:
        """Whether what is loaded for one would do for the other."""
        return all(getattr(self.config, name) == getattr(other.config, name) for name in _LOADED)


def list_entries(config: Config) -> list[PoolEntry]:
    """The models of a configuration, the default first. Raises StartupError where two have one name."""
    entries = list(_entries(config))
    if not entries:
        raise StartupError("there is no model in model_folders or in the Hugging Face cache")
    names = [entry.id for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise StartupError(f"two models have the name {name!r}: give one of them another in [models.NAME]")
    return entries


def check_processes(config: Config, entries: Sequence[PoolEntry]) -> None:
    """Raises StartupError where several processes would each load a model."""
    near = [entry.id for entry in entries if entry.config.engine != "vllm"]
    if config.processes > 1 and near:
        raise StartupError(
            f"processes = {config.processes} is for models that vLLM computes: each process would load a copy of "
            f'{near[0]!r}; set engine = "vllm", or leave processes out'
        )


def has_own_model(config: Config) -> bool:
    """Whether the server is started for one model, which is the first: the one that is set, or the bundled one."""
    return config.model is not None or not (config.models or config.model_folders or config.hub)


def aliases_of(config: Config) -> dict[str, str]:
    """Other names, of the whole file and of each model in it. Raises StartupError where two models want the same."""
    own: dict[str, str] = {}
    for name, table in (config.models or {}).items():
        for alias in table.aliases:
            if own.setdefault(alias, name) != name:
                raise StartupError(f"aliases: {alias!r} stands for {own[alias]!r} and for {name!r}")
    return {**own, **(config.aliases or {})}


def _entries(config: Config) -> Iterator[PoolEntry]:
    if has_own_model(config):
        # What the server was started for is there before the first request, and stays.
        find = resolve_words if is_far(config) else resolve
        yield PoolEntry(find(config.model, config.cache_dir).name, config, is_pinned=True, is_preloaded=True)
    for name, table in (config.models or {}).items():
        own = table.config(config)
        # What is missing is said now, not when somebody asks for the model.
        if not is_far(own):
            _look_for(name, own)
        yield _entry(name, own, is_pinned=table.pin, is_preloaded=table.preload or table.pin)
    for folder in config.model_folders:
        yield from (_entry(name, config.model_copy(update={"model": str(path)})) for name, path in in_folder(folder))
    if config.hub:
        yield from (_entry(name, config.model_copy(update={"model": name})) for name in in_hub())


def _look_for(name: str, config: Config) -> None:
    """A disk that is not there yet is no reason not to start."""
    try:
        resolve(config.model, config.cache_dir)
    except StartupError as error:
        _log.warning("[models.%s] cannot be loaded as it is: %s", name, error.message)


def _entry(name: str, config: Config, *, is_pinned: bool = False, is_preloaded: bool = False) -> PoolEntry:
    idle_seconds = None if config.idle_minutes is None else config.idle_minutes * 60
    return PoolEntry(name, config, is_pinned, is_preloaded, idle_seconds)


def in_folder(folder: Path) -> Iterator[tuple[str, Path]]:
    """GGUF files and folders of safetensors that lie in a folder, by name. Raises StartupError."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise StartupError(f"model_folders: {str(folder)!r}: {error.strerror}") from None
    yield from models_among(path for path in paths if path.is_file()).items()
    for path in paths:
        if (path / CONFIG).is_file():
            yield path.name, path
        elif path.is_dir():
            # As most tools lay them out: a folder a model, with its GGUF file and what encodes images.
            yield from models_among(below for below in path.glob("*.gguf") if below.is_file()).items()


def in_hub() -> Iterator[str]:
    """The names of what is whole in the Hugging Face cache; of several GGUF files each has its own."""
    for repository in hub.repositories():
        try:
            resolve(repository)
        except hub.NotCached:
            continue
        except StartupError:  # several files: one has to be named
            snapshot = hub.find_snapshot(hub.HubName(repository, None, hub.MAIN))
            yield from (f"{repository}:{stem}" for stem in models_among(snapshot.rglob("*.gguf")))
        else:
            yield repository
