"""The installer's decisions: what it needs, what it shows, when it has nothing to do. pip itself is not run."""

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from proxy_inference_engine.cli import build
from tests.terminal import environment, terminal

SCRIPT = Path(__file__).parents[3] / "scripts" / "install.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = load()


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A machine whose PATH has these programs and no others."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def project(root: Path) -> Path:
    """A tree whose .venv is this Python, with a pip that writes down what it is asked for."""
    root.mkdir()
    for name, text in (
        ("requirements.txt", "numpy==1.0\nxllamacpp==2; sys_platform == 'linux'\n"),
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
if [ "$1" = -m ]; then
  echo "$@" >> "{root}/asked"
  cat "{root}/said" 2>/dev/null
  for last; do case "$last" in *requirements.txt) cp "$last" "{root}/wanted";; esac; done
  exit $(cat "{root}/code" 2>/dev/null || echo 0)
fi
exec "{sys.executable}" "$@"
"""
    )
    pie = root / ".venv" / "bin" / "pie"
    pie.write_text(f'#!/bin/sh\necho "pie $@" >> "{root}/asked"; exit $(cat "{root}/code" 2>/dev/null || echo 0)\n')
    for program in (python, pie):
        program.chmod(0o755)
    return root


def asked(root: Path) -> list[str]:
    """What pip was asked to install, and then forget it."""
    path = root / "asked"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.partition("--no-input ")[2] or line for line in lines]


def test_the_second_run_does_nothing(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    assert install.Installer(root, is_dev=False).run()
    steps = asked(root)
    assert "pie optimize" not in steps  # nothing is compiled
    assert f"--no-deps {install.BUNDLED_MODEL}" in steps
    assert f"--no-build-isolation --no-deps --editable {root}" in steps
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
    for each in (*wanted, install.VISION, build.PACKAGE):
        package, _, version = each.partition(";")[0].partition("==")
        if version:
            pins.setdefault(canonical(package), set()).add(version.strip())
    assert {package: found for package, found in pins.items() if len(found) > 1} == {}
    assert {"mlx", "mlx-lm", "mlx-vlm", "llama-cpp-python", "xllamacpp"} <= pins.keys()


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


@pytest.mark.parametrize(
    ("system", "processor", "version", "expected"),
    [
        ("linux", "x86_64", "glibc", True),
        ("linux", "aarch64", "glibc", True),
        ("linux", "x86_64", "", False),  # musl
        ("linux", "riscv64", "glibc", False),
        ("darwin", "arm64", "14.5", True),
        ("darwin", "x86_64", "13.0", True),
        ("darwin", "x86_64", "12.7", False),
        ("freebsd14", "amd64", "", False),
    ],
)
def test_who_has_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, processor: str, version: str, expected: bool
) -> None:
    machine(monkeypatch, system, processor)
    monkeypatch.setattr(install.platform, "libc_ver", lambda: (version, "2.36"))
    monkeypatch.setattr(install.platform, "mac_ver", lambda: (version, ("", "", ""), processor))
    root = project(tmp_path / "project")
    install.Installer(root, is_dev=False).run()
    steps = asked(root)
    assert ("xllamacpp" in (root / "wanted").read_text()) == expected
    assert ("pie optimize" in steps) != expected and ("pie optimize" not in steps or steps[-1] == "pie optimize")


def test_where_it_cannot_be_compiled_nothing_counts_as_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "freebsd14", "amd64")
    root = project(tmp_path / "project")
    pie = root / ".venv" / "bin" / "pie"
    pie.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(install.InstallError, match="has to be compiled"):
        install.Installer(root, is_dev=False).run()
    pie.write_text("#!/bin/sh\n")
    assert install.Installer(root, is_dev=False).run()


def test_a_failure_shows_the_log_and_is_tried_again(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    (root / "code").write_text("1")
    with pytest.raises(install.InstallError, match=r"\.venv/install\.log"):
        install.Installer(root, is_dev=False).run()
    (root / "code").unlink()
    assert install.Installer(root, is_dev=False).run()


SAID = """Collecting xllamacpp==2026.9.11063
  Downloading https://files.example/a-b/xllamacpp-2026.9.11063-cp311-manylinux_2_17_x86_64.whl (33.0 MB)
     \u2501\u2501\u2501 33.0/33.0 MB 30.2 MB/s eta 0
Installing collected packages: xllamacpp
"""


def test_a_terminal_shows_what_pip_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path / "project")
    (root / "said").write_text(SAID, encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); from pathlib import Path; import install\n"
    code += f"install.Installer(Path({str(root)!r}), is_dev=False).run()"
    with terminal([sys.executable, "-c", code], tmp_path, environment(tmp_path)) as shown:
        assert shown.wait_end() == 0
    first, *_, last = shown.seen.split("\r\n")[0].split("\r")
    assert first == "Installing Python packages"
    assert "\rInstalling Python packages: xllamacpp (33.0 MB)\x1b[K" in shown.seen
    assert "\rInstalling Python packages: unpacking\x1b[K" in shown.seen
    assert last == "Installing Python packages\x1b[K"
    assert SAID in (root / ".venv" / "install.log").read_text(encoding="utf-8")
    (root / "requirements.txt").write_text("numpy==2\n")
    install.Installer(root, is_dev=False).run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Installing Python packages", "Installing the bundled model"]  # nobody looks on
