"""A model by its name on Hugging Face, downloaded where the cache lacks it. Only commands call this, with a name that
the operator gave: nothing that a request says leads here. What is in the cache is used without a network call."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download_blobs import Blobs
from proxy_inference_engine.models.download_hub import Hub
from proxy_inference_engine.models.download_listing import Listing, RemoteFile
from proxy_inference_engine.models.download_plan import Plan, make_plan, read_index
from proxy_inference_engine.models.engines import choose_engine, this_machine
from proxy_inference_engine.models.hub import HubName, NotCached, cache_folder, folder_name, parse_name
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.models.watcher import Watcher

Connect = Callable[[], Hub]
_TRUE = ("1", "on", "yes", "true")


def obtain(config: Config, watcher: Watcher, connect: Connect = Hub.from_environment) -> ModelFile:
    """The configured model; it and its draft model are downloaded first if need be. Raises StartupError."""
    file = _obtain(config, watcher, connect)
    if config.draft_model is not None:
        draft = {"model": config.draft_model, "engine": "llama.cpp", "mmproj": "none"}
        _obtain(config.model_copy(update=draft), watcher, connect)
    return file


def _obtain(config: Config, watcher: Watcher, connect: Connect) -> ModelFile:
    try:
        return resolve(config.model)
    except NotCached as missing:
        name = parse_name(config.model or "")
        assert name is not None
        reason = _reason_against(config)
        if reason is not None:
            raise StartupError(f"{missing.message} ({reason})") from None
    job = _prepare(name, config, connect())
    if job.plan.kind == "safetensors":  # before the weights come for nothing
        file = ModelFile(Path(), name.repository.rpartition("/")[2], is_bundled=False, kind=job.plan.kind)
        choose_engine(config, file, this_machine())
    _carry_out(job, watcher)
    return resolve(config.model)


def pull(config: Config, watcher: Watcher, connect: Connect = Hub.from_environment) -> ModelFile:
    """The configured model as the hub has it now. Raises StartupError."""
    name = parse_name(config.model or "")
    if name is None or Path(config.model or "").exists():
        raise StartupError(f"{config.model!r} is no name on Hugging Face: pie pull owner/model, or owner/model:Q4_K_M")
    reason = _reason_against(config)
    if reason is not None:
        raise StartupError(f"model {name.repository!r} is not downloaded ({reason})")
    _carry_out(_prepare(name, config, connect()), watcher)
    return resolve(config.model)


class _Job(NamedTuple):
    name: HubName
    hub: Hub
    listing: Listing
    plan: Plan


def _reason_against(config: Config) -> str | None:
    if config.offline:
        return "--offline forbids downloads"
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
        return "HF_HUB_OFFLINE forbids downloads"
    return None


def _prepare(name: HubName, config: Config, hub: Hub) -> _Job:
    listing = hub.list_files(name)
    return _Job(name, hub, listing, make_plan(name, listing.files, wants_mmproj=config.mmproj is None))


def _carry_out(job: _Job, watcher: Watcher) -> None:
    """Blobs first, small ones before the weights; then the snapshot."""
    progress = _Progress(watcher)
    blobs = Blobs(cache_folder(), folder_name(job.name), progress.advance, watcher.say)
    files = job.plan.files
    blobs.check_space(files)
    if job.plan.index is not None:
        _fetch(job, blobs, job.plan.index)
        files += read_index(job.name, blobs.path(job.plan.index).read_bytes(), job.listing.files)
        blobs.check_space(files)
    if not all(map(blobs.has, files)):
        missing, total = blobs.num_missing_bytes(files), sum(file.size for file in files)
        rest = f", the rest of {format_size(total)}" if missing < total else ""
        watcher.say(f"downloading {job.name}: {format_size(missing)}{rest}")
        progress.begin(total - missing, total)
    for file in files:
        _fetch(job, blobs, file)
    # Other models of the repository that have not changed stay within reach of the revision.
    others = (file for file in job.listing.files if file.path.endswith(".gguf") and blobs.has(file))
    blobs.link(job.listing.commit, job.name.revision, (*files, *others))


def _fetch(job: _Job, blobs: Blobs, file: RemoteFile) -> None:
    name, commit, hub = job.name, job.listing.commit, job.hub
    blobs.fetch(file, lambda file, offset: hub.open(name, commit, file, offset), hub.pause)


class _Progress:
    """Sums up for the watcher. Nothing is shown before it is known how much there is to come."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._num_bytes = 0
        self._total_bytes: int | None = None

    def begin(self, num_present: int, total_bytes: int) -> None:
        self._num_bytes, self._total_bytes = num_present, total_bytes
        self.advance(0)

    def advance(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._total_bytes is not None:
            # Another program may have filled a file between two looks at it.
            self._watcher.show(min(self._num_bytes, self._total_bytes), self._total_bytes)
