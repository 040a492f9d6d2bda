"""The machine and the code a result belongs to."""

import os
import platform
import subprocess
from pathlib import Path

from benchmarks.servers.environments import ROOT

_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "i8mm", "sve")


def describe() -> dict[str, object]:
    """Facts to print beside the numbers."""
    cpuinfo = _read("/proc/cpuinfo")
    words = set(cpuinfo.split())
    return {
        "processor": _field(cpuinfo, "model name") or platform.processor() or platform.machine(),
        "logical_cores": os.cpu_count(),
        "extensions": [flag for flag in _FLAGS if flag in words],
        "memory_bytes": int((_field(_read("/proc/meminfo"), "MemTotal") or "0 kB").split()[0]) * 1024,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """What was measured; `+` when files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--", "src") else "") if head else "unknown"


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _field(text: str, name: str) -> str | None:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
