"""The layout of the weights: converted once where that is faster, and otherwise left as they are."""

import os
from pathlib import Path

import llama_cpp
import pytest

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


def test_processes_that_convert_at_once_write_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[bytes] = []

    def fail(_source: bytes, target: bytes, _params: object) -> int:
        targets.append(target)
        Path(target.decode()).write_bytes(b"half of it")
        return 1

    monkeypatch.setattr(llama_cpp, "llama_model_quantize", fail)
    for pid in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        assert choose(resolve(None).path, tmp_path)[0] == resolve(None).path
    assert len(set(targets)) == 2
    assert list((tmp_path / "weights").iterdir()) == []
