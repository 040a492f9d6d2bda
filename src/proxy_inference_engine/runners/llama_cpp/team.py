"""One thread that computes for all models of the process, one pass after another.

OpenMP keeps a team of threads for each thread that ever computed. With two teams it takes the cores for overbooked and
lets threads sleep at every barrier: half the speed, also while only one of them computes. And two passes at the same
time on the same cores take far longer than one after the other.

Whose turn it is goes by the time that each model has had, not by the number of its passes: one that reads long prompts
has passes ten times as long as one that writes.
"""

import math
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from proxy_inference_engine.runners.llama_cpp.library import Library, start

_PATIENCE_S = 0.004  # that a model gets to come again, whose turn it still is: more than it needs between two passes
_MAX_LEAD_S = 0.5  # that a model which was idle may have before the others
_PASSES = ("llama_decode", "mtmd_encode_chunk")  # what computes


class _Job:
    __slots__ = ("arguments", "call", "error", "lock", "result")

    def __init__(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.call = call
        self.arguments = arguments
        self.result: Any = None
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


class Team:
    """Each model asks from a thread of its own, and for one pass at a time."""

    def __init__(self, patience_s: float = _PATIENCE_S, clock: Callable[[], float] = time.perf_counter) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._changed = threading.Condition()
        self._jobs: dict[int, _Job] = {}  # by the thread that asks
        self._had: dict[int, float] = {}  # the time that each had
        threading.Thread(target=self._work, name="passes", daemon=True).start()

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What the call returns or raises, made in the team's thread."""
        job, owner = _Job(call, arguments), threading.get_ident()
        with self._changed:
            self._had[owner] = max(self._had.get(owner, 0.0), max(self._had.values(), default=0.0) - _MAX_LEAD_S)
            self._jobs[owner] = job
            self._changed.notify()
        job.lock.acquire()
        if job.error is not None:
            raise job.error
        return job.result

    def _work(self) -> None:
        last = 0  # no thread
        while True:
            last, job = self._next(last)
            began = self._clock()
            try:
                job.result = job.call(*job.arguments)
            except BaseException as error:
                job.error = error
            with self._changed:
                self._had[last] += self._clock() - began
            job.lock.release()

    def _next(self, last: int) -> tuple[int, _Job]:
        """Who had the least. Where that is who was just there, and it comes again at once, it goes on."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs)
            least = min(self._had[owner] for owner in self._jobs)
            if last not in self._jobs and self._had.get(last, math.inf) < least:
                self._changed.wait_for(lambda: last in self._jobs, self._patience_s)
            owner = min(self._jobs, key=self._had.__getitem__)
            return owner, self._jobs.pop(owner)


@cache
def share_passes(named: Path | None = None) -> Library:
    """The library, whose passes one thread computes from now on, whoever asks. Raises StartupError.

    It is started there too: what proves it computes a pass.
    """
    team = Team()
    library: Library = team.run(start, named)
    for name in _PASSES:
        call = getattr(library.binding, name, None)
        if call is not None:
            setattr(library.binding, name, _through(team, call))
    return library


def _through(team: Team, call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        return team.run(call, *arguments)

    return run
