"""Which models lie on this machine: the bundled one, those of the Hugging Face cache, of folders and of the settings.

Only files are looked at; nothing is loaded, and nothing is asked of a network.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.models.resolve import BUNDLED_WORD, ModelFile, parts_of, resolve
from proxy_inference_engine.pool.entry import in_folder, in_hub
from proxy_inference_engine.runners.checkpoint import weight_files

ModelOrigin = Literal["bundled", "hub", "folder", "settings"]


@dataclass(frozen=True, slots=True)
class StockedModel:
    """One that can be loaded. `name` is what `--model` takes."""

    name: str
    file: ModelFile
    origin: ModelOrigin

    @property
    def num_bytes(self) -> int:
        """How much its weights take on the disk."""
        return sum(path.stat().st_size for path in weight_paths(self.file))


def weight_paths(file: ModelFile) -> list[Path]:
    return parts_of(file.path) if file.kind == "gguf" else list(weight_files(file.path))


def inventory(config: Config) -> list[StockedModel]:
    """Each once, though several ways may lead to it. What cannot be loaded is left out."""
    found: dict[Path, StockedModel] = {}
    for name, model, origin in _candidates(config):
        with contextlib.suppress(StartupError, OSError):
            file = resolve(model, config.cache_dir)
            found.setdefault(file.path.resolve(), StockedModel(name, file, origin))
    return list(found.values())


def _candidates(config: Config) -> Iterator[tuple[str, str, ModelOrigin]]:
    """A name for people, a name for `resolve`, and where it is from."""
    yield BUNDLED_WORD, BUNDLED_WORD, "bundled"
    if config.model is not None:
        yield config.model, config.model, "settings"
    for name, table in (config.models or {}).items():
        if isinstance(model := table.settings.get("model"), str):
            yield name, model, "settings"
    for name in in_hub():
        yield name, name, "hub"
    for folder in config.model_folders:
        with contextlib.suppress(StartupError):
            yield from ((str(path), str(path), "folder") for _, path in in_folder(folder))


def unfinished() -> list[str]:
    """What of the Hugging Face cache a download left in the middle."""
    whole = {name.partition(":")[0] for name in in_hub()}
    return [
        name for name in hub.repositories() if name not in whole and any((_folder(name) / "blobs").glob("*.incomplete"))
    ]


def _folder(repository: str) -> Path:
    return hub.cache_folder() / hub.folder_name(hub.HubName(repository, None, hub.MAIN))
