"""`pie run "question"`: one answer on stdout."""

import asyncio
import os
import sys

from proxy_inference_engine.cli.session import session, speak
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError


def run(config: Config, question: str) -> int:
    """Answer once; without a question it is read from stdin."""
    if question in ("", "-"):
        question = _read(is_wanted=question == "-")
    if not question.strip():
        raise StartupError('what is the question? pie run "…"')
    with session(config) as conversation:
        try:
            asyncio.run(speak(conversation, question))
        except BrokenPipeError:
            # Whoever read us has enough. Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _read(*, is_wanted: bool) -> str:
    """What stdin has; nothing where it is closed, or a terminal that nobody asked for."""
    if sys.stdin is None or (sys.stdin.isatty() and not is_wanted):
        return ""
    return sys.stdin.read()
