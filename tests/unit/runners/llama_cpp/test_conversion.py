"""A file written anew: slow tensors as Q8_0, the others and all words as they were; damage is named."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from proxy_inference_engine.runners.llama_cpp import conversion
from proxy_inference_engine.runners.llama_cpp.conversion import convert
from proxy_inference_engine.runners.llama_cpp.header import read_header

KINDS = {
    "a": GGMLQuantizationType.Q4_1,
    "b": GGMLQuantizationType.F32,
    "c": GGMLQuantizationType.Q5_0,
    "d": GGMLQuantizationType.F16,
    "e": GGMLQuantizationType.Q5_1,
    "f": GGMLQuantizationType.Q8_0,
}


def write(path: Path, alignment: int | None = None) -> Path:
    writer = GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_file_type(3)
    writer.add_array("tokenizer.ggml.tokens", ["one", "größer", ""])
    random = np.random.default_rng(1)
    for name, kind in KINDS.items():
        numbers = random.normal(0, 1, (5, 96)).astype(np.float32)
        data = numbers if kind == GGMLQuantizationType.F32 else gguf.quantize(numbers, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("alignment", [None, 64])
@pytest.mark.parametrize("threads", [1, 3])
def test_slow_tensors_are_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alignment: int | None, threads: int
) -> None:
    monkeypatch.setattr(conversion, "_PIECE_BLOCKS", 4)  # several pieces, the last one shorter
    path, target = write(tmp_path / "a.gguf", alignment), tmp_path / "b.gguf"
    shares: list[float] = []
    convert(path, target, threads=threads, on_progress=shares.append)
    old, new = GGUFReader(path), GGUFReader(target)
    assert [tensor.name for tensor in new.tensors] == list(KINDS)
    for before, after in zip(old.tensors, new.tensors, strict=True):
        assert tuple(after.shape) == tuple(before.shape)
        if before.tensor_type.name not in ("Q4_1", "Q5_0", "Q5_1"):
            assert after.tensor_type == before.tensor_type and np.array_equal(after.data, before.data)
            continue
        weights = gguf.dequantize(before.data, before.tensor_type)
        assert after.tensor_type == GGMLQuantizationType.Q8_0
        assert np.array_equal(after.data, gguf.quantize(weights, GGMLQuantizationType.Q8_0))
    words = [{entry.key: entry.value for entry in read_header(each).entries} for each in (path, target)]
    assert words[1].pop("general.file_type") == b"\x07\0\0\0" and words[0].pop("general.file_type")
    assert words[0] == words[1]
    assert shares == sorted(shares) and shares[-1] == 1


def test_a_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf")
    whole = path.read_bytes()
    for size in (len(whole) - 5 * 96 * 2, read_header(path).data_start, 100, 0):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"breaks off|not a GGUF"):
            convert(path, tmp_path / "b.gguf", threads=1)
