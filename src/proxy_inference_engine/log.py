"""Logging: one line a record on stderr, `time level logger message key=value …`, and its traceback if it has one.

Nobody logs prompts or answers.

Key and value pairs come as `logger.info("message", extra={"fields": {…}})`.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

PACKAGE = "proxy_inference_engine"


class LineFormatter(logging.Formatter):
    """Keeps a message on one line, whatever a client put into a value."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = record.name.removeprefix(f"{PACKAGE}.")
        parts = [time, record.levelname.lower(), name, _escape(record.getMessage())]
        fields = getattr(record, "fields", {})
        parts += [f"{key}={_value(value)}" for key, value in fields.items() if value is not None]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send every logger to `stream` (stderr). Calling it again replaces what was set."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(level.upper())
    # A full disk or a closed terminal must not disturb the requests.
    logging.raiseExceptions = False


def _escape(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=') else json.dumps(text)
