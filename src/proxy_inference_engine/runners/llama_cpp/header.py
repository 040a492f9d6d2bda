"""The words in the header of a GGUF file, read without loading the file. Knows nothing of what they mean."""

import struct
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by the format's type numbers
_MAX_ENTRIES = 100_000
_MAX_BYTES = 64 << 20


def read_words(path: Path) -> dict[str, str]:
    """Every text value under its key. Raises OSError, and ValueError for what is no such header."""
    with path.open("rb") as file:
        return _Reader(file).words()


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _MAX_BYTES

    def words(self) -> dict[str, str]:
        if self._take(4) != _MAGIC:
            raise ValueError("not a GGUF file")
        version, _, num_entries = struct.unpack("<IQQ", self._take(20))
        if version not in (2, 3) or num_entries > _MAX_ENTRIES:
            raise ValueError("not a GGUF header of a known version")
        found = {}
        for _ in range(num_entries):
            key = self._text()
            kind = self._number("<I")
            if kind == _STRING:
                found[key] = self._text()
            else:
                self._skip(kind)
        return found

    def _skip(self, kind: int) -> None:
        if kind != _ARRAY:
            self._take(self._size(kind))
            return
        kind, length = struct.unpack("<IQ", self._take(12))
        if kind == _STRING:
            for _ in range(length):
                self._text()
        else:
            self._take(self._size(kind) * length)

    def _size(self, kind: int) -> int:
        if kind not in _NUMBER_BYTES:
            raise ValueError(f"a value of the unknown type {kind}")
        return _NUMBER_BYTES[kind]

    def _text(self) -> str:
        return self._take(self._number("<Q")).decode(errors="replace")

    def _number(self, layout: str) -> int:
        return int(struct.unpack(layout, self._take(struct.calcsize(layout)))[0])

    def _take(self, num_bytes: int) -> bytes:
        self._left -= num_bytes
        if self._left < 0:
            raise ValueError("a header that is too long")
        data = self._file.read(num_bytes)
        if len(data) != num_bytes:
            raise ValueError("a header that breaks off")
        return data
