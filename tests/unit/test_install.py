"""The installer's decisions: what it needs, what it shows, when it has nothing to do. pip itself is not run."""

import importlib.util
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = load()

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
    assert install.compile_percent(line) == percent


def test_progress_never_goes_back_and_is_short_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = install.Progress("llama.cpp", is_terminal=False)
    for line in BUILD_LOG.splitlines():
        progress.update(install.compile_percent(line))
    progress.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["20", "50", "70", "100"]


def test_progress_prints_at_most_one_line_for_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    progress = install.Progress("llama.cpp", is_terminal=False)
    for number in range(1, 194):
        progress.update(install.compile_percent(f"[{number}/193] Building"))
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_progress_on_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = install.Progress("llama.cpp", is_terminal=True)
    for line in BUILD_LOG.splitlines():
        progress.update(install.compile_percent(line))
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
    install.check_compiler()


def test_the_compilers_of_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, "my-cc", "my-c++")
    monkeypatch.setenv("CC", "my-cc -m64")
    monkeypatch.setenv("CXX", "my-c++")
    install.check_compiler()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("apt-get",), "No C and no C++ compiler found. Install it: sudo apt install build-essential"),
        (("dnf", "gcc"), "No C++ compiler found. Install it: sudo dnf install gcc gcc-c++"),
        (("xcode-select",), "No C and no C++ compiler found. Install it: xcode-select --install"),
    ],
)
def test_a_missing_compiler_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], expected: str
) -> None:
    programs(tmp_path, monkeypatch, *names)
    with pytest.raises(install.InstallError) as caught:
        install.check_compiler()
    assert str(caught.value) == expected


def test_advice_without_a_known_package_manager_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch)
    assert "build-essential" in install.advice("compiler")
    assert "gcc-c++" in install.advice("compiler")


def project(root: Path) -> Path:
    """A tree whose .venv is this Python, with a pip that writes down what it is asked for."""
    root.mkdir()
    for name, text in (
        ("requirements.txt", "numpy==1.0\nllama_cpp_python==0.3\n"),
        ("requirements-dev.txt", "pytest==1\n"),
        ("requirements-mlx.txt", "mlx==1\n"),
        ("pyproject.toml", ""),
    ):
        (root / name).write_text(text)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (root / ".venv" / "lib" / version / "site-packages" / "pip").mkdir(parents=True)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f"""#!/bin/sh
if [ "$1" = -m ]; then echo "$@" >> "{root}/asked"; exit $(cat "{root}/code" 2>/dev/null || echo 0); fi
exec "{sys.executable}" "$@"
"""
    )
    python.chmod(0o755)
    return root


def asked(root: Path) -> list[str]:
    """What pip was asked to install, and then forget it."""
    path = root / "asked"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.partition("--no-input ")[2] for line in lines]


