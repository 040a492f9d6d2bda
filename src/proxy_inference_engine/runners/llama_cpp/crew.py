"""How many threads compute a pass: as many as have a core to themselves just now.

The threads of a pass wait for each other hundreds of times. One that has to share its core with another program holds
up all of them for whole slices of time: with one busy program on two cores two threads are six times slower than one.

Fewer when the passes of late got less processor time than their threads could have used; more when the machine says
that cores are idle. What is computed does not depend on it.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

_WINDOW_S = 0.03  # of passes that are judged together
_MISSING, _MISSING_SHARE = 0.25, 0.01  # of a core, and of each thread's; more, and some have no core of their own
_ROUNDING = 0.1  # so much less than a core is a core
_LOOK_S = 0.25  # between two looks at idle cores
_IDLE = 0.75  # of a core, and one more thread is worth a try
_HOLD_S, _MAX_HOLD_S = 0.25, 4.0  # after a try that failed; doubles with each that follows
_STABLE_S = 1.0  # a try that lasts so long has not failed
_TICKS_PER_S = 100.0  # of /proc/stat, on every Linux there is


class Crew:
    """One for all contexts of a runner. Call in the engine's thread."""

    def __init__(
        self,
        max_threads: int,
        *,
        is_fixed: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        idle_seconds: Callable[[], float | None] | None = None,
    ) -> None:
        """`idle_seconds`: what all cores together were idle since the machine started; None: it does not tell."""
        self.num_threads = max_threads
        self._max_threads = max_threads
        self.is_fixed = is_fixed or max_threads == 1
        self._clock = clock
        self._idle_seconds = idle_seconds or idle_time
        self._wall_s = self._cpu_s = 0.0  # of the passes in the window
        self._idle_s: float | None = None  # at the last look
        self._looked_at = clock()
        self._raised_at = -math.inf
        self._hold_s = _HOLD_S
        self._held_until = -math.inf

    def observe(self, wall_s: float, cpu_s: float) -> None:
        """One pass took so long, and the process had so much processor time meanwhile."""
        self._wall_s += wall_s
        self._cpu_s += cpu_s
        if self._wall_s < _WINDOW_S:
            return
        num_cores = self._cpu_s / self._wall_s  # that it had, on average
        self._wall_s = self._cpu_s = 0.0
        if self.num_threads > 1 and num_cores < self.num_threads * (1 - _MISSING_SHARE) - _MISSING:
            self._lower(num_cores)
        elif self.num_threads < self._max_threads:
            self._look()

    def _lower(self, num_cores: float) -> None:
        now = self._clock()
        self.num_threads = max(1, min(self.num_threads - 1, int(num_cores + _ROUNDING)))
        # Who has just been added and is in the way is not tried again for a while.
        self._hold_s = min(_MAX_HOLD_S, 2 * self._hold_s) if now - self._raised_at < _STABLE_S else _HOLD_S
        self._held_until = now + self._hold_s
        self._begin_look(now)

    def _look(self) -> None:
        now = self._clock()
        seconds = now - self._looked_at
        if now < self._held_until or seconds < _LOOK_S:
            return
        before = self._idle_s
        self._begin_look(now)
        if before is None or self._idle_s is None:
            num_idle = 1.0 if now - self._raised_at > _MAX_HOLD_S else 0.0  # nobody tells: try, now and then
        else:
            num_idle = (self._idle_s - before) / seconds
        if num_idle >= _IDLE:
            self.num_threads = min(self._max_threads, self.num_threads + int(num_idle + 1 - _IDLE))
            self._raised_at = now

    def _begin_look(self, now: float) -> None:
        self._looked_at, self._idle_s = now, self._idle_seconds()


def idle_time(path: Path = Path("/proc/stat")) -> float | None:
    """Seconds that the cores of this machine were idle, all together; None where the system does not tell."""
    try:
        with path.open() as file:
            words = file.readline().split()
        return (int(words[4]) + int(words[5])) / _TICKS_PER_S
    except (OSError, ValueError, IndexError):
        return None
