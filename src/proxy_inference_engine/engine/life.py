"""One life of an engine: take in what was sent, step, hand out, again, until it is told to stop, dies or is given up.

Runs in the engine's thread. Messages come in through one queue, from any thread.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np

from proxy_inference_engine.cache.view import CacheView, view_of
from proxy_inference_engine.engine.embedding import EmbeddingJob, EmbeddingQueue
from proxy_inference_engine.engine.engine import Delivery, StepEngine
from proxy_inference_engine.engine.ledger import Ledger, WorkerStream
from proxy_inference_engine.errors import PieError
from proxy_inference_engine.types import Failed

_LIMIT_SECONDS = 10.0  # of silence, then the engine is not ready
_BUSY_LIMIT_SECONDS = 60.0  # while the thread computes
_MAX_LIMIT_SECONDS = 300.0  # however long its passes were
_PASSES = 8  # the limit is so many of the longest turns of late
_FADING = 0.999  # what is left of the longest turn after another one
_BUSY_SHARE = 0.05  # of the silence that a thread has a processor for, if it computes
_LOST = 3  # so many limits, and the thread is given up
_MAX_GAP_SECONDS = 1.0  # between two looks; more time than that the watcher did not run itself


class Pulse:
    """Kept by one thread: it beats once a turn of its loop. Anybody may read it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.num_beats = 0
        self.longest_s = 0.0  # between two beats, of late
        self._clock = clock
        self._beat_at = clock()
        self._cpu_clock: int | None = None

    def begin(self) -> None:
        """The calling thread is the one that will beat."""
        self._cpu_clock = _cpu_clock()
        self._beat_at = self._clock()
        self.num_beats += 1

    def beat(self) -> None:
        now = self._clock()
        self.longest_s = max(now - self._beat_at, self.longest_s * _FADING)
        self._beat_at = now
        self.num_beats += 1

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._beat_at

    @property
    def cpu_s(self) -> float:
        """Processor time that the thread has had; 0 where the system does not tell."""
        if self._cpu_clock is None:
            return 0.0
        try:
            return time.clock_gettime(self._cpu_clock)
        except OSError:  # the thread has ended
            return 0.0


def _cpu_clock() -> int | None:
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return None
    return time.pthread_getcpuclockid(threading.get_ident())


class Signs(Protocol):
    """What a watch sees of a thread."""

    @property
    def num_beats(self) -> int: ...

    @property
    def longest_s(self) -> float: ...

    @property
    def cpu_s(self) -> float: ...


