"""`pie chat`: a conversation on the terminal. Ctrl-C stops an answer, Ctrl-D leaves."""

import sys
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path

from proxy_inference_engine.cli.talk.conversation import TerminalConversation
from proxy_inference_engine.cli.talk.editor import LineEditor
from proxy_inference_engine.cli.talk.inputs import read_format, read_settings
from proxy_inference_engine.cli.talk.partner import AnswerEnd, Saying
from proxy_inference_engine.cli.talk.search import find_partner
from proxy_inference_engine.cli.talk.slash import EXIT, RETRY, act, completions
from proxy_inference_engine.cli.talk.speech import speak
from proxy_inference_engine.cli.terminal import fitted, is_terminal, paint
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import PieError, StartupError

_HISTORY = "chat_history"


def chat(
    config: Config, *, schema: str | None = None, system: str | None = None, settings: list[str] | None = None
) -> int:
    if sys.stdin is None:
        raise StartupError("there is nobody to talk to: stdin is closed")
    format_ = None if schema is None else read_format(schema)
    options = read_settings(settings or ())
    with closing(find_partner(config)) as partner:
        conversation = TerminalConversation(partner, system, format_, options)
        if sys.stdin.isatty():
            greeting = fitted(f"{partner.name}, {partner.place}. /help lists the commands, Ctrl-D leaves.", 0)
            print(greeting.replace(partner.name, paint(partner.name, "bold"), 1))
        talk(conversation, None if config.data_dir is None else config.data_dir / _HISTORY)
    return 0


def talk(conversation: TerminalConversation, history: Path | None = None) -> None:
    """Read lines and answer them until the end of the input or /exit."""
    editor = LineEditor(history, partial(completions, conversation))
    while True:
        try:  # around all of it: Ctrl-C may come between a line and its answer
            line = editor.read()
            if line is None or line in EXIT:
                break
            if line == RETRY:
                _answer(conversation, conversation.retry())
            elif line.startswith("/"):
                print(act(conversation, line))
            elif line:
                _answer(conversation, conversation.ask(line))
        except PieError as error:
            hint = " /clear starts over." if error.code == "context_length_exceeded" else ""
            print(f"pie: {error.message}{hint}", file=sys.stderr)
        except OSError as error:
            print(f"pie: {error.strerror or error}: {error.filename}", file=sys.stderr)
        except KeyboardInterrupt:
            print("(stopped)", file=sys.stderr)
    editor.trim()


def _answer(conversation: TerminalConversation, sayings: Generator[Saying, None, None]) -> None:
    end = speak(sayings, conversation.partner.progress)
    if end is not None and is_terminal(sys.stdout):
        print("".join(f"{paint(note, 'dim')}\n" for note in _notes(end)))


def _notes(end: AnswerEnd) -> list[str]:
    """What a person would wonder about."""
    notes = []
    if end.finish_reason == "length":
        notes.append("(cut off: the limit of tokens, or the end of the context)")
    if end.ignored:
        notes.append(f"(without effect on this model: {', '.join(end.ignored)})")
    return notes
