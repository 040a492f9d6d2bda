"""The header of a GGUF file, read and written without a library. Knows nothing of what its words and numbers mean.

GGUF, version, number of tensors, number of entries; entries: key, kind, value; tensors: name, shape, kind, offset
padding up to the alignment; the tensors' data, each at its offset from here
"""

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_MAGIC = b"GGUF"
_VERSION = 3
_NUMBER, _STRING, _ARRAY = 4, 8, 9  # the format's numbers for an unsigned of 32 bits, a text and a list
_NUMBER_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by the same numbers
_MAX_ENTRIES = 100_000
_MAX_BYTES = 256 << 20  # the largest vocabularies take a tenth of it
_ALIGNMENT = "general.alignment"


class Entry(NamedTuple):
    """A key with its value as the file has it."""

    key: str
    kind: int
    value: bytes

    @classmethod
    def of(cls, key: str, value: str | int | float) -> "Entry":
        match value:
            case str():
                return cls(key, _STRING, _text(value))
            case int():
                return cls(key, _NUMBER, struct.pack("<I", value))
            case float():
                return cls(key, 6, struct.pack("<f", value))

    @property
    def word(self) -> str | None:
        return self.value[8:].decode(errors="replace") if self.kind == _STRING else None

    @property
    def number(self) -> int | None:
        """A whole number of any unsigned kind; None: it is none."""
        return int.from_bytes(self.value, "little") if self.kind in (0, 2, 4, 10) else None

    @property
    def length(self) -> int | None:
        """How many items a list has; None: it is none."""
        return int.from_bytes(self.value[4:12], "little") if self.kind == _ARRAY else None


class Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # the fastest first
    kind: int
    offset: int  # from where the data begins


class GgufHeader(NamedTuple):
    entries: list[Entry]
    tensors: list[Tensor]
    data_start: int

    def number(self, key: str) -> int | None:
        return next((entry.number for entry in self.entries if entry.key == key), None)

    def word(self, key: str) -> str | None:
        return next((entry.word for entry in self.entries if entry.key == key), None)

    def length(self, key: str) -> int | None:
        """How many a list has."""
        return next((entry.length for entry in self.entries if entry.key == key), None)

    @property
    def alignment(self) -> int:
        return self.number(_ALIGNMENT) or 32


def read_header(path: Path) -> GgufHeader:
    """Raises OSError, and ValueError for what is no such header."""
    with path.open("rb") as file, _mapped(file.fileno()) as data:
        reader = _Reader(data)
        entries = reader.entries()
        tensors = [reader.tensor() for _ in range(reader.num_tensors)]
        header = GgufHeader(entries, tensors, reader.position)
        return header._replace(data_start=aligned(reader.position, header.alignment))


def read_words(path: Path) -> dict[str, str]:
    """Every text value under its key. Raises OSError, and ValueError for what is no such header."""
    with path.open("rb") as file, _mapped(file.fileno()) as data:
        return {entry.key: entry.word for entry in _Reader(data).entries() if entry.word is not None}


def read_beginning(data: bytes) -> tuple[list[Entry], bool]:
    """The entries in the first bytes of a file, and whether these are all. Of a list that breaks off the length is
    known: `Entry.length`. Raises ValueError for what is no such header."""
    reader, entries = _Reader(data), []
    try:
        for _ in range(reader.num_entries):
            entries.append(reader.entry())
    except _BreaksOff as error:
        return entries + ([error.entry] if error.entry is not None else []), False
    return entries, True


def write_header(entries: Iterable[Entry], tensors: Iterable[Tensor], alignment: int = 32) -> bytes:
    """All that comes before the data, with the padding."""
    keys = [_text(entry.key) + struct.pack("<I", entry.kind) + entry.value for entry in entries]
    places = [
        _text(each.name) + struct.pack(f"<I{len(each.shape)}QIQ", len(each.shape), *each.shape, each.kind, each.offset)
        for each in tensors
    ]
    data = b"".join((_MAGIC, struct.pack("<IQQ", _VERSION, len(places), len(keys)), *keys, *places))
    return data.ljust(aligned(len(data), alignment), b"\0")


def aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


class _BreaksOff(ValueError):
    """The data ends before the header does."""

    entry: Entry | None = None  # what was being read, where its length is known

    def __init__(self) -> None:
        super().__init__("a header that breaks off")


class _Reader:
    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self.position = 0
        if self._take(4) != _MAGIC:
            raise ValueError("not a GGUF file")
        version, self.num_tensors, self.num_entries = self._numbers("<IQQ")
        if version not in (2, 3) or max(self.num_tensors, self.num_entries) > _MAX_ENTRIES:
            raise ValueError("not a GGUF header of a known version")

    def entries(self) -> list[Entry]:
        return [self.entry() for _ in range(self.num_entries)]

    def tensor(self) -> Tensor:
        name = self._word()
        (num_dimensions,) = self._numbers("<I")
        if num_dimensions > 8:
            raise ValueError(f"a tensor of {num_dimensions} dimensions")
        *shape, kind, offset = self._numbers(f"<{num_dimensions}QIQ")
        return Tensor(name, tuple(shape), kind, offset)

    def entry(self) -> Entry:
        key = self._word()
        (kind,) = self._numbers("<I")
        start = self.position
        try:
            self._skip(kind)
        except _BreaksOff as error:
            if kind == _ARRAY and len(self._data) >= start + 12:
                error.entry = Entry(key, kind, self._data[start : start + 12])
            raise
        return Entry(key, kind, self._data[start : self.position])

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._take(self._numbers("<Q")[0])
        elif kind == _ARRAY:
            kind, length = self._numbers("<IQ")
            if kind == _STRING:
                self._skip_words(length)
            else:
                self._take(self._size(kind) * length)
        else:
            self._take(self._size(kind))

    def _skip_words(self, count: int) -> None:
        """A vocabulary has a hundred thousand: no call of ours for each."""
        if count > _MAX_BYTES // 8:
            raise ValueError("a header that is too long")
        position, length = self.position, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                position += 8 + length(self._data, position)[0]
        except (struct.error, OverflowError):
            raise _BreaksOff from None
        self._take(position - self.position)

    def _size(self, kind: int) -> int:
        if kind not in _NUMBER_BYTES:
            raise ValueError(f"a value of the unknown type {kind}")
        return _NUMBER_BYTES[kind]

    def _word(self) -> str:
        return self._take(self._numbers("<Q")[0]).decode(errors="replace")

    def _numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, num_bytes: int) -> bytes:
        start, self.position = self.position, self.position + num_bytes
        if self.position > _MAX_BYTES:
            raise ValueError("a header that is too long")
        data = self._data[start : self.position]
        if len(data) != num_bytes:
            raise _BreaksOff
        return data


def _mapped(file: int) -> mmap.mmap:
    try:
        return mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    except ValueError:  # of no bytes
        raise ValueError("not a GGUF file") from None


def _text(word: str) -> bytes:
    data = word.encode()
    return struct.pack("<Q", len(data)) + data
