"""llama.cpp compiled for this processor: what it needs, what it shows, what is said when it fails. pip is not run."""

import os
import re
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.cli import build
from proxy_inference_engine.errors import StartupError

BUILD_LOG = """\
  Building wheel for llama_cpp_python (pyproject.toml): started
  Running command Building wheel for llama_cpp_python (pyproject.toml)
  *** scikit-build-core 0.11.6 using CMake 4.1.2 (wheel)
  -- The C compiler identification is GNU 13.2.0
  [1/4] Building C object vendor/llama.cpp/ggml/src/CMakeFiles/ggml-base.dir/ggml.c.o
  [2/4] Building CXX object vendor/llama.cpp/src/CMakeFiles/llama.dir/llama.cpp.o
  [3/4] Linking CXX shared library bin/libllama.so
  [4/4] Building CXX object vendor/llama.cpp/tools/mtmd/CMakeFiles/mtmd.dir/mtmd.cpp.o
  [1/2] Re-checking globbed directories
  *** Installing project into wheel...
"""


@pytest.mark.parametrize(
    ("line", "percent"),
    [
        ("[12/193] Building CXX object a.o", 6),
        ("  [193/193] Linking CXX shared library x.so", 100),
        ("[ 42%] Building C object a.o", 42),
        ("[100%] Built target llama", 100),
        ("note: see [12/193] above", None),
        ("[0/0] nothing", None),
        ("  -- Found OpenMP: TRUE", None),
        ("", None),
    ],
)
def test_compile_percent(line: str, percent: int | None) -> None:
    assert build.compile_percent(line) == percent


def test_progress_never_goes_back_and_is_short_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = build.Progress("llama.cpp", is_terminal=False)
    for line in BUILD_LOG.splitlines():
        progress.update(build.compile_percent(line))
    progress.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["20", "50", "70", "100"]


def test_progress_prints_at_most_one_line_for_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    progress = build.Progress("llama.cpp", is_terminal=False)
    for number in range(1, 194):
        progress.update(build.compile_percent(f"[{number}/193] Building"))
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_progress_on_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = build.Progress("llama.cpp", is_terminal=True)
    for line in BUILD_LOG.splitlines():
        progress.update(build.compile_percent(line))
    text = capsys.readouterr().out
    assert "\n" not in text
    assert "[" + "#" * 30 + "] 100 %" in text


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A machine whose PATH has these programs and no others."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("names", [("gcc", "g++"), ("cc", "c++"), ("clang", "clang++")])
def test_any_compiler_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    programs(tmp_path, monkeypatch, *names)
    build.check_tools()


def test_the_compilers_of_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, "my-cc", "my-c++")
    monkeypatch.setenv("CC", "my-cc -m64")
    monkeypatch.setenv("CXX", "my-c++")
    build.check_tools()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("apt-get",), "no C and no C++ compiler found. Install it: sudo apt install build-essential"),
        (("dnf", "gcc"), "no C++ compiler found. Install it: sudo dnf install gcc gcc-c++"),
        (("xcode-select",), "no C and no C++ compiler found. Install it: xcode-select --install"),
    ],
)
def test_a_missing_compiler_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], expected: str
) -> None:
    programs(tmp_path, monkeypatch, *names)
    with pytest.raises(StartupError) as caught:
        build.check_tools()
    assert str(caught.value) == expected


def test_advice_without_a_known_package_manager_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch)
    assert "build-essential" in build.advice()
    assert "gcc-c++" in build.advice()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose pip prints a build log and writes down what it is asked for."""
    python = tmp_path / "python"
    (tmp_path / "build").write_text(BUILD_LOG)
    python.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncat "{tmp_path}/build"\nexit 0\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    return python


def test_it_says_how_long_it_takes_and_shows_progress(
    pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    build.compile_library(tmp_path / "log")
    shown = capsys.readouterr().out
    assert "Compiling llama.cpp for this machine: about 4 min, once" in shown
    assert re.findall(r"llama\.cpp (\d+) % after 0:0\d", shown) == ["20", "50", "70", "100"]
    assert BUILD_LOG in (tmp_path / "log").read_text()
    assert (tmp_path / "asked").read_text().endswith(f"-v --no-deps {build.PACKAGE}\n")


def test_what_was_compiled_for_something_else_is_compiled_again(
    pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    build.compile_library(tmp_path / "log")
    assert "--force-reinstall --no-cache-dir" in (tmp_path / "asked").read_text()


def test_a_failure_shows_the_end_of_the_log(pip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pip.write_text(pip.read_text().replace("exit 0", "echo error: no space; exit 1"))
    with pytest.raises(StartupError, match="could not be compiled; the whole log is in "):
        build.compile_library(tmp_path / "log")
    assert "  | error: no space" in capsys.readouterr().err
