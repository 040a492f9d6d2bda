"""The layout of the weights: converted once where that is faster, and otherwise left as they are."""

from pathlib import Path

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
