"""`pie chat`: a conversation on the terminal. Ctrl-C stops an answer, Ctrl-D leaves."""

import asyncio
import contextlib
import sys

from proxy_inference_engine.cli.conversation import Conversation
from proxy_inference_engine.cli.session import session, speak
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import ContextLengthExceeded, PieError, StartupError

with contextlib.suppress(ImportError):
    import readline  # noqa: F401  # gives input() its line editing and history; some Pythons have none

_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


def chat(config: Config) -> int:
    if sys.stdin is None:
        raise StartupError("there is nobody to talk to: stdin is closed")
    with session(config) as conversation:
        if sys.stdin.isatty():
            print(_HELP)
        talk(conversation)
    return 0


def talk(conversation: Conversation) -> None:
    """Read lines and answer them until the end of the input or /exit."""
    # One event loop for the whole conversation; its Ctrl-C cancels the answer and nothing else.
    with asyncio.Runner() as runner:
        while (line := _read_line()) is not None and line not in ("/exit", "/quit"):
            if line == "/clear":
                conversation.clear()
            elif line.startswith("/"):
                print(_HELP)
            elif line:
                _answer(runner, conversation, line)


def _read_line() -> str | None:
    """The next line, stripped; None at the end. Ctrl-C throws away what was typed."""
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()


def _answer(runner: asyncio.Runner, conversation: Conversation, question: str) -> None:
    try:
        runner.run(speak(conversation, question))
    except KeyboardInterrupt:
        print("(stopped)", file=sys.stderr)
    except ContextLengthExceeded as error:
        print(f"pie: {error.message}: /clear to start over", file=sys.stderr)
    except PieError as error:
        print(f"pie: {error.message}", file=sys.stderr)
