"""A file that is being filled from its beginning, and the digest of what is in it. Knows no network."""

import hashlib
import os
from typing import BinaryIO

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile

_READ_BYTES = 1 << 20


class Partial:
    """Open for reading and appending. The digest always is that of the bytes up to `num_bytes`."""

    def __init__(self, file: RemoteFile, target: BinaryIO) -> None:
        self._file = file
        self._target = target
        self._digest = _new_digest(file)

    @property
    def num_bytes(self) -> int:
        return self._target.tell()

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= self._file.size

    def reread(self) -> None:
        """Take over what an earlier run has left, unless it is too long."""
        if self._target.seek(0, os.SEEK_END) > self._file.size:
            self.restart()
        self._target.seek(0)
        while chunk := self._target.read(_READ_BYTES):
            self._digest.update(chunk)

    def restart(self) -> None:
        self._target.seek(0)
        self._target.truncate()
        self._digest = _new_digest(self._file)

    def write(self, chunk: bytes) -> None:
        """Append bytes. Raises StartupError for more than the file should have, and OSError."""
        if self.num_bytes + len(chunk) > self._file.size:
            raise StartupError(f"{self._file.path!r} does not end after the {self._file.size} bytes that the hub says")
        self._target.write(chunk)
        self._digest.update(chunk)

    def finish(self) -> bool:
        """Whether what is on the disk is the file. The digest is of what came here: where locks do nothing, another
        writer shows in the length."""
        self._target.flush()
        os.fsync(self._target.fileno())
        size = os.fstat(self._target.fileno()).st_size
        return self._digest.hexdigest() == self._file.digest and size == self._file.size


def _new_digest(file: RemoteFile) -> "hashlib._Hash":
    if file.is_lfs:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)  # as git names its files
