"""Which llama.cpp is used: the first that proves itself. Any other is a line in the log, never an answer."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp import binding as binding_module
from proxy_inference_engine.runners.llama_cpp import library, self_test
from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.library import Candidate, candidates, load, start
from proxy_inference_engine.runners.llama_cpp.processor import _FLAGS, missing_features
from tests.unit.runners.llama_cpp.false_library import compile_library, default_bytes

SOURCE = Path(binding_module.__file__).parent
MODEL, CONTEXT = "llama_model_default_params", "llama_context_default_params"
IMAGES = "mtmd_context_params_default"


@pytest.mark.parametrize("candidate", list(candidates()), ids=lambda candidate: candidate.origin)
def test_every_library_that_is_installed_proves_itself(candidate: Candidate) -> None:
    found = load(candidate)
    assert found.origin == candidate.origin and found.binding.path == candidate.path
    assert found.binding.takes_images and re.match(r"\d+\.\d+", found.version)


def test_the_native_one_comes_before_the_prebuilt_one() -> None:
    origins = [candidate.origin for candidate in candidates()]
    assert origins and origins == sorted(origins)
    assert start().origin == origins[0]
    named = Path("/some/libllama.so")
    assert next(candidates(named)) == Candidate("named", named)


def test_where_both_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    paths = [tmp_path / "llama_cpp" / "lib" / f"libllama{suffix}", tmp_path / "xllamacpp" / f"xllamacpp.abi3{suffix}"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    for package in ("llama_cpp", "xllamacpp"):
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert list(candidates()) == [Candidate("native", paths[0]), Candidate("prebuilt", paths[1])]


@pytest.mark.parametrize(
    ("function", "change", "reason"),
    [
        (CONTEXT, lambda data: data[:16] + bytes(4) + data[16:-4], "llama_context_params has n_rs_seq|n_outputs_max"),
        (CONTEXT, lambda data: data + bytes(8), "llama_context_params has more than 160 bytes: 168"),
        (CONTEXT, lambda data: data[:-8], "llama_context_params has fewer than 160 bytes"),
        (CONTEXT, lambda data: bytes(4) + data[4:], "llama_context_params has n_ctx 0, not 512"),
        (MODEL, lambda data: data[:16] + bytes(8) + data[16:-8], "llama_model_params has n_gpu_layers 0, not -1"),
        (MODEL, lambda data: data + bytes(8), r"llama_model_params has more than \d+ bytes"),
        (IMAGES, lambda data: data[:24] + bytes(8) + data[24:-8], "mtmd_context_params has media_marker None, not b"),
        (IMAGES, lambda data: data + bytes(8), r"mtmd_context_params has more than \d+ bytes"),
        (MODEL, lambda data: data, "it cannot load a model"),
    ],
    ids=[
        *("shifted", "longer", "shorter", "another default", "shifted model", "longer model"),
        *("shifted images", "longer images", "right, but empty"),
    ],
)
def test_a_library_of_another_version_is_refused(tmp_path: Path, function: str, change: object, reason: str) -> None:
    assert callable(change)
    path = compile_library(tmp_path / "libfalse.so", **{function: change(default_bytes(function))})
    with pytest.raises(ValueError, match=reason):
        load(Candidate("named", path))


def test_of_another_version_it_is_one_line_and_the_next_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = compile_library(tmp_path / "libfalse.so", llama_context_default_params=bytes(4) + default_bytes(CONTEXT)[4:])
    with caplog.at_level(logging.WARNING):
        assert start(path) == start()
    (line,) = caplog.messages
    assert line.startswith(f"named llama.cpp {path} is not used: it is another version") and "\n" not in line


def test_one_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "_NEXT", 6)
    with pytest.raises(ValueError, match="it computes"):
        load(Candidate("named", start().binding.path))


def test_a_library_without_a_function_is_refused(tmp_path: Path) -> None:
    path = compile_library(tmp_path / "libfalse.so", without="llama_decode")
    with pytest.raises(OSError, match="it has no function llama_decode"):
        load(Candidate("named", path))


@pytest.mark.parametrize("text", [None, "no library"])
def test_what_is_no_library_is_one_line_and_the_next_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    path = tmp_path / "libllama.so"
    if text is not None:
        path.write_text(text)
    with caplog.at_level(logging.WARNING):
        found = start(path)
    assert found == start()
    (line,) = caplog.messages
    assert line.startswith(f"named llama.cpp {path} is not used: ") and "\n" not in line


def test_without_any_the_start_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "_PLACES", ())
    with pytest.raises(StartupError, match="make install"):
        start(tmp_path / "missing.so")


def test_what_a_missing_part_is_called_where() -> None:
    assert "apt install libgomp1" in library._advice("libgomp.so.1: cannot open shared object file")


def test_a_processor_that_lacks_something_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, binding = tmp_path / "cpuinfo", start().binding
    assert missing_features(binding, path) == []  # not told
    if missing_features(binding):
        pytest.fail("this processor runs a library that is not for it")
    path.write_text("processor : 0\nflags\t\t: fpu sse2\n")
    has_avx2 = binding.find("ggml_cpu_has_avx2")
    uses_avx2 = bool(has_avx2 is not None and has_avx2())
    assert ("avx2" in missing_features(binding, path)) == uses_avx2
    if uses_avx2:
        monkeypatch.setattr(library, "missing_features", lambda binding: missing_features(binding, path))
        with pytest.raises(ValueError, match=r"this processor lacks .*avx2"):
            load(Candidate("named", binding.path))


def test_every_extension_is_asked_for_by_its_name() -> None:
    assert all(start().binding.find(f"ggml_cpu_has_{name}") is not None for name in _FLAGS)


def test_one_that_was_compiled_for_more_than_the_processor_has(tmp_path: Path) -> None:
    """In the names that each of them uses: an environment that moved to an older machine."""
    binding = Binding(compile_library(tmp_path / "libfalse.so", uses=("avx512", "amx_int8")))
    path = tmp_path / "cpuinfo"
    path.write_text("flags : fpu avx2 avx512f amx_tile\n")
    assert missing_features(binding, path) == ["amx_int8"]
    path.write_text("flags : fpu avx2 avx512f amx_tile amx_int8\n")
    assert missing_features(binding, path) == []


def test_its_python_part_is_not_run() -> None:
    code = (
        "import sys; from proxy_inference_engine.runners.llama_cpp.library import candidates, load; "
        "[load(each) for each in candidates()]; assert not {'llama_cpp', 'xllamacpp'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCE.parents[2])})


def test_every_function_that_is_called_is_declared() -> None:
    """They are attributes that no type checker knows."""
    calls = re.compile(r"\b(?:llama|_llama|binding)\.((?:llama|ggml|mtmd)_\w+)\(")
    used = {name for path in SOURCE.rglob("*.py") for name in calls.findall(path.read_text())}
    declared = binding_module.FUNCTIONS.keys() | binding_module.IMAGE_FUNCTIONS.keys()
    assert used == declared
