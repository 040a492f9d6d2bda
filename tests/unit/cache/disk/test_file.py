"""A file of the disk tier: what was written is read again to the byte, and nothing else is ever taken for it."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proxy_inference_engine.cache.disk.file import (
    Header,
    Piece,
    Stopped,
    file_bytes,
    read_header,
    read_pieces,
    write_file,
)
from proxy_inference_engine.runners.base import Packed

IDS = np.array([5, 6, 7, -2_000_000_000, 0, 49151], np.int32)
HEADER = Header("the model", "the tenant", IDS, 2, (Piece(3, 300), Piece(1, 70)))
DATA: list[Packed] = [np.arange(size, dtype=np.uint8) for size in (44, 70)]
DATA[0] = np.random.default_rng(1).integers(0, 256, 300).astype(np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_file(tmp_path / "file", HEADER, DATA, lambda: True)
    return tmp_path / "file"


def test_what_was_written_is_read(path: Path) -> None:
    assert read_header(path).is_same(HEADER)
    for found, written in zip(read_pieces(path, HEADER, 0, 2), DATA, strict=True):
        assert np.array_equal(found, written)


@pytest.mark.parametrize(("first", "stop"), [(0, 1), (1, 2), (0, 0)])
def test_some_pieces_are_read_alone(path: Path, first: int, stop: int) -> None:
    found = read_pieces(path, HEADER, first, stop)
    assert [piece.tobytes() for piece in found] == [piece.tobytes() for piece in DATA[first:stop]]


def test_its_size_is_known_before_and_only_its_owner_reads_it(path: Path) -> None:
    assert path.stat().st_size == file_bytes(HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_the_pieces_end() -> None:
    assert HEADER.ends == [5, 6] and HEADER.num_bytes == 370


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError):
            read_pieces(path, HEADER, 0, 2)


def test_a_file_of_any_other_length_is_noticed_by_its_header(path: Path) -> None:
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError):
            read_header(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="another length"):
        read_header(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: replace(header, model="another"),
        lambda header: replace(header, tenant="another"),
        lambda header: replace(header, ids=np.array([5, 6, 7, -1_999_999_999, 0, 49151], np.int32)),
        lambda header: replace(header, ids=IDS[1:], start=1),
        lambda header: replace(header, pieces=(Piece(2, 300), Piece(2, 70))),
    ],
)
def test_a_sound_file_that_is_another_is_refused(path: Path, change: Callable[[Header], Header]) -> None:
    with pytest.raises(ValueError, match="another file"):
        read_pieces(path, change(HEADER), 0, 1)


@pytest.mark.parametrize(
    "content",
    [b"", b"PIE-KV", b"PIE-KV\0\2" + bytes(100), b"PIE-KV\0\1" + b"\xff" * 100, b"PIE-KV\0\1\2\0\0\0[]", b"x" * 9000],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "strange").write_bytes(content)
    with pytest.raises(ValueError):
        read_header(tmp_path / "strange")


@pytest.mark.parametrize("num_looks", [0, 1, 2, 3, 4])
def test_it_stops_when_it_may_not_go_on(tmp_path: Path, num_looks: int) -> None:
    looks = iter([True] * num_looks)
    with pytest.raises(Stopped):
        write_file(tmp_path / "file", HEADER, DATA, lambda: next(looks, False))


def test_it_writes_over_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write_file(path, HEADER, DATA, lambda: True)
    assert path.read_bytes() == before and os.listdir(path.parent) == ["file"]
