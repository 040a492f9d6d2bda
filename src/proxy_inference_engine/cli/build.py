"""llama.cpp compiled for this processor: pip builds llama-cpp-python, whose library the runner then prefers.

Takes minutes, so what it would miss is noticed before, and how far it is can be seen. Of the package only the library
is used, so what its Python part depends on is not installed.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from proxy_inference_engine.errors import StartupError

PACKAGE = "llama_cpp_python==0.3.36"
_CPU_SECONDS = 500  # measured: 4:16 minutes on two cores
_SHOWN_LINES = 15
_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\]\s")
_MAKE = re.compile(r"^\s*\[\s*(\d+)%\]\s")
_COMPILERS = {
    "apt-get": "sudo apt install build-essential",
    "dnf": "sudo dnf install gcc gcc-c++",
    "pacman": "sudo pacman -S base-devel",
    "apk": "sudo apk add build-base linux-headers",
    "zypper": "sudo zypper install gcc gcc-c++",
    "xcode-select": "xcode-select --install",
}  # by the package managers that a machine may have


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


def check_tools() -> None:
    """Raises StartupError, with what to install, where a compiler or pip is missing."""
    missing = missing_compilers()
    if missing:
        raise StartupError(f"no {' and no '.join(missing)} compiler found. Install it: {advice()}")
    if not has_pip():
        raise StartupError(f"this environment has no pip: install {PACKAGE} into it with what made it")


def missing_compilers() -> list[str]:
    missing = []
    for language, variable, programs in (
        ("C", "CC", ("cc", "gcc", "clang")),
        ("C++", "CXX", ("c++", "g++", "clang++")),
    ):
        words = os.environ.get(variable, "").split()
        if not any(shutil.which(program) for program in (words[:1] or programs)):
            missing.append(language)
    return missing


def has_pip() -> bool:
    """Not in what uv makes, nor in our image."""
    return importlib.util.find_spec("pip") is not None


def advice() -> str:
    """The command that installs a compiler, for this machine's package manager."""
    known = "one of: " + ", ".join(_COMPILERS.values())
    return next((command for program, command in _COMPILERS.items() if shutil.which(program)), known)


def compile_library(log: Path) -> None:
    """Raises StartupError with the end of the log."""
    minutes = max(1, round(_CPU_SECONDS / (os.cpu_count() or 1) / 60))
    print(
        f"Compiling llama.cpp for this machine: about {minutes} min, once (seconds when pip has it cached).\n"
        f"  Details: {log}",
        flush=True,
    )
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-v", "--no-deps"]
    if os.environ.get("CMAKE_ARGS"):  # what was compiled before may have been for something else
        command += ["--force-reinstall", "--no-cache-dir"]
    progress = Progress("llama.cpp")
    try:
        code, lines = _follow([*command, PACKAGE], log, progress)
    finally:
        progress.close()
    if code != 0:
        shown = "".join(f"\n  | {line}" for line in lines)
        print(f"{shown}\n\nWhen the compiler failed: {advice()}", file=sys.stderr)
        raise StartupError(f"llama.cpp could not be compiled; the whole log is in {log}")


def _follow(command: list[str], log: Path, progress: Progress) -> tuple[int, list[str]]:
    """Run pip, keep its output in the log, and watch the compiler in it; the exit code and the last lines."""
    last: deque[str] = deque(maxlen=_SHOWN_LINES)
    with log.open("w") as file:
        file.write(f"$ {' '.join(command)}\n")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                last.append(line.rstrip())
                progress.update(compile_percent(line))
    return process.wait(), list(last)
