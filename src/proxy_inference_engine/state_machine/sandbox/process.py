"""A process of its own for grammars that clients write: what never ends there, or takes all memory, ends there alone.

This is its outside: it starts the process, asks it, ends it when a grammar takes too long, and starts another. A thread
of its own does the talking. It ends, and the process with it, when whoever owns this closes it or is gone.
"""

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar
from proxy_inference_engine.state_machine.sandbox.frames import read_frame, write_frame
from proxy_inference_engine.state_machine.sandbox.inside import OUT_OF_MEMORY

_log = logging.getLogger(__name__)

_START_S = 30.0
_END_S = 5.0
_MAX_STARVED = 10  # times the processor time that a grammar may take, it may take on the clock
_LEAST_WAIT_S = 0.01
_CPU_CLOCK = 2  # Linux makes the number of a process's clock of its id and this
_COMMAND = "from proxy_inference_engine.state_machine.sandbox.inside import main; main()"
# How a process ends that a grammar was too much for: no memory, or too deep a recursion.
_BY_THE_GRAMMAR = {
    OUT_OF_MEMORY,
    *(-getattr(signal, name) for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL") if hasattr(signal, name)),
}


class _Lost(Exception):
    """The process ended, and no grammar is known to be at fault."""


@dataclass(eq=False, slots=True)
class _Job:
    """`grammar` None: only start. `has_begun` is set when the process is at it; `is_given_up`, when it was ended."""

    grammar: str | None
    has_begun: threading.Event = field(default_factory=threading.Event)
    is_given_up: bool = False
    outcome: "Future[dict[str, Any]]" = field(default_factory=Future)


class GrammarSandbox:
    """One job at a time: whoever asks has taken turns before."""

    def __init__(self, lexicon: Callable[[], bytes], limits: GrammarLimits) -> None:
        self._limits = limits
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._child = _Child(lexicon, limits)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _close, self._jobs, self._child)

    @property
    def pid(self) -> int | None:
        """The id of the process, where one runs."""
        return self._child.pid

    def start(self) -> None:
        """Begin to start the process; does not wait for it."""
        self._put(_Job(None))

    def close(self) -> None:
        """End the process and wait for it. What is asked later raises Unavailable."""
        self._finalizer()
        if self._thread is not None:
            self._thread.join(_END_S)

    def check(self, grammar: str) -> float:
        """The seconds it takes to compile. Raises InvalidGrammar; Unavailable when the process does not run."""
        job = _Job(grammar)
        self._put(job)
        try:
            if not job.has_begun.wait(_START_S):
                raise _Lost
            reply = self._reply(job)
        except TimeoutError:
            job.is_given_up = True
            self._child.kill()
            raise InvalidGrammar("it takes too long to compile") from None
        except _Lost:
            raise _unavailable() from None
        if "error" in reply:
            raise InvalidGrammar(reply["error"])
        return float(reply["seconds"])

    def _reply(self, job: _Job) -> dict[str, Any]:
        """Raises TimeoutError. The time is the processor's where the system tells it: what others compute on a busy
        machine is no grammar's cost."""
        deadline = time.monotonic() + _MAX_STARVED * self._limits.max_seconds
        remaining_s = self._limits.max_seconds
        while True:
            try:
                return job.outcome.result(remaining_s)
            except TimeoutError:
                spent_s = self._child.spent_s
                if spent_s is None or spent_s >= self._limits.max_seconds or time.monotonic() >= deadline:
                    raise
                remaining_s = max(self._limits.max_seconds - spent_s, _LEAST_WAIT_S)

    def _put(self, job: _Job) -> None:
        with self._lock:
            if not self._finalizer.alive:
                raise _unavailable()
            if self._thread is None:
                thread = threading.Thread(
                    target=_talk, args=(self._jobs, self._child), name="grammar sandbox", daemon=True
                )
                thread.start()
                self._thread = thread
        self._jobs.put(job)


def _unavailable() -> Unavailable:
    message = "grammars cannot be compiled now; try again soon"
    return Unavailable(message, code="server_is_overloaded", retry_after_s=5)