class PulseWatch:
    """Looks at a pulse a few times a second. `quiet_s` is how long there was no beat, as far as the watcher knows."""

    def __init__(self, pulse: Signs, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet_s = 0.0
        self._pulse = pulse
        self._clock = clock
        self._looked_at = clock()
        self._num_beats = -1
        self._cpu_s = 0.0  # what the thread had had when the silence began

    def look(self) -> None:
        now = self._clock()
        if self._pulse.num_beats != self._num_beats:
            self._num_beats, self._cpu_s, self.quiet_s = self._pulse.num_beats, self._pulse.cpu_s, 0.0
        else:
            self.quiet_s += min(now - self._looked_at, _MAX_GAP_SECONDS)
        self._looked_at = now

    @property
    def limit_s(self) -> float:
        """How much silence is no reason to worry."""
        limit = min(max(_LIMIT_SECONDS, _PASSES * self._pulse.longest_s), _MAX_LIMIT_SECONDS)
        is_computing = self._pulse.cpu_s - self._cpu_s >= _BUSY_SHARE * self.quiet_s
        return max(limit, _BUSY_LIMIT_SECONDS) if is_computing else limit

    @property
    def is_late(self) -> bool:
        """There is reason to worry; a beat ends it."""
        return self._num_beats == self._pulse.num_beats and self.quiet_s >= self.limit_s

    @property
    def is_lost(self) -> bool:
        """Whether the engine has been late for so long that nobody should wait for it any more."""
        return self._num_beats == self._pulse.num_beats and self.quiet_s >= _LOST * self.limit_s


_IDLE_SECONDS = 0.5  # an idle thread shows that it lives this often
_BURST_SECONDS = 0.05  # waited at most for requests that come at the same moment
_IDLE_ROUNDS = 4  # of the event loop: accept, read, parse, submit


class Submit(NamedTuple):
    stream: WorkerStream


class Cancel(NamedTuple):
    request_id: str
    choice: int | None


class Embed(NamedTuple):
    job: EmbeddingJob


class CancelEmbed(NamedTuple):
    job: EmbeddingJob


class Show(NamedTuple):
    """Somebody wants to see the prefix cache."""

    max_nodes: int
    tell: Callable[[CacheView], None]


class Stop(NamedTuple):
    error: PieError


Message = Submit | Cancel | Embed | CancelEmbed | Show | Stop


class EngineLife:
    """The engine is clean when it begins. Whoever wants something enters the ledger, then sends a message."""

    def __init__(self, engine: StepEngine, embeddings: EmbeddingQueue, pulse: Pulse) -> None:
        self.engine = engine
        self.embeddings = embeddings
        self.pulse = pulse
        self.ledger = Ledger()
        self.is_stopping = threading.Event()  # it took in the order to stop, and only tidies up
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._num_waiting = 0  # as of the last step

    @property
    def num_waiting(self) -> int:
        return 0 if self.ledger.is_closed else self._num_waiting + self._inbox.qsize()

    def send(self, message: Message) -> None:
        self._inbox.put(message)

    def live(self) -> None:
        """Returns when it was told to stop, or finds its ledger closed. Whatever it raises is its death."""
        with np.errstate(over="ignore"):  # the sampler sees it in its sums
            while self._turn() and not self.ledger.is_closed:
                self.pulse.beat()

    def _turn(self) -> bool:
        """Take in what was sent and step once; False when that was the order to stop."""
        stop = self._take_in()
        if stop is not None:
            self._end(stop.error)
            return False
        if self.engine.has_work:
            self._hand_out(self.engine.step())
        if self.ledger.num_jobs and self.embeddings.has_work and (self.embeddings.is_wanted or self._is_idle):
            self.ledger.settle(self.embeddings.step(is_busy=bool(self.engine.scheduler.running)))
        self._num_waiting = len(self.engine.scheduler.waiting)
        return True

    def _end(self, error: PieError) -> None:
        self.is_stopping.set()
        self._hand_out(self.engine.fail_all(error))
        self.ledger.settle(self.embeddings.fail_all(error))
        if self.engine.scheduler.disk is not None:
            self.engine.scheduler.disk.close()

    @property
    def _is_idle(self) -> bool:
        """Whether nobody is kept waiting by what only fills idle time."""
        scheduler = self.engine.scheduler
        return not scheduler.waiting.has_wanted and all(sequence.fills_idle for sequence in scheduler.running)

    @property
    def _has_work(self) -> bool:
        return self.engine.has_work or (self.ledger.num_jobs > 0 and self.embeddings.has_work)

    def _take_in(self) -> Stop | None:
        """Handle every message that is there; wait for one only when there is nothing to do."""
        try:
            has_work = self._has_work
            message = self._inbox.get(block=not has_work, timeout=_IDLE_SECONDS)
            if not has_work and isinstance(message, Submit):
                self._let_in(message.stream.loop)
            while True:
                if isinstance(message, Stop):
                    return message
                self._handle(message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            if not self._has_work:
                self.engine.scheduler.rest()
            return None

    def _let_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait while the event loop is bringing more: prompts that come together cost less in one pass than in turn."""
        deadline, num_idle = time.monotonic() + _BURST_SECONDS, 0
        while num_idle < _IDLE_ROUNDS and time.monotonic() < deadline:
            num_before, turned = self._inbox.qsize(), threading.Event()
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(turned.set)
            turned.wait(deadline - time.monotonic())
            num_idle = num_idle + 1 if self._inbox.qsize() == num_before else 0

    def _handle(self, message: Submit | Cancel | Embed | CancelEmbed | Show) -> None:
        match message:
            case Submit(stream):
                self._add(stream)
            case Cancel(request_id, choice):
                self.engine.cancel(request_id, choice)
                if request_id not in self.engine:
                    self.ledger.strike(request_id)
            case Embed(job):
                self.embeddings.add(job)
            case CancelEmbed(job):
                self.embeddings.cancel(job)
                self.ledger.strike_job(job)
            case Show(max_nodes, tell):
                tell(view_of(self.engine.cache, max_nodes))

    def _add(self, stream: WorkerStream) -> None:
        try:
            self.engine.add(stream.request)
        except PieError as error:
            self._hand_out([Delivery(stream.request.id, 0, Failed(error))])

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        for request_id in self.ledger.hand_out(deliveries, self.engine):
            self.engine.cancel(request_id)
