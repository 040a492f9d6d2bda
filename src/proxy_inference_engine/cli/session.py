"""What `pie run` and `pie chat` share: an engine for one user, and an answer on stdout."""

import sys
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from io import TextIOWrapper

from proxy_inference_engine.cli.conversation import Conversation
from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import choose_format
from proxy_inference_engine.models.download import obtain
from proxy_inference_engine.models.load import load_engine
from proxy_inference_engine.models.profile import profile

_DIM, _NORMAL = "\x1b[2m", "\x1b[0m"
# What a model writes must not steer the terminal: no control characters but tab and new line.
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


@contextmanager
def session(config: Config) -> Iterator[Conversation]:
    """A conversation with the configured model; one sequence at a time is all a terminal needs."""
    with ProgressLine() as line:
        name = obtain(config, line).name
    with closing(ProgressLine()) as line:
        # Of use to people only: nothing where the output goes elsewhere.
        worker = load_engine(config.model_copy(update={"slots": 1}), line if line.is_terminal else None)
    try:
        info = worker.info
        format_ = choose_format(config.format, info.chat_template, info.architecture, name)
        yield Conversation(worker, format_, profile(name, info.architecture, info.generation))
    finally:
        worker.stop()


async def speak(conversation: Conversation, question: str) -> None:
    """Write the answer as it comes. Reasoning is for people: dim on a terminal, left out elsewhere."""
    if sys.stdout is None:
        raise StartupError("there is no output to write to")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without these letters
    is_terminal = sys.stdout.isatty()
    removed = _CONTROLS if is_terminal else {}
    has_text = is_dim = False
    try:
        async with aclosing(conversation.ask(question)) as pieces:
            async for text, is_reasoning in pieces:
                if is_reasoning and not is_terminal:
                    continue
                if is_reasoning is not is_dim:
                    sys.stdout.write(_DIM if is_reasoning else f"{_NORMAL}\n\n")
                    is_dim = is_reasoning
                has_text = True
                sys.stdout.write(text.translate(removed))
                sys.stdout.flush()
    finally:
        if has_text:
            sys.stdout.write(f"{_NORMAL}\n" if is_dim else "\n")
            sys.stdout.flush()
