"""How far something is: one line that is rewritten on a terminal, elsewhere a plain line now and then, on stderr."""

import contextlib
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from proxy_inference_engine.config.sizes import format_size

_BAR_CHARS = 24
_REWRITE_S, _LINE_S = 0.1, 15.0
_WINDOW_S = 10.0  # what the speed is taken from


class ProgressLine:
    """A `Watcher`. As a context of downloads it leaves the terminal in order, and says that Ctrl-C lost nothing."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        form: Callable[[int], str] = format_size,  # how an amount is written
    ) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream  # none at all where stderr is closed
        self.is_terminal = self._stream is not None and self._stream.isatty()
        self._clock = clock
        self._form = form
        self._seen: deque[tuple[float, int]] = deque()  # moments, and how many bytes there were
        self._next_s = 0.0
        self._is_open = self._has_begun = False

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._has_begun and kind is not None and issubclass(kind, KeyboardInterrupt):
            self.say("stopped; the same command goes on from here")

    def say(self, line: str) -> None:
        self.close()
        self._write(f"{line}\n")

    def show(self, num_bytes: int, total_bytes: int) -> None:
        now = self._clock()
        self._has_begun = True
        if self._seen and num_bytes < self._seen[-1][1]:  # another download, or one that has to start over
            self._seen.clear()
        self._seen.append((now, num_bytes))
        while now - self._seen[0][0] > _WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()
        is_over = num_bytes >= total_bytes
        if now < self._next_s and not is_over:
            return
        self._next_s = now + (_REWRITE_S if self.is_terminal else _LINE_S)
        text = self._describe(num_bytes, total_bytes)
        if not self.is_terminal:
            self._write(f"{text}\n")
            return
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r{f'{_bar(num_bytes, total_bytes)} {text}'[:width]}\x1b[K")
        self._is_open = True
        if is_over:
            self.close()

    def _describe(self, num_bytes: int, total_bytes: int) -> str:
        percent = 100 * num_bytes // max(1, total_bytes)
        text = f"{percent} %, {self._form(num_bytes)} of {self._form(total_bytes)}"
        (first_s, first_bytes), (last_s, last_bytes) = self._seen[0], self._seen[-1]
        if last_s <= first_s or last_bytes <= first_bytes:
            return text
        speed = (last_bytes - first_bytes) / (last_s - first_s)
        left = round((total_bytes - num_bytes) / speed)
        if speed >= 1:  # few of many answers, say: 0 a second would be said of what goes on
            text += f", {self._form(int(speed))}/s"
        return f"{text}, {left // 60}:{left % 60:02d} left" if left else text

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):  # a broken terminal is no reason not to download
                self._stream.write(text)
                self._stream.flush()


def _bar(num_bytes: int, total_bytes: int) -> str:
    num_filled = _BAR_CHARS * num_bytes // max(1, total_bytes)
    return f"[{'#' * num_filled}{'-' * (_BAR_CHARS - num_filled)}]"
