"""Whether something else uses the processors while a server is measured, and patience until it stops.

On two cores a neighbour at half a core costs a server far more than a quarter: its threads wait for each other.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.servers.process import tree

LIMIT = 0.05  # of all processors, by others
_LOOK_SECONDS = 0.5
_MAX_ATTEMPTS = 6
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # columns of /proc/stat: idle, waiting for a disk
_GUESTS = (8, 9)  # counted in `user` already

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since the start, of everyone and of the measurement."""

    at_s: float
    all_s: float
    own_s: float

    @classmethod
    def now(cls, pid: int) -> "Usage":
        """A reading now; `pid` is the server that is measured."""
        own = time.process_time() + sum(_seconds(member) for member in tree(pid))
        return cls(time.perf_counter(), _busy(), own)

    def others_share(self, later: "Usage") -> float:
        """The share of all processors that neither server nor client used between two readings."""
        capacity = (later.at_s - self.at_s) * (os.cpu_count() or 1)
        return max(0.0, (later.all_s - self.all_s) - (later.own_s - self.own_s)) / capacity


@dataclass(slots=True)
class Patience:
    """Waits for quiet and repeats what was disturbed, as long as there is time for it."""

    left_s: float
    shares: list[float] = field(default_factory=list)  # of others, for every measurement that was kept

    async def measure(self, pid: int, work: Callable[[str], Awaitable[T]], name: str) -> T:
        """Do the work in quiet. It is told a name that is another one at every attempt."""
        for attempt in range(_MAX_ATTEMPTS):
            await self._wait(pid)
            before = Usage.now(pid)
            result = await work(f"{name}.{attempt}")
            after = Usage.now(pid)
            share = before.others_share(after)
            if share <= LIMIT or self.left_s <= 0:
                break
            self.left_s -= after.at_s - before.at_s
        self.shares.append(share)
        return result

    async def _wait(self, pid: int) -> None:
        while self.left_s > 0:
            before = Usage.now(pid)
            await asyncio.sleep(_LOOK_SECONDS)
            if before.others_share(Usage.now(pid)) <= LIMIT:
                return
            self.left_s -= _LOOK_SECONDS


def _busy() -> float:
    """Processor seconds of everyone; 0 where the system does not tell."""
    try:
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(word) for column, word in enumerate(words) if column not in (*_IDLE, *_GUESTS)) / _TICKS


def _seconds(pid: int) -> float:
    """Processor seconds of a process, its threads, and the children it has waited for."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0
