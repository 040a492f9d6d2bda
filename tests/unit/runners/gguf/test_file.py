"""GGUF files as the reference writer makes them, read by ours; and files that broke off."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter, dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.gguf.blocks import BITS, plain, quantised
from proxy_inference_engine.runners.gguf.file import LAYOUTS, read_gguf
from tests.tiny.gguf import write_gguf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.mark.parametrize("kind", LAYOUTS)
def test_facts_and_numbers_are_those_of_the_reference(folder: Path, kind: str) -> None:
    path = write_gguf(folder / f"{kind}.gguf", kind)
    ours, theirs = read_gguf(path), GGUFReader(path)
    fields = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert dict(ours.facts) == fields
    assert [tensor.name for tensor in ours.tensors] == [tensor.name for tensor in theirs.tensors]
    for own, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert own.kind == other.tensor_type.name
        assert np.array_equal(plain(ours, own), dequantize(other.data, other.tensor_type))


@pytest.mark.parametrize("kind", BITS)
def test_groups_are_what_mlx_computes_with(folder: Path, kind: str) -> None:
    file = read_gguf(write_gguf(folder / f"{kind}-groups.gguf", kind))
    for tensor in file.tensors:
        if tensor.kind in BITS:
            weight, *pair = (mx.array(part) for part in quantised(file, tensor))
            scales, biases = (part.astype(mx.float32) for part in pair)
            found = np.array(mx.dequantize(weight, scales, biases, group_size=32, bits=BITS[kind]))
            assert np.array_equal(found, plain(file, tensor))


def test_every_type_of_fact(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "facts.gguf", "llama")
    facts = {
        "uint8": 200, "int8": -100, "uint16": 60_000, "int16": -30_000, "uint32": 1 << 31, "int32": -(1 << 30),
        "uint64": 1 << 60, "int64": -(1 << 60), "float32": 0.5, "float64": 0.1, "bool": True, "string": "añ 日",
    }  # fmt: skip
    for kind, value in facts.items():
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    writer.add_array("x.words", ["a", "", "日本"])
    writer.add_array("x.lists", [[1, 2], [3]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(tmp_path / "facts.gguf").facts
    assert {key.removeprefix("x."): value for key, value in found.items() if key.startswith("x.")} == {
        **facts,
        "words": ["a", "", "日本"],
        "lists": [[1, 2], [3]],
    }


@settings(max_examples=60)
@given(share=st.floats(0, 0.999), noise=st.binary(max_size=8))
def test_a_file_that_broke_off_is_refused(folder: Path, share: float, noise: bytes) -> None:
    """Whatever is left of it, and whatever follows: a StartupError, now or when the tensors are read."""
    whole = write_gguf(folder / "whole.gguf") if not (folder / "whole.gguf").exists() else folder / "whole.gguf"
    data = whole.read_bytes()
    broken = folder / "broken.gguf"
    broken.write_bytes(data[: int(len(data) * share)] + noise)
    with pytest.raises(StartupError, match="is damaged"):
        file = read_gguf(broken)
        for tensor in file.tensors:
            plain(file, tensor)


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(StartupError, match=r"No such file|directory"):
        read_gguf(tmp_path / name)
