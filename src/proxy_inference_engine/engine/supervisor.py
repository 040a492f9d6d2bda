"""Keeps an engine alive: runs its lives one after another, watches the one that runs, and ends the last one.

After a death the same thread begins again over the same runner, cleared. A life that makes no progress is given up
with its thread and its runner; then another runner is loaded in another thread, where that can be done.
"""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import extract_stack

from proxy_inference_engine.engine.embedding import EmbeddingQueue
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.life import EngineLife, Pulse, PulseWatch, Stop
from proxy_inference_engine.errors import EngineFailure, PieError, Unavailable

_log = logging.getLogger(__name__)

# Loads an engine in the thread that calls it, runs it there with what it is given, and tidies up afterwards.
Reload = Callable[[Callable[[StepEngine], None]], None]

_LOOK_SECONDS = 0.5
_MAX_DEATHS, _DEATHS_SECONDS = 3, 60.0  # so many in so short a time, and it stays down
_MAX_RELOADS = 2  # each leaves a runner behind, with all its memory
_SOON_SECONDS, _LATER_SECONDS = 5, 30  # when another try is worth it
_MOMENT_SECONDS = 3.0  # for a step to end when the server does
_TIDY_SECONDS = 10.0  # for what memory held to be written to disk


class Supervisor:
    """`reload` None: an engine that got stuck is not replaced."""

    def __init__(self, engine: StepEngine, reload: Reload | None, clock: Callable[[], float]) -> None:
        self._reload = reload
        # Beside other models it is told whose engine it is.
        self._log = logging.LoggerAdapter(_log, {"fields": {"model": engine.runner.info.name}})
        self._clock = clock
        self._lock = threading.Lock()  # over what changes from one life to the next
        self._begin(engine)
        self._thread = threading.Thread(target=self._run_first, name="engine", daemon=True)
        self._watcher = threading.Thread(target=self._watch_on, name="engine-watch", daemon=True)
        self._has_ended = threading.Event()
        self._is_replacing = False
        self._deaths: deque[float] = deque()
        self._num_reloads = 0
        self._is_down = False
        self._unused: list[StepEngine] = []  # their threads have ended, but what is outside may still use their words
        self._is_closed = False

    def _begin(self, engine: StepEngine) -> EngineLife:
        """The first life of an engine."""
        self._pulse = Pulse(self._clock)
        self._watch = PulseWatch(self._pulse, self._clock)
        embeddings = EmbeddingQueue(engine.runner.embedder, step_target_s=engine.pace.target_s)
        self.life = EngineLife(engine, embeddings, self._pulse)
        return self.life

    @property
    def heartbeat_age_s(self) -> float:
        return self._pulse.age_s

    def refusal(self) -> Unavailable | None:
        """Why nothing should be sent to the engine now; None: it lives."""
        if self._is_down or not (self._thread.is_alive() or self._is_replacing):
            return Unavailable("the engine has stopped", retry_after_s=_LATER_SECONDS)
        if self._watch.is_late:
            return Unavailable(
                "the engine makes no progress; try again soon", code="engine_stuck", retry_after_s=_SOON_SECONDS
            )
        if self.life.ledger.is_closed:
            return Unavailable("the engine is being started again; try again soon", retry_after_s=_SOON_SECONDS)
        return None

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread.start()
        self._watcher.start()

    def run(self, on_started: Callable[[], None]) -> None:
        """Run in the calling thread, until `stop`."""
        self._thread = threading.current_thread()
        self._watcher.start()
        on_started()
        self._run_first()

    def stop(self, error: PieError) -> None:
        """End what still runs with an error, then the thread, and free every engine that there was.

        One that is stuck is left behind, after a moment; should its pass come back, its thread frees it.
        """
        with self._lock:
            self._has_ended.set()
            life, thread = self.life, self._thread
        life.send(Stop(error))
        if thread.is_alive() and not self._watch.is_lost:
            thread.join(_MOMENT_SECONDS)
            if life.is_stopping.is_set():
                thread.join(_TIDY_SECONDS)
        life.ledger.close(error)
        if self._watcher.is_alive():
            self._watcher.join()
        if thread.ident is None and not self._is_closed:  # it never began
            self._leave(life.engine)
        with self._lock:
            self._is_closed = True
            unused, self._unused = self._unused, []
        for engine in unused:
            engine.close()
        if life.engine not in unused and thread.is_alive():  # and would compute with what is gone
            self._log.warning("the engine's thread does not end; it is left behind")

    def _leave(self, engine: StepEngine) -> None:
        """Nothing is computed with it any more."""
        with self._lock:
            if not self._is_closed:
                self._unused.append(engine)
                return
        engine.close()

    # The watcher's thread

    def _watch_on(self) -> None:
        while not self._has_ended.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception:
                self._log.exception("the engine could not be watched")

    def look(self) -> None:
        """See whether the engine makes progress. Give it up where it has made none for far too long."""
        with self._lock:
            was_late = self._watch.is_late
            self._watch.look()
            if self.life.ledger.is_closed or self._has_ended.is_set():
                return
            if self._watch.is_late and not was_late:
                self._log.warning("the engine has made no progress for %.0f s: it is not ready", self._watch.quiet_s)
            if self._watch.is_lost:
                self._give_up()

    def _give_up(self) -> None:
        stuck = Unavailable(
            "the engine made no progress and was given up; try again soon",
            code="engine_stuck",
            retry_after_s=_SOON_SECONDS,
        )
        num_failed = self.life.ledger.close(stuck)
        quiet_s = self._watch.quiet_s
        self._log.error("the engine has made no progress for %.0f s: given up, %d requests failed", quiet_s, num_failed)
        for line in _stacks():
            self._log.error("%s", line)
        if self._reload is None:
            self._log.error("the engine cannot be loaded again: not ready until its pass comes back or a restart")
        elif self._num_reloads >= _MAX_RELOADS:
            self._log.error("the engine was given up too often: not ready until the server restarts")
        else:
            self._num_reloads += 1
            self._is_replacing = True
            self._log.warning("the engine is being loaded again; the one that is stuck keeps its memory")
            threading.Thread(target=self._replace, args=(self._reload,), name="engine", daemon=True).start()

    # An engine's thread

    def _replace(self, reload: Reload) -> None:
        try:
            reload(self._take_over)
        except BaseException:
            self._log.exception(
                "the engine could not be loaded again: not ready until its pass comes back, or a restart"
            )
            with self._lock:
                self._is_replacing = False

    def _take_over(self, engine: StepEngine) -> None:
        with self._lock:
            is_wanted = not self._has_ended.is_set()
            if is_wanted:
                self._thread = threading.current_thread()
                life = self._begin(engine)
                self._is_replacing = False
        if not is_wanted:
            self._leave(engine)
            return
        self._log.warning("the engine runs again")
        self._run(life)

    def _run_first(self) -> None:
        self._run(self.life)

    def _run(self, first: EngineLife) -> None:
        """Live one life after another, until there is none."""
        first.pulse.begin()
        life: EngineLife | None = first
        while life is not None:
            try:
                life.live()
            except BaseException as death:
                life = self._after_death(life, death)
            else:
                life = self._after(life)
        self._leave(first.engine)

    def _after(self, life: EngineLife) -> EngineLife | None:
        """What follows a life that ended: it was told to stop, or its pass came back after it was given up."""
        if self._has_ended.is_set():
            return None
        age_s = life.pulse.age_s
        if self._has_successor(life):
            self._log.warning("a pass came back after %.0f s; another engine has taken over", age_s)
            return None
        life.pulse.beat()
        self._log.warning("a pass came back after %.0f s; the engine begins again", age_s)
        return self._next(life)

    def _after_death(self, life: EngineLife, death: BaseException) -> EngineLife | None:
        now = self._clock()  # before anybody hears of it
        num_failed = life.ledger.close(EngineFailure("the engine failed"))
        self._log.error("the engine died, %d requests failed", num_failed, exc_info=death)
        if self._has_ended.is_set() or self._has_successor(life):
            return None
        self._deaths.append(now)
        while now - self._deaths[0] > _DEATHS_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) >= _MAX_DEATHS:
            self._is_down = True
            self._log.error("the engine died %d times within a minute: not ready until a restart", len(self._deaths))
            return None
        return self._next(life)

    def _has_successor(self, life: EngineLife) -> bool:
        with self._lock:
            return life is not self.life or self._is_replacing

    def _next(self, life: EngineLife) -> EngineLife | None:
        """A further life over the same runner, which is cleared first; None where that fails."""
        try:
            life.engine.reset()
            life.embeddings.fail_all(EngineFailure("the engine failed"))
        except BaseException:
            self._log.exception("the engine could not be cleared: not ready until the server restarts")
            self._is_down = True
            return None
        with self._lock:
            if self._has_ended.is_set():
                return None
            self.life = EngineLife(life.engine, life.embeddings, life.pulse)
            return self.life


def _stacks() -> Iterator[str]:
    """Where every thread is, a line each, from the outside in."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        calls = [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in extract_stack(frame)]
        yield f"thread {names.get(ident, ident)}: {' > '.join(calls)}"
