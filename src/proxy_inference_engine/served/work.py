"""How much there is to do before an ask can be submitted: much of it is done in a thread."""

from proxy_inference_engine.served.ask import Ask
from proxy_inference_engine.state_machine.demand import AnyText

# What work beside the text counts for, in characters: DRY looks at the whole vocabulary, a grammar is compiled.
_VOCABULARY_CHARS = _COMPILING_CHARS = 1 << 18


class NotCompiled(Exception):
    """A grammar is not known yet, and making it may take long."""


def binds(ask: Ask) -> bool:
    """Whether a grammar is compiled for it."""
    return bool(ask.demand.tools) or not isinstance(ask.demand.output, AnyText)


def size_of_work(ask: Ask) -> int:
    """How much there is to do before an ask can be submitted, in characters of text gone through."""
    return size_of_reading(ask) + (_COMPILING_CHARS if binds(ask) else 0)


def size_of_reading(ask: Ask) -> int:
    """The same where its grammar is known."""
    scanning = _VOCABULARY_CHARS if ask.sampling.dry_multiplier else 0
    return ask.prompt.num_chars + len(ask.prediction) + scanning
