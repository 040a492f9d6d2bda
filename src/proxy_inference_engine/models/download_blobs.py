"""Files in the Hugging Face cache: blobs named by their digests, filled over broken connections, then linked.

A blob appears under its name only when its size and digest are right. Until then it is `<digest>.incomplete`, and
the next download goes on from there. Links and the revision come last, so no snapshot of ours is half there.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download_hub import Body, Broken
from proxy_inference_engine.models.download_listing import RemoteFile
from proxy_inference_engine.models.download_partial import Partial

try:
    import fcntl
except ImportError:  # a system without it has no lock: the digest still tells what two writers did to each other
    fcntl = None  # type: ignore[assignment]

_MAX_FAILURES = 5  # one after the other, without a byte between them
_MANY_BYTES = 1 << 30  # take seconds to read
_SPARE_BYTES = 64 << 20  # nobody likes a disk that is full to the last byte

Open = Callable[[RemoteFile, int], AbstractContextManager[Body]]
Pause = Callable[[int, Broken], None]


class Blobs:
    """The files of one repository. `advance` is told how many bytes came, below zero how many had to go again."""

    def __init__(self, cache: Path, folder: str, advance: Callable[[int], None], say: Callable[[str], None]) -> None:
        self._repository = cache / folder
        self._blobs = self._repository / "blobs"
        self._locks = cache / ".locks" / folder
        self._advance = advance
        self._say = say

    def path(self, file: RemoteFile) -> Path:
        return self._blobs / file.digest

    def has(self, file: RemoteFile) -> bool:
        path = self.path(file)
        return path.is_file() and path.stat().st_size == file.size

    def num_missing_bytes(self, files: tuple[RemoteFile, ...]) -> int:
        return sum(file.size - self._num_present(file) for file in {file.digest: file for file in files}.values())

    def check_space(self, files: tuple[RemoteFile, ...]) -> None:
        """Raises StartupError where they cannot fit, before the first byte."""
        wanted = self.num_missing_bytes(files)
        there = next(folder for folder in (self._blobs, *self._blobs.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if wanted and wanted + _SPARE_BYTES > free:
            raise StartupError(
                f"the download needs {format_size(wanted)}, the disk of {str(there)!r} has {format_size(free)} free: "
                "make room, or set HF_HOME to a folder on another disk"
            )

    def fetch(self, file: RemoteFile, open_: Open, pause: Pause) -> None:
        """Raises StartupError; what has come until then stays, unless it is wrong."""
        if self.has(file):
            return
        self._blobs.mkdir(parents=True, exist_ok=True)
        num_counted = self._num_present(file)
        with self._locked(file):
            if self.has(file):  # who held the lock was faster
                self._advance(file.size - num_counted)
                return
            path = self._partial(file)
            was_begun = path.exists()
            try:
                is_right = self._fill(file, open_, pause, num_counted)
                if not is_right and was_begun:  # it may have begun wrong
                    is_right = self._fill(file, open_, pause)
            except OSError as error:
                raise StartupError(f"{str(path)!r} cannot be written: {error.strerror}") from None
            if not is_right:
                raise StartupError(f"what came of {file.path!r} has not the digest that the hub says: it was deleted")
            os.replace(path, self.path(file))

    def link(self, commit: str, revision: str, files: tuple[RemoteFile, ...]) -> None:
        """A snapshot of the files under their own names, then the revision that leads to it."""
        for file in files:
            path = self._repository / "snapshots" / commit / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            _link(self.path(file), path)
        if revision != commit:
            reference = self._repository / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            new = reference.with_name(f".{reference.name}.{os.getpid()}")
            new.write_text(commit, encoding="utf-8")
            os.replace(new, reference)

    def _partial(self, file: RemoteFile) -> Path:
        return self._blobs / f"{file.digest}.incomplete"

    def _num_present(self, file: RemoteFile) -> int:
        if self.has(file):
            return file.size
        partial = self._partial(file)
        size = partial.stat().st_size if partial.exists() else 0
        return size if size <= file.size else 0  # one that is too long is thrown away

    def _fill(self, file: RemoteFile, open_: Open, pause: Pause, num_counted: int = 0) -> bool:
        """Whether the file is there and right; a wrong one is deleted."""
        path = self._partial(file)
        with path.open("a+b") as target:
            partial = Partial(file, target)
            if num_counted > _MANY_BYTES:
                self._say(f"checking the {format_size(num_counted)} that have come already")
            partial.reread()
            self._advance(partial.num_bytes - num_counted)
            num_failures = 0
            while (before := partial.num_bytes) < file.size:
                try:
                    with open_(file, before) as body:
                        self._pour(body, partial)
                except Broken as error:
                    num_failures = 1 if partial.num_bytes > before else num_failures + 1
                    if num_failures > _MAX_FAILURES:
                        raise StartupError(
                            f"{file.path!r} does not come: {error}; the same command goes on from where it is"
                        ) from None
                    pause(num_failures - 1, error)
            is_right = partial.finish()
        if not is_right:
            path.unlink()
            self._advance(-file.size)
        return is_right

    def _pour(self, body: Body, partial: Partial) -> None:
        if body.start != partial.num_bytes:
            self._advance(-partial.num_bytes)
            partial.restart()
        for chunk in body.chunks():
            partial.write(chunk)
            self._advance(len(chunk))
        if not partial.is_full:
            raise Broken("the connection ended early")

    @contextmanager
    def _locked(self, file: RemoteFile) -> Iterator[None]:
        """Where Hugging Face's tools lock too: https://huggingface.co/docs/huggingface_hub/guides/manage-cache"""
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{file.digest}.lock").open("a") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._say(f"another program is downloading {file.path!r}: waiting for it")
                    fcntl.flock(lock, fcntl.LOCK_EX)
                except OSError:
                    self._say("this disk has no locks: start no second download of the same model")
            yield


def _link(blob: Path, path: Path) -> None:
    """A relative link, so that the cache can be moved; where there are none, a second name for the same file."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        new.unlink()
    try:
        new.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:
        new.hardlink_to(blob)
    os.replace(new, path)