def _close(jobs: "queue.SimpleQueue[_Job | None]", child: "_Child") -> None:
    child.close()
    jobs.put(None)


def _talk(jobs: "queue.SimpleQueue[_Job | None]", child: "_Child") -> None:
    while (job := jobs.get()) is not None:
        try:
            job.outcome.set_result(_done(job, child))
        except BaseException as error:
            job.outcome.set_exception(error)
        finally:
            job.has_begun.set()
        del job
        with contextlib.suppress(_Lost):
            child.start()  # the next one shall not wait for it
    child.bury()


def _done(job: _Job, child: "_Child") -> dict[str, Any]:
    """Tried once more where somebody else ended the process."""
    for is_last in (False, True):
        child.start()
        if job.grammar is None:
            return {}
        job.has_begun.set()
        reply = child.ask(job.grammar.encode())
        if reply is not None:
            return reply
        if child.bury() in _BY_THE_GRAMMAR:
            raise InvalidGrammar("it takes too much memory to compile, or leads too deep")
        if is_last or job.is_given_up:
            break
    raise _Lost


class _Child:
    """The process while there is one. Used by the talking thread, but for `kill` and `close`."""

    def __init__(self, lexicon: Callable[[], bytes], limits: GrammarLimits) -> None:
        self._lexicon = lexicon
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_at_s: float | None = None  # by its own clock; None: nothing is asked of it
        self._is_closed = False
        # The garbage collector may close it, in the middle of a start.
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    @property
    def spent_s(self) -> float | None:
        """Processor time since it was asked; 0 while nothing is asked of it, None where the system does not tell."""
        if sys.platform != "linux":
            return None
        before, now = self._asked_at_s, self._cpu_s()
        return 0.0 if before is None or now is None else now - before

    def _cpu_s(self) -> float | None:
        pid = self.pid
        if pid is None or sys.platform != "linux":
            return None
        try:
            return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
        except OSError:
            return None

    def start(self) -> None:
        """Raises _Lost."""
        if self._process is not None and self._process.poll() is None:
            return
        self.bury()
        try:
            hello = [json.dumps(asdict(self._limits)).encode(), self._lexicon()]
            with self._lock:
                if self._is_closed:
                    raise _Lost
                self._process = _spawn()
            timer = threading.Timer(_START_S, self.kill)
            timer.daemon = True
            timer.start()
            try:
                for each in hello:
                    write_frame(_pipe(self._process.stdin), each)
                if read_frame(_pipe(self._process.stdout)) is None:
                    raise OSError("it ended while it started")
            finally:
                timer.cancel()
        except OSError as error:
            self._note_failure(error)
            raise _Lost from None

    def _note_failure(self, error: OSError) -> None:
        status = self.bury()
        if not self._is_closed:  # or it was ended by us
            _log.error("the process that compiles clients' grammars does not start: %s (status %s)", error, status)

    def ask(self, data: bytes) -> dict[str, Any] | None:
        """None: it is gone."""
        assert self._process is not None
        self._asked_at_s = self._cpu_s()
        try:
            write_frame(_pipe(self._process.stdin), data)
            reply = read_frame(_pipe(self._process.stdout))
        except OSError:
            return None
        finally:
            self._asked_at_s = None
        if reply is None:
            return None
        result: dict[str, Any] = json.loads(reply)
        if result.get("is_worn"):
            self.kill()
            self.bury()
        return result

    def bury(self) -> int | None:
        """Wait for a process that ended, or is about to. Its exit status; None where there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            status = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                _pipe(pipe).close()
        return status

    def kill(self) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()

    def close(self) -> None:
        """End the process, and start none any more. Whoever talks buries it."""
        with self._lock:
            self._is_closed = True
        self.kill()


def _spawn() -> "subprocess.Popen[bytes]":
    """Has no file or socket of ours but its two pipes, and no part in our terminal: Ctrl-C is ours to hear."""
    paths = [path or os.getcwd() for path in sys.path]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MALLOC_ARENA_MAX": "1"},
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "both are pipes"
    return stream
