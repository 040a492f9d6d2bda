"""From a fresh clone to the first streamed token, as a new user has it: `python -m benchmarks.first_token`.

Each run has a clone, a home and a virtual environment of its own, and a PATH without a compiler. The first run has an
empty pip cache; the second takes what the first downloaded, so it is our own time, and the difference the downloads'.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_FORBIDDEN = ("cc", "gcc", "g++", "c++", "clang", "clang++", "cmake", "ninja", "ld", "as", "c89", "c99")
_KEPT = ("PIP_CERT", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")
_QUESTION = b'{"model": "default", "stream": true, "messages": [{"role": "user", "content": "Say hello."}]}'


class Run(NamedTuple):
    """Seconds since `make serve` was typed; and of processors, which others on the machine cannot add to."""

    installed: float
    ready: float
    first_token: float
    processor: float = 0.0


def programs(folder: Path) -> None:
    """Links to what is on the PATH, but for what compiles."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for path in sorted(Path(place).glob("*")) if Path(place).is_dir() else ():
            name = path.name
            is_compiler = name in _FORBIDDEN or any(word in name for word in ("gcc-", "g++-", "clang-", "-gcc", "-g++"))
            if not is_compiler and not (folder / name).exists() and os.access(path, os.X_OK):
                (folder / name).symlink_to(path)


def run(work: Path, cache: Path, python: str) -> Run:
    programs(work / "bin")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(work / "clone")], check=True)
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    environment |= {"PATH": str(work / "bin"), "HOME": str(work), "PIP_CACHE_DIR": str(cache)}
    environment["PIP_CONFIG_FILE"] = os.devnull
    began = time.monotonic()
    process = subprocess.Popen(
        ["make", "serve", "PORT=0", f"PYTHON={python}"],
        cwd=work / "clone",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        installed, ready, address = 0.0, 0.0, ""
        while not ready:
            line = process.stdout.readline()
            if not line:
                sys.exit("make serve ended before it was ready")
            print(f"  {time.monotonic() - began:5.1f} s  {line}", end="")
            if line.startswith("Installing pie"):
                installed = time.monotonic() - began
            if line.startswith("Ready: "):
                ready, address = time.monotonic() - began, line.split()[1]
        ask(address)
        return Run(installed, ready, time.monotonic() - began)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def ask(address: str) -> None:
    """Until the first piece of the answer."""
    url, kind = f"{address}/chat/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, _QUESTION, kind), timeout=600) as answer:
        while b'"content":"' not in (line := answer.readline()) or b'"content":""' in line:
            if not line:
                sys.exit("the answer had no text")


def processor_seconds() -> float:
    """What all programs that were waited for have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default="python3", help="the Python that a user has")
    options = parser.parse_args()
    python = shutil.which(options.python) or options.python
    rows: list[tuple[str, Run, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for title in ("empty pip cache", "pip's cache of the first run"):
            print(title)
            work = Path(folder) / f"run{len(rows)}"
            work.mkdir()
            load = os.getloadavg()[0]
            before = processor_seconds()
            found = run(work, Path(folder) / "cache", python)
            rows.append((title, found._replace(processor=processor_seconds() - before), load))
    print("\n| seconds | packages there | ready | first streamed token | of processors | load before |")
    print("|---|---|---|---|---|---|")
    for title, each, load in rows:
        print(f"| {title} | {' | '.join(f'{seconds:.1f}' for seconds in each)} | {load:.1f} |")
    (_, cold, _), (_, warm, _) = rows
    print(f"\nOur own time: {warm.first_token:.1f} s; downloads: {cold.first_token - warm.first_token:.1f} s.")


if __name__ == "__main__":
    main()