def test_the_second_run_does_nothing(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    assert install.Installer(root, is_dev=False).run()
    steps = asked(root)
    assert "-v --no-deps llama_cpp_python==0.3" in steps
    assert f"--no-deps {install.BUNDLED_MODEL}" in steps
    assert f"--no-deps --editable {root}" in steps
    assert not any("requirements-dev" in step for step in steps)
    assert not install.Installer(root, is_dev=False).run()
    assert asked(root) == []


def test_the_tests_install_more_and_leave_nothing_for_serve(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    assert install.Installer(root, is_dev=True).run()
    assert any("requirements-dev.txt" in step for step in asked(root))
    assert not install.Installer(root, is_dev=False).run()
    (root / "requirements-dev.txt").write_text("pytest==2\n")
    assert not install.Installer(root, is_dev=False).run()
    assert install.Installer(root, is_dev=True).run()


def test_the_slow_step_says_how_long_it_takes_and_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "project")
    (root / "build").write_text(BUILD_LOG)
    python = root / ".venv" / "bin" / "python"
    python.write_text(python.read_text().replace("exit $(", f'cat "{root}/build"; exit $('))
    monkeypatch.setattr(install.os, "cpu_count", lambda: 2)
    install.Installer(root, is_dev=False).run()
    shown = capsys.readouterr().out
    assert "Compiling llama.cpp for this machine: about 4 min, once" in shown
    assert re.findall(r"llama\.cpp (\d+) % after 0:0\d", shown) == ["20", "50", "70", "100"]
    assert BUILD_LOG in (root / ".venv" / "install.log").read_text()


def test_an_old_python_looks_for_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on as that one, with the same arguments; where there is none, one message says what is needed."""
    started: list[list[str]] = []
    monkeypatch.setattr(install.os, "execv", lambda path, words: started.append([path, *words[1:]]))
    monkeypatch.setattr(install.sys, "argv", ["install.py", "--dev"])
    install.check_python()
    assert started == []  # this one is new enough
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 12))
    programs(tmp_path / "none", monkeypatch)
    with pytest.raises(install.InstallError, match=r"Python 3\.11 or newer is needed; .* is 3\.10\."):
        install.check_python()
    programs(tmp_path / "bin", monkeypatch, "python3.12", "python3.9")
    with pytest.raises(install.InstallError):  # only because nothing replaces this test's own process
        install.check_python()
    assert started == [[str(tmp_path / "bin" / "python3.12"), "install.py", "--dev"]]


def machine(monkeypatch: pytest.MonkeyPatch, system: str, processor: str) -> None:
    monkeypatch.setattr(install.sys, "platform", system)
    monkeypatch.setattr(install.platform, "machine", lambda: processor)


@pytest.mark.parametrize(
    ("system", "processor", "is_dev", "expected"),
    [
        ("darwin", "arm64", False, True),
        ("darwin", "arm64", True, True),
        ("darwin", "x86_64", True, False),
        ("linux", "x86_64", False, False),
        ("linux", "x86_64", True, True),
        ("linux", "aarch64", True, True),
        ("freebsd14", "amd64", True, False),
    ],
)
def test_who_gets_mlx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, processor: str, is_dev: bool, expected: bool
) -> None:
    root = project(tmp_path / "project")
    machine(monkeypatch, system, processor)
    install.Installer(root, is_dev=is_dev).run()
    steps = asked(root)
    assert any("requirements-mlx.txt" in step for step in steps) == expected
    assert (f"--no-deps {install.VISION}" in steps) == expected
    with (root / "requirements-mlx.txt").open("a") as file:
        file.write("# changed\n")
    assert install.Installer(root, is_dev=is_dev).run() == expected


def test_the_versions_are_the_same_in_every_file() -> None:
    """A package that two files pin is pinned alike, and what pyproject.toml pins exactly is what is installed."""
    root = SCRIPT.parents[1]
    pins: dict[str, set[str]] = {}
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-mlx.txt"):
        for line in (root / name).read_text().splitlines():
            if line and not line.startswith("#"):
                package, _, version = line.partition(";")[0].strip().partition("==")
                assert version, line
                pins.setdefault(canonical(package), set()).add(version)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for each in (*wanted, install.VISION):
        package, _, version = each.partition(";")[0].partition("==")
        if version:
            pins.setdefault(canonical(package), set()).add(version.strip())
    assert {package: found for package, found in pins.items() if len(found) > 1} == {}
    assert {"mlx", "mlx-lm", "mlx-vlm", "llama-cpp-python"} <= pins.keys()


def canonical(package: str) -> str:
    return package.lower().replace("_", "-")


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_a_changed_file_installs_again(tmp_path: Path, name: str) -> None:
    root = project(tmp_path / "project")
    install.Installer(root, is_dev=False).run()
    with (root / name).open("a") as file:
        file.write("# changed\n")
    assert install.Installer(root, is_dev=False).run()


def test_a_moved_tree_installs_again(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    install.Installer(root, is_dev=False).run()
    moved = root.rename(tmp_path / "moved")
    (moved / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec "{sys.executable}" "$@"\n')
    assert install.Installer(moved, is_dev=False).run()


def test_what_is_compiled_is_not_compiled_again(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    next(root.glob(".venv/lib/python*/site-packages")).joinpath("llama_cpp_python-0.3.dist-info").mkdir()
    install.Installer(root, is_dev=False).run()
    assert not any("llama_cpp_python" in step for step in asked(root))


def test_a_missing_compiler_is_noticed_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path / "project")
    programs(tmp_path / "bin", monkeypatch, "apt-get")
    os.symlink("/bin/cat", tmp_path / "bin" / "cat")
    with pytest.raises(install.InstallError, match="build-essential"):
        install.Installer(root, is_dev=False).run()
    assert asked(root) == []


def test_a_failure_shows_the_log_and_is_tried_again(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    (root / "code").write_text("1")
    with pytest.raises(install.InstallError, match=r"\.venv/install\.log"):
        install.Installer(root, is_dev=False).run()
    (root / "code").unlink()
    assert install.Installer(root, is_dev=False).run()
