"""An answer on the terminal, as it comes: reasoning dim and apart, and something to see while nothing comes."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TextIO

from proxy_inference_engine.cli.talk.partner import AnswerEnd, Saying
from proxy_inference_engine.cli.terminal import harmless, has_color, is_terminal, paint, prepare
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.output.events import CallDelta, CallStarted, ReasoningDelta, TextDelta

_DIM, _NORMAL = "\x1b[2m", "\x1b[0m"
_SIGNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE_S, _TURN_S = 0.4, 0.1


class Waiting:
    """A sign that turns while a first token is waited for, on a terminal; `tell` says what for, where it is known."""

    def __init__(self, stream: TextIO | None, tell: Callable[[], str] = str) -> None:
        self._stream = stream if is_terminal(stream) else None
        self._tell = tell
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Waiting":
        if self._stream is not None:
            self._thread = threading.Thread(target=self._turn, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nothing is left of it. Harmless when it is over."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_over.set()
            thread.join()

    def _turn(self) -> None:
        assert self._stream is not None
        began, has_written, number, what = time.monotonic(), False, 0, ""
        while not self._is_over.wait(_TURN_S if has_written else _PATIENCE_S):
            if number % 10 == 0:  # asking may be a request of its own
                what = self._tell() or "reading"
            seconds = int(time.monotonic() - began)
            text = f"{_SIGNS[number % len(_SIGNS)]} {what}{f', {seconds} s' if seconds else ''}"
            self._write(f"\r{paint(text, 'dim', self._stream)}\x1b[K")
            has_written, number = True, number + 1
        if has_written:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        assert self._stream is not None
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class Speech:
    """Writes what is said. Reasoning is for people: left out where the output goes elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = is_terminal(stream)
        self._is_dim = has_color(stream)
        self._has_text = self._is_reasoning = False
        self._held = ""  # line ends that may be the last: nobody wants to see those

    def say(self, saying: Saying) -> None:
        match saying:
            case ReasoningDelta(text):
                if self._is_terminal:
                    self._turn(to_reasoning=True)
                    self._write(text)
            case TextDelta(text):
                self._turn(to_reasoning=False)
                self._write(text)
            case CallStarted(_, name):
                self._turn(to_reasoning=False)
                self._write(f"\n→ {name} ")
            case CallDelta(_, arguments):
                self._write(arguments)
            case _:
                pass

    def _turn(self, *, to_reasoning: bool) -> None:
        if to_reasoning is self._is_reasoning:
            return
        self._is_reasoning, self._held = to_reasoning, ""
        if to_reasoning:
            self._stream.write(_DIM if self._is_dim else "(thinking) ")
        else:
            self._stream.write(f"{_NORMAL if self._is_dim else ''}\n\n")

    def _write(self, text: str) -> None:
        self._has_text = True
        if self._is_terminal:
            whole = self._held + harmless(text)
            text = whole.rstrip("\n")
            self._held = whole[len(text) :]
        self._stream.write(text)
        self._stream.flush()

    def finish(self) -> None:
        if self._has_text:
            self._stream.write(f"{_NORMAL}\n" if self._is_reasoning and self._is_dim else "\n")
            self._stream.flush()


def speak(sayings: Generator[Saying, None, None], tell: Callable[[], str] = str) -> AnswerEnd | None:
    """Write an answer to stdout as it comes; its end, where it has one. Closes the generator. Raises PieError."""
    if sys.stdout is None:
        raise StartupError("there is no output to write to")
    prepare(sys.stdout)
    speech, end = Speech(sys.stdout), None
    with contextlib.closing(sayings), Waiting(sys.stdout, tell) as waiting:
        try:
            for saying in sayings:
                if isinstance(saying, AnswerEnd):
                    end = saying
                elif isinstance(saying, TextDelta | ReasoningDelta | CallStarted):
                    waiting.stop()
                speech.say(saying)
        finally:
            waiting.stop()
            speech.finish()
    return end
