"""`pie optimize` after the compiler: what is measured, kept and said, and what the start says of a library."""

import os
from pathlib import Path

import pytest

from proxy_inference_engine.cli.library import describe, faster
from proxy_inference_engine.cli.optimize import table
from proxy_inference_engine.runners.llama_cpp.library import Candidate, Library, candidates, start
from proxy_inference_engine.runners.llama_cpp.speed import Comparison, Speed, measure
from tests.model.gguf_files import write_llama

COMPARISON = Comparison(Speed(500.0, 100.0, 300.0), Speed(700.0, 110.0, 450.0), "2026-11-16")


def test_a_comparison_is_kept_beside_the_library(tmp_path: Path) -> None:
    native = tmp_path / "libllama.so"
    assert Comparison.read(native) is None
    COMPARISON.write(native)
    assert Comparison.read(native) == COMPARISON
    for damage in ("", "{}", "[]", '{"day": 1, "native": {"prompt": 1}, "prebuilt": {}}'):
        (tmp_path / "speed.json").write_text(damage)
        assert Comparison.read(native) is None


def test_the_table_has_both() -> None:
    assert table(COMPARISON).splitlines() == [
        "tokens a second             prebuilt  compiled",
        "a prompt of 500 tokens           500       700  1.40 times",
        "one stream                       100       110  1.10 times",
        "16 streams together              300       450  1.50 times",
    ]


def test_what_the_start_says(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    assert describe(Library("prebuilt", binding)) == "llama.cpp, prebuilt"
    assert describe(Library("named", binding)) == f"llama.cpp of {binding.path}"
    monkeypatch.setattr("proxy_inference_engine.cli.library.missing_features", lambda: ["avx512_vnni"])
    (line,) = faster(Library("prebuilt", binding), program=".venv/bin/pie", has_unused_gpu=False)
    assert line.startswith(".venv/bin/pie optimize   compiles llama.cpp for this processor")
    (line,) = faster(Library("native", binding), program="pie", has_unused_gpu=True)
    assert "docs/gpu.md" in line
    assert faster(Library("native", binding), program="pie", has_unused_gpu=False) == []


def test_the_product_is_named_where_it_runs_or_could(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    monkeypatch.setattr("proxy_inference_engine.cli.library.missing_features", list)
    (line,) = faster(Library("native", binding), program="pie", has_unused_gpu=False)
    assert line.startswith("pie optimize   compiles our product (seconds)")
    product = start().product
    if product is None:
        return
    library = Library("prebuilt", binding, product)
    assert describe(library) == f"llama.cpp, prebuilt, with our product for prompts and crowds ({product.variants[0]})"
    assert f" {product.path.stem} " in library.version and library.version.endswith(product.variant)
    (line,) = faster(library, program="pie", has_unused_gpu=False)
    assert "compiles llama.cpp for this processor" in line


def test_what_cannot_be_compiled_here_is_not_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library("prebuilt", start().binding)
    monkeypatch.setattr("proxy_inference_engine.cli.library.missing_features", lambda: ["avx2"])
    (tmp_path / "apt-get").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    (line,) = faster(library, program="pie", has_unused_gpu=False)
    assert line == (
        "pie optimize   compiles llama.cpp for this processor (minutes), after sudo apt install build-essential"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no pip: as in what uv makes, and in our image
    assert faster(library, program="pie", has_unused_gpu=False) == []


def test_what_was_measured_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = start().binding
    monkeypatch.setattr(binding, "path", tmp_path / "libllama.so")
    assert describe(Library("native", binding)) == "llama.cpp, compiled for this processor"
    COMPARISON.write(binding.path)
    assert describe(Library("native", binding)).endswith(
        "prompts 1.4, one stream 1.1, 16 streams 1.5 times as fast as prebuilt (measured 2026-11-16)"
    )


@pytest.mark.parametrize("candidate", list(candidates()), ids=lambda candidate: candidate.origin)
def test_a_library_is_measured_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, candidate: Candidate
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("src", os.environ.get("PYTHONPATH", ""))))
    speed = measure(candidate, write_llama(tmp_path / "m.gguf"), 1)
    assert all(tokens > 0 for tokens in speed)


def test_one_that_cannot_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("src", os.environ.get("PYTHONPATH", ""))))
    (tmp_path / "libllama.so").write_text("no library")
    with pytest.raises(ValueError, match=r"libllama\.so"):
        measure(Candidate("native", tmp_path / "libllama.so"), write_llama(tmp_path / "m.gguf"), 1)
