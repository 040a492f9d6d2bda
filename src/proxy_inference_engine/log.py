"""Logging: one line a record on stderr, `time level logger message key=value …`, and its traceback if it has one.

Nobody logs prompts or answers. Nobody waits for whoever reads them either: a thread writes the lines, and those that
find too many before them are counted instead.

Key and value pairs come as `logger.info("message", extra={"fields": {…}})`.
"""

import json
import logging
import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

PACKAGE = "proxy_inference_engine"
MAX_LINES = 8192  # that may wait to be written
_LAST_SECONDS = 1.0  # what waits at the end gets this long


class LineFormatter(logging.Formatter):
    """Keeps a message on one line, whatever a client put into a value."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = record.name.removeprefix(f"{PACKAGE}.")
        parts = [time, record.levelname.lower(), name, _escape(record.getMessage())]
        fields = {"process": self._process, **getattr(record, "fields", {})}
        parts += [f"{key}={_value(value)}" for key, value in fields.items() if value is not None]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class LineHandler(logging.Handler):
    """Hands lines to a thread that writes them: a full pipe or a stopped terminal holds up that thread alone."""

    def __init__(self, stream: TextIO, process: int | None = None) -> None:
        super().__init__()
        self.setFormatter(LineFormatter(process))
        self.num_dropped = 0
        self._stream = stream
        # A simple queue: the garbage collector may begin in the middle of an entry, and what it frees may log as well.
        # An event among the lines is set when all before it are written; None ends the thread.
        self._lines: queue.SimpleQueue[str | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= MAX_LINES:
            self.num_dropped += 1
            return
        try:
            self._lines.put(self.format(record) + "\n")
        except Exception:
            self.handleError(record)
        if self._thread is None:  # under the handler's lock
            self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Wait until everything is written, but not for long: nobody may be reading."""
        if self._thread is not None and self._thread.is_alive():
            is_written = threading.Event()
            self._lines.put(is_written)
            is_written.wait(_LAST_SECONDS)

    def close(self) -> None:
        self.flush()
        self._lines.put(None)
        super().close()

    def _write_all(self) -> None:
        num_told = 0
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._write(line)
            num_dropped = self.num_dropped
            if num_dropped > num_told:
                self._write(self._gap(num_dropped - num_told))
                num_told = num_dropped

    def _gap(self, num_lines: int) -> str:
        text = "lines were dropped: nobody read in time"
        record = logging.LogRecord(f"{PACKAGE}.log", logging.WARNING, "", 0, text, (), None)
        record.fields = {"dropped": num_lines}
        return self.format(record) + "\n"

    def _write(self, line: str) -> None:
        with suppress(AttributeError, OSError, ValueError):  # a full disk, or a terminal that was closed or never there
            descriptor = _descriptor(self._stream)
            if descriptor is None:
                self._stream.write(line)
                return
            # Past the stream's own buffer: whoever is stuck inside that holds a lock which Python needs to end.
            data = line.encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(descriptor, data) :]


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None  # a stream in memory


def num_dropped() -> int:
    """Lines that were never written because nobody read those before them."""
    return sum(handler.num_dropped for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


def configure(level: str, stream: TextIO | None = None, process: int | None = None) -> None:
    """Send every logger to `stream` (stderr). Calling it again replaces what was set. `process`: which of several."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, LineHandler):
            handler.close()
    root.handlers = [LineHandler(sys.stderr if stream is None else stream, process)]
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(level.upper())
    logging.raiseExceptions = False  # a record that cannot be formatted disturbs no request


def _escape(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=') else json.dumps(text)
