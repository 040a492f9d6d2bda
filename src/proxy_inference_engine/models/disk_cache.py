"""From a configuration to the prefix cache's disk tier, where one is asked for and can be had."""

import logging

from proxy_inference_engine.cache.disk import DiskTier, Room
from proxy_inference_engine.cache.disk_drive import ThreadedDrive
from proxy_inference_engine.cache.disk_folder import Folder
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.errors import StartupError

_log = logging.getLogger(__name__)

FOLDER = "prefixes"  # in the cache folder


def use_disk(engine: StepEngine, config: Config) -> None:
    """Give the engine's cache a disk. Raises StartupError where the folder cannot be written to."""
    if config.disk_cache == 0:
        return
    if engine.runner.packer is None:
        _log.warning("disk_cache has no effect: this model keeps a state that cannot be written to disk")
        return
    if engine.cache.max_bytes == 0:
        _log.warning("disk_cache has no effect without a cache in memory: raise cache_memory")
        return
    path = config.cache_dir / FOLDER
    try:
        drive = ThreadedDrive(Folder(path))
    except BlockingIOError:
        _log.warning("disk_cache has no effect: another process uses %s; give each its own cache_dir", path)
        return
    except OSError as error:
        raise StartupError(f"disk_cache: cannot use {str(path)!r}: {error.strerror}") from None
    engine.scheduler.disk = DiskTier(engine.cache, engine.runner, drive, Room(config.disk_cache))
