"""Files in the Hugging Face cache: blobs named by their digests, filled over broken connections, then linked.

A blob appears under its name only when its size and digest are right. Until then it is `<digest>.incomplete`, filled
from its beginning, or `<digest>.pieces.incomplete`, with gaps; the next download goes on from there. Links and the
revision come last, so no snapshot of ours is half there.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download import parallel
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.parallel import MAX_FAILURES, FileChanged, Parallel
from proxy_inference_engine.models.download.partial import Partial
from proxy_inference_engine.models.download.scattered import read_note
from proxy_inference_engine.models.download.source import Body, FileSource
from proxy_inference_engine.models.download.web import ConnectionBroken, RangesRefused

try:
    import fcntl
except ImportError:  # a system without it has no lock: the digest still tells what two writers did to each other
    fcntl = None  # type: ignore[assignment]

_MANY_BYTES = 1 << 30  # take seconds to read
_SPARE_BYTES = 64 << 20  # nobody likes a disk that is full to the last byte


class Blobs:
    """The files of one repository. `advance` is told how many bytes came, below zero how many had to go again."""

    def __init__(
        self,
        cache: Path,
        folder: str,
        advance: Callable[[int], None],
        say: Callable[[str], None],
        setting: str = "HF_HOME",  # what moves the cache to another disk
    ) -> None:
        self._repository = cache / folder
        self._blobs = self._repository / "blobs"
        self._locks = cache / ".locks" / folder
        self._advance = advance
        self._say = say
        self._setting = setting

    def path(self, file: RemoteFile) -> Path:
        return self._blobs / file.digest

    def has(self, file: RemoteFile) -> bool:
        path = self.path(file)
        return path.is_file() and path.stat().st_size == file.size

    def num_missing_bytes(self, files: tuple[RemoteFile, ...]) -> int:
        return sum(file.size - self._num_present(file) for file in {file.digest: file for file in files}.values())

    def check_space(self, files: tuple[RemoteFile, ...]) -> None:
        """Raises StartupError where the disk has no room for the files. Call before the first byte is fetched."""
        wanted = self.num_missing_bytes(files)
        there = next(folder for folder in (self._blobs, *self._blobs.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if wanted and wanted + _SPARE_BYTES > free:
            raise StartupError(
                f"the download needs {format_size(wanted)}, the disk of {str(there)!r} has {format_size(free)} free: "
                f"make room, or set {self._setting} to a folder on another disk"
            )

    def fetch(self, file: RemoteFile, source: FileSource) -> None:
        """Download a file unless it is there. Raises StartupError; what has come by then stays, unless it is wrong."""
        if self.has(file):
            return
        self._blobs.mkdir(parents=True, exist_ok=True)
        num_counted = self._num_present(file)
        with self._locked(file):
            if self.has(file):  # who held the lock was faster
                self._advance(file.size - num_counted)
                return
            was_begun = self._partial(file).exists() or self._scattered(file).exists()
            try:
                is_right = self._fill(file, source, num_counted)
                if not is_right and was_begun:  # it may have begun wrong
                    is_right = self._fill(file, source)
            except OSError as error:
                raise StartupError(f"{str(self._partial(file))!r} cannot be written: {error.strerror}") from None
            if not is_right:
                raise StartupError(f"what came of {file.path!r} has not the digest that the hub says: it was deleted")
            os.replace(self._partial(file), self.path(file))

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

    def _scattered(self, file: RemoteFile) -> Path:
        return self._blobs / f"{file.digest}.pieces.incomplete"

    def _num_present(self, file: RemoteFile) -> int:
        if self.has(file):
            return file.size
        if self._scattered(file).exists():
            return read_note(self._scattered(file), file)[1].num_bytes
        partial = self._partial(file)
        size = partial.stat().st_size if partial.exists() else 0
        return size if size <= file.size else 0  # one that is too long is thrown away

    def _fill(self, file: RemoteFile, source: FileSource, num_counted: int = 0) -> bool:
        """Whether the file is there and right, under the name of one filled in order; a wrong one is deleted."""
        is_large = file.is_lfs and file.size - num_counted >= parallel.large_bytes()
        if not self._scattered(file).exists() and not (is_large and source.comes_in_pieces(file)):
            return self._fill_in_order(file, source, num_counted)
        try:
            return self._fill_in_pieces(file, source, num_counted)
        except RangesRefused:
            num_counted = self._keep_beginning(file)
        except FileChanged:
            self._say(f"{file.path!r} has changed on the server: starting over")
            self._drop(self._scattered(file), file)
            num_counted = 0
        return self._fill_in_order(file, source, num_counted)

    def _fill_in_pieces(self, file: RemoteFile, source: FileSource, num_counted: int) -> bool:
        scattered, partial = self._scattered(file), self._partial(file)
        if partial.exists() and not scattered.exists():
            os.replace(partial, scattered)
        download = Parallel(scattered, file, source, self._advance)
        self._advance(download.num_present - num_counted)
        if not download.run():
            self._drop(scattered, file)
            return False
        os.replace(scattered, partial)
        return True

    def _keep_beginning(self, file: RemoteFile) -> int:
        """What came without a gap, for a server that can only go on from there; how many bytes that is."""
        scattered = self._scattered(file)
        spans = read_note(scattered, file)[1]
        os.truncate(scattered, spans.prefix)
        os.replace(scattered, self._partial(file))
        self._advance(spans.prefix - spans.num_bytes)
        return spans.prefix

    def _drop(self, path: Path, file: RemoteFile) -> None:
        self._advance(-self._num_present(file))
        path.unlink()

    def _fill_in_order(self, file: RemoteFile, source: FileSource, num_counted: int) -> bool:
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
                    with source.open(file, before) as body:
                        self._pour(body, partial)
                except ConnectionBroken as error:
                    num_failures = 1 if partial.num_bytes > before else num_failures + 1
                    if num_failures > MAX_FAILURES:
                        raise StartupError(
                            f"{file.path!r} does not come: {error}; the same command goes on from where it is"
                        ) from None
                    source.pause(num_failures - 1, error)
            is_right = partial.finish()
        if not is_right:
            self._drop(path, file)
        return is_right

    def _pour(self, body: Body, partial: Partial) -> None:
        if body.start != partial.num_bytes:
            self._advance(-partial.num_bytes)
            partial.restart()
        for chunk in body.chunks():
            partial.write(chunk)
            self._advance(len(chunk))
        if not partial.is_full:
            raise ConnectionBroken("the connection ended early")

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
