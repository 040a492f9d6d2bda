"""The layout of the weights: converted once where that is faster, and otherwise left as they are."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights
from tests.model.gguf_files import write_llama

pytestmark = pytest.mark.model


def choose(path: Path, cache_dir: Path) -> tuple[Path, list[str]]:
    told: list[str] = []
    return fastest_weights(path, cache_dir=cache_dir, threads=2, report=told.append), told


def file_type(path: Path) -> str | None:
    model = Model(path, vocab_only=True)
    try:
        return model.metadata("general.file_type")
    finally:
        model.close()


def test_the_bundled_model_is_converted_once(weights: Path) -> None:
    bundled = resolve(None).path
    assert weights != bundled and (file_type(bundled), file_type(weights)) == ("3", "7")  # Q4_1, Q8_0
    before = weights.stat().st_mtime_ns
    assert choose(bundled, weights.parent.parent) == (weights, [])
    assert weights.stat().st_mtime_ns == before


def test_what_is_fast_already_stays(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf")
    assert choose(path, tmp_path / "cache") == (path, [])
    assert not (tmp_path / "cache").exists()


def test_where_nothing_can_be_written_the_weights_stay(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    chosen, told = choose(resolve(None).path, tmp_path / "cache")
    assert chosen == resolve(None).path and len(told) == 1


def test_processes_that_convert_at_once_write_files_of_their_own(weights: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from proxy_inference_engine.models.resolve import resolve; "
        "from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights; "
        "fastest_weights(resolve(None).path, cache_dir=pathlib.Path(sys.argv[1]), threads=1, report=print)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    running = [subprocess.Popen([sys.executable, "-c", code, tmp_path], env=environment) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    (written,) = (tmp_path / "weights").iterdir()
    assert written.name == weights.name and written.read_bytes() == weights.read_bytes()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, before[1]))
    try:
        chosen, told = choose(resolve(None).path, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert chosen == resolve(None).path and len(told) == 1
    assert list((tmp_path / "weights").iterdir()) == []


def test_it_is_what_the_quantiser_of_llama_cpp_writes(weights: Path, tmp_path: Path) -> None:
    """The prebuilt library has no quantiser; llama-cpp-python's has."""
    package = pytest.importorskip("llama_cpp")
    params = package.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.allow_requantize = 7, 2, True
    path = tmp_path / "theirs.gguf"
    assert package.llama_model_quantize(str(resolve(None).path).encode(), str(path).encode(), params) == 0
    ours, theirs = ({tensor.name: tensor for tensor in GGUFReader(each).tensors} for each in (weights, path))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.tensor_type == theirs[name].tensor_type and tuple(tensor.shape) == tuple(theirs[name].shape)
        assert np.array_equal(tensor.data, theirs[name].data), name
