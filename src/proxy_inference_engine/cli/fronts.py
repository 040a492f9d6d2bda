"""`pie serve --processes N`: one process that computes nothing and watches, and N front ends that answer on one port.

The sockets are the watcher's, one for each front end, so that a connection that waits for a front end which died waits
for the next one. Signals that it gets it passes on. It imports as little as it can.
"""

import contextlib
import logging
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from proxy_inference_engine.cli.port import listen_often
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

_log = logging.getLogger(__name__)

READY, SPREAD = b"r", b"s"  # what a front end says: that it serves, and that the others are to read their settings too
_COMMAND = "from proxy_inference_engine.cli.front import main; main()"
_ENDING = (signal.SIGTERM, signal.SIGINT)
_MAX_DEATHS = 5  # of one front end in a minute
_MINUTE = 60.0
_STDIN = 0


class FrontTask(NamedTuple):
    """What a front end is told."""

    number: int
    config: Config
    read: Callable[[], Config] | None
    socket: int  # its descriptor
    folder: Path  # where each leaves its figures for the others
    is_greeting: bool


class _Front:
    """One front end: its process, and a channel that is open for as long as both live."""

    def __init__(self, task: FrontTask) -> None:
        self.number = task.number
        self.channel, theirs = socket.socketpair()
        self.is_ready = False
        paths = [path or os.getcwd() for path in sys.path]
        with theirs:
            # A group of its own: Ctrl-C is the watcher's to hear, which passes it on once.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(), task.socket),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                process_group=0,
            )
        with contextlib.suppress(OSError):  # it died already
            self.channel.sendall(pickle.dumps(task))

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Fronts:
    """All of them. The first is waited for: what is wrong with the settings is said once."""

    def __init__(
        self, config: Config, read: Callable[[], Config] | None, sockets: list[socket.socket], folder: Path
    ) -> None:
        self._config = config
        self._read = read
        self._sockets = sockets
        self._folder = folder
        self._running: dict[int, _Front] = {}
        self._deaths: dict[int, list[float]] = {}
        self._due: dict[int, float] = {}  # who is to be started again, and when
        self._selector = selectors.DefaultSelector()
        self._has_terminal = os.isatty(_STDIN)
        self._has_begun = False  # the first serves
        self._was_renewed = False
        self._is_ending = False
        self._code = 0

    def run(self) -> int:
        """Run until all front ends have ended; the exit code is theirs."""
        with self._heard_signals():
            self._start(1, is_greeting=True)
            while self._running or self._due:
                for key, _ in self._selector.select(self._pause_s()):
                    if isinstance(key.data, _Front):
                        self._hear(key.data)
                    else:
                        key.data()
                self._start_due()
        return self._code

    # Their lives

    def _start(self, number: int, *, is_greeting: bool = False) -> None:
        descriptor = self._sockets[number - 1].fileno()
        front = _Front(FrontTask(number, self._config, self._read, descriptor, self._folder, is_greeting))
        self._running[number] = front
        self._selector.register(front.channel, selectors.EVENT_READ, front)
        _log.info("front end %d started", number, extra={"fields": {"pid": front.process.pid}})

    def _hear(self, front: _Front) -> None:
        said = b""
        with contextlib.suppress(ConnectionError):
            said = front.channel.recv(1)
        if said == READY:
            self._welcome(front)
        elif said == SPREAD:
            self._renew(but=front)
        else:
            self._bury(front)

    def _welcome(self, front: _Front) -> None:
        front.is_ready = True
        if self._was_renewed:  # what it was given is older than what the others have read
            front.send(signal.SIGHUP)
        if not self._has_begun and not self._is_ending:
            self._has_begun = True
            for number in range(2, len(self._sockets) + 1):
                self._start(number)

    def _bury(self, front: _Front) -> None:
        self._selector.unregister(front.channel)
        front.channel.close()
        code = front.process.wait()
        del self._running[front.number]
        (self._folder / str(front.number)).unlink(missing_ok=True)
        if self._is_ending:
            _log.info("front end %d ended", front.number)
        elif self._has_begun:
            self._mourn(front.number, _cause(code))
        else:  # it has said why, and the others would say the same
            self._code = 1
            self._end()

    def _mourn(self, number: int, cause: str) -> None:
        """Start a front end again that died, at once for the first time, unless it does nothing but die."""
        now = time.monotonic()
        recent = [at for at in self._deaths.get(number, ()) if now - at < _MINUTE] + [now]
        self._deaths[number] = recent
        if len(recent) >= _MAX_DEATHS:
            _log.error("front end %d died (%s), for the %dth time in a minute: all end", number, cause, len(recent))
            self._code = 1
            self._end()
            return
        wait_s = 0 if len(recent) == 1 else 2 ** (len(recent) - 2)
        self._due[number] = now + wait_s
        _log.error("front end %d died (%s): it is started again in %d s", number, cause, wait_s)

    def _pause_s(self) -> float | None:
        return None if not self._due else max(0.0, min(self._due.values()) - time.monotonic())

    def _start_due(self) -> None:
        now = time.monotonic()
        for number in [each for each, at in self._due.items() if at <= now]:
            del self._due[number]
            self._start(number)

    # Signals

    @contextlib.contextmanager
    def _heard_signals(self) -> Iterator[None]:
        """Handlers only note; a byte wakes whoever waits."""
        noted: list[int] = []

        def note(number: int, _frame: FrameType | None) -> None:
            noted.append(number)

        def act() -> None:
            mine.recv(4096)
            while noted:
                self._act(noted.pop(0))

        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        theirs.setblocking(False)
        self._selector.register(mine, selectors.EVENT_READ, act)
        before = {number: signal.signal(number, note) for number in (*_ENDING, signal.SIGHUP)}
        wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            mine.close()
            theirs.close()

    def _act(self, number: int) -> None:
        if number != signal.SIGHUP or (self._has_terminal and not os.isatty(_STDIN)):
            if self._is_ending:
                self._code = 128 + number
            self._end()
        else:
            self._renew()

    def _end(self) -> None:
        """Whoever is still answering gets its time; a second time it does not. Nobody new is let in."""
        self._is_ending = True
        self._due.clear()
        for sock in self._sockets:
            sock.close()
        for front in self._running.values():
            front.send(signal.SIGTERM)

    def _renew(self, but: _Front | None = None) -> None:
        """Keys and configuration; one that has just begun to start reads them when it has."""
        self._was_renewed = True
        for front in self._running.values():
            if front.is_ready and front is not but:
                front.send(signal.SIGHUP)


def serve_fronts(config: Config, read: Callable[[], Config] | None) -> int:
    """Run them all; the exit code is theirs. Raises StartupError."""
    if os.name != "posix":
        raise StartupError("processes: several on one port need Linux or macOS")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(sock) for sock in listen_often(config.host, config.port, config.processes)]
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pie-"))
        return Fronts(config, read, sockets, Path(folder)).run()


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
