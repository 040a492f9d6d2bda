"""The header of a GGUF file: its words are found among numbers and lists, and damage is named."""

from pathlib import Path

import pytest
from gguf import GGUFWriter

from proxy_inference_engine.runners.llama_cpp.header import read_words


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.gguf"
    writer = GGUFWriter(path, "clip")
    writer.add_uint8("a.byte", 1)
    writer.add_bool("a.flag", True)
    writer.add_float64("a.number", 0.5)
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.texts", ["one", "two"])
    writer.add_string("a.last", "größer")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_words(path: Path) -> None:
    assert read_words(path) == {"general.architecture": "clip", "a.last": "größer"}


def test_every_cut_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    end = data.index("größer".encode()) + len("größer".encode())
    for size in range(end):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"GGUF|breaks off"):
            read_words(path)
    path.write_bytes(data[:end])
    assert read_words(path)["a.last"] == "größer"


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"GGML", "not a GGUF file"),
        (4, b"\x09\0\0\0", "known version"),
        (16, b"\xff" * 8, "known version"),
        (24, b"\xff" * 8, "too long"),
        (24 + 8 + len("general.architecture"), b"\x63\0\0\0", "unknown type 99"),
    ],
)
def test_what_cannot_be_is_refused(path: Path, offset: int, value: bytes, reason: str) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        read_words(path)
