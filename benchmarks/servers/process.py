"""A server as a process of its own on a free loopback port: start, wait until it answers, weigh, stop."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.client import RequestFailed, Target
from benchmarks.servers.peers import Peer

_STOP_SECONDS = 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


class NotStarted(Exception):
    """Why a server does not answer, in one line."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started server."""

    target: Target
    pid: int
    start_s: float  # from the command to the first answer

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the whole tree of processes."""
        return sum(_resident(pid) for pid in tree(self.pid))


@contextlib.asynccontextmanager
async def running(peer: Peer, log: Path) -> AsyncIterator[Running]:
    """Start a server and stop it at the end. Raises NotStarted."""
    port = _free_port()
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    # Neither our settings in the environment nor an `.env` in the repository: defaults are defaults.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIE_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            peer.command(port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, **peer.variables},
            cwd=log.parent,
            start_new_session=True,  # so that what it starts can be stopped with it
        )
    try:
        target = Target(port, peer.model, peer.fields)
        await _wait(process, target, peer, log)
        yield Running(target, process.pid, time.monotonic() - began)
    finally:
        _stop(process)


async def _wait(process: subprocess.Popen[bytes], target: Target, peer: Peer, log: Path) -> None:
    deadline = time.monotonic() + peer.start_seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotStarted(f"exit code {process.returncode}: {_last_line(log)}")
        with contextlib.suppress(OSError, RequestFailed, asyncio.IncompleteReadError):
            await target.get(peer.health)
            return
        await asyncio.sleep(0.2)
    raise NotStarted(f"no answer after {peer.start_seconds:.0f} s: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no output"])[-1][:300]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole session of the process; what it left behind too."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def tree(root: int) -> list[int]:
    """A process and everything it started."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
