"""One file of the disk tier: a header that says whose KV it is and for which tokens, then the KV piece by piece.

    magic and version, length of the facts, facts (JSON), token ids, digest of all this; then the pieces

What is not exactly so is refused with ValueError. Knows no folder and nothing of what a piece means.
"""

import json
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np

from proxy_inference_engine.runners.base import Packed, TokenIds

_MAGIC = b"PIE-KV\x00\x01"  # the last byte is the version
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 16
_MAX_FACTS = 4 << 20
_CHUNK = 8 << 20


class Stopped(Exception):
    """There was no more time for the file."""


@dataclass(frozen=True, slots=True)
class Piece:
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A text from its first token on, and the KV of its last part: `pieces` follow each other from `start` to its end.

    `model` and `tenant` are digests: only for them the KV is valid.
    """

    model: str
    tenant: str
    ids: TokenIds
    start: int
    pieces: tuple[Piece, ...]

    @property
    def num_bytes(self) -> int:
        return sum(piece.num_bytes for piece in self.pieces)

    @property
    def ends(self) -> list[int]:
        """How long the text is after each piece."""
        return list(accumulate((piece.num_tokens for piece in self.pieces), initial=self.start))[1:]

    def is_same(self, other: "Header") -> bool:
        facts, others = (
            (each.model, each.tenant, each.start, each.pieces, each.ids.tobytes()) for each in (self, other)
        )
        return facts == others


def write_file(path: Path, header: Header, data: Sequence[Packed], may_go_on: Callable[[], bool]) -> None:
    """Write a new file that only its owner can read. Raises OSError, and Stopped when it may not go on."""
    digests = []
    for piece in data:
        if not may_go_on():
            raise Stopped
        digests.append(_digest(piece))
    head = _encode(header, digests)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb", buffering=0) as file:
        for part in (memoryview(head), *(piece.data for piece in data)):
            start = 0
            while start < len(part):
                if not may_go_on():
                    raise Stopped
                start += file.write(part[start : start + _CHUNK])


def file_bytes(header: Header) -> int:
    """How large the file is going to be."""
    return len(_encode(header, [""] * len(header.pieces))) + 2 * _DIGEST_BYTES * len(header.pieces) + header.num_bytes


def read_header(path: Path) -> Header:
    """What a file says of itself. Raises OSError and ValueError."""
    with path.open("rb", buffering=0) as file:
        return _read_head(file)[0]


def read_pieces(path: Path, wanted: Header, first: int, stop: int) -> list[Packed]:
    """Pieces `first` to `stop` of a file that has to have the `wanted` header. Raises OSError and ValueError."""
    with path.open("rb", buffering=0) as file:
        header, digests = _read_head(file)
        if not header.is_same(wanted):
            raise ValueError("another file than the one that was wanted")
        file.seek(sum(piece.num_bytes for piece in header.pieces[:first]), os.SEEK_CUR)
        found = []
        for piece, digest in zip(header.pieces[first:stop], digests[first:stop], strict=True):
            data = np.empty(piece.num_bytes, np.uint8)
            _fill(file, data)
            if _digest(data) != digest:
                raise ValueError("damaged KV")
            found.append(data)
        return found


def _encode(header: Header, digests: list[str]) -> bytes:
    facts = {
        "model": header.model,
        "tenant": header.tenant,
        "start": header.start,
        "num_ids": len(header.ids),
        "pieces": [[p.num_tokens, p.num_bytes, digest] for p, digest in zip(header.pieces, digests, strict=True)],
    }
    encoded = json.dumps(facts, separators=(",", ":")).encode()
    head = _MAGIC + _LENGTH.pack(len(encoded)) + encoded + header.ids.astype("<i4").tobytes()
    return head + blake2b(head, digest_size=_DIGEST_BYTES).digest()


def _read_head(file: BinaryIO) -> tuple[Header, list[str]]:
    """The header and the digest of each piece; the file then stands before the first piece."""
    size = os.fstat(file.fileno()).st_size
    head = _take(file, len(_MAGIC) + _LENGTH.size, size)
    if not head.startswith(_MAGIC):
        raise ValueError("not a file of this version")
    num_facts = _LENGTH.unpack(head[len(_MAGIC) :])[0]
    encoded = _take(file, num_facts, min(size, _MAX_FACTS))
    try:
        facts = json.loads(encoded)
        num_ids = int(facts["num_ids"])
        ids = _take(file, 4 * num_ids, size)
        if _take(file, _DIGEST_BYTES, size) != blake2b(head + encoded + ids, digest_size=_DIGEST_BYTES).digest():
            raise ValueError("a damaged header")
        pieces = tuple(Piece(int(num_tokens), int(num_bytes)) for num_tokens, num_bytes, _ in facts["pieces"])
        digests = [str(digest) for _, _, digest in facts["pieces"]]
        header = Header(facts["model"], facts["tenant"], np.frombuffer(ids, "<i4"), int(facts["start"]), pieces)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("a header that makes no sense") from error
    is_sound = header.start >= 0 and all(piece.num_tokens > 0 < piece.num_bytes for piece in pieces)
    if not is_sound or file.tell() + header.num_bytes != size or not pieces or header.ends[-1] != num_ids:
        raise ValueError("a file of another length than it says")
    return header, digests


def _take(file: BinaryIO, num_bytes: int, most: int) -> bytes:
    if not 0 <= num_bytes <= most:
        raise ValueError("a length that cannot be")
    data = np.empty(num_bytes, np.uint8)
    _fill(file, data)
    return data.tobytes()


def _fill(file: BinaryIO, data: Packed) -> None:
    view = data.data
    while len(view):
        num_read = file.readinto(view[:_CHUNK])  # type: ignore[attr-defined]  # a raw file has it
        if not num_read:
            raise ValueError("a file that breaks off")
        view = view[num_read:]


def _digest(data: Packed) -> str:
    return blake2b(data.data, digest_size=_DIGEST_BYTES).hexdigest()
